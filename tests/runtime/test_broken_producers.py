# SPDX-License-Identifier: Apache-2.0
"""Arguments whose producers leave out, or get wrong, what their protocol asks for; values that are only equal."""

from __future__ import annotations

import array
import ctypes
import importlib
import struct
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from synthetic import DLTensor, pointer, scalar, tensor
from test_arguments import f32, interface, launched, refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from fake_hip import FakeHip
    from synthetic import Package

I32 = {"A": scalar("i32")}
STRUCTS = [{"kind": "struct", "type": "Config", "fields": {"n": scalar(dtype)}} for dtype in ("i8", "i32")]
MODULE: list[dict[str, Any]] = [
    {
        "name": "numbers",
        "parameters": {"A": {}, "n": {"role": "constexpr"}},
        "specializations": [{"arguments": I32, "constexpr": {"n": n}} for n in (1, 1.0, True, 0.0, -0.0, 2, [1, 2], [True, 2])],
    },
    {
        "name": "made",
        "factory": [{"name": "n"}],
        "parameters": {"A": {}},
        "specializations": [{"arguments": I32, "params": {"n": n}} for n in (1, 1.0, True, 0.0, -0.0, 2, [1, 2], [True, 2])],
    },
    {
        "name": "structs",
        "parameters": {"config": {"role": "struct"}},
        "specializations": [{"arguments": {"config": one}} for one in STRUCTS],
    },
    {
        "name": "pointer_or_vector",
        "parameters": {"A": {}, "n": {"role": "constexpr", "default": 0}},
        "specializations": [
            {"arguments": {"A": pointer("f32", 16)}, "constexpr": {"n": 0}},
            {"arguments": {"A": tensor("f32", ["?"])}, "constexpr": {"n": 0}},
        ],
    },
    {
        "name": "vector_or_pointer",
        "parameters": {"A": {}},
        "specializations": [{"arguments": {"A": tensor("f32", ["?"])}}, {"arguments": {"A": pointer("f32", 16)}}],
    },
    {
        "name": "vector",
        "parameters": {"A": {}},
        "specializations": [{"arguments": {"A": tensor("f32", ["?"])}}],
    },
    {
        "name": "matrix",
        "parameters": {"A": {}},
        "specializations": [{"arguments": {"A": tensor("f32", ["?", "?"])}}],
    },
]


@pytest.fixture(scope="module")
def written(package: Package) -> str:
    package.write_module("broken", MODULE)
    return f"{package.name}.broken"


@pytest.fixture
def broken(written: str, table: Any) -> Any:
    del table  # which brings the fake HIP
    return importlib.import_module(written)


# ---- tensors ---------------------------------------------------------------------------------------------------------


def test_ctypes_arrays(broken: Any, table: Any, hip: FakeHip) -> None:
    line = (ctypes.c_float * 5)()
    broken.vector(line)
    assert launched(hip)["args"] == [struct.pack("<Q", ctypes.addressof(line)).hex(), struct.pack("<iq", 5, 1).hex()[:8]]
    rows = ((ctypes.c_float * 5) * 3)()
    broken.matrix(rows)
    assert launched(hip)["args"][1] == struct.pack("<iiq", 3, 5, 5).hex()
    aligned = (ctypes.c_float * 64)()
    place = -ctypes.addressof(aligned) % 16 // 4
    table.at((ctypes.c_float * 4).from_buffer(aligned, 4 * place))
    assert launched(hip)["args"] == [struct.pack("<Q", ctypes.addressof(aligned) + 4 * place).hex()]
    assert "the dtype is i32, not f32" in refused(TypeError, broken.vector, (ctypes.c_int * 5)())


def capsule_producer(managed: DLTensor) -> Any:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    members = {"__dlpack_device__": lambda _: (1, 0), "__dlpack__": lambda _, **__: new(ctypes.addressof(managed), b"dltensor", None)}
    return type("Producer", (), members)()


def test_dlpack_without_a_shape(broken: Any, table: Any) -> None:
    strides = (ctypes.c_int64 * 2)(1, 1)
    for address in (None, ctypes.addressof(strides)):
        managed = DLTensor(data=0x1000, device_type=1, ndim=1, code=2, bits=32, lanes=1, strides=address)
        for launcher in (broken.vector, table.at):
            text = refused(BufferError, launcher, capsule_producer(managed))
            assert text.startswith(f"{launcher.__name__}(): argument ")
            assert "a tensor of rank 1 without a shape" in text


def test_negative_extents(broken: Any, hip: FakeHip) -> None:
    for strides in (None, (4,)):
        text = refused(ValueError, broken.vector, interface((-5,), strides, "<f4"))
        assert text.startswith("vector(): argument A must be f32[?")
        assert text.endswith("extent 0 is negative")
    assert hip.events("launch") == []


def test_array_interfaces(broken: Any, hip: FakeHip) -> None:
    masked = interface((5,), None, "<f4")
    masked.__cuda_array_interface__["mask"] = None
    broken.vector(masked)
    launched(hip)
    masked.__cuda_array_interface__["mask"] = masked
    assert "vector(): argument A must be f32[?" in (text := refused(TypeError, broken.vector, masked))
    assert "its array interface has a mask" in text
    text = refused(TypeError, broken.vector, interface((5,), None, "|V4"))
    assert text.startswith("vector(): argument A must be ")
    assert "typestr '|V4'" in text


@pytest.mark.parametrize("typestr", ["<f4294967300", "<f4abc", "xf4", "<f 4", "<f+4", "<f04", "<f3", "<f"])
def test_typestr(broken: Any, typestr: str) -> None:
    text = refused(TypeError, broken.vector, interface((5,), None, typestr))
    assert text.endswith(f"its array interface has the typestr '{typestr}'")


def test_array_interface_that_is_changed_while_it_is_read(broken: Any, hip: FakeHip) -> None:
    items: dict[str, Any] = {}

    class Five:
        def __index__(self) -> int:
            items.clear()
            return 5

    class Array:
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            # Tuples that only the dict has.
            items.update(shape=tuple([Five()]), strides=tuple([4]), typestr="<f" + str(4), data=tuple([0x1000, False]))  # noqa: C409
            return items

    for _ in range(100):
        broken.vector(Array())
        assert launched(hip)["args"][0] == struct.pack("<Q", 0x1000).hex()


def test_protocols_of_one_object(broken: Any, hip: FakeHip) -> None:
    line = f32(5)
    one = interface((5,), None, "<f4").__cuda_array_interface__
    broken.vector(SimpleNamespace(__cuda_array_interface__=one))
    assert launched(hip)["args"][0] == struct.pack("<Q", 0x1000).hex()
    capsule = {"__dlpack_device__": line.__dlpack_device__, "__dlpack__": line.__dlpack__}
    broken.vector(SimpleNamespace(**capsule))
    assert launched(hip)["args"][0] == struct.pack("<Q", line.ctypes.data).hex()
    for none in (SimpleNamespace(), SimpleNamespace(__dlpack__=None)):
        assert refused(TypeError, broken.vector, none).endswith("got a value of type SimpleNamespace")


def test_scalars_of_numpy_are_no_memory(broken: Any, table: Any, hip: FakeHip) -> None:
    table.at(np.uint64(0x1000))
    assert launched(hip)["args"] == [struct.pack("<Q", 0x1000).hex()]
    assert refused(TypeError, table.at, np.float32(1)) == "at(): argument p must be ptr<f32>@16, got a value of type float32"
    assert refused(TypeError, broken.vector, np.float32(1)).endswith("got a value of type float32")


def test_pointer_without_data(table: Any, hip: FakeHip) -> None:
    array = interface((5,), None, "<f4")
    array.__cuda_array_interface__["data"] = (0, False)
    text = refused(ValueError, table.at, array)
    assert text == "at(): argument p must be ptr<f32>@16, got f32[5 : 1]: it has no data"
    array.__cuda_array_interface__["shape"] = (0,)
    table.at(array)
    assert launched(hip)["args"] == ["00" * 8]


def test_exceptions_of_producers(broken: Any) -> None:
    class WeirdError(ValueError):
        def __str__(self) -> str:
            raise KeyError

    class Array:
        def __dlpack__(self, **_: Any) -> Any:
            raise WeirdError

    with pytest.raises(ValueError, match=r"^vector\(\): argument A must be f32\[.*\]: WeirdError$") as caught:
        broken.vector(Array())
    assert isinstance(caught.value.__cause__, WeirdError)
    assert caught.value.__cause__.__traceback__ is not None
    with pytest.raises(TypeError, match="typestr") as caught_ours:
        broken.vector(interface((5,), None, "|V4"))
    assert caught_ours.value.__cause__ is None


def test_keywords_that_are_no_strings(broken: Any, table: Any) -> None:
    bound = table.scalar_i32.bind(1)
    keywords: Any = {1: 2}
    for call in (broken.vector, broken.vector.__call__, broken.vector.bind, bound, bound.__call__, bound.update):
        with pytest.raises(TypeError, match=r"keywords must be strings$"):
            call(**keywords)


@pytest.mark.parametrize("device", [(), 5, None])
def test_dlpack_device(broken: Any, device: Any) -> None:
    members = {"__dlpack_device__": lambda _: device, "__dlpack__": lambda _, **__: f32(5).__dlpack__()}
    text = refused(TypeError, broken.vector, type("Producer", (), members)())
    assert text.startswith("vector(): argument A must be ")
    assert "its __dlpack_device__ did not return (type, device)" in text


@pytest.mark.parametrize("pair", [(0,), (), 5])
def test_cuda_stream(table: Any, pair: Any) -> None:
    text = refused(TypeError, table.at, 0x1000, SimpleNamespace(__cuda_stream__=lambda: pair))
    assert text.startswith("at(): argument stream must be ")
    assert "its __cuda_stream__ did not return (version, handle)" in text


def test_bound_buffers_keep_their_size(broken: Any, hip: FakeHip) -> None:
    numbers = array.array("f", [0] * 5)
    bound = broken.vector.bind(numbers)
    refused(BufferError, numbers.extend, [0] * 100_000)
    bound()
    assert launched(hip)["args"][0] == struct.pack("<Q", numbers.buffer_info()[0]).hex()
    bound.update(A=f32(5))
    numbers.extend([0] * 100)
    bound.update(A=numbers)
    refused(BufferError, numbers.append, 0)
    del bound
    numbers.append(0)


# ---- values that are equal, but not of one type ----------------------------------------------------------------------

VALUES = [1, 1.0, True, 0.0, -0.0, 2, (1, 2), (True, 2)]


def test_constexpr_of_the_same_type(broken: Any, hip: FakeHip) -> None:
    for position, value in enumerate(VALUES):
        broken.numbers(0, value)
        assert launched(hip)["kernel"] == f"numbers_{position}_kernel", value
    for near, position in ((np.int64(2), 5), (0, 3)):
        broken.numbers(0, near)
        assert launched(hip)["kernel"] == f"numbers_{position}_kernel", near
    for other in (2.0, (1.0, 2)):
        assert "the wheel was not built for these constexpr values" in refused(ValueError, broken.numbers, 0, other)


def test_factory_parameter_of_the_same_type(broken: Any, hip: FakeHip) -> None:
    for position, value in enumerate(VALUES):
        broken.made(value)(0)
        assert launched(hip)["kernel"] == f"made_{position}_kernel", value
    broken.made(np.int64(2))(0)
    assert launched(hip)["kernel"] == "made_5_kernel"
    assert "the wheel was not built for these parameters" in refused(ValueError, broken.made, 2.0)


def test_arrays_are_no_constants(broken: Any, table: Any) -> None:
    assert refused(ValueError, broken.numbers, 0, f32(2)).startswith("numbers(n=array(")
    assert refused(ValueError, table.choose, f32(2), f32(2)).startswith("choose(n=array(")
    assert "the wheel was not built for these parameters" in refused(ValueError, broken.made, f32(2))


# ---- what is said, and what is let through ---------------------------------------------------------------------------


@pytest.mark.parametrize("config", [None, {"n": 1}, SimpleNamespace(m=1)])
def test_struct_without_a_field(broken: Any, table: Any, config: Any) -> None:
    text = refused(TypeError, broken.structs, config)
    assert text.startswith("structs(): the arguments fit none of the 2 specializations")
    kind = type(config).__name__
    assert text.count(f"argument config must have a field n, got a value of type {kind}") == 2
    text = refused(TypeError, table.structured, SimpleNamespace(A=f32(3), inner=config))
    assert text == f"structured(): argument p.inner must have a field n, got a value of type {kind}"


def test_pointer_of_another_specialization(broken: Any, hip: FakeHip) -> None:
    broken.vector_or_pointer(0x1000)
    assert launched(hip)["kernel"] == "vector_or_pointer_1_kernel"
    # What was read as a bare address is no tensor, and is not taken for one.
    assert refused(TypeError, broken.pointer_or_vector, 0x1001) == (
        "pointer_or_vector(): the arguments fit none of the 2 specializations in this wheel:\n"
        "  pointer_or_vector_0: argument A must be ptr<f32>@16, got a pointer: the data is at 0x1001, which is not aligned to 16 bytes\n"
        "  pointer_or_vector_1: argument A must be f32[?], got a value of type int"
    )
    assert hip.events("launch") == []


def test_struct_of_another_specialization(broken: Any, hip: FakeHip) -> None:
    broken.structs(SimpleNamespace(n=1000))
    assert launched(hip)["kernel"] == "structs_1_kernel"


@pytest.mark.parametrize("error", [KeyboardInterrupt, RecursionError, MemoryError, SystemExit])
@pytest.mark.parametrize("dtype", ["i32", "u8", "f32", "bool"])
def test_exceptions_of_scalars(table: Any, dtype: str, error: type[BaseException]) -> None:
    def fail(_: object) -> None:
        raise error

    value = type("Number", (), {"__index__": fail, "__float__": fail})()
    with pytest.raises(error):
        getattr(table, f"scalar_{dtype}")(value)


def test_large_blocks_are_named(table: Any) -> None:
    for size in (1025, 65535, 65536, 2**31):
        text = refused_launch(table.grid, 2**31, 1, size, 0, 0)
        assert f"block ({size}, 1, 1) has more work-items than the 256" in text


def refused_launch(call: Callable[..., None], *args: Any) -> str:
    with pytest.raises(RuntimeError) as caught:
        call(*args)
    return str(caught.value)


# ---- turns -----------------------------------------------------------------------------------------------------------


def test_turns_are_given_back(runtime: Any) -> None:
    process = importlib.import_module(f"{runtime.__name__}.process")
    turn = (object(), 0)
    done: list[str] = []

    def fail() -> bool:
        raise KeyboardInterrupt

    for arguments in ((fail, list), (lambda: False, fail)):
        with pytest.raises(KeyboardInterrupt):
            process.take_turn(*turn, "m", *arguments)
    process.take_turn(*turn, "m", lambda: False, lambda: done.append("again"))
    assert done == ["again"]


def test_turn_that_is_lost_on_the_way(runtime: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    process = importlib.import_module(f"{runtime.__name__}.process")

    class Interrupted(dict[Any, int]):
        def __setitem__(self, key: Any, value: int) -> None:
            super().__setitem__(key, value)
            raise KeyboardInterrupt

    turns = process._process()
    with monkeypatch.context() as patch:
        patch.setattr(turns, "owner", Interrupted())
        with pytest.raises(KeyboardInterrupt):
            process.take_turn("module", 0, "m", lambda: False, list)
        assert not turns.owner


def test_turn_of_a_dead_thread(runtime: Any) -> None:
    process = importlib.import_module(f"{runtime.__name__}.process")
    turns = process._process()
    thread = threading.Thread(target=lambda: turns.owner.update({("dead", 0): threading.get_ident()}))
    thread.start()
    thread.join()
    done: list[str] = []
    process.take_turn("dead", 0, "m", lambda: False, lambda: done.append("mine"))
    assert done == ["mine"]
    assert ("dead", 0) not in turns.owner
