# SPDX-License-Identifier: Apache-2.0
"""The plain counterparts of FlyDSL's structs: what a stub offers to make struct arguments with."""

from __future__ import annotations

from .annotations import Any

__all__ = ["make_struct"]


class _Struct:
    """A value with named fields, made as FlyDSL's structs and dataclasses are: by position or keyword, every field once."""

    __slots__ = ()
    _fields: tuple[str, ...] = ()
    _defaults: dict[str, Any] = {}  # noqa: RUF012 - never changed

    def __init__(self, *values: Any, **named: Any) -> None:
        name, fields = type(self).__name__, self._fields
        if len(values) > len(fields):
            msg = f"{name}() takes {len(fields)} fields but {len(values)} were given"
            raise TypeError(msg)
        given = dict(zip(fields, values, strict=False))
        for field, value in named.items():
            if field not in fields:
                msg = f"{name}() has no field {field!r}; its fields are {', '.join(fields)}"
                raise TypeError(msg)
            if field in given:
                msg = f"{name}() got two values for field {field!r}"
                raise TypeError(msg)
            given[field] = value
        given = self._defaults | given
        missing = [field for field in fields if field not in given]
        if missing:
            msg = f"{name}() misses {', '.join(missing)}"
            raise TypeError(msg)
        for field, value in given.items():
            setattr(self, field, value)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{field}={getattr(self, field)!r}' for field in self._fields)})"

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, field) == getattr(other, field) for field in self._fields)

    def __hash__(self) -> int:
        # FlyDSL's structs and frozen dataclasses can be the keys of a program's own tables.
        return hash((type(self), *(getattr(self, field) for field in self._fields)))


def make_struct(module: str, name: str, fields: tuple[str, ...], defaults: dict[str, Any] | None = None) -> type:
    """Make the class `name` of the stub `module` with these fields, in the source's order."""
    own = {"__slots__": fields, "_fields": fields, "_defaults": defaults or {}, "__module__": module, "__qualname__": name}
    return type(name, (_Struct,), own)
