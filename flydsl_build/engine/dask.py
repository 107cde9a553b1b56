# SPDX-License-Identifier: Apache-2.0
"""Run jobs on a Dask cluster (https://distributed.dask.org/).

The project's files travel once to each worker that needs them, jobs and results as JSON with code beside it. A worker that has
other versions than this machine gets no jobs, and a result that depends on anything that is different here is no result:
what a cluster made is what a local build makes.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import importlib.util
import json
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flydsl_build.codec import encode
from flydsl_build.engine.job_inputs import pack_inputs
from flydsl_build.engine.remote_job import FIX, differences, run_job, versions
from flydsl_build.errors import CompileError, ConfigError, Fault
from flydsl_build.jobs.executor import Outcome, WorkerBugError
from flydsl_build.jobs.results import unpack_files

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    from flydsl_build.cache.dependencies import Fingerprints
    from flydsl_build.jobs.executor import JobObserver, WorkerKey
    from flydsl_build.jobs.job import Job, Linker, WorkerSettings

__all__ = ["DaskExecutor"]

_PLACE = "tool.flydsl-build.executor-address"
# Seconds to wait for the scheduler, and for a worker; and how long a cluster may be without one in the middle of a build.
_CONNECT = 20.0
_ABSENCE = 60.0
_LOOK = 2.0
# Jobs for each thread of the cluster at one time, so that none waits for this machine.
_AHEAD = 2


class DaskExecutor:
    """The workers of a cluster.

    Parameters
    ----------
    timeout
        Seconds that one job may take.
    worker
        Settings of a local worker, of which places on the other machines are made.
    linker
        The one that all workers must have.
    lld, rocm_path
        The settings, which hold on workers where these paths exist.
    fingerprints
        What the dependencies of results are here.
    environ
        The environment of compile processes. A variable travels when a job turns out to ask for it.
    say
        Called with a line for people.
    """

    def __init__(  # noqa: PLR0913 - each is one input of a job
        self,
        address: str,
        *,
        timeout: float,
        worker: WorkerSettings,
        linker: Linker,
        frontends: Sequence[str],
        lld: Path | None,
        rocm_path: Path | None,
        fingerprints: Fingerprints,
        environ: Mapping[str, str],
        say: Callable[[str], None],
    ) -> None:
        if importlib.util.find_spec("distributed") is None:
            raise ConfigError(
                Fault(
                    where="tool.flydsl-build.executor",
                    what='distributed is not installed, and executor = "dask" needs it',
                    fix='add "flydsl-build[dask]" or "distributed" to build-system.requires',
                )
            )
        self.startup: float | None = 0.0
        self._address = address
        self._timeout = timeout
        self._settings = worker
        self._linker = linker
        self._lld = None if lld is None else str(lld)
        self._rocm_path = None if rocm_path is None else str(rocm_path)
        self._fingerprints = fingerprints
        self._environ = environ
        self._say = say
        self._variables: dict[str, str | None] = {}
        self._versions = versions(linker, frontends)
        self._client: Any = None
        self._inputs: Any = None
        # Addresses of the workers that may have jobs; None if all may.
        self._allowed: Sequence[str] | None = None
        self._threads = 1
        self._lock = threading.Lock()
        self._outstanding: dict[Future[Outcome], Any] = {}
        self._closed = threading.Event()

    @property
    def capacity(self) -> int:
        """See `JobExecutor`."""
        if self._client is None:
            self._connect()
        return max(1, _AHEAD * self._threads)

    def ready(self) -> list[WorkerKey]:
        """See `JobExecutor`. Every job has a process of its own there."""
        return []

    def release(self) -> None:
        """See `JobExecutor`. Nothing waits there."""

    # --- the cluster -------------------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        import distributed

        try:
            self._client = distributed.Client(self._address, timeout=_CONNECT, set_as_default=False)
            self._client.wait_for_workers(1, timeout=_CONNECT)
        except Exception as error:  # noqa: BLE001 - an address may be wrong in many ways
            what = f"no scheduler answers at {self._address}" if self._client is None else f"the cluster at {self._address} has no worker"
            raise ConfigError(
                Fault(
                    where=_PLACE,
                    what=f"{what} ({' '.join(str(error).split()) or type(error).__name__})",
                    fix='start one (`dask scheduler`, and `dask worker ADDRESS` on each machine), or build with executor = "local"',
                )
            ) from None
        self._choose_workers()
        self._threads = sum(self._present().values())
        project = Path(self._settings.project)
        data = pack_inputs(project, self._settings.package_roots, Path(self._settings.toolkit.folder, "amdgcn", "bitcode"))
        # A task, not scattered data: that would be lost with the worker that has it.
        self._inputs = self._client.submit(
            bytes, data, key=f"flydsl-build-inputs-{hashlib.sha256(data).hexdigest()}", workers=self._allowed
        )
        threading.Thread(target=self._watch, daemon=True, name="flydsl-build-cluster").start()

    def _choose_workers(self) -> None:
        """Compare versions; refuse workers that differ."""
        # A name, not a function: where flydsl-build is not installed, that must come as an answer.
        ask = f"__import__('importlib').import_module('flydsl_build.engine.remote_job').describe({self._lld!r}, {self._rocm_path!r})"
        answers = self._client.run(eval, ask, on_error="return")
        refused = {}
        for address, answer in answers.items():
            if isinstance(answer, ModuleNotFoundError) and (answer.name or "").startswith("flydsl_build"):
                refused[address] = f"flydsl-build none there, {self._versions['flydsl-build'][0]} here"
            elif isinstance(answer, BaseException):
                refused[address] = " ".join(str(answer).split())
            else:
                refused[address] = differences(self._versions, answer)
        wrong = [f"{address}: {words}" for address, words in sorted(refused.items()) if words]
        allowed = sorted(address for address, words in refused.items() if not words)
        if not allowed:
            raise ConfigError(
                Fault(
                    where=_PLACE,
                    what=f"no worker of the cluster at {self._address} has what this machine has",
                    fix=FIX,
                    detail="\n".join(wrong),
                )
            )
        for line in wrong:
            self._say(f"warning: a worker of the cluster gets no jobs: {line}")
        self._allowed = allowed if wrong else None

    def _present(self) -> dict[str, int]:
        """Return the threads of each worker that may have jobs, by address."""
        threads: dict[str, int] = self._client.nthreads()
        return {address: count for address, count in threads.items() if self._allowed is None or address in self._allowed}

    def _watch(self) -> None:
        """End the build if the cluster is without workers, or without its scheduler, for long."""
        seen = time.monotonic()
        while not self._closed.wait(_LOOK):
            try:
                present = self._present()
            except Exception:  # noqa: BLE001 - whatever the network does
                present = {}
            if present:
                seen, self._threads = time.monotonic(), sum(present.values())
            elif time.monotonic() - seen > _ABSENCE:
                self._end_all(f"had no worker for {_ABSENCE:g} s")
                return

    def _end_all(self, what: str) -> None:
        with self._lock:
            outstanding = list(self._outstanding)
        for future in outstanding:
            _end(future, self._lost(what))

    def _lost(self, what: str) -> CompileError:
        fix = "see the logs of its scheduler and workers; what was compiled is in the cache"
        return CompileError(Fault(where=_PLACE, what=f"the cluster at {self._address} {what}", fix=fix))

    # --- jobs --------------------------------------------------------------------------------------------------------------

    def submit(self, job: Job, observer: JobObserver | None) -> Future[Outcome]:
        """See `JobExecutor`."""
        future: Future[Outcome] = concurrent.futures.Future()
        if observer is not None:
            observer.job_started(job)
        self._submit(job, future)
        return future

    def _submit(self, job: Job, future: Future[Outcome]) -> None:
        project = Path(self._settings.project).resolve()
        variables = dict(self._variables)
        request = {
            "job": encode(job),
            "project": self._settings.project,
            "package_roots": [str(Path(root).resolve().relative_to(project)) for root in self._settings.package_roots],
            "timeout": self._timeout,
            "versions": self._versions,
            "lld": self._lld,
            "rocm_path": self._rocm_path,
            "variables": variables,
        }
        task = self._client.submit(
            run_job,
            self._inputs,
            json.dumps(request),
            key=f"flydsl-build-{job.module}-{job.target}-{uuid.uuid4().hex}",
            workers=self._allowed,
        )
        with self._lock:
            self._outstanding[future] = task
        task.add_done_callback(lambda done: self._finish(job, future, done, variables))

    def _finish(self, job: Job, future: Future[Outcome], task: Any, sent: Mapping[str, str | None]) -> None:
        """Turn what came into an outcome; called by a thread of the client."""
        with self._lock:
            if self._outstanding.get(future) is not task:
                return
        try:
            outcome = self._outcome(job, task, sent)
        except BaseException as error:  # noqa: BLE001 - goes to whoever waits for the future
            _end(future, error)
            return
        if outcome is None:
            self._submit(job, future)
            return
        with self._lock:
            del self._outstanding[future]
        if not future.done():
            future.set_result(outcome)

    def _outcome(self, job: Job, task: Any, sent: Mapping[str, str | None]) -> Outcome | None:
        """Return the outcome of a task; None if the job must be run again, with variables that it asked for and that were not sent."""
        import distributed

        try:
            data: bytes = task.result()
        except distributed.KilledWorker as error:
            return Outcome(
                seconds=0.0,
                fault=Fault(
                    where=job.label,
                    what=f"the cluster lost {error.allowed_failures + 1} workers, one after another, that had this job",
                    fix="see the logs of the workers: if they ran out of memory, give them more, or fewer threads",
                ),
            )
        except (concurrent.futures.CancelledError, OSError) as error:
            raise self._lost(f"was lost ({' '.join(str(error).split()) or type(error).__name__})") from None
        packed, files = unpack_files(data)
        answer = json.loads(packed)
        if "bug" in answer:
            raise WorkerBugError(f"{job.label}:\n{answer['bug']}")
        if "ends" in answer:
            raise CompileError(*(Fault(**fault) for fault in answer["ends"]))
        found = answer["outcome"]
        outcome = Outcome(**{**found, "fault": Fault(**found["fault"]) if found["fault"] else None})
        different = self._fingerprints.disagreeing(outcome.dependencies or {})
        asked = [name.removeprefix("env:") for name in different if name.startswith("env:")]
        if set(asked) - sent.keys():
            self._variables = self._variables | {name: self._environ.get(name) for name in asked}
            return None
        if different:
            return Outcome(
                seconds=outcome.seconds,
                fault=Fault(
                    where=job.label,
                    what=f"the cluster compiled it with other inputs than there are here: {', '.join(different)}",
                    fix="files must be in the project's folder to travel, packages installed alike on all machines",
                ),
            )
        for name, content in files.items():
            Path(job.output, name).write_bytes(content)
        return outcome

    def shutdown(self, *, kill: bool = False) -> None:
        """See `JobExecutor`. Workers end the processes of jobs that are cancelled."""
        if self._client is None or self._closed.is_set():
            return
        self._closed.set()
        with self._lock:
            tasks = list(self._outstanding.values())
            self._outstanding.clear()
        if kill and tasks:
            self._client.cancel(tasks, force=True)
        self._inputs = None
        self._client.close(timeout=_LOOK)


def _end(future: Future[Outcome], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
