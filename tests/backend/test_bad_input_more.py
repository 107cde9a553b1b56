# SPDX-License-Identifier: Apache-2.0
"""More of what a project or a machine can get wrong: processes, standard streams, names, folders."""

from __future__ import annotations

import errno
import importlib.util
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from test_bad_input import KEY, NEGATE, PYPROJECT, message, project

from flydsl_build.errors import BuildError
from flydsl_build.package import installation, pipeline

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Build

INDEX = "    index = fx.block"


def traced(code: str) -> str:
    """The source with code that runs while the kernel is traced."""
    return NEGATE.replace(INDEX, f"    {code}\n{INDEX}")


# Of what LLVM writes where it can only abort: much more than a message shows.
DUMP = r"""
DUMP = b"warning: before\n" + b"x" * 30000 + b"\nLLVM ERROR: Cannot select: t5\n"
DUMP += b"".join(b"t%d: i32\n" % n for n in range(39998)) + b"In function: negate_kernel_0\n"
"""
INSTRUCTIONS = NEGATE.replace(
    INDEX,
    '    for number in fx.range_constexpr(60):\n        inline_asm(None, [], f"v_cvt_pk_bf16_f32 v{number}, v2, v3", "", has_side_effects=True)\n'
    + INDEX,
).replace("import flydsl.expr as fx", "import flydsl.expr as fx\nfrom flydsl._mlir.dialects.llvm import inline_asm")

COMPILE = {
    "reads standard input": (
        project(negate="input()\n"),
        [f"{KEY}, gfx942: importing tiny_kernels.negate failed", "tiny_kernels/negate.py:1: input()", "EOFError"],
    ),
    "kernel exits": (
        project(negate=traced("raise SystemExit(0)")),
        ["FlyDSL could not compile it", "raise SystemExit(0)", "SystemExit: 0"],
    ),
    "native code says why it dies": (
        project(negate=traced("import os; os.write(2, b'the reason'); os.abort()")),
        ["the kernel process died by SIGABRT while compiling negate", "the reason", "tiny_kernels/negate.py"],
    ),
    "LLVM says why it dies": (
        project(negate=traced("import os; os.write(2, b'LLVM ERROR: the reason\\n'); os.abort()")),
        ["gfx942: the code generator failed for negate\n", "    | LLVM ERROR: the reason\n"],
    ),
    "LLVM says why it dies, and goes on": (
        project(negate=traced("import os; os.write(2, DUMP); os.abort()") + DUMP),
        [
            "gfx942: the code generator failed for negate\n    -> see its message below\n    | LLVM ERROR: Cannot select: t5\n    | t0: i32\n",
            "\n    | t38: i32\n    | … 39940 lines …\n    | t39979: i32\n",
            "\n    | In function: negate_kernel_0\n",
        ],
    ),
    "the same error many times": (
        project(negate=INSTRUCTIONS),
        [
            "gfx942: the code generator failed for negate\n",
            "    -> see its message below\n    | error: instruction not supported on this GPU (gfx942): v_cvt_pk_bf16_f32 (60 times)\n",
            "\n    | MLIRError: ",
        ],
    ),
    "long message": (
        project(negate="raise ValueError('first\\n' + ''.join(f'line {n}\\n' for n in range(100000)) + 'last')\n"),
        ["    | ValueError: first\n", "\n    | line 97\n    | … 99803 lines …\n    | line 99901\n", "\n    | line 99999\n    | last\n"],
    ),
    "repeated line": (
        project(negate="raise ValueError('first\\n' + 'line\\n' * 100000 + 'last')\n"),
        ["    | ValueError: first\n    | line (100000 times)\n    | last\n"],
    ),
    "an error without a text": (
        project(negate="class Odd(Exception):\n    def __str__(self):\n        raise ValueError\n\nraise Odd\n"),
        ["importing tiny_kernels.negate failed", "| tiny_kernels/negate.py:5: raise Odd\n", "| Odd"],
    ),
    "a module that answers every name": (
        project(negate=NEGATE + "def __getattr__(name):\n    raise LookupError(name)\n"),
        [
            (
                f"{KEY}, gfx942: an object of the author's module cannot be looked at\n    -> see the author's lines below\n"
                "    | tiny_kernels/negate.py:20: raise LookupError(name)\n    | LookupError: __all__\n"
            ),
        ],
    ),
    "an object whose class cannot be asked for": (
        project(negate="class Odd:\n    @property\n    def __class__(self):\n        raise ValueError('no')\n\nnegate = Odd()\n"),
        [
            (
                f"{KEY}, gfx942: an object of the author's module cannot be looked at\n    -> see the author's lines below\n"
                "    | tiny_kernels/negate.py:4: raise ValueError('no')\n    | ValueError: no\n"
            ),
        ],
    ),
    "a factory's result that cannot be listed": (
        project(
            PYPROJECT.replace("negate:negate", "negate:make")
            .replace("args = ", "params = {}\nreturns = ['run']\nargs = ")
            .replace('{ X = "f32[L]" }', '{ run = { X = "f32[L]" } }'),
            NEGATE + "class Odd(dict):\n    def items(self):\n        raise SystemExit(1)\n\ndef make():\n    return Odd(run=negate)\n",
        ),
        [
            (
                "gfx942: an object of the author's module cannot be looked at\n    -> see the author's lines below\n"
                "    | tiny_kernels/negate.py:21: raise SystemExit(1)\n    | SystemExit: 1\n"
            ),
        ],
    ),
    "module of our name": (
        project(
            PYPROJECT.replace('["tiny_kernels"]', '["tiny_kernels", "tiny_kernels._flydsl"]'),
            **{"tiny_kernels/_flydsl/__init__.py": "VALUE = 1\n"},
        ),
        ["tiny_kernels/_flydsl: the project has a module of this name", "rename it"],
    ),
}


# Without torch, which FlyDSL has a stand-in for.
NEEDED = {
    "import torch.nn": ("torch.nn", '"torch"'),
    "import torch.distributed as dist": ("torch.distributed", '"torch"'),
    "from torch.nn import Linear": ("torch.nn", '"torch"'),
    "from torch.library import custom_op": ("torch.library", '"torch"'),
    "from torch import nn": ("torch", '"torch"'),
    "import torch; torch.zeros(1)": ("torch", '"torch"'),
    "import cv2": ("cv2", '"opencv-python"'),
    "from PIL import Image": ("PIL", '"Pillow"'),
    "import sklearn.cluster": ("sklearn", '"scikit-learn"'),
    "from bs4.element import Tag": ("bs4", '"beautifulsoup4"'),
}


@pytest.mark.parametrize("statement", NEEDED)
@pytest.mark.parametrize("place", ["module", "kernel"])
def test_distributions_that_are_needed(statement: str, place: str, build: Callable[..., Build]) -> None:
    module, distribution = NEEDED[statement]
    assert importlib.util.find_spec(module.partition(".")[0]) is None or distribution == '"torch"'
    source, who = (statement + "\n" + NEGATE, "module tiny_kernels.negate") if place == "module" else (traced(statement), "negate")
    assert message(build(project(negate=source))).startswith(
        f"{KEY}, gfx942: {who} needs {module}, which is not installed in the build environment\n"
        f"    -> add {distribution} to build-system.requires in pyproject.toml\n"
    )


FACTORY = """
import flydsl.compiler as flyc
import flydsl.expr as fx


def build_fill(n, dtype, odd):
    if odd:
        raise ValueError(f"{n} values of {dtype} are too many")

    @flyc.kernel
    def fill_kernel(X: fx.Tensor):
        if n > 60:
            raise RuntimeError(f"n is {n}")
        X[fx.thread_idx.x] = X[fx.thread_idx.x]

    @flyc.jit
    def fill(X: fx.Tensor, stream: fx.Stream = fx.Stream(None)):
        fill_kernel(X).launch(grid=(1, 1, 1), block=(64, 1, 1), stream=stream)

    return fill
"""


def test_one_cause_in_many_specializations(build: Callable[..., Build]) -> None:
    table = PYPROJECT.partition("[tool.flydsl-build.kernels")[0].replace('"gfx942"', '"gfx942", "gfx950"')
    key = 'tool.flydsl-build.kernels."tiny_kernels.negate:build_fill"'
    table += (
        f"[{key}]\nparams = {{ n = {list(range(50, 70))}, dtype = ['f32', 'f16'], odd = [true, false] }}\nargs = {{ X = '{{dtype}}[L]' }}\n"
    )
    assert message(build(project(table, negate=FACTORY))) == (
        "2 faults:\n"
        f"  1. {key} [build_fill-n50-f32-odd_True and 39 more], gfx942, gfx950: the factory build_fill failed\n"
        "    -> see the author's lines below\n"
        '    | tiny_kernels/negate.py:8: raise ValueError(f"{n} values of {dtype} are too many")\n'
        "    | ValueError: 50 values of f32 are too many\n"
        f"  2. {key} [build_fill-n61-f32-odd_False and 17 more], gfx942, gfx950: FlyDSL could not compile it\n"
        "    -> see the author's lines below; -C verbose=true shows FlyDSL's frames too\n"
        "    | tiny_kernels/negate.py:18: fill_kernel(X).launch(grid=(1, 1, 1), block=(64, 1, 1), stream=stream)\n"
        "    | tiny_kernels/negate.py:12: if n > 60:\n"
        '    | tiny_kernels/negate.py:13: raise RuntimeError(f"n is {n}")\n'
        "    | RuntimeError: n is 61\n"
    )


@pytest.mark.parametrize("case", COMPILE)
def test_compile(case: str, build: Callable[..., Build]) -> None:
    files, words = COMPILE[case]
    text = message(build(files))
    for word in words:
        assert word in text
    assert len(text) < 40_000


SETUPTOOLS = {
    ('name = "tiny-kernels"', 'name = "tiny kernels!"'): "configuration error: `project.name` must be pep508-identifier",
    ('version = "1.0"', 'version = "one"'): "configuration error: `project.version` must be pep440",
    ('packages = ["tiny_kernels"]', "py-modules = 3"): "configuration error: `tool.setuptools.py-modules` must be array",
}


@pytest.mark.parametrize("change", SETUPTOOLS)
def test_what_setuptools_finds(change: tuple[str, str], build: Callable[..., Build]) -> None:
    assert change[0] in PYPROJECT
    lines = message(build(project(PYPROJECT.replace(*change)))).splitlines()
    assert lines[-4:-2] == ["pyproject.toml: setuptools cannot build this project", "    -> correct what it finds"]
    assert lines[-1] == f"    | {SETUPTOOLS[change]}"


def test_stages_are_to_go_where_they_cannot(build: Callable[..., Build]) -> None:
    done = build(project(), config={"dump-ir": "pyproject.toml"})
    assert message(done) == (
        f"dump-ir: {done.project}/pyproject.toml/tiny_kernels.negate/negate/gfx942 cannot be written (Not a directory)\n"
        "    -> name a folder that can be written, on a disk with room\n"
    )


def test_a_full_disk_is_named() -> None:
    copying = OSError(errno.ENOSPC, "No space left on device", "source.py", None, "build/copy.py")
    assert str(installation.unwritable(copying, Path("build"))) == (
        "build/copy.py: cannot be written (No space left on device)\n    -> make the build folder writable, or free space on its disk"
    )
    with pytest.raises(BuildError) as caught, pipeline._room_in("/tmp/x"):
        raise copying
    assert str(caught.value) == (
        "/tmp/x: cannot be written (No space left on device)\n    -> free space on its disk, or set TMPDIR to a folder with more"
    )
    with pytest.raises(FileNotFoundError), pipeline._room_in("/tmp/x"):
        raise FileNotFoundError


def test_orphan_holds_the_pipe(build: Callable[..., Build]) -> None:
    # The child is a fork without exec: it has the worker's end of the pipe.
    code = "import os, time\nif os.fork() == 0:\n    time.sleep(90)\n    os._exit(0)\nos._exit(3)\n"
    started = time.monotonic()
    assert "the kernel process died by exit status 3" in message(build(project(negate=code)))
    assert time.monotonic() - started < 60


def test_surroundings_that_do_not_matter(build: Callable[..., Build]) -> None:
    """Modules at the project's root with names of the standard library, a TMPDIR that is gone."""
    files = project(**{"random.py": "raise ImportError('shadowed')\n", "queue.py": "raise ImportError('shadowed')\n"})
    done = build(files, env={"TMPDIR": "/no/such/folder", "PYTHONSAFEPATH": "1"})
    assert done.status == 0, done.output


@pytest.mark.parametrize("value", ["4354819200", "٣", "1" * 5000])
def test_source_date_epoch(value: str, build: Callable[..., Build]) -> None:
    assert "is not a number of seconds" in message(build(project(), env={"SOURCE_DATE_EPOCH": value}))


@pytest.mark.parametrize("value", ["1" * 5000, "[" * 5000])
def test_absurd_toml(value: str, build: Callable[..., Build]) -> None:
    assert "pyproject.toml: cannot be read" in message(build(project(f"x = {value}\n{PYPROJECT}")))


def test_wheel_folder_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from flydsl_build.backend import hooks

    (tmp_path / "dist").write_text("")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text(PYPROJECT)
    with pytest.raises(SystemExit):
        hooks.build_wheel(str(tmp_path / "dist"), {}, None)
    assert "the wheel cannot be written there (File exists)" in capsys.readouterr().err


def test_bitcode_that_is_a_pipe(tmp_path: Path) -> None:
    from flydsl_build.frontends.flydsl.externs import ExternCall, ExternResolver, ExternUse

    os.mkfifo(tmp_path / "pipe.bc")
    (tmp_path / "loop.bc").symlink_to("loop.bc")
    resolver = ExternResolver(rules=(), target="gfx942", axes={}, project=tmp_path, environment={}, staging=tmp_path)
    for path, what in (
        ("pipe.bc", "cannot be read (it is no regular file)"),
        ("loop.bc", "cannot be read"),
        ("a\0b", "cannot be read"),
        (".", "Is a directory"),
    ):
        use = ExternUse()
        resolver.resolve(use, ExternCall(symbol="f", parameters=(), result="void", source_path=path))
        assert what in use.faults[0].what
