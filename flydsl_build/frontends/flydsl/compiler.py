# SPDX-License-Identifier: Apache-2.0
"""Compile the specializations of one declared module for one target: import, trace, lower, join, serialize, host code.

Runs in a worker process, which has one target for its whole life.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flydsl

from flydsl_build.frontends.flydsl import adapter, author_values, factories
from flydsl_build.frontends.flydsl.binding import bind_with_options
from flydsl_build.frontends.flydsl.emission import emit
from flydsl_build.frontends.flydsl.externs import ExternResolver
from flydsl_build.frontends.flydsl.faults import FaultError, author_objects
from flydsl_build.frontends.flydsl.importing import doc_of, import_author_module, init_distributions, public_names, reached_sources
from flydsl_build.frontends.flydsl.tracing import Traced, is_repeated, resolved_launcher, trace, with_own_constexpr, wrapper_warning
from flydsl_build.jobs.job import CodeObjectBuild, JobResult, SpecializationBuild

if TYPE_CHECKING:
    from collections.abc import Callable

    from flydsl_build.errors import Fault
    from flydsl_build.jobs.job import Job, WorkerSettings

__all__ = ["compile_module"]


def compile_module(job: Job, settings: WorkerSettings, progress: Callable[[str], None]) -> JobResult:
    """Compile one job. Faults of the author's making are in the result; other exceptions are bugs.

    Parameters
    ----------
    progress
        Called with the name of each specialization before it is traced.
    """
    started = time.perf_counter()
    faults: list[Fault] = []
    warnings = [*_version_warning()]
    traced: list[Traced] = []
    objects: list[CodeObjectBuild] = []
    built: list[SpecializationBuild] = []
    doc: str | None = None
    names: tuple[str, ...] = ()
    resolver = ExternResolver(
        rules=job.externs,
        target=job.target,
        axes=dict(job.axes),
        project=Path(job.project),
        environment=dict(job.environment),
        staging=Path(job.output),
    )
    try:
        module = import_author_module(job, settings)
        with author_objects(f"{job.specializations[0].where}, {job.target}", settings):
            doc, names = doc_of(module), public_names(module, job)
    except FaultError as failed:
        faults += failed.faults
    else:
        found = factories.Resolver(module)
        seen: set[str] = set()
        for declared in job.specializations:
            progress(declared.name)
            try:
                with author_objects(declared.place(job.target), settings):
                    resolved = resolved_launcher(found, declared, job.target, settings)
                    specialization = with_own_constexpr(declared, resolved)
                    if resolved.launcher is None or is_repeated(specialization, seen):
                        continue
                    if job.check:
                        bind_with_options(resolved, specialization, job)
                        continue
                    one = trace(resolved, specialization, job, settings, resolver)
            except FaultError as failed:
                faults += [fault for fault in failed.faults if fault not in faults]
                continue
            traced.append(one)
            faults += [fault for fault in resolver.check_linked(one.externs) if fault not in faults]
        faults += resolver.check_tables() if job.check else []
        if not faults:
            faults += resolver.check_joined([one.externs for one in traced])
            warnings += [wrapper_warning(one) for one in traced if one.resolved.wrapper is not None]
            warnings += resolver.repeated_definitions([one.externs for one in traced])
        if not faults and not job.check:
            with adapter.mlir_context():
                try:
                    with author_objects(f"{job.specializations[0].where}, {job.target}", settings):
                        objects, built = emit(traced, job, settings)
                except FaultError as failed:
                    faults += failed.faults
    return JobResult(
        module=job.module,
        target=job.target,
        axes=job.axes,
        output=job.output,
        doc=doc,
        public_names=names,
        specializations=tuple(built),
        enums=author_values.described_enums(map(_plain_values, built)),
        code_objects=tuple(objects),
        sources=reached_sources(job.module, settings.package_roots),
        distributions=init_distributions(objects, settings.package_roots),
        tools=adapter.tools(),
        seconds=time.perf_counter() - started,
        symbols=adapter.extern_symbols() if job.check else tuple(dict.fromkeys(name for one in traced for name in one.externs.symbols)),
        warnings=tuple(dict.fromkeys(warnings)),
        faults=tuple(faults),
    )


def _version_warning() -> tuple[str, ...]:
    if adapter.is_tested_version():
        return ()
    tested = ", ".join(adapter.TESTED_VERSIONS)
    return (f"flydsl {flydsl.__version__} is outside the range flydsl-build was tested with ({tested}.x)",)


def _plain_values(build: SpecializationBuild) -> list[Any]:
    """Return everything in which a member of an enum can be."""
    parameters = (*build.parameters, *build.factory_parameters, *(one for fields in build.classes.values() for one in fields))
    return [build.constexpr, build.params, build.values, build.attributes, [one.default for one in parameters]]
