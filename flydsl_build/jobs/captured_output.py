# SPDX-License-Identifier: Apache-2.0
"""Keep what native code writes to standard error, so that it can stand in the message of the fault it belongs to.

A worker's log is read here by the worker itself and by the process that started it.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import stat
import sys
import tempfile
from typing import TYPE_CHECKING

from flydsl_build.errors import excerpt

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CapturedOutput", "captured_stderr", "read_log"]

# Of a longer output, this much is read from the reason that LLVM gives for ending the process, or from the beginning, and at the end.
_LIMIT = 1 << 20
_REASON = b"LLVM ERROR: "


def read_log(descriptor: int, start: int) -> str:
    """Return what a file has from a position on; of what no message can show, parts, among them LLVM's reason."""
    size = os.fstat(descriptor).st_size
    if size - start <= 2 * _LIMIT:
        data = os.pread(descriptor, size - start, start)
    else:
        with mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) as log:
            reason = log.find(_REASON, start)
            begin = start if reason < 0 else reason
            end = max(begin + _LIMIT, size - _LIMIT)
            data = log[begin : begin + _LIMIT] + b"\n... %d bytes ...\n" % (end - begin - _LIMIT) + log[end:size]
    return data.decode(errors="replace").strip()


class CapturedOutput:
    """What was written; readable after, and inside, the block."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._start = os.fstat(descriptor).st_size
        self._text: str | None = None

    def text(self) -> str:
        """Return the output as a message shows it."""
        if self._text is None:
            sys.stderr.flush()
            return excerpt(read_log(self._descriptor, self._start))
        return self._text

    def close(self) -> None:
        """Keep the text: the file is about to go."""
        self._text = self.text()


def _is_log(descriptor: int) -> bool:
    """Tell whether a descriptor is a file that can be read, and that every write appends to."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    return stat.S_ISREG(os.fstat(descriptor).st_mode) and flags & os.O_ACCMODE == os.O_RDWR and bool(flags & os.O_APPEND)


@contextlib.contextmanager
def captured_stderr() -> Iterator[CapturedOutput]:
    """Note what the block writes to file descriptor 2.

    That of a worker is its log, which is read here and stays complete also when native code ends the process. Any other is
    replaced by a file for the length of the block; afterwards the output is passed on to the real one.
    """
    sys.stderr.flush()
    if _is_log(2):
        output = CapturedOutput(2)
        try:
            yield output
        finally:
            output.close()
        return
    saved = os.dup(2)
    with tempfile.TemporaryFile() as file:
        output = CapturedOutput(file.fileno())
        os.dup2(file.fileno(), 2)
        try:
            yield output
        finally:
            output.close()
            os.dup2(saved, 2)
            os.close(saved)
            if output.text():
                sys.stderr.write(output.text() + "\n")
                sys.stderr.flush()
