# SPDX-License-Identifier: Apache-2.0
"""What goes to a worker and what comes back. Everything is JSON or a file beside it; no pickles cross a process."""

from __future__ import annotations

from dataclasses import dataclass, field

from flydsl_build.codec import PlainValue
from flydsl_build.config.tables import ExternTable
from flydsl_build.declare.argument_types import ArgumentType
from flydsl_build.declare.specialization import Specialization
from flydsl_build.errors import Fault
from flydsl_build.jobs.launcher import EnumClass, Parameter, Slot

__all__ = [
    "BitcodeUse",
    "CodeObjectBuild",
    "Job",
    "JobResult",
    "Linker",
    "SpecializationBuild",
    "Tool",
    "Toolkit",
    "WorkerSettings",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class Linker:
    """A linker for AMDGPU and x86-64 ELF objects.

    Parameters
    ----------
    command
        What to run, without arguments.
    version
        Product and number.
    identity
        Differs between two builds of one version.
    """

    command: tuple[str, ...]
    version: str
    identity: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Toolkit:
    """What a worker compiles with.

    Parameters
    ----------
    folder
        A folder laid out like a ROCm installation: `llvm/bin/ld.lld` and, where found, `amdgcn/bitcode`.
    linker
        First line of `ld.lld --version`.
    has_device_bitcode
        Whether ocml/ockl are in the folder.
    trace
        Every place that was looked at, with what was found there.
    """

    folder: str
    linker: str
    has_device_bitcode: bool
    trace: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkerSettings:
    """What stays the same for all jobs of one worker process.

    Parameters
    ----------
    target
        The gfx name that every job of the process compiles for, if the front end binds processes to one.
    package_roots
        Folders put on the import path, the author's sources.
    project
        Folder of pyproject.toml.
    frontend
        The front end that every job of the process is for.
    """

    target: str
    package_roots: tuple[str, ...]
    toolkit: Toolkit
    project: str = ""
    frontend: str = ""
    verbose: bool = False
    env: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """The specializations of one declared module, for one target and one value of each axis.

    Parameters
    ----------
    output
        Folder for the files that the job writes, made for it.
    axes
        Axis names and values. Kernels that turn out not to depend on them are built by one job only.
    project
        Folder of pyproject.toml, from which bitcode paths start.
    environment
        The project's environment table, unexpanded; `engine.local` has set the expanded values.
    check
        Compile nothing: see whether what is declared fits the author's modules, and whether the files of externs are right.
    """

    module: str
    target: str
    output: str
    specializations: tuple[Specialization, ...]
    axes: tuple[tuple[str, str], ...] = ()
    project: str = ""
    externs: tuple[ExternTable, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    dump_ir: str | None = None
    check: bool = False

    @property
    def label(self) -> str:
        """Name the job for people."""
        axes = "".join(f", {name}={value}" for name, value in self.axes)
        return f"{self.module}, {self.target}{axes}"

    @property
    def frontend(self) -> str:
        """The front end that compiles it: all specializations of a module are for one."""
        return self.specializations[0].frontend


@dataclass(frozen=True, kw_only=True, slots=True)
class BitcodeUse:
    """One bitcode file that was linked into a code object.

    Parameters
    ----------
    file
        Its name, relative to the project.
    size
        In bytes.
    abi
        The code object version.
    externs
        The keys of the extern tables that it was linked for.
    """

    file: str
    sha256: str
    size: int
    abi: int | None = None
    externs: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeObjectBuild:
    """One code object and what belongs to it.

    Parameters
    ----------
    group
        "main", or the name of the set of compile options that keeps its specializations apart from the others.
    file
        Name of the AMDGPU ELF file in the job's output folder.
    kernels
        Symbols of the kernels in it.
    bitcode, device_libraries
        What was linked: for externs, and of ROCm's device libraries.
    """

    group: str
    file: str
    kernels: tuple[str, ...]
    axes: tuple[tuple[str, str], ...] = ()
    init: tuple[str, ...] = ()
    globals: tuple[str, ...] = ()
    bitcode: tuple[BitcodeUse, ...] = ()
    device_libraries: tuple[BitcodeUse, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class SpecializationBuild:
    """One compiled specialization.

    Parameters
    ----------
    form
        How the factory returns several launchers, one of which this is; see `factories.Resolved`.
    params
        What the factory was called with, objects as tables of all their fields.
    values
        The plain values that the factory returned beside launchers, by name.
    attributes
        The plain values that the source set as attributes of the launcher, by name.
    classes
        By name, the fields of the classes that objects were made of for tables.
    doc
        Docstring of the launcher, or of the factory.
    launcher_doc
        Docstring of the launcher that the factory returned; None if there is no factory.
    arguments
        The run-time arguments, by parameter name.
    slots
        The binary interface of the entry.
    group
        The code object of the job that has the kernels.
    axes
        Names of the axes that the kernels depend on.
    entry
        Symbol of the host entry; equal for equal host code.
    host_object
        Name of the x86-64 object file that defines `entry`.
    kernels
        Symbols of the kernels that the entry launches; the entry's kernel indexes point into it.
    """

    name: str
    launcher: str
    group: str
    axes: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    factory_parameters: tuple[Parameter, ...]
    params: dict[str, PlainValue]
    form: str | None
    values: dict[str, PlainValue]
    attributes: dict[str, PlainValue]
    classes: dict[str, tuple[Parameter, ...]]
    doc: str | None
    launcher_doc: str | None
    constexpr: dict[str, PlainValue]
    arguments: dict[str, ArgumentType]
    slots: tuple[Slot, ...]
    entry: str
    host_object: str
    kernels: tuple[str, ...]
    kernel_arguments: dict[str, tuple[int, ...]]
    source_file: str
    source_line: int
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """A program or library that takes part in compiling.

    Parameters
    ----------
    name
        As it calls itself.
    distribution
        The Python distribution that it is, which has its name then, or that it is a part of; empty for others.
    """

    name: str
    version: str
    distribution: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class JobResult:
    """What one job made.

    Parameters
    ----------
    public_names
        Of the module; of a check, without classes that are not declared.
    enums
        By `module:class`, the enums whose members are among the values.
    tools
        What the front end compiled with: the compiler first, then what is inside of it or is run by it.
    symbols
        The extern functions that its kernels call.
    """

    module: str
    target: str
    axes: tuple[tuple[str, str], ...]
    output: str
    doc: str | None
    public_names: tuple[str, ...]
    specializations: tuple[SpecializationBuild, ...]
    code_objects: tuple[CodeObjectBuild, ...]
    sources: dict[str, str]
    distributions: dict[str, str]
    tools: tuple[Tool, ...]
    seconds: float
    symbols: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = field(default=())
    enums: dict[str, EnumClass] = field(default_factory=dict)
