# SPDX-License-Identifier: Apache-2.0
"""What long-running programs do: several devices, streams, forks, signals, exits, odd tensors."""

from __future__ import annotations

import os
import re
import shutil
import struct
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import fake_hip
import numpy as np
import pytest
from synthetic import Package, tensor
from test_arguments import f32, interface, launched, refused
from test_loading import on_device

if TYPE_CHECKING:
    from collections.abc import Callable

    from fake_hip import FakeHip

# ---- streams and devices ---------------------------------------------------------------------------------------------


def test_stream_of_another_device(table: Any, hip: FakeHip) -> None:
    hip.stream(0xA2, 2)
    hip.stream(0xA0, 0)
    text = "argument stream is a stream of device 2, but the launch is on device 0"
    for stream in (0xA2, SimpleNamespace(cuda_stream=0xA2), SimpleNamespace(__cuda_stream__=lambda: (0, 0xA2))):
        assert refused(ValueError, table.vector_add, f32(2, 3), f32(2, 3), f32(2, 3), stream) == f"vector_add(): {text}"
        assert text in refused(ValueError, table.vector_add.bind, f32(2, 3), f32(2, 3), f32(2, 3), stream)
    assert "of device 0, but the launch is on device 2" in refused(ValueError, table.vector_add, *[on_device(2)] * 3, 0xA0)
    bound = table.vector_add.bind(*[on_device(2)] * 3, 0xA2)
    assert "of device 0, but the launch is on device 2" in refused(ValueError, bound.update, stream=0xA0)
    assert hip.events("launch") == []
    table.vector_add(*[on_device(2)] * 3, 0xA2)
    assert launched(hip)["device"] == 2
    hip.stream(0xA2, 0)  # destroyed, and the address used again
    table.vector_add(f32(2, 3), f32(2, 3), f32(2, 3), 0xA2)
    assert launched(hip)["device"] == 0


def test_streams_of_every_device_are_not_asked_for(table: Any, hip: FakeHip) -> None:
    for stream in (None, 0, 1, 2):  # the null stream, hipStreamLegacy, hipStreamPerThread
        table.vector_add(f32(2, 3), f32(2, 3), f32(2, 3), stream)
    assert hip.events("stream_device") == []
    table.vector_add(f32(2, 3), f32(2, 3), f32(2, 3), 0xDEAD)  # HIP does not know it: the launch would say so
    assert len(hip.events("stream_device")) == 1


# What makes the run time call an entry point, for each that can fail. Null pointers do no harm: a call that is to fail does nothing else.
CALLS = {
    "hipInit": "m.vector_add(a, a, a)",
    "hipDeviceGetAttribute": "m.vector_add(a, a, a)",
    "hipPointerGetAttributes": "m.vector_add(a, a, a)",
    "hipGetDeviceCount": "native.device_count()",
    "hipGetDevice": "native.current_device()",
    "hipSetDevice": "native.set_device(0)",
    "hipGetDevicePropertiesR0600": "native.target(0)",
    "hipModuleLoadData": "native.load_code_object(b'')",
    "hipModuleUnload": "native.unload(0)",
    "hipModuleGetFunction": "native.function(0, 'f')",
    "hipModuleGetGlobal": "native.global_variable(0, 'f')",
    "hipModuleLaunchKernel": "m.vector_add(a, a, a)",
    "hipDrvLaunchKernelEx": "m.grid(1, 1, 64, 2, 0)",
    "hipFuncSetAttribute": "m.grid(1, 1, 64, 0, 65537)",
    "hipMemcpyHtoD": "native.copy_to_device(0, b'')",
    "hipStreamIsCapturing": "native.stream_is_capturing(0x10)",
    "hipStreamGetDevice": "m.vector_add(a, a, a, 0x10)",
}
FAILING = """
import numpy as np, os, fake_hip, fake_kernels.table as m
from fake_kernels._flydsl.runtime import _native as native
hip = fake_hip.FakeHip(os.environ["HIP"])
a = np.zeros((2, 3), np.float32)
hip.memory(a.ctypes.data, a.nbytes, 1)

def left(call):
    try:
        eval(call)
        raised = "nothing"
    except Exception as error:
        raised = type(error).__name__
    return f"{raised} {hip.last_error()}"

hip.fail("hipInit", 101)
print("hipInit", left(CALLS.pop("hipInit")))
m.__flydsl__.load(0)
for name, call in CALLS.items():
    hip.fail(name, 101)
    print(name, left(call))
hip.capture(0x10)
print("null stream", left("native.stream_is_capturing(0)"))
hip.capture(None)
hip.fail("hipModuleLaunchKernel", 9)
hip.fail("hipSetDevice", 101, 1)
bound = m.vector_add.bind(a, a, a)
native.set_device(1)
print("both", left("bound()"))
"""


def test_no_error_is_left_for_others(run_python: Callable[..., Any], hip_library: Path) -> None:
    """What was answered or raised here must not be the last error that the next caller of HIP finds."""
    source = (Path(__file__).parents[2] / "native" / "hip_driver.c").read_text(encoding="utf-8")
    cannot_fail = {"hipGetLastError", "hipGetErrorName", "hipGetErrorString"}
    older = {"hipGetDeviceProperties"}  # in the place of hipGetDevicePropertiesR0600
    assert set(CALLS) == set(re.findall(r'ENTRY\("(\w+)"', source)) - cannot_fail - older
    raised = dict.fromkeys(CALLS, "DriverError")
    raised |= {"hipInit": "NoDeviceError", "hipModuleLaunchKernel": "LaunchError", "hipDrvLaunchKernelEx": "LaunchError"}
    questions = ("hipFuncSetAttribute", "hipStreamIsCapturing", "hipStreamGetDevice", "hipDeviceGetAttribute", "hipPointerGetAttributes")
    raised |= dict.fromkeys((*questions, "null stream"), "nothing") | {"both": "LaunchError"}
    found = run_call(run_python, f"CALLS = {CALLS}" + FAILING, HIP=str(hip_library), FAKE_HIP_PAGEABLE="0")
    assert found == [f"{name} {error} 0" for name, error in raised.items()]


def run_call(run_python: Callable[..., Any], script: str, **options: Any) -> list[str]:
    done = run_python(script, **options)
    assert done.returncode == 0, done.stderr
    return list(done.stdout.splitlines())


ADD = "import numpy as np, fake_kernels.table as m\na = np.zeros((2, 3), np.float32)\nm.vector_add(a, a, a, 0xDEAD)\n"


def test_a_single_device_is_asked_nothing(run_python: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    run_call(run_python, ADD + "m.vector_add(a, a, a, 0xDEAD)\n" * 3, targets="gfx942", FAKE_HIP_LOG=str(log))
    calls = [line.split()[1] for line in log.read_text().splitlines()]
    assert calls[-4:] == ["hipModuleLaunchKernel"] * 4


def test_streams_like_those_of_torch(table: Any, hip: FakeHip) -> None:
    class Stream:  # the attributes of torch.cuda.Stream, which a machine without a device cannot make
        cuda_stream = 0x77
        stream_id, device_index, device_type = 5, 0, 1

    table.at(0x1000, Stream())
    assert launched(hip)["stream"] == 0x77


def current(hip: FakeHip) -> int:
    import ctypes

    value = ctypes.c_int()
    assert hip._library.hipGetDevice(ctypes.byref(value)) == 0
    return value.value


@pytest.mark.parametrize("failing", ["hipModuleLaunchKernel", "hipSetDevice", "hipModuleLoadData", "hipModuleGetFunction"])
def test_current_device_after_an_error(package: Package, hip: FakeHip, runtime: Any, failing: str) -> None:
    import importlib

    name = "errors_" + failing.lower()
    launcher = {"name": "f", "parameters": {"A": {}}, "specializations": [{"arguments": {"A": tensor("f32", ["?", "?"])}}]}
    package.write_module(name, [launcher])
    importlib.invalidate_caches()
    module = importlib.import_module(f"fake_kernels.{name}")
    if failing.startswith(("hipModuleLaunch", "hipSet")):
        module.__flydsl__.load(2)
    hip._library.hipSetDevice(1)
    try:
        hip.fail(failing, 719)
        with pytest.raises(runtime.FlydslRuntimeError):
            module.f(on_device(2))
        assert current(hip) == 1
        module.f(on_device(2))
        assert current(hip) == 1
    finally:
        hip._library.hipSetDevice(0)


# ---- processes -------------------------------------------------------------------------------------------------------


def test_multiprocessing_fork(run_python: Any) -> None:
    script = (
        "import multiprocessing, numpy as np, fake_kernels.table as m\n"
        "a = np.zeros((2, 3), np.float32)\n"
        "def work(n):\n    m.vector_add(a, a, a); return m.__flydsl__.is_loaded()\n"
        "{}"
        "with multiprocessing.get_context('fork').Pool(2) as pool:\n    print(pool.map(work, range(4)))\n"
        "m.vector_add(a, a, a)\n"
    )
    for first in ("m.vector_add(a, a, a)\n", ""):  # the parent has loaded it, or only imported it
        assert run_call(run_python, script.format(first)) == ["[True, True, True, True]"]


def test_exit_calls_no_hip(run_python: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    script = (
        "import atexit, fake_hip, os\n" + ADD + "bound = m.vector_add.bind(a, a, a); bound()\n"
        "atexit.register(lambda: open(os.environ['FAKE_HIP_LOG'], 'a').write('exit\\n'))\n"
    )
    run_call(run_python, script, FAKE_HIP_LOG=str(log))
    lines = log.read_text().splitlines()
    assert lines[-1] == "exit"
    assert any("hipModuleLaunchKernel" in line for line in lines)


def test_signal_during_launches(run_python: Any) -> None:
    script = (
        ADD + "import signal\nseen = []\nsignal.signal(signal.SIGALRM, lambda *_: seen.append(m.vector_add(a, a, a)))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)\n"
        "bound = m.vector_add.bind(a, a, a)\n"
        "while len(seen) < 50:\n    m.vector_add(a, a, a); bound()\n"
        "signal.setitimer(signal.ITIMER_REAL, 0)\nprint('done')\n"
    )
    assert run_call(run_python, script, FAKE_HIP_NULL="1") == ["done"]
    interrupt = (
        ADD + "import signal\nsignal.setitimer(signal.ITIMER_REAL, 0.05)\n"
        "def stop(*_): raise KeyboardInterrupt\nsignal.signal(signal.SIGALRM, stop)\n"
        "try:\n    while True: m.vector_add(a, a, a)\nexcept KeyboardInterrupt:\n    m.vector_add(a, a, a); print('interrupted')\n"
    )
    assert run_call(run_python, interrupt, FAKE_HIP_NULL="1") == ["interrupted"]


def test_bound_survives_a_new_import(run_python: Any) -> None:
    script = (
        ADD + "import sys, gc\nbound = m.vector_add.bind(a, a, a)\n"
        "for name in [n for n in sys.modules if n.startswith('fake_kernels')]: del sys.modules[name]\n"
        "del m; gc.collect()\nimport fake_kernels.table as m\nm.vector_add(a, a, a); bound(); bound.update(A=a); bound(); print('done')\n"
    )
    assert run_call(run_python, script) == ["done"]


# ---- odd tensors -----------------------------------------------------------------------------------------------------


def test_negative_strides(table: Any, hip: FakeHip) -> None:
    for flipped in (f32(20, 8)[::-1], f32(20, 8)[:, ::-1]):
        assert "stride" in refused(ValueError, table.vector_add, flipped, f32(20, 8), f32(20, 8))
    table.vector_add(f32(1, 8)[::-1], f32(1, 8), f32(1, 8))  # a stride that nothing is multiplied by
    launched(hip)


def test_zero_extents(table: Any, hip: FakeHip) -> None:
    for shape in ((0, 8), (8, 0), (0, 0)):
        for empty in (f32(*shape), f32(*shape)[::-1], f32(*shape).T.copy().T):
            table.vector_add(empty, empty, empty)
            assert launched(hip)["args"][1][:16] == struct.pack("<ii", *shape).hex()
    assert "M is 0 in A but 1 in B" in refused(ValueError, table.vector_add, f32(0, 8), f32(1, 8), f32(0, 8))


def test_names_of_strides_with_extents_of_0_and_1(table: Any, hip: FakeHip) -> None:
    # lda stands in A alone; an extent of 1 or 0 says nothing about it.
    torch = pytest.importorskip("torch")
    b = torch.zeros(64 * 128 + 8, dtype=torch.bfloat16)[: 64 * 128].view(64, 128)[:, :16]
    for rows in (0, 1):
        a = torch.zeros(rows, 19, dtype=torch.bfloat16)[:, :16]
        table.gemm(a, b)
        launched(hip)


@pytest.mark.parametrize("dtype", [">f4", ">i8", ">f2"])
def test_byte_swapped(table: Any, dtype: str) -> None:
    assert "byte-swapped" in refused(TypeError, table.static, np.zeros((2, 3), dtype))


def test_large_tensors(table: Any, hip: FakeHip) -> None:
    rows, columns = 2**17, 2**16  # 2^33 elements; the strides of vector_add have 64 bits
    big = interface((rows, columns), None, "<f4")
    table.vector_add(big, big, big)
    assert launched(hip)["args"][1] == struct.pack("<iiq", rows, columns, columns).hex()
    far = interface((2, 8), (4 * 2**40, 4), "<f4")
    table.vector_add(far, far, far)
    assert launched(hip)["args"][1] == struct.pack("<iiq", 2, 8, 2**40).hex()
    wide = interface((2**31, 1), (4, 4), "<f4")
    assert "extent 0 does not fit in 32 bits" in refused(OverflowError, table.vector_add, wide, wide, wide)
    assert "compiled for 32-bit strides" in refused(OverflowError, table.cube, interface((2**16, 2**15, 2), None))
    edge = interface((2**15, 2**15, 2), None)  # exactly 2^31 elements: the last has the offset 2^31 - 1
    table.cube(edge)
    assert launched(hip)["args"][1] == struct.pack("<6i", 2**15, 2**15, 2, 2**16, 2, 1).hex()


def test_numpy_is_read_as_its_buffer_is(table: Any, hip: FakeHip) -> None:
    class Sub(np.ndarray[Any, Any]):  # read through the buffer protocol
        pass

    for dtype, launcher in (
        ("i4", table.cube),
        ("i8", table.cube),
        ("f2", table.cube),
        ("?", table.cube),
        ("M8[s]", table.cube),
        ("V4", table.cube),
    ):
        for array in (np.zeros((4, 5, 6), dtype), np.zeros((4, 5, 6), dtype)[::2, :, ::3], np.zeros((3, 5), dtype)):
            results = []
            for given in (array, array.view(Sub)):
                try:
                    launcher(given)
                    results.append(launched(hip)["args"])
                except (TypeError, ValueError) as error:
                    results.append(f"{type(error).__name__} {error}")
            assert results[0] == results[1]


def test_read_only_arrays(table: Any, hip: FakeHip) -> None:
    array = f32(20, 8)
    array.flags.writeable = False
    table.vector_add(array, array, array)
    table.vector_add(memoryview(array), array, array)
    assert len(hip.events("launch")) == 2


# ---- the driver library ----------------------------------------------------------------------------------------------

WHICH = (
    "import fake_kernels.table as m\nm.scalar_i32(1)\nprint(*sorted({l.split()[-1] for l in open('/proc/self/maps') if 'amdhip64' in l}))"
)


def test_order_of_resolution(run_python: Any, tmp_path: Path, package: Package) -> None:
    """Each place is preferred to those after it; one after the other is taken away."""
    places = {
        "setting": (tmp_path / "setting", "mine_amdhip64.so"),
        "rocm_sdk": (tmp_path / "site" / "_rocm_sdk_core" / "lib", "libamdhip64.so.7"),
        "torch": (tmp_path / "site" / "torch" / "lib", "libamdhip64.so"),
        "ROCM_PATH": (tmp_path / "rocm" / "lib", "libamdhip64.so.6"),
        "HIP_PATH": (tmp_path / "hip" / "lib", "libamdhip64.so.5"),
        "soname 7": (tmp_path / "system", "libamdhip64.so.7"),
        "soname 6": (tmp_path / "system", "libamdhip64.so.6"),
        "soname 5": (tmp_path / "system", "libamdhip64.so.5"),
        "bare name": (tmp_path / "system", "libamdhip64.so"),
    }
    for folder, soname in places.values():
        fake_hip.build(folder, soname=soname)
    for name in ("_rocm_sdk_core", "torch"):
        (tmp_path / "site" / name / "__init__.py").write_text("raise RuntimeError('the run time imports no framework')")
    setting = tmp_path / "setting" / "mine_amdhip64.so"
    environ = {"PYTHONPATH": os.pathsep.join((str(tmp_path / "site"), str(package.root.parent)))}
    environ |= {"ROCM_PATH": str(tmp_path / "rocm"), "HIP_PATH": str(tmp_path / "hip")}
    mapped = fake_hip.build(tmp_path / "mapped", soname="libamdhip64.so.6")
    first = f"import ctypes; ctypes.CDLL({str(mapped)!r})\n"
    options = {"hip": tmp_path / "system", **environ}
    assert run_call(run_python, first + WHICH, FLYDSL_BUILD_HIP_LIBRARY=str(setting), **options) == [str(mapped)]
    assert run_call(run_python, WHICH, FLYDSL_BUILD_HIP_LIBRARY=str(setting), **options) == [str(setting)]
    for name, (folder, soname) in list(places.items())[1:]:
        assert run_call(run_python, WHICH, **options) == [str(folder / soname)], name
        (folder / soname).unlink()


def test_paths_that_are_not_utf8(run_python: Any, tmp_path: Path, native: Path, hip_library: Path) -> None:
    folder = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    made = Package(Path(folder), "strange_path", native)
    made.write_module("m", [{"name": "f", "parameters": {"A": {}}, "specializations": [{"arguments": {"A": tensor("f32", ["?"])}}]}])
    library = shutil.copy(hip_library, folder)
    script = (
        f"import sys; sys.path.insert(0, {folder!r})\nimport numpy as np, strange_path.m as m\n"
        f"m.f(np.zeros(3, np.float32)); print(m.__file__ == {folder!r} + '/strange_path/m.py')\n"
    )
    assert run_call(run_python, script, hip=None, FLYDSL_BUILD_HIP_LIBRARY=library) == ["True"]


@pytest.mark.parametrize(
    ("soname", "defines"), [("libamdhip64.so.5", ("FAKE_HIP_OLD",)), ("libamdhip64.so.6", ()), ("libamdhip64.so.7", ())]
)
def test_releases_of_hip(run_python: Any, tmp_path: Path, soname: str, defines: tuple[str, ...]) -> None:
    fake_hip.build(tmp_path, *defines, soname=soname)
    script = (
        ADD
        + "print(m.__flydsl__.capability(1).target)\nprint(*{l.split('/')[-1].strip() for l in open('/proc/self/maps') if 'amdhip64' in l})"
    )
    assert run_call(run_python, script, hip=tmp_path) == ["gfx1100", soname]


# ---- what a long life leaves behind ----------------------------------------------------------------------------------


def test_no_memory_grows(run_python: Any) -> None:
    """100 000 launches, and 100 times init functions and forks, in a process that must not grow."""
    script = (
        ADD + "import os, gc\n"
        "bound = m.vector_add.bind(a, a, a)\n"
        "def resident(): return int(open('/proc/self/statm').read().split()[1]) * 4096\n"
        "def work(n):\n"
        "    for _ in range(n):\n"
        "        m.vector_add(a, a, C=a); bound(); m.vector_add(a, **{'B': a, 'C': a}); bound.update(A=a)\n"
        "def fork():\n"
        "    pid = os.fork()\n"
        "    if not pid:\n        m.vector_add(a, a, a); os._exit(0)\n"
        "    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0\n"
        "work(2000); m.__flydsl__.reinitialize(); fork(); gc.collect(); before = resident()\n"
        "work(25000)\n"
        "for _ in range(100): m.__flydsl__.reinitialize(); fork()\n"
        "gc.collect(); print((resident() - before) >> 10)\n"
    )
    (grown,) = run_call(run_python, script, FAKE_HIP_NULL="1")
    assert int(grown) <= 256
