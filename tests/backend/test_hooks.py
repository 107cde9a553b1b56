# SPDX-License-Identifier: Apache-2.0
"""The PEP 517 and PEP 660 hooks, as front ends call them: https://peps.python.org/pep-0517/, https://peps.python.org/pep-0660/."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from building import (
    PACKAGES,
    WITHOUT_ROOTS_RIGHTS,
    build_environment,
    call_hook,
    copy_project,
    manifest,
    members,
    read_only,
    run_script,
    unpack,
)

SETUPTOOLS = "setuptools>=77"
BUILD = [SETUPTOOLS, "jinja2>=3.1", "flydsl>=0.5,<0.6", "numpy"]
REQUIRES = ["get_requires_for_build_wheel", "get_requires_for_build_sdist", "get_requires_for_build_editable"]
# Before get_requires, an isolated build environment has what build-system.requires names, and nothing else.
NOTHING_BUT_US = ["setuptools", "jinja2", "flydsl", "torch"]


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A copy of the tiny project."""
    return copy_project(PACKAGES / "tiny", tmp_path / "tiny")


def files(project: Path) -> dict[str, bytes]:
    """Return the project's files without what setuptools leaves in every project."""
    paths = [path for path in project.rglob("*") if path.is_file()]
    relative = {path.relative_to(project).as_posix(): path for path in paths}
    return {name: path.read_bytes() for name, path in relative.items() if ".egg-info/" not in name}


def linker(folder: Path, words: str) -> Path:
    """Make an executable that says that it is some linker."""
    folder.mkdir()
    tool = folder / "ld.lld"
    tool.write_text(f"#!/bin/sh\necho '{words}'\n")
    tool.chmod(0o755)
    return tool


# --- requirements -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hidden", [[], NOTHING_BUT_US], ids=["all installed", "nothing installed"])
def test_requirements(tiny: Path, tmp_path: Path, hidden: list[str]) -> None:
    linker(tmp_path / "bin", "LLD 19.1.7 (compatible with GNU linkers)")
    env = {"PATH": str(tmp_path / "bin")}
    answers = {hook: call_hook(tiny, hook, None, hidden=hidden, env=env) for hook in REQUIRES}
    assert {hook: answer.value for hook, answer in answers.items()} == dict(zip(REQUIRES, [BUILD, [SETUPTOOLS], BUILD], strict=True))
    for answer in answers.values():
        assert not {"flydsl", "jinja2", "torch"} & answer.imported
        # Asked for its version, no more.
        assert {Path(command[0]).name for command in answer.spawned} <= {"ld.lld"}


@pytest.mark.skipif(Path("/opt/rocm/llvm/bin/ld.lld").exists(), reason="ROCm's linker cannot be hidden")
@pytest.mark.parametrize("words", [None, "GNU ld 2.42"], ids=["no linker", "another linker of that name"])
def test_ziglang_is_asked_for_where_no_lld_is(tiny: Path, tmp_path: Path, words: str | None) -> None:
    if words:
        linker(tmp_path / "bin", words)
    env = {"PATH": str(tmp_path / "bin"), "ROCM_PATH": "/no/rocm", "HIP_PATH": "/no/hip"}
    # A machine without the package, too: isolated builds start without it.
    answer = call_hook(tiny, "get_requires_for_build_wheel", None, hidden=["ziglang", "_rocm_sdk_core", "_rocm_sdk_devel"], env=env)
    assert answer.value == [*BUILD, "ziglang>=0.13"]


@pytest.mark.parametrize(
    ("table", "needed"),
    [
        ("allow-empty = true\n", [SETUPTOOLS]),
        ('archs = ["gfx942"]\nkernels-from = "tiny_kernels.negate:declared"\n', [*BUILD, "ziglang>=0.13"]),
    ],
    ids=["no kernels", "kernels from a function"],
)
def test_which_kernels_are_declared_decides_what_is_asked_for(tiny: Path, table: str, needed: list[str]) -> None:
    settings = tiny / "pyproject.toml"
    settings.write_text(settings.read_text().partition("[tool.flydsl-build")[0] + f"[tool.flydsl-build]\n{table}")
    env = {"PATH": "/nowhere", "ROCM_PATH": "/no/rocm", "HIP_PATH": "/no/hip"}
    hidden = ["ziglang", "_rocm_sdk_core", "_rocm_sdk_devel"]
    answers = {hook: call_hook(tiny, hook, None, hidden=hidden, env=env).value for hook in REQUIRES}
    assert answers == dict(zip(REQUIRES, [needed, [SETUPTOOLS], needed], strict=True))


def test_ziglang_is_not_asked_for_with_a_linker_of_the_author(tiny: Path, tmp_path: Path) -> None:
    tool = linker(tmp_path / "bin", "LLD 20.1.0")
    env = {"PATH": "/nowhere", "ROCM_PATH": "/no/rocm", "HIP_PATH": "/no/hip"}
    hidden = ["ziglang", "_rocm_sdk_core", "_rocm_sdk_devel"]
    answer = call_hook(tiny, "get_requires_for_build_wheel", {"lld": str(tool)}, hidden=hidden, env=env)
    assert answer.value == BUILD


def test_what_a_remote_cache_and_a_cluster_need_is_asked_for(tiny: Path, tmp_path: Path) -> None:
    tool = linker(tmp_path / "bin", "LLD 20.1.0")
    config = {"lld": str(tool), "remote-cache": "s3://bucket", "executor": "dask", "executor-address": "tcp://127.0.0.1:1"}
    answer = call_hook(tiny, "get_requires_for_build_wheel", config, env={"FLYDSL_BUILD_CACHE": "true"})
    assert answer.value == [*BUILD, "fsspec[s3]>=2024.2", "distributed>=2024.2"]
    assert call_hook(tiny, "get_requires_for_build_wheel", {**config, "cache": "false", "executor": "local"}).value == BUILD


@pytest.mark.parametrize("hook", ["get_requires_for_build_wheel", "build_wheel"])
def test_no_archs_is_told_before_anything_is_installed(tiny: Path, tmp_path: Path, hook: str) -> None:
    settings = tiny / "pyproject.toml"
    settings.write_text(settings.read_text().replace('archs = ["gfx942"]\n', ""))
    answer = call_hook(tiny, hook, *([tmp_path] if hook == "build_wheel" else []), None, ok=False)
    assert answer.status == 1
    assert "Traceback" not in answer.output
    assert "archs" in answer.output
    assert "FLYDSL_BUILD_ARCHS" in answer.output


PIP = 'pip install "setuptools>=77" "jinja2>=3.1" "flydsl>=0.5,<0.6" "numpy", or "flydsl-build[build]", which brings all that is needed'
ALL_MISSING = (
    "build environment: setuptools is not installed; jinja2 is not installed; flydsl is not installed; numpy is not installed\n"
    f"    -> {PIP}; builds with isolation install it themselves\n"
)
NO_LINKER = "lld: {} does not exist\n    -> correct the path, or leave the setting out to have it searched for\n"
HOOKS = ["prepare_metadata_for_build_wheel", "build_wheel", "prepare_metadata_for_build_editable", "build_editable"]


@pytest.mark.parametrize("hook", HOOKS)
def test_all_that_is_missing_is_named_by_the_first_hook(tiny: Path, tmp_path: Path, hook: str) -> None:
    config = {"lld": str(tmp_path / "no-lld")}
    hidden = ["setuptools", "jinja2", "flydsl", "numpy"]
    answer = call_hook(tiny, hook, tmp_path / "out", config, hidden=hidden, ok=False)
    assert answer.output.count("\n  1. ") == answer.output.count("\n  2. ") == 1
    assert f"  1. {ALL_MISSING}" in answer.output
    assert f"  2. {NO_LINKER.format(config['lld'])}" in answer.output
    assert "Traceback" not in answer.output
    # With another base, that too.
    path = tiny / "pyproject.toml"
    path.write_text(path.read_text().replace("[tool.flydsl-build]\n", '[tool.flydsl-build]\nbase = "no_such_base"\n'))
    answer = call_hook(tiny, hook, tmp_path / "out", config, hidden=hidden, ok=False)
    assert "  1. tool.flydsl-build.base: no_such_base cannot be imported here: No module named 'no_such_base'\n" in answer.output
    assert "  2. build environment: jinja2 is not installed; flydsl is not installed; numpy is not installed\n" in answer.output
    assert f"  3. {NO_LINKER.format(config['lld'])}" in answer.output


@pytest.mark.parametrize("hook", HOOKS[2:])
def test_an_editable_install_of_sources_needs_setuptools_alone(tiny: Path, tmp_path: Path, hook: str) -> None:
    config = {"lld": str(tmp_path / "no-lld"), "editable": "jit"}
    answer = call_hook(tiny, hook, tmp_path / "out", config, hidden=["setuptools", "jinja2", "flydsl", "numpy"], ok=False)
    assert answer.output.endswith(
        "build environment: setuptools is not installed\n"
        '    -> pip install "setuptools>=77", or "flydsl-build[build]", which brings all that is needed; builds with isolation install it themselves\n'
    )


# --- metadata -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["wheel", "editable"])
def test_metadata_compiles_nothing(tiny: Path, tmp_path: Path, tiny_wheel: Path, kind: str) -> None:
    # Neither targets, nor a module that can be imported, nor a compiler is needed to tell name and version.
    settings = tiny / "pyproject.toml"
    settings.write_text(settings.read_text().replace('archs = ["gfx942"]\n', ""))
    (tiny / "tiny_kernels" / "negate.py").write_text("raise SystemError('imported')\n")
    before = files(tiny)
    out = tmp_path / "metadata"
    out.mkdir()
    env = {"PATH": "/nowhere"}
    answer = call_hook(tiny, f"prepare_metadata_for_build_{kind}", out, None, env=env, hidden=["jinja2", "flydsl", "torch"])
    assert answer.value == "tiny_kernels-1.0.dist-info"
    assert (out / answer.value / "METADATA").read_bytes() == members(tiny_wheel)[f"{answer.value}/METADATA"]
    assert answer.spawned == []
    assert "build_flydsl" not in answer.output
    assert files(tiny) == before


def test_prepared_metadata_may_be_handed_back(tiny: Path, tmp_path: Path, tiny_wheel: Path) -> None:
    out = tmp_path / "metadata"
    out.mkdir()
    name = call_hook(tiny, "prepare_metadata_for_build_wheel", out, {}).value
    answer = call_hook(tiny, "build_wheel", tmp_path, {}, out / name)
    other = tmp_path / answer.value
    assert members(other) == members(tiny_wheel)
    assert other.read_bytes() == tiny_wheel.read_bytes()
    workers = [command for command in answer.spawned if "flydsl_build.frontends.worker" in command[-1]]
    assert len(workers) == 1


# --- settings -----------------------------------------------------------------------------------------------------------------


def test_config_setting_narrows_archs(tmp_path: Path, hip_library: Path) -> None:
    project = copy_project(PACKAGES / "second", tmp_path / "second")
    # `-C` wins over the environment; a front end may give a list.
    answer = call_hook(project, "build_wheel", tmp_path, {"archs": ["gfx942"]}, env={"FLYDSL_BUILD_ARCHS": "gfx950"})
    wheel = tmp_path / answer.value
    facts = manifest(wheel, "space/_flydsl_halve/halve.json")
    assert facts["targets"] == ["gfx942"]
    (unit,) = facts["units"]
    assert list(unit["code_objects"]) == ["gfx942"]
    assert members(wheel)["space/_flydsl_halve/halve.hipfb"].count(b"amdgcn-amd-amdhsa--gfx") == 1
    script = """
try:
    import space.halve
except ImportError as error:
    print(json.dumps(str(error)))
"""
    text = run_script(script, site=unpack(tmp_path / "site", wheel), hip=hip_library, targets="gfx1100")
    assert text == (
        "space.halve: device 0 is gfx1100, and second-kernels 0.3 has code only for gfx942\n"
        "    -> install a wheel of second-kernels that was built for gfx1100, or build one with -C archs=gfx942,gfx1100"
    )


def test_environment_names_other_archs(tmp_path: Path) -> None:
    project = copy_project(PACKAGES / "tiny", tmp_path / "tiny")
    wheel = tmp_path / call_hook(project, "build_wheel", tmp_path, None, env={"FLYDSL_BUILD_ARCHS": "gfx1201, gfx950;gfx942"}).value
    facts = manifest(wheel, "tiny_kernels/_flydsl/negate.json")
    assert facts["targets"] == ["gfx1201", "gfx950", "gfx942"]


@pytest.mark.parametrize("hook", ["get_requires_for_build_wheel", "prepare_metadata_for_build_wheel", "build_sdist"])
@pytest.mark.parametrize("place", ["pyproject.toml", "setup.cfg"])
@pytest.mark.parametrize("broken", ["import", "attribute", "module"])
def test_a_version_whose_module_imports_a_kernel(hook: str, place: str, broken: str, tiny: Path, tmp_path: Path) -> None:
    """setuptools imports what it cannot read as a literal, and FlyDSL is not there yet."""
    name = {"import": "tiny_kernels.V", "attribute": "tiny_kernels.W", "module": "tiny_kernel.V"}[broken]
    kernel = "from tiny_kernels.negate import negate\n" if broken == "import" else ""
    (tiny / "tiny_kernels" / "__init__.py").write_text(f'{kernel}V = ".".join(map(str, (1, 2)))\n')
    settings = tiny / "pyproject.toml"
    text = settings.read_text().replace('version = "1.0"\n', 'dynamic = ["version"]\n')
    if place == "setup.cfg":
        (tiny / place).write_text(f"[metadata]\nversion = attr: {name}\n")
    else:
        text += f'\n[tool.setuptools.dynamic]\nversion = {{ attr = "{name}" }}\n'
    settings.write_text(text)
    arguments = [*([] if hook.startswith("get") else [tmp_path]), None]
    answer = call_hook(tiny, hook, *arguments, hidden=["flydsl", "jinja2"], ok=False)
    assert "Traceback" not in answer.output
    words = answer.output.partition("\nflydsl-build: build failed: ")[2].splitlines()
    assert words[0].startswith(f"tool.setuptools.dynamic.version: setuptools imports the module of {name}, and that failed: ")
    assert words[1] == (
        "    -> give the version where it is read without an import: as a literal in a module that imports nothing, or in [project]"
    )
    if broken == "import" and (place, hook) == ("setup.cfg", "get_requires_for_build_wheel"):
        # setuptools imports twice here, and keeps the first error to itself.
        assert "has no attribute 'V'" in words[0]
    elif broken == "import":
        assert "No module named 'flydsl" in words[0]
        assert words[2:] == [
            "    | tiny_kernels/__init__.py:1: from tiny_kernels.negate import negate",
            "    | tiny_kernels/negate.py:4: import flydsl.compiler as flyc",
        ]


@pytest.mark.parametrize("hook", ["get_requires_for_build_wheel", "build_wheel", "build_sdist"])
def test_a_project_that_cannot_be_written(hook: str, tiny: Path, tiny_wheel: Path, tmp_path: Path) -> None:
    """setuptools writes into it; what the words say helps."""
    (dist := tmp_path / "dist").mkdir()
    arguments = [*([] if hook.startswith("get") else [dist]), None]
    with read_only(tiny):
        answer = call_hook(tiny, hook, *arguments, prefix=WITHOUT_ROOTS_RIGHTS, ok=False)
        assert answer.status == 1
        words = answer.output.partition("\nflydsl-build: build failed: ")[2].splitlines()
        assert words[:2] == [
            f"{tiny}: setuptools writes into the project's folder, which cannot be written",
            (
                "    -> build from a copy of the project; for a wheel, setuptools can write elsewhere: DIST_EXTRA_CONFIG=FILE in the environment, "
                "where FILE has [build] build_base and [egg_info] egg_base, two folders that exist"
            ),
        ]
        for name in ("built", "egg"):
            (tmp_path / name).mkdir()
        file = tmp_path / "extra.cfg"
        file.write_text(f"[build]\nbuild_base = {tmp_path / 'built'}\n[egg_info]\negg_base = {tmp_path / 'egg'}\n")
        # Source distributions are made in the project's folder, whatever is set.
        if hook != "build_sdist":
            answer = call_hook(tiny, hook, *arguments, prefix=WITHOUT_ROOTS_RIGHTS, env={"DIST_EXTRA_CONFIG": str(file)})
    if hook == "build_wheel":
        assert members(dist / answer.value) == members(tiny_wheel)


# --- real front ends -------------------------------------------------------------------------------------------------------------


def test_python_m_build(tiny: Path, tmp_path: Path, tiny_wheel: Path) -> None:
    pytest.importorskip("build")
    dist = tmp_path / "dist"
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(dist), str(tiny)]
    done = subprocess.run(command, env=build_environment(tmp_path), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(path.name for path in dist.iterdir()) == sorted(["tiny_kernels-1.0.tar.gz", tiny_wheel.name])
    assert members(dist / tiny_wheel.name) == members(tiny_wheel)


def test_pip_install_target(tiny: Path, tmp_path: Path, tiny_wheel: Path) -> None:
    site = tmp_path / "site"
    words = ["install", "--no-build-isolation", "--no-deps", "--no-compile", "--quiet", "--target", str(site), str(tiny)]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *words], env=build_environment(tmp_path), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(tiny_wheel) as archive:
        expected = {name: archive.read(name) for name in archive.namelist() if name.startswith("tiny_kernels/")}
    installed = {path.relative_to(site).as_posix(): path.read_bytes() for path in (site / "tiny_kernels").rglob("*") if path.is_file()}
    assert installed == expected
