# SPDX-License-Identifier: Apache-2.0
"""Find the linker and the ROCm device bitcode, and say where was looked.

LLVM's `gpu-module-to-binary` wants a folder laid out like ROCm: `llvm/bin/ld.lld`, and `amdgcn/bitcode` for kernels that
call ocml or ockl. Neither ROCm nor a GPU is needed: a private folder of links to what was found serves.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from flydsl_build.errors import Fault, ToolchainError
from flydsl_build.jobs.job import Linker, Toolkit
from flydsl_build.regular_files import open_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from flydsl_build.cache.build_cache import BuildCache

__all__ = [
    "find_linker",
    "linker_is_present",
    "make_toolkit",
    "remove_abandoned_folders",
    "rocm_roots",
    "safe_temporary_folder",
    "trace_bitcode",
]

# A path with one of these cannot stand in an MLIR pass option.
_UNSAFE = re.compile(r"[\s,{}\"'\\]")
_OCKL = "ockl.bc"


@dataclass(kw_only=True, slots=True)
class _Search:
    trace: list[str] = field(default_factory=list)

    def look(self, place: str, found: str | None) -> None:
        self.trace.append(f"{place}: {found or 'not found'}")


def rocm_roots(rocm_path: Path | None, environ: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    """Yield (how it was named, folder) for each place a ROCm installation may be, best first."""
    if rocm_path:
        yield "rocm-path setting", rocm_path
    for variable in ("ROCM_PATH", "HIP_PATH"):
        if environ.get(variable):
            yield variable, Path(environ[variable])
    yield "/opt/rocm", Path("/opt/rocm")
    for package in ("_rocm_sdk_devel", "_rocm_sdk_core"):
        spec = importlib.util.find_spec(package)
        for location in (spec.submodule_search_locations or []) if spec is not None else []:
            yield f"rocm_sdk wheel {package}", Path(location)


def _candidates(
    lld: Path | None, rocm_path: Path | None, environ: Mapping[str, str], search: _Search
) -> Iterator[tuple[str, tuple[str, ...]]]:
    if lld:
        yield "lld setting", (str(lld),)
        return
    for how, root in rocm_roots(rocm_path, environ):
        path = root / "llvm" / "bin" / "ld.lld"
        if path.is_file():
            yield f"{how} ({path})", (str(path),)
        else:
            search.look(f"{how} ({path})", None)
    path_variable = environ.get("PATH", os.defpath)
    names = ["ld.lld", *(f"ld.lld-{version}" for version in range(30, 16, -1))]
    hit = False
    for name in names:
        found = shutil.which(name, path=path_variable)
        if found:
            hit = True
            yield f"{name} on PATH", (found,)
    if not hit:
        search.look("ld.lld, ld.lld-17 to ld.lld-30 on PATH", None)
    spec = importlib.util.find_spec("ziglang")
    executables = [Path(one) / "zig" for one in (spec.submodule_search_locations or [])] if spec is not None else []
    for executable in executables:
        if executable.is_file():
            yield f"ziglang package ({executable})", (str(executable), "ld.lld")
            return
    search.look("PyPI package ziglang", None)


def find_linker(
    *, lld: Path | None = None, rocm_path: Path | None = None, environ: Mapping[str, str] | None = None, cache: BuildCache | None = None
) -> tuple[Linker, tuple[str, ...]]:
    """Return the first linker that runs, and the trace of the search.

    Parameters
    ----------
    lld
        The `lld` setting: a path that must work; nothing else is tried then.
    rocm_path
        The `rocm-path` setting.
    cache
        Remembers what a linker said of itself.

    Raises
    ------
    ToolchainError
        None was found; the message has every place that was searched. Or a setting names what is not there or is no linker.
    """
    _refuse_absent(lld=lld, rocm_path=rocm_path)
    search = _Search()
    for how, command in _candidates(lld, rocm_path, os.environ if environ is None else environ, search):
        identity = _identity(command)
        # What a script starts may change while the script stays: it is asked again.
        known = cache.recall("linker", command[1:], identity) if cache is not None and identity and _is_binary(command[0]) else None
        line = known.decode() if known is not None else _ask_version(command, functools.partial(search.look, how))
        if line is None:
            continue
        if cache is not None and known is None and identity:
            cache.remember(line.encode(), "linker", command[1:], identity)
        search.look(how, line)
        return Linker(command=command, version=_normalized_version(line), identity=f"{line} {identity}"), tuple(search.trace)
    if lld:
        raise _wrong_setting("lld", search.trace[0].removeprefix("lld setting: "), lld)
    raise ToolchainError(
        Fault(
            where="linker",
            what="no LLD was found, and LLVM needs one to link AMDGPU code objects",
            fix='add "ziglang" to build-system.requires, install ROCm or a package with ld.lld, or set `lld`',
            detail="searched:\n" + "\n".join(search.trace),
        )
    )


def _refuse_absent(*, lld: Path | None, rocm_path: Path | None) -> None:
    """Refuse a setting that names what is not there; another linker or other bitcode than was asked for would be taken without a word."""
    if lld and not lld.is_file():
        raise _wrong_setting("lld", "is no file" if lld.exists() else "does not exist", lld)
    if rocm_path and not rocm_path.is_dir():
        raise _wrong_setting("rocm-path", "is no folder" if rocm_path.exists() else "does not exist", rocm_path)


def _wrong_setting(key: str, what: str, path: Path) -> ToolchainError:
    return ToolchainError(Fault(where=key, what=f"{path} {what}", fix="correct the path, or leave the setting out to have it searched for"))


def _ask_version(command: tuple[str, ...], reject: Callable[[str], None]) -> str | None:
    """Return the first line of what a linker says of itself, or None and the reason to `reject`."""
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        reject(f"does not run ({error})")
        return None
    first = (done.stdout or done.stderr).strip().splitlines()[:1]
    if done.returncode == 0 and first and "LLD" in first[0]:
        return first[0]
    reject(f"is not LLD (exit status {done.returncode})")
    return None


# Linkers are as large as 200 MB. Both ends have what differs between two builds: the build ID and the table of sections.
_END = 1 << 16


def _identity(command: tuple[str, ...]) -> str:
    """Return a digest of a program's size and both ends; empty if it cannot be read."""
    try:
        with open_regular(Path(command[0])) as file:
            digest = hashlib.sha256(file.read(_END))
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _END))
            digest.update(file.read() + b"%d" % size)
    except OSError:
        return ""
    return digest.hexdigest()


def _is_binary(program: str) -> bool:
    with open_regular(Path(program)) as file:
        return file.read(2) != b"#!"


def linker_is_present(*, rocm_path: Path | None = None, environ: Mapping[str, str] | None = None) -> bool:
    """Tell whether a linker is there: what `get_requires_for_build_wheel` asks."""
    try:
        find_linker(rocm_path=rocm_path, environ=environ)
    except ToolchainError:
        return False
    return True


def _normalized_version(line: str) -> str:
    """Keep product and number; distributions add their names and addresses."""
    match = re.search(r"LLD \d+(\.\d+)*", line)
    return match[0] if match else line


def _find_bitcode(rocm_path: Path | None, environ: Mapping[str, str], search: _Search) -> Path | None:
    places: list[tuple[str, Path]] = [(how, root / "amdgcn" / "bitcode") for how, root in rocm_roots(rocm_path, environ)]
    triton = importlib.util.find_spec("triton")
    locations = (triton.submodule_search_locations or []) if triton is not None else []
    places += [("triton", Path(location) / "backends" / "amd" / "lib") for location in locations]
    places += [("Debian rocm-device-libs", Path("/usr/lib/x86_64-linux-gnu/amdgcn/bitcode")), ("/usr/amdgcn", Path("/usr/amdgcn/bitcode"))]
    places += [("clang", folder) for folder in sorted(Path("/usr/lib").glob("llvm-*/lib/clang/*/amdgcn/bitcode"))]
    for how, folder in places:
        if (folder / _OCKL).is_file():
            search.look(f"{how} ({folder})", "device bitcode")
            return folder
        search.look(f"{how} ({folder})", None)
    return None


def trace_bitcode(*, rocm_path: Path | None = None, environ: Mapping[str, str] | None = None) -> tuple[Path | None, tuple[str, ...]]:
    """Return the folder of the device bitcode, None if there is none, and the trace of the search."""
    search = _Search()
    folder = _find_bitcode(rocm_path, os.environ if environ is None else environ, search)
    return folder, tuple(search.trace)


def make_toolkit(  # noqa: PLR0913 - a setting each
    folder: Path,
    *,
    lld: Path | None = None,
    rocm_path: Path | None = None,
    environ: Mapping[str, str] | None = None,
    cache: BuildCache | None = None,
    bitcode: Path | None = None,
) -> tuple[Toolkit, Linker]:
    """Fill an empty folder with links to the linker and the device bitcode.

    Parameters
    ----------
    folder
        Must exist; see `safe_temporary_folder`.
    cache
        Remembers what a linker said of itself.
    bitcode
        A folder with the device bitcode, which is not searched for then; empty if there is none.
    """
    environ = os.environ if environ is None else environ
    linker, trace = find_linker(lld=lld, rocm_path=rocm_path, environ=environ, cache=cache)
    tool = folder / "llvm" / "bin" / "ld.lld"
    tool.parent.mkdir(parents=True)
    if len(linker.command) == 1 and Path(linker.command[0]).name == "ld.lld":
        tool.symlink_to(Path(linker.command[0]).resolve() if Path(linker.command[0]).resolve().name.endswith("lld") else linker.command[0])
    else:
        # LLD looks at its own name to know which linker it is, and zig has it as a sub-command.
        words = " ".join("'" + word.replace("'", "'\\''") + "'" for word in linker.command)
        tool.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        tool.chmod(0o755)
    search = _Search()
    if bitcode is None:
        bitcode = _find_bitcode(rocm_path, environ, search)
    elif not (bitcode / _OCKL).is_file():
        bitcode = None
    target = folder / "amdgcn" / "bitcode"
    target.parent.mkdir()
    if bitcode is not None:
        target.symlink_to(bitcode.resolve())
    else:
        target.mkdir()
    return (
        Toolkit(folder=str(folder), linker=linker.version, has_device_bitcode=bitcode is not None, trace=(*trace, *search.trace)),
        linker,
    )


_TEMPORARY = "flydsl-build-"
_IN_USE = ".in-use"


class _LockedFolder(tempfile.TemporaryDirectory[str]):
    """A temporary folder with a file that is locked as long as this process lives; see `remove_abandoned_folders`."""

    def __init__(self, parent: str) -> None:
        super().__init__(prefix=_TEMPORARY, dir=parent)
        self._descriptor = os.open(Path(self.name, _IN_USE), os.O_RDWR | os.O_CREAT, 0o600)
        # Without locks nothing is ever taken for abandoned.
        with contextlib.suppress(OSError):
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def cleanup(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._descriptor)
        super().cleanup()


def _temporary_parents() -> Iterator[str]:
    for parent in dict.fromkeys((tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm")):  # noqa: S108 - a folder with a name of its own is made in it
        if not _UNSAFE.search(parent) and os.access(parent, os.W_OK):
            yield parent


def safe_temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """Make a temporary folder whose path can stand in an MLIR pass option.

    Raises
    ------
    ToolchainError
        TMPDIR has a blank, comma, brace or quote in it, and no other temporary folder is writable.
    """
    for parent in _temporary_parents():
        return _LockedFolder(parent)
    raise ToolchainError(
        Fault(
            where="temporary folder",
            what=f"{tempfile.gettempdir()} has a blank, comma, brace or quote in its path, which MLIR's pass options cannot hold",
            fix="set TMPDIR to a writable folder without them",
        )
    )


def remove_abandoned_folders() -> list[str]:
    """Remove the temporary folders of builds that were killed; return their paths."""
    removed = []
    for parent in _temporary_parents():
        for mark in sorted(Path(parent).glob(f"{_TEMPORARY}*/{_IN_USE}")):
            try:
                descriptor = os.open(mark, os.O_RDWR | os.O_NOFOLLOW)
            except OSError:
                continue
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.fstat(descriptor).st_uid == os.geteuid():
                    shutil.rmtree(mark.parent)
                    removed.append(str(mark.parent))
            except OSError:
                # In use, or a file system without locks.
                continue
            finally:
                os.close(descriptor)
    return removed
