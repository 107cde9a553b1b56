# SPDX-License-Identifier: Apache-2.0
"""`flydsl-build init`: write the table into a project, for the launchers that its modules have. Nothing is imported, nothing is asked."""

from __future__ import annotations

import fnmatch
import json
import shutil
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flydsl_build.command_line.arguments import add_project, project_folder, table_in, write_file
from flydsl_build.command_line.source_search import search_sources
from flydsl_build.config.keys import quote_key
from flydsl_build.config.kinds import SETUPTOOLS
from flydsl_build.config.settings import no_project
from flydsl_build.errors import BuildError, Fault
from flydsl_build.regular_files import read_regular

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from flydsl_build.command_line.arguments import Subparsers
    from flydsl_build.command_line.source_search import Extern, Found

__all__ = ["add"]

_BACKEND = "flydsl_build.backend"


def add(subparsers: Subparsers) -> None:
    """Register the command."""
    parser = subparsers.add_parser("init", help="list a project's launchers and write a [tool.flydsl-build] table for them")
    add_project(parser)
    parser.add_argument("--dry-run", action="store_true", help="write the table to standard output, and nothing into the project")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    project = project_folder(arguments.project)
    path = project / "pyproject.toml"
    text = _read(path)
    document = _document(text)
    found = search_sources(project, _roots(project, document))
    for file, why in found.unreadable:
        sys.stderr.write(f"flydsl-build: warning: {file} was left out: {why}\n")
    if not found.launchers:
        raise BuildError(
            Fault(where=str(arguments.project), what="no function decorated with @flyc.jit was found", fix="name the project's folder")
        )
    for one in found.launchers:
        words = "factory of launchers" if one.params is not None else "launcher"
        sys.stderr.write(f"found {words} {one.module}:{one.attribute} ({one.file}:{one.line})\n")
    tool = table_in(document, "tool")
    known = tool.get("flydsl-build")
    if known is None:
        table = _table(found, _base(document))
        done = "wrote [tool.flydsl-build] into"
    else:
        missing = _missing(found, table_in(tool, "flydsl-build"), text)
        there = [one for one in found.launchers if one not in missing.launchers]
        table = "\n".join(_entries(missing))
        done = f"added {len(missing.launchers)} of {len(found.launchers)} launchers to the [tool.flydsl-build] of"
        for one in there:
            sys.stderr.write(f"{one.module}:{one.attribute} is declared already\n")
        if not table:
            sys.stdout.write(f"flydsl-build: [tool.flydsl-build] in {path} has every launcher that was found: nothing was added\n")
            return 0
    if arguments.dry_run:
        sys.stdout.write(table)
        return 0
    newline = "\r\n" if "\r\n" in text else "\n"
    joined = text + ("" if not text or text.endswith("\n") else newline) + (newline + table).replace("\r\n", "\n").replace("\n", newline)
    try:
        tomllib.loads(joined)
    except tomllib.TOMLDecodeError as error:
        raise BuildError(
            Fault(where="pyproject.toml", what=f"a table cannot be added to it ({error})", fix="add the table of --dry-run by hand")
        ) from None
    _replace(path, joined)
    sys.stdout.write(f"flydsl-build: {done} {path}\n")
    system = table_in(document, "build-system")
    if system.get("build-backend") != _BACKEND:
        requires = ["flydsl-build", *_strings(system.get("requires"))]
        sys.stdout.write(f'still to do: [build-system] requires = {json.dumps(requires)}, build-backend = "{_BACKEND}"\n')
    archs = "" if "archs" in table_in(tool, "flydsl-build") else "set archs, and "
    sys.stdout.write(f"still to do: {archs}check the argument types, which are guesses in comments\n")
    return 0


def _read(path: Path) -> str:
    try:
        return read_regular(path).decode("utf-8")
    except FileNotFoundError:
        raise no_project(path.parent) from None
    except UnicodeDecodeError:
        what, fix = "is not UTF-8", "TOML files are UTF-8"
    except OSError as error:
        what, fix = f"cannot be read: {error.strerror}", "make it readable"
    raise BuildError(Fault(where=str(path), what=what, fix=fix))


def _replace(path: Path, text: str) -> None:
    """Write the whole new file before the old one goes: a full disk leaves the project as it was."""
    real = path.resolve()
    temporary = real.with_name(f".{real.name}.partial")
    try:
        write_file(temporary, text, newline="")
        shutil.copymode(real, temporary)
        temporary.replace(real)
    except OSError as error:
        raise BuildError(Fault(where=str(path), what=f"cannot be written: {error.strerror}", fix="make the folder writable")) from None
    finally:
        temporary.unlink(missing_ok=True)


def _document(text: str) -> dict[str, object]:
    """Return the document; one that cannot be read is a fault."""
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise BuildError(Fault(where="pyproject.toml", what=str(error), fix="correct it first")) from None


def _missing(found: Found, known: dict[str, Any], text: str) -> Found:
    """Return what the table does not have yet. Externs are written as comments, so those of an earlier time count as well."""
    kernels, externs = table_in(known, "kernels"), table_in(known, "externs")
    return replace(
        found,
        launchers=tuple(one for one in found.launchers if f"{one.module}:{one.attribute}" not in kernels),
        externs=tuple(
            one
            for one in found.externs
            if _extern_table(one) not in text and not any(fnmatch.fnmatchcase(one.symbol, pattern) for pattern in externs)
        ),
    )


def _strings(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


def _base(document: dict[str, Any]) -> str | None:
    """Return the back end that the project has, which goes on building the package, its version too; None for setuptools."""
    named = table_in(document, "build-system").get("build-backend")
    return named if isinstance(named, str) and named != _BACKEND and named.partition(":")[0] != SETUPTOOLS else None


def _roots(project: Path, document: dict[str, Any]) -> list[Path]:
    """Return the folders that dotted names start in: what the back end is told, else `src` if it is there, else the project."""
    tool = table_in(document, "tool")
    names = [
        *_strings(table_in(tool, "setuptools", "packages", "find").get("where")),
        *_strings([table_in(tool, "maturin").get("python-source")]),
    ]
    for packages in (
        table_in(tool, "hatch", "build", "targets", "wheel").get("packages"),
        table_in(tool, "scikit-build", "wheel").get("packages"),
    ):
        names += [str(Path(one).parent) for one in _strings(packages)]
    if not names:
        names = ["src"] if (project / "src").is_dir() else ["."]
    return [project / one for one in dict.fromkeys(names)]


# The table


def _values(names: Sequence[tuple[str, Sequence[str]]]) -> str:
    """Return a table to fill in: the members that there are to choose from, or an empty list."""
    return f"{{ {', '.join(f'{name} = {json.dumps(members)}' for name, members in names)} }}" if names else ""


def _table(found: Found, base: str | None) -> str:
    lines = ["[tool.flydsl-build]"]
    if base is not None:
        lines.append(f"base = {json.dumps(base)}")
    lines += ["# The gfx targets to build for; there is no default.", '# archs = ["gfx942", "gfx950"]', ""]
    return "\n".join([*lines, *_entries(found)])


def _entries(found: Found) -> list[str]:
    """Return the lines for each launcher and extern."""
    lines = []
    for one in found.launchers:
        lines.append(f'[tool.flydsl-build.kernels."{one.module}:{one.attribute}"]')
        if one.params is not None:
            # Whoever declares must choose what has no default, and may choose members of enums that have one.
            values = _values((*one.params, *one.choices))
            lines.append(f"# params = {values}" if one.params else f"params = {{}}  # or of {values}" if values else "params = {}")
        if one.args:
            types = ", ".join(f'{name} = "{text}"' for name, text in one.args)
            lines.append(f"# args = {{ {types} }}")
        if one.constexpr:
            lines.append(f"# constexpr = {_values(one.constexpr)}")
        if one.out:
            lines.append(f"# out = {json.dumps(one.out)}")
        lines.append("")
    for extern in found.externs:
        path = extern.bitcode or (None if extern.is_linked else f"lib/{extern.symbol}_{{arch}}.bc")
        lines.append(f"# {_extern_table(extern)}")
        lines.append("# The source names the bitcode." if path is None else f"# bitcode = {json.dumps(path)}")
        lines.append("")
    return lines


def _extern_table(extern: Extern) -> str:
    return f"[tool.flydsl-build.externs.{quote_key(extern.symbol)}]"
