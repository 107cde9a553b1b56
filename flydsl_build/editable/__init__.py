# SPDX-License-Identifier: Apache-2.0
"""The import hook of an editable install: it serves the stubs of declared modules in the place of their FlyDSL sources.

A copy of this package is in every editable wheel, and a `.pth` file there calls `install` whenever Python starts. So it imports the
standard library only, itself only relatively, and next to nothing until a module of the project is imported.

Most imports ask `sys.meta_path`, where the hook is first. Tools that stand before it there (assertion rewriting, run-time type checkers)
ask Python's own `PathFinder` for the file to load, so the hook is in `sys.path_hooks`, too. What loads files without asking either of
them gets the source; that is told.
"""

from __future__ import annotations

import atexit
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import FileFinder, ModuleSpec
    from types import ModuleType
    from typing import Any

    from .installation import Installation
else:
    # Whoever evaluates annotations finds these names, and no start of Python imports a module for them.
    from _collections_abc import Sequence
    from _frozen_importlib import ModuleSpec
    from _frozen_importlib_external import FileFinder

    ModuleType = type(sys)
    Any = Installation = object

__all__ = ["Finder", "FolderFinder", "install"]

# Folders of the artefacts of modules that are in no package; `backend.placement` has the rule.
_LONE_FOLDER = "_flydsl_"


class Finder:
    """Finds declared modules, their ops of torch and their run time; stands before the finders that would find the sources.

    Parameters
    ----------
    folder
        The folder of this package, which has the facts of the installation.
    top_levels
        Names at the top of what the project installs.
    """

    # What is compiled is the source: `resolution` passes over this finder.
    serves_stubs = True

    def __init__(self, folder: str, top_levels: frozenset[str]) -> None:
        self.folder = folder
        self._top_levels = top_levels
        self._installation: Installation | None = None
        self._is_telling = False

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec of a module that is served from the build folder; None for all others."""
        del target
        if sys.meta_path[:1] != [self]:
            self.tell_of_sources()
        if not self._is_ours(fullname.partition(".")[0]):
            return None
        return self._installed().find_spec(fullname, path, self._behind())

    def find_in(self, folder: str, name: str, found: ModuleSpec | None) -> ModuleSpec | None:
        """Return the spec of a module that is served in the place of the one that was found in a folder of the project."""
        place = found.origin if found is not None and found.has_location and found.origin else os.path.join(folder, name)
        if any(map(self._is_ours, os.path.splitext(place)[0].split(os.sep))):
            return self._installed().find_in(folder, name, found) or found
        return found

    def _behind(self) -> list[Any]:
        """Return the finders that Python asks after this one."""
        finders: list[Any] = list(sys.meta_path)
        return finders[finders.index(self) + 1 :] if self in finders else []

    def path_hook(self, folder: str) -> FolderFinder:
        """Return the finder for a folder that may have modules of the project; a hook for `sys.path_hooks`.

        Raises
        ------
        ImportError
            The folder is of others, or none that files are found in.
        """
        if self.path_hook in sys.path_hooks and self.may_have_ours(folder):
            # Those before this one have refused the folder, or ask those behind them, as this one does.
            for hook in sys.path_hooks[sys.path_hooks.index(self.path_hook) + 1 :]:
                try:
                    return FolderFinder(self, folder, hook(folder))
                except ImportError:
                    continue
        msg = "no folder of the project"
        raise ImportError(msg, path=folder)

    def tell_of_sources(self) -> None:
        """Warn of FlyDSL sources that were imported in the place of stubs, once of each."""
        # What this imports is looked for by every finder, this one too.
        if self._is_telling or sys.modules.keys().isdisjoint(self._top_levels):
            return
        self._is_telling = True
        try:
            self._tell_of_sources()
        finally:
            self._is_telling = False

    def _tell_of_sources(self) -> None:
        try:
            installed = self._installed()
        except ImportError:
            return  # an import of what the project has tells why
        for name in installed.known():
            spec = getattr(sys.modules.get(name), "__spec__", None)
            if spec is None or name in installed.told or not spec.origin or installed.module_at(spec.origin) != name:
                continue
            installed.told.add(name)
            import warnings

            from .installation import level_of_importer

            text = (
                f"{name}: its FlyDSL source was imported in the place of the compiled kernels: {self._who_found(spec)} found the file "
                "without asking sys.path_hooks\n"
                "    -> import the module before this finder is installed, or leave the module out of what it finds; "
                "FLYDSL_BUILD_EDITABLE=jit imports the FlyDSL source without this warning"
            )
            warnings.warn(text, RuntimeWarning, stacklevel=level_of_importer())

    def _who_found(self, spec: ModuleSpec) -> str:
        """Name the finder that stands before this one and has found a module; all of them if it cannot be told which."""
        # Those of Python are classes, those of other editable installs have a name as this one has.
        before: list[Any] = []
        for one in sys.meta_path:
            if one is self:
                break
            if not isinstance(one, type) and type(one).__name__ != "Finder":
                before.append(one)
        named = [one for one in before if one is spec.loader or _package_of(one) == _package_of(spec.loader)]
        return " or ".join(map(_name_of, named[:1] or before)) or _name_of(spec.loader)

    def _installed(self) -> Installation:
        if self._installation is None:
            from .installation import Installation

            self._installation = Installation(self.folder)
        return self._installation

    def _is_ours(self, top: str) -> bool:
        # Beside a module at the top are its folder and the module of its ops.
        return top in self._top_levels or top.removesuffix("_torch") in self._top_levels or top.startswith(_LONE_FOLDER)

    def may_have_ours(self, folder: str) -> bool:
        """Tell whether a folder may be in a package of the project, or have its top-level modules."""
        parts = folder.split(os.sep)
        while parts and parts[-1].isidentifier():
            if parts.pop() in self._top_levels:
                return True
        places = [os.path.join(folder, top) for top in self._top_levels]
        return any(os.path.exists(place) or os.path.exists(place + ".py") for place in places)


class _SourceFinder(Finder):
    """Finds nothing: the sources are asked for. Tells what they need."""

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return None, after a warning if a declared module cannot be imported here."""
        del path, target
        if self._is_ours(fullname.partition(".")[0]):
            try:
                installed = self._installed()
            except ImportError:
                return None  # the sources do not need what is damaged
            installed.tell_what_jit_needs(fullname)
        return None


class FolderFinder(FileFinder):
    """Finds in one folder of the project what another finder finds there, and stubs in the place of sources.

    pkgutil and others know by the class that it is a folder's.

    Parameters
    ----------
    inner
        The other finder.
    """

    def __init__(self, finder: Finder, folder: str, inner: Any) -> None:
        super().__init__(folder)
        self._finder = finder
        self._inner = inner

    def find_spec(self, fullname: str, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec of a module in the folder; None if it is not there."""
        return self._finder.find_in(self.path, fullname, self._inner.find_spec(fullname, target))

    def invalidate_caches(self) -> None:
        """Let the other finder look at the folder again."""
        if hasattr(self._inner, "invalidate_caches"):
            self._inner.invalidate_caches()


def _package_of(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


def _name_of(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def install(*top_levels: str) -> None:
    """Serve the project's stubs in this process, unless `FLYDSL_BUILD_EDITABLE` asks for the sources.

    Once: Python reads the `.pth` file twice where site-packages is on its path by two names.
    """
    if any(isinstance(one, Finder) and one.folder == os.path.dirname(__file__) for one in sys.meta_path):
        return
    if os.environ.get("FLYDSL_BUILD_EDITABLE") == "jit":
        sys.meta_path.insert(0, _SourceFinder(os.path.dirname(__file__), frozenset(top_levels)))
        return
    finder = Finder(os.path.dirname(__file__), frozenset(top_levels))
    sys.meta_path.insert(0, finder)
    sys.path_hooks.insert(0, finder.path_hook)
    # Python has looked into some folders already.
    for entry in filter(finder.may_have_ours, list(sys.path_importer_cache)):
        del sys.path_importer_cache[entry]
    # A source may be the last thing that a process imports.
    atexit.register(finder.tell_of_sources)
