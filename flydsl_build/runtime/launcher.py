# SPDX-License-Identifier: Apache-2.0
"""The cold side of a launcher: what is asked of it other than to be called.

The type itself is made in C, because in Python 3.11 a Python subclass does not inherit the fast call protocol. Its other
attributes are these functions, put on the type when the run time is imported.
"""

from __future__ import annotations

from . import _native

TYPE_CHECKING = False
if TYPE_CHECKING:
    from inspect import Signature
    from typing import Any

__all__ = ["Specialization", "complete_type"]


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


def _signature(launcher: Any) -> Signature:
    from inspect import Parameter, Signature  # noqa: PLC0415 - slow to import, and seldom asked for

    entry = launcher._handle._launcher_entry(launcher._name)  # noqa: SLF001 - the two are one thing
    return Signature(
        [
            Parameter(
                parameter["name"],
                Parameter.__dict__[parameter["kind"]],
                default=parameter.get("default") if "default" in parameter else Parameter.empty,
                annotation=parameter.get("annotation") or Parameter.empty,
            )
            for parameter in entry["parameters"]
        ]
    )


def _doc(launcher: Any) -> str | None:
    doc: str | None = launcher._handle._launcher_entry(launcher._name).get("doc")  # noqa: SLF001
    return doc


def _specializations(launcher: Any) -> tuple[Specialization, ...]:
    entry = launcher._handle._launcher_entry(launcher._name)  # noqa: SLF001
    return tuple(Specialization(item) for item in entry["specializations"])


def _load(launcher: Any, device: int | None = None) -> None:
    """Load the launcher's module on a device (the current one), so that no later call has to."""
    launcher._handle.load(device)  # noqa: SLF001


def _repr(launcher: Any) -> str:
    return f"<FlyDSL launcher {launcher.__module__}.{launcher._name}>"  # noqa: SLF001


def _reduce(launcher: Any) -> str:
    """Pickle by reference, as functions are; so `copy` returns the launcher itself, too."""
    name: str = launcher._name  # noqa: SLF001
    return name


def complete_type() -> None:
    """Put the cold attributes on the native type."""
    launcher_type: Any = _native.Launcher
    launcher_type.__signature__ = property(_signature)
    launcher_type.__doc__ = property(_doc)
    launcher_type.specializations = property(_specializations)
    launcher_type.load = _load
    launcher_type.__repr__ = _repr
    launcher_type.__reduce__ = _reduce
