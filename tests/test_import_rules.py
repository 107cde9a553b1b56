# SPDX-License-Identifier: Apache-2.0
"""The rooms and who may import whom, as one table from low to high, checked against the whole tree.

The table permits nothing that is not used: a room that no longer needs another one loses it here.
"""

from __future__ import annotations

import ast
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from flydsl_build.jobs.frontend import FRONTENDS

PACKAGE = Path(__file__).resolve().parents[1] / "flydsl_build"

# From low to high: each room, and the rooms below it that it imports.
ROOMS: dict[str, set[str]] = {
    "__init__": set(),
    "errors": set(),
    "dtypes": set(),
    "regular_files": set(),
    "codec": {"errors"},
    "targets": {"errors"},
    "config": {"errors", "codec", "targets", "regular_files"},
    "declare": {"errors", "codec", "dtypes", "config"},
    "jobs": {"errors", "codec", "config", "declare"},
    "llvm_ir": set(),
    # Copied into wheels, and into editable wheels: these know nothing of flydsl_build.
    "runtime": set(),
    "editable": set(),
    "cache": {"__init__", "errors", "codec", "config", "jobs", "editable", "regular_files"},
    "toolchain": {"errors", "jobs", "cache", "regular_files"},
    "engine": {"__init__", "errors", "codec", "targets", "jobs", "cache", "toolchain"},
    "frontends": {"errors", "codec", "dtypes", "targets", "config", "declare", "jobs", "llvm_ir", "editable", "cache", "regular_files"},
    "bundle": {"errors", "codec", "dtypes", "targets", "declare", "jobs", "regular_files"},
    "consumers": {"__init__", "errors", "codec", "dtypes", "config", "declare", "jobs", "bundle"},
    "package": {
        "__init__", "errors", "codec", "targets", "config", "declare", "jobs", "cache", "toolchain", "engine", "bundle", "consumers",
        "regular_files",
    },
    "backend": {"__init__", "errors", "config", "declare", "jobs", "cache", "toolchain", "engine", "consumers", "package", "editable"},
    "command_line": {
        "__init__", "errors", "targets", "config", "declare", "jobs", "cache", "toolchain", "bundle", "consumers", "package", "backend",
        "regular_files",
    },
    "__main__": {"command_line"},
}  # fmt: skip

# Third-party package to the one place that imports it.
THIRD_PARTY = {
    "distributed": "engine",
    "flydsl": "frontends/flydsl",
    "fsspec": "cache",
    "jinja2": "consumers",
    "setuptools": "backend",
    "rich": "package",
    "variantlib": "package",
}

FILES = {".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts): path for path in sorted(PACKAGE.rglob("*.py"))}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> set[str]:
    """Return the absolute names of everything a file imports, anywhere in it."""
    package = ["flydsl_build", *path.relative_to(PACKAGE).parts[:-1]]
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            found.update(f"{origin}.{alias.name}" for alias in node.names)
    return found


def room_of_name(name: str) -> str:
    """Return the room of a name of flydsl_build's."""
    first = name.split(".")[1] if "." in name else "__init__"
    # What is no room is a name of the package itself: `from flydsl_build import __version__`.
    return first if (PACKAGE / first).is_dir() or (PACKAGE / f"{first}.py").is_file() else "__init__"


def file_of_name(name: str) -> str | None:
    """Return the file that a name of flydsl_build's is in."""
    while name:
        for file in (name, f"{name}.__init__"):
            if file in FILES:
                return file
        name = name.rpartition(".")[0]
    return None


def own(names: set[str]) -> set[str]:
    return {name for name in names if name.partition(".")[0] == "flydsl_build"}


@pytest.mark.parametrize("path", FILES.values(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_third_party(path: Path) -> None:
    for name in imports(path):
        top = name.partition(".")[0]
        if top in THIRD_PARTY:
            place = PACKAGE / THIRD_PARTY[top]
            assert path.is_relative_to(place), f"{path} imports {name}"
        else:
            assert top == "flydsl_build" or top in sys.stdlib_module_names, f"{path} imports {name}, which is no dependency"


def test_the_table_is_what_the_rooms_import() -> None:
    found: dict[str, set[str]] = {room: set() for room in ROOMS}
    for path in FILES.values():
        found.setdefault(room_of(path), set()).update(map(room_of_name, own(imports(path))))
    for room, others in found.items():
        others.discard(room)
        assert room == "__init__" or others == ROOMS.get(room), room
    assert found.keys() == ROOMS.keys()


def test_imports_go_down() -> None:
    order = list(ROOMS)
    for room, others in ROOMS.items():
        assert all(order.index(other) < order.index(room) for other in others), room


def test_files_import_each_other_in_no_circle() -> None:
    graph = {
        name: {file for one in own(imports(path)) if (file := file_of_name(one)) not in {None, name, "flydsl_build.__init__"}}
        for name, path in FILES.items()
        # The native part of the run time is no file of Python's.
        if not name.startswith("flydsl_build.runtime.")
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" <- ".join(error.args[1]))


def test_front_ends_are_known_by_name_only() -> None:
    """The list of front ends and the tables of declarations name a front end; nothing else does, and its files are imported by its own."""
    places = set()
    for path in FILES.values():
        name = path.relative_to(PACKAGE).as_posix()
        for front_end in FRONTENDS:
            if name.startswith(f"frontends/{front_end}/"):
                continue
            assert not [one for one in imports(path) if one.startswith(f"flydsl_build.frontends.{front_end}")], name
            tree = ast.parse(path.read_text(encoding="utf-8"))
            if any(isinstance(node, ast.Constant) and node.value == front_end for node in ast.walk(tree)):
                places.add(name)
    assert places == {"config/tables.py", "jobs/frontend.py"}


@pytest.mark.parametrize("room", ["runtime", "editable"])
def test_what_is_copied_stands_alone(room: str) -> None:
    for path in sorted((PACKAGE / room).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and not node.level:
                assert node.module is not None
                assert node.module.partition(".")[0] in sys.stdlib_module_names, f"{path.name} imports {node.module}"
