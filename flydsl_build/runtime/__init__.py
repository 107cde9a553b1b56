# SPDX-License-Identifier: Apache-2.0
"""The run time of FlyDSL kernel wheels: load code objects, run init functions, launch.

A private copy of this package is in every wheel that flydsl-build makes, so it imports the standard library only, itself
only relatively, and as little as it can when it is imported.
"""

from __future__ import annotations

from .errors import (
    CorruptFileError,
    FlydslRuntimeError,
    InitError,
    LaunchError,
    LoadError,
    NoDeviceError,
    UnsupportedTargetError,
)
from .launcher import complete_type
from .module import ModuleHandle, load_mode, write_global
from .process import debug

__all__ = [
    "CorruptFileError",
    "FlydslRuntimeError",
    "InitError",
    "LaunchError",
    "LoadError",
    "ModuleHandle",
    "NoDeviceError",
    "UnsupportedTargetError",
    "attach",
    "write_global",
]

complete_type()


def attach(module_name: str, manifest_file: str, manifest_sha256: str | None, load: str | None = None) -> ModuleHandle:
    """Make the handle of a stub; in the mode "import", load the module on the current device.

    Parameters
    ----------
    module_name
        The stub's `__name__`.
    manifest_file
        Path of the manifest; bundles and launcher library lie beside it.
    manifest_sha256
        Digest of the manifest in hexadecimal.
    load
        "import" or "lazy"; None reads it from the manifest. `FLYDSL_BUILD_LOAD` overrides both.

    Raises
    ------
    UnsupportedTargetError
        If there is a device, and the wheel has no code for it.
    """
    handle = ModuleHandle(module_name, manifest_file, manifest_sha256)
    if load_mode(handle, load) == "import":
        from .driver import open_driver  # noqa: PLC0415 - looked for only here

        try:
            open_driver()
        except NoDeviceError as error:
            # A machine without a GPU may import the package; the first call raises.
            debug("%s: %s", module_name, error)
        else:
            handle.load()
    return handle
