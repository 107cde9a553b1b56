# SPDX-License-Identifier: Apache-2.0
"""What the tests of targets share with those of other rooms."""

from __future__ import annotations

from sample_bundle import bundle, data

__all__ = ["bundle", "data"]
