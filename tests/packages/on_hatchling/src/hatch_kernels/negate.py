# SPDX-License-Identifier: Apache-2.0
"""The smallest useful kernel."""

import flydsl.compiler as flyc
import flydsl.expr as fx


@flyc.kernel
def negate_kernel(X: fx.Tensor, n: fx.Int32):
    index = fx.block_idx.x * 64 + fx.thread_idx.x
    if index < n:
        X[index] = -X[index]


@flyc.jit
def negate(X: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
    """Negate the first n elements of X."""
    negate_kernel(X, n).launch(grid=((n + 63) // 64, 1, 1), block=(64, 1, 1), stream=stream)
