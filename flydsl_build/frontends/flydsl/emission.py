# SPDX-License-Identifier: Apache-2.0
"""Join the kernels of specializations into code objects, and write these and the host objects."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from flydsl._mlir import ir

from flydsl_build.config.settings import CompileOptions
from flydsl_build.declare.argument_types import StreamType, StructType, TensorType
from flydsl_build.errors import Fault
from flydsl_build.frontends.flydsl import adapter, author_values, device_module, host_entry
from flydsl_build.frontends.flydsl.faults import FaultError, explain, relative_name
from flydsl_build.jobs.captured_output import captured_stderr
from flydsl_build.jobs.job import BitcodeUse, CodeObjectBuild, SpecializationBuild
from flydsl_build.jobs.launcher import Slot
from flydsl_build.targets.processors import parse_target

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from flydsl_build.declare.argument_types import ArgumentType
    from flydsl_build.frontends.flydsl.externs import ExternUse
    from flydsl_build.frontends.flydsl.tracing import Traced
    from flydsl_build.jobs.job import Job, WorkerSettings
    from flydsl_build.jobs.launcher import SlotKind

__all__ = ["emit"]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Joined:
    """A specialization whose kernels are in its group's device module, under the names that `kernels` maps theirs to."""

    traced: Traced
    host: host_entry.HostEntry
    kernels: dict[str, str]


def _axes_of(one: Traced) -> set[str]:
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


def emit(traced: list[Traced], job: Job, settings: WorkerSettings) -> tuple[list[CodeObjectBuild], list[SpecializationBuild]]:
    """Write the code objects of a job, one for each set of compile options and axis values, and the host objects.

    Raises
    ------
    FaultError
        The code generator failed, or a launch cannot be made without FlyDSL's run time.
    """
    plain = _group_key(job.target, {}, CompileOptions())
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[Traced]] = {}
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


def _join_group(members: list[Traced], job: Job) -> tuple[ir.Module, list[_Joined]]:
    """Split each member into device and host code; return the device code of all in one module, and each with its host entry."""
    # Parsed once: what is left when the kernels are taken out is the host code.
    parts = [(one.specialization.name, ir.Module.parse(one.lowered.text)) for one in members]
    try:
        joined = device_module.join_gpu_modules(parts)
    except device_module.SymbolConflictError as error:
        raise FaultError(
            Fault(where=f"{members[0].specialization.module}, {job.target}", what=str(error), fix="declare the extern alike everywhere")
        ) from None
    hosts: list[host_entry.HostEntry] = []
    for one, (_, part) in zip(members, parts, strict=True):
        try:
            hosts.append(host_entry.lower_launcher(part, one.lowered.function))
        except host_entry.UnsupportedLaunchError as error:
            raise FaultError(
                Fault(
                    where=one.specialization.place(job.target),
                    what=str(error),
                    fix="write the launch without it",
                )
            ) from None
    return joined.module, [
        _Joined(traced=one, host=host, kernels=kernels) for one, host, kernels in zip(members, hosts, joined.kernel_names, strict=True)
    ]


def _serialize(device: ir.Module, members: list[Traced], job: Job, settings: WorkerSettings) -> bytes:
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
    raise FaultError(*(_code_generation_fault(some, job, settings, why) for some, why in guilty))


def _attach(members: list[Traced], job: Job) -> str:
    first = members[0]
    libs = list(dict.fromkeys(lib for one in members for lib in one.lowered.link_libs))
    return adapter.attach_fragment(job.target, first.lowered.hints, first.specialization.options.for_target(job.target), libs)


def _generate(device: ir.Module, members: list[Traced], job: Job, settings: WorkerSettings) -> tuple[bytes | None, str]:
    """Return the code object, or None and what the code generator said."""
    options = members[0].lowered.hints.get("llvm_options") or {}
    with captured_stderr() as output:
        try:
            with adapter.llvm_options(options):
                return device_module.serialize(device, attach=_attach(members, job), toolkit=settings.toolkit.folder), ""
        except Exception as error:  # noqa: BLE001 - whatever stops the code generator is shown
            # LLVM's own words first: the exception says no more than that there was an error.
            message = "\n".join(filter(None, [output.text(), explain(error, settings)]))
    # The files that LLVM reads are copies: the author knows them by other names.
    for staged, use in {path: use for one in members for path, use in one.externs.files.items()}.items():
        message = message.replace(staged, use.file)
    return None, message


_DEVICE_LIBRARY = re.compile(r"__oc[mk]l_|bitcode|rocdl\.(?:workgroup|grid)\.dim")


def _code_generation_fault(members: list[Traced], job: Job, settings: WorkerSettings, message: str) -> Fault:
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
        source_file=relative_name(code.co_filename, settings.package_roots),
        source_line=code.co_firstlineno,
        seconds=one.seconds,
    )


def _slots(one: Traced, host: host_entry.HostEntry) -> Iterator[Slot]:
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
