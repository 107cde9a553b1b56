# SPDX-License-Identifier: Apache-2.0
"""`flydsl-build plan`: jobs and specializations, without any other process, and fast."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from building import PACKAGES
from calling import run_command

if TYPE_CHECKING:
    from pathlib import Path

TABLE = """
[tool.flydsl-build]
archs = ["gfx942", "gfx1100"]

[tool.flydsl-build.kernels."pkg.norm:build"]
params = { N = [128, 256], dtype = ["f32"] }
args = { X = "{dtype}[M, N]", rows = "i32" }
out = ["X"]

[tool.flydsl-build.kernels."pkg.add:add"]
args = { A = "f32[ M,N ]" }
archs = ["gfx1100"]
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text(TABLE, encoding="utf-8")
    return tmp_path


def test_text(call: Any, project: Path) -> None:
    answer = call("plan", project)
    assert (answer.status, answer.err) == (0, "")
    assert answer.out == (
        "pkg.norm, gfx942\n"
        "    build-N128-f32: X = f32[M, N], rows = i32\n"
        "    build-N256-f32: X = f32[M, N], rows = i32\n"
        "pkg.norm, gfx1100\n"
        "    build-N128-f32: X = f32[M, N], rows = i32\n"
        "    build-N256-f32: X = f32[M, N], rows = i32\n"
        "pkg.add, gfx1100\n"
        "    add: A = f32[M, N]\n"
        "3 jobs, 3 specializations, targets: gfx942, gfx1100\n"
    )


def test_json_and_config_settings(call: Any, project: Path) -> None:
    answer = call("plan", project, "--json", "-C", "archs=gfx942")
    assert json.loads(answer.out) == {
        "jobs": [{"module": "pkg.norm", "target": "gfx942", "axes": {}, "specializations": ["build-N128-f32", "build-N256-f32"]}],
        "specializations": [
            {
                "name": f"build-N{size}-f32",
                "module": "pkg.norm",
                "launcher": "build",
                "declared": 'tool.flydsl-build.kernels."pkg.norm:build"',
                "params": {"N": size, "dtype": "f32"},
                "constexpr": {},
                "args": {"X": "f32[M, N]", "rows": "i32"},
                "out": ["X"],
                "options": {},
            }
            for size in (128, 256)
        ],
        "targets": ["gfx942"],
        "axes": {},
        "skipped": ["pkg.add:add"],
    }


BROKEN = """
[tool.flydsl-build]
archs = ["gfx942", "gfx1100"]

[tool.flydsl-build.kernels."pkg.absent:f"]

[tool.flydsl-build.kernels."pkg.broken:f"]

[tool.flydsl-build.kernels."pkg.good:negatte"]
args = { X = "f32[L]" }

[tool.flydsl-build.kernels."pkg.good:negate"]
args = { Y = "f32[L]" }

[tool.flydsl-build.kernels."pkg.good:build"]
params = { N = [64], wide = true }
args = { X = "f32[L]" }

[tool.flydsl-build.kernels."pkg.good:build_fast"]
params = { N = 64 }
args = { X = "f32[L]" }
options = { llvm-options = { no-such-option = true } }

[tool.flydsl-build.externs.a]
bitcode = "absent.bc"
init = "pkg.good:absent"
license-files = ["LICENSE.absent"]

[tool.flydsl-build.externs.b]
bitcode = "b_{arch}.ll"
"""
SOURCE = (PACKAGES / "tiny" / "tiny_kernels" / "negate.py").read_text()


def broken_project(folder: Path, base: str = "") -> None:
    (folder / "pkg").mkdir()
    (folder / "pkg" / "__init__.py").write_text("")
    (folder / "pkg" / "broken.py").write_text("\nTHREADS = 1 / 0\n")
    made = "\n\ndef build(N):\n    return negate\n\n\nbuild_fast = build\n"
    (folder / "pkg" / "good.py").write_text(SOURCE + made)
    (folder / "b_gfx942.ll").write_text('target triple = "amdgcn-amd-amdhsa"\n')
    project = '[project]\nname = "p"\nversion = "1"\n[tool.setuptools]\npackages = ["pkg"]\n'
    (folder / "pyproject.toml").write_text(project + BROKEN.replace("archs", f"{base}archs", 1))


@pytest.mark.parametrize("base", ["", 'base = "hatchling.build"\n'])
def test_check_finds_everything_together(base: str, tmp_path: Path) -> None:
    broken_project(tmp_path, base)
    done = run_command("plan", "--check", ".", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    place = "tool.flydsl-build"
    absent = {
        "": (
            f'{place}.kernels."pkg.absent:f", gfx942, gfx1100: module pkg.absent was not found\n'
            f"    -> looked in {tmp_path}; check the key, the package layout and [tool.setuptools] packages"
        ),
        'base = "hatchling.build"\n': (
            "module pkg.absent: its source is in no folder of the project\n    -> check the key; a generated module cannot be declared here"
        ),
    }[base]
    faults = [
        f'{place}.externs.a.license-files[0]: "LICENSE.absent" fits no file of the project',
        absent,
        f'{place}.kernels."pkg.broken:f", gfx942, gfx1100: importing pkg.broken failed\n    -> see the author\'s lines below',
        (f'{place}.kernels."pkg.good:negatte", gfx942, gfx1100: module pkg.good has no attribute negatte\n    -> Did you mean "negate"?'),
        f'{place}.kernels."pkg.good:negate", gfx942, gfx1100: 2 arguments do not fit',
        f'{place}.kernels."pkg.good:build" [build-N64-wide_True], gfx942, gfx1100: params.wide: build(N) has no parameter wide',
        f'{place}.kernels."pkg.good:build_fast" [build_fast-N64], gfx942, gfx1100: options.llvm-options.no-such-option: LLVM ',
        "extern a, gfx942, gfx1100: its init function pkg.good:absent cannot be imported: AttributeError: module 'pkg.good' has no attribute",
        f"extern a, gfx942, gfx1100: bitcode absent.bc does not exist\n    -> it was named by {place}.externs.a",
    ]
    text = done.stderr
    for fault in faults:
        assert fault in text, text
    doubt = "flydsl-build: warning: extern b, gfx1100: bitcode b_gfx1100.ll does not exist; a kernel that calls it there cannot be built\n"
    assert text.startswith(f"{doubt}flydsl-build: {len(faults)} faults:\n"), text


def test_check_of_what_fits(tmp_path: Path) -> None:
    """A kernel that cannot be traced is none of its business; what may not matter is a warning."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("")
    traced = SOURCE.replace("    index = fx", "    raise SystemExit('traced')\n    index = fx", 1)
    assert traced != SOURCE
    (tmp_path / "pkg" / "good.py").write_text(traced)
    (tmp_path / "b_gfx942.ll").write_text('target triple = "amdgcn-amd-amdhsa"\n')
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "p"\nversion = "1"\n[tool.setuptools]\npackages = ["pkg"]\n'
        '[tool.flydsl-build]\narchs = ["gfx942", "gfx1100"]\n'
        '[tool.flydsl-build.kernels."pkg.good:negate"]\nargs = { X = "f32[L]" }\n'
        '[tool.flydsl-build.externs.b]\nbitcode = "b_{arch}.ll"\n'
    )
    done = run_command("plan", "--check", ".", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        0,
        (
            "flydsl-build: warning: tool.flydsl-build.externs.b: no kernel calls an extern function b, as far as can be told without tracing; "
            "the build refuses such a table\n    -> no kernel calls one: remove the table\n"
            "flydsl-build: warning: extern b, gfx1100: bitcode b_gfx1100.ll does not exist; a kernel that calls it there cannot be built\n"
        ),
    ), done.stderr
    assert done.stdout.splitlines()[-2:] == [
        "2 jobs, 1 specialization, targets: gfx942, gfx1100",
        "checked: everything declared fits the modules",
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b_gfx942.ll", "pkg", "pyproject.toml"]


def test_check_of_tables_of_externs(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("")
    made = '\nfrom flydsl.expr.extern import ffi\n\nscaled = ffi("scaled", ["float32"], "float32")\n'
    (tmp_path / "pkg" / "good.py").write_text(SOURCE + made)
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "p"\nversion = "1"\n[tool.setuptools]\npackages = ["pkg"]\n[tool.flydsl-build]\narchs = ["gfx942"]\n'
        '[tool.flydsl-build.kernels."pkg.good:negate"]\nargs = { X = "f32[L]" }\n'
        "[tool.flydsl-build.externs.scalled]\n[tool.flydsl-build.externs.scaled]\n"
    )
    done = run_command("plan", "--check", ".", cwd=tmp_path)
    unused = (
        "flydsl-build: warning: tool.flydsl-build.externs.scalled: no kernel calls an extern function scalled, as far as can be told "
        'without tracing; the build refuses such a table\n    -> Did you mean "scaled"?\n'
    )
    assert (done.returncode, done.stderr) == (0, unused)
    file = tmp_path / "pyproject.toml"
    file.write_text(file.read_text(encoding="utf-8").replace("scalled]\n", 'scalled]\nbitcode = "absent.bc"\n'), encoding="utf-8")
    done = run_command("plan", "--check", ".", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == unused + (
        "flydsl-build: extern scalled, gfx942: bitcode absent.bc does not exist\n    -> it was named by tool.flydsl-build.externs.scalled\n"
    )


def test_check_of_public_names(tmp_path: Path) -> None:
    """As the build warns of them; of classes it alone knows whether launchers take them."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("")
    made = "\n\nSIZE = 4\n_OWN = 5\n\n\nclass Config:\n    pass\n\n\nclass Made:\n    def __new__(cls):\n        return negate\n\n\ndef build(N):\n    return negate\n\n\ndef spare():\n    pass\n"
    (tmp_path / "pkg" / "good.py").write_text(SOURCE + made)
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "p"\nversion = "1"\n[tool.setuptools]\npackages = ["pkg"]\n[tool.flydsl-build]\narchs = ["gfx942", "gfx1100"]\n'
        '[tool.flydsl-build.kernels."pkg.good:negate"]\nargs = { X = "f32[L]" }\n'
        '[tool.flydsl-build.kernels."pkg.good:Made"]\nparams = {}\nargs = { X = "f32[L]" }\n'
        '[tool.flydsl-build.kernels."pkg.good:build"]\nparams = { N = 1 }\nargs = { X = "f32[L]" }\n'
    )
    done = run_command("plan", "--check", ".", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (
        0,
        (
            "flydsl-build: warning: the stub of pkg.good does not have these public names of its source: SIZE, spare\n"
            "    -> move what others import to a module without declared kernels; "
            "give what is for this one alone a leading underscore\n"
        ),
    )


def test_axes(call: Any) -> None:
    answer = call("plan", PACKAGES / "shmem")
    assert answer.status == 0
    assert "kernels that turn out to depend on nic are compiled for the other values too\n" in answer.out


def test_nothing_is_started_or_imported(project: Path) -> None:
    script = """
import sys
spawned = []
sys.addaudithook(lambda event, facts: spawned.append(event) if event in ("subprocess.Popen", "os.fork", "os.posix_spawn") else None)
from flydsl_build.command_line import main
main(["plan", "."])
print(spawned, sorted({"flydsl", "jinja2", "setuptools", "torch", "numpy"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=project, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[] []"


def test_ten_thousand_declarations(tmp_path: Path) -> None:
    """Ten times as many take ten times as long, not a hundred times; what it takes is printed by `tests/benchmarks/build.py plan`."""
    seconds = []
    for count in (1000, 10_000):
        lines = ['[tool.flydsl-build]\narchs = ["gfx942", "gfx1100"]']
        for index in range(count):
            lines.append(f'[tool.flydsl-build.kernels."pkg.m{index % 50}:k{index}"]')
            lines.append('args = { A = "f32[M, N]", B = "bf16[M, 128]@16", n = "i32" }')
        (tmp_path / "pyproject.toml").write_text("\n".join(lines), encoding="utf-8")
        before = os.times()
        done = run_command("plan", ".", "--json", cwd=tmp_path)
        after = os.times()
        assert len(json.loads(done.stdout)["specializations"]) == count
        seconds.append(after.children_user - before.children_user + after.children_system - before.children_system)
    assert seconds[1] < 30 * seconds[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[tool.flydsl-build]\narch = ["gfx942"]\n',
            'flydsl-build: tool.flydsl-build.arch: unknown key\n    -> Did you mean "archs"?\n',
        ),
        ("[tool", 'flydsl-build: pyproject.toml:1:6: Expected "]"'),
    ],
)
def test_bad_table(call: Any, tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    answer = call("plan", tmp_path)
    assert (answer.status, answer.out) == (1, "")
    assert message.split("\n", maxsplit=1)[0].rpartition(" ")[0] in answer.err
    assert "Traceback" not in answer.err


def test_bad_folder(call: Any, tmp_path: Path) -> None:
    assert call("plan", tmp_path / "none").err == (
        f"flydsl-build: {tmp_path / 'none'}: does not exist\n    -> give the folder that has pyproject.toml\n"
    )
    assert call("plan", tmp_path).err.startswith("flydsl-build: pyproject.toml: there is none in ")
    assert call("plan", "--jsn").status == 2
