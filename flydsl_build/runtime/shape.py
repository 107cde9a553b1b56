# SPDX-License-Identifier: Apache-2.0
"""The form of a manifest, as far as the run time reads it outside of the descriptions of single launchers."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

__all__ = ["misshapen"]

# A type: a value of it, numbers not negative. A tuple: one of several. A list: any number of such items. A dict: these keys, those
# with "?" if they are there; "*": any keys. None: anything.
_PARAMETER = {"name": str, "kind": str, "role": str, "default?": None}
_KERNEL = {"symbol": str, "max_workgroup": int, "reqd_workgroup?": ([int], type(None))}
_CODE_OBJECT = {"offset": int, "size": int, "sha256": str, "e_flags": int, "kernels": [_KERNEL]}
_UNIT = {
    "name": str,
    "axes": {"*": str},
    "bundle": str,
    "init": [str],
    "globals": [{"name": str, "size": int}],
    "code_objects": {"*": _CODE_OBJECT},
}
_SPECIALIZATION = {
    "name": str,
    "constexpr": {"*": None},
    "params": {"*": None},
    "element?": (str, type(None)),
    "targets": [str],
    "arguments": {"*": {"kind": str}},
    "slots": [{"kind": str}],
    "entries": {"*": {"*": {"entry": str, "kernels": [int]}}},
    "parameters?": ([_PARAMETER], type(None)),
}
_LAUNCHER = {
    "name": str,
    "parameters": [_PARAMETER],
    "specializations": [_SPECIALIZATION],
    "returns?": ({"form": str, "names": [str]}, type(None)),
}
_MANIFEST = {
    "schema": int,
    "distribution": {"name": str, "version": str},
    "targets": [str],
    "axes": {"*": {"values": [str], "select": (str, type(None))}},
    "library": {"file": str, "sha256": str},
    "units": [_UNIT],
    "launchers": [_LAUNCHER],
    "provenance": {"distributions?": {"*": str}},
}


def misshapen(value: Any, shape: Any = _MANIFEST, path: str = "it") -> str:
    """Return what of a manifest has another form than the build gives it, in words; an empty string if nothing has."""
    if isinstance(shape, tuple):
        faults = [misshapen(value, one, path) for one in shape]
        return "" if "" in faults else faults[0]
    if isinstance(shape, type):
        fits = type(value) is shape and not (isinstance(value, int) and value < 0)
        return "" if fits else f"{path} is no {shape.__name__}"
    if shape is None:
        return ""
    if not isinstance(value, type(shape)):
        return f"{path} is no {'list' if isinstance(shape, list) else 'object'}"
    return next(filter(None, _misshapen_parts(value, shape, path)), "")


def _misshapen_parts(value: Any, shape: Any, path: str) -> Iterator[str]:
    if isinstance(shape, list):
        yield from (misshapen(item, shape[0], f"{path}[{n}]") for n, item in enumerate(value))
    elif "*" in shape:
        yield from (misshapen(item, shape["*"], f"{path}.{key}") for key, item in value.items())
    else:
        for key, one in shape.items():
            name = key.removesuffix("?")
            if name in value:
                yield misshapen(value[name], one, f"{path}.{name}")
            elif name == key:
                yield f"{path} has no {name}"
