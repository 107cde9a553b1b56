# SPDX-License-Identifier: Apache-2.0
"""Argument types as JSON: the `arguments` of a manifest, and what compile workers are sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .argument_grammar import parse_dim
from .argument_types import ArgumentType, Dim, PointerType, ScalarType, StreamType, StructType, TensorType

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["argument_from_json", "argument_to_json"]


def argument_to_json(argument: ArgumentType) -> dict[str, Any]:
    """Return an argument type as the manifest spells it."""
    match argument:
        case TensorType():
            return {
                "kind": "tensor",
                "dtype": argument.dtype,
                "shape": [dim.to_json() for dim in argument.shape],
                "strides": [dim.to_json() for dim in argument.strides],
                "align": argument.alignment,
                "stride_bits": argument.stride_bits,
            }
        case PointerType():
            return {"kind": "pointer", "dtype": argument.dtype, "align": argument.alignment}
        case ScalarType():
            return {"kind": "scalar", "dtype": argument.dtype}
        case StreamType():
            return {"kind": "stream"}
        case StructType():
            return {"kind": "struct", "type": argument.name, "fields": {name: argument_to_json(each) for name, each in argument.fields}}


def argument_from_json(data: Mapping[str, Any]) -> ArgumentType:
    """Return the argument type that `argument_to_json` gave as `data`.

    Raises
    ------
    ValueError
        If the kind is unknown.
    """
    match data["kind"]:
        case "tensor":
            return TensorType(
                dtype=data["dtype"],
                shape=tuple(_dim(dim) for dim in data["shape"]),
                strides=tuple(_dim(dim) for dim in data["strides"]),
                alignment=data["align"],
                stride_bits=data["stride_bits"],
            )
        case "pointer":
            return PointerType(dtype=data["dtype"], alignment=data["align"])
        case "scalar":
            return ScalarType(dtype=data["dtype"])
        case "stream":
            return StreamType()
        case "struct":
            fields = tuple((name, argument_from_json(each)) for name, each in data["fields"].items())
            return StructType(fields=fields, name=data["type"])
        case kind:
            msg = f"unknown kind of argument: {kind!r}"
            raise ValueError(msg)


def _dim(value: int | str) -> Dim:
    return Dim(size=value) if isinstance(value, int) else parse_dim(value)
