# SPDX-License-Identifier: Apache-2.0
"""`flydsl-build verify`: a wheel or folder is what it says: digests, ELF files, symbols, manifests against code and stubs."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import io
import sys
import tempfile
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from flydsl_build.bundle.placement import is_artefact_folder, is_manifest
from flydsl_build.command_line.contents import open_contents
from flydsl_build.errors import BuildError, Fault, FaultCollector, VerifyError
from flydsl_build.package.wheel_file import record_digest

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from flydsl_build.command_line.arguments import Subparsers
    from flydsl_build.command_line.contents import BuiltModule, Contents

__all__ = ["add"]

_REBUILD = "the file was changed or damaged after the build: build or download the package again"


def add(subparsers: Subparsers) -> None:
    """Register the command."""
    parser = subparsers.add_parser("verify", help="check a wheel or an installed package; exit status 1 if something is wrong")
    help_text = "device wheels are checked against the host wheel that they belong to, if that is given, everything else by itself"
    parser.add_argument("paths", nargs="+", type=Path, metavar="WHEEL|DIR", help=help_text)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    faults: list[Fault] = []
    with contextlib.ExitStack() as stack:
        sets = _sets([stack.enter_context(open_contents(path)) for path in arguments.paths])
        for first, *others in sets:
            try:
                said = _verified(first, others)
            except BuildError as error:
                name = first.path.name
                faults += [
                    replace(one, where=f"{name}: {one.where}") if len(sets) > 1 and name not in one.where else one for one in error.faults
                ]
            else:
                sys.stdout.write(f"{first.path}: {said}: no fault found\n")
    if faults:
        raise VerifyError(*faults)
    return 0


def _sets(every: Sequence[Contents]) -> list[list[Contents]]:
    """Return what is to be checked together: a host wheel with its device wheels; all others alone.

    A device wheel belongs to the wheel into whose folders it is installed; of several, to the host wheel of its version.
    """
    sets = {one.path: [one] for one in every if not _is_device(one)}
    hosts = [one for (one,) in sets.values()]

    def serves(device: Contents, host: Contents) -> bool:
        # What cannot be read is said when it is checked.
        with contextlib.suppress(BuildError):
            return bool(device.sboms(host.modules()))
        return False

    for device in (one for one in every if _is_device(one)):
        own = [one for one in hosts if not set(one.artefact_folders()).isdisjoint(device.artefact_folders())]
        best = own[0].path if len(own) == 1 else max(own, key=lambda host: serves(device, host), default=device).path
        for other in sets.setdefault(best, []):
            if not set(device.bundles()).isdisjoint(other.bundles()):
                what = f"has code objects of {other.path.name}, and only one of the two can be installed"
                raise VerifyError(Fault(where=device.path.name, what=what, fix="give one of them"))
        sets[best].append(device)
    return list(sets.values())


def _bundles_of(modules: Sequence[BuiltModule]) -> list[str]:
    """Return the bundle of each code object."""
    return [one.beside(unit.bundle_of(target)) for one in modules for unit in one.manifest.units for target in unit.code_objects]


def _verified(contents: Contents, others: Sequence[Contents]) -> str:
    """Check a wheel or folder, with the device wheels that belong to it; return what was checked.

    Raises
    ------
    BuildError
        With all faults.
    """
    from flydsl_build.bundle.verify import verify_bundles, verify_package

    faults = FaultCollector()
    for one in (contents, *others):
        faults.extend(_record_faults(one))
    faults.raise_if_any(VerifyError)
    modules = [] if _is_device(contents) else contents.modules()
    with tempfile.TemporaryDirectory(prefix="flydsl-build-") as temporary:
        for one in (contents, *others):
            one.copy_to(Path(temporary))
        for folder in sorted({folder for one in (contents, *others) for folder in one.artefact_folders()}):
            check = verify_package if modules else verify_bundles
            faults.extend(replace(one, where=f"{folder}/{one.where}") for one in check(Path(temporary, folder)))
    faults.raise_if_any(VerifyError)
    there = {name for one in (contents, *others) for name in one.sizes}
    if not modules:
        return f"{len(contents.bundles())} bundles of a device wheel"
    faults.extend(_stub_faults(contents))
    faults.raise_if_any(VerifyError)
    # A folder may have several distributions.
    for distribution in dict.fromkeys(one.manifest.distribution for one in modules):
        of_it = [one for one in modules if one.manifest.distribution == distribution]
        for one in (contents, *others):
            faults.extend(_sbom_faults(one, of_it, is_first=one is contents))
    faults.raise_if_any(VerifyError)
    names = _bundles_of(modules)
    objects = sum(name in there for name in names)
    specializations = sum(1 for one in modules for _ in one.manifest.specializations())
    left = f" of {len(names)}" if objects < len(names) else ""
    return f"{len(modules)} modules, {specializations} specializations, {objects}{left} code objects"


def _is_device(contents: Contents) -> bool:
    """Whether these are the code objects of a device wheel alone."""
    return bool(contents.bundles()) and not any(is_manifest(name) for name in contents.sizes)


def _sbom_faults(contents: Contents, modules: Sequence[BuiltModule], *, is_first: bool) -> Iterator[Fault]:
    """Yield the bills of materials that do not say what the manifests say, and that a wheel has none."""
    from flydsl_build.package.sbom import SBOM_FILE, sbom, sbom_facts

    manifests = [one.manifest for one in modules]
    found = contents.sboms(modules)
    if not found and contents.wheel is not None:
        yield Fault(where=contents.path.name, what=f"has no bill of materials sboms/{SBOM_FILE} of these kernels", fix=_REBUILD)
    for path, what in found:
        targets = {target for one in manifests for target in one.targets} if what.targets is None else what.targets
        host = is_first and what.name == manifests[0].distribution.name
        expected = sbom(
            [one.provenance for one in manifests], name=what.name, version=manifests[0].distribution.version, targets=targets, host=host
        )
        try:
            facts = sbom_facts(contents.read(path))
        except ValueError as error:
            yield Fault(where=path, what=str(error), fix=_REBUILD)
            continue
        for text, some in (("lists", set(facts) - set(sbom_facts(expected))), ("does not list", set(sbom_facts(expected)) - set(facts))):
            for kind, name, version, digest in sorted(some):
                words = " ".join(filter(None, (kind, name, version, f"SHA-256 {digest}" if digest else "")))
                yield Fault(
                    where=path, what=f"{text} {words}, {'unlike' if text == 'lists' else 'which is in'} the manifests", fix=_REBUILD
                )


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
    if expected != record_digest(data):
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
