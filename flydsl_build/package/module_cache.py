# SPDX-License-Identifier: Apache-2.0
"""Assembled modules, kept between builds.

What is made of the results of a module's jobs is checked, described and rendered once: it follows from the digests of these
results. A build in which nothing changed then reads no ELF file, renders no stub and starts no linker.
"""

from __future__ import annotations

import functools
import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flydsl_build
from flydsl_build.bundle.verify import verify_package
from flydsl_build.codec import DecodeError, encode, parse
from flydsl_build.consumers import wanted_consumers
from flydsl_build.errors import VerifyError
from flydsl_build.jobs.results import is_file_name
from flydsl_build.package.assemble import AssembledModule, assemble_module, other_targets
from flydsl_build.package.source_files import license_files
from flydsl_build.package.summary import KernelRow, empty_launchers, kernel_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from flydsl_build.bundle.placement import Placement
    from flydsl_build.cache.build_cache import BuildCache
    from flydsl_build.config.settings import Settings
    from flydsl_build.consumers.base import Consumer
    from flydsl_build.declare.specialization import Specialization
    from flydsl_build.jobs.job import Linker
    from flydsl_build.jobs.results import StoredResult
    from flydsl_build.package.project import Project

__all__ = ["KeptModule", "ModuleKeeper"]

# Beside the artefacts, in a kept module; no artefact has such a name.
_ABOUT = "/about"
# So much of what is recalled stays in memory; the rest is written to files.
_ROOM = 1 << 25


@dataclass(frozen=True, kw_only=True, slots=True)
class KeptModule:
    """A module as an earlier build made it: complete, and known to be whole.

    Parameters
    ----------
    content
        The artefacts, if they are in memory; else they are in `folder`.
    """

    placement: Placement
    unexported: tuple[str, ...]
    generated: Mapping[str, str]
    warnings: tuple[str, ...]
    rows: tuple[KernelRow, ...]
    content: Mapping[str, bytes]
    folder: Path

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Yield name and content of each artefact."""
        yield from self.content.items()
        if self.folder.is_dir():
            for path in sorted(self.folder.iterdir()):
                yield path.name, path.read_bytes()


@dataclass(frozen=True, kw_only=True, slots=True)
class _About:
    """What is kept of a module beside its artefacts, and their names."""

    files: tuple[str, ...]
    unexported: tuple[str, ...]
    generated: dict[str, str]
    warnings: tuple[str, ...]
    rows: tuple[KernelRow, ...]


class ModuleKeeper:
    """Assembles modules, or takes them from the cache.

    Parameters
    ----------
    folder
        Made for what does not stay in memory; each module has one of its own in it.
    """

    def __init__(self, *, settings: Settings, project: Project, linker: Linker, cache: BuildCache, folder: Path) -> None:
        self._settings = settings
        self._consumers = wanted_consumers(settings)
        self._project = project
        self._linker = linker
        self._cache = cache
        self._folder = folder
        self._room = _ROOM
        self._common = [
            "module",
            _program_digest(),
            [settings.load, [one.suffix for one in self._consumers], settings.is_split, [asdict(axis) for axis in settings.axes]],
            license_files(settings, project.root),
            [project.name, project.version],
            [linker.version, linker.identity],
        ]

    def _key(self, placement: Placement, specializations: Sequence[Specialization], results: Sequence[StoredResult]) -> list[Any]:
        return [
            *self._common,
            [result.digest for result in results],
            [encode(one) for one in specializations],
            other_targets(placement.module, self._settings),
            [placement.module, str(placement.source), str(placement.anchor), str(placement.folder), placement.stem],
        ]

    def recall(self, placement: Placement, specializations: Sequence[Specialization], results: Sequence[StoredResult]) -> KeptModule | None:
        """Return what an earlier build made of these results, which need not be on disk."""
        kept = self._cache.recall_files(*self._key(placement, specializations, results))
        if kept is None:
            return None
        try:
            about: _About = parse(_About, kept.pop(_ABOUT, b""), where=placement.module)
        except DecodeError:
            return None
        if kept.keys() != set(about.files) or not all(map(is_file_name, kept)):
            return None
        folder = self._folder / placement.module
        self._room -= sum(map(len, kept.values()))
        if self._room < 0:
            folder.mkdir(parents=True)
            for name, data in kept.items():
                (folder / name).write_bytes(data)
            kept = {}
        return KeptModule(
            placement=placement,
            unexported=about.unexported,
            generated=about.generated,
            warnings=about.warnings,
            rows=about.rows,
            content=kept,
            folder=folder,
        )

    def assemble(self, placement: Placement, specializations: Sequence[Specialization], results: Sequence[StoredResult]) -> AssembledModule:
        """Make the artefacts of one module, verify them and render the stub.

        Raises
        ------
        VerifyError
            See `assemble_module` and `verify_package`.
        """
        output = self._folder / placement.module
        output.mkdir(parents=True)
        assembled = assemble_module(
            placement.module,
            specializations=specializations,
            results=[result.load() for result in results],
            placement=placement,
            settings=self._settings,
            project=self._project,
            linker=self._linker,
            cache=self._cache,
            output=output,
        )
        faults = verify_package(output, assembled.code_objects)
        if faults:
            raise VerifyError(*faults)
        assembled = _rendered(assembled, self._consumers)
        self._cache.remember_files(_pack(assembled), *self._key(placement, specializations, results))
        return assembled


def _rendered(module: AssembledModule, consumers: Sequence[Consumer]) -> AssembledModule:
    """Return the module with the texts of its generated modules, and with what people are told of it."""
    generated: dict[str, str] = {}
    warnings = [*empty_launchers(module.declared.manifest)]
    for consumer in consumers:
        offer = consumer.render(module.declared)
        generated |= offer.files
        warnings += offer.warnings
    return replace(module, generated=generated, warnings=tuple(warnings), rows=tuple(kernel_rows([module.declared.manifest])))


def _pack(module: AssembledModule) -> dict[str, bytes]:
    files = dict(module.files())
    about = _About(
        files=tuple(files),
        unexported=module.unexported,
        generated=dict(module.generated),
        warnings=module.warnings,
        rows=tuple(row.without_arguments() for row in module.rows),
    )
    return {**files, _ABOUT: json.dumps(encode(about)).encode()}


@functools.cache
def _program_digest() -> str:
    """Return a digest over this program, without its run time: that is copied into the wheel as it is."""
    package = Path(flydsl_build.__file__).parent
    digest = hashlib.sha256()
    for path in sorted([*package.rglob("*.py"), *package.rglob("*.j2"), *package.parent.glob("templates/*.j2")]):
        if path.relative_to(package.parent).parts[1] != "runtime":
            digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()
