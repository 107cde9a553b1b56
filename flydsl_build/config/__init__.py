# SPDX-License-Identifier: Apache-2.0
"""What the author and the builder ask for: the `[tool.flydsl-build]` table, config settings and environment variables."""

from __future__ import annotations

from .settings import base_settings, extend_with_declarations, read_settings
from .tables import AxisTable, CompileOptions, ExternTable, KernelTable, ParameterSet, Settings

__all__ = [
    "AxisTable",
    "CompileOptions",
    "ExternTable",
    "KernelTable",
    "ParameterSet",
    "Settings",
    "base_settings",
    "extend_with_declarations",
    "read_settings",
]
