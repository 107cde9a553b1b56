# SPDX-License-Identifier: Apache-2.0
"""What the PEP 517 and PEP 660 hooks do: read the settings, let setuptools build with them, tell faults in words."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flydsl_build.compile.toolchain import linker_is_present
from flydsl_build.config.settings import read_settings, setuptools_settings
from flydsl_build.errors import BuildError, Fault

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from flydsl_build.backend.wheel_forms import WheelForm
    from flydsl_build.config.settings import Settings

__all__ = [
    "build_editable",
    "build_sdist",
    "build_split_wheels",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

SETUPTOOLS = "setuptools>=77"
JINJA = "jinja2>=3.1"
FLYDSL = "flydsl>=0.5,<0.6"
# flydsl imports it without declaring it.
NUMPY = "numpy"
PLATFORMDIRS = "platformdirs>=3"
ZIGLANG = "ziglang>=0.13"
VARIANTLIB = "variantlib>=0.2,<0.3"


@contextlib.contextmanager
def _faults_in_words() -> Iterator[None]:
    """End the process with the message alone where the project or the machine is at fault; bugs keep their traceback."""
    try:
        yield
    except BuildError as error:
        sys.stdout.flush()
        sys.stderr.write(f"\nflydsl-build: {error.stage} failed: {error}\n")
        sys.stderr.flush()
        raise SystemExit(1) from None


def _settings(config_settings: Any, *, need_archs: bool = True) -> Settings:
    return read_settings(Path.cwd(), config_settings, os.environ, need_archs=need_archs)


def _require_folder(folder: str) -> None:
    """Refuse a folder that the wheel cannot be written to, before all the work."""
    try:
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - as setuptools does it
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise _unwritable(folder, error) from None


def _unwritable(folder: str, error: OSError) -> BuildError:
    what = f"the wheel cannot be written there ({error.strerror or error})"
    return BuildError(Fault(where=folder, what=what, fix="name a folder that can be written, on a disk with room"))


def _setuptools() -> ModuleType:
    from setuptools import build_meta

    module: ModuleType = build_meta
    return module


def _base_requires(hook: str, config_settings: Any) -> list[str]:
    """Ask setuptools for its own requirements; before it is installed there are none to ask for."""
    if importlib.util.find_spec("setuptools") is None:
        return []
    found: list[str] = getattr(_setuptools(), hook)(setuptools_settings(config_settings))
    return found


def _requires(hook: str, config_settings: Any, own: list[str]) -> list[str]:
    base = [one for one in _base_requires(hook, config_settings) if one.split(">")[0].strip() != "setuptools"]
    return [SETUPTOOLS, *own, *base]


def get_requires_for_build_wheel(config_settings: Any) -> list[str]:
    """See `flydsl_build.backend`."""
    with _faults_in_words():
        settings = _settings(config_settings)
        own = [JINJA, FLYDSL, NUMPY, PLATFORMDIRS]
        if not settings.lld and not linker_is_present(rocm_path=settings.rocm_path):
            own.append(ZIGLANG)
        if settings.wheel == "variant":
            own.append(VARIANTLIB)
        return _requires("get_requires_for_build_wheel", config_settings, own)


def get_requires_for_build_sdist(config_settings: Any) -> list[str]:
    """See `flydsl_build.backend`."""
    return _requires("get_requires_for_build_sdist", config_settings, [])


def get_requires_for_build_editable(config_settings: Any) -> list[str]:
    """See `flydsl_build.backend`."""
    return _requires("get_requires_for_build_editable", config_settings, [])


def _metadata(hook: str, metadata_directory: str, config_settings: Any) -> str:
    with _faults_in_words():
        _settings(config_settings, need_archs=False)
        name: str = getattr(_setuptools(), hook)(metadata_directory, setuptools_settings(config_settings))
        return name


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Any) -> str:
    """See `flydsl_build.backend`."""
    from flydsl_build.backend.finish import finish_metadata

    name = _metadata("prepare_metadata_for_build_wheel", metadata_directory, config_settings)
    with _faults_in_words():
        settings = _settings(config_settings, need_archs=False)
        # Names and extras of the other forms follow from the targets.
        form = _form(settings if settings.wheel == "fat" else _settings(config_settings))
        return finish_metadata(Path(metadata_directory, name), form, Path.cwd())


def _form(settings: Settings) -> WheelForm:
    from flydsl_build.backend.wheel_forms import form_of

    if settings.kernels_from and settings.wheel != "fat":
        from flydsl_build.backend.project_layout import with_declarations

        settings = with_declarations(settings)
    return form_of(settings, Path.cwd())


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: Any) -> str:
    """See `flydsl_build.backend`."""
    return _metadata("prepare_metadata_for_build_editable", metadata_directory, config_settings)


def build_wheel(wheel_directory: str, config_settings: Any, metadata_directory: str | None) -> str:  # noqa: ARG001 - the metadata is made again
    """See `flydsl_build.backend`."""
    with _faults_in_words():
        (name,) = _build(wheel_directory, config_settings)
        return name


def build_split_wheels(wheel_directory: str, config_settings: Any) -> list[str]:
    """Write a host wheel and the device wheels of all its targets, compiling once; return their file names."""
    with _faults_in_words():
        return _build(wheel_directory, {**(config_settings or {}), "wheel": "host"}, devices=True)


def _build(wheel_directory: str, config_settings: Any, *, devices: bool = False) -> list[str]:
    """Let the base back end build into a temporary folder, and write the forms that were asked for into the other."""
    from flydsl_build.backend import session, wheel_file
    from flydsl_build.backend.finish import finish_wheel
    from flydsl_build.backend.source_files import every_license_file

    settings = _settings(config_settings)
    wheel_file.timestamp(os.environ)  # setuptools would answer a wrong SOURCE_DATE_EPOCH with a traceback, after all the work
    _require_folder(wheel_directory)
    form = _form(settings)
    forms = [form]
    if devices:
        licenses = every_license_file(settings, Path.cwd())
        forms += [form.device(target, licenses) for target in form.targets]
    written: list[Path] = []
    try:
        with tempfile.TemporaryDirectory(prefix=".flydsl-build-", dir=wheel_directory) as temporary:
            with session.active(session.Session(settings=settings, project=Path.cwd(), editable=False, form=form)):
                name = _setuptools().build_wheel(temporary, setuptools_settings(config_settings))
            try:
                for one in forms:
                    written += [finish_wheel(Path(temporary, name), Path(wheel_directory), one, project=Path.cwd(), environ=os.environ)]
            except OSError as error:
                raise _unwritable(wheel_directory, error) from None
    except BaseException:
        # Nothing half-written stays behind.
        for path in written:
            path.unlink(missing_ok=True)
        raise
    return [path.name for path in written]


def build_sdist(sdist_directory: str, config_settings: Any) -> str:
    """See `flydsl_build.backend`."""
    from flydsl_build.backend import session

    with _faults_in_words():
        settings = _settings(config_settings, need_archs=False)
        with session.active(session.Session(settings=settings, project=Path.cwd(), editable=False)):
            name: str = _setuptools().build_sdist(sdist_directory, setuptools_settings(config_settings))
        return name


def build_editable(wheel_directory: str, config_settings: Any, metadata_directory: str | None) -> str:
    """See `flydsl_build.backend`."""
    from flydsl_build.backend import session, wheel_file

    with _faults_in_words():
        settings = _settings(config_settings, need_archs=False)
        wheel_file.timestamp(os.environ)
        with session.active(session.Session(settings=settings, project=Path.cwd(), editable=True)):
            name: str = _setuptools().build_editable(wheel_directory, setuptools_settings(config_settings), metadata_directory)
        return name
