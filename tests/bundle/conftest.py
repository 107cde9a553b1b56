# SPDX-License-Identifier: Apache-2.0
"""What the tests of bundles share with those of other rooms."""

from __future__ import annotations

from two_kernels import bundle, data, manifest, package

__all__ = ["bundle", "data", "manifest", "package"]
