# SPDX-License-Identifier: Apache-2.0
"""Keep what native code writes to standard error, so that it can stand in the message of the fault it belongs to."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import sys
import tempfile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CapturedOutput", "captured_stderr"]

_LIMIT = 20_000


class CapturedOutput:
    """What was written; readable after, and inside, the block."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._start = os.fstat(descriptor).st_size
        self._text: str | None = None

    def text(self) -> str:
        """Return the last part of the output."""
        if self._text is None:
            sys.stderr.flush()
            size = os.fstat(self._descriptor).st_size
            data = os.pread(self._descriptor, _LIMIT, max(self._start, size - _LIMIT))
            return data.decode(errors="replace").strip()
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
