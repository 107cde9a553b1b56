# SPDX-License-Identifier: Apache-2.0
"""From settings to files in the build folder: the rooms in their order.

settings -> specializations -> jobs -> worker processes -> assembled modules -> verification -> bundles, manifests,
launcher libraries, stubs. Everything is made in a temporary folder and moved into the build folder at the end.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flydsl_build.backend.assemble import assemble_module
from flydsl_build.backend.placement import Placement, place_module
from flydsl_build.backend.summary import print_summary
from flydsl_build.bundle.verify import verify_package
from flydsl_build.compile.declarations import collect_declarations
from flydsl_build.compile.jobs import ExternRule, Job, WorkerSettings
from flydsl_build.compile.pool import PoolSettings, run_jobs
from flydsl_build.compile.toolchain import make_toolkit, safe_temporary_folder
from flydsl_build.config.settings import extend_with_declarations
from flydsl_build.declare.expand import expand
from flydsl_build.errors import BuildError, Fault, FaultCollector, VerifyError
from flydsl_build.stubs.render import render_stub

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flydsl_build.backend.assemble import AssembledModule
    from flydsl_build.compile.jobs import JobResult
    from flydsl_build.config.settings import Settings
    from flydsl_build.declare.specialization import Specialization

    # Module, target and axis values to what is compiled for them.
    _Groups = dict[tuple[str, str, tuple[tuple[str, str], ...]], list[Specialization]]

__all__ = ["Project", "build_kernels"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Project:
    """The project being built.

    Parameters
    ----------
    root
        The folder with pyproject.toml.
    package_roots
        Folders to import the author's packages from.
    build_lib
        setuptools' build folder, which holds the packages as they will be in the wheel.
    """

    root: Path
    name: str
    version: str
    package_roots: tuple[str, ...]
    build_lib: Path


def build_kernels(settings: Settings, project: Project) -> list[str]:
    """Compile everything declared and write it into the build folder; return the files written.

    Raises
    ------
    BuildError
        With all faults of the stage that failed; the build folder is unchanged then.
    """
    if settings.kernels_from:
        declared = collect_declarations(
            settings.kernels_from, package_roots=project.package_roots, project=project.root, timeout=settings.timeout
        )
        settings = extend_with_declarations(settings, declared)
    if settings.skipped:
        _say(f"left out, as none of their targets is asked for: {', '.join(settings.skipped)}")
    specializations = expand(settings)
    placements = _placements(specializations, project)
    with safe_temporary_folder() as temporary:
        folder = Path(temporary)
        jobs = plan_jobs(specializations, settings, _made(folder / "jobs"))
        toolkit, linker = make_toolkit(_made(folder / "toolkit"), lld=settings.lld, rocm_path=settings.rocm_path)
        pool = PoolSettings(
            workers=settings.jobs or os.cpu_count() or 1,
            timeout=settings.timeout,
            worker=WorkerSettings(target="", package_roots=project.package_roots, toolkit=toolkit, verbose=settings.verbose),
        )
        _say(f"compiling {len(specializations)} specializations in {len(jobs)} jobs, linker {toolkit.linker}")
        results = run_jobs(jobs, pool)
        # Which kernels depend on an axis is known once they are traced; those are built for the other values too.
        more = plan_axis_jobs(jobs, results, settings, _made(folder / "axis-jobs"))
        if more:
            _say(f"compiling {len(more)} more jobs for the axes {', '.join(axis.name for axis in settings.axes)}")
            results += run_jobs(more, pool)
        _check_references(results, settings, placements, project)
        for warning in dict.fromkeys(warning for result in results for warning in result.warnings):
            _say(f"warning: {warning}")
        modules = [
            assemble_module(
                module,
                specializations=[one for one in specializations if one.module == module],
                results=[result for result in results if result.module == module],
                placement=placements[module],
                settings=settings,
                project=project,
                linker=linker,
                output=_made(folder / "modules" / module),
            )
            for module in placements
        ]
        faults = FaultCollector()
        for module in modules:
            faults.extend(verify_package(module.folder))
        faults.raise_if_any(VerifyError)
        written = _install(modules, project)
    for module in modules:
        if module.unexported:
            names = ", ".join(module.unexported)
            _say(f"warning: the stub of {module.placement.module} does not have these public names of its source: {names}")
    print_summary([module.manifest for module in modules], sys.stdout)
    return written


def plan_jobs(specializations: Sequence[Specialization], settings: Settings, folder: Path) -> list[Job]:
    """Return one job for each declared module and target, in order of declaration.

    Every axis has its first value in them, but for specializations that name the value themselves.
    """
    defaults = {axis.name: axis.values[0] for axis in settings.axes}
    groups: _Groups = {}
    for one in specializations:
        axes = tuple({**defaults, **dict(one.axes)}.items())
        for target in one.targets:
            groups.setdefault((one.module, target, axes), []).append(one)
    return _jobs(groups, settings, folder)


def plan_axis_jobs(jobs: Sequence[Job], results: Sequence[JobResult], settings: Settings, folder: Path) -> list[Job]:
    """Return the jobs for all values of the axes that the first jobs' kernels turned out to depend on."""
    values = {axis.name: axis.values for axis in settings.axes}
    groups: _Groups = {}
    for job, result in zip(jobs, results, strict=True):
        declared = {one.name: one for one in job.specializations}
        for built in result.specializations:
            specialization = declared[built.name]
            free = [name for name in built.axes if name not in dict(specialization.axes)]
            for combination in itertools.product(*(values[name] for name in free)):
                axes = tuple({**dict(job.axes), **dict(zip(free, combination, strict=True))}.items())
                if axes != job.axes:
                    groups.setdefault((job.module, job.target, axes), []).append(specialization)
    return _jobs(groups, settings, folder)


def _jobs(groups: _Groups, settings: Settings, folder: Path) -> list[Job]:
    rules = tuple(
        ExternRule(symbol=one.symbol, where=one.where, bitcode=one.bitcode, globals=one.globals, init=one.init, compatible=one.compatible)
        for one in settings.externs
    )
    return [
        Job(
            module=module,
            target=target,
            output=str(_made(folder / str(number))),
            specializations=tuple(members),
            axes=axes,
            project=str(settings.project_dir),
            externs=rules,
            environment=tuple(settings.env.items()),
            dump_ir=None if settings.dump_ir is None else str(settings.dump_ir),
        )
        for number, ((module, target, axes), members) in enumerate(groups.items())
    ]


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
        placement = place_module(one.module, project.build_lib)
        if placement is None:
            faults.add(
                one.where,
                f"module {one.module} is not among the modules that setuptools installs",
                "check the key, and [tool.setuptools] packages or py-modules",
            )
        else:
            placements[one.module] = placement
    faults.raise_if_any(BuildError)
    return placements


def _check_references(results: Sequence[JobResult], settings: Settings, placements: dict[str, Placement], project: Project) -> None:
    """Refuse init functions and selectors that could be imported here and will not be where the wheel is installed."""
    faults = FaultCollector()
    named = {init: f"init function {init}" for result in results for built in result.code_objects for init in built.init}
    named |= {axis.select: f"{axis.where}.select, {axis.select}" for axis in settings.axes if axis.select}
    for reference, where in named.items():
        module = reference.partition(":")[0]
        path = Path(*module.split("."))
        if module in placements:
            what = f"it is in {module}, which is declared: in the wheel a stub that has its launchers alone takes the place of its source"
            faults.add(where, what, "move it to a module without kernels that are declared")
        elif place_module(module, project.build_lib) is None and any(
            Path(root, source).is_file() for root in project.package_roots for source in (path.with_suffix(".py"), path / "__init__.py")
        ):
            what = f"its module {module} is in the project, but not among those that setuptools installs"
            faults.add(where, what, "add it to [tool.setuptools] packages or py-modules")
    faults.raise_if_any(BuildError)


def _install(modules: Sequence[AssembledModule], project: Project) -> list[str]:
    """Write artefacts, private run times and stubs into the build folder; a failure on the way takes them out again."""
    written: list[Path] = []
    stubs = [(module, *render_stub(module.manifest, **module.stub_arguments)) for module in modules]
    anchors = dict.fromkeys(module.placement.anchor for module in modules)
    try:
        for anchor in anchors:
            if (project.build_lib / anchor).exists():
                shutil.rmtree(project.build_lib / anchor)
            written += _write_runtime(project.build_lib / anchor)
        for module, source, interface in stubs:
            destination = project.build_lib / module.placement.folder
            destination.mkdir(parents=True, exist_ok=True)
            for path in sorted(module.folder.iterdir()):
                written.append(Path(shutil.copyfile(path, destination / path.name)))
            stub = project.build_lib / module.placement.source
            for path, text in ((stub, source), (stub.with_suffix(".pyi"), interface)):
                path.write_text(text, encoding="utf-8")
                # Older than any source: the next build's `build_py` must not take the stub for a fresh copy of the module.
                os.utime(path, (0, 0))
                written.append(path)
    except OSError as error:
        for anchor in anchors:
            shutil.rmtree(project.build_lib / anchor, ignore_errors=True)
        raise BuildError(
            Fault(
                where=str(error.filename or project.build_lib),
                what=f"cannot be written ({error.strerror})",
                fix="make the build folder writable, or free space on its disk",
            )
        ) from None
    return [str(path) for path in written]


def _write_runtime(anchor: Path) -> list[Path]:
    """Copy the run-time library; the wheel then needs nothing of flydsl-build."""
    from flydsl_build import runtime

    source = Path(runtime.__file__).parent
    destination = anchor / "runtime"
    destination.mkdir(parents=True)
    package = anchor / "__init__.py"
    package.write_text("# SPDX-License-Identifier: Apache-2.0\n", encoding="utf-8")
    written = [package]
    files = [*sorted(source.glob("*.py")), *sorted(source.glob("*.so")), *sorted(source.glob("py.typed"))]
    if not any(path.suffix == ".so" for path in files):
        raise BuildError(
            Fault(
                where=str(source),
                what="this installation of flydsl-build has no native run time",
                fix="reinstall it: pip install --force-reinstall flydsl-build",
            )
        )
    written += [Path(shutil.copyfile(path, destination / path.name)) for path in files]
    return written
