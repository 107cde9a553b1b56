# SPDX-License-Identifier: Apache-2.0
"""Check code objects and written packages, so that what the build did not check cannot fail at run time."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from flydsl_build.bundle.manifest import ManifestError, manifest_kernels, read_manifest
from flydsl_build.errors import Fault, FaultCollector
from flydsl_build.targets.elf import EM_X86_64, ElfError, describe_e_flags, read_code_object, read_elf
from flydsl_build.targets.offload_bundle import OffloadBundleError, read_bundle
from flydsl_build.targets.processors import parse_target

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from flydsl_build.bundle.manifest import CodeObject, Library, Manifest, Unit
    from flydsl_build.targets.elf import AmdgpuCodeObject, AmdgpuKernel, ElfFile, KernelDescriptor, Symbol

__all__ = ["verify_bundles", "verify_code_object", "verify_launcher_library", "verify_package"]

_OS_ABI_AMDGPU_HSA: Final = 64
_ABI_VERSION_6: Final = 4
_BUG: Final = "this is a fault of flydsl-build or FlyDSL: please report it"
_REBUILD: Final = "the file was changed or damaged after the build: build or install the package again"
_KEEP_GLOBAL: Final = (
    "declare it as a HIP __device__ variable, or in LLVM IR as externally_initialized with external linkage, or list it in @llvm.used; "
    "otherwise the linker of bitcode makes it local or folds it away"
)


def verify_code_object(  # noqa: PLR0913 - each is one thing to compare with
    data: bytes,
    *,
    where: str,
    target: str,
    e_flags: int,
    kernels: Mapping[str, Sequence[int]],
    globals: Mapping[str, int | None] | None = None,  # noqa: A002 - the manifest's word
) -> list[Fault]:
    """Check one code object against what was asked for.

    Parameters
    ----------
    data
        The AMDGPU ELF.
    where
        Module and target, for faults.
    target
        The target's name.
    e_flags
        What its e_flags must be.
    kernels
        Symbol of each kernel that the launchers launch, to the sizes in bytes of the arguments they pass.
    globals
        Device variables that init functions write, to their size in bytes where it is known already.

    Returns
    -------
    list[Fault]
        Everything that is wrong; empty for a good one.
    """
    faults = FaultCollector()
    try:
        code_object = read_code_object(data)
    except ElfError as error:
        faults.add(where, f"the code object cannot be read: {error}", _BUG)
        return faults.faults
    _check_header(code_object.elf, where, target, e_flags, faults)
    found = {kernel.symbol: kernel for kernel in code_object.kernels}
    for symbol, sizes in kernels.items():
        place = f"{where}, kernel {symbol}"
        if symbol not in found:
            names = ", ".join(sorted(found)) or "none"
            faults.add(place, f"the code object has no such kernel; it has {names}", _BUG)
            continue
        _check_kernel(found[symbol], code_object, sizes, place, faults)
    _check_undefined(code_object.elf, where, faults)
    for name, size in (globals or {}).items():
        _check_global(code_object.elf, name, size, f"{where}, global {name}", faults)
    return faults.faults


def _check_header(elf: ElfFile, where: str, target: str, e_flags: int, faults: FaultCollector) -> None:
    # The reader has refused any other class, byte order and machine.
    if elf.os_abi != _OS_ABI_AMDGPU_HSA:
        faults.add(where, f"EI_OSABI is {elf.os_abi}, a code object for HIP has {_OS_ABI_AMDGPU_HSA}", _BUG)
    if elf.abi_version != _ABI_VERSION_6:
        what = f"EI_ABIVERSION is {elf.abi_version} (code object version {elf.abi_version + 2}), {_ABI_VERSION_6} (version 6) was asked for"
        faults.add(where, what, "all bitcode must have code object version 6: compile it with clang -mcode-object-version=6")
    if elf.e_flags != e_flags:
        what = f"the code object is for {describe_e_flags(elf.e_flags)}; target {target} needs {describe_e_flags(e_flags)}"
        faults.add(
            where, what, "check that nothing in the kernel's module sets an architecture of its own; if nothing does, please report it"
        )


def _check_kernel(kernel: AmdgpuKernel, code_object: AmdgpuCodeObject, sizes: Sequence[int], where: str, faults: FaultCollector) -> None:
    symbols = {symbol.name: symbol for symbol in code_object.elf.dynamic_symbols}
    for name, kind, noun in ((kernel.symbol, "FUNC", "function"), (f"{kernel.symbol}.kd", "OBJECT", "kernel descriptor")):
        symbol = symbols.get(name)
        if symbol is None or symbol.is_undefined:
            faults.add(where, f"its {noun} {name} is not in .dynsym", _BUG)
        elif symbol.type != kind or symbol.binding == "LOCAL":
            faults.add(where, f"its {noun} {name} is a {symbol.binding} {symbol.type} in .dynsym, not a GLOBAL {kind}", _BUG)
    explicit = [argument.size for argument in kernel.explicit_arguments]
    if explicit != list(sizes):
        what = f"the kernel takes arguments of {_bytes(explicit)}, its launcher passes {_bytes(sizes)}"
        faults.add(where, what, _BUG)
    _check_layout(kernel, where, faults)
    if kernel.descriptor is not None:
        function = symbols.get(kernel.symbol)
        _check_descriptor(kernel, kernel.descriptor, function.address if function else None, where, faults)


def _check_layout(kernel: AmdgpuKernel, where: str, faults: FaultCollector) -> None:
    end = 0
    for argument in kernel.arguments:
        if argument.offset < end:
            faults.add(where, f"two arguments overlap at offset {argument.offset} of the kernarg segment", _BUG)
        end = argument.offset + argument.size
    if end > kernel.kernarg_size:
        faults.add(where, f"the arguments end at {end}, the kernarg segment has {kernel.kernarg_size} bytes", _BUG)


def _check_descriptor(kernel: AmdgpuKernel, descriptor: KernelDescriptor, address: int | None, where: str, faults: FaultCollector) -> None:
    pairs = (
        ("kernarg segment", descriptor.kernarg_size, kernel.kernarg_size),
        ("static LDS", descriptor.group_segment_size, kernel.group_segment_size),
        ("scratch", descriptor.private_segment_size, kernel.private_segment_size),
    )
    for noun, in_descriptor, in_metadata in pairs:
        if in_descriptor != in_metadata:
            faults.add(where, f"{noun} is {in_descriptor} bytes in the kernel descriptor and {in_metadata} in the metadata", _BUG)
    if address is not None and descriptor.entry != address:
        faults.add(where, f"the kernel descriptor starts at {descriptor.entry:#x}, the function stands at {address:#x}", _BUG)


def _bytes(sizes: Sequence[int]) -> str:
    return f"{', '.join(map(str, sizes))} bytes" if sizes else "none"


def _check_undefined(elf: ElfFile, where: str, faults: FaultCollector) -> None:
    for name in elf.undefined:
        faults.add(
            where,
            f"undefined symbol {name}: no bitcode defines it",
            "give the bitcode that defines it; clang -x hip drops unused __device__ functions unless it is called with -fgpu-rdc",
        )


def _check_global(elf: ElfFile, name: str, size: int | None, where: str, faults: FaultCollector) -> None:
    symbol = _named(elf.dynamic_symbols, name)
    if symbol is None:
        local = _named(elf.static_symbols, name)
        if local is not None:
            faults.add(where, f"is {local.binding.lower()} to the code object, so no init function can find it", _KEEP_GLOBAL)
        else:
            faults.add(where, "is not in the code object: no bitcode defines it, or it was folded away", _KEEP_GLOBAL)
    elif symbol.is_undefined:
        return  # Among the undefined symbols already.
    elif symbol.type != "OBJECT":
        faults.add(where, f"is a {symbol.type} in .dynsym, not a variable", "name the variable that the init function writes")
    elif symbol.binding != "GLOBAL":
        faults.add(
            where, f"has {symbol.binding.lower()} linkage; HIP looks up global symbols", "give it external linkage (not weak, not inline)"
        )
    elif symbol.size == 0:
        faults.add(where, "has no size in .dynsym", "give the variable a type with a size")
    elif size is not None and symbol.size != size:
        faults.add(where, f"has {symbol.size} bytes, {size} are expected", _REBUILD)


def _named(symbols: Iterable[Symbol], name: str) -> Symbol | None:
    return next((symbol for symbol in symbols if symbol.name == name), None)


def verify_launcher_library(data: bytes, *, where: str, entries: Iterable[str]) -> list[Fault]:
    """Check a launcher library: an x86-64 shared library that needs nothing and exports every entry.

    Parameters
    ----------
    data
        The ELF file.
    where
        Its name, for faults.
    entries
        The symbols the manifest names.
    """
    faults = FaultCollector()
    try:
        elf = read_elf(data)
    except ElfError as error:
        faults.add(where, f"the launcher library cannot be read: {error}", _REBUILD)
        return faults.faults
    if elf.machine != EM_X86_64:
        faults.add(where, f"e_machine is {elf.machine}, an x86-64 library has {EM_X86_64}", _BUG)
    if elf.needed:
        faults.add(where, f"needs {', '.join(elf.needed)}; a launcher library needs no other", _BUG)
    if elf.undefined:
        faults.add(where, f"has undefined symbols: {', '.join(elf.undefined)}", _BUG)
    exported = {symbol.name for symbol in elf.dynamic_symbols if not symbol.is_undefined and symbol.type == "FUNC"}
    for entry in sorted(set(entries) - exported):
        faults.add(where, f"does not export {entry}, which the manifest names", _REBUILD)
    return faults.faults


def verify_package(folder: Path) -> list[Fault]:
    """Check a written `_flydsl` folder: every manifest in it against the files beside it.

    Files are named relative to `folder`. The folder `runtime` is not looked into.

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
        faults.add(folder.name, "there is no manifest in the folder", _REBUILD)
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
        faults.extend(_verify_manifest(manifest, path, folder))
    for path in files:
        if path not in named and path.suffix in {".elf", ".hipfb"}:
            faults.add(path.relative_to(folder).as_posix(), "belongs to no manifest", "remove it, or build the package again")
    return faults.faults


def verify_bundles(folder: Path) -> list[Fault]:
    """Check the bundles of a device wheel, which has no manifest: each has one sound code object, of the target in its name."""
    faults = FaultCollector()
    for path in sorted(folder.rglob("*.hipfb")):
        where = path.relative_to(folder).as_posix()
        try:
            bundle = read_bundle(path.read_bytes(), where=where)
        except OffloadBundleError as error:
            faults.extend(error.faults)
            continue
        target = path.name.removesuffix(".hipfb").rpartition(".")[2]
        if list(bundle.entries) != [target]:
            faults.add(where, f"the bundle has {_names(bundle.entries)}, its name says {target}", _REBUILD)
            continue
        entry = bundle.entries[target]
        data = bundle.data[entry.offset : entry.offset + entry.size]
        e_flags = parse_target(target, where=where).e_flags
        faults.extend(verify_code_object(data, where=where, target=target, e_flags=e_flags, kernels={}))
    return faults.faults


def _verify_manifest(manifest: Manifest, path: Path, folder: Path) -> list[Fault]:
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
        faults.extend(verify_launcher_library(data, where=where, entries=entries))
    for unit in manifest.units:
        for name, targets in unit.bundles().items():
            # The bundles of a split package come in device wheels, which need not be there.
            if not unit.is_split or (path.parent / name).is_file():
                _verify_bundle(path.parent / name, unit, targets, path.name, folder, faults)
    return faults.faults


def _verify_bundle(  # noqa: PLR0913, PLR0917 - each is one thing to compare with
    path: Path, unit: Unit, targets: Sequence[str], manifest: str, folder: Path, faults: FaultCollector
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
        faults.add(where, what, _REBUILD)
    for target in targets:
        if target not in bundle.entries:
            continue
        expected = unit.code_objects[target]
        place = f"{where}, {target}"
        entry = bundle.entries[target]
        if entry.offset != expected.offset:
            faults.add(place, f"the object stands at {entry.offset}, {manifest} says {expected.offset}", _REBUILD)
        data = bundle.data[entry.offset : entry.offset + entry.size]
        if _same_bytes(data, expected, place, manifest, faults):
            sizes = {variable.name: variable.size for variable in unit.globals}
            faults.extend(_verify_object(data, expected, place, target, sizes))


def _verify_object(data: bytes, expected: CodeObject, where: str, target: str, globals_: dict[str, int]) -> list[Fault]:
    kernels = {kernel.symbol: [argument.size for argument in kernel.args] for kernel in expected.kernels}
    faults = verify_code_object(data, where=where, target=target, e_flags=expected.e_flags, kernels=kernels, globals=dict(globals_))
    # Equal digests and an unequal description: the manifest itself is wrong.
    if not faults and manifest_kernels(read_code_object(data)) != expected.kernels:
        faults.append(Fault(where=where, what="the manifest describes other kernels than the code object has", fix=_REBUILD))
    return faults


def _read(path: Path, where: str, faults: FaultCollector) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        faults.add(where, "is named in the manifest and does not exist", _REBUILD)
    except OSError as error:
        faults.add(where, f"cannot be read: {error.strerror or error}", _REBUILD)
    return None


def _same_bytes(data: bytes, expected: Library | CodeObject, where: str, manifest: str, faults: FaultCollector) -> bool:
    """Compare size and digest with the manifest's; record one fault and return False where they differ."""
    if len(data) != expected.size:
        faults.add(where, f"has {len(data)} bytes, {manifest} says {expected.size}", _REBUILD)
    elif hashlib.sha256(data).hexdigest() != expected.sha256:
        faults.add(where, f"the SHA-256 digest is not the one in {manifest}", _REBUILD)
    else:
        return True
    return False


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "nothing"
