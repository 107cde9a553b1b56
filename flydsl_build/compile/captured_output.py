# SPDX-License-Identifier: Apache-2.0
"""Keep what native code writes to standard error, so that it can stand in the message of the fault it belongs to."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["CapturedOutput", "captured_stderr"]

_LIMIT = 20_000


class CapturedOutput:
    """What was written; readable after, and inside, the block."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._text: str | None = None

    def text(self) -> str:
        """Return the last part of the output."""
        if self._text is None:
            sys.stderr.flush()
            size = os.fstat(self._file.fileno()).st_size
            data = os.pread(self._file.fileno(), _LIMIT, max(0, size - _LIMIT))
            return data.decode(errors="replace").strip()
        return self._text

    def close(self) -> None:
        """Keep the text: the file is about to go."""
        self._text = self.text()


@contextlib.contextmanager
def captured_stderr() -> Iterator[CapturedOutput]:
    """Send file descriptor 2 to a file for the length of the block; afterwards pass the output on to the real one."""
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as file:
        output = CapturedOutput(file)
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
