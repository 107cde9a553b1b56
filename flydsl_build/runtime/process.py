# SPDX-License-Identifier: Apache-2.0
"""What belongs to one process: who loads what, and the log.

A forked child starts with fresh state, because a lock that another thread of the parent held would stay locked for ever.
"""

from __future__ import annotations

import sys
from _thread import RLock, get_ident

from . import _native
from .errors import LoadError

TYPE_CHECKING = False  # importing typing would cost more than the whole of this package
if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Condition

__all__ = ["debug", "driver_lock", "take_turn"]

Turn = tuple[object, int]


class _Process:
    """The turns of one process: each (module, device) is loaded by one thread at a time."""

    def __init__(self) -> None:
        self.driver_lock = RLock()
        self.condition: Condition | None = None
        self.owner: dict[Turn, int] = {}
        self.waiting: dict[int, Turn] = {}


_processes: dict[int, _Process] = {}


def _process() -> _Process:
    generation = _native.generation()
    # setdefault is atomic, so that two threads agree on one object.
    return _processes.get(generation) or _processes.setdefault(generation, _Process())


def driver_lock() -> RLock:
    """Return the lock that is held while the driver library is being opened."""
    return _process().driver_lock


def _would_deadlock(process: _Process, turn: Turn, me: int) -> bool:
    """Follow who waits for whom: two init functions in two threads can need each other's module."""
    seen: set[int] = set()
    while turn in process.owner:
        owner = process.owner[turn]
        if owner == me:
            return True
        if owner in seen or owner not in process.waiting:
            return False
        seen.add(owner)
        turn = process.waiting[owner]
    return False


def take_turn(module: object, device: int, name: str, done: Callable[[], bool], work: Callable[[], None]) -> None:
    """Run `work` for (module, device) unless `done()`; other threads wait for the one that works.

    Neither this lock nor the driver's is held while `work` runs, so init functions may import, load and launch other
    modules.

    Raises
    ------
    LoadError
        If this thread is already at it, or if waiting would never end.
    """
    process = _process()
    with process.driver_lock:
        if process.condition is None:
            from threading import Condition  # noqa: PLC0415 - not for a process that never loads anything

            process.condition = Condition()
    condition = process.condition
    turn, me = (module, device), get_ident()
    with condition:
        while turn in process.owner:
            if _would_deadlock(process, turn, me):
                owner = process.owner[turn]
                how = "is called from its own init function" if owner == me else "and another module wait for each other's init function"
                msg = f"{name} {how} on device {device}: a kernel cannot be launched before the init functions of its module are done"
                raise LoadError(msg)
            process.waiting[me] = turn
            try:
                condition.wait()
            finally:
                del process.waiting[me]
        if done():
            return
        process.owner[turn] = me
    try:
        work()
    finally:
        with condition:
            del process.owner[turn]
            condition.notify_all()


def debug(message: str, *args: object) -> None:
    """Log to `flydsl_build.runtime` at DEBUG. A process that has not imported logging has no one who listens."""
    logging = sys.modules.get("logging")
    if logging is not None:
        logging.getLogger("flydsl_build.runtime").debug(message, *args)
