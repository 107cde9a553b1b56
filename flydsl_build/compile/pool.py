# SPDX-License-Identifier: Apache-2.0
"""Spread jobs over worker processes.

A worker has one target for its whole life. A slot (a thread that owns at most one worker) goes on with the target of its
worker as long as that has jobs, and then takes over the target with the most jobs left.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Protocol

from flydsl_build.compile.externs import expand_placeholders
from flydsl_build.compile.jobs import JobResult, WorkerSettings
from flydsl_build.errors import CompileError, Fault

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from flydsl_build.compile.jobs import Job

__all__ = ["JobObserver", "PoolSettings", "run_jobs", "worker_environment"]

_TAIL = 4000
# FlyDSL reads these; a build must not depend on what happens to be set in the shell.
_SCRUBBED_PREFIXES = ("FLYDSL_", "HSA_OVERRIDE_GFX_VERSION", "LLVM_GFX1250_", "MLIR_", "COMPILE_ONLY", "ARCH")
_OWN_PREFIX = "FLYDSL_BUILD_"


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


def worker_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a worker: that of the build without what would change FlyDSL's output unseen."""

    def scrubbed(name: str) -> bool:
        if name.startswith(_OWN_PREFIX):
            return False
        return any(name.startswith(one) if one.endswith("_") else name == one for one in _SCRUBBED_PREFIXES)

    result = {name: value for name, value in environ.items() if not scrubbed(name)}
    result["PYTHONDONTWRITEBYTECODE"] = "1"
    result["PYTHONHASHSEED"] = "0"
    return result


def run_jobs(jobs: Sequence[Job], settings: PoolSettings, observer: JobObserver | None = None) -> list[JobResult]:
    """Run all jobs; return their results in the order of `jobs`.

    Raises
    ------
    CompileError
        With the faults of all jobs together.
    WorkerBugError
        A worker failed by a bug in flydsl-build.
    """
    return _Pool(jobs, settings, observer).run()


class _Pool:
    def __init__(self, jobs: Sequence[Job], settings: PoolSettings, observer: JobObserver | None) -> None:
        self.settings = settings
        self.observer = observer
        self.lock = threading.Lock()
        self.pending: dict[tuple[str, tuple[tuple[str, str], ...]], deque[int]] = {}
        self.jobs = list(jobs)
        for index, job in enumerate(self.jobs):
            self.pending.setdefault(job.worker_key, deque()).append(index)
        self.results: dict[int, JobResult] = {}
        self.faults: dict[int, tuple[Fault, ...]] = {}
        self.error: BaseException | None = None
        self.workers: set[_Worker] = set()
        self.stopping = False

    def run(self) -> list[JobResult]:
        count = max(1, min(self.settings.workers, len(self.jobs)))
        threads = [threading.Thread(target=self._slot, daemon=True, name=f"flydsl-build-{index}") for index in range(count)]
        try:
            for thread in threads:
                thread.start()
            for thread in threads:
                # A join with a limit leaves the main thread open to Ctrl-C.
                while thread.is_alive():
                    thread.join(0.2)
        finally:
            with self.lock:
                self.stopping = True
                left = list(self.workers)
            for worker in left:
                worker.kill()
        if self.error is not None:
            raise self.error
        faults = [fault for index in sorted(self.faults) for fault in self.faults[index]]
        if faults:
            raise CompileError(*_merged_over_targets(faults))
        return [self.results[index] for index in range(len(self.jobs))]

    def _take(self, key: tuple[str, tuple[tuple[str, str], ...]] | None) -> int | None:
        with self.lock:
            if self.stopping or self.error is not None:
                return None
            if key is None or not self.pending[key]:
                key = max(self.pending, key=lambda one: len(self.pending[one]))
            return self.pending[key].popleft() if self.pending[key] else None

    def _slot(self) -> None:
        worker: _Worker | None = None
        try:
            while (index := self._take(worker.key if worker else None)) is not None:
                job = self.jobs[index]
                if worker is None or worker.key != job.worker_key:
                    if worker is not None:
                        self._drop(worker)
                    worker = self._start(job)
                worker = self._run_one(worker, index, job)
        except BaseException as error:  # noqa: BLE001 - `run` raises it again in the main thread
            with self.lock:
                self.error = self.error or error
        finally:
            if worker is not None:
                self._drop(worker)

    def _start(self, job: Job) -> _Worker:
        worker = _Worker(job, self.settings)
        with self.lock:
            self.workers.add(worker)
        return worker

    def _drop(self, worker: _Worker) -> None:
        worker.close()
        with self.lock:
            self.workers.discard(worker)

    def _run_one(self, worker: _Worker, index: int, job: Job) -> _Worker | None:
        started = time.perf_counter()
        if self.observer is not None:
            self.observer.job_started(job)
        outcome = worker.run(job, self.observer)
        if self.observer is not None:
            self.observer.job_finished(job, time.perf_counter() - started)
        if isinstance(outcome, JobResult):
            if outcome.faults:
                self.faults[index] = outcome.faults
            else:
                self.results[index] = outcome
            return worker
        if not self.stopping:
            self.faults[index] = (outcome,)
        self._drop(worker)
        return None


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
        self.key = job.worker_key
        self.timeout = settings.timeout
        self.verbose = settings.worker.verbose
        self.log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process; `close` closes it
        # The package may come from a folder that only this process has on its path (backend-path, an import hook).
        here = str(Path(__file__).resolve().parents[2])
        code = f"import sys; sys.path.insert(0, {here!r}); from flydsl_build.compile.worker import main; sys.exit(main())"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            env=worker_environment(os.environ),
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

    def run(self, job: Job, observer: JobObserver | None) -> JobResult | Fault:
        self._send(job.to_json())
        deadline = time.monotonic() + self.timeout
        current = ""
        while True:
            try:
                event = self._event(deadline)
            except TimeoutError:
                self.kill()
                at = f" while tracing {current}" if current else ""
                return Fault(
                    where=job.label,
                    what=f"the kernel process took longer than {self.timeout:g} s{at} and was ended",
                    fix="look for a loop that does not end, or raise `timeout`",
                    detail=self._tail(),
                )
            if event is None:
                return self._death(job, current)
            kind = event.pop("event")
            if kind == "start":
                current = event["specialization"]
                if observer is not None:
                    observer.specialization_started(job, current)
            elif kind == "done":
                return JobResult.from_json(event["result"])
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

    def _event(self, deadline: float) -> dict[str, Any] | None:
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while b"\n" not in self.buffer:
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    raise TimeoutError
                data = os.read(descriptor, 1 << 16)
                if not data:
                    return None
                self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        result: dict[str, Any] = json.loads(line)
        return result

    def _death(self, job: Job, current: str) -> Fault:
        code = self.process.wait()
        how = f"exit status {code}"
        if code < 0:
            try:
                how = signal.Signals(-code).name
            except ValueError:
                how = f"signal {-code}"
        at = f" while compiling {current}" if current else ""
        fix = "see what it wrote below"
        if code == -signal.SIGKILL:
            fix = "it may have run out of memory: try fewer jobs at a time (`jobs`)"
        return Fault(where=job.label, what=f"the kernel process died by {how}{at}", fix=fix, detail=self._tail())

    def _tail(self) -> str:
        size = os.fstat(self.log.fileno()).st_size
        return os.pread(self.log.fileno(), _TAIL, max(0, size - _TAIL)).decode(errors="replace").strip()

    def close(self) -> None:
        """End the process by ending its input; pass on what it wrote if that was asked for."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()
        if self.verbose and self._tail():
            sys.stderr.write(self._tail() + "\n")
        self.log.close()

    def kill(self) -> None:
        """End the process and everything it started."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
