# SPDX-License-Identifier: Apache-2.0
"""`flydsl-build build`: the wheel of a project, through the hook, with the packages that are installed here."""

from __future__ import annotations

import contextlib
import importlib.util
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flydsl_build.command_line.arguments import add_config, add_project, config_settings, project_document, project_folder, table_in
from flydsl_build.errors import BuildError, Fault

if TYPE_CHECKING:
    import argparse

    from flydsl_build.command_line.arguments import Subparsers

__all__ = ["add"]

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
    document = project_document(project)
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


def _check_environment(document: dict[str, Any]) -> None:
    from flydsl_build.backend.hooks import FLYDSL, JINJA, NUMPY, SETUPTOOLS
    from flydsl_build.config.kinds import SETUPTOOLS as SETUPTOOLS_BASE

    # Another base says itself what it needs.
    has_other_base = table_in(document, "tool", "flydsl-build").get("base", SETUPTOOLS_BASE) != SETUPTOOLS_BASE
    needed = {re.split("[<>]", one)[0]: one for one in (*([] if has_other_base else [SETUPTOOLS]), JINJA, FLYDSL, NUMPY)}
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        install = " ".join(f'"{needed[name]}"' for name in missing)
        what = "not installed here, and this command builds without isolation"
        raise BuildError(Fault(where=", ".join(missing), what=what, fix=f"pip install {install}, or build with pip wheel"))


def _note_other_backend(document: dict[str, Any]) -> None:
    if not document:
        return
    named = table_in(document, "build-system").get("build-backend")
    if named != _BACKEND:
        found = f"is {named}" if named else "is missing"
        sys.stderr.write(f'flydsl-build: warning: build-backend {found}: pip builds no kernels until it is "{_BACKEND}"\n')
