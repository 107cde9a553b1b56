# SPDX-License-Identifier: Apache-2.0
"""Editable installs beside other import hooks: they are given the stub, or it is told that they have taken the source."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from building import PACKAGES, build_environment, copy_project
from test_editable import IMPORT as EDITABLE_IMPORT
from test_editable import LAUNCHERS, NEGATE, SOURCE, Editable, install

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="session")
def warm_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that the tests of this file fill together."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory, warm_cache: Path) -> Editable:
    """The tiny project; no test changes it."""
    return install("tiny", tmp_path_factory.mktemp("tiny"), cache=warm_cache)


@pytest.fixture
def edited(tmp_path: Path, warm_cache: Path) -> Editable:
    """The tiny project, for tests that change it."""
    return install("tiny", tmp_path, cache=warm_cache)


# Finders that stand before ours. Each imports by the name `used`, so that a test knows that it has taken part.
ASKING = """
import importlib.machinery
class Asking:
    def find_spec(self, name, path=None, target=None):
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and name.partition(".")[0] in tops:
            used.append(name)
            return spec
sys.meta_path.insert(0, Asking())
"""
TYPEGUARD = """
from typeguard import TypeguardFinder, install_import_hook
class Finder(TypeguardFinder):
    def find_spec(self, name, path, target=None):
        spec = super().find_spec(name, path, target)
        if spec is not None:
            used.append(name)
        return spec
install_import_hook(tops, cls=Finder)
"""
BEARTYPE = """
from beartype.claw import beartype_packages
beartype_packages(tops)
"""
GREEDY = """
import importlib.machinery, os
class Greedy:
    def find_spec(self, name, path=None, target=None):
        for folder in path or ():
            if name.partition(".")[0] in tops:
                used.append(name)
                details = (importlib.machinery.SourceFileLoader, importlib.machinery.SOURCE_SUFFIXES)
                return importlib.machinery.FileFinder(folder, details).find_spec(name, target)
sys.meta_path.insert(0, Greedy())
"""
HOOKS = {"asking": ASKING, "typeguard": TYPEGUARD, "beartype": BEARTYPE, "both": BEARTYPE + ASKING}

IMPORT = """
import site, warnings, importlib, io, contextlib
site.addsitedir(argument["site"])
tops, used = argument["tops"], []
sys.path[:0] = argument["path"]
exec(argument["hook"])
with warnings.catch_warnings(record=True) as caught, contextlib.redirect_stderr(io.StringIO()) as stderr:
    warnings.simplefilter("always")
    modules = [importlib.import_module(name) for name in argument["modules"]]
print(json.dumps({
    "files": [module.__file__ for module in modules],
    "stubs": [hasattr(module, "__flydsl__") for module in modules],
    "used": used,
    "warnings": [str(one.message) for one in caught],
    "lines": stderr.getvalue().splitlines(),
    "flydsl": "flydsl" in sys.modules,
}))
"""


def imported(installed: Editable, hook: str, *modules: str, path: tuple[str, ...] = (), **env: str) -> Any:
    """Import modules with a hook that stands before ours."""
    argument = {"tops": sorted({name.partition(".")[0] for name in modules}), "hook": hook, "path": path}
    return installed.run(*modules, script=f"argument |= json.loads({json.dumps(argument)!r})\n{IMPORT}", **env)


@pytest.mark.parametrize("on_path", [False, True])
@pytest.mark.parametrize("tool", HOOKS)
def test_tools_that_ask_for_the_file(tool: str, on_path: bool, tiny: Editable) -> None:
    for name in {"typeguard": ["typeguard"], "beartype": ["beartype"], "both": ["beartype"]}.get(tool, []):
        pytest.importorskip(name)
    path = (str(tiny.project),) if on_path else ()
    answer = imported(tiny, HOOKS[tool], NEGATE, "tiny_kernels", path=path)
    generation = tiny.folder / tiny.state()["modules"][NEGATE]["generation"]
    assert answer["files"] == [str(generation / SOURCE), str(tiny.project / "tiny_kernels" / "__init__.py")]
    assert (answer["stubs"], answer["warnings"], answer["lines"], answer["flydsl"]) == ([True, False], [], [], False)
    # Without this, the test would show nothing.
    assert tool == "beartype" or NEGATE in answer["used"]


def test_what_changed_is_compiled_for_them_too(edited: Editable) -> None:
    edited.edit(SOURCE, "-X[index]", "X[index] * 3.0")
    answer = imported(edited, ASKING, NEGATE)
    assert (answer["stubs"], NEGATE in answer["used"]) == ([True], True)
    assert answer["lines"] == [f"flydsl-build: {NEGATE}: {SOURCE} changed; compiling it"]
    edited.edit(SOURCE, "X[index] * 3.0", "X[index] * 5.0")
    answer = imported(edited, ASKING, NEGATE, FLYDSL_BUILD_EDITABLE_REBUILD="0")
    (text,) = answer["warnings"]
    assert text.startswith(f"{NEGATE}: the kernels are stale: {SOURCE} changed, and they cannot be compiled: ")


@pytest.mark.parametrize("layout", ["flat", "strict", "src"])
def test_layouts(layout: str, tmp_path: Path, warm_cache: Path) -> None:
    project = copy_project(PACKAGES / "layouts", tmp_path / "project")
    root = project
    if layout == "src":
        root = project / "src"
        root.mkdir()
        for name in ("outer", "space", "top_kernels.py"):
            (project / name).rename(root / name)
        settings = project / "pyproject.toml"
        settings.write_text(settings.read_text().replace("[tool.setuptools]", '[tool.setuptools]\npackage-dir = { "" = "src" }'))
    installed = install(project, tmp_path, cache=warm_cache, config={"editable_mode": layout} if layout == "strict" else {})
    if layout == "strict":
        (root,) = (project / "build").glob("__editable__*")
    answer = imported(installed, ASKING, *LAUNCHERS, path=(str(root),))
    assert set(LAUNCHERS) < set(answer["used"])
    modules = installed.state()["modules"]
    assert answer["files"] == [str(installed.folder / modules[name]["generation"] / modules[name]["file"]) for name in LAUNCHERS]
    assert (answer["warnings"], answer["flydsl"]) == ([], False)


REWRITING = """
import sys

from _pytest.assertion.rewrite import AssertionRewritingHook


def test_stub():
    import tiny_kernels.negate as module

    assert isinstance(module.__loader__, AssertionRewritingHook)
    assert hasattr(module, "__flydsl__")
    assert "flydsl" not in sys.modules
"""


@pytest.mark.parametrize("on_path", [False, True])
def test_assertion_rewriting(on_path: bool, tiny: Editable, tmp_path: Path) -> None:
    # An installed hook is there before pytest's, which stands before it then.
    (tmp_path / "conftest.py").write_text(
        f"import site, sys, pytest\nsite.addsitedir({str(tiny.site)!r})\n"
        + (f"sys.path.insert(0, {str(tiny.project)!r})\n" if on_path else "")
        + "pytest.register_assert_rewrite('tiny_kernels')\n"
        "hook = next(one for one in sys.meta_path if type(one).__name__ == 'AssertionRewritingHook')\n"
        "sys.meta_path.remove(hook)\nsys.meta_path.insert(0, hook)\n"
    )
    (tmp_path / "test_it.py").write_text(REWRITING)
    environ = {**build_environment(tmp_path), "FLYDSL_BUILD_LOAD": "lazy", "FLYDSL_BUILD_CACHE_DIR": str(tiny.cache)}
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


# --- what cannot be served ---------------------------------------------------------------------------------------------------------------

TAKEN = (
    f"{NEGATE}: its FlyDSL source was imported in the place of the compiled kernels: __main__.Greedy found the file without asking "
    "sys.path_hooks\n    -> import the module before this finder is installed, or leave the module out of what it finds; "
    "FLYDSL_BUILD_EDITABLE=jit imports the FlyDSL source without this warning"
)


def test_a_finder_that_asks_nobody_is_named(tiny: Editable) -> None:
    answer = imported(tiny, GREEDY, NEGATE)
    assert (answer["files"], answer["stubs"]) == ([str(tiny.project / SOURCE)], [False])
    assert answer["warnings"] == [TAKEN]
    # What it leaves alone is served.
    served = imported(tiny, GREEDY.replace("if name.partition", "if name != 'tiny_kernels.negate' and name.partition"), NEGATE)
    assert (served["stubs"], served["warnings"]) == ([True], [])


def test_a_source_that_is_the_last_import_is_told_at_the_end(tiny: Editable) -> None:
    script = "import flydsl.compiler, flydsl.expr, warnings, site\nsite.addsitedir(argument['site'])\n"
    script += f"tops, used = ['tiny_kernels'], []\n{GREEDY}\nimport tiny_kernels.negate\nprint(json.dumps(0))"
    code = f"import json, sys; argument = {{'site': {str(tiny.site)!r}}}\n{script}"
    environ = build_environment(None)
    done = subprocess.run([sys.executable, "-P", "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count(TAKEN) == 1, done.stderr


def test_whoever_asks_for_the_source_gets_it(tiny: Editable) -> None:
    answer = imported(tiny, ASKING, NEGATE, FLYDSL_BUILD_EDITABLE="jit")
    assert (answer["files"], answer["warnings"]) == ([str(tiny.project / SOURCE)], [])


# --- other packages of the same name -----------------------------------------------------------------------------------------------------


def not_imported(installed: Editable, name: str, other: Path) -> str:
    return (
        f"{name}: the compiled kernels of the editable install of {installed.project} are not imported: {other} comes before it\n"
        "    -> take its folder from sys.path, or install its project with pip install -e; "
        "FLYDSL_BUILD_EDITABLE=jit imports it without this warning"
    )


@pytest.mark.parametrize("tool", ["", "asking"])
def test_a_copy_that_comes_before_the_project_is_not_mixed_with_stubs(tool: str, tiny: Editable, tmp_path: Path) -> None:
    copy = copy_project(PACKAGES / "tiny", tmp_path / "copy")
    (copy / SOURCE).write_text("")
    (copy / "tiny_kernels" / "_flydsl").mkdir()
    (copy / "tiny_kernels" / "_flydsl" / "__init__.py").write_text("")
    answer = imported(tiny, HOOKS.get(tool, ""), "tiny_kernels", NEGATE, "tiny_kernels._flydsl", path=(str(copy),))
    files = ["__init__.py", "negate.py", "_flydsl/__init__.py"]
    assert (answer["files"], answer["stubs"]) == ([str(copy / "tiny_kernels" / name) for name in files], [False] * 3)
    # A finder that stands before ours has found it without asking.
    assert answer["warnings"] == ([] if tool else [not_imported(tiny, NEGATE, copy / "tiny_kernels")])
    answer = imported(tiny, "", NEGATE, path=(str(copy),), FLYDSL_BUILD_EDITABLE="jit")
    assert not [text for text in answer["warnings"] if "comes before" in text]


def test_an_unrelated_package_has_no_modules_of_the_project(tiny: Editable, tmp_path: Path) -> None:
    other = tmp_path / "tiny_kernels"
    other.mkdir()
    (other / "__init__.py").write_text("")
    answer = tiny.run("tiny_kernels", NEGATE, script=f"sys.path.insert(0, {str(tmp_path)!r})\n{EDITABLE_IMPORT}")
    # setuptools' finder asks for the name only: nothing of ours makes that look right.
    assert answer["origin"] == {"tiny_kernels": str(other / "__init__.py"), NEGATE: str(tiny.project / SOURCE)}
    assert answer["bundle"] == {}
    assert answer["warnings"] == [not_imported(tiny, NEGATE, other)]


def test_a_link_to_the_project_is_the_project(tiny: Editable, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tiny.project)
    answer = imported(tiny, "", NEGATE, path=(str(tmp_path / "link"),))
    assert (answer["stubs"], answer["warnings"]) == ([True], [])


def test_names_at_the_top_that_come_before_the_project(tmp_path: Path, warm_cache: Path) -> None:
    installed = install("layouts", tmp_path, cache=warm_cache)
    before = tmp_path / "before"
    (before / "outer").mkdir(parents=True)
    (before / "space").mkdir()
    (before / "top_kernels.py").write_text("")
    (before / "space" / "shared.py").write_text("")
    # Python itself prefers a package to a mere folder of its name, and a namespace has modules of several folders.
    names = ["top_kernels", "outer", "outer.inner.deep", "space.shared", "space.regular.own"]
    answer = imported(installed, "", *names, path=(str(before),))
    assert answer["stubs"] == [False, True, True, False, True]
    taken = {"top_kernels": before / "top_kernels.py", "space.shared": before / "space" / "shared.py"}
    assert [answer["files"][names.index(name)] for name in taken] == list(map(str, taken.values()))
    assert answer["warnings"] == [not_imported(installed, name, path) for name, path in taken.items()]


# --- the standard library's own -----------------------------------------------------------------------------------------------------------

STANDARD = """
import site, importlib, importlib.util, importlib.machinery, pkgutil, runpy, copy
site.addsitedir(argument["site"])
import tiny_kernels
(folder,) = tiny_kernels.__path__
listed = sorted(one.name for one in pkgutil.walk_packages(tiny_kernels.__path__, "tiny_kernels."))
specs = [
    importlib.util.find_spec("tiny_kernels.negate"),
    importlib.machinery.PathFinder.find_spec("tiny_kernels.negate", tiny_kernels.__path__),
    # As tools that look for files do: by the last part of the name.
    pkgutil.get_importer(folder).find_spec("negate"),
    pkgutil.get_importer(folder).find_spec("_flydsl"),
]
missing = [
    importlib.machinery.PathFinder.find_spec("tiny_kernels.no_such", tiny_kernels.__path__),
    importlib.machinery.PathFinder.find_spec("decimal", [folder]),
    pkgutil.get_importer(folder).find_spec("no_such"),
]
try:
    runpy.run_module("tiny_kernels.negate", run_name="__main__", alter_sys=True)
    ended = None
except SystemExit as error:
    ended = error.code
as_module = runpy.run_module("tiny_kernels.negate")["__flydsl__"].archs
import tiny_kernels.negate as module
before = id(module), module.__file__
with open(argument["source"], "a") as file:
    file.write("\\n# changed\\n")
importlib.invalidate_caches()
again = importlib.reload(module)
folders = [one for one in sys.path_importer_cache.values() if type(one).__name__ == "FolderFinder"]
print(json.dumps({
    "listed": listed,
    "specs": [[spec.name, spec.origin] for spec in specs],
    "missing": missing,
    "ended": ended,
    "archs": as_module,
    # Tools that look for distributions know folders by this.
    "kind": [isinstance(pkgutil.get_importer(folder), kind) for kind in (importlib.machinery.FileFinder, type(folders[0]))],
    "same": again is module,
    "moved": module.__file__ != before[1] and module.__spec__.origin == module.__file__,
}))
"""


def test_the_standard_library(edited: Editable) -> None:
    generation = edited.folder / edited.state()["modules"][NEGATE]["generation"]
    script = f"argument['source'] = {str(edited.project / SOURCE)!r}\n{STANDARD}"
    answer = edited.run(script=script)
    stub = str(generation / SOURCE)
    anchor = str(generation / "tiny_kernels" / "_flydsl" / "__init__.py")
    assert answer == {
        "listed": [NEGATE],
        "specs": [[NEGATE, stub], [NEGATE, stub], ["negate", stub], ["_flydsl", anchor]],
        "missing": [None, None, None],
        "ended": (
            f"{NEGATE}: this module has the compiled kernels; what its source does when it is run as a program "
            '(`if __name__ == "__main__":`) is not in it\n'
            "    -> move that to a module that declares no kernels; in an editable install, FLYDSL_BUILD_EDITABLE=jit runs the source"
        ),
        "archs": ["gfx942"],
        "kind": [True, True],
        "same": True,
        "moved": True,
    }


def test_a_stub_that_is_run_says_where_the_main_part_is(site: Path) -> None:
    done = subprocess.run([sys.executable, "-P", "-m", NEGATE], env={"PYTHONPATH": str(site)}, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(f"{NEGATE}: this module has the compiled kernels; what its source does when it is run as a program ")
    assert "Traceback" not in done.stderr


def test_a_pth_file_that_is_read_twice(tiny: Editable) -> None:
    script = """
import site
for _ in range(2):
    site.addsitedir(argument["site"], set())
names = [type(one).__module__ for one in sys.meta_path]
print(json.dumps([names.count("_editable_flydsl_tiny_kernels"), len([one for one in sys.path_hooks if hasattr(one, "__self__")])]))
"""
    assert tiny.run(script=script) == [1, 1]


def test_other_folders_are_left_alone(tiny: Editable) -> None:
    script = """
import site
site.addsitedir(argument["site"])
import decimal, numpy
kinds = {type(one).__name__ for one in sys.path_importer_cache.values()}
print(json.dumps(["FolderFinder" in kinds, "_editable_flydsl_tiny_kernels.installation" in sys.modules]))
"""
    assert tiny.run(script=script) == [False, False]
