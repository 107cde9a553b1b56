# SPDX-License-Identifier: Apache-2.0
"""The build that is under way in this process, for the setuptools commands, which take no arguments of ours."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from flydsl_build.config.settings import Settings
    from flydsl_build.package.pipeline import BuiltKernels
    from flydsl_build.package.wheel_forms import WheelForm

__all__ = ["Layout", "Session", "active", "current"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """What an editable install makes importable.

    Parameters
    ----------
    package_roots
        Folders to import the author's packages from.
    top_levels
        Names of the packages and modules at the top.
    """

    package_roots: tuple[str, ...]
    top_levels: frozenset[str]


@dataclass(kw_only=True, slots=True)
class Session:
    """One call of a build hook.

    Parameters
    ----------
    layout
        Where the project's packages are; known once the `build_flydsl` command has run.
    form
        What will be made of the wheel; None where none is built.
    built
        The kernels, once the `build_flydsl` command has compiled them.
    """

    settings: Settings
    project: Path
    editable: bool
    layout: Layout | None = None
    form: WheelForm | None = None
    built: BuiltKernels | None = None


_current: Session | None = None


@contextlib.contextmanager
def active(session: Session) -> Iterator[None]:
    """Make the session the current one for the length of the block."""
    global _current  # noqa: PLW0603 - setuptools gives its commands nothing of the hook's
    previous, _current = _current, session
    try:
        yield
    finally:
        _current = previous


def current() -> Session | None:
    """Return the session of the hook that is running, or None if setuptools was not called by one."""
    return _current
