# SPDX-License-Identifier: Apache-2.0
"""Errors that an author or builder is meant to read.

Every error says where (file, key, kernel, target), what was found, and what is allowed or what to do next. The faults of
one stage are collected and raised together in a `FaultGroup`, so that one build shows them all.
"""

from __future__ import annotations

import difflib
import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = [
    "UNWRITABLE",
    "BuildError",
    "CompileError",
    "ConfigError",
    "Fault",
    "FaultCollector",
    "ToolchainError",
    "VerifyError",
    "did_you_mean",
]


UNWRITABLE = (errno.EACCES, errno.EPERM, errno.EROFS)
"""What the system says of a place that may be read and not written: it is not full, and not broken."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fault:
    """One thing that is wrong.

    Parameters
    ----------
    where
        The place, outermost first: a TOML key, a file and line, a kernel and target.
    what
        What was found there.
    fix
        What is allowed, or what to do next. Empty only where nothing can be said.
    detail
        Further lines (an excerpt of the author's source, a tool's own message), shown indented.
    """

    where: str
    what: str
    fix: str = ""
    detail: str = ""

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        if self.fix:
            text += f"\n    -> {self.fix}"
        if self.detail:
            text += "\n" + "\n".join("    | " + line for line in self.detail.rstrip().splitlines())
        return text


class BuildError(Exception):
    """Base of all errors caused by the project being built or by the machine, never by a bug in flydsl-build.

    Parameters
    ----------
    faults
        All faults of the stage that failed; at least one.
    """

    stage = "build"

    def __init__(self, *faults: Fault) -> None:
        if not faults:
            msg = "a BuildError needs at least one fault"
            raise ValueError(msg)
        self.faults: tuple[Fault, ...] = faults
        super().__init__(self._text())

    def _text(self) -> str:
        if len(self.faults) == 1:
            return str(self.faults[0])
        return f"{len(self.faults)} faults:\n" + "\n".join(f"  {n}. {fault}" for n, fault in enumerate(self.faults, 1))


class ConfigError(BuildError):
    """A fault in the `[tool.flydsl-build]` table, a config setting or an environment variable."""

    stage = "configuration"


class CompileError(BuildError):
    """A kernel that could not be imported, traced or compiled."""

    stage = "compile"


class ToolchainError(BuildError):
    """A tool or file the compiler needs that was not found."""

    stage = "toolchain"


class VerifyError(BuildError):
    """A compiled artefact that is not what was asked for."""

    stage = "verification"


class FaultCollector:
    """Collect the faults of one stage and raise them together."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def add(self, where: str, what: str, fix: str = "", detail: str = "") -> None:
        """Record one fault."""
        self.faults.append(Fault(where=where, what=what, fix=fix, detail=detail))

    def extend(self, faults: Iterable[Fault]) -> None:
        """Record several faults, in order."""
        self.faults.extend(faults)

    def raise_if_any(self, error: type[BuildError]) -> None:
        """Raise `error` with every recorded fault, or do nothing."""
        if self.faults:
            raise error(*self.faults)


def did_you_mean(found: str, allowed: Sequence[str]) -> str:
    """Return `Did you mean "x"?` for the nearest allowed word, or the list of allowed words."""
    near = [word for word in allowed if word.casefold() == found.casefold()] or difflib.get_close_matches(found, allowed, n=1, cutoff=0.6)
    if near:
        return f'Did you mean "{near[0]}"?'
    return "Allowed: " + ", ".join(sorted(allowed)) + "." if allowed else ""
