# SPDX-License-Identifier: Apache-2.0
"""The table at the end of a build: each specialization and target with the resources of its kernels, and what is wrong with them."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TextIO

from flydsl_build.bundle.manifest import Kernel
from flydsl_build.targets.processors import TARGETS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from flydsl_build.bundle.manifest import Manifest
    from flydsl_build.jobs.job import JobResult

    # Module, specialization, target and unit.
    _Place = tuple[str, str, str, str]

__all__ = [
    "KernelRow",
    "compile_seconds",
    "kernel_rows",
    "occupancy",
    "print_summary",
    "print_warnings",
    "resource_warnings",
    "unexported_warning",
]

_HEADER = ("specialization", "target", "kernel", "seconds", "code B", "VGPR", "AGPR", "SGPR", "LDS B", "spills", "waves")
# The columns after these hold numbers, which are aligned at the right.
_WORD_COLUMNS = 3
_SECONDS = 3
_MOST_ROWS = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelRow:
    """One kernel of one specialization for one target.

    Parameters
    ----------
    unit, axes
        The code object's unit, and the axis values that it was built for.
    index
        Which of the specialization's kernels it is.
    occupancy
        Wavefronts that a SIMD holds at once; None for a target that this version does not know.
    seconds
        What compiling the specialization for the target took; None where that is not known.
    """

    module: str
    specialization: str
    unit: str
    axes: dict[str, str]
    target: str
    index: int
    kernel: Kernel
    occupancy: int | None
    seconds: float | None = None

    @property
    def title(self) -> str:
        """Specialization and axis values, for people."""
        return f"{self.module}:{self.specialization}" + "".join(f" [{name}={value}]" for name, value in self.axes.items())

    def without_arguments(self) -> KernelRow:
        """Return the row without the arguments of the kernel, which no table shows."""
        return replace(self, kernel=replace(self.kernel, args=()))


def occupancy(kernel: Kernel, target: str) -> int | None:
    """Return how many wavefronts of the kernel a SIMD of the target holds, with its static LDS and its largest workgroup."""
    known = TARGETS.get(target)
    if known is None:
        return None
    workgroup = math.prod(kernel.reqd_workgroup) if kernel.reqd_workgroup else kernel.max_workgroup
    return known.occupancy(kernel.vgpr, sgprs=kernel.sgpr, lds=kernel.lds, workgroup=workgroup)


def compile_seconds(results: Iterable[JobResult]) -> dict[_Place, float]:
    """Return how long each specialization took, as `kernel_rows` takes it."""
    return {(result.module, one.name, result.target, one.group): one.seconds for result in results for one in result.specializations}


def kernel_rows(manifests: Iterable[Manifest]) -> Iterator[KernelRow]:
    """Yield one row for each kernel of each specialization and target."""
    for manifest in manifests:
        units = {unit.name: unit for unit in manifest.units}
        for _launcher, one in manifest.specializations():
            for target in one.targets:
                for unit, entry in one.entries[target].items():
                    kernels = units[unit].code_objects[target].kernels
                    for index, position in enumerate(entry.kernels):
                        yield KernelRow(
                            module=manifest.module,
                            specialization=one.name,
                            unit=unit,
                            axes=units[unit].axes,
                            target=target,
                            index=index,
                            kernel=kernels[position],
                            occupancy=occupancy(kernels[position], target),
                        )


def _cells(row: KernelRow) -> tuple[str, ...]:
    kernel = row.kernel
    return (
        row.title,
        row.target,
        kernel.symbol,
        "" if row.seconds is None else f"{row.seconds:.2f}",
        str(kernel.code_size),
        str(kernel.vgpr),
        str(kernel.agpr),
        str(kernel.sgpr),
        str(kernel.lds),
        str(kernel.vgpr_spills + kernel.sgpr_spills),
        "?" if row.occupancy is None else str(row.occupancy),
    )


def print_summary(rows: Sequence[KernelRow], out: TextIO, seconds: Mapping[_Place, float] | None = None) -> None:
    """Write the table; without the column of seconds where none are known, and no more than the slowest rows of a very long one.

    Parameters
    ----------
    seconds
        See `compile_seconds`; None for a table of all rows.
    """
    known = seconds or {}
    if known:
        rows = [replace(row, seconds=known.get((row.module, row.specialization, row.target, row.unit))) for row in rows]
    left_out = len(rows) - _MOST_ROWS if seconds is not None else 0
    if left_out > 0:
        slowest = sorted(range(len(rows)), key=lambda index: -(rows[index].seconds or 0.0))[:_MOST_ROWS]
        rows = [rows[index] for index in sorted(slowest)]
    table = [_HEADER, *map(_cells, rows)]
    columns = [column for column in range(len(_HEADER)) if seconds or column != _SECONDS]
    widths = {column: max(len(row[column]) for row in table) for column in columns}
    for row in table:
        cells = [row[column].ljust(widths[column]) if column < _WORD_COLUMNS else row[column].rjust(widths[column]) for column in columns]
        out.write("  ".join(cells).rstrip() + "\n")
    if left_out > 0:
        out.write(f"{left_out} more rows, compiled faster than these: flydsl-build inspect WHEEL\n")
    out.flush()


def resource_warnings(rows: Iterable[KernelRow]) -> Iterator[str]:
    """Yield what slows a kernel down or keeps it from running: registers that spill, more static LDS than a workgroup can have."""
    seen = set()
    for row in rows:
        kernel = row.kernel
        place = (row.module, row.unit, row.target, kernel.symbol)
        if place in seen:
            continue
        seen.add(place)
        where = f"{row.title}, {row.target}, kernel {kernel.symbol}"
        spills = [
            f"{number} {name}{'' if number == 1 else 's'}"
            for number, name in ((kernel.vgpr_spills, "VGPR"), (kernel.sgpr_spills, "SGPR"))
            if number
        ]
        if spills:
            yield f"{where} spills {' and '.join(spills)}: smaller tiles, or a smaller `waves-per-eu`, leave it more registers"
        target = TARGETS.get(row.target)
        if target is not None and kernel.lds > target.lds_limit:
            yield f"{where} has {kernel.lds} bytes of static LDS, and a workgroup can have {target.lds_limit}: it cannot be launched"


def empty_launchers(manifest: Manifest) -> Iterator[str]:
    """Yield the specializations whose launcher launches nothing: a call of one would succeed and do nothing."""
    for launcher in manifest.launchers:
        for one in launcher.specializations:
            targets = [target for target, units in one.entries.items() if not any(entry.kernels for entry in units.values())]
            if targets:
                yield f"{manifest.module}:{one.name}, {', '.join(targets)}: the launcher launches no kernel, so a call does nothing"


def unexported_warning(module: str, names: Iterable[str]) -> str:
    """Return the warning of a module's public names that its stub does not have."""
    return (
        f"the stub of {module} does not have these public names of its source: {', '.join(names)}\n"
        "    -> move what others import to a module without declared kernels; give what is for this one alone a leading underscore"
    )


def print_warnings(rows: Iterable[KernelRow], out: TextIO) -> None:
    """Write the warnings, a line each."""
    out.writelines(f"flydsl-build: warning: {warning}\n" for warning in resource_warnings(rows))
    out.flush()
