# SPDX-License-Identifier: Apache-2.0
"""Plan compile jobs: group the specializations by module, target and axis values."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from flydsl_build.jobs.job import Job

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from flydsl_build.config.settings import Settings
    from flydsl_build.declare.specialization import Specialization
    from flydsl_build.jobs.results import StoredResult

    # Module, target and axis values to what is compiled for them.
    Groups = dict[tuple[str, str, tuple[tuple[str, str], ...]], list[Specialization]]

__all__ = ["group_specializations", "plan_axis_jobs", "plan_jobs"]


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


def plan_jobs(specializations: Sequence[Specialization], settings: Settings, folder: Path) -> list[Job]:
    """Return one job for each group of specializations."""
    return _jobs(group_specializations(specializations, settings), settings, folder)


def plan_axis_jobs(jobs: Sequence[Job], results: Sequence[StoredResult], settings: Settings, folder: Path) -> list[Job]:
    """Return the jobs for all values of the axes that the first jobs' kernels turned out to depend on."""
    values = {axis.name: axis.values for axis in settings.axes}
    groups: Groups = {}
    for job, result in zip(jobs, results, strict=True):
        declared = {one.name: one for one in job.specializations}
        for built in result.load().specializations:
            specialization = declared[built.name]
            free = [name for name in built.axes if name not in dict(specialization.axes)]
            for combination in itertools.product(*(values[name] for name in free)):
                axes = tuple({**dict(job.axes), **dict(zip(free, combination, strict=True))}.items())
                if axes != job.axes:
                    groups.setdefault((job.module, job.target, axes), []).append(specialization)
    return _jobs(groups, settings, folder)


def _jobs(groups: Groups, settings: Settings, folder: Path) -> list[Job]:
    return [
        Job(
            module=module,
            target=target,
            output=str(folder / str(number)),
            specializations=tuple(members),
            axes=axes,
            project=str(settings.project_dir),
            externs=settings.externs,
            environment=tuple(settings.env.items()),
            dump_ir=None if settings.dump_ir is None else str(settings.dump_ir),
        )
        for number, ((module, target, axes), members) in enumerate(groups.items())
    ]
