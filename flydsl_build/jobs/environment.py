# SPDX-License-Identifier: Apache-2.0
"""The environment variables of compile processes."""

from __future__ import annotations

import functools
import sys
import sysconfig
from importlib.machinery import PathFinder
from pathlib import Path
from typing import TYPE_CHECKING

from flydsl_build.jobs.frontend import frontends

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

__all__ = ["expand_placeholders", "is_scrubbed", "program", "put_on_path", "worker_environment"]

_OWN_PREFIX = "FLYDSL_BUILD_"


@functools.cache
def is_scrubbed(name: str) -> bool:
    """Tell whether compile processes do not see a variable of the build's environment."""
    if name.startswith(_OWN_PREFIX):
        return False
    # Compilers read these; a build must not depend on what happens to be set in the shell.
    scrubbed = (one for frontend in frontends() for one in frontend.variables)
    return any(name.startswith(one) if one.endswith("_") else name == one for one in scrubbed)


def worker_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a worker: that of the build without what would change a compiler's output unseen."""
    result = {name: value for name, value in environ.items() if not is_scrubbed(name)}
    result["PYTHONDONTWRITEBYTECODE"] = "1"
    result["PYTHONHASHSEED"] = "0"
    # An earlier editable install would serve stubs in the place of the sources that are to be compiled.
    result["FLYDSL_BUILD_EDITABLE"] = "jit"
    return result


def expand_placeholders(text: str, target: str, axes: Mapping[str, str]) -> str:
    """Fill `{arch}` and the axes' names into a path or variable; `{{` and `}}` are braces. The settings' reader has checked the names."""
    return text.format_map({"arch": target, **axes})


def program(module: str) -> list[str]:
    """Return the command of a process that runs `main` of a module of this package.

    The package may come from a folder that only this process has on its path (backend-path, an import hook). The folders that the
    other has of its own keep their order: by this, what the author's modules import is told beforehand.
    """
    here = str(Path(__file__).resolve().parents[2])
    code = (
        f"import sys; sys.path.insert(0, {here!r}); from {module} import main; sys.path.remove({here!r}); "
        f"sys.path += [{here!r}] * ({here!r} not in sys.path); sys.exit(main())"
    )
    return [sys.executable, "-P", "-c", code]


def put_on_path(roots: Iterable[str]) -> None:
    """Let this process import from the project's folders: before what is installed, but after the standard library.

    A module `random.py` beside pyproject.toml would else take the place of the one that numpy asks for.
    """
    standard = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    first = [one for one in sys.path if one in standard or Path(one).name == "lib-dynload"]
    rest = [one for one in sys.path if one not in first]
    roots = tuple(roots)
    sys.path[:] = [*first, *(one for one in roots if one not in sys.path), *rest]
    if len(roots) > 1:
        sys.meta_path.append(_OtherRoots(roots))


class _OtherRoots:
    """Finds what a package has in another root than the one that it was imported from.

    The sources of a project and what its base back end has built of it, extension modules above all, are in two folders.
    """

    def __init__(self, roots: tuple[str, ...]) -> None:
        self._roots = roots

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find a module of a package that is in one of the roots."""
        del target
        folders = [str(Path(root, *fullname.split(".")[:-1])) for root in self._roots]
        return PathFinder.find_spec(fullname, folders) if path and not set(folders).isdisjoint(path) else None
