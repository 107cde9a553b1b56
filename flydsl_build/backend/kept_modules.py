# SPDX-License-Identifier: Apache-2.0
"""Assembled modules, kept between builds.

What is made of the results of a module's jobs is checked, described and rendered once: it follows from the digests of these
results. A build in which nothing changed then reads no ELF file, renders no stub and starts no linker.
"""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flydsl_build
from flydsl_build.backend.assemble import AssembledModule, assemble_module
from flydsl_build.backend.source_files import license_files
from flydsl_build.bundle.manifest import Manifest
from flydsl_build.bundle.verify import verify_package
from flydsl_build.errors import VerifyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flydsl_build.backend.pipeline import Project
    from flydsl_build.backend.placement import Placement
    from flydsl_build.compile.cache import BuildCache
    from flydsl_build.compile.results import StoredResult
    from flydsl_build.compile.toolchain import Linker
    from flydsl_build.config.settings import Settings
    from flydsl_build.declare.specialization import Specialization

__all__ = ["assemble_or_recall"]

# Beside the artefacts, in a kept module; no artefact has such a name.
_ABOUT = "/about"


def assemble_or_recall(  # noqa: PLR0913 - each is the result of one room
    module: str,
    *,
    specializations: Sequence[Specialization],
    results: Sequence[StoredResult],
    placement: Placement,
    settings: Settings,
    project: Project,
    linker: Linker,
    cache: BuildCache,
    output: Path,
) -> AssembledModule:
    """Make the artefacts of one module in the folder `output`, verify them and render the stub; or take them from the cache.

    Raises
    ------
    VerifyError
        See `assemble_module` and `verify_package`.
    """
    key = (
        "module",
        _program_digest(),
        [result.digest for result in results],
        [one.to_json() for one in specializations],
        [settings.load, settings.torch_ops, settings.is_split, [asdict(axis) for axis in settings.axes]],
        license_files(settings, project.root),
        [project.name, project.version],
        [linker.version, linker.identity],
        [module, str(placement.source), str(placement.anchor), str(placement.folder), placement.stem],
    )
    kept = cache.recall_files(*key)
    if kept is not None:
        return _unpack(kept, placement, output)
    assembled = assemble_module(
        module,
        specializations=specializations,
        results=[result.load() for result in results],
        placement=placement,
        settings=settings,
        project=project,
        linker=linker,
        cache=cache,
        output=output,
    )
    faults = verify_package(output)
    if faults:
        raise VerifyError(*faults)
    assembled = _rendered(assembled, torch_ops=settings.torch_ops)
    cache.remember_files(_pack(assembled), *key)
    return assembled


def _rendered(module: AssembledModule, *, torch_ops: bool) -> AssembledModule:
    """Return the module with the texts of its generated modules."""
    # Imported here for the same reason as in `assemble_module`.
    from flydsl_build.stubs import render_stub, render_torch_ops

    place = module.placement
    source, interface = render_stub(module.manifest, **module.stub_arguments)
    generated = {str(place.source): source, str(place.source.with_suffix(".pyi")): interface}
    warnings: tuple[str, ...] = ()
    if torch_ops:
        ops = render_torch_ops(module.manifest, namespace=place.torch_namespace, runtime_package=place.runtime_package)
        generated |= {str(place.torch_source): ops.source, str(place.torch_source.with_suffix(".pyi")): ops.interface}
        warnings = tuple(f"{place.torch_source} does not have {one}" for one in ops.left_out)
    return replace(module, generated=generated, warnings=warnings)


def _pack(module: AssembledModule) -> dict[str, bytes]:
    about = {
        "stub_arguments": module.stub_arguments,
        "unexported": module.unexported,
        "generated": module.generated,
        "warnings": module.warnings,
    }
    return {**{path.name: path.read_bytes() for path in sorted(module.folder.iterdir())}, _ABOUT: json.dumps(about).encode()}


def _unpack(kept: dict[str, bytes], placement: Placement, output: Path) -> AssembledModule:
    about: dict[str, Any] = json.loads(kept.pop(_ABOUT))
    for name, data in kept.items():
        (output / name).write_bytes(data)
    return AssembledModule(
        placement=placement,
        manifest=Manifest.from_json(kept[placement.manifest_name], where=placement.manifest_name),
        folder=output,
        stub_arguments=about["stub_arguments"],
        unexported=tuple(about["unexported"]),
        generated=about["generated"],
        warnings=tuple(about["warnings"]),
    )


@functools.cache
def _program_digest() -> str:
    """Return a digest over this program, without its run time: that is copied into the wheel as it is."""
    package = Path(flydsl_build.__file__).parent
    digest = hashlib.sha256()
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.j2"), *package.parent.glob("templates/*.j2")]):
        if path.relative_to(package.parent).parts[1] != "runtime":
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()
