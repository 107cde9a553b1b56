# SPDX-License-Identifier: Apache-2.0
"""More of what a project or a machine can get wrong: processes, standard streams, names, folders."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from test_bad_input import KEY, NEGATE, PYPROJECT, message, project

from flydsl_build.errors import BuildError
from flydsl_build.package import pipeline

if TYPE_CHECKING:
    from collections.abc import Callable

    from conftest import Build

INDEX = "    index = fx.block"


def traced(code: str) -> str:
    """The source with code that runs while the kernel is traced."""
    return NEGATE.replace(INDEX, f"    {code}\n{INDEX}")


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
    "long message": (
        project(negate="raise ValueError('first\\n' + 'line\\n' * 100000 + 'last')\n"),
        ["ValueError: first", "lines …", "last"],
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
    assert str(pipeline.unwritable(copying, Path("build"))) == (
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
    for path, what in (("pipe.bc", "is not a file"), ("loop.bc", "cannot be read"), ("a\0b", "cannot be read"), (".", "Is a directory")):
        use = ExternUse()
        resolver.resolve(use, ExternCall(symbol="f", parameters=(), result="void", source_path=path))
        assert what in use.faults[0].what
