# SPDX-License-Identifier: Apache-2.0
"""The files beside Python modules that a source distribution needs to build the same wheel."""

from __future__ import annotations

import glob
import re
from typing import TYPE_CHECKING

from flydsl_build.errors import ConfigError, FaultCollector

if TYPE_CHECKING:
    from pathlib import Path

    from flydsl_build.config.settings import Settings

__all__ = ["every_license_file", "extern_files", "license_files"]

# A literal brace, or placeholders; several in a row are one, because `**` means folders to glob.
_BRACES = re.compile(r"(\{\{|\}\})|(?:\{[^{}]*\})+")


def license_files(settings: Settings, project: Path) -> dict[str, tuple[str, ...]]:
    """Return the licence files of each extern table that has some, by its key; the files are relative to the project.

    Raises
    ------
    ConfigError
        A glob fits no file.
    """
    faults = FaultCollector()
    found: dict[str, tuple[str, ...]] = {}
    for extern in settings.externs:
        files: dict[str, None] = {}
        for index, text in enumerate(extern.license_files):
            try:
                fitting = [path.relative_to(project).as_posix() for path in sorted(project.glob(text)) if path.is_file()]
            except ValueError:  # such as `**` inside a name, before Python 3.13
                fitting = []
            files |= dict.fromkeys(fitting)
            if not fitting:
                faults.add(
                    f"{extern.where}.license-files[{index}]",
                    f'"{text}" fits no file of the project',
                    "correct it; a licence from elsewhere has to be copied into the project",
                )
        if files:
            found[extern.symbol] = tuple(files)
    faults.raise_if_any(ConfigError)
    return found


def every_license_file(settings: Settings, project: Path) -> tuple[str, ...]:
    """Return the licence files of all extern tables, each once; see `license_files`."""
    return tuple(dict.fromkeys(file for some in license_files(settings, project).values() for file in some))


def extern_files(settings: Settings, project: Path) -> list[str]:
    """Return the bitcode files that extern and environment tables name, relative to the project.

    A placeholder stands for any text: a source distribution serves builds for targets that this one does not ask for.
    Files that only a function of the author's can name are for MANIFEST.in.
    """
    texts = [text for extern in settings.externs for text in extern.bitcode if not extern.is_function(text)]
    texts += list(settings.env.values())
    found: dict[str, None] = {}
    for text in texts:
        if text.startswith("/") or "\0" in text or not set(text.split("/")).isdisjoint({"..", "."}) or not text.strip("/"):
            continue
        pattern = _BRACES.sub(lambda match: match[1][0] if match[1] else "*", glob.escape(text))
        for path in sorted(project.glob(pattern)):
            if path.is_file():
                found[path.relative_to(project).as_posix()] = None
    return list(found)
