# SPDX-License-Identifier: Apache-2.0
"""The setuptools side: a `build` sub-command that makes the kernels, and a wheel tag that tells the truth.

`finalize_distribution` is registered as a `setuptools.finalize_distribution_options` entry point; it does nothing unless a
hook of this back end is running.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from setuptools import Command

from flydsl_build.backend import session
from flydsl_build.errors import ConfigError, Fault
from flydsl_build.package.platform_tag import wheel_tag

if TYPE_CHECKING:
    from setuptools import Distribution

__all__ = ["BuildFlydsl", "finalize_distribution"]


class BuildFlydsl(Command):
    """Compile the declared kernels into the build folder (the `build_flydsl` sub-command of `build`)."""

    description = "compile FlyDSL kernels"
    user_options: ClassVar[list[tuple[str, str | None, str | None]]] = []

    build_lib: str | None
    editable_mode: bool = False

    def initialize_options(self) -> None:
        """Set what setuptools may override."""
        self.build_lib = None
        self.editable_mode = False
        self._outputs: list[str] = []

    def finalize_options(self) -> None:
        """Take the build folder from `build_py`."""
        self.set_undefined_options("build_py", ("build_lib", "build_lib"))

    def run(self) -> None:
        """Compile, verify, write stubs; in an editable install, say where the sources are: the hook compiles them afterwards."""
        running = session.current()
        if running is None:
            return
        roots = _package_roots(self.distribution, running.project)
        if running.editable or self.editable_mode:
            running.layout = session.Layout(package_roots=roots, top_levels=_top_levels(self.distribution))
            return
        from flydsl_build.package.pipeline import build_kernels
        from flydsl_build.package.project import Project

        assert self.build_lib is not None
        metadata = self.distribution.metadata
        project = Project(
            root=running.project,
            name=metadata.get_name(),
            version=metadata.get_version() if running.form is None else running.form.version(metadata.get_version()),
            package_roots=roots,
            build_lib=Path(self.build_lib),
            sources=(Path(self.build_lib),),
        )
        running.built = build_kernels(running.settings, project)
        self._outputs = list(running.built.files)

    def get_outputs(self) -> list[str]:
        """Return the files written into the build folder."""
        return list(self._outputs)

    def get_output_mapping(self) -> dict[str, str]:
        """Return an empty mapping: no output is a copy of one source."""
        return {}

    def get_source_files(self) -> list[str]:
        """Return nothing: what this returned would be listed in SOURCES.txt, and setuptools would install it as package data.

        The bitcode of externs goes into source distributions by the `sdist` command below.
        """
        return []


def _package_roots(distribution: Distribution, project: Path) -> tuple[str, ...]:
    """Return the folders to import the author's packages from, given setuptools' `package_dir`."""
    mapping: dict[str, str] = dict(distribution.package_dir or {})
    roots = [project / mapping.pop("")] if "" in mapping else [project]
    for package, folder in mapping.items():
        path = project / folder
        parts = package.split(".")
        if list(path.parts[-len(parts) :]) != parts:
            raise ConfigError(
                Fault(
                    where="tool.setuptools.package-dir",
                    what=f"{package} = {folder}: the folder is not named like the package, so it cannot be imported before it is installed",
                    fix=f"name the folder {'/'.join(parts)}, for example src/{'/'.join(parts)}",
                )
            )
        roots.append(path.parents[len(parts) - 1])
    return tuple(dict.fromkeys(str(one.resolve()) for one in roots))


def _top_levels(distribution: Distribution) -> frozenset[str]:
    packages = [*(distribution.packages or ()), *(distribution.py_modules or ())]
    return frozenset(name.partition(".")[0] for name in packages)


def _with_kernels(build: type[Any]) -> type[Any]:
    class Build(build):
        sub_commands: ClassVar[list[Any]] = [*build.sub_commands, ("build_flydsl", None)]

        def run(self) -> None:
            from flydsl_build.package.installation import remove_former_build

            remove_former_build(Path(self.build_lib))
            super().run()

    return Build


def _with_bitcode(sdist: type[Any]) -> type[Any]:
    class Sdist(sdist):
        def make_release_tree(self, base_dir: str, files: list[str]) -> None:
            from flydsl_build.package.source_files import every_license_file, extern_files
            from flydsl_build.package.wheel_forms import source_metadata

            running = session.current()
            if running is None:
                super().make_release_tree(base_dir, files)
                return
            licenses = every_license_file(running.settings, running.project)
            more = [*extern_files(running.settings, running.project), *licenses]
            super().make_release_tree(base_dir, list(dict.fromkeys([*files, *more])))
            metadata = Path(base_dir, "PKG-INFO")
            # Not written into: setuptools may have made it a hard link.
            text = source_metadata(metadata.read_text(encoding="utf-8"), running.settings, licenses)
            metadata.unlink()
            metadata.write_bytes(text.encode())

    return Sdist


def _with_true_tag(bdist_wheel: type[Any]) -> type[Any]:
    class BdistWheel(bdist_wheel):
        def initialize_options(self) -> None:
            super().initialize_options()
            # The hook writes the wheel again, and compresses it then.
            self.compression = "stored"
            self._tag: tuple[str, str, str] | None = None

        def get_tag(self) -> tuple[str, str, str]:
            # Asked for twice, and every file is read for it.
            self._tag = self._tag or self._true_tag()
            return self._tag

        def _true_tag(self) -> tuple[str, str, str]:
            # The author's own extension modules bind the wheel to an interpreter; ours are limited to the stable ABI.
            own = super().get_tag() if self.distribution.ext_modules else ("py3", "none", "any")
            build_lib = Path(self.get_finalized_command("build").build_lib)
            files = [path for path in sorted(build_lib.rglob("*")) if path.is_file()]
            tag = wheel_tag("-".join(own), files)
            python, abi, platform = tag.split("-")
            return python, abi, platform

    return BdistWheel


def finalize_distribution(distribution: Distribution) -> None:
    """Add the kernels to the build of this distribution, if a hook of this back end is running."""
    running = session.current()
    if running is None:
        return
    if not running.settings.frontends:
        return
    commands = distribution.cmdclass
    commands["build_flydsl"] = BuildFlydsl
    commands["sdist"] = _with_bitcode(distribution.get_command_class("sdist"))
    commands["build"] = _with_kernels(distribution.get_command_class("build"))
    if not running.editable:
        # Code objects belong to a platform: this makes setuptools install everything into platlib.
        distribution.has_ext_modules = lambda: True
        commands["bdist_wheel"] = _with_true_tag(distribution.get_command_class("bdist_wheel"))


finalize_distribution.order = 10  # type: ignore[attr-defined]  # setuptools reads it from the function
