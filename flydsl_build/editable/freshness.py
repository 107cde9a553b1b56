# SPDX-License-Identifier: Apache-2.0
"""Whether what compiled kernels depend on is still what it was, asked whenever they are imported.

The names of dependencies and their fingerprints are those of `cache.dependencies`, and three more:

`table:MODULE`  the part of `[tool.flydsl-build]` that the kernels of a module follow from
`declared:`     the names of the modules that are made of it
`dist:NAME`     counts only where the distribution is installed: kernels may be built in one environment and used in another;
                likewise modules of other packages, and files beside them

A file is read only if its stamp is not the one that it had when its fingerprint was taken.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Any

from .resolution import Resolver, digest_of_distribution, digest_of_file, digest_of_folder, open_regular, presence, start_path

__all__ = ["Freshness", "declared_modules"]

# A file that was written this short a time ago may be written again without a change of its times (in nanoseconds).
_RACY = 2 * 10**9


def declared_modules(project: str) -> list[str]:
    """Return the modules that pyproject.toml declares kernels of, and their modules of ops; none if it cannot be read."""
    table = _table(project) or {}
    modules = sorted({key.partition(":")[0] for key in _kernels(table)})
    return [*modules, *(f"{module}_torch" for module in modules if table.get("torch-ops") is True)]


def _table(project: str) -> dict[str, Any] | None:
    import tomllib

    try:
        with open_regular(os.path.join(project, "pyproject.toml")) as file:
            tool = tomllib.load(file).get("tool")
    except (OSError, ValueError, RecursionError):
        return None
    table = tool.get("flydsl-build") if isinstance(tool, dict) else None
    return dict(table) if isinstance(table, dict) else None


def _kernels(table: dict[str, Any]) -> dict[str, Any]:
    kernels = table.get("kernels")
    return kernels if isinstance(kernels, dict) else {}


def _archs(kernels: dict[str, Any]) -> list[str]:
    """Return the targets that kernels have in lists of their own, and "" if some have that of the project."""
    found: set[str] = set()
    for kernel in kernels.values():
        own = kernel.get("archs") if isinstance(kernel, dict) else None
        sets = kernel.get("sets") if isinstance(kernel, dict) else None
        for one in sets if isinstance(sets, list) else ({},):
            archs = one.get("archs", own) if isinstance(one, dict) else own
            found.update(map(str, archs) if isinstance(archs, list) else [""])
    return sorted(found)


def _digest(data: bytes) -> str:
    from hashlib import sha256

    return sha256(data).hexdigest()


def _json_digest(value: Any) -> str:
    from json import dumps

    return _digest(dumps(value, default=str).encode())


class Freshness:
    """What dependencies are now.

    Parameters
    ----------
    project
        The folder that relative names start from.
    stamps
        Stamps and fingerprints that were noted earlier, by name; more are added.
    environ
        The environment, of which the compile processes see most.
    """

    def __init__(self, project: str, stamps: dict[str, list[Any]], environ: Mapping[str, str]) -> None:
        self.stamps = stamps
        self.has_news = False
        self._project = project
        self._environ = environ
        self._resolver = Resolver(start_path(), sys.meta_path)

    def __getitem__(self, name: str) -> str | None:
        """Return the fingerprint of one dependency."""
        kind, _, rest = name.partition(":")
        if kind == "env":
            value = self._environ.get(rest)
            return None if value is None else _digest(value.encode(errors="surrogateescape"))
        if kind == "import":
            return self._resolver.imported(name, self.__getitem__)
        path = self._path(kind, rest)
        if kind == "exists":
            return presence(path)
        stamp = _stamp(path)
        known = self.stamps.get(name)
        if known is not None and known[0] == stamp:
            found: str | None = known[1]
            return found
        digest = self._read(kind, rest, path)
        if stamp is None or max(stamp[2:]) < time.time_ns() - _RACY:
            self.stamps[name] = [stamp, digest]
            self.has_news = True
        return digest

    def agrees(self, name: str, digest: str | None) -> bool:
        """Tell whether one dependency is what it was."""
        now = self[name]
        if now == digest:
            return True
        elsewhere = name.startswith(("dist:", "import:")) or (":*/" in name and not self._resolver.is_there(name))
        return now is None and elsewhere

    def change(self, dependencies: Mapping[str, str | None]) -> str:
        """Return what has changed, in words; empty if nothing has."""
        for name, digest in dependencies.items():
            if not self.agrees(name, digest):
                return _words(name, digest, self[name])
        return ""

    def _path(self, kind: str, rest: str) -> str:
        if kind in {"table", "declared"}:
            return os.path.join(self._project, "pyproject.toml")
        if kind == "dist":
            return self._resolver.record(rest)
        return os.path.join(self._project, self._resolver.place(rest))

    def _read(self, kind: str, rest: str, path: str) -> str | None:
        if kind == "list":
            return digest_of_folder(path)
        if kind == "table":
            table = _table(self._project)
            if table is None:
                return None
            kernels = _kernels(table)
            table["kernels"] = {key: value for key, value in kernels.items() if key.partition(":")[0] == rest}
            # A stub says which targets the other modules have code for.
            return _json_digest([table, _archs(kernels)])
        if kind == "declared":
            return _json_digest(declared_modules(self._project))
        return digest_of_distribution(path) if kind == "dist" else digest_of_file(path)


def _stamp(path: str) -> list[int] | None:
    """Return what changes when a file is written; None if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _words(name: str, before: str | None, now: str | None) -> str:
    kind, _, rest = name.partition(":")
    if kind == "dist":
        return f"{rest} is another version"
    rest = rest.removeprefix("*/")
    what = {
        "file": rest,
        "list": f"the content of the folder {rest}",
        "exists": rest,
        "import": f"the installed module {rest.partition('@')[0]}",
        "env": f"the environment variable {rest}",
        "table": "[tool.flydsl-build]",
    }[kind]
    if kind in _THINGS and before is None:
        return f"{what} is new"
    return f"{what} is gone" if kind in _THINGS and now is None else f"{what} is another" if kind == "import" else f"{what} changed"


_THINGS = ("file", "exists", "import")
