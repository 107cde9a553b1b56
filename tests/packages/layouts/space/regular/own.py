# SPDX-License-Identifier: Apache-2.0
"""A module of a regular package in a namespace package."""

import flydsl.compiler as flyc
import flydsl.expr as fx


@flyc.kernel
def add_five_kernel(X: fx.Tensor, n: fx.Int32):
    index = fx.block_idx.x * 160 + fx.thread_idx.x
    if index < n:
        X[index] = X[index] + 5.0


@flyc.jit
def add_five(X: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
    """Add 5 to each of the first n elements of X."""
    add_five_kernel(X, n).launch(grid=((n + 159) // 160, 1, 1), block=(160, 1, 1), stream=stream)
