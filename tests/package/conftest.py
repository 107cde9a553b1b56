# SPDX-License-Identifier: Apache-2.0
"""What the tests of packaging share with those of other rooms."""

from __future__ import annotations

from sample_bundle import bundle, manifest

__all__ = ["bundle", "manifest"]
