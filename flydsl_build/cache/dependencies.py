# SPDX-License-Identifier: Apache-2.0
"""What the result of a job depends on besides the job itself, by name, and what it is now.

A name has one of six forms. Files and folders below the project are named relative to it, those in folders to import from as
`*/PATH`, so that copies of a project and environments in several places share their results.

`file:PATH`    the content of a file
`list:PATH`    the names in a folder
`exists:PATH`  whether something is there, and what
`env:NAME`     an environment variable of the compile processes
`dist:NAME`    an installed distribution, by version and RECORD
               (https://packaging.python.org/en/latest/specifications/recording-installed-packages/)
`import:…`     what names of modules resolve to; see `editable.resolution`

A fingerprint is a SHA-256 digest, for `exists:` a word, or None for what does not exist: that a file is absent is a dependency too,
where it would be imported or read if it were there.
"""

from __future__ import annotations

import hashlib
import os
import sys
from typing import TYPE_CHECKING

from flydsl_build.editable.resolution import (
    Resolver,
    digest_of_distribution,
    digest_of_file,
    digest_of_folder,
    presence,
    start_path,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Fingerprints"]


class Fingerprints:
    """The fingerprints of dependencies, each worked out once.

    Parameters
    ----------
    project
        The folder that relative names start from.
    environ
        The environment of the compile processes.
    resolver
        What names of modules resolve to; by default, what they would in a process that is started now.
    """

    def __init__(self, project: str, environ: Mapping[str, str], resolver: Resolver | None = None) -> None:
        self._project = project
        self._environ = environ
        self._resolver = resolver or Resolver(start_path(), sys.meta_path)
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
        if kind == "env":
            value = self._environ.get(rest)
            return None if value is None else hashlib.sha256(value.encode(errors="surrogateescape")).hexdigest()
        if kind == "dist":
            return digest_of_distribution(self._resolver.record(rest))
        if kind == "import":
            return self._resolver.imported(name, self.__getitem__)
        read = {"file": digest_of_file, "list": digest_of_folder, "exists": presence}[kind]
        return read(os.path.join(self._project, self._resolver.place(rest)))
