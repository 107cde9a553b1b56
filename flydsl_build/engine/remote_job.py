# SPDX-License-Identifier: Apache-2.0
"""The other machine's end of a cluster build: what is installed there, and one job in a fresh process.

Everything that comes and goes is bytes and JSON, so nothing of the author's is imported in the cluster's own process.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import traceback
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flydsl_build import __version__
from flydsl_build.cache.build_cache import own_digest
from flydsl_build.codec import decode
from flydsl_build.engine.job_inputs import BITCODE, PROJECT, unpack_inputs
from flydsl_build.engine.local import run_alone
from flydsl_build.errors import BuildError, Fault
from flydsl_build.jobs.frontend import FRONTENDS, frontends
from flydsl_build.jobs.job import Job, Linker, WorkerSettings
from flydsl_build.jobs.results import files_of, pack_files
from flydsl_build.toolchain.discovery import find_linker, make_toolkit, safe_temporary_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["describe", "differences", "run_job", "versions"]

_WATCH = 0.5


def versions(linker: Linker, names: Iterable[str] = FRONTENDS) -> dict[str, list[str]]:
    """Return what results depend on besides jobs and their inputs: for each thing its name for people, and what is compared.

    Parameters
    ----------
    names
        The front ends of the jobs.
    """
    return {
        "flydsl-build": [__version__, own_digest()],
        **{one.title: [one.version(), one.digest()] for one in frontends(names)},
        "Python": ["{}.{}.{}".format(*sys.version_info), str(sys.implementation.cache_tag)],
        "linker": [linker.version, linker.identity],
    }


def describe(lld: str | None, rocm_path: str | None) -> dict[str, list[str]]:
    """Return the versions of this machine."""
    return versions(_linker(lld, rocm_path))


def _linker(lld: str | None, rocm_path: str | None) -> Linker:
    linker, _ = find_linker(lld=_if_there(lld), rocm_path=_if_there(rocm_path))
    return linker


def _if_there(path: str | None) -> Path | None:
    """Take a path of the machine that asks only where it means something here."""
    return Path(path) if path is not None and Path(path).exists() else None


def differences(here: dict[str, list[str]], there: dict[str, list[str]]) -> str:
    """Return in words what differs between two machines; empty if nothing does."""
    words = []
    for name, (shown, exact) in here.items():
        other, exactly = there.get(name, ["none", ""])
        if exact != exactly:
            words.append(f"{name} {other} there, {shown} here" + (", and they are not the same build" if other == shown else ""))
    return "; ".join(words)


def run_job(inputs: bytes, request: str) -> bytes:
    """Compile one job in a process of its own; return the outcome as JSON, and the files that belong to it."""
    try:
        with safe_temporary_folder() as folder:
            answer, files = _run(inputs, json.loads(request), Path(folder))
    except BuildError as error:
        answer, files = {"ends": [asdict(fault) for fault in error.faults]}, {}
    except Exception:  # noqa: BLE001 - told to the machine that asked, which shows it
        answer, files = {"bug": traceback.format_exc()}, {}
    return pack_files(json.dumps(answer).encode(), files)


def _run(inputs: bytes, request: dict[str, Any], folder: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    refused = differences(request["versions"], describe(request["lld"], request["rocm_path"]))
    if refused:
        job = decode(Job, request["job"], where="job")
        return {"ends": [asdict(Fault(where=job.label, what=f"a worker of the cluster was refused: {refused}", fix=FIX))]}, {}
    unpack_inputs(inputs, folder)
    project = folder / PROJECT
    # Apart from the project: files beside the tool kit are no dependencies.
    work = folder / "work"
    for one in (work, work / "toolkit", work / "output"):
        one.mkdir()
    toolkit, _ = make_toolkit(
        work / "toolkit", lld=_if_there(request["lld"]), rocm_path=_if_there(request["rocm_path"]), bitcode=folder / BITCODE
    )
    job = replace(decode(Job, request["job"], where="job"), output=str(work / "output"), project=str(project))
    settings = WorkerSettings(
        target=job.target,
        package_roots=tuple(str(project / root) for root in request["package_roots"]),
        toolkit=toolkit,
        project=str(project),
    )
    environ = {**os.environ, **request["variables"]}
    environ = {name: value for name, value in environ.items() if value is not None}
    with _ended_when_cancelled() as watch:
        outcome = run_alone(job, timeout=request["timeout"], settings=settings, environ=environ, watch=watch)
    names = files_of(outcome.result) if outcome.result is not None and not outcome.result.get("faults") else ()
    files = {name: Path(job.output, name).read_bytes() for name in names}
    # Faults show places as a build over there would.
    text = json.dumps({"outcome": asdict(outcome)})
    for mine, theirs in ((project, request["project"]), (project.resolve(), request["project"])):
        text = text.replace(json.dumps(str(mine))[1:-1], json.dumps(theirs)[1:-1])
    answer: dict[str, Any] = json.loads(text)
    return answer, files


FIX = "install the same versions on all machines, for example from one container image or lock file"
"""What to do about workers that are refused."""


@contextlib.contextmanager
def _ended_when_cancelled() -> Iterator[Callable[[Callable[[], None]], None]]:
    """Give a function that is told how to end the job, which is done once the cluster has cancelled it.

    Dask stops no task that runs; that the build was interrupted shows in the state of the task.
    """
    done = threading.Event()
    threads: list[threading.Thread] = []

    def watch(end: Callable[[], None]) -> None:
        try:
            from distributed import get_worker
            from distributed.worker import thread_state

            worker, key = get_worker(), thread_state.key
        except (ImportError, ValueError, AttributeError):
            return

        def look() -> None:
            while not done.wait(_WATCH):
                task = worker.state.tasks.get(key)
                if task is None or task.state == "cancelled":
                    end()
                    return

        threads.append(threading.Thread(target=look, daemon=True, name="flydsl-build-cancel"))
        threads[0].start()

    try:
        yield watch
    finally:
        done.set()
        for thread in threads:
            thread.join()
