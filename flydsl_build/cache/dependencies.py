# SPDX-License-Identifier: Apache-2.0
"""What the result of a job depends on besides the job itself, by name, and what it is now.

A name has one of four forms. Files and folders below the project are named relative to it, so that copies of a project in
several places share their results.

`file:PATH`  the content of a file
`list:PATH`  the names in a folder
`env:NAME`   an environment variable of the compile processes
`dist:NAME`  an installed distribution, by its RECORD (https://packaging.python.org/en/latest/specifications/recording-installed-packages/)

A fingerprint is a SHA-256 digest, or None for what does not exist: that a file is absent is a dependency too, where it
would be imported or read if it were there.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["Fingerprints", "digest_of_distribution", "digest_of_file", "digest_of_record"]


def digest_of_file(path: str | Path) -> str | None:
    """Return the SHA-256 of a file; None if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def digest_of_distribution(name: str) -> str | None:
    """Return a digest over the files of an installed distribution, as its RECORD lists them; None if there is none."""
    import importlib.metadata

    try:
        found = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return None
    return (
        digest_of_record(found.read_text("RECORD")) or hashlib.sha256((found.read_text("METADATA") or found.version).encode()).hexdigest()
    )


def digest_of_record(text: str | None) -> str | None:
    """Return a digest over what a RECORD says of the files of a distribution; None if it says nothing.

    What differs between two installations of one wheel is left out: scripts have the path of the interpreter in them, installers
    note how they were called, and compiled bytecode has no digest.
    """
    lines = [line.rpartition(",")[0].rpartition(",") for line in (text or "").splitlines()]
    kept = sorted(f"{path},{digest}" for path, _, digest in lines if digest and not path.startswith("..") and ".dist-info/" not in path)
    return hashlib.sha256("\n".join(kept).encode()).hexdigest() if kept else None


def _digest_of_folder(path: str) -> str | None:
    try:
        # What Python leaves behind is no content of a project.
        names = sorted(name for name in os.listdir(path) if name != "__pycache__")
    except OSError:
        return None
    return hashlib.sha256("\0".join(names).encode(errors="surrogateescape")).hexdigest()


class Fingerprints:
    """The fingerprints of dependencies, each worked out once.

    Parameters
    ----------
    project
        The folder that relative names start from.
    environ
        The environment of the compile processes.
    """

    def __init__(self, project: str, environ: Mapping[str, str]) -> None:
        self._project = project
        self._environ = environ
        self._known: dict[str, str | None] = {}

    def __getitem__(self, name: str) -> str | None:
        """Return the fingerprint of one dependency."""
        if name not in self._known:
            self._known[name] = self._read(name)
        return self._known[name]

    def agree(self, dependencies: Mapping[str, str | None]) -> bool:
        """Tell whether all of these are what they were."""
        return all(self[name] == digest for name, digest in dependencies.items())

    def disagreeing(self, dependencies: Mapping[str, str | None]) -> list[str]:
        """Return the names of those that are not what they were."""
        return [name for name, digest in dependencies.items() if self[name] != digest]

    def _read(self, name: str) -> str | None:
        kind, _, rest = name.partition(":")
        if kind == "file":
            return digest_of_file(os.path.join(self._project, rest))
        if kind == "list":
            return _digest_of_folder(os.path.join(self._project, rest))
        if kind == "env":
            value = self._environ.get(rest)
            return None if value is None else hashlib.sha256(value.encode(errors="surrogateescape")).hexdigest()
        return digest_of_distribution(rest)
