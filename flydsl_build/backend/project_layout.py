# SPDX-License-Identifier: Apache-2.0
"""What setuptools makes of a project's layout, asked outside of a build."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from setuptools import Distribution

from flydsl_build.backend.commands import _package_roots
from flydsl_build.errors import ConfigError, Fault

if TYPE_CHECKING:
    from flydsl_build.config.settings import Settings

__all__ = ["package_roots_of"]


def package_roots_of(settings: Settings) -> tuple[str, ...]:
    """Return the folders to import the project's packages from.

    pyproject.toml, setup.cfg and setuptools' automatic discovery are heard; a setup.py, which would have to be run, is not. With
    another base, it is where the declared modules are.
    """
    project = settings.project_dir
    if not settings.has_setuptools_base:
        from flydsl_build.backend.base_backend import roots_of_declared

        return roots_of_declared(settings)
    with contextlib.chdir(project):
        distribution = Distribution()
        try:
            distribution.parse_config_files()
            distribution.set_defaults()
        except Exception as error:  # noqa: BLE001 - setuptools raises what its validators raise
            raise ConfigError(Fault(where="pyproject.toml", what=f"setuptools refuses it: {error}", fix="correct it")) from None
        return _package_roots(distribution, project)
