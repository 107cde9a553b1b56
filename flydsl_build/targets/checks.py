# SPDX-License-Identifier: Apache-2.0
"""Check code objects and launcher libraries by themselves, so that what the build did not check cannot fail at run time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from flydsl_build.errors import FaultCollector
from flydsl_build.targets.code_object import describe_e_flags, read_code_object
from flydsl_build.targets.elf import EM_X86_64, ElfError, read_elf

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from flydsl_build.errors import Fault
    from flydsl_build.targets.code_object import AmdgpuCodeObject, AmdgpuKernel, KernelDescriptor
    from flydsl_build.targets.elf import ElfFile

__all__ = ["REBUILD", "check_code_object", "check_launcher_library", "readable_code_object"]

REBUILD: Final = "the file was changed or damaged after the build: build or install the package again"
_OS_ABI_AMDGPU_HSA: Final = 64
_ABI_VERSION_6: Final = 4
_BUG: Final = "this is a fault of flydsl-build or FlyDSL: please report it"
_KEEP_GLOBAL: Final = (
    "declare it as a HIP __device__ variable, or in LLVM IR as externally_initialized with external linkage, or list it in @llvm.used; "
    "otherwise the linker of bitcode makes it local or folds it away"
)


def readable_code_object(data: bytes, where: str, faults: FaultCollector) -> AmdgpuCodeObject | None:
    """Return the parsed code object; None, with a fault, for what is none."""
    try:
        return read_code_object(data)
    except ElfError as error:
        faults.add(where, f"the code object cannot be read: {error}", _BUG)
        return None


def check_code_object(  # noqa: PLR0913 - each is one thing to compare with
    code_object: AmdgpuCodeObject,
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
    code_object
        The code object.
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
        _check_global(code_object, name, size, f"{where}, global {name}", faults)
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
    symbols = code_object.symbols
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


def _check_global(code_object: AmdgpuCodeObject, name: str, size: int | None, where: str, faults: FaultCollector) -> None:
    symbol = code_object.symbols.get(name)
    if symbol is None:
        local = next((one for one in code_object.elf.static_symbols if one.name == name), None)
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
        faults.add(where, f"has {symbol.size} bytes, {size} are expected", REBUILD)


def check_launcher_library(data: bytes, *, where: str, entries: Iterable[str]) -> list[Fault]:
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
        faults.add(where, f"the launcher library cannot be read: {error}", REBUILD)
        return faults.faults
    if elf.machine != EM_X86_64:
        faults.add(where, f"e_machine is {elf.machine}, an x86-64 library has {EM_X86_64}", _BUG)
    if elf.needed:
        faults.add(where, f"needs {', '.join(elf.needed)}; a launcher library needs no other", _BUG)
    if elf.undefined:
        faults.add(where, f"has undefined symbols: {', '.join(elf.undefined)}", _BUG)
    exported = {symbol.name for symbol in elf.dynamic_symbols if not symbol.is_undefined and symbol.type == "FUNC"}
    for entry in sorted(set(entries) - exported):
        faults.add(where, f"does not export {entry}, which the manifest names", REBUILD)
    return faults.faults
