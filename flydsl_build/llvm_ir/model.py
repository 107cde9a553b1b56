# SPDX-License-Identifier: Apache-2.0
"""What the readers of LLVM IR say of a module: its functions, its globals, and what it was compiled for.

The bitcode reader and the text reader give equal values for one module in both forms. Types are their spellings, which is all
that a signature is compared and shown by.

Source: the LLVM language reference (https://llvm.org/docs/LangRef.html: type system, linkage types).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CODE_OBJECT_VERSION_FLAGS", "IRError", "IRFunction", "IRGlobal", "IRModule", "pointer", "spelled", "structure_name"]

# The flag had the second name up to LLVM 17 and ROCm 6.0; newer LLVM renames it when it reads.
CODE_OBJECT_VERSION_FLAGS: Final = ("amdhsa_code_object_version", "amdgpu_code_object_version")

_VERSION_UNIT: Final = 100
# Types in one table share parts, so a few hundred bytes can spell gigabytes. No signature that an extern can have comes near this.
_MAX_SPELLING: Final = 512
_BARE_NAME: Final = re.compile(r"[-a-zA-Z$._][-a-zA-Z$._0-9]*")


class IRError(ValueError):
    """Bytes that are not an LLVM IR module that can be read; the message says what is wrong, without the file's name."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IRGlobal:
    """One named global variable of a module, or an alias of a variable.

    Parameters
    ----------
    is_definition
        Whether the module has its value or body; an alias is a definition.
    linkage
        `external`, `internal`, `private`, `weak`, `weak_odr`, `linkonce`, `linkonce_odr`, `extern_weak`, `available_externally`, …
    """

    is_definition: bool
    linkage: str

    @property
    def is_strong(self) -> bool:
        """Whether no other module may define it too."""
        return self.is_definition and self.linkage == "external"


@dataclass(frozen=True, kw_only=True, slots=True)
class IRFunction(IRGlobal):
    """One named function of a module, or an alias or ifunc of function type.

    Parameters
    ----------
    result, parameters
        Types as LLVM spells them: `void`, `i32`, `float`, `ptr`, `ptr addrspace(1)`, `<4 x float>`, `{ i32, float }`, `%struct.S`.
        The typed pointers of LLVM 14 and before are spelled `ptr` too. `other` is a type too long to spell.
    var_args
        Whether the parameters end in `...`.
    """

    result: str
    parameters: tuple[str, ...]
    var_args: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class IRModule:
    """One LLVM IR module.

    Parameters
    ----------
    triple
        Its target triple, "" for none.
    target_cpus
        The processors that functions with a body were compiled for: the values of their `target-cpu` attributes.
    functions, globals
        By name. Unnamed ones cannot be linked to and are left out; intrinsics (`llvm.…`) are in.
    code_object_version
        The value of the module flag `amdhsa_code_object_version` (600 for version 6), None without the flag.
    """

    triple: str
    target_cpus: frozenset[str]
    functions: Mapping[str, IRFunction]
    globals: Mapping[str, IRGlobal]
    code_object_version: int | None

    @property
    def version(self) -> int | None:
        """The code object version as people name it: 6 for a flag of 600; None without the flag."""
        return None if self.code_object_version is None else self.code_object_version // _VERSION_UNIT

    def strong_definitions(self) -> list[str]:
        """Return the names of the functions and globals that no other module may define too."""
        return [name for table in (self.functions, self.globals) for name, one in table.items() if one.is_strong]


def spelled(*parts: str, between: str = "") -> str:
    """Join the parts of a type's spelling, or return `other` for one that is too long: types nest, and each level adds to it."""
    return "other" if sum(map(len, parts)) > _MAX_SPELLING else between.join(parts)


def pointer(space: int) -> str:
    """Spell a pointer; what it points to is of no interest, so typed pointers are the same."""
    return f"ptr addrspace({space})" if space else "ptr"


def structure_name(name: str) -> str:
    """Spell the name of a structure."""
    return spelled("%", name) if _BARE_NAME.fullmatch(name) else spelled('%"', name, '"')
