# SPDX-License-Identifier: Apache-2.0
"""Find and open the one `libamdhip64` of this process."""

from __future__ import annotations

import os
import sys

from . import _native
from .annotations import Any, Callable
from .errors import LoadError, NoDeviceError
from .process import debug, driver_lock

__all__ = ["ask_driver", "open_driver"]

_NAME = "libamdhip64.so"
_SONAMES = (f"{_NAME}.7", f"{_NAME}.6", f"{_NAME}.5", _NAME)
_SETTING = "FLYDSL_BUILD_HIP_LIBRARY"


def _mapped() -> list[str]:
    """Return the copies that the process has mapped: with a second one, streams of the first are invalid (error 709)."""
    found: list[str] = []
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            for line in maps:
                path = line.rstrip("\n").partition("/")
                file = path[1] + path[2]
                if os.path.basename(file).startswith(_NAME) and file not in found:
                    found.append(file)
    except OSError:
        pass
    return found


def _package_folder(package: str) -> str | None:
    """Return the folder of a package without importing it."""
    loaded = sys.modules.get(package)
    if loaded is not None and getattr(loaded, "__path__", None):
        return str(next(iter(loaded.__path__)))
    from importlib.machinery import PathFinder

    spec = PathFinder.find_spec(package)
    locations = list(spec.submodule_search_locations or ()) if spec is not None else []
    return locations[0] if locations else None


def _in_folder(folder: str) -> list[str]:
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    found = [name for name in names if name == _NAME or name.startswith(f"{_NAME}.")]
    # The soname first, as other users of the folder would load it; a bare name is often only for linking.
    found.sort(key=lambda name: (_SONAMES.index(name) if name in _SONAMES else len(_SONAMES), name))
    return [os.path.join(folder, name) for name in found[:1]]


def _candidates() -> Any:
    """Yield (where, path, only if mapped), in order of preference."""
    mapped = _mapped()
    for path in (*mapped, *(_SONAMES if mapped else ())):
        yield "mapped into this process", path, True
    setting = os.environ.get(_SETTING)
    if setting:
        yield _SETTING, setting, False
        return
    folders = [(f"the installed package {package}", _package_folder(package)) for package in ("_rocm_sdk_core", "torch")]
    folders += [(variable, os.environ.get(variable)) for variable in ("ROCM_PATH", "HIP_PATH")]
    for where, folder in (*folders, ("/opt/rocm", "/opt/rocm")):
        if folder:
            for path in _in_folder(os.path.join(folder, "lib")):
                yield where, path, False
    for name in _SONAMES:
        yield "the system's library path", name, False


def open_driver() -> None:
    """Open and initialise the driver library, once in a process.

    Raises
    ------
    NoDeviceError
        If no library is found, or the one found has no device. The text lists every place that was tried.
    """
    if _native.is_open():
        return
    with driver_lock():
        if _native.is_open():
            return
        trace: list[str] = []
        for where, path, mapped_only in _candidates():
            try:
                _refuse_special(path)
                _native.open_driver(path, mapped_only)
            except _native.DriverError as error:
                text, code, _ = error.args
                debug("driver: %s: %s: %s", where, path, text)
                # What dlopen says names the file.
                trace.append(f"{where}: {text}" if path in text else f"{where}: {path}: {text}")
                if code:  # the right library; another copy would say the same, or worse, be a second one
                    fix = f"see whether rocminfo finds one, and HIP_VISIBLE_DEVICES; {_SETTING} names another library to use"
                    raise _no_device(text, trace, fix) from None
            else:
                debug("driver: %s: %s: opened", where, path)
                return
        setting = os.environ.get(_SETTING)
        if setting:
            why = f"{_SETTING} is set to {setting!r}, which {_fault_of(setting, trace[-1])}"
            raise _no_device(why, trace, f"set it to the path of HIP's library, such as {_example(setting)}, or unset it")
        why = "no usable libamdhip64 was found"
        raise _no_device(why, trace, f"install ROCm's HIP run time, or set {_SETTING} to the path of its library")


def _refuse_special(path: str) -> None:
    """Refuse what is no regular file: dlopen would wait for the writer of a pipe."""
    if os.sep in path and os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise _native.DriverError("it is no regular file", 0, "")


def _fault_of(setting: str, text: str) -> str:
    """Return what is wrong with the library that the setting names, of which `text` is what the loader says."""
    if os.path.isdir(setting):
        return "is a folder"
    if "no regular file" in text:
        return "is no regular file"
    if "has no symbol" in text:
        return "is not HIP's library"
    try:
        with open(setting, "rb") as file:
            return "cannot be loaded" if file.read(4) == b"\x7fELF" else "is no shared library"
    except FileNotFoundError:
        # The dynamic linker looks for a bare name in its own folders.
        return "does not exist" if os.sep in setting else "is not found"
    except OSError:
        return "cannot be read"


def _example(setting: str) -> str:
    """Return the library in the folder that the setting names, or below it; else the path where ROCm has it."""
    folders = (setting, os.path.join(setting, "lib"))
    return next((path for folder in folders for path in _in_folder(folder)), f"/opt/rocm/lib/{_NAME}")


def ask_driver(question: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of the native module; what the driver refuses is a LoadError."""
    try:
        return question(*arguments)
    except _native.DriverError as error:
        text, code, name = error.args
        raise LoadError(text, code, name) from None


def _no_device(why: str, trace: list[str], fix: str) -> NoDeviceError:
    lines = "".join(f"\n    {line}" for line in trace)
    return NoDeviceError(f"there is no HIP device: {why}; tried:{lines}\n    -> {fix}")
