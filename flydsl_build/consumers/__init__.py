# SPDX-License-Identifier: Apache-2.0
"""What a wheel offers the callers of its launchers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flydsl_build.config.tables import Settings
    from flydsl_build.consumers.base import Consumer

__all__ = ["served_modules", "wanted_consumers"]


def wanted_consumers(settings: Settings) -> tuple[Consumer, ...]:
    """Return the consumers that a project asks for: that of Python callers first, which every wheel has."""
    from flydsl_build.consumers.python_stub import PythonStub
    from flydsl_build.consumers.torch import TorchOps

    return tuple(one for one in (PythonStub(), TorchOps()) if one.is_wanted(settings))


def served_modules(modules: Sequence[str], settings: Settings) -> list[str]:
    """Return the declared modules, then those that consumers add beside them."""
    return [f"{module}{consumer.suffix}" for consumer in wanted_consumers(settings) for module in modules]
