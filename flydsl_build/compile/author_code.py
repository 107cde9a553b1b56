# SPDX-License-Identifier: Apache-2.0
"""Reach what authors name, and name what is theirs; knows nothing of FlyDSL."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["import_reference", "relative_to_roots"]


def import_reference(reference: str) -> Any:
    """Return the object that `module:qualname` names; what the author's module raises while it is imported comes through."""
    module, _, name = reference.partition(":")
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def relative_to_roots(path: str, roots: Sequence[str]) -> str | None:
    """Return a file's path from the first of the author's folders that it is in, or None if it is in none."""
    real = os.path.realpath(path)
    for root in map(os.path.realpath, roots):
        if real.startswith(root + os.sep):
            return os.path.relpath(real, root)
    return None
