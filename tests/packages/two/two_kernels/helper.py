# SPDX-License-Identifier: Apache-2.0
"""What both modules import."""

THREADS = 64


def scaled(value, factor):
    return value * factor
