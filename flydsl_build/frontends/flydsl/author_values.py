# SPDX-License-Identifier: Apache-2.0
"""Values of the author's code that are no arguments of a launch: what JSON can say of them, and objects made of declared tables.

A table stands for an object with fields: a dataclass, a named tuple, or an instance of FlyDSL's `fx.struct`.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
import typing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from flydsl_build.errors import did_you_mean
from flydsl_build.frontends.flydsl import adapter
from flydsl_build.frontends.flydsl.adapter import ArgumentError
from flydsl_build.jobs.job import ParameterInfo

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "annotation_text",
    "class_of_annotation",
    "field_infos",
    "has_fields",
    "make_object",
    "plain",
    "recorded",
    "recorded_fields",
    "returned",
    "with_inner_classes",
]


# Deeper ones are of no use as a value to compare with, and a list may hold itself.
_DEEPEST = 16


def plain(value: Any, depth: int = 0) -> Any:
    """Return the JSON form of a default value or field, a FlyDSL type as the name of its dtype, an object with fields as a table.

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
    raw = adapter.raw_value(value)
    if raw is None or isinstance(raw, (bool, int, float, str)):
        return raw
    if isinstance(raw, (tuple, list)) and depth < _DEEPEST:
        return [plain(one, depth + 1) for one in raw]
    raise TypeError


def returned(value: Any, depth: int = 0) -> Any:
    """Return the JSON form of a plain value that a factory returned; unlike that of a default, it says which type the value has.

    Lists are `{"list": […]}`, because an array is a tuple, and FlyDSL types are `{"dtype": name}`.

    Raises
    ------
    TypeError
        The value is not plain.
    """
    if isinstance(value, type):
        return {"dtype": plain(value)}
    if type(value) in {list, tuple} and depth < _DEEPEST:
        items = [returned(one, depth + 1) for one in value]
        return items if isinstance(value, tuple) else {"list": items}
    if value is None or type(value) in {bool, int, float, str}:
        return value
    raise TypeError


# --- objects with fields -----------------------------------------------------------------------------------------------


def class_of_annotation(annotation: Any) -> type | None:
    """Return the class with fields that an annotation names, also as one of `X | None`; None if it names none."""
    choices = typing.get_args(annotation) if typing.get_origin(annotation) in {typing.Union, types.UnionType} else (annotation,)
    found = [one for one in choices if isinstance(one, type) and _has_fields(one)]
    return found[0] if len(found) == 1 else None


def _has_fields(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) or _is_named_tuple(kind) or adapter.is_struct(kind)


def _is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def field_infos(kind: type) -> tuple[ParameterInfo, ...]:
    """Return the fields of a class in the order of its constructor, with those of their defaults that JSON can say.

    What follows a field with a default and has none that JSON can say has to be given by keyword.
    """
    found = _fields(kind)
    defaults = [one.has_default for one in found]
    fixed = [
        replace(one, kind="KEYWORD_ONLY") if any(defaults[:position]) and not one.has_default else one for position, one in enumerate(found)
    ]
    return tuple(sorted(fixed, key=lambda one: one.kind == "KEYWORD_ONLY"))


def _fields(kind: type) -> tuple[ParameterInfo, ...]:
    if adapter.is_struct(kind):
        return tuple(_field(name, one) for name, one in adapter.struct_fields(kind))
    if not dataclasses.is_dataclass(kind):
        defaults = kind._field_defaults  # type: ignore[attr-defined]  # of a named tuple
        return tuple(
            _field(name, kind.__annotations__.get(name, inspect.Parameter.empty), defaults.get(name, inspect.Parameter.empty))
            for name in kind._fields  # type: ignore[attr-defined]
        )
    hints = _hints(kind)
    found = []
    for one in dataclasses.fields(kind):
        default = one.default
        if one.default_factory is not dataclasses.MISSING:
            default = one.default_factory()
        if one.init:
            given = inspect.Parameter.empty if default is dataclasses.MISSING else default
            found.append(_field(one.name, hints.get(one.name, one.type), given, keyword=one.kw_only is True))
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
        hints = dict(adapter.struct_fields(kind)) if adapter.is_struct(kind) else _hints(kind)
        queue += [inner for hint in hints.values() if (inner := class_of_annotation(hint)) is not None]
    return tuple(found)


def _field(name: str, annotation: Any, default: Any = inspect.Parameter.empty, *, keyword: bool = False) -> ParameterInfo:
    has_default = default is not inspect.Parameter.empty
    try:
        value = None
        if has_default:
            value = recorded(default)
    except (TypeError, ArgumentError):
        # A field that the stub cannot fill in has to be given there.
        value, has_default = None, False
    return ParameterInfo(
        name=name,
        kind="KEYWORD_ONLY" if keyword else "POSITIONAL_OR_KEYWORD",
        annotation=annotation_text(annotation),
        role="constexpr",
        has_default=has_default,
        default=value,
    )


def annotation_text(annotation: Any) -> str:
    """Return an annotation as the source has it, without the module of a class."""
    if annotation is inspect.Parameter.empty:
        return ""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return text.rsplit(".", 1)[-1] if isinstance(annotation, type) else text


def _hints(kind: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(kind)
    except Exception:  # noqa: BLE001 - evaluating annotations runs the author's code
        return {}


def make_object(kind: type, table: dict[str, Any]) -> Any:
    """Return an object of the class with the declared fields; a table in it makes an object of the field's class.

    Raises
    ------
    ArgumentError
        The class has no such field, or a field without a default is missing, or a field cannot have the value.
    """
    infos = field_infos(kind)
    known = [one.name for one in infos]
    unknown = [name for name in table if name not in known]
    if unknown:
        msg = f"{kind.__name__} has no field {unknown[0]}. {did_you_mean(unknown[0], known)}"
        raise ArgumentError(msg)
    hints = dict(adapter.struct_fields(kind)) if adapter.is_struct(kind) else _hints(kind)
    values = {name: _field_value(kind, name, hints.get(name), value) for name, value in table.items()}
    try:
        return kind(**values)
    except Exception as error:
        msg = f"{kind.__name__} cannot be made of these fields: {type(error).__name__}: {error}"
        raise ArgumentError(msg) from error


def _field_value(kind: type, name: str, annotation: Any, value: Any) -> Any:
    if isinstance(value, dict):
        inner = class_of_annotation(annotation)
        if inner is None:
            msg = f"field {name} of {kind.__name__} is given a table, and is not annotated with a dataclass, named tuple or fx.struct"
            raise ArgumentError(msg)
        return make_object(inner, value)
    if isinstance(value, str) and adapter.parameter_role(annotation) == "type":
        return adapter.type_of_name(value)
    return value


def recorded(value: Any) -> Any:
    """Return an object with fields as a table of them, and any other value in its JSON form.

    Raises
    ------
    ArgumentError, TypeError
        It has none, or a field has none.
    """
    return recorded_fields(value) if has_fields(value) else plain(value)


def has_fields(value: Any) -> bool:
    """Tell whether a value is an object that a declared table could stand for."""
    return _has_fields(type(value))


def recorded_fields(made: Any) -> dict[str, Any]:
    """Return the fields of an object as a table, those that were left to their defaults too.

    Raises
    ------
    ArgumentError
        A field has no JSON form.
    """
    found = {}
    kind = adapter.struct_class(type(made))
    for one in field_infos(kind):
        value = getattr(made, one.name)
        try:
            found[one.name] = recorded(value)
        except TypeError:
            msg = f"field {one.name} of {kind.__name__} is a {type(value).__name__}, which a call could not be compared with"
            raise ArgumentError(msg) from None
    return found
