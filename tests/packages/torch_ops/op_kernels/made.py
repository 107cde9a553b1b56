# SPDX-License-Identifier: Apache-2.0
"""Factories of every form."""

from typing import NamedTuple, Type

import flydsl.compiler as flyc
import flydsl.expr as fx


@flyc.kernel
def add_kernel(X: fx.Tensor, n: fx.Int32, amount: fx.Constexpr[float]):
    index = fx.block_idx.x * 64 + fx.thread_idx.x
    if index < n:
        X[index] = X[index] + fx.Float32(amount)


def keep(value):
    return value


def build_scale(N, factor=2.0, *, activation=keep):
    """Return a launcher that multiplies rows of N by a factor."""

    @flyc.kernel
    def scale_kernel(X: fx.Tensor, Out: fx.Tensor):
        row = fx.block_idx.x
        column = fx.thread_idx.x
        Out[row, column] = activation(X[row, column] * fx.Float32(float(factor)))

    @flyc.jit
    def scale(X: fx.Tensor, Out: fx.Tensor, rows: fx.Int32, stream: fx.Stream = fx.Stream(None)):
        scale_kernel(X, Out).launch(grid=(rows, N if isinstance(factor, int) else 1, 1), block=(64, 1, 1), stream=stream)

    return scale


def build_typed(dtype: Type[fx.Numeric]):
    @flyc.kernel
    def one_kernel(X: fx.Tensor):
        X[fx.thread_idx.x] = dtype(1)

    @flyc.jit
    def one(X: fx.Tensor, stream: fx.Stream = fx.Stream(None)):
        one_kernel(X).launch(grid=(1, 1, 1), block=(64, 1, 1), stream=stream)

    return one


def build_pair(shape):
    """Return two launchers with different parameters."""

    @flyc.kernel
    def copy_kernel(X: fx.Tensor, Y: fx.Tensor):
        Y[fx.thread_idx.x] = X[fx.thread_idx.x]

    @flyc.jit
    def forward(X: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
        add_kernel(X, n, float(shape[0])).launch(grid=((n + 63) // 64, 1, 1), block=(64, 1, 1), stream=stream)

    @flyc.jit
    def backward(X: fx.Tensor, Y: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
        copy_kernel(X, Y).launch(grid=(n, 1, 1), block=(64, 1, 1), stream=stream)

    return forward, backward


def _launcher_that_adds(amount):
    @flyc.jit
    def add(X: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
        add_kernel(X, n, amount).launch(grid=((n + 63) // 64, 1, 1), block=(64, 1, 1), stream=stream)

    return add


def build_table():
    return {"launch": _launcher_that_adds(3.0), "kernel": add_kernel}


class Ways(NamedTuple):
    up: object
    down: object


def build_named():
    return Ways(_launcher_that_adds(1.0), _launcher_that_adds(-1.0))


class Shift:
    """Launchers that add an amount, and take it away."""

    def __init__(self, amount):
        self.amount = amount

    @flyc.jit
    def run(self, X: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
        add_kernel(X, n, self.amount).launch(grid=((n + 63) // 64, 1, 1), block=(64, 1, 1), stream=stream)

    @flyc.jit
    def undo(self, X: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
        add_kernel(X, n, -self.amount).launch(grid=((n + 63) // 64, 1, 1), block=(64, 1, 1), stream=stream)
