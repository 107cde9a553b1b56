# SPDX-License-Identifier: Apache-2.0
"""A module that no kernel imports."""

# A comment.
