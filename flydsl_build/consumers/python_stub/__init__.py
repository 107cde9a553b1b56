# SPDX-License-Identifier: Apache-2.0
"""Python callers: the stub that stands in the place of a declared module."""
