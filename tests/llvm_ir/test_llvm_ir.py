# SPDX-License-Identifier: Apache-2.0
"""The readers of LLVM IR: right values of real files in both forms, and nothing but `IRError` on anything else.

The files in `data/` are made by `data/make_ir.sh` from the sources beside them; `test_llvm_ir_oracle` compares what is read of them
with LLVM. Faults that no compiler writes are made here, bit by bit.
"""

from __future__ import annotations

import contextlib
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
    return read_ir(load(name))


def read_text(text: str) -> IRModule:
    return read_ir(text.encode())


def fault(data: bytes) -> str:
    with pytest.raises(IRError) as caught:
        read_ir(data)
    return str(caught.value)


def function(result: str, *parameters: str, linkage: str = "external", declared: bool = False, var_args: bool = False) -> IRFunction:
    return IRFunction(is_definition=not declared, linkage=linkage, result=result, parameters=parameters, var_args=var_args)


def variable(*, linkage: str = "external", declared: bool = False) -> IRGlobal:
    return IRGlobal(is_definition=not declared, linkage=linkage)


# Real files


@pytest.mark.parametrize(("bitcode", "text"), SAME)
def test_both_forms_say_the_same(bitcode: str, text: str) -> None:
    assert read(bitcode) == read(text)


@pytest.mark.parametrize(
    ("name", "triple", "cpus", "flag", "version"),
    [
        ("device.gfx942.v5.llvm19.bc", "amdgcn-amd-amdhsa", {"gfx942"}, 500, 5),
        ("device.gfx942.v6.llvm19.bc", "amdgcn-amd-amdhsa", {"gfx942"}, 600, 6),
        ("device.gfx950.v6.llvm22.bc", "amdgcn-amd-amdhsa", {"gfx950"}, 600, 6),
        ("plain.llvm19.bc", "x86_64-unknown-linux-gnu", {"x86-64"}, None, None),
        ("shapes.llvm22.bc", "amdgcn-amd-amdhsa", {"gfx942", "gfx950"}, 600, 6),
        # Its flag has the name that LLVM 17 and before gave it.
        ("typed_pointers.llvm14.bc", "amdgcn-amd-amdhsa", {"gfx90a"}, 500, 5),
    ],
)
def test_module(name: str, triple: str, cpus: set[str], flag: int | None, version: int | None) -> None:
    module = read(name)
    assert (module.triple, module.target_cpus, module.code_object_version, module.version) == (triple, cpus, flag, version)


def test_hip_device_code() -> None:
    module = read("device.gfx942.v6.llvm19.bc")
    assert module.functions == {
        "scale_and_shift": function("float", "float", "i32"),
        "many": function("double", "double", "i64", "i8", "i1", "ptr", "<4 x float>"),
        "_Z5otheri": function("i32", "i32", declared=True),
        "maybe": function("i32", linkage="weak"),
        "by_value": function("void", "i32", "float", "[3 x ptr]", "ptr"),
        "print": function("void", "ptr", declared=True, var_args=True),
        "user": function("void"),
        "kernel": function("void", "ptr addrspace(1)"),
    }
    assert module.globals == {
        "state": variable(),
        "table": variable(),
        "elsewhere": variable(declared=True),
        "_ZL14hidden_counter": variable(linkage="internal"),
        ".str": variable(linkage="private"),
        "__hip_cuid_": variable(),
        "llvm.compiler.used": variable(linkage="appending"),
        "__oclc_ABI_version": variable(linkage="weak_odr"),
    }
    assert module.strong_definitions() == ["scale_and_shift", "many", "by_value", "user", "kernel", "state", "table", "__hip_cuid_"]


def test_shapes() -> None:
    module = read("shapes.ll")
    assert module.functions == {
        "first": function("float", "float", "i32"),
        "second": function("void"),
        "resolver": function("ptr", linkage="internal"),
        "printf": function("i32", "ptr addrspace(4)", declared=True, var_args=True),
        "aggregate": function(
            "{ i32, [2 x float] }",
            "<4 x half>", "{ i8, i16 }", "<{ i8, i32 }>", "%struct.Inner", "ptr", "[2 x <2 x i32>]",
            declared=True, linkage="extern_weak",
        ),
        "ranged": function("i32", "i32", declared=True),
        "a b": function("ptr addrspace(1)", "ptr addrspace(5)", declared=True),
        "barrier": function('target("amdgcn.named.barrier", 0)', declared=True),
        "types": function(
            "void",
            "half", "bfloat", "double", "fp128", "i1", "i7", "i128", "<vscale x 4 x i32>", "ptr addrspace(7)", "ptr addrspace(8)",
            declared=True,
        ),
        "kernel": function("void", "ptr addrspace(1)"),
        "merged": function("i64", "i64", linkage="linkonce_odr"),
        "elsewhere": function("void", linkage="available_externally"),
        "cc": function("i16", "i16", linkage="weak"),
        "first_again": function("float", "float", "i32", linkage="weak"),
        "chosen": function("void"),
    }  # fmt: skip
    assert module.globals == {
        "plain": variable(),
        "zero_used": variable(),
        "packed": variable(linkage="weak_odr"),
        "anonymous": variable(linkage="internal"),
        "outer": variable(declared=True),
        'quoted "}{ name': variable(),
        "tagged": variable(linkage="linkonce_odr"),
        "lds": variable(linkage="internal"),
        "maybe": variable(declared=True, linkage="extern_weak"),
        "llvm.used": variable(linkage="appending"),
        "llvm.compiler.used": variable(linkage="appending"),
        "again": variable(),
    }


def test_typed_pointers() -> None:
    module = read("typed_pointers.llvm14.bc")
    assert module.functions == {
        "callee": function("i32", "i32"),
        "alias": function("i32", "i32"),
        "returns_function": function("ptr", "ptr", "ptr addrspace(5)", "ptr", declared=True),
        "takes": function("void", "ptr", "<2 x ptr>", declared=True),
    }
    assert module.globals == {
        "head": variable(),
        "table": variable(),
        "inside": variable(declared=True),
        "llvm.used": variable(linkage="appending"),
        "llvm.compiler.used": variable(linkage="appending"),
    }


# Text


def test_text_without_anything() -> None:
    assert read_text("; ModuleID = 'empty'\n") == IRModule(
        triple="", target_cpus=frozenset(), functions={}, globals={}, code_object_version=None
    )


def test_numbered_types_keep_their_numbers() -> None:
    """They have no name, and what they hold matters to nobody."""
    module = read_text("%0 = type <{ i8, %1 }>\n%1 = type { i16 }\ndeclare %1 @f(%0, %1)\n")
    assert module.functions == {"f": function("%1", "%0", "%1", declared=True)}


def test_code_without_a_name_was_compiled_for_a_processor_too() -> None:
    module = read_text('define void @0() #0 { ret void }\ndeclare void @1() "target-cpu"="x"\nattributes #0 = { "target-cpu"="gfx942" }\n')
    assert (module.functions, module.target_cpus) == ({}, {"gfx942"})


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
        ("declare void @f([n x i8])\n", "line 1: 'n' stands where a number should"),
        ("declare void @f(" + "[1 x " * 100 + "i8\n" + "]" * 100 + ")", "line 2: a type is missing or nests too deep"),
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
    assert read_ir(file).globals == {"x": variable()}


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
            Bits().block(8, module((8, 0, 1, 0, 0, 1, 0, 0))).strings(b"x"),
            "is malformed: type 0 is not in its table of types, or holds itself",
        ),
        (
            Bits().block(8, module((8, 0, 1, 0, 0, 1, 0, 0), blocks=[(17, records((21, 0, 1), (11, 2, 1)))])).strings(b"x"),
            "is malformed: type 1 is not in its table of types, or holds itself",
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
    assert read_ir(wrapped + bytes(12)) == read("shapes.llvm19.bc")
    size = 20 + len(inner)
    assert fault(wrapped[:-4]) == f"is truncated: its wrapper announces bitcode up to byte {size}, and the file has {size - 4}"
    assert fault(wrapped[:19]) == "is truncated: it ends in the bitcode wrapper's header"
    assert fault(wrapped[:20] + b"XX" + inner) == "is malformed: there is no LLVM bitcode in its wrapper"


def test_padding_after_the_last_block() -> None:
    assert read_ir(load("plain.llvm19.bc") + b"\n" * 7) == read("plain.llvm19.bc")


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
            read_ir(data[:size])


@settings(deadline=5000, max_examples=150)
@given(st.sampled_from(FILES), st.integers(0, 2**32))
def test_changed_files(name: str, seed: int) -> None:
    rng = random.Random(seed)
    data = bytearray(load(name))
    for _ in range(rng.choice((1, 2, 8, 50))):
        data[rng.randrange(len(data))] = rng.randrange(256)
    with contextlib.suppress(IRError):
        assert isinstance(read_ir(bytes(data)), IRModule)


@settings(deadline=5000, max_examples=150)
@given(st.binary(max_size=300))
def test_junk_with_a_magic(data: bytes) -> None:
    with contextlib.suppress(IRError):
        read_ir(b"BC\xc0\xde" + data)


def test_types_that_share_parts_cost_little() -> None:
    # Each structure holds the one before it twice: spelled out, the last would take 2**60 characters.
    types = records((7, 32), *[(18, 0, number, number) for number in range(60)], (21, 0, 60, *[60] * 1000))
    file = Bits().block(8, module((8, 0, 1, 61, 0, 1, 0, 0), blocks=[(17, types)])).strings(b"x").file()
    shared = read_ir(file).functions["x"]
    assert len(shared.result) < 600
    assert shared.parameters == (shared.result,) * 1000


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
    assert list(read_ir(file).globals) == ["x"]
    assert time.process_time() - start < 2
