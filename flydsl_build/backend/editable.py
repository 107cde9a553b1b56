# SPDX-License-Identifier: Apache-2.0
"""The build side of editable installs: kernels compiled into the project's build folder, and an import hook in the wheel.

The hook (`flydsl_build.editable`) starts the process whose end is `main`, when something that kernels follow from has changed.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import flydsl_build
from flydsl_build.backend.build_environment import name_of
from flydsl_build.config.settings import read_settings
from flydsl_build.consumers import served_modules, wanted_consumers
from flydsl_build.editable.freshness import Freshness
from flydsl_build.editable.installation import SCHEMA, read_state, write_json
from flydsl_build.editable.resolution import digest_of_file
from flydsl_build.errors import BuildError, Fault, ToolchainError
from flydsl_build.jobs.frontend import frontends
from flydsl_build.package.own_runtime import runtime_files
from flydsl_build.package.pipeline import build_kernels
from flydsl_build.package.project import EDITABLE_FOLDER, Project
from flydsl_build.package.wheel_file import read_members, rewrite
from flydsl_build.package.wheel_metadata import distribution_of, escaped

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from flydsl_build.backend.session import Layout
    from flydsl_build.config.settings import Settings
    from flydsl_build.package.pipeline import BuiltKernels

__all__ = ["add_kernels", "main"]

# The scheduler sets these.
_CONSTANT = ("env:FLYDSL_BUILD_EDITABLE", "env:PYTHONDONTWRITEBYTECODE", "env:PYTHONHASHSEED")
# Concern one build alone.
_PASSING = ("dump-ir", "editable", "verbose")


def add_kernels(wheel: Path, settings: Settings, layout: Layout, given: Mapping[str, object]) -> None:
    """Compile what is declared, and add to the editable wheel what serves it.

    Parameters
    ----------
    given
        Config settings that hold whenever kernels are compiled again.
    """
    name, version = distribution_of(wheel)
    config = {key: value for key, value in given.items() if key not in _PASSING}
    project = os.path.realpath(settings.project_dir)
    # Environments that build alike share a folder; an installation that is made again finds its own.
    identity = json.dumps([name, config, sys.implementation.cache_tag, sorted(layout.top_levels), layout.package_roots])
    facts: dict[str, Any] = {
        "distribution": {"name": name, "version": version},
        "project": project,
        "package_roots": list(layout.package_roots),
        "top_levels": sorted(layout.top_levels),
        "config": config,
        # What a process that compiles imports.
        "needs": ["flydsl_build", *(package for frontend in frontends(settings.frontends) for package in frontend.packages), "jinja2"],
        "jit_needs": [package for frontend in frontends(settings.frontends) for package in frontend.imported_by_sources],
        "folder": str(Path(project, "build", EDITABLE_FOLDER, hashlib.sha256(identity.encode()).hexdigest()[:8])),
    }
    with _locked(Path(facts["folder"])):
        facts["declared"] = served_modules(_compile(settings, facts, only=None).declared, settings)
    sys.stdout.write(f"flydsl-build: editable install: kernels are in {facts['folder']}, and compiled again when their sources change\n")
    package = f"_editable_flydsl_{escaped(name)}"
    source = Path(flydsl_build.__file__).parent / "editable"
    names = ", ".join(map(ascii, facts["top_levels"]))
    files = {f"{package}/{path.name}": path.read_bytes() for path in sorted(source.glob("*.py"))}
    files[f"{package}/facts.json"] = json.dumps(facts, indent=1).encode()
    # Python reads these files in order of their names. The last to put its finder first stands before that of the base back end.
    files[f"zz{package}.pth"] = f"import {package}; {package}.install({names})\n".encode()
    rewrite(wheel, wheel, {**read_members(wheel), **files}, os.environ)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # No source control is asked to keep it.
        (folder.parent / ".gitignore").write_text("*\n", encoding="ascii")
        file = (folder / "lock").open("w", encoding="ascii")
    except OSError as error:
        raise BuildError(
            Fault(
                where=str(folder),
                what=f"cannot be written ({error.strerror}), and the kernels of an editable install go there",
                fix="make the project's build folder writable, or install without -e",
            )
        ) from None
    with file:
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _compile(settings: Settings, facts: Mapping[str, Any], *, only: str | None) -> BuiltKernels:
    """Make a generation of everything declared, or of one module, and let the state name it. The caller has the lock."""
    folder = Path(facts["folder"])
    state = read_state(str(folder))
    runtime = _runtime_digest()
    if only is None or state is None or state["runtime"] != runtime:
        # One run time serves all modules of a package: those of another version are not kept beside new ones.
        only, state = None, {"modules": {}, "runtimes": {}}
    fresh = Freshness(facts["project"], {}, os.environ)
    # What compiling depends on beside what the compile processes tell.
    programs = (*(name_of(frontend.requirements[0]) for frontend in frontends(settings.frontends)), "flydsl-build")
    common = {name: digest for name in map("dist:{}".format, programs) if (digest := fresh[name]) is not None}
    declarations = fresh["declared:"]
    tables = {f"table:{kernel.module}": fresh[f"table:{kernel.module}"] for kernel in settings.kernels}
    generation = Path(tempfile.mkdtemp(prefix="g-", dir=folder))
    try:
        generation.chmod(0o755)
        project = Project(
            root=Path(facts["project"]),
            name=facts["distribution"]["name"],
            version=facts["distribution"]["version"],
            package_roots=tuple(facts["package_roots"]),
            build_lib=generation,
            sources=tuple(map(Path, facts["package_roots"])),
            top_levels=frozenset(facts["top_levels"]),
        )
        built = build_kernels(settings, project, only=only)
        built.report()
        declared = served_modules(built.declared, settings)
        modules = {name: one for name, one in state["modules"].items() if name in declared}
        runtimes = state["runtimes"]
        files = {path.relative_to(generation): str(digest_of_file(path)) for path in sorted(generation.rglob("*")) if path.is_file()}
        for one in built.modules:
            placement = one.placement
            table = f"table:{placement.module}"
            dependencies = None
            if one.dependencies is not None:
                known = {name: digest for name, digest in one.dependencies.items() if name not in _CONSTANT}
                dependencies = {**known, **common, table: tables.get(table) or fresh[table]}
            modules[placement.module] = {
                "generation": generation.name,
                "files": {
                    str(path): digest
                    for path, digest in files.items()
                    if path == Path(placement.source)
                    or (path.parent == Path(placement.folder) and path.name.startswith(f"{placement.stem}."))
                },
                "runtime": ".".join(placement.anchor.parts),
                "file": str(placement.source),
                "source": next(str(root / placement.source) for root in project.sources if (root / placement.source).is_file()),
                "package": placement.stem == "__init__",
                "dependencies": dependencies,
            }
            for consumer in wanted_consumers(settings):
                if consumer.suffix:
                    own = placement.beside(consumer.suffix)
                    beside = {"file": str(own), "files": {str(own): files[Path(own)]}, "package": False}
                    modules[f"{placement.module}{consumer.suffix}"] = modules[placement.module] | beside
            runtimes[".".join(placement.anchor.parts)] = {
                "generation": generation.name,
                "files": {
                    str(path): digest
                    for path, digest in files.items()
                    if path.is_relative_to(placement.anchor / "runtime") or path == Path(placement.anchor, "__init__.py")
                },
            }
        state = {
            "schema": SCHEMA,
            "runtime": runtime,
            "modules": modules,
            "runtimes": runtimes,
            "declared": declared,
            "declarations": declarations,
        }
        for name in {"declared:"}.union(*(one["dependencies"] or () for one in modules.values())):
            fresh[name]  # notes its stamp
        write_json(str(folder / "stamps.json"), fresh.stamps)
        write_json(str(folder / "state.json"), state)
    except BaseException:
        shutil.rmtree(generation, ignore_errors=True)
        raise
    _remove_unused(folder, {one["generation"] for one in (*modules.values(), *runtimes.values())})
    return built


def _runtime_digest() -> str:
    digest = hashlib.sha256(flydsl_build.__version__.encode())
    for path in runtime_files():
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def _remove_unused(folder: Path, used: set[str]) -> None:
    """Remove generations that no module is in any more and no process holds, and those that a killed build has left."""
    for path in folder.glob("g-*"):
        if path.name in used:
            continue
        with contextlib.suppress(OSError):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(path)
            finally:
                os.close(descriptor)


def main() -> int:
    """Compile one module for an import that is waiting: a request on standard input, an answer as the last line of standard output."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    answer = _answer(json.loads(sys.stdin.read()))
    sys.stdout.flush()
    channel.write("\n" + json.dumps(answer))
    channel.close()
    return 0


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    facts = request["facts"]
    if request["schema"] != SCHEMA:
        return {
            "cannot": "the installation was made by another version of flydsl-build than the one that is installed here",
            "fix": "pip install -e . --no-build-isolation makes it anew",
        }
    try:
        # The targets are those of the installation, whatever is set where it is imported.
        environ = {name: value for name, value in os.environ.items() if name != "FLYDSL_BUILD_ARCHS"}
        settings = read_settings(Path(facts["project"]), facts["config"], environ)
        _compile(settings, facts, only=request["module"])
    except ToolchainError as error:
        return {"cannot": str(error), "fix": "the next import compiles them when that is done"}
    except BuildError as error:
        return {"fault": str(error)}
    except OSError as error:
        return {"cannot": f"{error.filename or facts['folder']} cannot be written ({error.strerror})", "fix": "make it writable"}
    return {}
