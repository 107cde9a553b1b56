# SPDX-License-Identifier: Apache-2.0
"""`flydsl-build report`: one static page about the kernels of a wheel."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from flydsl_build.command_line.arguments import write_file
from flydsl_build.command_line.contents import in_order, open_contents
from flydsl_build.errors import BuildError, Fault

if TYPE_CHECKING:
    import argparse

    from flydsl_build.bundle.manifest import LauncherEntry, Manifest, SpecializationEntry
    from flydsl_build.command_line.arguments import Subparsers
    from flydsl_build.command_line.report_page import ReportRow
    from flydsl_build.package.summary import KernelRow

__all__ = ["add"]


def add(subparsers: Subparsers) -> None:
    """Register the command."""
    parser = subparsers.add_parser("report", help="write a static HTML page about a wheel's kernels")
    parser.add_argument("path", type=Path, metavar="WHEEL|DIR")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="the HTML file")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from flydsl_build.package.summary import kernel_rows, resource_warnings

    try:
        from flydsl_build.command_line.report_page import render_report
    except ImportError:
        raise BuildError(
            Fault(where="jinja2", what="is not installed, and the report is rendered with it", fix="pip install jinja2")
        ) from None
    with open_contents(arguments.path) as contents:
        manifests = [one.manifest for one in contents.modules()]
        files = list(contents.artefacts().items())
        size = contents.size
    types = _argument_types(manifests)
    page = render_report(
        title=f"Kernels of {', '.join(dict.fromkeys(_distribution(one) for one in manifests))}",
        facts=_facts(manifests, arguments.path.name, size),
        files=files,
        rows=[_row(row, types[row.module, row.specialization]) for row in kernel_rows(manifests)],
        warnings=list(resource_warnings(kernel_rows(manifests))),
    )
    write_file(arguments.output, page)
    sys.stdout.write(f"flydsl-build: wrote {arguments.output}\n")
    return 0


def _distribution(manifest: Manifest) -> str:
    return f"{manifest.distribution.name} {manifest.distribution.version}"


def _facts(manifests: list[Manifest], name: str, size: int) -> list[tuple[str, str]]:
    def joined(values: list[str]) -> str:
        return ", ".join(dict.fromkeys(values))

    tools: dict[str, list[str]] = {}
    for tool in (tool for one in manifests for tool in one.provenance.tools):
        tools.setdefault(tool.name, []).append(tool.version)
    return [
        ("File", f"{name}, {size} bytes"),
        ("Modules", joined([one.module for one in manifests])),
        ("Targets", joined([target for one in manifests for target in one.targets])),
        *((name, joined(versions)) for name, versions in tools.items()),
    ]


def _argument_types(manifests: list[Manifest]) -> dict[tuple[str, str], str]:
    return {(manifest.module, one.name): _types(launcher, one) for manifest in manifests for launcher, one in manifest.specializations()}


def _types(launcher: LauncherEntry, one: SpecializationEntry) -> str:
    """Return values and argument types in the order of the signature, without the stream, which every launcher has."""
    from flydsl_build.declare.argument_grammar import format_argument
    from flydsl_build.declare.argument_types import StreamType

    values = [f"{name}={value!r}" for name, value in (*one.params.items(), *one.constexpr.items())]
    arguments = in_order(one.arguments, launcher)
    return ", ".join([*values, *(f"{name}: {format_argument(each)}" for name, each in arguments if not isinstance(each, StreamType))])


def _extents(workgroup: tuple[int, int, int]) -> str:
    """Return `256`, `16x16`, `8x8x4`: trailing ones say nothing."""
    x, y, z = workgroup
    shown = (x, y, z) if z > 1 else (x, y) if y > 1 else (x,)
    return "x".join(map(str, shown))


def _row(row: KernelRow, types: str) -> ReportRow:
    from flydsl_build.command_line.report_page import Bar, ReportRow
    from flydsl_build.targets.processors import TARGETS

    kernel, target = row.kernel, TARGETS.get(row.target)
    workgroup = _extents(kernel.reqd_workgroup) if kernel.reqd_workgroup else f"<= {kernel.max_workgroup}"
    return ReportRow(
        specialization=row.title,
        target=row.target,
        kernel=kernel.symbol,
        types=types,
        code_size=kernel.code_size,
        vgpr=Bar(value=kernel.vgpr, limit=target.vgpr_addressable if target else None),
        agpr=kernel.agpr,
        sgpr=Bar(value=kernel.sgpr, limit=target.sgpr_limit if target else None),
        lds=Bar(value=kernel.lds, limit=target.lds_limit if target else None),
        scratch=kernel.private,
        spills=kernel.vgpr_spills + kernel.sgpr_spills,
        workgroup=workgroup,
        occupancy=Bar(value=row.occupancy, limit=target.max_waves if target else None),
    )
