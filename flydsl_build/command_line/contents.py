# SPDX-License-Identifier: Apache-2.0
"""The kernels in a wheel or a folder: manifests and the files beside them."""

from __future__ import annotations

import os
import shutil
import zipfile
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from flydsl_build.bundle.manifest import Manifest
from flydsl_build.bundle.placement import anchor_depth, is_artefact, is_artefact_folder, is_manifest
from flydsl_build.errors import BuildError, Fault
from flydsl_build.package.project import EDITABLE_FOLDER
from flydsl_build.package.sbom import SBOM_FILE
from flydsl_build.package.wheel_metadata import escaped
from flydsl_build.regular_files import open_regular, read_regular

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from flydsl_build.bundle.manifest import LauncherEntry
    from flydsl_build.declare.argument_types import ArgumentType

__all__ = ["BuiltModule", "Contents", "Sbom", "in_order", "open_contents"]


def in_order(arguments: Mapping[str, ArgumentType], launcher: LauncherEntry) -> list[tuple[str, ArgumentType]]:
    """Return the arguments in the order of the launcher's signature; the manifest has them by name."""
    names = [parameter.name for parameter in launcher.parameters if parameter.name in arguments]
    names += [name for name in arguments if name not in names]
    return [(name, arguments[name]) for name in names]


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltModule:
    """One declared module: its manifest, and the manifest's path in the wheel or folder."""

    manifest: Manifest
    path: str

    def beside(self, file: str) -> str:
        """Return the path of a file that the manifest names."""
        return str(PurePosixPath(self.path).parent / file)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sbom:
    """A software bill of materials: its distribution, and the targets whose code objects that has, None for all."""

    name: str
    targets: tuple[str, ...] | None


class Contents:
    """The files of a wheel, or those in the `_flydsl` folders of a folder; names are relative, with forward slashes."""

    def __init__(self, path: Path, wheel: zipfile.ZipFile | None) -> None:
        self.path = path
        self.wheel = wheel
        if wheel is not None:
            infos = [info for info in wheel.infolist() if not info.is_dir()]
            self.sizes = {info.filename: info.file_size for info in infos}
            self.size = path.stat().st_size
        else:
            self.root = path.resolve()
            # Given a `_flydsl` folder itself, or one below it, names start with that folder as everywhere else.
            inside = next((one for one in (self.root, *self.root.parents) if is_artefact_folder(one.name)), None)
            self.root = inside.parent if inside is not None else self.root
            self.sizes = dict(sorted(_files_below(inside or self.root, self.root, found=inside is not None)))
            self.size = sum(self.sizes.values())

    def read(self, name: str) -> bytes:
        """Return the bytes of a file.

        Raises
        ------
        BuildError
            It is not there, or damaged.
        """
        try:
            return self.wheel.read(name) if self.wheel is not None else read_regular(self.root / name)
        except KeyError:
            what = "is not in the wheel"
        except zipfile.BadZipFile as error:
            what = f"is damaged: {error}"
        except (OSError, RuntimeError, NotImplementedError, EOFError) as error:
            what = f"cannot be read: {getattr(error, 'strerror', None) or error}"
        raise BuildError(Fault(where=name, what=what, fix="build or download the package again"))

    def modules(self) -> list[BuiltModule]:
        """Return every declared module; that there is none is a fault."""
        found = [
            BuiltModule(manifest=Manifest.from_text(self.read(name), where=name), path=name) for name in self.sizes if is_manifest(name)
        ]
        if not found and self.bundles():
            raise BuildError(
                Fault(
                    where=str(self.path),
                    what="has the code objects of a device wheel alone; what describes them is in the host wheel",
                    fix="give the host wheel, or a folder in which both are installed",
                )
            )
        if not found:
            wheels = sorted(self.path.glob("*.whl")) if self.wheel is None else []
            fix = f"name the wheel: {wheels[0]}" if wheels else "give a wheel or folder that has a _flydsl folder"
            raise BuildError(Fault(where=str(self.path), what="has no kernels built by flydsl-build", fix=fix))
        return sorted(found, key=lambda one: one.manifest.module)

    def bundles(self) -> list[str]:
        """Return the offload bundles."""
        return [name for name in self.sizes if name.endswith(".hipfb") and is_artefact(name)]

    def sboms(self, modules: Sequence[BuiltModule]) -> list[tuple[str, Sbom]]:
        """Return the paths of the bills of materials of the modules' distributions that are here, and what each is for."""
        found: dict[str, Sbom] = {}
        for one in modules:
            manifest, name = one.manifest, one.manifest.distribution.name
            split = any(unit.is_split for unit in manifest.units)
            found[_sbom_path(name, manifest)] = Sbom(name=name, targets=() if split else None)
            for target in manifest.targets if split else ():
                device = f"{name}-device-{target}"
                found[_sbom_path(device, manifest)] = Sbom(name=device, targets=(target,))
        return [(path, what) for path, what in found.items() if path in self.sizes or (self.wheel is None and (self.root / path).is_file())]

    def artefact_folders(self) -> list[str]:
        """Return the `_flydsl` folders."""
        return sorted({folder for name in self.sizes if (folder := _artefact_folder(name)) is not None})

    def artefacts(self) -> dict[str, int]:
        """Return the sizes of the files in `_flydsl` folders, without those of the private run time."""
        return {name: size for name, size in self.sizes.items() if is_artefact(name)}

    def copy_to(self, folder: Path) -> None:
        """Copy the `_flydsl` folders into an empty folder."""
        for name in self.sizes:
            if _artefact_folder(name) is None:
                continue
            path = folder.joinpath(*(part for part in PurePosixPath(name).parts if part not in {"/", "..", "."}))
            path.parent.mkdir(parents=True, exist_ok=True)
            if self.wheel is None:
                shutil.copyfile(self.root / name, path)
            else:
                path.write_bytes(self.read(name))


def _sbom_path(name: str, manifest: Manifest) -> str:
    return f"{escaped(name)}-{manifest.distribution.version}.dist-info/sboms/{SBOM_FILE}"


def _artefact_folder(name: str) -> str | None:
    folders = PurePosixPath(name).parts[:-1]
    depth = anchor_depth(folders)
    return None if depth is None else "/".join(folders[:depth])


def _files_below(folder: Path, root: Path, *, found: bool) -> Iterator[tuple[str, int]]:
    for place, folders, files in os.walk(folder):
        # The kernels of editable installs are no package, and some of them are of an earlier time.
        folders[:] = [name for name in folders if name not in {"__pycache__", EDITABLE_FOLDER}]
        if found or anchor_depth(Path(place).relative_to(root).parts) is not None:
            for path in (Path(place, name) for name in files):
                if path.is_file():
                    yield path.relative_to(root).as_posix(), path.stat().st_size


@contextmanager
def open_contents(path: Path) -> Iterator[Contents]:
    """Open a wheel or folder.

    Raises
    ------
    BuildError
        It is neither.
    """
    fix = "give a wheel, or a folder with an installed or built package"
    if path.is_dir():
        yield Contents(path, None)
        return
    opened = ExitStack()
    try:
        wheel = opened.enter_context(zipfile.ZipFile(opened.enter_context(open_regular(path))))
    except FileNotFoundError:
        raise BuildError(Fault(where=str(path), what="does not exist", fix=fix)) from None
    except (OSError, zipfile.BadZipFile) as error:
        opened.close()
        what = f"is not a wheel ({getattr(error, 'strerror', None) or error})"
        raise BuildError(Fault(where=str(path), what=what, fix=fix)) from None
    with opened:
        yield Contents(path, wheel)
