# SPDX-License-Identifier: Apache-2.0
"""Check written packages: manifests against the files beside them, and each file by itself."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from flydsl_build.bundle.manifest import ManifestError, manifest_kernels, read_manifest
from flydsl_build.errors import Fault, FaultCollector
from flydsl_build.regular_files import read_regular
from flydsl_build.targets.checks import REBUILD, check_code_object, check_launcher_library, readable_code_object
from flydsl_build.targets.offload_bundle import OffloadBundleError, read_bundle
from flydsl_build.targets.processors import parse_target

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from flydsl_build.bundle.manifest import CodeObject, Library, Manifest, Unit
    from flydsl_build.targets.code_object import AmdgpuCodeObject

__all__ = ["verify_bundles", "verify_package"]


def verify_package(folder: Path, known: Mapping[str, AmdgpuCodeObject] | None = None) -> list[Fault]:
    """Check a written `_flydsl` folder: every manifest in it against the files beside it.

    Files are named relative to `folder`. The folder `runtime` is not looked into.

    Parameters
    ----------
    folder
        The folder.
    known
        Code objects that are parsed already, by SHA-256 digest.

    Returns
    -------
    list[Fault]
        Everything that is wrong; empty for a good one.
    """
    faults = FaultCollector()
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.relative_to(folder).parts[0] != "runtime")
    named: set[Path] = set()
    manifests = [path for path in files if path.suffix == ".json"]
    if not manifests:
        faults.add(folder.name, "there is no manifest in the folder", REBUILD)
    for path in manifests:
        named.add(path)
        where = path.relative_to(folder).as_posix()
        try:
            manifest = read_manifest(path)
        except ManifestError as error:
            faults.extend(
                Fault(where=f"{where.removesuffix(path.name)}{fault.where}", what=fault.what, fix=fault.fix) for fault in error.faults
            )
            continue
        named |= {path.parent / manifest.library.file, *(path.parent / name for unit in manifest.units for name in unit.bundles())}
        faults.extend(_verify_manifest(manifest, path, folder, known or {}))
    for path in files:
        if path not in named and path.suffix in {".elf", ".hipfb"}:
            faults.add(path.relative_to(folder).as_posix(), "belongs to no manifest", "remove it, or build the package again")
    return faults.faults


def verify_bundles(folder: Path) -> list[Fault]:
    """Check the bundles of a device wheel, which has no manifest: each has one sound code object, of the target in its name."""
    faults = FaultCollector()
    for path in sorted(folder.rglob("*.hipfb")):
        where = path.relative_to(folder).as_posix()
        data = _read(path, where, faults)
        if data is None:
            continue
        try:
            bundle = read_bundle(data, where=where)
        except OffloadBundleError as error:
            faults.extend(error.faults)
            continue
        target = path.name.removesuffix(".hipfb").rpartition(".")[2]
        if list(bundle.entries) != [target]:
            faults.add(where, f"the bundle has {_names(bundle.entries)}, its name says {target}", REBUILD)
            continue
        entry = bundle.entries[target]
        code_object = readable_code_object(bundle.data[entry.offset : entry.offset + entry.size], where, faults)
        if code_object is not None:
            e_flags = parse_target(target, where=where).e_flags
            faults.extend(check_code_object(code_object, where=where, target=target, e_flags=e_flags, kernels={}))
    return faults.faults


def _verify_manifest(manifest: Manifest, path: Path, folder: Path, known: Mapping[str, AmdgpuCodeObject]) -> list[Fault]:
    faults = FaultCollector()
    library = path.parent / manifest.library.file
    where = library.relative_to(folder).as_posix()
    data = _read(library, where, faults)
    if data is not None and _same_bytes(data, manifest.library, where, path.name, faults):
        entries = [
            entry.entry
            for _, specialization in manifest.specializations()
            for by_unit in specialization.entries.values()
            for entry in by_unit.values()
        ]
        faults.extend(check_launcher_library(data, where=where, entries=entries))
    for unit in manifest.units:
        for name, targets in unit.bundles().items():
            # The bundles of a split package come in device wheels, which need not be there.
            if not unit.is_split or (path.parent / name).is_file():
                _verify_bundle(path.parent / name, unit, targets, path.name, folder, known, faults)
    return faults.faults


def _verify_bundle(  # noqa: PLR0913, PLR0917 - each is one thing to compare with
    path: Path,
    unit: Unit,
    targets: Sequence[str],
    manifest: str,
    folder: Path,
    known: Mapping[str, AmdgpuCodeObject],
    faults: FaultCollector,
) -> None:
    where = path.relative_to(folder).as_posix()
    data = _read(path, where, faults)
    if data is None:
        return
    try:
        bundle = read_bundle(data, where=where)
    except OffloadBundleError as error:
        faults.extend(error.faults)
        return
    if set(bundle.entries) != set(targets):
        what = f"the bundle has {_names(bundle.entries)}, {manifest} has {_names(targets)}"
        faults.add(where, what, REBUILD)
    for target in targets:
        if target not in bundle.entries:
            continue
        expected = unit.code_objects[target]
        place = f"{where}, {target}"
        entry = bundle.entries[target]
        if entry.offset != expected.offset:
            faults.add(place, f"the object stands at {entry.offset}, {manifest} says {expected.offset}", REBUILD)
        data = bundle.data[entry.offset : entry.offset + entry.size]
        if _same_bytes(data, expected, place, manifest, faults):
            code_object = known.get(expected.sha256) or readable_code_object(data, place, faults)
            if code_object is not None:
                sizes = {variable.name: variable.size for variable in unit.globals}
                faults.extend(_verify_object(code_object, expected, place, target, sizes))


def _verify_object(
    code_object: AmdgpuCodeObject, expected: CodeObject, where: str, target: str, globals_: Mapping[str, int]
) -> list[Fault]:
    kernels = {kernel.symbol: [argument.size for argument in kernel.args] for kernel in expected.kernels}
    faults = check_code_object(code_object, where=where, target=target, e_flags=expected.e_flags, kernels=kernels, globals=globals_)
    # Equal digests and an unequal description: the manifest itself is wrong.
    if not faults and manifest_kernels(code_object) != expected.kernels:
        faults.append(Fault(where=where, what="the manifest describes other kernels than the code object has", fix=REBUILD))
    return faults


def _read(path: Path, where: str, faults: FaultCollector) -> bytes | None:
    try:
        return read_regular(path)
    except FileNotFoundError:
        faults.add(where, "is named in the manifest and does not exist", REBUILD)
    except OSError as error:
        faults.add(where, f"cannot be read: {error.strerror or error}", REBUILD)
    return None


def _same_bytes(data: bytes, expected: Library | CodeObject, where: str, manifest: str, faults: FaultCollector) -> bool:
    """Compare size and digest with the manifest's; record one fault and return False where they differ."""
    if len(data) != expected.size:
        faults.add(where, f"has {len(data)} bytes, {manifest} says {expected.size}", REBUILD)
    elif hashlib.sha256(data).hexdigest() != expected.sha256:
        faults.add(where, f"the SHA-256 digest is not the one in {manifest}", REBUILD)
    else:
        return True
    return False


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
