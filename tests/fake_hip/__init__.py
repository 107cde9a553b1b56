# SPDX-License-Identifier: Apache-2.0
"""Build and steer the stand-in `libamdhip64` of the tests."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
from pathlib import Path
from typing import Any

__all__ = ["FakeHip", "build"]

_SOURCE = Path(__file__).with_name("fake_hip.c")


def build(folder: Path, *defines: str, soname: str = "libamdhip64.so.7") -> Path:
    """Compile the library into `folder` under its soname and return its path.

    Parameters
    ----------
    defines
        Variants: `FAKE_HIP_OLD`, `FAKE_HIP_NO_CLUSTER`, `FAKE_HIP_NO_ATTRIBUTES`, `FAKE_HIP_BROKEN`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / soname
    compiler = os.environ.get("CC", "cc")
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", f"-Wl,-soname,{soname}"]
    subprocess.run([compiler, *flags, *(f"-D{name}" for name in defines), "-o", library, _SOURCE, "-lpthread"], check=True)
    return library


class FakeHip:
    """The copy of the library that this process has mapped, or maps now."""

    def __init__(self, path: Path | str) -> None:
        self._library = ctypes.CDLL(str(path))
        self._library.fake_hip_events.restype = ctypes.c_char_p
        self._library.fake_hip_capture.argtypes = [ctypes.c_void_p]

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        """Return what has happened since `clear`, in order; only the events of `kinds`, if any are given."""
        found = [json.loads(line) for line in self._library.fake_hip_events().decode().splitlines()]
        return [event for event in found if not kinds or event["event"] in kinds]

    def clear(self) -> None:
        """Forget the events."""
        self._library.fake_hip_clear()

    def fail(self, name: str, code: int, skip: int = 0) -> None:
        """Make the next call of an entry point, after `skip` others, return `code`."""
        self._library.fake_hip_fail(name.encode(), code, skip)

    def capture(self, stream: int | None) -> None:
        """Begin (None: end) a graph capture on a stream."""
        self._library.fake_hip_capture(ctypes.c_void_p(-1 if stream is None else stream))

    def stream(self, handle: int, device: int) -> None:
        """Make a handle a stream of a device."""
        self._library.fake_hip_stream(ctypes.c_void_p(handle), device)

    def memory(self, address: int, size: int, kind: int) -> None:
        """Make memory known to HIP, as of a number of its hipMemoryType."""
        self._library.fake_hip_memory(ctypes.c_void_p(address), ctypes.c_size_t(size), kind)

    def last_error(self) -> int:
        """Return the error of this thread that HIP remembers, and clear it."""
        return int(self._library.hipGetLastError())

    def probe(self, function: int | None) -> None:
        """Let each launch call a C function `int (void)`, given by its address, and record what it returns as "probe"."""
        self._library.fake_hip_probe(ctypes.c_void_p(function))

    def null(self, *, on: bool) -> None:
        """Let launches return at once, unrecorded."""
        self._library.fake_hip_null(int(on))
