# SPDX-License-Identifier: Apache-2.0
"""The kinds of values that settings have: how each is documented, read from TOML, and read from the text of a config setting or variable.

A field of `tables` names its kind; reading, schema and documentation follow from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, get_args

from ..errors import ConfigError
from ..targets.processors import parse_target
from .keys import TomlType
from .names import is_dotted_name, is_name
from .table_reader import TableReader, describe

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..errors import FaultCollector

__all__ = [
    "ARCHS",
    "ARGUMENTS",
    "BASE",
    "BOOLEAN",
    "CHOICES",
    "COMPATIBLE",
    "LAUNCHER",
    "LICENSE_FILES",
    "LLVM_OPTIONS",
    "OUT",
    "PATH",
    "REFERENCE",
    "RETURNS",
    "SECONDS",
    "SETUPTOOLS",
    "SIZE",
    "SIZE_WORDS",
    "STRING",
    "STRINGS",
    "STRING_OR_STRINGS",
    "STRING_TABLE",
    "URL",
    "WAVES",
    "choice",
    "integer",
    "size_of",
]

# Plain values


def _plain(text: str, schema: dict[str, Any], accept: Callable[[Any], Any], words: str, *, parse: Callable[[str], Any] = str) -> TomlType:
    """Return the type of a value for which one rule holds, whether TOML or text gives it.

    Parameters
    ----------
    text, schema, words
        As in `TomlType`.
    accept
        Gives the value for what TOML has, None if it is another.
    parse
        Gives what TOML would have for a text, or None.
    """

    def read(reader: TableReader, key: str) -> Any:
        if key not in reader.table:
            return None
        found = accept(reader.table[key])
        if found is None:
            reader.reject(key, f"found {describe(reader.table[key])}", f"write {words}")
        return found

    return TomlType(text=text, schema=schema, read=read, parse=lambda given: accept(parse(given)), words=words)


_WORDS: Final = dict.fromkeys(("", "1", "on", "true", "yes"), True) | dict.fromkeys(("0", "false", "no", "off"), False)
"""What booleans are in text; `-C verbose` reaches the back end as an empty string."""

BOOLEAN: Final = _plain(
    "boolean",
    {"type": "boolean"},
    lambda value: value if isinstance(value, bool) else None,
    "true or false",
    parse=lambda text: _WORDS.get(text.lower()),
)


def integer(low: int, high: int | None = None) -> TomlType:
    """Return the type of an integer in a range; both ends are in it."""

    def accept(value: object) -> int | None:
        # A boolean is an int to Python, but not to the author.
        if not isinstance(value, int) or isinstance(value, bool) or value < low or (high is not None and value > high):
            return None
        return value

    return _plain(
        "integer" if high is None else f"integer {low} to {high}",
        {"type": "integer", "minimum": low, **({} if high is None else {"maximum": high})},
        accept,
        f"an integer of at least {low}" if high is None else f"an integer from {low} to {high}",
        parse=lambda text: int(text) if re.fullmatch(r"[0-9]{1,9}", text) else None,
    )


def choice(literal: Any) -> TomlType:
    """Return the type of one of the words of a `Literal`."""
    words = get_args(literal)
    quoted = [f'"{word}"' for word in words]
    return _plain(
        f"{', '.join(quoted[:-1])} or {quoted[-1]}",
        {"enum": list(words)},
        lambda value: value if isinstance(value, str) and value in words else None,
        " or ".join(quoted),
    )


# A year. The waits of the operating system end somewhere above that, and none of them says so.
_LONGEST = 366 * 24 * 3600


def _seconds(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= _LONGEST else None


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


SECONDS: Final = _plain(
    "number",
    {"type": "number", "exclusiveMinimum": 0, "maximum": _LONGEST},
    _seconds,
    f"a number of seconds above 0 and at most {_LONGEST}",
    parse=_float,
)
STRING: Final = TomlType(text="string", schema={"type": "string"}, read=TableReader.string, parse=lambda text: text or None, words="a text")
PATH: Final = replace(STRING, words="a path", is_path=True)
"""A file or folder: from the project's folder, or from a home folder if it begins with `~`."""
REFERENCE: Final = TomlType(text="string", schema={"type": "string"}, read=TableReader.reference)
"""A `module:attribute`."""

# Sizes

_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*(?:([kmgt])(i?))?b?", re.IGNORECASE | re.ASCII)
SIZE_WORDS = 'a number of bytes above 0, or text such as "500 MB" or "5 GB"'


def size_of(text: str) -> int | None:
    """Return the bytes that a text such as "5 GB", "512 MiB" or "1000000" means, or None."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    number, prefix, binary = match.groups()
    unit = (1024 if binary else 1000) ** ("kmgt".index(prefix.lower()) + 1) if prefix else 1
    return int(float(number) * unit) or None


def _accept_size(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    return size_of(value) if isinstance(value, str) else None


SIZE: Final = _plain(
    'bytes, or text such as "5 GB"',
    {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": r"^[0-9]{1,15}(\.[0-9]{1,9})? *([KMGTkmgt]i?)?[Bb]?$"}]},
    _accept_size,
    SIZE_WORDS,
)

# URLs

# A query would stand behind the names of files, and what looks like a glob is one to fsspec.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(::[A-Za-z][A-Za-z0-9+.-]*)*://[^\s?#*\[\]]*")
_NO_URL = "found no URL that names can be added to"
_URL_WORDS = 'one without ?, # and globs, such as "s3://bucket/prefix"'


def _read_url(reader: TableReader, key: str) -> str | None:
    text = reader.string(key)
    if text is not None and _URL.fullmatch(text) is None:
        reader.reject(key, _NO_URL, f"write {_URL_WORDS}")
        return None
    return text


URL: Final = TomlType(
    text="string",
    schema={"type": "string"},
    read=_read_url,
    parse=lambda text: text if _URL.fullmatch(text) else None,
    words=_URL_WORDS,
    # What was found may have a password in it.
    secret=_NO_URL,
)
"""A URL that can be the beginning of others."""

# The base back end

SETUPTOOLS = "setuptools.build_meta"
"""The base that a project has which names none."""


def _read_base(reader: TableReader, key: str) -> str | None:
    name = reader.string(key)
    if name is not None and name.startswith("flydsl_build"):
        reader.reject(key, f'"{name}" is this back end itself', "name another, or leave the key out for setuptools")
        return None
    if name is not None and name.startswith(f"{SETUPTOOLS}:"):
        reader.reject(key, f'"{name}" is setuptools in another form', f'write "{SETUPTOOLS}", or leave the key out')
        return None
    if name is None or re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*(:[^\W\d]\w*(\.[^\W\d]\w*)*)?", name):
        return name
    reader.reject(key, f'"{name}" is not the name of a module', 'write it as build-backend is written, such as "hatchling.build"')
    return None


BASE: Final = TomlType(text="string", schema={"type": "string"}, read=_read_base)

# Lists

STRINGS: Final = TomlType(text="list of strings", schema={"type": "array", "items": {"type": "string"}}, read=TableReader.strings)
STRING_OR_STRINGS: Final = TomlType(
    text="string or list of strings",
    schema={"anyOf": [STRING.schema, STRINGS.schema]},
    read=lambda reader, key: reader.strings(key, or_one=True),
)


def _targets_of(names: Iterable[str], where: str, faults: FaultCollector) -> tuple[str, ...]:
    """Return the names that are targets, each once, and record a fault for each other one."""
    found: list[str] = []
    for name in names:
        try:
            found.append(parse_target(name, where).name)
        except ConfigError as error:
            faults.extend(error.faults)
    return tuple(dict.fromkeys(found))


def _read_targets(reader: TableReader, key: str) -> tuple[str, ...] | None:
    names = reader.strings(key)
    return None if names is None else _targets_of(names, reader.place(key), reader.faults)


def _read_archs(reader: TableReader, key: str) -> tuple[str, ...] | None:
    if reader.table.get(key) in ([], ()):
        reader.reject(key, "the list of architectures is empty", 'write at least one, such as ["gfx942"]')
        return None
    return _read_targets(reader, key)


# Names of products have blanks; blanks around gfx942 and the like separate.
_NAMES = re.compile(r"\bgfx\d[^\s,;]*|(?:(?!\bgfx\d)[^,;])+", re.IGNORECASE)


def _parse_archs(texts: list[str], where: str, faults: FaultCollector) -> tuple[str, ...]:
    """Read lists written with commas, semicolons or blanks; several are one."""
    names = [item.strip() for item in _NAMES.findall(",".join(texts)) if item.strip()]
    if not names:
        faults.add(where, "the list of architectures is empty", f"write {where}=gfx942,gfx1100")
    # Although some are wrong, the author did override the table: the rest of the checks go by this list.
    return _targets_of(dict.fromkeys(names), where, faults)


ARCHS: Final = replace(STRINGS, read=_read_archs, parse_list=_parse_archs)
COMPATIBLE: Final = replace(STRINGS, read=_read_targets)


def _read_license_files(reader: TableReader, key: str) -> tuple[str, ...] | None:
    """Return globs of licence files, as PEP 639 has them: relative to the project, and not out of it."""
    globs = reader.strings(key)
    for index, text in enumerate(globs or ()):
        if text.startswith("/") or "\\" in text or "\0" in text or ".." in text.split("/"):
            reader.faults.add(
                f"{reader.place(key)}[{index}]",
                f'"{text}" is not a path inside the project',
                "write a glob relative to the project, with forward slashes; a licence from elsewhere has to be copied into the project",
            )
    return globs


LICENSE_FILES: Final = replace(STRINGS, read=_read_license_files)

# Compile options


_WAVES: Final = integer(0, 20)


def _read_waves(reader: TableReader, key: str) -> Any:
    value = reader.table.get(key)
    if not isinstance(value, list | tuple):
        return _WAVES.read(reader, key)
    fix = "write an integer, or [low, high] with 1 <= low <= high <= 20"
    if len(value) != 2 or not all(isinstance(item, int) and not isinstance(item, bool) for item in value):
        reader.reject(key, "found a list that is not two integers", fix)
        return None
    low, high = value
    if not 1 <= low <= high <= 20:
        reader.reject(key, f"found [{low}, {high}]", fix)
        return None
    return low, high


WAVES: Final = TomlType(
    text="integer or [low, high]",
    schema={"anyOf": [_WAVES.schema, {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}]},
    read=_read_waves,
)


def _read_llvm_options(reader: TableReader, key: str) -> tuple[tuple[str, bool | int | str], ...]:
    found: list[tuple[str, bool | int | str]] = []
    table = reader.table_at(key)
    for name, value in table.table.items() if table else ():
        assert table is not None
        if name.startswith("-"):
            table.reject(name, "the name has its dashes", f'write "{name.lstrip("-")}"')
        elif not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
            table.reject(name, "not the name of an LLVM option")
        elif re.match(r"help|version$|print-(all-)?options$", name):
            table.reject(name, "LLVM prints something for this option and ends the process", "remove it")
        elif not isinstance(value, bool | int | str):
            table.reject(name, f"found {describe(value)}", "write a boolean, an integer or a string")
        else:
            found.append((name, value))
    return tuple(found)


LLVM_OPTIONS: Final = TomlType(text="table", schema={"type": "object"}, read=_read_llvm_options)

# What kernels are built with

_TABLE_OR_TABLES = TomlType(
    text="table or list of tables",
    schema={"anyOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}}]},
)


def _read_choices(reader: TableReader, key: str) -> tuple[Any, ...] | None:
    tables = reader.tables_at(key)
    return None if tables is None else tuple(each.choices() for each in tables)


def _read_arguments(reader: TableReader, key: str) -> tuple[Any, ...] | None:
    tables = reader.tables_at(key)
    return None if tables is None else tuple(each.argument_texts() for each in tables)


def _read_returns(reader: TableReader, key: str) -> tuple[str, ...] | None:
    names = reader.strings(key)
    if names is None:
        return None
    written = reader.table[key]
    if not names and not written:
        reader.reject(key, "the list is empty", 'name what the factory returns, such as ["fwd", "bwd"], or remove it')
    elif len(names) < len(written) and all(isinstance(name, str) and name.strip() for name in written):
        reader.reject(key, "a name stands in the list twice", "name each launcher once")
    for name in names:
        # They become attributes of the stub's objects and parts of names.
        if not is_name(name) or name.startswith("__"):
            reader.reject(key, f'"{name}" is not a Python name', "write names such as fwd")
    return names


def _read_launcher(reader: TableReader, key: str) -> str | Mapping[str, str] | None:
    if not isinstance(reader.table.get(key), Mapping):
        found = reader.string(key)
        named = {} if found is None else {key: (found, reader)}
    else:
        inner = reader.table_at(key)
        assert inner is not None
        named = {name: (text, inner) for name in inner.table if (text := inner.string(name)) is not None}
        found = None
    for name, (text, place) in named.items():
        if not is_dotted_name(text):
            place.reject(name, f'"{text}" is not a name', 'write the name that the launcher has in the function, such as "launch_gemm"')
    return found if found is not None or not named else {name: text for name, (text, _) in named.items()}


def _read_out(reader: TableReader, key: str) -> tuple[str, ...] | Mapping[str, tuple[str, ...]] | None:
    if not isinstance(reader.table.get(key), Mapping):
        return reader.strings(key)
    tables = reader.table_at(key)
    assert tables is not None
    return {name: tables.strings(name) or () for name in tables.table}


CHOICES: Final = replace(_TABLE_OR_TABLES, read=_read_choices)
ARGUMENTS: Final = replace(_TABLE_OR_TABLES, read=_read_arguments)
RETURNS: Final = replace(STRINGS, read=_read_returns)
LAUNCHER: Final = TomlType(
    text="string or table of strings",
    schema={"anyOf": [{"type": "string"}, {"type": "object", "additionalProperties": {"type": "string"}}]},
    read=_read_launcher,
)
OUT: Final = TomlType(
    text="list of strings, or table of such lists",
    schema={"anyOf": [STRINGS.schema, {"type": "object", "additionalProperties": STRINGS.schema}]},
    read=_read_out,
)
STRING_TABLE: Final = TomlType(text="table of strings", schema={"type": "object", "additionalProperties": {"type": "string"}})
