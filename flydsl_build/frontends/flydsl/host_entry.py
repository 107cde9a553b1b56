# SPDX-License-Identifier: Apache-2.0
"""Turn a lowered launcher into a host function that calls the run time through a pointer.

After FlyDSL's pipeline a launcher is an `llvm.func` whose launches are `gpu.launch_func` ops. Here it becomes

    int32_t entry(struct fdb_call *call, void **slots)

whose launches call `call->launch(call, kernel, config, arguments, count, stream)`; the structure and its rules are in
native/core/runtime.h. The object that LLVM emits for it needs neither a C compiler nor a library.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from flydsl._mlir import ir
from flydsl._mlir._mlir_libs._mlirDialectsFly import _emit_host_object
from flydsl._mlir.dialects import gpu, llvm

__all__ = ["HostEntry", "UnsupportedLaunchError", "lower_launcher", "size_and_alignment"]

_STATUS_OFFSET = 8
_CONFIG_WORDS = 10
_OPT_LEVEL = 2


class UnsupportedLaunchError(Exception):
    """A form of launch that the run time has no call for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HostEntry:
    """A launcher's host code.

    Parameters
    ----------
    symbol
        Name of the entry, made of the digest of its code: equal code has equal names, whatever it was compiled for.
    object_code
        An x86-64 ELF relocatable object that defines `symbol` and needs nothing else but what libc and libm have.
    kernels
        Symbols of the kernels launched, in the order of the entry's kernel indexes.
    kernel_argument_sizes
        For each of them the sizes in bytes of the arguments passed.
    slots
        Size and alignment in bytes of each slot.
    """

    symbol: str
    object_code: bytes
    kernels: tuple[str, ...]
    kernel_argument_sizes: dict[str, tuple[int, ...]]
    slots: tuple[tuple[int, int], ...]


def size_and_alignment(value_type: ir.Type) -> tuple[int, int]:
    """Return the size and alignment in bytes that LLVM gives a value on x86-64 and AMDGPU alike."""
    if isinstance(value_type, llvm.PointerType):
        return 8, 8
    if isinstance(value_type, ir.IntegerType):
        size = 1 << max(0, (value_type.width + 7) // 8 - 1).bit_length()
        return size, size
    if isinstance(value_type, ir.FloatType):
        size = (value_type.width + 7) // 8
        return size, size
    if isinstance(value_type, llvm.StructType):
        size, alignment = 0, 1
        for element in value_type.body:
            element_size, element_alignment = size_and_alignment(element)
            if not value_type.packed:
                size = -(-size // element_alignment) * element_alignment
                alignment = max(alignment, element_alignment)
            size += element_size
        return -(-size // alignment) * alignment, alignment
    if isinstance(value_type, llvm.ArrayType):
        element_size, alignment = size_and_alignment(value_type.element_type)
        return element_size * value_type.num_elements, alignment
    if isinstance(value_type, ir.VectorType):
        element_size, _ = size_and_alignment(value_type.element_type)
        size = element_size
        for extent in value_type.shape:
            size *= extent
        size = 1 << (size - 1).bit_length()
        return size, size
    msg = f"a launcher argument of type {value_type} cannot be passed to a kernel"
    raise UnsupportedLaunchError(msg)


def lower_launcher(module: ir.Module, launcher: str) -> HostEntry:
    """Rewrite and emit the launcher `launcher` of a lowered module. The module is consumed.

    Raises
    ------
    UnsupportedLaunchError
        A launch uses something that the run time cannot do.
    """
    for op in list(module.body.operations):
        if op.operation.name in ("gpu.module", "gpu.binary"):
            op.operation.erase()
    old = _find_function(module, launcher)
    slot_types = [argument.type for argument in old.regions[0].blocks[0].arguments]
    with ir.Location.unknown():
        rewriter = _EntryRewriter(module, old)
        rewriter.run()
    # Only names and locations still differ between targets that have the same host code.
    canonical = str(rewriter.entry)
    digest = hashlib.sha256(canonical.encode()).hexdigest()[:16]
    symbol = f"fdb_{digest}"
    ir.SymbolTable.set_symbol_name(rewriter.entry.operation, symbol)
    del module.operation.attributes["gpu.container_module"]
    module.operation.verify()
    return HostEntry(
        symbol=symbol,
        object_code=_emit_host_object(module.operation, _OPT_LEVEL),
        kernels=tuple(rewriter.kernels),
        kernel_argument_sizes=rewriter.argument_sizes,
        slots=tuple(size_and_alignment(one) for one in slot_types),
    )


def _find_function(module: ir.Module, name: str) -> ir.Operation:
    for op in module.body.operations:
        if op.operation.name == "llvm.func" and ir.StringAttr(op.operation.attributes["sym_name"]).value == name:
            return op.operation
    msg = f"the lowered module has no function {name}"
    raise RuntimeError(msg)


class _EntryRewriter:
    """Moves a launcher's body into an entry function and replaces its launches and returns."""

    def __init__(self, module: ir.Module, old: ir.Operation) -> None:
        self.module = module
        self.old = old
        self.kernels: list[str] = []
        self.argument_sizes: dict[str, tuple[int, ...]] = {}
        self.pointer = llvm.PointerType.get()
        self.i32 = ir.IntegerType.get_signless(32)
        self.i64 = ir.IntegerType.get_signless(64)

    def run(self) -> None:
        with ir.InsertionPoint(self.module.body):
            function_type = llvm.FunctionType.get(self.i32, [self.pointer, self.pointer])
            self.entry = llvm.LLVMFuncOp("flydsl_entry", ir.TypeAttr.get(function_type))
        self.first = self.entry.body.blocks.append(self.pointer, self.pointer)
        self.call, slots = self.first.arguments
        body = list(self.old.regions[0].blocks)
        for block in body:
            block.append_to(self.entry.body)
        with ir.InsertionPoint(self.first):
            values = []
            for index, argument in enumerate(body[0].arguments):
                address = llvm.GEPOp(self.pointer, slots, [], [index], self.pointer, None).result
                storage = llvm.LoadOp(self.pointer, address).result
                _, alignment = size_and_alignment(argument.type)
                values.append(llvm.LoadOp(argument.type, storage, alignment=alignment).result)
            self.branch = llvm.BrOp(values, body[0])
        for block in body:
            for op in list(block.operations):
                if isinstance(op, gpu.LaunchFuncOp):
                    self._replace_launch(op)
                elif op.operation.name == "llvm.return":
                    self._replace_return(op)
                elif op.operation.name.startswith("gpu."):
                    msg = f"the launcher contains {op.operation.name}, which is not a kernel launch"
                    raise UnsupportedLaunchError(msg)
        self.old.erase()

    def _constant(self, value: int, value_type: ir.Type) -> ir.Value:
        return llvm.ConstantOp(value_type, ir.IntegerAttr.get(value_type, value)).result

    def _slot(self, value_type: ir.Type, count: int = 1) -> ir.Value:
        """Reserve stack space in the entry block, so that a launch in a loop does not grow the stack."""
        with ir.InsertionPoint(self.branch):
            return llvm.AllocaOp(self.pointer, self._constant(count, self.i64), value_type).result

    def _replace_return(self, op: ir.OpView) -> None:
        with ir.InsertionPoint(op):
            address = llvm.GEPOp(self.pointer, self.call, [], [_STATUS_OFFSET], ir.IntegerType.get_signless(8), None).result
            llvm.ReturnOp(arg=llvm.LoadOp(self.i32, address).result)
        op.operation.erase()

    def _replace_launch(self, op: gpu.LaunchFuncOp) -> None:
        kernel = ir.SymbolRefAttr(op.operation.attributes["kernel"]).value[-1]
        if "cooperative" in op.operation.attributes:
            msg = f"kernel {kernel} is launched cooperatively, which the run time does not support yet"
            raise UnsupportedLaunchError(msg)
        operands = list(op.kernelOperands)
        sizes = tuple(size_and_alignment(operand.type)[0] for operand in operands)
        if kernel not in self.kernels:
            self.kernels.append(kernel)
        self.argument_sizes[kernel] = sizes
        config = self._slot(self.i64, _CONFIG_WORDS)
        arguments = self._slot(self.pointer, max(1, len(operands)))
        cells = [self._slot(operand.type) for operand in operands]
        with ir.InsertionPoint(op):
            zero = self._constant(0, self.i64)
            clusters = [op.clusterSizeX, op.clusterSizeY, op.clusterSizeZ]
            words = [op.gridSizeX, op.gridSizeY, op.gridSizeZ, op.blockSizeX, op.blockSizeY, op.blockSizeZ]
            words += [zero if one is None else one for one in clusters]
            words.append(zero if op.dynamicSharedMemorySize is None else op.dynamicSharedMemorySize)
            for index, word in enumerate(words):
                value = word
                if value.type != self.i64:
                    # Sign-extended: a negative size must reach the run time as one, to be refused.
                    value = llvm.SExtOp(self.i64, value).result
                address = llvm.GEPOp(self.pointer, config, [], [index], self.i64, None).result
                llvm.StoreOp(value, address)
            for index, (operand, cell) in enumerate(zip(operands, cells, strict=True)):
                llvm.StoreOp(operand, cell)
                address = llvm.GEPOp(self.pointer, arguments, [], [index], self.pointer, None).result
                llvm.StoreOp(cell, address)
            stream = op.asyncObject
            if stream is None:
                stream = llvm.ZeroOp(self.pointer).result
            launch = llvm.LoadOp(self.pointer, self.call).result
            llvm.CallOp(
                None,
                [
                    launch,
                    self.call,
                    self._constant(self.kernels.index(kernel), self.i32),
                    config,
                    arguments,
                    self._constant(len(operands), self.i32),
                    stream,
                ],
                [],
                [],
            )
        op.operation.erase()
