# SPDX-License-Identifier: Apache-2.0
"""What travels to another machine so that it can compile a job: the project's files and the device bitcode, as one archive."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING

from flydsl_build.errors import ConfigError, Fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["BITCODE", "PROJECT", "pack_inputs", "unpack_inputs"]

PROJECT = "project"
"""Folder of the archive for the files of the project."""
BITCODE = "bitcode"
"""Folder of the archive for the device bitcode."""

# What builds and tools leave, and what no module reads while it is imported.
_LEFT_OUT = {"__pycache__", ".git", ".hg", ".svn", ".mypy_cache", ".nox", ".pytest_cache", ".ruff_cache", ".tox", "node_modules"}
_LEFT_OUT_AT_THE_TOP = {"build", "dist"}
_LIMIT = 1 << 30


def pack_inputs(project: Path, package_roots: Sequence[str], bitcode: Path) -> bytes:
    """Return the archive.

    Raises
    ------
    ConfigError
        A package root is not in the project, or the project is too large to be sent around.
    """
    for root in package_roots:
        if not Path(root).resolve().is_relative_to(project.resolve()):
            raise ConfigError(
                Fault(
                    where="tool.flydsl-build.executor",
                    what=f"the package folder {root} is not in the project, and only the project's files travel to a cluster",
                    fix='move it, or build with executor = "local"',
                )
            )
    stream = io.BytesIO()
    size = 0
    with tarfile.open(fileobj=stream, mode="w:gz", compresslevel=1, dereference=True) as archive:
        for path in _project_files(project):
            size += path.stat().st_size
            if size > _LIMIT:
                raise ConfigError(
                    Fault(
                        where="tool.flydsl-build.executor",
                        what=f"the project's files are larger than {_LIMIT >> 30} GB together, and travel to every worker of a cluster",
                        fix='move what the kernels do not need out of the project\'s folder, or build with executor = "local"',
                    )
                )
            archive.add(path, f"{PROJECT}/{path.relative_to(project)}", recursive=False)
        for path in sorted(bitcode.iterdir()):
            archive.add(path, f"{BITCODE}/{path.name}", recursive=False)
    return stream.getvalue()


def unpack_inputs(data: bytes, folder: Path) -> None:
    """Write the content of an archive into a folder."""
    for name in (PROJECT, BITCODE):
        (folder / name).mkdir()
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as archive:
        archive.extractall(folder, filter="data")


def _project_files(project: Path) -> Iterator[Path]:
    seen: set[str] = set()
    for folder, folders, names in os.walk(project, followlinks=True):
        here = Path(folder)
        # Links may go in circles.
        if (real := os.path.realpath(folder)) in seen or "pyvenv.cfg" in names:
            folders.clear()
            continue
        seen.add(real)
        left_out = _LEFT_OUT | _LEFT_OUT_AT_THE_TOP if here == project else _LEFT_OUT
        folders[:] = sorted(name for name in folders if name not in left_out and not name.endswith(".egg-info"))
        yield from (here / name for name in sorted(names) if (here / name).is_file())
