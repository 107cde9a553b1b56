# SPDX-License-Identifier: Apache-2.0
"""Check what a build needs of the machine and of the packages that are installed, before anything is built.

A build with isolation has what the hooks asked for. One without, `pip install --no-build-isolation` or `flydsl-build build`, has what is
there: a setuptools of another age, no FlyDSL, no linker.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from flydsl_build.cache.build_cache import open_cache
from flydsl_build.errors import Fault, FaultCollector, ToolchainError
from flydsl_build.jobs.frontend import frontends
from flydsl_build.toolchain.discovery import find_linker, safe_temporary_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flydsl_build.config.settings import Settings

__all__ = ["name_of", "require_installed", "require_machine", "state_of", "system_fault"]


# Our extra that brings a distribution. What fsspec needs beside itself is the protocol's.
_EXTRAS = {
    "setuptools": "build",
    "jinja2": "build",
    "distributed": "dask",
    "variantlib": "variants",
}


def name_of(requirement: str) -> str:
    """Return the distribution that a requirement of ours names."""
    return re.split(r"[\[<>]", requirement)[0]


def _numbers(version: str) -> tuple[int, ...]:
    match = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


def state_of(requirement: str) -> tuple[bool, str]:
    """Tell whether a requirement of ours is met, and what is installed.

    Its import package has the distribution's name. One without metadata, such as a source tree on the path, is taken for right.
    """
    name = name_of(requirement)
    if importlib.util.find_spec(name) is None:
        return False, "not installed"
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return True, "of unknown version"
    numbers = _numbers(version)
    bounds = {sign: _numbers(bound) for sign, bound in re.findall(r"(>=|<)([\d.]+)", requirement)}
    if numbers < bounds.get(">=", ()) or ("<" in bounds and numbers >= bounds["<"]):
        return False, f"{version} is not supported"
    return True, version


def require_installed(requirements: Sequence[str]) -> None:
    """Refuse to build with packages that are missing, too old or too new.

    Raises
    ------
    ToolchainError
        One fault for all of them, with the command that installs them.
    """
    states = {requirement: state_of(requirement) for requirement in requirements}
    wrong = [requirement for requirement, (is_right, _) in states.items() if not is_right]
    if wrong:
        found = [f"{name_of(one)} {'is ' * (states[one][1] == 'not installed')}{states[one][1]}" for one in wrong]
        install = " ".join(f'"{one}"' for one in wrong)
        compilers = {one: "build" for frontend in frontends() for one in frontend.requirements}
        extras = {compilers.get(one) or _EXTRAS.get(name_of(one), "") for one in wrong}
        brings = "" if "" in extras else f', or "flydsl-build[{",".join(sorted(extras))}]", which brings all that is needed'
        fix = f"pip install {install}{brings}; builds with isolation install it themselves"
        raise ToolchainError(Fault(where="build environment", what="; ".join(found), fix=fix))


def system_fault() -> str | None:
    """Return what is wrong with this machine's system, if anything is."""
    if sys.platform == "linux" and platform.machine() in {"x86_64", "AMD64"}:
        return None
    return f"{platform.system()} {platform.machine()}: kernels are built on x86-64 Linux"


def require_machine(settings: Settings, requirements: Sequence[str]) -> None:
    """Refuse to compile kernels where that cannot work: the system, packages, a linker, a temporary folder.

    Raises
    ------
    ToolchainError
        With all faults.
    """
    faults = FaultCollector()
    system = system_fault()
    if system is not None:
        faults.add("system", system, "build there; the wheel says where it can be installed")
    try:
        require_installed(requirements)
    except ToolchainError as error:
        faults.extend(error.faults)
    # What the linker said of itself is remembered: an unchanged project starts no process.
    cache = open_cache(replace(settings, remote_cache=None), os.environ, lambda _: None)
    try:
        find_linker(lld=settings.lld, rocm_path=settings.rocm_path, cache=cache)
        with safe_temporary_folder():
            pass
    except ToolchainError as error:
        faults.extend(error.faults)
    cache.close()
    faults.raise_if_any(ToolchainError)
