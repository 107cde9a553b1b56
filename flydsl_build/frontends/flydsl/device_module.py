# SPDX-License-Identifier: Apache-2.0
"""Join the lowered GPU modules of several specializations and serialize them to one code object.

FlyDSL lowers each specialization to a `gpu.module` of its own. A declared module gets one code object a target, so that it
is loaded, and its init functions run, once. The GPU modules are therefore joined while they are LLVM dialect: every symbol
that is defined keeps its name where it is free and gets a suffix where it is not; declarations of externs are shared.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from flydsl._mlir import ir
from flydsl._mlir._mlir_libs._mlirDialectsLLVM import translate_module_to_llvmir
from flydsl._mlir.dialects import gpu
from flydsl._mlir.passmanager import PassManager

__all__ = ["DeviceModule", "SymbolConflictError", "assembly", "device_libraries", "join_gpu_modules", "llvm_ir", "serialize"]

_LDS = 3
# Which of ROCm's device libraries MLIR links, by the names of functions that are declared and not defined.
_DEVICE_LIBRARIES = {"__ocml_": "ocml.bc", "__ockl_": "ockl.bc"}


class SymbolConflictError(Exception):
    """Two specializations declare one extern with different types."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceModule:
    """A joined module: the holder of one `gpu.module`, and the new names of each part's kernels."""

    module: ir.Module
    kernel_names: tuple[dict[str, str], ...]


def _symbol(op: ir.Operation) -> str:
    name: str = ir.StringAttr(op.attributes["sym_name"]).value
    return name


def _is_shared_declaration(op: ir.Operation) -> bool:
    """Tell whether the symbol is defined elsewhere: an extern function, or an extern variable outside LDS."""
    if op.name == "llvm.func":
        return len(op.regions[0].blocks) == 0
    if op.name == "llvm.mlir.global":
        # LDS allocations have no initializer either, but each is its kernel's own.
        space = ir.IntegerAttr(op.attributes["addr_space"]).value if "addr_space" in op.attributes else 0
        return space != _LDS and "value" not in op.attributes and len(op.regions[0].blocks) == 0
    return False


def _gpu_module(module: ir.Module) -> ir.Operation:
    found = [op.operation for op in module.body.operations if op.operation.name == "gpu.module"]
    if len(found) != 1:
        msg = f"expected one gpu.module after lowering, found {len(found)}"
        raise RuntimeError(msg)
    return found[0]


def _operations(gpu_module: ir.Operation) -> list[ir.Operation]:
    return [one.operation for one in gpu_module.regions[0].blocks[0].operations]


def join_gpu_modules(parts: list[tuple[str, ir.Module]]) -> DeviceModule:
    """Move the GPU code of all parts into one new module.

    Parameters
    ----------
    parts
        For each specialization its name, used as the suffix of names that are taken, and its lowered module. The GPU
        module is taken out of it.

    Raises
    ------
    SymbolConflictError
        An extern is declared with two types.
    """
    names: list[dict[str, str]] = []
    with ir.Location.unknown():
        module = ir.Module.create()
        module.operation.attributes["gpu.container_module"] = ir.UnitAttr.get()
        joined: ir.Operation | None = None
        taken: dict[str, str] = {}
        for label, part in parts:
            source = _gpu_module(part)
            names.append(_settle_names(source, label, taken))
            if joined is None:
                joined = source
                _adopt(module, joined)
                continue
            for op in _operations(source):
                op.detach_from_parent()
                joined.regions[0].blocks[0].append(op)
            source.erase()
    return DeviceModule(module=module, kernel_names=tuple(names))


def _adopt(module: ir.Module, gpu_module: ir.Operation) -> None:
    """Move a `gpu.module` into `module`, without what says how FlyDSL would have made its binary."""
    gpu_module.detach_from_parent()
    module.body.append(gpu_module)
    for attribute in ("targets", "offloadingHandler"):
        if attribute in gpu_module.attributes:
            del gpu_module.attributes[attribute]


def _settle_names(gpu_module: ir.Operation, label: str, taken: dict[str, str]) -> dict[str, str]:
    """Give every definition a name that is free, and drop declarations of externs that are there; return the kernels' new names.

    `taken` has the names of the parts before, each with the type of the extern it declares or "" for a definition; those of
    this part are added.
    """
    kernels: dict[str, str] = {}
    own = {_symbol(op) for op in _operations(gpu_module) if "sym_name" in op.attributes}
    for op in _operations(gpu_module):
        if "sym_name" not in op.attributes:
            continue
        if _is_shared_declaration(op):
            _share_declaration(op, taken)
            continue
        old = _symbol(op)
        new = old if old not in taken else _free_name(old, label, own | taken.keys())
        if new != old:
            ir.SymbolTable.replace_all_symbol_uses(old, new, gpu_module)
            ir.SymbolTable.set_symbol_name(op, new)
        taken[new] = ""
        if "gpu.kernel" in op.attributes or "rocdl.kernel" in op.attributes:
            kernels[old] = new
    return kernels


def _share_declaration(op: ir.Operation, taken: dict[str, str]) -> None:
    """Record the declaration of an extern; erase it if a part before has the same."""
    name = _symbol(op)
    signature = str(op.attributes["function_type" if op.name == "llvm.func" else "global_type"])
    if taken.get(name, signature) != signature:
        msg = f"the extern {name} is declared as {taken[name] or 'a definition'} and as {signature}"
        raise SymbolConflictError(msg)
    if name in taken:
        op.erase()
    taken[name] = signature


def _free_name(name: str, label: str, taken: set[str]) -> str:
    suffix = re.sub(r"[^A-Za-z0-9_]+", "_", label)
    candidate, count = f"{name}__{suffix}", 1
    while candidate in taken:
        count += 1
        candidate = f"{name}__{suffix}_{count}"
    return candidate


def device_libraries(module: ir.Module) -> list[str]:
    """Return the file names of ROCm's device libraries that a joined module will be linked with."""
    gpu_module = _gpu_module(module)
    declared = [_symbol(op) for op in _operations(gpu_module) if op.name == "llvm.func" and _is_shared_declaration(op)]
    return [file for prefix, file in _DEVICE_LIBRARIES.items() if any(name.startswith(prefix) for name in declared)]


def serialize(module: ir.Module, *, attach: str, toolkit: str) -> bytes:
    """Run the back end and the linker; return the AMDGPU ELF. The module is consumed.

    Parameters
    ----------
    module
        What `join_gpu_modules` made.
    attach
        The `rocdl-attach-target{…}` pass with its options.
    toolkit
        Folder with `llvm/bin/ld.lld` and `amdgcn/bitcode`.
    """
    return _binary(module, attach, f"format=fatbin toolkit={toolkit}")


def assembly(module: ir.Module, *, attach: str, toolkit: str) -> str:
    """Run the back end without assembler and linker; return the ISA as text. The module is consumed."""
    return _binary(module, attach, f"format=isa toolkit={toolkit}").decode(errors="replace")


def llvm_ir(module: ir.Module) -> str:
    """Return the LLVM IR of a joined module before linking and optimisation."""
    gpu_module = next(op.operation for op in module.body.operations if op.operation.name == "gpu.module")
    text: str = translate_module_to_llvmir(gpu_module)
    return text


def _binary(module: ir.Module, attach: str, options: str) -> bytes:
    manager = PassManager.parse(f"builtin.module({attach},gpu-module-to-binary{{{options}}})")
    manager.run(module.operation)
    for op in module.body.operations:
        if op.operation.name == "gpu.binary":
            objects = list(ir.ArrayAttr(op.operation.attributes["objects"]))
            if len(objects) != 1:
                msg = f"expected one object in the gpu.binary, found {len(objects)}"
                raise RuntimeError(msg)
            return bytes(gpu.ObjectAttr(objects[0]).object)
    msg = "gpu-module-to-binary made no gpu.binary"
    raise RuntimeError(msg)
