# SPDX-License-Identifier: Apache-2.0
"""Have jobs run by an executor: what the cache does not have, in which order, and what to do with the outcome.

Processes that wait get jobs that they are bound to, long ones first. A further process is started for the target with the most
work left, unless its rest is done sooner than a process starts. A job that another build is at is put aside, and is looked for in
the cache again when nothing else is left to do.
"""

from __future__ import annotations

import re
import time
from collections import deque
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from flydsl_build.errors import CompileError, Fault
from flydsl_build.jobs.frontend import worker_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from concurrent.futures import Future

    from flydsl_build.cache.build_cache import BuildCache
    from flydsl_build.cache.folder import Lock
    from flydsl_build.errors import FaultCollector
    from flydsl_build.jobs.executor import JobExecutor, JobObserver, Outcome, WorkerKey
    from flydsl_build.jobs.job import Job
    from flydsl_build.jobs.results import StoredResult

__all__ = ["merged", "run_jobs"]

# How long to leave a job to another build before it is compiled here as well.
_PATIENCE = 300.0
_POLL = 0.2


def run_jobs(
    jobs: Sequence[Job],
    executor: JobExecutor,
    observer: JobObserver | None = None,
    *,
    cache: BuildCache,
    collector: FaultCollector | None = None,
) -> list[StoredResult]:
    """Run all jobs that the cache has no result of; return the results in the order of `jobs`.

    Whatever ends this before all is done ends the executor too.

    Parameters
    ----------
    collector
        Takes the faults of all jobs, which are not raised then; the results are those of all jobs that came to an end.

    Raises
    ------
    CompileError
        With the faults of all jobs together.
    WorkerBugError
        A worker failed by a bug in flydsl-build.
    """
    run = _Run(jobs, executor, observer, cache)
    run.collector = collector
    return run.run()


class _Run:
    def __init__(self, jobs: Sequence[Job], executor: JobExecutor, observer: JobObserver | None, cache: BuildCache) -> None:
        self.executor = executor
        self.observer = observer
        self.cache = cache
        self.collector: FaultCollector | None = None
        self.jobs = list(jobs)
        self.results: dict[int, StoredResult] = {}
        self.faults: dict[int, tuple[Fault, ...]] = {}
        self.pending: dict[WorkerKey, deque[int]] = {}
        self.running: dict[Future[Outcome], tuple[int, Lock]] = {}
        # Jobs that another build was at, each with the time at which to lose patience.
        self.elsewhere: deque[tuple[int, float]] = deque()
        # Jobs whose worker was killed from outside.
        self.killed: list[int] = []
        # Jobs that LLVM ended, with the jobs for each of their specializations, which tell for which it does.
        self.split: dict[int, tuple[Fault, range]] = {}
        self.alone = False
        self.seconds: dict[int, float] = {}

    def run(self) -> list[StoredResult]:
        self._plan()
        try:
            self._work()
            if self.killed:
                self.alone = True
                for index in self.killed:
                    self.pending[worker_key(self.jobs[index])].append(index)
                self._work()
        except BaseException:
            self.executor.shutdown(kill=True)
            raise
        finally:
            for _, lock in self.running.values():
                lock.release()
        self.cache.settle()
        for index, (fault, parts) in self.split.items():
            if not any(part in self.faults for part in parts):
                self.faults[index] = (fault,)
        faults = [fault for index in sorted(self.faults) for fault in self.faults[index]]
        if faults and self.collector is None:
            raise CompileError(*merged(faults))
        if self.collector is not None:
            self.collector.extend(merged(faults))
        return [self.results[index] for index in range(len(self.jobs)) if index in self.results]

    def _plan(self) -> None:
        """Take what the caches have, and put the other jobs into an order: those first that will take longest."""
        missing = {}
        for index, job in enumerate(self.jobs):
            found = self.cache.lookup(job)
            if found is None:
                missing[index] = job
            else:
                self._finish_cached(index, found)
        for index, found in self.cache.fetch(missing):
            self._finish_cached(index, found)
            del missing[index]
        known: dict[int, float] = {}
        for index, job in missing.items():
            self.pending.setdefault(worker_key(job), deque()).append(index)
            seconds = self.cache.seconds(job)
            if seconds is not None:
                known[index] = seconds
        specializations = sum(len(self.jobs[index].specializations) for index in known)
        typical = sum(known.values()) / specializations if specializations else 1.0
        for key, indexes in self.pending.items():
            self.seconds |= {index: known.get(index, typical * len(self.jobs[index].specializations)) for index in indexes}
            self.pending[key] = deque(sorted(indexes, key=lambda index: -self.seconds[index]))

    def _finish_cached(self, index: int, found: StoredResult) -> None:
        self.results[index] = found
        observer = self._observer_of(index)
        if observer is not None:
            observer.job_cached(self.jobs[index])

    def _work(self) -> None:
        while self.running or self.elsewhere or any(self.pending.values()):
            self._submit()
            if not self.elsewhere and not any(self.pending.values()):
                self.executor.release()
            if not self.running:
                time.sleep(_POLL if self.elsewhere else 0)
                continue
            # A wait with a limit: others may finish what was put aside.
            for future in wait(self.running, timeout=_POLL if self.elsewhere else None, return_when=FIRST_COMPLETED).done:
                index, lock = self.running[future]
                # Kept before others may have the lock: they look for it then.
                self._finish(index, future.result())
                lock.release()
                del self.running[future]
        self.executor.release()

    def _submit(self) -> None:
        """Give the executor what it can take."""
        while len(self.running) < (1 if self.alone else self.executor.capacity):
            index = self._next()
            if index is None:
                return
            job = self.jobs[index]
            lock = self.cache.try_lock(job)
            if lock is None:
                self.elsewhere.append((index, time.monotonic() + _PATIENCE))
                continue
            # Another build may have finished the job since it was looked for.
            found = self.cache.lookup(job)
            if found is None:
                Path(job.output).mkdir(parents=True, exist_ok=True)
                self.running[self.executor.submit(job, self._observer_of(index))] = index, lock
            else:
                lock.release()
                self._finish_cached(index, found)

    def _next(self) -> int | None:
        """Return the job to do next; None if nothing is to be started now."""
        ready = self.executor.ready()
        for key in ready:
            if self.pending.get(key):
                return self.pending[key].popleft()
        serving = [*ready, *(worker_key(self.jobs[index]) for index, _ in self.running.values())]
        startup = self.executor.startup

        def share(key: WorkerKey) -> float:
            """Return the seconds of work that one more worker for this key would have."""
            return sum(self.seconds[index] for index in self.pending[key]) / (1 + serving.count(key))

        # Would another worker have something to do once it has started?
        keys = [key for key, left in self.pending.items() if left and (startup is None or share(key) > startup or key not in serving)]
        if keys:
            return self.pending[max(keys, key=share)].popleft()
        return self._from_elsewhere()

    def _from_elsewhere(self) -> int | None:
        """Look again for jobs that other builds were at; return one that must be compiled here."""
        for _ in range(len(self.elsewhere)):
            index, deadline = self.elsewhere.popleft()
            job = self.jobs[index]
            found = self.cache.lookup(job)
            if found is not None:
                self._finish_cached(index, found)
                continue
            if time.monotonic() >= deadline:
                self.cache.give_up_lock(job)
                return index
            lock = self.cache.try_lock(job)
            if lock is not None:
                lock.release()
                return index
            self.elsewhere.append((index, deadline))
        return None

    def _finish(self, index: int, outcome: Outcome) -> None:
        job = self.jobs[index]
        if outcome.result is not None:
            faults = tuple(Fault(**fault) for fault in outcome.result.get("faults", ()))
            if faults:
                self.faults[index] = faults
            if not faults or self.collector is not None:
                self.results[index] = self.cache.store(job, outcome.result, outcome.dependencies)
        elif outcome.killed and not self.alone:
            self.killed.append(index)
        elif outcome.aborted and outcome.fault is not None and len(job.specializations) > 1:
            self._split(index, outcome.fault)
        elif outcome.fault is not None:
            self.faults[index] = (outcome.fault,)
        observer = self._observer_of(index)
        if observer is not None:
            if index in self.killed and not self.alone:
                observer.job_put_back(job)
            else:
                observer.job_finished(job, outcome.seconds, failed=index not in self.results)

    def _split(self, index: int, fault: Fault) -> None:
        """Have the specializations of a job compiled one by one."""
        job, first = self.jobs[index], len(self.jobs)
        for number, one in enumerate(job.specializations):
            self.pending.setdefault(worker_key(job), deque()).append(len(self.jobs))
            self.seconds[len(self.jobs)] = self.seconds[index] / len(job.specializations)
            self.jobs.append(replace(job, specializations=(one,), output=f"{job.output}-{number}"))
        self.split[index] = fault, range(first, len(self.jobs))

    def _observer_of(self, index: int) -> JobObserver | None:
        """Return who is told of a job: nobody of the parts of one that was told of before."""
        return None if any(index in parts for _, parts in self.split.values()) else self.observer


# A specialization's place as `Specialization.place` writes it, and what the same failure says otherwise for another one.
_PLACE = re.compile(r"(?P<kernel>.+) \[(?P<name>[^\]]+)\]")
_VALUES = re.compile(r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?")


def merged(faults: Iterable[Fault]) -> list[Fault]:
    """Say once what is wrong alike for several targets, and once for a kernel what is wrong alike for several specializations.

    The words are those of the first.
    """
    over_targets: dict[tuple[str, str, str, str], dict[str, None]] = {}
    for fault in faults:
        place, _, target = fault.where.rpartition(", ")
        over_targets.setdefault((place, fault.what, fault.fix, fault.detail), {})[target] = None
    causes: dict[tuple[str, ...], tuple[Fault, list[str], dict[str, None]]] = {}
    for (place, what, fix, detail), targets in over_targets.items():
        found = _PLACE.fullmatch(place)
        kernel, name = found.groups() if found is not None else (place, "")
        key = (kernel, _without(name, what), fix, _VALUES.sub("#", _without(name, detail)), *([] if name else [*targets]))
        first = Fault(where=place, what=what, fix=fix, detail=detail)
        _, names, every = causes.setdefault(key, (first, [], {}))
        names += [name] if name not in names else []
        every |= targets
    return [
        replace(fault, where=f"{_several(fault.where, names)}, {', '.join(targets)}" if fault.where else next(iter(targets)))
        for fault, names, targets in causes.values()
    ]


def _without(name: str, text: str) -> str:
    """Return a text without the name of a specialization and the values in it."""
    words = sorted({name, *name.split("-")} - {""}, key=len, reverse=True)
    return re.sub(rf"(?<!\w)(?:{'|'.join(map(re.escape, words))})(?!\w)", "#", text) if words else text


def _several(place: str, names: Sequence[str]) -> str:
    """Return the place of the first specialization, with the number of those that fail like it."""
    return place if len(names) == 1 else f"{place[:-1]} and {len(names) - 1} more]"
