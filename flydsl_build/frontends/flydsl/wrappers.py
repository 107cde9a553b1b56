# SPDX-License-Identifier: Apache-2.0
"""Look inside of Python functions for the launchers that they call.

Many factories return a function that fills in defaults, chooses between launchers or sets compile hints, and then calls a launcher.
The function is Python of FlyDSL's and cannot be in a wheel; the launcher in it can.
"""

from __future__ import annotations

import contextlib
import functools
import types
from typing import Any

from flydsl_build.frontends.flydsl import adapter

__all__ = ["find_inside", "launchers_inside"]

_DEPTH = 4


def find_inside(found: Any, path: str) -> Any:
    """Return what a function has under a name: a variable that it captured or uses, or an attribute; with dots, inside of that again.

    Raises
    ------
    KeyError
        The name that was not found.
    """
    for name in path.split("."):
        found = _names_in(found)[name]
    return found


def launchers_inside(found: Any) -> dict[str, Any]:
    """Return the launchers inside of a function by the path that `find_inside` takes; the nearest first, each once."""
    launchers: dict[str, Any] = {}
    seen = {id(found)}
    level = {"": found}
    for _ in range(_DEPTH):
        below: dict[str, Any] = {}
        for path, one in level.items():
            for name, value in _names_in(one).items():
                if id(value) in seen or not _is_interesting(value):
                    continue
                seen.add(id(value))
                where = f"{path}.{name}" if path else name
                (launchers if adapter.is_launcher(value) else below)[where] = value
        level = below
    return launchers


def _is_interesting(value: Any) -> bool:
    return adapter.is_launcher(value) or isinstance(value, types.FunctionType | types.MethodType | functools.partial)


def _names_in(found: Any) -> dict[str, Any]:
    """Return what a function holds by name: captured variables first, then attributes, then what it uses of its module.

    Of the last only launchers: the rest is the whole program.
    """
    if isinstance(found, functools.partial):
        return {"func": found.func}
    if isinstance(found, types.MethodType):
        return {**_names_in(found.__func__), **getattr(found.__self__, "__dict__", {})}
    if not isinstance(found, types.FunctionType):
        return dict(getattr(found, "__dict__", {}))
    names: dict[str, Any] = {}
    for name, cell in zip(found.__code__.co_freevars, found.__closure__ or (), strict=True):
        # A variable that was never assigned has no contents.
        with contextlib.suppress(ValueError):
            names[name] = cell.cell_contents
    used = {name: found.__globals__.get(name) for name in found.__code__.co_names}
    more = {**{name: value for name, value in used.items() if adapter.is_launcher(value)}, **vars(found)}
    return {**names, **{name: value for name, value in more.items() if name not in names}}
