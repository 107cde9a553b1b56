# SPDX-License-Identifier: Apache-2.0
"""torch: a module of custom ops beside a declared one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flydsl_build.consumers.base import Offer
from flydsl_build.errors import FaultCollector

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import PurePosixPath

    from flydsl_build.bundle.placement import Placement
    from flydsl_build.config.tables import Settings
    from flydsl_build.consumers.base import DeclaredModule
    from flydsl_build.errors import Fault

__all__ = ["TorchOps"]


class TorchOps:
    """The ops, `<module>_torch`."""

    suffix = "_torch"

    def is_wanted(self, settings: Settings) -> bool:
        """Tell whether `torch-ops` is set."""
        return settings.torch_ops

    def check(self, modules: Mapping[str, Placement], is_taken: Callable[[PurePosixPath], bool]) -> tuple[Fault, ...]:
        """Refuse modules of ops that take the place of a module of the author, and two that would share a namespace."""
        faults = FaultCollector()
        namespaces: dict[str, str] = {}
        for module, placement in modules.items():
            source = placement.beside(self.suffix)
            for place in (source, source.with_suffix("")):
                if is_taken(place):
                    what = f"the project has a module of this name, which is where torch-ops puts the ops of {module}"
                    faults.add(str(place), what, "rename it")
            other = namespaces.setdefault(_namespace(module), module)
            if other != module:
                what = f"its ops would be in torch.ops.{_namespace(module)}, as those of {other}"
                faults.add(f"module {module}", what, "rename one of the modules")
        return tuple(faults.faults)

    def render(self, module: DeclaredModule) -> Offer:
        """Return the module of ops and its interface."""
        from flydsl_build.consumers.torch.render import render_torch_ops

        place = module.placement
        source = place.beside(self.suffix)
        ops = render_torch_ops(module.manifest, namespace=_namespace(place.module), runtime_package=place.runtime_package)
        return Offer(
            files={str(source): ops.source, str(source.with_suffix(".pyi")): ops.interface},
            warnings=[f"{source} does not have {one}" for one in ops.left_out],
        )


def _namespace(module: str) -> str:
    """Return where the ops of a module are, below `torch.ops`; only ASCII names can be there."""
    return "".join(one if one.isalnum() and one.isascii() else "_" for one in module)
