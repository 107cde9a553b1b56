# SPDX-License-Identifier: Apache-2.0
"""Say what imported names of installed modules resolve to now, without importing anything.

Builds and the import hook of editable installs ask the same here, and so does the compile process when it notes what it used. What
is asked has no absolute path in it: an unchanged distribution in another environment resolves to the same.

`import:TOP@DISTRIBUTION,… .SUBMODULE …`  what the names TOP, TOP.SUBMODULE, … resolve to, and which distributions these are
`*/PATH`                                  in the place of a path: the first of its name in the folders of `sys.path`
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Sequence
from errno import EINVAL
from importlib.machinery import ModuleSpec
from io import BufferedReader
from typing import Any

__all__ = [
    "Resolver",
    "digest_of_distribution",
    "digest_of_file",
    "digest_of_folder",
    "digest_of_record",
    "import_name",
    "normalized",
    "open_regular",
    "presence",
    "start_path",
]

_ON_PATH = "*/"


def start_path() -> list[str]:
    """Return `sys.path` as a process has it that is started now with -P: without the folder of a script."""
    path = list(sys.path)
    if path and not sys.flags.safe_path:
        script = sys.argv[0] if sys.argv else ""
        # `-c` and an interactive session have "", `-m` the folder that it was started in.
        if path[0] in {"", os.getcwd(), os.path.dirname(os.path.realpath(script))}:
            del path[0]
    return path


def import_name(top: str, distributions: Iterable[str], submodules: Iterable[str]) -> str:
    """Return the name of the dependency on a module at the top and some below it."""
    owners = ",".join(sorted(distributions))
    return " ".join([f"import:{top}@{owners}", *(f".{one}" for one in sorted(submodules))])


def normalized(name: str) -> str:
    """Return the name of a distribution in its one form."""
    return re.sub(r"[-_.]+", "-", name).lower()


def digest_of_record(text: str | None) -> str | None:
    """Return a digest over what a RECORD says of the files of a distribution; None if it says nothing.

    What differs between two installations of one wheel is left out: scripts have the path of the interpreter in them, installers
    note how they were called, and compiled bytecode has no digest.
    """
    lines = [line.rpartition(",")[0].rpartition(",") for line in (text or "").splitlines()]
    kept = sorted(f"{path},{digest}" for path, _, digest in lines if digest and not path.startswith("..") and ".dist-info/" not in path)
    return _digest("\n".join(kept)) if kept else None


def digest_of_distribution(record: str) -> str | None:
    """Return a digest over version and files of an installed distribution; None if it is not installed.

    Parameters
    ----------
    record
        What `Resolver.record` returned.
    """
    if not record:
        return None
    folder = record if os.path.isdir(record) else os.path.dirname(record)
    try:
        with open(record, encoding="utf-8") as file:
            text = file.read()
    except (OSError, ValueError):
        text = ""
    files = digest_of_record(text) if os.path.basename(record) == "RECORD" else _digest(text)
    return _digest(f"{os.path.basename(folder)} {files}")


def open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    """Open a file for reading; what is no regular file, such as a pipe that nobody writes to, is an OSError."""
    # A pipe is opened without waiting for its writer.
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))  # noqa: SIM115 - it is returned
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(EINVAL, "it is no regular file", str(path))
    return file


def digest_of_file(path: str | os.PathLike[str]) -> str | None:
    """Return the SHA-256 of a regular file; None if it cannot be read, or is something else."""
    from hashlib import file_digest

    try:
        with open_regular(path) as file:
            return file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def digest_of_folder(path: str) -> str | None:
    """Return a digest of the names in a folder; None if they cannot be read."""
    try:
        # What Python leaves behind is no content of a project.
        names = sorted(name for name in os.listdir(path) if name != "__pycache__")
    except OSError:
        return None
    return _digest("\0".join(names))


def presence(path: str) -> str | None:
    """Return what is at a path, in a word; None if nothing is, or nobody may know."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return "link" if os.path.islink(path) else None
    return "folder" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"


def _digest(text: str) -> str:
    from hashlib import sha256

    return sha256(text.encode(errors="surrogateescape")).hexdigest()


class Resolver:
    """What names resolve to. Specs and places of distributions are looked for once.

    Parameters
    ----------
    path
        The folders to import from.
    finders
        Finders that may stand before those of Python, such as those of editable installs. Ours are passed over: compile processes
        see the sources.
    """

    def __init__(self, path: Sequence[str], finders: Sequence[Any]) -> None:
        self.path = list(path)
        self._real = [os.path.realpath(one) for one in path if one]
        self._finders = [one for one in finders if not hasattr(one, "serves_stubs") and getattr(one, "__module__", "") != _BUILT_IN]
        self._specs: dict[str, ModuleSpec | None] = {}
        self._distributions: dict[str, str] | None = None

    def spec(self, name: str) -> ModuleSpec | None:
        """Return the spec of a module; None if there is none. No parent of it is run."""
        if name not in self._specs:
            self._specs[name] = self._find(name)
        return self._specs[name]

    def _find(self, name: str) -> ModuleSpec | None:
        from importlib.machinery import PathFinder

        parent = name.rpartition(".")[0]
        path: Sequence[str] | None = None
        if parent:
            found = self.spec(parent)
            path = None if found is None else _places(found)
            if path is None:
                return None
        for finder in self._finders:
            places = self.path if path is None and finder is PathFinder else path
            try:
                spec: ModuleSpec | None = finder.find_spec(name, places, None)
            except Exception:  # noqa: BLE001, S112 - a finder may do anything; an import tells of it
                continue
            # Whoever changes what is run asks the finder of Python, with the path of this process.
            if spec is not None and (parent or finder is PathFinder or not _is_below(spec, sys.path)):
                return spec
        return None

    def place(self, rest: str) -> str:
        """Return the path that `*/PATH` means; any other as it is."""
        if not rest.startswith(_ON_PATH):
            return rest
        places = [os.path.join(one, rest[len(_ON_PATH) :]) for one in self._real]
        return next((one for one in places if os.path.lexists(one)), places[0] if places else rest)

    def name_of(self, path: str) -> str | None:
        """Return `*/PATH` for a real path in a folder to import from, whether it exists or not; None for others."""
        for one in self._real:
            if path.startswith(one + os.sep):
                name = _ON_PATH + os.path.relpath(path, one)
                found = self.place(name)
                return name if os.path.realpath(found) == path or not os.path.lexists(found) else None
        return None

    def is_there(self, name: str) -> bool:
        """Tell whether the module at the top that a dependency `import:` or `*/` is about can be imported here."""
        top = name.partition("@")[0].partition(":")[2] if name.startswith("import:") else name.partition(_ON_PATH)[2].partition("/")[0]
        return self.spec(top) is not None

    def distribution(self, name: str) -> str:
        """Return the folder with the metadata of an installed distribution, by its normalized name; empty if there is none."""
        if self._distributions is None:
            self._distributions = {}
            for folder in self.path:
                try:
                    entries = sorted(os.listdir(folder or "."))
                except OSError:
                    continue
                for entry in entries:
                    stem, kind = os.path.splitext(entry)
                    if kind in {".dist-info", ".egg-info"}:
                        self._distributions.setdefault(normalized(stem.partition("-")[0]), os.path.join(folder, entry))
        return self._distributions.get(name, "")

    def record(self, name: str) -> str:
        """Return the file that tells what is in an installed distribution: its RECORD, or its metadata; empty if there is none."""
        folder = self.distribution(name)
        files = [os.path.join(folder, one) for one in ("RECORD", "METADATA", "PKG-INFO")]
        return next((one for one in files if os.path.isfile(one)), folder) if folder else ""

    def imported(self, name: str, fingerprint: Callable[[str], str | None]) -> str | None:
        """Return the fingerprint of a dependency `import:…`; None if its top cannot be imported.

        Parameters
        ----------
        fingerprint
            Returns that of a dependency on a file or a distribution.
        """
        top, *submodules = name.partition(":")[2].split(" ")
        top, _, owners = top.partition("@")
        if self.spec(top) is None:
            return None
        versions = [f"{one} {fingerprint(f'dist:{one}')}" for one in owners.split(",") if one]
        modules = [f"{one} {self._form(top + one, fingerprint)}" for one in ("", *submodules)]
        return _digest("\n".join([*versions, *modules]))

    def _form(self, name: str, fingerprint: Callable[[str], str | None]) -> str:
        spec = self.spec(name)
        if spec is None:
            return "none"
        places = _places(spec)
        if spec.origin is not None and spec.has_location:
            origin = spec.origin
            # Of a module in an archive, the archive is the file.
            while not os.path.exists(origin) and origin != os.path.dirname(origin):
                origin = os.path.dirname(origin)
            return f"{'module' if places is None else 'package'} {os.path.basename(spec.origin)} {fingerprint(f'file:{origin}')}"
        if places is None:
            return str(spec.origin)
        return "namespace " + " ".join(str(fingerprint(f"list:{one}")) for one in places)


_BUILT_IN = "_frozen_importlib"


def _places(spec: ModuleSpec) -> Sequence[str] | None:
    """Return where the modules of a package are."""
    places = spec.submodule_search_locations
    # That of a namespace asks its parent, which need not be imported, and `sys.path`.
    return list(getattr(places, "_path", places)) if places is not None else None


def _is_below(spec: ModuleSpec, path: Sequence[str]) -> bool:
    """Tell whether a module at the top is in one of the folders."""
    origin = spec.origin or ""
    return os.path.dirname(origin if spec.submodule_search_locations is None else os.path.dirname(origin)) in path
