# SPDX-License-Identifier: Apache-2.0
"""Write dataclasses as JSON values and read them back; the annotations of their fields say how.

| annotation | JSON |
| --- | --- |
| `str`, `bool`, `None` | the same |
| `int` | a count: 0 or above |
| `float` | a number |
| `Literal["a", "b"]` | one of these strings |
| `tuple[T, ...]`, `tuple[T, T, T]` | an array |
| `tuple[tuple[str, T], ...]` | an object whose order counts |
| `dict[str, T]`, `Mapping[str, T]` | an object |
| `T | None` | null, or as `T` |
| a dataclass | an object; a field that is its default is left out |
| a union of dataclasses | likewise, with the class's constant `kind` before the fields |
| a class with `to_json` and `from_json` | what these say; `from_json` raises ValueError with what is wanted |
| `PlainValue` | as in Python; see `EnumMember.to_json`, and a float that is not finite is `{"$float": "inf"}` |
| `Any` | as it is |

The metadata of a field may have `key`, its name in JSON; `always`, to write it also where it is its default; and `check`, a function that
yields `(place in the value, what was found, what is wanted)` for whatever is wrong with a value of the right type.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, Final, Literal

from flydsl_build.errors import BuildError, Fault, did_you_mean

__all__ = [
    "NO_DEFAULT",
    "DecodeError",
    "EnumMember",
    "NoDefault",
    "PlainValue",
    "decode",
    "encode",
    "enum_reference",
    "from_enum_reference",
    "join",
    "parse",
]


class NoDefault(Enum):
    """The type of `NO_DEFAULT`: what has no value, which is not the same as one whose value is None."""

    NO_DEFAULT = "no default"


NO_DEFAULT: Final = NoDefault.NO_DEFAULT


@dataclass(frozen=True, kw_only=True, slots=True)
class EnumMember:
    """A member of an enum; of flags together, the name is as in `READ|WRITE`.

    Parameters
    ----------
    enum
        Its class as `module:class`.
    is_exact
        Whether text that names it means other than it.
    """

    enum: str
    name: str
    is_exact: bool = False

    def __repr__(self) -> str:
        return f"{self.class_name}.{self.name}"

    @property
    def class_name(self) -> str:
        """The name of the class alone."""
        return re.split("[:.]", self.enum)[-1]

    def to_json(self) -> dict[str, str]:
        """Return the object that stands for the member.

        `{"$enum": "pkg.modes:Mode.TRIPLE"}`, which text in a call may name, or `{"$member": …}`, where text is text.
        """
        return {_ENUM[self.is_exact]: f"{self.enum}.{self.name}"}

    @classmethod
    def from_json(cls, value: object) -> EnumMember:
        """Return the member that an object stands for."""
        key, text = next(iter(value.items())) if isinstance(value, Mapping) and len(value) == 1 else ("", None)
        kind, _, name = text.rpartition(".") if isinstance(text, str) and key in _ENUM else ("", "", "")
        module, _, qualname = kind.partition(":")
        is_reference = all(part.isidentifier() for part in [*module.split("."), *qualname.split(".")])
        # Bits of flags that have no name are numbers.
        if not is_reference or not all(part.isidentifier() or part.isdecimal() for part in name.split("|")):
            msg = "a module:class.name"
            raise ValueError(msg)
        return cls(enum=kind, name=name, is_exact=key == _ENUM[True])


PlainValue = bool | int | float | str | EnumMember | tuple["PlainValue", ...] | dict[str, "PlainValue"] | None
"""A value that TOML, JSON and Python can all say. JSON's arrays are tuples; an object stands for one with these fields. No field has a
name that begins with `$`, as the objects do that stand for members of enums and for numbers which JSON has no form for."""

_Read = Callable[["_Decoder", Any, str], Any]

_MAX_DEPTH: Final = 32
_SHOWN: Final = 60
_ENUM: Final = ("$enum", "$member")
_FLOAT: Final = "$float"
_NOT_FINITE: Final = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


class DecodeError(BuildError):
    """A JSON value that is not what was to be read."""

    stage = "reading"


def join(path: str, key: str) -> str:
    """Return the place of a key in an object that stands at `path`."""
    shown = key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)
    return f"{path}.{shown}" if path else shown


def from_enum_reference(reference: str, *, is_exact: bool = False) -> dict[str, PlainValue]:
    """Return the object that stands for a member of an enum, given as `module:class.name`; see `EnumMember`."""
    return {_ENUM[is_exact]: reference}


def enum_reference(value: object) -> str | None:
    """Return the `module:class.name` of a member of an enum, or of an object that stands for one; None for any other value."""
    if not isinstance(value, EnumMember):
        try:
            value = EnumMember.from_json(value)
        except ValueError:
            return None
    return f"{value.enum}.{value.name}"


# --- writing ---------------------------------------------------------------------------------------------------------


def encode(value: object, *, sort: bool = False) -> Any:
    """Return a value as JSON has it.

    Parameters
    ----------
    value
        A dataclass, or what its fields may hold.
    sort
        Whether the keys of `dict` values are sorted, so that equal values give equal text.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {_FLOAT: str(value)}
    if isinstance(value, tuple | list):
        return [encode(item, sort=sort) for item in value]
    if isinstance(value, Mapping):
        return {key: encode(value[key], sort=sort) for key in (sorted(value) if sort else value)}
    if hasattr(value, "to_json"):
        return value.to_json()
    return _encode_record(value, sort=sort)


def _encode_record(value: Any, *, sort: bool) -> dict[str, Any]:
    kind: Any = type(value)
    tag = _tag(kind)
    found: dict[str, Any] = {} if tag is None else {"kind": tag}
    for each in _plan(kind):
        item = getattr(value, each.name)
        # Absent and null differ only for fields that have a default: those are left out.
        if item is each.default and not each.always:
            continue
        pairs = each.pairs and item is not None
        found[each.key] = {key: encode(one, sort=sort) for key, one in item} if pairs else encode(item, sort=sort)
    return found


# --- reading ---------------------------------------------------------------------------------------------------------


def decode(kind: Any, value: object, *, where: str, path: str = "") -> Any:
    """Return the value that a JSON value describes.

    Parameters
    ----------
    kind
        A dataclass, or another annotation of the table above.
    value
        The parsed JSON.
    where
        The file, for faults.
    path
        The place of the value in it, for faults.

    Raises
    ------
    DecodeError
        With everything that is wrong, each with its place.
    """
    decoder = _Decoder(where)
    found = _reader(kind)(decoder, value, path)
    if decoder.faults:
        raise DecodeError(*decoder.faults)
    return found


def parse(kind: Any, text: str | bytes, *, where: str) -> Any:
    """Return the value that JSON text describes; see `decode`.

    Raises
    ------
    DecodeError
        The text is no JSON, or describes something else.
    """
    try:
        return decode(kind, json.loads(text), where=where)
    except (ValueError, RecursionError) as error:
        raise DecodeError(Fault(where=where, what=f"is no JSON ({error})")) from None


class _Decoder:
    """Collects the faults of one value; whoever records one returns None, which is never handed out."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.faults: list[Fault] = []
        # Of unions in each other.
        self.depth = 0

    def fault(self, path: str, what: str, fix: str = "") -> None:
        self.faults.append(Fault(where=f"{self.where}: {path}" if path else self.where, what=what, fix=fix))

    def wrong(self, value: object, path: str, wanted: str) -> None:
        text = json.dumps(value)
        self.fault(path, f"is {text if len(text) <= _SHOWN else text[:_SHOWN] + '…'}, not {wanted}")

    def keys(self, value: dict[str, object], path: str, known: tuple[str, ...], needed: tuple[str, ...]) -> bool:
        """Record unknown and missing keys; return whether the needed ones are all there."""
        for key in value:
            if key not in known:
                self.fault(join(path, key), "is not a known key", did_you_mean(key, known))
        missing = [key for key in needed if key not in value]
        for key in missing:
            self.fault(join(path, key), "is missing")
        return not missing


class _Field:
    """A field of a dataclass: how it is written and read."""

    __slots__ = ("always", "check", "default", "key", "name", "needed", "pairs", "read")

    def __init__(self, name: str, annotation: Any, default: object, metadata: Mapping[str, Any]) -> None:
        self.name = name
        self.key: str = metadata.get("key", name)
        self.default = default
        self.needed = default is MISSING
        self.always = bool(metadata.get("always"))
        self.check: Callable[[Any], Iterable[tuple[str, object, str]]] | None = metadata.get("check")
        self.pairs = any(_item_of_pairs(one) is not None for one in (annotation, *typing.get_args(annotation)))
        self.read: _Read = _reader(annotation)


@functools.cache
def _plan(kind: Any) -> tuple[_Field, ...]:
    annotations = inspect.get_annotations(kind, eval_str=True)
    return tuple(
        _Field(each.name, annotations[each.name], MISSING if each.default_factory is not MISSING else each.default, each.metadata)
        for each in fields(kind)
    )


@functools.cache
def _keys(kind: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the keys that a class has in JSON, and those that must be there."""
    plan = _plan(kind)
    tag = () if _tag(kind) is None else ("kind",)
    return (*tag, *(each.key for each in plan)), tuple(each.key for each in plan if each.needed)


def _tag(kind: type) -> str | None:
    """Return what tells a class from the others of a union."""
    tag = getattr(kind, "kind", None)
    return tag if isinstance(tag, str) else None


def _item_of_pairs(annotation: Any) -> Any:
    """Return T of `tuple[tuple[str, T], ...]`; None for another annotation."""
    match typing.get_origin(annotation), typing.get_args(annotation):
        case builtin, (inner, last) if builtin is tuple and last is Ellipsis and typing.get_origin(inner) is tuple:
            first, *rest = typing.get_args(inner)
            return rest[0] if first is str and len(rest) == 1 else None
    return None


@functools.cache
def _reader(annotation: Any) -> _Read:
    if annotation in _SIMPLE:
        return _SIMPLE[annotation]
    if is_dataclass(annotation) and isinstance(annotation, type) and not hasattr(annotation, "from_json"):
        return functools.partial(_read_record, annotation)
    if hasattr(annotation, "from_json"):
        return functools.partial(_read_own, annotation)
    return _generic_reader(annotation, typing.get_origin(annotation), typing.get_args(annotation))


def _generic_reader(annotation: Any, origin: Any, arguments: tuple[Any, ...]) -> _Read:
    if origin is Literal:
        return functools.partial(_read_choice, arguments)
    if (item := _item_of_pairs(annotation)) is not None:
        return functools.partial(_read_mapping, item, tuple)
    if origin is tuple:
        return functools.partial(_read_items, arguments[0], None if arguments[-1] is Ellipsis else len(arguments))
    if origin in (dict, Mapping):
        return functools.partial(_read_mapping, arguments[1], dict)
    if origin in (types.UnionType, typing.Union):
        return _union_reader(arguments)
    msg = f"there is no form in JSON for {annotation}"
    raise TypeError(msg)


def _union_reader(members: tuple[Any, ...]) -> _Read:
    if set(typing.get_args(PlainValue)) <= set(members):
        return _read_plain
    # A constant of an enum stands for what is absent.
    rest: list[Any] = [
        member for member in members if member is not types.NoneType and not (isinstance(member, type) and issubclass(member, Enum))
    ]
    if all(isinstance(member, type) and _tag(member) is not None for member in rest):
        tagged = functools.partial(_read_tagged, {str(_tag(member)): member for member in rest})
        return tagged if len(rest) == len(members) else lambda decoder, value, path: None if value is None else tagged(decoder, value, path)
    if len(rest) != 1:
        msg = f"there is no form in JSON for a union of {rest}"
        raise TypeError(msg)
    read = _reader(rest[0])
    return lambda decoder, value, path: None if value is None else read(decoder, value, path)


def _read_text(decoder: _Decoder, value: object, path: str) -> Any:
    return value if isinstance(value, str) else decoder.wrong(value, path, "text")


def _read_boolean(decoder: _Decoder, value: object, path: str) -> Any:
    return value if isinstance(value, bool) else decoder.wrong(value, path, "true or false")


def _read_count(decoder: _Decoder, value: object, path: str) -> Any:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else decoder.wrong(value, path, "a count")


def _read_number(decoder: _Decoder, value: object, path: str) -> Any:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else decoder.wrong(value, path, "a number")


def _read_choice(allowed: tuple[str, ...], decoder: _Decoder, value: object, path: str) -> Any:
    if isinstance(value, str) and value in allowed:
        return value
    return decoder.fault(path, f"is {json.dumps(value)}"[:_SHOWN], did_you_mean(str(value), allowed))


def _read_items(item: Any, count: int | None, decoder: _Decoder, value: object, path: str) -> Any:
    if not isinstance(value, list):
        return decoder.wrong(value, path, "an array")
    if count is not None and len(value) != count:
        return decoder.wrong(value, path, f"an array of {count}")
    read = _reader(item)
    return tuple([read(decoder, one, f"{path}[{n}]") for n, one in enumerate(value)])


def _read_mapping(item: Any, make: Callable[[Any], Any], decoder: _Decoder, value: object, path: str) -> Any:
    if not isinstance(value, dict):
        return decoder.wrong(value, path, "an object")
    read = _reader(item)
    return make([(key, read(decoder, one, join(path, key))) for key, one in value.items()])


def _read_own(kind: Any, decoder: _Decoder, value: object, path: str) -> Any:
    try:
        return kind.from_json(value)
    except ValueError as error:
        return decoder.wrong(value, path, str(error))


def _read_tagged(kinds: dict[str, type], decoder: _Decoder, value: object, path: str) -> Any:
    if not isinstance(value, dict):
        return decoder.wrong(value, path, "an object")
    if decoder.depth > _MAX_DEPTH:
        return decoder.fault(path, f"is nested more than {_MAX_DEPTH} deep")
    tag = _read_choice(tuple(kinds), decoder, value.get("kind"), join(path, "kind"))
    decoder.depth += 1
    found = None if tag is None else _read_record(kinds[tag], decoder, value, path)
    decoder.depth -= 1
    return found


def _read_record(kind: type, decoder: _Decoder, value: object, path: str) -> Any:
    if not isinstance(value, dict):
        return decoder.wrong(value, path, "an object")
    if not decoder.keys(value, path, *_keys(kind)):
        return None
    found = {}
    for each in _plan(kind):
        if each.key in value:
            place = join(path, each.key)
            before = len(decoder.faults)
            found[each.name] = item = each.read(decoder, value[each.key], place)
            if each.check is not None and len(decoder.faults) == before:
                for inner, what, wanted in each.check(item):
                    decoder.wrong(what, place + inner, wanted)
    return None if decoder.faults else kind(**found)


def _read_plain(decoder: _Decoder, value: object, path: str, depth: int = 0) -> Any:
    if isinstance(value, list) and depth < _MAX_DEPTH:
        return tuple([_read_plain(decoder, one, f"{path}[{n}]", depth + 1) for n, one in enumerate(value)])
    if isinstance(value, dict) and value.keys() == {_FLOAT}:
        word = _read_choice(tuple(_NOT_FINITE), decoder, value[_FLOAT], join(path, _FLOAT))
        return _NOT_FINITE.get(word)
    if isinstance(value, dict) and len(value) == 1 and next(iter(value)) in _ENUM:
        return _read_own(EnumMember, decoder, value, path)
    if isinstance(value, dict) and any(key.startswith("$") for key in value):
        return decoder.wrong(value, path, "a plain value: what stands for a member or a number has one key, and no field begins with $")
    if isinstance(value, dict) and depth < _MAX_DEPTH:
        return {key: _read_plain(decoder, one, join(path, key), depth + 1) for key, one in value.items()}
    return value if value is None or isinstance(value, bool | int | float | str) else decoder.wrong(value, path, "a plain value")


_SIMPLE: Final[dict[object, _Read]] = {
    Any: lambda _decoder, value, _path: value,
    str: _read_text,
    bool: _read_boolean,
    int: _read_count,
    float: _read_number,
}
