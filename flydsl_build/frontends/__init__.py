# SPDX-License-Identifier: Apache-2.0
"""Turn declarations into code objects and launchers; imported in compile processes only."""
