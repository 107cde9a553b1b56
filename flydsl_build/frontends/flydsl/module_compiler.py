# SPDX-License-Identifier: Apache-2.0
"""Compile the specializations of one declared module for one target: import, trace, lower, join, serialize, host code.

Runs in a worker process, which has one target for its whole life.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib
import importlib.metadata
import inspect
import json
import os
import re
import shutil
import sys
import tempfile
import time
import types
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import flydsl
from flydsl._mlir import ir

from flydsl_build.codec import NO_DEFAULT, enum_reference
from flydsl_build.config.settings import CompileOptions
from flydsl_build.declare.argument_grammar import format_argument
from flydsl_build.declare.argument_types import StreamType, StructType, TensorType
from flydsl_build.declare.specialization import AS_BYTES
from flydsl_build.dtypes import HALF_BYTES
from flydsl_build.errors import Fault, did_you_mean, excerpt
from flydsl_build.frontends.dependency_tracker import imported_names
from flydsl_build.frontends.flydsl import adapter, author_values, device_module, factories, host_entry
from flydsl_build.frontends.flydsl.externs import ExternResolver, ExternUse
from flydsl_build.frontends.missing_modules import missing_module
from flydsl_build.jobs.author_code import is_own_file, passed_through, relative_to_roots, text_of
from flydsl_build.jobs.captured_output import captured_stderr
from flydsl_build.jobs.job import BitcodeUse, CodeObjectBuild, JobResult, SpecializationBuild
from flydsl_build.jobs.launcher import Parameter, Slot
from flydsl_build.targets.processors import parse_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from flydsl_build.declare.argument_types import ArgumentType
    from flydsl_build.declare.specialization import Specialization
    from flydsl_build.jobs.job import Job, WorkerSettings
    from flydsl_build.jobs.launcher import Role, SlotKind

__all__ = ["compile_module"]


class _FaultError(Exception):
    """Carries faults to the place where they are collected."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
        self.faults = faults


@dataclass(kw_only=True, slots=True)
class _Traced:
    """A specialization between lowering and joining."""

    specialization: Specialization
    resolved: factories.Resolved
    lowered: adapter.Lowered
    parameters: tuple[Parameter, ...]
    factory_parameters: tuple[Parameter, ...]
    constexpr: dict[str, Any]
    classes: tuple[type, ...]
    attributes: dict[str, Any]
    arguments: dict[str, ArgumentType]
    externs: ExternUse
    seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class _Joined:
    """A specialization whose kernels are in its group's device module, under the names that `kernels` maps theirs to."""

    traced: _Traced
    host: host_entry.HostEntry
    kernels: dict[str, str]


def compile_module(job: Job, settings: WorkerSettings, progress: Callable[[str], None]) -> JobResult:
    """Compile one job. Faults of the author's making are in the result; other exceptions are bugs.

    Parameters
    ----------
    progress
        Called with the name of each specialization before it is traced.
    """
    started = time.perf_counter()
    faults: list[Fault] = []
    warnings = [*_version_warning()]
    traced: list[_Traced] = []
    objects: list[CodeObjectBuild] = []
    built: list[SpecializationBuild] = []
    doc: str | None = None
    names: tuple[str, ...] = ()
    resolver = ExternResolver(
        rules=job.externs,
        target=job.target,
        axes=dict(job.axes),
        project=Path(job.project),
        environment=dict(job.environment),
        staging=Path(job.output),
    )
    try:
        module = _import_author_module(job, settings)
        with _author_objects(f"{job.specializations[0].where}, {job.target}", settings):
            doc, names = _doc(module), _public_names(module)
    except _FaultError as failed:
        faults += failed.faults
    else:
        found = factories.Resolver(module)
        seen: set[str] = set()
        for declared in job.specializations:
            progress(declared.name)
            try:
                with _author_objects(declared.place(job.target), settings):
                    resolved = _resolve(found, declared, job.target, settings)
                    specialization = _with_own_constexpr(declared, resolved)
                    if resolved.launcher is None or _is_repeated(specialization, seen):
                        continue
                    if job.check:
                        _bind_with_options(resolved, specialization, job)
                        continue
                    one = _trace(resolved, specialization, job, settings, resolver)
            except _FaultError as failed:
                faults += [fault for fault in failed.faults if fault not in faults]
                continue
            traced.append(one)
            faults += [fault for fault in resolver.check_linked(one.externs) if fault not in faults]
        faults += resolver.check_tables() if job.check else []
        if not faults:
            faults += resolver.check_joined([one.externs for one in traced])
            warnings += [_wrapper_warning(one) for one in traced if one.resolved.wrapper is not None]
            warnings += resolver.repeated_definitions([one.externs for one in traced])
        if not faults and not job.check:
            with adapter.mlir_context():
                try:
                    with _author_objects(f"{job.specializations[0].where}, {job.target}", settings):
                        objects, built = _emit(traced, job, settings)
                except _FaultError as failed:
                    faults += failed.faults
    return JobResult(
        module=job.module,
        target=job.target,
        axes=job.axes,
        output=job.output,
        doc=doc,
        public_names=names,
        specializations=tuple(built),
        enums=author_values.described_enums(map(_plain_values, built)),
        code_objects=tuple(objects),
        sources=_reached_sources(job.module, settings.package_roots),
        distributions=_init_distributions(objects, settings.package_roots),
        flydsl=flydsl.__version__,
        llvm=_llvm_version(),
        seconds=time.perf_counter() - started,
        symbols=adapter.extern_symbols() if job.check else tuple(dict.fromkeys(name for one in traced for name in one.externs.symbols)),
        warnings=tuple(dict.fromkeys(warnings)),
        faults=tuple(faults),
    )


def _version_warning() -> tuple[str, ...]:
    if adapter.is_tested_version():
        return ()
    tested = ", ".join(adapter.TESTED_VERSIONS)
    return (f"flydsl {flydsl.__version__} is outside the range flydsl-build was tested with ({tested}.x)",)


def _llvm_version() -> str:
    folder = Path(flydsl.__file__).parent / "_mlir" / "_mlir_libs"
    for path in sorted(folder.glob("libFlyPythonCAPI.so.*")):
        return path.name.removeprefix("libFlyPythonCAPI.so.")
    return "unknown"


# --- the author's module -----------------------------------------------------------------------------------------------


# MLIR prints the operation that a message is about, which for a pass over the whole kernel is the kernel: megabytes.
_PRINTED_OPERATION = re.compile(
    r"(see current operation:[^\n]{0,200})[^\n]*(?:\n(?!\s*(?:error|warning|note|remark): |\s*DSL Traceback)[^\n]*)+\n?"
)


# Of an author's exception; of the output of tools, less is shown.
_EXPLAINED = 100


def _explain(error: BaseException, settings: WorkerSettings) -> str:
    frames = adapter.author_frames(error, settings.package_roots)
    text = str(error) if isinstance(error, adapter.DSLCompileError) else text_of(error)
    if not settings.verbose:
        text = _PRINTED_OPERATION.sub(r"\1 …\n", text)
    if isinstance(error, SyntaxError) and error.filename:
        frames = [f"{_relative(error.filename, settings.package_roots)}:{error.lineno}: {(error.text or '').strip()}"]
        text = f"{type(error).__name__}: {error.msg}"
    detail = excerpt("\n".join([*frames, *text.splitlines()]), head=_EXPLAINED, tail=_EXPLAINED)
    if settings.verbose:
        import traceback

        detail += "\n\n" + "".join(traceback.format_exception(error))
    return detail


def _relative(path: str, roots: tuple[str, ...]) -> str:
    return relative_to_roots(path, roots) or Path(path).name


_AUTHORS_LINES = "see the author's lines below"


def _why(error: BaseException | None, who: str, settings: WorkerSettings) -> tuple[str, str] | None:
    """Return what is wrong and what to do where an author's code needs a module that is not there."""
    missing = missing_module(error, settings.package_roots)
    return None if missing is None else (f"{who} needs {missing[0]}", missing[1])


def _import_author_module(job: Job, settings: WorkerSettings) -> types.ModuleType:
    where = f"{job.specializations[0].where}, {job.target}"
    try:
        with captured_stderr():
            module = importlib.import_module(job.module)
    except ImportError as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing and (job.module == missing or job.module.startswith(missing + ".")):
            looked = ", ".join(settings.package_roots)
            raise _FaultError(
                Fault(
                    where=where,
                    what=f"module {job.module} was not found",
                    fix=f"looked in {looked}; check the key, the package layout and [tool.setuptools] packages",
                )
            ) from None
        what, fix = _why(error, f"module {job.module}", settings) or (f"importing {job.module} failed", _AUTHORS_LINES)
        raise _FaultError(Fault(where=where, what=what, fix=fix, detail=_explain(error, settings))) from None
    except BaseException as error:  # noqa: BLE001 - an author's module may raise anything
        raise _FaultError(
            Fault(where=where, what=f"importing {job.module} failed", fix=_AUTHORS_LINES, detail=_explain(error, settings))
        ) from None
    return module


@contextlib.contextmanager
def _author_objects(where: str, settings: WorkerSettings) -> Iterator[None]:
    """Make a fault of what is raised in the author's code while an object of the author's is looked at: properties, methods of classes."""
    try:
        yield
    except _FaultError:
        raise
    except BaseException as error:
        if not passed_through(error, settings.package_roots):
            raise
        fault = Fault(
            where=where,
            what="an object of the author's module cannot be looked at",
            fix=_AUTHORS_LINES,
            detail=_explain(error, settings),
        )
        raise _FaultError(fault) from None


def _doc(module: types.ModuleType) -> str | None:
    return module.__doc__ if isinstance(module.__doc__, str) else None


def _public_names(module: types.ModuleType) -> tuple[str, ...]:
    declared = getattr(module, "__all__", None)
    if isinstance(declared, (list, tuple)):
        return tuple(sorted(str(one) for one in declared))

    def is_own(value: Any) -> bool:
        if isinstance(value, types.ModuleType):
            return False
        if adapter.is_launcher(value):
            value = adapter.plain_function(value)
        return getattr(value, "__module__", module.__name__) == module.__name__

    return tuple(sorted(name for name, value in vars(module).items() if not name.startswith("_") and is_own(value)))


def _reached_sources(module: str, roots: tuple[str, ...]) -> dict[str, str]:
    """Return digest by file of the project's modules that `module` reaches through import statements, itself included.

    The statements are read, not what happens to be imported: a worker has several jobs, and their order must not show.
    """
    found: dict[str, str] = {}
    queue = [module]
    seen: set[str] = set()
    while queue:
        name = queue.pop()
        parts = name.split(".")
        queue += [".".join(parts[:depth]) for depth in range(1, len(parts))]
        if name in seen or name not in sys.modules:
            continue
        seen.add(name)
        path = getattr(sys.modules[name], "__file__", None)
        if not isinstance(path, str) or not path.endswith(".py") or not is_own_file(path, roots):
            continue
        data = Path(path).read_bytes()
        found[_relative(path, roots)] = hashlib.sha256(data).hexdigest()
        package = name if Path(path).name == "__init__.py" else name.rpartition(".")[0]
        queue += imported_names(ast.parse(data), package)
    return dict(sorted(found.items()))


def _init_distributions(objects: list[CodeObjectBuild], roots: tuple[str, ...]) -> dict[str, str]:
    """Name the distribution of each init function's module that is not the project's: what its users have to install."""
    names = {init.partition(":")[0].partition(".")[0] for built in objects for init in built.init}
    foreign = {name for name in names if not is_own_file(getattr(sys.modules.get(name), "__file__", None) or "/", roots)}
    if not foreign:
        return {}
    known = importlib.metadata.packages_distributions()
    return {name: known[name][0] for name in sorted(foreign) if name in known}


# --- tracing -----------------------------------------------------------------------------------------------------------


def _resolve(found: factories.Resolver, specialization: Specialization, target: str, settings: WorkerSettings) -> factories.Resolved:
    """Return the launcher or plain value that a specialization names, with the factory it came from."""
    try:
        return found.resolve(specialization)
    except factories.ResolveError as error:
        what, fix = _why(error.cause, specialization.attribute, settings) or (error.what, error.fix)
        detail = "" if error.cause is None else _explain(error.cause, settings)
        where = specialization.place(target)
        if specialization.element is not None:
            # What is wrong with a call of the factory is wrong for all that it should return.
            call = ", ".join(f"{name}={value!r}" for name, value in specialization.params or ())
            where = f"{specialization.where}{f' [{specialization.attribute}({call})]' if call else ''}, {target}"
        raise _FaultError(Fault(where=where, what=what, fix=fix, detail=detail)) from None


def _wrapper_warning(one: _Traced) -> str:
    """Say what a user of the wheel calls where users of the source call a Python function around it."""
    specialization, launcher, wrapper = one.specialization, one.resolved.launcher, one.resolved.wrapper
    inner = f"{adapter.plain_function(launcher).__name__}{_shown_signature(adapter.signature_of(launcher))}"
    try:
        outer = f"{wrapper.__name__}{_shown_signature(inspect.signature(wrapper))}"
    except (ValueError, TypeError, AttributeError):
        outer = type(wrapper).__name__
    return (
        f"{specialization.module}:{specialization.title} is the launcher {inner} in the wheel, and in the source the Python function "
        f"{outer} around it: what the function does (defaults, conversions, compile hints) is not in the wheel"
    )


def _shown_signature(signature: inspect.Signature) -> str:
    """Return a signature without annotations and the defaults that have no short text."""
    words = []
    for one in signature.parameters.values():
        text = ("*" * (one.kind is one.VAR_POSITIONAL) or "**" * (one.kind is one.VAR_KEYWORD)) + one.name
        has_default = one.default is not one.empty
        words.append(f"{text}={one.default!r}" if isinstance(one.default, bool | int | float | str | None) else text + "=…" * has_default)
    return f"({', '.join(words)})"


def _with_own_constexpr(specialization: Specialization, resolved: factories.Resolved) -> Specialization:
    """Return the specialization of one of several returned launchers without the constexpr values that others have parameters for.

    A value that none has a parameter for stays with the first of them, which reports it.
    """
    if specialization.element is None:
        return specialization

    def takes(launcher: Any, name: str) -> bool:
        parameter = adapter.signature_of(launcher).parameters.get(name)
        if parameter is None:
            return False
        role = adapter.parameter_role(parameter.annotation)
        return role in {"constexpr", "type"} or adapter.has_constants(parameter.annotation)

    is_first = specialization.element == next(iter(resolved.elements))
    return replace(
        specialization,
        constexpr=tuple(
            (name, value)
            for name, value in specialization.constexpr
            if takes(resolved.launcher, name) or (is_first and not any(takes(one, name) for one in resolved.elements.values()))
        ),
    )


def _is_repeated(specialization: Specialization, seen: set[str]) -> bool:
    """Tell whether constexpr values that another returned launcher has parameters for are all that makes this one different."""
    if specialization.element is None:
        return False
    identity = repr(replace(specialization, name="", where="", targets=()))
    if identity in seen:
        return True
    seen.add(identity)
    return False


def _parameter(parameter: inspect.Parameter, role: Role, *, of_factory: bool = False) -> Parameter:
    default: Any = NO_DEFAULT
    opaque = False
    if parameter.default is not inspect.Parameter.empty:
        try:
            default = _recorded_default(parameter, of_factory=of_factory)
        except (TypeError, adapter.ArgumentError):
            default, opaque = None, True
    return Parameter(
        name=parameter.name,
        kind=parameter.kind.name,  # type: ignore[arg-type]  # inspect's names of the kinds are the manifest's
        annotation=author_values.annotation_text(parameter.annotation) or None,
        role=role,
        default=default,
        opaque=opaque,
    )


def _recorded_default(parameter: inspect.Parameter, *, of_factory: bool) -> Any:
    if not of_factory and author_values.has_fields(parameter.default):
        raise TypeError
    return author_values.recorded(parameter.default, parameter.annotation, parameter.default)


_WRITABLE = frozenset({"tensor", "pointer", "struct"})


@dataclass(kw_only=True, slots=True)
class _Binding:
    """A launcher's signature, matched parameter by parameter with what is declared for it.

    Parameters
    ----------
    text
        The launcher with the names of its parameters, for messages.
    constexpr
        The values of constexpr parameters that JSON can say, those of a struct's constexpr fields as a table.
    classes
        The structs among those.
    arguments
        The types of run-time arguments.
    values
        What FlyDSL is called with.
    """

    specialization: Specialization
    where: str
    text: str
    parameters: list[Parameter] = field(default_factory=list)
    constexpr: dict[str, Any] = field(default_factory=dict)
    classes: list[type] = field(default_factory=list)
    arguments: dict[str, ArgumentType] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def fault(self, what: str, fix: str) -> None:
        """Record what does not fit."""
        self.faults.append(Fault(where=self.where, what=what, fix=fix))


def _bind(launcher: Any, specialization: Specialization, target: str) -> _Binding:
    """Match declared arguments with the signature."""
    signature = adapter.signature_of(launcher)
    text = f"{specialization.title}({', '.join(signature.parameters)})"
    binding = _Binding(specialization=specialization, where=specialization.place(target), text=text)
    _check_declared_names(binding, signature)
    for name, parameter in signature.parameters.items():
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            binding.fault(f"parameter *{name} of {text} takes any number of arguments", "give the launcher a fixed signature")
            continue
        role = adapter.parameter_role(parameter.annotation)
        if role == "constexpr" and author_values.takes_types(parameter.annotation, parameter.default):
            role = "type"
        if role in ("constexpr", "type"):
            _bind_constexpr_parameter(binding, parameter, cast("Role", role))
        else:
            _bind_run_time_parameter(binding, parameter, role)
    for one in binding.parameters:
        if one.name in (specialization.out or ()) and one.role not in _WRITABLE:
            what = f"out.{one.name}: {one.name} is a {one.role} parameter, which a launcher cannot write"
            binding.fault(what, "name tensors, pointers or structs")
    if sum(isinstance(one, StreamType) for one in binding.arguments.values()) > 1:
        binding.fault(f"{text} has more than one stream parameter", "FlyDSL launchers have at most one")
    if binding.faults:
        raise _FaultError(_join(binding.faults))
    return binding


def _check_declared_names(binding: _Binding, signature: inspect.Signature) -> None:
    """Refuse what is declared for a parameter that is not there."""
    specialization = binding.specialization
    out = dict.fromkeys(specialization.out or ())
    names = list(signature.parameters)
    writable = [name for name, one in signature.parameters.items() if adapter.parameter_role(one.annotation) in _WRITABLE]
    # The table of a factory is known by the factory's name, whose own parameters are others.
    of = "the launcher of " if specialization.params is not None and specialization.element is None else ""
    for kind, given, allowed in (
        ("args", dict(specialization.args), names),
        ("constexpr", dict(specialization.constexpr), names),
        ("out", out, writable),
    ):
        for name in given:
            if name not in signature.parameters:
                binding.fault(f"{kind}.{name}: {of}{specialization.title} has no parameter {name}", did_you_mean(name, allowed))


def _bind_constexpr_parameter(binding: _Binding, parameter: inspect.Parameter, role: Role) -> None:
    """Take the value of a constexpr or type parameter from the declaration, or else from its default."""
    name, title = parameter.name, binding.specialization.title
    constants = dict(binding.specialization.constexpr)
    binding.parameters.append(_parameter(parameter, role))
    if name in dict(binding.specialization.args):
        binding.fault(f"args.{name}: {name} is a {role} parameter", f"move it to constexpr: constexpr = {{ {name} = … }}")
    value = constants.get(name)
    if isinstance(value, dict) and enum_reference(value) is None:
        binding.fault(f"constexpr.{name}: found a table, but {name} of {title} is a {role} parameter", "write a plain value")
    elif role == "type" and name in constants and not isinstance(value, str):
        binding.fault(f"constexpr.{name}: {value!r} is not the name of a FlyDSL type", "write the name of a FlyDSL type")
    elif name in constants:
        try:
            binding.values[name] = author_values.converted(value, parameter.annotation, parameter.default)
            binding.constexpr[name] = author_values.recorded(binding.values[name], parameter.annotation, parameter.default)
        except adapter.ArgumentError as error:
            binding.fault(f"constexpr.{name}: {error}", error.fix)
        except TypeError:
            what = f"constexpr.{name}: a {type(binding.values[name]).__name__} is nothing that a call could be compared with"
            binding.fault(what, "define its class in a module, outside of functions")
    elif parameter.default is inspect.Parameter.empty:
        binding.fault(f"constexpr parameter {name} of {title} has no value", f"add constexpr = {{ {name} = … }}")
    else:
        binding.values[name] = parameter.default
        with contextlib.suppress(TypeError):
            binding.constexpr[name] = _recorded_default(parameter, of_factory=False)


def _bind_run_time_parameter(binding: _Binding, parameter: inspect.Parameter, role: str | None) -> None:
    """Make FlyDSL's argument for a parameter that has a value at each launch."""
    name = parameter.name
    try:
        constants = _struct_constants(binding, parameter)
    except adapter.ArgumentError as error:
        binding.fault(
            f"constexpr.{name}: {error}", error.fix or f"give the constexpr fields in a table: constexpr = {{ {name} = {{ … }} }}"
        )
        return
    if name in dict(binding.specialization.constexpr) and constants is None:
        binding.fault(f"constexpr.{name}: {name} is not a constexpr parameter", "annotate it as fx.Constexpr, or move it to args")
        return
    chosen = _argument_type(binding, parameter)
    if chosen is None:
        return
    found_role = chosen.kind
    if role is not None and role != found_role:
        binding.fault(
            f"args.{name}: declared as {format_argument(chosen)}, a {found_role}, but the parameter is annotated as "
            f"{author_values.annotation_text(parameter.annotation)}",
            f"declare a {role}",
        )
        return
    try:
        binding.values[name] = adapter.make_argument(chosen, parameter.annotation, constants)
    except adapter.ArgumentError as error:
        where = "args" if constants is None else "constexpr"
        binding.fault(f"{where}.{name}: {error}", error.fix or "see Argument types in the README")
        return
    if constants is not None:
        binding.constexpr[name] = _recorded_constants(constants)
        binding.classes.append(parameter.annotation)
    binding.parameters.append(_parameter(parameter, cast("Role", found_role)))
    binding.arguments[name] = chosen


def _struct_constants(binding: _Binding, parameter: inspect.Parameter) -> dict[str, Any] | None:
    """Return the values of a struct's constexpr fields; None if the parameter is no such struct."""
    if not adapter.has_constants(parameter.annotation):
        return None
    table = dict(binding.specialization.constexpr).get(parameter.name, {})
    if not isinstance(table, dict):
        msg = f"{parameter.name} is a struct, and its value is {table!r}"
        raise adapter.ArgumentError(msg)
    return adapter.struct_constants(parameter.annotation, table, author_values.converted)


def _plain_values(build: SpecializationBuild) -> list[Any]:
    """Return everything in which a member of an enum can be."""
    parameters = (*build.parameters, *build.factory_parameters, *(one for fields in build.classes.values() for one in fields))
    return [build.constexpr, build.params, build.values, build.attributes, [one.default for one in parameters]]


def _recorded_constants(constants: dict[str, Any]) -> dict[str, Any]:
    return {name: _recorded_constants(one) if isinstance(one, dict) else author_values.plain(one) for name, one in constants.items()}


def _argument_type(binding: _Binding, parameter: inspect.Parameter) -> ArgumentType | None:
    """Return the type that the annotation fixes, or else the declared one; None, with a fault recorded, if they do not give one."""
    name = parameter.name
    given = dict(binding.specialization.args).get(name)
    try:
        fixed = adapter.type_of_annotation(parameter.annotation, given)
    except adapter.ArgumentError as error:
        binding.fault(f"args.{name}: {error}", "give every field that its annotation leaves open, as a nested table")
        return None
    if fixed is None:
        if given is None:
            binding.fault(
                f"args has no entry for parameter {name} of {binding.text}", f'add it, for example args = {{ {name} = "f32[M, N]" }}'
            )
        return given
    if given is not None and not isinstance(given, StructType) and given != fixed:
        annotation = author_values.annotation_text(parameter.annotation)
        binding.fault(
            f"args.{name}: declared as {format_argument(given)}, but the parameter is annotated as {annotation}",
            f"remove the entry: the annotation already fixes the type ({format_argument(fixed)})",
        )
        return None
    return fixed


def _join(faults: list[Fault]) -> Fault:
    """Make one fault of several that stand at one place."""
    if len(faults) == 1:
        return faults[0]
    lines = [f"{one.what}\n  -> {one.fix}" for one in faults]
    return Fault(where=faults[0].where, what=f"{len(faults)} arguments do not fit", fix="correct each of them", detail="\n".join(lines))


def _check_llvm_options(options: CompileOptions, where: str) -> None:
    """Refuse LLVM options that this LLVM does not have, or that do not take the declared value."""
    faults = []
    for name, value in options.llvm_options:
        try:
            with adapter.llvm_options({name: value}):
                pass
        except RuntimeError as error:
            what = f"options.llvm-options.{name}: LLVM {_llvm_version()} does not take it: {error}"
            faults.append(Fault(where=where, what=what, fix="correct the name, or write a value of its type: true, 3 or text"))
        except (TypeError, OverflowError):
            what = f"options.llvm-options.{name}: {value} is out of range"
            faults.append(Fault(where=where, what=what, fix="write an integer of 32 bits"))
    if faults:
        raise _FaultError(*faults)


def _bind_with_options(resolved: factories.Resolved, specialization: Specialization, job: Job) -> tuple[CompileOptions, _Binding]:
    options = specialization.options.for_target(job.target)
    _check_llvm_options(options, specialization.place(job.target))
    return options, _bind(resolved.launcher, specialization, job.target)


def _trace(
    resolved: factories.Resolved, specialization: Specialization, job: Job, settings: WorkerSettings, resolver: ExternResolver
) -> _Traced:
    started = time.perf_counter()
    use = ExternUse()
    options, binding = _bind_with_options(resolved, specialization, job)
    # Before anything of the author's is traced: code that runs then may set more.
    attributes = resolved.attributes
    factory_parameters: tuple[Parameter, ...] = ()
    if resolved.signature is not None:
        factory_parameters = tuple(
            _parameter(one, "type" if author_values.takes_types(one.annotation, one.default) else "constexpr", of_factory=True)
            for one in resolved.signature.parameters.values()
        )
    stages = tempfile.TemporaryDirectory(prefix="flydsl-build-stages-") if job.dump_ir else contextlib.nullcontext()
    try:
        with captured_stderr() as output, stages as dump_folder:
            lowered = adapter.lower(
                resolved.launcher,
                binding.values,
                adapter.compile_hints(options),
                debug_lines=bool(options.debug_lines),
                resolve_extern=functools.partial(resolver.resolve, use),
                dump_folder=Path(dump_folder) if dump_folder else None,
            )
            if dump_folder:
                _dump(specialization, lowered, Path(dump_folder), job, settings)
    except _FaultError:
        raise
    except BaseException as error:  # noqa: BLE001 - an author's kernel runs while it is traced, and may raise anything
        lines = "see the author's lines below; -C verbose=true shows FlyDSL's frames too"
        hint = specialization.without_elements if adapter.was_raised_by_flydsl(error) else ""
        what, fix = _why(error, specialization.title, settings) or ("FlyDSL could not compile it", "; ".join(filter(None, [hint, lines])))
        detail = "\n".join(filter(None, [_explain(error, settings), output.text()]))
        raise _FaultError(Fault(where=specialization.place(job.target), what=what, fix=fix, detail=detail)) from None
    packed = specialization.arguments_of(HALF_BYTES)
    if packed and lowered.takes_half_bytes:
        what = f"FlyDSL takes elements of {packed} a byte apart, but memory has two in a byte: they would be others, or past the end"
        fix = f"copy whole bytes of it through a buffer tensor, or {AS_BYTES}"
        raise _FaultError(Fault(where=specialization.place(job.target), what=what, fix=fix))
    if options.debug_lines:
        # Line tables name files as the wheel's users would: no folder of the builder.
        for root in settings.package_roots:
            lowered.text = lowered.text.replace(f'"{os.path.realpath(root)}/', '"').replace(f'"{root}/', '"')
    return _Traced(
        specialization=specialization,
        resolved=resolved,
        lowered=lowered,
        parameters=tuple(binding.parameters),
        factory_parameters=factory_parameters,
        constexpr=binding.constexpr,
        classes=(*resolved.classes, *binding.classes),
        attributes=attributes,
        arguments=binding.arguments,
        externs=use,
        seconds=time.perf_counter() - started,
    )


# --- code --------------------------------------------------------------------------------------------------------------


def _axes_of(one: _Traced) -> set[str]:
    """Return the axes a specialization depends on: through its externs, or because its declaration says so."""
    return one.externs.axes | {name for name, _ in one.specialization.axes}


def _group_key(target: str, hints: dict[str, Any], options: CompileOptions) -> str:
    """Name what keeps specializations apart: options that the back end takes for a whole module.

    Only what differs from FlyDSL's own choice counts, so that the same options have the same name for every target.
    """
    plain = adapter.attach_fragment(target, {}, CompileOptions(), ()).split()
    key = {
        "attach": [word for word in adapter.attach_fragment(target, hints, options, ()).split() if word not in plain],
        "llvm": hints.get("llvm_options") or {},
        "debug": bool(options.debug_lines),
    }
    return json.dumps(key, sort_keys=True, default=str)


def _emit(traced: list[_Traced], job: Job, settings: WorkerSettings) -> tuple[list[CodeObjectBuild], list[SpecializationBuild]]:
    plain = _group_key(job.target, {}, CompileOptions())
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[_Traced]] = {}
    for one in traced:
        key = _group_key(job.target, one.lowered.hints, one.specialization.options.for_target(job.target))
        axes = tuple((name, value) for name, value in job.axes if name in _axes_of(one))
        groups.setdefault((key, axes), []).append(one)
    objects, built = [], []
    keys = [key for key, _ in groups]
    base = plain if plain in keys else keys[0]
    for (key, axes), members in groups.items():
        words = [f"{name}-{value}" for name, value in axes]
        if key != base:
            words.append("opt-" + hashlib.sha256(key.encode()).hexdigest()[:8])
        group = "_".join(words) or "main"
        device, joined = _join_group(members, job)
        file = f"{group}.hsaco"
        libraries = device_module.device_libraries(device)
        code = _serialize(device, members, job, settings)
        Path(job.output, file).write_bytes(code)
        uses = [one.externs for one in members]
        objects.append(
            CodeObjectBuild(
                group=group,
                file=file,
                kernels=tuple(new for one in joined for new in one.kernels.values()),
                axes=axes,
                init=tuple(dict.fromkeys(init for use in uses for init in use.init)),
                globals=tuple(dict.fromkeys(name for use in uses for name in use.globals)),
                bitcode=_joined_bitcode(uses),
                device_libraries=tuple(_device_library(Path(settings.toolkit.folder, "amdgcn", "bitcode", name)) for name in libraries),
            )
        )
        built += [_finish(one, group, job, settings) for one in joined]
    order = {one.specialization.name: index for index, one in enumerate(traced)}
    built.sort(key=lambda one: order[one.name])
    return objects, built


def _joined_bitcode(uses: Sequence[ExternUse]) -> tuple[BitcodeUse, ...]:
    """Return what several specializations are linked with: each file once, for the externs of all."""
    found: dict[str, BitcodeUse] = {}
    for use in (use for one in uses for use in one.files.values()):
        known = found.setdefault(use.sha256, use)
        found[use.sha256] = replace(known, externs=tuple(dict.fromkeys((*known.externs, *use.externs))))
    return tuple(found.values())


def _device_library(path: Path) -> BitcodeUse:
    data = path.read_bytes()
    return BitcodeUse(file=path.name, sha256=hashlib.sha256(data).hexdigest(), size=len(data))


def _join_group(members: list[_Traced], job: Job) -> tuple[ir.Module, list[_Joined]]:
    """Split each member into device and host code; return the device code of all in one module, and each with its host entry."""
    # Parsed once: what is left when the kernels are taken out is the host code.
    parts = [(one.specialization.name, ir.Module.parse(one.lowered.text)) for one in members]
    try:
        joined = device_module.join_gpu_modules(parts)
    except device_module.SymbolConflictError as error:
        raise _FaultError(
            Fault(where=f"{members[0].specialization.module}, {job.target}", what=str(error), fix="declare the extern alike everywhere")
        ) from None
    hosts: list[host_entry.HostEntry] = []
    for one, (_, part) in zip(members, parts, strict=True):
        try:
            hosts.append(host_entry.lower_launcher(part, one.lowered.function))
        except host_entry.UnsupportedLaunchError as error:
            raise _FaultError(
                Fault(
                    where=one.specialization.place(job.target),
                    what=str(error),
                    fix="write the launch without it",
                )
            ) from None
    return joined.module, [
        _Joined(traced=one, host=host, kernels=kernels) for one, host, kernels in zip(members, hosts, joined.kernel_names, strict=True)
    ]


def _serialize(device: ir.Module, members: list[_Traced], job: Job, settings: WorkerSettings) -> bytes:
    code, message = _generate(device, members, job, settings)
    if code is not None:
        return code
    # Which of the joined specializations is it? Each is tried alone, for the message only.
    guilty = [(members, message)]
    if len(members) > 1:
        alone = []
        for one in members:
            joined = device_module.join_gpu_modules([(one.specialization.name, ir.Module.parse(one.lowered.text))])
            found, why = _generate(joined.module, [one], job, settings)
            if found is None:
                alone.append(([one], why))
        guilty = alone or guilty
    raise _FaultError(*(_code_generation_fault(some, job, settings, why) for some, why in guilty))


def _attach(members: list[_Traced], job: Job) -> str:
    first = members[0]
    libs = list(dict.fromkeys(lib for one in members for lib in one.lowered.link_libs))
    return adapter.attach_fragment(job.target, first.lowered.hints, first.specialization.options.for_target(job.target), libs)


def _generate(device: ir.Module, members: list[_Traced], job: Job, settings: WorkerSettings) -> tuple[bytes | None, str]:
    """Return the code object, or None and what the code generator said."""
    options = members[0].lowered.hints.get("llvm_options") or {}
    with captured_stderr() as output:
        try:
            with adapter.llvm_options(options):
                return device_module.serialize(device, attach=_attach(members, job), toolkit=settings.toolkit.folder), ""
        except Exception as error:  # noqa: BLE001 - whatever stops the code generator is shown
            # LLVM's own words first: the exception says no more than that there was an error.
            message = "\n".join(filter(None, [output.text(), _explain(error, settings)]))
    # The files that LLVM reads are copies: the author knows them by other names.
    for staged, use in {path: use for one in members for path, use in one.externs.files.items()}.items():
        message = message.replace(staged, use.file)
    return None, message


def _dump(specialization: Specialization, lowered: adapter.Lowered, stages: Path, job: Job, settings: WorkerSettings) -> None:
    """Write what the author asked to see of one specialization: FlyDSL's stages, the LLVM IR, the ISA, in files that sort."""
    axes = [f"{name}-{value}" for name, value in job.axes]
    folder = Path(job.dump_ir or ".", job.module, specialization.name, *axes, job.target)
    files = sorted(stages.rglob("*.mlir"))
    attach = adapter.attach_fragment(job.target, lowered.hints, specialization.options.for_target(job.target), lowered.link_libs)
    with adapter.mlir_context(), adapter.llvm_options(lowered.hints.get("llvm_options") or {}):
        joined = device_module.join_gpu_modules([(specialization.name, ir.Module.parse(lowered.text))])
        texts = {f"{len(files):02d}_llvm_ir.ll": device_module.llvm_ir(joined.module)}
        texts[f"{len(files) + 1:02d}_isa.s"] = device_module.assembly(joined.module, attach=attach, toolkit=settings.toolkit.folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in files:
            shutil.copyfile(path, folder / path.name)
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        what = f"{folder} cannot be written ({error.strerror or error})"
        raise _FaultError(Fault(where="dump-ir", what=what, fix="name a folder that can be written, on a disk with room")) from None


_DEVICE_LIBRARY = re.compile(r"__oc[mk]l_|bitcode|rocdl\.(?:workgroup|grid)\.dim")


def _code_generation_fault(members: list[_Traced], job: Job, settings: WorkerSettings, message: str) -> Fault:
    names = ", ".join(one.specialization.name for one in members)
    what = f"the code generator failed for {names}"
    fix = "see its message below"
    # Where the library is missing, the code generator may not say so. Sizes of workgroups and grids are calls, too.
    calls_library = any(_DEVICE_LIBRARY.search(text) for text in (message, *(one.lowered.text for one in members)))
    if calls_library and not settings.toolkit.has_device_bitcode:
        what = f"{names}: the kernel calls the ROCm device library (ocml/ockl), which was not found"
        fix = (
            "install ROCm, the rocm_sdk wheels, triton or Debian's rocm-device-libs in the build environment, or set "
            "rocm-path. Searched: " + "; ".join(settings.toolkit.trace)
        )
    elif (target := parse_target(job.target, where="")).is_generic:
        what = f"{names}: the generic target {job.target} cannot express it"
        fix = target.instead
    return Fault(where=members[0].specialization.place(job.target), what=what, fix=fix, detail=message)


def _finish(joined: _Joined, group: str, job: Job, settings: WorkerSettings) -> SpecializationBuild:
    one, host, kernels = joined.traced, joined.host, joined.kernels
    host_object = f"{host.symbol}.o"
    Path(job.output, host_object).write_bytes(host.object_code)
    function = adapter.plain_function(one.resolved.launcher)
    code = function.__code__
    name = one.specialization.attribute
    return SpecializationBuild(
        name=one.specialization.name,
        launcher=name,
        group=group,
        axes=tuple(name for name, _ in job.axes if name in _axes_of(one)),
        parameters=one.parameters,
        factory_parameters=one.factory_parameters,
        params=dict(one.resolved.params),
        form=one.resolved.form,
        values=dict(one.resolved.values),
        attributes=one.attributes,
        classes={kind.__name__: author_values.field_infos(kind) for kind in author_values.with_inner_classes(one.classes)},
        doc=inspect.getdoc(one.resolved.factory or one.resolved.wrapper or function),
        launcher_doc=None if one.resolved.factory is None else inspect.getdoc(one.resolved.wrapper or function),
        constexpr=one.constexpr,
        arguments=one.arguments,
        slots=tuple(_slots(one, host)),
        entry=host.symbol,
        host_object=host_object,
        kernels=tuple(kernels[kernel] for kernel in host.kernels),
        kernel_arguments={kernels[kernel]: sizes for kernel, sizes in host.kernel_argument_sizes.items()},
        source_file=_relative(code.co_filename, settings.package_roots),
        source_line=code.co_firstlineno,
        seconds=one.seconds,
    )


def _slots(one: _Traced, host: host_entry.HostEntry) -> Iterator[Slot]:
    """Yield the slots of the entry, checked against the sizes in the lowered code."""
    wanted: list[Slot] = []
    for name, argument in one.arguments.items():
        wanted += _argument_slots(name, argument, None)
    if not any(isinstance(argument, StreamType) for argument in one.arguments.values()):
        wanted.append(_slot(None, "stream"))
    if len(wanted) != len(host.slots):
        msg = f"{one.specialization.name}: {len(wanted)} slots are described, the lowered launcher takes {len(host.slots)}"
        raise RuntimeError(msg)
    for slot, (size, alignment) in zip(wanted, host.slots, strict=True):
        if slot.size not in {0, size}:
            msg = f"{one.specialization.name}: slot {slot} has {size} bytes in the lowered launcher"
            raise RuntimeError(msg)
        yield replace(slot, size=size, align=alignment)


def _slot(argument: str | None, kind: SlotKind, field: str | None = None, **layout: Any) -> Slot:
    """Return a slot whose storage the lowered code tells, but for layouts."""
    return Slot(argument=argument, field=field, kind=kind, **{"size": 0, "align": 1, **layout})


def _argument_slots(name: str, argument: ArgumentType, path: str | None) -> Iterator[Slot]:
    if isinstance(argument, TensorType):
        yield _slot(name, "data", path)
        shape = tuple(index for index, dim in enumerate(argument.shape) if dim.size is None)
        strides = tuple(index for index, dim in enumerate(argument.strides) if dim.size is None)
        if shape or strides:
            size = 4 * len(shape) + argument.stride_bits // 8 * len(strides)
            yield _slot(
                name, "layout", path, size=size, shape_dims=shape, stride_dims=strides, shape_bits=32, stride_bits=argument.stride_bits
            )
    elif isinstance(argument, StructType):
        for field_name, one in argument.fields:
            yield from _argument_slots(name, one, field_name if path is None else f"{path}.{field_name}")
    else:
        yield _slot(name, cast("SlotKind", argument.kind), path)
