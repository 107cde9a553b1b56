# SPDX-License-Identifier: Apache-2.0
"""Reach what authors name, and name what is theirs; knows nothing of FlyDSL."""

from __future__ import annotations

import importlib
import os
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flydsl_build.codec import enum_reference, from_enum_reference

if TYPE_CHECKING:
    from collections.abc import Sequence
    from enum import Enum

__all__ = ["enum_text", "import_reference", "is_own_file", "member_reference", "passed_through", "relative_to_roots", "text_of"]


def import_reference(reference: str) -> Any:
    """Return the object that `module:qualname` names; what the author's module raises while it is imported comes through."""
    module, _, name = reference.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def enum_text(member: Enum) -> str:
    """Return the name of an enum's member; of flags together, their names as in `READ|WRITE`."""
    # Flags of which none is set have no name.
    return member.name or str(member.value)


def member_reference(member: Enum) -> str | None:
    """Return `module:class.name` for a member of an enum; None if it is not found under this name, or the name is not one of Python."""
    kind = type(member)
    reference = f"{kind.__module__}:{kind.__qualname__}"
    try:
        found = import_reference(reference)
    except (ImportError, AttributeError):
        return None
    return enum_reference(from_enum_reference(f"{reference}.{enum_text(member)}")) if found is kind else None


def passed_through(error: BaseException, roots: Sequence[str]) -> bool:
    """Tell whether code in the author's folders was running when the error came."""
    return any(relative_to_roots(frame.filename, roots) is not None for frame in traceback.extract_tb(error.__traceback__))


def text_of(error: BaseException) -> str:
    """Return the type and text of an error, of which the author may have written the text's code too."""
    try:
        return f"{type(error).__name__}: {error}"
    except BaseException:  # noqa: BLE001 - an error without a text is still one
        return type(error).__name__


def relative_to_roots(path: str, roots: Sequence[str]) -> str | None:
    """Return a file's path from the first of the author's folders that it is in, or None if it is in none."""
    # `<frozen importlib._bootstrap>` and the like have no file; as a relative path they would be the author's.
    if path.startswith("<"):
        return None
    real = os.path.realpath(path)
    for root in map(os.path.realpath, roots):
        if real.startswith(root + os.sep):
            return os.path.relpath(real, root)
    return None


def is_own_file(path: str, roots: Sequence[str]) -> bool:
    """Tell whether a file is the project's own: not what a virtual environment in the project's folder has installed."""
    real = Path(path).resolve()
    places = [real.relative_to(root) for root in (Path(one).resolve() for one in roots) if real.is_relative_to(root)]
    return any({"site-packages", "dist-packages"}.isdisjoint(place.parts) for place in places)
