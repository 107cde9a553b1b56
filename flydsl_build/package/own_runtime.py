# SPDX-License-Identifier: Apache-2.0
"""The files of the run-time library, which are copied into wheels."""

from __future__ import annotations

from pathlib import Path

import flydsl_build
from flydsl_build.errors import BuildError, Fault

__all__ = ["runtime_files"]


def runtime_files() -> list[Path]:
    """Return the files of the run time, in order of their names.

    In an editable installation of flydsl-build, the package has two folders: the native part is not in that of the sources.

    Raises
    ------
    BuildError
        There is no native part.
    """
    folders = [Path(folder, "runtime") for folder in flydsl_build.__path__]
    found: dict[str, Path] = {}
    for folder in folders:
        for pattern in ("*.py", "_native*.so", "py.typed"):
            for path in folder.glob(pattern):
                found.setdefault(path.name, path)
    if not any(name.endswith(".so") for name in found):
        raise BuildError(
            Fault(
                where=" and ".join(map(str, folders)),
                what="this installation of flydsl-build has no native run time",
                fix="reinstall it: pip install --force-reinstall flydsl-build",
            )
        )
    return [path for _, path in sorted(found.items())]
