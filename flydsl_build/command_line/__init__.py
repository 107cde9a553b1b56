# SPDX-License-Identifier: Apache-2.0
"""The command line. One file is one command: its `add(subparsers)` registers it, with the function that runs it as the default of `run`.

A command returns its exit status; what is wrong with its input it raises as a `BuildError`. Imports that cost time stand inside `run`.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status: 0 done, 1 something is wrong with the input, 2 the command line itself is wrong."""
    try:
        return _run(argv)
    except KeyboardInterrupt:
        sys.stderr.write("flydsl-build: interrupted\n")
        return _INTERRUPTED


def _run(argv: Sequence[str] | None) -> int:
    from flydsl_build import __version__
    from flydsl_build.command_line import build, cache, diff, doctor, init, inspect, plan, report, schema, verify
    from flydsl_build.errors import BuildError

    parser = argparse.ArgumentParser(prog="flydsl-build", description="Ahead-of-time packaging of FlyDSL kernels.")
    parser.add_argument("--version", action="version", version=f"flydsl-build {__version__}")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for command in (init, plan, build, inspect, verify, diff, report, cache, doctor, schema):
        command.add(subparsers)
    arguments = parser.parse_args(argv)
    try:
        status: int = arguments.run(arguments)
        sys.stdout.flush()
    except BuildError as error:
        sys.stdout.flush()
        sys.stderr.write(f"flydsl-build: {error}\n")
        return 1
    except BrokenPipeError:
        # The reader, `head` for one, has seen enough. Python would complain once more when it closes standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return status
