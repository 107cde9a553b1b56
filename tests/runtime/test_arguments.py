# SPDX-License-Identifier: Apache-2.0
"""What a call accepts, what it packs, and what it says where it does not fit."""

from __future__ import annotations

import copy
import ctypes
import inspect
import math
import pickle
import struct
import weakref
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest

if TYPE_CHECKING:
    from fake_hip import FakeHip


def launched(hip: FakeHip) -> dict[str, Any]:
    """Return the one launch since the last look."""
    (event,) = hip.events("launch")
    hip.clear()
    return event


def address(array: np.ndarray[Any, Any]) -> str:
    return struct.pack("<Q", array.ctypes.data).hex()


def refused(kind: type[Exception], call: Any, *args: Any, **kwargs: Any) -> str:
    with pytest.raises(kind) as caught:
        call(*args, **kwargs)
    assert type(caught.value) is kind
    return str(caught.value)


# ---- what is packed --------------------------------------------------------------------------------------------------


def test_tensor_slots(table: Any, hip: FakeHip) -> None:
    a, b, c = (np.zeros((20, 132), np.float32) for _ in range(3))
    table.vector_add(a, b[:, :], C=c, stream=0x50)
    layout = struct.pack("<iiq", 20, 132, 132).hex()
    event = launched(hip)
    assert event["args"] == [address(a), layout, address(b), layout, address(c), layout]
    assert (event["stream"], event["kernel"], event["block"]) == (0x50, "vector_add_0_kernel", [64, 1, 1])


def test_strided_and_32_bit_slots(table: Any, hip: FakeHip) -> None:
    cube = np.zeros((4, 5, 6), np.int32)[::2, :, ::3]
    table.cube(cube)
    assert launched(hip)["args"] == [address(cube), struct.pack("<6i", 2, 5, 2, 60, 6, 3).hex()]


def test_struct_slots(table: Any, hip: FakeHip) -> None:
    array = np.zeros(7, np.float32)
    table.structured(SimpleNamespace(A=array, inner=SimpleNamespace(n=-2)))
    assert launched(hip)["args"] == [address(array), struct.pack("<i", 7).hex(), struct.pack("<h", -2).hex()]


@pytest.mark.parametrize(
    ("dtype", "value", "packed"),
    [
        ("i8", -128, b"\x80"),
        ("u8", 255, b"\xff"),
        ("i16", -2, struct.pack("<h", -2)),
        ("u16", 65535, b"\xff\xff"),
        ("i32", -(2**31), struct.pack("<i", -(2**31))),
        ("u32", 2**32 - 1, b"\xff" * 4),
        ("i64", -(2**63), struct.pack("<q", -(2**63))),
        ("u64", 2**64 - 1, b"\xff" * 8),
        ("i32", np.int64(5), struct.pack("<i", 5)),
        ("f64", 0.1, struct.pack("<d", 0.1)),
        ("f32", 0.1, struct.pack("<f", 0.1)),
        ("f32", 3, struct.pack("<f", 3)),
        ("f32", np.float32(0.25), struct.pack("<f", 0.25)),
        ("f32", math.inf, struct.pack("<f", math.inf)),
        ("bf16", -math.inf, struct.pack("<H", 0xFF80)),
        ("bf16", 1.0, struct.pack("<H", 0x3F80)),
        ("bf16", 1.00390625, struct.pack("<H", 0x3F80)),  # halfway: to even
        ("bf16", 1.00390625 + 2**-40, struct.pack("<H", 0x3F81)),  # a float32 on the way would lose the tail
        ("bool", True, b"\x01"),
        ("bool", 0, b"\x00"),
        ("bool", np.bool_(True), b"\x01"),
    ],
)
def test_scalar(table: Any, hip: FakeHip, dtype: str, value: Any, packed: bytes) -> None:
    getattr(table, f"scalar_{dtype}")(value)
    assert launched(hip)["args"] == [packed.hex()]


def test_f16_rounds_as_numpy(table: Any, hip: FakeHip) -> None:
    rng = np.random.default_rng(1)
    values = [*rng.normal(0, 1, 200), *(2.0 ** rng.uniform(-27, 15.9, 200)), 2**-24, 2**-25, 2**-25 * 1.0001, 65504.0, -0.0, 6e-8, 65519.9]
    for value in values:
        table.scalar_f16(float(value))
        assert launched(hip)["args"] == [np.float64(value).astype(np.float16).tobytes().hex()], value
    table.scalar_f16(math.nan)
    assert math.isnan(np.frombuffer(bytes.fromhex(launched(hip)["args"][0]), np.float16)[0])


@pytest.mark.parametrize(
    ("dtype", "value", "error", "text"),
    [
        ("i8", 128, OverflowError, "argument x must be i8, got 128, which is out of its range"),
        ("u8", -1, OverflowError, "argument x must be u8, got -1, which is out of its range"),
        ("u64", 2**64, OverflowError, "got 18446744073709551616, which is out of its range"),
        ("i64", 2**63, OverflowError, "out of its range"),
        ("i32", 1.0, TypeError, "argument x must be i32, got a value of type float"),
        ("i32", True, TypeError, "argument x must be i32, got a value of type bool"),
        ("f32", True, TypeError, "argument x must be f32, got a value of type bool"),
        ("f32", "1", TypeError, "argument x must be f32, got a value of type str"),
        ("f32", 1e39, OverflowError, "argument x must be f32, got 1e+39, which is out of its range"),
        ("f16", 65520.0, OverflowError, "argument x must be f16"),
        ("bf16", 1e39, OverflowError, "argument x must be bf16"),
        ("f64", 10**400, OverflowError, "argument x must be f64"),
        ("bool", 2, OverflowError, "argument x must be bool, got 2, which is out of its range"),
        ("bool", 1.0, TypeError, "argument x must be bool, got a value of type float"),
        ("bool", "x", TypeError, "argument x must be bool, got a value of type str"),
    ],
)
def test_scalar_refused(table: Any, hip: FakeHip, dtype: str, value: Any, error: type[Exception], text: str) -> None:
    message = refused(error, getattr(table, f"scalar_{dtype}"), value)
    assert message.startswith(f"scalar_{dtype}(): ")
    assert text in message
    assert hip.events("launch") == []


# ---- streams and pointers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        (None, 0),
        (0x1234, 0x1234),
        (SimpleNamespace(cuda_stream=0x77), 0x77),
        (SimpleNamespace(__cuda_stream__=lambda: (0, 0x99)), 0x99),
        (SimpleNamespace(value=None), 0),
        (SimpleNamespace(value=3), 3),
        (SimpleNamespace(value=SimpleNamespace(cuda_stream=0x55)), 0x55),
    ],
)
def test_stream(table: Any, hip: FakeHip, stream: Any, handle: int) -> None:
    a = np.zeros((1, 1), np.float32)
    table.vector_add(a, a, a, stream)
    assert launched(hip)["stream"] == handle


@pytest.mark.parametrize("stream", ["s", 1.5, True, SimpleNamespace(value="s"), object()])
def test_stream_refused(table: Any, stream: Any) -> None:
    a = np.zeros((1, 1), np.float32)
    assert "vector_add(): argument stream must be a stream, got a value of type" in refused(TypeError, table.vector_add, a, a, a, stream)


def test_pointer(table: Any, hip: FakeHip) -> None:
    buffer = np.zeros(64, np.float32)
    place = buffer.ctypes.data + -buffer.ctypes.data % 16
    aligned = buffer[(place - buffer.ctypes.data) // 4 :]
    for pointer in (place, ctypes.c_void_p(place), SimpleNamespace(value=place), SimpleNamespace(data_ptr=lambda: place), aligned):
        table.at(pointer)
        assert launched(hip)["args"] == [struct.pack("<Q", place).hex()]
    table.at(ctypes.c_void_p(0))
    assert launched(hip)["args"] == ["00" * 8]
    text = refused(ValueError, table.at, place + 4)
    assert text == f"at(): argument p must be ptr<f32>@16, got a pointer: the data is at {place + 4:#x}, which is not aligned to 16 bytes"
    assert "the dtype is f64, not f32" in refused(TypeError, table.at, aligned.view(np.float64))
    assert "got a value of type bool" in refused(TypeError, table.at, True)
    assert "got a value of type NoneType" in refused(TypeError, table.at, None)


# ---- checks of tensors -----------------------------------------------------------------------------------------------


def f32(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, np.float32)


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ((f32(20, 8), f32(20, 8), f32(20, 8).astype(np.float64)), TypeError, "argument C must be f32[M, N : ?, 1], got f64[20, 8 : 8, 1]: the dtype is f64, not f32"),
        ((f32(20, 8), f32(20), f32(20, 8)), TypeError, "argument B must be f32[M, N : ?, 1], got f32[20 : 1]: the rank is 1, not 2"),
        ((f32(20, 8), f32(21, 8), f32(20, 8)), ValueError, "argument B must be f32[M, N : ?, 1], got f32[21, 8 : 8, 1]: M is 20 in A but 21 in B"),
        ((f32(20, 8), f32(20, 8), f32(8, 20).T), ValueError, "stride 1 is 20, not 1"),
        ((f32(20, 8), f32(20, 8)[::-1], f32(20, 8)), ValueError, "argument B must be f32[M, N : ?, 1], got f32[20, 8 : -8, 1]: stride 0 is negative"),
        ((f32(20, 8), f32(20, 8).astype(">f4"), f32(20, 8)), TypeError, "argument B must be f32[M, N : ?, 1]: its elements are byte-swapped (format '>f')"),
        ((f32(20, 8), "x", f32(20, 8)), TypeError, "argument B must be f32[M, N : ?, 1], got a value of type str"),
        ((f32(20, 8), None, f32(20, 8)), TypeError, "argument B must be f32[M, N : ?, 1], got a value of type NoneType"),
        ((f32(20, 8), np.zeros((20, 8), "M8[s]"), f32(20, 8)), TypeError, "argument B must be f32[M, N : ?, 1]"),
        ((f32(20, 8), np.zeros((20, 8), "f4,i4")["f0"], f32(20, 8)), ValueError, "stride 1 is 2, not 1"),
        ((f32(20, 8), np.frombuffer(b"\0" * 644, np.uint8)[1:641].view(np.float32).reshape(20, 8), f32(20, 8)), ValueError, "which is not aligned to 4 bytes"),
    ],
)  # fmt: skip
def test_vector_add_refused(table: Any, hip: FakeHip, arguments: tuple[Any, ...], error: type[Exception], text: str) -> None:
    message = refused(error, table.vector_add, *arguments)
    assert message.startswith("vector_add(): ")
    assert text in message
    assert hip.events("launch") == []


def test_static(table: Any, hip: FakeHip) -> None:
    table.static(f32(2, 3))
    launched(hip)
    message = refused(ValueError, table.static, f32(2, 4))
    assert message == "static(): argument A must be f32[2, 3], got f32[2, 4 : 4, 1]: extent 1 is 4, not 3"


def test_divisibility_names_and_alignment(table: Any, hip: FakeHip) -> None:
    torch = pytest.importorskip("torch")
    room = torch.zeros(64 * 128 + 64, dtype=torch.bfloat16)
    start = (-room.data_ptr() % 16) // 2
    b = room[start : start + 64 * 128].view(64, 128)[:, :16]
    a = torch.zeros(3, 64, dtype=torch.bfloat16)[:, :16]
    assert a.data_ptr() % 16 == 0
    table.gemm(a, b)
    assert launched(hip)["args"][1] == struct.pack("<iiq", 3, 16, 64).hex()
    expected = "gemm(): argument A must be bf16[M, K%8 : lda%8, 1]@16"
    odd = torch.zeros(3, 13, dtype=torch.bfloat16)
    assert refused(ValueError, table.gemm, odd, b) == f"{expected}, got bf16[3, 13 : 13, 1]: extent 1 is 13, which is not divisible by 8"
    ragged = torch.zeros(3, 18, dtype=torch.bfloat16)[:, :16]
    assert "stride 0 is 18, which is not divisible by 8" in refused(ValueError, table.gemm, ragged, b)
    assert "stride 0 is 16, not 128" in refused(ValueError, table.gemm, a, b.contiguous())
    assert "K is 16 in A but 8 in B" in refused(ValueError, table.gemm, a, b[:, :8])
    assert "which is not aligned to 16 bytes" in refused(ValueError, table.gemm, torch.zeros(3, 65, dtype=torch.bfloat16)[:, 1:17][:1], b)
    assert "the dtype is i16, not bf16" in refused(TypeError, table.gemm, a.view(torch.int16), b)


def test_extents_of_0_and_1(table: Any, hip: FakeHip) -> None:
    one = np.lib.stride_tricks.as_strided(f32(8), (1, 1), (4 * 77, 4 * 99))
    table.vector_add(one, one, one)
    assert launched(hip)["args"][1][:16] == struct.pack("<ii", 1, 1).hex()
    sliced = np.zeros((20, 132), np.float32)[:1, ::5][:, :1]
    table.vector_add(sliced, sliced, sliced)
    launched(hip)
    empty = np.lib.stride_tricks.as_strided(f32(8), (0, 5), (4 * 3, 4 * 2))
    table.vector_add(empty, empty, empty)
    assert launched(hip)["args"][1][:16] == struct.pack("<ii", 0, 5).hex()


def interface(shape: tuple[int, ...], strides: tuple[int, ...] | None, typestr: str = "<i4", key: str = "__cuda_array_interface__") -> Any:
    return type("Array", (), {key: {"shape": shape, "strides": strides, "typestr": typestr, "data": (0x1000, False), "version": 3}})()


def test_tensor_without_data(table: Any) -> None:
    array = interface((2, 3), None, "<f4")
    array.__cuda_array_interface__["data"] = (0, False)
    assert refused(ValueError, table.static, array) == "static(): argument A must be f32[2, 3], got f32[2, 3 : 3, 1]: it has no data"
    array.__cuda_array_interface__["shape"] = (0,)
    assert "the rank is 1" in refused(TypeError, table.static, array)


def test_32_bits(table: Any, hip: FakeHip) -> None:
    table.cube(interface((2, 3, 2**30 - 1), (0, 0, 4)))
    launched(hip)
    assert "extent 0 does not fit in 32 bits" in refused(OverflowError, table.cube, interface((2**31, 1, 1), (4, 4, 4)))
    message = refused(OverflowError, table.cube, interface((2**16, 2**16, 1), None))
    assert "the last element is more than 2^31 - 1 elements from the first, and the kernel was compiled for 32-bit strides" in message


def test_views_of_narrow_floats(table: Any, hip: FakeHip) -> None:
    for dtype in (np.int8, np.uint8):
        table.narrow(np.zeros(3, dtype))
        launched(hip)
    assert "the dtype is i16, not f8e4m3fn" in refused(TypeError, table.narrow, np.zeros(3, np.int16))
    assert "the dtype is u8, not bool" in refused(TypeError, table.flags, np.zeros(3, np.uint8))
    table.flags(np.zeros(3, np.bool_))


# ---- where tensors come from -----------------------------------------------------------------------------------------


class OnlyDlpack:
    """A producer without any other protocol; `modern` ones know max_version."""

    def __init__(self, array: np.ndarray[Any, Any], *, modern: bool, device: tuple[int, int] = (1, 0)) -> None:
        self.array, self.modern, self.device = array, modern, device
        self.calls: list[dict[str, Any]] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **kwargs: Any) -> Any:
        self.calls.append(kwargs)
        if not self.modern and "max_version" in kwargs:
            msg = "unexpected keyword argument 'max_version'"
            raise TypeError(msg)
        return self.array.__dlpack__(**{key: value for key, value in kwargs.items() if key == "max_version"})


@pytest.mark.parametrize("modern", [True, False])
def test_dlpack(table: Any, hip: FakeHip, *, modern: bool) -> None:
    array = f32(2, 3)
    producer = OnlyDlpack(array, modern=modern)
    table.static(producer)
    assert launched(hip)["args"] == [address(array)]
    assert producer.calls == ([{"max_version": (1, 3)}] if modern else [{"max_version": (1, 3)}, {}])
    on_device = OnlyDlpack(array, modern=modern, device=(10, 0))
    table.static(on_device)
    assert on_device.calls[-1] == ({"max_version": (1, 3), "stream": -1} if modern else {"stream": -1})


def test_read_only_dlpack(table: Any, hip: FakeHip) -> None:
    array = f32(2, 3)
    array.flags.writeable = False
    table.static(OnlyDlpack(array, modern=True))
    table.static(array)
    assert len(hip.events("launch")) == 2
    assert "readonly" in refused(BufferError, table.static, OnlyDlpack(array, modern=False))


def test_read_only_memory_for_what_is_written(table: Any, hip: FakeHip) -> None:
    plain, locked = f32(4), f32(4)
    locked.flags.writeable = False

    class Device:
        __cuda_array_interface__: ClassVar = {"data": (16, True), "shape": (4,), "typestr": "<f4", "version": 3}

    forms = [locked, memoryview(locked), OnlyDlpack(locked, modern=True), Device()]
    for given in forms:
        assert refused(ValueError, table.written, plain, plain, given) == (
            "written(): argument C must be f32[?], got f32[4 : 1]: it is read-only, and the launcher writes it"
        )
        assert "argument p must be ptr<f32>, got f32[4 : 1]: it is read-only" in refused(ValueError, table.written, plain, given, plain)
        assert "argument C" in refused(ValueError, table.written.bind, plain, plain, given)
    bound = table.written.bind(locked, plain, plain)
    assert "argument C" in refused(ValueError, bound.update, C=locked)
    assert hip.events("launch") == []
    for given in forms[:3]:
        table.written(given, plain, plain)
        bound.update(A=given)
        bound()
    assert len(hip.events("launch")) == 6


def test_a_pointer_reads_on_from_its_address(table: Any, hip: FakeHip) -> None:
    plain, rows = f32(4), f32(6, 8)
    for view, got, d in ((plain[::-1], "f32[4 : -1]", 0), (rows[:, ::-1], "f32[6, 8 : 8, -1]", 1)):
        text = f"argument p must be ptr<f32>, got {got}: stride {d} is negative, of which a pointer says nothing; pass a contiguous copy, or an address as an int"
        assert refused(ValueError, table.written, plain, view, plain) == f"written(): {text}"
        assert refused(ValueError, table.written.bind, plain, view, plain) == f"written(): {text}"
    bound = table.written.bind(plain, plain, plain)
    assert "stride 0 is negative" in refused(ValueError, bound.update, p=plain[::-1])
    assert hip.events("launch") == []
    # A positive stride is the author's to pass; of one element or none, a stride means nothing.
    for view in (rows[::2, ::3], plain[::-1][:1], plain[::-1][:0]):
        table.written(plain, view, plain)
        assert launched(hip)["args"][2] == address(view)
    table.written(plain, plain[::-1].ctypes.data, plain)
    assert launched(hip)["args"][2] == address(plain[::-1])


def test_what_is_written_must_not_overlap_itself(table: Any, hip: FakeHip) -> None:
    plain, rows = f32(4), f32(2, 4)
    why = "its elements share memory, and the launcher writes it"
    # What is only read may be broadcast, and what the declaration says has this stride.
    bound = table.spread.bind(repeated(plain, 2), rows, repeated(plain, 2))
    bound()
    assert launched(hip)["args"][0] == address(plain)
    for given, d in ((repeated(plain, 2), 0), (repeated(plain, 2).T, 1)):
        shape = ", ".join(map(str, given.shape))
        strides = ", ".join(str(stride // 4) for stride in given.strides)
        text = f"argument C must be f32[?, ? : ?, ?], got f32[{shape} : {strides}]: stride {d} is 0, so {why}"
        assert refused(ValueError, table.spread, rows, given, rows) == f"spread(): {text}"
        assert refused(ValueError, table.spread.bind, rows, given, rows) == f"spread(): {text}"
        assert refused(ValueError, bound.update, C=given) == f"spread(): {text}"
        assert refused(ValueError, table.written, plain, given, plain) == (
            f"written(): argument p must be ptr<f32>, got f32[{shape} : {strides}]: stride {d} is 0, so {why}"
        )
    assert hip.events("launch") == []
    for given in (repeated(plain, 1), repeated(plain, 0), repeated(plain, 2)[:, :0], rows[:, ::-1][:, :1]):
        table.spread(rows, given, repeated(plain, 2))
        table.written(plain, given, plain)
        assert len(hip.events("launch")) == 2
        hip.clear()


def repeated(row: np.ndarray[Any, Any], times: int) -> np.ndarray[Any, Any]:
    """Return a writable array of rows that are one in memory."""
    return np.lib.stride_tricks.as_strided(row, (times, *row.shape), (0, *row.strides))


def test_masked_arrays(table: Any, hip: FakeHip) -> None:
    plain = f32(4)
    masked = np.ma.array(plain, mask=[True, False, False, False])
    why = "it is a masked array of numpy, whose mask a kernel does not see; its filled() or data is one that a kernel can read"
    bound = table.written.bind(plain, plain, plain)
    for given in (masked, np.ma.array(plain), masked[1:]):
        assert refused(TypeError, table.written, given, plain, plain) == f"written(): argument A must be f32[?]: {why}"
        assert refused(TypeError, table.written, plain, given, plain) == f"written(): argument p must be ptr<f32>: {why}"
        assert refused(TypeError, table.written.bind, given, plain, plain) == f"written(): argument A must be f32[?]: {why}"
        assert refused(TypeError, bound.update, C=given) == f"written(): argument C must be f32[?]: {why}"
    assert hip.events("launch") == []
    table.written(masked.data, plain, plain)
    assert launched(hip)["args"][0] == address(plain)


def test_dlpack_that_fails(table: Any) -> None:
    class Broken:
        def __dlpack__(self, **_: Any) -> Any:
            return "no capsule"

    class Raises:
        def __dlpack__(self, **_: Any) -> Any:
            msg = "not now"
            raise RuntimeError(msg)

    assert "argument A must be f32[2, 3]: its __dlpack__ did not return a DLPack capsule" in refused(BufferError, table.static, Broken())
    with pytest.raises(RuntimeError, match=r"^not now\n") as caught:
        table.static(Raises())
    assert caught.value.args == ("not now",)
    assert caught.value.__notes__ == ["static(): argument A must be f32[2, 3]"]


def test_cuda_array_interface(table: Any, hip: FakeHip) -> None:
    table.static(interface((2, 3), None, "<f4"))
    assert launched(hip)["args"] == [struct.pack("<Q", 0x1000).hex()]
    table.static(interface((2, 3), (12, 4), "<f4"))
    launched(hip)
    assert "byte-swapped" in refused(TypeError, table.static, interface((2, 3), None, ">f4"))
    assert "typestr" in refused(TypeError, table.static, interface((2, 3), None, "f"))
    assert "different lengths" in refused(TypeError, table.static, interface((2, 3), (4,), "<f4"))
    broken = type("Array", (), {"__cuda_array_interface__": {"shape": (1,)}})()
    assert "lacks data, shape or typestr" in refused(TypeError, table.static, broken)


def test_extension_dtypes_of_numpy(table: Any, hip: FakeHip) -> None:
    # What ml_dtypes makes: no buffer, a void typestr, and a dtype with a name.
    class Array:
        __array_interface__: ClassVar = {"shape": (4,), "strides": None, "typestr": "<V1", "data": (0x40, False), "version": 3}
        dtype = SimpleNamespace(name="float8_e4m3fn")

    table.narrow(Array())
    assert launched(hip)["args"][1] == struct.pack("<i", 4).hex()
    Array.dtype = SimpleNamespace(name="int4")
    assert "its dtype int4 of typestr '<V1' is no dtype of a kernel" in refused(TypeError, table.narrow, Array())
    Array.dtype = SimpleNamespace(name="bfloat16")  # of another size than the typestr, by which the strides are divided
    assert "its dtype bfloat16 of typestr '<V1' is no dtype of a kernel" in refused(TypeError, table.narrow, Array())


def test_torch(table: Any, hip: FakeHip) -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(20, 132)[:, :100]
    for given in (tensor, torch.nn.Parameter(torch.zeros(20, 100), requires_grad=False)):
        table.vector_add(given, given, given)
        assert launched(hip)["args"][1] == struct.pack("<iiq", 20, 100, given.stride(0)).hex()
    assert "the dtype is f64, not f32" in refused(TypeError, table.vector_add, tensor, tensor.double(), tensor)
    table.narrow(torch.zeros(3, dtype=torch.float8_e4m3fn))
    assert "the dtype is f8e5m2, not f8e4m3fn" in refused(TypeError, table.narrow, torch.zeros(3, dtype=torch.float8_e5m2))
    table.flags(torch.zeros(3, dtype=torch.bool))


@pytest.mark.filterwarnings("ignore:Sparse", "ignore:.*quantize", "ignore:.*[Nn]ested")
def test_torch_tensors_without_strided_data(table: Any, hip: FakeHip) -> None:
    torch = pytest.importorskip("torch")
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode

    class Wrapper(torch.Tensor):  # type: ignore[name-defined,misc]
        @staticmethod
        def __new__(cls, held: Any) -> Any:
            return torch.Tensor._make_wrapper_subclass(cls, held.shape, dtype=held.dtype)

        @classmethod
        def __torch_dispatch__(cls, operation: Any, *_: Any, **__: Any) -> Any:
            raise AssertionError(operation)

    dense = torch.ones(2, 3)
    with FakeTensorMode() as mode:
        fake = mode.from_tensor(dense)
    with FunctionalTensorMode():
        functional = FunctionalTensor.to_functional(dense)
    sparse = "it is a tensor of layout torch.{}; its to_dense() makes one that a kernel can read"
    nested = "it is a nested tensor of torch; torch.nested.to_padded_tensor() makes one that a kernel can read"
    quantized = "it is a quantized tensor of torch; its int_repr() or dequantize() makes one that a kernel can read"
    negated = "its negative bit is set, so its memory has its values negated; its resolve_neg() makes a tensor that a kernel can read"
    wrapper = "it is a {}, which has no data of its own; pass the tensor that it holds"
    negative = torch._neg_view(dense)
    for tensor, why in (
        (negative, negated),
        (torch.nn.Parameter(negative, requires_grad=False), negated),
        (negative.as_subclass(type("Own", (torch.Tensor,), {})), negated),
        (torch.ones(2, 3, dtype=torch.complex64).conj().imag, negated),
        (torch.quantize_per_tensor(dense, 0.1, 0, torch.quint8), quantized),
        (torch.quantize_per_channel(dense, torch.ones(2), torch.zeros(2), 0, torch.qint8), quantized),
        (torch.nested.nested_tensor([dense, dense]), nested),
        (torch.nested.nested_tensor([dense, dense], layout=torch.jagged), nested),
        (
            torch._efficientzerotensor((2, 3)),
            "it is a zero tensor of torch, which has no data; its clone() makes one that a kernel can read",
        ),
        (torch._to_functional_tensor(dense), "it is a functional tensor of torch, which has no data; launch outside of the transform"),
        (functional, wrapper.format("FunctionalTensor")),
        (Wrapper(dense), wrapper.format("Wrapper")),
        (dense.to_mkldnn(), sparse.format("_mkldnn")),
        (torch.empty(2, 3, dtype=torch.bits8), "torch does not export it: Bit types are not supported by dlpack"),
        (dense.to("meta"), "it is a meta tensor of torch, which has no data"),
        (
            fake,
            (
                "it is a fake tensor of torch, which has no data; what torch.compile and torch.export take is the launcher's op: build the "
                "wheel with torch-ops = true"
            ),
        ),
        (dense.to_sparse(), sparse.format("sparse_coo")),
        (dense.to_sparse_csr(), sparse.format("sparse_csr")),
    ):
        assert refused(TypeError, table.static, tensor) == f"static(): argument A must be f32[2, 3]: {why}"
        assert refused(TypeError, table.at, tensor) == f"at(): argument p must be ptr<f32>@16: {why}"
    assert hip.events("launch") == []
    for launcher, given in ((table.static, dense), (table.written, torch.ones(6))):
        with pytest.raises(TypeError, match="negative bit"):
            launcher.bind(*[given] * (3 if launcher is table.written else 1)).update(A=torch._neg_view(given))
    assert hip.events("launch") == []
    table.static(negative.resolve_neg())
    table.static(torch._efficientzerotensor((2, 3)).clone())
    assert len(hip.events("launch")) == 2


def test_torch_is_asked_for_the_negative_bit_without_python(table: Any, hip: FakeHip) -> None:
    torch = pytest.importorskip("torch", minversion="2.10")
    asked = []

    class Watched(torch.Tensor):  # type: ignore[name-defined,misc]
        @classmethod
        def __torch_function__(cls, function: Any, *_: Any, **__: Any) -> Any:
            asked.append(function)

    watched = torch.ones(2, 3).as_subclass(Watched)
    table.static(watched)
    table.static(watched)
    assert len(hip.events("launch")) == 2
    assert asked == []


@pytest.mark.filterwarnings("ignore:.torch.jit.script")
def test_torch_tensors_in_transforms(table: Any, hip: FakeHip) -> None:
    torch = pytest.importorskip("torch")
    dense = torch.ones(2, 3)

    def launching(tensor: Any) -> Any:
        with pytest.raises(TypeError) as caught:
            table.static(tensor)
        assert str(caught.value) == (
            "static(): argument A must be f32[2, 3]: it is a tensor in a transform of torch.func (vmap, grad, ...), which has no data; "
            "launch outside of the transform"
        )
        return tensor.sum()

    torch.vmap(launching)(dense.expand(4, 2, 3))
    torch.func.grad(launching)(dense)
    torch.func.jvp(launching, (dense,), (dense,))
    torch.func.functionalize(launching)(dense)
    assert hip.events("launch") == []
    # Of these, the memory is what they are.
    table.static(torch.nn.Parameter(dense))
    with torch.autograd.forward_ad.dual_level():
        table.static(torch.autograd.forward_ad.make_dual(dense, dense))
    assert len(hip.events("launch")) == 2


def test_freed_memory_of_torch(table: Any, hip: FakeHip) -> None:
    torch = pytest.importorskip("torch")
    freed = torch.ones(2, 3)
    freed.untyped_storage().resize_(0)
    assert refused(ValueError, table.static, freed) == "static(): argument A must be f32[2, 3], got f32[2, 3 : 3, 1]: it has no data"
    assert hip.events("launch") == []


def test_references_are_given_back(table: Any) -> None:
    array, producer = f32(2, 3), OnlyDlpack(f32(2, 3), modern=True)
    gone = weakref.ref(array)
    for _ in range(10):
        table.static(array)
        table.static(producer)
        with pytest.raises(ValueError, match="extent"):
            table.static(OnlyDlpack(f32(3, 3), modern=True))
    held = weakref.ref(producer.array)
    del array, producer
    assert gone() is None
    assert held() is None


# ---- choosing a specialization ---------------------------------------------------------------------------------------


def test_specializations(table: Any, hip: FakeHip) -> None:
    a = f32(3)
    table.choose(a)
    assert launched(hip)["kernel"] == "choose_0_kernel"
    table.choose(a, n=8)
    assert launched(hip)["kernel"] == "choose_1_kernel"
    table.choose(a.astype(np.int32))
    assert launched(hip)["kernel"] == "choose_2_kernel"
    assert refused(TypeError, table.choose, a.astype(np.int32), 8) == (
        "choose(): the arguments fit none of the 3 specializations in this wheel:\n"
        "  choose-f32-4: constexpr n is 8, not 4\n"
        "  choose-f32-8: argument A must be f32[?], got i32[3 : 1]: the dtype is i32, not f32\n"
        "  choose-i32-4: constexpr n is 8, not 4"
    )
    assert [item.name for item in table.choose.specializations] == ["choose-f32-4", "choose-f32-8", "choose-i32-4"]
    assert table.choose.specializations[2].targets == ("gfx942",)
    assert table.choose.specializations[2].arguments == {"A": "i32[?]"}


# ---- a launcher as a Python callable ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "kwargs", "text"),
    [
        ((), {}, "vector_add() missing 3 required positional arguments: 'A', 'B', and 'C'"),
        ((1,), {"B": 2}, "vector_add() missing 1 required positional argument: 'C'"),
        ((1, 2, 3, 4, 5), {}, "vector_add() takes from 3 to 4 positional arguments but 5 were given"),
        ((1,), {"A": 2}, "vector_add() got multiple values for argument 'A'"),
        ((1, 2, 3), {"D": 2}, "vector_add() got an unexpected keyword argument 'D'"),
    ],
)
def test_binding_errors(table: Any, args: tuple[Any, ...], kwargs: dict[str, Any], text: str) -> None:
    def vector_add(A: Any, B: Any, C: Any, stream: Any = None) -> None:  # noqa: N803
        del A, B, C, stream

    assert refused(TypeError, table.vector_add, *args, **kwargs) == text
    assert refused(TypeError, vector_add, *args, **kwargs).rpartition(".")[2] == text


def test_kinds_of_parameters(table: Any, hip: FakeHip) -> None:
    table.only(1, b=2, d=3)
    assert launched(hip)["args"] == [struct.pack("<i", value).hex() for value in (1, 2, 7, 3)]
    table.only(1, **{"".join("b"): 2, "".join("d"): 3, "c": 4})
    assert launched(hip)["args"] == [struct.pack("<i", value).hex() for value in (1, 2, 4, 3)]
    assert "positional-only arguments passed as keyword arguments: 'a'" in refused(TypeError, table.only, a=1, b=2, d=3)
    assert refused(TypeError, table.only, 1, 2) == "only() missing 1 required keyword-only argument: 'd'"
    assert refused(TypeError, table.only, 1, 2, 3) == "only() takes 2 positional arguments but 3 were given"


def test_introspection(table: Any) -> None:
    launcher = table.vector_add
    assert (launcher.__name__, launcher.__qualname__, launcher.__module__) == ("vector_add", "vector_add", "fake_kernels.table")
    assert launcher.__doc__ == "Add."
    assert str(inspect.signature(launcher)) == "(A, B, C, stream=None)"
    assert repr(launcher) == "<FlyDSL launcher fake_kernels.table.vector_add>"
    assert pickle.loads(pickle.dumps(launcher)) is launcher
    assert copy.deepcopy(launcher) is launcher
    assert weakref.ref(launcher)() is launcher
    assert callable(launcher)
    launcher.note = 5
    assert launcher.note == 5
    import functools
    import pydoc

    assert "Add." in pydoc.render_doc(launcher)
    assert functools.wraps(launcher)(lambda: None).__name__ == "vector_add"
    assert functools.partial(launcher, 1).func is launcher
    assert launcher.__call__ is not None


def test_factory(table: Any, hip: FakeHip) -> None:
    launcher = table.build(16)
    assert launcher is table.build(N=16, dtype="f32", tile=(1, 2))
    launcher(f32(16))
    assert launched(hip)["kernel"] == "build_0_kernel"
    launcher(f32(16), k=2)
    assert launched(hip)["kernel"] == "build_1_kernel"
    table.build(32, "i32")(np.zeros(32, np.int32))
    assert launched(hip)["kernel"] == "build_3_kernel"
    assert refused(ValueError, table.build(32), f32(16)) == (
        "build(N=32, dtype='f32', tile=(1, 2))(): argument A must be f32[32], got f32[16 : 1]: extent 0 is 16, not 32"
    )
    text = refused(ValueError, table.build, 64)
    assert text.startswith(
        "build(N=64, dtype='f32', tile=(1, 2)): the wheel was not built for these parameters, only for:\n    build(N=32, "
    )
    assert refused(TypeError, table.build) == "build(): missing a required argument: 'N'"
    assert [item.name for item in launcher.specializations] == ["build_0", "build_1"]
    assert pickle.loads(pickle.dumps(launcher)) is launcher
    assert copy.deepcopy(launcher) is launcher
    assert pickle.loads(pickle.dumps(table.build)) is table.build
    assert str(inspect.signature(launcher)) == "(A, k=1)"
    assert str(inspect.signature(table.build)) == "(N, dtype='f32', tile=(1, 2))"
    assert repr(table.build) == "<FlyDSL factory fake_kernels.table.build>"
