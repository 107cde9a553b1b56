# SPDX-License-Identifier: Apache-2.0
"""Evaluate annotations one by one, and take apart what they admit."""

from __future__ import annotations

import collections.abc
import dataclasses
import inspect
import pathlib
import sys
import types
import typing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flydsl_build.frontends.flydsl import adapter
from flydsl_build.jobs.author_code import text_of

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Unreadable", "admitted", "evaluated", "evaluated_fields", "evaluated_signature", "starred_name"]

# What modules import for type checkers only, where annotations are text.
_FOR_TYPE_CHECKERS = {**vars(pathlib), **vars(collections.abc), **vars(typing), "typing": typing}
_EMPTY = inspect.Parameter.empty


@dataclass(frozen=True, slots=True)
class Unreadable:
    """An annotation that cannot be evaluated.

    Parameters
    ----------
    text
        What stands in the source.
    reason
        The error.
    """

    text: str
    reason: str


def evaluated(annotation: Any, names: Mapping[str, Any]) -> Any:
    """Return an annotation without text in it; `Unreadable` if that cannot be evaluated with these global names."""
    names = {**_FOR_TYPE_CHECKERS, **names}
    try:
        found = eval(annotation, names) if isinstance(annotation, str) else annotation  # noqa: S307 - the author's own code
        try:
            # Text may be inside of it, as in `Optional["Mode"]`.
            return typing.get_type_hints(types.SimpleNamespace(__annotations__={"it": found}), names, include_extras=True)["it"]
        except TypeError:
            # No type, such as a list of words: says nothing.
            return found
    except BaseException as error:  # noqa: BLE001 - evaluating annotations runs the author's code
        text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
        return Unreadable(text, text_of(error))


def evaluated_signature(function: Any) -> inspect.Signature:
    """Return the signature of what can be called, with evaluated annotations.

    Raises
    ------
    ValueError, TypeError
        It tells no signature.
    """
    signature = inspect.signature(function)
    names = _names_of(function)
    return signature.replace(
        parameters=[
            one if one.annotation is _EMPTY else one.replace(annotation=evaluated(one.annotation, names))
            for one in signature.parameters.values()
        ]
    )


def _names_of(function: Any) -> Mapping[str, Any]:
    makers = (getattr(function, name, None) for name in ("__init__", "__new__", "__call__"))
    for one in (function, *makers):
        plain = inspect.unwrap(getattr(one, "func", one))
        found = getattr(getattr(plain, "__func__", plain), "__globals__", None)
        if found is not None:
            return found  # type: ignore[no-any-return]
    return {}


def starred_name(parameter: inspect.Parameter) -> str:
    """Return the name of a parameter with the stars that it has in the source."""
    return "*" * (parameter.kind is parameter.VAR_POSITIONAL) + "**" * (parameter.kind is parameter.VAR_KEYWORD) + parameter.name


def evaluated_fields(kind: type) -> dict[str, Any]:
    """Return the evaluated annotations of a class and its bases by name."""
    found: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        names = {**vars(sys.modules.get(base.__module__, types)), **vars(base)}
        found.update((name, evaluated(one, names)) for name, one in inspect.get_annotations(base).items())
    return found


def admitted(annotation: Any) -> tuple[Any, ...]:  # noqa: PLR0911 - one line for each thing that stands for others
    """Return the types that an annotation admits, each of them once: unions, `Annotated`, `NewType` and the like are taken apart."""
    if annotation is _EMPTY:
        return (Any,)
    if isinstance(annotation, dataclasses.InitVar):
        return admitted(annotation.type)
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if adapter.parameter_role(annotation) == "constexpr":
        return admitted(adapter.constexpr_type(annotation))
    if origin in {typing.Union, types.UnionType}:
        return tuple(dict.fromkeys(inner for one in arguments for inner in admitted(one)))
    if origin in {typing.Annotated, typing.Final, typing.ClassVar}:
        return admitted(arguments[0])
    if isinstance(annotation, typing.NewType):
        return admitted(annotation.__supertype__)
    if isinstance(annotation, typing.TypeVar):
        choices = annotation.__constraints__ or (annotation.__bound__ or Any,)
        return tuple(inner for one in choices for inner in admitted(one))
    # `type X = …` of Python 3.12.
    value = getattr(annotation, "__value__", None)
    if value is not None and type(annotation).__name__ == "TypeAliasType":
        return admitted(value)
    return (type(None),) if annotation is None else (annotation,)
