# SPDX-License-Identifier: Apache-2.0
"""What belongs to one process: who loads what, and the log.

A forked child starts with fresh state, because a lock that another thread of the parent held would stay locked for ever.
"""

from __future__ import annotations

import sys
from _thread import RLock, get_ident

from . import _native
from .annotations import Any, Callable
from .errors import LoadError

__all__ = ["debug", "driver_lock", "take_turn"]

Turn = tuple[object, int]
_LOOK_AGAIN = 0.25  # seconds


class _Process:
    """The turns of one process: each (module, device) is loaded by one thread at a time."""

    def __init__(self) -> None:
        self.driver_lock = RLock()
        self.condition: Any = None  # a threading.Condition, once one is needed
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


def _import_lock_owner(thread: int) -> int | None:
    """Return the thread that holds the import lock which `thread` waits for, None if it waits for none.

    The table is importlib's own, with which it finds deadlocks among import locks: a lock in Python 3.11, a list of locks from
    3.12 on. It is private; where it is not found, such a deadlock is not either.
    """
    blocking = getattr(sys.modules.get("_frozen_importlib"), "_blocking_on", {}).get(thread)
    locks = [blocking] if hasattr(blocking, "owner") else list(blocking or ())
    return getattr(locks[-1], "owner", None) if locks else None


def _why_deadlock(process: _Process, turn: Turn, me: int) -> str:
    """Follow who waits for whom; return why waiting for the turn would never end, or an empty string.

    Two init functions in two threads can need each other's module, and an init function can import what this thread imports.
    """
    if process.owner.get(turn) == me:
        return "is called from its own init function"
    how = "and another module wait for each other's init function"
    seen: set[int] = set()
    owner: int | None = process.owner.get(turn)
    while owner is not None and owner not in seen:
        seen.add(owner)
        if owner in process.waiting:
            owner = process.owner.get(process.waiting[owner])
        else:
            owner = _import_lock_owner(owner)
            how = "is called by an import that its init function, in another thread, waits for"
        if owner == me:
            return how
    return ""


def _is_taken(process: _Process, turn: Turn) -> bool:
    """Say whether a thread has the turn; one that has ended does not."""
    owner = process.owner.get(turn)
    return owner is not None and owner in sys._current_frames()  # noqa: SLF001


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
            from threading import Condition

            process.condition = Condition()
    condition = process.condition
    turn, me = (module, device), get_ident()
    taking = False
    # A handler of a signal can raise anywhere in here, and must not leave the turn taken for ever.
    try:
        with condition:
            while _is_taken(process, turn):
                if how := _why_deadlock(process, turn, me):
                    msg = f"{name} {how} on device {device}: a kernel cannot be launched before the init functions of its module are done"
                    raise LoadError(msg)
                try:
                    process.waiting[me] = turn
                    # Nobody notifies when the owner begins to wait for an import lock, so look again.
                    condition.wait(_LOOK_AGAIN)
                finally:
                    process.waiting.pop(me, None)
            if done():
                return
            taking = True
            process.owner[turn] = me
        work()
    finally:
        # Before the lock, for which a signal can end the waiting; who waits for the turn looks again by itself.
        if taking and process.owner.get(turn) == me:
            process.owner.pop(turn, None)
        if taking and process is _process():  # not in a child that `work` has forked
            with condition:
                condition.notify_all()


def debug(message: str, *args: object) -> None:
    """Log to `flydsl_build.runtime` at DEBUG. A process that has not imported logging has no one who listens."""
    logging = sys.modules.get("logging")
    if logging is not None:
        logging.getLogger("flydsl_build.runtime").debug(message, *args)
