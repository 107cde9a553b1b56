# SPDX-License-Identifier: Apache-2.0
"""What setuptools makes of a project's layout, asked outside of a build."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

from flydsl_build.cache.build_cache import open_cache
from flydsl_build.config.settings import extend_with_declarations
from flydsl_build.errors import ConfigError, Fault
from flydsl_build.package.declared import collect_declarations

if TYPE_CHECKING:
    from flydsl_build.config.settings import Settings

__all__ = ["package_roots_of", "with_declarations"]


def with_declarations(settings: Settings) -> Settings:
    """Return settings with the kernels of `kernels-from`, whose function is called in a process of its own, as in a build."""
    roots = package_roots_of(settings)
    cache = open_cache(settings, os.environ, _say)
    declared = collect_declarations(settings, package_roots=roots, project=settings.project_dir, cache=cache)
    cache.close()
    return extend_with_declarations(settings, declared.pairs)


def _say(text: str) -> None:
    sys.stderr.write(f"flydsl-build: {text}\n")


def package_roots_of(settings: Settings) -> tuple[str, ...]:
    """Return the folders to import the project's packages from.

    pyproject.toml, setup.cfg and setuptools' automatic discovery are heard; a setup.py, which would have to be run, is not. With
    another base, it is where the declared modules are.
    """
    project = settings.project_dir
    if not settings.has_setuptools_base:
        from flydsl_build.backend.base_backend import roots_of_declared

        return roots_of_declared(settings)
    # Not there where another base is.
    from setuptools import Distribution

    from flydsl_build.backend.commands import _package_roots

    with contextlib.chdir(project):
        distribution = Distribution()
        try:
            distribution.parse_config_files()
            distribution.set_defaults()
        except Exception as error:  # noqa: BLE001 - setuptools raises what its validators raise
            raise ConfigError(Fault(where="pyproject.toml", what=f"setuptools refuses it: {error}", fix="correct it")) from None
        return _package_roots(distribution, project)
