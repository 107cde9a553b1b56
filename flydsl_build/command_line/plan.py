# SPDX-License-Identifier: Apache-2.0
"""`flydsl-build plan`: the jobs of a build, without compiling anything; with `--check`, whether they fit the project's modules."""

from __future__ import annotations

import gc
import os
import sys
from typing import TYPE_CHECKING

from flydsl_build.command_line.arguments import add_config, add_json, add_project, config_settings, project_folder, write_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from flydsl_build.command_line.arguments import Subparsers
    from flydsl_build.config.settings import Settings
    from flydsl_build.declare.specialization import Specialization
    from flydsl_build.package.planning import Groups

__all__ = ["add"]


def add(subparsers: Subparsers) -> None:
    """Register the command."""
    parser = subparsers.add_parser("plan", help="show the jobs of a build, without compiling")
    add_project(parser)
    add_config(parser)
    parser.add_argument(
        "--check",
        action="store_true",
        help="import the modules and match declarations with them, in processes with FlyDSL; no kernel is traced",
    )
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    from flydsl_build.config.settings import read_settings
    from flydsl_build.declare.expand import expand
    from flydsl_build.package.planning import group_specializations

    project = project_folder(arguments.project)
    # Everything that is read lives until the end: looking for garbage in between takes a third of the time of ten thousand declarations.
    gc.disable()
    settings = read_settings(project, config_settings(arguments.config), os.environ)
    if settings.kernels_from:
        from flydsl_build.backend.project_layout import with_declarations

        settings = with_declarations(settings)
    specializations = expand(settings)
    groups = group_specializations(specializations, settings)
    if arguments.check:
        from flydsl_build.backend.plan_check import check_declarations
        from flydsl_build.errors import CompileError

        warnings, faults = check_declarations(settings)
        sys.stderr.writelines(f"flydsl-build: warning: {warning}\n" for warning in warnings)
        if faults:
            raise CompileError(*faults)
    if arguments.json:
        _write_as_json(specializations, groups, settings)
    else:
        _write_as_text(specializations, groups, settings)
        if arguments.check:
            sys.stdout.write("checked: everything declared fits the modules\n")
    return 0


def _write_as_json(specializations: Sequence[Specialization], groups: Groups, settings: Settings) -> None:
    types = _argument_texts(specializations)
    value = {
        "jobs": [
            {"module": module, "target": target, "axes": dict(axes), "specializations": [one.name for one in members]}
            for (module, target, axes), members in groups.items()
        ],
        "specializations": [
            {
                "name": one.name,
                "module": one.module,
                "launcher": one.title,
                "declared": one.where,
                "params": None if one.params is None else dict(one.params),
                "constexpr": dict(one.constexpr),
                "args": dict(texts),
                "out": None if one.out is None else list(one.out),
                "options": one.options.to_json(),
            }
            for one, texts in zip(specializations, types, strict=True)
        ],
        "targets": _targets(groups),
        "axes": {axis.name: list(axis.values) for axis in settings.axes},
        "skipped": list(settings.skipped),
    }
    write_json(value, indent=None)


def _write_as_text(specializations: Sequence[Specialization], groups: Groups, settings: Settings) -> None:
    lines = {}
    for one, texts in zip(specializations, _argument_texts(specializations), strict=True):
        types = ", ".join(f"{name} = {text}" for name, text in texts)
        lines[id(one)] = f"    {one.name}: {types}\n" if types else f"    {one.name}\n"
    out = sys.stdout
    for (module, target, axes), members in groups.items():
        out.write(f"{module}, {target}" + "".join(f", {name}={value}" for name, value in axes) + "\n")
        out.writelines(lines[id(one)] for one in members)
    targets = ", ".join(_targets(groups)) or "none"
    out.write(f"{_count(len(groups), 'job')}, {_count(len(specializations), 'specialization')}, targets: {targets}\n")
    if settings.axes:
        names = ", ".join(axis.name for axis in settings.axes)
        out.write(f"kernels that turn out to depend on {names} are compiled for the other values too\n")
    if settings.skipped:
        out.write(f"left out, as none of their targets is asked for: {', '.join(settings.skipped)}\n")


def _targets(groups: Groups) -> list[str]:
    return list(dict.fromkeys(target for _, target, _ in groups))


def _argument_texts(specializations: Sequence[Specialization]) -> list[list[tuple[str, str]]]:
    """Return names and types of the declared arguments of each specialization; equal types are one object, which is written once."""
    from flydsl_build.declare.argument_grammar import format_argument

    known: dict[int, str] = {}
    found = []
    for one in specializations:
        texts = []
        for name, argument in one.args:
            text = known.get(id(argument))
            if text is None:
                text = known[id(argument)] = format_argument(argument)
            texts.append((name, text))
        found.append(texts)
    return found


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
