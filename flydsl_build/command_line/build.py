# SPDX-License-Identifier: Apache-2.0
"""`flydsl-build build`: the wheel of a project, through the hook, with the packages that are installed here."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flydsl_build.command_line.arguments import add_config, add_project, config_settings, other_backend, project_document, project_folder
from flydsl_build.errors import BuildError, Fault

if TYPE_CHECKING:
    import argparse

    from flydsl_build.command_line.arguments import Subparsers

__all__ = ["add"]


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
    _note_other_backend(project_document(project))
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


def _note_other_backend(document: dict[str, Any]) -> None:
    warning = other_backend(document) if document else None
    if warning is not None:
        sys.stderr.write(f"flydsl-build: warning: {warning}\n")
