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
from flydsl_build.errors import CompileError, ConfigError, Fault, FaultCollector
from flydsl_build.jobs.job import Toolkit, WorkerSettings
from flydsl_build.package.planning import plan_jobs
from flydsl_build.package.source_files import every_license_file
from flydsl_build.package.unused_externs import unused_externs
from flydsl_build.toolchain.discovery import safe_temporary_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flydsl_build.config.settings import Settings

__all__ = ["check_declarations"]

_EXTERN = "extern "


def check_declarations(settings: Settings) -> list[str]:
    """Return warnings.

    Parameters
    ----------
    settings
        Those with `kernels-from` extended with what it declares.

    Raises
    ------
    BuildError
        With everything that is wrong, in all modules together.
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
    faults.extend(errors)
    faults.raise_if_any(CompileError)
    return [*warnings, *doubts]


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
        try:
            results = run_jobs(jobs, executor, cache=BuildCache(None, project=settings.project_dir, environ=os.environ))
        except CompileError as error:
            return error.faults, []
        finally:
            executor.shutdown()
    # One that is made in the body of a kernel is seen by the build alone.
    unused = [
        f"{fault.where}: {fault.what}, as far as can be told without tracing; the build refuses such a table\n    -> {fault.fix}"
        for fault in unused_externs(settings.externs, [symbol for result in results for symbol in result.symbols])
    ]
    return (), [*dict.fromkeys(warning for result in results for warning in result.warnings), *unused]


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
