# SPDX-License-Identifier: Apache-2.0
"""Whether what compiled kernels depend on is still what it was, asked whenever they are imported.

The names of dependencies and their fingerprints are those of `compile.dependencies`, and three more:

`table:MODULE`  the part of `[tool.flydsl-build]` that the kernels of a module follow from
`declared:`     the names of the modules that are made of it
`dist:NAME`     counts only where the distribution is installed: kernels may be built in one environment and used in another

A file is read only if its stamp is not the one that it had when its fingerprint was taken.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["Freshness", "declared_modules", "with_ops"]

# A file that was written this short a time ago may be written again without a change of its times (in nanoseconds).
_RACY = 2 * 10**9


def declared_modules(project: str) -> list[str]:
    """Return the modules that pyproject.toml declares kernels of, and their modules of ops; none if it cannot be read."""
    table = _table(project) or {}
    names = {key.partition(":")[0] for key in _kernels(table)}
    return with_ops(sorted(names), torch_ops=table.get("torch-ops") is True)


def with_ops(modules: Sequence[str], *, torch_ops: bool) -> list[str]:
    """Return modules and, where they are made, the modules with their launchers as ops of torch."""
    return [*modules, *(f"{module}_torch" for module in modules if torch_ops)]


def _table(project: str) -> dict[str, Any] | None:
    import tomllib

    try:
        with open(os.path.join(project, "pyproject.toml"), "rb") as file:
            tool = tomllib.load(file).get("tool")
    except (OSError, ValueError, RecursionError):
        return None
    table = tool.get("flydsl-build") if isinstance(tool, dict) else None
    return dict(table) if isinstance(table, dict) else None


def _kernels(table: dict[str, Any]) -> dict[str, Any]:
    kernels = table.get("kernels")
    return kernels if isinstance(kernels, dict) else {}


def _digest(data: bytes) -> str:
    from hashlib import sha256

    return sha256(data).hexdigest()


def _json_digest(value: Any) -> str:
    from json import dumps

    return _digest(dumps(value, default=str).encode())


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


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
        self._distributions: dict[str, str] | None = None

    def __getitem__(self, name: str) -> str | None:
        """Return the fingerprint of one dependency."""
        kind, _, rest = name.partition(":")
        if kind == "env":
            value = self._environ.get(rest)
            return None if value is None else _digest(value.encode(errors="surrogateescape"))
        path = self._path(kind, rest, self.stamps.get(name))
        stamp = _stamp(path)
        known = self.stamps.get(name)
        if known is not None and known[0] == stamp:
            found: str | None = known[1]
            return found
        if kind == "dist":
            path = self._record_of(rest)
            stamp = _stamp(path)
        digest = self._read(kind, rest, path)
        if stamp is None or max(stamp[2:]) < time.time_ns() - _RACY:
            self.stamps[name] = [stamp, digest, path]
            self.has_news = True
        return digest

    def agrees(self, name: str, digest: str | None) -> bool:
        """Tell whether one dependency is what it was."""
        now = self[name]
        return now == digest or (now is None and name.startswith("dist:"))

    def change(self, dependencies: Mapping[str, str | None]) -> str:
        """Return what has changed, in words; empty if nothing has."""
        for name, digest in dependencies.items():
            if not self.agrees(name, digest):
                return _words(name, digest, self[name])
        return ""

    def _path(self, kind: str, rest: str, known: list[Any] | None) -> str:
        if kind in {"table", "declared"}:
            return os.path.join(self._project, "pyproject.toml")
        if kind == "dist":
            return str(known[2]) if known else ""
        return os.path.join(self._project, rest)

    def _read(self, kind: str, rest: str, path: str) -> str | None:
        if kind == "list":
            return _digest_of_folder(path)
        if kind == "table":
            table = _table(self._project)
            if table is None:
                return None
            kernels = _kernels(table)
            table["kernels"] = {key: value for key, value in kernels.items() if key.partition(":")[0] == rest}
            return _json_digest(table)
        if kind == "declared":
            return _json_digest(declared_modules(self._project))
        return _digest_of_distribution(path) if kind == "dist" else _digest_of_file(path)

    def _record_of(self, distribution: str) -> str:
        """Return the RECORD of an installed distribution, or the METADATA of one without; empty if it is not installed."""
        if self._distributions is None:
            self._distributions = {}
            for entry in sys.path:
                try:
                    names = os.listdir(entry or ".")
                except OSError:
                    continue
                for name in names:
                    if name.endswith(".dist-info"):
                        self._distributions.setdefault(_normalized(name.partition("-")[0]), os.path.join(entry, name))
        folder = self._distributions.get(distribution)
        if folder is None:
            return ""
        record = os.path.join(folder, "RECORD")
        return record if os.path.exists(record) else os.path.join(folder, "METADATA")


def _digest_of_file(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            return _digest(file.read())
    except OSError:
        return None


def _digest_of_distribution(path: str) -> str | None:
    """Return the digest over what a RECORD says of files, or over METADATA; `compile.dependencies` says what is left out and why."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        if os.path.basename(path) != "RECORD":
            return _digest(text.encode())
    except (OSError, ValueError):
        return None
    lines = [line.rpartition(",")[0].rpartition(",") for line in text.splitlines()]
    kept = sorted(f"{path},{digest}" for path, _, digest in lines if digest and not path.startswith("..") and ".dist-info/" not in path)
    return _digest("\n".join(kept).encode()) if kept else _digest_of_distribution(os.path.join(os.path.dirname(path), "METADATA"))


def _digest_of_folder(path: str) -> str | None:
    try:
        # What Python leaves behind is no content of a project.
        names = sorted(name for name in os.listdir(path) if name != "__pycache__")
    except OSError:
        return None
    return _digest("\0".join(names).encode(errors="surrogateescape"))


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
    what = {
        "file": rest,
        "list": f"the content of the folder {rest}",
        "env": f"the environment variable {rest}",
        "table": "[tool.flydsl-build]",
    }[kind]
    if kind == "file" and before is None:
        return f"{what} is new"
    return f"{what} is gone" if kind == "file" and now is None else f"{what} changed"
