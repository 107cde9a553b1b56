# SPDX-License-Identifier: Apache-2.0
"""`flydsl-build doctor`: exit status 1 where a build could not work, and why."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from calling import run_command

if TYPE_CHECKING:
    from pathlib import Path


def marks(output: str) -> dict[str, str]:
    """Return the mark of each line by its name."""
    return {line[4:24].strip(): line[:2] for line in output.splitlines() if line[:4] in {"ok  ", "--  ", "!!  "}}


def test_here(tmp_path: Path) -> None:
    done = run_command("doctor", cwd=tmp_path)
    found = marks(done.stdout)
    needed = ["system", "Python", "flydsl-build", "setuptools", "jinja2", "numpy", "flydsl", "flydsl imports", "linker", "temporary folder"]
    assert {name: found[name] for name in needed} == dict.fromkeys(needed, "ok"), done.stdout
    assert found["project"] == "--"
    assert set(found) == {*needed, "project", "device bitcode", "llvm-objdump", "torch", "ziglang", "rich", "HIP library, device"}
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "a build can work here")
    assert f"({sys.executable})" in done.stdout


def test_no_linker(tmp_path: Path) -> None:
    done = run_command("doctor", cwd=tmp_path, env={"FLYDSL_BUILD_LLD": str(tmp_path / "none"), "FLYDSL_BUILD_HIP_LIBRARY": "/no/such.so"})
    assert done.returncode == 1
    assert {name for name, mark in marks(done.stdout).items() if mark == "!!"} == {"linker"}
    assert f"lld: {tmp_path / 'none'} does not exist: correct the path, or leave the setting out to have it searched for" in done.stdout
    assert "/no/such.so" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("a build would fail here: 1 of these (!!)")


@pytest.mark.parametrize(("version", "mark"), [("0.4.9", "!!"), ("0.6.0", "!!"), ("0.5.7", "ok")])
def test_versions(tmp_path: Path, version: str, mark: str) -> None:
    folder = tmp_path / "site" / f"flydsl-{version}.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: flydsl\nVersion: {version}\n")
    done = run_command("doctor", cwd=tmp_path, env={"PYTHONPATH": str(tmp_path / "site")})
    assert marks(done.stdout)["flydsl"] == mark
    assert (f'{version} is not supported: pip install "flydsl>=0.5,<0.6"' in done.stdout) == (mark == "!!")


def project(folder: Path, table: str) -> Path:
    folder.mkdir()
    (folder / "pyproject.toml").write_text(
        f'[project]\nname = "p"\nversion = "1"\n[tool.flydsl-build]\nallow-empty = true\n{table}', encoding="utf-8"
    )
    return folder


def lines_of(output: str, name: str) -> list[str]:
    return [line for line in output.splitlines() if line[4:24].strip() == name]


def test_a_project_with_another_base(tmp_path: Path) -> None:
    there = project(tmp_path / "there", 'base = "own_base:hooks.all"\n')
    (tmp_path / "own_base.py").write_text("class hooks:\n    all = 1\n")
    done = run_command("doctor", there, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "a build can work here")
    assert lines_of(done.stdout, "base back end") == ["ok  base back end        own_base:hooks.all"]
    assert lines_of(done.stdout, "setuptools") == []
    (tmp_path / "own_base.py").unlink()
    done = run_command("doctor", cwd=there)
    assert done.returncode == 1
    (line,) = lines_of(done.stdout, "base back end")
    assert line == (
        "!!  base back end        own_base:hooks.all cannot be imported here: No module named 'own_base'"
        ": add the distribution that has it to build-system.requires in pyproject.toml; without isolation, install it"
    )


def test_a_project_with_settings(tmp_path: Path) -> None:
    # A linker that the table names, and what an executor and a cache need, which nobody has to have.
    none = tmp_path / "no-distributions"
    none.mkdir()
    (none / "sitecustomize.py").write_text("import sys\nsys.modules.update(dict.fromkeys(['distributed', 'fsspec']))\n")
    table = 'lld = "no-lld"\nexecutor = "dask"\nexecutor-address = "tcp://h:1"\nremote-cache = "s3://bucket/x"\n'
    done = run_command(
        "doctor", project(tmp_path / "there", table), cwd=tmp_path, env={"PYTHONPATH": str(none), "FLYDSL_BUILD_CACHE": "true"}
    )
    assert done.returncode == 1
    assert {name for name, mark in marks(done.stdout).items() if mark == "!!"} == {"linker", "distributed", "fsspec"}, done.stdout
    assert lines_of(done.stdout, "distributed") == ['!!  distributed          not installed: pip install "distributed>=2024.2"']
    assert lines_of(done.stdout, "fsspec") == ['!!  fsspec               not installed: pip install "fsspec[s3]>=2024.2"']
    assert "no-lld" in lines_of(done.stdout, "linker")[0] + done.stdout.partition("linker ")[2].splitlines()[1]


def test_a_project_whose_settings_are_refused(tmp_path: Path) -> None:
    done = run_command("doctor", project(tmp_path / "there", "job = 3\n"), cwd=tmp_path)
    assert done.returncode == 1
    assert done.stdout.partition("!!  project  ")[2].split("\n", 3)[:3] == [
        "            its settings are refused:",
        "                         tool.flydsl-build.job: unknown key",
        '                             -> Did you mean "jobs"?',
    ]
    assert {name for name, mark in marks(done.stdout).items() if mark == "!!"} == {"project"}


NO_ARCHS = [
    "!!  project              its settings are refused:",
    "                         tool.flydsl-build.archs: no architectures are given to build for: m:f",
    '                             -> write archs = ["gfx942", "gfx1100"] in the table, pass -C archs=gfx942,gfx1100, or set FLYDSL_BUILD_ARCHS=gfx942,gfx1100; there is no default, and the build machine is not probed',
]
NO_TABLE = [
    "!!  project              its settings are refused:",
    "                         tool.flydsl-build.kernels: no kernels are declared",
    '                             -> run `flydsl-build init`, which finds launchers and writes their tables; or add a table [tool.flydsl-build.kernels."module:attribute"], or allow-empty = true for a package without kernels',
]
TABLE = '[tool.flydsl-build.kernels."m:f"]\n'
BACKEND = '[build-system]\nbuild-backend = "flydsl_build.backend"\n'


@pytest.mark.parametrize(
    ("text", "words", "env", "told"),
    [
        (BACKEND + TABLE, [], {}, NO_ARCHS),
        (BACKEND + TABLE, ["-C", "archs=gfx942"], {}, ["ok  project              PROJECT"]),
        (BACKEND + TABLE, [], {"FLYDSL_BUILD_ARCHS": "gfx942"}, ["ok  project              PROJECT"]),
        (BACKEND, [], {}, NO_TABLE),
        (BACKEND + "[tool.flydsl-build]\n", [], {}, NO_TABLE),
        (
            BACKEND + '[tool.flydsl-build]\nkernels-from = "m:f"\n',
            [],
            {},
            ["--  project              tool.flydsl-build.archs is not given: every kernel that m:f declares needs `archs` of its own"],
        ),
        (
            '[tool.flydsl-build]\narchs = ["gfx942"]\n' + TABLE,
            [],
            {},
            [
                '--  back end             build-backend is missing: pip builds no kernels until it is "flydsl_build.backend"',
                "ok  project              PROJECT",
            ],
        ),
        (
            '[build-system]\nbuild-backend = "other"\n',
            [],
            {},
            [
                '--  back end             build-backend is other: pip builds no kernels until it is "flydsl_build.backend"',
                "--  project              no table [tool.flydsl-build] in PROJECT, so what any project needs is looked at; flydsl-build init writes one",
            ],
        ),
        (
            "[project\n",
            [],
            {},
            [
                "!!  project              its settings are refused:",
                "                         pyproject.toml:1:9: Expected ']' at the end of a table declaration",
                "                             | [project",
                "                             |         ^",
            ],
        ),
    ],
)
def test_what_a_project_lacks(
    call: Any, tmp_path: Path, text: str, words: list[str], env: dict[str, str], told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(text)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    answer = call("doctor", tmp_path, *words)
    lines = answer.out.splitlines()
    start = next(index for index, line in enumerate(lines) if line[4:24].strip() == "flydsl-build") + 1
    assert lines[start : start + len(told)] == [line.replace("PROJECT", str(path)) for line in told]
    assert lines[start + len(told)][:2] == "ok"
    assert answer.status == int(told[0].startswith("!!"))


def test_no_project(call: Any, tmp_path: Path) -> None:
    assert call("doctor", tmp_path / "none").err == (
        f"flydsl-build: {tmp_path / 'none'}: does not exist\n    -> give the folder that has pyproject.toml\n"
    )
