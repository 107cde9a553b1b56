# SPDX-License-Identifier: Apache-2.0
"""Where the artefacts of a declared module go.

They go into a folder `_flydsl` of the topmost regular package that the module is in. A namespace package is shared between
distributions, so it is passed over; a module in none gets a folder `_flydsl_<name>` of its own beside it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Placement", "anchor_depth", "is_artefact", "is_artefact_folder", "is_manifest", "place_module"]

_RUNTIME = "runtime"


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """Places relative to the root of the wheel.

    Parameters
    ----------
    module
        The declared module's dotted name.
    source
        Its source file, which the stub replaces.
    anchor
        The `_flydsl` folder, which has the private run time too.
    folder
        The folder of this module's artefacts, at or below `anchor`.
    stem
        Name of the artefacts without suffix.
    """

    module: str
    source: PurePosixPath
    anchor: PurePosixPath
    folder: PurePosixPath
    stem: str

    @property
    def manifest_name(self) -> str:
        """File name of the manifest."""
        return f"{self.stem}.json"

    @property
    def runtime_package(self) -> str:
        """Dotted name of the private run time."""
        return ".".join((*self.anchor.parts, "runtime"))

    def beside(self, suffix: str) -> PurePosixPath:
        """Return the source of a generated module beside the declared module or package, which has its name and a suffix."""
        *parents, name = self.module.split(".")
        return PurePosixPath(*parents, f"{name}{suffix}.py")

    @property
    def manifest_from_stub(self) -> str:
        """Path of the manifest relative to the folder of the stub."""
        up = len(self.source.parent.parts) - len(self.anchor.parent.parts)
        below = (self.folder / self.manifest_name).relative_to(self.anchor.parent)
        return str(PurePosixPath(*[".."] * up, below))


def is_artefact_folder(name: str) -> bool:
    """Whether a folder of this name holds what flydsl-build wrote."""
    return name == "_flydsl" or name.startswith("_flydsl_")


def anchor_depth(parts: Sequence[str]) -> int | None:
    """Return how many parts of a path lead to the `_flydsl` folder, itself included; None if there is none."""
    return next((depth for depth, part in enumerate(parts, 1) if is_artefact_folder(part)), None)


def is_artefact(name: str) -> bool:
    """Whether a file of a wheel belongs to a declared module: not to the private run time, and not a package's own file."""
    folders = PurePosixPath(name).parts[:-1]
    depth = anchor_depth(folders)
    return depth is not None and folders[depth : depth + 1] != (_RUNTIME,) and not name.endswith(".py")


def is_manifest(name: str) -> bool:
    """Whether a file of a wheel is a manifest."""
    return name.endswith(".json") and is_artefact(name)


def place_module(module: str, folders: Sequence[Path]) -> Placement | None:
    """Return where the artefacts of `module` go, or None if none of the folders, laid out like the wheel, has the module."""

    def is_there(path: PurePosixPath) -> bool:
        return any((folder / path).is_file() for folder in folders)

    parts = module.split(".")
    source = PurePosixPath(*parts).with_suffix(".py")
    stem = parts[-1]
    packages = parts[:-1]
    if not is_there(source):
        source = PurePosixPath(*parts, "__init__.py")
        stem = "__init__"
        packages = parts
        if not is_there(source):
            return None
    for depth in range(1, len(packages) + 1):
        package = PurePosixPath(*packages[:depth])
        if is_there(package / "__init__.py"):
            anchor = package / "_flydsl"
            return Placement(module=module, source=source, anchor=anchor, folder=anchor.joinpath(*packages[depth:]), stem=stem)
    anchor = PurePosixPath(*packages, f"_flydsl_{stem}")
    return Placement(module=module, source=source, anchor=anchor, folder=anchor, stem=stem)
