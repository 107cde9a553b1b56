# SPDX-License-Identifier: Apache-2.0
"""Show how far a build is: a live display on a terminal where rich is installed, plain lines anywhere else.

Both are observers of the scheduler, called from its threads; see `jobs.executor.JobObserver`. `job_cached` is told of a job whose
result needed no compiling.
"""

from __future__ import annotations

import os
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from flydsl_build.jobs.executor import JobObserver

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Self

    from flydsl_build.jobs.job import Job

__all__ = ["PlainProgress", "Progress", "RichProgress", "make_progress"]

# Builds with more jobs than this get a line at most every few seconds, so that a log stays readable.
_MANY = 100
_PAUSE = 2.0
_SOON = 10.0
_MINUTE = 60


class Progress(JobObserver, Protocol):
    """An observer that can be asked to expect jobs, and is a context for the time of the build."""

    def expect(self, jobs: int, *, cached: int = 0) -> None:
        """Add to the number of jobs; of these, `cached` have a result already."""

    def counts(self) -> str:
        """Return what became of the jobs."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...


class _Count:
    """What both displays count; its methods hold the lock of the display."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.total = 0
        self.compiled = 0
        self.cached = 0
        self.failed = 0
        self.running: dict[int, tuple[Job, str]] = {}
        self.started: float | None = None

    @property
    def done(self) -> int:
        return self.compiled + self.cached + self.failed

    def start(self, job: Job) -> None:
        self.started = self.clock() if self.started is None else self.started
        self.running[id(job)] = (job, "")

    def finish(self, job: Job, *, failed: bool) -> None:
        self.running.pop(id(job), None)
        self.failed += failed
        self.compiled += not failed

    def seconds_left(self) -> float | None:
        """Return an estimate from the jobs that ran so far; None before the first."""
        ran = self.compiled + self.failed
        if not ran or self.started is None:
            return None
        return (self.clock() - self.started) / ran * max(0, self.total - self.done)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), _MINUTE)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


class _Counting:
    """What both displays do alike: count, under a lock, as the scheduler's threads report."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._lock = threading.Lock()
        self._count = _Count(clock)

    def expect(self, jobs: int, *, cached: int = 0) -> None:
        """See `Progress`."""
        with self._lock:
            self._count.total += jobs
            self._count.cached += cached

    def counts(self) -> str:
        """See `Progress`."""
        with self._lock:
            count = self._count
            failed = f", {count.failed} failed" if count.failed else ""
            return f"{count.total} jobs: {count.cached} from the cache, {count.compiled} compiled{failed}"

    def job_put_back(self, job: Job) -> None:
        """See `JobObserver`."""
        with self._lock:
            self._count.running.pop(id(job), None)

    def job_started(self, job: Job) -> None:
        """See `JobObserver`."""
        with self._lock:
            self._count.start(job)

    def job_cached(self, job: Job) -> None:  # noqa: ARG002 - the build says at its end how many there were
        """See `JobObserver`."""
        with self._lock:
            self._count.cached += 1


class PlainProgress(_Counting):
    """Write one line for each job that ran.

    Parameters
    ----------
    out
        Where the lines go.
    """

    def __init__(self, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._out = out
        super().__init__(clock)
        self._clock = clock
        self._written: float | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        pass

    def specialization_started(self, job: Job, name: str) -> None:
        """See `JobObserver`."""

    def job_finished(self, job: Job, seconds: float, *, failed: bool) -> None:
        """See `JobObserver`."""
        with self._lock:
            self._count.finish(job, failed=failed)
            now = self._clock()
            last = self._count.done >= self._count.total
            if self._count.total > _MANY and self._written is not None and now - self._written < _PAUSE and not last:
                return
            self._written = now
            left = self._count.seconds_left()
            estimate = f", about {_duration(left)} left" if left is not None and left >= _SOON else ""
            so_far = f", {self._count.failed} failed" if self._count.failed else ""
            what = "failed after " if failed else ""
            self._write(f"[{self._count.done}/{self._count.total}{so_far}] {job.label}: {what}{seconds:.1f} s{estimate}")

    def _write(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()


class RichProgress(_Counting):
    """A live display: a bar with done and left, cache hits and time left, and below it what runs now.

    Parameters
    ----------
    out
        A terminal.
    """

    def __init__(self, out: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__(clock)
        self._live = Live(console=Console(file=out), get_renderable=self._render, refresh_per_second=8, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()

    def specialization_started(self, job: Job, name: str) -> None:
        """See `JobObserver`."""
        with self._lock:
            self._count.running[id(job)] = (job, name)

    def job_finished(self, job: Job, seconds: float, *, failed: bool) -> None:  # noqa: ARG002 - the display shows what is left
        """See `JobObserver`."""
        with self._lock:
            self._count.finish(job, failed=failed)

    def _render(self) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        with self._lock:
            count = self._count
            left = count.seconds_left()
            words = [f"{count.done} of {count.total} jobs", f"{count.cached} from the cache"]
            words += [f"{count.failed} failed"] if count.failed else []
            words += [f"about {_duration(left)} left"] if left is not None and count.done < count.total else []
            running = [f"  {job.label}" + (f": {name}" if name else "") for job, name in count.running.values()]
            total, done = max(count.total, 1), count.done
        line = Table.grid(padding=(0, 1))
        line.add_row(ProgressBar(total=total, completed=done, width=40), Text(", ".join(words)))
        return Group(line, *(Text(text, no_wrap=True, overflow="ellipsis") for text in running))


def make_progress(out: TextIO) -> Progress:
    """Return the display for where the output goes."""
    # A dumb terminal cannot redraw, and rich would show nothing on it.
    if out.isatty() and os.environ.get("TERM") not in {None, "dumb", "unknown"}:
        try:
            return RichProgress(out)
        except ImportError:
            pass
    return PlainProgress(out)
