# SPDX-License-Identifier: Apache-2.0
"""Compile declared specializations; the only room that imports flydsl, and only inside its worker processes."""
