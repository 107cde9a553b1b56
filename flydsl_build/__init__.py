# SPDX-License-Identifier: Apache-2.0
"""A PEP 517 build back end that compiles FlyDSL GPU kernels ahead of time into wheels."""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
