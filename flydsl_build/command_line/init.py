# SPDX-License-Identifier: Apache-2.0
"""`flydsl-build init`: write the table into a project, for the launchers that its modules have. Nothing is imported, nothing is asked."""

from __future__ import annotations

import ast
import os
import shutil
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flydsl_build.command_line.arguments import add_project, project_folder, write_file
from flydsl_build.errors import BuildError, Fault

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from flydsl_build.command_line.arguments import Subparsers

__all__ = ["Launcher", "add", "find_launchers"]

_JIT = {"flydsl.compiler.jit", "flydsl.jit"}
_SKIPPED = {"build", "dist", "tests", "test", "docs", "node_modules", "__pycache__", "venv", "site-packages"}
_PYTHON_NUMBERS = {"int": "i32", "float": "f32", "bool": "bool"}
_BACKEND = "flydsl_build.backend"


@dataclass(frozen=True, kw_only=True, slots=True)
class Launcher:
    """A launcher, or a factory of one, as its source shows it.

    Parameters
    ----------
    args
        Guessed argument types of the parameters that need one.
    constexpr
        Names of its constexpr parameters.
    params
        Names of the factory's parameters that have no default; None for a plain launcher.
    """

    module: str
    attribute: str
    file: str
    line: int
    args: tuple[tuple[str, str], ...]
    constexpr: tuple[str, ...]
    params: tuple[str, ...] | None


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
    document = _checked(text, dry_run=arguments.dry_run)
    launchers, unreadable = find_launchers(project, _roots(project, document))
    for file, why in unreadable:
        sys.stderr.write(f"flydsl-build: warning: {file} was left out: {why}\n")
    if not launchers:
        raise BuildError(
            Fault(where=str(arguments.project), what="no function decorated with @flyc.jit was found", fix="name the project's folder")
        )
    for one in launchers:
        words = "factory of launchers" if one.params is not None else "launcher"
        sys.stderr.write(f"found {words} {one.module}:{one.attribute} ({one.file}:{one.line})\n")
    table = _table(launchers)
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
    sys.stdout.write(f"flydsl-build: wrote [tool.flydsl-build] into {path}\n")
    system = document.get("build-system")
    if not isinstance(system, dict) or system.get("build-backend") != _BACKEND:
        sys.stdout.write(f'still to do: [build-system] requires = ["flydsl-build"], build-backend = "{_BACKEND}"\n')
    sys.stdout.write("still to do: set archs, and check the argument types, which are guesses in comments\n")
    return 0


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return file.read()
    except FileNotFoundError:
        what, fix = "does not exist", "write one with a [project] table first"
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


def _checked(text: str, *, dry_run: bool) -> dict[str, object]:
    """Return the document; one that cannot be read, or has the table that is to be written already, is a fault."""
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise BuildError(Fault(where="pyproject.toml", what=str(error), fix="correct it first")) from None
    tool = document.get("tool")
    if not dry_run and isinstance(tool, dict) and "flydsl-build" in tool:
        raise BuildError(
            Fault(
                where="pyproject.toml",
                what="has a [tool.flydsl-build] table already",
                fix="remove it first, or take what you need from --dry-run",
            )
        )
    return document


def _roots(project: Path, document: dict[str, object]) -> list[Path]:
    """Return the folders that dotted names start in: setuptools' `where`, else `src` if it is there, else the project."""
    place: object = document
    for name in ("tool", "setuptools", "packages", "find", "where"):
        place = place.get(name) if isinstance(place, dict) else None
    names = [one for one in place if isinstance(one, str)] if isinstance(place, list) else []
    if not names:
        names = ["src"] if (project / "src").is_dir() else ["."]
    return [project / one for one in names]


# The search


def find_launchers(project: Path, roots: list[Path]) -> tuple[list[Launcher], list[tuple[str, str]]]:
    """Return the launchers in the modules below the roots, in order of file and line, and the files that could not be read."""
    found: list[Launcher] = []
    unreadable: list[tuple[str, str]] = []
    for root in roots:
        for path in _sources(root):
            file = path.relative_to(project).as_posix()
            try:
                tree = ast.parse(path.read_bytes())
            except (SyntaxError, ValueError) as error:
                unreadable.append((file, f"{type(error).__name__}: {error}"))
                continue
            except (OSError, RecursionError) as error:
                unreadable.append((file, str(error)))
                continue
            parts = path.relative_to(root).with_suffix("").parts
            module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            found += _launchers(tree, module, file)
    return found, unreadable


def _sources(root: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(root):
        folders[:] = sorted(one for one in folders if one not in _SKIPPED and one.isidentifier() and not one.startswith((".", "_flydsl")))
        yield from (Path(place, one) for one in sorted(files) if one.endswith(".py") and one[:-3].isidentifier())


def _launchers(tree: ast.Module, module: str, file: str) -> Iterator[Launcher]:
    names = _imported(tree)
    for node in tree.body:
        if not isinstance(node, ast.FunctionDef):
            continue
        if _is_launcher(node, names):
            args, constexpr = _arguments(node, names)
            yield Launcher(module=module, attribute=node.name, file=file, line=node.lineno, args=args, constexpr=constexpr, params=None)
            continue
        inner = next(
            (one for one in ast.walk(node) if isinstance(one, ast.FunctionDef) and one is not node and _is_launcher(one, names)), None
        )
        if inner is not None:
            args, constexpr = _arguments(inner, {**names, **_imported(node)})
            yield Launcher(
                module=module, attribute=node.name, file=file, line=node.lineno, args=args, constexpr=constexpr, params=_required(node)
            )


def _imported(tree: ast.AST) -> dict[str, str]:
    """Return local names and what they stand for, for everything that is imported anywhere in the tree."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.asname or alias.name.partition(".")[0]] = alias.name if alias.asname else alias.name.partition(".")[0]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.update((alias.asname or alias.name, f"{node.module}.{alias.name}") for alias in node.names)
    return found


def _dotted(node: ast.expr | None, names: dict[str, str]) -> str:
    """Return the full dotted name of an expression, or "" if it is none."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([names.get(node.id, node.id), *reversed(parts)])


def _is_launcher(node: ast.FunctionDef, names: dict[str, str]) -> bool:
    return any(_dotted(one.func if isinstance(one, ast.Call) else one, names) in _JIT for one in node.decorator_list)


def _arguments(node: ast.FunctionDef, names: dict[str, str]) -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Return what the table has to say of a launcher's parameters: guesses for arguments, and the constexpr ones.

    A scalar or stream annotation fixes the type, so that needs no entry.
    """
    args: list[tuple[str, str]] = []
    constexpr: list[str] = []
    for parameter in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
        annotation = parameter.annotation
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            try:
                annotation = ast.parse(annotation.value, mode="eval").body
            except SyntaxError:
                annotation = None
        name = _dotted(annotation.value if isinstance(annotation, ast.Subscript) else annotation, names).rpartition(".")[2]
        if name in {"Constexpr", "type", "Type"}:
            constexpr.append(parameter.arg)
        elif name == "Pointer":
            args.append((parameter.arg, "ptr<f32>"))
        elif name in {"Tensor", ""}:
            args.append((parameter.arg, "f32[M, N]"))
        elif name in _PYTHON_NUMBERS:
            args.append((parameter.arg, _PYTHON_NUMBERS[name]))
    return tuple(args), tuple(constexpr)


def _required(node: ast.FunctionDef) -> tuple[str, ...]:
    """Return the parameters of a factory that have no default."""
    positional = [*node.args.posonlyargs, *node.args.args]
    positional = positional[: len(positional) - len(node.args.defaults)]
    keyword = [one for one, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True) if default is None]
    return tuple(one.arg for one in (*positional, *keyword))


# The table


def _table(launchers: list[Launcher]) -> str:
    lines = ["[tool.flydsl-build]", "# The gfx targets to build for; there is no default.", '# archs = ["gfx942", "gfx950"]', ""]
    for one in launchers:
        lines.append(f'[tool.flydsl-build.kernels."{one.module}:{one.attribute}"]')
        if one.params is not None:
            values = ", ".join(f"{name} = []" for name in one.params)
            lines.append(f"# params = {{ {values} }}" if values else "params = {}")
        if one.args:
            types = ", ".join(f'{name} = "{text}"' for name, text in one.args)
            lines.append(f"# args = {{ {types} }}")
        if one.constexpr:
            lines.append("# constexpr = { " + ", ".join(f"{name} = []" for name in one.constexpr) + " }")
        lines.append("")
    return "\n".join(lines)
