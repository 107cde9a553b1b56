# SPDX-License-Identifier: Apache-2.0
"""`flydsl-build inspect`: everything that the manifests and the ELF files of a wheel or folder say."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar

from flydsl_build.command_line.arguments import add_json, write_json
from flydsl_build.command_line.contents import in_order, open_contents
from flydsl_build.errors import BuildError, Fault, did_you_mean

if TYPE_CHECKING:
    import argparse

    from flydsl_build.bundle.manifest import CodeObject, LauncherEntry, Manifest, SpecializationEntry, Unit
    from flydsl_build.command_line.arguments import Subparsers
    from flydsl_build.command_line.contents import BuiltModule, Contents
    from flydsl_build.jobs.launcher import Slot
    from flydsl_build.targets.code_object import AmdgpuCodeObject

__all__ = ["add"]

_T = TypeVar("_T")


def add(subparsers: Subparsers) -> None:
    """Register the command."""
    parser = subparsers.add_parser("inspect", help="show what is in a wheel")
    parser.add_argument("path", type=Path, metavar="WHEEL|DIR", help="a wheel, or a folder with an installed package")
    add_json(parser)
    parser.add_argument("--isa", metavar="KERNEL", help="disassemble a kernel, named by its symbol, with llvm-objdump")
    parser.add_argument("--arch", metavar="ARCH", help="with --isa: the target, if the wheel has several")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from flydsl_build.package.summary import kernel_rows, print_summary

    if arguments.arch and not arguments.isa:
        raise BuildError(Fault(where="--arch", what="says nothing without --isa", fix="add --isa KERNEL"))
    with open_contents(arguments.path) as contents:
        modules = contents.modules()
        if arguments.isa:
            _write_isa(contents, modules, arguments.isa, arguments.arch)
        elif arguments.json:
            described = [_describe(one, contents) for one in modules]
            sboms = [name for name, _ in contents.sboms(modules)]
            write_json({"path": arguments.path.name, "size": contents.size, "sboms": sboms, "modules": described})
        else:
            sys.stdout.writelines(f"bill of materials: {name}\n" for name, _ in contents.sboms(modules))
            for one in modules:
                _write_module(one, contents, sys.stdout)
            print_summary(list(kernel_rows(one.manifest for one in modules)), sys.stdout)
    return 0


def code_object_bytes(module: BuiltModule, unit: Unit, target: str, contents: Contents) -> bytes:
    """Return the code object of a unit for a target."""
    place = unit.code_objects[target]
    name = module.beside(unit.bundle_of(target))
    if unit.is_split and name not in contents.sizes:
        raise BuildError(
            Fault(
                where=name,
                what=f"is not here: the code for {target} is in the wheel of {_device_name(module, target)}",
                fix="give a folder in which both are installed",
            )
        )
    data = contents.read(name)[place.offset : place.offset + place.size]
    if len(data) != place.size:
        raise BuildError(Fault(where=name, what=f"ends before the code object of {target} does", fix="build or download it again"))
    return data


def _read_code_object(module: BuiltModule, unit: Unit, target: str, contents: Contents) -> AmdgpuCodeObject:
    from flydsl_build.targets.code_object import read_code_object
    from flydsl_build.targets.elf import ElfError

    try:
        return read_code_object(code_object_bytes(module, unit, target, contents))
    except ElfError as error:
        raise BuildError(
            Fault(where=f"{module.beside(unit.bundle_of(target))}, {target}", what=f"is damaged: {error}", fix="build or download it again")
        ) from None


# JSON


def _describe(module: BuiltModule, contents: Contents) -> dict[str, Any]:
    """Return the manifest, with argument types as authors write them, and what only the files say."""
    from flydsl_build.declare.argument_grammar import format_argument
    from flydsl_build.package.summary import occupancy
    from flydsl_build.targets.code_object import describe_e_flags

    manifest = module.manifest
    data: dict[str, Any] = json.loads(manifest.to_text())
    for launcher, described in zip(manifest.launchers, data["launchers"], strict=True):
        for one, entry in zip(launcher.specializations, described["specializations"], strict=True):
            entry["arguments"] = {name: format_argument(argument) for name, argument in one.arguments.items()}
    for unit, described in zip(manifest.units, data["units"], strict=True):
        for target, code_object in unit.code_objects.items():
            there = described["code_objects"][target]
            for kernel, values in zip(code_object.kernels, there["kernels"], strict=True):
                values["occupancy"] = occupancy(kernel, target)
            if not _is_here(module, unit, target, contents):
                continue
            read = _read_code_object(module, unit, target, contents)
            there["elf"] = {
                "target": read.target,
                "e_flags": describe_e_flags(read.elf.e_flags),
                "os_abi": read.elf.os_abi,
                "abi_version": read.elf.abi_version,
                "symbols": [
                    {"name": one.name, "type": one.type, "binding": one.binding, "size": one.size} for one in read.elf.dynamic_symbols
                ],
            }
    return {"manifest_file": module.path, "files": _files(module, contents), **data}


def _files(module: BuiltModule, contents: Contents) -> dict[str, int | None]:
    """Return the sizes of a module's files in bytes; None for one that is missing."""
    manifest = module.manifest
    names = [module.path, module.beside(manifest.library.file)]
    names += [
        module.beside(name)
        for unit in manifest.units
        for name, targets in unit.bundles().items()
        if any(_is_here(module, unit, target, contents) for target in targets)
    ]
    return {name: contents.sizes.get(name) for name in names}


# Text


def _write_module(module: BuiltModule, contents: Contents, out: TextIO) -> None:
    manifest = module.manifest
    made = manifest.provenance
    out.write(f"{manifest.module}\n")
    facts = [
        ("from", f"{manifest.distribution.name} {manifest.distribution.version}"),
        ("targets", ", ".join(manifest.targets)),
        ("loads", "at the first call" if manifest.load == "lazy" else "at import"),
        *(("axis", f"{name}: {', '.join(axis.values)}; {_selection(name, axis.select)}") for name, axis in manifest.axes.items()),
        *(("file", f"{name}, {'missing' if size is None else f'{size} bytes'}") for name, size in _files(module, contents).items()),
        ("made with", ", ".join(f"{one.name} {one.version}" for one in made.tools)),
        *(("source", f"{name}, SHA-256 {digest}") for name, digest in made.sources.items()),
        *(
            (
                "bitcode",
                f"{one.file}, {one.size} bytes, SHA-256 {one.sha256}, code object version {one.code_object_version}, {_list(one.targets)}",
            )
            for one in made.bitcode
        ),
        *(("license", f"{file} of {one.file}") for one in made.bitcode for file in one.license_files),
        *(("library", f"{one.file}, {one.size} bytes, SHA-256 {one.sha256}, {_list(one.targets)}") for one in made.device_libraries),
        *(("uses", f"{name} of {distribution}") for name, distribution in made.distributions.items()),
    ]
    out.writelines(f"    {name:<10} {value}\n" for name, value in facts)
    for unit in manifest.units:
        _write_unit(module, unit, contents, out)
    for launcher in manifest.launchers:
        _write_launcher(launcher, manifest, out)
    out.write("\n")


def _sorted(by_target: dict[str, _T], manifest: Manifest) -> list[tuple[str, _T]]:
    """Return the items in the author's order of targets; the manifest has them by name."""
    return [(target, by_target[target]) for target in manifest.targets if target in by_target]


def _selection(name: str, select: str | None) -> str:
    variable = f"FLYDSL_BUILD_AXIS_{name.upper()}"
    return f"{variable}, else {select}" if select else variable


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(names)


def _write_unit(module: BuiltModule, unit: Unit, contents: Contents, out: TextIO) -> None:
    axes = "".join(f", {name}={value}" for name, value in unit.axes.items())
    out.write(f"    unit {unit.name}{axes}\n")
    out.writelines(f"        init       {init}\n" for init in unit.init)
    out.writelines(f"        global     {variable.name}, {variable.size} bytes\n" for variable in unit.globals)
    out.writelines(
        f"        {target:<10} {_code_object(module, unit, target, code_object, contents)}\n"
        for target, code_object in _sorted(unit.code_objects, module.manifest)
    )


def _device_name(module: BuiltModule, target: str) -> str:
    return f"{module.manifest.distribution.name}-device-{target}"


def _is_here(module: BuiltModule, unit: Unit, target: str, contents: Contents) -> bool:
    """Whether a code object can be looked at; that of a split package need not be there."""
    return not unit.is_split or module.beside(unit.bundle_of(target)) in contents.sizes


def _code_object(module: BuiltModule, unit: Unit, target: str, code_object: CodeObject, contents: Contents) -> str:
    from flydsl_build.targets.code_object import describe_e_flags

    if not _is_here(module, unit, target, contents):
        return f"{code_object.size} bytes in the wheel of {_device_name(module, target)}, SHA-256 {code_object.sha256}"
    read = _read_code_object(module, unit, target, contents)
    return (
        f"{code_object.size} bytes at {code_object.offset}, {describe_e_flags(read.elf.e_flags)}, "
        f"code object version {read.elf.abi_version + 2}, SHA-256 {code_object.sha256}"
    )


def _write_launcher(launcher: LauncherEntry, manifest: Manifest, out: TextIO) -> None:
    names = ", ".join(parameter.name for parameter in launcher.parameters)
    if launcher.factory_parameters is None:
        out.write(f"    launcher {launcher.name}({names})\n")
    else:
        factory = ", ".join(parameter.name for parameter in launcher.factory_parameters)
        out.write(f"    factory {launcher.name}({factory}) of a launcher ({names})\n")
    for one in launcher.specializations:
        _write_specialization(one, launcher, manifest, out)


def _write_specialization(one: SpecializationEntry, launcher: LauncherEntry, manifest: Manifest, out: TextIO) -> None:
    from flydsl_build.declare.argument_grammar import format_argument

    place = f", {one.source.file}:{one.source.line}" if one.source else ""
    out.write(f"        {one.name}{place}\n")
    for kind, values in (("param", one.params), ("constexpr", one.constexpr), ("option", one.options)):
        out.writelines(f"            {kind:<10} {name} = {value!r}\n" for name, value in values.items())
    for target, returned in _sorted(one.values or {}, manifest):
        out.writelines(f"            {'returns':<10} {target}: {name} = {value!r}\n" for name, value in returned.items())
    out.writelines(
        f"            {'argument':<10} {name} = {format_argument(argument)}\n" for name, argument in in_order(one.arguments, launcher)
    )
    if one.out is not None:
        out.write(f"            {'out':<10} {_list(one.out) or 'nothing'}\n")
    out.writelines(f"            {'slot':<10} {_slot(slot)}\n" for slot in one.slots)
    units = {unit.name: unit for unit in manifest.units}
    for target, entries in _sorted(one.entries, manifest):
        for unit, entry in entries.items():
            kernels = ", ".join(units[unit].code_objects[target].kernels[index].symbol for index in entry.kernels)
            where = target if len(units) == 1 else f"{target}, {unit}"
            out.write(f"            {'entry':<10} {where}: {entry.entry} launches {kernels or 'nothing'}\n")


def _slot(slot: Slot) -> str:
    origin = slot.argument or "the default stream"
    words = f"{slot.kind} of {origin}{f'.{slot.field}' if slot.field else ''}, {slot.size} bytes, aligned to {slot.align}"
    if slot.shape_dims is not None or slot.stride_dims is not None:
        words += f", extents {list(slot.shape_dims or ())} of {slot.shape_bits} bits"
        words += f", strides {list(slot.stride_dims or ())} of {slot.stride_bits} bits"
    return words


# Disassembly


def _write_isa(contents: Contents, modules: list[BuiltModule], kernel: str, arch: str | None) -> None:
    from flydsl_build.toolchain.disassembler import disassemble

    found = [
        (module, unit, target)
        for module in modules
        for unit in module.manifest.units
        for target, code_object in _sorted(unit.code_objects, module.manifest)
        if any(one.symbol == kernel for one in code_object.kernels)
    ]
    if not found:
        every = {
            one.symbol
            for module in modules
            for unit in module.manifest.units
            for code_object in unit.code_objects.values()
            for one in code_object.kernels
        }
        raise BuildError(Fault(where="--isa", what=f"there is no kernel {kernel}", fix=did_you_mean(kernel, sorted(every))))
    targets = list(dict.fromkeys(target for _, _, target in found))
    if arch is None and len(targets) > 1:
        raise BuildError(Fault(where="--isa", what=f"{kernel} is there for {', '.join(targets)}", fix=f"add --arch {targets[0]}"))
    if arch is not None and arch not in targets:
        raise BuildError(Fault(where="--arch", what=f"{kernel} is not there for {arch}", fix=did_you_mean(arch, targets)))
    for module, unit, target in found:
        if arch is None or target == arch:
            data = code_object_bytes(module, unit, target, contents)
            text, warning = disassemble(data, symbol=kernel, target=target)
            if warning:
                sys.stderr.write(f"flydsl-build: warning: {warning}\n")
            sys.stdout.write(f"; {module.manifest.module}, unit {unit.name}, {target}\n{kernel}:\n{text}")
