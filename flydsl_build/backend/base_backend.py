# SPDX-License-Identifier: Apache-2.0
"""Kernels added to what another PEP 517 back end builds: scikit-build-core, hatchling, meson-python, maturin.

The base builds its wheel. That is unpacked into the build folder, which then is what setuptools' own build folder is in a build
without such a base: the kernels go into it, and it becomes the wheel. Sources are imported from where the author has them; what only
the base can make, such as extension modules, from the unpacked wheel.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib
import inspect
import re
import shutil
import tempfile
import zipfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from flydsl_build.backend.session import Layout
from flydsl_build.errors import UNWRITABLE, BuildError, ConfigError, Fault, FaultCollector
from flydsl_build.package.installation import unwritable
from flydsl_build.package.pipeline import build_kernels
from flydsl_build.package.platform_tag import wheel_tag
from flydsl_build.package.project import Project
from flydsl_build.package.wheel_metadata import Headers, distribution_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from flydsl_build.config.settings import Settings
    from flydsl_build.package.wheel_forms import WheelForm

__all__ = ["add_kernels", "base_hook", "built_wheel", "extract_metadata", "layout_of", "load_base", "roots_of_declared", "source_roots"]

# Where projects keep their packages; then any other folder of the project.
_USUAL = (".", "src", "python", "lib")
_PASSED_OVER = ("build", "dist", "node_modules", "target")
_SIGNATURES = ("RECORD.jws", "RECORD.p7s")


def load_base(name: str) -> Any:
    """Return the object with the hooks of the base back end.

    Raises
    ------
    ConfigError
        It cannot be imported.
    """
    module, _, qualname = name.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in filter(None, qualname.split(".")):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        what = f"{name} cannot be imported here: {error}"
        fix = "add the distribution that has it to build-system.requires in pyproject.toml; without isolation, install it"
        raise ConfigError(Fault(where="tool.flydsl-build.base", what=what, fix=fix)) from None
    return found


def base_hook(base: Any, name: str, hook: str) -> Callable[..., str]:
    """Return a hook of the base that it must have for what was asked for.

    Raises
    ------
    ConfigError
        It has none that can be called as PEP 517 and PEP 660 say.
    """
    found: Callable[..., str] | None = getattr(base, hook, None)
    arguments = ("", None) if hook == "build_sdist" else ("", None, None)
    what = f"{name} has no {hook}"
    if callable(found):
        try:
            inspect.signature(found).bind(*arguments)
        except TypeError as error:
            what = f"{hook} of {name} cannot be called as PEP 517 has it: {error}"
        except ValueError:  # compiled code need not say what it takes
            return found
        else:
            return found
    raise ConfigError(Fault(where="tool.flydsl-build.base", what=what, fix="name another base"))


def built_wheel(folder: Path, name: object, base: str) -> Path:
    """Return the wheel that the base has built into `folder`.

    Raises
    ------
    BuildError
        What it has built is no wheel.
    """
    if not isinstance(name, str) or not (folder / name).is_file():
        what = f"it returned {name!r}, which is not the name of a file that it wrote"
    elif re.fullmatch(r"[^-/]+-[^-/]+(-\d[^-/]*)?(-[^-/]+){3}\.whl", name) is None:
        what = f"it wrote {name}, which is not named like a wheel"
    elif not zipfile.is_zipfile(folder / name):
        what = f"it wrote {name}, which is no zip archive"
    else:
        missing = _missing(folder / name)
        if missing is None:
            return folder / name
        what = f"it wrote {name}, which has no {missing}"
    fix = "let it build the package alone, without flydsl-build, and see what it writes"
    raise BuildError(Fault(where=f"base back end {base}", what=what, fix=fix))


def _missing(wheel: Path) -> str | None:
    """Return what a wheel lacks that its metadata must have."""
    with zipfile.ZipFile(wheel) as archive:
        for file, fields in {"METADATA": ("Name", "Version"), "WHEEL": ()}.items():
            names = [one for one in archive.namelist() if re.fullmatch(rf"[^/]+\.dist-info/{file}", one)]
            if len(names) != 1:
                return f"single .dist-info/{file}" if names else f".dist-info/{file}"
            text = archive.read(names[0]).decode(errors="replace")
            for field in fields:
                if re.search(rf"^{field}: *\S", text, re.MULTILINE | re.IGNORECASE) is None:
                    return f"{field} in {names[0]}"
    return None


def source_roots(project: Path, files: Iterable[PurePosixPath], *, built: Path | None = None) -> dict[PurePosixPath, Path]:
    """Return in which folder of the project each file is that will be importable; files that are in none are left out.

    Parameters
    ----------
    files
        Paths as they are in the wheel.
    built
        The unpacked wheel, if there is one: a file of the project must be equal to the one in it.
    """
    others = sorted(path for path in project.iterdir() if path.is_dir() and not path.name.startswith(".") and path.name not in _PASSED_OVER)
    folders = list(dict.fromkeys([*(project / name for name in _USUAL), *others]))
    found = {}
    for file in files:
        for folder in folders:
            path = folder / file
            if path.is_file() and (built is None or path.read_bytes() == (built / file).read_bytes()):
                found[file] = folder.resolve()
                break
    return found


def add_kernels(wheel: Path, settings: Settings, form: WheelForm) -> Path:
    """Compile what is declared and add it to the base's wheel; return the new one, which stands beside that and has no RECORD yet.

    Raises
    ------
    BuildError
        As `build_kernels`.
    """
    name, version = distribution_of(wheel)
    with _unpacked(wheel, settings.project_dir / "build" / "flydsl-wheel") as tree:
        files = [PurePosixPath(path.relative_to(tree).as_posix()) for path in sorted(tree.rglob("*")) if path.is_file()]
        files = [file for file in files if not file.parts[0].endswith((".dist-info", ".data"))]
        there = source_roots(settings.project_dir, files, built=tree)
        roots = [*dict.fromkeys(str(root) for file, root in there.items() if file.suffix == ".py")]
        # The cache knows where modules are imported from: a temporary folder that has nothing of its own is left out.
        if len(there) < len(files):
            roots.append(str(tree.resolve()))
        project = Project(
            root=settings.project_dir,
            name=name,
            version=form.version(version),
            package_roots=tuple(roots),
            build_lib=tree,
            sources=(tree,),
            installer=(settings.base, f"what {settings.base} is told to install"),
        )
        built = build_kernels(settings, project)
        try:
            packed = _pack(tree, wheel)
        except OSError as error:
            raise unwritable(error, wheel.parent) from None
        built.report()
        return packed


@contextlib.contextmanager
def _unpacked(wheel: Path, tree: Path) -> Iterator[Path]:
    """Unpack a wheel, laid out as it will be installed.

    Below the project, so that the cache knows its files by one name; in a temporary folder if nothing can be written there.
    """
    shutil.rmtree(tree, ignore_errors=True)
    with contextlib.ExitStack() as stack:
        try:
            try:
                tree.mkdir(parents=True)
            except OSError as error:
                # There may be one that an earlier build left, and that cannot be removed.
                if error.errno not in {*UNWRITABLE, errno.EEXIST}:
                    raise
                tree = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flydsl-build-")), tree.name)
                tree.mkdir()
            stack.callback(_remove_tree, tree)
            _unpack(wheel, tree)
        except OSError as error:
            raise unwritable(error, tree) from None
        yield tree


def _remove_tree(tree: Path) -> None:
    shutil.rmtree(tree, ignore_errors=True)
    with contextlib.suppress(OSError):
        tree.parent.rmdir()


def _unpack(wheel: Path, tree: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for info in archive.infolist():
            path = Path(archive.extract(info, tree))
            if info.external_attr >> 16 & 0o111 and path.is_file():
                path.chmod(0o755)
    # Both are site-packages, and the new wheel is no longer for purelib alone.
    for name in ("purelib", "platlib"):
        for folder in tree.glob(f"*.data/{name}"):
            shutil.copytree(folder, tree, dirs_exist_ok=True)
            shutil.rmtree(folder)


def _pack(tree: Path, wheel: Path) -> Path:
    (metadata,) = tree.glob("*.dist-info")
    files = [path for path in sorted(tree.rglob("*")) if path.is_file()]
    *words, python, abi, platform = wheel.stem.split("-")
    tag = wheel_tag(f"{python}-{abi}-{platform}", [path for path in files if metadata not in path.parents])
    about = metadata / "WHEEL"
    headers = Headers(about.read_text(encoding="utf-8"))
    headers.remove("Root-Is-Purelib", "Tag")
    headers.add("Root-Is-Purelib", "false")
    for one, other_abi, other in _expanded(tag):
        headers.add("Tag", f"{one}-{other_abi}-{other}")
    about.write_text(headers.text().rstrip("\n") + "\n", encoding="utf-8")
    # Made anew when the wheel is finished.
    (metadata / "RECORD").write_bytes(b"")
    path = wheel.with_name(f"{'-'.join([*words, tag])}.whl")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, strict_timestamps=False) as archive:
        for file in files:
            if file.parent != metadata or file.name not in _SIGNATURES:
                archive.write(file, file.relative_to(tree).as_posix())
    return path


def _expanded(tag: str) -> Iterator[tuple[str, str, str]]:
    """Yield the single tags that a compressed one stands for: PEP 425."""
    pythons, abis, platforms = (part.split(".") for part in tag.split("-"))
    yield from ((python, abi, platform) for python in pythons for abi in abis for platform in platforms)


def extract_metadata(wheel: Path, folder: Path) -> str:
    """Write the .dist-info folder of a wheel into `folder`, for a base without the hook for it; return its name."""
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if re.match(r"[^/]+\.dist-info/", name) and not name.endswith("/RECORD")]
        archive.extractall(folder, names)
    return names[0].partition("/")[0]


def layout_of(wheel: Path, settings: Settings, build_wheel: Callable[[], Path]) -> Layout:
    """Return what the base's editable wheel makes importable of the declared modules; see `roots_of_declared`.

    Parameters
    ----------
    build_wheel
        Lets the base build a wheel that is not editable: some keep what they build for an editable install in folders of their own.
    """
    roots = roots_of_declared(settings)
    tops = frozenset(module.partition(".")[0] for module in _declared(settings))
    files = _built_files(wheel, settings, tops)
    if not any(name.endswith(".so") for name in files):
        files |= _built_files(build_wheel(), settings, tops)
    if files:
        digest = hashlib.sha256(b"".join(name.encode() + data for name, data in files.items())).hexdigest()
        # Where compile processes find it, now and later.
        folder = settings.project_dir / "build" / "flydsl-editable" / f"built-{digest[:8]}"
        try:
            for name, data in files.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
        except OSError as error:
            raise unwritable(error, folder) from None
        roots = (*roots, str(folder.resolve()))
    return Layout(package_roots=roots, top_levels=tops)


def _built_files(wheel: Path, settings: Settings, tops: frozenset[str]) -> dict[str, bytes]:
    """Return the modules in a wheel that are in no folder of the project: what only the base can make."""
    with zipfile.ZipFile(wheel) as archive:
        members = {re.sub(r"^[^/]+\.data/(purelib|platlib)/", "", name): name for name in archive.namelist()}
        names = [name for name in members if name.endswith((".py", ".so")) and name.partition("/")[0] in tops]
        there = source_roots(settings.project_dir, map(PurePosixPath, names))
        return {name: archive.read(members[name]) for name in names if PurePosixPath(name) not in there}


def _declared(settings: Settings) -> list[str]:
    modules = [kernel.module for kernel in settings.kernels]
    return [*modules, settings.kernels_from.partition(":")[0]] if settings.kernels_from else modules


def roots_of_declared(settings: Settings) -> tuple[str, ...]:
    """Return the folders of the project that the declared modules are in.

    Raises
    ------
    ConfigError
        One is in none.
    """
    faults = FaultCollector()
    roots: dict[str, None] = {}
    for module in dict.fromkeys(_declared(settings)):
        path = PurePosixPath(*module.split("."))
        found = source_roots(settings.project_dir, [path.with_suffix(".py"), path / "__init__.py"])
        roots.update((str(root), None) for root in found.values())
        if not found:
            faults.add(
                f"module {module}", "its source is in no folder of the project", "check the key; a generated module cannot be declared here"
            )
    faults.raise_if_any(ConfigError)
    return tuple(roots)
