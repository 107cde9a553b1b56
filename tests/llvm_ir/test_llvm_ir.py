# SPDX-License-Identifier: Apache-2.0
"""The readers of LLVM IR: right values of real files in both forms, and nothing but `IRError` on anything else.

The files in `data/` are made by `data/make_ir.sh` from the sources beside them. Faults that no compiler writes are
made here, bit by bit.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pickle
import random
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flydsl_build.llvm_ir.reader import IRError, IRFunction, IRGlobal, IRModule, read_ir

if TYPE_CHECKING:
    from collections.abc import Sequence

DATA = Path(__file__).parent / "data"
SAME = [
    ("device.gfx942.v5.llvm19.bc", "device.gfx942.v5.llvm19.ll"),
    ("device.gfx942.v6.llvm19.bc", "device.gfx942.v6.llvm19.ll"),
    ("device.gfx950.v6.llvm22.bc", "device.gfx950.v6.llvm22.ll"),
    ("plain.llvm19.bc", "plain.llvm19.ll"),
    ("shapes.llvm19.bc", "shapes.ll"),
    ("shapes.llvm22.bc", "shapes.ll"),
    ("typed_pointers.llvm14.bc", "typed_pointers.ll"),
]
ONE_ENTRY = "compile for one target with --cuda-device-only -emit-llvm, or take one entry out with clang-offload-bundler"
FILES = sorted(path.name for path in DATA.iterdir() if path.suffix in (".bc", ".ll"))


def load(name: str) -> bytes:
    return (DATA / name).read_bytes()


def read(name: str) -> IRModule:
    return read_ir(load(name), name=name)


def read_text(text: str) -> IRModule:
    return read_ir(text.encode(), name="text")


def fault(data: bytes) -> str:
    with pytest.raises(IRError) as caught:
        read_ir(data, name="x")
    return str(caught.value)


def function(
    name: str,
    result: str,
    *parameters: str,
    cpu: str | None = "gfx942",
    linkage: str = "external",
    declared: bool = False,
    var_args: bool = False,
) -> IRFunction:
    return IRFunction(
        name=name,
        result=result,
        parameters=parameters,
        is_definition=not declared,
        linkage=linkage,
        target_cpu=cpu,
        var_args=var_args,
    )


def variable(
    name: str,
    kind: str,
    size: int | None,
    *,
    space: int = 1,
    linkage: str = "external",
    declared: bool = False,
    external: bool = False,
    used: bool = False,
) -> IRGlobal:
    return IRGlobal(
        name=name,
        type=kind,
        is_definition=not declared,
        linkage=linkage,
        address_space=space,
        externally_initialized=external,
        in_used=used,
        size=size,
    )


def by_name(*values: IRFunction | IRGlobal) -> dict[str, IRFunction | IRGlobal]:
    return {value.name: value for value in values}


# Real files


@pytest.mark.parametrize(("bitcode", "text"), SAME)
def test_both_forms_say_the_same(bitcode: str, text: str) -> None:
    one, other = read(bitcode), read(text)
    assert (one.name, one.kind, other.name, other.kind, other.producer) == (bitcode, "bitcode", text, "text", None)
    assert dataclasses.replace(one, name="", kind="text", producer=None) == dataclasses.replace(other, name="")


@pytest.mark.parametrize(
    ("name", "triple", "flag", "version", "producer"),
    [
        ("device.gfx942.v5.llvm19.bc", "amdgcn-amd-amdhsa", 500, 5, "LLVM19.1.7"),
        ("device.gfx942.v6.llvm19.bc", "amdgcn-amd-amdhsa", 600, 6, "LLVM19.1.7"),
        ("device.gfx950.v6.llvm22.bc", "amdgcn-amd-amdhsa", 600, 6, "LLVM22.1.8"),
        ("plain.llvm19.bc", "x86_64-unknown-linux-gnu", None, None, "LLVM19.1.7"),
        # Its flag has the name that LLVM 17 and before gave it.
        ("typed_pointers.llvm14.bc", "amdgcn-amd-amdhsa", 500, 5, "LLVM14.0.6"),
    ],
)
def test_module(name: str, triple: str, flag: int | None, version: int | None, producer: str) -> None:
    module = read(name)
    assert (module.triple, module.code_object_version, module.version, module.producer) == (triple, flag, version, producer)


def device_module(cpu: str, *, llvm: int) -> dict[str, IRFunction | IRGlobal]:
    values = by_name(
        function("scale_and_shift", "float", "float", "i32", cpu=cpu),
        function("many", "double", "double", "i64", "i8", "i1", "ptr", "<4 x float>", cpu=cpu),
        function("_Z5otheri", "i32", "i32", cpu=cpu, declared=True),
        function("maybe", "i32", cpu=cpu, linkage="weak"),
        function("by_value", "void", "i32", "float", "[3 x ptr]", "ptr", cpu=cpu),
        function("print", "void", "ptr", cpu=cpu, declared=True, var_args=True),
        function("user", "void", cpu=cpu),
        function("kernel", "void", "ptr addrspace(1)", cpu=cpu),
        variable("state", "%struct.State", 32, external=True, used=True),
        variable("table", "[16 x i32]", 64, space=4, external=True, used=True),
        variable("elsewhere", "i32", 4, declared=True),
        variable("_ZL14hidden_counter", "i32", 4, linkage="internal"),
        variable(".str", "[3 x i8]", 3, space=4, linkage="private"),
        variable("__hip_cuid_", "i8", 1, used=True),
        variable("llvm.compiler.used", "[3 x ptr]", 24, linkage="appending"),
    )
    if llvm == 19:
        values["__oclc_ABI_version"] = variable("__oclc_ABI_version", "i32", 4, space=4, linkage="weak_odr")
    return values


@pytest.mark.parametrize(
    ("name", "cpu", "llvm"), [("device.gfx942.v6.llvm19.bc", "gfx942", 19), ("device.gfx950.v6.llvm22.bc", "gfx950", 22)]
)
def test_hip_device_code(name: str, cpu: str, llvm: int) -> None:
    module = read(name)
    assert {**module.functions, **module.globals} == device_module(cpu, llvm=llvm)


def test_plain_c() -> None:
    module = read("plain.llvm19.bc")
    cpu = "x86-64"
    assert {**module.functions, **module.globals} == by_name(
        function("f", "i32", "i32", cpu=cpu),
        function("g", "i32", "ptr", cpu=cpu),
        function("variadic", "i32", "ptr", cpu=cpu, declared=True, var_args=True),
        function("call_odd", "i32", cpu=cpu),
        function('odd name "é', "i32", cpu=cpu, declared=True),
        function("function_alias", "i32", "ptr", cpu=cpu),
        variable("factor", "double", 8, space=0),
        variable("weak_variable", "i32", 4, space=0, linkage="weak"),
        variable("kept", "i32", 4, space=0, linkage="internal", used=True),
        variable("hidden", "[4 x i32]", 16, space=0, linkage="internal"),
        variable("away", "i32", 4, space=0, declared=True),
        variable(".str", "[2 x i8]", 2, space=0, linkage="private"),
        variable("structure", "%struct.S", 16, space=0),
        variable("llvm.compiler.used", "[1 x ptr]", 8, space=0, linkage="appending"),
        variable("variable_alias", "double", 8, space=0),
    )


def test_shapes() -> None:
    module = read("shapes.ll")
    assert {**module.functions, **module.globals} == by_name(
        function("first", "float", "float", "i32"),
        function("second", "void", cpu="gfx950"),
        function("resolver", "ptr", cpu=None, linkage="internal"),
        function("printf", "i32", "ptr addrspace(4)", cpu=None, declared=True, var_args=True),
        function(
            "aggregate", "{ i32, [2 x float] }",
            "<4 x half>", "{ i8, i16 }", "<{ i8, i32 }>", "%struct.Inner", "ptr", "[2 x <2 x i32>]",
            cpu=None, declared=True, linkage="extern_weak",
        ),
        function("ranged", "i32", "i32", cpu=None, declared=True),
        function("a b", "ptr addrspace(1)", "ptr addrspace(5)", cpu=None, declared=True),
        function("barrier", 'target("amdgcn.named.barrier", 0)', cpu=None, declared=True),
        function(
            "types", "void",
            "half", "bfloat", "double", "fp128", "i1", "i7", "i128", "<vscale x 4 x i32>", "ptr addrspace(7)", "ptr addrspace(8)",
            cpu=None, declared=True,
        ),
        function("kernel", "void", "ptr addrspace(1)"),
        function("merged", "i64", "i64", cpu=None, linkage="linkonce_odr"),
        function("elsewhere", "void", cpu=None, linkage="available_externally"),
        function("cc", "i16", "i16", cpu="gfx950", linkage="weak"),
        function("first_again", "float", "float", "i32", linkage="weak"),
        function("chosen", "void", cpu=None),
        variable("plain", "i32", 4, used=True),
        variable("zero_used", "[5 x %struct.Inner]", 80, used=True),
        variable("packed", '%"odd; type"', 23, linkage="weak_odr"),
        variable("anonymous", "{ i1, <3 x float>, ptr addrspace(3), double }", 48, linkage="internal"),
        variable("outer", "[4 x ptr]", 32, declared=True, external=True, used=True),
        variable('quoted "}{ name', "<2 x half>", 4, external=True),
        variable("tagged", "bfloat", 2, space=4, linkage="linkonce_odr"),
        variable("lds", "[0 x i8]", 0, space=3, linkage="internal"),
        variable("maybe", "i128", 16, declared=True, linkage="extern_weak"),
        variable("llvm.used", "[2 x ptr addrspace(1)]", 16, linkage="appending"),
        variable("llvm.compiler.used", "[2 x ptr]", 16, linkage="appending"),
        variable("again", "i32", 4),
    )  # fmt: skip


def test_typed_pointers() -> None:
    module = read("typed_pointers.llvm14.bc")
    assert {**module.functions, **module.globals} == by_name(
        function("callee", "i32", "i32", cpu="gfx90a"),
        function("alias", "i32", "i32", cpu="gfx90a"),
        function("returns_function", "ptr", "ptr", "ptr addrspace(5)", "ptr", cpu=None, declared=True),
        function("takes", "void", "ptr", "<2 x ptr>", cpu=None, declared=True),
        variable("head", "%struct.Pair", 48, external=True, used=True),
        variable("table", "[2 x ptr]", 16, used=True),
        variable("inside", "ptr addrspace(3)", 4, space=4, declared=True),
        variable("llvm.used", "[1 x ptr]", 8, space=0, linkage="appending"),
        variable("llvm.compiler.used", "[2 x ptr]", 16, linkage="appending"),
    )


def test_values_go_between_processes() -> None:
    module = read("shapes.ll")
    assert pickle.loads(pickle.dumps(module)) == module


# Text


def test_text_without_anything() -> None:
    assert read_text("; ModuleID = 'empty'\n") == IRModule(
        name="text", kind="text", triple="", functions={}, globals={}, code_object_version=None, producer=None
    )


@pytest.mark.parametrize(
    ("kind", "layout", "size"),
    [
        ("{ i8, i64 }", "", 16),
        ("{ ptr addrspace(3), i8 }", "", 8),
        ("<{ i8, i64 }>", "", 9),
        ("i1", "", 1),
        ("i33", "", 8),
        ("[3 x i128]", "", 48),
        ("<3 x i8>", "", 4),
        ("<7 x i1>", "", 1),
        ("{ i64, fp128 }", "", 32),
        ("<vscale x 4 x i32>", "", None),
        ("%undefined", "", None),
        ("{ i8, %undefined }", "", None),
        ("{ i32, i64 }", "e-i64:32", 12),
        ("ptr", "p:32:32", 4),
        ("[99999999999999999999 x i64]", "", None),
    ],
)
def test_sizes(kind: str, layout: str, size: int | None) -> None:
    module = read_text(f'target triple = "amdgcn-amd-amdhsa"\ntarget datalayout = "{layout}"\n@x = addrspace(1) global {kind} undef\n')
    assert (module.globals["x"].type, module.globals["x"].size) == (kind, size)


def test_numbered_types_are_spelled_out() -> None:
    module = read_text("%0 = type <{ i8, %1 }>\n%1 = type { i16 }\ndeclare %1 @f(%0, %1)\n")
    assert module.functions["f"] == function("f", "{ i16 }", "<{ i8, { i16 } }>", "{ i16 }", cpu=None, declared=True)


def test_a_body_is_skipped_whatever_is_in_it() -> None:
    text = 'define void @f() { ; } { "\n  %x = call i32 asm "}}", "=v,\\22}"()\n  ret void }\ndeclare void @g()'
    assert list(read_text(text).functions) == ["f", "g"]


@pytest.mark.parametrize("value", ["float 6.0", "i32 null", "i32", "!0"])
def test_version_flag_that_is_no_number(value: str) -> None:
    text = f'!llvm.module.flags = !{{!0}}\n!0 = !{{i32 1, !"amdhsa_code_object_version", {value}}}\n'
    assert fault(text.encode()) == "is malformed LLVM IR text: line 2: module flag amdhsa_code_object_version is not an integer"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("declare void @f()\ndeclare i32 @f()\n", "line 2: symbol 'f' is there twice"),
        ("@x = global i32 0\n@x = external global i32\n", "line 2: symbol 'x' is there twice"),
        ("declare void @f()\n}\n", "line 2: '}' closes nothing"),
        ("declare void @f(\n", "line 2: a bracket is not closed; the file is truncated"),
        ("define void @f()\n", "line 1: a function's header has no body; the file is truncated"),
        ("define void @f() {\n ret void\n", "line 1: the body of a function is not closed; the file is truncated"),
        ('declare void @"f\n', "line 1: a quoted name or string is not closed, or a name is empty; the file may be truncated"),
        ("declare\n\nvoid f()\n", "line 1: declare has no function name with parameters"),
        ("declare f32 @f()\n", "line 1: function @f has no result type that can be read"),
        ("declare void @f(f32)\n", "line 1: 'f32' is not a type that can be read"),
        ("@x = global [n x i8] undef\n", "line 1: 'n' stands where a number should"),
        ("@x = global " + "[1 x " * 100 + "i8\n" + "]" * 100, "line 2: a type is missing or nests too deep"),
        ("define void @f() prefix " + "{ } " * 4200 + "{ ret void }", "line 1: the header of a function does not end"),
        ("define void @f() { ret void } what\n", "line 1: 'what' begins no statement"),
    ],
)
def test_text_faults(text: str, message: str) -> None:
    assert fault(text.encode()).removeprefix("is malformed LLVM IR text: ") == message


# What is not LLVM IR


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b" \n", "is empty but for white space"),
        (b"BC\xc0", "is truncated: it ends in the magic number of LLVM bitcode"),
        (b"BC\xc0\xde", "is LLVM bitcode without a module; it may be truncated"),
        (
            b"\x7fELF\x02\x01\x01\x40" + bytes(10) + b"\xe0\x00" + bytes(40),
            "is not LLVM IR: it is an AMDGPU code object (ELF), already compiled; give clang -emit-llvm to get bitcode",
        ),
        (b"\x7fELF", "is not LLVM IR: it is an ELF object, already compiled; give clang -emit-llvm to get bitcode"),
        (
            b"__CLANG_OFFLOAD_BUNDLE__" + bytes(100),
            f"is not LLVM IR: it is a clang offload bundle; {ONE_ENTRY}",
        ),
        (
            b"CCOB" + bytes(20),
            f"is not LLVM IR: it is a compressed clang offload bundle; {ONE_ENTRY}",
        ),
        (
            b"!<arch>\nx.o/ ",
            "is not LLVM IR: it is an archive; name the bitcode file in it (llvm-ar x) or link its members with llvm-link",
        ),
        (b"\x1f\x8b\x08\x00", "is not LLVM IR: it is gzip data; unpack it first"),
        (
            b"version https://git-lfs.github.com/spec/v1\n",
            "is not LLVM IR: it is a Git LFS pointer; get the file itself with git lfs pull",
        ),
        (b"\x00\x01\x02", "is not LLVM IR: it is binary data of an unknown kind that begins with 00 01 02"),
        (b"import os\n", "is text, but not LLVM IR: line 1 begins with 'import'"),
        (b"\n#include <hip/hip_runtime.h>\n", "is text, but not LLVM IR: line 2: '#' cannot stand in LLVM IR"),
        (b"\t.text\nf:\n\ts_endpgm\n", "is text, but not LLVM IR: line 1 begins with '.text'"),
        (
            b"module {\n  func.func @f() { return }\n}\n",
            "is text, but not LLVM IR: line 1 begins with 'module'; it looks like MLIR, which mlir-translate --mlir-to-llvmir translates",
        ),
    ],
)
def test_other_files(data: bytes, message: str) -> None:
    assert fault(data) == message


# Bitcode that no compiler writes


class Bits:
    """Write a bitstream: unabbreviated records in blocks."""

    def __init__(self, *, width: int = 2) -> None:
        self.bits: list[int] = []
        self.width = width

    def fixed(self, value: int, width: int) -> Bits:
        self.bits += [(value >> place) & 1 for place in range(width)]
        return self

    def vbr(self, value: int, width: int) -> Bits:
        more = 1 << (width - 1)
        while value >= more:
            self.fixed((value & (more - 1)) | more, width)
            value >>= width - 1
        return self.fixed(value, width)

    def align(self) -> Bits:
        return self.fixed(0, -len(self.bits) % 32)

    def record(self, code: int, *operands: int) -> Bits:
        self.fixed(3, self.width).vbr(code, 6).vbr(len(operands), 6)
        for operand in operands:
            self.vbr(operand, 6)
        return self

    def block(self, block_id: int, inner: Bits) -> Bits:
        body = Bits(width=inner.width)
        body.bits = list(inner.bits)
        body.fixed(0, inner.width).align()
        self.enter(block_id, inner.width, len(body.bits) // 32).bits += body.bits
        return self

    def enter(self, block_id: int, width: int, words: int) -> Bits:
        return self.fixed(1, self.width).vbr(block_id, 8).vbr(width, 4).align().fixed(words, 32)

    def strings(self, text: bytes) -> Bits:
        """Add a string table: one record with a blob, which needs an abbreviation."""
        inner = Bits(width=3).fixed(2, 3).vbr(2, 5).fixed(1, 1).vbr(1, 8).fixed(0, 1).fixed(5, 3).fixed(4, 3).vbr(len(text), 6).align()
        for value in text:
            inner.fixed(value, 8)
        return self.block(23, inner.align())

    def packed(self) -> bytes:
        bits = "".join(map(str, reversed(self.bits)))
        return int(bits or "0", 2).to_bytes(len(self.bits) // 8, "little")

    def file(self) -> bytes:
        return b"BC\xc0\xde" + self.align().packed()


def module(*records: Sequence[int], version: int = 2, blocks: Sequence[tuple[int, Bits]] = ()) -> Bits:
    inner = Bits(width=3).record(1, version)
    for block_id, block in blocks:
        inner.block(block_id, block)
    for record in records:
        inner.record(*record)
    return inner


def records(*every: Sequence[int]) -> Bits:
    block = Bits(width=3)
    for record in every:
        block.record(*record)
    return block


# void, void (), i32, and a variable x of it with an unknown block and an unknown record around
TYPES = records((1, 3), (2,), (21, 0, 0), (7, 32))
SMALL = module((99, 1, 2, 3), (7, 0, 1, 2, 2, 1, 0, 0, 0), blocks=[(17, TYPES), (77, records((5, 6)))])


def test_unknown_blocks_and_records_are_passed_over() -> None:
    file = Bits().block(200, records((1, 2))).block(8, SMALL).strings(b"x").file()
    assert dict(read_ir(file, name="x").globals) == by_name(variable("x", "i32", 4, space=0))


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (
            Bits().block(8, module(version=1)).strings(b""),
            "is bitcode of version 1, as LLVM 4 and before wrote it; compile it again with a newer clang",
        ),
        (
            Bits().block(8, records((2, 97))).strings(b""),
            "is bitcode of version 0, as LLVM 4 and before wrote it; compile it again with a newer clang",
        ),
        (
            Bits().block(8, module(version=3)).strings(b""),
            "is bitcode of version 3, which this release of flydsl-build does not know (it knows version 2)",
        ),
        (
            Bits().block(8, module()).block(8, module()).strings(b""),
            "holds several LLVM modules, and LLVM takes files with one alone; link them into one with llvm-link",
        ),
        (Bits().strings(b"x").strings(b"y"), "is LLVM bitcode without a module; it may be truncated"),
        (Bits().block(8, module()), "is truncated: the table of names at its end is missing"),
        (
            Bits().block(8, module((7, 5, 1, 0))).strings(b"x"),
            "is malformed: the name of a symbol lies outside of its table of names",
        ),
        (Bits().block(8, module((7, 0, 1, 0))).strings(b"x"), "is malformed: a record has too few operands"),
        (
            Bits().block(8, module((7, 0, 1, 0, 2, 0, 0))).strings(b"x"),
            "is malformed: type 0 is not in its table of types, or holds itself",
        ),
        (
            Bits().block(8, module((7, 0, 1, 0, 2, 0, 0), blocks=[(17, records((11, 2, 0)))])).strings(b"x"),
            "is malformed: type 0 is not in its table of types, or holds itself",
        ),
        (
            Bits().block(8, module(*[(8, 0, 1, 1, 0, 1, 0, 0)] * 2, blocks=[(17, records((2,), (21, 0, 0)))])).strings(b"x"),
            "is malformed: it has two symbols named 'x'",
        ),
        (
            Bits().block(8, module((8, 0, 1, 0, 0, 1, 0, 0), blocks=[(17, records((2,)))])).strings(b"x"),
            "is malformed: function 'x' has no function type",
        ),
        (
            Bits().block(8, module((8, 0, 1, 1, 0, 1, 0, 9), blocks=[(17, records((2,), (21, 0, 0)))])).strings(b"x"),
            "is malformed: function 'x' has attributes that are not there",
        ),
        (
            Bits().block(8, module(blocks=[(15, records((4, *b"llvm.module.flags"), (10, 7)))])).strings(b""),
            "is malformed, or of an LLVM newer than this reader knows: its module flags cannot be read",
        ),
        (
            Bits().block(8, module(blocks=[(15, records((1, 65), (3, 1, 1, 1), (35, 4, 9)))])).strings(b""),
            "is malformed: its metadata strings cannot be read",
        ),
        # An array of four thousand million elements that take no bits: [2 operands: literal 99, array of fixed 0].
        (
            Bits().block(
                8,
                Bits(width=3).fixed(2, 3).vbr(3, 5).fixed(1, 1).vbr(99, 8).fixed(0, 1).fixed(3, 3).fixed(0, 1).fixed(1, 3).vbr(0, 5)
                .fixed(4, 3).vbr(1 << 32, 6),
            ),
            "is truncated: the bitcode goes on after the end of the file",
        ),
        (
            Bits().block(8, Bits(width=3).fixed(3, 3).vbr(99, 6).vbr(1 << 40, 6)),
            "is truncated: the bitcode goes on after the end of the file",
        ),
        (Bits().fixed(3, 2).fixed(0, 62), "is malformed: no block begins at bit 32; are several bitcode files joined?"),
    ],
)  # fmt: skip
def test_bitcode_faults(file: Bits, message: str) -> None:
    assert fault(file.file()) == message


def test_wrapped_bitcode() -> None:
    inner = load("shapes.llvm19.bc")
    wrapped = struct.pack("<IIIII", 0x0B17C0DE, 0, 20, len(inner), 7) + inner
    assert dataclasses.replace(read_ir(wrapped + bytes(12), name=""), name="shapes.llvm19.bc") == read("shapes.llvm19.bc")
    size = 20 + len(inner)
    assert fault(wrapped[:-4]) == f"is truncated: its wrapper announces bitcode up to byte {size}, and the file has {size - 4}"
    assert fault(wrapped[:19]) == "is truncated: it ends in the bitcode wrapper's header"
    assert fault(wrapped[:20] + b"XX" + inner) == "is malformed: there is no LLVM bitcode in its wrapper"


def test_padding_after_the_last_block() -> None:
    assert read_ir(load("plain.llvm19.bc") + b"\n" * 7, name="plain.llvm19.bc") == read("plain.llvm19.bc")


def test_two_files_in_one() -> None:
    assert "are several bitcode files joined?" in fault(load("plain.llvm19.bc") + load("shapes.llvm19.bc"))


# Junk


@pytest.mark.parametrize("name", ["shapes.llvm19.bc", "typed_pointers.llvm14.bc", "plain.llvm19.bc"])
def test_every_truncation_of_bitcode_is_a_fault(name: str) -> None:
    data = load(name)
    for size in range(len(data)):
        message = fault(data[:size])
        assert "truncated" in message or size == 0, f"{size} bytes: {message}"


@pytest.mark.parametrize(("name", "step"), [("shapes.ll", 4), ("typed_pointers.ll", 1)])
def test_truncated_text(name: str, step: int) -> None:
    data = load(name)
    for size in range(0, len(data), step):
        with contextlib.suppress(IRError):
            read_ir(data[:size], name="x")


@settings(deadline=5000, max_examples=150)
@given(st.sampled_from(FILES), st.integers(0, 2**32))
def test_changed_files(name: str, seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(load(name))
    for _ in range(rng.choice((1, 2, 8, 50))):
        data[rng.randrange(len(data))] = rng.randrange(256)
    with contextlib.suppress(IRError):
        assert isinstance(read_ir(bytes(data), name="x"), IRModule)


@settings(deadline=5000, max_examples=150)
@given(st.binary(max_size=300))
def test_junk_with_a_magic(data: bytes) -> None:
    with contextlib.suppress(IRError):
        read_ir(b"BC\xc0\xde" + data, name="x")


def test_types_that_share_parts_cost_little() -> None:
    # Each structure holds the one before it twice: spelled out, the last would take 2**60 characters.
    types = records((7, 32), *[(18, 0, number, number) for number in range(60)])
    file = Bits().block(8, module((7, 0, 1, 60, 2, 0, 0), blocks=[(17, types)])).strings(b"x").file()
    shared = read_ir(file, name="x").globals["x"]
    assert len(shared.type) < 600
    assert shared.size is None


def test_speed() -> None:
    """Two megabytes, as large device libraries have: half function bodies, half debug information."""
    bodies = Bits(width=3).enter(12, 4, 1 << 18).packed() + bytes(1 << 20)
    # One record of 39 operands in abbreviation ids of 4 bits takes 256 bits, so that many can be had by repetition.
    node = Bits(width=4).record(26, *range(31), *range(8)).packed()
    nodes = node * 32768 + Bits(width=4).fixed(0, 4).align().packed()
    metadata = Bits(width=3).enter(15, 4, len(nodes) // 4).packed() + nodes
    inner = (
        module(blocks=[(17, TYPES)]).packed() + bodies + metadata + Bits(width=3).record(7, 0, 1, 2, 2, 0, 0).fixed(0, 3).align().packed()
    )
    file = b"BC\xc0\xde" + Bits().enter(8, 3, len(inner) // 4).packed() + inner + Bits().strings(b"x").packed()
    assert len(node) == 32
    start = time.process_time()
    assert list(read_ir(file, name="x").globals) == ["x"]
    assert time.process_time() - start < 2
