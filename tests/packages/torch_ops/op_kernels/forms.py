# SPDX-License-Identifier: Apache-2.0
"""Launchers with every kind of argument that an op of torch can have, and one that it cannot."""

from typing import Type

import flydsl.compiler as flyc
import flydsl.expr as fx


@fx.struct
class Config:
    scale: fx.Float32


@flyc.kernel
def add_kernel(A: fx.Tensor, B: fx.Tensor, C: fx.Tensor):
    row = fx.block_idx.x
    column = fx.thread_idx.x
    C[row, column] = A[row, column] + B[row, column]


@flyc.jit
def add(A: fx.Tensor, B: fx.Tensor, C: fx.Tensor, stream: fx.Stream = fx.Stream(None)):
    """Write A + B to C."""
    rows, columns = C.shape.unpack()
    add_kernel(A, B, C).launch(grid=(rows, 1, 1), block=(64, 1, 1), stream=stream)


@flyc.kernel
def fill_kernel(X: fx.Pointer, value: fx.Float32, lanes: fx.Constexpr[int]):
    fx.thread_idx.x


@flyc.jit
def fill(
    X: fx.Pointer,
    value: fx.Float32,
    count: fx.Int32,
    flag: fx.Boolean = True,
    *,
    tile: fx.Constexpr[tuple],
    mode: fx.Constexpr[str] = "zero",
    stream: fx.Stream = fx.Stream(None),
):
    lanes = tile[0] + (100 if mode == "zero" else 0)
    fill_kernel(X, value, lanes).launch(grid=(count, 1, 1), block=(64, 1, 1), stream=stream)


@flyc.kernel
def convert_kernel(X: fx.Tensor, Out: fx.Tensor, n: fx.Int32, dtype: Type[fx.Numeric]):
    index = fx.block_idx.x * 64 + fx.thread_idx.x
    if index < n:
        Out[index] = dtype(X[index])


@flyc.jit
def convert(
    X: fx.Tensor, Out: fx.Tensor, n: fx.Int32, dtype: Type[fx.Numeric] = fx.Float32, stream: fx.Stream = fx.Stream(None)
):
    convert_kernel(X, Out, n, dtype).launch(grid=((n + 63) // 64, 1, 1), block=(64, 1, 1), stream=stream)


@flyc.kernel
def touch_kernel(X: fx.Tensor, n: fx.Int32):
    index = fx.thread_idx.x
    if index < n:
        X[index] = X[index] + fx.Float32(1.0)


@flyc.jit
def without_stream(X: fx.Tensor, n: fx.Int32):
    touch_kernel(X, n).launch(grid=(1, 1, 1), block=(64, 1, 1))


@flyc.jit
def effect(X: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
    touch_kernel(X, n).launch(grid=(n, 1, 1), block=(64, 1, 1), stream=stream)


@flyc.kernel
def struct_kernel(X: fx.Tensor, config: Config):
    X[fx.thread_idx.x] = config.scale


@flyc.jit
def with_struct(X: fx.Tensor, config: Config, stream: fx.Stream = fx.Stream(None)):
    struct_kernel(X, config).launch(grid=(1, 1, 1), block=(64, 1, 1), stream=stream)
