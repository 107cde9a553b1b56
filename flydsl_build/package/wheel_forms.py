# SPDX-License-Identifier: Apache-2.0
"""The forms of a wheel, and what of the metadata depends on them.

A host distribution and its device distributions are named and tied together as ROCm's own are (`torch[device-gfx942]` with
`amd-torch-device-gfx942`): https://github.com/ROCm/TheRock/blob/main/RELEASES.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from flydsl_build.config.names import normalized
from flydsl_build.errors import ConfigError, Fault
from flydsl_build.package.source_files import every_license_file
from flydsl_build.package.wheel_metadata import Headers
from flydsl_build.targets.processors import TARGETS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from flydsl_build.config.settings import Settings

__all__ = ["WheelForm", "form_of", "source_metadata"]

# Of a device distribution, which has code objects alone.
_NOT_OF_A_DEVICE = (
    "Summary",
    "Description",
    "Description-Content-Type",
    "Dynamic",
    "Import-Name",
    "Import-Namespace",
    "Keywords",
    "Provides-Extra",
    "Requires-Dist",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class WheelForm:
    """What a wheel holds and how it is named.

    Parameters
    ----------
    kind
        The `wheel` setting.
    targets
        Those of the project's kernels, sorted; exactly one for all but fat and host wheels.
    generic
        Of a host wheel, the chips beside whose device wheels that of a generic target is needed: some module has code for that alone.
    build_tag
        Whether a per-arch wheel has its target in the build tag, not in its version.
    licenses
        Licence files of bitcode that is in the wheel, relative to the project.
    variant
        Of a variant, whose label is its target, the content of `variant.json`.
    """

    kind: Literal["fat", "per-arch", "host", "device", "variant"]
    targets: tuple[str, ...] = ()
    generic: tuple[tuple[str, str], ...] = ()
    build_tag: bool = False
    licenses: tuple[str, ...] = ()
    variant: str = ""

    @property
    def contained(self) -> tuple[str, ...]:
        """The targets whose code objects are in the wheel."""
        return () if self.kind == "host" else self.targets

    def device(self, target: str, licenses: tuple[str, ...]) -> WheelForm:
        """Return the form of a device wheel of this host."""
        return replace(self, kind="device", targets=(target,), licenses=licenses)

    def name(self, name: str) -> str:
        """Return the distribution's name, given the project's."""
        return f"{name}-device-{self.targets[0]}" if self.kind == "device" else name

    def version(self, version: str) -> str:
        """Return the version, given the project's."""
        if self.kind != "per-arch" or self.build_tag:
            return version
        # A local version has dots between its parts, whatever stands in the target: https://peps.python.org/pep-0440/.
        return f"{version}{'.' if '+' in version else '+'}{self.targets[0].replace('-', '.')}"

    def metadata(self, text: str) -> str:
        """Return the content of METADATA, given the base back end's.

        Raises
        ------
        ConfigError
            The project has an extra that a host wheel needs for its device wheels.
        """
        headers = Headers(text)
        name, version = headers.get("Name"), headers.get("Version")
        if self.version(version) != version:
            headers.put("Version", self.version(version))
        if self.kind == "device":
            headers.remove(*_NOT_OF_A_DEVICE)
            headers.body = ""
            headers.put("Name", self.name(name))
            headers.add("Summary", f"Code objects of {name} for {self.targets[0]}")
            headers.add("Requires-Dist", f"{name}=={version}")
        elif self.kind == "host":
            self._add_extras(headers, name, version)
        _add_licenses(headers, self.licenses)
        return headers.text()

    def _add_extras(self, headers: Headers, name: str, version: str) -> None:
        generic = dict(self.generic)
        devices = {f"device-{target}": [target, *([generic[target]] if target in generic else [])] for target in self.targets}
        extras = {**devices, "device-all": list(self.targets)}
        taken = sorted({normalized(one) for one in headers.all("Provides-Extra")} & extras.keys())
        if taken:
            raise ConfigError(
                Fault(
                    where=f"project.optional-dependencies.{taken[0]}",
                    what="the host wheel has an extra of this name, for its device wheels",
                    fix="rename it",
                )
            )
        for extra, targets in extras.items():
            headers.add("Provides-Extra", extra)
            for target in targets:
                headers.add("Requires-Dist", f'{name}-device-{target}=={version}; extra == "{extra}"')


def _add_licenses(headers: Headers, files: Sequence[str]) -> None:
    """Name licence files, in metadata of a version that has them (PEP 639)."""
    missing = [file for file in files if file not in headers.all("License-File")]
    version = tuple(int(part) for part in headers.get("Metadata-Version").split(".") if part.isdigit())
    if missing and version < (2, 4):
        headers.put("Metadata-Version", "2.4")
    for file in missing:
        headers.add("License-File", file)


def source_metadata(text: str, settings: Settings, licenses: Sequence[str]) -> str:
    """Return the content of a source distribution's PKG-INFO, given the base back end's.

    What is not dynamic in it has to be the same in every wheel built from it (PEP 643).
    """
    headers = Headers(text)
    _add_licenses(headers, licenses)
    if settings.wheel == "host":
        for field in ("Provides-Extra", "Requires-Dist"):
            if field.lower() not in map(str.lower, headers.all("Dynamic")):
                headers.add("Dynamic", field)
    return headers.text()


def form_of(settings: Settings, project: Path) -> WheelForm:
    """Return the form that the settings ask for; those with `kernels-from` must have been extended with what it declares.

    Raises
    ------
    BuildError
        A licence file is missing, or a variant is asked for that cannot be described.
    """
    files = every_license_file(settings, project)
    targets = () if settings.wheel == "fat" else tuple(sorted(settings.all_targets))
    return WheelForm(
        kind=settings.wheel,
        targets=targets,
        generic=_generic_beside(settings.targets_by_module.values()) if settings.wheel == "host" else (),
        build_tag=settings.per_arch_tag == "build-tag",
        licenses=() if settings.wheel == "host" else files,
        variant=_variant(settings, targets[0], project) if settings.wheel == "variant" else "",
    )


def _generic_beside(modules: Collection[Sequence[str]]) -> tuple[tuple[str, str], ...]:
    """Return the chips that some modules have code for and others only that of the generic target, with the latter."""
    chips = {target for targets in modules for target in targets if not TARGETS[target].is_generic}
    found = {(chip, name) for targets in modules for name in targets for chip in TARGETS[name].members if chip in chips - set(targets)}
    return tuple(sorted(found))


def _variant(settings: Settings, target: str, project: Path) -> str:
    from flydsl_build.package.variant import variant_description

    if TARGETS[target].is_generic:
        raise ConfigError(
            Fault(
                where=settings.wheel_from,
                what=f"a wheel variant is selected by the chip of a device, and {target} is a generic target",
                fix="build a variant for each chip, or a per-arch wheel",
            )
        )
    return variant_description(target, project)
