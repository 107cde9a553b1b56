# SPDX-License-Identifier: Apache-2.0
"""Everything that depends on how FlyDSL is made inside. Imported in worker processes only.

FlyDSL's public extension point `register_backend` is used to keep the GPU module in LLVM dialect: the back end registered
here ends FlyDSL's pipeline before the binary is made. The lowered module is read where FlyDSL builds its artifact, by
putting a class of ours in the place of `CompiledArtifact`. This and the other private names used here are why
`TESTED_VERSIONS` is kept.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import linecache
import os
import re
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flydsl
from flydsl._mlir import ir
from flydsl.compiler import jit_argument, jit_function
from flydsl.compiler.backends import get_backend, register_backend
from flydsl.compiler.backends.rocm import RocmBackend
from flydsl.compiler.diagnostics import DSLCompileError
from flydsl.compiler.extern_link import LinkedExternFunction
from flydsl.compiler.kernel_function import CompilationContext
from flydsl.compiler.llvm_options import llvm_options
from flydsl.expr import numeric
from flydsl.expr.extern import ExternFunction
from flydsl.expr.struct import _effective_field_defs, _is_constexpr_type, is_specializable_struct_type, is_struct_type
from flydsl.expr.typing import Constexpr, Pointer, Stream, Tensor

from flydsl_build.declare.argument_types import PointerType, ScalarType, StreamType, StructType, TensorType
from flydsl_build.dtypes import DTYPE_TABLE, DTYPES, FLOAT_DTYPES, SCALAR_DTYPES
from flydsl_build.errors import collapsed, did_you_mean
from flydsl_build.frontends.flydsl.externs import ExternCall
from flydsl_build.jobs.author_code import relative_to_roots
from flydsl_build.jobs.job import Tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from flydsl_build.config.settings import CompileOptions
    from flydsl_build.declare.argument_types import ArgumentType

__all__ = [
    "ArgumentError",
    "DSLCompileError",
    "Lowered",
    "attributes_of",
    "author_frames",
    "constexpr_type",
    "extern_symbols",
    "has_constants",
    "is_launcher",
    "is_struct",
    "llvm_options",
    "llvm_version",
    "lower",
    "make_argument",
    "mlir_context",
    "names_type",
    "parameter_role",
    "raw_value",
    "register_packaging_backend",
    "signature_of",
    "struct_class",
    "struct_constants",
    "struct_fields",
    "tools",
    "type_name",
    "type_of_annotation",
    "type_of_name",
    "was_raised_by_flydsl",
]

# FlyDSL releases whose private names were checked against this module.
TESTED_VERSIONS = ("0.5",)

_TYPES = {dtype.name: getattr(numeric, dtype.flydsl) for dtype in DTYPE_TABLE if dtype.flydsl}
_TYPE_NAMES = {value: name for name, value in _TYPES.items()}
_SHORT_STRIDE_BITS = 32
_SCALAR_NAMES = {_TYPES[name]: name for name in SCALAR_DTYPES}


def _element_type(dtype: str) -> ir.Type:
    """Return MLIR's type of a dtype."""
    if dtype not in FLOAT_DTYPES:
        return ir.IntegerType.get_signless(1 if dtype == "bool" else DTYPES[dtype])
    name = f"Float{dtype[1:].upper()}" if "e" in dtype else dtype.upper()
    return getattr(ir, f"{name}Type").get()


class ArgumentError(Exception):
    """A declared argument does not fit the launcher's parameter.

    Parameters
    ----------
    what, fix
        As of a fault; no fix where there is none but the text.
    """

    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(what)
        self.fix = fix


def is_tested_version() -> bool:
    """Tell whether this FlyDSL release is one the adapter was checked with."""
    version: str = flydsl.__version__
    return version.startswith(tuple(one + "." for one in TESTED_VERSIONS))


def llvm_version() -> str:
    """Return the version of the LLVM that FlyDSL has inside."""
    folder = Path(flydsl.__file__).parent / "_mlir" / "_mlir_libs"
    for path in sorted(folder.glob("libFlyPythonCAPI.so.*")):
        return path.name.removeprefix("libFlyPythonCAPI.so.")
    return "unknown"


def tools() -> tuple[Tool, ...]:
    """Return FlyDSL, and the LLVM inside."""
    return Tool(name="flydsl", version=flydsl.__version__, distribution="flydsl"), Tool(
        name="LLVM", version=llvm_version(), distribution="flydsl"
    )


# --- the back end ------------------------------------------------------------------------------------------------------


class _PackagingBackend(RocmBackend):
    """FlyDSL's ROCm back end without its last pass, which makes the binary."""

    def pipeline_fragments(self, *, compile_hints: dict[str, Any]) -> list[str]:
        fragments = super().pipeline_fragments(compile_hints=compile_hints)
        return [one for one in fragments if not one.lstrip().startswith("gpu-module-to-binary")]


def register_packaging_backend() -> None:
    """Make FlyDSL stop before the binary. The name stays `rocm`: kernels ask for it."""
    register_backend("rocm", _PackagingBackend, force=True)


@contextlib.contextmanager
def mlir_context() -> Iterator[ir.Context]:
    """Enter a context as FlyDSL makes them: all dialects, no threads."""
    with jit_function._create_mlir_context() as context:
        yield context


# --- lowering one specialization ---------------------------------------------------------------------------------------


@dataclass(kw_only=True, slots=True)
class Lowered:
    """One specialization after FlyDSL's pipeline.

    Parameters
    ----------
    text
        The module: a `gpu.module` in LLVM dialect and the launcher as `llvm.func`.
    function
        Name of the launcher's function in it.
    link_libs
        The bitcode files to link, in order of first use.
    hints
        The compile hints in force: those of the source, then those of the declaration.
    """

    text: str = ""
    function: str = ""
    source: str = ""
    link_libs: list[str] = field(default_factory=list)
    hints: dict[str, Any] = field(default_factory=dict)

    @property
    def takes_half_bytes(self) -> bool:
        """Whether elements of 4 bits are taken from global memory one by one, where LLVM has them a byte apart."""
        return _HALF_BYTES.search(self.text) is not None


_HALF_BYTES = re.compile(r"llvm\.getelementptr .* -> !llvm\.ptr<1>, i4$|rocdl\.raw\.ptr\.buffer\.(load|store) .* : i4$", re.MULTILINE)


def lower(  # noqa: PLR0913 - each is one thing FlyDSL is told
    launcher: Any,
    arguments: dict[str, Any],
    hints: dict[str, Any],
    *,
    debug_lines: bool,
    resolve_extern: Callable[[ExternCall], Sequence[str]],
    dump_folder: Path | None = None,
) -> Lowered:
    """Trace and lower one specialization.

    Parameters
    ----------
    launcher
        What `is_launcher` accepted.
    arguments
        By parameter name: what `make_argument` made, and the plain values of constexpr parameters.
    hints
        FlyDSL compile hints that override those of the launcher.
    resolve_extern
        Called for each call of an extern; returns the bitcode files to link.
    dump_folder
        Where FlyDSL writes the IR after each stage; it makes a folder of its own choice in it.
    """
    function, bound_self = jit_function._unwrap_jit_function(launcher)
    lowered = Lowered()

    class Capture:
        """Stands where FlyDSL would keep the artifact; keeps its text instead."""

        def __init__(  # noqa: PLR0913 - as FlyDSL calls it
            self,
            module: ir.Module,
            name: str,
            source_ir: str | None = None,
            *,
            post_load_processors: list[Any] | None = None,
            link_libs: list[str] | None = None,
            uses_explicit_module: bool = False,
        ) -> None:
            del post_load_processors  # Nothing is loaded here.
            lowered.text = module.operation.get_asm(enable_debug_info=debug_lines)
            lowered.function = name
            lowered.source = source_ir or ""
            lowered.link_libs = list(link_libs or [])
            # Attributes that FlyDSL's own code reads back from an artifact.
            self._ktrace_traced = False
            self._ktrace_names: dict[str, int] = {}
            self._explicit = uses_explicit_module

    variables = {"FLYDSL_DEBUG_ENABLE_DEBUG_INFO": "1" if debug_lines else "0"}
    if dump_folder is not None:
        variables |= {"FLYDSL_DUMP_IR": "1", "FLYDSL_DUMP_DIR": str(dump_folder)}
    positional = [] if bound_self is None else [bound_self]
    original = jit_function.CompiledArtifact
    jit_function.CompiledArtifact = Capture
    try:
        with (
            _environment(variables),
            CompilationContext.compile_hints(hints),
            _externs(resolve_extern),
        ):
            lowered.hints = dict(function._effective_compile_hints())
            # One specialization may be built twice in a process (other options): FlyDSL must not answer from its memory.
            function._mem_cache.clear()
            function._compile_only(*positional, **arguments)
    finally:
        jit_function.CompiledArtifact = original
    if not lowered.text:
        msg = "FlyDSL compiled nothing"
        raise RuntimeError(msg)
    return lowered


def extern_symbols() -> tuple[str, ...]:
    """Return the names of the extern functions that modules and factories have made: what kernels may call, where none is traced."""
    made = (one for one in gc.get_objects() if issubclass(type(one), ExternFunction))
    return tuple(sorted({one.symbol for one in made}))


@contextlib.contextmanager
def _externs(resolve: Callable[[ExternCall], Sequence[str]]) -> Iterator[None]:
    """Let `resolve` decide what each extern links, in place of the paths that the source recorded."""
    call, linked_call = ExternFunction.__call__, LinkedExternFunction.__call__

    def resolved(extern: ExternFunction, path: str | None, init: Any, arguments: tuple[Any, ...]) -> Any:
        files = resolve(
            ExternCall(
                symbol=extern.symbol,
                parameters=tuple(extern._arg_type_names),
                result=extern._ret_type_name,
                source_path=path,
                source_init=init,
            )
        )
        context = CompilationContext.get_current()
        for file in files if context is not None else ():
            context.add_link_lib(file)
        return call(extern, *arguments)

    ExternFunction.__call__ = lambda self, *arguments: resolved(self, None, None, arguments)
    LinkedExternFunction.__call__ = lambda self, *arguments: resolved(self.extern, self.bitcode_path, self.module_init_fn, arguments)
    try:
        yield
    finally:
        ExternFunction.__call__, LinkedExternFunction.__call__ = call, linked_call


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    saved = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in saved.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def compile_hints(options: CompileOptions) -> dict[str, Any]:
    """Return declared options as FlyDSL compile hints."""
    hints: dict[str, Any] = {
        "fast_fp_math": options.fast_fp_math,
        "unsafe_fp_math": options.unsafe_fp_math,
        "waves_per_eu": options.waves_per_eu,
        "llvm_options": dict(options.llvm_options) or None,
    }
    return {name: value for name, value in hints.items() if value is not None}


def attach_fragment(target: str, hints: dict[str, Any], options: CompileOptions, link_libs: Sequence[str]) -> str:
    """Return the `rocdl-attach-target{…}` pass for these hints and options, with the bitcode files to link.

    FlyDSL's own passes know no generic targets: they compile for a member, and only the code generator is told the name.
    """
    for fragment in get_backend().pipeline_fragments(compile_hints=hints):
        if fragment.startswith("rocdl-attach-target"):
            attach = re.sub(r"\bchip=\S+", f"chip={target}", fragment)
            if options.opt_level is not None:
                attach = re.sub(r"\bO=\d", f"O={options.opt_level}", attach)
            links = "".join(f" l={one}" for one in link_libs)
            return f"{attach[:-1]}{links}}}"
    msg = "FlyDSL's pipeline has no rocdl-attach-target pass"
    raise RuntimeError(msg)


# --- launchers and their parameters ------------------------------------------------------------------------------------


def is_launcher(candidate: Any) -> bool:
    """Tell whether the object is a `@flyc.jit` function, or one bound to an instance."""
    return jit_function._unwrap_jit_function(candidate)[0] is not None


def plain_function(launcher: Any) -> Any:
    """Return the function that the author wrote."""
    function, _ = jit_function._unwrap_jit_function(launcher)
    return inspect.unwrap(function.func)


def attributes_of(launcher: Any) -> dict[str, Any]:
    """Return what the author set on a launcher, by name."""
    function, _ = jit_function._unwrap_jit_function(launcher)
    return {name: value for name, value in vars(function).items() if name not in _own_attributes()}


@functools.cache
def _own_attributes() -> frozenset[str]:
    """Return the names of what FlyDSL sets on every launcher."""

    def bare() -> None:
        pass

    return frozenset(vars(jit_function.JitFunction(bare)))


def signature_of(launcher: Any) -> inspect.Signature:
    """Return the launcher's signature with resolved annotations, without `self`."""
    function, _ = jit_function._unwrap_jit_function(launcher)
    function._ensure_sig()
    signature: inspect.Signature = function._sig
    return signature


def parameter_role(annotation: Any) -> str | None:  # noqa: PLR0911 - one return for each kind of annotation
    """Say what an annotation makes of a parameter, or None if the declaration has to."""
    if annotation is inspect.Parameter.empty:
        return None
    if Constexpr.is_constexpr_annotation(annotation):
        return "constexpr"
    if jit_argument.is_type_param_annotation(annotation):
        return "type"
    if getattr(annotation, "_is_stream_param", False):
        return "stream"
    if not isinstance(annotation, type):
        return None
    if is_struct_type(annotation):
        return "struct"
    if issubclass(annotation, Tensor):
        return "tensor"
    if issubclass(annotation, Pointer):
        return "pointer"
    if annotation in _SCALAR_NAMES:
        return "scalar"
    return None


def constexpr_type(annotation: Any) -> Any:
    """Return the type in `Constexpr[…]`; anything for `Constexpr` alone."""
    return annotation.value_type or Any


def type_of_annotation(annotation: Any, declared: ArgumentType | None) -> ArgumentType | None:
    """Return the argument type that an annotation fixes by itself, completed by what was declared for its fields.

    Raises
    ------
    ArgumentError
        A struct has a field that neither the annotation nor the declaration gives a type.
    """
    role = parameter_role(annotation)
    if role == "stream":
        return StreamType()
    if role == "scalar":
        return ScalarType(dtype=_SCALAR_NAMES[annotation])
    if role == "struct":
        given = dict(declared.fields) if isinstance(declared, StructType) else {}
        fields = []
        for name, spec in _effective_field_defs(annotation):
            if _is_constexpr_type(spec):
                continue
            known = type_of_annotation(spec, given.get(name))
            one = known if known is not None else given.get(name)
            if one is None:
                msg = f"field {name} of struct {annotation.__name__} has no type"
                raise ArgumentError(msg)
            fields.append((name, one))
        unknown = sorted(set(given) - {name for name, _ in fields})
        if unknown:
            msg = f"struct {annotation.__name__} has no field {unknown[0]}"
            raise ArgumentError(msg)
        return StructType(fields=tuple(fields), name=annotation.__name__)
    return None


# --- structs -----------------------------------------------------------------------------------------------------------


def is_struct(kind: Any) -> bool:
    """Tell whether a class is an `fx.struct`."""
    return isinstance(kind, type) and bool(is_struct_type(kind))


def struct_class(kind: type) -> type:
    """Return the class that the author wrote: that of an object with constexpr fields is one that FlyDSL made of it."""
    base: type = getattr(kind, "__dsl_base_type__", kind)
    return base


def struct_fields(kind: type) -> tuple[tuple[str, Any], ...]:
    """Return the fields of an `fx.struct` with their types, constexpr fields too."""
    return tuple(_effective_field_defs(struct_class(kind)))


def has_constants(annotation: Any) -> bool:
    """Tell whether an annotation is a struct with constexpr fields, also inside of a struct in it."""
    return bool(is_specializable_struct_type(annotation))


def struct_constants(kind: type, table: dict[str, Any], convert: Callable[[Any, Any], Any]) -> dict[str, Any]:
    """Return declared values of a struct's constexpr fields in the order of the fields; those of structs in it are in tables.

    Parameters
    ----------
    convert
        Makes of a declared value what the annotation of its field says.

    Raises
    ------
    ArgumentError
        A constexpr field has no value, or what has one is no constexpr field.
    """
    fields = dict(struct_fields(kind))
    constants = [name for name, spec in fields.items() if _is_constexpr_type(spec)]
    inner = [name for name, spec in fields.items() if has_constants(spec)]
    for name in table:
        if name not in constants and name not in inner:
            kinds = "is no constexpr field" if name in fields else "is no field"
            msg = f"{name} {kinds} of struct {kind.__name__}. {did_you_mean(name, [*constants, *inner])}"
            raise ArgumentError(msg)
    missing = [name for name in constants if name not in table]
    if missing:
        msg = f"{', '.join(missing)} of struct {kind.__name__} have no value"
        raise ArgumentError(msg)
    found: dict[str, Any] = {}
    for name, spec in fields.items():
        if name in constants:
            try:
                found[name] = convert(table[name], spec)
            except ArgumentError as error:
                msg = f"field {name} of struct {kind.__name__}: {error}"
                raise ArgumentError(msg, error.fix) from error.__cause__
        elif name in inner:
            given = table.get(name, {})
            if not isinstance(given, dict):
                msg = f"{name} of struct {kind.__name__} is a struct itself, and its value is {given!r}, not a table"
                raise ArgumentError(msg)
            found[name] = struct_constants(spec, given, convert)
    return found


# --- arguments ---------------------------------------------------------------------------------------------------------


class _DeclaredTensor(jit_argument.MemRefJitArg):
    """A tensor known by its declaration only; there is no data."""

    def __init__(self, declared: TensorType) -> None:
        self.declared = declared
        bits = DTYPES[declared.dtype]
        shape = [one.size if one.size is not None else 1 for one in declared.shape]
        strides = [one.size if one.size is not None else 1 for one in declared.strides]
        super().__init__(
            element_bits=bits,
            shape=shape,
            strides=strides,
            dtype=declared.dtype,
            assumed_align=declared.alignment,
            use_32bit_stride=declared.stride_bits == _SHORT_STRIDE_BITS,
            dynamic_layout=False,
        )
        spec = self._ensure_spec()
        for kind, dims in (("shape", declared.shape), ("stride", declared.strides)):
            dynamic = [(index, one.divisor) for index, one in enumerate(dims) if one.size is None]
            if dynamic:
                getattr(spec, f"mark_{kind}_dynamic")(*zip(*dynamic, strict=True))
                self.is_layout_dynamic = True

    @property
    def element_type(self) -> ir.Type:
        return _element_type(self.declared.dtype)

    def __c_abi_spec__(self) -> Any:
        msg = "a declared tensor cannot be launched"
        raise NotImplementedError(msg)


jit_argument.JitArgumentRegistry.register_jit_arg(_DeclaredTensor, Tensor)


def make_argument(declared: ArgumentType, annotation: Any, constants: dict[str, Any] | None = None) -> Any:
    """Return the FlyDSL argument for a declared type.

    Parameters
    ----------
    constants
        What `struct_constants` gave for a struct.

    Raises
    ------
    ArgumentError
        The type cannot be passed to FlyDSL.
    """
    if isinstance(declared, TensorType):
        return _DeclaredTensor(declared)
    if isinstance(declared, ScalarType):
        return _TYPES[declared.dtype](0)
    if isinstance(declared, StreamType):
        return Stream(None)
    if isinstance(declared, PointerType):
        return jit_argument.PointerJitArg(_pointee(declared.dtype), None, alignment=declared.alignment)
    if isinstance(declared, StructType):
        if not (isinstance(annotation, type) and is_struct_type(annotation)):
            msg = "a struct argument needs a parameter that is annotated with the struct"
            raise ArgumentError(msg)
        specs = dict(struct_fields(annotation))
        fixed = constants or {}
        fields = {name: make_argument(one, specs[name], fixed.get(name)) for name, one in declared.fields}
        try:
            return annotation(**{**fixed, **fields})
        except TypeError as error:
            raise ArgumentError(str(error)) from None
    msg = f"unknown argument type {declared!r}"
    raise ArgumentError(msg)


def type_of_name(name: str) -> Any:
    """Return the FlyDSL type that a dtype names.

    Raises
    ------
    ArgumentError
        There is none.
    """
    if name in _TYPES:
        return _TYPES[name]
    msg = f'"{name}" is not the name of a FlyDSL type. {did_you_mean(name, list(_TYPES))}'
    raise ArgumentError(msg, "write the name of a FlyDSL type")


def names_type(value: Any) -> bool:
    """Tell whether a value is text that names a FlyDSL type."""
    return isinstance(value, str) and value in _TYPES


def raw_value(value: Any) -> Any:
    """Return the Python value in one of FlyDSL's scalars or streams, and anything else as it is."""
    return value.value if issubclass(type(value), numeric.Numeric | Stream) else value


def type_name(value: Any) -> str | None:
    """Return the dtype that names a FlyDSL type; None if the value is none."""
    return _TYPE_NAMES.get(value) if isinstance(value, type) else None


def _pointee(dtype: str) -> Any:
    try:
        return _TYPES[dtype]
    except KeyError:
        msg = f"FlyDSL has no pointers to {dtype}"
        raise ArgumentError(msg, 'declare it as "ptr<u8>"') from None


# --- errors ------------------------------------------------------------------------------------------------------------


@functools.cache
def _framework_folders() -> tuple[str, ...]:
    own = Path(__file__).resolve().parents[1]
    return (str(Path(flydsl.__file__).resolve().parent) + os.sep, str(own) + os.sep)


def was_raised_by_flydsl(error: BaseException) -> bool:
    """Tell whether an error comes out of FlyDSL, not of the author's own lines."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and os.path.realpath(frames[-1].filename).startswith(_framework_folders())


def author_frames(error: BaseException, roots: Sequence[str]) -> list[str]:
    """Return `file:line: source text` for each frame of a traceback that is in the author's folders, outermost first.

    The files are given relative to their folder. If no frame is the author's, the innermost one outside FlyDSL is.
    """
    frames = traceback.extract_tb(error.__traceback__)
    lines, other = [], []
    for frame in frames:
        if frame.filename.startswith("<"):
            continue
        line = (frame.line or linecache.getline(frame.filename, frame.lineno or 0)).strip()
        place = relative_to_roots(frame.filename, roots)
        if place is not None:
            lines.append(f"{place}:{frame.lineno}: {line}")
        elif not os.path.realpath(frame.filename).startswith(_framework_folders()):
            other.append(f"{frame.filename}:{frame.lineno}: {line}")
    return collapsed(lines) or other[-1:]
