# SPDX-License-Identifier: Apache-2.0
"""Forms of launch: stream in any place or none, several kernels, conditions, loops, dynamic LDS."""

import flydsl.compiler as flyc
import flydsl.expr as fx


@flyc.kernel
def touch_kernel(X: fx.Tensor, n: fx.Int32):
    i = fx.thread_idx.x
    if i < n:
        X[i] = X[i] + fx.Float32(1.0)


@flyc.kernel
def other_kernel(X: fx.Tensor):
    i = fx.thread_idx.x
    X[i] = fx.Float32(2.0)


@flyc.jit
def stream_first(stream: fx.Stream, X: fx.Tensor, n: fx.Int32 = 5):
    touch_kernel(X, n).launch(grid=(n, 1, 1), block=(64, 1, 1), stream=stream)


@flyc.jit
def no_stream(X: fx.Tensor, n: fx.Int32):
    touch_kernel(X, n).launch(grid=(n + 1, 2, 3), block=(64, 1, 1))


@flyc.jit
def conditional(X: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
    touch_kernel(X, n).launch(grid=(1, 1, 1), block=(64, 1, 1), stream=stream)
    if n > 10:
        other_kernel(X).launch(grid=(n // 10, 1, 1), block=(32, 1, 1), stream=stream)
    other_kernel(X).launch(grid=(7, 1, 1), block=(64, 1, 1), stream=stream)


@flyc.jit
def looped(X: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
    for step in range(n):
        touch_kernel(X, fx.Int32(step)).launch(grid=(step + 1, 1, 1), block=(64, 1, 1), stream=stream)


@flyc.jit
def dynamic_lds(X: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
    touch_kernel(X, n).launch(grid=(1, 1, 1), block=(64, 1, 1), smem=n * 128, stream=stream)
