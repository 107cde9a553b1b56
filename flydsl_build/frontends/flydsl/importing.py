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
from flydsl_build.frontends.captured_output import captured_stderr
from flydsl_build.frontends.flydsl import adapter
from flydsl_build.frontends.flydsl.faults import FaultError, explain, relative_name
from flydsl_build.frontends.flydsl.torch_stand_in import TorchMissingError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flydsl_build.jobs.job import CodeObjectBuild, Job, WorkerSettings

__all__ = ["doc_of", "import_author_module", "init_distributions", "public_names", "reached_sources"]


def _is_below(path: str, roots: tuple[str, ...]) -> bool:
    """Tell whether a file is the project's own: not what a virtual environment in the project's folder has installed."""
    real = Path(path).resolve()
    places = [real.relative_to(root) for root in (Path(one).resolve() for one in roots) if real.is_relative_to(root)]
    return any({"site-packages", "dist-packages"}.isdisjoint(place.parts) for place in places)


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
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing and (job.module == missing or job.module.startswith(missing + ".")):
            looked = ", ".join(settings.package_roots)
            raise FaultError(
                Fault(
                    where=where,
                    what=f"module {job.module} was not found",
                    fix=f"looked in {looked}; check the key, the package layout and [tool.setuptools] packages",
                )
            ) from None
        raise FaultError(
            Fault(
                where=where,
                what=f"module {job.module} needs {missing}, which is not installed in the build environment",
                fix=f"add the distribution that has {missing} to build-system.requires in pyproject.toml",
                detail=explain(error, settings),
            )
        ) from None
    except TorchMissingError as error:
        raise FaultError(
            Fault(
                where=where,
                what=f"module {job.module} needs torch, which is not installed in the build environment",
                fix='add "torch" to build-system.requires in pyproject.toml',
                detail=explain(error, settings),
            )
        ) from None
    except BaseException as error:  # noqa: BLE001 - an author's module may raise anything
        raise FaultError(
            Fault(where=where, what=f"importing {job.module} failed", fix="see the author's lines below", detail=explain(error, settings))
        ) from None
    return module


def doc_of(module: types.ModuleType) -> str | None:
    """Return the docstring of a module; None if it has none."""
    return module.__doc__ if isinstance(module.__doc__, str) else None


def public_names(module: types.ModuleType) -> tuple[str, ...]:
    """Return what a module exports, sorted: its `__all__`, or else the names without underscore that are its own."""
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
        if not isinstance(path, str) or not path.endswith(".py") or not _is_below(path, roots):
            continue
        data = Path(path).read_bytes()
        found[relative_name(path, roots)] = hashlib.sha256(data).hexdigest()
        package = name if Path(path).name == "__init__.py" else name.rpartition(".")[0]
        queue += _imported_names(ast.parse(data), package)
    return dict(sorted(found.items()))


def _imported_names(tree: ast.AST, package: str) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            origin = ".".join(filter(None, [base, node.module]))
            yield origin
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def init_distributions(objects: list[CodeObjectBuild], roots: tuple[str, ...]) -> dict[str, str]:
    """Name the distribution of each init function's module that is not the project's: what its users have to install."""
    names = {init.partition(":")[0].partition(".")[0] for built in objects for init in built.init}
    foreign = {name for name in names if not _is_below(getattr(sys.modules.get(name), "__file__", None) or "/", roots)}
    if not foreign:
        return {}
    known = importlib.metadata.packages_distributions()
    return {name: known[name][0] for name in sorted(foreign) if name in known}
