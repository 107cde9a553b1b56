# SPDX-License-Identifier: Apache-2.0
"""Which specializations one job compiles. Apart from the pipeline, because `plan` needs nothing else of that."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flydsl_build.config.settings import Settings
    from flydsl_build.declare.specialization import Specialization

    # Module, target and axis values to what is compiled for them.
    Groups = dict[tuple[str, str, tuple[tuple[str, str], ...]], list[Specialization]]

__all__ = ["group_specializations"]


def group_specializations(specializations: Sequence[Specialization], settings: Settings) -> Groups:
    """Return what one job compiles, by module, target and axis values, in order of declaration.

    Every axis has its first value in them, but for specializations that name the value themselves.
    """
    defaults = {axis.name: axis.values[0] for axis in settings.axes}
    groups: Groups = {}
    for one in specializations:
        axes = tuple({**defaults, **dict(one.axes)}.items())
        for target in one.targets:
            groups.setdefault((one.module, target, axes), []).append(one)
    return groups
