# SPDX-License-Identifier: Apache-2.0
"""What the PEP 517 and PEP 660 hooks do: read the settings, let setuptools build with them, tell faults in words."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flydsl_build.compile.toolchain import linker_is_present
from flydsl_build.config.settings import base_settings, read_settings
from flydsl_build.config.sources import given_settings
from flydsl_build.errors import BuildError, ConfigError, Fault

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from flydsl_build.backend.session import Layout, Session
    from flydsl_build.config.settings import Settings

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

SETUPTOOLS = "setuptools>=77"
JINJA = "jinja2>=3.1"
FLYDSL = "flydsl>=0.5,<0.6"
# flydsl imports it without declaring it.
NUMPY = "numpy"
PLATFORMDIRS = "platformdirs>=3"
ZIGLANG = "ziglang>=0.13"


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


def _editable_settings(config_settings: Any) -> Settings:
    settings = _settings(config_settings, need_archs=False)
    return _settings(config_settings) if settings.editable == "aot" else settings


def _require_folder(folder: str) -> None:
    """Refuse a folder that the wheel cannot be written to, before all the work."""
    try:
        os.makedirs(folder, exist_ok=True)  # noqa: PTH103 - as setuptools does it
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise BuildError(
            Fault(where=folder, what=f"the wheel cannot be written there ({error.strerror})", fix="name a folder that can be written")
        ) from None


def _setuptools() -> ModuleType:
    from setuptools import build_meta

    module: ModuleType = build_meta
    return module


def _base(settings: Settings) -> Any:
    """Return the base back end."""
    if settings.has_setuptools_base:
        return _setuptools()
    from flydsl_build.backend.base_backend import load_base

    return load_base(settings.base)


def _base_requires(settings: Settings, hook: str, config_settings: Any) -> list[str]:
    """Ask the base for its own requirements. Before setuptools is installed there are none to ask for; another base is by now."""
    if settings.has_setuptools_base and importlib.util.find_spec("setuptools") is None:
        return []
    ask = getattr(_base(settings), hook, None)
    found: list[str] = ask(base_settings(config_settings)) if ask is not None else []
    return found


def _requires(settings: Settings, hook: str, config_settings: Any, own: list[str]) -> list[str]:
    base = _base_requires(settings, hook, config_settings)
    if settings.has_setuptools_base:
        return [SETUPTOOLS, *own, *(one for one in base if one.split(">")[0].strip() != "setuptools")]
    return [*own, *base]


def _needs_of(settings: Settings) -> list[str]:
    """Return what compiling kernels needs."""
    own = [JINJA, FLYDSL, NUMPY, PLATFORMDIRS]
    if not settings.lld and not linker_is_present(rocm_path=settings.rocm_path):
        own.append(ZIGLANG)
    return own


def get_requires_for_build_wheel(config_settings: Any) -> list[str]:
    """See `flydsl_build.backend`."""
    with _faults_in_words():
        settings = _settings(config_settings)
        return _requires(settings, "get_requires_for_build_wheel", config_settings, _needs_of(settings))


def get_requires_for_build_sdist(config_settings: Any) -> list[str]:
    """See `flydsl_build.backend`."""
    with _faults_in_words():
        return _requires(_settings(config_settings, need_archs=False), "get_requires_for_build_sdist", config_settings, [])


def get_requires_for_build_editable(config_settings: Any) -> list[str]:
    """See `flydsl_build.backend`."""
    with _faults_in_words():
        settings = _editable_settings(config_settings)
        own = _needs_of(settings) if settings.editable == "aot" else []
        return _requires(settings, "get_requires_for_build_editable", config_settings, own)


def _metadata(hook: str, metadata_directory: str, config_settings: Any) -> str:
    with _faults_in_words():
        settings = _settings(config_settings, need_archs=False)
        base = _base(settings)
        prepare = getattr(base, hook, None)
        if prepare is not None:
            name: str = prepare(metadata_directory, base_settings(config_settings))
            return name
        # The hook is optional: front ends then build the wheel and look into it.
        from flydsl_build.backend.base_backend import extract_metadata

        with tempfile.TemporaryDirectory(prefix="flydsl-build-") as temporary:
            build = _base_hook(settings, hook.replace("prepare_metadata_for_", ""))
            return extract_metadata(Path(temporary, build(temporary, base_settings(config_settings), None)), Path(metadata_directory))


def _base_hook(settings: Settings, hook: str) -> Callable[..., str]:
    """Return a hook of the base that is not optional for what was asked for."""
    found: Callable[..., str] | None = getattr(_base(settings), hook, None)
    if found is None:
        raise ConfigError(Fault(where="tool.flydsl-build.base", what=f"{settings.base} has no {hook}", fix="name another base"))
    return found


def _prepared(settings: Settings, kind: str, metadata_directory: str | None) -> str | None:
    """Return the metadata folder to hand back to the base: only if it has made it."""
    return metadata_directory if hasattr(_base(settings), f"prepare_metadata_for_build_{kind}") else None


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Any) -> str:
    """See `flydsl_build.backend`."""
    return _metadata("prepare_metadata_for_build_wheel", metadata_directory, config_settings)


def prepare_metadata_for_build_editable(metadata_directory: str, config_settings: Any) -> str:
    """See `flydsl_build.backend`."""
    return _metadata("prepare_metadata_for_build_editable", metadata_directory, config_settings)


def build_wheel(wheel_directory: str, config_settings: Any, metadata_directory: str | None) -> str:
    """See `flydsl_build.backend`."""
    from flydsl_build.backend import session, wheel_file

    with _faults_in_words():
        settings = _settings(config_settings)
        wheel_file.timestamp(os.environ)  # setuptools would answer a wrong SOURCE_DATE_EPOCH with a traceback, after all the work
        _require_folder(wheel_directory)
        if not settings.has_setuptools_base:
            return _build_on_base(settings, wheel_directory, config_settings, metadata_directory)
        before = set(Path(wheel_directory).glob("*.whl"))
        try:
            with session.active(session.Session(settings=settings, project=Path.cwd(), editable=False)):
                name: str = _setuptools().build_wheel(wheel_directory, base_settings(config_settings), metadata_directory)
            wheel_file.normalize(Path(wheel_directory, name), os.environ)
        except BaseException:
            # Nothing half-written stays behind.
            for path in set(Path(wheel_directory).glob("*.whl")) - before:
                path.unlink(missing_ok=True)
            raise
        return name


def _build_on_base(settings: Settings, wheel_directory: str, config_settings: Any, metadata_directory: str | None) -> str:
    """Let another base build its wheel, and add the kernels to that."""
    from flydsl_build.backend import base_backend, wheel_file

    with tempfile.TemporaryDirectory(prefix="flydsl-build-") as temporary:
        build = _base_hook(settings, "build_wheel")
        name = build(temporary, base_settings(config_settings), _prepared(settings, "wheel", metadata_directory))
        if settings.kernels or settings.kernels_from:
            name = base_backend.add_kernels(Path(temporary, name), settings)
        wheel_file.normalize(Path(temporary, name), os.environ)
        shutil.move(Path(temporary, name), Path(wheel_directory, name))
        return name


def build_sdist(sdist_directory: str, config_settings: Any) -> str:
    """See `flydsl_build.backend`."""
    from flydsl_build.backend import session

    with _faults_in_words():
        settings = _settings(config_settings, need_archs=False)
        with session.active(session.Session(settings=settings, project=Path.cwd(), editable=False)):
            return _base_hook(settings, "build_sdist")(sdist_directory, base_settings(config_settings))


def build_editable(wheel_directory: str, config_settings: Any, metadata_directory: str | None) -> str:
    """See `flydsl_build.backend`."""
    from flydsl_build.backend import session, wheel_file

    with _faults_in_words(), tempfile.TemporaryDirectory(prefix="flydsl-build-") as temporary:
        settings = _editable_settings(config_settings)
        wheel_file.timestamp(os.environ)
        _require_folder(wheel_directory)
        running = session.Session(settings=settings, project=Path.cwd(), editable=True)
        with session.active(running):
            build = _base_hook(settings, "build_editable")
            name = build(temporary, base_settings(config_settings), _prepared(settings, "editable", metadata_directory))
        wheel = Path(temporary, name)
        if not settings.kernels and not settings.kernels_from:
            pass
        elif settings.editable == "aot":
            from flydsl_build.backend.editable import add_kernels

            add_kernels(wheel, settings, _layout(running, wheel, config_settings), given_settings(config_settings, os.environ))
        else:
            sys.stdout.write("flydsl-build: editable install: the FlyDSL sources stay in place and FlyDSL's JIT compiles them\n")
        wheel_file.normalize(wheel, os.environ)
        shutil.move(wheel, Path(wheel_directory, name))
        return name


def _layout(running: Session, wheel: Path, config_settings: Any) -> Layout:
    """Return what an editable wheel makes importable."""
    if not running.settings.has_setuptools_base:
        from flydsl_build.backend.base_backend import layout_of

        def build_wheel() -> Path:
            folder = wheel.parent / "not-editable"
            folder.mkdir()
            return folder / _base_hook(running.settings, "build_wheel")(str(folder), base_settings(config_settings), None)

        return layout_of(wheel, running.settings, build_wheel)
    if running.layout is None:
        what = "setuptools did not run the command build_flydsl, so that no kernels would be installed"
        raise BuildError(Fault(where="build", what=what, fix="let a `build` command of your own run its sub-commands"))
    return running.layout
