# SPDX-License-Identifier: Apache-2.0
"""How a dataclass field stands for a TOML key.

Each field of the tables in `tables` that an author can write carries a `Key` in its metadata. The reader takes the
allowed keys from it, and the documentation and the JSON schema are made from it, so that they cannot differ.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any

__all__ = [
    "BOOLEAN",
    "INTEGER",
    "NUMBER",
    "PLAIN",
    "STRING",
    "STRINGS",
    "STRING_OR_STRINGS",
    "Key",
    "TomlType",
    "keys_of",
    "nested",
    "quote_key",
    "toml_key",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class TomlType:
    """The type of a TOML value: in words, and as a JSON schema.

    Parameters
    ----------
    text
        The type in words.
    schema
        JSON schema of the value.
    table
        The dataclass of a nested table.
    named
        Whether the nested tables stand under names that the author chooses.
    """

    text: str
    schema: dict[str, Any]
    table: type | None = None
    named: str = ""


STRING = TomlType(text="string", schema={"type": "string"})
STRINGS = TomlType(text="list of strings", schema={"type": "array", "items": {"type": "string"}})
STRING_OR_STRINGS = TomlType(text="string or list of strings", schema={"anyOf": [STRING.schema, STRINGS.schema]})
INTEGER = TomlType(text="integer", schema={"type": "integer"})
NUMBER = TomlType(text="number", schema={"type": "number"})
BOOLEAN = TomlType(text="boolean", schema={"type": "boolean"})
PLAIN = TomlType(text="table", schema={"type": "object"})


def nested(table: type, *, text: str = "table", named: str = "") -> TomlType:
    """Return the type of a nested table, or (with `named`) of a table of such tables whose names the author chooses."""
    return TomlType(text=text, schema={"type": "object"}, table=table, named=named)


@dataclass(frozen=True, kw_only=True, slots=True)
class Key:
    """One TOML key.

    Parameters
    ----------
    name
        The key in its table.
    type
        What the value is.
    default
        The default in words or TOML; empty for a required key or one without a default.
    config
        Name of the `-C` config setting that overrides the key, if any.
    env
        Name of the environment variable that overrides the key, if any.
    """

    name: str
    type: TomlType
    default: str = ""
    config: str = ""
    env: str = ""


def toml_key(name: str, toml_type: TomlType, *, default: str = "", config: str = "", env: str = "") -> dict[str, Key]:
    """Return the metadata of a dataclass field that stands for the TOML key `name`."""
    return {"toml": Key(name=name, type=toml_type, default=default, config=config, env=env)}


def keys_of(table: type) -> dict[str, Key]:
    """Return the TOML keys of a table's dataclass, by field name, in order."""
    return {item.name: item.metadata["toml"] for item in fields(table) if "toml" in item.metadata}


_BARE = re.compile(r"[A-Za-z0-9_-]+")


@lru_cache(maxsize=1024)
def quote_key(name: str) -> str:
    """Return a key as one writes it in TOML: bare if it can be, in quotes otherwise."""
    return name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)
