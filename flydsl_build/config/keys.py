# SPDX-License-Identifier: Apache-2.0
"""How a dataclass field stands for a TOML key.

Each field of the tables in `tables` that an author can write carries a `Key` in its metadata. The readers of TOML, config settings and
variables go by it, and the documentation and the JSON schema are made from it, so that they cannot differ.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..errors import FaultCollector

__all__ = ["Key", "TomlType", "keys_of", "nested", "quote_key", "toml_key"]


@dataclass(frozen=True, kw_only=True, slots=True)
class TomlType:
    """The type of a setting: in words, as a JSON schema, and how it is read.

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
    read
        Reads the value of a key with a `TableReader`: the value, or None if there is none or it is a fault. Tables that can only be read
        together with others are left alone.
    parse
        Reads the text of a config setting or variable; None if it cannot be read.
    words
        What the text has to be, for messages.
    parse_list
        Instead of `parse`, for what may be given several times: reads all texts, and records faults at a place.
    secret
        What to say of a text that cannot be read, where the text must not be shown.
    is_path
        Whether the value is a path, which starts at the project's folder.
    """

    text: str
    schema: dict[str, Any]
    table: type | None = None
    named: str = ""
    read: Callable[[Any, str], Any] = lambda _reader, _key: None
    parse: Callable[[str], Any] | None = None
    words: str = ""
    parse_list: Callable[[list[str], str, FaultCollector], Any] | None = None
    secret: str = ""
    is_path: bool = False


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


def toml_key(name: str, toml_type: TomlType, *, default: str = "", config: bool = False, env: bool = False) -> dict[str, Key]:
    """Return the metadata of a dataclass field that stands for the TOML key `name`.

    Parameters
    ----------
    name, toml_type, default
        As in `Key`.
    config, env
        Whether a config setting of the same name, and a variable `FLYDSL_BUILD_<NAME>`, override the key.
    """
    if (config or env) and toml_type.parse is None and toml_type.parse_list is None:
        msg = f"{name}: a {toml_type.text} cannot be given as text"
        raise TypeError(msg)
    variable = "FLYDSL_BUILD_" + name.upper().replace("-", "_")
    return {"toml": Key(name=name, type=toml_type, default=default, config=name if config else "", env=variable if env else "")}


def keys_of(table: type) -> dict[str, Key]:
    """Return the TOML keys of a table's dataclass, by field name, in order."""
    return {item.name: item.metadata["toml"] for item in fields(table) if "toml" in item.metadata}


_BARE = re.compile(r"[A-Za-z0-9_-]+")


@lru_cache(maxsize=1024)
def quote_key(name: str) -> str:
    """Return a key as one writes it in TOML: bare if it can be, in quotes otherwise."""
    return name if _BARE.fullmatch(name) else json.dumps(name, ensure_ascii=False)
