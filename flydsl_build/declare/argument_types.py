# SPDX-License-Identifier: Apache-2.0
"""The types of launcher arguments, as values.

`argument_grammar` reads them from the text an author writes; the compile workers build FlyDSL arguments from them; the
manifest describes slots with them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import ClassVar

__all__ = [
    "ArgumentType",
    "Dim",
    "PointerType",
    "ScalarType",
    "StreamType",
    "StructType",
    "TensorType",
]


_DYNAMIC = re.compile(r"(\?|[A-Za-z_][A-Za-z0-9_]*)(?:%([1-9][0-9]{0,9}))?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Dim:
    """One extent or stride, in elements.

    Parameters
    ----------
    size
        The static value, or None for a dynamic one.
    name
        Name of a dynamic value; equal wherever the name stands again in one call.
    divisor
        Power of two that divides a dynamic value.
    """

    size: int | None = None
    name: str | None = None
    divisor: int = 1

    def __str__(self) -> str:
        if self.size is not None:
            return str(self.size)
        return (self.name or "?") + (f"%{self.divisor}" if self.divisor != 1 else "")

    def to_json(self) -> int | str:
        """Return the spelling in JSON: an integer is static, a string is dynamic."""
        return self.size if self.size is not None else str(self)

    @classmethod
    def from_json(cls, value: object) -> Dim:
        """Return the dim that `to_json` spelled; raise ValueError with what is wanted."""
        if isinstance(value, str):
            match = _DYNAMIC.fullmatch(value)
            divisor = int(match[2] or 1) if match else 0
            if match is None or divisor & (divisor - 1):
                msg = "a dim: ?, a name, or one of them with % and a power of two"
                raise ValueError(msg)
            return cls(name=None if match[1] == "?" else match[1], divisor=divisor)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            msg = "a count"
            raise ValueError(msg)
        return cls(size=value)


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorType:
    """A tensor: dtype, extents, strides in elements, alignment of the data pointer in bytes."""

    kind: ClassVar[str] = "tensor"

    dtype: str
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    alignment: int = field(metadata={"key": "align"})
    stride_bits: int = field(default=64, metadata={"always": True})


@dataclass(frozen=True, kw_only=True, slots=True)
class PointerType:
    """A bare device pointer to elements of `dtype`."""

    kind: ClassVar[str] = "pointer"

    dtype: str
    alignment: int = field(metadata={"key": "align"})


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalarType:
    """A number passed by value."""

    kind: ClassVar[str] = "scalar"

    dtype: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamType:
    """The stream that the kernels of a call run in."""

    kind: ClassVar[str] = "stream"


@dataclass(frozen=True, kw_only=True, slots=True)
class StructType:
    """A FlyDSL struct; `fields` in declaration order. Only fields the annotation does not fix need an entry.

    `name` is the class's, empty where only its fields are known.
    """

    kind: ClassVar[str] = "struct"

    fields: tuple[tuple[str, ArgumentType], ...]
    name: str = field(default="", metadata={"key": "type", "always": True})


ArgumentType = TensorType | PointerType | ScalarType | StreamType | StructType
