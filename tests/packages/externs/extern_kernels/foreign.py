# SPDX-License-Identifier: Apache-2.0
"""A kernel whose init function belongs to another distribution."""

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr.extern import ffi

of_foreign = ffi("of_foreign", ["float32"], "float32")


@flyc.kernel
def foreign_kernel(X: fx.Tensor, n: fx.Int32):
    index = fx.block_idx.x * 64 + fx.thread_idx.x
    if index < n:
        X[index] = fx.Float32(of_foreign(X[index]))


@flyc.jit
def foreign(X: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
    """Subtract the state."""
    foreign_kernel(X, n).launch(grid=((n + 63) // 64, 1, 1), block=(64, 1, 1), stream=stream)
