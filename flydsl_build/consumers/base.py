# SPDX-License-Identifier: Apache-2.0
"""The interface of consumers: what a wheel offers the callers of its launchers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import PurePosixPath

    from flydsl_build.bundle.manifest import Manifest
    from flydsl_build.bundle.placement import Placement
    from flydsl_build.config.tables import Settings
    from flydsl_build.errors import Fault

__all__ = ["Consumer", "DeclaredModule", "Offer"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DeclaredModule:
    """A declared module that was compiled.

    Parameters
    ----------
    manifest_sha256
        Digest of the manifest's file.
    doc
        Docstring of the source.
    public_names
        Public names of the source.
    other_targets
        The targets that only other modules of the wheel have code for.
    """

    manifest: Manifest
    manifest_sha256: str
    placement: Placement
    doc: str | None
    public_names: tuple[str, ...]
    other_targets: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """What a consumer adds to the wheel for a declared module.

    Parameters
    ----------
    files
        Texts by their places in the wheel.
    warnings
        What the author should know.
    """

    files: Mapping[str, str]
    warnings: Sequence[str] = ()


class Consumer(Protocol):
    """Offers the launchers of a wheel to somebody; sees the manifest alone, and knows no front end.

    Attributes
    ----------
    suffix
        Of the module that is added beside a declared one; empty for the one that takes its place.
    """

    suffix: str

    def is_wanted(self, settings: Settings) -> bool:
        """Tell whether the project asks for it."""

    def check(self, modules: Mapping[str, Placement], is_taken: Callable[[PurePosixPath], bool]) -> Sequence[Fault]:
        """Return what stands in the way, before anything is compiled.

        Parameters
        ----------
        modules
            The declared modules.
        is_taken
            Whether the project has something at a place of the wheel.
        """

    def render(self, module: DeclaredModule) -> Offer:
        """Return what is added for a module; raise `StubError` if it cannot be."""
