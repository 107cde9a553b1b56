# SPDX-License-Identifier: Apache-2.0
"""Declarations with members of enums."""

from enum_kernels.kinds import Level, SMode


def kernels():
    from enum_kernels.modes import Mode

    yield (
        "enum_kernels.modes:build_untold",
        {"params": {"mode": [Mode.TRIPLE, SMode.TRIPLE, Level.LOW, "TRIPLE"]}, "args": {"X": "f32[L]"}, "out": ["X"]},
    )
