# SPDX-License-Identifier: Apache-2.0
"""The form of a manifest, as far as the run time reads it outside of the descriptions of single launchers."""

from __future__ import annotations

from .annotations import Any

__all__ = ["misshapen"]

# A type: a value of it, numbers not negative. A tuple: the first, or None. A list: any number of such items. A dict: these keys, those
# with "?" if they are there; "*": any keys. None: anything.
_PARAMETER = {"name": str, "kind": str, "role": str, "annotation?": (str, type(None)), "default?": None}
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
    "entries": {"*": {"*": {"entry": str, "kernels": [int]}}},
    "doc?": (str, type(None)),
    "parameters?": ([_PARAMETER], type(None)),
    "attributes?": ({"*": {"*": None}}, type(None)),
}
_LAUNCHER = {
    "name": str,
    "parameters": [_PARAMETER],
    "specializations": [_SPECIALIZATION],
    "factory_parameters?": ([_PARAMETER], type(None)),
    "returns?": ({"form": str, "names": [str]}, type(None)),
}
_MANIFEST = {
    "schema": int,
    "distribution": {"name": str, "version": str},
    "targets": [str],
    "axes": {"*": {"values": [str], "select": (str, type(None))}},
    "library": {"file": str, "sha256": str},
    "units": [_UNIT],
    "enums?": {"*": {"bases": [str], "members": [{"name": str, "value?": None, "alias?": str}]}},
    "launchers": [_LAUNCHER],
    "provenance": {"distributions?": {"*": str}},
}


class _WrongError(Exception):
    def __init__(self, what: str) -> None:
        self.what = what
        self.place = ""


def misshapen(manifest: Any) -> str:
    """Return what of a manifest has another form than the build gives it, in words; an empty string if nothing has."""
    try:
        _check(manifest, _MANIFEST)
    except _WrongError as wrong:
        return f"{wrong.place.removeprefix('.') or 'it'} {wrong.what}"
    return ""


def _check(value: Any, shape: Any) -> None:
    # Of thousands of values; a place is put into words only where something is wrong.
    if type(shape) is type:
        if type(value) is not shape or (isinstance(value, int) and value < 0):
            raise _WrongError(f"is no {shape.__name__}")
    elif type(shape) is tuple:
        if not (shape[1] is type(None) and value is None):
            _check(value, shape[0])
    elif shape is not None:
        if type(value) is not type(shape):
            raise _WrongError(f"is no {'list' if type(shape) is list else 'object'}")
        _check_parts(value, shape)


def _check_parts(value: Any, shape: Any) -> None:
    if type(shape) is list:
        parts = ((f"[{n}]", item, shape[0]) for n, item in enumerate(value))
    elif "*" in shape:
        parts = ((f".{key}", item, shape["*"]) for key, item in value.items())
    else:
        for key in shape:
            if key not in value and key[-1] != "?":
                raise _WrongError(f"has no {key}")
        parts = (
            (f".{name}", value[name], one) for name, one in ((key.removesuffix("?"), one) for key, one in shape.items()) if name in value
        )
    place = ""
    try:
        for place, item, one in parts:  # noqa: B007 - read below
            _check(item, one)
    except _WrongError as wrong:
        wrong.place = place + wrong.place
        raise
