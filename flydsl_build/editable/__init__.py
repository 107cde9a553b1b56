# SPDX-License-Identifier: Apache-2.0
"""The import hook of an editable install: it serves the stubs of declared modules in the place of their FlyDSL sources.

A copy of this package is in every editable wheel, and a `.pth` file there calls `install` whenever Python starts. So it imports the
standard library only, itself only relatively, and next to nothing until a module of the project is imported.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from .installation import Installation

__all__ = ["Finder", "install"]

# Folders of the artefacts of modules that are in no package; `backend.placement` has the rule.
_LONE_FOLDER = "_flydsl_"


class Finder:
    """Finds declared modules, their ops of torch and their run time; stands before the finders that would find the sources.

    Parameters
    ----------
    folder
        The folder of this package, which has the facts of the installation.
    top_levels
        Names at the top of what the project installs.
    """

    # What is compiled is the source: `resolution` passes over this finder.
    serves_stubs = True

    def __init__(self, folder: str, top_levels: frozenset[str]) -> None:
        self._folder = folder
        self._top_levels = top_levels
        self._installation: Installation | None = None

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec of a module that is served from the build folder; None for all others."""
        del path, target
        top = fullname.partition(".")[0]
        # Beside a module at the top are its folder and the module of its ops.
        if top not in self._top_levels and top.removesuffix("_torch") not in self._top_levels and not top.startswith(_LONE_FOLDER):
            return None
        if self._installation is None:
            from .installation import Installation

            self._installation = Installation(self._folder)
        return self._installation.find_spec(fullname)


def install(*top_levels: str) -> None:
    """Serve the project's stubs in this process, unless `FLYDSL_BUILD_EDITABLE` asks for the sources."""
    if os.environ.get("FLYDSL_BUILD_EDITABLE") != "jit":
        sys.meta_path.insert(0, Finder(os.path.dirname(__file__), frozenset(top_levels)))
