# SPDX-License-Identifier: Apache-2.0
"""Notes, in a compile process, what the author's modules import, open, list and ask of the environment.

A worker has several jobs, and a module runs once: what it opened then belongs to every later job that reaches it. So all is
kept for the module that did it, and a job depends on what the modules that it reaches have done so far.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import importlib.metadata
import os
import re
import site
import sys
import sysconfig
from dataclasses import dataclass, field
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, ExtensionFileLoader, FileFinder, SourceFileLoader
from typing import TYPE_CHECKING, Any

from flydsl_build.cache.dependencies import Fingerprints
from flydsl_build.jobs.environment import is_scrubbed
from flydsl_build.jobs.frontend import frontends

if TYPE_CHECKING:
    import types
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Recorder"]

_SITE_FOLDERS = ("site-packages", "dist-packages")
# The compilers and this program are part of every request.
_COMPILERS = tuple(package for frontend in frontends() for package in frontend.packages)
_KNOWN_BY_REQUEST = (*_COMPILERS, "flydsl_build")
_IMPORT_SYSTEM = "<frozen importlib._bootstrap>"
# Files whose frames stand between the reader of a variable and `os.environ`.
_ENVIRON_FRAMES = ("<frozen os>", "<frozen _collections_abc>", os.__file__, sys.modules["_collections_abc"].__file__, __file__)


@dataclass(slots=True)
class _Activity:
    """What one module did: dependencies by name, each with the state that tells whether it changed since."""

    files: dict[str, tuple[int, ...] | None] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    variables: set[str] = field(default_factory=set)
    imports: set[str] = field(default_factory=set)


class _SourceLoader(SourceFileLoader):
    """Loads a module of the project from its source, never from a .pyc, and keeps the digest of exactly what was run.

    A .pyc is valid by size and time in seconds of its source, which two edits in one second can have in common.
    """

    digests: dict[str, str]

    def get_code(self, fullname: str) -> types.CodeType:
        path = self.get_filename(fullname)
        data = self.get_data(path)
        self.digests[os.path.realpath(path)] = hashlib.sha256(data).hexdigest()
        code: types.CodeType = self.source_to_code(data, path)
        return code


class Recorder:
    """Watches this process from `install` on.

    Parameters
    ----------
    project
        The folder of pyproject.toml.
    roots
        The folders that the author's modules are imported from.
    ignored
        Folders whose files no result depends on: what this program made itself.
    constant
        Environment variables that are part of the request.
    """

    def __init__(self, *, project: str, roots: Sequence[str], ignored: Sequence[str], constant: Sequence[str]) -> None:
        self._project = os.path.realpath(project)
        self._roots = [os.path.realpath(one) for one in roots]
        self._ignored = tuple(os.path.realpath(one) + os.sep for one in ignored)
        self._constant = frozenset(constant)
        self._installed = tuple(
            os.path.realpath(one) + os.sep
            for one in {sys.prefix, sys.base_prefix, sys.exec_prefix, *sysconfig.get_paths().values(), *site.getsitepackages()}
        )
        self._digests: dict[str, str] = {}
        self._activity: dict[str, _Activity] = {}
        self._owned: dict[str, bool] = {}
        self._trees: dict[str, tuple[str, ...]] = {}
        # Modules that no import statement leads to: whoever got at them once may do so again, unseen.
        self._loose: set[str] = set()
        self._explained: set[str] = set()
        self._busy = False
        self._lasting: Fingerprints | None = None

    def install(self) -> None:
        """Start watching."""
        loader = type("ProjectSourceLoader", (_SourceLoader,), {"digests": self._digests})
        finder = FileFinder.path_hook((ExtensionFileLoader, EXTENSION_SUFFIXES), (loader, SOURCE_SUFFIXES))

        def hook(path: str) -> FileFinder:
            if not self._is_project(os.path.realpath(path) + os.sep):
                raise ImportError
            found: FileFinder = finder(path)  # type: ignore[assignment]  # typeshed has the protocol
            return found

        sys.path_hooks.insert(0, hook)
        sys.path_importer_cache.clear()
        self._watch_import_module()
        self._watch_environ()
        sys.addaudithook(self._audit)

    # --- watching --------------------------------------------------------------------------------------------------------

    def _watch_import_module(self) -> None:
        original = importlib.import_module

        def import_module(name: str, package: str | None = None) -> types.ModuleType:
            module = original(name, package)
            owner = self._owner(sys._getframe(1))  # noqa: SLF001 - whose call it is can be told in no other way
            if owner is not None:
                self._of(owner).imports.add(module.__name__)
            return module

        importlib.import_module = import_module

    def _watch_environ(self) -> None:
        recorder = self

        class Environ(type(os.environ)):  # type: ignore[misc]  # the class has no public name
            def __getitem__(self, key: str) -> str:
                recorder._note_variable(key)
                value: str = super().__getitem__(key)
                return value

        os.environ.__class__ = Environ

    def _note_variable(self, name: object) -> None:
        if not isinstance(name, str) or name in self._constant or is_scrubbed(name):
            return
        frame: types.FrameType | None = sys._getframe(1)  # noqa: SLF001
        while frame is not None and frame.f_code.co_filename in _ENVIRON_FRAMES:
            frame = frame.f_back
        if frame is None:
            return
        module = frame.f_globals.get("__name__", "")
        top = module.partition(".")[0]
        if top in _COMPILERS:
            self._of(top).variables.add(name)
        elif self._is_own(frame):
            self._of(module).variables.add(name)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in {"open", "os.listdir", "os.scandir"} or self._busy:
            return
        self._busy = True
        try:
            path = arguments[0]
            if not isinstance(path, (str, bytes, os.PathLike)):
                return
            if event == "open" and (arguments[2] or 0) & os.O_ACCMODE != os.O_RDONLY:
                return
            path = os.fsdecode(path)
            # Imports of what is installed are nearly all there is.
            if path.startswith(self._installed):
                return
            path = os.path.realpath(path)
            if not self._is_watched(path):
                return
            owner = self._owner(sys._getframe(1))  # noqa: SLF001
            if owner is None:
                return
            if event == "open":
                self._of(owner).files.setdefault(path, _state(path))
            else:
                self._of(owner).folders.add(path)
        finally:
            self._busy = False

    def _of(self, module: str) -> _Activity:
        return self._activity.setdefault(module, _Activity())

    def _owner(self, frame: types.FrameType | None) -> str | None:
        """Return the nearest module of the author's on the stack; None if the import system stands before it."""
        while frame is not None:
            if frame.f_code.co_filename == _IMPORT_SYSTEM:
                return None
            if self._is_own(frame):
                name: str = frame.f_globals["__name__"]
                return name
            frame = frame.f_back
        return None

    def _is_own(self, frame: types.FrameType) -> bool:
        name = frame.f_globals.get("__name__")
        if not isinstance(name, str):
            return False
        if name not in self._owned:
            path = frame.f_globals.get("__file__")
            self._owned[name] = isinstance(path, str) and self._is_source(os.path.realpath(path))
        return self._owned[name]

    # --- places ----------------------------------------------------------------------------------------------------------

    def _is_project(self, path: str) -> bool:
        """Tell whether a path is in the author's folders, and not what a virtual environment in them has installed."""
        return any(
            path.startswith(root + os.sep) and not any(f"{os.sep}{one}{os.sep}" in path[len(root) :] for one in _SITE_FOLDERS)
            for root in self._roots
        )

    def _is_source(self, path: str) -> bool:
        """Tell whether a module is watched: the project's, or one that no distribution accounts for."""
        if self._is_project(path):
            return True
        if any(f"{os.sep}{one}{os.sep}" in path for one in _SITE_FOLDERS) or path.startswith(self._installed):
            return False
        return not _is_own_program(path)

    def _is_watched(self, path: str) -> bool:
        if path.startswith(self._ignored):
            return False
        if path.startswith(self._project + os.sep) or path == self._project or self._is_project(path):
            return not path.endswith(".pyc")
        return not path.startswith(("/proc/", "/sys/", "/dev/", *self._installed)) and not any(one in path for one in _SITE_FOLDERS)

    def _named(self, path: str) -> str:
        if path == self._project:
            return "."
        return os.path.relpath(path, self._project) if path.startswith(self._project + os.sep) else path

    # --- the dependencies of a job -----------------------------------------------------------------------------------------

    def dependencies(self, module: str, environ: Mapping[str, str]) -> dict[str, str | None] | None:
        """Return what a result of `module` depends on, by name with fingerprints.

        None if something changed while it was compiled: nothing can then be said of the result.

        Parameters
        ----------
        environ
            The environment that the process was started with.
        """
        reached = self._reach([module])
        self._explained |= reached.keys()
        self._loose |= {name for name in self._activity_modules() if name not in self._explained}
        reached |= self._reach(self._loose)
        names: dict[str, None] = {}
        for one in reached.values():
            names.update(dict.fromkeys(one))
        for owner in (*reached, *_COMPILERS):
            activity = self._activity.get(owner)
            if activity is None:
                continue
            if any(_state(path) != state for path, state in activity.files.items()):
                return None
            names.update(dict.fromkeys(f"file:{self._named(path)}" for path in activity.files))
            names.update(dict.fromkeys(f"list:{self._named(path)}" for path in activity.folders))
            names.update(dict.fromkeys(f"env:{name}" for name in activity.variables))
        # Files may change while the process lives; distributions and the environment that it started with do not.
        fingerprints = Fingerprints(self._project, environ)
        lasting = self._lasting = self._lasting or fingerprints
        found = {name: (lasting if name.startswith(("dist:", "env:")) else fingerprints)[name] for name in sorted(names)}
        ran = {f"file:{self._named(path)}": digest for path, digest in self._digests.items()}
        if any(found[name] != digest for name, digest in ran.items() if name in found):
            return None
        return found

    def _activity_modules(self) -> Iterator[str]:
        """Yield the names of the project's modules that are loaded."""
        for name, module in list(sys.modules.items()):
            path = getattr(module, "__file__", None)
            if isinstance(path, str) and os.path.realpath(path) in self._digests:
                yield name

    def _reach(self, modules: Sequence[str] | set[str]) -> dict[str, list[str]]:
        """Return the author's modules that these reach by imports, themselves included, each with the names of its files."""
        found: dict[str, list[str]] = {}
        queue = list(modules)
        seen: set[str] = set()
        while queue:
            name = queue.pop()
            parts = name.split(".")
            queue += [".".join(parts[:depth]) for depth in range(1, len(parts))]
            if name in seen:
                continue
            seen.add(name)
            if parts[0] in _KNOWN_BY_REQUEST or (len(parts) > 1 and self._is_foreign(parts[0])):
                continue
            module = sys.modules.get(name)
            path = getattr(module, "__file__", None)
            if not isinstance(path, str):
                found[name] = [*self._absent(parts), *(["dist:torch"] if parts == ["torch"] else [])]
                continue
            path = os.path.realpath(path)
            if not self._is_source(path):
                if len(parts) == 1:
                    found[name] = [*self._absent(parts), *self._distribution(name, path)]
                continue
            found[name] = [f"file:{self._named(path)}", *self._absent(parts)]
            queue += self._imports(name, path)
            queue += self._activity[name].imports if name in self._activity else ()
        return found

    def _is_foreign(self, top: str) -> bool:
        path = getattr(sys.modules.get(top), "__file__", None)
        if isinstance(path, str):
            return not self._is_source(os.path.realpath(path))
        return top in sys.stdlib_module_names

    def _absent(self, parts: Sequence[str]) -> list[str]:
        """Name the files of the project that would be imported by this name, or before what was, if they were there."""
        places = [os.path.join(root, *parts) for root in self._roots]
        files = [file for place in places for file in (os.path.join(place, "__init__.py"), f"{place}.py")]
        return [f"file:{self._named(file)}" for file in files if not os.path.exists(file)]

    def _imports(self, name: str, path: str) -> tuple[str, ...]:
        if path not in self._trees:
            self._trees[path] = ()
            if path.endswith(".py"):
                with contextlib.suppress(OSError, SyntaxError, ValueError), open(path, "rb") as file:
                    package = name if os.path.basename(path) == "__init__.py" else name.rpartition(".")[0]
                    self._trees[path] = tuple(imported_names(ast.parse(file.read()), package))
        return self._trees[path]

    def _distribution(self, name: str, path: str) -> list[str]:
        """Name the distribution of an installed module; nothing for the standard library."""
        place = next((one for one in _SITE_FOLDERS if f"{os.sep}{one}{os.sep}" in path), None)
        if place is None:
            return []
        folder, _, _ = path.rpartition(f"{os.sep}{place}{os.sep}")
        with contextlib.suppress(OSError):
            for entry in os.listdir(os.path.join(folder, place)):
                if entry.endswith(".dist-info") and _normalized(entry.partition("-")[0]) == _normalized(name):
                    return [f"dist:{_normalized(name)}"]
        known = importlib.metadata.packages_distributions().get(name)
        return [f"dist:{one}" for one in sorted(set(known))] if known else [f"file:{path}"]


def imported_names(tree: ast.AST, package: str) -> Iterator[str]:
    """Yield the names that import statements in a module of `package` may mean."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            base = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            origin = ".".join(filter(None, [base, node.module]))
            yield origin
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def _is_own_program(path: str) -> bool:
    folder = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    return path.startswith(folder + os.sep)


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _state(path: str) -> tuple[int, ...] | None:
    """Return what changes when a file is written; None if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
