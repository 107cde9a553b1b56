# SPDX-License-Identifier: Apache-2.0
"""What the PEP 517 and PEP 660 hooks do: read the settings, let setuptools build with them, tell faults in words."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flydsl_build.backend.build_environment import require_installed, require_machine, state_of
from flydsl_build.backend.termination import cleaning_up_when_terminated
from flydsl_build.cache.remote import fsspec_requirement
from flydsl_build.config.settings import base_settings, read_settings
from flydsl_build.config.sources import given_settings
from flydsl_build.errors import UNWRITABLE, BuildError, Fault, excerpt
from flydsl_build.jobs.author_code import relative_to_roots, text_of
from flydsl_build.jobs.frontend import frontends
from flydsl_build.toolchain.discovery import linker_is_present

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType

    from flydsl_build.backend.session import Layout, Session
    from flydsl_build.config.settings import Settings
    from flydsl_build.package.wheel_forms import WheelForm

__all__ = [
    "build_editable",
    "build_sdist",
    "build_split_wheels",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "installed_needs_of",
    "kernel_requirements",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

SETUPTOOLS = "setuptools>=77"
JINJA = "jinja2>=3.1"
ZIGLANG = "ziglang>=0.13"
DISTRIBUTED = "distributed>=2024.2"
VARIANTLIB = "variantlib>=0.2,<0.3"


@contextlib.contextmanager
def _faults_in_words() -> Iterator[None]:
    """End the process with the message alone where the project or the machine is at fault; bugs keep their traceback."""
    try:
        with cleaning_up_when_terminated(), _setuptools_faults():
            yield
    except BuildError as error:
        sys.stdout.flush()
        sys.stderr.write(f"\nflydsl-build: {error.stage} failed: {error}\n")
        sys.stderr.flush()
        raise SystemExit(1) from None


@contextlib.contextmanager
def _setuptools_faults() -> Iterator[None]:
    """Tell what setuptools finds wrong with a project from its bugs."""
    try:
        yield
    except SystemExit as error:
        # What a command cannot do ends the process, with the reason as its text.
        reason = str(error.__context__)
        if not str(error).startswith("error: ") or not any(os.strerror(code) in reason for code in UNWRITABLE):
            raise
        fix = (
            "build from a copy of the project; for a wheel, setuptools can write elsewhere: DIST_EXTRA_CONFIG=FILE in the "
            "environment, where FILE has [build] build_base and [egg_info] egg_base, two folders that exist"
        )
        what = "setuptools writes into the project's folder, which cannot be written"
        raise BuildError(Fault(where=str(Path.cwd()), what=what, fix=fix, detail=reason)) from None
    except Exception as error:
        attribute = _attribute_read(error)
        if attribute is not None:
            raise BuildError(_version_fault(attribute, error)) from None
        errors = sys.modules.get("setuptools.errors")
        # It has a class for most, and a plain ValueError for what is invalid in the [project] table.
        known = errors is not None and isinstance(error, errors.BaseError)
        if not known and not (isinstance(error, ValueError) and str(error).startswith("invalid pyproject.toml config")):
            raise
        what = "setuptools cannot build this project"
        fault = Fault(where="pyproject.toml", what=what, fix="correct what it finds", detail=excerpt(str(error)))
        raise BuildError(fault) from None


def _attribute_read(error: Exception) -> str | None:
    """Return the `attr` of a version that setuptools was importing a module of the project for."""
    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_name == "read_attr" and frame.f_globals.get("__name__") == "setuptools.config.expand":
            return str(frame.f_locals.get("attr_desc", "the version")).strip()
    return None


def _version_fault(attribute: str, error: Exception) -> Fault:
    project = str(Path.cwd())
    frames = [(relative_to_roots(one.filename, [project]), one) for one in traceback.extract_tb(error.__traceback__)]
    return Fault(
        where="tool.setuptools.dynamic.version",
        what=f"setuptools imports the module of {attribute}, and that failed: {text_of(error)}",
        fix="give the version where it is read without an import: as a literal in a module that imports nothing, or in [project]",
        detail="\n".join(f"{place}:{one.lineno}: {one.line}" for place, one in frames if place is not None),
    )


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
        raise _unwritable(folder, error) from None


def _unwritable(folder: str, error: OSError) -> BuildError:
    what = f"the wheel cannot be written there ({error.strerror or error})"
    return BuildError(Fault(where=folder, what=what, fix="name a folder that can be written, on a disk with room"))


def _setuptools() -> ModuleType:
    require_installed([SETUPTOOLS])
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
    """Ask the base for its own requirements. Before a setuptools that serves is installed there are none to ask for; another base is."""
    if settings.has_setuptools_base and not state_of(SETUPTOOLS)[0]:
        return []
    ask = getattr(_base(settings), hook, None)
    found: list[str] = ask(base_settings(config_settings)) if ask is not None else []
    return found


def _requires(settings: Settings, hook: str, config_settings: Any, own: list[str]) -> list[str]:
    base = _base_requires(settings, hook, config_settings)
    if settings.has_setuptools_base:
        return [SETUPTOOLS, *own, *(one for one in base if one.split(">")[0].strip() != "setuptools")]
    return [*own, *base]


def kernel_requirements(names: Sequence[str]) -> list[str]:
    """Return what has to be installed to compile kernels of these front ends and to render their stubs; nothing without front ends."""
    return [JINJA, *dict.fromkeys(one for frontend in frontends(names) for one in frontend.requirements)] if names else []


def _needs_of(settings: Settings) -> list[str]:
    """Return what compiling kernels needs."""
    needed = kernel_requirements(settings.frontends)
    if needed and not settings.lld and not linker_is_present(rocm_path=settings.rocm_path):
        needed.append(ZIGLANG)
    return [*needed, *_needs_of_settings(settings)]


def _needs_of_settings(settings: Settings) -> list[str]:
    """Return what settings of this project need besides."""
    own = []
    if settings.cache and settings.remote_cache is not None:
        own.append(fsspec_requirement(settings.remote_cache))
    if settings.executor == "dask":
        own.append(DISTRIBUTED)
    if settings.wheel == "variant":
        own.append(VARIANTLIB)
    return own


def installed_needs_of(settings: Settings) -> list[str]:
    """Return what has to be installed to compile kernels. A linker need not come from a package, and a cache may be left out."""
    base = [SETUPTOOLS] if settings.has_setuptools_base else []
    return [*base, *kernel_requirements(settings.frontends), *_needs_of_settings(settings)]


def _require_machine(settings: Settings, *, compiles: bool = True) -> None:
    """Refuse to build where that cannot work, with everything that is missing: for the base back end, and for the kernels."""
    errors: list[BuildError] = []
    checks: list[Callable[[], Any]] = [lambda: _base(settings)]
    if compiles and settings.frontends:
        # What kernels need names setuptools too, in one fault.
        checks = [*([] if settings.has_setuptools_base else checks), lambda: require_machine(settings, installed_needs_of(settings))]
    for check in checks:
        try:
            check()
        except BuildError as error:
            errors.append(error)
    if errors:
        raise type(errors[0])(*(fault for error in errors for fault in error.faults))


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
        try:
            base = _base(settings)
        except BuildError:
            # Metadata needs the base alone. But who has to install something gets to know now what the next hook would miss.
            _require_machine(settings, compiles=settings.editable == "aot" or "editable" not in hook)
            raise
        prepare = getattr(base, hook, None)
        if prepare is not None:
            name: str = prepare(metadata_directory, base_settings(config_settings))
            return name
        # The hook is optional: front ends then build the wheel and look into it.
        from flydsl_build.backend.base_backend import extract_metadata

        with tempfile.TemporaryDirectory(prefix="flydsl-build-") as temporary:
            wheel = _base_wheel(settings, hook.replace("prepare_metadata_for_", ""), temporary, config_settings)
            return extract_metadata(wheel, Path(metadata_directory))


def _base_hook(settings: Settings, hook: str) -> Callable[..., str]:
    """Return a hook of the base that is not optional for what was asked for."""
    if settings.has_setuptools_base:
        found: Callable[..., str] = getattr(_setuptools(), hook)
        return found
    from flydsl_build.backend.base_backend import base_hook

    return base_hook(_base(settings), settings.base, hook)


def _base_wheel(settings: Settings, hook: str, folder: str, config_settings: Any, metadata_directory: str | None = None) -> Path:
    """Let the base build a wheel into `folder`; return its path."""
    name = _base_hook(settings, hook)(folder, base_settings(config_settings), metadata_directory)
    if settings.has_setuptools_base:
        return Path(folder, name)
    from flydsl_build.backend.base_backend import built_wheel

    return built_wheel(Path(folder), name, settings.base)


def _prepared(settings: Settings, metadata_directory: str | None) -> str | None:
    """Return the metadata folder to hand back to the base: only if it has made it."""
    return metadata_directory if hasattr(_base(settings), "prepare_metadata_for_build_editable") else None


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Any) -> str:
    """See `flydsl_build.backend`."""
    from flydsl_build.package.finish import finish_metadata

    name = _metadata("prepare_metadata_for_build_wheel", metadata_directory, config_settings)
    with _faults_in_words():
        settings = _settings(config_settings, need_archs=False)
        # Names and extras of the other forms follow from the targets.
        form = _form(settings if settings.wheel == "fat" else _settings(config_settings))
        return finish_metadata(Path(metadata_directory, name), form, Path.cwd())


def _form(settings: Settings) -> WheelForm:
    from flydsl_build.package.wheel_forms import form_of

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
    from flydsl_build.backend import session
    from flydsl_build.package import wheel_file
    from flydsl_build.package.finish import finish_wheel
    from flydsl_build.package.source_files import every_license_file

    settings = _settings(config_settings)
    wheel_file.timestamp(os.environ)  # setuptools would answer a wrong SOURCE_DATE_EPOCH with a traceback, after all the work
    _require_folder(wheel_directory)
    _require_machine(settings)
    form = _form(settings)
    forms = [form]
    if devices:
        licenses = every_license_file(settings, Path.cwd())
        forms += [form.device(target, licenses) for target in form.targets]
    written: list[Path] = []
    try:
        with tempfile.TemporaryDirectory(prefix=".flydsl-build-", dir=wheel_directory) as temporary:
            running = session.Session(settings=settings, project=Path.cwd(), editable=False, form=form)
            with session.active(running):
                wheel = _base_wheel(settings, "build_wheel", temporary, config_settings)
            if not settings.has_setuptools_base and settings.frontends:
                from flydsl_build.backend.base_backend import add_kernels

                wheel = add_kernels(wheel, settings, form)
            try:
                for one in forms:
                    written += [finish_wheel(wheel, Path(wheel_directory), one, project=Path.cwd(), environ=os.environ)]
            except OSError as error:
                raise _unwritable(wheel_directory, error) from None
    except BaseException:
        # Nothing half-written stays behind.
        for path in written:
            path.unlink(missing_ok=True)
        raise
    if running.built is not None:
        running.built.report()
    return [path.name for path in written]


def build_sdist(sdist_directory: str, config_settings: Any) -> str:
    """See `flydsl_build.backend`."""
    from flydsl_build.backend import session

    with _faults_in_words():
        settings = _settings(config_settings, need_archs=False)
        with session.active(session.Session(settings=settings, project=Path.cwd(), editable=False)):
            return _base_hook(settings, "build_sdist")(sdist_directory, base_settings(config_settings))


def build_editable(wheel_directory: str, config_settings: Any, metadata_directory: str | None) -> str:
    """See `flydsl_build.backend`."""
    from flydsl_build.backend import session
    from flydsl_build.package import wheel_file

    with _faults_in_words(), tempfile.TemporaryDirectory(prefix="flydsl-build-") as temporary:
        settings = _editable_settings(config_settings)
        wheel_file.timestamp(os.environ)
        _require_folder(wheel_directory)
        _require_machine(settings, compiles=settings.editable == "aot")
        running = session.Session(settings=settings, project=Path.cwd(), editable=True)
        with session.active(running):
            prepared = _prepared(settings, metadata_directory)
            wheel = _base_wheel(settings, "build_editable", temporary, config_settings, prepared)
        if not settings.frontends:
            pass
        elif settings.editable == "aot":
            from flydsl_build.backend.editable import add_kernels

            add_kernels(wheel, settings, _layout(running, wheel, config_settings), given_settings(config_settings, os.environ))
        else:
            sys.stdout.write(
                "flydsl-build: editable install: the FlyDSL sources stay in place and FlyDSL's JIT compiles them, "
                "which needs flydsl and torch\n"
            )
        wheel_file.rewrite(wheel, Path(wheel_directory, wheel.name), wheel_file.read_members(wheel), os.environ)
        return wheel.name


def _layout(running: Session, wheel: Path, config_settings: Any) -> Layout:
    """Return what an editable wheel makes importable."""
    if not running.settings.has_setuptools_base:
        from flydsl_build.backend.base_backend import layout_of

        def build_wheel() -> Path:
            folder = wheel.parent / "not-editable"
            folder.mkdir()
            return _base_wheel(running.settings, "build_wheel", str(folder), config_settings)

        return layout_of(wheel, running.settings, build_wheel)
    if running.layout is None:
        what = "setuptools did not run the command build_flydsl, so that no kernels would be installed"
        raise BuildError(Fault(where="build", what=what, fix="let a `build` command of your own run its sub-commands"))
    return running.layout
