# SPDX-License-Identifier: Apache-2.0
"""Run jobs in worker processes of this machine.

A worker goes on with jobs of what it is bound to (`worker_key`), such as one target. Where another worker would not fit into memory,
going by the largest seen so far, a job waits until one has ended.
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
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from flydsl_build.codec import encode
from flydsl_build.engine.memory import available_memory, peak_memory, resident_memory
from flydsl_build.errors import CompileError, Fault, excerpt
from flydsl_build.jobs.captured_output import read_log
from flydsl_build.jobs.environment import expand_placeholders, program, worker_environment
from flydsl_build.jobs.executor import Outcome, WorkerBugError
from flydsl_build.jobs.frontend import frontend_of, worker_key
from flydsl_build.targets.processors import parse_target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    from flydsl_build.jobs.executor import JobObserver, WorkerKey
    from flydsl_build.jobs.job import Job, WorkerSettings

__all__ = ["LocalExecutor", "run_alone"]

# What LLVM writes where it can only abort, before what Python writes of that.
_ABORTED = re.compile(r"LLVM ERROR: .*?(?=\nFatal Python error|\Z)", re.DOTALL)
# A worker that has FlyDSL and one kernel of no size takes half of it. Stands for the largest worker until one was measured.
_FIRST_GUESS = 1 << 30
_SAMPLE = 1.0
# How long a process may take to end once there is nothing left for it to do.
_FAREWELL = 10.0


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


class LocalExecutor:
    """Processes of this machine.

    Parameters
    ----------
    workers
        Most processes at one time.
    timeout
        Seconds that one job may take.
    worker
        Settings of each worker; its target is replaced by the job's.
    """

    def __init__(self, *, workers: int, timeout: float, worker: WorkerSettings) -> None:
        self.capacity = workers
        self.startup: float | None = None
        self._timeout = timeout
        self._settings = worker
        self._threads = ThreadPoolExecutor(workers, "flydsl-build")
        self._memory = _Memory()
        self._changed = threading.Condition()
        self._workers: set[_Worker] = set()
        self._idle: list[_Worker] = []
        self._stopping = False

    def ready(self) -> list[WorkerKey]:
        """See `JobExecutor`."""
        with self._changed:
            return [one.key for one in self._idle]

    def submit(self, job: Job, observer: JobObserver | None) -> Future[Outcome]:
        """See `JobExecutor`. A process that waits, and is bound to something else, makes room for a new one."""
        with self._changed:
            worker = next((one for one in self._idle if one.key == worker_key(job)), None)
            leaving = self._idle[-1] if worker is None and self._idle else None
            for one in (worker, leaving):
                if one is not None:
                    self._idle.remove(one)
        return self._threads.submit(self._run, job, observer, worker, leaving)

    def _run(self, job: Job, observer: JobObserver | None, worker: _Worker | None, leaving: _Worker | None) -> Outcome:
        if leaving is not None:
            self._drop(leaving)
        worker = worker or self._start(job)
        if worker is None:
            return Outcome(seconds=0.0)
        started = time.perf_counter()
        if observer is not None:
            observer.job_started(job)
        try:
            answer = worker.run(job, observer, self._memory)
        except BaseException:
            self._drop(worker)
            raise
        seconds = time.perf_counter() - started
        self.startup = self.startup or worker.startup
        if isinstance(answer, Fault):
            self._drop(worker)
        else:
            with self._changed:
                self._idle.append(worker)
        return _outcome(worker, answer, seconds)

    def _start(self, job: Job) -> _Worker | None:
        """Return a new worker for the job; None if the build stops."""
        while True:
            with self._changed:
                if self._stopping:
                    return None
                # One always runs: whether it fits can only be found out.
                if not self._workers or self._memory.has_room([one.process.pid for one in self._workers]):
                    worker = _Worker(job, self._timeout, self._settings, os.environ)
                    self._workers.add(worker)
                    return worker
                leaving = self._idle.pop() if self._idle else None
                if leaving is None:
                    self._changed.wait(_SAMPLE)
            if leaving is not None:
                self._drop(leaving)

    def _drop(self, worker: _Worker) -> None:
        self._memory.observe(worker.process.pid)
        worker.close()
        with self._changed:
            self._workers.discard(worker)
            self._changed.notify_all()

    def release(self) -> None:
        """See `JobExecutor`."""
        with self._changed:
            leaving, self._idle = self._idle, []
        wait([self._threads.submit(self._drop, one) for one in leaving])

    def shutdown(self, *, kill: bool = False) -> None:
        """See `JobExecutor`."""
        if kill:
            with self._changed:
                self._stopping = True
                workers = list(self._workers)
                self._changed.notify_all()
            for worker in workers:
                worker.signal_kill()
        else:
            self.release()
        self._threads.shutdown(cancel_futures=kill)
        while self._idle:
            self._drop(self._idle.pop())


def run_alone(
    job: Job, *, timeout: float, settings: WorkerSettings, environ: Mapping[str, str], watch: Callable[[Callable[[], None]], None]
) -> Outcome:
    """Run one job in a process of its own, in the project's folder.

    Parameters
    ----------
    environ
        The environment, of which that of the process is made.
    watch
        Is given a function that ends the process.
    """
    started = time.perf_counter()
    worker = _Worker(job, timeout, settings, environ)
    watch(worker.signal_kill)
    try:
        answer = worker.run(job, None, _Memory())
    finally:
        worker.close()
    return _outcome(worker, answer, time.perf_counter() - started)


def _outcome(worker: _Worker, answer: dict[str, Any] | Fault, seconds: float) -> Outcome:
    if isinstance(answer, Fault):
        return Outcome(seconds=seconds, fault=answer, killed=worker.was_killed, aborted=worker.was_aborted)
    return Outcome(seconds=seconds, result=answer["result"], dependencies=answer["dependencies"])


def _abort_fault(job: Job, message: str) -> Fault:
    """Say for what LLVM's code generator ended the process, and what it wrote before Python's own report of that."""
    names = ", ".join(one.name for one in job.specializations)
    target = parse_target(job.target, where="")
    what, fix = f"the code generator failed for {names}", "see its message below"
    if target.is_generic:
        what, fix = f"{names}: the generic target {job.target} cannot express it", target.instead
    where = job.specializations[0].place(job.target) if len(job.specializations) == 1 else job.label
    return Fault(where=where, what=what, fix=fix, detail=message)


class _Worker:
    """One worker process and the parent's end of its protocol."""

    def __init__(self, job: Job, timeout: float, settings: WorkerSettings, environ: Mapping[str, str]) -> None:
        self.key = worker_key(job)
        self.timeout = timeout
        self.verbose = settings.verbose
        self.startup: float | None = None
        self.was_killed = False
        self.was_aborted = False
        self._started = time.perf_counter()
        self.log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process; `close` closes it
        # Whoever writes to it appends, and `captured_output` reads from it in the worker.
        fcntl.fcntl(self.log, fcntl.F_SETFL, fcntl.fcntl(self.log, fcntl.F_GETFL) | os.O_APPEND)
        self._log_start = 0
        self.process = subprocess.Popen(
            program("flydsl_build.frontends.worker"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            # That of the build may name a folder that is gone; Python looks elsewhere then, LLVM does not.
            cwd=settings.project or None,
            env={**worker_environment(environ), "TMPDIR": str(Path(settings.toolkit.folder).parent)},
            start_new_session=True,
        )
        self.buffer = b""
        env = [(name, expand_placeholders(text, job.target, dict(job.axes))) for name, text in job.environment]
        data = encode(replace(settings, target=job.target, frontend=job.frontend, env=tuple(env)))
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
        self._send(encode(job))
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
                    detail=excerpt(self._written()),
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
                frontend = frontend_of(job.frontend)
                raise CompileError(
                    Fault(
                        where=frontend.name,
                        what=f"{frontend.title} could not be imported in the kernel process",
                        fix=f'build with isolation, or install it: pip install "{frontend.requirements[0]}"',
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
                detail=excerpt(self._written()),
            )
        self.kill()
        code = self.process.returncode
        written = self._written()
        aborted = _ABORTED.search(written)
        if code == -signal.SIGABRT and aborted is not None:
            self.was_aborted = True
            return _abort_fault(job, excerpt(aborted[0]))
        how = f"exit status {code}"
        if code < 0:
            try:
                how = signal.Signals(-code).name
            except ValueError:
                how = f"signal {-code}"
        at = f" while compiling {current}" if current else ""
        fix = "see what it wrote below"
        if code == -signal.SIGABRT:
            # An assertion of FlyDSL's, which counts elements of 6 bits in bytes.
            fix = next((one.without_elements for one in job.specializations if one.name == current), "") or fix
        if code == -signal.SIGKILL:
            self.was_killed = True
            fix = "it was tried again with no other beside it: if it ran out of memory, build on a machine with more"
        return Fault(where=job.label, what=f"the kernel process died by {how}{at}", fix=fix, detail=excerpt(written))

    def _written(self) -> str:
        """Return what the process wrote since it was given its job."""
        return read_log(self.log.fileno(), self._log_start)

    def close(self) -> None:
        """End the process by ending its input; pass on what it wrote if that was asked for."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self._ends_within(_FAREWELL)
        self.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()
        if self.verbose and (text := read_log(self.log.fileno(), 0)):
            sys.stderr.write(text + "\n")
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
