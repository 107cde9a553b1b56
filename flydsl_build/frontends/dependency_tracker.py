# SPDX-License-Identifier: Apache-2.0
"""Notes, in a compile process, what the author's modules import, open, list, look for and ask of the environment.

A worker has several jobs, and a module runs once: what it opened then belongs to every later job that reaches it. So all is
kept for the module that did it, and a job depends on what the modules that it reaches have done so far. Installed modules are
watched too, for what they import and for files in the folders that are imported from.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import os
import pathlib
import site
import sys
import sysconfig
from dataclasses import dataclass, field
from importlib.machinery import EXTENSION_SUFFIXES, SOURCE_SUFFIXES, ExtensionFileLoader, FileFinder, SourceFileLoader
from typing import TYPE_CHECKING, Any

from flydsl_build.cache.dependencies import Fingerprints
from flydsl_build.editable.resolution import Resolver, import_name, normalized, presence, start_path
from flydsl_build.jobs.environment import is_scrubbed
from flydsl_build.jobs.frontend import frontend_of

if TYPE_CHECKING:
    import types
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

__all__ = ["Recorder"]

_SITE_FOLDERS = ("site-packages", "dist-packages")
# Taken once: they do not change while a process lives.
_LASTING = ("dist:", "env:", "import:")
_IMPORT_SYSTEM = "<frozen importlib._bootstrap>"
# These read what imports and distributions account for: the sources of modules that are loaded, and the metadata of all that is there.
_INDIFFERENT = ("inspect", "linecache", "importlib.metadata")
# Files whose frames stand between the reader of a variable and `os.environ`.
_ENVIRON_FRAMES = ("<frozen os>", "<frozen _collections_abc>", os.__file__, sys.modules["_collections_abc"].__file__, __file__)
# These want to know whether something is there; whoever asks for the state of a file otherwise wants its size perhaps.
_LOOKS = {
    one.__code__
    for place, names in (
        (os.path, ("exists", "lexists", "isfile", "isdir", "islink", "ismount")),
        (pathlib.Path, ("exists", "is_file", "is_dir", "is_symlink", "is_mount")),
    )
    for one in (getattr(place, name) for name in names)
    if hasattr(one, "__code__")
}
_STATES = {pathlib.Path.stat.__code__, pathlib.Path.lstat.__code__}
# `realpath` asks of each folder whether it is a link.
_REAL_PATH = os.path.realpath.__code__.co_filename
_REAL_PATH_NAMES = ("realpath", "_joinrealpath")


@dataclass(slots=True)
class _Activity:
    """What one module did: dependencies by name, each with the state that tells whether it changed since."""

    files: dict[str, tuple[int, ...] | None] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    looks: dict[str, str | None] = field(default_factory=dict)
    variables: set[str] = field(default_factory=set)
    distributions: set[str] = field(default_factory=set)
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
    frontends
        Names of the front ends whose compilers are part of the request, as this program is.
    """

    def __init__(
        self, *, project: str, roots: Sequence[str], ignored: Sequence[str], constant: Sequence[str], frontends: Sequence[str]
    ) -> None:
        self._project = os.path.realpath(project)
        self._roots = [os.path.realpath(one) for one in roots]
        self._ignored = tuple(os.path.realpath(one) + os.sep for one in ignored)
        self._constant = frozenset(constant)
        self._compilers = tuple(package for name in frontends for package in frontend_of(name).packages)
        self._known_by_request = (*self._compilers, "flydsl_build")
        self._installed = tuple(
            os.path.realpath(one) + os.sep
            for one in {sys.prefix, sys.base_prefix, sys.exec_prefix, *sysconfig.get_paths().values(), *site.getsitepackages()}
        )
        library = {os.path.realpath(sysconfig.get_path(one)) + os.sep for one in ("stdlib", "platstdlib")}
        self._standard = tuple(sorted(library))
        self._digests: dict[str, str] = {}
        self._activity: dict[str, _Activity] = {}
        self._kinds: dict[str, str] = {}
        self._trees: dict[str, tuple[str, ...]] = {}
        # Modules that no import statement leads to: whoever got at them once may do so again, unseen.
        self._loose: set[str] = set()
        self._explained: set[str] = set()
        # What this process made itself is no input.
        self._made: set[str] = set()
        self._busy = False
        self._lasting: Fingerprints | None = None
        self._resolver = Resolver((), ())

    def install(self) -> None:
        """Start watching, before the author's folders are on the path."""
        self._resolver = Resolver(start_path(), sys.meta_path)
        loader = type("ProjectSourceLoader", (_SourceLoader,), {"digests": self._digests})
        finder = FileFinder.path_hook((ExtensionFileLoader, EXTENSION_SUFFIXES), (loader, SOURCE_SUFFIXES))

        def hook(path: str) -> FileFinder:
            if not self._is_project(os.path.realpath(path) + os.sep):
                raise ImportError
            found: FileFinder = finder(path)  # type: ignore[assignment]  # typeshed has the protocol
            return found

        sys.path_hooks.insert(0, hook)
        sys.path_importer_cache.clear()
        self._watch_imports()
        self._watch_distributions()
        self._watch_states()
        self._watch_environ()
        sys.addaudithook(self._audit)

    # --- watching --------------------------------------------------------------------------------------------------------

    def _watch_imports(self) -> None:
        statement, function, search = builtins.__import__, importlib.import_module, importlib.util.find_spec

        @functools.wraps(statement)
        def import_(
            name: str,
            globals: Mapping[str, object] | None = None,  # noqa: A002 - callers name it
            locals: Mapping[str, object] | None = None,  # noqa: A002
            fromlist: Sequence[str] | None = (),
            level: int = 0,
        ) -> types.ModuleType:
            if not level and name.partition(".")[0] in sys.stdlib_module_names:
                return statement(name, globals, locals, fromlist, level)
            origin = _origin(name, globals, level)
            importer = self._importer(globals)
            if importer is not None:
                self._of(importer).imports.add(origin)
            module = statement(name, globals, locals, fromlist, level)
            if importer is not None and fromlist:
                given = vars(sys.modules.get(origin, module))
                found = (f"{origin}.{one}" for one in fromlist if f"{origin}.{one}" in sys.modules or one not in {*given, "*"})
                self._of(importer).imports.update(found)
            return module

        @functools.wraps(function)
        def import_module(name: str, package: str | None = None) -> types.ModuleType:
            self._note_import(name, package, sys._getframe(1))  # noqa: SLF001 - whose call it is can be told in no other way
            return function(name, package)

        @functools.wraps(search)
        def find_spec(name: str, package: str | None = None) -> Any:
            self._note_import(name, package, sys._getframe(1))  # noqa: SLF001
            return search(name, package)

        builtins.__import__ = import_
        importlib.import_module = import_module
        importlib.util.find_spec = find_spec

    def _importer(self, names: Mapping[str, object] | None) -> str | None:
        """Return the module that an import statement is in; for one of the standard library, on whose behalf it is there."""
        name = None if names is None else names.get("__name__")
        kind = "" if names is None else self._kind(name, names.get("__file__"))
        if isinstance(name, str) and kind:
            return name if kind != "request" else None
        return self._owner(sys._getframe(2))  # noqa: SLF001

    def _note_import(self, name: str, package: str | None, frame: types.FrameType) -> None:
        owner = self._owner(frame)
        if owner is not None and name.partition(".")[0] not in sys.stdlib_module_names:
            with contextlib.suppress(ImportError, ValueError, TypeError):
                self._of(owner).imports.add(importlib.util.resolve_name(name, package))

    def _watch_distributions(self) -> None:
        original = importlib.metadata.Distribution.from_name
        recorder = self

        def from_name(cls: type[importlib.metadata.Distribution], name: str) -> importlib.metadata.Distribution:
            del cls
            owner = recorder._owner(sys._getframe(1))  # noqa: SLF001
            if owner is not None and isinstance(name, str):
                recorder._of(owner).distributions.add(normalized(name))
            return original(name)

        importlib.metadata.Distribution.from_name = classmethod(from_name)  # type: ignore[assignment,method-assign]

    def _watch_states(self) -> None:
        def watched(original: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(original)
            def state(path: Any, *arguments: Any, **options: Any) -> Any:
                if not self._busy and options.get("dir_fd") is None:
                    self._note_state(path, sys._getframe(1))  # noqa: SLF001
                return original(path, *arguments, **options)

            for known in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks, os.supports_effective_ids):
                if original in known:
                    known.add(state)
            return state

        os.stat, os.lstat, os.access = watched(os.stat), watched(os.lstat), watched(os.access)

    def _note_state(self, path: object, frame: types.FrameType) -> None:
        code = frame.f_code
        if isinstance(path, int) or (code.co_filename == _REAL_PATH and code.co_name in _REAL_PATH_NAMES):
            return
        self._busy = True
        try:
            real = self._watched(path)
            owner = None if real is None else self._owner(frame, real, look=True)
            if real is None or owner is None:
                return
            activity = self._of(owner)
            caller = frame.f_back if code in _STATES else frame
            there = presence(real)
            if there == "file" and (caller is None or caller.f_code not in _LOOKS):
                activity.files.setdefault(real, _state(real))
            else:
                activity.looks.setdefault(real, there)
        finally:
            self._busy = False

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
        if top in self._compilers:
            self._of(top).variables.add(name)
        elif self._kind_of(frame) == "own":
            self._of(module).variables.add(name)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event not in {"open", "os.listdir", "os.scandir", "os.mkdir"} or self._busy:
            return
        self._busy = True
        try:
            if event == "os.mkdir" or (event == "open" and (arguments[2] or 0) & os.O_ACCMODE != os.O_RDONLY):
                self._note_made(arguments[0])
                return
            path = self._watched(arguments[0])
            owner = None if path is None else self._owner(sys._getframe(1), path)  # noqa: SLF001
            if path is None or owner is None:
                return
            if event == "open":
                self._of(owner).files.setdefault(path, _state(path))
            # What else is installed is nobody's input, whoever looks for a distribution among it.
            elif path not in self._import_folders:
                self._of(owner).folders.add(path)
        finally:
            self._busy = False

    def _note_made(self, path: object) -> None:
        if isinstance(path, (str, bytes, os.PathLike)):
            real = os.path.realpath(os.fsdecode(path))
            if not os.path.lexists(real):
                self._made.add(real)

    def _watched(self, path: object) -> str | None:
        """Return the real path of something that may be an input; None if it is none."""
        if not isinstance(path, (str, bytes, os.PathLike)):
            return None
        text = os.fsdecode(path)
        # Imports of the standard library are much of all there is.
        if "\0" in text or (text.startswith(self._standard) and not _in_site(text)):
            return None
        real = os.path.realpath(text)
        return real if self._is_watched(real) else None

    def _of(self, module: str) -> _Activity:
        return self._activity.setdefault(module, _Activity())

    def _owner(self, frame: types.FrameType | None, path: str | None = None, *, look: bool = False) -> str | None:
        """Return on whose behalf something is done: the nearest module of the author's on the stack, above the import system.

        It is an installed module if that is about to be imported, or if the path is in its own package. What FlyDSL looks for is no
        input.
        """
        installed: str | None = None
        while frame is not None:
            if frame.f_code.co_filename == _IMPORT_SYSTEM:
                return installed if path is None or self._in_import_folder(path) else None
            kind = self._kind_of(frame)
            name: str = frame.f_globals.get("__name__", "")
            if path is not None and name in _INDIFFERENT:
                return None
            if kind == "own":
                return name
            if kind == "request" and look:
                return None
            if kind == "installed" and installed is None:
                installed = name
                if path is not None and f"{os.sep}{name.partition('.')[0]}{os.sep}" in path and self._in_import_folder(path):
                    return installed
            frame = frame.f_back
        return None

    def _in_import_folder(self, path: str) -> bool:
        return not self._is_project(path) and path.startswith(tuple(one + os.sep for one in self._import_folders))

    @functools.cached_property
    def _import_folders(self) -> frozenset[str]:
        return frozenset(os.path.realpath(one) for one in self._resolver.path if one)

    def _kind_of(self, frame: types.FrameType) -> str:
        return self._kind(frame.f_globals.get("__name__"), frame.f_globals.get("__file__"))

    def _kind(self, name: object, path: object) -> str:
        """Return "own" for a module that is watched in all it does, "installed" for one of a distribution, "request", or ""."""
        if not isinstance(name, str):
            return ""
        if name not in self._kinds:
            real = os.path.realpath(path) if isinstance(path, str) else ""
            if name.partition(".")[0] in self._known_by_request:
                self._kinds[name] = "request"
            elif real and self._is_source(real):
                self._kinds[name] = "own"
            else:
                self._kinds[name] = "installed" if _in_site(real) else ""
        return self._kinds[name]

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
        return not (_in_site(path) or path.startswith(self._installed) or _is_own_program(path))

    def _is_watched(self, path: str) -> bool:
        if path.endswith(".pyc") or path.startswith(self._ignored) or self._is_made(path):
            return False
        if path.startswith(self._project + os.sep) or path == self._project or self._is_project(path):
            return True
        if path.startswith(("/proc/", "/sys/", "/dev/", *self._known_folders)):
            return False
        return not path.startswith(self._installed) or _in_site(path)

    @functools.cached_property
    def _known_folders(self) -> tuple[str, ...]:
        """Return the folders of what is part of the request."""
        specs = [self._resolver.spec(one) for one in self._known_by_request]
        return tuple(os.path.realpath(place) + os.sep for spec in specs if spec for place in spec.submodule_search_locations or ())

    def _is_made(self, path: str) -> bool:
        while path not in self._made:
            path, before = os.path.dirname(path), path
            if path == before:
                return False
        return True

    def _named(self, path: str) -> str:
        if path == self._project:
            return "."
        if path.startswith(self._project + os.sep):
            return os.path.relpath(path, self._project)
        return self._resolver.name_of(path) or path

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
        looks: dict[str, str | None] = {}
        for one in reached.values():
            names.update(dict.fromkeys(one))
        for owner in (*reached, *self._compilers):
            activity = self._activity.get(owner)
            if activity is None:
                continue
            if any(_state(path) != state for path, state in activity.files.items()):
                return None
            names.update(dict.fromkeys(f"file:{self._named(path)}" for path in activity.files))
            names.update(dict.fromkeys(f"list:{self._named(path)}" for path in activity.folders))
            names.update(dict.fromkeys(f"env:{name}" for name in activity.variables))
            names.update(dict.fromkeys(f"dist:{name}" for name in activity.distributions))
            # What the module saw: it may have made the file itself then.
            looks.update({f"exists:{self._named(path)}": there for path, there in activity.looks.items()})
        names.update(dict.fromkeys(self._import_names(reached)))
        # Files may change while the process lives; distributions and the environment that it started with do not.
        fingerprints = Fingerprints(self._project, environ, self._resolver)
        lasting = self._lasting = self._lasting or fingerprints
        found = {name: (lasting if name.startswith(_LASTING) else fingerprints)[name] for name in sorted(names)}
        ran = {f"file:{self._named(path)}": digest for path, digest in self._digests.items()}
        if any(found[name] != digest for name, digest in ran.items() if name in found):
            return None
        return {**found, **dict(sorted(looks.items()))}

    def _activity_modules(self) -> Iterator[str]:
        """Yield the names of the project's modules that are loaded."""
        for name, module in list(sys.modules.items()):
            path = getattr(module, "__file__", None)
            if isinstance(path, str) and os.path.realpath(path) in self._digests:
                yield name

    def _reach(self, modules: Sequence[str] | set[str]) -> dict[str, list[str]]:
        """Return the modules that these reach by imports, themselves included, each with the names of its files."""
        found: dict[str, list[str]] = {}
        queue = list(modules)
        while queue:
            name = queue.pop()
            parts = name.split(".")
            if name in found or parts[0] in self._known_by_request or self._is_standard(parts[0]):
                continue
            queue += [".".join(parts[:depth]) for depth in range(1, len(parts))]
            module = sys.modules.get(name)
            path = getattr(module, "__file__", None)
            path = os.path.realpath(path) if isinstance(path, str) else None
            found[name] = [f"file:{self._named(path)}"] if path is not None and self._is_file(name, path) else []
            # Those below an installed package are looked for there.
            if len(parts) == 1 or not self._is_foreign(parts[0]):
                found[name] += self._absent(parts)
            if path is not None and self._is_source(path):
                queue += self._imports(name, path)
            queue += self._activity[name].imports if name in self._activity else ()
        return found

    def _is_standard(self, top: str) -> bool:
        path = getattr(sys.modules.get(top), "__file__", None)
        return top in sys.stdlib_module_names and not (isinstance(path, str) and self._is_project(os.path.realpath(path)))

    def _is_file(self, name: str, path: str) -> bool:
        """Tell whether a module was found as a file of the project, or in another place than its name leads to."""
        if self._is_project(path):
            return True
        spec = self._resolver.spec(getattr(getattr(sys.modules[name], "__spec__", None), "name", None) or name)
        return spec is None or not spec.has_location or os.path.realpath(str(spec.origin)) != path

    def _is_foreign(self, top: str) -> bool:
        path = getattr(sys.modules.get(top), "__file__", None)
        return isinstance(path, str) and not self._is_source(os.path.realpath(path))

    def _import_names(self, reached: Iterable[str]) -> Iterator[str]:
        """Yield the dependencies on what names of modules outside of the project resolve to."""
        attempted = set().union(*(self._activity[one].imports for one in reached if one in self._activity))
        tops: dict[str, list[str]] = {}
        for name in reached:
            top, _, below = name.partition(".")
            # A name that was only found in the text of a module was not looked for.
            if (name in sys.modules or name in attempted) and not self._is_projects(name if name in sys.modules else top):
                tops.setdefault(top, []).extend([below] if below else ())
        for top, submodules in tops.items():
            yield import_name(top, self._owners(top), submodules)

    def _is_projects(self, name: str) -> bool:
        module = sys.modules.get(name)
        path = getattr(module, "__file__", None)
        places = [path] if isinstance(path, str) else list(getattr(module, "__path__", ()))
        return any(self._is_project(os.path.realpath(one) + os.sep * (path is None)) for one in places)

    def _owners(self, top: str) -> list[str]:
        """Name the distributions that a module at the top belongs to."""
        name = normalized(top)
        if self._resolver.distribution(name):
            return [name]
        return sorted({normalized(one) for one in _distributions().get(top, ())})

    def _absent(self, parts: Sequence[str]) -> list[str]:
        """Name the files of the project that would be imported by this name, or before what was, if they were there.

        Likewise in folders that the author's modules have put on the path.
        """
        put = [one for one in map(os.path.realpath, sys.path) if one not in self._import_folders and one + os.sep not in self._standard]
        places = [os.path.join(root, *parts) for root in dict.fromkeys([*self._roots, *put])]
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


@functools.cache
def _distributions() -> Mapping[str, list[str]]:
    return importlib.metadata.packages_distributions()


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


def _origin(name: str, names: Mapping[str, object] | None, level: int) -> str:
    """Return the whole name that an import statement means."""
    package = (names or {}).get("__package__") or ""
    if not level or not isinstance(package, str):
        return name
    return ".".join(filter(None, [*package.split(".")[: len(package.split(".")) - level + 1], name]))


def _in_site(path: str) -> bool:
    return any(f"{os.sep}{one}{os.sep}" in path for one in _SITE_FOLDERS)


def _is_own_program(path: str) -> bool:
    folder = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    return path.startswith(folder + os.sep)


def _state(path: str) -> tuple[int, ...] | None:
    """Return what changes when a file is written; None if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns
