# SPDX-License-Identifier: Apache-2.0
"""`flydsl-build schema`: the JSON schema of the `[tool.flydsl-build]` table."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from flydsl_build.command_line.arguments import Subparsers

__all__ = ["add"]


def add(subparsers: Subparsers) -> None:
    """Register the command."""
    parser = subparsers.add_parser("schema", help="write the JSON schema of the [tool.flydsl-build] table")
    parser.set_defaults(run=_run)


def _run(_arguments: argparse.Namespace) -> int:
    from flydsl_build.config.schema import schema_text

    sys.stdout.write(schema_text())
    return 0
