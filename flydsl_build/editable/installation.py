# SPDX-License-Identifier: Apache-2.0
"""One editable install: where its stubs are, whether they are fresh, and how they are made again.

The folder of an installation, which is below the project's build folder, has

`state.json`   the modules, each with its generation, its files and its dependencies; replaced as a whole
`stamps.json`  what `freshness` noted of files; may be lost
`lock`         held by whoever compiles
`g-…`          generations: folders laid out like the wheel, with what one build has made. Nothing in them changes, as other processes
               may have it mapped; whoever uses one holds a shared lock on the folder, and only one that nobody uses is removed

Everything in it can be made again, from the facts beside this file.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from typing import Any

from .freshness import Freshness, declared_modules
from .resolution import open_regular

__all__ = ["SCHEMA", "Installation", "level_of_importer", "read_state", "write_json"]

SCHEMA = 2
"""Number of the form of these files; raised when they change."""

_SWITCH = "FLYDSL_BUILD_EDITABLE_REBUILD"
_OFF = ("0", "false", "no", "off")
_ALLOWED = {"FLYDSL_BUILD_EDITABLE": ("aot", "jit"), _SWITCH: ("1", "true", "yes", "on", *_OFF)}
_NO_STATE: dict[str, Any] = {"modules": {}, "runtimes": {}, "declared": [], "declarations": None}

# The forms of the files, as `_is_of` reads them.
_DIGESTS = {str: (str, None)}
_MADE = {"generation": str, "files": {str: str}}
_MODULE = {**_MADE, "file": str, "source": str, "package": bool, "runtime": str, "dependencies": (_DIGESTS, None)}
_STATE = {
    "schema": int,
    "runtime": str,
    "modules": {str: _MODULE},
    "runtimes": {str: _MADE},
    "declared": [str],
    "declarations": (str, None),
}
_FACTS = {
    "distribution": {"name": str, "version": str},
    "project": str,
    "package_roots": [str],
    "top_levels": [str],
    "config": {str: object},
    "folder": str,
    "declared": [str],
    "needs": [str],
    "jit_needs": [str],
}


def _is_of(form: Any, value: Any) -> bool:
    """Tell whether a value has a form: a type, None, one of a tuple, [of items], {of keys: of values} or {"key": of its value, …}."""
    if isinstance(form, tuple):
        return any(_is_of(one, value) for one in form)
    if isinstance(form, list):
        return isinstance(value, list) and all(_is_of(form[0], one) for one in value)
    if isinstance(form, dict):
        if not isinstance(value, dict):
            return False
        if str in form:
            return all(_is_of(form[str], one) for one in value.values())
        return all(key in value and _is_of(one, value[key]) for key, one in form.items())
    return value is None if form is None else isinstance(value, form)


def _read_json(path: str, form: Any) -> Any:
    """Return the value in a file; None if it cannot be read or is not of the form."""
    try:
        with open_regular(path) as file:
            value = json.load(file)
    except (OSError, ValueError, RecursionError):
        return None
    return value if _is_of(form, value) else None


def read_state(folder: str) -> dict[str, Any] | None:
    """Return the state in the folder of an installation; None if there is none of this form."""
    state: dict[str, Any] | None = _read_json(os.path.join(folder, "state.json"), _STATE)
    if state is None or state["schema"] != SCHEMA:
        return None
    return state if all(one["runtime"] in state["runtimes"] for one in state["modules"].values()) else None


def write_json(path: str, value: Any) -> None:
    """Replace a file as a whole."""
    temporary = f"{path}.{os.getpid()}.tmp"
    try:
        with open(temporary, "w", encoding="utf-8") as file:
            json.dump(value, file)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


class _StubLoader(SourceFileLoader):
    """Loads a stub. The data files of a package whose own module is a stub are beside its source."""

    def __init__(self, fullname: str, path: str, source: str) -> None:
        super().__init__(fullname, path)
        self._source = source

    def get_resource_reader(self, name: str | None = None) -> Any:
        from importlib.readers import FileReader

        return FileReader(SourceFileLoader(name or self.name, self._source))


def _found(name: str, path: Sequence[str] | None, finders: Sequence[Any]) -> ModuleSpec | None:
    """Return what the finders have of a name; None if nothing, or a mere folder, which every module of the name comes before."""
    for finder in finders if path is not None or "." not in name else ():
        found: ModuleSpec | None = finder.find_spec(name, path, None) if hasattr(finder, "find_spec") else None
        if found is not None and found.origin is not None:
            return found
    return None


def _is_below(path: str, folder: str) -> bool:
    """Tell whether a path is a folder or in it."""
    return f"{os.path.realpath(path)}{os.sep}".startswith(f"{os.path.realpath(folder)}{os.sep}")


def _check_environment(name: str) -> None:
    """Refuse variables that say nothing. The builder refuses them, too."""
    for variable, allowed in _ALLOWED.items():
        value = os.environ.get(variable)
        if value and value not in allowed and (variable != _SWITCH or value.lower() not in allowed):
            msg = f"{name}: {variable} is {value!r}; allowed: {', '.join(allowed)}"
            raise ImportError(msg, name=name)


class _CannotError(Exception):
    """Why kernels cannot be compiled here and now, and what to do; no fault of the author's."""

    def __init__(self, why: str, fix: str) -> None:
        super().__init__(why)
        self.fix = fix


class Installation:
    """The installation that a copy of this package belongs to.

    Parameters
    ----------
    package
        The folder of the copy.
    """

    def __init__(self, package: str) -> None:
        path = os.path.join(package, "facts.json")
        facts = _read_json(path, _FACTS)
        if facts is None:
            msg = f"{path}: is damaged, and an editable install needs it\n    -> install the project again with pip install -e"
            raise ImportError(msg)
        self._facts: dict[str, Any] = facts
        self._project: str = facts["project"]
        self._folder: str = facts["folder"]
        self._state_read: tuple[Any, dict[str, Any]] | None = None
        self._freshness: Freshness | None = None
        self._held: dict[str, int] = {}
        self.told: set[str] = set()
        """Names that a warning was given of."""

    def find_spec(self, name: str, path: Sequence[str] | None, finders: Sequence[Any]) -> ModuleSpec | None:
        """Return the spec of a declared module or its ops of torch, compiled anew if need be, or of a private run time.

        What `sys.path` has of this name before the project is not mixed with stubs: it is left to the other finders.

        Parameters
        ----------
        path
            The `__path__` of the parent; None for a module at the top.
        finders
            The finders that are asked if this one has nothing.

        Raises
        ------
        ImportError
            A module cannot be compiled, or there is no code of it and it cannot be compiled here.
        """
        # A project that was moved or removed is not there for other finders either.
        if not os.path.isdir(self._project):
            return None
        state = self._state()
        if name not in state["runtimes"] and name not in self._declared(state):
            return None
        if self._is_elsewhere(path):
            other = next(iter(path or ()), "a package without a folder")
        else:
            found = _found(name, path, finders)
            if found is not None and _is_below(str(found.origin), self._folder):
                return found  # asked by way of `sys.path_hooks`, it has been served
            if found is None or self.module_at(str(found.origin)) == name:
                return self._spec(name, name)
            other = str(found.origin)
        if name in self.known():
            self._tell_other(name, other)
        return None

    def _spec(self, name: str, spelling: str) -> ModuleSpec | None:
        """Return the spec of what is served under a name, with the name in the spec; None if it is not served."""
        if not os.path.isdir(self._project):
            return None
        state = self._state()
        if name in state["runtimes"]:
            folder = os.path.join(self._hold(state["runtimes"][name]["generation"]), *name.split("."))
            return spec_from_file_location(spelling, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
        if name not in self._declared(state):
            return None
        _check_environment(name)
        module = self._renewed(name)
        if module is None:
            return None
        path = os.path.join(self._folder, module["generation"], module["file"])
        places = [os.path.dirname(module["source"])] if module["package"] else None
        loader = _StubLoader(spelling, path, module["source"]) if places else None
        return spec_from_file_location(spelling, path, loader=loader, submodule_search_locations=places)

    def tell_what_jit_needs(self, name: str) -> None:
        """Warn, once, if a declared module's FlyDSL source is about to be imported where it cannot be."""
        missing = _are_missing(self._facts["jit_needs"])
        if missing and not self.told and name in self.known():
            self.told.add(name)
            import warnings

            text = (
                f"{name}: FLYDSL_BUILD_EDITABLE=jit imports the FlyDSL source, and {missing}\n"
                "    -> install what is missing, or unset FLYDSL_BUILD_EDITABLE: the compiled kernels need neither flydsl nor torch"
            )
            warnings.warn(text, RuntimeWarning, stacklevel=level_of_importer())

    def _ways_to_the_source(self) -> list[str]:
        """Return the advice to import the source, where that can be done."""
        return [] if _are_missing(self._facts["jit_needs"]) else ["FLYDSL_BUILD_EDITABLE=jit imports the FlyDSL source"]

    def find_in(self, folder: str, name: str, found: ModuleSpec | None) -> ModuleSpec | None:
        """Return the spec of what is served in the place of a module that is looked for in a folder; None if nothing is.

        Parameters
        ----------
        name
            The module's name, or the last part of it.
        found
            The module that is there.
        """
        if found is not None and found.has_location and found.origin:
            module = self.module_at(found.origin)
        else:
            # What only the build folder has.
            module = self.module_at(os.path.join(folder, name.rpartition(".")[2] + ".py"))
        # Finders that know names only ask for the project's modules in any package that has their parent's name.
        parent = getattr(sys.modules.get(name.rpartition(".")[0]), "__path__", None)
        return None if module is None or self._is_elsewhere(parent) else self._spec(module, name)

    def module_at(self, path: str) -> str | None:
        """Return the name of the project's module whose source is at a path; None if that is no place of one."""
        stem, suffix = os.path.splitext(os.path.realpath(path))
        if suffix != ".py":
            return None
        stem = stem.removesuffix(f"{os.sep}__init__")
        for root in self._facts["package_roots"]:
            if stem.startswith(root + os.sep):
                return stem[len(root) + 1 :].replace(os.sep, ".")
        return None

    def _is_elsewhere(self, path: Sequence[str] | None) -> bool:
        """Tell whether a package with this `__path__` has no folder of the project."""
        roots = (self._project, *self._facts["package_roots"])
        return path is not None and not any(_is_below(folder, root) for folder in path for root in roots)

    def _tell_other(self, name: str, other: str) -> None:
        if name in self.told:
            return
        self.told.add(name)
        import warnings

        text = (
            f"{name}: the compiled kernels of the editable install of {self._project} are not imported: {other} comes before it\n"
            "    -> take its folder from sys.path, or install its project with pip install -e; "
            "FLYDSL_BUILD_EDITABLE=jit imports it without this warning"
        )
        warnings.warn(text, RuntimeWarning, stacklevel=level_of_importer())

    def known(self) -> list[str]:
        """Return the modules that were declared when they were last compiled, or when the project was installed."""
        found: list[str] = self._state()["declared"] or self._facts["declared"]
        return found

    # --- what there is -----------------------------------------------------------------------------------------------------

    def _state(self) -> dict[str, Any]:
        """Return the state, read again if another process has replaced it."""
        path = os.path.join(self._folder, "state.json")
        try:
            status = os.stat(path)
        except OSError:
            return _NO_STATE
        stamp = (status.st_ino, status.st_mtime_ns)
        if self._state_read is None or self._state_read[0] != stamp:
            self._state_read = (stamp, read_state(self._folder) or _NO_STATE)
            stamps = _read_json(os.path.join(self._folder, "stamps.json"), {str: [([int], str, None)]})
            stamps = {name: one for name, one in (stamps or {}).items() if len(one) == 2}
            self._freshness = Freshness(self._project, stamps, os.environ)
        return self._state_read[1]

    def _fresh(self) -> Freshness:
        if self._freshness is None:
            self._freshness = Freshness(self._project, {}, os.environ)
        return self._freshness

    def _declared(self, state: Mapping[str, Any]) -> list[str]:
        """Return the declared modules, also those that were added to the table since."""
        if state is _NO_STATE:
            return [*self._facts["declared"], *declared_modules(self._project)]
        if self._fresh().agrees("declared:", state["declarations"]):
            found: list[str] = state["declared"]
            return found
        return [*state["declared"], *declared_modules(self._project)]

    def _change(self, name: str) -> str:
        """Return why a module must be compiled, in words; empty if it need not."""
        module = self._state()["modules"].get(name)
        if module is None:
            return "it has not been compiled yet"
        damage = self._damage(module)
        if damage or module["dependencies"] is None:
            return damage or "its sources changed while it was compiled"
        fresh = self._fresh()
        change = fresh.change(module["dependencies"])
        if fresh.has_news and not change:
            fresh.has_news = False
            # Spares the next process from reading the files again.
            with contextlib.suppress(OSError):
                write_json(os.path.join(self._folder, "stamps.json"), fresh.stamps)
        return change

    def _damage(self, module: Mapping[str, Any]) -> str:
        """Return which file of a module is not as it was made, in words; empty if all are."""
        fresh = self._fresh()
        for one in (module, self._state()["runtimes"][module["runtime"]]):
            folder = self._hold(one["generation"])
            for file, digest in one["files"].items():
                path = os.path.join(folder, file)
                if fresh["file:" + path] != digest:
                    return f"{path} {'was changed or damaged' if os.path.exists(path) else 'is gone'}"
        return ""

    def _hold(self, generation: str) -> str:
        """Keep a generation from being removed as long as this process lives; return its folder."""
        folder = os.path.join(self._folder, generation)
        if generation not in self._held:
            # Without locks, or where it is just being removed, opening its files tells.
            with contextlib.suppress(OSError):
                self._held[generation] = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
                fcntl.flock(self._held[generation], fcntl.LOCK_SH | fcntl.LOCK_NB)
        return folder

    # --- compiling again ---------------------------------------------------------------------------------------------------

    def _renewed(self, name: str) -> dict[str, Any] | None:
        """Return what there is of a module, after compiling it if something that it depends on changed; None if it is not declared."""
        change = self._change(name)
        if change:
            try:
                self._compile(name)
            except _CannotError as error:
                self._tell_stale(name, change, str(error), "; ".join((error.fix, *self._ways_to_the_source())))
        found: dict[str, Any] | None = self._state()["modules"].get(name)
        return found

    def _tell_stale(self, name: str, change: str, why: str, fix: str) -> None:
        module = self._state()["modules"].get(name)
        if module is None or self._damage(module):
            msg = f"{name}: {change}, and it cannot be compiled: {why}\n    -> {fix}"
            raise ImportError(msg, name=name)
        import warnings

        text = f"{name}: the kernels are stale: {change}, and they cannot be compiled: {why}\n    -> {fix}"
        warnings.warn(text, RuntimeWarning, stacklevel=level_of_importer())

    def _compile(self, name: str) -> None:
        """Compile a module in a process of its own, unless another process has just done that."""
        command = _command(self._facts["needs"])
        with self._lock() as lock:
            self._state_read = None
            change = self._change(name)
            if not change:
                return
            _say(f"{name}: {change}; compiling it")
            answer = self._ask(command, lock, {"schema": SCHEMA, "facts": self._facts, "module": name})
            self._state_read = None
            module = self._state()["modules"].get(name)
            if module is not None:
                self._hold(module["generation"])
        if answer.get("cannot"):
            # A process of another version says less.
            raise _CannotError(answer["cannot"], answer.get("fix") or _REINSTALL)
        if "fault" in answer:
            old = [f"{_SWITCH}=0 imports the kernels as they were"] if module is not None and not self._damage(module) else []
            fix = "; ".join(("correct it", *old, *self._ways_to_the_source()))
            msg = f"{name}: {change}, and compiling it failed: {answer['fault']}\n    -> {fix}"
            raise ImportError(msg, name=name)
        if module is None:
            _say(f"{name} is not declared any more: what the project itself has of this name is imported")

    def _ask(self, command: list[str], lock: int, request: dict[str, Any]) -> dict[str, Any]:
        import subprocess

        # The other process inherits the lock: it holds as long as one of the two lives.
        done = subprocess.run(
            command, input=json.dumps(request), capture_output=True, text=True, check=False, cwd=self._project, pass_fds=[lock]
        )
        try:
            answer = json.loads(done.stdout.rpartition("\n")[2])
        except ValueError:
            answer = None
        if isinstance(answer, dict):
            return answer
        return {"fault": f"the build process ended with status {done.returncode}\n{done.stderr[-4000:]}"}

    @contextlib.contextmanager
    def _lock(self) -> Iterator[int]:
        try:
            os.makedirs(self._folder, exist_ok=True)
            descriptor = os.open(os.path.join(self._folder, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            msg = f"{self._folder} cannot be written ({error.strerror})"
            raise _CannotError(msg, "make the folder writable") from None
        try:
            # Without locks, two processes may do the same work.
            with contextlib.suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield descriptor
        finally:
            os.close(descriptor)


def level_of_importer() -> int:
    """Return the `stacklevel` with which the caller's warning is about whoever imports. warnings passes over the import system."""
    folder = os.path.dirname(__file__)
    level, frame = 1, sys._getframe(1)  # noqa: SLF001 - inspect is slow to import
    while frame.f_back is not None:
        name = frame.f_code.co_filename
        if os.path.dirname(name) == folder:
            level += 1
        elif "importlib" not in name or "_bootstrap" not in name:
            break
        frame = frame.f_back
    return level


def _say(text: str) -> None:
    # There is none in programs without a terminal.
    if sys.stderr is not None:
        sys.stderr.write(f"flydsl-build: {text}\n")
        sys.stderr.flush()


_REINSTALL = "pip install -e . --no-build-isolation makes them anew"


def _places(names: Sequence[str]) -> dict[str, str]:
    """Return the files of the modules that can be imported here."""
    from importlib.util import find_spec

    found = {}
    for name in names:
        # A module that is in `sys.modules` without a spec cannot be imported by another process.
        with contextlib.suppress(ValueError):
            spec = find_spec(name)
            if spec is not None and spec.origin is not None:
                found[name] = spec.origin
    return found


def _are_missing(names: Sequence[str]) -> str:
    """Say which of the modules are not installed here; nothing if all are."""
    found = _places(names)
    missing = [name.replace("_", "-") for name in names if name not in found]
    return f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed here" if missing else ""


def _command(needed: list[str]) -> list[str]:
    """Return the command of the process that compiles.

    Parameters
    ----------
    needed
        What that process imports.

    Raises
    ------
    _CannotError
        There can be none here.
    """
    obstacles = []
    if os.environ.get(_SWITCH, "").lower() in _OFF:
        obstacles.append((f"{_SWITCH} is {os.environ[_SWITCH]}", f"unset {_SWITCH}"))
    if not sys.executable:
        obstacles.append(("the interpreter of this process is not known", "import the module once with the python program"))
    missing = _are_missing(needed)
    if missing:
        obstacles.append((missing, "install flydsl-build[build] in this environment"))
    if obstacles:
        whys, fixes = zip(*obstacles, strict=True)
        raise _CannotError(", and ".join(whys), f"{' and '.join(fixes)}: the next import compiles them then")
    places = _places(needed)
    # It may come from a folder that only this process has on its path.
    root = os.path.dirname(os.path.dirname(places["flydsl_build"]))
    # Its own folders keep their order: `freshness` asks what names resolve to on them.
    code = (
        f"import sys; sys.path.insert(0, {root!r}); from flydsl_build.backend.editable import main; sys.path.remove({root!r}); "
        f"sys.path += [{root!r}] * ({root!r} not in sys.path); sys.exit(main())"
    )
    return [sys.executable, "-P", "-c", code]
