# SPDX-License-Identifier: Apache-2.0
"""A package whose own module has kernels."""

import flydsl.compiler as flyc
import flydsl.expr as fx


@flyc.kernel
def add_two_kernel(X: fx.Tensor, n: fx.Int32):
    index = fx.block_idx.x * 64 + fx.thread_idx.x
    if index < n:
        X[index] = X[index] + 2.0


@flyc.jit
def add_two(X: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
    """Add 2 to each of the first n elements of X."""
    add_two_kernel(X, n).launch(grid=((n + 63) // 64, 1, 1), block=(64, 1, 1), stream=stream)
