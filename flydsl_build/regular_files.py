# SPDX-License-Identifier: Apache-2.0
"""Read regular files alone: opening a pipe that nobody writes to never ends, nor does reading some devices."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from io import BufferedReader
    from pathlib import Path

__all__ = ["open_regular", "read_regular"]


def open_regular(path: Path) -> BufferedReader:
    """Open a file for reading.

    Raises
    ------
    OSError
        It cannot be opened, or is something else; `strerror` says what.
    """
    # A pipe is opened without waiting for its writer.
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115 - has an opener; is returned
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return file


def read_regular(path: Path) -> bytes:
    """Return the content of a file; see `open_regular`."""
    with open_regular(path) as file:
        return file.read()
