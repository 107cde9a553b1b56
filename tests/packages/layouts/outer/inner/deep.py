# SPDX-License-Identifier: Apache-2.0
"""A module of a sub-package."""

import flydsl.compiler as flyc
import flydsl.expr as fx


@flyc.kernel
def add_three_kernel(X: fx.Tensor, n: fx.Int32):
    index = fx.block_idx.x * 96 + fx.thread_idx.x
    if index < n:
        X[index] = X[index] + 3.0


@flyc.jit
def add_three(X: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
    """Add 3 to each of the first n elements of X."""
    add_three_kernel(X, n).launch(grid=((n + 95) // 96, 1, 1), block=(96, 1, 1), stream=stream)
