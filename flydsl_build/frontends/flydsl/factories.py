# SPDX-License-Identifier: Apache-2.0
"""Find in the author's module what a declaration names: a launcher, or a factory, which is called for its launchers.

A factory is anything that can be called: a function, or a class with launchers as methods. What it returns is a launcher, or
holds launchers and plain values, which the declaration names with `returns`. Where a Python function stands in the place of a
launcher, the declaration says with `launcher` what the launcher in it is called.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from flydsl_build.errors import did_you_mean
from flydsl_build.frontends.flydsl import adapter, author_values, wrappers
from flydsl_build.frontends.flydsl.annotations import evaluated_signature, starred_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flydsl_build.declare.specialization import Specialization

__all__ = ["ResolveError", "Resolved", "Resolver"]

_SHOWN = 5
_PLAIN = "strings, numbers, booleans, None, members of enums, FlyDSL types, and tuples and lists of these"


class ResolveError(Exception):
    """The declaration does not fit the author's module.

    Parameters
    ----------
    what, fix
        As of a fault.
    cause
        What the author's code raised.
    """

    def __init__(self, what: str, fix: str, cause: BaseException | None = None) -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix
        self.cause = cause


@dataclass(frozen=True, kw_only=True, slots=True)
class Resolved:
    """What a declaration names.

    Parameters
    ----------
    launcher
        The launcher to compile; None if what the declaration names is a plain value.
    wrapper
        The Python function that the launcher was found inside of; None if it is what the source gives.
    factory, signature
        The factory that returned it, and the factory's signature; None if the attribute is the launcher.
    params
        The JSON form of what the factory was called with.
    classes
        The classes of the objects among that.
    form
        How the factory returned several things: "tuple", "namedtuple", "dict" or "object"; None if it returned one launcher.
    elements
        All launchers of the several, by name.
    values
        The JSON form of the plain values of the several, by name.
    """

    @property
    def attributes(self) -> dict[str, Any]:
        """The JSON form of the plain values that the source set as attributes of the launcher, or of the function around it."""
        around = self.wrapper if isinstance(self.wrapper, types.FunctionType) else None
        return author_values.attributes({**adapter.attributes_of(self.launcher), **(vars(around) if around else {})})

    launcher: Any
    wrapper: Any = None
    factory: Any = None
    signature: inspect.Signature | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    classes: tuple[type, ...] = ()
    form: str | None = None
    elements: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Call:
    """What a factory was called with: as it takes it, in JSON form, and the classes of objects that were made for it."""

    given: Mapping[str, Any]
    recorded: Mapping[str, Any]
    classes: tuple[type, ...]


class Resolver:
    """Resolves declarations of one module; calls each factory once for the same parameters."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module
        self._returned: dict[str, tuple[_Call, Any]] = {}

    def resolve(self, specialization: Specialization) -> Resolved:
        """Return the launcher that a specialization names.

        Raises
        ------
        ResolveError
            There is none, or the factory fails or returns something else.
        """
        found = self._attribute(specialization)
        if specialization.params is None:
            launcher = _require_launcher(found, specialization)
            return Resolved(launcher=launcher, wrapper=_wrapper(found, specialization))
        if not callable(found):
            raise ResolveError(
                f"{specialization.attribute} has `params` but is a {type(found).__name__}, which cannot be called",
                "declare a factory that returns a launcher, or remove `params`",
            )
        signature = _signature(found, specialization)
        # 1, 1.0 and True are equal as keys, and are different parameters.
        key = repr((specialization.attribute, specialization.params))
        if key not in self._returned:
            call = _prepare(signature, specialization)
            self._returned[key] = call, _call(found, signature, call, specialization)
        call, returned = self._returned[key]
        if specialization.element is None:
            one = Resolved(launcher=_single(returned, specialization), wrapper=_wrapper(returned, specialization))
        else:
            one = _several(returned, specialization)
        return replace(one, factory=found, signature=signature, params=call.recorded, classes=call.classes)

    def _attribute(self, specialization: Specialization) -> Any:
        found: Any = self._module
        for part in specialization.attribute.split("."):
            try:
                found = getattr(found, part)
            except AttributeError:
                raise ResolveError(
                    f"module {specialization.module} has no attribute {specialization.attribute}",
                    did_you_mean(part, [one for one in dir(found) if not one.startswith("_")]),
                ) from None
            except BaseException as error:
                what = f"{part} of {specialization.module}:{specialization.attribute} cannot be read"
                raise ResolveError(what, "see the author's lines below", error) from error
        return found


def _require_launcher(found: Any, specialization: Specialization) -> Any:
    launcher = _launcher_named(found, specialization)
    if launcher is not None:
        return launcher
    kind = type(found).__name__
    fix = "declare a @flyc.jit function"
    if kind == "KernelFunction":
        fix = "this is a @flyc.kernel function; declare the @flyc.jit function that launches it"
    elif inspect.isclass(found):
        names = _list(_launchers_in(found) or ["…"])
        fix = f"if its methods are launchers, give the constructor's arguments and their names: params = {{ … }}, returns = {names}"
    elif callable(found):
        fix = "if it is a factory that returns the launcher, give its parameters with `params = {...}`"
        inside = _propose_inner(found)
        fix += f"; if it is Python around a launcher, {inside}" if inside else ""
    raise ResolveError(f"{specialization.attribute} is not a FlyDSL launcher but a {kind}", fix)


def _launcher_of(found: Any) -> Any:
    """Return the launcher that the object is, or that calling it means; None if it is none."""
    if adapter.is_launcher(found):
        return found
    if not inspect.isclass(found) and adapter.is_launcher(inspect.getattr_static(type(found), "__call__", None)):
        return found.__call__
    return None


def _launcher_named(found: Any, specialization: Specialization, element: str = "") -> Any:
    """Return the launcher that the object is, or that it has inside under the name that the declaration gives.

    Raises
    ------
    ResolveError
        There is no launcher of this name inside.
    """
    launcher, inner = _launcher_of(found), dict(specialization.inner).get(element)
    if inner is None:
        return launcher
    place = f"launcher.{element}" if element else "launcher"
    title = f"{element} of what {specialization.attribute} returned" if element else specialization.attribute
    if not element and specialization.params is not None:
        title = f"what the factory {specialization.attribute} returned"
    if launcher is not None:
        what = f"{place}: {title} is a launcher itself, not a Python function around {inner}"
        raise ResolveError(what, "remove it")
    inside = ", ".join(wrappers.launchers_inside(found))
    fix = f"launchers inside of it: {inside}" if inside else "there is no launcher inside of it"
    try:
        launcher = wrappers.find_inside(found, inner)
    except KeyError as error:
        raise ResolveError(f"{place}: {title} is {_kind(found)}, in which there is no {error.args[0]}", fix) from None
    if not adapter.is_launcher(launcher):
        raise ResolveError(f"{place}: {inner} of {title} is {_kind(launcher)}, not a FlyDSL launcher", fix)
    return launcher


def _wrapper(found: Any, specialization: Specialization, element: str = "") -> Any:
    return found if element in dict(specialization.inner) else None


def _propose_inner(found: Any, element: str = "") -> str:
    """Say how a Python function's launchers could be declared; empty if it has none inside."""
    inside = wrappers.launchers_inside(found)
    if not inside:
        return ""
    signatures = [f"{path}({', '.join(adapter.signature_of(launcher).parameters)})" for path, launcher in list(inside.items())[:_SHOWN]]
    first = next(iter(inside))
    key = f'launcher = {{ {element} = "{first}" }}' if element else f'launcher = "{first}"'
    rest = f" and {len(inside) - _SHOWN} more" if len(inside) > _SHOWN else ""
    return f"ship a launcher from inside of it, without the Python around it: {key}. Inside are {', '.join(signatures)}{rest}"


# --- calling a factory -------------------------------------------------------------------------------------------------


def _signature(factory: Any, specialization: Specialization) -> inspect.Signature:
    try:
        return evaluated_signature(factory)
    except (ValueError, TypeError) as error:
        raise ResolveError(
            f"{specialization.attribute} does not tell its parameters ({error})", "declare a function or class that is written in Python"
        ) from None


def _prepare(signature: inspect.Signature, specialization: Specialization) -> _Call:
    """Make of declared parameters what the factory takes."""
    given, recorded = {}, {}
    others = next((one for one in signature.parameters.values() if one.kind is one.VAR_KEYWORD), None)
    for name, value in specialization.params or ():
        parameter = signature.parameters.get(name, others)
        if parameter is None:
            given[name] = recorded[name] = value
            continue
        try:
            given[name] = author_values.converted(value, parameter.annotation, parameter.default)
            recorded[name] = author_values.recorded(given[name], parameter.annotation, parameter.default)
        except adapter.ArgumentError as error:
            raise ResolveError(f"params.{name}: {error}", error.fix or "correct it", error.__cause__) from None
        except TypeError:
            what = f"params.{name}: a {type(given[name]).__name__} is nothing that a call could be compared with"
            raise ResolveError(what, "define its class in a module, outside of functions") from None
    _check_given(given, signature, specialization)
    defaults = (one.default for name, one in signature.parameters.items() if name not in given)
    objects = [one for one in (*given.values(), *defaults) if author_values.has_fields(one)]
    return _Call(given=given, recorded=recorded, classes=tuple(adapter.struct_class(type(one)) for one in objects))


def _call(factory: Any, signature: inspect.Signature, call: _Call, specialization: Specialization) -> Any:
    given = call.given
    # One of them that has its default may stand before one that is given.
    positional = {name: one.default for name, one in signature.parameters.items() if one.kind is one.POSITIONAL_ONLY}
    try:
        before = (given.get(name, default) for name, default in positional.items())
        return factory(*before, **{name: given[name] for name in given if name not in positional})
    except BaseException as error:
        raise ResolveError(f"the factory {specialization.attribute} failed", "see the author's lines below", error) from error


def _check_given(given: Mapping[str, Any], signature: inspect.Signature, specialization: Specialization) -> None:
    """Refuse parameters that the factory does not have, or has and does not get."""
    parameters = signature.parameters.values()
    text = f"{specialization.attribute}({', '.join(map(starred_name, parameters))})"
    named = [one.name for one in parameters if one.kind not in {one.VAR_POSITIONAL, one.VAR_KEYWORD}]
    unknown = [name for name in given if name not in named]
    if unknown and not any(one.kind is one.VAR_KEYWORD for one in parameters):
        if unknown[0] in signature.parameters:
            what = f"params.{unknown[0]}: *{unknown[0]} of {text} takes any number of arguments, which cannot be declared"
            raise ResolveError(what, f"declare a factory that takes {unknown[0]} as one parameter, without the star, or remove it")
        raise ResolveError(f"params.{unknown[0]}: {text} has no parameter {unknown[0]}", did_you_mean(unknown[0], named) or "remove it")
    missing = [one.name for one in parameters if one.name in named and one.default is one.empty and one.name not in given]
    if missing:
        raise ResolveError(
            f"params gives no value for {', '.join(missing)} of {text}",
            f"add {missing[0]} to params; only what has a default may be left out",
        )


# --- what it returned --------------------------------------------------------------------------------------------------


def _single(returned: Any, specialization: Specialization) -> Any:
    launcher = _launcher_named(returned, specialization)
    if launcher is not None:
        return launcher
    fix = "return the @flyc.jit function"
    names = _names_for(returned)
    if names:
        fix = f"name what it returns: returns = {_list(names)}"
    elif _is_plain_sequence(returned) and any(_launcher_of(item) for item in returned):
        odd, item = next((index, item) for index, item in enumerate(returned) if not _can_be_named(item))
        fix = f"item {odd} is {_kind(item)}, neither a launcher nor a plain value ({_PLAIN})"
        inside = _propose_inner(item)
        fix = f"{fix}; {inside}" if inside else f"{fix}: return launchers and plain values"
    else:
        fix = _propose_inner(returned) or fix
    raise ResolveError(f"the factory {specialization.attribute} returned {_kind(returned)}, not a FlyDSL launcher", fix)


def _kind(value: Any) -> str:
    """Name the type of a value, with its article, for messages."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def _can_be_named(item: Any) -> bool:
    """Tell whether `returns` can name an item: a launcher, or a plain value."""
    if _launcher_of(item) is not None:
        return True
    try:
        author_values.returned(item)
    except TypeError:
        return False
    return True


def _names_for(returned: Any) -> list[str]:
    """Propose the names with which `returns` could name what a factory returned; none if a launcher is not among it."""
    if _is_plain_sequence(returned):
        if not all(map(_can_be_named, returned)) or not any(_launcher_of(item) is not None for item in returned):
            return []
        found: list[str] = []
        for index, item in enumerate(returned):
            launcher = _launcher_of(item)
            name = f"value_{index}" if launcher is None else adapter.plain_function(launcher).__name__
            found.append(f"{name}_{len(found)}" if name in found or not name.isidentifier() else name)
        return found
    return _launchers_in(returned)


def _launchers_in(returned: Any) -> list[str]:
    """Return the names of the launchers that an object, a dict or a named tuple has."""
    if isinstance(returned, Mapping):
        return [key for key, item in returned.items() if isinstance(key, str) and key.isidentifier() and _launcher_of(item) is not None]
    if isinstance(returned, tuple):
        fields: tuple[str, ...] = getattr(returned, "_fields", ())
        return [name for name, item in zip(fields, returned, strict=True) if _launcher_of(item) is not None]
    # Statically: an attribute may be a property that does work. What a function has are no names of what is returned.
    if isinstance(returned, types.FunctionType):
        return []
    names = (name for name in dir(returned) if not name.startswith("_"))
    return [name for name in names if adapter.is_launcher(inspect.getattr_static(returned, name, None))]


def _is_plain_sequence(returned: Any) -> bool:
    """Tell a tuple or list from a named tuple, whose items have names already."""
    return isinstance(returned, tuple | list) and not hasattr(returned, "_fields")


def _list(names: Sequence[str]) -> str:
    """Spell names as a TOML list."""
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"


def _several(returned: Any, specialization: Specialization) -> Resolved:
    """Return the launcher or value that the declaration names, and all the others that it names of what a factory returned."""
    names = specialization.returns
    factory = f"the factory {specialization.attribute}"
    if adapter.is_launcher(returned):
        raise ResolveError(f"{factory} returned one launcher, and `returns` names {', '.join(names)}", "remove `returns`")
    proposed = _names_for(returned)
    if _is_plain_sequence(returned) and len(returned) != len(names):
        fix = f"name every item: returns = {_list(proposed)}" if proposed else f"name every item; they are launchers or {_PLAIN}"
        raise ResolveError(f"{factory} returned {len(returned)} items, and `returns` names {len(names)}", fix)
    form, items = _items(returned, specialization)
    launchers: dict[str, Any] = {}
    values: dict[str, Any] = {}
    for name in names:
        if name not in items:
            what = f"{factory} returned {_kind(returned)} without {name}"
            raise ResolveError(what, did_you_mean(name, proposed) or "return launchers")
        launcher = _launcher_named(items[name], specialization, name)
        if launcher is not None:
            launchers[name] = launcher
            continue
        try:
            values[name] = author_values.returned(items[name])
        except TypeError:
            raise _neither(name, items[name], factory, proposed) from None
    if specialization.args and specialization.element in values:
        what = f"args.{specialization.element}: {specialization.element} of what {factory} returned is a plain value"
        raise ResolveError(what, "remove the table, as it takes no arguments; if it is a launcher on other targets, return one on all")
    if not launchers:
        what = f"{factory} returned no launcher under the names of `returns`: {', '.join(names)}"
        raise ResolveError(what, f"name its launchers, too: {_list(proposed)}" if proposed else "return a launcher")
    element = specialization.element or ""
    return Resolved(
        launcher=launchers.get(element),
        wrapper=_wrapper(items[element], specialization, element),
        form=form,
        elements=launchers,
        values=values,
    )


def _neither(name: str, item: Any, factory: str, proposed: Sequence[str]) -> ResolveError:
    what = f"{name} of what {factory} returned is {_kind(item)}, neither a FlyDSL launcher nor a plain value"
    fix = _propose_inner(item, name)
    if not fix:
        fix = f"plain values are {_PLAIN}"
        fix += f"; launchers in it: {', '.join(proposed)}" if proposed else ""
    return ResolveError(what, fix)


def _items(returned: Any, specialization: Specialization) -> tuple[str, dict[str, Any]]:
    """Return the form of what a factory returned, and those of its items that have a name of the declaration."""
    names = specialization.returns
    if _is_plain_sequence(returned):
        return "tuple", dict(zip(names, returned, strict=True))
    if isinstance(returned, Mapping):
        return "dict", {name: returned[name] for name in names if name in returned}
    found = {}
    for name in names:
        try:
            found[name] = getattr(returned, name)
        except AttributeError:
            continue
        except BaseException as error:
            what = f"{name} of what the factory {specialization.attribute} returned cannot be read"
            raise ResolveError(what, "see the author's lines below", error) from error
    is_whole = isinstance(returned, tuple) and tuple(getattr(returned, "_fields", ())) == names
    return "namedtuple" if is_whole else "object", found
