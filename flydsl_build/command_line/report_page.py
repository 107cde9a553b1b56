# SPDX-License-Identifier: Apache-2.0
"""Render the report of a wheel: one static page that needs no network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flydsl_build.consumers.templates import render

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Bar", "ReportRow", "render_report"]

_WHOLE = 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Bar:
    """A number with the target's limit; None where the limit is not known."""

    value: int | None
    limit: int | None

    @property
    def percent(self) -> int | None:
        """The share of the limit, at most 100; None where there is nothing to compare."""
        if self.value is None or not self.limit:
            return None
        return min(_WHOLE, round(_WHOLE * self.value / self.limit))

    @property
    def is_over(self) -> bool:
        """Whether the limit is exceeded."""
        return self.value is not None and self.limit is not None and self.value > self.limit


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportRow:
    """One kernel of one specialization and target."""

    specialization: str
    target: str
    kernel: str
    types: str
    code_size: int
    vgpr: Bar
    agpr: int
    sgpr: Bar
    lds: Bar
    scratch: int
    spills: int
    workgroup: str
    occupancy: Bar


def render_report(
    *, title: str, facts: Sequence[tuple[str, str]], files: Sequence[tuple[str, int]], rows: Sequence[ReportRow], warnings: Sequence[str]
) -> str:
    """Render the page.

    Parameters
    ----------
    title
        What the report is of.
    facts
        Names and values for the head of the page.
    files
        Names and sizes in bytes.
    rows
        The table.
    warnings
        What is wrong with kernels, a line each.
    """
    return render("report.html.j2", title=title, facts=facts, files=files, rows=rows, warnings=warnings)
