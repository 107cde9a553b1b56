# SPDX-License-Identifier: Apache-2.0
"""`flydsl-build init`: launchers found in source that is not imported, and a table that is never written over."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """
import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.compiler import jit as compiled
raise SystemExit("never imported")

@flyc.kernel
def kernel(X: fx.Tensor): ...

@flyc.jit
def add(A: fx.Tensor, B: "fx.Tensor", n: fx.Int32, alpha: float, BLOCK: fx.Constexpr[int], stream: fx.Stream = fx.Stream(None)): ...

@compiled(some="option")
def fill(P: fx.Pointer, other): ...

def build(N: int, dtype: str = "f32", *, tile):
    @flyc.jit
    def launch(X: fx.Tensor, rows: fx.Int32): ...
    return launch

def helper():
    def jit(function): ...
    @jit
    def inner(): ...

class Holder:
    pass
"""
PROJECT = '[project]\nname = "p"\nversion = "1"\n'
TABLE = """\
[tool.flydsl-build]
# The gfx targets to build for; there is no default.
# archs = ["gfx942", "gfx950"]

[tool.flydsl-build.kernels."pkg.mod:add"]
# args = { A = "f32[M, N]", B = "f32[M, N]", alpha = "f32" }
# constexpr = { BLOCK = [] }

[tool.flydsl-build.kernels."pkg.mod:fill"]
# args = { P = "ptr<f32>", other = "f32[M, N]" }

[tool.flydsl-build.kernels."pkg.mod:build"]
# params = { N = [], tile = [] }
# args = { X = "f32[M, {N}]" }
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for folder in ("src/pkg", "tests", "src/pkg/_flydsl"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "src/pkg/mod.py").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "src/pkg/__init__.py").write_text("", encoding="utf-8")
    (tmp_path / "src/pkg/_flydsl/stub.py").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "tests/test.py").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    return tmp_path


def test_dry_run(call: Any, project: Path) -> None:
    answer = call("init", project, "--dry-run")
    assert (answer.status, answer.out) == (0, TABLE)
    assert answer.err == (
        "found launcher pkg.mod:add (src/pkg/mod.py:11)\n"
        "found launcher pkg.mod:fill (src/pkg/mod.py:14)\n"
        "found factory of launchers pkg.mod:build (src/pkg/mod.py:16)\n"
    )
    assert (project / "pyproject.toml").read_text() == PROJECT


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_write(call: Any, project: Path, newline: str) -> None:
    path = project / "pyproject.toml"
    text = (PROJECT + "# the end, without a newline").replace("\n", newline)
    path.write_bytes(text.encode())
    path.chmod(0o640)
    answer = call("init", project)
    assert answer.status == 0
    assert 'still to do: [build-system] requires = ["flydsl-build"], build-backend = "flydsl_build.backend"\n' in answer.out
    written = path.read_bytes().decode()
    assert written == text + (("\n\n" + TABLE).replace("\n", newline))
    assert path.stat().st_mode & 0o777 == 0o640
    assert sorted(one.name for one in project.iterdir()) == ["pyproject.toml", "src", "tests"]
    assert list(tomllib.loads(written)["tool"]["flydsl-build"]["kernels"]) == ["pkg.mod:add", "pkg.mod:fill", "pkg.mod:build"]
    # What was written is a table that the back end reads: nothing but the targets is missing.
    assert "archs" in call("plan", project).err
    assert call("plan", project, "-C", "archs=gfx942").out.endswith("1 job, 3 specializations, targets: gfx942\n")
    again = call("init", project)
    assert (again.status, again.out) == (
        0,
        f"flydsl-build: [tool.flydsl-build] in {path} has every launcher that was found: nothing was added\n",
    )
    assert path.read_bytes().decode() == written


PART = f"""{PROJECT}
[tool.flydsl-build]
archs = ["gfx942"]
[tool.flydsl-build.kernels."pkg.mod:fill"]
args = {{ P = "ptr<f32>", other = "f32[M]" }}
[tool.other]
"""


def test_what_is_declared_already_stays(call: Any, project: Path) -> None:
    path = project / "pyproject.toml"
    path.write_text(PART, encoding="utf-8")
    _, add, _fill, build = TABLE.split("\n\n")
    rest = f"{add}\n\n{build}"
    assert call("init", project, "--dry-run").out == rest
    answer = call("init", project)
    assert (answer.status, answer.out.splitlines()[0]) == (
        0,
        f"flydsl-build: added 2 of 3 launchers to the [tool.flydsl-build] of {path}",
    )
    assert answer.err.splitlines()[-1] == "pkg.mod:fill is declared already"
    assert answer.out.splitlines()[-1] == "still to do: check the argument types, which are guesses in comments"
    assert path.read_text(encoding="utf-8") == f"{PART}\n{rest}"
    path.write_text(PROJECT + "[tool]\nflydsl-build.kernels = {}\n", encoding="utf-8")
    answer = call("init", project)
    assert answer.status == 1
    assert answer.err.splitlines()[-1] == "    -> add the table of --dry-run by hand"


CHOICES = """
from enum import Enum, IntEnum
import enum
import flydsl.compiler as flyc
import flydsl.expr as fx

class Base(Enum):
    pass

class Mode(Base):
    _ignore_ = ()
    DOUBLE = 2
    TRIPLE = 3
    def name_of(self): ...

class Access(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()

class Plain:
    X = 1

def defaults(mode: Mode = Mode.DOUBLE, plain: Plain = Plain.X, n=1):
    @flyc.jit
    def launch(X: fx.Tensor): ...
    return launch

def needed(mode: "Mode", n: int, *, access=Access.READ, maybe: Mode | None = None):
    @flyc.jit
    def launch(X: fx.Tensor, mode: fx.Constexpr[Mode], n: fx.Constexpr[int]): ...
    return launch

@flyc.kernel
def kernel(A: fx.Tensor, B: fx.Tensor, C: fx.Tensor, D: fx.Tensor, E: fx.Tensor):
    place = (1, 2, 3)
    A[fx.thread_idx.x] = B[1, 2] + C[place] + D[1] + D[1, 2] + E[1, 2, 3, 4]

@flyc.jit
def ranks(X: fx.Tensor, B: fx.Tensor, C: fx.Tensor, D: fx.Tensor, E: fx.Tensor):
    kernel(X, B, C, D, E=E).launch(grid=(1, 1, 1))
"""


def test_members_and_ranks(call: Any, project: Path) -> None:
    (project / "src/pkg/mod.py").write_text(CHOICES, encoding="utf-8")
    assert (
        call("init", project, "--dry-run").out.partition("\n\n")[2]
        == """\
[tool.flydsl-build.kernels."pkg.mod:defaults"]
params = {}  # or of { mode = ["DOUBLE", "TRIPLE"] }
# args = { X = "f32[M, N]" }

[tool.flydsl-build.kernels."pkg.mod:needed"]
# params = { mode = ["DOUBLE", "TRIPLE"], n = [], access = ["READ", "WRITE"], maybe = ["DOUBLE", "TRIPLE"] }
# args = { X = "f32[M, N]" }
# constexpr = { mode = ["DOUBLE", "TRIPLE"], n = [] }

[tool.flydsl-build.kernels."pkg.mod:ranks"]
# args = { X = "f32[N]", B = "f32[M, N]", C = "f32[L, M, N]", D = "f32[M, N]", E = "f32[M, N]" }
# out = ["X"]
"""
    )


def test_files_that_cannot_be_read(call: Any, project: Path) -> None:
    (project / "src/pkg/old.py").write_text("print 'python 2'\n", encoding="utf-8")
    answer = call("init", project, "--dry-run")
    assert (answer.status, answer.out) == (0, TABLE)
    assert answer.err.startswith("flydsl-build: warning: src/pkg/old.py was left out: SyntaxError: ")


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "(" * 150 + "1" + ")" * 150,
        "x = " + "-" * 3000 + "1",
        "x = " + "-" * 100_000 + "1",
        "x = 1" + " + 1" * 900,
        "x = " + "f(" * 190 + "1" + ")" * 190,
        "x = a" + ".b" * 3000 + "()",
        "def f(x: '" + "-" * 100_000 + "1'): ...",
        "def f(x: '\\0'): ...",
        "".join(" " * depth + f"if x{depth}:\n" for depth in range(90)) + " " * 90 + "pass",
        "if x: pass\n" + "elif x: pass\n" * 2000,
    ],
    ids=range(10),
)
def test_deeply_nested_sources(call: Any, project: Path, text: str) -> None:
    (project / "src/pkg/deep.py").write_text(text, encoding="utf-8")
    answer = call("init", project, "--dry-run")
    assert (answer.status, answer.out) == (0, TABLE)
    assert answer.err.count("was left out") <= 1
    assert not answer.err.startswith("flydsl-build: warning") or "src/pkg/deep.py was left out: " in answer.err


def test_bad_projects(call: Any, project: Path, tmp_path: Path) -> None:
    path = project / "pyproject.toml"
    path.write_text("tool = {}\n", encoding="utf-8")
    answer = call("init", project)
    assert answer.status == 1
    assert answer.err.splitlines()[-1] == "    -> add the table of --dry-run by hand"
    path.write_text("[tool", encoding="utf-8")
    assert call("init", project).err.endswith("    -> correct it first\n")
    path.unlink()
    first, fix, *lines = call("init", project).err.splitlines()
    assert first == f"flydsl-build: pyproject.toml: there is none in {project}"
    assert (
        fix == "    -> give the project's folder; in a new project, write one that begins so, and have `flydsl-build init` add the kernels"
    )
    path.write_text("".join(f"{line.removeprefix('    | ')}\n" for line in lines), encoding="utf-8")
    assert tomllib.loads(path.read_text(encoding="utf-8")) == {"project": {"name": "my-kernels", "version": "0.1"}}
    assert call("init", project).status == 0
    path.write_text(PROJECT, encoding="utf-8")
    (project / "src/pkg/mod.py").write_text("", encoding="utf-8")
    answer = call("init", project)
    assert answer.err == f"flydsl-build: {tmp_path}: no function decorated with @flyc.jit was found\n    -> name the project's folder\n"
    assert path.read_text() == PROJECT


def written(call: Any, folder: Path, files: dict[str, str], pyproject: str = PROJECT) -> tuple[str, str]:
    """Return the table that is proposed for a project, and what was said."""
    for name, text in {"pyproject.toml": pyproject, "pkg/__init__.py": "", **files}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    answer = call("init", folder)
    assert answer.status == 0, answer.err
    return (folder / "pyproject.toml").read_text().removeprefix(pyproject).lstrip("\n"), answer.out


def kernels(table: str) -> list[str]:
    return list(tomllib.loads(table)["tool"]["flydsl-build"]["kernels"])


LAUNCHER = "\n\n@{0}flyc.jit\ndef {1}(X: {0}fx.Tensor): ...\n"


@pytest.mark.parametrize(
    ("helper", "imported", "prefix"),
    [
        ("import flydsl.compiler as flyc\nimport flydsl.expr as fx\n", "from .dsl import flyc, fx\n", ""),
        ("import flydsl.compiler as flyc\nimport flydsl.expr as fx\n", "from pkg.dsl import *\n", ""),
        ("import flydsl.compiler as flyc\nimport flydsl.expr as fx\n", "from pkg import dsl\n", "dsl."),
        ("import flydsl.compiler as flyc\nimport flydsl.expr as fx\n", "import pkg.dsl as d\n", "d."),
        ("from .below import flyc\nfrom .below import *\n", "from .dsl import flyc, fx\n", ""),
        ("try:\n    import flydsl.compiler as flyc\nexcept ImportError:\n    flyc = None\n", "from .dsl import flyc\n", ""),
    ],
)
def test_flydsl_through_a_helper(call: Any, tmp_path: Path, helper: str, imported: str, prefix: str) -> None:
    below = "import flydsl.compiler as flyc\nimport flydsl.expr as fx\n"
    files = {"pkg/dsl.py": helper, "pkg/below.py": below, "pkg/mod.py": imported + LAUNCHER.format(prefix, "add")}
    table, _ = written(call, tmp_path, files)
    assert kernels(table) == ["pkg.mod:add"]


def test_names_that_a_helper_gives_to_decorators(call: Any, tmp_path: Path) -> None:
    helper = "import flydsl.compiler\njit = flydsl.compiler.jit\n\n\ndef other(function): return function\n"
    module = "from .dsl import jit, other\n\n@jit\ndef add(X): ...\n\n@other\ndef none(X): ...\n"
    table, _ = written(call, tmp_path, {"pkg/dsl.py": helper, "pkg/mod.py": module})
    assert kernels(table) == ["pkg.mod:add"]


DEVICE = """
import flydsl.compiler as flyc
import flydsl.expr as fx

@flyc.jit
def clamp(x): return inner(x)

@flyc.jit
def inner(x): return x

@flyc.jit
def both(X: fx.Tensor): ...

@flyc.jit
def unused(X: fx.Tensor): ...
"""
KERNELS = """
import flydsl.compiler as flyc
import flydsl.expr as fx
from .device import both, clamp

@flyc.kernel
def kernel(A: fx.Tensor, B: fx.Tensor, C: fx.Tensor, n: fx.Int32):
    index = fx.thread_idx.x
    def local(i):
        return both(A[i])
    if index < n:
        C[index] = clamp(A[index]) + local(index)
    view = fx.flat_divide(B, 4)[index]
    fragment = fx.make_fragment_like(view)
    fx.copy(fx.atom(), view, fragment)

@flyc.jit
def launch(A: fx.Tensor, B: fx.Tensor, out: fx.Tensor, n: fx.Int32):
    kernel(A, B, out, n=n).launch(grid=(1, 1, 1))

@flyc.jit
def all_of_them(A: fx.Tensor, B: fx.Tensor):
    launch(A, A, B, 3)
    both(A)

def build(N: int):
    @flyc.jit
    def local_device(x): return x

    @flyc.kernel
    def k(X: fx.Tensor, P: fx.Pointer):
        view = fx.flat_divide(X, N)
        fx.copy(fx.atom(), local_device(view), view)
        P.store(1)

    @flyc.jit
    def made(X: fx.Tensor, P: fx.Pointer, Y: fx.Tensor):
        k(X, P).launch(grid=(1, 1, 1))
    return made
"""


def test_device_functions_are_no_launchers(call: Any, tmp_path: Path) -> None:
    table, _ = written(call, tmp_path, {"pkg/device.py": DEVICE, "pkg/mod.py": KERNELS})
    # What host code calls as well, and what nothing calls, may be launchers.
    assert kernels(table) == ["pkg.device:both", "pkg.device:unused", "pkg.mod:launch", "pkg.mod:all_of_them", "pkg.mod:build"]
    assert [line for line in table.splitlines() if line.startswith("# out")] == ['# out = ["out"]', '# out = ["B"]', '# out = ["X", "P"]']
    assert '# args = { X = "f32[M, {N}]", P = "ptr<f32>", Y = "f32[M, {N}]" }' in table


def test_externs(call: Any, tmp_path: Path) -> None:
    source = """
import flydsl.compiler as flyc
from flydsl.compiler.extern_link import link_extern
from flydsl.expr.extern import ffi
import os

plain = ffi("plain", ["float32"], "float32")
inner = ffi("by_name", [], "void")
named = link_extern(inner, bitcode_path="lib/named.bc")
computed = link_extern(ffi("odd.name", [], "void"), bitcode_path=os.environ["BC"])
again = ffi("plain", ["float32"], "float32")
"""
    table, _ = written(call, tmp_path, {"pkg/mod.py": source + LAUNCHER.format("", "add")})
    externs = table[table.index("# [tool") :]
    assert externs == (
        "# [tool.flydsl-build.externs.plain]\n"
        '# bitcode = "lib/plain_{arch}.bc"\n'
        "\n"
        "# [tool.flydsl-build.externs.by_name]\n"
        '# bitcode = "lib/named.bc"\n'
        "\n"
        '# [tool.flydsl-build.externs."odd.name"]\n'
        "# The source names the bitcode.\n"
    )


BACK_ENDS = {
    "hatchling": ('requires = ["hatchling", "hatch-vcs"]\nbuild-backend = "hatchling.build"', 'base = "hatchling.build"'),
    "scikit": ('requires = ["scikit-build-core>=0.11"]\nbuild-backend = "scikit_build_core.build"', 'base = "scikit_build_core.build"'),
    "meson": ('requires = ["meson-python"]\nbuild-backend = "mesonpy"', 'base = "mesonpy"'),
    "maturin": ('requires = ["maturin"]\nbuild-backend = "maturin"', 'base = "maturin"'),
    "in the tree": ('requires = []\nbuild-backend = "own:hooks"\nbackend-path = ["_own"]', 'base = "own:hooks"'),
    "setuptools": ('requires = ["setuptools>=70", "setuptools-scm>=8"]\nbuild-backend = "setuptools.build_meta"', ""),
    "older setuptools": ('requires = ["setuptools", "wheel"]\nbuild-backend = "setuptools.build_meta:__legacy__"', ""),
}


@pytest.mark.parametrize("name", BACK_ENDS)
def test_the_back_end_that_a_project_has_becomes_the_base(call: Any, tmp_path: Path, name: str) -> None:
    system, base = BACK_ENDS[name]
    pyproject = f'[build-system]\n{system}\n\n[project]\nname = "p"\ndynamic = ["version"]\n'
    module = "import flydsl.compiler as flyc\nimport flydsl.expr as fx\n" + LAUNCHER.format("", "add")
    table, said = written(call, tmp_path, {"pkg/mod.py": module}, pyproject)
    assert table.splitlines()[1] == (base or "# The gfx targets to build for; there is no default.")
    requires = tomllib.loads(system)["requires"]
    words = ", ".join(f'"{one}"' for one in ["flydsl-build", *requires])
    assert f'still to do: [build-system] requires = [{words}], build-backend = "flydsl_build.backend"\n' in said
    assert call("plan", tmp_path, "-C", "archs=gfx942").out.endswith("1 job, 1 specialization, targets: gfx942\n")


@pytest.mark.parametrize(
    ("folder", "tool"),
    [
        ("python", '[tool.maturin]\npython-source = "python"\n'),
        ("lib", '[tool.hatch.build.targets.wheel]\npackages = ["lib/pkg"]\n'),
        ("deep/er", '[tool.scikit-build]\nwheel.packages = ["deep/er/pkg"]\n'),
        ("lib", '[tool.setuptools.packages.find]\nwhere = ["lib"]\n'),
    ],
)
def test_where_the_back_end_has_its_packages(call: Any, tmp_path: Path, folder: str, tool: str) -> None:
    (tmp_path / folder / "pkg").mkdir(parents=True)
    (tmp_path / folder / "pkg" / "__init__.py").write_text("")
    module = "import flydsl.compiler as flyc\nimport flydsl.expr as fx\n" + LAUNCHER.format("", "add")
    (tmp_path / folder / "pkg" / "mod.py").write_text(module)
    (tmp_path / "pyproject.toml").write_text(PROJECT + tool)
    assert kernels(call("init", tmp_path, "--dry-run").out) == ["pkg.mod:add"]
