# SPDX-License-Identifier: Apache-2.0
"""`flydsl-build doctor`: what a build without isolation would find on this machine, and what is missing."""

from __future__ import annotations

import contextlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flydsl_build.command_line.arguments import (
    add_config,
    add_project,
    config_settings,
    other_backend,
    project_document,
    project_folder,
    table_in,
)
from flydsl_build.errors import BuildError, ConfigError
from flydsl_build.jobs.frontend import FRONTENDS, frontends

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from flydsl_build.command_line.arguments import Subparsers
    from flydsl_build.config.settings import Settings

__all__ = ["add"]

_NOTE = {
    "torch": "not needed to build: compile processes have a stand-in",
    "ziglang": "brings a linker, which is needed where no other is found",
    "rich": "the live display of progress",
}
_OK, _NOTED, _MISSING = "ok", "--", "!!"

_OPEN_HIP = "from flydsl_build.runtime.driver import open_driver; open_driver()"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Check:
    """One line: how it stands, what was looked at, what was found; `trace` has the places that were searched."""

    mark: str
    name: str
    found: str
    trace: tuple[str, ...] = ()


def add(subparsers: Subparsers) -> None:
    """Register the command."""
    parser = subparsers.add_parser("doctor", help="show the toolchain and versions; exit status 1 if a build could not work here")
    add_project(parser)
    add_config(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    missing = 0
    for check in _checks(project_folder(arguments.project), config_settings(arguments.config)):
        sys.stdout.write(f"{check.mark}  {check.name:<20} {check.found}\n")
        for line in check.trace:
            sys.stdout.write(f"    {'':<20} {line}\n")
        sys.stdout.flush()
        missing += check.mark == _MISSING
    if missing:
        sys.stdout.write(
            f"a build would fail here: {missing} of these (!!) must be put right; builds with isolation install packages themselves\n"
        )
        return 1
    sys.stdout.write("a build can work here\n")
    return 0


def _checks(project: Path, given: Mapping[str, object]) -> Iterator[_Check]:
    yield _system()
    yield _Check(mark=_OK, name="Python", found=f"{platform.python_version()} ({sys.executable})")
    yield _own()
    settings, *checks = _project(project, given)
    yield from checks
    for requirement in _requirements(settings):
        yield _needed(requirement)
    if settings is not None and not settings.has_setuptools_base:
        yield _base(settings)
    for frontend in frontends(FRONTENDS if settings is None else settings.frontends):
        if all(map(importlib.util.find_spec, frontend.packages)):
            yield _process(f"{frontend.name} imports", frontend.import_check, needed=True)
    yield from _toolchain(settings)
    yield _temporary_folder()
    yield _disassembler()
    for name, note in _NOTE.items():
        version = _version(name)
        yield _Check(mark=_NOTED if version is None else _OK, name=name, found=f"not installed ({note})" if version is None else version)
    yield _process("HIP library, device", _OPEN_HIP, needed=False)


def _project(project: Path, given: Mapping[str, object]) -> tuple[Settings | None, *tuple[_Check, ...]]:
    """Return the settings and what is to be said of them; no settings where there are none: what any project needs is looked at then."""
    from flydsl_build.config.settings import read_settings

    if not (project / "pyproject.toml").exists():
        found = f"none here, so what any project needs is looked at: there is no pyproject.toml in {project}"
        return None, _Check(mark=_NOTED, name="project", found=found)
    other = other_backend(document) if (document := project_document(project)) else None
    checks = () if other is None else (_Check(mark=_NOTED, name="back end", found=other),)
    if other is not None and "flydsl-build" not in table_in(document, "tool"):
        # Somebody else's project, such as this one.
        path = project / "pyproject.toml"
        found = f"no table [tool.flydsl-build] in {path}, so what any project needs is looked at; flydsl-build init writes one"
        return None, *checks, _Check(mark=_NOTED, name="project", found=found)
    try:
        settings = read_settings(project, given, os.environ)
    except ConfigError as error:
        refused = _Check(mark=_MISSING, name="project", found="its settings are refused:", trace=tuple(str(error).splitlines()))
        # Without targets, the others still say which packages and which linker are needed.
        with contextlib.suppress(ConfigError):
            return read_settings(project, given, os.environ, need_archs=False), *checks, refused
        return None, *checks, refused
    if settings.kernels_from and not settings.archs_from:
        found = f"tool.flydsl-build.archs is not given: every kernel that {settings.kernels_from} declares needs `archs` of its own"
        return settings, *checks, _Check(mark=_NOTED, name="project", found=found)
    return settings, *checks, _Check(mark=_OK, name="project", found=str(project / "pyproject.toml"))


def _system() -> _Check:
    from flydsl_build.backend.build_environment import system_fault

    fault = system_fault()
    return _Check(mark=_OK if fault is None else _MISSING, name="system", found=fault or f"{platform.system()} {platform.machine()}")


def _own() -> _Check:
    import flydsl_build
    from flydsl_build.package.own_runtime import runtime_files

    version = flydsl_build.__version__
    try:
        runtime_files()
    except BuildError:
        found = f"{version}: has no native run time; pip install --force-reinstall flydsl-build"
        return _Check(mark=_MISSING, name="flydsl-build", found=found)
    return _Check(mark=_OK, name="flydsl-build", found=version)


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _requirements(settings: Settings | None) -> list[str]:
    from flydsl_build.backend.hooks import SETUPTOOLS, installed_needs_of, kernel_requirements

    # A build can do without others: there is a note on each, and on the linker a line of its own.
    return [SETUPTOOLS, *kernel_requirements(FRONTENDS)] if settings is None else installed_needs_of(settings)


def _needed(requirement: str) -> _Check:
    from flydsl_build.backend.build_environment import name_of, state_of

    is_right, found = state_of(requirement)
    mark, fix = (_OK, "") if is_right else (_MISSING, f': pip install "{requirement}"')
    return _Check(mark=mark, name=name_of(requirement), found=found + fix)


def _base(settings: Settings) -> _Check:
    from flydsl_build.backend.base_backend import load_base

    try:
        load_base(settings.base)
    except ConfigError as error:
        (fault,) = error.faults
        return _Check(mark=_MISSING, name="base back end", found=f"{fault.what}: {fault.fix}")
    return _Check(mark=_OK, name="base back end", found=settings.base)


def _process(name: str, code: str, *, needed: bool) -> _Check:
    """Try code in a process of its own: a library that ends its process must not end this one."""
    here = str(Path(__file__).resolve().parents[2])
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {here!r}); {code}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    except (OSError, subprocess.SubprocessError) as error:
        return _Check(mark=_MISSING if needed else _NOTED, name=name, found=str(error))
    if done.returncode == 0:
        return _Check(mark=_OK, name=name, found="yes")
    # After the traceback, the message: its first line is the reason, the others are where was looked.
    lines = done.stderr.strip().splitlines()
    start = next((index for index, line in reversed(list(enumerate(lines))) if re.match(r"[\w.]+: ", line)), max(0, len(lines) - 1))
    reason, *trace = lines[start:] or [f"the process ended with status {done.returncode}"]
    return _Check(
        mark=_MISSING if needed else _NOTED,
        name=name,
        found=("no: " if needed else "none, which a build does not need: ") + re.sub(r"^[\w.]+: ", "", reason),
        trace=tuple(line.strip() for line in trace),
    )


def _toolchain(settings: Settings | None) -> Iterator[_Check]:
    from flydsl_build.toolchain.discovery import find_linker, trace_bitcode

    if settings is None:
        lld, rocm = (Path(value) if (value := os.environ.get(name)) else None for name in ("FLYDSL_BUILD_LLD", "FLYDSL_BUILD_ROCM_PATH"))
    else:
        lld, rocm = settings.lld, settings.rocm_path
    try:
        linker, trace = find_linker(lld=lld, rocm_path=rocm)
    except BuildError as error:
        (fault,) = error.faults
        searched = tuple(fault.detail.splitlines()[1:])
        setting = "" if fault.where == "linker" else f"{fault.where}: "
        yield _Check(mark=_MISSING, name="linker", found=f"{setting}{fault.what}: {fault.fix}", trace=searched)
    else:
        yield _Check(mark=_OK, name="linker", found=linker.version, trace=trace)
    bitcode, trace = trace_bitcode(rocm_path=rocm)
    found = str(bitcode) if bitcode else "none (needed by kernels that call ocml or ockl only)"
    yield _Check(mark=_OK if bitcode else _NOTED, name="device bitcode", found=found, trace=trace)


def _temporary_folder() -> _Check:
    from flydsl_build.toolchain.discovery import safe_temporary_folder

    try:
        with safe_temporary_folder() as folder:
            return _Check(mark=_OK, name="temporary folder", found=str(Path(folder).parent))
    except (BuildError, OSError) as error:
        return _Check(mark=_MISSING, name="temporary folder", found=str(error).replace("\n", " "))


def _disassembler() -> _Check:
    from flydsl_build.toolchain.disassembler import find_disassemblers

    tools = [str(one) for one in find_disassemblers()]
    found = ", ".join(tools) or "none (needed by `inspect --isa` only)"
    return _Check(mark=_OK if tools else _NOTED, name="llvm-objdump", found=found)
