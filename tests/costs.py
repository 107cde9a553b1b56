# SPDX-License-Identifier: Apache-2.0
"""What a test costs, as marks, which follow from what it uses: itself, in its fixtures, in functions and classes of its modules.

So nobody has to think of a mark. `--fast` leaves out the tests that have one, and fails those that start a build all the same.
"""

from __future__ import annotations

import inspect
import sys
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any

from environment import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["COSTS", "costs_of", "forbid_builds"]

COSTS = {
    "build": "starts processes that build, or look at all that builds need",
    "isolated": "makes virtual environments, and builds in isolation",
    "sanitizer": "compiles the native run time with sanitizers",
    "fuzz": "runs fuzzers",
    "torch": "needs torch",
    "jax": "needs JAX",
    "pythons": "uses every Python that is found",
}

_NAMES = {
    "build": {"call_hook", "build_environment", "run_command"},
    "isolated": {"build_own_wheel", "make_venv", "pip_install"},
}
_WORDS = {"build": {"pip", "build_wheel"}, "torch": {"torch"}, "jax": {"jax", "jax.numpy"}}
_TESTS = str(ROOT / "tests")


def costs_of(functions: Iterable[Any]) -> set[str]:
    """Return the marks that follow from what a test and its fixtures use."""
    found: set[str] = set()
    for code in _codes(functions):
        names = set(code.co_names)
        words = {word for one in code.co_consts for word in (one if isinstance(one, tuple) else [one]) if isinstance(word, str)}
        found |= {cost for cost, wanted in _NAMES.items() if wanted & names}
        # torch and JAX are words of many tests: those that need them ask for them so.
        found |= {cost for cost, wanted in _WORDS.items() if wanted & words and (cost == "build" or "importorskip" in names)}
    return found


def _codes(roots: Iterable[Any]) -> Iterator[CodeType]:
    """Yield the code of functions, of functions in them, and of what of the tests' own they name."""
    waiting = [inspect.unwrap(getattr(root, "__func__", root)) for root in roots]
    seen: set[int] = set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, type):
            waiting.extend(member for member in vars(one).values() if isinstance(member, FunctionType))
        elif isinstance(one, FunctionType) and one.__code__.co_filename.startswith(_TESTS):
            codes = [one.__code__]
            for code in codes:
                yield code
                codes.extend(const for const in code.co_consts if isinstance(const, CodeType))
                named = [one.__globals__.get(name) for name in code.co_names]
                waiting.extend(named)


def forbid_builds() -> None:
    """Fail whatever starts a build, or a compile process, from here on."""

    def watch(event: str, facts: tuple[Any, ...]) -> None:
        if event == "subprocess.Popen":
            words = [str(word) for word in facts[1]]
            line = " ".join(words)
            if "pip" in words or any(sign in line for sign in ("build_wheel", "build_editable", "frontends.worker", "flydsl_build build")):
                msg = f"a test without the mark `build` starts a build (tests/costs.py): {line[:200]}"
                raise AssertionError(msg)

    sys.addaudithook(watch)
