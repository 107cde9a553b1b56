# SPDX-License-Identifier: Apache-2.0
"""One editable install: where its stubs are, whether they are fresh, and how they are made again.

The folder of an installation, which is below the project's build folder, has

`state.json`   the modules, each with its generation and its dependencies; replaced as a whole
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
from collections.abc import Iterator, Mapping
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from typing import Any

from .freshness import Freshness, declared_modules
from .resolution import open_regular

__all__ = ["SCHEMA", "Installation", "level_of_importer", "read_json", "write_json"]

SCHEMA = 1
"""Number of the form of these files; raised when they change."""

_SWITCH = "FLYDSL_BUILD_EDITABLE_REBUILD"
_OFF = ("0", "false", "no", "off")
_NO_STATE: dict[str, Any] = {"modules": {}, "runtimes": {}, "declared": [], "declarations": None}


def read_json(path: str) -> Any:
    """Return the value in a file; None if it cannot be read."""
    try:
        with open_regular(path) as file:
            return json.load(file)
    except (OSError, ValueError, RecursionError):
        return None


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


class _CannotError(Exception):
    """Why kernels cannot be compiled here and now; no fault of the author's."""


class Installation:
    """The installation that a copy of this package belongs to.

    Parameters
    ----------
    package
        The folder of the copy.
    """

    def __init__(self, package: str) -> None:
        facts = read_json(os.path.join(package, "facts.json"))
        self._facts: dict[str, Any] = facts
        self._project: str = facts["project"]
        self._folder: str = facts["folder"]
        self._state_read: tuple[Any, dict[str, Any]] | None = None
        self._freshness: Freshness | None = None
        self._held: dict[str, int] = {}

    def find_spec(self, name: str, spelling: str | None = None) -> ModuleSpec | None:
        """Return the spec of a declared module or its ops of torch, compiled anew if need be, or of a private run time.

        Parameters
        ----------
        spelling
            The name in the spec, if it is another.

        Raises
        ------
        ImportError
            A module cannot be compiled, or there is no code of it and it cannot be compiled here.
        """
        # A project that was moved or removed is not there for other finders either.
        if not os.path.isdir(self._project):
            return None
        state = self._state()
        spelling = spelling or name
        if name in state["runtimes"]:
            folder = os.path.join(self._hold(state["runtimes"][name]), *name.split("."))
            return spec_from_file_location(spelling, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
        if name not in self._declared(state):
            return None
        module = self._renewed(name)
        if module is None:
            return None
        path = os.path.join(self._folder, module["generation"], module["file"])
        places = [os.path.dirname(module["source"])] if module["package"] else None
        loader = _StubLoader(spelling, path, module["source"]) if places else None
        return spec_from_file_location(spelling, path, loader=loader, submodule_search_locations=places)

    def find_in(self, folder: str, name: str, found: ModuleSpec | None) -> ModuleSpec | None:
        """Return what `find_spec` does of a module that is looked for in a folder.

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
        return None if module is None else self.find_spec(module, name)

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
            state = read_json(path)
            whole = isinstance(state, dict) and state.get("schema") == SCHEMA
            self._state_read = (stamp, state if whole else _NO_STATE)
            stamps = read_json(os.path.join(self._folder, "stamps.json"))
            self._freshness = Freshness(self._project, stamps if isinstance(stamps, dict) else {}, os.environ)
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
        if module is None or not os.path.exists(os.path.join(self._hold(module["generation"]), module["file"])):
            return "it has not been compiled yet"
        if module["dependencies"] is None:
            return "its sources changed while it was compiled"
        fresh = self._fresh()
        change = fresh.change(module["dependencies"])
        if fresh.has_news and not change:
            fresh.has_news = False
            # Spares the next process from reading the files again.
            with contextlib.suppress(OSError):
                write_json(os.path.join(self._folder, "stamps.json"), fresh.stamps)
        return change

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
                self._tell_stale(name, change, str(error))
        found: dict[str, Any] | None = self._state()["modules"].get(name)
        return found

    def _tell_stale(self, name: str, change: str, why: str) -> None:
        module = self._state()["modules"].get(name)
        if module is None or not os.path.exists(os.path.join(self._folder, module["generation"], module["file"])):
            msg = f"{name}: {change}, and it cannot be compiled: {why}\n    -> {_REMEDY}"
            raise ImportError(msg, name=name)
        import warnings

        text = f"{name}: the kernels are stale: {change}, and they cannot be compiled: {why}\n    -> {_REMEDY}"
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
            raise _CannotError(answer["cannot"])
        if "fault" in answer:
            msg = (
                f"{name}: {change}, and compiling it failed: {answer['fault']}\n"
                f"    -> correct it; {_SWITCH}=0 imports the kernels as they were, FLYDSL_BUILD_EDITABLE=jit the FlyDSL source"
            )
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
            raise _CannotError(msg) from None
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


_REMEDY = "pip install -e . --no-build-isolation makes them anew; FLYDSL_BUILD_EDITABLE=jit imports the FlyDSL source"


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
    from importlib.util import find_spec

    if os.environ.get(_SWITCH, "").lower() in _OFF:
        msg = f"{_SWITCH} is {os.environ[_SWITCH]}"
        raise _CannotError(msg)
    if not sys.executable:
        msg = "the interpreter of this process is not known"
        raise _CannotError(msg)
    places = {}
    for name in needed:
        # A module that is in `sys.modules` without a spec cannot be imported by another process.
        with contextlib.suppress(ValueError):
            spec = find_spec(name)
            places[name] = spec.origin if spec is not None else None
    missing = [name.replace("_", "-") for name in needed if not places.get(name)]
    if missing:
        msg = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed here"
        raise _CannotError(msg)
    # It may come from a folder that only this process has on its path.
    root = os.path.dirname(os.path.dirname(str(places["flydsl_build"])))
    # Its own folders keep their order: `freshness` asks what names resolve to on them.
    code = (
        f"import sys; sys.path.insert(0, {root!r}); from flydsl_build.backend.editable import main; sys.path.remove({root!r}); "
        f"sys.path += [{root!r}] * ({root!r} not in sys.path); sys.exit(main())"
    )
    return [sys.executable, "-P", "-c", code]
