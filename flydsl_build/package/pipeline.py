# SPDX-License-Identifier: Apache-2.0
"""From settings to files in the build folder: the rooms in their order.

settings -> specializations -> jobs -> worker processes -> assembled modules -> verification -> bundles, manifests,
launcher libraries, stubs. Everything is made in a temporary folder and moved into the build folder at the end.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from flydsl_build.cache.build_cache import open_cache, toolchain_digest
from flydsl_build.config.settings import extend_with_declarations
from flydsl_build.consumers import served_modules, wanted_consumers
from flydsl_build.declare.expand import expand
from flydsl_build.engine.local import LocalExecutor
from flydsl_build.engine.scheduler import run_jobs
from flydsl_build.errors import BuildError, CompileError, Fault, FaultCollector, VerifyError
from flydsl_build.jobs.environment import worker_environment
from flydsl_build.jobs.job import Job, WorkerSettings
from flydsl_build.package.declared import collect_declarations
from flydsl_build.package.installation import install, is_authors
from flydsl_build.package.module_cache import KeptModule, ModuleKeeper
from flydsl_build.package.own_runtime import runtime_files
from flydsl_build.package.planning import plan_axis_jobs, plan_jobs
from flydsl_build.package.progress import make_progress
from flydsl_build.package.summary import compile_seconds, print_summary, print_warnings, unexported_warning
from flydsl_build.package.unused_externs import unused_externs
from flydsl_build.toolchain.discovery import make_toolkit, safe_temporary_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from flydsl_build.bundle.placement import Placement
    from flydsl_build.cache.build_cache import BuildCache
    from flydsl_build.config.settings import Settings
    from flydsl_build.declare.specialization import Specialization
    from flydsl_build.jobs.executor import JobExecutor
    from flydsl_build.jobs.job import Linker
    from flydsl_build.jobs.results import StoredResult
    from flydsl_build.package.assemble import AssembledModule
    from flydsl_build.package.project import Project

__all__ = ["BuiltKernels", "BuiltModule", "build_kernels"]


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltModule:
    """What was made of one declared module.

    Parameters
    ----------
    dependencies
        Everything outside of pyproject.toml that it follows from, by name with fingerprints; None if that is not known.
    """

    placement: Placement
    dependencies: dict[str, str | None] | None


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltKernels:
    """What was made.

    Parameters
    ----------
    files
        What was written into the build folder.
    declared
        All modules that have kernels for the targets asked for, also those that this build was not to make.
    made, seconds
        What `report` prints.
    """

    files: tuple[str, ...]
    modules: tuple[BuiltModule, ...]
    declared: tuple[str, ...]
    made: Sequence[AssembledModule | KeptModule] = ()
    seconds: Mapping[tuple[str, str, str, str], float] = field(default_factory=dict)

    def report(self) -> None:
        """Print what was made, and what the author should know of it. Last: other tools write many lines of their own."""
        for one in self.made:
            for warning in one.warnings:
                _say(f"warning: {warning}")
            if one.unexported:
                _say(f"warning: {unexported_warning(one.placement.module, one.unexported)}")
        rows = [row for one in self.made for row in one.rows]
        if rows:
            print_summary(rows, sys.stdout, self.seconds)
        print_warnings(rows, sys.stdout)


def build_kernels(settings: Settings, project: Project, *, only: str | None = None) -> BuiltKernels:
    """Compile everything declared, or the one module `only` or that of its ops, and write it into the build folder.

    Raises
    ------
    BuildError
        With all faults of the stage that failed; the build folder is unchanged then.
    """
    runtime_files()  # what every wheel needs is missed before anything is compiled
    cache = open_cache(settings, os.environ, _say)
    common: Mapping[str, str | None] | None = {}
    if settings.kernels_from:
        declared = collect_declarations(settings, package_roots=project.package_roots, project=project.root, cache=cache)
        settings = extend_with_declarations(settings, declared.pairs)
        common = declared.dependencies
    if settings.skipped:
        _say(f"left out, as none of their targets is asked for: {', '.join(settings.skipped)}")
    specializations = expand(settings)
    every = tuple(dict.fromkeys(one.module for one in specializations))
    if only is not None:
        named = {module for module in every if only in served_modules([module], settings)}
        specializations = tuple(one for one in specializations if one.module in named)
        if not specializations:
            return BuiltKernels(files=(), modules=(), declared=every)
    placements = _placements(specializations, project)
    faults = FaultCollector()
    for consumer in wanted_consumers(settings):
        faults.extend(consumer.check(placements, lambda place: any((folder / place).exists() for folder in project.sources)))
    faults.raise_if_any(BuildError)
    with safe_temporary_folder() as temporary, _room_in(temporary):
        folder = Path(temporary)
        toolkit, linker = make_toolkit(_made(folder / "toolkit"), lld=settings.lld, rocm_path=settings.rocm_path, cache=cache)
        worker = WorkerSettings(
            target="", package_roots=project.package_roots, toolkit=toolkit, project=str(project.root), verbose=settings.verbose
        )
        cache.use_toolchain(toolchain_digest(toolkit, linker, project=project.root, package_roots=project.package_roots))
        keeper = ModuleKeeper(settings=settings, project=project, linker=linker, cache=cache, folder=folder / "modules")
        jobs = plan_jobs(specializations, settings, folder / "jobs")
        _say(f"{len(specializations)} specializations in {len(jobs)} jobs, linker {linker.version}")
        members = _by_module(specializations)
        kept, results = ({}, []) if settings.axes else _recall(jobs, members, placements, keeper, cache)
        results += _compile([job for job in jobs if job.module not in kept], settings, worker, linker, cache, folder, len(results))
        _check_references(results, settings, every, project)
        _check_externs(results, settings, is_whole=only is None)
        results_of = _by_module(results)
        modules, seconds = _assemble(placements, kept, members, results_of, keeper)
        written = install(modules, project)
    cache.close()
    built = [
        BuiltModule(
            placement=one.placement,
            dependencies=_joined([common, *(result.dependencies for result in results_of[one.placement.module])]),
        )
        for one in modules
    ]
    return BuiltKernels(files=tuple(written), modules=tuple(built), declared=every, made=modules, seconds=seconds)


@contextlib.contextmanager
def _room_in(folder: str) -> Iterator[None]:
    """Tell that the disk of the temporary folder is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        what = f"cannot be written ({error.strerror})"
        raise BuildError(Fault(where=folder, what=what, fix="free space on its disk, or set TMPDIR to a folder with more")) from None


def _assemble(
    placements: Mapping[str, Placement],
    kept: Mapping[str, KeptModule],
    members: Mapping[str, list[Specialization]],
    results_of: Mapping[str, list[StoredResult]],
    keeper: ModuleKeeper,
) -> tuple[list[AssembledModule | KeptModule], dict[tuple[str, str, str, str], float]]:
    """Return every module as it was kept or is assembled now, and how long what was compiled took."""
    modules: list[AssembledModule | KeptModule] = []
    seconds: dict[tuple[str, str, str, str], float] = {}
    faults = FaultCollector()
    for module, placement in placements.items():
        if module in kept:
            modules.append(kept[module])
            continue
        of_module = results_of[module]
        try:
            modules.append(keeper.recall(placement, members[module], of_module) or keeper.assemble(placement, members[module], of_module))
        except VerifyError as error:
            faults.extend(error.faults)
        else:
            seconds |= compile_seconds(result.load() for result in of_module if not result.cached)
    faults.raise_if_any(VerifyError)
    return modules, seconds


def _joined(some: Sequence[Mapping[str, str | None] | None]) -> dict[str, str | None] | None:
    joined: dict[str, str | None] = {}
    for one in some:
        # A file that two jobs saw with different content has changed between them.
        if one is None or any(joined.get(name, digest) != digest for name, digest in one.items()):
            return None
        joined.update(one)
    return joined


_Item = TypeVar("_Item", "Specialization", "Job", "StoredResult")


def _by_module(items: Iterable[_Item]) -> dict[str, list[_Item]]:
    found: dict[str, list[_Item]] = {}
    for item in items:
        found.setdefault(item.module, []).append(item)
    return found


def _recall(
    jobs: Sequence[Job],
    members: Mapping[str, Sequence[Specialization]],
    placements: Mapping[str, Placement],
    keeper: ModuleKeeper,
    cache: BuildCache,
) -> tuple[dict[str, KeptModule], list[StoredResult]]:
    """Return the modules of which an earlier build made the same, and the results that they are made of, whose files nobody needs."""
    kept: dict[str, KeptModule] = {}
    results: list[StoredResult] = []
    for module, of_module in _by_module(jobs).items():
        found = [cache.peek(job) for job in of_module]
        whole = [one for one in found if one is not None]
        recalled = keeper.recall(placements[module], members[module], whole) if len(whole) == len(found) else None
        if recalled is not None:
            kept[module] = recalled
            results += whole
    return kept, results


def _compile(  # noqa: PLR0913, PLR0917 - each is the result of one room
    jobs: Sequence[Job],
    settings: Settings,
    worker: WorkerSettings,
    linker: Linker,
    cache: BuildCache,
    folder: Path,
    recalled: int,
) -> list[StoredResult]:
    """Return the results of jobs, those of the cache and fresh ones.

    Parameters
    ----------
    recalled
        How many further jobs have a result already, for what is said.
    """
    executor = _executor(settings, worker, linker, cache)
    progress = make_progress(sys.stdout)
    try:
        with progress:
            progress.expect(recalled + len(jobs), cached=recalled)
            results = run_jobs(jobs, executor, progress, cache=cache)
        # Which kernels depend on an axis is known once they are traced; those are built for the other values too.
        more = plan_axis_jobs(jobs, results, settings, folder / "axis-jobs") if settings.axes else []
        if more:
            _say(f"{len(more)} more jobs for the axes {', '.join(axis.name for axis in settings.axes)}")
            with progress:
                progress.expect(len(more))
                results += run_jobs(more, executor, progress, cache=cache)
    except CompileError:
        _say(progress.counts())
        raise
    finally:
        executor.shutdown()
    _say(progress.counts())
    return results


def _executor(settings: Settings, worker: WorkerSettings, linker: Linker, cache: BuildCache) -> JobExecutor:
    if settings.executor == "dask":
        from flydsl_build.engine.dask import DaskExecutor

        assert settings.executor_address is not None
        return DaskExecutor(
            settings.executor_address,
            timeout=settings.timeout,
            worker=worker,
            linker=linker,
            frontends=settings.frontends,
            lld=settings.lld,
            rocm_path=settings.rocm_path,
            fingerprints=cache.fingerprints,
            environ=worker_environment(os.environ),
            say=_say,
        )
    return LocalExecutor(workers=settings.jobs or os.cpu_count() or 1, timeout=settings.timeout, worker=worker)


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True)
    return folder


def _say(text: str) -> None:
    sys.stdout.write(f"flydsl-build: {text}\n")
    sys.stdout.flush()


def _placements(specializations: Sequence[Specialization], project: Project) -> dict[str, Placement]:
    faults = FaultCollector()
    placements: dict[str, Placement] = {}
    for one in specializations:
        if one.module in placements:
            continue
        placement = project.place(one.module)
        if placement is None:
            faults.add(
                one.where,
                f"module {one.module} is not among the modules that {project.installer[0]} installs",
                f"check the key, and {project.installer[1]}",
            )
        elif any(
            is_authors(folder / place) for folder in project.sources for place in (placement.anchor, placement.anchor.with_suffix(".py"))
        ):
            faults.add(
                str(placement.anchor),
                "the project has a module of this name, which is where flydsl-build puts the kernels",
                "rename it",
            )
        else:
            placements[one.module] = placement
    faults.raise_if_any(BuildError)
    return placements


def _check_references(results: Sequence[StoredResult], settings: Settings, declared: Sequence[str], project: Project) -> None:
    """Show warnings; refuse init functions and selectors that could be imported here and will not be where the wheel is installed."""
    faults = FaultCollector()
    named: dict[str, str] = {}
    warnings: dict[str, None] = {}
    for result in results:
        named |= {init: f"init function {init}" for init in result.init}
        warnings |= dict.fromkeys(result.warnings)
    for warning in warnings:
        _say(f"warning: {warning}")
    named |= {axis.select: f"{axis.where}.select, {axis.select}" for axis in settings.axes if axis.select}
    for reference, where in named.items():
        module = reference.partition(":")[0]
        path = Path(*module.split("."))
        if module in declared:
            what = f"it is in {module}, which is declared: in the wheel a stub that has its launchers alone takes the place of its source"
            faults.add(where, what, "move it to a module without kernels that are declared")
        elif project.place(module) is None and any(
            Path(root, source).is_file() for root in project.package_roots for source in (path.with_suffix(".py"), path / "__init__.py")
        ):
            what = f"its module {module} is in the project, but not among those that {project.installer[0]} installs"
            faults.add(where, what, f"add it to {project.installer[1]}")
    faults.raise_if_any(BuildError)


def _check_externs(results: Sequence[StoredResult], settings: Settings, *, is_whole: bool) -> None:
    """Refuse tables of externs that no kernel calls: what they say of bitcode and init functions would have no effect.

    Parameters
    ----------
    is_whole
        Whether these are the results of all modules.
    """
    if not is_whole:
        return
    faults = FaultCollector()
    faults.extend(unused_externs(settings.externs, [symbol for result in results for symbol in result.symbols]))
    if not settings.archs_override:
        faults.raise_if_any(BuildError)
    # A kernel may call it on the targets that were left out.
    for fault in faults.faults:
        _say(f"warning: {fault.where}: {fault.what}")
