# SPDX-License-Identifier: Apache-2.0
"""Python callers: the stub that stands in the place of a declared module."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flydsl_build.consumers.base import Offer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import PurePosixPath

    from flydsl_build.bundle.placement import Placement
    from flydsl_build.config.tables import Settings
    from flydsl_build.consumers.base import DeclaredModule

__all__ = ["PythonStub"]


class PythonStub:
    """The stub and its interface."""

    suffix = ""

    def is_wanted(self, settings: Settings) -> bool:  # noqa: ARG002
        """Tell that every wheel has it."""
        return True

    def check(self, modules: Mapping[str, Placement], is_taken: Callable[[PurePosixPath], bool]) -> tuple[()]:  # noqa: ARG002
        """Return nothing: the stub takes the place of the source."""
        return ()

    def render(self, module: DeclaredModule) -> Offer:
        """Return the stub and its interface."""
        # Imported here: a build in which nothing is rendered does without jinja2.
        from flydsl_build.consumers.python_stub.render import render_stub

        place = module.placement
        source, interface = render_stub(
            module.manifest,
            manifest_sha256=module.manifest_sha256,
            manifest_file=place.manifest_from_stub,
            runtime_package=place.runtime_package,
            module_doc=module.doc,
            public_names=list(module.public_names),
            other_targets=module.other_targets,
        )
        return Offer(files={str(place.source): source, str(place.source.with_suffix(".pyi")): interface})
