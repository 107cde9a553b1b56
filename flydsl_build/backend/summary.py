# SPDX-License-Identifier: Apache-2.0
"""The table at the end of a build: each specialization and target with the resources of its kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flydsl_build.bundle.manifest import Manifest

__all__ = ["print_summary", "summary_rows"]

_HEADER = ("specialization", "target", "kernel", "code B", "VGPR", "AGPR", "SGPR", "LDS B", "spills")
# The columns after these hold numbers, which are aligned at the right.
_WORD_COLUMNS = 3


def summary_rows(manifests: Sequence[Manifest]) -> Iterator[tuple[str, ...]]:
    """Yield one row for each kernel of each specialization and target."""
    for manifest in manifests:
        units = {unit.name: unit for unit in manifest.units}
        for _launcher, one in manifest.specializations():
            for target in one.targets:
                for unit, entry in one.entries[target].items():
                    axes = "".join(f" [{name}={value}]" for name, value in units[unit].axes.items())
                    kernels = units[unit].code_objects[target].kernels
                    for kernel in (kernels[index] for index in entry.kernels):
                        yield (
                            f"{manifest.module}:{one.name}{axes}",
                            target,
                            kernel.symbol,
                            str(kernel.code_size),
                            str(kernel.vgpr),
                            str(kernel.agpr),
                            str(kernel.sgpr),
                            str(kernel.lds),
                            str(kernel.vgpr_spills + kernel.sgpr_spills),
                        )


def print_summary(manifests: Sequence[Manifest], out: TextIO) -> None:
    """Write the table."""
    rows = [_HEADER, *summary_rows(manifests)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADER))]
    for row in rows:
        padded = enumerate(zip(row, widths, strict=True))
        cells = [cell.ljust(width) if column < _WORD_COLUMNS else cell.rjust(width) for column, (cell, width) in padded]
        out.write("  ".join(cells).rstrip() + "\n")
    out.flush()
