# SPDX-License-Identifier: Apache-2.0
"""Members of the source's enums: what a specialization was built for, and what of a call means it."""

from __future__ import annotations

from enum import Enum

from .annotations import Any, Callable, Self

__all__ = ["Enums", "Member", "same_kind", "spelled"]


class Enums:
    """The enums of a module: the manifest's descriptions, and the stub's classes, both by `module:class`."""

    def __init__(self) -> None:
        self.described: dict[str, dict[str, Any]] = {}
        self.classes: dict[str, type[Enum]] = {}
        self.references: set[str] = set()
        self._names: dict[str, dict[str, dict[str, Any]]] = {}

    def define(self, reference: str) -> Callable[[type[Enum]], type[Enum]]:
        """Return a decorator for the stub's class of an enum of the source."""

        def decorate(kind: type[Enum]) -> type[Enum]:
            self.classes[reference] = kind
            return kind

        return decorate

    def names(self, reference: str) -> dict[str, dict[str, Any]]:
        """Return the names in an enum, with what they stand for."""
        found = self._names.get(reference)
        if found is None:
            found = self._names[reference] = {entry["name"]: entry for entry in self.described[reference]["members"]}
        return found

    def is_flags(self, reference: str) -> bool:
        """Say whether members of an enum can be together."""
        return str(self.described[reference]["bases"][-1]).endswith("Flag")

    def member_or_object(self, pairs: dict[str, Any]) -> Any:
        """Return the member that an object of the manifest stands for, or the object itself."""
        for key in ("$enum", "$member"):
            if pairs.keys() == {key} and isinstance(pairs[key], str):
                reference, _, name = pairs[key].rpartition(".")
                self.references.add(reference)
                return Member(self, reference, name, is_exact=key == "$member")
        return pairs


class Member(str):
    """The name of a member that a specialization was built for.

    It is equal to the member in the source's class or the stub's, and, if it is not exact, to text for its name or value, and to the
    number that the member is.
    """

    __slots__ = ("_enums", "_known", "is_exact", "reference")

    _enums: Enums
    _known: Enum | None
    is_exact: bool
    reference: str

    def __new__(cls, enums: Enums, reference: str, name: str, *, is_exact: bool = False) -> Self:
        """Make the member; the description of its enum may come later."""
        made = super().__new__(cls, name)
        made._enums = enums
        made.reference = reference
        made._known = None
        made.is_exact = is_exact
        return made

    @property
    def class_name(self) -> str:
        """The name of the class, without those of classes around it."""
        return self.reference.rpartition(":")[2].rpartition(".")[2]

    @property
    def plain(self) -> str:
        """The name as text that is nothing else."""
        return str.__str__(self)

    @property
    def member(self) -> Any:
        """The member in the stub's class; without one, this object."""
        kind = self._enums.classes.get(self.reference)
        if kind is None:
            return self
        return kind[self.plain] if self.plain in self._enums.names(self.reference) else kind(self._number(self.plain))

    def _number(self, text: str) -> int | None:
        """Return the value of flags together, given as in `READ|WRITE`; None if a name is none of them."""
        names, number = self._enums.names(self.reference), 0
        for part in text.split("|"):
            name = part.strip()
            value = int(name) if name.isdecimal() else names.get(name, {}).get("value")
            if type(value) is not int:
                return None
            number |= value
        return number

    def _is_class(self, kind: type) -> bool:
        """Say whether a class is the source's, by its name, or the stub's; another module may have one of the same name."""
        if kind is self._enums.classes.get(self.reference):
            return True
        module, _, name = self.reference.rpartition(":")
        return kind.__qualname__ == name and kind.__module__ == module

    def _is_meant_by(self, given: object) -> bool:
        names, name = self._enums.names(self.reference), self.plain
        value = names.get(name, {}).get("value")
        if isinstance(given, Enum):
            alike = (given.name or str(given.value)) == name and self._is_class(type(given))
            # JSON has a tuple as a list, and of some values nothing.
            return alike and (value is None or isinstance(value, list) or bool(given.value == value))
        if self.is_exact:
            return False
        if isinstance(given, str):
            if given in names:
                return bool(names[given].get("alias", given) == name)
            return self._number(given) == self._number(name) if self._enums.is_flags(self.reference) else bool(value == given)
        # A number is a member of an enum of numbers only, as in Python.
        is_number = self._enums.described[self.reference]["bases"][0] in {"int", "float", "IntEnum", "IntFlag"}
        return is_number and type(given) in {int, float} and given == (self._number(name) if value is None else value)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Member):
            return str.__eq__(self, other) is True and self.reference == other.reference
        if other is self._known:
            return True
        if not self._is_meant_by(other):
            return False
        if isinstance(other, Enum):
            self._known = other
        return True

    def __ne__(self, other: object) -> bool:
        return not self == other

    # Enums have the hashes of their names.
    __hash__ = str.__hash__

    def __repr__(self) -> str:
        return " | ".join(f"{self.class_name}.{part}" for part in self.plain.split("|"))

    def __reduce__(self) -> Any:
        return str, (self.plain,)

    def unknown(self, given: object) -> str:
        """Say that a value of a call is no member at all; empty if it is one, or need not be."""
        if self.is_exact:
            return ""
        names = self._enums.names(self.reference)
        is_flags = self._enums.is_flags(self.reference)
        if any(Member(self._enums, self.reference, name) == given for name, entry in names.items() if "alias" not in entry):
            return ""
        if is_flags and (type(given).__name__ == self.class_name or (isinstance(given, str) and self._number(given) is not None)):
            return ""
        return f"{spelled(given)} is no member of {self.class_name}, which has {', '.join(names)}"


def same_kind(built: object, given: object) -> bool:
    """Say whether a value that was built and an equal one are both members of enums, or both none."""
    return isinstance(built, Member) == isinstance(given, Enum | Member)


def spelled(value: object) -> str:
    """Spell a value as a program has it: members of enums with their class."""
    if not isinstance(value, Enum):
        return repr(value)
    name = value.name or str(value.value)
    return " | ".join(f"{type(value).__name__}.{part}" for part in name.split("|"))
