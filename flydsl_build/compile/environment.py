# SPDX-License-Identifier: Apache-2.0
"""The environment variables of compile processes."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["is_scrubbed", "worker_environment"]

# FlyDSL and LLVM read these; a build must not depend on what happens to be set in the shell.
_SCRUBBED = ("FLYDSL_", "HSA_OVERRIDE_GFX_VERSION", "LLVM_GFX1250_", "MLIR_", "COMPILE_ONLY", "ARCH")
_OWN_PREFIX = "FLYDSL_BUILD_"


@functools.cache
def is_scrubbed(name: str) -> bool:
    """Tell whether compile processes do not see a variable of the build's environment."""
    if name.startswith(_OWN_PREFIX):
        return False
    return any(name.startswith(one) if one.endswith("_") else name == one for one in _SCRUBBED)


def worker_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for a worker: that of the build without what would change FlyDSL's output unseen."""
    result = {name: value for name, value in environ.items() if not is_scrubbed(name)}
    result["PYTHONDONTWRITEBYTECODE"] = "1"
    result["PYTHONHASHSEED"] = "0"
    return result
