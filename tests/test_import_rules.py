# SPDX-License-Identifier: Apache-2.0
"""The rooms and who may import whom, as one table, checked against the whole tree."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "flydsl_build"

# Room to the rooms it may import, beside itself. Leaves are importable from everywhere but the run time.
LEAVES = {"errors", "targets", "__init__"}
ROOMS: dict[str, set[str]] = {
    "__init__": set(),
    "errors": set(),
    "targets": {"errors"},
    "config": LEAVES,
    "declare": LEAVES | {"config"},
    "compile": LEAVES | {"config", "declare", "editable"},
    "bundle": LEAVES | {"config", "declare", "compile"},
    "stubs": LEAVES | {"config", "declare", "compile", "bundle"},
    "backend": LEAVES | {"config", "declare", "compile", "bundle", "stubs", "runtime", "editable"},
    # Copied into wheels: must not know flydsl_build.
    "runtime": set(),
    # Copied into editable wheels, likewise.
    "editable": set(),
    "command_line": LEAVES | {"config", "declare", "compile", "bundle", "stubs", "backend"},
    "__main__": {"command_line"},
}

# Third-party package to the one room that imports it.
THIRD_PARTY = {
    "distributed": "compile",
    "flydsl": "compile",
    "fsspec": "compile",
    "jinja2": "stubs",
    "setuptools": "backend",
    "rich": "backend",
    "variantlib": "backend",
}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


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


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports(path: Path) -> None:
    room = room_of(path)
    assert room in ROOMS, f"{path} is in no room: add it to the table and to DESIGN"
    for name in imports(path):
        top, _, rest = name.partition(".")
        if top == "flydsl_build":
            other = rest.partition(".")[0] or "__init__"
            if not (PACKAGE / other).is_dir() and not (PACKAGE / f"{other}.py").is_file():
                other = "__init__"  # `from flydsl_build import __version__`
            assert other == room or other in ROOMS[room], f"{room} imports {name}"
        elif top in THIRD_PARTY:
            assert room == THIRD_PARTY[top], f"{room} imports {name}"
        else:
            assert top in sys.stdlib_module_names, f"{room} imports {name}, which is no dependency"


@pytest.mark.parametrize("room", ["runtime", "editable"])
def test_what_is_copied_stands_alone(room: str) -> None:
    for path in sorted((PACKAGE / room).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and not node.level:
                assert node.module is not None
                assert node.module.partition(".")[0] in sys.stdlib_module_names, f"{path.name} imports {node.module}"


def test_every_room_is_there() -> None:
    present = {room_of(path) for path in modules()}
    assert present == set(ROOMS)
