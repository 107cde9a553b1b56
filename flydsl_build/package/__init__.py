# SPDX-License-Identifier: Apache-2.0
"""From settings to a wheel: pipeline, assembly, placement, forms of a wheel."""
