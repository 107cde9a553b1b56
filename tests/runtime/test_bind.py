# SPDX-License-Identifier: Apache-2.0
"""What `launcher.bind(...)` returns: checked and packed once, launched often."""

from __future__ import annotations

import copy
import ctypes
import gc
import pickle
import struct
import threading
import weakref
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from test_arguments import OnlyDlpack, address, f32, launched, refused
from test_loading import on_device

if TYPE_CHECKING:
    from collections.abc import Callable

    from fake_hip import FakeHip


def layout(array: np.ndarray[Any, Any]) -> str:
    return struct.pack("<iiq", *array.shape, array.strides[0] // array.itemsize).hex()


def test_launches_what_was_bound(table: Any, hip: FakeHip) -> None:
    a, b, c = f32(20, 132), f32(20, 132), f32(20, 132)
    bound = table.vector_add.bind(a, b, C=c, stream=0x50)
    assert hip.events("launch") == []
    for _ in range(2):
        assert bound() is None
        event = launched(hip)
        assert event["args"] == [address(a), layout(a), address(b), layout(b), address(c), layout(c)]
        assert event["stream"] == 0x50
    assert bound.launcher is table.vector_add
    assert bound.device == 0
    assert bound.specialization == "vector_add_0"
    assert bound.arguments["B"] is b
    assert repr(bound) == "<FlyDSL launch of vector_add_0 on device 0, bound to <FlyDSL launcher fake_kernels.table.vector_add>>"


def test_update(table: Any, hip: FakeHip) -> None:
    a, wide = f32(20, 132), f32(4, 200)[:, :8]
    bound = table.vector_add.bind(a, a, a)
    bound.update(stream=SimpleNamespace(cuda_stream=0x77))
    bound()
    assert launched(hip)["stream"] == 0x77
    assert "M is 4 in A but 20 in B" in refused(ValueError, bound.update, A=wide)
    assert "the dtype is f64, not f32" in refused(TypeError, bound.update, A=a.astype(np.float64))
    assert refused(TypeError, bound.update, D=a) == "update() got an unexpected keyword argument 'D'; vector_add() has no such parameter"
    assert "by their names" in refused(TypeError, bound.update, a)
    bound()
    assert launched(hip)["args"][1] == layout(a)
    bound.update(A=wide, B=wide, C=wide)
    bound()
    event = launched(hip)
    assert (event["args"][1], event["stream"]) == (layout(wide), 0x77)
    one = table.scalar_i32.bind(3)
    one.update(x=-1)
    one()
    assert launched(hip)["args"] == ["ffffffff"]


def test_update_chooses_again(table: Any, hip: FakeHip) -> None:
    bound = table.choose.bind(f32(3))
    bound.update(n=8)
    bound()
    assert launched(hip)["kernel"] == "choose_1_kernel"
    assert bound.specialization == "choose-f32-8"


def test_is_checked(table: Any) -> None:
    assert "missing 2 required positional arguments: 'B' and 'C'" in refused(TypeError, table.vector_add.bind, f32(2, 3))
    assert "extent 1 is 4, not 3" in refused(ValueError, table.static.bind, f32(2, 4))
    bound = table.static.bind(f32(2, 3))
    assert "takes no arguments" in refused(TypeError, bound, 1)
    assert "takes no arguments" in refused(TypeError, bound, A=1)
    assert "cannot create" in refused(TypeError, type(bound))


def test_keeps_its_tensors(table: Any, hip: FakeHip) -> None:
    class Array(np.ndarray[Any, Any]):
        pass

    array, field = f32(2, 3).view(Array), OnlyDlpack(f32(7), modern=True)
    gone, gone_field = weakref.ref(array), weakref.ref(field)
    bound = table.static.bind(array)
    structured = table.structured.bind(SimpleNamespace(A=field, inner=SimpleNamespace(n=2)))
    del array, field
    gc.collect()
    assert gone() is not None
    bound()
    structured()
    assert len(hip.events("launch")) == 2
    del bound, structured
    gc.collect()
    assert gone() is None
    assert gone_field() is None


def test_cycles_are_collected(table: Any) -> None:
    class Array(np.ndarray[Any, Any]):
        pass

    array = f32(2, 3).view(Array)
    array.bound = table.static.bind(array)
    gone = weakref.ref(array.bound)
    del array
    gc.collect()
    assert gone() is None


def test_as_an_object(table: Any) -> None:
    bound = table.static.bind(f32(2, 3))
    assert weakref.ref(bound)() is bound
    assert callable(bound)
    assert "cannot pickle" in refused(TypeError, pickle.dumps, bound)
    assert "cannot pickle" in refused(TypeError, copy.deepcopy, bound)
    import inspect

    assert str(inspect.signature(bound)) == "()"
    assert str(inspect.signature(bound.update)) == "(**arguments)"
    assert str(inspect.signature(table.static.bind)) == "(*args, **kwargs)"
    assert bound.__call__() is None
    assert "launches" in type(bound).__doc__


def test_device_is_resolved_once(table: Any, hip: FakeHip) -> None:
    bound = table.static.bind(on_device(2))
    hip.clear()
    bound()
    assert [event["device"] for event in hip.events("set_device")] == [2, 0]
    assert hip.events("launch")[0]["device"] == 2
    host = table.static.bind(f32(2, 3))
    hip._library.hipSetDevice(2)
    try:
        hip.clear()
        host()
        assert [event["device"] for event in hip.events("set_device")] == [0, 2]
        assert hip.events("launch")[0]["device"] == 0
    finally:
        hip._library.hipSetDevice(0)


def test_an_error_of_the_launch(table: Any, hip: FakeHip, runtime: Any) -> None:
    bound = table.static.bind(f32(2, 3))
    hip.fail("hipModuleLaunchKernel", 719)
    assert "hipErrorLaunchFailure (HIP error 719)" in refused(runtime.LaunchError, bound)
    bound()


def test_update_while_others_launch(table: Any, hip: FakeHip) -> None:
    hip.null(on=True)
    try:
        bound = table.static.bind(f32(2, 3))
        stop = threading.Event()

        def launch() -> None:
            while not stop.is_set():
                bound()

        threads = [threading.Thread(target=launch) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(2000):
            bound.update(A=f32(2, 3))
        stop.set()
        for thread in threads:
            thread.join(20)
    finally:
        hip.null(on=False)


def test_the_lock_can_be_kept(table: Any, hip: FakeHip) -> None:
    bound = table.static.bind(f32(2, 3))
    assert bound.releases_gil is True
    bound.releases_gil = False
    assert bound.releases_gil is False
    bound()
    assert len(hip.events("launch")) == 1
    assert "bool" in refused(TypeError, setattr, bound, "releases_gil", "no")


def test_who_may_run_during_a_launch(table: Any, hip: FakeHip) -> None:
    hip.probe(ctypes.cast(ctypes.pythonapi.PyGILState_Check, ctypes.c_void_p).value)
    try:
        array = f32(2, 3)
        bound = table.static.bind(array)
        table.static(array)
        bound()
        bound.releases_gil = False
        bound()
        table.static(array)
    finally:
        hip.probe(None)
    assert [event["probe"] for event in hip.events("launch")] == [0, 0, 1, 0]


def test_fork(run_python: Callable[..., Any]) -> None:
    script = (
        "import os, fake_kernels.table as m, fake_hip\n"
        "b = m.scalar_i32.bind(7); b()\n"
        "h = fake_hip.FakeHip('libamdhip64.so.7'); h.clear()\n"
        "if os.fork() == 0:\n    b(); print([e['event'] for e in h.events()], flush=True); os._exit(0)\n"
        "print(os.waitstatus_to_exitcode(os.wait()[1])); b(); print([e['event'] for e in h.events()])"
    )
    done = run_python(script)
    assert done.stdout.splitlines() == ["['init', 'load', 'launch']", "0", "['launch']"], done.stderr


def test_capture(table: Any, hip: FakeHip) -> None:
    bound = table.static.bind(f32(2, 3))
    hip.capture(0x10)
    try:
        bound()
    finally:
        hip.capture(None)
    assert len(hip.events("launch")) == 1


def test_zero_grid(table: Any, hip: FakeHip) -> None:
    bound = table.grid.bind(0, 5, 64, 0, 0)
    bound()
    assert hip.events("launch") == []
    bound.update(gx=2)
    bound()
    assert len(hip.events("launch")) == 1


@pytest.mark.parametrize("stream", [None, 3, SimpleNamespace(__cuda_stream__=lambda: (0, 3))])
def test_streams(table: Any, hip: FakeHip, stream: Any) -> None:
    bound = table.at.bind(0x1000, stream=stream)
    bound()
    assert launched(hip)["stream"] == (3 if stream is not None else 0)
