# SPDX-License-Identifier: Apache-2.0
"""A module of the namespace package that another distribution has modules in, too."""

import flydsl.compiler as flyc
import flydsl.expr as fx


@flyc.kernel
def halve_kernel(X: fx.Tensor, n: fx.Int32):
    index = fx.block_idx.x * 192 + fx.thread_idx.x
    if index < n:
        X[index] = X[index] * 0.5


@flyc.jit
def halve(X: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
    """Halve each of the first n elements of X."""
    halve_kernel(X, n).launch(grid=((n + 191) // 192, 1, 1), block=(192, 1, 1), stream=stream)
