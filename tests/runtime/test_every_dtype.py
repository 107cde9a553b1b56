# SPDX-License-Identifier: Apache-2.0
"""Every dtype of the declarations, from the grammar to a launch."""

from __future__ import annotations

import ctypes
import importlib
import struct
from typing import TYPE_CHECKING, Any

import pytest
from synthetic import DLTensor, Package

from flydsl_build.codec import encode
from flydsl_build.declare.argument_grammar import parse_argument
from flydsl_build.dtypes import DTYPE_TABLE, Dtype

if TYPE_CHECKING:
    from fake_hip import FakeHip

ROCM = 10


class Tensor:
    """A tensor of 6 elements, or of another shape, at 0x4000 on device 0."""

    def __init__(self, code: int, bits: int, lanes: int = 1, shape: tuple[int, ...] = (6,), strides: tuple[int, ...] = ()) -> None:
        self.shape, self.strides = ((ctypes.c_int64 * len(each))(*each) for each in (shape, strides))
        dims = {"shape": ctypes.addressof(self.shape), "strides": ctypes.addressof(self.strides) if strides else None}
        self.managed = DLTensor(data=0x4000, device_type=ROCM, ndim=len(shape), code=code, bits=bits, lanes=lanes, **dims)

    def __dlpack_device__(self) -> tuple[int, int]:
        return ROCM, 0

    def __dlpack__(self, **_: Any) -> Any:
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.managed), b"dltensor", None)


@pytest.fixture(scope="module")
def launchers(package: Package, hip: FakeHip) -> Any:
    del hip
    table = [
        {
            "name": f"take_{dtype.name}",
            "parameters": {"A": {}},
            "specializations": [{"arguments": {"A": encode(parse_argument(f"{dtype.name}[N]", where="K"))}}],
        }
        for dtype in DTYPE_TABLE
    ]
    more = {"rows": "f4e2m1fn[M, K%4 : ?, 1]", "columns": "f4e2m1fn[M, K : 1, ?]", "at": "ptr<f4e2m1fn>"}
    table += [
        {
            "name": name,
            "parameters": {"A": {"role": "pointer"} if name == "at" else {}},
            "specializations": [{"arguments": {"A": encode(parse_argument(text, where="K"))}}],
        }
        for name, text in more.items()
    ]
    package.write_module("every_dtype", table)
    importlib.invalidate_caches()
    return importlib.import_module(f"{package.name}.every_dtype")


@pytest.mark.parametrize("dtype", DTYPE_TABLE, ids=lambda dtype: dtype.name)
def test_launch(launchers: Any, hip: FakeHip, dtype: Dtype) -> None:
    launch = getattr(launchers, f"take_{dtype.name}")
    hip.clear()
    launch(Tensor(dtype.code, dtype.bits))
    (event,) = hip.events("launch")
    assert event["args"] == [struct.pack("<Q", 0x4000).hex(), struct.pack("<i", 6).hex()]
    narrow = dtype.bits <= 8 and not dtype.scalar
    for other in DTYPE_TABLE:
        if other == dtype:
            continue
        if narrow and other.name in {"u8", "i8"}:
            launch(Tensor(other.code, other.bits))
            continue
        with pytest.raises(TypeError) as error:
            launch(Tensor(other.code, other.bits))
        expected = f"must be {dtype.name}[N], got {other.name}[6 : 1]: the dtype is {other.name}, not {dtype.name}"
        assert str(error.value) == f"take_{dtype.name}(): argument A {expected}"


def test_by_the_names_of_numpy(launchers: Any, hip: FakeHip) -> None:
    numpy = pytest.importorskip("numpy")
    ml_dtypes = pytest.importorskip("ml_dtypes")
    served = 0
    for dtype in DTYPE_TABLE:
        kind = getattr(ml_dtypes, dtype.framework, None) or getattr(numpy, dtype.framework, None)
        if kind is None:
            continue
        hip.clear()
        getattr(launchers, f"take_{dtype.name}")(numpy.zeros(6, kind))
        assert len(hip.events("launch")) == 1
        with pytest.raises(TypeError, match=f"the dtype is {dtype.name}, not"):
            getattr(launchers, f"take_{'f64' if dtype.name == 'f32' else 'f32'}")(numpy.zeros(6, kind))
        served += 1
    assert served == sum(dtype.bits >= 8 for dtype in DTYPE_TABLE)


@pytest.mark.parametrize(
    ("name", "shape", "strides", "found"),
    [
        ("take_f4e2m1fn", (6,), (), [12]),
        ("take_f4e2m1fn", (1,), (1,), [2]),
        ("rows", (3, 8), (), [3, 16, 16]),
        ("rows", (3, 8), (20, 1), [3, 16, 40]),
        ("rows", (3, 0), (20, 1), [3, 0, 40]),
        ("columns", (8, 3), (1, 20), [16, 3, 40]),
        ("at", (3,), (2,), []),
        ("at", (), (), []),
    ],
)
def test_pairs(launchers: Any, hip: FakeHip, name: str, shape: tuple[int, ...], strides: tuple[int, ...], found: list[int]) -> None:
    """What torch counts in pairs, a kernel gets in elements, as of those who count elements."""
    launch = getattr(launchers, name)
    hip.clear()
    launch(Tensor(17, 4, 2, shape, strides))
    (event,) = hip.events("launch")
    layout = [struct.pack("<" + "iiq"[: len(found)], *found).hex()] if found else []
    assert event["args"] == [struct.pack("<Q", 0x4000).hex(), *layout]


def test_pairs_that_are_no_elements(launchers: Any) -> None:
    """Every other pair has no stride in elements, nor has an extent that is too large; other vectors are no dtype of a kernel."""
    for tensor, what in (
        (Tensor(17, 4, 2, (6,), (2,)), "got f4e2m1fn[6 : 2]: the dtype is f4e2m1fn in vectors, not f4e2m1fn"),
        (Tensor(17, 4, 4, (6,)), "got f4e2m1fn[6 : 1]: the dtype is f4e2m1fn in vectors, not f4e2m1fn"),
        (Tensor(17, 4, 2, (2**62,)), f"got f4e2m1fn[{2**63 - 1} : 1]: extent 0 does not fit in 32 bits"),
    ):
        with pytest.raises((TypeError, OverflowError)) as error:
            launchers.take_f4e2m1fn(tensor)
        assert str(error.value) == f"take_f4e2m1fn(): argument A must be f4e2m1fn[N], {what}"
    with pytest.raises(ValueError, match="extent 1 is 14, which is not divisible by 4"):
        launchers.rows(Tensor(17, 4, 2, (3, 7)))


def test_pairs_of_torch(launchers: Any, hip: FakeHip) -> None:
    torch = pytest.importorskip("torch")
    pairs = torch.zeros(3, 8, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    hip.clear()
    for _ in range(2):  # how a type is read is remembered
        launchers.rows(pairs)
    launchers.rows.bind(pairs)()
    assert [event["args"][1] for event in hip.events("launch")] == [struct.pack("<iiq", 3, 16, 16).hex()] * 3
