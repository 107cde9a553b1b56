# SPDX-License-Identifier: Apache-2.0
"""Every element type, from the grammar of the declarations to a launch whose kernel arguments lead to the element."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from building import PACKAGES, call_hook, copy_project, run_script, unpack

from flydsl_build.dtypes import DTYPE_TABLE, HALF_BYTES, SCALAR_DTYPES, Dtype

if TYPE_CHECKING:
    from pathlib import Path

# The elements lie in host memory, which the stand-in's device reads; so does the script, through the packed pointer.
SCRIPT = """
import ctypes, importlib
import fake_hip, numpy as np
import dtype_kernels.every as every
hip = fake_hip.FakeHip(argument["hip"])

class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2), ("rank", ctypes.c_int32), ("code", ctypes.c_uint8),
                ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("byte_offset", ctypes.c_uint64), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]

class Producer:
    def __init__(self, words, code, bits):
        self.words, self.shape = words, (ctypes.c_int64 * 1)(8 * len(words) // bits)
        self.tensor = Tensor(data=words.ctypes.data, device=(1, 0), rank=1, code=code, bits=bits, lanes=1, shape=ctypes.addressof(self.shape))
    def __dlpack__(self, **_):
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.tensor), b"dltensor", None)

def launched(launcher, *arguments):
    hip.clear()
    try:
        launcher(*arguments)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    (event,) = hip.events("launch")
    return event["args"]

def seen(launcher, *arguments):
    args = launched(launcher, *arguments)
    if isinstance(args, str):
        return args
    return ctypes.string_at(int.from_bytes(bytes.fromhex(args[0]), "little"), 16).hex()

words = np.arange(1, 17, dtype=np.uint8)
answers = {}
for name, (code, bits, framework, pointer, scalar) in argument["dtypes"].items():
    copy = every.build_copy(name)
    answer = answers[name] = {"dlpack": seen(copy, *[Producer(words, code, bits)] * 2), "bytes": seen(copy, *[words] * 2)}
    if framework and bits >= 8 and argument["ml_dtypes"]:
        kind = getattr(np, framework, None) or getattr(importlib.import_module("ml_dtypes"), framework)
        answer["numpy"] = seen(copy, *[words.view(kind)] * 2)
    torch = importlib.import_module("torch") if argument["torch"] else None
    if hasattr(torch, framework or "no such dtype"):
        answer["torch"] = seen(copy, *[torch.from_numpy(words).view(getattr(torch, framework))] * 2)
    if pointer:
        answer["pointer"] = seen(every.build_pointer(name), Producer(words, code, bits))
    if scalar:
        answer["scalar"] = launched(every.build_scalar(name), 1)
print(json.dumps(answers))
"""


@pytest.fixture(scope="module")
def answers(hip_library: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What the kernels of the project are launched with."""
    folder = tmp_path_factory.mktemp("dtypes")
    project = copy_project(PACKAGES / "dtypes", folder / "project")
    dist = folder / "dist"
    dist.mkdir()
    site = unpack(folder / "site", dist / call_hook(project, "build_wheel", dist).value)
    dtypes = {one.name: (one.code, one.bits, one.framework, bool(one.flydsl), one.scalar) for one in DTYPE_TABLE}
    has = {name: bool(_find(name)) for name in ("torch", "ml_dtypes")}
    argument = {"hip": str(hip_library), "dtypes": dtypes, **has}
    found = run_script(SCRIPT, site=site, hip=hip_library, targets="gfx950", argument=argument)
    assert isinstance(found, dict)
    return found


def _find(name: str) -> Any:
    from importlib.util import find_spec

    return find_spec(name)


def test_the_project_has_all_of_them() -> None:
    kernels = tomllib.loads((PACKAGES / "dtypes" / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["flydsl-build"]["kernels"]
    declared = {name.partition("build_")[2]: kernel["params"]["dtype"] for name, kernel in kernels.items()}
    assert declared == {
        "copy": [one.name for one in DTYPE_TABLE],
        "pointer": [one.name for one in DTYPE_TABLE if one.flydsl],
        "scalar": list(SCALAR_DTYPES),
        "buffered": list(HALF_BYTES),
    }


@pytest.mark.parametrize("dtype", DTYPE_TABLE, ids=lambda dtype: dtype.name)
def test_a_launch_gets_the_element(dtype: Dtype, answers: dict[str, dict[str, Any]]) -> None:
    elements, answer = bytes(range(1, 17)).hex(), dict(answers[dtype.name])
    as_bytes = answer.pop("bytes")
    if (dtype.bits <= 8 and not dtype.scalar) or dtype.name == "u8":
        assert as_bytes == elements
    else:
        assert as_bytes.endswith(f"the dtype is u8, not {dtype.name}")
    scalar = answer.pop("scalar", None)
    if dtype.scalar:
        floats = {"f64": "000000000000f03f", "f32": "0000803f", "f16": "003c", "bf16": "803f"}
        assert scalar == [floats.get(dtype.name, (1).to_bytes(dtype.bits // 8, "little").hex())]
    assert answer == dict.fromkeys(answer, elements)
    assert {"dlpack"} <= set(answer) <= {"dlpack", "numpy", "torch", "pointer"}


def refused(tmp_path: Path, *tables: str) -> str:
    """Build the project with other kernels, and return what is said about them."""
    project = copy_project(PACKAGES / "dtypes", tmp_path / "project")
    text = (project / "pyproject.toml").read_text(encoding="utf-8")
    (project / "pyproject.toml").write_text(text.partition("[tool.flydsl-build.kernels")[0] + "\n".join(tables), encoding="utf-8")
    answer = call_hook(project, "build_wheel", tmp_path, ok=False)
    assert answer.status != 0
    return answer.output


def kernel(name: str, params: str, args: str) -> str:
    return f'[tool.flydsl-build.kernels."dtype_kernels.every:{name}"]\nparams = {{ {params} }}\nargs = {{ {args} }}\n'


def test_a_pointer_that_flydsl_does_not_have(tmp_path: Path) -> None:
    output = refused(tmp_path, kernel("build_pointer", 'dtype = "f8e5m2fnuz"', 'p = "ptr<{dtype}>"'))
    assert 'args.p: FlyDSL has no pointers to f8e5m2fnuz\n    -> declare it as "ptr<u8>"' in output


AS_BYTES = 'declare it as "u8[…]" or "ptr<u8>" and pass its bytes'
LINES = "see the author's lines below; -C verbose=true shows FlyDSL's frames too\n"


def single(named: str) -> str:
    return f"\n    -> FlyDSL takes no single elements of {named}: if the kernel does, {AS_BYTES}"


def apart(named: str) -> str:
    what = f"FlyDSL takes elements of {named} a byte apart, but memory has two in a byte: they would be others, or past the end"
    return f"{what}\n    -> copy whole bytes of it through a buffer tensor, or {AS_BYTES}\n"


def test_elements_of_tensors(tmp_path: Path) -> None:
    output = refused(
        tmp_path,
        kernel("build_indexed", 'dtype = ["f8e4m3fnuz", "f8e5m2fnuz", "f4e2m1fn"]', 'A = "{dtype}[N]", B = "{dtype}[N]"'),
        kernel("build_buffered", 'dtype = "i4", whole = false', 'A = "{dtype}[N]", Out = "{dtype}[N]"'),
    )
    assert "compile failed: 4 faults" in output
    for dtype in ("f8e4m3fnuz", "f8e5m2fnuz"):
        assert "gfx950: FlyDSL could not compile it" + single(f"A ({dtype}[N]) and B ({dtype}[N])") + f"; {LINES}" in output
    assert "gfx950: " + apart("A (f4e2m1fn[N]) and B (f4e2m1fn[N])") in output
    assert "gfx950: " + apart("A (i4[N]) and Out (i4[N])") in output


def test_elements_behind_pointers(tmp_path: Path) -> None:
    args = 'A = "ptr<{dtype}>", B = "ptr<{dtype}>@16"'
    output = refused(tmp_path, kernel("build_indexed", 'dtype = ["f8e4m3fnuz", "i4"], step = [1, 0]', args))
    assert "compile failed: 3 faults" in output
    named = "A (ptr<f8e4m3fnuz>) and B (ptr<f8e4m3fnuz>@16)"
    assert "[build_indexed-f8e4m3fnuz-step1], gfx950: FlyDSL could not compile it" + single(named) + f"; {LINES}" in output
    # A division by zero, which is the author's.
    assert "[build_indexed-f8e4m3fnuz-step0 and 1 more], gfx950: FlyDSL could not compile it\n    -> " + LINES in output
    assert "gfx950: " + apart("A (ptr<i4>) and B (ptr<i4>@16)") in output


@pytest.mark.parametrize("argument", ["f6e2m3fn[N]", "ptr<f6e3m2fn>"])
def test_elements_that_end_the_process(tmp_path: Path, argument: str) -> None:
    output = refused(tmp_path, kernel("build_indexed", 'dtype = ""', f'A = "{argument}", B = "u8[N]"'))
    assert "the kernel process died by SIGABRT while compiling build_indexed" in output
    assert single(f"A ({argument})") + "\n" in output
