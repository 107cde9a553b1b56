# SPDX-License-Identifier: Apache-2.0
"""Find the launcher that a specialization names, and trace and lower it."""

from __future__ import annotations

import contextlib
import functools
import inspect
import os
import shutil
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flydsl._mlir import ir

from flydsl_build.declare.specialization import AS_BYTES
from flydsl_build.dtypes import HALF_BYTES
from flydsl_build.errors import Fault
from flydsl_build.frontends.flydsl import adapter, author_values, device_module, factories
from flydsl_build.frontends.flydsl.annotations import starred_name
from flydsl_build.frontends.flydsl.binding import bind_with_options, described_parameter
from flydsl_build.frontends.flydsl.externs import ExternResolver, ExternUse
from flydsl_build.frontends.flydsl.faults import AUTHORS_LINES, FaultError, explain, missing_fault_text
from flydsl_build.jobs.captured_output import captured_stderr

if TYPE_CHECKING:
    from flydsl_build.declare.argument_types import ArgumentType
    from flydsl_build.declare.specialization import Specialization
    from flydsl_build.jobs.job import Job, WorkerSettings
    from flydsl_build.jobs.launcher import Parameter

__all__ = ["Traced", "is_repeated", "resolved_launcher", "trace", "with_own_constexpr", "wrapper_warning"]


@dataclass(kw_only=True, slots=True)
class Traced:
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


def resolved_launcher(
    found: factories.Resolver, specialization: Specialization, target: str, settings: WorkerSettings
) -> factories.Resolved:
    """Return the launcher or plain value that a specialization names, with the factory it came from."""
    try:
        return found.resolve(specialization)
    except factories.ResolveError as error:
        what, fix = missing_fault_text(error.cause, specialization.attribute, settings) or (error.what, error.fix)
        detail = "" if error.cause is None else explain(error.cause, settings)
        where = specialization.place(target)
        if specialization.element is not None:
            # What is wrong with a call of the factory is wrong for all that it should return.
            call = ", ".join(f"{name}={value!r}" for name, value in specialization.params or ())
            where = f"{specialization.where}{f' [{specialization.attribute}({call})]' if call else ''}, {target}"
        raise FaultError(Fault(where=where, what=what, fix=fix, detail=detail)) from None


def wrapper_warning(one: Traced) -> str:
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
        text = starred_name(one)
        has_default = one.default is not one.empty
        words.append(f"{text}={one.default!r}" if isinstance(one.default, bool | int | float | str | None) else text + "=…" * has_default)
    return f"({', '.join(words)})"


def with_own_constexpr(specialization: Specialization, resolved: factories.Resolved) -> Specialization:
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


def is_repeated(specialization: Specialization, seen: set[str]) -> bool:
    """Tell whether constexpr values that another returned launcher has parameters for are all that makes this one different."""
    if specialization.element is None:
        return False
    identity = repr(replace(specialization, name="", where="", targets=()))
    if identity in seen:
        return True
    seen.add(identity)
    return False


def trace(
    resolved: factories.Resolved, specialization: Specialization, job: Job, settings: WorkerSettings, resolver: ExternResolver
) -> Traced:
    """Bind what is declared to the launcher, run it under FlyDSL, and lower what it traced.

    Raises
    ------
    FaultError
        What is declared does not fit, or the author's code or FlyDSL raised.
    """
    started = time.perf_counter()
    use = ExternUse()
    options, binding = bind_with_options(resolved, specialization, job)
    # Before anything of the author's is traced: code that runs then may set more.
    attributes = resolved.attributes
    factory_parameters: tuple[Parameter, ...] = ()
    if resolved.signature is not None:
        factory_parameters = tuple(
            described_parameter(one, "type" if author_values.takes_types(one.annotation, one.default) else "constexpr", of_factory=True)
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
    except FaultError:
        raise
    except BaseException as error:  # noqa: BLE001 - an author's kernel runs while it is traced, and may raise anything
        lines = f"{AUTHORS_LINES}; -C verbose=true shows FlyDSL's frames too"
        hint = specialization.without_elements if adapter.was_raised_by_flydsl(error) else ""
        what, fix = missing_fault_text(error, specialization.title, settings) or (
            "FlyDSL could not compile it",
            "; ".join(filter(None, [hint, lines])),
        )
        detail = "\n".join(filter(None, [explain(error, settings), output.text()]))
        raise FaultError(Fault(where=specialization.place(job.target), what=what, fix=fix, detail=detail)) from None
    packed = specialization.arguments_of(HALF_BYTES)
    if packed and lowered.takes_half_bytes:
        what = f"FlyDSL takes elements of {packed} a byte apart, but memory has two in a byte: they would be others, or past the end"
        fix = f"copy whole bytes of it through a buffer tensor, or {AS_BYTES}"
        raise FaultError(Fault(where=specialization.place(job.target), what=what, fix=fix))
    if options.debug_lines:
        # Line tables name files as the wheel's users would: no folder of the builder.
        for root in settings.package_roots:
            lowered.text = lowered.text.replace(f'"{os.path.realpath(root)}/', '"').replace(f'"{root}/', '"')
    return Traced(
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
        raise FaultError(Fault(where="dump-ir", what=what, fix="name a folder that can be written, on a disk with room")) from None
