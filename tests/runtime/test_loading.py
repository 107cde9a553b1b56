# SPDX-License-Identifier: Apache-2.0
"""Loading: devices, init functions, files that are damaged, and what an import does."""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import fake_hip
import numpy as np
import pytest
from synthetic import E_FLAGS, Package, bundle, code_object, scalar, tensor
from test_arguments import OnlyDlpack, f32, refused

from flydsl_build.targets.processors import TARGETS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from fake_hip import FakeHip

ONE = [{"name": "one", "parameters": {"x": {}}, "specializations": [{"arguments": {"x": scalar("i32")}}]}]


@pytest.fixture
def fresh(package: Package, hip: FakeHip, request: pytest.FixtureRequest) -> Iterator[Callable[..., Any]]:
    """Write and import a module of its own for the test; `init` functions are given as callables."""
    hip.clear()
    name = "m_" + hashlib.sha256(request.node.name.encode()).hexdigest()[:12]

    def make(*init: Any, suffix: str = "", **options: Any) -> Any:
        inits = sys.modules.setdefault(f"inits_{name}", type(sys)(f"inits_{name}"))
        for number, function in enumerate(init):
            setattr(inits, f"f{suffix}{number}", function)
        names = tuple(f"inits_{name}:f{suffix}{number}" for number in range(len(init)))
        package.write_module(name + suffix, ONE, init=names, **options)
        importlib.invalidate_caches()
        return importlib.import_module(f"{package.name}.{name}{suffix}")

    yield make
    hip._library.hipSetDevice(0)


def on_device(device: int, kind: int = 10) -> OnlyDlpack:
    """A tensor that says it is on a GPU."""
    import ctypes

    class Producer(OnlyDlpack):
        def __dlpack__(self, **kwargs: Any) -> Any:
            capsule = self.array.__dlpack__(**{key: value for key, value in kwargs.items() if key == "max_version"})
            get = ctypes.pythonapi.PyCapsule_GetPointer
            get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
            place = get(capsule, b"dltensor_versioned") + 32 + 8  # behind version, context, deleter, flags: data, then the device
            (ctypes.c_int32 * 2).from_address(place)[:] = [kind, device]
            return capsule

    return Producer(f32(2, 3), modern=True, device=(kind, device))


# ---- devices ---------------------------------------------------------------------------------------------------------


def test_loads_once_for_each_device(fresh: Any, hip: FakeHip) -> None:
    module = fresh()
    assert hip.events() == []
    assert not module.__flydsl__.is_loaded()
    module.one(1)
    module.one(2)
    module.__flydsl__.load(1)
    module.one.load(1)
    assert [(event["device"], event["target"]) for event in hip.events("load")] == [(0, "gfx942"), (1, "gfx1100")]
    assert module.__flydsl__.is_loaded()
    assert module.__flydsl__.is_loaded(1)
    assert not module.__flydsl__.is_loaded(2)
    assert [event["args"] for event in hip.events("launch")] == [["01000000"], ["02000000"]]
    assert hip._library.hipGetDevice(__import__("ctypes").byref(current := __import__("ctypes").c_int())) == 0
    assert current.value == 0


def test_tensors_choose_the_device(table: Any, hip: FakeHip, runtime: Any) -> None:
    for kind in (2, 10):
        hip.clear()
        table.static(on_device(2, kind))
        (event,) = hip.events("launch")
        assert event["device"] == 2
        assert [item["device"] for item in hip.events("set_device")][-2:] == [2, 0]
    hip.fail("hipModuleLaunchKernel", 719)
    with pytest.raises(runtime.LaunchError) as caught:
        table.static(on_device(2))
    assert (caught.value.code, caught.value.name) == (719, "hipErrorLaunchFailure")
    assert str(caught.value) == (
        "static(): launch of kernel static_0_kernel on gfx942:sramecc+:xnack- (device 2), grid (1, 1, 1), block (64, 1, 1), 0 bytes of "
        "dynamic LDS: hipErrorLaunchFailure (HIP error 719)"
    )
    assert hip.events("set_device")[-1]["device"] == 0


def test_tensors_of_two_devices(table: Any) -> None:
    a, b = on_device(0), on_device(2)
    assert refused(ValueError, table.vector_add, a, a, b) == "vector_add(): argument C is on device 2, but argument A is on device 0"
    far = on_device(0, 7)
    assert "argument A is on a device of DLPack type 7, which HIP does not reach" in refused(ValueError, table.static, far)
    assert "on device 99; this run time serves" in refused(ValueError, table.static, on_device(99))
    table.vector_add(a, f32(2, 3), a)


def test_device_without_code(fresh: Any, runtime: Any, hip: FakeHip) -> None:
    module = fresh()
    text = refused(runtime.UnsupportedTargetError, module.__flydsl__.load, 3)
    assert text == (
        f"{module.__name__}: device 3 is gfx1201, and fake-kernels 1.2 has code only for gfx942, gfx1100\n"
        "    -> install a wheel of fake-kernels that was built for gfx1201, or build one with -C archs=gfx942,gfx1100,gfx1201"
    )
    assert issubclass(runtime.UnsupportedTargetError, ImportError)
    assert not module.__flydsl__.is_supported(3)
    assert module.__flydsl__.is_supported()
    capability = module.__flydsl__.capability(3)
    assert (capability.target, capability.chosen, capability.archs) == ("gfx1201", None, ("gfx942", "gfx1100"))
    assert "there is no device 9; HIP has 4" in module.__flydsl__.capability(9).reason
    assert hip.events("load") == []


def test_specialization_without_code_for_the_device(table: Any, hip: FakeHip) -> None:
    hip._library.hipSetDevice(1)
    try:
        table.choose(f32(3))
        text = refused(TypeError, table.choose, f32(3).astype(np.int32))
    finally:
        hip._library.hipSetDevice(0)
    assert text.endswith("choose-i32-4: it was not built for this device")


@pytest.mark.parametrize(
    ("targets", "device", "chosen"),
    [
        (("gfx9-4-generic", "gfx942"), "gfx942:sramecc+:xnack-", "gfx942"),
        (("gfx9-4-generic", "gfx90a"), "gfx942:sramecc+:xnack-", "gfx9-4-generic"),
        (("gfx942:xnack+", "gfx942:xnack-"), "gfx942:sramecc+:xnack-", "gfx942:xnack-"),
        (("gfx942", "gfx942:xnack-"), "gfx942:sramecc+:xnack-", "gfx942:xnack-"),
        (("gfx942:xnack+",), "gfx942:sramecc+:xnack-", None),
        (("gfx942:xnack+",), "gfx942", "gfx942:xnack+"),
        (("gfx11-generic",), "gfx1201", None),
        (("gfx94",), "gfx942", None),
    ],
)
def test_choice_of_target(runtime: Any, targets: tuple[str, ...], device: str, chosen: str | None) -> None:
    code_objects = importlib.import_module(f"{runtime.__name__}.code_objects")
    assert code_objects.choose_target(targets, device) == chosen


def test_flags(runtime: Any) -> None:
    code_objects = importlib.import_module(f"{runtime.__name__}.code_objects")
    assert code_objects.flags_fit(E_FLAGS["gfx942"], "gfx942:sramecc+:xnack-")
    assert code_objects.flags_fit(E_FLAGS["gfx942:xnack-"], "gfx942:sramecc+:xnack-")
    assert not code_objects.flags_fit(E_FLAGS["gfx942:xnack-"], "gfx942:sramecc+:xnack+")


def test_machines(runtime: Any, tmp_path: Path) -> None:
    code_objects = importlib.import_module(f"{runtime.__name__}.code_objects")
    assert {name: target.machine for name, target in TARGETS.items()} == code_objects._MACHINES
    # An entry and a manifest that agree, but not with the name of the target.
    image = code_object("gfx1100", {"k": [8]})
    data, places = bundle({"gfx942": image})
    (tmp_path / "x.hipfb").write_bytes(data)
    facts = {"offset": places["gfx942"][0], "size": len(image), "sha256": hashlib.sha256(image).hexdigest(), "e_flags": 0x41}
    text = refused(runtime.CorruptFileError, code_objects.map_code_object, str(tmp_path / "x.hipfb"), "gfx942", facts)
    assert "entry gfx942 is code of another processor: its e_flags are 0x41" in text


# ---- init functions --------------------------------------------------------------------------------------------------


def test_init(fresh: Any, hip: FakeHip, runtime: Any) -> None:
    calls: list[tuple[str, int]] = []

    def first(module: int) -> None:
        runtime.write_global(module, "factor", b"\1" * 8)
        calls.append(("first", module))

    module = fresh(first, lambda handle: calls.append(("second", handle)) or True, variables={"factor": 8, "table": 64})
    module.one(1)
    module.one(2)
    (load,) = hip.events("load")
    assert calls == [("first", load["module"]), ("second", load["module"])]
    assert [event["event"] for event in hip.events("load", "copy", "launch")] == ["load", "copy", "launch", "launch"]
    module.__flydsl__.reinitialize()
    assert len(calls) == 4
    assert len(hip.events("load")) == 1
    module.__flydsl__.reinitialize(1)
    assert len(calls) == 6
    assert len(hip.events("load")) == 2


def test_write_global_checks(fresh: Any, runtime: Any) -> None:
    texts = []

    def init(module: int) -> None:
        texts.append(refused(runtime.LoadError, runtime.write_global, module, "factor", b"123"))
        texts.append(refused(runtime.LoadError, runtime.write_global, module, "absent", b"123"))

    fresh(init, variables={"factor": 8}).one(1)
    assert texts == ["device global factor has 8 bytes, got 3", "device global absent is not found: hipErrorNotFound (HIP error 500)"]


def test_init_that_fails(fresh: Any, hip: FakeHip, runtime: Any) -> None:
    results: list[Any] = [-1, ValueError("no peers"), None]

    def init(_: int) -> Any:
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    module = fresh(init)
    where = f"init function inits_{module.__name__.rpartition('.')[2]}:f0 of {module.__name__} on device 0"
    assert refused(runtime.InitError, module.one, 1) == f"{where} returned -1"
    with pytest.raises(runtime.InitError, match="raised ValueError: no peers") as caught:
        module.one(1)
    assert isinstance(caught.value.__cause__, ValueError)
    assert [event["event"] for event in hip.events("load", "unload", "launch")] == ["load", "unload"] * 2
    module.one(1)
    assert len(hip.events("launch")) == 1


class WeirdError(Exception):
    def __str__(self) -> str:
        raise ValueError


def test_init_results(fresh: Any, runtime: Any) -> None:
    results: list[Any] = [np.int64(3), WeirdError(), np.zeros(2), True]

    def init(_: int) -> Any:
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    module = fresh(init)
    handle = module.__flydsl__
    where = f"init function inits_{module.__name__.rpartition('.')[2]}:f0 of {module.__name__} on device 0"
    assert refused(runtime.InitError, handle.load) == f"{where} returned 3"
    assert refused(runtime.InitError, handle.load) == f"{where} raised WeirdError: WeirdError"
    handle.load()  # an array is no status, though it has an `__index__`
    handle.reinitialize()


def test_reinitialize_that_fails(fresh: Any, hip: FakeHip, runtime: Any) -> None:
    results = [0, -1, -2, 0]
    module = fresh(lambda _: results.pop(0))
    bound = module.one.bind(7)
    bound()
    where = f"init function inits_{module.__name__.rpartition('.')[2]}:f0 of {module.__name__} on device 0"
    assert refused(runtime.InitError, module.__flydsl__.reinitialize) == f"{where} returned -1"
    assert not module.__flydsl__.is_loaded()
    assert refused(runtime.InitError, bound) == f"{where} returned -2"
    bound()
    module.one(8)
    assert results == []
    assert [event["event"] for event in hip.events("load", "unload", "launch")] == ["load", "launch", "launch", "launch"]


def test_init_that_forks(package: Package, run_python: Callable[..., Any]) -> None:
    (package.root.parent / "forking_init.py").write_text("import os\nchildren = []\ndef init(module): children.append(os.fork())\n")
    package.write_module("forks_init", ONE, init=("forking_init:init",))
    done = run_python(
        "import os, fake_kernels.forks_init as m, forking_init\n"
        "try: m.one(1); print('launched')\n"
        "except m.__flydsl__.load.__globals__['InitError'] as error: print(error, m.__flydsl__.is_loaded())\n"
        "if forking_init.children != [0]: os.waitpid(forking_init.children[0], 0)\n"
    )
    text = (
        f"init function forking_init:init of {package.name}.forks_init on device 0 returned in a process that it had forked, "
        "in which the module is not loaded"
    )
    assert (sorted(done.stdout.splitlines()), done.stderr) == ([f"{text} False", "launched"], "")


@pytest.mark.parametrize(
    ("entry", "skip", "text"),
    [
        ("hipGetDevice", 0, "the current device is unknown: hipErrorNotInitialized (HIP error 3)"),
        ("hipSetDevice", 0, "device 2 cannot be made current: hipErrorNotInitialized (HIP error 3)"),
        ("hipSetDevice", 1, "device 0 cannot be made current: hipErrorNotInitialized (HIP error 3)"),
        ("hipGetDevicePropertiesR0600", 0, "the target of device 2 is unknown: hipErrorNotInitialized (HIP error 3)"),
    ],
)
def test_driver_that_fails_while_loading(fresh: Any, hip: FakeHip, runtime: Any, entry: str, skip: int, text: str) -> None:
    handle = fresh().__flydsl__
    handle.is_supported()
    hip.fail(entry, 3, skip)
    with pytest.raises(runtime.LoadError) as caught:
        handle.load(2)
    assert (str(caught.value), caught.value.code, caught.value.name) == (text, 3, "hipErrorNotInitialized")
    hip.fail("hipGetDevicePropertiesR0600", 3)
    assert handle.capability(1).reason == "the target of device 1 is unknown: hipErrorNotInitialized (HIP error 3)"


@pytest.mark.parametrize("device", ["cuda:1", 1.0, np.zeros(2)])
def test_device_that_is_no_number(table: Any, device: Any) -> None:
    text = f"a device is given by its number, got {device!r}"
    for call in (table.__flydsl__.load, table.__flydsl__.reinitialize, table.vector_add.load):
        assert refused(TypeError, call, device) == text
    assert table.__flydsl__.capability(device).reason == text


def test_init_that_launches(fresh: Any, hip: FakeHip, runtime: Any) -> None:
    other = fresh(suffix="_other")
    module = fresh(lambda _: other.one(5))
    module.one(1)
    assert [event["args"][0] for event in hip.events("launch")] == ["05000000", "01000000"]

    def itself(_: int) -> None:
        again.one(1)

    again = fresh(itself, suffix="_again")
    text = refused(runtime.InitError, again.one, 1)
    assert "raised LoadError" in text
    assert "is called from its own init function on device 0" in text


def test_init_that_is_missing(package: Package, hip: FakeHip, runtime: Any) -> None:
    del hip
    package.write_module("missing_init", ONE, init=("absent_module:f",))
    importlib.invalidate_caches()
    module = importlib.import_module(f"{package.name}.missing_init")
    assert refused(runtime.InitError, module.one, 1) == (
        f"init function absent_module:f of {package.name}.missing_init needs the module absent_module, which is not installed\n"
        "    -> install the distribution that has absent_module"
    )


def test_init_whose_module_fails(package: Package, hip: FakeHip, runtime: Any) -> None:
    del hip
    (package.root.parent / "failing_init.py").write_text("import os\nos.environ['NOT_SET']\n")
    package.write_module("fails_init", ONE, init=("failing_init:f",))
    importlib.invalidate_caches()
    module = importlib.import_module(f"{package.name}.fails_init")
    assert refused(runtime.InitError, module.one, 1) == (
        f"init function failing_init:f of {package.name}.fails_init cannot be imported: KeyError: 'NOT_SET'"
    )


def test_threads_wait_for_the_one_that_loads(fresh: Any, hip: FakeHip) -> None:
    begun, go = threading.Event(), threading.Event()

    def init(_: int) -> None:
        begun.set()
        assert go.wait(20)

    module = fresh(init)
    threads = [threading.Thread(target=module.one, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    assert begun.wait(20)
    assert hip.events("launch") == []
    go.set()
    for thread in threads:
        thread.join(20)
    assert len(hip.events("load")) == 1
    assert sorted(event["args"][0] for event in hip.events("launch")) == [f"0{n}000000" for n in range(8)]


def test_init_functions_that_wait_for_each_other(fresh: Any, runtime: Any) -> None:
    barrier = threading.Barrier(2)
    modules: list[Any] = []

    def crossing(index: int) -> Callable[[int], None]:
        def init(_: int) -> None:
            barrier.wait(20) if not barrier.broken else None
            modules[1 - index].one(1)

        return init

    modules.extend([fresh(crossing(0), suffix="_a"), fresh(crossing(1), suffix="_b")])
    errors: list[Exception] = []

    def run(index: int) -> None:
        try:
            modules[index].one(1)
        except runtime.InitError as error:
            errors.append(error)
            barrier.abort()

    threads = [threading.Thread(target=run, args=(index,), daemon=True) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert "wait for each other" in str(errors[0])


# ---- what the driver refuses -----------------------------------------------------------------------------------------


def test_undefined_symbol(fresh: Any, runtime: Any) -> None:
    module = fresh(undefined=("mori_put",))
    text = refused(runtime.LoadError, module.one, 1)
    assert "hipfb, entry gfx942, on device 0 (gfx942:sramecc+:xnack-): the code object does not load" in text
    assert "hipErrorSharedObjectSymbolNotFound (HIP error 302)" in text


def test_size_of_a_global(fresh: Any, runtime: Any, package: Package, hip: FakeHip) -> None:
    module = fresh(variables={"factor": 8})
    name = module.__name__.rpartition(".")[2]
    manifest = module.__flydsl__.manifest
    manifest["units"][0]["globals"][0]["size"] = 16
    assert "device global factor has 8 bytes on device 0" in refused(runtime.LoadError, module.one, 1)
    assert [event["event"] for event in hip.events("load", "unload")] == ["load", "unload"]
    del package, name


def test_capture(fresh: Any, hip: FakeHip, runtime: Any) -> None:
    module = fresh()
    hip.capture(0x10)
    try:
        text = refused(runtime.LoadError, module.one, 1)
    finally:
        hip.capture(None)
    assert "loading it during a graph capture is an error in HIP" in text
    assert "__flydsl__.load() before the capture begins" in text
    module.__flydsl__.load()
    hip.capture(0x10)
    try:
        module.one(1)
    finally:
        hip.capture(None)
    assert len(hip.events("launch")) == 1


def test_launch_limits(table: Any, hip: FakeHip, runtime: Any) -> None:
    kernel = "grid(): launch of kernel grid_0_kernel on gfx942:sramecc+:xnack- (device 0): "
    for arguments, text in {
        (-1, 1, 64, 0, 0): "grid (-1, 1, 1) is negative",
        (1, 1, 0, 0, 0): "block (0, 1, 1) must be positive",
        (2**32, 1, 64, 0, 0): "grid (4294967296, 1, 1) times the block is more than 2^32 - 1 work-items in one dimension",
        (2**26, 1, 64, 0, 0): "grid (67108864, 1, 1) times the block is more than 2^32 - 1 work-items in one dimension",
        (1, 1, 512, 0, 0): "block (512, 1, 1) has more work-items than the 256 that the kernel was compiled for",
        (1, 1, 64, -1, 0): "cluster (-1, 1, 1) is out of range",
        (1, 1, 64, 0, -1): "-1 bytes of dynamic LDS",
    }.items():
        error = refused(runtime.LaunchError, table.grid, *arguments)
        assert error == kernel + text
    table.grid(0, 5, 64, 0, 0)
    table.grid(5, 0, 64, 0, 0)
    assert hip.events("launch") == []
    table.grid(3, 2, 128, 0, 70000)
    (event,) = hip.events("launch")
    assert (event["grid"], event["block"], event["lds"]) == ([3, 2, 1], [128, 1, 1], 70000)
    assert hip.events("attribute") == [{"event": "attribute", "attribute": 8, "value": 70000}]
    hip.clear()
    table.grid(4, 1, 64, 2, 0)
    (event,) = hip.events("launch")
    assert event["cluster"] == [2, 1, 1]


def test_required_workgroup(fresh: Any, hip: FakeHip, runtime: Any) -> None:
    text = refused(runtime.LaunchError, fresh(reqd_workgroup=(128, 1, 1)).one, 1)
    assert text.endswith("block (64, 1, 1) is not the (128, 1, 1) that the kernel was compiled for")
    fresh(reqd_workgroup=(64, 1, 1), suffix="_right").one(1)
    assert len(hip.events("launch")) == 1


def test_log(fresh: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="flydsl_build.runtime"):
        fresh(lambda _: None).one(1)
    text = caplog.text
    assert "is gfx942:sramecc+:xnack-, using gfx942" in text
    assert "loaded on device 0" in text


# ---- damaged files ---------------------------------------------------------------------------------------------------


def files(module: Any) -> dict[str, Path]:
    from pathlib import Path

    stem = module.__flydsl__._file.removesuffix(".json")
    return {"manifest": Path(f"{stem}.json"), "bundle": Path(f"{stem}.hipfb"), "library": Path(f"{stem}.launchers.elf")}


def attached(runtime: Any, module: Any, data: bytes) -> Any:
    """A handle of the module that expects the manifest `data`."""
    digest = hashlib.sha256(data).hexdigest()
    return runtime.attach(module.__name__, module.__file__, module.__flydsl__._file, digest, archs=("gfx942", "gfx1100"), load="lazy")


@pytest.mark.parametrize(
    ("file", "damage", "text"),
    [
        ("manifest", lambda data: data.replace(b"1.2", b"1.3"), "its SHA-256 is not the one in the package's Python module"),
        ("manifest", lambda _: None, "it cannot be read: No such file or directory"),
        ("library", lambda data: data[:-1], "its SHA-256 is not the one in the manifest"),
        ("library", lambda _: b"", "its SHA-256 is not the one in the manifest"),
        ("bundle", lambda _: None, "it cannot be read: No such file or directory"),
        ("bundle", lambda _: b"", "this is no clang offload bundle"),
        ("bundle", lambda data: b"CCOB" + data[4:], "this is no clang offload bundle"),
        ("bundle", lambda data: data[:30], "the header of the offload bundle is cut off"),
        ("bundle", lambda data: data[:60], "the header of the offload bundle is cut off"),
        ("bundle", lambda data: data[:4100], "ends at byte"),
        ("bundle", lambda data: data[:24] + b"\xff" * 8 + data[32:], "the header of the offload bundle is cut off"),
        ("bundle", lambda data: data[:32] + b"\xff" * 16 + data[48:], "ends at byte"),
        ("bundle", lambda data: data.replace(b"--gfx942", b"--gfx943"), "it has no entry for gfx942, only for gfx1100, gfx943"),
        ("bundle", lambda data: data.replace(b"--gfx1100", b"--gfx0942"), "only for gfx0942, gfx942"),
        (
            "bundle",
            lambda data: data[:5000] + bytes([data[5000] ^ 1]) + data[5001:],
            "the SHA-256 of entry gfx942 is not the one in the manifest",
        ),
    ],
)
def test_damaged(fresh: Any, runtime: Any, hip: FakeHip, file: str, damage: Any, text: str) -> None:
    module = fresh(padding=2000)
    path = files(module)[file]
    data = damage(path.read_bytes())
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    if text == "only for gfx0942, gfx942":  # the other entry is damaged: this device does not care
        module.one(1)
        return
    message = refused(runtime.CorruptFileError, module.one, 1)
    assert message.startswith(f"{path}: ")
    assert text in message
    assert message.endswith("-> the installed file is damaged or was edited; reinstall the package")
    assert hip.events("launch") == []


@pytest.mark.parametrize("file", ["manifest", "library", "bundle"])
@pytest.mark.parametrize("kind", ["pipe", "folder", "zero", "full"])
def test_what_is_no_file(fresh: Any, runtime: Any, file: str, kind: str) -> None:
    module = fresh()
    path = files(module)[file]
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)  # nobody ever opens its other end
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(f"/dev/{kind}")
    try:
        text = refused(runtime.CorruptFileError, module.one, 1)
    finally:  # nobody who reads the folder should find it
        if kind == "folder":
            path.rmdir()
        else:
            path.unlink()
    what = "it cannot be read: Is a directory" if kind == "folder" else "it is no regular file"
    assert text == f"{path}: {what}\n    -> the installed file is damaged or was edited; reinstall the package"


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda m: m.update(schema=3), "its schema is 3, this run time reads 2"),
        (lambda m: m["launchers"][0].update(name="two"), "it has no launcher one"),
        (
            lambda m: m["launchers"][0]["specializations"][0].update(name="two"),
            "launcher one: the call table has no specialization two at 0",
        ),
        (
            lambda m: m["launchers"][0]["specializations"][0]["arguments"].clear(),
            "launcher one: one_0 has 0 arguments, and 1 in the call table",
        ),
        (
            lambda m: m["launchers"][0]["specializations"][0]["arguments"].update(x={"kind": "tensor"}),
            "launcher one: an argument is out of range",
        ),
        (lambda m: m.pop("units"), "it has no units"),
        (lambda m: m.update(targets="gfx942"), "targets is no list"),
        (lambda m: m["units"].append(None), "units[1] is no object"),
        (lambda m: m["units"][0]["code_objects"]["gfx942"].update(offset=-1), "units[0].code_objects.gfx942.offset is no int"),
        (lambda m: m["units"][0]["code_objects"]["gfx942"].update(size=True), "units[0].code_objects.gfx942.size is no int"),
        (lambda m: m["launchers"][0]["parameters"][0].update(kind=3), "launchers[0].parameters[0].kind is no str"),
        (lambda m: m["launchers"][0]["specializations"][0].update(element=3), "launchers[0].specializations[0].element is no str"),
        (
            lambda m: m["launchers"][0]["specializations"][0]["entries"]["gfx942"]["main"].update(entry="fdb_none"),
            "it has no symbol fdb_none",
        ),
        (lambda m: m["launchers"][0]["specializations"][0]["entries"]["gfx942"]["main"].update(kernels=[7]), "IndexError"),
        (lambda m: m["units"][0]["code_objects"]["gfx942"].update(e_flags=3), "has e_flags 0x54c, its manifest says 0x3"),
        (lambda m: m["units"][0]["code_objects"]["gfx942"].update(size=3), "its manifest says 3 bytes"),
    ],
)
def test_manifest_of_another_build(package: Package, fresh: Any, runtime: Any, change: Any, text: str) -> None:
    module = fresh()
    manifest = json.loads(files(module)["manifest"].read_text())
    change(manifest)
    data = json.dumps(manifest).encode()
    files(module)["manifest"].write_bytes(data)
    handle = attached(runtime, module, data)
    assert text in refused(runtime.CorruptFileError, handle.launcher(module.one), 1)
    del package


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda m: m["launchers"][0]["specializations"][0]["slots"][0].update(size=8), "a slot has 8 bytes where 4 are packed"),
        (lambda m: m["launchers"][0]["specializations"][0]["arguments"]["x"].update(dtype="f8e4m3fn"), "an argument is out of range"),
        (
            lambda m: m["launchers"][0]["specializations"][0]["entries"]["gfx942"]["main"].update(kernels=[7]),
            "an entry launches a kernel that its code object does not have",
        ),
    ],
)
def test_call_tables_are_checked(package: Package, fresh: Any, runtime: Any, change: Any, text: str) -> None:
    module = fresh()
    data = files(module)["manifest"].read_bytes()
    manifest = json.loads(data)
    change(manifest)
    package.link(module.__name__.rpartition(".")[2], manifest)
    library = files(module)["library"]
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    data = json.dumps(json.loads(data) | {"library": manifest["library"] | {"sha256": digest}}).encode()
    files(module)["manifest"].write_bytes(data)
    handle = attached(runtime, module, data)
    assert refused(runtime.CorruptFileError, handle.launcher(module.one), 1) == (
        f"{library}: the call table is damaged: {text}\n    -> the installed file is damaged or was edited; reinstall the package"
    )


def test_calls_of_too_many_arguments(fresh: Any, runtime: Any) -> None:
    """Views of arguments lie on the stack, of which a thread may have little."""
    module = fresh()
    manifest = json.loads(files(module)["manifest"].read_text())
    launcher = manifest["launchers"][0]
    x, (specialization,) = launcher["parameters"][0], launcher["specializations"]
    launcher["parameters"] = [{**x, "name": f"x{n}"} for n in range(513)]
    specialization["arguments"] = {f"x{n}": tensor("f32", ["?"]) for n in range(513)}
    specialization["slots"] = []
    data = json.dumps(manifest).encode()
    files(module)["manifest"].write_bytes(data)
    handle = attached(runtime, module, data)
    text = refused(runtime.CorruptFileError, handle.launcher(module.one), 1)
    assert "launcher one: 513 parameters and 513 tensors; this run time passes up to 512" in text


def test_code_object_that_is_none(package: Package, runtime: Any, tmp_path: Path) -> None:
    code_objects = importlib.import_module(f"{runtime.__name__}.code_objects")
    good = code_object("gfx942", {"k": [8]})
    for image, text in {
        b"\x7fELF": "is no 64-bit little-endian ELF file",
        good[:18] + b"\x3e\0" + good[20:]: "is no AMDGPU code object (ELF machine 62, OS ABI 64)",
        b"": "is empty",
    }.items():
        data, places = bundle({"gfx942": image})
        (tmp_path / "x.hipfb").write_bytes(data)
        facts = {"offset": places["gfx942"][0], "size": len(image), "sha256": hashlib.sha256(image).hexdigest(), "e_flags": 0x54C}
        assert text in refused(runtime.CorruptFileError, code_objects.map_code_object, str(tmp_path / "x.hipfb"), "gfx942", facts)
    del package


# ---- imports, each in a process of its own ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def at_import(package: Package) -> Package:
    """The package, with a module that loads at import."""
    package.write_module("eager", ONE, load="import")
    package.write_module("narrow", ONE, load="import", targets=("gfx1100",), other_archs=("gfx942", "gfx9-4-generic"))
    return package


@pytest.mark.usefixtures("at_import")
class TestImport:
    """Import modes and driver resolution."""

    def check(self, run_python: Any, script: str, **options: Any) -> list[str]:
        done = run_python(script, **options)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    EVENTS = "\nimport fake_hip, os; print([e['event'] for e in fake_hip.FakeHip('libamdhip64.so.7').events()])"

    def test_import_loads(self, run_python: Any) -> None:
        assert self.check(run_python, "import fake_kernels.eager" + self.EVENTS) == ["['init', 'load']"]

    def test_lazy_touches_nothing(self, run_python: Any) -> None:
        script = (
            "import sys; before = set(sys.modules); import fake_kernels.{}; new = sorted(set(sys.modules) - before)\n"
            "print(new)\nprint('libamdhip64' in open('/proc/self/maps').read())"
        )
        expected = [
            "__future__",
            "fake_kernels",
            *(
                f"fake_kernels._flydsl{n}"
                for n in ("", ".runtime", ".runtime._native", ".runtime.annotations", ".runtime.driver", ".runtime.errors")
            ),
            *(f"fake_kernels._flydsl.runtime.{n}" for n in ("launcher", "module", "process")),
        ]
        for module, env in {"table": {}, "eager": {"FLYDSL_BUILD_LOAD": "lazy"}}.items():
            new, mapped = self.check(run_python, script.format(module), **env)
            assert eval(new) == sorted([*expected, f"fake_kernels.{module}"])
            assert mapped == "False"

    def test_mode_of_the_environment(self, run_python: Any) -> None:
        script = "import fake_kernels.table" + self.EVENTS
        assert self.check(run_python, script, FLYDSL_BUILD_LOAD="import") == ["['init', 'load']"]
        done = run_python(script, FLYDSL_BUILD_LOAD="never")
        assert "FLYDSL_BUILD_LOAD is 'never'; allowed: import, lazy" in done.stderr

    CALL = (
        "import fake_kernels.eager as m\n"
        "try:\n    m.one(1)\nexcept RuntimeError as error:\n    print(type(error).__name__, error)\n"
        "print(m.__flydsl__.is_supported(), m.__flydsl__.is_loaded())"
    )

    def test_no_library(self, run_python: Any) -> None:
        lines = self.check(run_python, self.CALL, hip=None)
        assert lines[0] == "NoDeviceError there is no HIP device: no usable libamdhip64 was found; tried:"
        assert any(line.startswith("    the system's library path: libamdhip64.so.7: cannot open") for line in lines)
        fix = "    -> install ROCm's HIP run time, or set FLYDSL_BUILD_HIP_LIBRARY to the path of its library"
        assert lines[-2:] == [fix, "False False"]

    def test_no_device(self, run_python: Any) -> None:
        lines = self.check(run_python, self.CALL, targets="")
        assert lines[0].startswith("NoDeviceError there is no HIP device: hipInit of ")
        assert lines[0].endswith("libamdhip64.so.7: hipErrorNoDevice (HIP error 100); tried:")
        assert lines[1].count("libamdhip64.so.7") == 1
        assert lines[2:] == [
            "    -> see whether rocminfo finds one, and HIP_VISIBLE_DEVICES; FLYDSL_BUILD_HIP_LIBRARY names another library to use",
            "False False",
        ]

    def test_unsupported_device(self, run_python: Any) -> None:
        script = "try:\n    import fake_kernels.eager\nexcept ImportError as error:\n    print(type(error).__name__, error.name, error)"
        lines = self.check(run_python, script, targets="gfx1201")
        assert lines[0].startswith("UnsupportedTargetError fake_kernels.eager fake_kernels.eager: device 0 is gfx1201")

    NARROW = (
        "import fake_kernels.narrow as m\n{}"
        "handle = m.__flydsl__\nprint(handle.is_loaded(), handle.archs, handle.is_supported())\n"
        "for call in (lambda: m.one(1), m.one.load, handle.load):\n"
        "    try:\n        call()\n    except ImportError as error:\n        print(error.name, error)\n"
    )

    @pytest.mark.parametrize(("target", "chip"), [("gfx942:sramecc+:xnack-", "gfx942"), ("gfx950:sramecc+:xnack-", "gfx950")])
    def test_only_other_modules_have_code(self, run_python: Any, target: str, chip: str) -> None:
        """The package can be imported, and the one module that has no code says so when it is used."""
        text = (
            f"fake_kernels.narrow fake_kernels.narrow: device 0 is {target}, and fake-kernels 1.2 has code of this module only for gfx1100\n"
            f"    -> install a wheel of fake-kernels in which this module was built for {chip}, or add {chip} to `archs` of its kernels and "
            "build one"
        )
        lines = self.check(run_python, self.NARROW.format("print(m.__flydsl__._parsed)\n"), targets=target)
        assert lines == ["None", "False ('gfx1100',) False", *text.splitlines() * 3]

    def test_no_module_has_code(self, run_python: Any) -> None:
        script = "try:\n    import fake_kernels.narrow\nexcept ImportError as error:\n    print(error.name, error)"
        assert self.check(run_python, script, targets="gfx1201") == [
            "fake_kernels.narrow fake_kernels.narrow: device 0 is gfx1201, and fake-kernels 1.2 has code of this module only for gfx1100",
            (
                "    -> install a wheel of fake-kernels in which this module was built for gfx1201, or add gfx1201 to `archs` of its kernels and "
                "build one"
            ),
        ]

    def test_this_module_has_code_too(self, run_python: Any) -> None:
        script = "import fake_kernels.narrow" + self.EVENTS
        assert self.check(run_python, script, targets="gfx1100") == ["['init', 'load']"]

    def test_setting(self, run_python: Any, tmp_path: Path) -> None:
        library = fake_hip.build(tmp_path, soname="mine.so")
        script = (
            "import fake_kernels.eager as m; m.one(1)\nprint([l.split('/')[-1] for l in open('/proc/self/maps') if 'mine' in l][0].strip())"
        )
        assert self.check(run_python, script, hip=None, FLYDSL_BUILD_HIP_LIBRARY=str(library)) == ["mine.so"]

    @pytest.mark.parametrize(
        ("name", "what", "detail", "example"),
        [
            ("none/lib.so", "does not exist", ": cannot open shared object file", None),
            ("rocm", "is a folder", ": cannot read file data: Is a directory", "rocm/lib/libamdhip64.so.7"),
            ("rocm/lib", "is a folder", ": cannot read file data: Is a directory", "rocm/lib/libamdhip64.so.7"),
            ("text.so", "is no shared library", ": file too short", None),
            ("other.so", "is not HIP's library", " has no symbol hipInit", None),
            ("damaged.so", "cannot be loaded", ": ", None),
            ("pipe.so", "is no regular file", ": it is no regular file", None),
        ],
    )
    def test_bad_setting(self, run_python: Any, tmp_path: Path, name: str, what: str, detail: str, example: str | None) -> None:
        library = fake_hip.build(tmp_path / "rocm" / "lib")
        (tmp_path / "text.so").write_text("libamdhip64")
        os.mkfifo(tmp_path / "pipe.so")
        (tmp_path / "damaged.so").write_bytes(library.read_bytes()[:100])
        subprocess.run(["cc", "-x", "c", "-shared", "-o", tmp_path / "other.so", "-"], input=b"int nothing;", check=True)
        setting = str(tmp_path / name)
        lines = self.check(run_python, self.CALL, FLYDSL_BUILD_HIP_LIBRARY=setting)
        assert lines[0] == (f"NoDeviceError there is no HIP device: FLYDSL_BUILD_HIP_LIBRARY is set to {setting!r}, which {what}; tried:")
        assert lines[1].startswith(f"    FLYDSL_BUILD_HIP_LIBRARY: {setting}{detail}")
        path = tmp_path / example if example else "/opt/rocm/lib/libamdhip64.so"
        assert lines[2] == f"    -> set it to the path of HIP's library, such as {path}, or unset it"

    def test_bad_setting_of_a_bare_name(self, run_python: Any) -> None:
        lines = self.check(run_python, self.CALL, FLYDSL_BUILD_HIP_LIBRARY="libnowhere.so")
        assert "FLYDSL_BUILD_HIP_LIBRARY is set to 'libnowhere.so', which is not found; tried:" in lines[0]

    def test_mapped_copy_is_preferred(self, run_python: Any, tmp_path: Path) -> None:
        mapped = fake_hip.build(tmp_path / "a", soname="libamdhip64.so.6")
        script = f"import ctypes; ctypes.CDLL({str(mapped)!r}); import fake_kernels.eager as m; m.one(1)\n"
        script += "print({l.split('/')[-1].strip() for l in open('/proc/self/maps') if 'libamdhip64' in l})"
        assert self.check(run_python, script) == ["{'libamdhip64.so.6'}"]

    def test_rocm_path(self, run_python: Any, tmp_path: Path) -> None:
        fake_hip.build(tmp_path / "lib", soname="libamdhip64.so.6")
        script = (
            "import fake_kernels.eager as m; m.one(1)\nprint([l.split()[-1] for l in open('/proc/self/maps') if 'libamdhip64' in l][0])"
        )
        assert self.check(run_python, script, ROCM_PATH=str(tmp_path)) == [str(tmp_path / "lib" / "libamdhip64.so.6")]

    def test_package_folder(self, run_python: Any, tmp_path: Path, package: Package, hip_library: Path) -> None:
        (tmp_path / "torch").mkdir()
        (tmp_path / "torch" / "__init__.py").write_text("raise RuntimeError")
        fake_hip.build(tmp_path / "torch" / "lib", soname="libamdhip64.so.7")
        script = (
            "import fake_kernels.eager as m; m.one(1)\nprint([l.split()[-1] for l in open('/proc/self/maps') if 'libamdhip64' in l][0])"
        )
        paths = os.pathsep.join(map(str, (tmp_path, package.root.parent)))
        assert self.check(run_python, script, PYTHONPATH=paths) == [str(tmp_path / "torch" / "lib" / "libamdhip64.so.7")]
        del hip_library

    def test_old_hip(self, run_python: Any, tmp_path: Path) -> None:
        fake_hip.build(tmp_path, "FAKE_HIP_OLD", "FAKE_HIP_NO_CLUSTER", soname="libamdhip64.so.5")
        script = (
            "import fake_kernels.table as m; print(m.__flydsl__.capability().target)\n"
            "try:\n    m.grid(4, 1, 64, 2, 0)\nexcept RuntimeError as error:\n    print(error)"
        )
        assert self.check(run_python, script, hip=tmp_path) == [
            "gfx942:sramecc+:xnack-",
            (
                "grid(): launch of kernel grid_0_kernel on gfx942:sramecc+:xnack- (device 0): a cluster of 2x1x1 workgroups needs "
                "hipDrvLaunchKernelEx, which this driver library does not have"
            ),
        ]

    def test_missing_symbol(self, run_python: Any, tmp_path: Path) -> None:
        library = fake_hip.build(tmp_path, "FAKE_HIP_BROKEN")
        lines = self.check(run_python, self.CALL, FLYDSL_BUILD_HIP_LIBRARY=str(library))
        assert lines[1] == f"    FLYDSL_BUILD_HIP_LIBRARY: {library} has no symbol hipModuleLaunchKernel"

    def test_fork(self, run_python: Any) -> None:
        script = (
            "import os, threading, fake_kernels.{} as m\n{}"
            "if os.fork() == 0:\n    m.one(2)\n    print('child', m.__flydsl__.is_loaded(), flush=True)\n    os._exit(0)\n"
            "print('parent', os.wait()[1])" + self.EVENTS
        )
        for module, first in {"eager": "m.one(1)\n", "eager ": ""}.items():
            lines = self.check(run_python, script.format(module, first))
            assert lines == ["child True", "parent 0", str(["init", "load", *(["launch"] if first else [])])]
        lazy = "import fake_kernels.eager as m, os\npid = os.fork()\nif not pid:\n    m.one(2)\n    os._exit(7)\nprint(os.waitstatus_to_exitcode(os.wait()[1]))"
        assert self.check(run_python, lazy, FLYDSL_BUILD_LOAD="lazy") == ["7"]

    def test_fork_while_loading(self, run_python: Any) -> None:
        script = (
            "import os, sys, threading, types, time\n"
            "inits = sys.modules['inits'] = types.ModuleType('inits'); begun = threading.Event(); go = threading.Event()\n"
            "def f(_):\n    begun.set(); go.wait(20)\n"
            "inits.f = f\n"
            "import fake_kernels.slow as m\n"
            "t = threading.Thread(target=m.one, args=(1,)); t.start(); begun.wait()\n"
            "if os.fork() == 0:\n    go.set(); m.one(2); print('child', flush=True); os._exit(0)\n"
            "print(os.waitstatus_to_exitcode(os.wait()[1])); go.set(); t.join()"
        )
        package = self._package
        package.write_module("slow", ONE, init=("inits:f",))
        assert self.check(run_python, script) == ["child", "0"]

    @pytest.fixture(autouse=True)
    def _keep_package(self, package: Package) -> None:
        self._package = package

    def test_subinterpreter(self, run_python: Any) -> None:
        name = next((name for name in ("_interpreters", "_xxsubinterpreters") if __import__("importlib.util").util.find_spec(name)), None)
        if name is None:
            pytest.skip("this Python shows no sub-interpreters")
        script = f"import {name} as i\nimport fake_kernels.eager\n"
        script += "error = None\ntry:\n    error = i.run_string(i.create(), 'import fake_kernels.table')\nexcept Exception as e:\n    error = e\nprint(error)"
        (line,) = self.check(run_python, script)[-1:]
        assert "sub-interpreter" in line or "does not support loading in subinterpreters" in line

    def test_reimport(self, run_python: Any) -> None:
        script = (
            "import sys, gc, fake_kernels.eager as a\na.one(1)\ndel sys.modules['fake_kernels.eager']\n"
            "import fake_kernels.eager as b\nassert a is b or a.one is not b.one\nb.one(2); a.one(3); del a; gc.collect(); b.one(4)\n"
            "for name in [n for n in sys.modules if n.startswith('fake_kernels')]: del sys.modules[name]\n"
            "import fake_kernels.eager as c\nc.one(5); b.one(6)" + self.EVENTS
        )
        (events,) = self.check(run_python, script)
        assert events.count("launch") == 6
        assert "unload" not in events

    def test_two_packages_share_nothing(self, run_python: Any, package: Package, native: Path) -> None:
        other = Package(package.root.parent, "other_kernels", native)
        other.write_module("eager", ONE, load="import")
        script = (
            "import fake_kernels.eager as a, other_kernels.eager as b\na.one(1); b.one(2)\nprint(type(a.one) is type(b.one))" + self.EVENTS
        )
        shared, events = self.check(run_python, script)
        assert shared == "False"
        assert events == str(["init", "load", "init", "load", "launch", "launch"])

    def test_memory_of_a_large_bundle(self, run_python: Any, package: Package) -> None:
        package.write_module("large", ONE, padding=25 << 20)
        script = (
            "import os, fake_kernels.table, fake_kernels.large as m\n"
            "fake_kernels.table.__flydsl__.load()\n"
            "def resident(): return int(open('/proc/self/statm').read().split()[1]) * 4096\n"
            "before = resident(); m.one(1); print((resident() - before) >> 20)"
        )
        (grown,) = self.check(run_python, script)
        assert int(grown) <= 27

    def test_exit_calls_nothing(self, run_python: Any) -> None:
        script = (
            "import fake_kernels.eager as m, atexit, fake_hip\nm.one(1)\nh = fake_hip.FakeHip('libamdhip64.so.7'); h.clear()\n"
            "import gc; del m; gc.collect()\nimport sys; sys.modules.pop('fake_kernels.eager'); gc.collect(); print(h.events())"
        )
        assert self.check(run_python, script) == ["[]"]


def test_tensor_is_used_by_the_manifest() -> None:
    assert tensor("f32", ["M", "N"])["strides"] == ["?", 1]
