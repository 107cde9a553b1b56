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
    """A tensor of 6 elements at 0x4000 on device 0."""

    def __init__(self, code: int, bits: int, lanes: int = 1) -> None:
        self.shape = (ctypes.c_int64 * 1)(6)
        shape = ctypes.addressof(self.shape)
        self.managed = DLTensor(data=0x4000, device_type=ROCM, ndim=1, code=code, bits=bits, lanes=lanes, shape=shape)

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
    narrow = dtype.bits < 8 or dtype.name.startswith("f8")
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
