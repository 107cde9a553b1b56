# SPDX-License-Identifier: Apache-2.0
"""Match declared arguments, constexpr values and compile options with a launcher's signature."""

from __future__ import annotations

import contextlib
import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from flydsl_build.codec import NO_DEFAULT, enum_reference
from flydsl_build.declare.argument_grammar import format_argument
from flydsl_build.declare.argument_types import StreamType, StructType
from flydsl_build.errors import Fault, did_you_mean
from flydsl_build.frontends.flydsl import adapter, author_values, factories
from flydsl_build.frontends.flydsl.annotations import starred_name
from flydsl_build.frontends.flydsl.faults import FaultError, joined_fault
from flydsl_build.jobs.launcher import Parameter

if TYPE_CHECKING:
    from flydsl_build.config.settings import CompileOptions
    from flydsl_build.declare.argument_types import ArgumentType
    from flydsl_build.declare.specialization import Specialization
    from flydsl_build.jobs.job import Job
    from flydsl_build.jobs.launcher import Role

__all__ = ["Binding", "bind_with_options", "described_parameter"]


def described_parameter(parameter: inspect.Parameter, role: Role, *, of_factory: bool = False) -> Parameter:
    """Describe a parameter of a launcher or factory as the manifest has it."""
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
class Binding:
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


def _bind(launcher: Any, specialization: Specialization, target: str) -> Binding:
    """Match declared arguments with the signature."""
    signature = adapter.signature_of(launcher)
    text = f"{specialization.title}({', '.join(map(starred_name, signature.parameters.values()))})"
    binding = Binding(specialization=specialization, where=specialization.place(target), text=text)
    _check_declared_names(binding, signature)
    for parameter in signature.parameters.values():
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            binding.fault(
                f"parameter {starred_name(parameter)} of {text} takes any number of arguments", "give the launcher a fixed signature"
            )
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
        raise FaultError(joined_fault(binding.faults))
    return binding


def _check_declared_names(binding: Binding, signature: inspect.Signature) -> None:
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
                binding.fault(
                    f"{kind}.{name}: {of}{specialization.title} has no parameter {name}", did_you_mean(name, allowed) or "remove it"
                )


def _bind_constexpr_parameter(binding: Binding, parameter: inspect.Parameter, role: Role) -> None:
    """Take the value of a constexpr or type parameter from the declaration, or else from its default."""
    name, title = parameter.name, binding.specialization.title
    constants = dict(binding.specialization.constexpr)
    binding.parameters.append(described_parameter(parameter, role))
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


def _bind_run_time_parameter(binding: Binding, parameter: inspect.Parameter, role: str | None) -> None:
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
    binding.parameters.append(described_parameter(parameter, cast("Role", found_role)))
    binding.arguments[name] = chosen


def _struct_constants(binding: Binding, parameter: inspect.Parameter) -> dict[str, Any] | None:
    """Return the values of a struct's constexpr fields; None if the parameter is no such struct."""
    if not adapter.has_constants(parameter.annotation):
        return None
    table = dict(binding.specialization.constexpr).get(parameter.name, {})
    if not isinstance(table, dict):
        msg = f"{parameter.name} is a struct, and its value is {table!r}"
        raise adapter.ArgumentError(msg)
    return adapter.struct_constants(parameter.annotation, table, author_values.converted)


def _recorded_constants(constants: dict[str, Any]) -> dict[str, Any]:
    return {name: _recorded_constants(one) if isinstance(one, dict) else author_values.plain(one) for name, one in constants.items()}


def _argument_type(binding: Binding, parameter: inspect.Parameter) -> ArgumentType | None:
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


def _check_llvm_options(options: CompileOptions, where: str) -> None:
    """Refuse LLVM options that this LLVM does not have, or that do not take the declared value."""
    faults = []
    for name, value in options.llvm_options:
        try:
            with adapter.llvm_options({name: value}):
                pass
        except RuntimeError as error:
            what = f"options.llvm-options.{name}: LLVM {adapter.llvm_version()} does not take it: {error}"
            faults.append(Fault(where=where, what=what, fix="correct the name, or write a value of its type: true, 3 or text"))
        except (TypeError, OverflowError):
            what = f"options.llvm-options.{name}: {value} is out of range"
            faults.append(Fault(where=where, what=what, fix="write an integer of 32 bits"))
    if faults:
        raise FaultError(*faults)


def bind_with_options(resolved: factories.Resolved, specialization: Specialization, job: Job) -> tuple[CompileOptions, Binding]:
    """Return the compile options for the job's target, and the launcher's arguments.

    Raises
    ------
    FaultError
        LLVM does not take an option, or what is declared does not fit the signature.
    """
    options = specialization.options.for_target(job.target)
    _check_llvm_options(options, specialization.place(job.target))
    return options, _bind(resolved.launcher, specialization, job.target)
