# SPDX-License-Identifier: Apache-2.0
"""The Python modules that stand in a wheel where the FlyDSL source stood."""

from __future__ import annotations

from flydsl_build.stubs.render import StubError, render_stub

__all__ = ["StubError", "render_stub"]
