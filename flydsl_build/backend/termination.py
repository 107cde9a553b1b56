# SPDX-License-Identifier: Apache-2.0
"""Let a build that is told to end (SIGTERM, what `kill` and CI systems send) clean up as one does that is interrupted."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["cleaning_up_when_terminated"]


class _TerminatedError(BaseException):
    """SIGTERM came. No Exception: nobody but the one who asked for it is to catch it."""


def _raise(number: int, frame: object) -> None:  # noqa: ARG001 - the signature of a handler
    # Once: a second one must not stop the cleaning up.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _TerminatedError


@contextlib.contextmanager
def cleaning_up_when_terminated() -> Iterator[None]:
    """Run the block so that SIGTERM unwinds it, and only then ends the process, by that signal.

    Nothing changes in another thread than the main one, which alone may have handlers, or where the program has a handler of its own.
    """
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, _raise)
    terminated = False
    try:
        yield
    except _TerminatedError:
        terminated = True
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if terminated:
        os.kill(os.getpid(), signal.SIGTERM)
