# SPDX-License-Identifier: Apache-2.0
"""The project being built: where its sources are, and where what is made of them goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flydsl_build.bundle.placement import Placement, place_module

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Project"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Project:
    """The project being built.

    Parameters
    ----------
    root
        The folder with pyproject.toml.
    package_roots
        Folders to import the author's packages from.
    build_lib
        Folder for what is made, laid out like the wheel.
    sources
        Folders that have the modules as they are installed; the build folder, but for an editable install.
    top_levels
        Names of the packages and modules at the top that are installed; None for whatever is in `sources`.
    installer
        Who decides what is installed, and by which setting, for messages.
    """

    root: Path
    name: str
    version: str
    package_roots: tuple[str, ...]
    build_lib: Path
    sources: tuple[Path, ...]
    top_levels: frozenset[str] | None = None
    installer: tuple[str, str] = ("setuptools", "[tool.setuptools] packages or py-modules")

    def place(self, module: str) -> Placement | None:
        """Return where the artefacts of a module go, or None if it is not installed."""
        if self.top_levels is not None and module.partition(".")[0] not in self.top_levels:
            return None
        return place_module(module, self.sources)
