# SPDX-License-Identifier: Apache-2.0
"""Uses the helper, and calls external device code."""

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr.extern import ffi

from two_kernels.helper import THREADS

shift = ffi("shift", ["float32"], "float32")


@flyc.kernel
def second_kernel(X: fx.Tensor, n: fx.Int32):
    index = fx.block_idx.x * THREADS + fx.thread_idx.x
    if index < n:
        X[index] = fx.Float32(shift(X[index]))


@flyc.jit
def second(X: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
    """Shift the first n elements of X."""
    second_kernel(X, n).launch(grid=((n + THREADS - 1) // THREADS, 1, 1), block=(THREADS, 1, 1), stream=stream)
