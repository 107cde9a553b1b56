# SPDX-License-Identifier: Apache-2.0
"""A kernel whose block size an extension module tells."""

import flydsl.compiler as flyc
import flydsl.expr as fx

from scikit_kernels import threads

THREADS = threads()


@flyc.kernel
def negate_kernel(X: fx.Tensor, n: fx.Int32):
    index = fx.block_idx.x * THREADS + fx.thread_idx.x
    if index < n:
        X[index] = -X[index]


@flyc.jit
def negate(X: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
    """Negate the first n elements of X."""
    negate_kernel(X, n).launch(grid=((n + THREADS - 1) // THREADS, 1, 1), block=(THREADS, 1, 1), stream=stream)
