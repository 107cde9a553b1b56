# SPDX-License-Identifier: Apache-2.0
"""What the readers of LLVM IR say of a module: functions, globals, flags, and types with their spellings and sizes.

The bitcode reader and the text reader build the same values from the same constructors, so that one module read from both
forms compares equal (`kind`, `name` and `producer` aside).

Sources: the LLVM language reference (https://llvm.org/docs/LangRef.html: data layout, type system, linkage types) and the
AMDGPU back end guide (https://llvm.org/docs/AMDGPUUsage.html: address spaces).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["CODE_OBJECT_VERSION_FLAGS", "DataLayout", "IRError", "IRFunction", "IRGlobal", "IRModule", "IRType"]

# The flag had the second name up to LLVM 17 and ROCm 6.0; newer LLVM renames it when it reads.
CODE_OBJECT_VERSION_FLAGS: Final = ("amdhsa_code_object_version", "amdgpu_code_object_version")

_VERSION_UNIT: Final = 100
# Types in one table share parts, so a few hundred bytes can spell gigabytes. No signature that an extern can have comes near this.
_MAX_SPELLING: Final = 512
_MAX_BITS: Final = 1 << 64
_BARE_NAME: Final = re.compile(r"[-a-zA-Z$._][-a-zA-Z$._0-9]*")

_FLOATS: Final = {"half": 16, "bfloat": 16, "float": 32, "double": 64, "x86_fp80": 80, "fp128": 128, "ppc_fp128": 128}

# What LLVM assumes where a layout names nothing.
_DEFAULT_LAYOUT: Final = "p:64:64-i1:8-i8:8-i16:16-i32:32-i64:32-f16:16-f32:32-f64:64-f128:128-v64:64-v128:128-a:0"
# A hand-written module often has no layout. The linker then takes that of the module it links into, which is this one.
_AMDGPU_LAYOUT: Final = (
    "p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-p7:160:256-p8:128:128-p9:192:256-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128"
)


class IRError(ValueError):
    """Bytes that are not an LLVM IR module that can be read; the message says what is wrong, without the file's name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IRFunction:
    """One named function of a module, or an alias or ifunc of function type.

    Parameters
    ----------
    name
        Its name in the module.
    result, parameters
        Types as LLVM spells them: `void`, `i32`, `float`, `ptr`, `ptr addrspace(1)`, `<4 x float>`, `{ i32, float }`, `%struct.S`.
        The typed pointers of LLVM 14 and before are spelled `ptr` too. `other` is a type too long to spell.
    is_definition
        Whether the module has its body; an alias is a definition.
    linkage
        `external`, `internal`, `private`, `weak`, `weak_odr`, `linkonce`, `linkonce_odr`, `extern_weak`, `available_externally`, …
    target_cpu
        The value of its `target-cpu` attribute, None for none. An alias has that of the function it names.
    var_args
        Whether the parameters end in `...`.
    """

    name: str
    result: str
    parameters: tuple[str, ...]
    is_definition: bool
    linkage: str
    target_cpu: str | None
    var_args: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class IRGlobal:
    """One named global variable of a module, or an alias of a variable.

    Parameters
    ----------
    name
        Its name in the module.
    type
        The type of its value, as LLVM spells it.
    is_definition, linkage
        As for a function.
    address_space
        1 is global (device) memory, 3 is LDS, 4 is constant memory.
    externally_initialized
        Whether something outside the module may write it before a kernel runs, as HIP's `__device__` variables say.
    in_used
        Whether `llvm.used` or `llvm.compiler.used` names it.
    size
        Size in bytes with the padding at its end, None if the type does not tell.
    """

    name: str
    type: str
    is_definition: bool
    linkage: str
    address_space: int
    externally_initialized: bool
    in_used: bool
    size: int | None


@dataclass(frozen=True, kw_only=True, slots=True)
class IRModule:
    """One LLVM IR module.

    Parameters
    ----------
    name
        The name that the caller gave, for messages.
    kind
        The form it was read from.
    triple
        Its target triple, "" for none.
    functions, globals
        By name. Unnamed ones cannot be linked to and are left out; intrinsics (`llvm.…`) are in.
    code_object_version
        The value of the module flag `amdhsa_code_object_version` (600 for version 6), None without the flag.
    producer
        What wrote the bitcode, e.g. `LLVM22.1.8`; None for text.
    """

    name: str
    kind: Literal["bitcode", "text"]
    triple: str
    functions: Mapping[str, IRFunction]
    globals: Mapping[str, IRGlobal]
    code_object_version: int | None
    producer: str | None

    @property
    def version(self) -> int | None:
        """The code object version as people name it: 6 for a flag of 600; None without the flag."""
        return None if self.code_object_version is None else self.code_object_version // _VERSION_UNIT

    def strong_definitions(self) -> list[str]:
        """Return the names of the functions and globals that no other module may define too."""
        functions = [name for name, one in self.functions.items() if one.is_definition and one.linkage == "external"]
        return functions + [name for name, one in self.globals.items() if one.is_definition and one.linkage == "external"]


@dataclass(frozen=True, kw_only=True, slots=True)
class IRType:
    """One type.

    Parameters
    ----------
    spelling
        As LLVM spells it.
    bits
        Size of a value in bits, None if it has none or it is not known.
    align
        ABI alignment in bytes.
    function
        The spellings of the result and the parameters, and whether more may follow, for a function type.
    space
        The address space, for a pointer.
    """

    spelling: str
    bits: int | None = None
    align: int = 1
    function: tuple[str, tuple[str, ...], bool] | None = None
    space: int | None = None

    @property
    def size(self) -> int | None:
        """Bytes from one element of an array of this type to the next."""
        if self.bits is None:
            return None
        return _round_up(-(-self.bits // 8), self.align)


class DataLayout:
    """Build types and their sizes under one data layout string.

    Parameters
    ----------
    text
        The module's data layout, "" for none. Parts that are not understood are passed over.
    triple
        The module's target triple, which gives the layout where `text` is empty.
    """

    def __init__(self, text: str, triple: str) -> None:
        self._pointers: dict[int, tuple[int, int]] = {}
        self._aligns: dict[str, dict[int, int]] = {"i": {}, "f": {}, "v": {}, "a": {}}
        self._read(_DEFAULT_LAYOUT)
        if text:
            self._read(text)
        elif triple.startswith("amdgcn"):
            self._read(_AMDGPU_LAYOUT)

    def _read(self, text: str) -> None:
        for part in text.split("-"):
            if found := re.fullmatch(r"p[a-z]*([0-9]{0,8}):([0-9]{1,8}):([0-9]{1,8})(:[0-9:]*)?", part):
                self._pointers[int(found[1] or 0)] = (int(found[2]), max(1, int(found[3]) // 8))
            elif found := re.fullmatch(r"([ifva])([0-9]{0,8}):([0-9]{1,8})(:[0-9]*)?", part):
                self._aligns[found[1]][int(found[2] or 0)] = max(1, int(found[3]) // 8)

    def plain(self, name: str) -> IRType:
        """Make a type that its name says all of: `void`, `float`, `label`, `metadata`, …."""
        bits = _FLOATS.get(name)
        if bits is None:
            return IRType(spelling=name)
        return IRType(spelling=name, bits=bits, align=self._exact_align("f", bits))

    def integer(self, bits: int, letter: str = "i") -> IRType:
        """Make `i32`, or with `b` as the letter the byte type `b32`."""
        known = self._aligns["i"]
        wider = [width for width in known if width >= bits]
        return IRType(spelling=f"{letter}{bits}", bits=bits, align=known[min(wider) if wider else max(known)])

    def pointer(self, space: int) -> IRType:
        """Make a pointer; what it points to is of no interest, so typed pointers are the same."""
        bits, align = self._pointers.get(space, self._pointers[0])
        return IRType(spelling=f"ptr addrspace({space})" if space else "ptr", bits=bits, align=align, space=space)

    def array(self, count: int, element: IRType) -> IRType:
        """Make `[4 x i32]`."""
        bits = None if element.size is None else count * element.size * 8
        return _bounded(f"[{count} x {element.spelling}]", bits, element.align)

    def vector(self, count: int, element: IRType, *, scalable: bool = False) -> IRType:
        """Make `<4 x float>`, or `<vscale x 4 x float>`, which has no known size."""
        if scalable:
            return _bounded(f"<vscale x {count} x {element.spelling}>", None, 1)
        bits = None if element.bits is None else count * element.bits
        return _bounded(f"<{count} x {element.spelling}>", bits, 1 if bits is None else self._exact_align("v", bits))

    def structure(self, elements: Sequence[IRType], *, packed: bool, name: str | None = None) -> IRType:
        """Make `{ i32, float }`, `<{ i32, float }>`, or, with a name, `%struct.S`."""
        offset: int | None = 0
        align = self._aligns["a"].get(0, 1)
        if packed:
            align = 1
        for element in elements:
            size = element.size
            if offset is None or size is None:
                offset = None
                continue
            if not packed:
                offset = _round_up(offset, element.align)
                align = max(align, element.align)
            offset += size
        if name is not None:
            spelling = _struct_name(name)
        elif sum(len(element.spelling) for element in elements) > _MAX_SPELLING:
            spelling = "other"
        else:
            inner = ", ".join(element.spelling for element in elements)
            spelling = f"{{ {inner} }}" if inner else "{}"
            if packed:
                spelling = f"<{spelling}>"
        return _bounded(spelling, None if offset is None else _round_up(offset, align) * 8, align)

    def opaque(self, name: str) -> IRType:
        """Make a named structure without a body."""
        return _bounded(_struct_name(name), None, 1)

    def function(self, result: IRType, parameters: Sequence[IRType], *, var_args: bool) -> IRType:
        """Make a function type."""
        return IRType(spelling="other", function=(result.spelling, tuple(one.spelling for one in parameters), var_args))

    def target(self, name: str, types: Sequence[IRType], numbers: Sequence[int]) -> IRType:
        """Make a type of a back end, `target("amdgcn.named.barrier", 0)`."""
        if len(types) + len(numbers) > _MAX_SPELLING or sum(len(one.spelling) for one in types) > _MAX_SPELLING:
            return IRType(spelling="other")
        return _bounded("target(" + ", ".join([f'"{name}"', *(one.spelling for one in types), *map(str, numbers)]) + ")", None, 1)

    def _exact_align(self, letter: str, bits: int) -> int:
        align = self._aligns[letter].get(bits)
        if align is not None:
            return align
        size = -(-bits // 8)
        return 1 if size <= 1 else 1 << (size - 1).bit_length()


def _round_up(value: int, align: int) -> int:
    return -(-value // align) * align


def _bounded(spelling: str, bits: int | None, align: int) -> IRType:
    """Make a type of bounded cost: types nest, and both numbers and spellings grow with each level."""
    if len(spelling) > _MAX_SPELLING:
        spelling = "other"
    if bits is not None and bits > _MAX_BITS:
        bits = None
    if align > _MAX_BITS:
        align = 1
    return IRType(spelling=spelling, bits=bits, align=align)


def _struct_name(name: str) -> str:
    return f"%{name}" if _BARE_NAME.fullmatch(name) else f'%"{name}"'
