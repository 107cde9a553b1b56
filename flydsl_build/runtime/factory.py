# SPDX-License-Identifier: Apache-2.0
"""Factories: functions and classes of the source that return launchers, for the parameters that a wheel was built for."""

from __future__ import annotations

from inspect import BoundArguments, signature

from . import _native
from .annotations import Any, Collection, Mapping
from .description import LEFT_OUT, field_of, plain_value, returned_value, same_value
from .driver import ask_driver
from .dtypes import TYPE_NAMES
from .enums import Member, same_kind, spelled
from .errors import UnsupportedTargetError
from .launcher import Factory

__all__ = ["Returned", "call_factory", "explain_constants", "find_attribute", "make_again"]

_SHOWN = 5


def call_factory(factory: Factory, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what the factory of the source returns for these arguments: a launcher, or launchers and values as it returns them.

    Raises
    ------
    ValueError
        If the wheel was not built for them.
    NoDeviceError, UnsupportedTargetError
        If the factory returns values that differ between targets, and there is no device that one of them is for.
    """
    try:
        bound = signature(factory.__wrapped__).bind(*args, **kwargs)
    except TypeError as error:
        msg = f"{factory.__qualname__}(): {error}"
        raise TypeError(msg) from None
    given = _by_name(bound)
    bound.apply_defaults()
    return _find(factory, _by_name(bound), given)[0]


def make_again(factory: Factory, params: dict[str, Any], element: str | None) -> Any:
    """Return the launcher that a factory made for these parameters; what pickles of launchers refer to."""
    return _find(factory, params, params)[1][element]


def _return_again(factory: Factory, params: dict[str, Any]) -> Any:
    return _find(factory, params, params)[0]


def _find(factory: Factory, params: dict[str, Any], given: Collection[str]) -> tuple[Any, dict[str | None, Any]]:
    """Return what the factory made, or make it, for parameters of which `given` were not left to their defaults."""
    entry = factory.handle._entry(factory.__qualname__)  # noqa: SLF001
    built = entry["specializations"]
    own = {one["name"]: one for one in entry.get("factory_parameters") or ()}
    fitting = [position for position, one in enumerate(built) if _fits(one["params"], params, given, own)]
    positions = _prefer_same_types(built, fitting, params)
    if not positions:
        known = {name for one in built for name in one["params"]}
        asked = {name: value for name, value in params.items() if name in given or name in known}
        name = factory.__qualname__
        raise ValueError(_explain_unbuilt(f"{factory.__module__}:{name}", name, "params", [one["params"] for one in built], asked))
    target, returned = _values(factory, [built[position] for position in positions])
    if (positions, target) not in factory.made:
        values = built[positions[0]]["params"]
        chosen = {name: plain_value(values[name]) for name in params if name in values}
        # Of two threads, both get what the first one made.
        factory.made.setdefault((positions, target), _make(factory, entry, positions, chosen, returned))
    return factory.made[positions, target]


def _values(factory: Factory, chosen: list[dict[str, Any]]) -> tuple[str | None, dict[str, Any]]:
    """Return the plain values that the factory returns beside launchers, with the target they are for if that makes a difference.

    Module constants of the source may depend on the chip that it was imported for; in a wheel, this is the current device's.
    """
    by_target = {target: values for one in chosen for target, values in (one.get("values") or {}).items()}
    first: dict[str, Any] = next(iter(by_target.values()), {})
    if all(repr(values) == repr(first) for values in by_target.values()):
        return None, first
    what = f"{factory.__module__}.{factory.__qualname__} returns values that depend on the chip, and for these parameters it"
    target = _current_target(factory.handle, by_target, what)
    return target, by_target[target]


def _current_target(handle: Any, built_for: Collection[str], what: str) -> str:
    """Return the target that the current device uses, which must be one that something was built for."""
    device = handle._device(None)  # noqa: SLF001
    target: str = handle._choose(ask_driver(_native.target, device), device)  # noqa: SLF001
    if target not in built_for:
        msg = f"{what} was built for {', '.join(built_for)}, not for {target}, which device {device} uses\n    -> build it for {target} too"
        raise UnsupportedTargetError(msg, name=handle.name)
    return target


def _recorded_attributes(handle: Any, spelling: str) -> dict[str, dict[str, Any]]:
    """Return the attributes of a launcher by target. Those of one target are the same for all of its specializations."""
    found: dict[str, dict[str, Any]] = {}
    for _, one in handle._selected(spelling)[1]:  # noqa: SLF001
        recorded = one.get("attributes") or {}
        for target in one["targets"]:
            found.setdefault(target, recorded.get(target, {}))
    return found


def find_attribute(launcher: Any, name: str) -> Any:
    """Return what the source set as an attribute of a launcher. What is not the same for every chip is that of the current device.

    Raises
    ------
    KeyError
        It set none of the name.
    NoDeviceError, UnsupportedTargetError
        If the value depends on the chip, and there is no device that the launcher was built for.
    """
    handle, spelling = launcher._handle, launcher._name  # noqa: SLF001
    by_target = handle._attributes.get(spelling)  # noqa: SLF001
    if by_target is None:
        by_target = handle._attributes[spelling] = _recorded_attributes(handle, spelling)  # noqa: SLF001
    with_it = {target: recorded[name] for target, recorded in by_target.items() if name in recorded}
    first = next(iter(with_it.values())) if with_it else None
    if (with_it and len(with_it) < len(by_target)) or any(repr(value) != repr(first) for value in with_it.values()):
        what = f"{launcher.__module__}.{launcher._name}.{name} depends on the chip, and the launcher"  # noqa: SLF001
        return returned_value(with_it[_current_target(handle, by_target, what)])
    # Of lists, whoever changes it means this one.
    return vars(launcher).setdefault(name, returned_value(with_it[next(iter(with_it), "")]))


def _make(
    factory: Factory, entry: dict[str, Any], positions: tuple[int, ...], params: dict[str, Any], values: dict[str, Any]
) -> tuple[Any, dict[str | None, Any]]:
    spelling = _spell(factory.__qualname__, params)

    def launcher(spelling: str, positions: tuple[int, ...], element: str | None) -> Any:
        made = factory.handle._make_launcher(spelling, factory.__qualname__, positions, None)  # noqa: SLF001
        made._origin = (factory, params, element)  # noqa: SLF001
        return made

    returns = entry.get("returns")
    if returns is None:
        only = launcher(spelling, positions, None)
        return only, {None: only}
    form = returns["form"]
    members: dict[str, Any] = {}
    launchers: dict[str | None, Any] = {}
    for name in returns["names"]:
        mine = tuple(position for position in positions if entry["specializations"][position]["element"] == name)
        # With other parameters, the factory may return more.
        if mine:
            place = f"[{len(members)}]" if form == "tuple" else f"[{name!r}]" if form == "dict" else f".{name}"
            members[name] = launchers[name] = launcher(spelling + place, mine, name)
        elif name in values:
            members[name] = returned_value(values[name])
    return _return_as(form, factory, params, members), launchers


class Returned:
    """What a factory returned whose source returns an object: its launchers and plain values are attributes."""

    __slots__ = ("__dict__", "__origin", "__weakref__")

    def __init__(self, origin: tuple[Factory, dict[str, Any]], members: dict[str, Any]) -> None:
        self.__origin = origin
        self.__dict__.update(members)

    def __repr__(self) -> str:
        factory, params = self.__origin
        return f"<{', '.join(self.__dict__)} of {factory.__module__}.{_spell(factory.__qualname__, params)}>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        factory, params = self.__origin
        msg = (
            f"{_spell(factory.__qualname__, params)} has no {name}: the wheel was built with {', '.join(self.__dict__)}\n"
            f"    -> what is returned has to be named in `returns` of the declaration of {factory.__qualname__}"
        )
        raise AttributeError(msg)

    def __reduce__(self) -> Any:
        return _return_again, self.__origin


def _return_as(form: str, factory: Factory, params: dict[str, Any], members: dict[str, Any]) -> Any:
    if form == "dict":
        return dict(members)
    if form == "tuple":
        return tuple(members.values())
    origin = (factory, params)
    if form == "object":
        return Returned(origin, members)
    import collections

    # The fields are those of the manifest: nothing for a type checker to know.
    make: Any = collections.namedtuple  # noqa: PYI024
    bare = make(factory.__name__, members)
    # Made at run time, so that it cannot be pickled by its name.
    returned: Any = type(factory.__name__, (bare,), {"__slots__": (), "__reduce__": lambda _: (_return_again, origin)})
    return returned(**members)


def _by_name(bound: BoundArguments) -> dict[str, Any]:
    """Return the arguments of a call by name, those of a `**` parameter among them."""
    found: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        found.update(value if bound.signature.parameters[name].kind.name == "VAR_KEYWORD" else {name: value})
    return found


def _fits(built: Mapping[str, Any], params: Mapping[str, Any], given: Collection[str], own: Mapping[str, Any]) -> bool:
    """Say whether a specialization was built for these parameters of its factory.

    A parameter that was not recorded was left to its default, which cannot be compared: it fits if it was not given.
    """
    return all(name in built for name in given) and all(
        name in params and _is_of(own.get(name), params[name]) and same_value(built[name], params[name]) for name in built
    )


def _is_of(parameter: Mapping[str, Any] | None, given: object) -> bool:
    """Say whether a value can be what was built for a parameter: a type is no text, and where a list is annotated, a tuple is none."""
    if parameter is None:
        return True
    if isinstance(given, type) and parameter["role"] != "type":
        return False
    if isinstance(given, list | tuple) and not hasattr(given, "_fields"):
        words = set("".join(one if one.isalnum() else " " for one in (parameter.get("annotation") or "").lower()).split())
        wanted = words & {"list", "tuple"}
        return not wanted or type(given).__name__ in wanted
    return True


def _prefer_same_types(built: list[dict[str, Any]], fitting: list[int], params: Mapping[str, Any]) -> tuple[int, ...]:
    """Leave out what was built for a value that only equals the given one, where the very one was built: a member and its number."""
    for name, value in params.items():
        vague = {position for position in fitting if not _same_type(built[position]["params"].get(name, value), value)}
        if vague and any(
            same_value(one["params"][name], value) and _same_type(one["params"][name], value) for one in built if name in one["params"]
        ):
            fitting = [position for position in fitting if position not in vague]
    return tuple(fitting)


def _same_type(built: Any, given: Any) -> bool:
    """Say whether two values that are the same are also of one type, where both may be meant."""
    if built is given:
        return True
    if not same_kind(built, given):
        return False
    if isinstance(built, dict):
        return all(_same_type(value, field_of(given, name)) for name, value in built.items())
    if isinstance(built, list | tuple) and isinstance(given, list | tuple):
        return len(built) == len(given) and all(map(_same_type, built, given))
    return all(isinstance(built, kind) == isinstance(given, kind) for kind in (bool, int, float))


def _spell(name: str, params: Mapping[str, Any]) -> str:
    """Spell a call with its parameters."""
    return f"{name}({', '.join(f'{key}={spelled(value)}' for key, value in params.items())})"


# ---- parameters that were not built ----------------------------------------------------------------------------------


def explain_constants(handle: Any, spelling: str, given: dict[str, Any]) -> str:
    """Say what is nearest to the constexpr values of a launcher's call, and how to declare them."""
    entry, chosen = handle._selected(spelling)  # noqa: SLF001
    built = [one["constexpr"] for _, one in chosen]
    known = {name: value for name, value in given.items() if value is not LEFT_OUT}
    return _explain_unbuilt(f"{handle.name}:{entry['name']}", spelling, "constexpr", built, known)


def _explain_unbuilt(key: str, name: str, table: str, built: list[dict[str, Any]], asked: Mapping[str, Any]) -> str:
    """Say what is nearest to the values of a call, and how to declare them.

    Parameters
    ----------
    key, table
        Of the declaration.
    name
        What was called.
    """
    nearest_first: dict[str, dict[str, Any]] = {}
    for values in sorted(built, key=lambda values: _distance(values, asked)):
        ordered = sorted(values, key=lambda one: list(asked).index(one) if one in asked else len(asked))
        nearest_first.setdefault(_spell(name, {one: plain_value(values[one]) for one in ordered}), values)
    lines = list(nearest_first)
    of = "only for" if len(lines) <= _SHOWN else f"but for {len(lines)} others, the nearest of which are"
    what = "parameters" if table == "params" else "constexpr values"
    text = f"{_spell(name, asked)}: the wheel was not built for these {what}, {of}:"
    text += "".join(f"\n    {line}" for line in lines[:_SHOWN])
    varied = {one for one in asked if len({repr(values.get(one)) for values in built}) > 1}
    return f"{text}\n    -> {_remedy(key, table, nearest_first[lines[0]], asked, varied)}"


def _distance(built: Mapping[str, Any], params: Mapping[str, Any]) -> tuple[int, float, int]:
    """Return how many parameters differ, by how much where both values are numbers, and how many only one of the two has."""
    names = {*built, *params}
    differing = [name for name in names if not (name in built and name in params and same_value(built[name], params[name]))]
    distance = sum(_difference(built.get(name), params.get(name)) for name in differing)
    return len(differing), distance, len(set(built).symmetric_difference(params))


def _difference(built: Any, given: Any) -> float:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in (built, given))
    try:
        difference = abs(built - given) if numbers else float("inf")
    except OverflowError:  # an integer that is no float
        return float("inf")
    return difference if difference == difference else float("inf")  # noqa: PLR0124 - of NaNs nothing is near


def _remedy(key: str, table: str, nearest: Mapping[str, Any], params: Mapping[str, Any], varied: Collection[str]) -> str:
    """Return the line of pyproject.toml that adds the values.

    Parameters
    ----------
    varied
        Names of which several values were built: those are in a list there.
    """
    for name, value in params.items():
        unknown = nearest[name].unknown(value) if isinstance(nearest.get(name), Member) else ""
        if unknown:
            return f"{name}: {unknown}"
    for name, value in params.items():
        if value is None and nearest.get(name) is not None:
            return f"{name}=None cannot be declared: None is what a parameter is that is left out, where it is the default"
    texts = {name: _toml_like(value, nearest.get(name)) for name, value in params.items() if value is not None}
    for name, text in texts.items():
        if text is None:
            return f"{name}={params[name]!r} is nothing that can be declared: strings, numbers, booleans and lists of these can be"
    changed = [name for name in params if name not in nearest or not same_value(nearest[name], params[name])]
    if not changed and params.keys() == nearest.keys():
        return "pass a tuple where the wheel was built for one: a list is not equal to it"
    is_listed = changed and (changed[0] in varied or len(params) == 1)
    if len(changed) == 1 and is_listed and changed[0] in nearest and changed[0] in texts:
        addition = f"{table} = {{ {changed[0]} = [..., {texts[changed[0]]}] }}"
    else:
        # A value that is a list stands inside another list, because a list of values means one specialization for each.
        values = (f"{name} = {f'[{text}]' if isinstance(params[name], list | tuple) else text}" for name, text in texts.items())
        addition = f"{table} = [..., {{ {', '.join(values)} }}]"
    return f'add them where the wheel is built: [tool.flydsl-build.kernels."{key}"] {addition}'


def _toml_like(value: Any, like: Any) -> str | None:
    """Spell a value in TOML; of an object, the fields that a declared one has."""
    if not isinstance(like, dict):
        return _toml(value)
    fields = {name: _toml_like(field_of(value, name), inner) for name, inner in like.items()}
    return None if None in fields.values() else f"{{ {', '.join(f'{name} = {text}' for name, text in fields.items())} }}"


def _toml(value: Any) -> str | None:
    """Spell a value in TOML; None for what a declaration cannot say."""
    from enum import Enum
    from json import dumps

    if isinstance(value, Enum):
        value = value.name or str(value.value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return float.__repr__(value)
    if isinstance(value, str) or (isinstance(value, type) and value.__name__ in TYPE_NAMES):
        return dumps(TYPE_NAMES[value.__name__] if isinstance(value, type) else str(value), ensure_ascii=False)
    if isinstance(value, list | tuple):
        items = [_toml(item) for item in value]
        return None if None in items else f"[{', '.join(map(str, items))}]"
    # Integers of numpy and the like, too.
    try:
        return str(value.__index__())
    except (AttributeError, TypeError):
        return None
