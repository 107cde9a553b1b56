# SPDX-License-Identifier: Apache-2.0
"""The interface of front ends: what the build has to know of a compiler without importing it, and where a worker finds it."""

from __future__ import annotations

import functools
import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from flydsl_build.jobs.executor import WorkerKey
    from flydsl_build.jobs.job import Job, JobResult, WorkerSettings

__all__ = ["FRONTENDS", "Compile", "Frontend", "frontend_of", "frontends", "worker_key"]

FRONTENDS = ("flydsl",)
"""Names of all front ends. Each is a folder of `flydsl_build.frontends`, whose file `frontend.py` has its description, `FRONTEND`."""

Compile: TypeAlias = "Callable[[Job, WorkerSettings, Callable[[str], None]], JobResult]"
"""Compiles a job. The function that it is given is called with the name of each specialization before work on that begins. Faults of
the author's making are in the result; other exceptions are bugs."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Frontend:
    """A compiler of kernels.

    Parameters
    ----------
    name
        As declarations have it: `Specialization.frontend`.
    title
        Its name for people.
    requirements
        What has to be installed to compile. The distribution of the compiler is the first.
    import_check
        Python code that fails where the compiler cannot be imported.
    packages
        Import packages that `digest` covers: no result depends on their files besides.
    imported_by_sources
        Import packages that the author's modules need where they are imported as they are, to be compiled when they are called.
    variables
        Environment variables that compile processes do not get from the build's environment, because the compiler reads them; one that
        ends in `_` stands for all that begin so.
    version
        Returns the installed version, for people.
    digest
        Returns a digest of everything of the compiler that code objects depend on.
    is_bound_to_target
        Whether a worker process can compile for one target and one set of environment variables only.
    start
        `module:function`, which a worker calls once with its settings, before it imports anything of the author's. It prepares the
        process and returns a `Compile`.
    """

    name: str
    title: str
    requirements: tuple[str, ...]
    import_check: str
    packages: tuple[str, ...]
    imported_by_sources: tuple[str, ...]
    variables: tuple[str, ...]
    version: Callable[[], str]
    digest: Callable[[], str]
    is_bound_to_target: bool
    start: str

    def load(self) -> Callable[[WorkerSettings], Compile]:
        """Import what `start` names; in a worker process only."""
        module, _, function = self.start.partition(":")
        found: Callable[[WorkerSettings], Compile] = getattr(importlib.import_module(module), function)
        return found


@functools.cache
def frontend_of(name: str) -> Frontend:
    """Return the description of a front end, which imports nothing of its compiler."""
    found: Frontend = importlib.import_module(f"flydsl_build.frontends.{name}.frontend").FRONTEND
    return found


def frontends(names: Iterable[str] = FRONTENDS) -> tuple[Frontend, ...]:
    """Return the descriptions of the front ends of these names; of all, if no names are given."""
    return tuple(map(frontend_of, names))


def worker_key(job: Job) -> WorkerKey:
    """Return what the worker process for a job is bound to."""
    if frontend_of(job.frontend).is_bound_to_target:
        # Modules compute constants from the environment when they are imported.
        return job.frontend, job.target, job.axes if job.environment else ()
    return job.frontend, "", ()
