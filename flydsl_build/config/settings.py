# SPDX-License-Identifier: Apache-2.0
"""Reads the settings of a build: pyproject.toml, environment variables and config settings.

All faults are collected and raised together.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from ..errors import ConfigError, Fault, FaultCollector, did_you_mean
from ..regular_files import read_regular
from ..targets.processors import TARGETS
from .keys import keys_of, quote_key
from .kinds import SETUPTOOLS
from .names import is_name, placeholders, reference_fault
from .sources import Override, base_settings, read_overrides
from .table_reader import TableReader, describe
from .tables import AxisTable, CompileOptions, ExternTable, KernelTable, ParameterSet, Settings

__all__ = [
    "AxisTable",
    "CompileOptions",
    "ExternTable",
    "KernelTable",
    "ParameterSet",
    "Settings",
    "base_settings",
    "extend_with_declarations",
    "no_project",
    "read_settings",
]

_TABLE = "tool.flydsl-build"

BUILD_VARIABLES = ("ARCH", "COMPILE_ONLY", "FLYDSL_GPU_ARCH", "HSA_OVERRIDE_GFX_VERSION")
"""Variables that the build sets itself in the compile process of each target."""


def read_settings(
    project_dir: Path, config_settings: Mapping[str, object] | None, environ: Mapping[str, str], *, need_archs: bool = True
) -> Settings:
    """Return the settings of a build.

    Parameters
    ----------
    project_dir
        The folder of pyproject.toml.
    config_settings
        What the front end passed with `-C`, unchecked; wins over the environment.
    environ
        The environment; wins over the table.
    need_archs
        Whether it is a fault that kernels have no targets. An sdist or metadata can be made without.

    Raises
    ------
    ConfigError
        With every fault that was found.
    """
    faults = FaultCollector()
    reader = _read_table(project_dir, faults)
    base = reader.table.get("base", SETUPTOOLS)
    overrides = read_overrides(config_settings, environ, faults, others_pass=base != SETUPTOOLS)
    settings = _settings(reader, project_dir, overrides, faults)
    if not settings.kernels_from:
        _check_kernels(settings, reader, faults, need_archs=need_archs)
    faults.raise_if_any(ConfigError)
    return settings


def extend_with_declarations(settings: Settings, declarations: object, *, need_archs: bool = True) -> Settings:
    """Return the settings with the kernels that the function named by `kernels-from` declares.

    Parameters
    ----------
    settings
        Settings with `kernels_from`.
    declarations
        What the function returned: a mapping of `module:attribute` to tables, or an iterable of `(key, table)` pairs. A table
        has the keys of the TOML table, and tuples may stand for lists.
    need_archs
        Whether it is a fault that kernels have no targets.

    Raises
    ------
    ConfigError
        With every fault that was found.
    """
    faults = FaultCollector()
    origin = settings.kernels_from or "kernels-from"
    kernels = list(settings.kernels)
    if isinstance(declarations, Mapping):
        declarations = declarations.items()
    if not isinstance(declarations, Iterable) or isinstance(declarations, str):
        faults.add(f"{_TABLE}.kernels-from", f"{origin} gave {describe(declarations)}", "return a dict, or yield (key, table) pairs")
        declarations = ()
    for index, pair in enumerate(declarations):
        where = f"{origin}[{index}]"
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], str):
            faults.add(where, f"found {describe(pair)}", 'yield a pair ("module:attribute", table)')
            continue
        where += f" {quote_key(pair[0])}"
        if not isinstance(pair[1], Mapping):
            faults.add(where, f"found {describe(pair[1])}", "write a table")
            continue
        kernel = _kernel(pair[0], TableReader(pair[1], where, faults), settings.axes)
        if kernel is not None:
            kernels.append(kernel)
    _check_repeated(kernels, faults)
    extended = replace(settings, kernels=tuple(kernels))
    _check_kernels(extended, None, faults, need_archs=need_archs)
    faults.raise_if_any(ConfigError)
    return extended


# pyproject.toml


def no_project(folder: Path) -> ConfigError:
    """Return the error of a folder without pyproject.toml."""
    return ConfigError(
        Fault(
            where="pyproject.toml",
            what=f"there is none in {folder}",
            fix="give the project's folder; in a new project, write one that begins so, and have `flydsl-build init` add the kernels",
            detail='[project]\nname = "my-kernels"\nversion = "0.1"',
        )
    )


def _read_table(project_dir: Path, faults: FaultCollector) -> TableReader:
    """Return a reader of the `[tool.flydsl-build]` table; an empty one if there is none.

    Nothing else can be read from a file with a syntax error, so that is raised at once.
    """
    path = project_dir / "pyproject.toml"
    try:
        text = read_regular(path).decode("utf-8")
    except FileNotFoundError:
        raise no_project(project_dir) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            Fault(where=f"pyproject.toml:{line}", what=f"byte {error.object[error.start]:#04x} is not UTF-8", fix="TOML files are UTF-8")
        ) from None
    except OSError as error:
        raise ConfigError(Fault(where="pyproject.toml", what=f"cannot be read: {error.strerror}")) from None
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_syntax_fault(str(error), text)) from None
    except (ValueError, RecursionError) as error:
        # A number of thousands of digits, or thousands of brackets.
        raise ConfigError(
            Fault(where="pyproject.toml", what=f"cannot be read ({error})", fix="write shorter numbers and flatter values")
        ) from None
    tool = document.get("tool", {})
    if not isinstance(tool, Mapping):
        raise ConfigError(Fault(where="pyproject.toml", what=f"`tool` is {describe(tool)}", fix="write a table"))
    for name in tool:
        if name != "flydsl-build" and re.sub(r"[-_.]", "", name.lower()) == "flydslbuild":
            faults.add(f"tool.{quote_key(name)}", "unknown table", 'Did you mean "tool.flydsl-build"?')
    table = tool.get("flydsl-build", {})
    if not isinstance(table, Mapping):
        raise ConfigError(Fault(where=_TABLE, what=f"found {describe(table)}", fix="write a table"))
    return TableReader(table, _TABLE, faults)


def _syntax_fault(message: str, text: str) -> Fault:
    """Return the fault for what tomllib says, with the line marked."""
    fix = ""
    if "twice" in message or "overwrite" in message or "immutable" in message:
        fix = "a kernel has one table; several parameter sets of it go into its `sets`"
    place = re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)$", message)
    if place is None:
        return Fault(where="pyproject.toml", what=message, fix=fix)
    message = message[: place.start()]
    lines = text.splitlines() or [""]
    line, column = (int(place[1]), int(place[2])) if place[1] else (len(lines), len(lines[-1]) + 1)
    shown = lines[line - 1] if line <= len(lines) else ""
    return Fault(where=f"pyproject.toml:{line}:{column}", what=message, fix=fix, detail=f"{shown}\n{' ' * (column - 1)}^")


# The tables, outermost first


def _settings(reader: TableReader, project_dir: Path, overrides: dict[str, Override], faults: FaultCollector) -> Settings:
    """Return the settings of the table, with the overrides; parts with faults are left at their defaults."""
    found = reader.read(Settings)
    has_archs = "archs" in found
    found.update((name, override.value) for name, override in overrides.items())
    for name, key in keys_of(Settings).items():
        if key.type.is_path and name in found:
            found[name] = _folder_or_file(found[name], project_dir)
    axes = _axes(reader)
    found["options"] = _options(reader)
    found["axes"] = axes
    found["env"] = _env(reader, axes)
    found["externs"] = _externs(reader, axes)
    found["kernels"] = _kernels(reader, axes, faults)
    found["wheel_from"] = overrides["wheel"].where if "wheel" in overrides else reader.place("wheel") if "wheel" in reader.table else ""
    found["archs_override"] = "archs" in overrides
    found["archs_from"] = overrides["archs"].where if "archs" in overrides else reader.place("archs") if has_archs else ""
    settings = Settings(project_dir=project_dir, **found)
    address = settings.executor_address
    if settings.executor == "dask" and address is not None and re.fullmatch(r"([a-z]+://)?[^/\s]+:\d+/?", address) is None:
        # Dask itself takes long to say that it is none.
        reader.reject("executor-address", f'found "{address}"', 'write "tcp://HOST:8786"')
    if settings.executor == "dask" and settings.executor_address is None and "executor-address" not in reader.table:
        faults.add(
            reader.place("executor-address"),
            'executor is "dask", and no address of a scheduler is given',
            'write executor-address = "tcp://HOST:8786", pass -C executor-address=…, or set FLYDSL_BUILD_EXECUTOR_ADDRESS',
        )
    if settings.executor == "dask" and settings.dump_ir is not None:
        faults.add(
            reader.place("dump-ir"), 'executor is "dask", and IR is written on the machine that compiles', 'build with executor = "local"'
        )
    return settings


def _folder_or_file(text: str, project_dir: Path) -> Path:
    """Return the path that a setting means: from the project's folder, or from a home folder if it begins with `~`."""
    try:
        return project_dir / Path(text).expanduser()
    except RuntimeError:  # there is no such user, so it is the name of a file
        return project_dir / text


def _axes(reader: TableReader) -> tuple[AxisTable, ...]:
    found: list[AxisTable] = []
    tables = reader.table_at("axes")
    for name in tables.table if tables else ():
        assert tables is not None
        table = tables.table_at(name)
        if table is None:
            continue
        if not is_name(name) or name == "arch":
            tables.reject(name, f'"{name}" cannot be the name of an axis', "write a Python name other than arch")
            continue
        read = table.read(AxisTable)
        values = read.get("values")
        if not values:
            if "values" not in table.table:
                table.reject("values", "missing", 'list the values to build for, such as ["mlx5", "bnxt"]')
            elif values is not None and not table.table["values"]:
                table.reject("values", "the list is empty", 'list the values to build for, such as ["mlx5", "bnxt"]')
            values = ()
        for value in values:
            # Values become parts of file names and of an environment variable's text.
            if not re.fullmatch(r"[A-Za-z0-9_.+-]+", value):
                table.reject("values", f'"{value}" has a character other than letters, digits and _.+-')
        twin = next((axis.name for axis in found if axis.name.upper() == name.upper()), None)
        if twin is not None:
            tables.reject(name, f"FLYDSL_BUILD_AXIS_{name.upper()} would set this axis and {twin}", "rename one of them")
        found.append(AxisTable(name=name, where=table.where, values=values, select=read.get("select")))
    return tuple(found)


def _check_placeholders(text: str, where: str, axes: tuple[AxisTable, ...], faults: FaultCollector) -> None:
    """Record placeholders of a path or variable that are neither `{arch}` nor an axis."""
    allowed = ["arch", *(axis.name for axis in axes)]
    try:
        names = placeholders(text)
    except ValueError as error:
        faults.add(where, f'"{text}": {error}', "write {name}, and literal braces as {{ and }}")
        return
    for name in names:
        if name not in allowed:
            faults.add(where, f'"{text}": unknown placeholder {{{name}}}', did_you_mean(name, allowed))


def _env(reader: TableReader, axes: tuple[AxisTable, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    table = reader.table_at("env")
    for name, value in table.table.items() if table else ():
        assert table is not None
        if not name or "=" in name or "\0" in name:
            table.reject(name, "not the name of an environment variable")
        elif name in BUILD_VARIABLES:
            table.reject(name, "the build sets this variable itself, to the target", "remove it")
        elif not isinstance(value, str):
            table.reject(name, f"found {describe(value)}", "write a string")
        else:
            _check_placeholders(value, table.place(name), axes, table.faults)
            found[name] = value
    return found


def _externs(reader: TableReader, axes: tuple[AxisTable, ...]) -> tuple[ExternTable, ...]:
    found: list[ExternTable] = []
    tables = reader.table_at("externs")
    for symbol in tables.table if tables else ():
        assert tables is not None
        table = tables.table_at(symbol)
        if table is None:
            continue
        if not symbol or any(character.isspace() for character in symbol):
            tables.reject(symbol, f'"{symbol}" is neither a symbol name nor a glob')
            continue
        extern = ExternTable(symbol=symbol, where=table.where, **table.read(ExternTable))
        for path in extern.bitcode:
            _check_placeholders(path, table.place("bitcode"), axes, table.faults)
        found.append(extern)
    return tuple(found)


def _options(reader: TableReader) -> CompileOptions:
    table = reader.table_at("options")
    return CompileOptions() if table is None else _options_of(table, TARGETS)


def _options_of(table: TableReader, targets: Iterable[str]) -> CompileOptions:
    """Return the options of a table; nested tables of targets are read if `targets` has any."""
    targets = tuple(name for name in table.table if name in targets)
    inner = tuple((name, _options_of(nested, ())) for name in targets if (nested := table.table_at(name)) is not None)
    return CompileOptions(**table.read(CompileOptions, also=targets), targets=inner)


def _kernels(reader: TableReader, axes: tuple[AxisTable, ...], faults: FaultCollector) -> tuple[KernelTable, ...]:
    found: list[KernelTable] = []
    tables = reader.table_at("kernels")
    for key in tables.table if tables else ():
        assert tables is not None
        table = tables.table_at(key)
        kernel = None if table is None else _kernel(key, table, axes)
        if kernel is not None:
            found.append(kernel)
    _check_repeated(found, faults)
    if tables is not None:
        _check_nearly_repeated(list(tables.table), tables, faults)
    return tuple(found)


def _check_repeated(kernels: list[KernelTable], faults: FaultCollector) -> None:
    """Record kernels that two tables declare."""
    first: dict[str, str] = {}
    for kernel in kernels:
        if kernel.key in first:
            faults.add(
                kernel.where,
                f"{kernel.key} is declared already at {first[kernel.key]}",
                "several parameter sets of one kernel go into its `sets`",
            )
        first.setdefault(kernel.key, kernel.where)


def _check_nearly_repeated(keys: list[str], tables: TableReader, faults: FaultCollector) -> None:
    """Record keys that differ in blanks only: TOML takes them for two."""
    first: dict[str, str] = {}
    for key in keys:
        plain = "".join(key.split())
        if plain in first:
            faults.add(tables.place(key), f"the same kernel as {quote_key(first[plain])}", "declare it once")
        first.setdefault(plain, key)


def _kernel(key: str, table: TableReader, axes: tuple[AxisTable, ...]) -> KernelTable | None:
    """Return one kernel's table, or None if its key is wrong."""
    fault = reference_fault(key)
    found = table.read(KernelTable)
    found["options"] = _options(table)
    if "axes" in found:
        found["axes"] = _known_axes(found["axes"], table, axes)
    found["sets"] = tuple(_parameter_set(each) for each in _set_tables(table))
    for name in ("params", "constexpr", "args", "returns", "launcher", "out", "archs"):
        if name in table.table and found["sets"] and all(getattr(each, name) is not None for each in found["sets"]):
            table.reject(name, f"every set has {name} of its own, so this is used by none", "remove it, or add a set for it")
    if fault is not None:
        table.faults.add(table.where, *fault)
        return None
    module, _, attribute = key.partition(":")
    return KernelTable(key=key, module=module, attribute=attribute, where=table.where, **found)


def _set_tables(table: TableReader) -> list[TableReader]:
    if isinstance(table.table.get("sets"), Mapping):
        table.reject("sets", "found a table", f"write a list of tables: [[{table.place('sets')}]]")
        return []
    return table.tables_at("sets") or []


def _parameter_set(table: TableReader) -> ParameterSet:
    return ParameterSet(where=table.where, **table.read(ParameterSet), options=_options(table))


def _known_axes(names: tuple[str, ...], table: TableReader, axes: tuple[AxisTable, ...]) -> tuple[str, ...]:
    known = [axis.name for axis in axes]
    for name in names:
        if name not in known:
            table.reject("axes", f'unknown axis "{name}"', did_you_mean(name, known) or f"declare it: [{_TABLE}.axes.{quote_key(name)}]")
    return tuple(name for name in names if name in known)


# Checks of the whole


def _check_kernels(settings: Settings, reader: TableReader | None, faults: FaultCollector, *, need_archs: bool) -> None:
    """Record what is wrong with the kernels and targets together."""
    if not settings.kernels:
        # Tables that could not be read, or stand under a misspelt key, are faults already.
        declared = reader is not None and (reader.table.get("kernels") or "kernels-from" in reader.table)
        misspelt = any(fault.what in {"unknown key", "unknown table"} for fault in faults.faults)
        faulty = reader is None and faults.faults
        if not declared and not settings.allow_empty and not misspelt and not faulty:
            faults.add(
                f"{_TABLE}.kernels",
                "no kernels are declared",
                f"run `flydsl-build init`, which finds launchers and writes their tables; or add a table "
                f'[{_TABLE}.kernels."module:attribute"], or allow-empty = true for a package without kernels',
            )
    else:
        _check_targets(settings, faults, need_archs=need_archs)
    if need_archs and not faults.faults:
        _check_wheel(settings, faults)


def _check_wheel(settings: Settings, faults: FaultCollector) -> None:
    """Record that a wheel for one target was asked for, and is not for exactly one."""
    if settings.wheel in {"fat", "host"}:
        return
    one = f'a "{settings.wheel}" wheel is for one target'
    targets = settings.all_targets
    if not targets:
        faults.add(settings.wheel_from, f"{one}, and no kernels are declared", "leave `wheel` at its default")
    elif len(targets) > 1:
        faults.add(
            settings.wheel_from,
            f"{one}, and the kernels are built for {', '.join(targets)}",
            f"pass -C archs={targets[0]}, and build once for each target",
        )


def _check_targets(settings: Settings, faults: FaultCollector, *, need_archs: bool) -> None:
    lists = [
        (kernel, each.archs if each is not None and each.archs is not None else kernel.archs)
        for kernel in settings.kernels
        for each in kernel.sets or (None,)
    ]
    open_kernels = list(dict.fromkeys(kernel.key for kernel, own in lists if own is None))
    if not settings.archs_from:
        # A faulty list of the kernel's own is None too; its fault is known already.
        if need_archs and open_kernels and not any(".archs" in fault.where for fault in faults.faults):
            faults.add(
                f"{_TABLE}.archs",
                "no architectures are given to build for: " + _some(open_kernels),
                'write archs = ["gfx942", "gfx1100"] in the table, pass -C archs=gfx942,gfx1100, or set FLYDSL_BUILD_ARCHS=gfx942,gfx1100; '
                "there is no default, and the build machine is not probed",
            )
        return
    if not settings.archs_override or open_kernels or not settings.archs:
        return
    declared = list(dict.fromkeys(arch for _, own in lists for arch in own or ()))
    strangers = [arch for arch in settings.archs if arch not in declared]
    if strangers:
        faults.add(
            settings.archs_from,
            f"no kernel is declared for {', '.join(strangers)}; every kernel has its own list of archs",
            "declared: " + ", ".join(declared),
        )


def _some(keys: list[str]) -> str:
    """Return the first few of a list of keys."""
    return ", ".join(keys[:3]) + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")
