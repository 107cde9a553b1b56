# SPDX-License-Identifier: Apache-2.0
"""The example's wheel, from a real isolated build: what is in it, and what it does in an environment that has only numpy."""

from __future__ import annotations

import base64
import csv
import email
import hashlib
import io
import os
import re
import shutil
import stat
import subprocess
import sys
import time
import zipfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from building import manifest, members, run_script

TARGETS = ("gfx942", "gfx950", "gfx1100", "gfx1201")
DEVICES = {"gfx942": "gfx942:sramecc+:xnack-", "gfx950": "gfx950:sramecc+:xnack-", "gfx1100": "gfx1100", "gfx1201": "gfx1201"}
MODULES = ("elementwise", "reduce", "scaled")
KERNELS = {
    "elementwise": ["vector_add_kernel_0", "axpy_kernel_0"],
    "reduce": ["row_softmax_kernel_0"],
    "scaled": ["scale_kernel_0"],
}
FORBIDDEN = {"flydsl", "torch", "jinja2", "setuptools", "flydsl_build"}

MEMBERS = [
    "example_pkg/__init__.py",
    "example_pkg/_flydsl/__init__.py",
    "example_pkg/_flydsl/elementwise.hipfb",
    "example_pkg/_flydsl/elementwise.json",
    "example_pkg/_flydsl/elementwise.launchers.elf",
    "example_pkg/_flydsl/reduce.hipfb",
    "example_pkg/_flydsl/reduce.json",
    "example_pkg/_flydsl/reduce.launchers.elf",
    "example_pkg/_flydsl/runtime/__init__.py",
    "example_pkg/_flydsl/runtime/_native.abi3.so",
    "example_pkg/_flydsl/runtime/annotations.py",
    "example_pkg/_flydsl/runtime/code_objects.py",
    "example_pkg/_flydsl/runtime/description.py",
    "example_pkg/_flydsl/runtime/driver.py",
    "example_pkg/_flydsl/runtime/dtypes.py",
    "example_pkg/_flydsl/runtime/enums.py",
    "example_pkg/_flydsl/runtime/errors.py",
    "example_pkg/_flydsl/runtime/factory.py",
    "example_pkg/_flydsl/runtime/launcher.py",
    "example_pkg/_flydsl/runtime/module.py",
    "example_pkg/_flydsl/runtime/process.py",
    "example_pkg/_flydsl/runtime/shape.py",
    "example_pkg/_flydsl/runtime/struct.py",
    "example_pkg/_flydsl/runtime/torch_ops.py",
    "example_pkg/_flydsl/scaled.hipfb",
    "example_pkg/_flydsl/scaled.json",
    "example_pkg/_flydsl/scaled.launchers.elf",
    "example_pkg/device_state.py",
    "example_pkg/elementwise.py",
    "example_pkg/elementwise.pyi",
    "example_pkg/reduce.py",
    "example_pkg/reduce.pyi",
    "example_pkg/scaled.py",
    "example_pkg/scaled.pyi",
    # Metadata last, RECORD at the very end.
    "example_kernels-0.1.0.dist-info/METADATA",
    "example_kernels-0.1.0.dist-info/WHEEL",
    "example_kernels-0.1.0.dist-info/sboms/flydsl-build.cdx.json",
    "example_kernels-0.1.0.dist-info/top_level.txt",
    "example_kernels-0.1.0.dist-info/RECORD",
]


USER = """
from typing import Any, assert_type

from example_pkg import reduce
from example_pkg.elementwise import vector_add

class Tensor:
    def __dlpack__(self, *, stream: int | None = None) -> Any:
        return stream
    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

a = Tensor()
vector_add(a, a, C=a, stream=5)
bound = vector_add.bind(a, a, C=a)
assert_type(bound(), None)
bound.update(A=a, stream=None)
assert_type(bound.device, int)
bound.releases_gil = False
reduce.row_softmax.bind(a, a, 3).update(rows=4)
vector_add.bind(a, a, 3.5)
vector_add.bind(a, a)
bound(a)
bound.update(D=a)
bound.update(stream="s")
bound.update(a)
"""
WRONG = {21: "arg-type", 22: "call-arg", 23: "call-arg", 24: "call-arg", 25: "arg-type", 26: "call-arg"}


# --- the file ----------------------------------------------------------------------------------------------------------


def test_members_in_order(example_wheel: Path) -> None:
    with zipfile.ZipFile(example_wheel) as archive:
        assert archive.namelist() == MEMBERS


def test_name_and_tag(example_wheel: Path) -> None:
    assert example_wheel.name == "example_kernels-0.1.0-cp311-abi3-manylinux_2_17_x86_64.whl"
    facts = email.message_from_bytes(members(example_wheel)["example_kernels-0.1.0.dist-info/WHEEL"])
    assert facts.get_all("Tag") == ["cp311-abi3-manylinux_2_17_x86_64"]
    assert facts["Root-Is-Purelib"] == "false"


def test_auditwheel_says_the_same_of_the_tag(example_wheel: Path) -> None:
    """The bundles are no ELF files, which auditwheel would refuse."""
    wheel_abi: Any = pytest.importorskip("auditwheel.wheel_abi")
    found = wheel_abi.analyze_wheel_abi(None, None, example_wheel, frozenset(), disable_isa_ext_check=False, allow_graft=False)
    assert found.overall_policy.name == example_wheel.stem.rpartition("-")[2] == "manylinux_2_17_x86_64"
    assert {library for refs in found.external_refs.values() for library in refs.libs} == set()


def test_metadata_asks_for_nothing(example_wheel: Path) -> None:
    facts = email.message_from_bytes(members(example_wheel)["example_kernels-0.1.0.dist-info/METADATA"])
    assert {name: facts.get_all(name) for name in facts if name != "Metadata-Version"} == {
        "Name": ["example-kernels"],
        "Version": ["0.1.0"],
        "Summary": ["Example FlyDSL kernels, compiled ahead of time"],
        "Requires-Python": [">=3.11"],
    }


def test_type_checker(example_wheel: Path, tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    with zipfile.ZipFile(example_wheel) as archive:
        archive.extractall(tmp_path / "site")
    (tmp_path / "site" / "example_pkg" / "py.typed").touch()
    (tmp_path / "user.py").write_text(USER, encoding="utf-8")
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"MYPYPATH": str(tmp_path / "site")}
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", "cache", "user.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environ, check=False, capture_output=True, text=True)
    # The run time of a wheel has no types of the extension; where it is installed, mypy says nothing of it.
    found = re.findall(r"^user\.py:(\d+): error: .*\[([a-z-]+)\]$", done.stdout, re.MULTILINE)
    assert {int(line): code for line, code in found} == WRONG, done.stdout


def test_record_has_every_hash_and_size(example_wheel: Path) -> None:
    content = members(example_wheel)
    record = "example_kernels-0.1.0.dist-info/RECORD"
    rows = list(csv.reader(io.StringIO(content[record].decode())))
    digest = {name: base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=") for name, data in content.items()}
    expected = [[name, f"sha256={digest[name]}", str(len(content[name]))] for name in content if name != record]
    assert sorted(rows) == sorted([*expected, [record, "", ""]])


def test_times_and_permissions(example_wheel: Path) -> None:
    # The earliest time of a zip file, unless whoever runs the tests has set one.
    stamp = time.gmtime(max(315532800, int(os.environ.get("SOURCE_DATE_EPOCH", "0"))))[:6]
    with zipfile.ZipFile(example_wheel) as archive:
        facts = {(one.date_time, one.external_attr >> 16, one.create_system, one.compress_type, one.extra) for one in archive.infolist()}
    # A shared library needs no x bit to be mapped.
    assert facts == {(stamp, stat.S_IFREG | 0o644, 3, zipfile.ZIP_DEFLATED, b"")}


def test_no_trace_of_source_or_build_machine(example_wheel: Path) -> None:
    project = example_wheel.parents[1] / "source"
    places = {str(project).encode(), str(project.parent).encode(), f"{Path.home()}/".encode()} - {b"//"}
    for name, data in members(example_wheel).items():
        assert not [place for place in places if place in data], name
        assert b"import flydsl" not in data, name
    # The LLVM IR of the externs is linked in; it is no package data.
    assert (project / "src/example_pkg/device/scale_gfx942.ll").is_file()


@pytest.mark.parametrize("module", MODULES)
def test_manifest_agrees_with_the_bundle(example_wheel: Path, module: str) -> None:
    facts = manifest(example_wheel, f"example_pkg/_flydsl/{module}.json")
    assert facts["targets"] == list(TARGETS)
    (unit,) = facts["units"]
    bundle = members(example_wheel)[f"example_pkg/_flydsl/{unit['bundle']}"]
    assert set(unit["code_objects"]) == set(TARGETS)
    for target, code in unit["code_objects"].items():
        assert hashlib.sha256(bundle[code["offset"] : code["offset"] + code["size"]]).hexdigest() == code["sha256"], target
        assert [kernel["symbol"] for kernel in code["kernels"]] == KERNELS[module]


# --- LLVM's tools --------------------------------------------------------------------------------------------------------


def _run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _tool(name: str) -> str:
    """Find a tool of LLVM; releases before 19 do not know all of these chips."""
    for one in (f"{name}-19", name):
        found = shutil.which(one)
        version = re.search(r"version (\d+)\.", _run(found, "--version")) if found else None
        if found and version and int(version[1]) >= 19:
            return found
    pytest.skip(f"{name} of LLVM 19 or later is not installed")


@pytest.fixture(scope="module")
def bundler() -> str:
    return _tool("clang-offload-bundler")


@pytest.fixture(scope="module")
def objdump() -> str:
    return _tool("llvm-objdump")


@pytest.fixture
def bundle(example_wheel: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / "one.hipfb"
    path.write_bytes(members(example_wheel)[f"example_pkg/_flydsl/{request.param}.hipfb"])
    return path


@pytest.mark.parametrize("bundle", MODULES, indirect=True)
def test_bundler_lists_host_and_all_targets(bundle: Path, bundler: str) -> None:
    listed = _run(bundler, "--list", "--type=o", f"--input={bundle}").split()
    assert sorted(listed) == sorted(["host-x86_64-unknown-linux-gnu-", *(f"hipv4-amdgcn-amd-amdhsa--{target}" for target in TARGETS)])


# Not gfx950: LLVM's bundler takes a chip that it does not know for a part of the triple, and LLVM 19 does not know this one.
@pytest.mark.parametrize("target", ["gfx942", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("bundle", ["elementwise"], indirect=True)
def test_objdump_disassembles_what_the_bundler_takes_out(bundle: Path, bundler: str, objdump: str, target: str) -> None:
    code = bundle.with_name("one.o")
    _run(bundler, "--unbundle", "--type=o", f"--input={bundle}", f"--targets=hipv4-amdgcn-amd-amdhsa--{target}", f"--output={code}")
    text = _run(objdump, "-d", code)
    assert "file format elf64-amdgpu" in text
    functions = [line for line in text.splitlines() if line.endswith(">:")]
    assert [line.partition("<")[2] for line in functions] == ["vector_add_kernel_0>:", "axpy_kernel_0>:"]
    assert text.count("s_endpgm") >= len(functions)
    wide_load = {"gfx942": "s_load_dwordx4", "gfx1100": "s_load_b128", "gfx1201": "s_load_b128"}
    assert wide_load[target] in text


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("module", MODULES)
def test_objdump_reads_symbols_of_each_code_object(example_wheel: Path, objdump: str, tmp_path: Path, module: str, target: str) -> None:
    (unit,) = manifest(example_wheel, f"example_pkg/_flydsl/{module}.json")["units"]
    place = unit["code_objects"][target]
    code = tmp_path / "code.o"
    code.write_bytes(members(example_wheel)[f"example_pkg/_flydsl/{module}.hipfb"][place["offset"] :][: place["size"]])
    text = _run(objdump, "-T", code)
    names = [line.split()[-1] for line in text.splitlines() if " .text" in line or " .rodata" in line or "*UND*" in line]
    assert sorted(names) == sorted(symbol for kernel in KERNELS[module] for symbol in (kernel, f"{kernel}.kd"))
    assert ("example_factor" in text) == (module == "scaled")


# --- without a GPU -------------------------------------------------------------------------------------------------------

CALL_WITHOUT_DEVICE = """
import numpy
from example_pkg import elementwise, reduce, scaled
from example_pkg._flydsl.runtime import NoDeviceError
x = numpy.zeros((2, 2), "f4")
answer = {"loaded": elementwise.__flydsl__.is_loaded(), "supported": elementwise.__flydsl__.is_supported()}
for attempt in ("first", "second"):
    try:
        elementwise.vector_add(x, x, x)
    except NoDeviceError as error:
        answer[attempt] = str(error)
answer["imported"] = sorted({name.partition(".")[0] for name in sys.modules})
print(json.dumps(answer))
"""


def test_import_without_hip(example_python: Path) -> None:
    answer = run_script(CALL_WITHOUT_DEVICE, python=example_python)
    assert answer["loaded"] is answer["supported"] is False
    why = "FLYDSL_BUILD_HIP_LIBRARY is set to '/no/such/hip.so', which does not exist; tried:"
    assert f"there is no HIP device: {why}" in answer["first"]
    assert answer["second"] == answer["first"]
    assert not FORBIDDEN & set(answer["imported"])


def test_import_with_hip_and_no_device(example_python: Path, hip_library: Path) -> None:
    answer = run_script(CALL_WITHOUT_DEVICE, python=example_python, hip=hip_library, targets="")
    assert answer["loaded"] is answer["supported"] is False
    assert f"there is no HIP device: hipInit of {hip_library}: hipErrorNoDevice (HIP error 100); tried:" in answer["first"]
    assert not FORBIDDEN & set(answer["imported"])


# --- launches ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Case:
    """One call, and the launch that it must be.

    Parameters
    ----------
    tensors
        Extents and row stride, in elements, of each f32 tensor.
    args
        The kernel's arguments, worked out by hand: a name stands for the address of that tensor.
    """

    module: str
    launcher: str
    tensors: dict[str, tuple[tuple[int, ...], int]]
    rest: dict[str, Any]
    kernel: str
    grid: list[int]
    block: list[int]
    args: list[str | bytes] = field(default_factory=list)


def vector_add(shape: tuple[int, int], strides: tuple[int, int, int], grid: list[int], stream: int) -> Case:
    # A layout travels as its dynamic extents in 32 bits, then its dynamic strides in 64 bits; the last stride is static.
    layouts = [pack("<iiq", *shape, stride) for stride in strides]
    return Case(
        module="elementwise",
        launcher="vector_add",
        tensors={name: (shape, stride) for name, stride in zip("ABC", strides, strict=True)},
        rest={"stream": stream} if stream else {},
        kernel="vector_add_kernel_0",
        grid=grid,
        block=[128, 1, 1],
        args=["A", layouts[0], "B", layouts[1], "C", layouts[2]],
    )


def axpy(n: int, grid: int) -> Case:
    return Case(
        module="elementwise",
        launcher="axpy",
        tensors={"X": ((1000,), 1), "Y": ((1000,), 1)},
        rest={"alpha": -1.5, "n": n},
        kernel="axpy_kernel_0",
        grid=[grid, 1, 1],
        block=[256, 1, 1],
        args=[pack("<f", -1.5), "X", pack("<i", 1000), "Y", pack("<i", 1000), pack("<i", n)],
    )


def row_softmax(rows: int) -> Case:
    return Case(
        module="reduce",
        launcher="row_softmax",
        tensors={"X": ((8, 1024), 2048), "Out": ((8, 1024), 1024)},
        rest={"rows": rows},
        kernel="row_softmax_kernel_0",
        grid=[rows, 1, 1],
        block=[256, 1, 1],
        # The extent of 1024 is static: it is in the machine code.
        args=["X", pack("<iq", 8, 2048), "Out", pack("<iq", 8, 1024)],
    )


def scale(shift: int, n: int, grid: int) -> Case:
    return Case(
        module="scaled",
        launcher="scale",
        tensors={"X": ((600,), 1), "Out": ((600,), 1)},
        rest={"shift": shift, "n": n},
        kernel="scale_kernel_0",
        grid=[grid, 1, 1],
        block=[256, 1, 1],
        args=["X", pack("<i", 600), "Out", pack("<i", 600), pack("<i", shift), pack("<i", n)],
    )


# Tiles of vector_add have 8 rows and 64 columns.
CASES = {
    "vector_add 1x1": vector_add((1, 1), (1, 1, 1), [1, 1, 1], 0),
    "vector_add 20x132": vector_add((20, 132), (132, 132, 132), [3, 3, 1], 0),
    "vector_add 33x257": vector_add((33, 257), (257, 300, 1 << 12), [5, 5, 1], 0x5150),
    "axpy 1": axpy(1, 1),
    "axpy 256": axpy(256, 1),
    "axpy 257": axpy(257, 2),
    "axpy 1000": axpy(1000, 4),
    "row_softmax 1": row_softmax(1),
    "row_softmax 8": row_softmax(8),
    "scale": scale(-7, 513, 3),
    "scale, largest shift": scale(2**31 - 1, 1, 1),
}

CALLS = """
import ctypes
import example_pkg.elementwise, example_pkg.reduce, example_pkg.scaled
import numpy
import fake_hip
hip = fake_hip.FakeHip("libamdhip64.so.7")
answer = {"import": hip.events(), "calls": {}}
for name, case in argument.items():
    tensors = {}
    for key, (shape, stride) in case["tensors"].items():
        tensors[key] = numpy.zeros((*shape[:-1], stride), "f4")[..., : shape[-1]] if len(shape) > 1 else numpy.zeros(shape, "f4")
    hip.clear()
    result = getattr(sys.modules["example_pkg." + case["module"]], case["launcher"])(**tensors, **case["rest"])
    addresses = {key: tensor.ctypes.data for key, tensor in tensors.items()}
    answer["calls"][name] = {"result": result, "addresses": addresses, "events": hip.events()}
hip.clear()
example_pkg.elementwise.axpy(1.0, tensors["X"], tensors["X"], 0)
answer["empty"] = hip.events()
library = ctypes.CDLL("libamdhip64.so.7")
address, size = ctypes.c_void_p(), ctypes.c_size_t()
module = ctypes.c_void_p([event for event in answer["import"] if event["event"] == "load"][-1]["module"])
assert library.hipModuleGetGlobal(ctypes.byref(address), ctypes.byref(size), module, b"example_factor") == 0
answer["factor"] = ctypes.string_at(address.value, size.value).hex()
answer["imported"] = sorted({name.partition(".")[0] for name in sys.modules})
print(json.dumps(answer))
"""


@pytest.fixture(scope="module", params=TARGETS)
def target(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def recorded(target: str, example_python: Path, hip_library: Path) -> dict[str, Any]:
    """What happened when the example was imported, and all cases were called, on a device of one target."""
    cases = {}
    for name, case in CASES.items():
        cases[name] = asdict(case)
        del cases[name]["args"]
    answer: dict[str, Any] = run_script(CALLS, python=example_python, hip=hip_library, targets=DEVICES[target], argument=cases)
    return answer


def test_import_loads_and_initializes(recorded: dict[str, Any], target: str) -> None:
    happened = [{key: value for key, value in event.items() if key != "module"} for event in recorded["import"]]
    load = {"event": "load", "device": 0, "target": target}
    # One code object a module; the init function of `scaled` writes its four bytes once.
    assert happened == [{"event": "init"}, load, load, load, {"event": "copy", "size": 4}]
    assert recorded["factor"] == pack("<f", 2.5).hex()


@pytest.mark.parametrize("name", CASES)
def test_launch(recorded: dict[str, Any], name: str) -> None:
    case, call = CASES[name], recorded["calls"][name]
    args = [pack("<Q", call["addresses"][one]) if isinstance(one, str) else one for one in case.args]
    assert call["result"] is None
    # The one event of the call: nothing is loaded, copied or initialized again.
    assert [event for event in call["events"] if event["event"] != "device_attribute"] == [
        {
            "event": "launch",
            "kernel": case.kernel,
            "device": 0,
            "grid": case.grid,
            "block": case.block,
            "cluster": [0, 0, 0],
            "lds": 0,
            "stream": case.rest.get("stream", 0),
            "args": [one.hex() for one in args],
        }
    ]


def test_a_device_is_asked_once_whether_it_reads_host_memory(recorded: dict[str, Any]) -> None:
    asked = [event for call in recorded["calls"].values() for event in call["events"] if event["event"] == "device_attribute"]
    assert len(asked) == 1


def test_empty_grid_launches_nothing(recorded: dict[str, Any]) -> None:
    assert recorded["empty"] == []


def test_process_has_nothing_of_the_build(recorded: dict[str, Any]) -> None:
    assert not FORBIDDEN & set(recorded["imported"])


# --- what is refused -----------------------------------------------------------------------------------------------------


def test_device_without_code(example_python: Path, hip_library: Path) -> None:
    script = """
try:
    import example_pkg.elementwise
except ImportError as error:
    print(json.dumps([str(error), error.name, "example_pkg.elementwise" in sys.modules]))
"""
    text, name, left = run_script(script, python=example_python, hip=hip_library, targets="gfx1030")
    assert name == "example_pkg.elementwise"
    assert left is False
    assert text == (
        "example_pkg.elementwise: device 0 is gfx1030, and example-kernels 0.1.0 has code only for gfx942, gfx950, gfx1100, gfx1201\n"
        "    -> install a wheel of example-kernels that was built for gfx1030, or build one with "
        "-C archs=gfx942,gfx950,gfx1100,gfx1201,gfx1030"
    )


REFUSED = """
import numpy, fake_hip
from example_pkg.elementwise import axpy, vector_add
from example_pkg.reduce import row_softmax
hip = fake_hip.FakeHip("libamdhip64.so.7")
hip.clear()
f4 = lambda *shape: numpy.zeros(shape, "f4")
calls = {
    "dtype": lambda: vector_add(f4(4, 4), f4(4, 4).astype("f8"), f4(4, 4)),
    "rank": lambda: axpy(1.0, f4(4), f4(2, 2), 4),
    "stride": lambda: vector_add(f4(4, 4), f4(4, 4), f4(4, 4).T.copy().T),
    "length": lambda: row_softmax(f4(1, 1024), f4(1, 1023), 1),
    "named": lambda: vector_add(f4(4, 4), f4(5, 4), f4(4, 4)),
    "missing": lambda: axpy(1.0, f4(4), f4(4)),
    "range": lambda: axpy(1.0, f4(4), f4(4), 1 << 31),
}
answer = {}
for name, call in calls.items():
    try:
        call()
    except (TypeError, ValueError, OverflowError) as error:
        answer[name] = [type(error).__name__, str(error)]
print(json.dumps([answer, hip.events()]))
"""


def test_wrong_arguments_launch_nothing(example_python: Path, hip_library: Path) -> None:
    answer, events = run_script(REFUSED, python=example_python, hip=hip_library, targets="gfx942")
    assert events == []
    words = {
        "dtype": ["vector_add", " B", "f32", "f64"],
        "rank": ["axpy", " Y", "f32[L]", "2"],
        "stride": ["vector_add", " C", "stride"],
        "length": ["row_softmax", " Out", "1024", "1023"],
        "named": ["vector_add", " B", "M", "4", "5"],
        "missing": ["axpy", "'n'"],
        "range": ["axpy", " n", "i32", str(1 << 31)],
    }
    assert set(answer) == set(words)
    for name, (_, text) in answer.items():
        assert [word for word in words[name] if word not in text] == [], text


# --- other ways to load --------------------------------------------------------------------------------------------------


def test_lazy_import_makes_no_hip_call(example_python: Path, hip_library: Path) -> None:
    script = """
import example_pkg.elementwise as elementwise, example_pkg.reduce, example_pkg.scaled as scaled
mapped = "libamdhip64" in open("/proc/self/maps").read()
loaded = [scaled.__flydsl__.is_loaded()]
import fake_hip, numpy
hip = fake_hip.FakeHip("libamdhip64.so.7")
before = hip.events()
x = numpy.zeros(4, "f4")
scaled.scale(x, x, 1, 4)
loaded.append(scaled.__flydsl__.is_loaded())
print(json.dumps([mapped, loaded, before, [event["event"] for event in hip.events()]]))
"""
    mapped, loaded, before, after = run_script(script, python=example_python, hip=hip_library, targets="gfx1100", FLYDSL_BUILD_LOAD="lazy")
    assert mapped is False
    assert loaded == [False, True]
    assert before == []
    # Only the module that is called is loaded, and its init function comes before the launch.
    assert after == ["init", "device_attribute", "load", "copy", "launch"]


def test_two_devices_of_different_targets(example_python: Path, hip_library: Path) -> None:
    script = """
import ctypes, numpy, fake_hip
from example_pkg import scaled
hip = fake_hip.FakeHip("libamdhip64.so.7")
library = ctypes.CDLL("libamdhip64.so.7")
x = numpy.zeros(4, "f4")
for device in (0, 1, 0, 1):
    library.hipSetDevice(device)
    scaled.scale(x, x, 1, 4)
current = ctypes.c_int(-1)
library.hipGetDevice(ctypes.byref(current))
print(json.dumps([[[event["event"], event.get("device"), event.get("target")] for event in hip.events()], current.value]))
"""
    events, current = run_script(script, python=example_python, hip=hip_library, targets="gfx942:sramecc+:xnack-,gfx1201")
    assert current == 1
    assert events == [
        ["init", None, None],
        ["load", 0, "gfx942"],
        ["copy", None, None],
        ["set_device", 0, None],
        ["device_attribute", 0, None],
        ["launch", 0, None],
        ["set_device", 1, None],
        ["device_attribute", 1, None],
        ["load", 1, "gfx1201"],
        ["copy", None, None],
        ["launch", 1, None],
        ["set_device", 0, None],
        ["launch", 0, None],
        ["set_device", 1, None],
        ["launch", 1, None],
    ]
