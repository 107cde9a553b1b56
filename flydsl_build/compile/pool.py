# SPDX-License-Identifier: Apache-2.0
"""Spread jobs over worker processes.

A worker has one target for its whole life. A slot (a thread that owns at most one worker) goes on with the target of its
worker as long as that has jobs, long ones first, and then takes over the target with the most work left.

Three things keep slots from starting workers: memory that the largest worker seen so far would not fit into, a target whose
rest is done sooner than another worker starts, and an interrupt. A job that another build is at is put aside, and is looked
for in the cache again when nothing else is left to do.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from flydsl_build.compile.environment import worker_environment
from flydsl_build.compile.memory import available_memory, peak_memory, resident_memory
from flydsl_build.errors import CompileError, Fault
from flydsl_build.targets import parse_target

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flydsl_build.compile.cache import BuildCache
    from flydsl_build.compile.jobs import Job, WorkerSettings
    from flydsl_build.compile.results import StoredResult

    # What a worker is bound to; see `Job.worker_key`.
    _Key = tuple[str, tuple[tuple[str, str], ...]]

__all__ = ["JobObserver", "PoolSettings", "run_jobs"]

_TAIL = 4000
# What LLVM writes where it can only abort, before what Python writes of that.
_ABORTED = re.compile(r"LLVM ERROR: .*?(?=\nFatal Python error|\Z)", re.DOTALL)
# A worker that has FlyDSL and one kernel of no size takes half of it. Stands for the largest worker until one was measured.
_FIRST_GUESS = 1 << 30
# How long to leave a job to another build before it is compiled here as well.
_PATIENCE = 300.0
_POLL = 0.2
_SAMPLE = 1.0
# How long a process may take to end once there is nothing left for it to do.
_FAREWELL = 10.0


class WorkerBugError(RuntimeError):
    """A worker failed in a way that is no fault of the project: a bug, shown with its traceback."""


class JobObserver(Protocol):
    """Told what happens, from the threads of the pool."""

    def job_started(self, job: Job) -> None:
        """Note that a worker has the job."""

    def specialization_started(self, job: Job, name: str) -> None:
        """Note that tracing of one specialization begins."""

    def job_finished(self, job: Job, seconds: float) -> None:
        """Note that the job's result, or its faults, are there."""

    def job_cached(self, job: Job) -> None:
        """Note that the job's result was in the cache."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PoolSettings:
    """How to run workers.

    Parameters
    ----------
    workers
        Most worker processes at one time.
    timeout
        Seconds that one job may take.
    worker
        Settings of each worker; its target is replaced by the job's.
    """

    workers: int
    timeout: float
    worker: WorkerSettings


def run_jobs(jobs: Sequence[Job], settings: PoolSettings, observer: JobObserver | None = None, *, cache: BuildCache) -> list[StoredResult]:
    """Run all jobs that the cache has no result of; return the results in the order of `jobs`.

    Raises
    ------
    CompileError
        With the faults of all jobs together.
    WorkerBugError
        A worker failed by a bug in flydsl-build.
    """
    return _Pool(jobs, settings, observer, cache).run()


class _Memory:
    """Tells whether there is room for another worker, going by the largest seen."""

    def __init__(self) -> None:
        self.peak = 0

    def observe(self, pid: int) -> None:
        self.peak = max(self.peak, peak_memory(pid))

    def has_room(self, pids: Sequence[int]) -> bool:
        expected = self.peak or _FIRST_GUESS
        # What runs has perhaps not taken yet what it will.
        promised = sum(max(0, expected - resident_memory(pid)) for pid in pids)
        return available_memory() >= expected + promised


class _Pool:
    def __init__(self, jobs: Sequence[Job], settings: PoolSettings, observer: JobObserver | None, cache: BuildCache) -> None:
        self.settings = settings
        self.observer = observer
        self.cache = cache
        self.changed = threading.Condition()
        self.jobs = list(jobs)
        self.results: dict[int, StoredResult] = {}
        self.faults: dict[int, tuple[Fault, ...]] = {}
        self.error: BaseException | None = None
        self.memory = _Memory()
        self.startup: float | None = None
        self.workers: set[_Worker] = set()
        # The key that each slot works for, by the thread's identity.
        self.serving: dict[int, _Key] = {}
        self.threads: list[threading.Thread] = []
        self.stopping = False
        self.pending: dict[_Key, deque[int]] = {}
        # Jobs that another build was at, each with the time at which to lose patience.
        self.elsewhere: deque[tuple[int, float]] = deque()
        # Jobs whose worker was killed from outside.
        self.killed: list[int] = []
        self.alone = False
        self.seconds: dict[int, float] = {}

    def run(self) -> list[StoredResult]:
        self._plan()
        left = sum(map(len, self.pending.values()))
        if left:
            try:
                self._run_slots(max(1, min(self.settings.workers, left)))
                if self.killed and self.error is None:
                    self.alone = True
                    for index in self.killed:
                        self.pending[self.jobs[index].worker_key].append(index)
                    self._run_slots(1)
            finally:
                with self.changed:
                    self.stopping = True
                    workers = list(self.workers)
                for worker in workers:
                    worker.signal_kill()
                for worker in workers:
                    worker.kill()
                for thread in self.threads:
                    thread.join()
        if self.error is not None:
            raise self.error
        faults = [fault for index in sorted(self.faults) for fault in self.faults[index]]
        if faults:
            raise CompileError(*_merged_over_targets(faults))
        return [self.results[index] for index in range(len(self.jobs))]

    def _plan(self) -> None:
        """Take what the cache has, and put the other jobs into an order: those first that will take longest."""
        known: dict[int, float] = {}
        for index, job in enumerate(self.jobs):
            found = self.cache.lookup(job)
            if found is not None:
                self._finish_cached(index, found)
                continue
            self.pending.setdefault(job.worker_key, deque()).append(index)
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
        if self.observer is not None:
            self.observer.job_cached(self.jobs[index])

    # --- slots -----------------------------------------------------------------------------------------------------------

    def _run_slots(self, count: int) -> None:
        self.threads = [threading.Thread(target=self._slot, daemon=True, name=f"flydsl-build-{index}") for index in range(count)]
        for thread in self.threads:
            thread.start()
        for thread in self.threads:
            # A join with a limit leaves the main thread open to Ctrl-C.
            while thread.is_alive() and self.error is None:
                thread.join(_POLL)

    def _slot(self) -> None:
        worker: _Worker | None = None
        try:
            while (index := self._take(worker.key if worker else None)) is not None:
                job = self.jobs[index]
                lock = self.cache.try_lock(job)
                if lock is None:
                    self._put_aside(index)
                    continue
                with lock:
                    # Another build may have finished the job since it was looked for.
                    found = self.cache.lookup(job)
                    if found is not None:
                        self._finish_cached(index, found)
                        continue
                    worker = self._worker_for(job, worker)
                    if worker is None:
                        return
                    worker = self._run_one(worker, index, job)
        except BaseException as error:  # noqa: BLE001 - `run` raises it again in the main thread
            with self.changed:
                self.error = self.error or error
        finally:
            with self.changed:
                self.serving.pop(threading.get_ident(), None)
            if worker is not None:
                self._drop(worker)

    def _take(self, key: _Key | None) -> int | None:
        """Return the job to do next, of this key if there is one; None if there is nothing left for this slot."""
        while True:
            with self.changed:
                if self.stopping or self.error is not None:
                    return None
                if key is not None and self.pending.get(key):
                    return self.pending[key].popleft()
                self.serving.pop(threading.get_ident(), None)
                keys = [one for one in self.pending if self.pending[one] and self._pays(one)]
                if keys:
                    most = max(keys, key=self._share)
                    self.serving[threading.get_ident()] = most
                    return self.pending[most].popleft()
                if not self.elsewhere:
                    return None
                index, deadline = self.elsewhere.popleft()
            found = self.cache.lookup(self.jobs[index])
            if found is not None:
                self._finish_cached(index, found)
                continue
            if time.monotonic() >= deadline:
                self.cache.give_up_lock(self.jobs[index])
                return index
            lock = self.cache.try_lock(self.jobs[index])
            if lock is not None:
                lock.release()
                return index
            with self.changed:
                self.elsewhere.append((index, deadline))
                self.changed.wait(_POLL)

    def _put_aside(self, index: int) -> None:
        with self.changed:
            self.elsewhere.append((index, time.monotonic() + _PATIENCE))

    def _share(self, key: _Key) -> float:
        """Return the seconds of work that one more worker for this key would have."""
        return sum(self.seconds[index] for index in self.pending[key]) / (1 + list(self.serving.values()).count(key))

    def _pays(self, key: _Key) -> bool:
        """Tell whether another worker for this key would have something to do once it has started."""
        return self.startup is None or self._share(key) > self.startup or key not in self.serving.values()

    def _worker_for(self, job: Job, worker: _Worker | None) -> _Worker | None:
        """Return a worker for the job; None if the build stops."""
        if worker is not None:
            if worker.key == job.worker_key:
                return worker
            self._drop(worker)
        with self.changed:
            # One always runs: whether it fits can only be found out.
            while not self.stopping and self.workers and not self.memory.has_room([one.process.pid for one in self.workers]):
                self.changed.wait(_SAMPLE)
            if self.stopping:
                return None
            started = _Worker(job, self.settings)
            self.workers.add(started)
        return started

    def _drop(self, worker: _Worker) -> None:
        self.memory.observe(worker.process.pid)
        worker.close()
        with self.changed:
            self.workers.discard(worker)
            self.changed.notify_all()

    def _run_one(self, worker: _Worker, index: int, job: Job) -> _Worker | None:
        started = time.perf_counter()
        if self.observer is not None:
            self.observer.job_started(job)
        outcome = worker.run(job, self.observer, self.memory)
        if isinstance(outcome, dict):
            faults = tuple(Fault(**fault) for fault in outcome["result"]["faults"])
            if faults:
                self.faults[index] = faults
            else:
                self.results[index] = self.cache.store(job, outcome["result"], outcome["dependencies"])
        if self.observer is not None:
            self.observer.job_finished(job, time.perf_counter() - started)
        self.startup = self.startup or worker.startup
        if isinstance(outcome, dict):
            return worker
        self._drop(worker)
        if worker.was_killed and not self.alone and not self.stopping:
            self.killed.append(index)
        elif not self.stopping:
            self.faults[index] = self._blame(job, outcome) if worker.was_aborted and len(job.specializations) > 1 else (outcome,)
        return None

    def _blame(self, job: Job, outcome: Fault) -> tuple[Fault, ...]:
        """Find out for which specializations the code generator aborts: it does so for all of a job, and says of none that it is it."""
        found: list[Fault] = []
        worker: _Worker | None = None
        for one in job.specializations:
            worker = self._worker_for(job, worker)
            if worker is None:
                break
            answer = worker.run(replace(job, specializations=(one,)), None, self.memory)
            if isinstance(answer, Fault):
                found.append(answer)
                self._drop(worker)
                worker = None
        if worker is not None:
            self._drop(worker)
        return tuple(found) or (outcome,)


def _abort_fault(job: Job, message: str) -> Fault:
    """Say for what LLVM's code generator ended the process, and what it wrote before Python's own report of that."""
    names = ", ".join(one.name for one in job.specializations)
    target = parse_target(job.target, where="")
    what, fix = f"the code generator failed for {names}", "see its message below"
    if target.is_generic:
        what, fix = f"{names}: the generic target {job.target} cannot express it", target.instead
    where = f"{job.specializations[0].where}, {job.target}" if len(job.specializations) == 1 else job.label
    return Fault(where=where, what=what, fix=fix, detail=message)


def _merged_over_targets(faults: list[Fault]) -> list[Fault]:
    """Say once what is wrong alike for several targets."""
    merged: dict[tuple[str, str, str, str], list[str]] = {}
    for fault in faults:
        place, _, target = fault.where.rpartition(", ")
        merged.setdefault((place, fault.what, fault.fix, fault.detail), []).append(target)
    return [
        Fault(where=f"{place}, {', '.join(dict.fromkeys(targets))}" if place else targets[0], what=what, fix=fix, detail=detail)
        for (place, what, fix, detail), targets in merged.items()
    ]


class _Worker:
    """One worker process and the parent's end of its protocol."""

    def __init__(self, job: Job, settings: PoolSettings) -> None:
        # Reads LLVM IR as well: a build that compiles nothing does without.
        from flydsl_build.compile.externs import expand_placeholders

        self.key = job.worker_key
        self.timeout = settings.timeout
        self.verbose = settings.worker.verbose
        self.startup: float | None = None
        self.was_killed = False
        self.was_aborted = False
        self._started = time.perf_counter()
        self.log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process; `close` closes it
        # Whoever writes to it appends, and `captured_output` reads from it in the worker.
        fcntl.fcntl(self.log, fcntl.F_SETFL, fcntl.fcntl(self.log, fcntl.F_GETFL) | os.O_APPEND)
        self._log_start = 0
        # The package may come from a folder that only this process has on its path (backend-path, an import hook).
        here = str(Path(__file__).resolve().parents[2])
        code = f"import sys; sys.path.insert(0, {here!r}); from flydsl_build.compile.worker import main; sys.exit(main())"
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            # That of the build may name a folder that is gone; Python looks elsewhere then, LLVM does not.
            env={**worker_environment(os.environ), "TMPDIR": str(Path(settings.worker.toolkit.folder).parent)},
            start_new_session=True,
        )
        self.buffer = b""
        env = [(name, expand_placeholders(text, job.target, dict(job.axes))) for name, text in job.environment]
        data = {**asdict(settings.worker), "target": job.target, "env": env}
        self._send(data)

    def _send(self, data: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        # The death of a process is reported where its answer is missed.
        with contextlib.suppress(BrokenPipeError, ValueError):
            self.process.stdin.write(json.dumps(data).encode() + b"\n")
            self.process.stdin.flush()

    def run(self, job: Job, observer: JobObserver | None, memory: _Memory) -> dict[str, Any] | Fault:
        """Return what the worker answers, `result` and `dependencies`, or the fault that it ended with."""
        self._log_start = os.fstat(self.log.fileno()).st_size if self.startup is not None else 0
        self._send(job.to_json())
        deadline = time.monotonic() + self.timeout
        current = ""
        while True:
            try:
                event = self._event(deadline, memory)
            except TimeoutError:
                self.kill()
                at = f" while tracing {current}" if current else ""
                return Fault(
                    where=job.label,
                    what=f"the kernel process took longer than {self.timeout:g} s{at} and was ended",
                    fix="look for a loop that does not end, or raise `timeout`",
                    detail=self._tail(self._log_start),
                )
            if event is None:
                return self._death(job, current)
            kind = event.pop("event")
            if kind == "ready":
                self.startup = time.perf_counter() - self._started
            elif kind == "start":
                current = event["specialization"]
                if observer is not None:
                    observer.specialization_started(job, current)
            elif kind == "done":
                memory.observe(self.process.pid)
                return event
            elif kind == "broken":
                self.kill()
                raise CompileError(
                    Fault(
                        where="flydsl",
                        what="FlyDSL could not be imported in the kernel process",
                        fix='build with isolation, or install it: pip install "flydsl"',
                        detail=event["text"],
                    )
                )
            elif kind == "bug":
                raise WorkerBugError(f"{job.label}:\n{event['text']}")

    def _event(self, deadline: float, memory: _Memory) -> dict[str, Any] | None:
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while b"\n" not in self.buffer:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                if not selector.select(min(left, _SAMPLE)):
                    # A worker that is killed for its memory leaves nothing to measure.
                    memory.observe(self.process.pid)
                    # A child that it left behind may hold the pipe open.
                    if self._has_ended() and not selector.select(0):
                        return None
                    continue
                data = os.read(descriptor, 1 << 16)
                if not data:
                    return None
                self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        result: dict[str, Any] = json.loads(line)
        return result

    def _death(self, job: Job, current: str) -> Fault:
        if not self._ends_within(_FAREWELL):
            self.kill()
            return Fault(
                where=job.label,
                what="the kernel process closed its connection to the build",
                fix="see what it wrote below",
                detail=self._tail(self._log_start),
            )
        self.kill()
        code = self.process.returncode
        written = self._tail(self._log_start)
        aborted = _ABORTED.search(written)
        if code == -signal.SIGABRT and aborted is not None:
            self.was_aborted = True
            return _abort_fault(job, aborted[0].strip())
        how = f"exit status {code}"
        if code < 0:
            try:
                how = signal.Signals(-code).name
            except ValueError:
                how = f"signal {-code}"
        at = f" while compiling {current}" if current else ""
        fix = "see what it wrote below"
        if code == -signal.SIGKILL:
            self.was_killed = True
            fix = "it was tried again with no other beside it: if it ran out of memory, build on a machine with more"
        return Fault(where=job.label, what=f"the kernel process died by {how}{at}", fix=fix, detail=written)

    def _tail(self, start: int = 0) -> str:
        size = os.fstat(self.log.fileno()).st_size
        return os.pread(self.log.fileno(), _TAIL, max(start, size - _TAIL)).decode(errors="replace").strip()

    def close(self) -> None:
        """End the process by ending its input; pass on what it wrote if that was asked for."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self._ends_within(_FAREWELL)
        self.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()
        if self.verbose and self._tail():
            sys.stderr.write(self._tail() + "\n")
        self.log.close()

    def _has_ended(self) -> bool:
        """Tell whether the process has ended; its number stays taken, so that its group can still be ended."""
        if self.process.returncode is not None:
            return True
        with contextlib.suppress(ChildProcessError):
            return os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        return True

    def _ends_within(self, seconds: float) -> bool:
        deadline, pause = time.monotonic() + seconds, 0.001
        while not (ended := self._has_ended()) and time.monotonic() < deadline:
            time.sleep(pause)
            pause = min(2 * pause, 0.05)
        return ended

    def signal_kill(self) -> None:
        """Make the process and everything it started end."""
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def kill(self) -> None:
        """End the process and everything it started."""
        self.signal_kill()
        self.process.wait()
