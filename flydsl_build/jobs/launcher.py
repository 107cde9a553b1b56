# SPDX-License-Identifier: Apache-2.0
"""What is known of a compiled launcher: its parameters and slots. Compile processes report it, and the manifest has it as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from flydsl_build.codec import NO_DEFAULT, NoDefault, PlainValue

__all__ = ["EnumClass", "EnumEntry", "Parameter", "ParameterKind", "Role", "Slot", "SlotKind"]

Role: TypeAlias = Literal["tensor", "pointer", "scalar", "struct", "stream", "constexpr", "type"]
ParameterKind: TypeAlias = Literal["POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD", "VAR_POSITIONAL", "KEYWORD_ONLY", "VAR_KEYWORD"]
SlotKind: TypeAlias = Literal["data", "layout", "scalar", "pointer", "stream"]


@dataclass(frozen=True, kw_only=True, slots=True)
class EnumEntry:
    """A name in an enum.

    Parameters
    ----------
    value
        Absent where JSON has no form for it.
    alias
        The member that it is another name of; absent for members.
    """

    name: str
    value: PlainValue | NoDefault = NO_DEFAULT
    alias: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class EnumClass:
    """An enum of the source.

    Parameters
    ----------
    bases
        Names of `enum`, with the built-in type that it is mixed with before that.
    doc
        Its docstring.
    members
        In the order of definition.
    """

    bases: tuple[str, ...]
    doc: str | None
    members: tuple[EnumEntry, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    """One parameter of a launcher or factory.

    Parameters
    ----------
    name, kind
        As in `inspect.Parameter`.
    annotation
        Text of the annotation in the source, None for none.
    role
        What the parameter is to the launcher. A factory's parameters are `constexpr`, or `type` for FlyDSL types, which have the
        names of their dtypes as values.
    default
        The default; None stands for `fx.Stream(None)` too.
    opaque
        Whether there is a default of which nothing is known: what is given cannot be compared with it, but it can be left out.
    """

    name: str
    kind: ParameterKind
    annotation: str | None
    role: Role
    default: PlainValue | NoDefault = NO_DEFAULT
    opaque: bool = False

    @property
    def has_default(self) -> bool:
        """Whether the parameter can be left out."""
        return self.opaque or self.default is not NO_DEFAULT


@dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    """One value of the launcher library's binary interface, in the order of `slots`.

    Parameters
    ----------
    argument
        The parameter it comes from; None for the stream of a launcher without a stream parameter.
    field
        Path of the struct field it comes from, e.g. `a.b`.
    kind
        `data` (device pointer of a tensor), `layout` (its dynamic extents, then its dynamic strides, packed), `scalar`, `pointer` or
        `stream`.
    size, align
        Of the storage, in bytes.
    shape_dims, stride_dims
        Of a layout: the dims whose extent or stride is in it, in order.
    shape_bits, stride_bits
        Of a layout: width of each extent and stride.
    """

    argument: str | None
    field: str | None = None
    kind: SlotKind
    size: int
    align: int
    shape_dims: tuple[int, ...] | None = None
    stride_dims: tuple[int, ...] | None = None
    shape_bits: int | None = None
    stride_bits: int | None = None
