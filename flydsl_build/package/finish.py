# SPDX-License-Identifier: Apache-2.0
"""The last step: of the wheel that the base back end wrote, with everything in it, the wheels that were asked for.

What is added to the metadata is made here too, so that it does not matter which back end was the base: licence files of bitcode, the
software bill of materials, the extras of a host wheel.
"""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING

from flydsl_build.bundle.manifest import Outline
from flydsl_build.bundle.placement import is_artefact, is_manifest
from flydsl_build.package.sbom import SBOM_FILE, sbom
from flydsl_build.package.wheel_file import read_members, rewrite
from flydsl_build.package.wheel_metadata import Headers, escaped

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from flydsl_build.package.wheel_forms import WheelForm

__all__ = ["finish_metadata", "finish_wheel"]


def finish_metadata(folder: Path, form: WheelForm, project: Path) -> str:
    """Change a `.dist-info` folder that the base back end prepared as `finish_wheel` will change it; return its name.

    Parameters
    ----------
    folder
        The `.dist-info` folder.
    """
    metadata = folder / "METADATA"
    text = form.metadata(metadata.read_text(encoding="utf-8"))
    metadata.write_bytes(text.encode())
    for file in form.licenses:
        path = folder / "licenses" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((project / file).read_bytes())
    if form.kind == "device":
        for path in folder.iterdir():
            if path.is_file() and not _is_of_a_device(path.name):
                path.unlink()
    name = _dist_info(Headers(text))
    folder.rename(folder.with_name(name))
    return name


def finish_wheel(wheel: Path, folder: Path, form: WheelForm, *, project: Path, environ: Mapping[str, str]) -> Path:
    """Write one form of a wheel into a folder; return its path.

    Parameters
    ----------
    wheel
        What the base back end wrote, with the code objects of all targets of the build.
    project
        Where the licence files of bitcode are.
    """
    members: dict[str, str | bytes] = dict(read_members(wheel))
    with zipfile.ZipFile(wheel) as archive:
        (old,) = {name.partition("/")[0] for name in members if name.partition("/")[0].endswith(".dist-info")}
        read = (Outline.from_text(archive.read(name), where=name) for name in sorted(members) if is_manifest(name))
        outlines = [outline for outline in read if outline is not None]
        text = archive.read(f"{old}/METADATA").decode()
        tags = Headers(archive.read(f"{old}/WHEEL").decode())
    headers = Headers(form.metadata(text))
    targets = dict.fromkeys(target for outline in outlines for target in outline.targets)
    bundles = {target: _bundles(outlines, members, target) for target in targets}
    if form.kind == "host":
        members = {name: origin for name, origin in members.items() if not any(name in some for some in bundles.values())}
    elif form.kind == "device":
        members = {name: origin for name, origin in members.items() if name in bundles[form.targets[0]] or _stays_in_device(name, old)}
        tags.remove("Tag")
        # Bundles are no host code. Whether the wheel is pure stays as it is: they belong beside the host wheel's files.
        tags.add("Tag", "py3-none-any")
    build = _build_tag(form, tags)
    new = _dist_info(headers)
    members = {_renamed(name, old, new): origin for name, origin in members.items()}
    members[f"{new}/METADATA"] = headers.text().encode()
    members[f"{new}/WHEEL"] = tags.text().encode()
    members |= {f"{new}/licenses/{file}": (project / file).read_bytes() for file in form.licenses}
    if outlines:
        contained = tuple(bundles) if form.kind == "fat" else form.contained
        document = sbom(
            [outline.provenance for outline in outlines],
            name=headers.get("Name"),
            version=headers.get("Version"),
            targets=contained,
            host=form.kind != "device",
        )
        members[f"{new}/sboms/{SBOM_FILE}"] = document.encode()
    if form.variant:
        members[f"{new}/variant.json"] = form.variant.encode()
    tag = "-".join(wheel.name.removesuffix(".whl").split("-")[-3:]) if form.kind != "device" else "py3-none-any"
    words = [new.removesuffix(".dist-info"), *([build] if build else []), tag, *([form.targets[0]] if form.variant else [])]
    path = folder / f"{'-'.join(words)}.whl"
    rewrite(wheel, path, members, environ)
    return path


def _bundles(outlines: list[Outline], members: Mapping[str, object], target: str) -> frozenset[str]:
    """Return the members that are bundles of this target alone."""
    wanted = {bundle.replace("{target}", target) for outline in outlines for bundle in outline.bundles if "{target}" in bundle}
    return frozenset(name for name in members if name.rpartition("/")[2] in wanted and is_artefact(name))


def _dist_info(headers: Headers) -> str:
    # A version has no dash but in forms that PEP 440 normalizes, which the base back end has done.
    return f"{escaped(headers.get('Name'))}-{headers.get('Version')}.dist-info"


def _renamed(name: str, old: str, new: str) -> str:
    """Return a member's name with the new names of the metadata and data folders."""
    top, slash, rest = name.partition("/")
    stem, suffix = old.removesuffix(".dist-info"), top.rpartition(".")[2]
    return f"{new.removesuffix('.dist-info')}.{suffix}{slash}{rest}" if top in {old, f"{stem}.data"} else name


def _stays_in_device(name: str, dist_info: str) -> bool:
    top, _, rest = name.partition("/")
    return top == dist_info and (_is_of_a_device(rest) or rest.startswith("licenses/"))


def _is_of_a_device(file: str) -> bool:
    return file in {"METADATA", "RECORD", "WHEEL"}


def _build_tag(form: WheelForm, tags: Headers) -> str:
    """Return the build tag, with the target of a per-arch wheel in it if it belongs there."""
    build = tags.get("Build")
    if form.kind == "per-arch" and form.build_tag:
        build = f"{build or '1'}{form.targets[0].replace('-', '_')}"
        tags.put("Build", build)
    return build
