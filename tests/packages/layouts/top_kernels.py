# SPDX-License-Identifier: Apache-2.0
"""A module that is in no package."""

import flydsl.compiler as flyc
import flydsl.expr as fx


@flyc.kernel
def add_one_kernel(X: fx.Tensor, n: fx.Int32):
    index = fx.block_idx.x * 32 + fx.thread_idx.x
    if index < n:
        X[index] = X[index] + 1.0


@flyc.jit
def add_one(X: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
    """Add 1 to each of the first n elements of X."""
    add_one_kernel(X, n).launch(grid=((n + 31) // 32, 1, 1), block=(32, 1, 1), stream=stream)
