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
from .launcher import Specialization, complete_type
from .module import Capability, ModuleHandle, join_path, write_global

__all__ = [
    "Capability",
    "CorruptFileError",
    "FlydslRuntimeError",
    "InitError",
    "LaunchError",
    "LoadError",
    "ModuleHandle",
    "NoDeviceError",
    "Specialization",
    "UnsupportedTargetError",
    "attach",
    "write_global",
]

complete_type()


def attach(  # noqa: PLR0913 - what a stub says
    module_name: str,
    stub_file: str,
    manifest_file: str,
    manifest_sha256: str | None,
    *,
    archs: tuple[str, ...],
    other_archs: tuple[str, ...] = (),
    load: str,
) -> ModuleHandle:
    """Make the handle of a stub. Nothing is read and nothing is loaded until `on_import()`, a call or a question.

    Parameters
    ----------
    module_name, stub_file
        The stub's `__name__` and `__file__`.
    manifest_file
        Path of the manifest from the stub's folder, with forward slashes; bundles and launcher library lie beside it.
    manifest_sha256
        Digest of the manifest in hexadecimal; None believes any.
    archs
        The targets that the module has code for.
    other_archs
        Those that only other modules of the wheel have code for.
    load
        "import" or "lazy"; `FLYDSL_BUILD_LOAD` overrides it.
    """
    return ModuleHandle(module_name, join_path(stub_file, manifest_file), manifest_sha256, archs=archs, other_archs=other_archs, load=load)
