# SPDX-License-Identifier: Apache-2.0
"""The files beside Python modules that a source distribution needs to build the same wheel."""

from __future__ import annotations

import glob
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from flydsl_build.config.settings import Settings

__all__ = ["extern_files"]

# A literal brace, or placeholders; several in a row are one, because `**` means folders to glob.
_BRACES = re.compile(r"(\{\{|\}\})|(?:\{[^{}]*\})+")


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
