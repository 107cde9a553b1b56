# SPDX-License-Identifier: Apache-2.0
"""Describe the FlyDSL front end to the build, without importing FlyDSL."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import os
from pathlib import Path

from flydsl_build.editable.resolution import digest_of_record
from flydsl_build.jobs.frontend import Frontend

__all__ = ["FRONTEND"]


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("flydsl")
    except metadata.PackageNotFoundError:
        return "none"


@functools.cache
def _digest() -> str:
    """Return a digest of the FlyDSL that compile processes will import, without importing it.

    An installed one is described by its RECORD. A source tree, which has none that holds, is by sizes and times.
    """
    from importlib import metadata

    spec = importlib.util.find_spec("flydsl")
    origin = spec.origin if spec is not None and spec.origin else ""
    try:
        found = metadata.distribution("flydsl")
    except metadata.PackageNotFoundError:
        found = None
    if found is not None and origin and os.path.realpath(str(found.locate_file("flydsl/__init__.py"))) == os.path.realpath(origin):
        record = found.read_text("RECORD")
        if record and "flydsl/__init__.py," in record:
            return f"{found.version} {digest_of_record(record)}"
    if not origin:
        return ""
    folder = Path(origin).parent
    states = []
    for path in sorted(folder.rglob("*")):
        if path.suffix != ".pyc" and path.is_file():
            status = path.stat()
            states.append([str(path.relative_to(folder)), status.st_size, status.st_mtime_ns])
    return hashlib.sha256(json.dumps(states).encode()).hexdigest()


FRONTEND = Frontend(
    name="flydsl",
    title="FlyDSL",
    # flydsl imports numpy without declaring it.
    requirements=("flydsl>=0.5,<0.6", "numpy"),
    import_check="import flydsl._mlir.ir",
    packages=("flydsl",),
    # It imports torch; compile processes have a stand-in.
    imported_by_sources=("flydsl", "torch"),
    # LLVM reads some of them.
    variables=("FLYDSL_", "HSA_OVERRIDE_GFX_VERSION", "LLVM_GFX1250_", "MLIR_", "COMPILE_ONLY", "ARCH"),
    version=_version,
    digest=_digest,
    # Modules compute constants from the architecture when they are imported.
    is_bound_to_target=True,
    start="flydsl_build.frontends.flydsl.process:start",
)
