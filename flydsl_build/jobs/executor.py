# SPDX-License-Identifier: Apache-2.0
"""What runs jobs: an interface of the kind of `concurrent.futures.Executor`, with jobs for calls.

`engine.scheduler` decides which job is next, keeps results and repeats what was killed; an executor compiles one job, here or on another
machine, and leaves the files of the result in the job's output folder.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection
    from concurrent.futures import Future

    from flydsl_build.errors import Fault
    from flydsl_build.jobs.job import Job

__all__ = ["JobExecutor", "JobObserver", "Outcome", "WorkerBugError", "WorkerKey"]

WorkerKey = tuple[str, str, tuple[tuple[str, str], ...]]
"""What a compile process is bound to: a front end, a target and axis values, of which a front end may leave the last two empty."""


class WorkerBugError(RuntimeError):
    """A worker failed in a way that is no fault of the project: a bug, shown with its traceback."""


class JobObserver(Protocol):
    """Told what happens, from any thread."""

    def job_started(self, job: Job) -> None:
        """Note that a worker has the job."""

    def specialization_started(self, job: Job, name: str) -> None:
        """Note that tracing of one specialization begins."""

    def job_finished(self, job: Job, seconds: float, *, failed: bool) -> None:
        """Note that the job's result, or its faults, are there."""

    def job_put_back(self, job: Job) -> None:
        """Note that the job's process was killed, and that the job will be started again."""

    def job_cached(self, job: Job) -> None:
        """Note that the job's result was in the cache."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What became of a job.

    Parameters
    ----------
    seconds
        How long it took, where it ran.
    result
        The JSON form of a JobResult; None if the compile process gave none.
    dependencies
        What the result depends on; None if that is not known.
    fault
        Why there is no result.
    killed
        Whether the process was killed from outside, as the system does where memory runs out.
    aborted
        Whether LLVM ended the process, which it does for all of a job, without saying for which specialization.
    """

    seconds: float
    result: dict[str, Any] | None = None
    dependencies: dict[str, str | None] | None = None
    fault: Fault | None = None
    killed: bool = False
    aborted: bool = False


class JobExecutor(Protocol):
    """Runs jobs. All methods are called by one thread."""

    @property
    def capacity(self) -> int:
        """How many jobs to submit at one time."""

    @property
    def startup(self) -> float | None:
        """Seconds that a process takes before it can compile; None before that was measured."""

    def ready(self) -> Collection[WorkerKey]:
        """Return what the processes that wait for a job are bound to."""

    def submit(self, job: Job, observer: JobObserver | None) -> Future[Outcome]:
        """Begin to run a job.

        The future has an exception where the whole build must end: a BuildError, or a WorkerBugError.
        """

    def release(self) -> None:
        """End the processes that wait for a job."""

    def shutdown(self, *, kill: bool = False) -> None:
        """End everything; with `kill`, also jobs that run."""
