# SPDX-License-Identifier: Apache-2.0
"""Import an author's module, and say what it consists of: docstring, public names, source files, distributions."""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.metadata
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flydsl_build.errors import Fault
from flydsl_build.frontends.dependency_tracker import imported_names
from flydsl_build.frontends.flydsl import adapter
from flydsl_build.frontends.flydsl.faults import AUTHORS_LINES, FaultError, explain, missing_fault_text, relative_name
from flydsl_build.jobs.author_code import is_own_file
from flydsl_build.jobs.captured_output import captured_stderr

if TYPE_CHECKING:
    from flydsl_build.jobs.job import CodeObjectBuild, Job, WorkerSettings

__all__ = ["doc_of", "import_author_module", "init_distributions", "public_names", "reached_sources"]


def import_author_module(job: Job, settings: WorkerSettings) -> types.ModuleType:
    """Import the module that a job declares kernels of.

    Raises
    ------
    FaultError
        It was not found, needs something that is not installed, or raised.
    """
    where = f"{job.specializations[0].where}, {job.target}"
    try:
        with captured_stderr():
            module = importlib.import_module(job.module)
    except ImportError as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and (job.module == missing or job.module.startswith(missing + ".")):
            looked = ", ".join(settings.package_roots)
            raise FaultError(
                Fault(
                    where=where,
                    what=f"module {job.module} was not found",
                    fix=f"looked in {looked}; check the key, the package layout and [tool.setuptools] packages",
                )
            ) from None
        what, fix = missing_fault_text(error, f"module {job.module}", settings) or (f"importing {job.module} failed", AUTHORS_LINES)
        raise FaultError(Fault(where=where, what=what, fix=fix, detail=explain(error, settings))) from None
    except BaseException as error:  # noqa: BLE001 - an author's module may raise anything
        raise FaultError(
            Fault(where=where, what=f"importing {job.module} failed", fix=AUTHORS_LINES, detail=explain(error, settings))
        ) from None
    return module


def doc_of(module: types.ModuleType) -> str | None:
    """Return the docstring of a module; None if it has none."""
    return module.__doc__ if isinstance(module.__doc__, str) else None


def public_names(module: types.ModuleType, job: Job) -> tuple[str, ...]:
    """Return what a module exports, sorted: its `__all__`, or else the names without underscore that are its own.

    Of classes, a check has only what is declared: the others are in the stub if launchers take them, which only tracing tells.
    """
    names = _exported(module)
    if not job.check:
        return names
    declared = {one.attribute.partition(".")[0] for one in job.specializations}
    return tuple(name for name in names if name in declared or not isinstance(getattr(module, name, None), type))


def _exported(module: types.ModuleType) -> tuple[str, ...]:
    declared = getattr(module, "__all__", None)
    if isinstance(declared, (list, tuple)):
        return tuple(sorted(str(one) for one in declared))

    def is_own(value: Any) -> bool:
        if isinstance(value, types.ModuleType):
            return False
        if adapter.is_launcher(value):
            value = adapter.plain_function(value)
        return getattr(value, "__module__", module.__name__) == module.__name__

    return tuple(sorted(name for name, value in vars(module).items() if not name.startswith("_") and is_own(value)))


def reached_sources(module: str, roots: tuple[str, ...]) -> dict[str, str]:
    """Return digest by file of the project's modules that `module` reaches through import statements, itself included.

    The statements are read, not what happens to be imported: a worker has several jobs, and their order must not show.
    """
    found: dict[str, str] = {}
    queue = [module]
    seen: set[str] = set()
    while queue:
        name = queue.pop()
        parts = name.split(".")
        queue += [".".join(parts[:depth]) for depth in range(1, len(parts))]
        if name in seen or name not in sys.modules:
            continue
        seen.add(name)
        path = getattr(sys.modules[name], "__file__", None)
        if not isinstance(path, str) or not path.endswith(".py") or not is_own_file(path, roots):
            continue
        data = Path(path).read_bytes()
        found[relative_name(path, roots)] = hashlib.sha256(data).hexdigest()
        package = name if Path(path).name == "__init__.py" else name.rpartition(".")[0]
        queue += imported_names(ast.parse(data), package)
    return dict(sorted(found.items()))


def init_distributions(objects: list[CodeObjectBuild], roots: tuple[str, ...]) -> dict[str, str]:
    """Name the distribution of each init function's module that is not the project's: what its users have to install."""
    names = {init.partition(":")[0].partition(".")[0] for built in objects for init in built.init}
    foreign = {name for name in names if not is_own_file(getattr(sys.modules.get(name), "__file__", None) or "/", roots)}
    if not foreign:
        return {}
    known = importlib.metadata.packages_distributions()
    return {name: known[name][0] for name in sorted(foreign) if name in known}
