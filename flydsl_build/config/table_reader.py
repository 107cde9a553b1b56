# SPDX-License-Identifier: Apache-2.0
"""Reads one TOML table key by key: checks types, knows the place of each value, and finds unknown keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..codec import EnumMember, PlainValue
from ..errors import FaultCollector, did_you_mean
from .keys import keys_of, quote_key
from .names import is_name, reference_fault

__all__ = ["ArgumentText", "TableReader", "describe"]

ArgumentText = str | Mapping[str, "ArgumentText"]
"""What an author writes for one argument: the type, or a nested table for a struct."""

_DEEPEST = 16
"""How deep lists and tables of values and argument types may be nested."""

_TOO_DEEP = (f"lists and tables are nested more than {_DEEPEST} deep", "write a flatter value")
_NAME = "write the name that stands in the source, a Python name such as N"


def describe(value: object) -> str:  # noqa: PLR0911 - one line a type
    """Return what a TOML value is, for "found …" in a message."""
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, int):
        return f"the integer {value}"
    if isinstance(value, float):
        return f"the number {value}"
    if isinstance(value, str):
        return f'the string "{value}"'
    if isinstance(value, Mapping):
        return "a table"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    if value is None or isinstance(value, EnumMember):
        return str(value)
    return f"a {type(value).__name__}"


class TableReader:
    """One table of the configuration.

    Parameters
    ----------
    table
        The values, as TOML or Python gave them.
    where
        The place of the table; keys are appended to it.
    faults
        Collects everything that is wrong.
    """

    def __init__(self, table: Mapping[str, Any], where: str, faults: FaultCollector) -> None:
        self.table = table
        self.where = where
        self.faults = faults

    def place(self, key: str) -> str:
        """Return the place of a key of this table."""
        return f"{self.where}.{quote_key(key)}"

    def reject(self, key: str, what: str, fix: str = "") -> None:
        """Record a fault at a key of this table."""
        self.faults.add(self.place(key), what, fix)

    def check_keys(self, dataclass_of_table: type, also: tuple[str, ...] = ()) -> None:
        """Record a fault for each key that the table's dataclass does not have."""
        allowed = [key.name for key in keys_of(dataclass_of_table).values()]
        for key in self.table:
            if key not in allowed and key not in also:
                self.reject(key, "unknown key", did_you_mean(key, allowed))

    def read(self, dataclass_of_table: type, also: tuple[str, ...] = ()) -> dict[str, Any]:
        """Return what the table says, by field of its dataclass, after a look for unknown keys.

        What is not there or is a fault is left out, and so are tables inside that can only be read together with others.
        """
        self.check_keys(dataclass_of_table, also)
        values = {name: key.type.read(self, key.name) for name, key in keys_of(dataclass_of_table).items()}
        return {name: value for name, value in values.items() if value is not None}

    def _typed(self, key: str, kind: type, words: str) -> Any:
        value = self.table.get(key)
        if key in self.table and not isinstance(value, kind):
            self.reject(key, f"found {describe(value)}", f"write {words}")
            return None
        return value

    def string(self, key: str) -> str | None:
        """Return a non-empty string, or None."""
        value = self._typed(key, str, "a string")
        if value is not None and not value.strip():
            self.reject(key, "the string is empty", "write a value, or leave the key out")
            return None
        if value is not None and "\0" in value:
            self.reject(key, "the string has a NUL character", "remove it")
            return None
        return value if value is None else str(value)

    def strings(self, key: str, *, or_one: bool = False) -> tuple[str, ...] | None:
        """Return a list of non-empty strings without repetition (with `or_one`, a single one too), or None."""
        words = "a string or a list of strings" if or_one else "a list of strings"
        value = self.table.get(key)
        if key not in self.table:
            return None
        if or_one and isinstance(value, str):
            value = [value]
        if not isinstance(value, list | tuple):
            self.reject(key, f"found {describe(value)}", f"write {words}")
            return None
        found: list[str] = []
        for index, item in enumerate(value):
            if not isinstance(item, str):
                self.faults.add(f"{self.place(key)}[{index}]", f"found {describe(item)}", "write a string")
            elif not item.strip():
                self.faults.add(f"{self.place(key)}[{index}]", "the string is empty", "remove it")
            elif "\0" in item:
                self.faults.add(f"{self.place(key)}[{index}]", "the string has a NUL character", "remove it")
            else:
                found.append(item)
        return tuple(dict.fromkeys(found))

    def reference(self, key: str) -> str | None:
        """Return a `module:attribute`, or None."""
        value = self.string(key)
        if value is None:
            return None
        fault = reference_fault(value)
        if fault is not None:
            self.faults.add(self.place(key), *fault)
            return None
        return value

    def table_at(self, key: str) -> TableReader | None:
        """Return a reader for a nested table, or None."""
        value = self._typed(key, Mapping, "a table")
        return None if value is None else TableReader(value, self.place(key), self.faults)

    def tables_at(self, key: str) -> list[TableReader] | None:
        """Return readers for a nested table or a list of such tables, or None."""
        value = self.table.get(key)
        if key not in self.table:
            return None
        if isinstance(value, Mapping):
            return [TableReader(value, self.place(key), self.faults)]
        if not isinstance(value, list | tuple) or not value:
            self.reject(key, f"found {describe(value)}", "write a table or a list of tables")
            return None
        readers = []
        for index, item in enumerate(value):
            where = f"{self.place(key)}[{index}]"
            if isinstance(item, Mapping):
                readers.append(TableReader(item, where, self.faults))
            else:
                self.faults.add(where, f"found {describe(item)}", "write a table")
        return readers

    def choices(self) -> dict[str, tuple[PlainValue, ...]]:
        """Return this table as names with the values that each takes: one, or those of a list."""
        found: dict[str, tuple[PlainValue, ...]] = {}
        for name, value in self.table.items():
            if not is_name(name):
                self.reject(name, "not the name of a parameter", _NAME)
                continue
            if isinstance(value, list | tuple) and not value:
                self.reject(name, "the list is empty", "write at least one value")
                continue
            several = isinstance(value, list | tuple)
            # 1, 1.0 and true are equal to Python, but make different kernels.
            values: dict[tuple[type, str], PlainValue] = {}
            for index, item in enumerate(value if several else [value]):
                where = f"{self.place(name)}[{index}]" if several else self.place(name)
                plain = self._plain(item, where)
                if plain is None:
                    continue
                if (type(plain), repr(plain)) in values:
                    self.faults.add(
                        where,
                        f"{describe(item)} stands in the list twice" if not isinstance(item, list) else "a value stands in the list twice",
                    )
                else:
                    values[type(plain), repr(plain)] = plain
            found[name] = tuple(values.values())
        return found

    def _plain(self, value: object, where: str, depth: int = 0) -> PlainValue | None:
        """Return a plain value, lists inside as tuples and the keys of tables sorted, or None with a fault."""
        if isinstance(value, Mapping | list | tuple) and depth == _DEEPEST:
            self.faults.add(where, *_TOO_DEEP)
            return None
        if isinstance(value, EnumMember):
            return dict(value.to_json())
        if isinstance(value, Mapping):
            return self._fields(value, where, depth + 1)
        if isinstance(value, list | tuple):
            items = [self._plain(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(value)]
            return tuple(item for item in items if item is not None)
        if isinstance(value, bool | int | float | str):
            return value
        self.faults.add(where, f"found {describe(value)}", "write a string, number, boolean, or a list of these, or a table for a struct")
        return None

    def _fields(self, table: Mapping[str, Any], where: str, depth: int) -> PlainValue | None:
        found: dict[str, PlainValue] = {}
        for name in sorted(table):
            place = f"{where}.{quote_key(name)}"
            if not is_name(name):
                fix = "give a member of an enum by its name alone, as text" if name.startswith("$") else _NAME
                self.faults.add(place, "not the name of a field", fix)
                continue
            plain = self._plain(table[name], place, depth)
            if plain is not None:
                found[name] = plain
        if not table:
            self.faults.add(where, "the table is empty", "write the fields of the struct")
        return found

    def argument_texts(self, depth: int = 0) -> dict[str, ArgumentText]:
        """Return this table as argument types by parameter name, nested for structs."""
        found: dict[str, ArgumentText] = {}
        for name, value in self.table.items():
            if not is_name(name):
                self.reject(name, "not the name of a parameter", _NAME)
            elif isinstance(value, str):
                found[name] = value
            elif isinstance(value, Mapping) and depth == _DEEPEST:
                self.reject(name, *_TOO_DEEP)
            elif isinstance(value, Mapping):
                found[name] = TableReader(value, self.place(name), self.faults).argument_texts(depth + 1)
            else:
                self.reject(name, f"found {describe(value)}", 'write an argument type such as "f32[M, N]", or a table for a struct')
        return found
