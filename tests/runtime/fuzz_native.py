# SPDX-License-Identifier: Apache-2.0
"""Fuzzers of what parses in C: descriptions of launchers, and arguments. Nothing is launched. Started by test_sanitizers.py."""

from __future__ import annotations

import array
import ctypes
import importlib
import struct
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from fuzzing import VALUES, edited, fuzz
from hypothesis import strategies as st
from test_arguments import f32

if TYPE_CHECKING:
    from fake_hip import FakeHip

ARGUMENT_ERRORS = (TypeError, ValueError, OverflowError, BufferError)


def tuples(tree: Any) -> Any:
    return tuple(map(tuples, tree)) if isinstance(tree, list | tuple) else tree


def lists(tree: Any) -> Any:
    return list(map(lists, tree)) if isinstance(tree, tuple) else tree


# ---- descriptions ----------------------------------------------------------------------------------------------------


class RefusedError(Exception):
    """What the handle of a module makes of a description that cannot be compiled."""


class Handle:
    """Serves one launcher with a description."""

    def __init__(self, description: Any) -> None:
        self.description = description

    def _describe(self, _: str) -> Any:
        return self.description

    def _refuse_description(self, _: str, error: Exception) -> None:
        if isinstance(error, TypeError | ValueError | OverflowError | SystemError):
            raise RefusedError from error

    def _refuse_constants(self, _: str, given: dict[str, Any]) -> None:
        raise ValueError(given)


def test_descriptions(table: Any, hip: FakeHip, runtime: Any) -> None:
    native = importlib.import_module(f"{runtime.__name__}._native")
    table.vector_add(f32(2, 3), f32(2, 3), f32(2, 3))  # opens the driver
    hip.clear()
    module = native.Module(runtime.LaunchError)
    module.read_tables(native.library_symbol(table.__flydsl__._library(), "flydsl_call_table"))
    entries = ((0x1000, ((0x2000, "kernel", 256, (0, 0, 0)),)), (0x1000, ()), None, (0x1000, ()))
    module.publish(0, "gfx942", entries * 16)
    arguments = [f32(2, 3), f32(64, 128)[:, :16], np.zeros((4, 5, 6), np.int32), 0x1000, 3, None, 2.5, True, SimpleNamespace(n=2), "x"]
    arguments.append(SimpleNamespace(A=f32(7), inner=SimpleNamespace(n=2)))
    names = ("vector_add", "gemm", "static", "cube", "at", "grid", "choose", "structured", "only")
    bases = [lists(table.__flydsl__._describe(name)) for name in names]

    def describe(value: tuple[Any, bytes]) -> None:
        description, chosen = value
        launcher = native.Launcher(Handle(tuples(description)), module, "f")
        given = [arguments[index % len(arguments)] for index in chosen]
        try:
            bound = launcher.bind(*given)
        except ARGUMENT_ERRORS:
            if launcher.__dict__ or not description:
                raise
            return  # a description that was compiled, and arguments that do not fit it
        bound.update()
        # Two parameters may have got one name.
        wanted = min(len(given), len({one[0] for one in description[0]}))
        assert (bound.device, len(bound.arguments) >= wanted) == (0, True)

    for base in bases:
        describe((base, b"\0\0\0"))
    inputs = st.tuples(st.one_of(*map(edited, bases)), st.binary(max_size=6))
    fuzz(inputs, describe, (RefusedError,), share=0.4)
    assert hip.events("launch") == []


# ---- arguments -------------------------------------------------------------------------------------------------------

_TENSOR = struct.Struct("<QiiiBBHQQQ")  # data, device type and number, rank, code, bits, lanes, shape, strides, byte offset
_PLACES = (0, 0x1000, 0x1001, 2**47, 2**64 - 8)
_EXTENTS = (0, 1, 2, 3, 5, 8, 16, 64, 128, -1, -(2**63), 2**31 - 1, 2**31, 2**32, 2**62, 2**63 - 1)


class Producer:
    """A DLPack producer whose capsule has whatever the bytes say, but no pointer that does not lead to numbers."""

    def __init__(self, choice: bytes) -> None:
        at = iter(choice.ljust(64, b"\1"))
        self.numbers = (ctypes.c_int64 * 64)(*(_EXTENTS[next(at) % len(_EXTENTS)] for _ in range(32)))
        self.versioned = next(at) % 2
        rank = (2, 2, 3, 1, 0, 16, 17, -1, 2**31 - 1, -(2**31))[next(at) % 10]
        shape = ctypes.addressof(self.numbers) if next(at) % 8 else 0
        strides = shape + 128 if shape and next(at) % 3 else 0
        if rank > 16:
            shape = strides = 0  # no list of so many numbers is there
        code, bits, lanes = (
            (2, 2, 0, 4, 10, 6, 1, 255)[next(at) % 8],
            (32, 32, 32, 16, 8, 0, 255)[next(at) % 7],
            (1, 1, 1, 2, 0, 65535)[next(at) % 6],
        )
        self.device = ((1, 0), (1, 0), (2, 1), (10, 2), (10, 99), (10, -1), (7, 0), (-1, 0), (64, 0), (13, 5))[next(at) % 10]
        offset = (0, 0, 4, 2**63, 2**64 - 1)[next(at) % 5]
        tensor = _TENSOR.pack(_PLACES[next(at) % 5], *self.device, rank, code, bits, lanes, shape, strides, offset)
        if self.versioned:
            version, flags = (1, 1, 1, 0, 2)[next(at) % 5], (0, 0, 1, 2, 2**64 - 1)[next(at) % 5]
            tensor = struct.pack("<IIQQQ", version, 3, 0, 0, flags) + tensor
        self.memory = ctypes.create_string_buffer(tensor + bytes(32))
        self.says = ((), None, ("x", 0), self.device, self.device, self.device, self.device)[next(at) % 7]
        self.name = (b"dltensor", b"dltensor_versioned", b"used_dltensor")[min(next(at) % 12, 2) if next(at) % 4 == 0 else self.versioned]
        if self.name == b"dltensor_versioned" and not self.versioned:
            self.name = b"used_dltensor_versioned"

    def __dlpack_device__(self) -> Any:
        return self.says

    def __dlpack__(self, **_: Any) -> Any:
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.memory), self.name, None)


def with_interface(interface: Any) -> Any:
    """Return an object with an array interface: CUDA's, or numpy's, whatever is in it."""
    key = "__array_interface__" if isinstance(interface, dict) and interface.pop("host", None) else "__cuda_array_interface__"
    return type("Array", (), {key: tuples_inside(interface), "dtype": SimpleNamespace(name="bfloat16")})()


def tuples_inside(interface: Any) -> Any:
    if not isinstance(interface, dict):
        return interface
    return {key: tuple(value) if isinstance(value, list) else value for key, value in interface.items()}


FORMATS = (
    "f4",
    ">f4",
    "f8",
    "i4",
    "u1",
    "i1",
    "?",
    "c8",
    "c16",
    "M8[s]",
    "V4",
    "V1",
    "S4",
    "U2",
    "O",
    "f4,i4",
    "2f4",
    "f2",
    "i8",
    "u8",
    "g",
)
TYPESTRS = ("<f4", ">f4", "|b1", "<f3", "<f0", "", "f", "<f99999999999", "<V2", "|V1", "<c8", "|u1", "<i4", "\0\0\0", "<f\u00e9", "<f-4")


def buffers(choice: bytes) -> Any:
    kind, a, b, c = choice[:4].ljust(4, b"\1")
    match kind % 6:
        case 0:
            return np.zeros((a % 5, b % 5), FORMATS[c % len(FORMATS)])[:: 1 - 2 * (a % 2), :: 1 + b % 3]
        case 1:
            return np.lib.stride_tricks.as_strided(np.zeros(64, "u1"), (a % 5, b % 5), (c - 128, a - 128)).view(np.int8)
        case 2:
            return memoryview(bytearray(48)).cast("bBhHiIlLqQfd?cnN"[c % 16])[:: 1 + a % 3]
        case 3:
            return array.array("bBhHiIlLqQfd"[c % 12], [1] * (a % 7))
        case 4:
            return ((ctypes.c_float, ctypes.c_int64, ctypes.c_bool, ctypes.c_longdouble, ctypes.c_char)[c % 5] * (a % 6) * (b % 4))()
        case _:
            return np.zeros((1,) * (a % 65), "f4")


def test_arguments(table: Any, hip: FakeHip) -> None:
    tensors = [table.vector_add, table.static, table.cube, table.narrow, table.flags, table.choose, table.at, table.gemm]
    scalars = [getattr(table, name) for name in dir(table) if name.startswith("scalar_")]
    streams = [*VALUES, SimpleNamespace(cuda_stream=5), SimpleNamespace(cuda_stream="x"), SimpleNamespace(__cuda_stream__=lambda: (0,))]
    for launcher in (*tensors, *scalars):
        launcher.load()
        launcher.load(2)

    def call(value: tuple[int, Any, int]) -> None:
        which, given, other = value
        launcher = tensors[which % len(tensors)]
        arguments = {"vector_add": [given, f32(2, 3), given], "gemm": [given, f32(64, 128)]}.get(launcher.__name__, [given])
        if launcher.__name__ in {"vector_add", "gemm", "at"} and other % 4 == 0:
            arguments.append(streams[other % len(streams)])
        launcher.bind(*arguments)

    def scalar(value: tuple[int, Any]) -> None:
        scalars[value[0] % len(scalars)].bind(value[1])

    interface = {"shape": [2, 3], "strides": [12, 4], "typestr": "<f4", "data": [0x1000, False], "version": 3, "mask": None, "host": True}
    values = (*VALUES, *TYPESTRS, *_EXTENTS, *_PLACES, (2, 3), [2**63, 1], [-(2**63), 4], [1.5, 2])
    given = st.binary(max_size=64).map(Producer) | edited(interface, values).map(with_interface) | st.binary(max_size=4).map(buffers)
    small = st.integers(0, 2**10)
    call((1, f32(2, 3), 1))
    fuzz(st.tuples(small, given | st.sampled_from(VALUES), small), call, ARGUMENT_ERRORS, share=0.5)
    numbers = st.integers() | st.floats() | st.sampled_from([*VALUES, np.float32(1.5), np.int8(-3), np.bool_(True), 1j, b"1"])
    fuzz(st.tuples(small, numbers), scalar, ARGUMENT_ERRORS, share=0.1)
    assert hip.events("launch") == []
