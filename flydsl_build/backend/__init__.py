# SPDX-License-Identifier: Apache-2.0
"""The PEP 517 and PEP 660 hooks. Each is a door: the work is in the modules beside this one, imported when it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    ConfigSettings = Mapping[str, str | list[str] | None] | None

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


def get_requires_for_build_wheel(config_settings: ConfigSettings = None) -> list[str]:
    """Return what compiling kernels needs: setuptools, jinja2, flydsl, and ziglang where no other linker is found."""
    from flydsl_build.backend import hooks

    return hooks.get_requires_for_build_wheel(config_settings)


def get_requires_for_build_sdist(config_settings: ConfigSettings = None) -> list[str]:
    """Return what making a source distribution needs: setuptools."""
    from flydsl_build.backend import hooks

    return hooks.get_requires_for_build_sdist(config_settings)


def get_requires_for_build_editable(config_settings: ConfigSettings = None) -> list[str]:
    """Return what an editable install needs: setuptools."""
    from flydsl_build.backend import hooks

    return hooks.get_requires_for_build_editable(config_settings)


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: ConfigSettings = None) -> str:
    """Write the .dist-info folder without compiling anything."""
    from flydsl_build.backend import hooks

    return hooks.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: ConfigSettings = None) -> str:
    """Write the .dist-info folder without compiling anything."""
    from flydsl_build.backend import hooks

    return hooks.prepare_metadata_for_build_editable(metadata_directory, config_settings)


def build_wheel(wheel_directory: str, config_settings: ConfigSettings = None, metadata_directory: str | None = None) -> str:
    """Compile the declared kernels and write the wheel; return its file name."""
    from flydsl_build.backend import hooks

    return hooks.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory: str, config_settings: ConfigSettings = None) -> str:
    """Write the source distribution; return its file name."""
    from flydsl_build.backend import hooks

    return hooks.build_sdist(sdist_directory, config_settings)


def build_editable(wheel_directory: str, config_settings: ConfigSettings = None, metadata_directory: str | None = None) -> str:
    """Write the wheel of an editable install; return its file name."""
    from flydsl_build.backend import hooks

    return hooks.build_editable(wheel_directory, config_settings, metadata_directory)
