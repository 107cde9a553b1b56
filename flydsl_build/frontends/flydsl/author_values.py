# SPDX-License-Identifier: Apache-2.0
"""Values of the author's code that are no arguments of a launch: what declared values stand for, and what JSON can say of them.

What a declared value stands for, the annotation says, or the type of the default: a member of an enum, a type of FlyDSL's, an object with
fields (a dataclass, a named tuple, or an instance of FlyDSL's `fx.struct`). What can stand for nothing of the annotation's is refused.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import functools
import inspect
import itertools
import operator
import os
import typing
from dataclasses import replace
from types import NoneType
from typing import TYPE_CHECKING, Any

from flydsl_build.codec import NO_DEFAULT, enum_reference, from_enum_reference
from flydsl_build.errors import did_you_mean
from flydsl_build.frontends.flydsl import adapter
from flydsl_build.frontends.flydsl.adapter import ArgumentError
from flydsl_build.frontends.flydsl.annotations import Unreadable, admitted, evaluated_fields
from flydsl_build.jobs.author_code import import_reference, member_reference, text_of
from flydsl_build.jobs.launcher import EnumClass, EnumEntry, Parameter

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = [
    "annotation_text",
    "attributes",
    "converted",
    "described_enums",
    "field_infos",
    "has_fields",
    "plain",
    "recorded",
    "returned",
    "takes_types",
    "with_inner_classes",
]


# Deeper ones are of no use as a value to compare with, and a list may hold itself.
_DEEPEST = 16
_EMPTY = inspect.Parameter.empty
_PLAIN = (bool, int, float, str, NoneType)
_AS_TOML = {bool: "true or false", int: "a whole number", float: "a number", str: "text in quotes"}
_WHAT_A_TABLE_SAYS = "a table says text, numbers, booleans, members of enums, FlyDSL types, and tuples and objects of these"


def plain(value: Any, depth: int = 0, *, is_exact: bool = True) -> Any:
    """Return the JSON form of a value: of a FlyDSL type the name of its dtype, of a member of an enum a table.

    Parameters
    ----------
    is_exact
        Of members of enums.

    Raises
    ------
    TypeError
        It has none.
    """
    if isinstance(value, type):
        name = adapter.type_name(value)
        if name is None:
            raise TypeError
        return name
    if isinstance(value, enum.Enum):
        return _member_table(value, is_exact=is_exact)
    raw = adapter.raw_value(value)
    # What is of a class of its own says more than the number or text in it; but numpy's float64 does not.
    if type(raw) in _PLAIN:
        return raw
    if isinstance(raw, float) and type(raw).__module__ == "numpy":
        return float(raw)
    if isinstance(raw, (tuple, list)) and depth < _DEEPEST:
        return [plain(one, depth + 1, is_exact=is_exact) for one in raw]
    raise TypeError


def _member_table(member: enum.Enum, *, is_exact: bool) -> dict[str, Any]:
    reference = member_reference(member)
    if reference is None:
        raise TypeError
    return from_enum_reference(reference, is_exact=is_exact)


def returned(value: Any, depth: int = 0) -> Any:
    """Return the JSON form of a plain value that a factory returned; unlike that of a default, it says which type the value has.

    Lists are `{"list": […]}`, because an array is a tuple, FlyDSL types are `{"dtype": name}`, and members of enums as elsewhere.

    Raises
    ------
    TypeError
        The value is not plain.
    """
    if isinstance(value, type):
        return {"dtype": plain(value)}
    if isinstance(value, enum.Enum):
        return _member_table(value, is_exact=True)
    if type(value) in {list, tuple} and depth < _DEEPEST:
        items = [returned(one, depth + 1) for one in value]
        return items if isinstance(value, tuple) else {"list": items}
    if type(value) in _PLAIN:
        return value
    raise TypeError


def attributes(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON form of those attributes of an object that are plain, as `returned` writes it."""
    found = {}
    for name, value in values.items():
        # Names with two underscores are of Python, not of the author.
        if name.isidentifier() and not name.startswith("__"):
            with contextlib.suppress(TypeError):
                found[name] = returned(value)
    return found


# --- what a declared value stands for ----------------------------------------------------------------------------------


def converted(value: Any, annotation: Any, default: Any = _EMPTY) -> Any:
    """Return what a declared value stands for, by the annotation of what takes it, or else by the type of the default.

    Parameters
    ----------
    value
        A plain value, or an object from `kernels-from`.

    Raises
    ------
    ArgumentError
        The annotation says more than plain text, number or boolean, and the value is nothing of what it says.
    """
    value = _with_members(value)
    types_admitted = _admitted(annotation, default)
    enums = [one for one in types_admitted if _is_enum(one)]
    if str in types_admitted and type(value) is str and _names_member(enums, value):
        msg = f"{value!r} can be text or a member of {enums[0].__name__}, as {_shown(annotation)} admits both"
        raise ArgumentError(msg, "annotate with one of them, or give the member itself in the function of kernels-from")
    if str in types_admitted and any(adapter.parameter_role(one) == "type" for one in types_admitted) and adapter.names_type(value):
        msg = f"{value!r} can be text or a type of FlyDSL's, as {_shown(annotation)} admits both"
        raise ArgumentError(msg, "annotate with one of them, or give the type itself in the function of kernels-from")
    for one in types_admitted:
        if _accepts(one, value):
            return value
    reasons = []
    for one in types_admitted:
        try:
            return _convert(one, value)
        except ArgumentError as error:
            if str(error):
                reasons.append(error)
    if reasons:
        raise reasons[0]
    raise _refusal(value, annotation, types_admitted)


def _refusal(value: Any, annotation: Any, types_admitted: Sequence[Any]) -> ArgumentError:
    if isinstance(value, dict):
        what = "found a table, and it is not annotated with a dataclass, named tuple or fx.struct"
        return ArgumentError(what, "annotate it with the class that the table is to make an object of")
    if annotation is _EMPTY:
        what = f"{_spelled(value)} is no {types_admitted[0].__name__}, of which its default is"
        return ArgumentError(what, f"annotate it, or give a {types_admitted[0].__name__} in the function of kernels-from")
    said = [_AS_TOML[one] for one in types_admitted if one in _AS_TOML]
    fix = f"write {' or '.join(said)}" if len(said) == len(set(types_admitted) - {NoneType}) else _WHAT_A_TABLE_SAYS
    return ArgumentError(f"{_spelled(value)} is no {_shown(annotation)}, as which it is annotated", fix)


def _shown(annotation: Any) -> str:
    return annotation_text(annotation) or "its default's type"


def _spelled(value: Any) -> str:
    return f"{type(value).__name__}.{value.name}" if isinstance(value, enum.Enum) else repr(value)


def _with_members(value: Any) -> Any:
    """Return a declared value with the members of enums that tables in it stand for."""
    reference = enum_reference(value)
    if reference is not None:
        kind, _, name = reference.rpartition(".")
        try:
            return _member(import_reference(kind), name)
        except (ImportError, AttributeError) as error:
            msg = f"{reference} cannot be reached ({text_of(error)})"
            raise ArgumentError(msg, "define the enum in a module that both the function of kernels-from and the kernels import") from error
    if isinstance(value, dict):
        return {name: _with_members(one) for name, one in value.items()}
    return tuple(map(_with_members, value)) if isinstance(value, tuple) else value


def _admitted(annotation: Any, default: Any) -> tuple[Any, ...]:
    """Return the types that an annotation admits; that of the default, if it says more."""
    found = admitted(annotation)
    says_more = any(not _is_plain(one) and one not in (Any, object) for one in found)
    if isinstance(default, enum.Enum) and not says_more:
        return (type(default),)
    if has_fields(default) and not says_more:
        return (adapter.struct_class(type(default)), *found)
    if says_more:
        return found
    is_vague = all(one in (Any, object) for one in found)
    if adapter.type_name(default) is not None:
        return (type,) if is_vague else (type, *found)
    return (type(default),) if is_vague and _is_of_its_own(default) else found


def _is_of_its_own(default: Any) -> bool:
    """Tell whether a default is a number, text or path of a class that says more than the number or text in it."""
    kind = type(default)
    return isinstance(default, int | float | str | os.PathLike) and kind not in _PLAIN and kind.__module__.partition(".")[0] != "numpy"


def takes_types(annotation: Any, default: Any) -> bool:
    """Tell whether what is given is a type of FlyDSL's, of which a declaration has the name."""
    found = _admitted(annotation, default)
    return any(adapter.parameter_role(one) == "type" for one in found) and (str not in found or adapter.type_name(default) is not None)


def _names_are_members(types_admitted: Iterable[Any]) -> bool:
    """Tell whether text can only be the name of a member of an enum."""
    found = list(types_admitted)
    inner = [_names_are_members(admitted(item)) for one in found for item in typing.get_args(one) if _is_sequence(one) and item is not ...]
    members = [isinstance(item, enum.Enum) for one in found if typing.get_origin(one) is typing.Literal for item in typing.get_args(one)]
    return str not in found and (any(map(_is_enum, found)) or any(inner) or (any(members) and all(members)))


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, enum.Enum)


def _is_plain(kind: Any) -> bool:
    """Tell whether a type says no more than TOML does."""
    if kind in _PLAIN or adapter.parameter_role(kind) == "scalar":
        return True
    return _is_sequence(kind) and all(_is_plain(inner) for one in typing.get_args(kind) if one is not ... for inner in admitted(one))


def _is_sequence(kind: Any) -> bool:
    whole = typing.get_origin(kind) or kind
    return (
        isinstance(whole, type)
        and whole is not object
        and not _is_named_tuple(whole)
        and any(_is_below(one, whole) for one in (tuple, list))
    )


def _is_below(kind: type, base: type) -> bool:
    try:
        return issubclass(kind, base)
    except Exception:  # noqa: BLE001 - of a TypedDict, of a protocol that cannot be asked, of an author's class that refuses
        return False


def _accepts(kind: Any, value: Any) -> bool:
    """Tell whether a value is of a type as it is."""
    if kind in (Any, object):
        return not isinstance(value, dict)
    if typing.get_origin(kind) is typing.Literal:
        return any(type(one) is type(value) and one == value for one in typing.get_args(kind))
    if adapter.parameter_role(kind) == "scalar":
        return isinstance(value, int | float)
    # True is an int of Python's, but `x is True` and `x // 2` tell them apart.
    if isinstance(value, tuple | dict) or not isinstance(kind, type) or (kind is int and isinstance(value, bool)):
        return False
    try:
        return isinstance(value, kind)
    except TypeError:  # a protocol that cannot be asked
        return False


def _convert(kind: Any, value: Any) -> Any:
    """Return what a value stands for in a type.

    Raises
    ------
    ArgumentError
        Nothing; without a text where the value is of another kind.
    """
    if isinstance(kind, Unreadable):
        msg = f"the annotation {kind.text} cannot be evaluated ({kind.reason}), so what {_spelled(value)} stands for is not known"
        raise ArgumentError(msg, "import what it names outside of `if TYPE_CHECKING`, or annotate it with what is known at run time")
    if _is_enum(kind) and not isinstance(value, tuple | dict):
        return _member(kind, value)
    if typing.get_origin(kind) is typing.Literal:
        return _literal(kind, value)
    if adapter.parameter_role(kind) == "type" and isinstance(value, str):
        return _type_in(kind, value)
    if kind is float and type(value) is int:
        return _as_float(value)
    if isinstance(kind, type) and _has_fields(kind) and isinstance(value, dict):
        return _make_object(kind, value)
    if isinstance(value, tuple) and _is_sequence(kind):
        return _sequence(kind, value)
    raise ArgumentError("")


def _type_in(kind: Any, name: str) -> Any:
    """Return the type of a name; `type[…]` says which it must be below."""
    found = adapter.type_of_name(name)
    bounds = [one for bound in typing.get_args(kind) for one in admitted(bound) if isinstance(one, type)]
    if bounds and not any(_is_below(found, one) for one in bounds):
        msg = f"{name} is no {inspect.formatannotation(kind)}"
        raise ArgumentError(msg, f"write one of {', '.join(one.__name__ for one in bounds)}")
    return found


def _as_float(value: int) -> float:
    """Return a whole number as the float that it stands for where a float is annotated, as for type checkers.

    Raises
    ------
    ArgumentError
        No float is equal to it.
    """
    with contextlib.suppress(OverflowError):
        if float(value) == value:
            return float(value)
    msg = f"no float is equal to {value}"
    raise ArgumentError(msg, "write the float that is meant")


def _sequence(kind: Any, items: tuple[Any, ...]) -> Any:
    """Return a declared list as a tuple or list, whatever the type wants, of converted items."""
    whole, arguments = typing.get_origin(kind) or kind, typing.get_args(kind)
    if arguments[1:] not in {(), (...,)}:
        if len(items) != len(arguments):
            msg = f"{items!r} has {len(items)} items, and {inspect.formatannotation(kind)} has {len(arguments)}"
            raise ArgumentError(msg, "write as many")
    else:
        arguments = (arguments or (Any,))[:1] * len(items)
    made = [converted(item, one) for item, one in zip(items, arguments, strict=True)]
    return tuple(made) if issubclass(tuple, whole) else made


def _literal(kind: Any, value: Any) -> Any:
    """Return the member of an enum that a value names among those of `Literal[…]`."""
    choices = typing.get_args(kind)
    for one in choices:
        if isinstance(one, enum.Enum) and not isinstance(value, tuple | dict | enum.Enum) and _names_member([type(one)], value):
            found = _member(type(one), value)
            if found in choices:
                return found
    msg = f"{_spelled(value)} is none of {', '.join(map(_spelled, choices))}"
    raise ArgumentError(msg, "write one of these")


def _names_member(enums: Sequence[Any], value: Any) -> bool:
    for kind in enums:
        try:
            _member(kind, value)
        except ArgumentError:
            continue
        return True
    return False


def _member(kind: Any, value: Any) -> Any:
    """Return the member of an enum that text names, as `READ|WRITE` names flags together, or that has the value."""
    if isinstance(value, kind):
        return value
    if not isinstance(value, enum.Enum):
        names = kind.__members__
        if isinstance(value, str) and value in names:
            return names[value]
        for one in names.values():
            if type(one.value) is type(value) and one.value == value:
                return one
        if issubclass(kind, enum.Flag):
            parts = [value] if type(value) is int else [part.strip() for part in str(value).split("|")]
            try:
                numbers = [int(part) if str(part).isdecimal() else names[part].value for part in parts]
                return kind(functools.reduce(operator.or_, numbers))
            except (KeyError, ValueError):
                pass
    alike = isinstance(value, enum.Enum) and type(value).__name__ == kind.__name__
    spelled, name = (
        (f"{type(value).__module__}.{_spelled(value)}", f"{kind.__module__}.{kind.__name__}") if alike else (_spelled(value), kind.__name__)
    )
    what = f"{spelled} is no member of {name}, and no value of one"
    msg = f"{what}. Its members are {', '.join(kind.__members__)}"
    fix = did_you_mean(value, list(kind.__members__)) if isinstance(value, str) else ""
    raise ArgumentError(msg, fix if fix.startswith("Did") else "write the name of a member")


def described_enums(values: Iterable[Any]) -> dict[str, EnumClass]:
    """Return the enums whose members are somewhere in JSON values, by `module:class`: what a class without its code is made of."""
    found: dict[str, EnumClass] = {}
    for reference in itertools.chain.from_iterable(map(_references, values)):
        name = reference.rpartition(".")[0]
        if name not in found:
            found[name] = _described(import_reference(name))
    return found


def _references(value: Any) -> Iterator[str]:
    reference = enum_reference(value)
    if reference is not None:
        yield reference
    elif isinstance(value, dict | list | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _references(one)


# What a member is as a number or text, whatever methods its class has.
_DATA: dict[type, Any] = {int: int.__index__, float: float.__float__, str: str.__str__}
_ENUM_BASES = (enum.IntFlag, enum.IntEnum, enum.StrEnum, enum.Flag, enum.Enum)


def _described(kind: type[enum.Enum]) -> EnumClass:
    base = next(one for one in _ENUM_BASES if issubclass(kind, one))
    mixed = next((one for one in _DATA if issubclass(kind, one) and not issubclass(base, one)), None)
    # A class that makes its members in a way of its own may have values that are not those of the type it is mixed with.
    if mixed is not None and any(type(one.value) is not mixed or _DATA[mixed](one) != one.value for one in kind):
        mixed = None
    members: list[EnumEntry] = []
    for name, one in kind.__members__.items():
        if name != one.name:
            members.append(EnumEntry(name=name, alias=one.name))
            continue
        try:
            members.append(EnumEntry(name=name, value=_value_of_member(one.value)))
        except TypeError:
            members.append(EnumEntry(name=name))
    doc = vars(kind).get("__doc__")
    return EnumClass(
        bases=(*(() if mixed is None else (mixed.__name__,)), base.__name__),
        doc=doc if isinstance(doc, str) and doc != enum.Enum.__doc__ else None,
        members=tuple(members),
    )


def _value_of_member(value: Any, depth: int = 0) -> Any:
    if type(value) is tuple and depth < _DEEPEST:
        return tuple(_value_of_member(one, depth + 1) for one in value)
    if type(value) in _PLAIN:
        return value
    raise TypeError


# --- objects with fields -----------------------------------------------------------------------------------------------


def _class_of_annotation(annotation: Any) -> type | None:
    """Return the class with fields that an annotation names, also as one of `X | None`; None if it names none."""
    found = [one for one in admitted(annotation) if isinstance(one, type) and _has_fields(one)]
    return found[0] if len(found) == 1 else None


def _has_fields(kind: type) -> bool:
    return not _is_enum(kind) and (dataclasses.is_dataclass(kind) or _is_named_tuple(kind) or adapter.is_struct(kind))


def _is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def field_infos(kind: type) -> tuple[Parameter, ...]:
    """Return the fields of a class in the order of its constructor, with those of their defaults that JSON can say.

    What follows a field with a default and has none that JSON can say has to be given by keyword.
    """
    found = _fields(kind)
    defaults = [one.has_default for one in found]
    fixed = [
        replace(one, kind="KEYWORD_ONLY") if any(defaults[:position]) and not one.has_default else one for position, one in enumerate(found)
    ]
    return tuple(sorted(fixed, key=lambda one: one.kind == "KEYWORD_ONLY"))


def _fields(kind: type) -> tuple[Parameter, ...]:
    return tuple(_field(one) for one in _parameters_of(kind))


def _parameters_of(kind: type) -> tuple[inspect.Parameter, ...]:
    """Return the fields of a class as parameters of its constructor, with evaluated annotations."""

    def field(name: str, annotation: Any, default: Any = _EMPTY, *, keyword: bool = False) -> inspect.Parameter:
        place = inspect.Parameter.KEYWORD_ONLY if keyword else inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Parameter(name, place, annotation=annotation, default=default)

    if adapter.is_struct(kind):
        return tuple(field(name, one) for name, one in adapter.struct_fields(kind))
    hints = evaluated_fields(kind)
    if not dataclasses.is_dataclass(kind):
        defaults = kind._field_defaults  # type: ignore[attr-defined]  # of a named tuple
        names = kind._fields  # type: ignore[attr-defined]
        return tuple(field(name, hints.get(name, _EMPTY), defaults.get(name, _EMPTY)) for name in names)
    found = []
    for one in dataclasses.fields(kind):
        default = one.default
        if one.default_factory is not dataclasses.MISSING:
            default = one.default_factory()
        if one.init:
            given = _EMPTY if default is dataclasses.MISSING else default
            found.append(field(one.name, hints.get(one.name, one.type), given, keyword=one.kw_only is True))
    return tuple(found)


def with_inner_classes(kinds: Iterable[type]) -> tuple[type, ...]:
    """Return the classes and those of their fields that have fields themselves."""
    found: dict[type, None] = {}
    queue = list(kinds)
    while queue:
        kind = queue.pop()
        if kind in found:
            continue
        found[kind] = None
        queue += [inner for one in _parameters_of(kind) if (inner := _class_of_annotation(one.annotation)) is not None]
    return tuple(found)


def _field(parameter: inspect.Parameter) -> Parameter:
    default: Any = NO_DEFAULT
    if parameter.default is not _EMPTY:
        # A field that the stub cannot fill in has to be given there.
        with contextlib.suppress(TypeError, ArgumentError):
            default = recorded(parameter.default, parameter.annotation, parameter.default)
    return Parameter(
        name=parameter.name,
        kind=parameter.kind.name,  # type: ignore[arg-type]  # inspect's names of the kinds are the manifest's
        annotation=annotation_text(parameter.annotation) or None,
        role="constexpr",
        default=default,
    )


def annotation_text(annotation: Any) -> str:
    """Return an annotation as the source has it, without the module of a class."""
    if annotation is _EMPTY:
        return ""
    if isinstance(annotation, Unreadable):
        return annotation.text
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return text.rsplit(".", 1)[-1] if isinstance(annotation, type) else text


def _make_object(kind: type, table: dict[str, Any]) -> Any:
    """Return an object of the class with the declared fields; a table in it makes an object of the field's class.

    Raises
    ------
    ArgumentError
        The class has no such field, or a field without a default is missing, or a field cannot have the value.
    """
    fields = {one.name: one for one in _parameters_of(kind)}
    unknown = [name for name in table if name not in fields]
    if unknown:
        msg = f"{kind.__name__} has no field {unknown[0]}. {did_you_mean(unknown[0], list(fields))}"
        raise ArgumentError(msg, _CORRECT)
    values = {}
    for name, value in table.items():
        try:
            values[name] = converted(value, fields[name].annotation, fields[name].default)
        except ArgumentError as error:
            msg = f"field {name} of {kind.__name__}: {error}"
            raise ArgumentError(msg, error.fix) from error.__cause__
    try:
        made = kind(**values)
    except Exception as error:
        msg = f"{kind.__name__} cannot be made of these fields: {type(error).__name__}: {error}"
        raise ArgumentError(msg, _CORRECT) from error
    for name, value in values.items():
        if dataclasses.is_dataclass(kind) and repr(getattr(made, name, value)) != repr(value):
            became = f"{name} of {value!r} becomes {getattr(made, name)!r}"
            msg = f"{kind.__name__} changes its fields when it is made ({became}), and the class in the wheel, which has no code, does not"
            raise ArgumentError(msg, _FINISHED)
    return made


_CORRECT = "correct the table"


def recorded(value: Any, annotation: Any = _EMPTY, default: Any = _EMPTY) -> Any:
    """Return an object with fields as a table of them, and any other value in its JSON form.

    Parameters
    ----------
    annotation, default
        Of what takes the value.

    Raises
    ------
    ArgumentError, TypeError
        It has none, or a field has none.
    """
    if has_fields(value):
        _check_class(value, annotation, default)
        return _recorded_fields(value)
    return plain(value, is_exact=not _names_are_members(_admitted(annotation, default)))


def _check_class(value: Any, annotation: Any, default: Any) -> None:
    """Refuse an object of which the fields do not say all: a call is compared with these alone.

    Raises
    ------
    ArgumentError
        Another class may be meant, or its own code makes other fields of them.
    """
    kind = adapter.struct_class(type(value))
    wanted = {adapter.struct_class(one): None for one in admitted(annotation) if isinstance(one, type) and _has_fields(one)}
    if not wanted and has_fields(default):
        wanted = {adapter.struct_class(type(default)): None}
    if wanted and set(wanted) != {kind}:
        names = ", ".join(one.__name__ for one in {kind: None, **wanted})
        msg = f"a call is compared with the fields of a {kind.__name__} alone, and what it is given to may be of several classes: {names}"
        raise ArgumentError(msg, f"annotate it with {kind.__name__}")
    if dataclasses.is_dataclass(kind) and (hasattr(kind, "__post_init__") or _has_own_init(kind)):
        _check_makes_itself(value, kind)


def _has_own_init(kind: Any) -> bool:
    return not kind.__dataclass_params__.init


def _check_makes_itself(value: Any, kind: Any) -> None:
    names = [one.name for one in dataclasses.fields(kind) if one.init]
    try:
        again = kind(**{name: getattr(value, name) for name in names})
        other = next((name for name in names if repr(getattr(again, name)) != repr(getattr(value, name))), None)
    except Exception as error:
        msg = f"{kind.__name__} cannot be made of its own fields ({text_of(error)}), as the class in the wheel is"
        raise ArgumentError(msg, _FINISHED) from error
    if other is not None:
        became = f"{other} of {getattr(value, other)!r} becomes {getattr(again, other)!r}"
        msg = f"{kind.__name__} changes its fields when it is made ({became}), and the class in the wheel, which has no code, does not"
        raise ArgumentError(msg, _FINISHED)


_FINISHED = "let the class take finished values, and compute them in a function"


def has_fields(value: Any) -> bool:
    """Tell whether a value is an object that a declared table could stand for."""
    return _has_fields(type(value))


def _recorded_fields(made: Any) -> dict[str, Any]:
    """Return the fields of an object as a table, those that were left to their defaults too.

    Raises
    ------
    ArgumentError
        A field has no JSON form.
    """
    found = {}
    kind = adapter.struct_class(type(made))
    for one in _parameters_of(kind):
        value = getattr(made, one.name)
        try:
            found[one.name] = recorded(value, one.annotation, one.default)
        except TypeError:
            msg = f"field {one.name} of {kind.__name__} is a {type(value).__name__}, which a call could not be compared with"
            raise ArgumentError(msg) from None
    return found
