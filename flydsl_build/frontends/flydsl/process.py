# SPDX-License-Identifier: Apache-2.0
"""Prepare a worker process for FlyDSL: set its variables, stand in for torch, register the back end that stops before the binary."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from flydsl_build.frontends.flydsl.torch_stand_in import install_torch_stand_in
from flydsl_build.targets.processors import parse_target

if TYPE_CHECKING:
    from flydsl_build.jobs.frontend import Compile
    from flydsl_build.jobs.job import WorkerSettings

__all__ = ["start"]


def start(settings: WorkerSettings) -> Compile:
    """Prepare this process for the target of the settings; return what compiles jobs for it."""
    os.environ.pop("HSA_OVERRIDE_GFX_VERSION", None)
    # Both: with one alone, half of FlyDSL believes in gfx942.
    # A generic target is compiled as one of its members, up to the code generator.
    os.environ["ARCH"] = os.environ["FLYDSL_GPU_ARCH"] = parse_target(settings.target, where="target").chip
    os.environ["COMPILE_ONLY"] = "1"
    if "FLYDSL_RUNTIME_ENABLE_CACHE" not in dict(settings.env):
        os.environ["FLYDSL_RUNTIME_ENABLE_CACHE"] = "0"
    install_torch_stand_in()
    from flydsl_build.frontends.flydsl import adapter
    from flydsl_build.frontends.flydsl.compiler import compile_module

    adapter.register_packaging_backend()
    return compile_module
