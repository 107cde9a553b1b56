# SPDX-License-Identifier: Apache-2.0
"""The Python modules that stand in a wheel where the FlyDSL source stood."""

from __future__ import annotations

from flydsl_build.consumers.python_stub.render import render_stub
from flydsl_build.consumers.templates import StubError
from flydsl_build.consumers.torch.render import render_torch_ops

__all__ = ["StubError", "render_stub", "render_torch_ops"]
