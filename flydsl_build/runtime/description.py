# SPDX-License-Identifier: Apache-2.0
"""Turn a launcher of the manifest into the tuples that the native run time joins with the call table of the launcher library.

`(parameters, specializations, view count, index)`, where

- a parameter is `(name, kind, has default, default)`; kind 0 positional-only, 1 positional or keyword, 2 keyword-only;
- a specialization is `(index in the module, name, constants, sources)`; the rest of it is in the call table of the launcher library;
- a constant is `(parameter, value)`;
- a source is `(parameter, view, path)` of an argument, in the order of the call table; a view is the position of a tensor or pointer among
  those that a call reads once, whatever the number of specializations;
- the index is `(parameters, {values: positions of specializations})`, so that a call need not compare the constants of all of
  them, or None; the values of several parameters are a tuple.
"""

from __future__ import annotations

from sys import intern

from . import _native
from .annotations import Any, Mapping
from .dtypes import TYPE_NAMES
from .enums import Member
from .errors import CorruptFileError

__all__ = [
    "LEFT_OUT",
    "Fields",
    "describe_launcher",
    "field_of",
    "number_or_object",
    "plain_value",
    "returned_value",
    "same_value",
]

# From so many specializations on, a look-up takes less time than comparing constants one after the other.
_INDEXED = 4
_PARAMETER_KINDS = {"POSITIONAL_ONLY": 0, "POSITIONAL_OR_KEYWORD": 1, "KEYWORD_ONLY": 2}


class _TypeName(str):
    """The name of a dtype, equal to itself and to FlyDSL's class."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, TYPE_NAMES.get(other.__name__, "") if isinstance(other, type) else other) is True

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


class _NotANumber(float):
    """A NaN that a specialization was built for: equal to every NaN, as a call with one means this specialization."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _NotANumber) or bool(other != other)  # noqa: PLR0124

    def __ne__(self, other: object) -> bool:
        return not self == other

    # Other NaNs have other hashes.
    __hash__ = None  # type: ignore[assignment]


def number_or_object(pairs: dict[str, Any]) -> Any:
    """Return the number that an object of the manifest stands for, where JSON has no form for that, or the object itself."""
    if pairs.keys() != {"$float"} or pairs["$float"] not in ("inf", "-inf", "nan"):
        return pairs
    number = float(pairs["$float"])
    return number if number == number else _NotANumber(number)  # noqa: PLR0124


class Fields(dict):  # type: ignore[type-arg]  # types are imported for type checkers only
    """The fields of an object that a specialization was built for: equal to every object that has them, whatever its class."""

    __slots__ = ("_get", "_numbers", "_values")

    def __init__(self, fields: dict[str, Any]) -> None:
        from operator import attrgetter

        super().__init__(fields)
        self._get = attrgetter(*fields) if fields else lambda _: ()
        values = tuple(fields.values())
        self._values = values if len(values) != 1 else values[0]
        # Of these, nothing but an equal one of the type is a spelling.
        self._numbers = all(isinstance(value, int | float) for value in values)

    def __eq__(self, other: object) -> bool:
        # What has more fields is of another class.
        named = _fields_of(type(other))
        if named is not None and not self.keys() <= named <= self.keys():
            return False
        # All fields at once are read and compared in C; what is no attribute or has no truth of being equal is looked at below.
        try:
            found = self._get(other)
            if self._values != found and self._numbers:
                return False
        except (AttributeError, TypeError, ValueError, RuntimeError):
            pass
        return all(same_value(value, field_of(other, name)) for name, value in self.items())

    def __reduce__(self) -> Any:
        return Fields, (dict(self),)

    def __ne__(self, other: object) -> bool:
        return not self.__eq__(other)

    def __repr__(self) -> str:
        return f"({', '.join(f'{name}={value!r}' for name, value in self.items())})"

    __hash__ = None


_known_fields: dict[type, set[str] | None] = {}


def _fields_of(kind: type) -> set[str] | None:
    """Return the names that a dataclass or named tuple is made of; None of other classes."""
    if kind not in _known_fields:
        fields = getattr(kind, "__dataclass_fields__", None)
        names = None
        if fields is not None:
            names = {name for name, one in fields.items() if one.init and one._field_type.name == "_FIELD"}  # noqa: SLF001
        elif issubclass(kind, tuple):
            names = set(kind._fields) if hasattr(kind, "_fields") else None
        _known_fields[kind] = names
    return _known_fields[kind]


def field_of(value: object, name: str) -> Any:
    """Return a field of an object, or of what stands for one; `LEFT_OUT` if it has none of that name."""
    return value.get(name, LEFT_OUT) if isinstance(value, dict) else getattr(value, name, LEFT_OUT)


def same_value(built: Any, given: Any) -> bool:
    """Say whether a value of the manifest is what was given for a parameter.

    Numbers are the same if they are of one kind, too: 1, 1.0 and True are equal in Python, and make different kernels, as do 0.0 and -0.0.
    An int for a float that was built is taken for it, as by type checkers.
    """
    if isinstance(built, dict):
        return Fields(built).__eq__(given)
    if isinstance(built, list | tuple):  # a list is the manifest's spelling of a tuple
        return isinstance(given, list | tuple) and len(built) == len(given) and all(map(same_value, built, given))
    if isinstance(given, type):  # a type of FlyDSL's, which the manifest has by its name
        return isinstance(built, str) and TYPE_NAMES.get(given.__name__) == built
    try:
        return bool(built == given) and _native.same_number(given, built)
    except RecursionError:
        raise
    except (ValueError, TypeError, RuntimeError):  # an array, of which no truth is known
        return False


class _LeftOut:
    """Stands for a default that the manifest has no form for: equal to itself only, so that no other value is taken for it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "its default"


LEFT_OUT = _LeftOut()


def _sources(
    parameter: str, path: tuple[str, ...], argument: Mapping[str, Any], position: int, views: dict[tuple[str, ...], int]
) -> list[tuple[Any, ...]]:
    """Return where the values of an argument are found; a struct's are those of its fields."""
    kind = argument["kind"]
    if kind == "struct":
        fields = argument["fields"].items()
        return [one for field, inner in fields for one in _sources(parameter, (*path, intern(field)), inner, position, views)]
    view = views.setdefault((parameter, *path), len(views)) if kind in ("tensor", "pointer") else -1
    return [(position, view, path)]


def _index(described: list[tuple[Any, ...]]) -> tuple[Any, ...] | None:
    """Return where specializations are by their constants, if there are so many that it pays, and all values can be looked up."""
    if len(described) < _INDEXED or not described[0][2]:
        return None
    parameters = tuple(parameter for parameter, _ in described[0][2])
    found: dict[Any, tuple[int, ...]] = {}
    for position, (_, _, constants, *_) in enumerate(described):
        values = dict(constants)
        if set(values) != set(parameters):
            return None
        key = values[parameters[0]] if len(parameters) == 1 else tuple(values[parameter] for parameter in parameters)
        try:
            found[key] = (*found.get(key, ()), position)
        except TypeError:  # the fields of an object
            return None
    return parameters, found


def describe_launcher(entry: Mapping[str, Any], specializations: list[tuple[int, dict[str, Any]]], file: str) -> tuple[Any, ...]:
    """Describe one launcher of the manifest.

    Parameters
    ----------
    entry
        An element of the manifest's `launchers`.
    specializations
        Those of its specializations that the launcher chooses from, with their positions among all of the module.
    file
        Path of the manifest, for errors.
    """
    try:
        # Once for each type: what is identical is compared fastest.
        types = {name: _TypeName(name) for name in TYPE_NAMES.values()}
        typed = {parameter["name"] for parameter in entry["parameters"] if parameter["role"] == "type"}

        def constant(name: str, value: Any) -> Any:
            return types[value] if name in typed and value in types else plain_value(value)

        left_out = {
            parameter["name"]
            for parameter in entry["parameters"]
            if parameter["role"] in ("constexpr", "type")
            and "default" in parameter
            and not all(parameter["name"] in specialization["constexpr"] for _, specialization in specializations)
        }
        parameters = tuple(
            (
                intern(parameter["name"]),
                _PARAMETER_KINDS[parameter["kind"]],
                "default" in parameter,
                LEFT_OUT if parameter["name"] in left_out else constant(parameter["name"], parameter.get("default")),
            )
            for parameter in entry["parameters"]
        )
        positions = {parameter[0]: position for position, parameter in enumerate(parameters)}
        views: dict[tuple[str, ...], int] = {}
        described = []
        for index, specialization in specializations:
            # In the order of the signature, as the call table has them.
            ordered = sorted(specialization["arguments"], key=positions.__getitem__)
            sources = [one for name in ordered for one in _sources(name, (), specialization["arguments"][name], positions[name], views)]
            constants = tuple((positions[name], constant(name, value)) for name, value in specialization["constexpr"].items())
            constants += tuple((positions[name], LEFT_OUT) for name in sorted(left_out.difference(specialization["constexpr"])))
            described.append((index, specialization["name"], constants, tuple(sources)))
        return parameters, tuple(described), len(views), _index(described)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise CorruptFileError(file, f"launcher {entry.get('name')}: {type(error).__name__}: {error}") from error


def plain_value(value: Any) -> Any:
    """Return a value of the manifest as the author's source had it: JSON has no tuples, and plain values have no lists."""
    if isinstance(value, dict):
        return Fields({name: plain_value(item) for name, item in value.items()})
    return tuple(map(plain_value, value)) if isinstance(value, list) else value


def returned_value(value: Any) -> Any:
    """Return a plain value that a factory of the source returns: the manifest marks lists, types and members of enums."""
    if isinstance(value, list):
        return tuple(map(returned_value, value))
    if isinstance(value, _NotANumber):
        return float("nan")
    if isinstance(value, Member):
        return value.member
    if isinstance(value, dict):
        return list(map(returned_value, value["list"])) if "list" in value else _TypeName(value["dtype"])
    return value
