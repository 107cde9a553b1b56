# SPDX-License-Identifier: Apache-2.0
"""The files beside Python modules that a source distribution needs to build the same wheel."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from flydsl_build.config.settings import Settings

__all__ = ["extern_files"]


def extern_files(settings: Settings, project: Path) -> list[str]:
    """Return the bitcode files that the externs of the table name, for every target and axis value, relative to the project."""
    del settings, project
    return []
