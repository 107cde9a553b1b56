# SPDX-License-Identifier: Apache-2.0
"""A module of a namespace package."""

import flydsl.compiler as flyc
import flydsl.expr as fx


@flyc.kernel
def add_four_kernel(X: fx.Tensor, n: fx.Int32):
    index = fx.block_idx.x * 128 + fx.thread_idx.x
    if index < n:
        X[index] = X[index] + 4.0


@flyc.jit
def add_four(X: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
    """Add 4 to each of the first n elements of X."""
    add_four_kernel(X, n).launch(grid=((n + 127) // 128, 1, 1), block=(128, 1, 1), stream=stream)
