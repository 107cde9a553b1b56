# SPDX-License-Identifier: Apache-2.0
"""Example FlyDSL kernels, shipped compiled by flydsl-build."""
