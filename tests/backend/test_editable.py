# SPDX-License-Identifier: Apache-2.0
"""Editable installs: stubs of compiled kernels in the place of the sources, and kernels that follow the sources."""

from __future__ import annotations

import base64
import csv
import hashlib
import json
import re
import shutil
import subprocess
import sys
import time
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from building import PACKAGES, TESTS, build_environment, call_hook, copy_project, members, run_script, unpack

from flydsl_build.cache.dependencies import Fingerprints
from flydsl_build.editable.freshness import Freshness

HOOK = ["__init__.py", "facts.json", "freshness.py", "installation.py", "resolution.py"]

# `find_spec` first: the origin of what is served, whatever happens when it runs.
IMPORT = """
import site, warnings, importlib, importlib.util, io, contextlib
sys.modules.update(dict.fromkeys(argument.get("hidden", ())))
site.addsitedir(argument["site"])
spawned = []
sys.addaudithook(lambda event, facts: spawned.append(1) if event == "subprocess.Popen" else None)
answer = {"origin": {}, "bundle": {}}
with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stderr(io.StringIO()) as stderr:
    warnings.simplefilter("always")
    for name in argument["modules"]:
        try:
            exec(compile(f"import {name}", "importing.py", "exec"), {})
            module = sys.modules[name]
        except ImportError as error:
            answer["error"] = str(error)
            continue
        answer["origin"][name] = module.__file__
        if hasattr(module, "__flydsl__"):
            units = module.__flydsl__.manifest["units"]
            answer["bundle"][name] = [one["sha256"] for unit in units for one in unit["code_objects"].values()]
answer["warnings"] = [str(one.message) for one in caught]
answer["warned in"] = [one.filename for one in caught]
answer["lines"] = stderr.getvalue().splitlines()
answer["spawned"] = len(spawned)
answer["imported"] = sorted({name.partition(".")[0] for name in sys.modules})
print(json.dumps(answer))
"""


@dataclass(frozen=True, kw_only=True)
class Editable:
    """A project that is installed editably, in a folder of its own."""

    project: Path
    site: Path
    cache: Path

    @property
    def folder(self) -> Path:
        (folder,) = [path for path in (self.project / "build" / "flydsl-editable").iterdir() if path.is_dir()]
        return folder

    def state(self) -> Any:
        return json.loads((self.folder / "state.json").read_text())

    def run(self, *modules: str, script: str = IMPORT, hidden: tuple[str, ...] = (), **options: Any) -> Any:
        argument = {"site": str(self.site), "modules": modules, "hidden": hidden}
        # The working folder, which may be the source tree, is not on the path: what is installed compiles.
        environ = {"FLYDSL_BUILD_CACHE_DIR": str(self.cache), "PYTHONSAFEPATH": "1", **options}
        environ.setdefault("FLYDSL_BUILD_LOAD", "lazy")
        return run_script(script, argument=argument, **environ)

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.project / name
        text = path.read_text()
        assert text.count(old) == 1, text
        path.write_text(text.replace(old, new))


def install(package: str | Path, folder: Path, *, config: dict[str, str] | None = None, cache: Path | None = None, **env: str) -> Editable:
    project = copy_project(PACKAGES / package, folder / "project") if isinstance(package, str) else package
    dist = folder / "dist"
    dist.mkdir()
    environ = {"FLYDSL_BUILD_CACHE_DIR": str(cache or folder / "cache"), "FLYDSL_BUILD_CACHE": "true", **env}
    answer = call_hook(project, "build_editable", dist, config, None, env=environ)
    return Editable(project=project, site=unpack(folder / "site", dist / answer.value), cache=cache or folder / "cache")


@pytest.fixture(scope="session")
def warm_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that the tests of this file fill together."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def tiny(tmp_path: Path, warm_cache: Path) -> Editable:
    """The tiny project."""
    return install("tiny", tmp_path, cache=warm_cache)


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory, warm_cache: Path) -> Editable:
    """The tiny project, for tests after which it is as good as before."""
    return install("tiny", tmp_path_factory.mktemp("lasting"), cache=warm_cache)


NEGATE = "tiny_kernels.negate"
SOURCE = "tiny_kernels/negate.py"


# --- what is installed -----------------------------------------------------------------------------------------------------------------


def test_the_wheel_has_the_hook(tiny: Editable) -> None:
    (wheel,) = (tiny.site.parent / "dist").iterdir()
    assert wheel.name == "tiny_kernels-1.0-0.editable-py3-none-any.whl"
    content = members(wheel)
    ours = [name for name in content if "flydsl" in name]
    assert ours == sorted(["zz_editable_flydsl_tiny_kernels.pth", *(f"_editable_flydsl_tiny_kernels/{name}" for name in HOOK)])
    assert not [name for name in content if name.startswith("tiny_kernels/")]
    assert content["zz_editable_flydsl_tiny_kernels.pth"].decode() == (
        "import _editable_flydsl_tiny_kernels; _editable_flydsl_tiny_kernels.install('tiny_kernels')\n"
    )
    rows = {row[0]: row[1:] for row in csv.reader(content["tiny_kernels-1.0.dist-info/RECORD"].decode().splitlines())}
    assert set(rows) == set(content)
    for name in ours:
        digest = base64.urlsafe_b64encode(hashlib.sha256(content[name]).digest()).decode().rstrip("=")
        assert rows[name] == [f"sha256={digest}", str(len(content[name]))]


def test_a_declared_module_is_its_stub(tiny: Editable, hip_library: Path) -> None:
    answer = tiny.run(NEGATE, "tiny_kernels")
    generation = tiny.folder / tiny.state()["modules"][NEGATE]["generation"]
    assert answer["origin"] == {NEGATE: str(generation / SOURCE), "tiny_kernels": str(tiny.project / "tiny_kernels" / "__init__.py")}
    assert (answer["lines"], answer["warnings"], answer["spawned"]) == ([], [], 0)
    assert not {"flydsl", "flydsl_build"} & set(answer["imported"])
    script = """
import site, numpy, fake_hip
site.addsitedir(argument["site"])
from tiny_kernels.negate import negate
negate(numpy.zeros(7, "f4"), 5)
print(json.dumps([event["kernel"] for event in fake_hip.FakeHip("libamdhip64.so.7").events("launch")]))
"""
    launches = run_script(script, argument={"site": str(tiny.site)}, hip=hip_library, targets="gfx942")
    assert launches == ["negate_kernel_0"]


def test_other_imports_do_not_touch_the_state(tiny: Editable) -> None:
    script = """
import site
site.addsitedir(argument["site"])
import decimal
hook = sys.modules["_editable_flydsl_tiny_kernels"]
print(json.dumps([hook.__name__ + ".installation" in sys.modules, "json" in dir(hook)]))
"""
    assert tiny.run(script=script) == [False, False]


@pytest.mark.parametrize("value", ["jit"])
def test_the_environment_asks_for_the_source(tiny: Editable, value: str) -> None:
    script = """
import site, importlib.util
site.addsitedir(argument["site"])
print(json.dumps(importlib.util.find_spec("tiny_kernels.negate").origin))
"""
    assert tiny.run(script=script, FLYDSL_BUILD_EDITABLE=value) == str(tiny.project / SOURCE)


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("FLYDSL_BUILD_EDITABLE", "bogus", "aot, jit"),
        ("FLYDSL_BUILD_EDITABLE", "JIT", "aot, jit"),
        ("FLYDSL_BUILD_EDITABLE_REBUILD", "maybe", "1, true, yes, on, 0, false, no, off"),
        ("FLYDSL_BUILD_EDITABLE", "aot", None),
        ("FLYDSL_BUILD_EDITABLE", "", None),
        ("FLYDSL_BUILD_EDITABLE_REBUILD", "Yes", None),
        ("FLYDSL_BUILD_EDITABLE_REBUILD", "", None),
    ],
)
def test_the_environment_has_allowed_values(lasting: Editable, variable: str, value: str, allowed: str | None) -> None:
    answer = lasting.run(NEGATE, **{variable: value})
    assert answer.get("error") == (allowed and f"{NEGATE}: {variable} is {value!r}; allowed: {allowed}")
    assert (NEGATE in answer["bundle"]) is (allowed is None)
    # What is not compiled is not concerned.
    assert lasting.run("tiny_kernels", **{variable: value})["origin"] == {
        "tiny_kernels": str(lasting.project / "tiny_kernels" / "__init__.py")
    }


@pytest.mark.parametrize("by", ["table", "-C", "environment"])
def test_jit_leaves_the_sources(by: str, tmp_path: Path) -> None:
    project = copy_project(PACKAGES / "tiny", tmp_path / "project")
    settings = project / "pyproject.toml"
    text = settings.read_text().replace('archs = ["gfx942"]\n', "")
    settings.write_text(text.replace("[tool.flydsl-build]", '[tool.flydsl-build]\neditable = "jit"') if by == "table" else text)
    config = {"editable": "jit"} if by == "-C" else {}
    env = {"FLYDSL_BUILD_EDITABLE": "jit"} if by == "environment" else {}
    assert call_hook(project, "get_requires_for_build_editable", config, env=env).value == ["setuptools>=77"]
    answer = call_hook(project, "build_editable", tmp_path, config, None, hidden=["flydsl", "jinja2"], env=env)
    lines = [line for line in answer.output.splitlines() if line.startswith("flydsl-build:")]
    assert lines == [
        "flydsl-build: editable install: the FlyDSL sources stay in place and FlyDSL's JIT compiles them, which needs flydsl and torch"
    ]
    assert answer.spawned == []
    assert not [name for name in members(tmp_path / answer.value) if "flydsl" in name]
    assert not (project / "build").exists()


def test_without_targets_nothing_is_installed(tmp_path: Path) -> None:
    project = copy_project(PACKAGES / "tiny", tmp_path / "project")
    settings = project / "pyproject.toml"
    settings.write_text(settings.read_text().replace('archs = ["gfx942"]\n', ""))
    answer = call_hook(project, "build_editable", tmp_path, None, None, ok=False)
    assert "Traceback" not in answer.output
    assert "FLYDSL_BUILD_ARCHS" in answer.output
    assert list(tmp_path.glob("*.whl")) == []
    installed = install(project, tmp_path, config={"archs": "gfx1100"})
    assert list(installed.run(NEGATE)["bundle"]) == [NEGATE]
    # What was given once holds when it is compiled again.
    installed.edit(SOURCE, "-X[index]", "X[index] * 2.0")
    assert installed.run(NEGATE, FLYDSL_BUILD_ARCHS="gfx950")["lines"] == [f"flydsl-build: {NEGATE}: {SOURCE} changed; compiling it"]
    stub = (installed.folder / installed.state()["modules"][NEGATE]["generation"] / SOURCE).read_text()
    assert '"gfx1100"' in stub


def test_a_kernel_that_does_not_compile_installs_nothing(tmp_path: Path) -> None:
    project = copy_project(PACKAGES / "tiny", tmp_path / "project")
    path = project / SOURCE
    path.write_text(path.read_text().replace("-X[index]", "-Y[index]"))
    answer = call_hook(project, "build_editable", tmp_path, None, None, ok=False)
    assert "flydsl-build: compile failed:" in answer.output
    assert "Traceback" not in answer.output
    assert list(tmp_path.glob("*.whl")) == []
    (folder,) = [one for one in (project / "build" / "flydsl-editable").iterdir() if one.is_dir()]
    assert sorted(one.name for one in folder.iterdir()) == ["lock"]


# --- changes -----------------------------------------------------------------------------------------------------------------------------


def test_a_changed_source_is_compiled_at_import(tiny: Editable) -> None:
    before = tiny.run(NEGATE)
    tiny.edit(SOURCE, "-X[index]", "X[index] * 3.0")
    answer = tiny.run(NEGATE)
    assert answer["lines"] == [f"flydsl-build: {NEGATE}: {SOURCE} changed; compiling it"]
    assert answer["bundle"] != before["bundle"]
    again = tiny.run(NEGATE)
    assert (again["lines"], again["spawned"], again["bundle"]) == ([], 0, answer["bundle"])
    # A file that is only touched is read, and nothing else happens.
    (tiny.project / SOURCE).touch()
    assert tiny.run(NEGATE)["lines"] == []
    # Of the generations, the one in use is left when the next is made.
    tiny.edit(SOURCE, "X[index] * 3.0", "X[index] * 4.0")
    assert tiny.run(NEGATE)["lines"] == answer["lines"]
    tiny.edit(SOURCE, "X[index] * 4.0", "-X[index]")
    assert tiny.run(NEGATE)["bundle"] == before["bundle"]
    assert len(list(tiny.folder.glob("g-*"))) == 2


def test_only_what_changed_is_compiled(tmp_path: Path) -> None:
    two = install("two", tmp_path, FLYDSL_BUILD_CACHE="false")
    first, second = "two_kernels.first", "two_kernels.second"
    before = {name: one["generation"] for name, one in two.state()["modules"].items()}
    assert set(before) == {first, second}
    two.edit("two_kernels/second.py", "shift(X[index])", "shift(X[index] * 2.0)")
    answer = two.run(first, second)
    assert answer["lines"] == [f"flydsl-build: {second}: two_kernels/second.py changed; compiling it"]
    after = {name: one["generation"] for name, one in two.state()["modules"].items()}
    assert after[first] == before[first]
    assert after[second] != before[second]
    # A file that one of them reads when it is imported.
    path = two.project / "two_kernels" / "data" / "factor.json"
    path.write_text(json.dumps({"factor": 17}))
    assert two.run(first, second)["lines"] == [f"flydsl-build: {first}: two_kernels/data/factor.json changed; compiling it"]


def test_targets_of_other_modules(tmp_path: Path, warm_cache: Path, hip_library: Path) -> None:
    """Whether a module without code for the device can be imported depends on the others, also where those change later."""
    script = """
import site, io, contextlib
site.addsitedir(argument["site"])
with contextlib.redirect_stderr(io.StringIO()) as stderr:
    try:
        import two_kernels.second as module
    except ImportError as error:
        found = str(error)
    else:
        try:
            module.__flydsl__.load()
        except ImportError as error:
            found = ["imported", str(error)]
print(json.dumps([found, stderr.getvalue().splitlines()]))
"""
    project = copy_project(PACKAGES / "two", tmp_path / "project")
    settings = project / "pyproject.toml"
    settings.write_text(settings.read_text().replace('["gfx942", "gfx1100"]', '["gfx942"]'))
    two = install(project, tmp_path, cache=warm_cache)

    def run() -> Any:
        return two.run(script=script, hip=hip_library, targets="gfx1100", FLYDSL_BUILD_LOAD="import")

    device = "two_kernels.second: device 0 is gfx1100, and two-kernels 1.0 has"
    assert run() == [
        (
            f"{device} code only for gfx942\n"
            "    -> install a wheel of two-kernels that was built for gfx1100, or build one with -C archs=gfx942,gfx1100"
        ),
        [],
    ]
    two.edit("pyproject.toml", 'first:first"]\n', 'first:first"]\narchs = ["gfx942", "gfx1100"]\n')
    text = (
        f"{device} code of this module only for gfx942\n    -> install a wheel of two-kernels in which this module was built for gfx1100, "
        "or add gfx1100 to `archs` of its kernels and build one"
    )
    assert run() == [["imported", text], ["flydsl-build: two_kernels.second: [tool.flydsl-build] changed; compiling it"]]
    # What else the table says of other modules is nothing to this one.
    two.edit("pyproject.toml", 'first:first"]\n', 'first:first"]\noptions = { opt-level = 1 }\n')
    assert run() == [["imported", text], []]


def test_the_table_is_a_source_too(tiny: Editable) -> None:
    settings = tiny.project / "pyproject.toml"
    text = settings.read_text()
    settings.write_text(text + "\n[tool.other]\nx = 1\n")
    assert tiny.run(NEGATE)["lines"] == []
    settings.write_text(text.replace('"f32[L]"', '"f32[L]@16"'))
    assert tiny.run(NEGATE)["lines"] == [f"flydsl-build: {NEGATE}: [tool.flydsl-build] changed; compiling it"]
    # Another module is declared, and a moment later the first is not any more.
    source = (tiny.project / SOURCE).read_text()
    (tiny.project / "tiny_kernels" / "double.py").write_text(source.replace("negate", "double").replace("-X[index]", "X[index] * 2.0"))
    settings.write_text(text.replace("tiny_kernels.negate:negate", "tiny_kernels.double:double"))
    answer = tiny.run("tiny_kernels.double")
    assert answer["lines"] == ["flydsl-build: tiny_kernels.double: it has not been compiled yet; compiling it"]
    assert list(answer["bundle"]) == ["tiny_kernels.double"]
    assert set(tiny.state()["modules"]) == {"tiny_kernels.double"}
    script = """
import site, importlib.util
site.addsitedir(argument["site"])
print(json.dumps(importlib.util.find_spec("tiny_kernels.negate").origin))
"""
    assert tiny.run(script=script) == str(tiny.project / SOURCE)


ORIGIN = """
import site, importlib.util, io, contextlib
site.addsitedir(argument["site"])
with contextlib.redirect_stderr(io.StringIO()) as stderr:
    spec = importlib.util.find_spec(argument["modules"][0])
print(json.dumps([spec and spec.origin, stderr.getvalue().splitlines()]))
"""


def test_a_declaration_that_is_gone(tmp_path: Path, warm_cache: Path) -> None:
    two = install("two", tmp_path, cache=warm_cache)
    settings = two.project / "pyproject.toml"
    text = settings.read_text()
    start = text.index('[tool.flydsl-build.kernels."two_kernels.second')
    end = text.find("\n[", start + 1)
    settings.write_text(text[:start] + (text[end:] if end >= 0 else ""))
    origin, lines = two.run("two_kernels.second", script=ORIGIN)
    assert origin == str(two.project / "two_kernels" / "second.py")
    assert lines == [
        "flydsl-build: two_kernels.second: [tool.flydsl-build] changed; compiling it",
        "flydsl-build: two_kernels.second is not declared any more: what the project itself has of this name is imported",
    ]


@pytest.mark.parametrize("module", [NEGATE, "negate"])
def test_ops_of_torch(module: str, tmp_path: Path, warm_cache: Path) -> None:
    project = copy_project(PACKAGES / "tiny", tmp_path / "project")
    settings = project / "pyproject.toml"
    text = settings.read_text()
    if module == "negate":
        (project / SOURCE).rename(project / "negate.py")
        text = text.replace("tiny_kernels.negate:", "negate:").replace('packages = ["tiny_kernels"]', 'py-modules = ["negate"]')
        settings.write_text(text)
    installed = install(project, tmp_path, cache=warm_cache)
    ops = f"{module}_torch"
    file = ops.replace(".", "/") + ".py"
    assert installed.run(ops, script=ORIGIN) == [None, []]
    if module == NEGATE:
        own = project / file
        own.write_text("")
        assert installed.run(ops, script=ORIGIN) == [str(own), []]
        own.unlink()
    settings.write_text(text.replace("archs =", "torch-ops = true\narchs =") + 'out = ["X"]\n')
    origin, lines = installed.run(ops, script=ORIGIN)
    assert lines == [f"flydsl-build: {ops}: it has not been compiled yet; compiling it"]
    assert origin == str(installed.folder / installed.state()["modules"][module]["generation"] / file)
    assert f"\nimport {module} as _kernels\n" in Path(origin).read_text()
    assert installed.run(ops, script=ORIGIN) == [origin, []]
    assert installed.run(ops, script=ORIGIN, FLYDSL_BUILD_EDITABLE="jit", PYTHONWARNINGS="ignore") == [None, []]


def test_a_variable_that_a_kernel_asks_for(tmp_path: Path, warm_cache: Path) -> None:
    project = copy_project(PACKAGES / "tiny", tmp_path / "project")
    path = project / SOURCE
    path.write_text(path.read_text().replace("-X[index]", 'X[index] * float(__import__("os").environ.get("FACTOR", "5"))'))
    installed = install(project, tmp_path, cache=warm_cache)
    assert installed.run(NEGATE)["lines"] == []
    answer = installed.run(NEGATE, FACTOR="7")
    assert answer["lines"] == [f"flydsl-build: {NEGATE}: the environment variable FACTOR changed; compiling it"]
    assert installed.run(NEGATE, FACTOR="7")["lines"] == []


# --- what cannot be compiled -----------------------------------------------------------------------------------------------------------

SWITCH = "FLYDSL_BUILD_EDITABLE_REBUILD"
NEXT = ": the next import compiles them then"
PACKAGE = "install flydsl-build[build] in this environment"
JIT = "; FLYDSL_BUILD_EDITABLE=jit imports the FlyDSL source"
STALE = {
    "no flydsl": (("flydsl", "torch"), {}, "flydsl is not installed here", f"{PACKAGE}{NEXT}"),
    "no flydsl and jinja2": (("flydsl", "jinja2", "torch"), {}, "flydsl and jinja2 are not installed here", f"{PACKAGE}{NEXT}"),
    "no jinja2": (("jinja2",), {}, "jinja2 is not installed here", f"{PACKAGE}{NEXT}{JIT}"),
    "switched off": ((), {SWITCH: "0"}, f"{SWITCH} is 0", f"unset {SWITCH}{NEXT}{JIT}"),
    "switched off, no torch": (("torch",), {SWITCH: "0"}, f"{SWITCH} is 0", f"unset {SWITCH}{NEXT}"),
    "switched off, no flydsl": (
        ("flydsl", "torch"),
        {SWITCH: "off"},
        f"{SWITCH} is off, and flydsl is not installed here",
        f"unset {SWITCH} and {PACKAGE}{NEXT}",
    ),
    "no linker": ((), {"FLYDSL_BUILD_LLD": "/no/such/lld"}, None, f"the next import compiles them when that is done{JIT}"),
}


@pytest.mark.parametrize("case", STALE)
def test_stale_kernels_are_served_with_a_warning(tiny: Editable, case: str) -> None:
    hidden, env, why, fix = STALE[case]
    if "torch" not in hidden:
        pytest.importorskip("torch")
    fresh = tiny.run(NEGATE, hidden=hidden, **env)
    assert (fresh["warnings"], fresh["lines"]) == ([], [])
    tiny.edit(SOURCE, "-X[index]", "X[index] * 6.0")
    answer = tiny.run(NEGATE, hidden=hidden, **env)
    assert answer["bundle"] == fresh["bundle"]
    (text,) = answer["warnings"]
    assert [Path(name).name for name in answer["warned in"]] == ["importing.py"]
    assert text.startswith(f"{NEGATE}: the kernels are stale: {SOURCE} changed, and they cannot be compiled: {why or ''}")
    assert text.endswith(f"\n    -> {fix}")
    if why is None:
        assert "/no/such/lld" in text
    shutil.rmtree(tiny.project / "build")
    answer = tiny.run(NEGATE, hidden=hidden, **env)
    assert answer["error"].startswith(f"{NEGATE}: it has not been compiled yet, and it cannot be compiled: {why or ''}")
    assert answer["error"].endswith(f"\n    -> {fix}")


@pytest.mark.parametrize("hidden", [(), ("torch",), ("flydsl", "torch")])
def test_jit_says_what_it_needs(hidden: tuple[str, ...], tiny: Editable) -> None:
    if not hidden:
        pytest.importorskip("torch")
    answer = tiny.run("tiny_kernels", NEGATE, hidden=hidden, FLYDSL_BUILD_EDITABLE="jit")
    missing = " and ".join(hidden)
    assert answer["warnings"] == [
        f"{NEGATE}: FLYDSL_BUILD_EDITABLE=jit imports the FlyDSL source, and {missing} {'is' if len(hidden) == 1 else 'are'} not installed "
        "here\n    -> install what is missing, or unset FLYDSL_BUILD_EDITABLE: the compiled kernels need neither flydsl nor torch"
        for _ in hidden[:1]
    ]
    assert [Path(name).name for name in answer["warned in"]] == ["importing.py" for _ in hidden[:1]]
    assert (NEGATE in answer["origin"]) is (not hidden)


def test_an_error_before_there_are_kernels_names_no_kernels(tiny: Editable) -> None:
    shutil.rmtree(tiny.project / "build")
    tiny.edit(SOURCE, "-X[index]", "-Y[index]")
    line = tiny.run(NEGATE, hidden=("torch",))["error"].splitlines()[-1]
    assert line == "    -> correct it"


def test_an_error_of_the_authors_is_an_import_error(tiny: Editable) -> None:
    pytest.importorskip("torch")
    before = tiny.run(NEGATE)
    tiny.edit(SOURCE, "-X[index]", "-Y[index]")
    answer = tiny.run(NEGATE)
    assert answer["lines"] == [f"flydsl-build: {NEGATE}: {SOURCE} changed; compiling it"]
    assert (answer["bundle"], answer["warnings"]) == ({}, [])
    lines = answer["error"].splitlines()
    assert lines[0].startswith(
        f'{NEGATE}: {SOURCE} changed, and compiling it failed: tool.flydsl-build.kernels."{NEGATE}:negate", gfx942: '
    )
    assert any("name 'Y' is not defined" in line for line in lines)
    assert lines[-1] == (
        "    -> correct it; FLYDSL_BUILD_EDITABLE_REBUILD=0 imports the kernels as they were; "
        "FLYDSL_BUILD_EDITABLE=jit imports the FlyDSL source"
    )
    assert tiny.run(NEGATE, FLYDSL_BUILD_EDITABLE_REBUILD="0")["bundle"] == before["bundle"]
    tiny.edit(SOURCE, "-Y[index]", "-X[index]")
    assert tiny.run(NEGATE)["bundle"] == before["bundle"]


def test_a_lost_build_folder_is_made_again(tiny: Editable) -> None:
    before = tiny.run(NEGATE)
    for damage in (lambda: shutil.rmtree(tiny.project / "build"), lambda: (tiny.folder / "state.json").write_text("{")):
        damage()
        answer = tiny.run(NEGATE)
        assert answer["lines"] == [f"flydsl-build: {NEGATE}: it has not been compiled yet; compiling it"]
        assert answer["bundle"] == before["bundle"]


def _wrong(path: tuple[str, ...], value: Any) -> Any:
    def change(state: Any) -> Any:
        inner = state
        for key in path[:-1]:
            inner = inner[key]
        if value is None:
            del inner[path[-1]]
        else:
            inner[path[-1]] = value
        return state

    return change


@pytest.mark.parametrize(
    "change",
    [
        *(_wrong((key,), None) for key in ("schema", "runtime", "modules", "runtimes", "declared", "declarations")),
        *(
            _wrong(("modules", NEGATE, key), None)
            for key in ("generation", "files", "file", "source", "package", "runtime", "dependencies")
        ),
        *(_wrong(("modules", NEGATE, key), [1]) for key in ("generation", "files", "file", "source", "package", "runtime", "dependencies")),
        _wrong(("modules", NEGATE), 1),
        _wrong(("modules", NEGATE, "runtime"), "no.such"),
        _wrong(("modules", NEGATE, "dependencies"), {"file:a": 1}),
        _wrong(("modules", NEGATE, "files"), {"a": None}),
        _wrong(("runtimes",), {"tiny_kernels._flydsl": "g-1"}),
        _wrong(("declared",), [1]),
        _wrong(("declarations",), 1),
        lambda _: [],
        lambda _: {},
        lambda _: None,
    ],
)
def test_a_state_of_another_form_is_none(change: Any, lasting: Editable) -> None:
    (lasting.folder / "state.json").write_text(json.dumps(change(lasting.state())))
    answer = lasting.run(NEGATE)
    assert answer["lines"] == [f"flydsl-build: {NEGATE}: it has not been compiled yet; compiling it"]
    assert (list(answer["bundle"]), answer["warnings"]) == ([NEGATE], [])


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"declared:": 1}', '{"declared:": []}', '{"declared:": [[1], "a", 3]}', '{"declared:": [{}, 1]}']
)
def test_stamps_of_another_form_are_none(text: str, lasting: Editable) -> None:
    (lasting.folder / "stamps.json").write_text(text)
    answer = lasting.run(NEGATE)
    assert (list(answer["bundle"]), answer["lines"], answer["warnings"]) == ([NEGATE], [], [])


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"project": 1}'])
def test_damaged_facts_ask_for_a_new_installation(text: str, lasting: Editable) -> None:
    path = lasting.site / "_editable_flydsl_tiny_kernels" / "facts.json"
    data = path.read_bytes()
    path.write_text(text)
    answer = lasting.run(NEGATE)
    path.write_bytes(data)
    assert answer["error"] == f"{path}: is damaged, and an editable install needs it\n    -> install the project again with pip install -e"


DAMAGED = {
    "tiny_kernels/negate.py": "stub",
    "tiny_kernels/_flydsl/negate.json": "manifest",
    "tiny_kernels/_flydsl/negate.hipfb": "bundle",
    "tiny_kernels/_flydsl/negate.launchers.elf": "launchers",
    "tiny_kernels/_flydsl/__init__.py": "anchor",
    "tiny_kernels/_flydsl/runtime/launcher.py": "run time",
    "tiny_kernels/_flydsl/runtime/_native.abi3.so": "native run time",
}


@pytest.mark.parametrize("file", DAMAGED)
def test_damaged_files_are_made_again(file: str, lasting: Editable) -> None:
    before = lasting.run(NEGATE)
    for damage in (b"", None, b"half", b"changed"):
        path = lasting.folder / lasting.state()["modules"][NEGATE]["generation"] / file
        data = path.read_bytes()
        path.unlink()
        if damage is not None:
            path.write_bytes({b"half": data[: len(data) // 2], b"changed": data[:-1] + bytes([data[-1] ^ 1])}.get(damage, damage) or b" ")
        what = "is gone" if damage is None else "was changed or damaged"
        # Without a compiler, damaged kernels are not served.
        answer = lasting.run(NEGATE, FLYDSL_BUILD_EDITABLE_REBUILD="0")
        assert answer["error"].startswith(f"{NEGATE}: {path} {what}, and it cannot be compiled: FLYDSL_BUILD_EDITABLE_REBUILD is 0\n")
        answer = lasting.run(NEGATE)
        assert answer["lines"] == [f"flydsl-build: {NEGATE}: {path} {what}; compiling it"]
        assert answer["bundle"] == before["bundle"]
    again = lasting.run(NEGATE)
    assert (again["lines"], again["spawned"]) == ([], 0)


def test_a_damaged_module_of_ops_is_made_again(tmp_path: Path, warm_cache: Path) -> None:
    installed = install(_with_ops(tmp_path)[0], tmp_path, cache=warm_cache)
    path = installed.folder / installed.state()["modules"][OPS]["generation"] / "tiny_kernels" / "negate_torch.py"
    path.write_text("")
    _, lines = installed.run(OPS, script=ORIGINS)
    assert lines == [f"flydsl-build: {OPS}: {path} was changed or damaged; compiling it"]


def test_a_project_that_is_gone_is_not_there(tiny: Editable) -> None:
    shutil.rmtree(tiny.project)
    assert "No module named 'tiny_kernels'" in tiny.run(NEGATE)["error"]


def test_processes_that_import_at_once_compile_once(tiny: Editable, tmp_path: Path) -> None:
    tiny.edit(SOURCE, "-X[index]", f"X[index] * {time.time_ns() % 1000}.5")
    code = f"import site; site.addsitedir({str(tiny.site)!r}); import tiny_kernels.negate as m; print(m.__flydsl__.manifest['module'])"
    environ = {**build_environment(tmp_path), "FLYDSL_BUILD_CACHE": "false", "FLYDSL_BUILD_LOAD": "lazy"}
    some = [
        subprocess.Popen([sys.executable, "-P", "-c", code], env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    outputs = [process.communicate() for process in some]
    assert [out for out, _ in outputs] == [f"{NEGATE}\n"] * 4, outputs
    assert "".join(err for _, err in outputs) == f"flydsl-build: {NEGATE}: {SOURCE} changed; compiling it\n"


# --- layouts ---------------------------------------------------------------------------------------------------------------------------------

LAUNCHERS = {
    "top_kernels": "add_one",
    "outer": "add_two",
    "outer.inner.deep": "add_three",
    "space.shared": "add_four",
    "space.regular.own": "add_five",
}


@pytest.mark.parametrize(("layout", "mode"), [("flat", ""), ("flat", "strict"), ("src", "")])
def test_layouts(layout: str, mode: str, tmp_path: Path, warm_cache: Path, hip_library: Path) -> None:
    project = copy_project(PACKAGES / "layouts", tmp_path / "project")
    (project / "outer" / "data.txt").write_text("of the package")
    if layout == "src":
        (project / "src").mkdir()
        for name in ("outer", "space", "top_kernels.py"):
            (project / name).rename(project / "src" / name)
        settings = project / "pyproject.toml"
        settings.write_text(settings.read_text().replace("[tool.setuptools]", '[tool.setuptools]\npackage-dir = { "" = "src" }'))
    installed = install(project, tmp_path, cache=warm_cache, config={"editable_mode": mode} if mode else {})
    script = """
import site, importlib, importlib.resources, numpy, fake_hip
site.addsitedir(argument["site"])
for module, launcher in argument["modules"].items():
    getattr(importlib.import_module(module), launcher)(numpy.zeros(7, "f4"), 5)
hip = fake_hip.FakeHip("libamdhip64.so.7")
print(json.dumps([
    [event["kernel"] for event in hip.events("launch")],
    importlib.resources.files("outer").joinpath("data.txt").read_text(),
    sorted(name for name in sys.modules if name.endswith(".runtime")),
]))
"""
    argument = {"site": str(installed.site), "modules": LAUNCHERS}
    launches, data, runtimes = run_script(script, argument=argument, hip=hip_library, targets="gfx942")
    assert launches == [f"{launcher}_kernel_0" for launcher in LAUNCHERS.values()]
    assert data == "of the package"
    assert runtimes == [
        "_flydsl_top_kernels.runtime",
        "outer._flydsl.runtime",
        "space._flydsl_shared.runtime",
        "space.regular._flydsl.runtime",
    ]


def test_factories_and_externs(tmp_path: Path, warm_cache: Path, hip_library: Path) -> None:
    (tmp_path / "factories").mkdir()
    (tmp_path / "shmem").mkdir()
    factories = install("factories", tmp_path / "factories", cache=warm_cache)
    assert list(factories.run("factory_kernels.made")["bundle"]) == ["factory_kernels.made"]
    shmem = install("shmem", tmp_path / "shmem", cache=warm_cache)
    script = """
import site
site.addsitedir(argument["site"])
import shmem_kernels.put as put
print(json.dumps(put.__flydsl__.is_loaded()))
"""
    argument = {"site": str(shmem.site)}
    env = {"FLYDSL_BUILD_AXIS_NIC": "bnxt", "FLYDSL_BUILD_LOAD": "lazy"}
    assert run_script(script, argument=argument, hip=hip_library, targets="gfx942", **env) is False
    path = shmem.project / "lib" / "libshmem_gfx942_bnxt.ll"
    path.write_text(path.read_text() + "\n; a comment\n")
    lines = shmem.run("shmem_kernels.put", **env)["lines"]
    assert lines == ["flydsl-build: shmem_kernels.put: lib/libshmem_gfx942_bnxt.ll changed; compiling it"]


# --- pip ---------------------------------------------------------------------------------------------------------------------------------------


def test_pip_installs_and_uninstalls(tmp_path: Path, warm_cache: Path) -> None:
    project = copy_project(PACKAGES / "tiny", tmp_path / "project")
    venv.create(tmp_path / "venv", symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    site = next((tmp_path / "venv").glob("lib/python3*/site-packages"))
    # Everything that this environment has, as the tests see it.
    folders = [path for path in sys.path if path.endswith("-packages") and Path(path).is_dir()]
    (site / "zz_shared.pth").write_text("\n".join(folders) + "\n")
    environ = {**build_environment(tmp_path), "FLYDSL_BUILD_CACHE": "true", "FLYDSL_BUILD_CACHE_DIR": str(warm_cache)}

    def run(*words: str) -> str:
        done = subprocess.run(words, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    before = sorted(path.name for path in site.iterdir())
    words = ["install", "--no-build-isolation", "--no-deps", "--no-index", "-v", "-e", str(project)]
    output = run(sys.executable, "-m", "pip", "--python", str(python), *words)
    assert "Successfully installed tiny-kernels-1.0" in output
    assert re.search(r"flydsl-build: editable install: kernels are in \S+/build/flydsl-editable/[0-9a-f]{8}, and", output)
    code = "import tiny_kernels.negate as m; print(m.__flydsl__.archs, '/g-' in m.__file__)"
    assert run(str(python), "-c", code) == "('gfx942',) True\n"
    # Installing again, with the hook of the first time at work.
    assert "Successfully installed tiny-kernels-1.0" in run(sys.executable, "-m", "pip", "--python", str(python), *words)
    assert run(str(python), "-c", code) == "('gfx942',) True\n"
    output = run(sys.executable, "-m", "pip", "--python", str(python), "uninstall", "-y", "tiny-kernels")
    assert "Successfully uninstalled tiny-kernels-1.0" in output
    assert sorted(path.name for path in site.iterdir()) == before
    assert "ModuleNotFoundError: No module named 'tiny_kernels'" in run(str(python), "-c", code)


# --- freshness -----------------------------------------------------------------------------------------------------------------------------------


def test_fingerprints_are_those_of_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "folder" / "__pycache__").mkdir(parents=True)
    (tmp_path / "folder" / "b").write_text("b")
    # Without a RECORD, and with one that says nothing of files that count.
    for name, record in {"plain": None, "bare": "bare-1.dist-info/METADATA,sha256=x,1\n../bin/bare,sha256=y,1\nbare.pyc,,\n"}.items():
        folder = tmp_path / "site" / f"{name}-1.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_bytes(b"Metadata-Version: 2.1\r\nName: " + name.encode() + b"\r\nVersion: 1\r\n")
        if record:
            (folder / "RECORD").write_text(record)
    monkeypatch.syspath_prepend(tmp_path / "site")
    environ = {"SET": "x\udce9"}
    names = [
        "file:a.txt",
        "file:none",
        f"file:{TESTS / 'run.py'}",
        "list:folder",
        "list:none",
        "env:SET",
        "env:UNSET",
        "dist:numpy",
        "dist:pip",
        "dist:plain",
        "dist:bare",
        "import:numpy@numpy .linalg .no_such_thing",
        "import:no_such_thing@",
        "import:site_namespace@ .inner",
        "file:*/numpy/version.py",
        "file:*/numpy/none",
        "list:*/numpy/linalg",
        "exists:a.txt",
        "exists:*/numpy",
        "exists:none",
    ]
    (tmp_path / "site" / "site_namespace" / "inner").mkdir(parents=True)
    theirs = Fingerprints(str(tmp_path), environ)
    ours = Freshness(str(tmp_path), {}, environ)
    assert {name: ours[name] for name in names} == {name: theirs[name] for name in names}
    # Noted stamps spare the reading; a file that was just written has none.
    assert "file:a.txt" not in ours.stamps
    assert ours.has_news
    again = Freshness(str(tmp_path), ours.stamps, environ)
    monkeypatch.setattr("flydsl_build.editable.freshness.digest_of_file", None)
    monkeypatch.setattr("flydsl_build.editable.freshness.digest_of_distribution", None)
    noted = [name for name in names if name.startswith(("file:", "dist:")) and name not in {"file:a.txt", "dist:plain", "dist:bare"}]
    assert {name: again[name] for name in noted} == {name: theirs[name] for name in noted}
    assert not again.has_news


def test_distributions_count_only_where_they_are(tmp_path: Path) -> None:
    fresh = Freshness(str(tmp_path), {}, {})
    assert fresh.change({"dist:no-such-distribution": "0" * 64}) == ""
    assert fresh.change({"dist:numpy": "0" * 64}) == "numpy is another version"
    assert fresh.change({"file:a": "0" * 64}) == "a is gone"
    (tmp_path / "a").write_text("")
    assert fresh.change({"file:a": None}) == "a is new"
    assert fresh.change({"list:.": "0" * 64}) == "the content of the folder . changed"


# --- ops of torch --------------------------------------------------------------------------------------------------------------------------

ORIGINS = """
import site, importlib.util, io, contextlib
site.addsitedir(argument["site"])
with contextlib.redirect_stderr(io.StringIO()) as stderr:
    specs = [importlib.util.find_spec(name) for name in argument["modules"]]
print(json.dumps([[spec and spec.origin for spec in specs], stderr.getvalue().splitlines()]))
"""
OPS = "tiny_kernels.negate_torch"


def _with_ops(folder: Path) -> tuple[Path, str]:
    project = copy_project(PACKAGES / "tiny", folder / "project")
    settings = project / "pyproject.toml"
    text = settings.read_text() + 'out = ["X"]\n'
    settings.write_text(text.replace("archs", "torch-ops = true\narchs"))
    return project, text


def test_modules_of_ops(tmp_path: Path, warm_cache: Path) -> None:
    project, without = _with_ops(tmp_path)
    installed = install(project, tmp_path, cache=warm_cache)

    def generation(name: str) -> Path:
        return installed.folder / str(installed.state()["modules"][name]["generation"])

    first = generation(OPS)
    assert installed.run(OPS, NEGATE, script=ORIGINS) == [
        [str(first / "tiny_kernels" / f"{one}.py") for one in ("negate_torch", "negate")],
        [],
    ]
    # Whichever of the two is imported first, both follow the source, and it is compiled once.
    installed.edit(SOURCE, "-X[index]", "X[index] * 3.0")
    origins, lines = installed.run(OPS, NEGATE, script=ORIGINS)
    assert lines == [f"flydsl-build: {OPS}: {SOURCE} changed; compiling it"]
    second = generation(OPS)
    assert origins == [str(second / "tiny_kernels" / f"{one}.py") for one in ("negate_torch", "negate")]
    assert (second != first, generation(NEGATE)) == (True, second)
    installed.edit(SOURCE, "X[index] * 3.0", "-X[index]")
    assert installed.run(NEGATE, OPS, script=ORIGINS)[1] == [f"flydsl-build: {NEGATE}: {SOURCE} changed; compiling it"]
    # The setting is a source, too.
    settings = project / "pyproject.toml"
    table = settings.read_text()
    settings.write_text(without)
    assert installed.run(OPS, script=ORIGINS) == [
        [None],
        [
            f"flydsl-build: {OPS}: [tool.flydsl-build] changed; compiling it",
            f"flydsl-build: {OPS} is not declared any more: what the project itself has of this name is imported",
        ],
    ]
    assert installed.run(OPS, script=ORIGINS) == [[None], []]
    (project / "tiny_kernels" / "negate_torch.py").write_text("")
    assert installed.run(OPS, script=ORIGINS) == [[str(project / "tiny_kernels" / "negate_torch.py")], []]
    (project / "tiny_kernels" / "negate_torch.py").unlink()
    settings.write_text(table)
    origins, lines = installed.run(OPS, script=ORIGINS)
    assert lines == [f"flydsl-build: {OPS}: it has not been compiled yet; compiling it"]
    assert origins == [str(generation(OPS) / "tiny_kernels" / "negate_torch.py")]


def test_modules_of_ops_at_the_top(tmp_path: Path, warm_cache: Path) -> None:
    project = copy_project(PACKAGES / "layouts", tmp_path / "project")
    settings = project / "pyproject.toml"
    text = settings.read_text().replace("[tool.flydsl-build]\n", "[tool.flydsl-build]\ntorch-ops = true\n")
    settings.write_text(re.sub(r"^args = .*$", r'\g<0>\nout = ["X"]', text, flags=re.MULTILINE))
    installed = install(project, tmp_path, cache=warm_cache)
    names = [f"{name}_torch" for name in LAUNCHERS]
    origins, lines = installed.run(*names, script=ORIGINS)
    assert lines == []
    modules = installed.state()["modules"]
    places = ["top_kernels_torch.py", "outer_torch.py", "outer/inner/deep_torch.py", "space/shared_torch.py", "space/regular/own_torch.py"]
    assert origins == [str(installed.folder / modules[name]["generation"] / place) for name, place in zip(names, places, strict=True)]


def test_ops_of_an_editable_install_can_be_imported(tmp_path: Path, warm_cache: Path, hip_library: Path) -> None:
    pytest.importorskip("torch")
    installed = install(_with_ops(tmp_path)[0], tmp_path, cache=warm_cache)
    script = """
import site
site.addsitedir(argument["site"])
from tiny_kernels.negate_torch import negate
import torch
print(json.dumps([str(negate.__module__), hasattr(torch.ops.tiny_kernels_negate, "negate")]))
"""
    assert run_script(script, argument={"site": str(installed.site)}, hip=hip_library, targets="gfx942", FLYDSL_BUILD_LOAD="lazy") == [
        OPS,
        True,
    ]


def test_a_module_of_the_author_is_where_ops_go(tmp_path: Path) -> None:
    project, _ = _with_ops(tmp_path)
    (project / "tiny_kernels" / "negate_torch.py").write_text("")
    answer = call_hook(project, "build_editable", tmp_path, None, None, ok=False)
    assert answer.output.rpartition("\nflydsl-build: ")[2] == (
        "build failed: tiny_kernels/negate_torch.py: the project has a module of this name, which is where torch-ops puts the ops of "
        f"{NEGATE}\n    -> rename it\n"
    )
