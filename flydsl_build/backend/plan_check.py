# SPDX-License-Identifier: Apache-2.0
"""Check a project's declarations without compiling: import its modules, call factories, match arguments with signatures, look at files.

What runs is the author's host code, in worker processes, once for each module and target as in a build. No kernel is traced.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from flydsl_build.backend.build_environment import require_installed
from flydsl_build.backend.hooks import installed_needs_of
from flydsl_build.backend.project_layout import package_roots_of
from flydsl_build.cache.build_cache import BuildCache
from flydsl_build.declare.expand import expand
from flydsl_build.engine.local import LocalExecutor
from flydsl_build.engine.scheduler import run_jobs
from flydsl_build.errors import ConfigError, Fault, FaultCollector
from flydsl_build.jobs.job import Toolkit, WorkerSettings
from flydsl_build.package.planning import plan_jobs
from flydsl_build.package.source_files import every_license_file
from flydsl_build.package.summary import unexported_warning
from flydsl_build.package.unused_externs import unused_externs
from flydsl_build.toolchain.discovery import safe_temporary_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flydsl_build.config.settings import Settings

__all__ = ["check_declarations"]

_EXTERN = "extern "


def check_declarations(settings: Settings) -> tuple[list[str], list[Fault]]:
    """Return warnings, and everything that is wrong, in all modules together.

    Parameters
    ----------
    settings
        Those with `kernels-from` extended with what it declares.

    Raises
    ------
    BuildError
        What keeps all of it from being looked at.
    """
    require_installed(installed_needs_of(settings))
    faults = FaultCollector()
    try:
        every_license_file(settings, settings.project_dir)
    except ConfigError as error:
        faults.extend(error.faults)
    try:
        roots = package_roots_of(settings)
    except ConfigError as error:
        # With another base, these modules are in no folder of the project; the others are looked at all the same.
        absent = {fault.where.removeprefix("module ") for fault in error.faults}
        settings = replace(settings, kernels=tuple(kernel for kernel in settings.kernels if kernel.module not in absent))
        if settings.has_setuptools_base:
            raise
        faults.extend(error.faults)
        roots = package_roots_of(settings)
    found, warnings = _run(settings, roots)
    errors, doubts = _told_apart(found, settings.all_targets)
    return [*warnings, *doubts], [*faults.faults, *errors]


def _run(settings: Settings, roots: tuple[str, ...]) -> tuple[Sequence[Fault], list[str]]:
    """Return the faults and the warnings of all jobs."""
    with safe_temporary_folder() as temporary:
        # Nothing is linked.
        toolkit = Toolkit(folder=str(Path(temporary, "toolkit")), linker="", has_device_bitcode=False, trace=())
        worker = WorkerSettings(
            target="", package_roots=roots, toolkit=toolkit, project=str(settings.project_dir), verbose=settings.verbose
        )
        jobs = [replace(job, check=True, dump_ir=None) for job in plan_jobs(expand(settings), settings, Path(temporary, "jobs"))]
        executor = LocalExecutor(workers=settings.jobs or os.cpu_count() or 1, timeout=settings.timeout, worker=worker)
        found = FaultCollector()
        try:
            cache = BuildCache(None, project=settings.project_dir, environ=os.environ)
            results = run_jobs(jobs, executor, cache=cache, collector=found)
            names = {result.module: result.load().public_names for result in reversed(results)}
        finally:
            executor.shutdown()
    warnings = [*dict.fromkeys(warning for result in results for warning in result.warnings)]
    if found.faults and (len(names) < len({job.module for job in jobs}) or not all(names.values())):
        # What a module that was not imported calls is not known.
        return found.faults, warnings
    for module, public in {} if found.faults else names.items():
        declared = {one.attribute.partition(".")[0] for job in jobs if job.module == module for one in job.specializations}
        unexported = [name for name in public if name not in declared]
        warnings += [unexported_warning(module, unexported)] if unexported else []
    # One that is made in the body of a kernel is seen by the build alone.
    warnings += [
        f"{fault.where}: {fault.what}, as far as can be told without tracing; the build refuses such a table\n    -> {fault.fix}"
        for fault in unused_externs(settings.externs, [symbol for result in results for symbol in result.symbols])
    ]
    return found.faults, warnings


def _told_apart(faults: Sequence[Fault], targets: Sequence[str]) -> tuple[list[Fault], list[str]]:
    """Return the faults, and as warnings those of externs that may be called on other targets alone: which kernels call is not known."""
    affected: dict[str, set[str]] = {}
    for fault in faults:
        if fault.where.startswith(_EXTERN):
            symbol, *where = fault.where.removeprefix(_EXTERN).split(", ")
            affected.setdefault(symbol, set()).update(where)
    partly = tuple(f"{_EXTERN}{symbol}, " for symbol, where in affected.items() if where < set(targets))
    doubts = [
        f"{fault.where}: {fault.what}; a kernel that calls it there cannot be built" for fault in faults if fault.where.startswith(partly)
    ]
    return [fault for fault in faults if not fault.where.startswith(partly)], doubts
