# SPDX-License-Identifier: Apache-2.0
"""`flydsl-build build`: the wheel of a project, through the hook, with the packages that are installed here."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flydsl_build.command_line.arguments import add_config, add_project, config_settings, project_folder
from flydsl_build.errors import BuildError, Fault, FaultCollector

if TYPE_CHECKING:
    import argparse

    from flydsl_build.command_line.arguments import Subparsers

__all__ = ["add"]

_NEEDED = ("jinja2", "flydsl", "numpy")
_BACKEND = "flydsl_build.backend"


def add(subparsers: Subparsers) -> None:
    """Register the command."""
    parser = subparsers.add_parser("build", help="build a wheel into a folder, without pip and without isolation")
    add_project(parser)
    parser.add_argument("-o", "--output", required=True, type=Path, metavar="DIR", help="where to write the wheel")
    add_config(parser)
    parser.add_argument(
        "--split", action="store_true", help="write a host wheel, and a device wheel for each target, instead of one wheel for all"
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from flydsl_build import backend

    project = project_folder(arguments.project)
    output = arguments.output.resolve()
    document = _document(project)
    _check_environment(document)
    _note_other_backend(document)
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BuildError(
            Fault(where=str(arguments.output), what=f"cannot be made: {error.strerror}", fix="name a folder that is writable")
        ) from None
    with contextlib.chdir(project):
        if arguments.split:
            from flydsl_build.backend.hooks import build_split_wheels

            names = build_split_wheels(str(output), config_settings(arguments.config))
        else:
            names = [backend.build_wheel(str(output), config_settings(arguments.config))]
    sys.stdout.writelines(f"flydsl-build: wrote {output / name}\n" for name in names)
    return 0


def _document(project: Path) -> dict[str, Any]:
    try:
        return tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}  # The hook says what is wrong with the file.


def _table(document: Any, *keys: str) -> dict[str, Any]:
    for key in keys:
        document = document.get(key)
        if not isinstance(document, dict):
            return {}
    return dict(document)


def _check_environment(document: dict[str, Any]) -> None:
    faults = FaultCollector()
    # Another base says itself what it needs.
    needed = _NEEDED if "base" in _table(document, "tool", "flydsl-build") else ("setuptools", *_NEEDED)
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        faults.add(
            ", ".join(missing),
            "not installed here, and this command builds without isolation",
            f"pip install {' '.join(missing)}, or build with pip wheel",
        )
    faults.raise_if_any(BuildError)


def _note_other_backend(document: dict[str, Any]) -> None:
    if not document:
        return
    named = _table(document, "build-system").get("build-backend")
    if named != _BACKEND:
        found = f"is {named}" if named else "is missing"
        sys.stderr.write(f'flydsl-build: warning: build-backend {found}: pip builds no kernels until it is "{_BACKEND}"\n')
