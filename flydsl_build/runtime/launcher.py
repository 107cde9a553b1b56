# SPDX-License-Identifier: Apache-2.0
"""The cold side of a launcher: what is asked of it other than to be called.

The type itself is made in C, because in Python 3.11 a Python subclass does not inherit the fast call protocol. Its other
attributes are these functions, put on the type when the run time is imported.
"""

from __future__ import annotations

from . import _native
from .annotations import Any, Callable, Iterable
from .errors import CorruptFileError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .module import ModuleHandle
else:
    # That module imports this one.
    ModuleHandle = object

__all__ = ["Factory", "Specialization", "complete_type"]


class Specialization:
    """One compiled form of a launcher: `name`, `constexpr`, `params`, `element`, `targets`, and `arguments` as text."""

    __slots__ = ("arguments", "constexpr", "element", "name", "params", "targets")

    def __init__(self, entry: dict[str, Any], arguments: dict[str, str]) -> None:
        self.name: str = entry["name"]
        self.constexpr: dict[str, Any] = dict(entry["constexpr"])
        self.params: dict[str, Any] = dict(entry.get("params") or {})
        self.element: str | None = entry.get("element")
        self.targets: tuple[str, ...] = tuple(entry["targets"])
        self.arguments: dict[str, str] = arguments

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}: {text}" for name, text in (*self.constexpr.items(), *self.arguments.items()))
        return f"<{self.name}({arguments}) for {', '.join(self.targets)}>"


def _read_all(handle: ModuleHandle, entries: Iterable[tuple[int, dict[str, Any]]]) -> tuple[Specialization, ...]:
    try:
        return tuple(Specialization(entry, handle._expected(position, entry)) for position, entry in entries)  # noqa: SLF001
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise CorruptFileError(handle._file, f"{type(error).__name__}: {error}") from error  # noqa: SLF001


class Factory:
    """A function or class of the source module that returns launchers, for the parameters that were declared.

    The same parameters give the same launchers.
    """

    def __init__(self, handle: ModuleHandle, function: Callable[..., Any]) -> None:
        self.handle = handle
        # By positions of specializations, and the target if what is returned depends on it: that, and the launchers in it by name.
        self.made: dict[tuple[tuple[int, ...], str | None], tuple[Any, dict[str | None, Any]]] = {}
        self.__module__ = handle.name
        self.__name__ = function.__name__
        self.__qualname__ = function.__qualname__
        self.__doc__ = function.__doc__
        self.__wrapped__ = function

    def __repr__(self) -> str:
        return f"<FlyDSL factory {self.__module__}.{self.__qualname__}>"

    def __reduce__(self) -> str:
        """Pickle by reference, as functions are."""
        return self.__qualname__

    @property
    def specializations(self) -> tuple[Specialization, ...]:
        """All that was built, for every value of the parameters."""
        return _read_all(self.handle, self.handle._numbered(self.handle._entry(self.__qualname__)))  # noqa: SLF001

    def load(self, device: int | None = None) -> None:
        """Load the module on a device (the current one), so that no later call has to."""
        self.handle.load(device)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the factory of the source returns for these parameters: a launcher, or launchers and values as it returns them.

        Raises
        ------
        ValueError
            If the wheel was not built for them; the text lists what it was built for, and what to declare.
        """
        from .factory import call_factory

        return call_factory(self, args, kwargs)


def _doc(launcher: Any) -> str | None:
    wrapped = launcher.__dict__.get("__wrapped__")
    doc: str | None
    if wrapped is not None:
        doc = wrapped.__doc__
    else:
        _, chosen = launcher._handle._selected(launcher._name)  # noqa: SLF001
        doc = chosen[0][1].get("doc") or f"Launch what {launcher._name} returned."  # noqa: SLF001
    return doc


def _signature(launcher: Any) -> Any:
    from inspect import Parameter, Signature, signature

    wrapped = launcher.__dict__.get("__wrapped__")
    if wrapped is not None:
        return signature(wrapped)
    from .description import plain_value
    from .enums import Member

    def default_of(parameter: dict[str, Any]) -> Any:
        default = plain_value(parameter.get("default", Parameter.empty))
        return default.member if isinstance(default, Member) else default

    # What a factory returned has no function in the stub.
    entry, _ = launcher._handle._selected(launcher._name)  # noqa: SLF001
    return Signature(
        [
            Parameter(
                parameter["name"],
                getattr(Parameter, parameter["kind"]),
                default=default_of(parameter),
            )
            for parameter in entry["parameters"]
        ]
    )


def _specializations(launcher: Any) -> tuple[Specialization, ...]:
    """Return what the launcher chooses from at a call, in this order."""
    _, chosen = launcher._handle._selected(launcher._name)  # noqa: SLF001
    return _read_all(launcher._handle, chosen)  # noqa: SLF001


def _load(launcher: Any, device: int | None = None) -> None:
    """Load the launcher's module on a device (the current one), so that no later call has to."""
    launcher._handle.load(device)  # noqa: SLF001


def _repr(launcher: Any) -> str:
    return f"<FlyDSL launcher {launcher.__module__}.{launcher._name}>"  # noqa: SLF001


def _attribute(launcher: Any, name: str) -> Any:
    """Return what the launcher of the source has beside that: what is set on this one is found before this is called."""
    if name == "compile_hints":
        # They are compiled in.
        return vars(launcher).setdefault(name, {})
    # Python and tools ask every object for names of theirs. The native attributes are missing while the launcher is taken apart.
    if not name.startswith("__") and name not in {"_handle", "_name", "_origin"}:
        from .factory import find_attribute

        try:
            return find_attribute(launcher, name)
        except KeyError:
            pass
    msg = f"{launcher!r} has no attribute {name!r}"
    raise AttributeError(msg, name=name, obj=launcher)


def _reduce(launcher: Any) -> Any:
    """Pickle by reference, as functions are; so `copy` returns the launcher itself, too."""
    origin = launcher.__dict__.get("_origin")
    if origin is None:
        return launcher._name  # noqa: SLF001
    from .factory import make_again

    return make_again, origin


def _bound_signature(_: Any) -> Any:
    from inspect import Signature

    return Signature()


def complete_type() -> None:
    """Put the cold attributes on the native types."""
    bound_type: Any = _native.Bound
    bound_type.__signature__ = property(_bound_signature)
    launcher_type: Any = _native.Launcher
    launcher_type.__signature__ = property(_signature)
    launcher_type.__doc__ = property(_doc)
    launcher_type.specializations = property(_specializations)
    launcher_type.load = _load
    launcher_type.__getattr__ = _attribute
    launcher_type.__repr__ = _repr
    launcher_type.__reduce__ = _reduce
