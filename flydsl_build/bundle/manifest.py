# SPDX-License-Identifier: Apache-2.0
"""The manifest: the one description of a declared module that build and run time both read.

It is a JSON file, `<module>.json`, beside the bundle and the launcher library. The dataclasses below are its schema: one field is
one key, in file order. The same manifest always gives the same bytes.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from enum import Enum
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, cast, get_args

from flydsl_build.declare.argument_json import argument_to_json
from flydsl_build.declare.argument_types import Dim, PointerType, ScalarType, StreamType, StructType, TensorType
from flydsl_build.errors import BuildError, Fault, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from flydsl_build.declare.argument_types import ArgumentType
    from flydsl_build.targets.code_object import AmdgpuCodeObject

__all__ = [
    "NO_DEFAULT",
    "SCHEMA",
    "Axis",
    "Bitcode",
    "CodeObject",
    "DeviceGlobal",
    "Distribution",
    "HostEntry",
    "Kernel",
    "KernelArgument",
    "LauncherEntry",
    "LauncherKind",
    "Library",
    "Load",
    "Manifest",
    "ManifestError",
    "NoDefault",
    "Outline",
    "Parameter",
    "ParameterKind",
    "PlainValue",
    "Provenance",
    "Returns",
    "ReturnsForm",
    "Role",
    "Slot",
    "SlotKind",
    "Source",
    "SpecializationEntry",
    "Unit",
    "argument_from_json",
    "manifest_faults",
    "manifest_kernels",
    "read_manifest",
    "slot_from_json",
]

SCHEMA: Final = 1
"""Version of the manifest's form; a reader refuses newer ones."""

PlainValue: TypeAlias = "bool | int | float | str | tuple[PlainValue, ...] | dict[str, PlainValue] | None"
"""A constexpr value, a parameter of a factory, a default; an object with fields is a table of them."""

_FLOAT: Final = "$float"
"""The key of an object that stands for a number which JSON has no form for, such as `{"$float": "-inf"}`. No field has such a name."""

_NOT_FINITE: Final = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}

_JSON: TypeAlias = "bool | int | float | str | list[_JSON] | dict[str, _JSON] | None"

Role: TypeAlias = Literal["tensor", "pointer", "scalar", "struct", "stream", "constexpr", "type"]
ParameterKind: TypeAlias = Literal["POSITIONAL_ONLY", "POSITIONAL_OR_KEYWORD", "VAR_POSITIONAL", "KEYWORD_ONLY", "VAR_KEYWORD"]
SlotKind: TypeAlias = Literal["data", "layout", "scalar", "pointer", "stream"]
Load: TypeAlias = Literal["import", "lazy"]
LauncherKind: TypeAlias = Literal["launcher", "factory"]
ReturnsForm: TypeAlias = Literal["tuple", "namedtuple", "dict", "object"]

_T = TypeVar("_T")
_Read: TypeAlias = Callable[["_JsonReader", object, str], Any]

_MAX_DEPTH: Final = 32
# What the run time passes in one call: FDR_MAX_ARGUMENTS and FDR_MAX_BLOCK of native/flydsl_runtime.h, whose block has 32 bytes of its own.
_MAX_ARGUMENTS: Final = 512
_MAX_PACKED: Final = 64 * 1024 - 32
_PACKED_ALIGNMENT: Final = 16
_SHOWN: Final = 60
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_ABSOLUTE: Final = re.compile(r"(?:file://)?/[^/\s]+/|[A-Za-z]:[\\/]|\\\\")
_DIM: Final = re.compile(r"(\?|[A-Za-z_][A-Za-z0-9_]*)(?:%([1-9][0-9]*))?")


class ManifestError(BuildError):
    """A manifest that cannot be read or must not be written."""

    stage = "manifest"


class NoDefault(Enum):
    """The type of `NO_DEFAULT`: a parameter without a default, which is not the same as one whose default is None."""

    NO_DEFAULT = "no default"


NO_DEFAULT: Final = NoDefault.NO_DEFAULT


@dataclass(frozen=True, kw_only=True, slots=True)
class Distribution:
    """The distribution the module belongs to."""

    name: str
    version: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """A build axis beside the target.

    Parameters
    ----------
    values
        The values that were built, in the author's order.
    select
        `module:function` that names the value at load; None leaves it to the environment variable.
    """

    values: tuple[str, ...]
    select: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Library:
    """The launcher library beside the manifest: file name, digest, size in bytes."""

    file: str = field(metadata={"check": "file name"})
    sha256: str = field(metadata={"check": "sha256"})
    size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceGlobal:
    """A device variable that an init function writes, and its size in bytes."""

    name: str
    size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelArgument:
    """Offset and size of one explicit kernel argument in the kernarg segment, in bytes."""

    offset: int
    size: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Kernel:
    """One kernel of a code object; sizes in bytes.

    Parameters
    ----------
    symbol
        The function's name; its descriptor is `<symbol>.kd`.
    kernarg_size
        Of the whole kernarg segment, hidden arguments included.
    code_size, lds, private
        Machine code, static LDS of a workgroup, scratch of a work item.
    vgpr, agpr, sgpr, vgpr_spills, sgpr_spills
        Register counts.
    wavefront, max_workgroup
        Work items.
    reqd_workgroup
        The workgroup size the kernel was compiled for, or None for any up to `max_workgroup`.
    args
        The explicit arguments, in order.
    """

    symbol: str
    kernarg_size: int
    code_size: int
    lds: int
    private: int
    vgpr: int
    agpr: int
    sgpr: int
    vgpr_spills: int
    sgpr_spills: int
    wavefront: int
    max_workgroup: int
    reqd_workgroup: tuple[int, int, int] | None
    args: tuple[KernelArgument, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class CodeObject:
    """One AMDGPU ELF in a bundle: its place in the file in bytes, digest, e_flags and kernels in the order of the metadata."""

    offset: int
    size: int
    sha256: str = field(metadata={"check": "sha256"})
    e_flags: int
    kernels: tuple[Kernel, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Unit:
    """The specializations that share compile options and axis values: one bundle, one code object for each target.

    Parameters
    ----------
    name
        Unique in the module; "main" for the usual single one.
    axes
        Axis name to the value this unit was built for.
    bundle
        File name of the offload bundle beside the manifest. With `{target}` in it, each target has a bundle of its own, which a device
        wheel may have brought.
    init
        Init functions as `module:qualname`, in the order they run.
    globals
        Device variables the init functions write.
    code_objects
        By target.
    """

    name: str
    axes: dict[str, str]
    bundle: str = field(metadata={"check": "file name"})
    init: tuple[str, ...]
    globals: tuple[DeviceGlobal, ...]
    code_objects: dict[str, CodeObject]

    @property
    def is_split(self) -> bool:
        """Whether each target has a bundle of its own."""
        return "{target}" in self.bundle

    def bundle_of(self, target: str) -> str:
        """Return the file name of the bundle that has the target's code object."""
        return self.bundle.replace("{target}", target)

    def bundles(self) -> dict[str, tuple[str, ...]]:
        """Return the file names of the bundles, each with the targets in it."""
        found: dict[str, tuple[str, ...]] = {} if self.is_split else {self.bundle: ()}
        for target in self.code_objects:
            name = self.bundle_of(target)
            found[name] = (*found.get(name, ()), target)
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    """One parameter of a launcher or factory.

    Parameters
    ----------
    name, kind
        As in `inspect.Parameter`.
    annotation
        Text of the annotation in the source, None for none.
    role
        What the parameter is to the launcher. A factory's parameters are `constexpr`, or `type` for FlyDSL types, which have the
        names of their dtypes as values.
    default
        The default; None stands for `fx.Stream(None)` too.
    """

    name: str
    kind: ParameterKind
    annotation: str | None
    role: Role
    default: PlainValue | NoDefault = NO_DEFAULT


@dataclass(frozen=True, kw_only=True, slots=True)
class Slot:
    """One value of the launcher library's binary interface, in the order of `slots`.

    Parameters
    ----------
    argument
        The parameter it comes from; None for the stream of a launcher without a stream parameter.
    field
        Path of the struct field it comes from, e.g. `a.b`.
    kind
        `data` (device pointer of a tensor), `layout` (its dynamic extents, then its dynamic strides, packed), `scalar`, `pointer` or
        `stream`.
    size, align
        Of the storage, in bytes.
    shape_dims, stride_dims
        Of a layout: the dims whose extent or stride is in it, in order.
    shape_bits, stride_bits
        Of a layout: width of each extent and stride.
    """

    argument: str | None
    field: str | None = None
    kind: SlotKind
    size: int
    align: int
    shape_dims: tuple[int, ...] | None = None
    stride_dims: tuple[int, ...] | None = None
    shape_bits: int | None = None
    stride_bits: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class HostEntry:
    """The host function of one specialization for one target.

    Parameters
    ----------
    entry
        Symbol in the launcher library.
    kernels
        Entry-local kernel index to position in the code object's `kernels`.
    """

    entry: str
    kernels: tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A place in the author's source; the file is relative to the project's source root."""

    file: str = field(metadata={"check": "relative path"})
    line: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SpecializationEntry:
    """One launcher with fixed argument types and constexpr values.

    Parameters
    ----------
    name
        Unique in the module.
    constexpr
        Values of the launcher's constexpr and type parameters; of a struct, a table of its constexpr fields.
    params
        The parameters its factory was called with, completed by its plain defaults; empty for a plain launcher. What is missing of
        the factory's parameters has a default that cannot be compared: a call has to leave it out.
    element
        Which of several launchers that the factory returns; absent if it returns one.
    values
        By target, the plain values that its factory returns beside it, by the names of `returns`; absent if there are none. A list is
        `{"list": […]}`, an array is a tuple, and a FlyDSL type is `{"dtype": name}`.
    parameters
        Of this launcher, where the factory returns launchers with different ones; absent where they are those of the launcher entry.
    out
        The parameters that the launcher writes; absent if that was not declared.
    targets
        The targets it was built for, in the author's order.
    arguments
        By parameter name; every parameter that is not constexpr.
    slots
        The binary interface.
    entries
        By target, then by the name of the unit that has the kernels: one for each value of the axes they depend on.
    options
        Declared compile options by their TOML keys, nested ones joined with dots: `gfx942.waves-per-eu`.
    source
        Where the launcher stands.
    """

    name: str
    constexpr: dict[str, PlainValue]
    params: dict[str, PlainValue]
    element: str | None = None
    values: dict[str, dict[str, PlainValue]] | None = None
    parameters: tuple[Parameter, ...] | None = None
    out: tuple[str, ...] | None = None
    targets: tuple[str, ...]
    arguments: dict[str, ArgumentType]
    slots: tuple[Slot, ...]
    entries: dict[str, dict[str, HostEntry]]
    options: dict[str, PlainValue]
    source: Source | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Returns:
    """What a factory returns if it is not one launcher.

    Parameters
    ----------
    form
        A tuple (of lists, too), a named tuple, a dict, or an object with attributes.
    names
        Of the items of a tuple in order, keys, or attributes: launchers and plain values.
    """

    form: ReturnsForm
    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class LauncherEntry:
    """A public name of the stub.

    Parameters
    ----------
    name
        The attribute of the module.
    kind
        `launcher`, or `factory`: a function of `factory_parameters` that returns a launcher.
    doc
        Docstring of the function called `name`.
    parameters
        Of the launcher; for a factory, of the launchers that it returns, but for specializations that have their own.
    factory_parameters
        Of the factory; absent for a launcher.
    returns
        The several things that the factory returns; absent if it returns one launcher.
    specializations
        All of them, in order of declaration.
    """

    name: str
    kind: LauncherKind
    doc: str | None
    parameters: tuple[Parameter, ...]
    factory_parameters: tuple[Parameter, ...] | None = None
    returns: Returns | None = None
    specializations: tuple[SpecializationEntry, ...]

    def parameters_of(self, specialization: SpecializationEntry) -> tuple[Parameter, ...]:
        """Return the parameters of one specialization: its own, or the launcher's."""
        return self.parameters if specialization.parameters is None else specialization.parameters


@dataclass(frozen=True, kw_only=True, slots=True)
class Bitcode:
    """Bitcode that was linked.

    Parameters
    ----------
    file
        Relative to the project; of a device library of ROCm, its name.
    size
        In bytes.
    targets
        Those that it went into.
    license_files
        Of the bitcode, relative to the project and to the `licenses` folder of the wheel's metadata.
    """

    file: str = field(metadata={"check": "relative path"})
    sha256: str = field(metadata={"check": "sha256"})
    size: int
    code_object_version: int | None
    targets: tuple[str, ...]
    license_files: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Provenance:
    """What the module was made with.

    Parameters
    ----------
    bitcode, device_libraries
        What was linked into code objects: of externs, and of ROCm's device libraries.
    sources
        Relative files of the author to their digests.
    distributions
        Top-level modules of init functions from elsewhere to the distributions that had them.
    """

    flydsl: str
    llvm: str
    linker: str
    flydsl_build: str
    bitcode: tuple[Bitcode, ...]
    sources: dict[str, str] = field(metadata={"check": "digests of relative paths"})
    distributions: dict[str, str] = field(default_factory=dict)
    device_libraries: tuple[Bitcode, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """The description of one declared module.

    Parameters
    ----------
    module
        Its dotted name.
    load
        When the run time loads it: `import` or `lazy`.
    targets
        All targets that some unit has code for, in the author's order.
    axes
        By name.
    library
        The launcher library.
    classes
        By name, the fields of the classes whose objects select a specialization: structs with constexpr fields, and parameters of
        factories. Absent if there are none.
    units, launchers, provenance
        See the classes.
    """

    schema: int = SCHEMA
    module: str
    distribution: Distribution
    load: Load
    targets: tuple[str, ...]
    axes: dict[str, Axis]
    library: Library
    classes: dict[str, tuple[Parameter, ...]] | None = None
    units: tuple[Unit, ...]
    launchers: tuple[LauncherEntry, ...]
    provenance: Provenance

    def to_json(self) -> str:
        """Return the manifest's text: keys in the order of the schema, maps sorted, indented by one, ASCII, a newline at the end.

        Raises
        ------
        ManifestError
            The manifest contradicts itself, holds an absolute path, or a value that JSON has no form for.
        """
        where = f"manifest of {self.module}"
        value = _Writer(where).record(self, "")
        # The reader's own rules (paths, digests, dims) are checked by reading back what is about to be written.
        reader = _JsonReader(where)
        reader.record(Manifest, value, "")
        faults = [*_path_faults(value, where), *reader.faults, *manifest_faults(self, where=where)]
        if faults:
            raise ManifestError(*faults)
        return json.dumps(value, indent=1, ensure_ascii=True, allow_nan=False) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, *, where: str) -> Manifest:
        """Read a manifest.

        Parameters
        ----------
        text
            The whole file.
        where
            Its name, for faults.

        Raises
        ------
        ManifestError
            The text is not a manifest of this schema. All faults name the file and the place in it.
        """
        value = _parse(text, where)
        if not isinstance(value, dict):
            raise ManifestError(Fault(where=where, what="is not a JSON object, so it is not a manifest"))
        schema = value.get("schema")
        if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
            raise ManifestError(Fault(where=f"{where}: schema", what="is not a version number, so the file is not a manifest"))
        if schema > SCHEMA:
            what = f"is {schema}, this version of flydsl-build reads manifests up to {SCHEMA}"
            raise ManifestError(Fault(where=f"{where}: schema", what=what, fix="use the flydsl-build that wrote it, or a newer one"))
        reader = _JsonReader(where)
        manifest = reader.record(cls, value, "")
        if reader.faults:
            raise ManifestError(*reader.faults)
        faults = manifest_faults(manifest, where=where)
        if faults:
            raise ManifestError(*faults)
        return manifest

    def specializations(self) -> Iterator[tuple[LauncherEntry, SpecializationEntry]]:
        """Give each specialization with its launcher, in order."""
        for launcher in self.launchers:
            for specialization in launcher.specializations:
                yield launcher, specialization


@dataclass(frozen=True, kw_only=True, slots=True)
class Outline:
    """What a wheel is put together by: of a manifest its targets, the `bundle` of each unit, and its provenance."""

    targets: tuple[str, ...]
    bundles: tuple[str, ...]
    provenance: Provenance

    @classmethod
    def from_json(cls, text: bytes, *, where: str) -> Outline | None:
        """Read it from a manifest that this program has just written; the rest, which may be large, is not looked at.

        None for another file, which the author may have in a folder that is named like ours.
        """
        try:
            value = json.loads(text)
        except ValueError:
            return None
        if not isinstance(value, dict) or not value.keys() >= {"schema", "targets", "units", "provenance"}:
            return None
        reader = _JsonReader(where)
        provenance = reader.record(Provenance, value["provenance"], "provenance")
        if reader.faults:
            raise ManifestError(*reader.faults)
        return cls(targets=tuple(value["targets"]), bundles=tuple(unit["bundle"] for unit in value["units"]), provenance=provenance)


def read_manifest(path: Path) -> Manifest:
    """Read a manifest file; raise `ManifestError` if it cannot be read or is none."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ManifestError(Fault(where=path.name, what=f"cannot be read: {error.strerror or error}")) from None
    return Manifest.from_json(data, where=path.name)


def manifest_kernels(code_object: AmdgpuCodeObject) -> tuple[Kernel, ...]:
    """Return the manifest's description of the kernels of a code object, in the order of its metadata."""
    return tuple(
        Kernel(
            symbol=kernel.symbol,
            kernarg_size=kernel.kernarg_size,
            code_size=kernel.code_size,
            lds=kernel.group_segment_size,
            private=kernel.private_segment_size,
            vgpr=kernel.vgpr,
            agpr=kernel.agpr,
            sgpr=kernel.sgpr,
            vgpr_spills=kernel.vgpr_spills,
            sgpr_spills=kernel.sgpr_spills,
            wavefront=kernel.wavefront,
            max_workgroup=kernel.max_workgroup,
            reqd_workgroup=kernel.reqd_workgroup,
            args=tuple(KernelArgument(offset=argument.offset, size=argument.size) for argument in kernel.explicit_arguments),
        )
        for kernel in code_object.kernels
    )


def argument_from_json(value: object, *, where: str) -> ArgumentType:
    """Read an argument type in the manifest's spelling, with every check; the reader of `declare` trusts its input.

    Parameters
    ----------
    value
        The parsed JSON.
    where
        File and JSON path, for faults.

    Raises
    ------
    ManifestError
        It is no argument type.
    """
    reader = _JsonReader(where)
    argument: ArgumentType = reader.argument(value, "")
    if reader.faults:
        raise ManifestError(*reader.faults)
    return argument


def slot_from_json(value: object, *, where: str) -> Slot:
    """Read a slot in the manifest's spelling; raise `ManifestError` if it is none."""
    reader = _JsonReader(where)
    slot = reader.record(Slot, value, "")
    if reader.faults:
        raise ManifestError(*reader.faults)
    return slot


def manifest_faults(manifest: Manifest, *, where: str) -> list[Fault]:
    """Return what is contradictory within a manifest: names that lead nowhere, names used twice, impossible sizes."""
    check = _Consistency(where)
    check.manifest(manifest)
    return check.faults


class _Consistency:
    """The rules that reach over several objects of a manifest."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.faults: list[Fault] = []

    def fault(self, path: str, what: str) -> None:
        self.faults.append(Fault(where=f"{self.where}: {path}", what=what))

    def unique(self, names: list[str], path: str, noun: str) -> None:
        seen: set[str] = set()
        for name in names:
            if name in seen:
                self.fault(path, f'two {noun} have the name "{name}"')
            seen.add(name)

    def manifest(self, manifest: Manifest) -> None:
        self.unique(list(manifest.targets), "targets", "targets")
        self.unique([unit.name for unit in manifest.units], "units", "units")
        self.unique([name for unit in manifest.units for name in unit.bundles()], "units", "bundles")
        self.unique([launcher.name for launcher in manifest.launchers], "launchers", "launchers")
        self.unique([specialization.name for _, specialization in manifest.specializations()], "launchers", "specializations")
        for n, unit in enumerate(manifest.units):
            self.unit(manifest, unit, f"units[{n}]")
        units = {unit.name: unit for unit in manifest.units}
        for n, launcher in enumerate(manifest.launchers):
            self.launcher(manifest, launcher, units, f"launchers[{n}]")

    def unit(self, manifest: Manifest, unit: Unit, path: str) -> None:
        for axis, value in unit.axes.items():
            if axis not in manifest.axes:
                self.fault(f"{path}.axes", f'there is no axis "{axis}"')
            elif value not in manifest.axes[axis].values:
                self.fault(f"{path}.axes.{axis}", f'"{value}" is not a value of the axis')
        self.unique([variable.name for variable in unit.globals], f"{path}.globals", "globals")
        for target, code_object in unit.code_objects.items():
            if target not in manifest.targets:
                self.fault(f"{path}.code_objects", f'"{target}" is not among the targets')
            self.unique([kernel.symbol for kernel in code_object.kernels], f"{path}.code_objects.{target}", "kernels")
        for init in unit.init:
            if not _is_reference(init):
                self.fault(f"{path}.init", f'"{init}" is not of the form module:qualname')

    def launcher(self, manifest: Manifest, launcher: LauncherEntry, units: dict[str, Unit], path: str) -> None:
        self.unique([parameter.name for parameter in launcher.parameters], f"{path}.parameters", "parameters")
        self.unique([parameter.name for parameter in launcher.factory_parameters or ()], f"{path}.factory_parameters", "parameters")
        if (launcher.kind == "factory") != (launcher.factory_parameters is not None):
            self.fault(path, "has factory_parameters if, and only if, its kind is factory")
        if launcher.kind != "factory" and launcher.returns is not None:
            self.fault(f"{path}.returns", "only a factory returns launchers")
        if launcher.returns is not None:
            self.unique(list(launcher.returns.names), f"{path}.returns", "launchers")
        if not launcher.specializations:
            self.fault(path, "has no specialization")
        parameters: dict[str, tuple[Parameter, ...]] = {}
        values: dict[str, dict[str, PlainValue]] = {}
        for n, specialization in enumerate(launcher.specializations):
            place = f"{path}.specializations[{n}]"
            self.specialization(manifest, launcher, specialization, units, place)
            self.own_parameters(launcher, specialization, place)
            # The run time makes one launcher of them, which has one signature.
            key = repr((sorted(specialization.params.items()), specialization.element))
            mine = launcher.parameters_of(specialization)
            if parameters.setdefault(key, mine) != mine:
                self.fault(f"{place}.parameters", "differ from those of another specialization of the same factory parameters")
            for target, found in (specialization.values or {}).items():
                # On one device, one call of the factory returns one value of each name.
                key = repr((sorted(specialization.params.items()), target))
                if repr(values.setdefault(key, found)) != repr(found):
                    self.fault(f"{place}.values.{target}", "differ from those of another specialization of the same factory parameters")

    def own_parameters(self, launcher: LauncherEntry, specialization: SpecializationEntry, path: str) -> None:
        names = () if launcher.returns is None else launcher.returns.names
        if (specialization.element is None) != (launcher.returns is None) or (names and specialization.element not in names):
            self.fault(f"{path}.element", f"{specialization.element} is not what the launcher's `returns` names")
        if specialization.values is not None:
            if set(specialization.values) != set(specialization.targets):
                self.fault(f"{path}.values", "does not have exactly the targets of the specialization")
            for target, found in specialization.values.items():
                for name in found:
                    if name not in names:
                        self.fault(f"{path}.values.{target}", f"{name} is not what the launcher's `returns` names")
        if specialization.parameters is None:
            return
        if launcher.kind != "factory":
            self.fault(f"{path}.parameters", "only the launchers of a factory have parameters of their own")
        self.unique([parameter.name for parameter in specialization.parameters], f"{path}.parameters", "parameters")

    def specialization(
        self, manifest: Manifest, launcher: LauncherEntry, specialization: SpecializationEntry, units: dict[str, Unit], path: str
    ) -> None:
        for target in specialization.targets:
            if target not in manifest.targets:
                self.fault(f"{path}.targets", f'"{target}" is not among the targets of the manifest')
        if set(specialization.entries) != set(specialization.targets):
            self.fault(f"{path}.entries", "does not have exactly the targets of the specialization")
        self.arguments(launcher.parameters_of(specialization), specialization, path)
        self.slots(specialization, path)
        for target, by_unit in specialization.entries.items():
            if not by_unit:
                self.fault(f"{path}.entries.{target}", "names no unit")
            for name, entry in by_unit.items():
                self.entry(units.get(name), name, target, entry, f"{path}.entries.{target}")

    def arguments(self, parameters: Sequence[Parameter], specialization: SpecializationEntry, path: str) -> None:
        passed = {parameter.name for parameter in parameters if parameter.role not in {"constexpr", "type"}}
        if set(specialization.arguments) != passed:
            odd = ", ".join(sorted(passed.symmetric_difference(specialization.arguments)))
            self.fault(f"{path}.arguments", f"does not have exactly the launcher's parameters that are passed: {odd}")
        for name in specialization.out or ():
            if name not in specialization.arguments:
                self.fault(f"{path}.out", f'"{name}" is not an argument')
        count = sum(map(_count_leaves, specialization.arguments.values()))
        if max(count, len(parameters)) > _MAX_ARGUMENTS:
            self.fault(f"{path}.arguments", f"a call passes {count} values by {len(parameters)} parameters, the run time {_MAX_ARGUMENTS}")
        packed = sum(-(-slot.size // _PACKED_ALIGNMENT) * _PACKED_ALIGNMENT for slot in specialization.slots)
        if packed > _MAX_PACKED:
            self.fault(f"{path}.slots", f"the packed arguments have {packed} bytes, the run time passes {_MAX_PACKED}")

    def entry(self, unit: Unit | None, name: str, target: str, entry: HostEntry, path: str) -> None:
        if unit is None:
            self.fault(path, f'there is no unit "{name}"')
        elif target not in unit.code_objects:
            self.fault(path, f'unit "{name}" has no code object for it')
        elif any(kernel >= len(unit.code_objects[target].kernels) for kernel in entry.kernels):
            self.fault(f"{path}.{name}.kernels", f"the code object has {len(unit.code_objects[target].kernels)} kernels")

    def slots(self, specialization: SpecializationEntry, path: str) -> None:
        for n, slot in enumerate(specialization.slots):
            if slot.argument is None:
                if slot.kind != "stream":
                    self.fault(f"{path}.slots[{n}]", f"a {slot.kind} slot needs an argument")
            elif slot.argument not in specialization.arguments:
                self.fault(f"{path}.slots[{n}].argument", f'"{slot.argument}" is not an argument')
            layout = (slot.shape_dims, slot.stride_dims, slot.shape_bits, slot.stride_bits)
            if any((value is None) == (slot.kind == "layout") for value in layout):
                self.fault(f"{path}.slots[{n}]", "has shape and stride dims and bits if, and only if, its kind is layout")


def _count_leaves(argument: ArgumentType) -> int:
    return sum(_count_leaves(field) for _, field in argument.fields) if isinstance(argument, StructType) else 1


def _is_reference(text: str) -> bool:
    module, colon, name = text.partition(":")
    return bool(colon) and all(part.isidentifier() for part in [*module.split("."), *name.split(".")])


def _path_faults(value: _JSON, where: str) -> Iterator[Fault]:
    """Find absolute paths: they name the machine that built the wheel and make two builds differ."""
    stack: list[tuple[str, _JSON]] = [("", value)]
    while stack:
        path, item = stack.pop()
        # A docstring is the author's text; what it says about /opt/rocm does not come from this machine.
        if isinstance(item, str) and _ABSOLUTE.match(item) and not path.endswith(".doc"):
            yield Fault(where=f"{where}: {path}", what=f'holds the absolute path "{item}"', fix="make it relative to the project")
        elif isinstance(item, dict):
            stack += [(_join(path, key), each) for key, each in item.items()]
            stack += [(f"{path} (key)", key) for key in item]
        elif isinstance(item, list):
            stack += [(f"{path}[{n}]", each) for n, each in enumerate(item)]


def _join(path: str, key: str) -> str:
    shown = key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else json.dumps(key)
    return f"{path}.{shown}" if path else shown


class _DuplicateKeyError(ValueError):
    """A key stands twice in one JSON object."""


def _parse(text: str | bytes, where: str) -> object:
    def no_constant(name: str) -> object:
        msg = f"{name} is not JSON"
        raise ValueError(msg)

    def once(pairs: list[tuple[str, object]]) -> dict[str, object]:
        found = dict(pairs)
        if len(found) != len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise _DuplicateKeyError(twice)
        return found

    try:
        decoded = text.decode() if isinstance(text, bytes) else text
        return cast("object", json.loads(decoded, parse_constant=no_constant, object_pairs_hook=once))
    except UnicodeDecodeError:
        raise ManifestError(Fault(where=where, what="is not UTF-8 text")) from None
    except _DuplicateKeyError as error:
        raise ManifestError(Fault(where=where, what=f'the key "{error}" stands twice in one object')) from None
    except json.JSONDecodeError as error:
        raise ManifestError(Fault(where=f"{where}:{error.lineno}:{error.colno}", what=f"is not JSON: {error.msg}")) from None
    except (ValueError, RecursionError) as error:
        # Numbers of thousands of digits, NaN, arrays nested without end.
        raise ManifestError(Fault(where=where, what=f"is not JSON that can be read: {error}")) from None


class _Writer:
    """Turn the dataclasses into JSON values; `where` is for faults."""

    def __init__(self, where: str) -> None:
        self.where = where

    def record(self, value: Any, path: str) -> dict[str, _JSON]:
        found: dict[str, _JSON] = {}
        for each in fields(value):
            item = getattr(value, each.name)
            # Absent and null differ only for fields that have a default: those are left out.
            if item is each.default and each.name != "schema":
                continue
            found[each.name] = self.value(item, _join(path, each.name))
        return found

    def value(self, value: object, path: str) -> _JSON:
        match value:
            case None | bool() | int() | str():
                return value
            case float():
                return value if math.isfinite(value) else {_FLOAT: str(value)}
            case tuple() | list():
                return [self.value(item, f"{path}[{n}]") for n, item in enumerate(value)]
            case dict():
                return {key: self.value(value[key], _join(path, key)) for key in sorted(value)}
            case TensorType() | PointerType() | ScalarType() | StreamType() | StructType():
                return argument_to_json(value)
            case _:
                return self.record(value, path)


class _JsonReader:
    """Read the dataclasses from JSON values; record all faults and go on.

    A method that records a fault returns None in place of the value: what was built of it is never handed out, because the caller
    looks at `faults` first.
    """

    def __init__(self, where: str) -> None:
        self.where = where
        self.faults: list[Fault] = []

    def fault(self, path: str, what: str, fix: str = "") -> None:
        self.faults.append(Fault(where=f"{self.where}: {path}" if path else self.where, what=what, fix=fix))

    def wrong(self, value: object, path: str, wanted: str) -> None:
        self.fault(path, f"is {_shown(value)}, not {wanted}")

    def text(self, value: object, path: str) -> Any:
        if not isinstance(value, str):
            return self.wrong(value, path, "text")
        return value

    def count(self, value: object, path: str) -> Any:
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            return self.wrong(value, path, "a count")
        return value

    def plain(self, value: object, path: str, depth: int = 0) -> Any:
        if isinstance(value, list) and depth < _MAX_DEPTH:
            return tuple(self.plain(item, f"{path}[{n}]", depth + 1) for n, item in enumerate(value))
        if isinstance(value, dict) and value.keys() == {_FLOAT}:
            return _NOT_FINITE.get(self.word(value[_FLOAT], _join(path, _FLOAT), tuple(_NOT_FINITE)))
        if isinstance(value, dict) and depth < _MAX_DEPTH:
            return {key: self.plain(item, _join(path, key), depth + 1) for key, item in value.items()}
        if not isinstance(value, NoneType | bool | int | float | str):
            return self.wrong(value, path, "a plain value")
        return value

    def items(self, value: object, path: str, read: _Read) -> Any:
        if not isinstance(value, list):
            return self.wrong(value, path, "an array")
        return tuple(read(self, item, f"{path}[{n}]") for n, item in enumerate(value))

    def mapping(self, value: object, path: str, read: _Read) -> Any:
        if not isinstance(value, dict):
            return self.wrong(value, path, "an object")
        return {key: read(self, item, _join(path, key)) for key, item in value.items()}

    def word(self, value: object, path: str, allowed: tuple[str, ...]) -> Any:
        if not isinstance(value, str) or value not in allowed:
            self.fault(path, f"is {_shown(value)}", did_you_mean(str(value), allowed))
            return None
        return value

    def keys(self, value: dict[str, object], path: str, known: tuple[str, ...], optional: frozenset[str] = frozenset()) -> bool:
        """Record unknown and missing keys; return whether the known ones are all there."""
        for key in value:
            if key not in known:
                self.fault(_join(path, key), "is not a known key", did_you_mean(key, known))
        missing = [key for key in known if key not in value and key not in optional]
        for key in missing:
            self.fault(_join(path, key), "is missing")
        return not missing

    def record(self, kind: type[_T], value: object, path: str) -> _T:
        if not isinstance(value, dict):
            return cast("_T", self.wrong(value, path, "an object"))
        known = fields(kind)  # type: ignore[arg-type]  # every type of the table below is a dataclass
        optional = frozenset(each.name for each in known if each.default is not MISSING)
        if not self.keys(value, path, tuple(each.name for each in known), optional):
            return cast("_T", None)
        found = {}
        for each in known:
            if each.name in value:
                place = _join(path, each.name)
                found[each.name] = _READ[str(each.type)](self, value[each.name], place)
                self.check(each.metadata.get("check"), found[each.name], place)
        return kind(**found)

    def check(self, rule: str | None, value: object, path: str) -> None:
        for text, place in [(value, path)] if isinstance(value, str) else []:
            if rule == "sha256" and not _SHA256.fullmatch(text):
                self.wrong(text, place, "a SHA-256 digest in hexadecimal")
            elif rule == "file name" and ("/" in text or not _is_relative_path(text)):
                self.wrong(text, place, "the name of a file beside the manifest")
            elif rule == "relative path" and not _is_relative_path(text):
                self.wrong(text, place, "a relative path with forward slashes")
        if rule == "digests of relative paths" and isinstance(value, dict):
            for key, digest in value.items():
                self.check("relative path", key, f"{path} (key)")
                self.check("sha256", digest, _join(path, key))

    def argument(self, value: object, path: str, depth: int = 0) -> Any:  # noqa: PLR0911 - one line a kind
        if not isinstance(value, dict):
            return self.wrong(value, path, "an argument type")
        if depth > _MAX_DEPTH:
            return self.fault(path, f"is nested more than {_MAX_DEPTH} deep")
        kind = self.word(value.get("kind"), _join(path, "kind"), tuple(_ARGUMENT_KEYS))
        if kind is None or not self.keys(value, path, ("kind", *_ARGUMENT_KEYS[kind])):
            return None
        match kind:
            case "tensor":
                shape, strides = (self.items(value[key], _join(path, key), _JsonReader.dim) for key in ("shape", "strides"))
                if shape is not None and strides is not None and len(shape) != len(strides):
                    return self.fault(path, f"has {len(shape)} extents and {len(strides)} strides")
                alignment, stride_bits = (self.count(value[key], _join(path, key)) for key in ("align", "stride_bits"))
                dtype = self.text(value["dtype"], _join(path, "dtype"))
                return TensorType(dtype=dtype, shape=shape, strides=strides, alignment=alignment, stride_bits=stride_bits)
            case "pointer":
                dtype = self.text(value["dtype"], _join(path, "dtype"))
                return PointerType(dtype=dtype, alignment=self.count(value["align"], _join(path, "align")))
            case "scalar":
                return ScalarType(dtype=self.text(value["dtype"], _join(path, "dtype")))
            case "stream":
                return StreamType()
            case _:
                members = value["fields"]
                place = _join(path, "fields")
                if not isinstance(members, dict):
                    return self.wrong(members, place, "an object")
                read = tuple((name, self.argument(item, _join(place, name), depth + 1)) for name, item in members.items())
                return StructType(name=self.text(value["type"], _join(path, "type")), fields=read)

    def dim(self, value: object, path: str) -> Any:
        if isinstance(value, str):
            match = _DIM.fullmatch(value)
            divisor = int(match[2] or 1) if match else 0
            if not match or divisor & (divisor - 1):
                return self.wrong(value, path, "a dim: ?, a name, or one of them with % and a power of two")
            return Dim(name=None if match[1] == "?" else match[1], divisor=divisor)
        return Dim(size=self.count(value, path))


_ARGUMENT_KEYS: Final = {
    "tensor": ("dtype", "shape", "strides", "align", "stride_bits"),
    "pointer": ("dtype", "align"),
    "scalar": ("dtype",),
    "stream": (),
    "struct": ("type", "fields"),
}


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _is_relative_path(text: str) -> bool:
    return bool(text) and not re.search(r"[\\:\0]", text) and all(part not in {"", ".", ".."} for part in text.split("/"))


def _optional(read: _Read) -> _Read:
    return lambda reader, value, path: None if value is None else read(reader, value, path)


def _items(read: _Read) -> _Read:
    return lambda reader, value, path: reader.items(value, path, read)


def _mapping(read: _Read) -> _Read:
    return lambda reader, value, path: reader.mapping(value, path, read)


def _record(kind: type) -> _Read:
    return lambda reader, value, path: reader.record(kind, value, path)


def _word(alias: object) -> _Read:
    allowed = get_args(alias)
    return lambda reader, value, path: reader.word(value, path, allowed)


def _triple(reader: _JsonReader, value: object, path: str) -> Any:
    if not isinstance(value, list) or len(value) != 3:
        return reader.wrong(value, path, "three counts")
    return reader.items(value, path, _JsonReader.count)


# From the annotation of a field to its reader: explicit, because the aliases above are recursive and the table is short. A field of a
# type that is not here fails in the first test that reads a manifest.
_READ: Final[dict[str, _Read]] = {
    "str": _JsonReader.text,
    "str | None": _optional(_JsonReader.text),
    "int": _JsonReader.count,
    "int | None": _optional(_JsonReader.count),
    "tuple[int, ...]": _items(_JsonReader.count),
    "tuple[int, ...] | None": _optional(_items(_JsonReader.count)),
    "tuple[int, int, int] | None": _optional(_triple),
    "tuple[str, ...]": _items(_JsonReader.text),
    "tuple[str, ...] | None": _optional(_items(_JsonReader.text)),
    "dict[str, str]": _mapping(_JsonReader.text),
    "PlainValue | NoDefault": _JsonReader.plain,
    "dict[str, PlainValue]": _mapping(_JsonReader.plain),
    "dict[str, dict[str, PlainValue]] | None": _optional(_mapping(_mapping(_JsonReader.plain))),
    "dict[str, ArgumentType]": _mapping(_JsonReader.argument),
    "Load": _word(Load),
    "LauncherKind": _word(LauncherKind),
    "ReturnsForm": _word(ReturnsForm),
    "ParameterKind": _word(ParameterKind),
    "Role": _word(Role),
    "SlotKind": _word(SlotKind),
    "Distribution": _record(Distribution),
    "Library": _record(Library),
    "Provenance": _record(Provenance),
    "Source | None": _optional(_record(Source)),
    "Returns | None": _optional(_record(Returns)),
    "dict[str, Axis]": _mapping(_record(Axis)),
    "dict[str, CodeObject]": _mapping(_record(CodeObject)),
    "dict[str, tuple[Parameter, ...]] | None": _optional(_mapping(_items(_record(Parameter)))),
    "dict[str, dict[str, HostEntry]]": _mapping(_mapping(_record(HostEntry))),
    "tuple[Bitcode, ...]": _items(_record(Bitcode)),
    "tuple[DeviceGlobal, ...]": _items(_record(DeviceGlobal)),
    "tuple[Kernel, ...]": _items(_record(Kernel)),
    "tuple[KernelArgument, ...]": _items(_record(KernelArgument)),
    "tuple[LauncherEntry, ...]": _items(_record(LauncherEntry)),
    "tuple[Parameter, ...]": _items(_record(Parameter)),
    "tuple[Parameter, ...] | None": _optional(_items(_record(Parameter))),
    "tuple[Slot, ...]": _items(_record(Slot)),
    "tuple[SpecializationEntry, ...]": _items(_record(SpecializationEntry)),
    "tuple[Unit, ...]": _items(_record(Unit)),
}
