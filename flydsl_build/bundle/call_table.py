# SPDX-License-Identifier: Apache-2.0
"""The call table of a module: what a launch needs of its manifest, as constant data in the launcher library.

The structures are those of native/core/call_table.h: little-endian, every reference an offset in bytes from the beginning of the table, so
that the library needs no relocations. `call_table` is the only writer, `native/core/table.c` the only reader.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from flydsl_build.declare.argument_grammar import default_strides
from flydsl_build.declare.argument_types import ArgumentType, Dim, PointerType, ScalarType, StreamType, StructType, TensorType
from flydsl_build.dtypes import DTYPE_TABLE, element_bytes
from flydsl_build.errors import Fault, VerifyError
from flydsl_build.targets.processors import TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from flydsl_build.bundle.manifest import CodeObject, LauncherEntry, SpecializationEntry, Unit
    from flydsl_build.jobs.launcher import Slot

__all__ = ["SYMBOL", "call_table", "object_file"]

SYMBOL: Final = "flydsl_call_table"
"""The symbol of the table in the launcher library."""

_MAGIC = b"FDBTABLE"
_VERSION = 1
_HEADER = struct.Struct("<8s10I")
# DLPack's type code and bits, as native/core/runtime.h has them.
_DTYPES = {one.name: one.code << 8 | one.bits for one in DTYPE_TABLE}
_ARGUMENT_KINDS: dict[type, int] = {TensorType: 0, PointerType: 1, ScalarType: 2, StreamType: 3}
_SLOT_KINDS = {"data": 0, "layout": 1, "scalar": 2, "pointer": 3, "stream": 4}
_NO_NAME = -1
_MOST_DIMS = 16
_OFFSETS_32 = 1
_WRITTEN = 2
_MAX_TABLE = 2**32 - 1


def call_table(*, module: str, targets: Sequence[str], units: Sequence[Unit], launchers: Sequence[LauncherEntry]) -> bytes:
    """Return the call table of one module.

    Parameters
    ----------
    module, targets, units, launchers
        As in its manifest. The order of the specializations is theirs; that of maps, which the manifest sorts, makes no difference.

    Raises
    ------
    VerifyError
        Something has no place in the structures.
    """
    writer = _Writer()
    header = writer.room(_HEADER.size)
    target_number = {target: number for number, target in enumerate(targets)}
    unit_number = {unit.name: number for number, unit in enumerate(units)}
    name = writer.text(module)
    target_records = b"".join(_target(writer, target) for target in targets)
    unit_records = b"".join(_unit(writer, unit, target_number) for unit in units)
    found = []
    for launcher in launchers:
        for specialization in launcher.specializations:
            try:
                found.append(_specialization(writer, launcher, specialization, target_number, unit_number))
            except struct.error as error:
                where = f"{module}, {specialization.name}"
                raise VerifyError(Fault(where=where, what=f"its call table cannot be made: {error}", fix="report it as a bug")) from error
    fields = [
        *(name,),
        *(len(targets), writer.add(target_records)),
        *(len(units), writer.add(unit_records)),
        *(len(found), writer.add(b"".join(found))),
    ]
    size = writer.size
    if size > _MAX_TABLE:
        raise VerifyError(Fault(where=module, what=f"its call table has {size} bytes", fix="declare fewer specializations in one module"))
    writer.fill(header, _HEADER.pack(_MAGIC, _VERSION, size, *fields, 0))
    return writer.data()


def object_file(table: bytes) -> bytes:
    """Return an x86-64 ELF relocatable object that defines `SYMBOL` as constant data and needs nothing.

    Source: System V ABI, https://gabi.xinuos.com/elf/ (file, section and symbol headers).
    """
    names = b"\0.rodata\0.symtab\0.strtab\0.note.GNU-stack\0"
    symbol_names = b"\0" + SYMBOL.encode() + b"\0"
    symbols = bytes(24) + struct.pack("<IBBHQQ", 1, _GLOBAL_OBJECT, 0, 1, 0, len(table))
    contents = (b"", table, symbols, symbol_names + names, b"")
    offsets = []
    body = bytearray(64)
    for one in contents:
        body += bytes(-len(body) % 16)
        offsets.append(len(body))
        body += one
    body += bytes(-len(body) % 16)
    # Name, type, flags, link, info, alignment, entry size. The last says that no stack is executed.
    headers = (
        ("", 0, 0, 0, 0, 0, 0),
        (".rodata", _PROGBITS, _ALLOC, 0, 0, 16, 0),
        (".symtab", _SYMTAB, 0, 3, 1, 8, 24),
        (".strtab", _STRTAB, 0, 0, 0, 1, 0),
        (".note.GNU-stack", _PROGBITS, 0, 0, 0, 1, 0),
    )
    table_at = len(body)
    for (name, kind, flags, link, info, align, entry), offset, one in zip(headers, offsets, contents, strict=True):
        name_at = len(symbol_names) + names.index(b"\0" + name.encode() + b"\0") + 1 if name else 0
        body += struct.pack("<IIQQQQIIQQ", name_at, kind, flags, 0, offset if kind else 0, len(one), link, info, align, entry)
    identity = b"\x7fELF\x02\x01\x01" + bytes(9)
    body[:64] = struct.pack("<16sHHIQQQIHHHHHH", identity, 1, 62, 1, 0, 0, table_at, 0, 64, 0, 0, 64, len(headers), 3)
    return bytes(body)


_GLOBAL_OBJECT = 1 << 4 | 1
_PROGBITS, _SYMTAB, _STRTAB = 1, 2, 3
_ALLOC = 2


class _Writer:
    """Bytes that grow at the end; each text stands there once."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._known: dict[tuple[bytes, int], int] = {}

    @property
    def size(self) -> int:
        return len(self._data)

    def room(self, size: int) -> int:
        at = len(self._data)
        self._data += bytes(size)
        return at

    def fill(self, at: int, data: bytes) -> None:
        self._data[at : at + len(data)] = data

    def add(self, data: bytes, align: int = 8) -> int:
        """Add data, unless the same stands there; return its offset."""
        if (data, align) not in self._known:
            self.room(-len(self._data) % align)
            self._known[data, align] = len(self._data)
            self._data += data
        return self._known[data, align]

    def text(self, text: str) -> int:
        return self.add(text.encode() + b"\0", align=1)

    def texts(self, texts: Iterable[str]) -> tuple[int, int]:
        """Add an array of texts; return count and offset."""
        return self.words([self.text(one) for one in texts])

    def words(self, words: Sequence[int]) -> tuple[int, int]:
        return len(words), self.add(struct.pack(f"<{len(words)}I", *words))

    def data(self) -> bytes:
        return bytes(self._data)


def _target(writer: _Writer, target: str) -> bytes:
    chip = target.partition(":")[0]
    known = TARGETS.get(chip)
    members = known.members if known is not None and known.is_generic else ()
    return struct.pack("<I2I", writer.text(target), *writer.texts(members))


def _unit(writer: _Writer, unit: Unit, target_number: dict[str, int]) -> bytes:
    axes = writer.texts(text for pair in sorted(unit.axes.items()) for text in pair)
    init = writer.texts(unit.init)
    variables = b"".join(struct.pack("<IIQ", writer.text(one.name), 0, one.size) for one in unit.globals)
    objects = b"".join(_code_object(writer, target_number[target], one) for target, one in sorted(unit.code_objects.items()))
    return struct.pack(
        "<10I",
        writer.text(unit.name),
        writer.text(unit.bundle),
        *axes,
        *init,
        *(len(unit.globals), writer.add(variables)),
        *(len(unit.code_objects), writer.add(objects)),
    )


def _code_object(writer: _Writer, target: int, one: CodeObject) -> bytes:
    kernels = b"".join(
        struct.pack("<5I", writer.text(kernel.symbol), kernel.max_workgroup, *(kernel.reqd_workgroup or (0, 0, 0)))
        for kernel in one.kernels
    )
    return struct.pack(
        "<IIQQ32sII", target, one.e_flags, one.offset, one.size, bytes.fromhex(one.sha256), len(one.kernels), writer.add(kernels, 4)
    )


def _specialization(
    writer: _Writer,
    launcher: LauncherEntry,
    specialization: SpecializationEntry,
    target_number: dict[str, int],
    unit_number: dict[str, int],
) -> bytes:
    positions = {parameter.name: position for position, parameter in enumerate(launcher.parameters_of(specialization))}
    # In the order of the signature, so that messages blame the later of two arguments that disagree.
    ordered = sorted(specialization.arguments.items(), key=lambda item: positions[item[0]])
    leaves = [leaf for name, argument in ordered for leaf in _leaves((name,), argument)]
    names: dict[str, int] = {}
    written = set(specialization.out or ())
    arguments = b"".join(_argument(writer, path, one, names, is_written=path[0] in written) for path, one in leaves)
    index = {(path[0], ".".join(path[1:])): position for position, (path, _) in enumerate(leaves)}
    slots = b"".join(_slot(slot, index) for slot in specialization.slots)
    entries = b"".join(
        struct.pack("<5I", target_number[target], unit_number[unit], writer.text(entry.entry), *writer.words(entry.kernels))
        for target, by_unit in sorted(specialization.entries.items())
        for unit, entry in sorted(by_unit.items())
    )
    return struct.pack(
        "<9I",
        writer.text(specialization.name),
        *(len(leaves), writer.add(arguments)),
        *(len(specialization.slots), writer.add(slots)),
        *writer.texts(names),
        *(len(entries) // 20, writer.add(entries, 4)),
    )


def _leaves(path: tuple[str, ...], argument: ArgumentType) -> Iterator[tuple[tuple[str, ...], ArgumentType]]:
    """Yield what is passed of an argument: of a struct its fields, with their paths."""
    if isinstance(argument, StructType):
        for name, field in argument.fields:
            yield from _leaves((*path, name), field)
    else:
        yield path, argument


def _argument(writer: _Writer, path: tuple[str, ...], argument: ArgumentType, names: dict[str, int], *, is_written: bool) -> bytes:
    shape, strides = (argument.shape, argument.strides) if isinstance(argument, TensorType) else ((), ())
    shape_at, strides_at = (writer.add(b"".join(_dim(dim, names) for dim in dims)) for dims in (shape, strides))
    flags = _WRITTEN * is_written
    if isinstance(argument, TensorType) and argument.stride_bits == 32:
        flags |= _OFFSETS_32
    return struct.pack(
        "<9I",
        writer.text(".".join(path)),
        writer.text(_expected(argument)),
        _ARGUMENT_KINDS[type(argument)],
        0 if isinstance(argument, StreamType | StructType) else _DTYPES[argument.dtype],
        argument.alignment if isinstance(argument, TensorType | PointerType) else 1,
        flags,
        len(shape),
        shape_at,
        strides_at,
    )


def _dim(dim: Dim, names: dict[str, int]) -> bytes:
    name = _NO_NAME if dim.name is None else names.setdefault(dim.name, len(names))
    return struct.pack("<qiI", -1 if dim.size is None else dim.size, name, dim.divisor)


def _slot(slot: Slot, index: dict[tuple[str, str], int]) -> bytes:
    shape, strides = slot.shape_dims or (), slot.stride_dims or ()
    if max(len(shape), len(strides)) > _MOST_DIMS:
        msg = f"a slot has {max(len(shape), len(strides))} dims, the run time packs {_MOST_DIMS}"
        raise struct.error(msg)
    return struct.pack(
        "<IiI4B16s16s",
        _SLOT_KINDS[slot.kind],
        -1 if slot.argument is None else index[slot.argument, slot.field or ""],
        slot.size,
        *(len(shape), len(strides), (slot.shape_bits or 32) // 8, (slot.stride_bits or 64) // 8),
        *(bytes(shape), bytes(strides)),
    )


def _expected(argument: ArgumentType) -> str:
    """Return an argument in the grammar of the declarations; dynamic extents always with their strides, for messages of calls."""
    if isinstance(argument, StreamType):
        return "a stream"
    if isinstance(argument, ScalarType | StructType):
        return argument.dtype if isinstance(argument, ScalarType) else argument.name
    align = f"@{argument.alignment}" if argument.alignment > element_bytes(argument.dtype) else ""
    if isinstance(argument, PointerType):
        return f"ptr<{argument.dtype}>{align}"
    dims = ", ".join(map(str, argument.shape))
    is_short = all(dim.size is not None for dim in argument.shape) or len(argument.shape) == 1
    if argument.shape and (not is_short or argument.strides != default_strides(argument.shape)):
        dims += " : " + ", ".join(map(str, argument.strides))
    return f"{argument.dtype}[{dims}]{align}"
