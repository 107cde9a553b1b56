# SPDX-License-Identifier: Apache-2.0
"""Read LLVM bitcode: what a module defines and declares, record by record, without LLVM.

FlyDSL's Python bindings read no bitcode, and other bindings hold an LLVM older than the clang that wrote the file. The records
needed here have kept their layout since LLVM 5 (new fields are added at the end), so records and blocks that are not known
are passed over, and function bodies are skipped unread.

The reader trusts nothing: every length is checked against what is left of the file, nothing recurses into the file's
structure without a bound, and the only exception that leaves this module is `IRError`.

Sources: https://llvm.org/docs/BitCodeFormat.html (bitstream, abbreviations, wrapper) and the record comments of LLVM's
`llvm/Bitcode/LLVMBitCodes.h`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from flydsl_build.llvm_ir.model import (
    CODE_OBJECT_VERSION_FLAGS,
    IRError,
    IRFunction,
    IRGlobal,
    IRModule,
    pointer,
    spelled,
    structure_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ["BITCODE_MAGIC", "WRAPPER_MAGIC", "read_bitcode"]

BITCODE_MAGIC: Final = b"BC\xc0\xde"
WRAPPER_MAGIC: Final = b"\xde\xc0\x17\x0b"

_WRAPPER: Final = struct.Struct("<IIIII")
_WINDOW: Final = struct.Struct("<Q")
_WINDOW_BYTES: Final = 8
# Of the 64 bits of the window at a byte, up to 7 lie before the bit that is read.
_WINDOW_BITS: Final = 57
_MAX_WIDTH: Final = 64
_WORD_BITS: Final = 32
# LLVM tolerates fewer bytes than a block header takes after the last block: some archivers pad.
_MAX_PADDING_BITS: Final = 64

_END_BLOCK: Final = 0
_ENTER_SUBBLOCK: Final = 1
_DEFINE_ABBREV: Final = 2
_UNABBREV_RECORD: Final = 3
_FIRST_ABBREV: Final = 4
_TOP_LEVEL_WIDTH: Final = 2

_LITERAL: Final = 0
_FIXED: Final = 1
_VBR: Final = 2
_ARRAY: Final = 3
_CHAR6: Final = 4
_BLOB: Final = 5
_CHAR6_TABLE: Final = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"

_BLOCKINFO: Final = 0
_MODULE: Final = 8
_PARAMATTR: Final = 9
_PARAMATTR_GROUP: Final = 10
_CONSTANTS: Final = 11
_METADATA: Final = 15
_TYPE_TABLE: Final = 17
_STRTAB: Final = 23

_BLOCKINFO_SETBID: Final = 1
_STRTAB_BLOB: Final = 1
_PARAMATTR_ENTRY: Final = 2
_GROUP_ENTRY: Final = 3

_MODULE_VERSION: Final = 1
_MODULE_TRIPLE: Final = 2
_MODULE_GLOBALVAR: Final = 7
_MODULE_FUNCTION: Final = 8
_MODULE_ALIAS: Final = 14
_MODULE_IFUNC: Final = 18
_MODULE_VALUES: Final = frozenset({_MODULE_GLOBALVAR, _MODULE_FUNCTION, _MODULE_ALIAS, _MODULE_IFUNC})
_MODULE_KEPT: Final = _MODULE_VALUES | {_MODULE_VERSION, _MODULE_TRIPLE}
_VERSION_WITH_STRTAB: Final = 2

_CST_SETTYPE: Final = 1
_CST_NULL: Final = 2
_CST_INTEGER: Final = 4
_CST_KEPT: Final = frozenset({_CST_NULL, _CST_INTEGER})

_MD_STRING_OLD: Final = 1
_MD_VALUE: Final = 2
_MD_NODE: Final = 3
_MD_NAME: Final = 4
_MD_DISTINCT_NODE: Final = 5
_MD_NAMED_NODE: Final = 10
_MD_STRINGS: Final = 35
# Name, kind, named node, declaration attachment, index offset, index: all others take a number of their own.
_MD_UNNUMBERED: Final = frozenset({_MD_NAME, 6, _MD_NAMED_NODE, 36, 38, 39})
_MD_KEPT: Final = frozenset({_MD_STRING_OLD, _MD_VALUE, _MD_NODE, _MD_NAME, _MD_DISTINCT_NODE, _MD_NAMED_NODE, _MD_STRINGS})
_MODULE_FLAGS: Final = b"llvm.module.flags"
_FLAG_OPERANDS: Final = 3

_PLAIN_TYPES: Final = {
    2: "void", 3: "float", 4: "double", 5: "label", 10: "half", 13: "x86_fp80", 14: "fp128", 15: "ppc_fp128",
    16: "metadata", 17: "x86_mmx", 22: "token", 23: "bfloat", 24: "x86_amx",
}  # fmt: skip
_TYPE_NUMENTRY: Final = 1
_TYPE_OPAQUE: Final = 6
_TYPE_INTEGER: Final = 7
_TYPE_POINTER: Final = 8
_TYPE_ARRAY: Final = 11
_TYPE_VECTOR: Final = 12
_TYPE_STRUCT: Final = 18
_TYPE_STRUCT_NAME: Final = 19
_TYPE_STRUCT_NAMED: Final = 20
_TYPE_FUNCTION: Final = 21
_TYPE_OPAQUE_POINTER: Final = 25
_TYPE_TARGET: Final = 26
_TYPE_BYTE: Final = 27
_MAX_TYPE_DEPTH: Final = 64

# 5, 6, 13, 14 and 15 are linkages that LLVM has dropped, and what it reads them as; so does it read unknown ones as external.
_LINKAGES: Final = {
    1: "weak", 2: "appending", 3: "internal", 4: "linkonce", 7: "extern_weak", 8: "common", 9: "private", 10: "weak_odr",
    11: "linkonce_odr", 12: "available_externally", 13: "private", 14: "private", 16: "weak", 17: "weak_odr", 18: "linkonce",
    19: "linkonce_odr",
}  # fmt: skip

_FUNCTION_INDEX: Final = 0xFFFF_FFFF
_TARGET_CPU: Final = [*b"target-cpu"]
# Names share one table, so a small file can name a megabyte many thousand times.
_NAME_BYTES_MIN: Final = 1 << 16
_NAME_BYTES_PER_BYTE: Final = 8


def read_bitcode(data: bytes) -> IRModule:
    """Read a bitcode file with one module.

    Parameters
    ----------
    data
        The whole file: a bitstream, or one in a wrapper.

    Raises
    ------
    IRError
        The file is truncated or malformed, holds several modules, or is older than LLVM 5.
    """
    start, end = _unwrap(data)
    stream = _Bitstream(data, start * 8, end * 8)
    module: _RawModule | None = None
    strings: bytes | None = None
    for block in stream.top_level():
        if block.id == _MODULE:
            if module is not None:
                msg = "holds several LLVM modules, and LLVM takes files with one alone; link them into one with llvm-link"
                raise IRError(msg)
            module = _RawModule()
            module.read(stream, block)
        elif block.id == _STRTAB and module is not None and strings is None:
            strings = next((record.blob for record in stream.records(block) if record.code == _STRTAB_BLOB), None)
    if module is None:
        msg = "is LLVM bitcode without a module; it may be truncated"
        raise IRError(msg)
    if strings is None:
        msg = "is truncated: the table of names at its end is missing"
        raise IRError(msg)
    return _Resolver(module, strings).module()


def _unwrap(data: bytes) -> tuple[int, int]:
    """Return the first byte after the magic and the end of the bitstream."""
    start, end = 0, len(data)
    if data.startswith(WRAPPER_MAGIC):
        if len(data) < _WRAPPER.size:
            msg = "is truncated: it ends in the bitcode wrapper's header"
            raise IRError(msg)
        _magic, _version, start, size, _cpu = _WRAPPER.unpack_from(data)
        if start + size > len(data):
            msg = f"is truncated: its wrapper announces bitcode up to byte {start + size}, and the file has {len(data)}"
            raise IRError(msg)
        end = start + size
    if data[start : start + len(BITCODE_MAGIC)] != BITCODE_MAGIC or start + len(BITCODE_MAGIC) > end:
        msg = "is malformed: there is no LLVM bitcode in its wrapper" if start else "is not LLVM bitcode"
        raise IRError(msg)
    return start + len(BITCODE_MAGIC), end


class _Block(NamedTuple):
    """A block that the stream stands in front of; positions are in bits."""

    id: int
    width: int
    start: int
    end: int


class _Record(NamedTuple):
    code: int
    operands: list[int]
    blob: bytes


class _AbbrevOp(NamedTuple):
    kind: int
    value: int


class _Bitstream:
    """The bit level: blocks, abbreviations and records between two bit positions of a file."""

    def __init__(self, data: bytes, start: int, end: int) -> None:
        # With zeros after it, a window can be read at any position up to the end.
        self._data = data[: end // 8] + bytes(_WINDOW_BYTES)
        self._origin = start - len(BITCODE_MAGIC) * 8
        self._pos = start
        self._end = end
        self._blockinfo: dict[int, list[tuple[_AbbrevOp, ...]]] = {}

    def _fixed(self, width: int) -> int:
        pos = self._pos
        if width > self._end - pos:
            raise _truncated()
        self._pos = pos + width
        if width <= _WINDOW_BITS:
            value: int = _WINDOW.unpack_from(self._data, pos >> 3)[0]
        else:
            value = int.from_bytes(self._data[pos >> 3 : (pos + width + 7) >> 3], "little")
        return (value >> (pos & 7)) & ((1 << width) - 1)

    def _vbr(self, width: int) -> int:
        more = 1 << (width - 1)
        value = shift = 0
        while True:
            chunk = self._fixed(width)
            value |= (chunk & (more - 1)) << shift
            if not chunk & more:
                return value & ((1 << _MAX_WIDTH) - 1)
            shift += width - 1
            if shift > _MAX_WIDTH + _WORD_BITS or width == 1:
                msg = f"is malformed: a number at bit {self._pos} does not end"
                raise IRError(msg)

    def _align(self) -> None:
        self._pos += -(self._pos - self._origin) % _WORD_BITS

    def _enter(self, limit: int) -> _Block:
        """Read a block's header after its abbreviation id."""
        block_id = self._vbr(8)
        width = self._vbr(4)
        self._align()
        words = self._fixed(_WORD_BITS)
        end = self._pos + words * _WORD_BITS
        if end > self._end:
            raise _truncated()
        if end > limit or not _TOP_LEVEL_WIDTH <= width <= _WORD_BITS:
            msg = f"is malformed: block {block_id} at bit {self._pos} does not fit into the one around it"
            raise IRError(msg)
        return _Block(block_id, width, self._pos, end)

    def numbers(self, count: int) -> list[int]:
        """Read numbers of six-bit chunks from the start."""
        return self._elements(_AbbrevOp(_VBR, 6), count, wanted=True)

    def top_level(self) -> Iterator[_Block]:
        """Yield the blocks of the file. What the caller does not read is skipped."""
        while self._end - self._pos >= _MAX_PADDING_BITS:
            if self._fixed(_TOP_LEVEL_WIDTH) != _ENTER_SUBBLOCK:
                msg = f"is malformed: no block begins at bit {self._pos - _TOP_LEVEL_WIDTH}; are several bitcode files joined?"
                raise IRError(msg)
            block = self._enter(self._end)
            if block.id == _BLOCKINFO:
                self._read_blockinfo(block)
            else:
                yield block
            self._pos = block.end

    def records(self, block: _Block, keep: frozenset[int] | None = None) -> Iterator[_Record]:
        """Yield a block's records and skip the blocks in it."""
        for entry in self.entries(block, keep):
            if isinstance(entry, _Record):
                yield entry

    def entries(self, block: _Block, keep: frozenset[int] | None = None) -> Iterator[_Record | _Block]:
        """Yield a block's records and the blocks in it; blocks that the caller does not read are skipped.

        Records whose code is not in `keep` come without operands: long tables are then passed over fast.
        """
        self._pos = block.start
        shared = self._blockinfo.get(block.id, [])
        own: list[tuple[_AbbrevOp, ...]] = []
        while True:
            abbrev_id = self._fixed(block.width)
            if abbrev_id == _END_BLOCK:
                self._leave(block)
                return
            if abbrev_id == _ENTER_SUBBLOCK:
                inner = self._enter(block.end)
                if inner.id == _BLOCKINFO:
                    self._read_blockinfo(inner)
                else:
                    yield inner
                self._pos = inner.end
            elif abbrev_id == _DEFINE_ABBREV:
                own.append(self._define_abbrev())
            elif abbrev_id == _UNABBREV_RECORD:
                yield self._plain_record(keep)
            elif (place := abbrev_id - _FIRST_ABBREV) < len(shared):
                yield self._abbreviated_record(shared[place], keep)
            elif place - len(shared) < len(own):
                yield self._abbreviated_record(own[place - len(shared)], keep)
            else:
                msg = f"is malformed: abbreviation {abbrev_id} in block {block.id} is not defined"
                raise IRError(msg)
            if self._pos > block.end:
                msg = f"is malformed: a record goes over the end of block {block.id}"
                raise IRError(msg)

    def _leave(self, block: _Block) -> None:
        self._align()
        if self._pos != block.end:
            msg = f"is malformed: block {block.id} ends at bit {self._pos} and should at {block.end}"
            raise IRError(msg)

    def _read_blockinfo(self, block: _Block) -> None:
        """Read the abbreviations that blocks of other ids begin with."""
        self._pos = block.start
        current: list[tuple[_AbbrevOp, ...]] | None = None
        while True:
            abbrev_id = self._fixed(block.width)
            if abbrev_id == _END_BLOCK:
                return
            if abbrev_id == _DEFINE_ABBREV and current is not None:
                current.append(self._define_abbrev())
            elif abbrev_id == _UNABBREV_RECORD:
                record = self._plain_record(None)
                if record.code == _BLOCKINFO_SETBID and record.operands:
                    current = self._blockinfo.setdefault(record.operands[0], [])
            else:
                msg = "is malformed: its table of abbreviations cannot be read"
                raise IRError(msg)
            if self._pos > block.end:
                msg = "is malformed: its table of abbreviations has no end"
                raise IRError(msg)

    def _define_abbrev(self) -> tuple[_AbbrevOp, ...]:
        count = self._vbr(5)
        if count > self._end - self._pos:
            raise _truncated()
        operands: list[_AbbrevOp] = []
        for _ in range(count):
            if self._fixed(1):
                operands.append(_AbbrevOp(_LITERAL, self._vbr(8)))
                continue
            kind = self._fixed(3)
            value = self._vbr(5) if kind in (_FIXED, _VBR) else 0
            if kind == _LITERAL or kind > _BLOB or value > _MAX_WIDTH or (kind == _VBR and value == 1):
                msg = f"is malformed: an abbreviation at bit {self._pos} has an unknown encoding"
                raise IRError(msg)
            if kind in (_FIXED, _VBR) and value == 0:
                kind = _LITERAL
            operands.append(_AbbrevOp(kind, value))
        for place, operand in enumerate(operands, 1):
            last_but_one = place == count - 1 and operands[-1].kind not in (_ARRAY, _BLOB)
            if (operand.kind == _ARRAY and not last_but_one) or (operand.kind == _BLOB and place != count):
                msg = f"is malformed: an abbreviation at bit {self._pos} has an array or blob that is not at its end"
                raise IRError(msg)
        if not operands or operands[0].kind in (_ARRAY, _BLOB):
            msg = f"is malformed: an abbreviation at bit {self._pos} gives its records no code"
            raise IRError(msg)
        return tuple(operands)

    def _plain_record(self, keep: frozenset[int] | None) -> _Record:
        code = self._vbr(6)
        count = self._vbr(6)
        operands = self._elements(_AbbrevOp(_VBR, 6), count, wanted=keep is None or code in keep)
        return _Record(code, operands, b"")

    def _abbreviated_record(self, abbrev: tuple[_AbbrevOp, ...], keep: frozenset[int] | None) -> _Record:
        code = self._scalar(abbrev[0])
        wanted = keep is None or code in keep
        operands: list[int] = []
        blob = b""
        place = 1
        while place < len(abbrev):
            operand = abbrev[place]
            place += 1
            if operand.kind == _ARRAY:
                operands += self._elements(abbrev[place], self._vbr(6), wanted=wanted)
                break
            if operand.kind == _BLOB:
                blob = self._blob(wanted=wanted)
            else:
                operands.append(self._scalar(operand))
        return _Record(code, operands, blob)

    def _scalar(self, operand: _AbbrevOp) -> int:
        kind, value = operand
        if kind == _LITERAL:
            return value
        if kind == _FIXED:
            return self._fixed(value)
        if kind == _VBR:
            return self._vbr(value)
        return _CHAR6_TABLE[self._fixed(6)]

    def _blob(self, *, wanted: bool) -> bytes:
        length = self._vbr(6)
        self._align()
        if length * 8 > self._end - self._pos:
            raise _truncated()
        start = self._pos >> 3
        self._pos += length * 8
        self._align()
        return self._data[start : start + length] if wanted else b""

    def _elements(self, element: _AbbrevOp, count: int, *, wanted: bool) -> list[int]:
        """Read the elements of an array; the hot loop of the reader."""
        kind, width = element
        if kind == _CHAR6:
            width = 6
        # An element that takes no bits must not make an array free of charge.
        if count * max(1, width if kind != _LITERAL else 1) > self._end - self._pos:
            raise _truncated()
        if kind == _LITERAL:
            return [width] * count if wanted else []
        if kind != _VBR:
            if not wanted:
                self._pos += count * width
                return []
            values = [self._fixed(width) for _ in range(count)]
            return [_CHAR6_TABLE[value] for value in values] if kind == _CHAR6 else values
        return self._vbr_elements(width, count, wanted=wanted)

    def _vbr_elements(self, width: int, count: int, *, wanted: bool) -> list[int]:
        values: list[int] = []
        data, pos, end = self._data, self._pos, self._end
        window = _WINDOW.unpack_from
        more = 1 << (width - 1)
        mask = more - 1
        # Where the value's last chunk may begin so that it still ends in the window.
        last = (_WINDOW_BITS // width - 1) * (width - 1)
        for _ in range(count):
            if pos > end:
                raise _truncated()
            bits = window(data, pos >> 3)[0] >> (pos & 7)
            value = bits & mask
            start = pos
            pos += width
            shift = width - 1
            while bits & more and shift <= last:
                bits >>= width
                value |= (bits & mask) << shift
                pos += width
                shift += width - 1
            if bits & more or width > _WINDOW_BITS:
                # Longer than the window.
                self._pos = start
                value = self._vbr(width)
                pos = self._pos
            if wanted:
                values.append(value)
        self._pos = pos
        if pos > end:
            raise _truncated()
        return values


@dataclass(kw_only=True, slots=True)
class _RawModule:
    """The records of a module, unresolved: types stand before the data layout, values before the names."""

    version: int = 0
    triple: str = ""
    types: list[tuple[int, list[int], str | None]] = field(default_factory=list)
    groups: dict[int, str] = field(default_factory=dict)
    attributes: list[str | None] = field(default_factory=list)
    values: list[_Record] = field(default_factory=list)
    constants: list[_Record] = field(default_factory=list)
    metadata: list[bytes | _Record | None] = field(default_factory=list)
    flags: list[int] = field(default_factory=list)

    def read(self, stream: _Bitstream, block: _Block) -> None:
        """Read a module block, without the function bodies and other blocks that do not matter here."""
        for entry in stream.entries(block, _MODULE_KEPT):
            if isinstance(entry, _Block):
                self._read_block(stream, entry)
            elif entry.code == _MODULE_VERSION:
                self.version = entry.operands[0] if entry.operands else 0
                if self.version != _VERSION_WITH_STRTAB:
                    raise _wrong_version(self.version)
            elif entry.code == _MODULE_TRIPLE:
                self.triple = _text(entry.operands)
            elif entry.code in _MODULE_VALUES:
                self.values.append(entry)
        if self.version != _VERSION_WITH_STRTAB:
            raise _wrong_version(self.version)

    def _read_block(self, stream: _Bitstream, block: _Block) -> None:
        if block.id == _TYPE_TABLE:
            self._read_types(stream, block)
        elif block.id == _PARAMATTR_GROUP:
            self._read_groups(stream, block)
        elif block.id == _PARAMATTR:
            self._read_attributes(stream, block)
        elif block.id == _CONSTANTS:
            # Every record but SETTYPE takes the next value number.
            self.constants += (record for record in stream.records(block, _CST_KEPT) if record.code != _CST_SETTYPE)
        elif block.id == _METADATA:
            self._read_metadata(stream, block)

    def _read_types(self, stream: _Bitstream, block: _Block) -> None:
        name: str | None = None
        for code, operands, _blob in stream.records(block):
            if code == _TYPE_NUMENTRY:
                continue
            if code == _TYPE_STRUCT_NAME:
                name = _text(operands)
                continue
            self.types.append((code, operands, name if code in (_TYPE_OPAQUE, _TYPE_STRUCT_NAMED, _TYPE_TARGET) else None))
            if self.types[-1][2] is not None:
                name = None

    def _read_groups(self, stream: _Bitstream, block: _Block) -> None:
        for code, operands, _blob in stream.records(block):
            if code == _GROUP_ENTRY and len(operands) > 1 and operands[1] == _FUNCTION_INDEX:
                cpu = _target_cpu(operands)
                if cpu is not None:
                    self.groups[operands[0]] = cpu

    def _read_attributes(self, stream: _Bitstream, block: _Block) -> None:
        for code, operands, _blob in stream.records(block):
            if code == _PARAMATTR_ENTRY:
                self.attributes.append(next((self.groups[group] for group in operands if group in self.groups), None))

    def _read_metadata(self, stream: _Bitstream, block: _Block) -> None:
        name = b""
        for record in stream.records(block, _MD_KEPT):
            code, operands, blob = record
            if code == _MD_STRINGS:
                self.metadata += _metadata_strings(operands, blob)
            elif code == _MD_NAME:
                name = _raw(operands)
            elif code == _MD_NAMED_NODE:
                if name == _MODULE_FLAGS:
                    self.flags += operands
            elif code == _MD_STRING_OLD:
                self.metadata.append(_raw(operands))
            elif code in (_MD_VALUE, _MD_NODE, _MD_DISTINCT_NODE):
                self.metadata.append(record)
            elif code not in _MD_UNNUMBERED:
                self.metadata.append(None)


class _Resolver:
    """Make a module of its records: types, names and the module flags."""

    def __init__(self, raw: _RawModule, strings: bytes) -> None:
        self._raw = raw
        self._names = _names(raw.values, strings)
        self._types: dict[int, str] = {}

    def module(self) -> IRModule:
        functions: dict[str, IRFunction] = {}
        variables: dict[str, IRGlobal] = {}
        cpus: set[str | None] = set()
        for symbol, record in zip(self._names, self._raw.values, strict=True):
            if record.code == _MODULE_FUNCTION:
                cpu = self._cpu(symbol, record)
                if not _at(record, 4):
                    cpus.add(cpu)
            if not symbol:
                continue
            if symbol in functions or symbol in variables:
                msg = f"is malformed: it has two symbols named {symbol!r}"
                raise IRError(msg)
            linkage = _LINKAGES.get(_at(record, 5), "external")
            signature = self._signature(symbol, record)
            if signature is not None:
                result, parameters, var_args = signature
                functions[symbol] = IRFunction(
                    is_definition=record.code != _MODULE_FUNCTION or not _at(record, 4),
                    linkage=linkage,
                    result=result,
                    parameters=parameters,
                    var_args=var_args,
                )
            else:
                is_definition = record.code != _MODULE_GLOBALVAR or _at(record, 4) != 0
                variables[symbol] = IRGlobal(is_definition=is_definition, linkage=linkage)
        return IRModule(
            triple=self._raw.triple,
            target_cpus=frozenset(cpu for cpu in cpus if cpu is not None),
            functions=functions,
            globals=variables,
            code_object_version=self._code_object_version(),
        )

    def _cpu(self, name: str, record: _Record) -> str | None:
        """Return the processor that a function was compiled for."""
        attributes = _at(record, 6)
        if attributes > len(self._raw.attributes):
            msg = f"is malformed: function {name!r} has attributes that are not there"
            raise IRError(msg)
        return self._raw.attributes[attributes - 1] if attributes else None

    def _signature(self, name: str, record: _Record) -> tuple[str, tuple[str, ...], bool] | None:
        """Return the types of a function's result and parameters and whether more may follow; None for a variable."""
        if record.code == _MODULE_GLOBALVAR:
            return None
        number = _at(record, 2)
        code, operands, _name = self._type_record(number)
        if code == _TYPE_POINTER and record.code == _MODULE_FUNCTION:
            # Old files give a function's type as a pointer to it.
            code, operands, _name = self._type_record(_operand(operands, 0))
        if code == _TYPE_FUNCTION:
            result, *parameters = (self._type(one) for one in [_operand(operands, 1), *operands[2:]])
            return result, tuple(parameters), operands[0] != 0
        if record.code == _MODULE_FUNCTION:
            msg = f"is malformed: function {name!r} has no function type"
            raise IRError(msg)
        return None

    def _constant(self, value: int) -> _Record | None:
        place = value - len(self._raw.values)
        return self._raw.constants[place] if 0 <= place < len(self._raw.constants) else None

    def _code_object_version(self) -> int | None:
        for number in self._raw.flags:
            node = self._metadata(number)
            if not isinstance(node, _Record) or node.code not in (_MD_NODE, _MD_DISTINCT_NODE) or len(node.operands) != _FLAG_OPERANDS:
                msg = "is malformed, or of an LLVM newer than this reader knows: its module flags cannot be read"
                raise IRError(msg)
            # Operands of nodes are one more than the number; 0 is null.
            key, value = (self._metadata(operand - 1) for operand in node.operands[1:])
            if not isinstance(key, bytes) or key.decode("latin-1") not in CODE_OBJECT_VERSION_FLAGS:
                continue
            constant = self._constant(_at(value, 1)) if isinstance(value, _Record) and value.code == _MD_VALUE else None
            if constant is not None and constant.code == _CST_INTEGER:
                return _signed(_at(constant, 0))
            if constant is not None and constant.code == _CST_NULL:
                return 0
            msg = f"is malformed: the module flag {key.decode('latin-1')} is not an integer"
            raise IRError(msg)
        return None

    def _metadata(self, number: int) -> bytes | _Record | None:
        return self._raw.metadata[number] if 0 <= number < len(self._raw.metadata) else None

    def _type_record(self, number: int) -> tuple[int, list[int], str | None]:
        if number >= len(self._raw.types):
            raise _no_type(number)
        return self._raw.types[number]

    def _type(self, number: int, depth: int = 0) -> str:
        """Return the spelling of a type."""
        known = self._types.get(number)
        if known is not None:
            return known
        if depth > _MAX_TYPE_DEPTH:
            raise _no_type(number)
        made = self._types[number] = self._spell_type(number, depth + 1)
        return made

    def _spell_type(self, number: int, depth: int) -> str:  # noqa: PLR0911 - one line a type
        code, operands, name = self._type_record(number)
        if code in _PLAIN_TYPES:
            return _PLAIN_TYPES[code]
        if code in (_TYPE_INTEGER, _TYPE_BYTE):
            return f"{'i' if code == _TYPE_INTEGER else 'b'}{_operand(operands, 0)}"
        if code == _TYPE_OPAQUE_POINTER:
            return pointer(_operand(operands, 0))
        if code == _TYPE_POINTER:
            # [pointee, address space]: the pointee may be a structure that holds this pointer.
            return pointer(operands[1] if len(operands) > 1 else 0)
        if name is not None and code in (_TYPE_OPAQUE, _TYPE_STRUCT_NAMED):
            return structure_name(name)
        if code in (_TYPE_ARRAY, _TYPE_VECTOR):
            count = f"{'vscale x ' if any(operands[2:3]) else ''}{_operand(operands, 0)}"
            opening, closing = "[]" if code == _TYPE_ARRAY else "<>"
            return spelled(opening, count, " x ", self._type(_operand(operands, 1), depth), closing)
        if code in (_TYPE_STRUCT, _TYPE_STRUCT_NAMED):
            inner = spelled("{ ", spelled(*self._types_of(operands[1:], depth), between=", "), " }") if operands[1:] else "{}"
            return spelled("<", inner, ">") if _operand(operands, 0) else inner
        if code == _TYPE_TARGET:
            end = 1 + _operand(operands, 0)
            words = [f'"{name or ""}"', *self._types_of(operands[1:end], depth), *map(str, operands[end:])]
            return spelled("target(", spelled(*words, between=", "), ")")
        return "other"

    def _types_of(self, numbers: list[int], depth: int) -> Iterator[str]:
        return (self._type(one, depth) for one in numbers)


def _names(values: Sequence[_Record], strings: bytes) -> list[str]:
    """Return the name of each value, "" for none."""
    names: list[str] = []
    left = _NAME_BYTES_MIN + _NAME_BYTES_PER_BYTE * len(strings)
    for record in values:
        offset, size = _at(record, 0), _at(record, 1)
        left -= size
        if offset + size > len(strings) or left < 0:
            msg = "is malformed: the name of a symbol lies outside of its table of names"
            raise IRError(msg)
        names.append(strings[offset : offset + size].decode("utf-8", "backslashreplace"))
    return names


def _target_cpu(operands: Sequence[int]) -> str | None:
    """Return the `target-cpu` string of one group of function attributes, [group, index, attributes…]."""
    place = 2
    while place < len(operands):
        kind = operands[place]
        place += 1
        if kind in (0, 5):
            place += 1
        elif kind in (1, 6):
            place += 2
        elif kind in (3, 4):
            key, place = _terminated(operands, place)
            if kind == 4:
                value, place = _terminated(operands, place)
                if key == _TARGET_CPU:
                    return _text(value)
        else:
            # Ranges, and kinds that are newer than this reader: their length is not known, and string attributes come last.
            place = _next_string(operands, place)
    return None


def _next_string(operands: Sequence[int], place: int) -> int:
    wanted = [4, *_TARGET_CPU, 0]
    for start in range(place, len(operands) - len(wanted) + 1):
        if operands[start] == wanted[0] and list(operands[start : start + len(wanted)]) == wanted:
            return start
    return len(operands)


def _terminated(operands: Sequence[int], place: int) -> tuple[list[int], int]:
    end = place
    while end < len(operands) and operands[end]:
        end += 1
    return list(operands[place:end]), end + 1


def _metadata_strings(operands: Sequence[int], blob: bytes) -> list[bytes | _Record | None]:
    """Cut the blob of METADATA_STRINGS, [count, offset of the characters], lengths before the characters."""
    count, offset = _operand(operands, 0), _operand(operands, 1)
    if offset > len(blob):
        msg = "is malformed: its metadata strings cannot be read"
        raise IRError(msg)
    lengths = _Bitstream(blob, 0, offset * 8).numbers(count)
    strings: list[bytes | _Record | None] = []
    for length in lengths:
        if offset + length > len(blob):
            msg = "is malformed: its metadata strings go over their end"
            raise IRError(msg)
        strings.append(blob[offset : offset + length])
        offset += length
    return strings


def _at(record: _Record, place: int) -> int:
    return _operand(record.operands, place)


def _operand(operands: Sequence[int], place: int) -> int:
    if place >= len(operands):
        msg = "is malformed: a record has too few operands"
        raise IRError(msg)
    return operands[place]


def _raw(operands: Sequence[int]) -> bytes:
    return bytes(value & 0xFF for value in operands)


def _text(operands: Sequence[int]) -> str:
    return _raw(operands).decode("utf-8", "backslashreplace")


def _signed(value: int) -> int:
    return -(value >> 1) if value & 1 else value >> 1


def _no_type(number: int) -> IRError:
    return IRError(f"is malformed: type {number} is not in its table of types, or holds itself")


def _truncated() -> IRError:
    return IRError("is truncated: the bitcode goes on after the end of the file")


def _wrong_version(version: int) -> IRError:
    if version < _VERSION_WITH_STRTAB:
        return IRError(f"is bitcode of version {version}, as LLVM 4 and before wrote it; compile it again with a newer clang")
    return IRError(f"is bitcode of version {version}, which this release of flydsl-build does not know (it knows version 2)")
