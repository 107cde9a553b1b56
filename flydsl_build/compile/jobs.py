# SPDX-License-Identifier: Apache-2.0
"""What goes to a worker and what comes back. Everything is JSON or a file beside it; no pickles cross a process."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from flydsl_build.config.tables import ExternTable
from flydsl_build.declare.specialization import Specialization
from flydsl_build.errors import Fault

__all__ = [
    "BitcodeUse",
    "CodeObjectBuild",
    "Job",
    "JobResult",
    "ParameterInfo",
    "SpecializationBuild",
    "Toolkit",
    "WorkerSettings",
]


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
        The gfx name every job of the process compiles for.
    package_roots
        Folders put on the import path, the author's sources.
    project
        Folder of pyproject.toml.
    """

    target: str
    package_roots: tuple[str, ...]
    toolkit: Toolkit
    project: str = ""
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
        The project's environment table, unexpanded; `local_executor` has set the expanded values.
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

    @property
    def label(self) -> str:
        """Name the job for people."""
        axes = "".join(f", {name}={value}" for name, value in self.axes)
        return f"{self.module}, {self.target}{axes}"

    @property
    def worker_key(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """What a worker process is bound to: modules compute constants from these when they are imported."""
        return self.target, self.axes if self.environment else ()

    def to_json(self) -> dict[str, Any]:
        """Return the job as JSON values."""
        return {
            "module": self.module,
            "target": self.target,
            "output": self.output,
            "specializations": [one.to_json() for one in self.specializations],
            "axes": self.axes,
            "project": self.project,
            "externs": [asdict(one) for one in self.externs],
            "environment": self.environment,
            "dump_ir": self.dump_ir,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Job:
        """Read what `to_json` wrote."""
        return cls(
            **{
                **data,
                "specializations": tuple(Specialization.from_json(one) for one in data["specializations"]),
                "axes": _pairs(data["axes"]),
                "externs": tuple(_extern_table(one) for one in data["externs"]),
                "environment": _pairs(data["environment"]),
            }
        )


def _extern_table(data: dict[str, Any]) -> ExternTable:
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in data.items()}
    return ExternTable(**values)


def _bitcode_use(data: dict[str, Any]) -> BitcodeUse:
    return BitcodeUse(**{**data, "externs": tuple(data["externs"])})


def _pairs(items: list[list[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in items)


@dataclass(frozen=True, kw_only=True, slots=True)
class ParameterInfo:
    """One parameter of a launcher or factory, as its signature shows it.

    Parameters
    ----------
    default
        The default's JSON form; None where there is none.
    opaque
        Whether the default has no JSON form: what is given cannot be compared with it, but it can be left out.
    """

    name: str
    kind: str
    annotation: str
    role: str
    has_default: bool = False
    default: Any = None
    opaque: bool = False


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
    classes
        By name, the fields of the classes that objects were made of for tables.
    doc
        Docstring of the launcher, or of the factory.
    launcher_doc
        Docstring of the launcher that the factory returned; None if there is no factory.
    arguments
        The manifest's description of each run-time argument, by parameter name.
    slots
        The manifest's description of the entry's slots.
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
    parameters: tuple[ParameterInfo, ...]
    factory_parameters: tuple[ParameterInfo, ...]
    params: dict[str, Any]
    form: str | None
    values: dict[str, Any]
    classes: dict[str, tuple[ParameterInfo, ...]]
    doc: str | None
    launcher_doc: str | None
    constexpr: dict[str, Any]
    arguments: dict[str, Any]
    slots: tuple[dict[str, Any], ...]
    entry: str
    host_object: str
    kernels: tuple[str, ...]
    kernel_arguments: dict[str, tuple[int, ...]]
    source_file: str
    source_line: int
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class JobResult:
    """What one job made.

    Parameters
    ----------
    enums
        By `module:class`, the enums whose members are among the values: `bases`, `doc`, and `members` with `name`, and `value` or `alias`.
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
    flydsl: str
    llvm: str
    seconds: float
    warnings: tuple[str, ...] = ()
    faults: tuple[Fault, ...] = field(default=())
    enums: dict[str, dict[str, Any]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> JobResult:
        """Read what `to_json` wrote."""

        def parameters(items: list[dict[str, Any]]) -> tuple[ParameterInfo, ...]:
            return tuple(ParameterInfo(**item) for item in items)

        specializations = tuple(
            SpecializationBuild(
                **{
                    **one,
                    "parameters": parameters(one["parameters"]),
                    "factory_parameters": parameters(one["factory_parameters"]),
                    "classes": {name: parameters(fields) for name, fields in one["classes"].items()},
                    "axes": tuple(one["axes"]),
                    "slots": tuple(one["slots"]),
                    "kernels": tuple(one["kernels"]),
                    "kernel_arguments": {name: tuple(sizes) for name, sizes in one["kernel_arguments"].items()},
                }
            )
            for one in data["specializations"]
        )
        code_objects = tuple(
            CodeObjectBuild(
                **{
                    **one,
                    "kernels": tuple(one["kernels"]),
                    "axes": _pairs(one["axes"]),
                    "init": tuple(one["init"]),
                    "globals": tuple(one["globals"]),
                    "bitcode": tuple(_bitcode_use(use) for use in one["bitcode"]),
                    "device_libraries": tuple(_bitcode_use(use) for use in one["device_libraries"]),
                }
            )
            for one in data["code_objects"]
        )
        return cls(
            **{
                **data,
                "axes": _pairs(data["axes"]),
                "public_names": tuple(data["public_names"]),
                "specializations": specializations,
                "code_objects": code_objects,
                "warnings": tuple(data["warnings"]),
                "faults": tuple(Fault(**fault) for fault in data["faults"]),
            }
        )
