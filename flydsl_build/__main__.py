# SPDX-License-Identifier: Apache-2.0
"""The command line: `python -m flydsl_build`, also installed as `flydsl-build`."""

from __future__ import annotations

import argparse
import sys
import zipfile
from pathlib import Path

from flydsl_build import __version__
from flydsl_build.backend.summary import print_summary
from flydsl_build.bundle.manifest import Manifest
from flydsl_build.errors import BuildError, Fault

__all__ = ["main"]


def _manifests(path: Path) -> list[Manifest]:
    """Read every manifest in a wheel or an installed or built package folder."""
    if path.is_dir():
        texts = [(str(one.relative_to(path)), one.read_bytes()) for one in sorted(path.rglob("*.json")) if _is_manifest(one.parts)]
    else:
        try:
            with zipfile.ZipFile(path) as wheel:
                texts = [
                    (name, wheel.read(name))
                    for name in sorted(wheel.namelist())
                    if name.endswith(".json") and _is_manifest(name.split("/"))
                ]
        except (OSError, zipfile.BadZipFile) as error:
            raise BuildError(Fault(where=str(path), what=f"is not a wheel ({error})", fix="give a wheel or a folder")) from None
    if not texts:
        raise BuildError(
            Fault(where=str(path), what="has no kernels built by flydsl-build", fix="give a wheel or folder that has a _flydsl folder")
        )
    return [Manifest.from_json(text, where=name) for name, text in texts]


def _is_manifest(parts: tuple[str, ...] | list[str]) -> bool:
    return any(part == "_flydsl" or part.startswith("_flydsl_") for part in parts)


def _inspect(arguments: argparse.Namespace) -> int:
    print_summary(_manifests(arguments.path), sys.stdout)
    return 0


def main(argv: list[str] | None = None) -> int:
    """Run one command; return its exit status."""
    parser = argparse.ArgumentParser(prog="flydsl-build", description="Ahead-of-time packaging of FlyDSL kernels.")
    parser.add_argument("--version", action="version", version=f"flydsl-build {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    inspect = commands.add_parser("inspect", help="show what is in a wheel")
    inspect.add_argument("path", type=Path, help="a wheel, or a folder with an installed package")
    inspect.set_defaults(run=_inspect)
    arguments = parser.parse_args(argv)
    try:
        status: int = arguments.run(arguments)
    except BuildError as error:
        sys.stderr.write(f"flydsl-build: {error}\n")
        return 1
    return status


if __name__ == "__main__":
    sys.exit(main())
