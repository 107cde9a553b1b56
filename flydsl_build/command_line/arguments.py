# SPDX-License-Identifier: Apache-2.0
"""Arguments that several commands have, and how they write JSON."""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flydsl_build.errors import BuildError, Fault
from flydsl_build.regular_files import read_regular

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001 - the type has no public name

__all__ = [
    "add_config",
    "add_json",
    "add_project",
    "config_settings",
    "other_backend",
    "project_document",
    "project_folder",
    "table_in",
    "write_file",
    "write_json",
]

_BACKEND = "flydsl_build.backend"


def add_project(parser: argparse.ArgumentParser) -> None:
    """Add the optional PROJECT."""
    parser.add_argument("project", nargs="?", default=Path(), type=Path, metavar="PROJECT", help="folder with pyproject.toml (default: .)")


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add `-C KEY=VALUE`, as build front ends have it."""
    parser.add_argument(
        "-C", "--config-setting", action="append", default=[], dest="config", metavar="KEY=VALUE", help="a setting, as with pip's -C"
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="write JSON")


def config_settings(words: Sequence[str]) -> dict[str, str | list[str]]:
    """Return what a front end gives a hook for these `-C` options: a list where a key was given more than once."""
    found: dict[str, str | list[str]] = {}
    for word in words:
        key, _, value = word.partition("=")
        before = found.get(key)
        if before is None:
            found[key] = value
        else:
            found[key] = [*(before if isinstance(before, list) else [before]), value]
    return found


def project_folder(path: Path) -> Path:
    """Return the absolute path of a project; a path that is no folder is a fault."""
    if not path.is_dir():
        what = "is not a folder" if path.exists() else "does not exist"
        raise BuildError(Fault(where=str(path), what=what, fix="give the folder that has pyproject.toml"))
    return path.resolve()


def project_document(project: Path) -> dict[str, Any]:
    """Return what pyproject.toml says; empty where it cannot be read, of which the settings' reader says why."""
    try:
        return tomllib.loads(read_regular(project / "pyproject.toml").decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}


def table_in(document: Any, *keys: str) -> dict[str, Any]:
    """Return a table inside of a document; empty where there is none."""
    for key in keys:
        document = document.get(key)
        if not isinstance(document, dict):
            return {}
    return dict(document)


def other_backend(document: dict[str, Any]) -> str | None:
    """Return what is to be said of a project that names another back end than this one, or none."""
    named = table_in(document, "build-system").get("build-backend")
    if named == _BACKEND:
        return None
    return f'build-backend {f"is {named}" if named else "is missing"}: pip builds no kernels until it is "{_BACKEND}"'


def write_json(value: Any, *, indent: int | None = 1) -> None:
    """Write a value to standard output; without `indent` on one line, which is much faster for a large one."""
    sys.stdout.write(json.dumps(value, indent=indent, ensure_ascii=False) + "\n")


def write_file(path: Path, text: str, *, newline: str | None = None) -> None:
    """Write a file that the user named; that it cannot be written is a fault."""
    try:
        path.write_text(text, encoding="utf-8", newline=newline)
    except OSError as error:
        raise BuildError(
            Fault(where=str(path), what=f"cannot be written: {error.strerror or error}", fix="name a file in a folder that is writable")
        ) from None
