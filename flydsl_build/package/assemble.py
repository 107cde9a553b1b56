# SPDX-License-Identifier: Apache-2.0
"""Join the results of one declared module over all its targets: verify, bundle, link the launcher library, write the manifest."""

from __future__ import annotations

import hashlib
import subprocess
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from flydsl_build import __version__
from flydsl_build.bundle.call_table import SYMBOL, call_table, object_file
from flydsl_build.bundle.manifest import (
    Axis,
    Bitcode,
    CodeObject,
    DeviceGlobal,
    Distribution,
    Library,
    Manifest,
    Provenance,
    Unit,
    manifest_kernels,
)
from flydsl_build.consumers.base import DeclaredModule
from flydsl_build.errors import BuildError, Fault, FaultCollector, VerifyError, excerpt
from flydsl_build.jobs.job import Tool
from flydsl_build.package.launchers import launcher_entries, value_classes, value_enums
from flydsl_build.package.source_files import license_files
from flydsl_build.targets.checks import check_code_object, check_launcher_library, readable_code_object
from flydsl_build.targets.offload_bundle import write_bundle
from flydsl_build.targets.processors import parse_target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from flydsl_build.bundle.placement import Placement
    from flydsl_build.cache.build_cache import BuildCache
    from flydsl_build.config.settings import Settings
    from flydsl_build.declare.specialization import Specialization
    from flydsl_build.jobs.job import CodeObjectBuild, JobResult, Linker
    from flydsl_build.package.project import Project
    from flydsl_build.package.summary import KernelRow
    from flydsl_build.targets.code_object import AmdgpuCodeObject

__all__ = ["AssembledModule", "assemble_module", "other_targets"]


@dataclass(frozen=True, kw_only=True, slots=True)
class AssembledModule:
    """One declared module, complete in a folder of its own.

    Parameters
    ----------
    folder
        Has the bundles, the launcher library and the manifest, and nothing else.
    code_objects
        Its code objects as they were checked, by SHA-256 digest.
    declared
        What the consumers are given.
    unexported
        Public names of the source that the stub does not have.
    generated
        The texts of the generated modules and their interfaces, by their places in the wheel; empty until they are rendered.
    warnings
        What the author should know about them.
    rows
        What the summary shows of it.
    """

    placement: Placement
    folder: Path
    code_objects: Mapping[str, AmdgpuCodeObject]
    declared: DeclaredModule
    unexported: tuple[str, ...]
    generated: dict[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    rows: tuple[KernelRow, ...] = ()

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Yield name and content of each file in the folder."""
        for path in sorted(self.folder.iterdir()):
            yield path.name, path.read_bytes()


def other_targets(module: str, settings: Settings) -> tuple[str, ...]:
    """Return the targets that not this module, but others of the wheel have code for: those of the table, also of what is not built now."""
    own = settings.targets_by_module.get(module, ())
    return tuple(target for target in settings.all_targets if target not in own)


def assemble_module(  # noqa: PLR0913 - each is the result of one room
    module: str,
    *,
    specializations: Sequence[Specialization],
    results: Sequence[JobResult],
    placement: Placement,
    settings: Settings,
    project: Project,
    linker: Linker,
    cache: BuildCache,
    output: Path,
) -> AssembledModule:
    """Make the artefacts of one module in the folder `output`.

    Raises
    ------
    VerifyError
        A code object or the launcher library is not what was asked for, or the targets disagree about a launcher.
    """
    faults = FaultCollector()
    results, groups = _with_one_init_a_unit(results)
    units, code_objects = _units(module, results, placement, output, faults, groups if settings.is_split else None)
    targets = tuple(dict.fromkeys(result.target for result in results))
    launchers = launcher_entries(specializations, results, units, faults)
    enums = value_enums(results, faults)
    faults.raise_if_any(VerifyError)
    table = call_table(module=module, targets=targets, units=tuple(units.values()), launchers=launchers)
    # Not `.so`: tools that freeze programs take that for an extension module, and leave it out of a package's data.
    library = _link_library(results, table, linker, cache, output / f"{placement.stem}.launchers.elf", faults)
    faults.raise_if_any(VerifyError)
    sources: dict[str, str] = {}
    for result in results:
        sources.update(result.sources)
    first = results[0]
    manifest = Manifest(
        module=module,
        distribution=Distribution(name=project.name, version=project.version),
        load=settings.load,
        targets=targets,
        axes={
            axis.name: Axis(values=axis.values, select=axis.select)
            for axis in settings.axes
            if any(axis.name in unit.axes for unit in units.values())
        },
        library=library,
        units=tuple(units.values()),
        classes=value_classes(results),
        enums=enums,
        launchers=launchers,
        provenance=Provenance(
            tools=_tools(results, linker),
            bitcode=_bitcode(results, "bitcode", license_files(settings, project.root)),
            device_libraries=_bitcode(results, "device_libraries", {}),
            sources=sources,
            distributions={name: one for result in results for name, one in result.distributions.items()},
        ),
    )
    # Its template engine is slow to import, and not needed by a build in which nothing changed.
    from flydsl_build.consumers.python_stub.render import argument_structs, enum_name

    text = manifest.to_text().encode()
    (output / placement.manifest_name).write_bytes(text)
    exported = {launcher.name.partition(".")[0] for launcher in launchers} | set(manifest.classes or ())
    exported |= {struct.name for struct in argument_structs(manifest)} | {enum_name(one) for one in manifest.enums or ()}
    return AssembledModule(
        placement=placement,
        folder=output,
        code_objects=code_objects,
        declared=DeclaredModule(
            manifest=manifest,
            manifest_sha256=hashlib.sha256(text).hexdigest(),
            placement=placement,
            doc=first.doc,
            public_names=first.public_names,
            other_targets=other_targets(module, settings),
        ),
        unexported=tuple(name for name in first.public_names if name not in exported),
    )


def _with_one_init_a_unit(results: Sequence[JobResult]) -> tuple[list[JobResult], dict[str, str]]:
    """Rename groups whose init functions or globals differ between targets: a unit has one list of each.

    The second value maps the new names to the old.

    They differ where an option, an axis or a list of targets puts an extern's caller into another group, or where a kernel
    calls an extern on some targets only.
    """
    seen: dict[str, list[tuple[tuple[str, ...], tuple[str, ...]]]] = {}
    renamed = []
    groups: dict[str, str] = {}
    for result in results:
        names: dict[str, str] = {}
        for built in result.code_objects:
            kinds = seen.setdefault(built.group, [])
            kind = (built.init, built.globals)
            if kind not in kinds:
                kinds.append(kind)
            position = kinds.index(kind)
            names[built.group] = built.group if position == 0 else f"{built.group}-{position + 1}"
            groups[names[built.group]] = built.group
        renamed.append(
            replace(
                result,
                code_objects=tuple(replace(one, group=names[one.group]) for one in result.code_objects),
                specializations=tuple(replace(one, group=names[one.group]) for one in result.specializations),
            )
        )
    return renamed, groups


def _units(  # noqa: PLR0913, PLR0917 - each is the result of one room
    module: str,
    results: Sequence[JobResult],
    placement: Placement,
    output: Path,
    faults: FaultCollector,
    split_groups: dict[str, str] | None,
) -> tuple[dict[str, Unit], dict[str, AmdgpuCodeObject]]:
    """Verify the code objects, write the bundles, describe both; return the code objects too, by SHA-256 digest.

    Parameters
    ----------
    split_groups
        If each target gets a bundle of its own: units to their groups. A bundle's name must not depend on the other targets of the build.
    """
    contents: dict[str, dict[str, bytes]] = {}
    parsed: dict[str, dict[str, AmdgpuCodeObject]] = {}
    made: dict[str, CodeObjectBuild] = {}
    for result in results:
        argument_sizes = {kernel: sizes for one in result.specializations for kernel, sizes in one.kernel_arguments.items()}
        for built in result.code_objects:
            data = Path(result.output, built.file).read_bytes()
            where = f"{module}, {result.target}"
            code_object = readable_code_object(data, where, faults)
            if code_object is None:
                continue
            faults.extend(
                check_code_object(
                    code_object,
                    where=where,
                    target=result.target,
                    e_flags=parse_target(result.target, where=module).e_flags,
                    kernels={kernel: argument_sizes[kernel] for kernel in built.kernels if kernel in argument_sizes},
                    globals=dict.fromkeys(built.globals),
                )
            )
            contents.setdefault(built.group, {})[result.target] = data
            parsed.setdefault(built.group, {})[result.target] = code_object
            made.setdefault(built.group, built)
    faults.raise_if_any(VerifyError)
    units = {}
    by_digest: dict[str, AmdgpuCodeObject] = {}
    for name, objects in contents.items():
        group = name if split_groups is None else split_groups[name]
        words = [placement.stem, *([] if group == "main" else [group]), *([] if split_groups is None else ["{target}"]), "hipfb"]
        unit = Unit(
            name=name,
            axes=dict(made[name].axes),
            bundle=".".join(words),
            init=made[name].init,
            globals=_globals(module, made[name].globals, parsed[name], faults),
            code_objects={target: _code_object(data, parsed[name][target]) for target, data in objects.items()},
        )
        offsets: dict[str, int] = {}
        for file, targets in unit.bundles().items():
            bundle = write_bundle({target: objects[target] for target in targets}, where=module)
            (output / file).write_bytes(bundle.data)
            offsets |= {target: bundle.entries[target].offset for target in targets}
        placed = {target: replace(one, offset=offsets[target]) for target, one in unit.code_objects.items()}
        units[name] = replace(unit, code_objects=placed)
        by_digest |= {one.sha256: parsed[name][target] for target, one in placed.items()}
    faults.raise_if_any(VerifyError)
    return units, by_digest


def _code_object(data: bytes, code: AmdgpuCodeObject) -> CodeObject:
    """Describe a code object; its place in a bundle is not known yet."""
    return CodeObject(
        offset=0,
        size=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        e_flags=code.elf.e_flags,
        kernels=manifest_kernels(code),
    )


def _globals(
    module: str, names: tuple[str, ...], objects: Mapping[str, AmdgpuCodeObject], faults: FaultCollector
) -> tuple[DeviceGlobal, ...]:
    found = []
    for name in names:
        sizes = {target: one.symbols[name].size for target, one in objects.items() if name in one.symbols}
        if len(set(sizes.values())) > 1:
            spelled = ", ".join(f"{size} bytes for {target}" for target, size in sizes.items())
            faults.add(
                f"{module}, global {name}",
                f"the device global has {spelled}, and one init function writes it on all of them",
                "give it one size in the bitcode of every target",
            )
        found.append(DeviceGlobal(name=name, size=next(iter(sizes.values()))))
    return tuple(found)


def _link_library(  # noqa: PLR0913, PLR0917 - each is an input of the link
    results: Sequence[JobResult], table: bytes, linker: Linker, cache: BuildCache, path: Path, faults: FaultCollector
) -> Library:
    """Link the host objects of all targets, equal entries of several targets as one, and the call table."""
    objects: dict[str, Path] = {}
    for result in results:
        for one in result.specializations:
            objects.setdefault(one.entry, Path(result.output, one.host_object))
    options = ["-shared", "--build-id=none", "--hash-style=gnu", "--eh-frame-hdr", "-z", "noexecstack", "-z", "relro", "--strip-debug"]
    inputs = [objects[entry] for entry in sorted(objects)]
    key = (
        "library",
        linker.identity,
        options,
        [[entry, hashlib.sha256(objects[entry].read_bytes()).hexdigest()] for entry in sorted(objects)],
        hashlib.sha256(table).hexdigest(),
    )
    data = cache.recall(*key)
    if data is None:
        with tempfile.TemporaryDirectory() as folder:
            table_object = Path(folder, "call_table.o")
            table_object.write_bytes(object_file(table))
            data = _link([*linker.command, *options, "-o", str(path), *map(str, inputs), str(table_object)], path)
        cache.remember(data, *key)
    path.write_bytes(data)
    faults.extend(check_launcher_library(data, where=path.name, entries=objects, tables={SYMBOL: table}))
    return Library(file=path.name, sha256=hashlib.sha256(data).hexdigest(), size=len(data))


def _link(command: list[str], path: Path) -> bytes:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildError(
            Fault(
                where=path.name,
                what="linking the launcher library failed",
                fix="see the linker's message",
                detail=excerpt(done.stderr or done.stdout),
            )
        )
    return path.read_bytes()


def _tools(results: Sequence[JobResult], linker: Linker) -> tuple[Tool, ...]:
    """Return what the module was made with: the front end's tools, the linker, this program."""
    name, _, version = linker.version.partition(" ")
    own = Tool(name="flydsl-build", version=__version__, distribution="flydsl-build")
    used = dict.fromkeys(tool for result in results for tool in result.tools)
    return (*used, Tool(name=name.lower(), version=version), own)


def _bitcode(
    results: Sequence[JobResult], kind: Literal["bitcode", "device_libraries"], licenses: Mapping[str, tuple[str, ...]]
) -> tuple[Bitcode, ...]:
    """Return what was linked, each file once, with its targets and with the licence files of the extern tables it was linked for."""
    found: dict[tuple[str, str], Bitcode] = {}
    for result in results:
        for use in (use for built in result.code_objects for use in getattr(built, kind)):
            bare = Bitcode(file=use.file, sha256=use.sha256, size=use.size, code_object_version=use.abi, targets=())
            known = found.get((use.file, use.sha256), bare)
            files = (*known.license_files, *(file for extern in use.externs for file in licenses.get(extern, ())))
            found[use.file, use.sha256] = replace(
                known,
                targets=tuple(dict.fromkeys((*known.targets, result.target))),
                license_files=tuple(dict.fromkeys(files)),
            )
    return tuple(found.values())
