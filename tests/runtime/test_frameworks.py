# SPDX-License-Identifier: Apache-2.0
"""Arrays of JAX and CuPy: what is read of them, on which device, and what they are asked for."""

from __future__ import annotations

import ctypes
import enum
import struct
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from synthetic import DLTensor
from test_arguments import launched, refused

if TYPE_CHECKING:
    from fake_hip import FakeHip

CUDA, ROCM = 2, 10


@pytest.fixture(scope="module")
def jnp() -> Any:
    return pytest.importorskip("jax.numpy")


def place(jax_array: Any) -> str:
    return struct.pack("<Q", jax_array.unsafe_buffer_pointer()).hex()


# ---- JAX -------------------------------------------------------------------------------------------------------------


def test_jax(table: Any, hip: FakeHip, jnp: Any) -> None:
    a, b, c = (jnp.zeros((20, 132), "float32") for _ in range(3))
    table.vector_add(a, b, C=c, stream=0x50)
    layout = struct.pack("<iiq", 20, 132, 132).hex()
    event = launched(hip)
    assert event["args"] == [place(a), layout, place(b), layout, place(c), layout]
    assert (event["device"], event["stream"]) == (0, 0x50)
    bound = table.vector_add.bind(a, a, a)
    del a
    bound()
    assert launched(hip)["args"][1] == layout


@pytest.mark.parametrize(
    ("dtype", "launcher", "layout"),
    [
        ("int32", "cube", struct.pack("<6i", 2, 3, 4, 12, 4, 1)),
        ("float8_e4m3fn", "narrow", struct.pack("<i", 5)),
        ("bool", "flags", struct.pack("<i", 5)),
    ],
)
def test_jax_dtypes(table: Any, hip: FakeHip, jnp: Any, dtype: str, launcher: str, layout: bytes) -> None:
    array = jnp.ones((2, 3, 4) if launcher == "cube" else (5,), dtype)
    getattr(table, launcher)(array)
    assert launched(hip)["args"] == [place(array), layout.hex()]


def test_jax_bfloat16(table: Any, hip: FakeHip, jnp: Any) -> None:
    b = jnp.ones((64, 16), "bfloat16")
    # JAX's arrays are contiguous: rows that are farther apart than their extent have no form there.
    assert "argument B must be bf16[64, K%8 : 128, 1], got bf16[64, 16 : 16, 1]: stride 0 is 16, not 128" in refused(
        ValueError, table.gemm, jnp.ones((3, 16), "bfloat16"), b
    )
    assert hip.events("launch") == []


def test_jax_refused(table: Any, jnp: Any) -> None:
    a = jnp.ones((20, 132), "float32")
    text = refused(TypeError, table.vector_add, a, a.astype("int32"), a)
    assert text == "vector_add(): argument B must be f32[M, N : ?, 1], got i32[20, 132 : 132, 1]: the dtype is i32, not f32"
    text = refused(ValueError, table.vector_add, a, a[:5], a)
    assert text.endswith("M is 20 in A but 5 in B")


def test_a_deleted_array_of_jax(table: Any, hip: FakeHip, jnp: Any) -> None:
    array = jnp.ones((2, 3), "float32")
    table.static(array)
    launched(hip)
    array.delete()
    why = "it is a deleted array of JAX, which has no data; was it donated?"
    assert refused(ValueError, table.static, array) == f"static(): argument A must be f32[2, 3]: {why}"
    assert refused(ValueError, table.at, array) == f"at(): argument p must be ptr<f32>@16: {why}"
    assert hip.events("launch") == []


class Device(enum.IntEnum):
    """JAX's DLPack device types are an enumeration."""

    CPU = 1
    ROCM = 10


class OnDevice:
    """A tensor f32[2, 3] at 0x4000 of a device, which remembers what its `__dlpack__` was asked for."""

    def __init__(self, kind: int, device: int) -> None:
        self.kind, self.device = kind, device
        self.shape = (ctypes.c_int64 * 2)(2, 3)
        self.asked: list[dict[str, Any]] = []
        self.managed = DLTensor(
            data=0x4000, device_type=kind, device_id=device, ndim=2, code=2, bits=32, lanes=1, shape=ctypes.addressof(self.shape)
        )

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.kind, self.device

    def __dlpack__(self, **asked: Any) -> Any:
        self.asked.append(asked)
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.managed), b"dltensor", None)


def test_jax_on_a_device_gets_no_stream(table: Any, hip: FakeHip) -> None:
    """JAX would take -1 for a handle; without a stream it waits until the array is computed."""
    kind = type("ArrayImpl", (OnDevice,), {"__module__": "jaxlib._jax"})
    array = kind(Device.ROCM, 2)
    table.static(array)
    event = launched(hip)
    assert (event["device"], event["args"]) == (2, [struct.pack("<Q", 0x4000).hex()])
    assert array.asked == [{"max_version": (1, 3)}]
    text = refused(ValueError, table.vector_add, array, kind(Device.ROCM, 0), array)
    assert text == "vector_add(): argument B is on device 0, but argument A is on device 2"


# ---- torch, by DLPack's C exchange table -----------------------------------------------------------------------------

ToTensor = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p)


class Exchange(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("others", ctypes.c_void_p * 3),
        ("to_dltensor", ToTensor),
        ("current_stream", ctypes.c_void_p),
    )


def exchanging(major: int, previous: Exchange | None = None) -> tuple[type, Exchange]:
    """Return a tensor type with an exchange table, and the table."""

    def read(tensor: Any, out: int) -> int:
        ctypes.memmove(out, ctypes.addressof(tensor.managed), 48)
        return 0

    table = Exchange(major=major, minor=3, previous=previous and ctypes.addressof(previous), to_dltensor=ToTensor(read))
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    name = b"dlpack_exchange_api"
    members = {"__dlpack_c_exchange_api__": new(ctypes.addressof(table), name, None), "keep": (table, name)}
    return type("Tensor", (OnDevice,), members), table


@pytest.mark.parametrize("kind", [CUDA, ROCM])
def test_exchange(table: Any, hip: FakeHip, kind: int) -> None:
    tensor_type, _ = exchanging(1)
    tensors = [tensor_type(kind, device) for device in (2, 2, 0)]
    for tensor in tensors:
        tensor.numbers = (ctypes.c_int64 * 2)(3, 1)
        tensor.managed.strides = ctypes.addressof(tensor.numbers)
    table.static(tensors[0])
    event = launched(hip)
    assert (event["device"], event["args"]) == (2, [struct.pack("<Q", 0x4000).hex()])
    tensors[1].managed.strides = None  # DLPack before 1.2: contiguous
    table.static(tensors[1])
    launched(hip)
    text = refused(ValueError, table.vector_add, *tensors)
    assert text == "vector_add(): argument C is on device 0, but argument A is on device 2"
    tensors[0].managed.ndim = 17
    assert "a tensor of rank 17; this run time reads up to 16" in refused(TypeError, table.static, tensors[0])
    assert [asked for tensor in tensors for asked in tensor.asked] == []


def test_exchange_of_a_later_version(table: Any, hip: FakeHip) -> None:
    _, older = exchanging(1)
    tensor_type, _ = exchanging(2, older)
    tensor = tensor_type(ROCM, 2)
    table.static(tensor)  # by the table of version 1, which every later one leads to
    assert (launched(hip)["device"], tensor.asked) == (2, [])
    tensor = exchanging(2)[0](ROCM, 2)
    table.static(tensor)  # which has none: by its `__dlpack__`
    assert (launched(hip)["device"], len(tensor.asked)) == (2, 1)


# ---- CuPy ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [CUDA, ROCM])
def test_cupy(table: Any, hip: FakeHip, kind: int) -> None:
    class Array(OnDevice):
        """As in CuPy, whose ROCm builds say that they are CUDA or ROCm by release: both protocols."""

        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            raise AssertionError

    array = Array(kind, 2)
    table.static(array)
    event = launched(hip)
    assert (event["device"], event["args"]) == (2, [struct.pack("<Q", 0x4000).hex()])
    assert array.asked == [{"max_version": (1, 3), "stream": -1}]


def test_numba_like(table: Any, hip: FakeHip) -> None:
    class Array:
        __cuda_array_interface__: ClassVar = {
            "shape": (2, 3),
            "strides": None,
            "typestr": "<f4",
            "data": (0x7000, True),
            "version": 3,
            "stream": 1,
        }

    hip._library.hipSetDevice(2)
    try:
        table.static(Array())  # it does not say where it is: the launch is on the current device
    finally:
        hip._library.hipSetDevice(0)
    event = launched(hip)
    assert (event["device"], event["args"]) == (2, [struct.pack("<Q", 0x7000).hex()])


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        (SimpleNamespace(ptr=0x99, cuda_stream=0x77), 0x77),
        (SimpleNamespace(__cuda_stream__=lambda: (0, 0x78)), 0x78),  # CuPy 14, cuda.core
        (SimpleNamespace(cuda_stream=None), 0),
    ],
)
def test_streams_of_frameworks(table: Any, hip: FakeHip, stream: Any, handle: int) -> None:
    table.at(0x1000, stream)
    assert launched(hip)["stream"] == handle
