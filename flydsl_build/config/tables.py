# SPDX-License-Identifier: Apache-2.0
"""The settings of a build, as values: the tables an author can write.

One TOML key is one field, its documentation the string under it; `documentation` makes the README's table from them.
Fields without a TOML key say where the table stood or what was derived.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from ..codec import PlainValue
from . import kinds
from .keys import nested, toml_key
from .table_reader import ArgumentText

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "ArgumentText",
    "AxisTable",
    "CompileOptions",
    "ExternTable",
    "KernelTable",
    "ParameterSet",
    "PlainValue",
    "Settings",
    "WrittenNames",
]

WrittenNames = tuple[str, ...] | Mapping[str, tuple[str, ...]]
"""Parameters that a launcher writes: of the only launcher, or by the name of each that a factory returns."""

_Load = Literal["import", "lazy"]
_Executor = Literal["local", "dask"]
_Editable = Literal["aot", "jit"]
_Wheel = Literal["fat", "per-arch", "host", "device", "variant"]
_PerArchTag = Literal["local-version", "build-tag"]
_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True, kw_only=True, slots=True)
class CompileOptions:
    """How the kernels of a specialization are compiled. None leaves a choice to FlyDSL."""

    opt_level: int | None = field(default=None, metadata=toml_key("opt-level", kinds.integer(0, 3), default="FlyDSL's own"))
    """LLVM's optimisation level for device code."""

    fast_fp_math: bool | None = field(default=None, metadata=toml_key("fast-fp-math", kinds.BOOLEAN, default="false"))
    """Let floating-point operations be reassociated and contracted, and assume that there are no NaNs or infinities."""

    unsafe_fp_math: bool | None = field(default=None, metadata=toml_key("unsafe-fp-math", kinds.BOOLEAN, default="false"))
    """Let device functions be replaced by less exact ones."""

    waves_per_eu: int | tuple[int, int] | None = field(default=None, metadata=toml_key("waves-per-eu", kinds.WAVES, default="FlyDSL's own"))
    """How many wavefronts a SIMD should hold: bounds the registers of a kernel. 0 leaves it to LLVM."""

    debug_lines: bool | None = field(default=None, metadata=toml_key("debug-lines", kinds.BOOLEAN, default="false"))
    """Put line tables for the author's Python source into the code objects."""

    llvm_options: tuple[tuple[str, bool | int | str], ...] = field(
        default=(), metadata=toml_key("llvm-options", kinds.LLVM_OPTIONS, default="{}")
    )
    """Further LLVM command-line options, without their dashes: `{ amdgpu-early-inline-all = true }`."""

    targets: tuple[tuple[str, CompileOptions], ...] = ()
    """Options of single targets, which stand in a nested table of the target's name and win over the others."""

    def over(self, base: CompileOptions) -> CompileOptions:
        """Return these options, completed by those of `base` where nothing is said here."""
        if self == _NO_OPTIONS:
            return base
        if base == _NO_OPTIONS:
            return self
        merged: dict[str, Any] = {}
        for item in fields(self):
            mine = getattr(self, item.name)
            theirs = getattr(base, item.name)
            if item.name == "llvm_options":
                merged[item.name] = tuple((dict(theirs) | dict(mine)).items())
            elif item.name == "targets":
                both = dict(theirs) | {name: options.over(dict(theirs).get(name, _NO_OPTIONS)) for name, options in mine}
                merged[item.name] = tuple(both.items())
            else:
                merged[item.name] = theirs if mine is None else mine
        return CompileOptions(**merged)

    def for_target(self, target: str) -> CompileOptions:
        """Return the options that hold for `target`: flat, those of the target's own table first."""
        flat = CompileOptions(**{item.name: getattr(self, item.name) for item in fields(self) if item.name != "targets"})
        return dict(self.targets).get(target, _NO_OPTIONS).over(flat)

    def to_json(self) -> dict[str, Any]:
        """Return what is said here, by TOML key; empty if nothing is."""
        found: dict[str, Any] = {}
        for item in fields(self):
            value = getattr(self, item.name)
            if item.name == "targets":
                found.update((name, options.to_json()) for name, options in value)
            elif item.name == "llvm_options":
                found.update({"llvm-options": dict(value)} if value else {})
            elif value is not None:
                found[item.metadata["toml"].name] = list(value) if isinstance(value, tuple) else value
        return found

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> CompileOptions:
        """Return the options that `to_json` gave as `data`."""
        names = {item.metadata["toml"].name: item.name for item in fields(cls) if "toml" in item.metadata}
        found: dict[str, Any] = {}
        targets: list[tuple[str, CompileOptions]] = []
        for key, value in data.items():
            if key not in names:
                targets.append((key, cls.from_json(value)))
            elif key == "llvm-options":
                found[names[key]] = tuple(value.items())
            else:
                found[names[key]] = tuple(value) if isinstance(value, list) else value
        return cls(**found, targets=tuple(targets))


_NO_OPTIONS = CompileOptions()


@dataclass(frozen=True, kw_only=True, slots=True)
class ParameterSet:
    """Values, argument types and targets that belong together: one entry of a kernel's `sets`.

    What an entry does not say is taken from the kernel. Several sets are several `[[….sets]]` tables: a key `archs`
    inside `params` would be a factory parameter of that name.
    """

    where: str
    """The place of the table, for messages."""

    params: tuple[Mapping[str, tuple[PlainValue, ...]], ...] | None = field(
        default=None, metadata=toml_key("params", kinds.CHOICES, default="the kernel's")
    )
    """Factory parameters, as in the kernel's own `params`."""

    constexpr: tuple[Mapping[str, tuple[PlainValue, ...]], ...] | None = field(
        default=None, metadata=toml_key("constexpr", kinds.CHOICES, default="the kernel's")
    )
    """Constexpr values, as in the kernel's own `constexpr`."""

    args: tuple[Mapping[str, ArgumentText], ...] | None = field(
        default=None, metadata=toml_key("args", kinds.ARGUMENTS, default="the kernel's")
    )
    """Argument types, as in the kernel's own `args`."""

    returns: tuple[str, ...] | None = field(default=None, metadata=toml_key("returns", kinds.RETURNS, default="the kernel's"))
    """Names of what the factory returns for this set."""

    launcher: str | Mapping[str, str] | None = field(default=None, metadata=toml_key("launcher", kinds.LAUNCHER, default="the kernel's"))
    """The launcher inside of a Python function, as the kernel's own `launcher`."""

    out: WrittenNames | None = field(default=None, metadata=toml_key("out", kinds.OUT, default="the kernel's"))
    """What the launchers of this set write, as in the kernel's own `out`."""

    archs: tuple[str, ...] | None = field(default=None, metadata=toml_key("archs", kinds.ARCHS, default="the kernel's"))
    """Targets of this set alone."""

    options: CompileOptions = field(default=_NO_OPTIONS, metadata=toml_key("options", nested(CompileOptions), default="the kernel's"))
    """Compile options of this set, which win over the kernel's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelTable:
    """One declared launcher, or factory of launchers: a `kernels."module:attribute"` table."""

    frontend: ClassVar[str] = "flydsl"
    """The front end that owns these tables."""

    key: str
    """The key of the table, `module:attribute`."""

    module: str
    """Dotted name of the module."""

    attribute: str
    """Dotted name of the launcher or factory in the module."""

    where: str
    """The place of the table, for messages."""

    args: tuple[Mapping[str, ArgumentText], ...] = field(default=({},), metadata=toml_key("args", kinds.ARGUMENTS, default="{}"))
    """Argument types by parameter name: `dtype[dims]`, a scalar type, `ptr<dtype>`, or a nested table for a struct. Text may hold
    `{name}` of a parameter, constexpr or axis. A list of tables makes one specialization for each."""

    constexpr: tuple[Mapping[str, tuple[PlainValue, ...]], ...] = field(
        default=({},), metadata=toml_key("constexpr", kinds.CHOICES, default="{}")
    )
    """Values of the launcher's constexpr parameters; a list of values makes one specialization for each (the product, if several
    are lists). A value that is itself a list stands inside another list: `tile = [[16, 16]]`. A table gives the constexpr fields of a
    struct: `config = { tile = 128, stages = 2 }`."""

    params: tuple[Mapping[str, tuple[PlainValue, ...]], ...] | None = field(
        default=None, metadata=toml_key("params", kinds.CHOICES, default="the attribute is a launcher")
    )
    """Arguments of the factory that returns the launcher; lists as in `constexpr`. A list of tables joins the products of each.
    What has a default may be left out. A table makes an object of the class that the parameter is annotated with. A member of an enum,
    which the annotation or default says, is given by its name, flags together by theirs with bars between."""

    returns: tuple[str, ...] = field(default=(), metadata=toml_key("returns", kinds.RETURNS, default="the factory returns one launcher"))
    """Names of what the factory returns: of all items of a tuple in order, or of keys of a dict, or of attributes of an object, whose
    class may be the factory. Launchers and plain values can be named. `args` then has a table for each launcher; `constexpr` holds for
    those that have the parameter."""

    launcher: str | Mapping[str, str] | None = field(
        default=None, metadata=toml_key("launcher", kinds.LAUNCHER, default="what is returned is the launcher")
    )
    """The launcher inside of a Python function that the factory returns, by its name there; with dots, if that is again inside of a
    function. The wheel has the launcher, not the Python around it. With `returns`, a table of these by returned name."""

    out: WrittenNames | None = field(default=None, metadata=toml_key("out", kinds.OUT, default="not said"))
    """Names of the tensors, pointers and structs that the launcher writes; with `returns`, a table with such a list for each name. `[]`
    says that it writes none. Needed by `torch-ops`; an array that cannot be written is refused for them."""

    archs: tuple[str, ...] | None = field(default=None, metadata=toml_key("archs", kinds.ARCHS, default="the package's"))
    """Targets of this kernel, instead of the package's. A config setting or environment variable narrows them to those in both."""

    axes: tuple[str, ...] = field(default=(), metadata=toml_key("axes", kinds.STRINGS, default="[]"))
    """Axes whose every value this kernel is built for. Axes whose placeholder is in `args` need not be named."""

    options: CompileOptions = field(default=_NO_OPTIONS, metadata=toml_key("options", nested(CompileOptions), default="the package's"))
    """Compile options of this kernel, which win over the package's."""

    sets: tuple[ParameterSet, ...] = field(
        default=(), metadata=toml_key("sets", nested(ParameterSet, text="list of tables", named="[]"), default="[]")
    )
    """Sets of parameters with argument types, targets or options of their own, instead of one product for all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExternTable:
    """Where the device code of extern functions comes from: an `externs."symbol"` table."""

    symbol: str
    """Symbol name, or a glob over symbol names."""

    where: str
    """The place of the table, for messages."""

    bitcode: tuple[str, ...] = field(default=(), metadata=toml_key("bitcode", kinds.STRING_OR_STRINGS, default="the source's own path"))
    """LLVM bitcode files relative to the project, with `{arch}` and the names of axes as placeholders; or `module:function`, called
    with the target and the axis values."""

    globals: tuple[str, ...] = field(default=(), metadata=toml_key("globals", kinds.STRINGS, default="[]"))
    """Device globals that the init function writes: each must be visible in every code object."""

    init: str | None = field(default=None, metadata=toml_key("init", kinds.REFERENCE, default="the source's own"))
    """The init function as `module:qualname`, instead of the source's `module_init_fn`."""

    compatible: tuple[str, ...] = field(default=(), metadata=toml_key("compatible", kinds.COMPATIBLE, default="[]"))
    """Targets that may link this bitcode although it was compiled for another chip."""

    license_files: tuple[str, ...] = field(default=(), metadata=toml_key("license-files", kinds.LICENSE_FILES, default="[]"))
    """Licence files of this bitcode, as globs relative to the project: for the metadata of wheels, and for source distributions."""

    @staticmethod
    def is_function(text: str) -> bool:
        """Whether an entry of `bitcode` names a function, not a file."""
        return _FUNCTION.fullmatch(text) is not None

    def fits(self, symbol: str) -> bool:
        """Whether the table is for a symbol, if no table before it is."""
        return fnmatchcase(symbol, self.symbol)


@dataclass(frozen=True, kw_only=True, slots=True)
class AxisTable:
    """Something besides the chip that device code depends on: an `axes.name` table."""

    name: str
    """Name of the axis, and of its placeholder."""

    where: str
    """The place of the table, for messages."""

    values: tuple[str, ...] = field(metadata=toml_key("values", kinds.STRINGS))
    """Every value to build for."""

    select: str | None = field(default=None, metadata=toml_key("select", kinds.REFERENCE, default="the environment decides"))
    """Function that names this machine's value at load, as `module:qualname`. `FLYDSL_BUILD_AXIS_<NAME>` wins over it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Everything that a build is asked to do.

    Config settings win over environment variables, and these over the table.
    """

    project_dir: Path
    """The folder of pyproject.toml; relative paths start there."""

    base: str = field(default=kinds.SETUPTOOLS, metadata=toml_key("base", kinds.BASE, default=f'"{kinds.SETUPTOOLS}"'))
    """The PEP 517 back end that builds the wheel which the kernels are added to, such as "scikit_build_core.build" or "hatchling.build".
    Its distribution goes into build-system.requires."""

    archs_from: str = ""
    """Where `archs` comes from, for messages; empty if it is nowhere given."""

    archs_override: bool = False
    """Whether a config setting or environment variable gives `archs`, which then also narrows the kernels' own lists."""

    archs: tuple[str, ...] = field(default=(), metadata=toml_key("archs", kinds.ARCHS, config=True, env=True))
    """gfx targets to build every kernel for that has no list of its own. There is no default, and the build machine is not probed."""

    load: _Load = field(default="import", metadata=toml_key("load", kinds.choice(_Load), default='"import"', config=True))
    """When a module of the wheel loads its code objects and runs its init functions: at import, or at the first call."""

    editable: _Editable = field(
        default="aot", metadata=toml_key("editable", kinds.choice(_Editable), default='"aot"', config=True, env=True)
    )
    """What an editable install serves: stubs with kernels that are compiled ahead of time, and again when their sources changed; or the
    FlyDSL source."""

    wheel: _Wheel = field(default="fat", metadata=toml_key("wheel", kinds.choice(_Wheel), default='"fat"', config=True, env=True))
    """What a wheel holds: everything for all targets; everything for one target; everything but the code objects, with an extra for the
    device wheel of each target; the code objects of one target; or a wheel variant for one target (experimental)."""

    wheel_from: str = ""
    """Where `wheel` comes from, for messages; empty if it is nowhere given."""

    per_arch_tag: _PerArchTag = field(
        default="local-version", metadata=toml_key("per-arch-tag", kinds.choice(_PerArchTag), default='"local-version"', config=True)
    )
    """Where a per-arch wheel has its target: in its version, as in `1.0+gfx942`, or in its build tag, as in `1.0-1gfx942`."""

    timeout: float = field(default=3600.0, metadata=toml_key("timeout", kinds.SECONDS, default="3600", config=True, env=True))
    """Seconds after which a compile process is stopped."""

    jobs: int | None = field(default=None, metadata=toml_key("jobs", kinds.integer(1), default="one for each core", config=True, env=True))
    """How many compile processes run at once."""

    lld: Path | None = field(default=None, metadata=toml_key("lld", kinds.PATH, default="searched for", config=True, env=True))
    """The `ld.lld` that links code objects and launcher libraries."""

    rocm_path: Path | None = field(default=None, metadata=toml_key("rocm-path", kinds.PATH, default="searched for", config=True, env=True))
    """A ROCm folder in which to look for lld and device bitcode first."""

    cache: bool = field(default=True, metadata=toml_key("cache", kinds.BOOLEAN, default="true", config=True, env=True))
    """Keep what was compiled, and compile only what changed since. Not used together with `dump-ir`."""

    cache_dir: Path | None = field(default=None, metadata=toml_key("cache-dir", kinds.PATH, default="the user's", config=True, env=True))
    """Folder of the cache, which many projects and builds may share."""

    cache_size: int = field(default=5 * 10**9, metadata=toml_key("cache-size", kinds.SIZE, default='"5 GB"', config=True, env=True))
    """How large the cache may become; what was not used for longest goes first."""

    remote_cache: str | None = field(default=None, metadata=toml_key("remote-cache", kinds.URL, default="none", config=True, env=True))
    """URL of a cache that several machines share: any that fsspec opens, such as `s3://bucket/prefix` or `file:///mnt/cache`. What the
    local cache has not is taken from there."""

    remote_cache_write: bool = field(
        default=False,
        metadata=toml_key("remote-cache-write", kinds.BOOLEAN, default="false", config=True, env=True),
    )
    """Put what this build compiles into the remote cache."""

    executor: _Executor = field(
        default="local", metadata=toml_key("executor", kinds.choice(_Executor), default='"local"', config=True, env=True)
    )
    """Where jobs are compiled: in processes of this machine, or on a Dask cluster."""

    executor_address: str | None = field(
        default=None,
        metadata=toml_key("executor-address", kinds.STRING, default="none", config=True, env=True),
    )
    """Address of the cluster's scheduler, such as `tcp://10.0.0.1:8786`."""

    verbose: bool = field(default=False, metadata=toml_key("verbose", kinds.BOOLEAN, default="false", config=True, env=True))
    """Show whole tracebacks and the search for the toolchain."""

    dump_ir: Path | None = field(
        default=None, metadata=toml_key("dump-ir", kinds.PATH, default="nothing is written", config=True, env=True)
    )
    """Folder for the IR after each stage, the LLVM IR and the ISA of each specialization and target."""

    torch_ops: bool = field(default=False, metadata=toml_key("torch-ops", kinds.BOOLEAN, default="false"))
    """Add a module `<module>_torch` for each declared module, with its launchers as custom ops of torch. Every kernel then says in `out`
    what it writes."""

    allow_empty: bool = field(default=False, metadata=toml_key("allow-empty", kinds.BOOLEAN, default="false"))
    """Accept a project that declares no kernels."""

    kernels_from: str | None = field(default=None, metadata=toml_key("kernels-from", kinds.REFERENCE, default="none"))
    """Function that declares further kernels, as `module:function` in a package of the project: called without arguments, it returns a
    dict, or yields pairs, of `"module:attribute"` and a table with the keys of `kernels."module:attribute"`."""

    options: CompileOptions = field(default=_NO_OPTIONS, metadata=toml_key("options", nested(CompileOptions), default="{}"))
    """Compile options of every kernel."""

    env: Mapping[str, str] = field(default_factory=dict, metadata=toml_key("env", kinds.STRING_TABLE, default="{}"))
    """Environment variables of the compile processes, set before the author's modules are imported; `{arch}` and the names of axes
    are placeholders."""

    kernels: tuple[KernelTable, ...] = field(
        default=(), metadata=toml_key("kernels", nested(KernelTable, text="tables", named='"module:attribute"'))
    )
    """The kernels to build, each under its `module:attribute`."""

    externs: tuple[ExternTable, ...] = field(
        default=(), metadata=toml_key("externs", nested(ExternTable, text="tables", named='"symbol"'), default="{}")
    )
    """Device bitcode of extern functions, by symbol name or glob."""

    axes: tuple[AxisTable, ...] = field(default=(), metadata=toml_key("axes", nested(AxisTable, text="tables", named="name"), default="{}"))
    """Axes besides the target for which code is built."""

    @property
    def has_setuptools_base(self) -> bool:
        """Whether the kernels are made inside of a build by setuptools, and not added to another back end's wheel."""
        return self.base == kinds.SETUPTOOLS

    def targets_for(self, kernel: KernelTable, parameter_set: ParameterSet | None = None) -> tuple[str, ...]:
        """Return the targets that a kernel, or one of its sets, is built for in this build; empty if none of its own is asked for."""
        own = kernel.archs
        if parameter_set is not None and parameter_set.archs is not None:
            own = parameter_set.archs
        if own is None:
            return self.archs
        if self.archs_override:
            return tuple(arch for arch in own if arch in self.archs)
        return own

    @property
    def is_split(self) -> bool:
        """Whether code objects go into distributions of their own, one for each target."""
        return self.wheel in {"host", "device"}

    @property
    def frontends(self) -> tuple[str, ...]:
        """Names of the front ends that kernels are declared of; one that a function may declare kernels of is among them."""
        tables = (*self.kernels, *((KernelTable,) if self.kernels_from else ()))
        return tuple(dict.fromkeys(table.frontend for table in tables))

    @property
    def all_targets(self) -> tuple[str, ...]:
        """Every target that some kernel is built for in this build."""
        return tuple(dict.fromkeys(target for targets in self.targets_by_module.values() for target in targets))

    @property
    def targets_by_module(self) -> dict[str, tuple[str, ...]]:
        """The targets that kernels of each module are built for in this build."""
        found: dict[str, dict[str, None]] = {}
        for kernel in self.kernels:
            for each in kernel.sets or (None,):
                found.setdefault(kernel.module, {}).update(dict.fromkeys(self.targets_for(kernel, each)))
        return {module: tuple(targets) for module, targets in found.items()}

    @property
    def skipped(self) -> tuple[str, ...]:
        """The keys of kernels that no target of this build is for."""
        return tuple(kernel.key for kernel in self.kernels if not any(self.targets_for(kernel, each) for each in (kernel.sets or (None,))))
