# SPDX-License-Identifier: Apache-2.0
"""One launcher with fixed argument types and constexpr values: the unit of compilation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..codec import PlainValue
from ..config.tables import CompileOptions
from ..dtypes import NOT_INDEXED
from .argument_grammar import format_argument
from .argument_types import ArgumentType, PointerType, StructType, TensorType

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

__all__ = ["AS_BYTES", "Specialization"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Specialization:
    """One launcher with fixed argument types and constexpr values.

    Parameters
    ----------
    name
        Unique in the module, also where file names ignore case; letters, digits, `_` and `-`, at most 80 characters.
    frontend
        The front end that compiles it.
    module, attribute
        Where the launcher, or the factory that returns it, is found.
    where
        The place of the declaration, for messages.
    params
        The arguments of the factory; None if the attribute is a launcher itself.
    element
        Which of the launchers that the factory returns; None if it returns one.
    returns
        The names of all of them, in order.
    inner
        By returned name, or the empty name where there is one: what the launcher inside of a Python function that stands for it is
        called there; with dots if it is again inside of a function.
    out
        The parameters that the launcher writes; None if that is not declared.
    constexpr
        The values of constexpr parameters.
    args
        The argument types by parameter name, as declared: parameters that their annotation fixes may be missing.
    targets
        The targets to compile for.
    options
        Compile options; `options.for_target(target)` gives those of one target.
    axes
        The axis values it is built for.
    """

    name: str
    frontend: str
    module: str
    attribute: str
    where: str
    params: tuple[tuple[str, PlainValue], ...] | None = None
    element: str | None = None
    returns: tuple[str, ...] = ()
    inner: tuple[tuple[str, str], ...] = ()
    out: tuple[str, ...] | None = None
    constexpr: tuple[tuple[str, PlainValue], ...] = ()
    args: tuple[tuple[str, ArgumentType], ...] = ()
    targets: tuple[str, ...] = ()
    options: CompileOptions = field(default_factory=CompileOptions)
    axes: tuple[tuple[str, str], ...] = ()

    @property
    def key(self) -> str:
        """The declaration's key, `module:attribute`."""
        return f"{self.module}:{self.attribute}"

    @property
    def title(self) -> str:
        """The launcher's name for messages."""
        return self.attribute if self.element is None else f"{self.attribute}.{self.element}"

    def place(self, target: str) -> str:
        """Return where a fault is that only this specialization has for a target."""
        name = "" if self.name == self.attribute else f" [{self.name}]"
        return f"{self.where}{name}, {target}"

    @property
    def without_elements(self) -> str:
        """What to do about arguments of which FlyDSL takes no single elements; empty if there are none."""
        named = self.arguments_of(NOT_INDEXED)
        return named and f"FlyDSL takes no single elements of {named}: if the kernel does, {AS_BYTES}"

    def arguments_of(self, dtypes: Collection[str]) -> str:
        """Name the tensors and pointers of some dtypes with their types, also those in structs, for messages."""
        return " and ".join(_named(self.args, dtypes))


AS_BYTES = 'declare it as "u8[…]" or "ptr<u8>" and pass its bytes'


def _named(arguments: Iterable[tuple[str, ArgumentType]], dtypes: Collection[str], prefix: str = "") -> Iterable[str]:
    for name, argument in arguments:
        if isinstance(argument, StructType):
            yield from _named(argument.fields, dtypes, f"{prefix}{name}.")
        elif isinstance(argument, TensorType | PointerType) and argument.dtype in dtypes:
            yield f"{prefix}{name} ({format_argument(argument)})"
