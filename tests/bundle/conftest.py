# SPDX-License-Identifier: Apache-2.0
"""What the tests of bundles share with those of other rooms."""

from __future__ import annotations

from sample_bundle import bundle, data, manifest, package

__all__ = ["bundle", "data", "manifest", "package"]
