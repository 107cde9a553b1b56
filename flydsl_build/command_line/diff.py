# SPDX-License-Identifier: Apache-2.0
"""`flydsl-build diff`: what changed between two wheels, in resources and sizes; for pull requests."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from flydsl_build.command_line.arguments import add_json, write_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from flydsl_build.bundle.manifest import Manifest
    from flydsl_build.command_line.arguments import Subparsers
    from flydsl_build.package.summary import KernelRow

    # Module, specialization, target, axis values, which kernel.
    _Key = tuple[str, str, str, tuple[tuple[str, str], ...], int]

__all__ = ["add"]

# Field of a kernel to what people call it.
_FIELDS = {
    "code_size": "code bytes",
    "vgpr": "VGPR",
    "agpr": "AGPR",
    "sgpr": "SGPR",
    "lds": "LDS bytes",
    "private": "scratch bytes",
    "vgpr_spills": "VGPR spills",
    "sgpr_spills": "SGPR spills",
    "kernarg_size": "kernarg bytes",
    "max_workgroup": "largest workgroup",
    "occupancy": "occupancy",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class _Side:
    """What is compared of one wheel or folder."""

    size: int
    files: dict[str, int]
    rows: dict[_Key, KernelRow]
    digests: dict[_Key, str]
    made_with: dict[str, str]


def add(subparsers: Subparsers) -> None:
    """Register the command."""
    parser = subparsers.add_parser("diff", help="show what changed between two wheels; exit status 0 also if something did")
    parser.add_argument("a", type=Path, metavar="A", help="a wheel or folder")
    parser.add_argument("b", type=Path, metavar="B", help="the one to compare with it")
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    found = _compare(_read(arguments.a), _read(arguments.b))
    if arguments.json:
        write_json(found)
    else:
        _write(found, sys.stdout)
    return 0


def _read(path: Path) -> _Side:
    from flydsl_build.command_line.contents import open_contents
    from flydsl_build.package.summary import kernel_rows

    with open_contents(path) as contents:
        manifests = [one.manifest for one in contents.modules()]
        rows = {_key(row): row for row in kernel_rows(manifests)}
        units = {
            (manifest.module, unit.name, target): one.sha256
            for manifest in manifests
            for unit in manifest.units
            for target, one in unit.code_objects.items()
        }
        return _Side(
            size=contents.size,
            files=contents.artefacts(),
            rows=rows,
            digests={key: units[row.module, row.unit, row.target] for key, row in rows.items()},
            made_with=_made_with(manifests),
        )


def _key(row: KernelRow) -> _Key:
    return row.module, row.specialization, row.target, tuple(sorted(row.axes.items())), row.index


def _made_with(manifests: Iterable[Manifest]) -> dict[str, str]:
    found: dict[str, dict[str, None]] = {}
    for tool in (tool for manifest in manifests for tool in manifest.provenance.tools):
        found.setdefault(tool.name, {})[tool.version] = None
    return {name: ", ".join(values) for name, values in found.items()}


def _compare(a: _Side, b: _Side) -> dict[str, Any]:
    """Return all differences as JSON values; `a` and `b` in them are the two sides."""
    both = [key for key in a.rows if key in b.rows]
    changed = []
    recompiled = []
    for key in both:
        before, after = _values(a.rows[key]), _values(b.rows[key])
        fields = {name: {"a": before[name], "b": after[name]} for name in _FIELDS if before[name] != after[name]}
        if fields:
            changed.append({**_place(key), "kernel": b.rows[key].kernel.symbol, "fields": fields})
        elif a.digests[key] != b.digests[key]:
            recompiled.append({**_place(key), "kernel": b.rows[key].kernel.symbol})
    names = sorted({*a.files, *b.files})
    return {
        "size": {"a": a.size, "b": b.size},
        "files": [
            {"name": name, "a": a.files.get(name), "b": b.files.get(name)} for name in names if a.files.get(name) != b.files.get(name)
        ],
        "made_with": {
            name: {"a": a.made_with.get(name), "b": b.made_with.get(name)}
            for name in {**a.made_with, **b.made_with}
            if a.made_with.get(name) != b.made_with.get(name)
        },
        "added": [_place(key) for key in b.rows if key not in a.rows],
        "removed": [_place(key) for key in a.rows if key not in b.rows],
        "changed": changed,
        "same_resources_other_code": recompiled,
    }


def _values(row: KernelRow) -> dict[str, Any]:
    return {**asdict(row.kernel), "occupancy": row.occupancy}


def _place(key: _Key) -> dict[str, Any]:
    module, specialization, target, axes, index = key
    return {"module": module, "specialization": specialization, "target": target, "axes": dict(axes), "index": index}


def _title(place: dict[str, Any]) -> str:
    axes = "".join(f" [{name}={value}]" for name, value in place["axes"].items())
    kernel = f", kernel {place['kernel']}" if "kernel" in place else f", kernel {place['index']}" if place["index"] else ""
    return f"{place['module']}:{place['specialization']}{axes}, {place['target']}{kernel}"


def _write(found: dict[str, Any], out: TextIO) -> None:
    written = False
    for word, places in (("added", found["added"]), ("removed", found["removed"])):
        for place in places:
            out.write(f"{word:<9} {_title(place)}\n")
            written = True
    for place in found["changed"]:
        out.write(f"changed   {_title(place)}\n")
        out.writelines(f"    {_FIELDS[name]:<18} {_change(values)}\n" for name, values in place["fields"].items())
        written = True
    for place in found["same_resources_other_code"]:
        out.write(f"same resources, other code object: {_title(place)}\n")
        written = True
    for name, values in found["made_with"].items():
        out.write(f"made with {name} {values['a'] or 'none'} -> {values['b'] or 'none'}\n")
        written = True
    for file in found["files"]:
        out.write(f"{file['name']}: {_change(file, ' bytes')}\n")
        written = True
    if found["size"]["a"] != found["size"]["b"]:
        out.write(f"in all: {_change(found['size'], ' bytes')}\n")
        written = True
    if not written:
        out.write("no difference\n")


def _change(values: dict[str, Any], unit: str = "") -> str:
    a, b = values["a"], values["b"]
    if a is None or b is None:
        return f"{'not there' if a is None else a} -> {'not there' if b is None else b}{unit if b is not None else ''}"
    percent = f", {100 * (b - a) / a:+.1f} %" if a else ""
    return f"{a} -> {b}{unit} ({b - a:+d}{percent})"
