# SPDX-License-Identifier: Apache-2.0
"""The manifest: the one description of a declared module that build and run time both read.

It is a JSON file, `<module>.json`, beside the bundle and the launcher library. The dataclasses below are its schema: one field is
one key, in file order. The same manifest always gives the same bytes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from flydsl_build.codec import DecodeError, EnumMember, PlainValue, decode, encode, join
from flydsl_build.declare.argument_types import ArgumentType, StructType, TensorType
from flydsl_build.errors import BuildError, Fault
from flydsl_build.jobs.job import Tool
from flydsl_build.jobs.launcher import EnumClass, Parameter, Slot
from flydsl_build.regular_files import read_regular

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from flydsl_build.targets.code_object import AmdgpuCodeObject

__all__ = [
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
    "Outline",
    "Provenance",
    "Returns",
    "ReturnsForm",
    "Source",
    "SpecializationEntry",
    "Unit",
    "manifest_faults",
    "manifest_kernels",
    "path_faults",
    "read_manifest",
]

SCHEMA: Final = 2
"""Version of the manifest's form; a reader refuses newer ones."""

Load: TypeAlias = Literal["import", "lazy"]
LauncherKind: TypeAlias = Literal["launcher", "factory"]
ReturnsForm: TypeAlias = Literal["tuple", "namedtuple", "dict", "object"]

# What the run time passes in one call: FDB_MAX_ARGUMENTS and FDB_MAX_BLOCK of native/core/runtime.h, whose block has 32 bytes of its own.
_MAX_ARGUMENTS: Final = 512
_MAX_PACKED: Final = 64 * 1024 - 32
_PACKED_ALIGNMENT: Final = 16
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_ABSOLUTE: Final = re.compile(r"(?:file://)?/[^/\s]+/|[A-Za-z]:[\\/]|\\\\")


class ManifestError(BuildError):
    """A manifest that cannot be read or must not be written."""

    stage = "manifest"


def _is_relative_path(text: str) -> bool:
    return bool(text) and not re.search(r"[\\:\0]", text) and all(part not in {"", ".", ".."} for part in text.split("/"))


def _check_sha256(text: str, place: str = "") -> Iterator[tuple[str, object, str]]:
    if not _SHA256.fullmatch(text):
        yield place, text, "a SHA-256 digest in hexadecimal"


def _check_path(text: str, place: str = "") -> Iterator[tuple[str, object, str]]:
    if not _is_relative_path(text):
        yield place, text, "a relative path with forward slashes"


def _check_file_name(text: str) -> Iterator[tuple[str, object, str]]:
    if "/" in text or not _is_relative_path(text):
        yield "", text, "the name of a file beside the manifest"


def _check_digests(digests: dict[str, str]) -> Iterator[tuple[str, object, str]]:
    for path, digest in digests.items():
        yield from _check_path(path, " (key)")
        yield from _check_sha256(digest, join(".", path)[1:])


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

    file: str = field(metadata={"check": _check_file_name})
    sha256: str = field(metadata={"check": _check_sha256})
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
    sha256: str = field(metadata={"check": _check_sha256})
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
    bundle: str = field(metadata={"check": _check_file_name})
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

    file: str = field(metadata={"check": _check_path})
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
    attributes
        By target, the plain values that the source set as attributes of the launcher, by name and in the form of `values`; absent if there
        are none.
    doc
        Docstring of the launcher that its factory returned; absent if it has none, or if there is no factory.
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
    attributes: dict[str, dict[str, PlainValue]] | None = None
    doc: str | None = None
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

    file: str = field(metadata={"check": _check_path})
    sha256: str = field(metadata={"check": _check_sha256})
    size: int
    code_object_version: int | None
    targets: tuple[str, ...]
    license_files: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Provenance:
    """What the module was made with.

    Parameters
    ----------
    tools
        The front end's compiler first, then what is inside of it or is run by it; flydsl-build last.
    bitcode, device_libraries
        What was linked into code objects: of externs, and of ROCm's device libraries.
    sources
        Relative files of the author to their digests.
    distributions
        Top-level modules of init functions from elsewhere to the distributions that had them.
    """

    tools: tuple[Tool, ...]
    bitcode: tuple[Bitcode, ...]
    sources: dict[str, str] = field(metadata={"check": _check_digests})
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
    enums
        By `module:class`, the enums that values are members of. Absent if there are none.
    units, launchers, provenance
        See the classes.
    """

    schema: int = field(default=SCHEMA, metadata={"always": True})
    module: str
    distribution: Distribution
    load: Load
    targets: tuple[str, ...]
    axes: dict[str, Axis]
    library: Library
    classes: dict[str, tuple[Parameter, ...]] | None = None
    enums: dict[str, EnumClass] | None = None
    units: tuple[Unit, ...]
    launchers: tuple[LauncherEntry, ...]
    provenance: Provenance

    def to_text(self) -> str:
        """Return the manifest's text: keys in the order of the schema, maps sorted, indented by one, ASCII, a newline at the end.

        Raises
        ------
        ManifestError
            The manifest contradicts itself, holds an absolute path, or a value that JSON has no form for.
        """
        where = f"manifest of {self.module}"
        value = encode(self, sort=True)
        # The reader's own rules (paths, digests, dims) are checked by reading back what is about to be written.
        wrong: tuple[Fault, ...] = ()
        try:
            decode(Manifest, value, where=where)
        except DecodeError as error:
            wrong = error.faults
        faults = [*path_faults(value, where), *wrong, *manifest_faults(self, where=where)]
        if faults:
            raise ManifestError(*faults)
        return json.dumps(value, indent=1, ensure_ascii=True, allow_nan=False) + "\n"

    @classmethod
    def from_text(cls, text: str | bytes, *, where: str) -> Manifest:
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
        if schema != SCHEMA:
            what = f"is {schema}, this version of flydsl-build reads manifests of schema {SCHEMA}"
            fix = "use the flydsl-build that wrote it" + (", or a newer one" if schema > SCHEMA else ", or build the wheel again")
            raise ManifestError(Fault(where=f"{where}: schema", what=what, fix=fix))
        try:
            manifest: Manifest = decode(cls, value, where=where)
        except DecodeError as error:
            raise ManifestError(*error.faults) from None
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
    def from_text(cls, text: bytes, *, where: str) -> Outline | None:
        """Read it from a manifest that this program has just written; the rest, which may be large, is not looked at.

        None for another file, which the author may have in a folder that is named like ours.
        """
        try:
            value = json.loads(text)
        except ValueError:
            return None
        if not isinstance(value, dict) or not value.keys() >= {"schema", "targets", "units", "provenance"}:
            return None
        try:
            provenance = decode(Provenance, value["provenance"], where=where, path="provenance")
        except DecodeError as error:
            raise ManifestError(*error.faults) from None
        return cls(targets=tuple(value["targets"]), bundles=tuple(unit["bundle"] for unit in value["units"]), provenance=provenance)


def read_manifest(path: Path) -> Manifest:
    """Read a manifest file; raise `ManifestError` if it cannot be read or is none."""
    try:
        data = read_regular(path)
    except OSError as error:
        raise ManifestError(Fault(where=path.name, what=f"cannot be read: {error.strerror or error}")) from None
    return Manifest.from_text(data, where=path.name)


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
        self.enums(manifest)
        units = {unit.name: unit for unit in manifest.units}
        for n, launcher in enumerate(manifest.launchers):
            self.launcher(manifest, launcher, units, f"launchers[{n}]")

    def enums(self, manifest: Manifest) -> None:
        known = manifest.enums or {}
        for reference, one in known.items():
            names = {entry.name for entry in one.members}
            self.unique([entry.name for entry in one.members], f"enums.{reference}", "members")
            for entry in one.members:
                if entry.alias is not None and entry.alias not in names:
                    self.fault(f"enums.{reference}", f'"{entry.name}" is another name of "{entry.alias}", which is not there')
        for member in _members_in(manifest):
            kind = known.get(member.enum)
            names = set() if kind is None else {entry.name for entry in kind.members}
            if not all(part in names or part.isdecimal() for part in member.name.split("|")):
                self.fault("enums", f"{member.enum} has no member {member.name}")

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
        if specialization.attributes is not None and not set(specialization.attributes) <= set(specialization.targets):
            self.fault(f"{path}.attributes", "has other targets than the specialization")
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

    def layouts(self, argument: ArgumentType, path: str) -> None:
        if isinstance(argument, StructType):
            for name, field_type in argument.fields:
                self.layouts(field_type, join(f"{path}.fields", name))
        elif isinstance(argument, TensorType) and len(argument.shape) != len(argument.strides):
            self.fault(path, f"has {len(argument.shape)} extents and {len(argument.strides)} strides")

    def arguments(self, parameters: Sequence[Parameter], specialization: SpecializationEntry, path: str) -> None:
        passed = {parameter.name for parameter in parameters if parameter.role not in {"constexpr", "type"}}
        if set(specialization.arguments) != passed:
            odd = ", ".join(sorted(passed.symmetric_difference(specialization.arguments)))
            self.fault(f"{path}.arguments", f"does not have exactly the launcher's parameters that are passed: {odd}")
        for name in specialization.out or ():
            if name not in specialization.arguments:
                self.fault(f"{path}.out", f'"{name}" is not an argument')
        for name, argument in specialization.arguments.items():
            self.layouts(argument, join(f"{path}.arguments", name))
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


def _members_in(manifest: Manifest) -> Iterator[EnumMember]:
    """Yield every member of an enum that is a value somewhere."""
    stack: list[Any] = []
    parameters = [one for fields in (manifest.classes or {}).values() for one in fields]
    for launcher in manifest.launchers:
        parameters += [*launcher.parameters, *(launcher.factory_parameters or ())]
        for each in launcher.specializations:
            parameters += each.parameters or ()
            stack += [each.constexpr, each.params, each.values, each.attributes]
    stack += [one.default for one in parameters]
    while stack:
        value = stack.pop()
        if isinstance(value, EnumMember):
            yield value
        elif isinstance(value, dict | tuple):
            stack += value.values() if isinstance(value, dict) else value


def _count_leaves(argument: ArgumentType) -> int:
    return sum(_count_leaves(field) for _, field in argument.fields) if isinstance(argument, StructType) else 1


def _is_reference(text: str) -> bool:
    module, colon, name = text.partition(":")
    return bool(colon) and all(part.isidentifier() for part in [*module.split("."), *name.split(".")])


def path_faults(value: object, where: str) -> Iterator[Fault]:
    """Find absolute paths: they name the machine that built the wheel and make two builds differ."""
    stack: list[tuple[str, object]] = [("", value)]
    while stack:
        path, item = stack.pop()
        # A docstring is the author's text; what it says about /opt/rocm does not come from this machine.
        if isinstance(item, str) and _ABSOLUTE.match(item) and not path.endswith(".doc"):
            yield Fault(where=f"{where}: {path}", what=f'holds the absolute path "{item}"', fix="make it relative to the project")
        elif isinstance(item, dict):
            stack += [(join(path, key), each) for key, each in item.items()]
            stack += [(f"{path} (key)", key) for key in item]
        elif isinstance(item, list):
            stack += [(f"{path}[{n}]", each) for n, each in enumerate(item)]


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
