# SPDX-License-Identifier: Apache-2.0
"""The cold side of a launcher: what is asked of it other than to be called.

The type itself is made in C, because in Python 3.11 a Python subclass does not inherit the fast call protocol. Its other
attributes are these functions, put on the type when the run time is imported.
"""

from __future__ import annotations

from . import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from .module import ModuleHandle

__all__ = ["Factory", "Specialization", "complete_type", "same_params"]


class Specialization:
    """One compiled form of a launcher: `name`, `constexpr`, `params`, `targets`, and `arguments` as text."""

    __slots__ = ("arguments", "constexpr", "name", "params", "targets")

    def __init__(self, entry: dict[str, Any]) -> None:
        from .description import spell_argument  # noqa: PLC0415 - cold

        self.name: str = entry["name"]
        self.constexpr: dict[str, Any] = dict(entry["constexpr"])
        self.params: dict[str, Any] = dict(entry.get("params") or {})
        self.targets: tuple[str, ...] = tuple(entry["targets"])
        self.arguments: dict[str, str] = {name: spell_argument(argument) for name, argument in entry["arguments"].items()}

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}: {text}" for name, text in (*self.constexpr.items(), *self.arguments.items()))
        return f"<{self.name}({arguments}) for {', '.join(self.targets)}>"


def same_params(built: Mapping[str, Any], given: Mapping[str, Any]) -> bool:
    """Say whether a specialization was built for these parameters of its factory."""
    return all(_same(value, given.get(name)) for name, value in built.items())


def _same(built: Any, given: Any) -> bool:
    if isinstance(built, list):  # the manifest's spelling of a tuple
        return isinstance(given, list | tuple) and len(built) == len(given) and all(map(_same, built, given))
    return bool(built == given)


class Factory:
    """A function of the source module that returns a launcher, for the parameters that were declared.

    The same parameters give the same launcher.
    """

    def __init__(self, handle: ModuleHandle, function: Callable[..., Any]) -> None:
        self._handle = handle
        self._made: dict[tuple[int, ...], Any] = {}
        self.__module__ = handle.name
        self.__name__ = self.__qualname__ = function.__name__
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def __repr__(self) -> str:
        return f"<FlyDSL factory {self.__module__}.{self.__name__}>"

    def __reduce__(self) -> str:
        """Pickle by reference, as functions are."""
        return self.__name__

    @property
    def specializations(self) -> tuple[Specialization, ...]:
        """All that was built, for every value of the parameters."""
        return tuple(Specialization(entry) for entry in self._handle._entry(self.__name__)["specializations"])  # noqa: SLF001

    def load(self, device: int | None = None) -> None:
        """Load the module on a device (the current one), so that no later call has to."""
        self._handle.load(device)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the launcher for these parameters.

        Raises
        ------
        ValueError
            If the wheel was not built for them; the text lists what it was built for.
        """
        from inspect import signature  # noqa: PLC0415 - a factory is called once, not at each launch

        bound = signature(self.__wrapped__).bind(*args, **kwargs)
        bound.apply_defaults()
        params = dict(bound.arguments)
        entries = self._handle._entry(self.__name__)["specializations"]  # noqa: SLF001
        key = tuple(position for position, entry in enumerate(entries) if same_params(entry["params"], params))
        if not key:
            built = dict.fromkeys(_spell(self.__name__, entry["params"]) for entry in entries)
            lines = "".join(f"\n    {line}" for line in built)
            msg = f"{_spell(self.__name__, params)}: the wheel was not built for these parameters, only for:{lines}"
            raise ValueError(msg)
        if key not in self._made:
            chosen = {name: params[name] for name in entries[key[0]]["params"]}
            made = self._handle._make_launcher(_spell(self.__name__, chosen), self.__name__, chosen, None)  # noqa: SLF001
            made._origin = (self, chosen)  # noqa: SLF001
            self._made.setdefault(key, made)
        return self._made[key]


def _spell(name: str, params: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in params.items())})"


def _make_again(factory: Factory, params: dict[str, Any]) -> Any:
    return factory(**params)


def _doc(launcher: Any) -> str | None:
    wrapped = launcher.__dict__.get("__wrapped__")
    doc: str | None = wrapped.__doc__ if wrapped is not None else launcher._handle._selected(launcher._name)[0].get("doc")  # noqa: SLF001
    return doc


def _signature(launcher: Any) -> Any:
    from inspect import Parameter, Signature, signature  # noqa: PLC0415 - slow to import, and seldom asked for

    wrapped = launcher.__dict__.get("__wrapped__")
    if wrapped is not None:
        return signature(wrapped)
    # What a factory returned has no function in the stub.
    entry, _ = launcher._handle._selected(launcher._name)  # noqa: SLF001
    return Signature(
        [
            Parameter(
                parameter["name"],
                getattr(Parameter, parameter["kind"]),
                default=parameter.get("default", Parameter.empty),
            )
            for parameter in entry["parameters"]
        ]
    )


def _specializations(launcher: Any) -> tuple[Specialization, ...]:
    """Return what the launcher chooses from at a call, in this order."""
    _, chosen = launcher._handle._selected(launcher._name)  # noqa: SLF001
    return tuple(Specialization(entry) for _, entry in chosen)


def _load(launcher: Any, device: int | None = None) -> None:
    """Load the launcher's module on a device (the current one), so that no later call has to."""
    launcher._handle.load(device)  # noqa: SLF001


def _repr(launcher: Any) -> str:
    return f"<FlyDSL launcher {launcher.__module__}.{launcher._name}>"  # noqa: SLF001


def _reduce(launcher: Any) -> Any:
    """Pickle by reference, as functions are; so `copy` returns the launcher itself, too."""
    origin = launcher.__dict__.get("_origin")
    return launcher._name if origin is None else (_make_again, origin)  # noqa: SLF001


def complete_type() -> None:
    """Put the cold attributes on the native type."""
    launcher_type: Any = _native.Launcher
    launcher_type.__signature__ = property(_signature)
    launcher_type.__doc__ = property(_doc)
    launcher_type.specializations = property(_specializations)
    launcher_type.load = _load
    launcher_type.__repr__ = _repr
    launcher_type.__reduce__ = _reduce
