# SPDX-License-Identifier: Apache-2.0
"""The types of launcher arguments, as values.

`argument_grammar` reads them from the text an author writes; the compile workers build FlyDSL arguments from them; the
manifest describes slots with them.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "ArgumentType",
    "Dim",
    "PointerType",
    "ScalarType",
    "StreamType",
    "StructType",
    "TensorType",
]


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
        """Return the manifest's spelling: an integer is static, a string is dynamic."""
        return self.size if self.size is not None else str(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorType:
    """A tensor: dtype, extents, strides in elements, alignment of the data pointer in bytes."""

    dtype: str
    shape: tuple[Dim, ...]
    strides: tuple[Dim, ...]
    alignment: int
    stride_bits: int = 64


@dataclass(frozen=True, kw_only=True, slots=True)
class PointerType:
    """A bare device pointer to elements of `dtype`."""

    dtype: str
    alignment: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ScalarType:
    """A number passed by value."""

    dtype: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StreamType:
    """The stream that the kernels of a call run in."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StructType:
    """A FlyDSL struct; `fields` in declaration order. Only fields the annotation does not fix need an entry.

    `name` is the class's, empty where only its fields are known.
    """

    fields: tuple[tuple[str, ArgumentType], ...]
    name: str = ""


ArgumentType = TensorType | PointerType | ScalarType | StreamType | StructType
