# SPDX-License-Identifier: Apache-2.0
"""What the fuzzers share: mutations of real files, and a loop that lasts as long as it is told and watches what is done.

`FLYDSL_BUILD_FUZZ_SECONDS` says how long each fuzzer runs. Hypothesis makes the mutations and, where something fails, shrinks them.
"""

from __future__ import annotations

import copy
import os
import resource
import signal
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hypothesis.strategies import SearchStrategy

__all__ = ["VALUES", "edited", "fuzz", "mutated"]

SECONDS = float(os.environ.get("FLYDSL_BUILD_FUZZ_SECONDS", "2"))
_HANG = 30  # seconds for one input, of a few kilobytes, on a busy machine
_MEMORY = 512 << 20  # bytes of address space beside what is used at the start: more is a MemoryError, which no reader may raise


def fuzz(inputs: SearchStrategy[Any], check: Callable[[Any], object], allowed: tuple[type[Exception], ...], *, share: float = 1) -> None:
    """Run `check` on inputs until the time is over.

    Parameters
    ----------
    inputs
        What `check` is called with.
    check
        Reads one input; asserts what must hold where it returns.
    allowed
        What it may raise: the documented errors, and no subclasses of them unless they are documented too.
    share
        Of the time.
    """
    counts = {"read": 0, "refused": 0}

    def stop(*_: object) -> None:
        msg = f"one input took more than {_HANG} seconds"
        raise AssertionError(msg)

    def one(value: Any) -> None:
        signal.setitimer(signal.ITIMER_REAL, _HANG)
        try:
            check(value)
        except allowed as error:
            if type(error) not in allowed:
                raise
            counts["refused"] += 1
        else:
            counts["read"] += 1
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    old_handler = signal.signal(signal.SIGALRM, stop)
    old_limits = resource.getrlimit(resource.RLIMIT_AS)
    if "ASAN_OPTIONS" not in os.environ:  # AddressSanitizer reserves terabytes, and has a limit of its own
        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, old_limits[1]))
    run = settings(max_examples=200, database=None, deadline=None, suppress_health_check=list(HealthCheck))(given(inputs)(one))
    try:
        end = time.monotonic() + SECONDS * share
        while time.monotonic() < end:
            run()
    finally:
        signal.signal(signal.SIGALRM, old_handler)
        resource.setrlimit(resource.RLIMIT_AS, old_limits)
    print(counts)
    # A fuzzer whose inputs are all alike finds nothing.
    assert all(counts.values())


# ---- bytes -----------------------------------------------------------------------------------------------------------

# An edit is twelve bytes of one drawn string: drawing its parts one by one would cost a hundred times what most readers take.
_EDIT = struct.Struct("<BBHQ")
_EDITS = st.binary(min_size=_EDIT.size, max_size=8 * _EDIT.size)
_NUMBERS = (0, 1, 2, 7, 8, 63, 64, 0x7F, 0x80, 0xFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 2**63 - 1, 2**63, 2**64 - 1)


def _edit(data: bytearray, how: int, where: int, small: int, large: int) -> None:
    # Headers and tables of contents are where the rest is decided.
    at = (small % (64, 512, 4096, 1 << 16)[where % 4]) % (len(data) or 1)
    number = large if where & 0x10 else _NUMBERS[large % len(_NUMBERS)]
    length = large % (8 if where & 0x20 else 4096)
    match how % 10:
        case 0:
            data[at : at + 1] = bytes([number & 0xFF])
        case 1:
            data[at : at + 1] = bytes([data[at] ^ 1 << (large & 7)]) if data else b""
        case 2 | 3 | 4 as kind:
            width = 1 << kind - 1
            data[at : at + width] = (number % (1 << 8 * width)).to_bytes(width, "little")
        case 5:  # a number that was there, a little more or less
            old = int.from_bytes(data[at : at + 4], "little")
            data[at : at + 4] = ((old + large % 17 - 8) % 2**32).to_bytes(4, "little")
        case 6:
            del data[at : len(data) if where & 0x40 else at + length]
        case 7:
            data[at:at] = data[at : at + length]
        case 8:
            data[at:at] = number.to_bytes(8, "little") * (length // 8)
        case _:
            data[at : at + length] = data[large % (len(data) or 1) :][:length]


def mutated(files: Sequence[bytes]) -> SearchStrategy[bytes]:
    """Return files with one to eight edits each."""

    def apply(data: bytes, edits: bytes) -> bytes:
        made = bytearray(data)
        for edit in _EDIT.iter_unpack(edits[: len(edits) // _EDIT.size * _EDIT.size]):
            _edit(made, *edit)
        return bytes(made)

    return st.builds(apply, st.sampled_from(files), _EDITS)


# ---- trees -----------------------------------------------------------------------------------------------------------

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 3, 16, 64, 2**16, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64, 10**30),
    *(0.0, -0.0, 1.5, 1e308, "", "?", "M", "M%8", "M%3", "%", "?%0", "a:b", "../x", "/etc/passwd", "\0", "\ud800", "ü", "x" * 5000),
    *("f32", "bool", "f8e4m3fn", "i64", "tensor", "pointer", "scalar", "stream", "struct", "layout", "constexpr", "gfx942"),
    *([], {}, [0], [1, 1, 1], ["?", "?"], {"kind": "stream"}, {"": {}}, [[[[]]]], list(range(40)), ["?"] * 40),
)
"""What goes into places that were made for something else."""


def _places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (container, key) of all nodes."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield tree, key
        yield from _places(value)


def edited(tree: Any, values: Sequence[Any] = VALUES) -> SearchStrategy[Any]:
    """Return copies of a tree of dicts and lists in which one to four nodes were removed, doubled, moved or replaced."""

    def apply(edits: bytes) -> Any:
        made = copy.deepcopy(tree)
        for how, which, place, more in _EDIT.iter_unpack(edits[: len(edits) // _EDIT.size * _EDIT.size]):
            places = list(_places(made))
            if not places:
                break
            container, key = places[place % len(places)]
            source, name = places[more % len(places)]
            match how % 6:
                case 0 | 1:
                    container[key] = copy.deepcopy(values[which % len(values)])
                case 2:
                    del container[key]
                case 3:
                    container[key] = copy.deepcopy(source[name])
                case 4 if isinstance(container, list):
                    container[key:key] = [copy.deepcopy(container[key])] * (1 + which % 3)
                case 5 if isinstance(container, dict):
                    container[str(values[which % len(values)])[:20]] = copy.deepcopy(source[name])
        return made

    return st.builds(apply, st.binary(min_size=_EDIT.size, max_size=4 * _EDIT.size))
