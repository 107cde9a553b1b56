# SPDX-License-Identifier: Apache-2.0
"""`flydsl-build verify`: a wheel or folder is what it says: digests, ELF files, symbols, manifests against code and stubs."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import sys
import tempfile
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from flydsl_build.command_line.contents import is_artefact_folder, open_contents
from flydsl_build.errors import BuildError, Fault, VerifyError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from flydsl_build.command_line.arguments import Subparsers
    from flydsl_build.command_line.contents import Contents

__all__ = ["add"]

_REBUILD = "the file was changed or damaged after the build: build or download the package again"


def add(subparsers: Subparsers) -> None:
    """Register the command."""
    parser = subparsers.add_parser("verify", help="check a wheel or an installed package; exit status 1 if something is wrong")
    parser.add_argument("path", type=Path, metavar="WHEEL|DIR")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from flydsl_build.bundle.verify import verify_package

    with open_contents(arguments.path) as contents:
        faults = list(_record_faults(contents))
        folders = contents.artefact_folders()
        if not folders:
            contents.modules()  # raises, with what to give
        with tempfile.TemporaryDirectory(prefix="flydsl-build-") as temporary:
            if not faults:
                contents.copy_to(Path(temporary))
                for folder in folders:
                    faults += [replace(one, where=f"{folder}/{one.where}") for one in verify_package(Path(temporary, folder))]
        if not faults:
            faults += _stub_faults(contents)
        if faults:
            raise VerifyError(*faults)
        modules = contents.modules()
    objects = sum(len(unit.code_objects) for one in modules for unit in one.manifest.units)
    specializations = sum(1 for one in modules for _ in one.manifest.specializations())
    sys.stdout.write(
        f"{arguments.path}: {len(modules)} modules, {specializations} specializations, {objects} code objects: no fault found\n"
    )
    return 0


def _record_faults(contents: Contents) -> Iterator[Fault]:
    """Yield the members of a wheel that are not as its RECORD says."""
    if contents.wheel is None:
        return
    records = [name for name in contents.sizes if name.endswith(".dist-info/RECORD") and name.count("/") == 1]
    if len(records) != 1:
        yield Fault(where=contents.path.name, what=f"has {len(records)} RECORD files, a wheel has one", fix="give a wheel")
        return
    rows = csv.reader(io.StringIO(contents.read(records[0]).decode("utf-8", "replace")))
    listed = {row[0]: row[1] for row in rows if len(row) > 1}
    for name in contents.sizes:
        if name not in listed:
            yield Fault(where=name, what="is not in RECORD", fix=_REBUILD)
        elif name != records[0]:
            yield from _digest_faults(name, listed[name], contents)
    for name in listed:
        if name not in contents.sizes:
            yield Fault(where=name, what="is in RECORD and not in the wheel", fix=_REBUILD)


def _digest_faults(name: str, expected: str, contents: Contents) -> Iterator[Fault]:
    try:
        data = contents.read(name)
    except BuildError as error:
        yield from error.faults
        return
    if expected != "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode():
        yield Fault(where=name, what="the digest is not the one in RECORD", fix=_REBUILD)


def _stub_faults(contents: Contents) -> Iterator[Fault]:
    """Yield the stubs that are missing, or that were made for another manifest than the one they name."""
    for module in contents.modules():
        stub = _stub_of(module.path)
        try:
            text = contents.read(stub)
        except BuildError:
            yield Fault(where=stub, what=f"the stub of {module.manifest.module} is missing", fix=_REBUILD)
            continue
        if hashlib.sha256(contents.read(module.path)).hexdigest().encode() not in text:
            yield Fault(where=stub, what=f"the stub was made for another manifest than {module.path}", fix=_REBUILD)


def _stub_of(manifest: str) -> str:
    """Return where the stub stands: below the `_flydsl` folder everything is laid out as beside it, see `backend.placement`."""
    parts = PurePosixPath(manifest).with_suffix(".py").parts
    anchor = next(depth for depth, part in enumerate(parts) if is_artefact_folder(part))
    return "/".join((*parts[:anchor], *parts[anchor + 1 :]))
