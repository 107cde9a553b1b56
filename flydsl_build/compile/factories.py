# SPDX-License-Identifier: Apache-2.0
"""Find in the author's module what a declaration names: a launcher, or a factory, which is called for its launchers.

A factory is anything that can be called: a function, or a class with launchers as methods. What it returns is a launcher, or
holds several, which the declaration names with `returns`.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flydsl_build.compile import flydsl_adapter
from flydsl_build.errors import did_you_mean

if TYPE_CHECKING:
    import types
    from collections.abc import Sequence

    from flydsl_build.declare.specialization import Specialization

__all__ = ["ResolveError", "Resolved", "Resolver", "takes_types", "type_value"]


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
        The launcher to compile.
    factory, signature
        The factory that returned it, and the factory's signature; None if the attribute is the launcher.
    form
        How the factory returned several launchers: "tuple", "namedtuple", "dict" or "object"; None if it returned one.
    elements
        All of the several, by name.
    """

    launcher: Any
    factory: Any = None
    signature: inspect.Signature | None = None
    form: str | None = None
    elements: Mapping[str, Any] = field(default_factory=dict)


class Resolver:
    """Resolves declarations of one module; calls each factory once for the same parameters."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module
        self._returned: dict[str, Any] = {}

    def resolve(self, specialization: Specialization) -> Resolved:
        """Return the launcher that a specialization names.

        Raises
        ------
        ResolveError
            There is none, or the factory fails or returns something else.
        """
        found = self._attribute(specialization)
        if specialization.params is None:
            return Resolved(launcher=_require_launcher(found, specialization))
        if not callable(found):
            raise ResolveError(
                f"{specialization.attribute} has `params` but is a {type(found).__name__}, which cannot be called",
                "declare a factory that returns a launcher, or remove `params`",
            )
        signature = _signature(found, specialization)
        # 1, 1.0 and True are equal as keys, and are different parameters.
        key = repr((specialization.attribute, specialization.params))
        if key not in self._returned:
            self._returned[key] = _call(found, signature, specialization)
        returned = self._returned[key]
        if specialization.element is None:
            return Resolved(launcher=_single(returned, specialization), factory=found, signature=signature)
        form, elements = _several(returned, specialization)
        return Resolved(launcher=elements[specialization.element], factory=found, signature=signature, form=form, elements=elements)

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
    launcher = _launcher_of(found)
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
    raise ResolveError(f"{specialization.attribute} is not a FlyDSL launcher but a {kind}", fix)


def _launcher_of(found: Any) -> Any:
    """Return the launcher that the object is, or that calling it means; None if it is none."""
    if flydsl_adapter.is_launcher(found):
        return found
    if not inspect.isclass(found) and flydsl_adapter.is_launcher(inspect.getattr_static(type(found), "__call__", None)):
        return found.__call__
    return None


# --- calling a factory -------------------------------------------------------------------------------------------------


def _signature(factory: Any, specialization: Specialization) -> inspect.Signature:
    # Annotations say which parameters are types. Evaluating them runs the author's code; those where that fails stay text.
    with contextlib.suppress(BaseException):
        return inspect.signature(factory, eval_str=True)
    try:
        return inspect.signature(factory)
    except (ValueError, TypeError) as error:
        raise ResolveError(
            f"{specialization.attribute} does not tell its parameters ({error})", "declare a function or class that is written in Python"
        ) from None


def _call(factory: Any, signature: inspect.Signature, specialization: Specialization) -> Any:
    given = {}
    for name, value in specialization.params or ():
        parameter = signature.parameters.get(name)
        try:
            given[name] = type_value(parameter, value) if parameter is not None else value
        except flydsl_adapter.ArgumentError as error:
            raise ResolveError(f"params.{name}: {error}", "write the name of a FlyDSL type") from None
    _check_given(given, signature, specialization)
    positional = [name for name, one in signature.parameters.items() if one.kind is one.POSITIONAL_ONLY and name in given]
    try:
        return factory(*(given[name] for name in positional), **{name: given[name] for name in given if name not in positional})
    except BaseException as error:
        raise ResolveError(f"the factory {specialization.attribute} failed", "see the author's lines below", error) from error


def _check_given(given: Mapping[str, Any], signature: inspect.Signature, specialization: Specialization) -> None:
    """Refuse parameters that the factory does not have, or has and does not get."""
    parameters = signature.parameters.values()
    text = f"{specialization.attribute}({', '.join(signature.parameters)})"
    named = [one.name for one in parameters if one.kind not in {one.VAR_POSITIONAL, one.VAR_KEYWORD}]
    unknown = [name for name in given if name not in named]
    if unknown and not any(one.kind is one.VAR_KEYWORD for one in parameters):
        raise ResolveError(f"params.{unknown[0]}: {text} has no parameter {unknown[0]}", did_you_mean(unknown[0], named))
    missing = [one.name for one in parameters if one.name in named and one.default is one.empty and one.name not in given]
    if missing:
        raise ResolveError(
            f"params gives no value for {', '.join(missing)} of {text}",
            f"add {missing[0]} to params; only what has a default may be left out",
        )


def type_value(parameter: inspect.Parameter, value: Any) -> Any:
    """Return the FlyDSL type that a declared name means where the parameter takes types; otherwise the value itself.

    Raises
    ------
    ArgumentError
        There is no such type.
    """
    if isinstance(value, str) and takes_types(parameter):
        return flydsl_adapter.type_of_name(value)
    return value


def takes_types(parameter: inspect.Parameter) -> bool:
    """Tell whether a parameter is one for FlyDSL types: by its annotation, or because its default is one."""
    return flydsl_adapter.parameter_role(parameter.annotation) == "type" or flydsl_adapter.type_name(parameter.default) is not None


# --- what it returned --------------------------------------------------------------------------------------------------


def _single(returned: Any, specialization: Specialization) -> Any:
    launcher = _launcher_of(returned)
    if launcher is not None:
        return launcher
    fix = "return the @flyc.jit function"
    names = _launchers_in(returned)
    if names:
        fix = f"name its launchers: returns = {_list(names)}"
    elif isinstance(returned, tuple | list) and any(_launcher_of(item) for item in returned):
        odd, item = next((index, item) for index, item in enumerate(returned) if _launcher_of(item) is None)
        fix = f"return launchers only; item {odd} is a {type(item).__name__}"
    raise ResolveError(f"the factory {specialization.attribute} returned a {type(returned).__name__}, not a FlyDSL launcher", fix)


def _launchers_in(returned: Any) -> list[str]:
    """Propose the names with which `returns` could name the launchers that an object holds."""
    if isinstance(returned, Mapping):
        return [key for key, item in returned.items() if isinstance(key, str) and key.isidentifier() and _launcher_of(item) is not None]
    if _is_plain_sequence(returned):
        if not returned or not all(_launcher_of(item) is not None for item in returned):
            return []
        found: list[str] = []
        for item in returned:
            name = flydsl_adapter.plain_function(_launcher_of(item)).__name__
            found.append(f"{name}_{len(found)}" if name in found or not name.isidentifier() else name)
        return found
    if isinstance(returned, tuple):
        fields: tuple[str, ...] = getattr(returned, "_fields", ())
        return [name for name, item in zip(fields, returned, strict=True) if _launcher_of(item) is not None]
    # Statically: an attribute may be a property that does work.
    names = (name for name in dir(returned) if not name.startswith("_"))
    return [name for name in names if flydsl_adapter.is_launcher(inspect.getattr_static(returned, name, None))]


def _is_plain_sequence(returned: Any) -> bool:
    """Tell a tuple or list from a named tuple, whose items have names already."""
    return isinstance(returned, tuple | list) and not hasattr(returned, "_fields")


def _list(names: Sequence[str]) -> str:
    """Spell names as a TOML list."""
    return "[" + ", ".join(f'"{name}"' for name in names) + "]"


def _several(returned: Any, specialization: Specialization) -> tuple[str, dict[str, Any]]:
    """Return the form of what a factory returned, and the launchers that the declaration names."""
    names = specialization.returns
    factory = f"the factory {specialization.attribute}"
    if flydsl_adapter.is_launcher(returned):
        raise ResolveError(f"{factory} returned one launcher, and `returns` names {', '.join(names)}", "remove `returns`")
    proposed = _launchers_in(returned)
    if _is_plain_sequence(returned) and len(returned) != len(names):
        fix = f"name every item: returns = {_list(proposed)}" if proposed else "name every item, and return launchers only"
        raise ResolveError(f"{factory} returned {len(returned)} items, and `returns` names {len(names)}", fix)
    form, items = _items(returned, specialization)
    for name in names:
        if name not in items:
            what = f"{factory} returned a {type(returned).__name__} without {name}"
            raise ResolveError(what, did_you_mean(name, proposed) or "return launchers")
        launcher = _launcher_of(items[name])
        if launcher is None:
            what = f"{name} of what {factory} returned is a {type(items[name]).__name__}, not a FlyDSL launcher"
            raise ResolveError(what, f"name launchers only: returns = {_list(proposed)}" if proposed else "return launchers")
        items[name] = launcher
    return form, items


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
