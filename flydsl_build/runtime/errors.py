# SPDX-License-Identifier: Apache-2.0
"""Errors of the run time. Standard library only: this package is copied into wheels."""

from __future__ import annotations

__all__ = [
    "CorruptFileError",
    "FlydslRuntimeError",
    "InitError",
    "LaunchError",
    "LoadError",
    "NoDeviceError",
    "UnsupportedTargetError",
    "text_of",
]


def text_of(error: BaseException) -> str:
    """Return the text of an exception of other people's code, which may itself fail: then, the name of its type."""
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a message is being made
        return type(error).__name__


class FlydslRuntimeError(RuntimeError):
    """Base of the errors that are not about the arguments of one call."""


class NoDeviceError(FlydslRuntimeError):
    """There is no HIP library or no HIP device; the text lists what was tried."""


class UnsupportedTargetError(ImportError, FlydslRuntimeError):
    """The device has a target that the wheel holds no code for."""


class CorruptFileError(FlydslRuntimeError):
    """A file of the installed package is not what the build wrote; `file` is its path, `what` is wrong with it."""

    def __init__(self, file: str, what: str, fix: str = "the installed file is damaged or was edited; reinstall the package") -> None:
        super().__init__(f"{file}: {what}\n    -> {fix}")
        self.file = file
        self.what = what


class _DriverCodeError(FlydslRuntimeError):
    """Text, and HIP's number and name of the error: 0 and "" where HIP was not asked."""

    def __init__(self, text: str, code: int = 0, name: str = "") -> None:
        super().__init__(text, code, name)
        self.code = code
        self.name = name

    def __str__(self) -> str:
        return str(self.args[0])


class LoadError(_DriverCodeError):
    """A module could not be loaded on a device."""


class InitError(LoadError):
    """An init function failed; nothing launches before a later call, or `load()`, has run it again with success."""


class LaunchError(_DriverCodeError):
    """A kernel could not be launched."""
