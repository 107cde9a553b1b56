# SPDX-License-Identifier: Apache-2.0
"""Factories of every form: they return a launcher, a tuple, a dict, a named tuple; or they are classes."""

from typing import NamedTuple, Type

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.runtime.device import get_warp_size

LANES = get_warp_size()


@flyc.kernel
def add_kernel(X: fx.Tensor, n: fx.Int32, amount: fx.Constexpr[float]):
    index = fx.block_idx.x * 64 + fx.thread_idx.x
    if index < n:
        X[index] = X[index] + fx.Float32(amount)


@flyc.kernel
def convert_kernel(X: fx.Tensor, Out: fx.Tensor, n: fx.Int32, dtype: Type[fx.Numeric]):
    index = fx.block_idx.x * 64 + fx.thread_idx.x
    if index < n:
        Out[index] = dtype(X[index])


@flyc.jit
def convert(
    X: fx.Tensor,
    Out: fx.Tensor,
    n: fx.Int32,
    dtype: Type[fx.Numeric] = fx.Float32,
    stream: fx.Stream = fx.Stream(None),
):
    """Write X to Out, converted."""
    convert_kernel(X, Out, n, dtype).launch(grid=((n + 63) // 64, 1, 1), block=(64, 1, 1), stream=stream)


def keep(value):
    return value


def build_scale(N, store_stats=False, factor=2.0, *, lanes=LANES, activation=keep):
    """Return a launcher that multiplies rows of N by a factor.

    `lanes` differs between chips, and `activation` is a function.
    """

    @flyc.kernel
    def scale_kernel(X: fx.Tensor):
        row = fx.block_idx.x
        column = fx.thread_idx.x
        X[row, column] = activation(X[row, column] * fx.Float32(factor))

    @flyc.kernel
    def scale_and_count_kernel(X: fx.Tensor, Stats: fx.Tensor):
        row = fx.block_idx.x
        column = fx.thread_idx.x
        X[row, column] = activation(X[row, column] * fx.Float32(factor))
        if column == 0:
            Stats[row] = fx.Float32(float(lanes))

    @flyc.jit
    def scale(X: fx.Tensor, rows: fx.Int32, stream: fx.Stream = fx.Stream(None)):
        scale_kernel(X).launch(grid=(rows, 1, 1), block=(64, 1, 1), stream=stream)

    @flyc.jit
    def scale_and_count(X: fx.Tensor, Stats: fx.Tensor, rows: fx.Int32, stream: fx.Stream = fx.Stream(None)):
        scale_and_count_kernel(X, Stats).launch(grid=(rows, 1, 1), block=(64, 1, 1), stream=stream)

    return scale_and_count if store_stats else scale


def build_pair(N, dtype_str="f32"):
    """Return two launchers with different parameters."""

    @flyc.kernel
    def forward_kernel(X: fx.Tensor, block: fx.Constexpr[int]):
        row = fx.block_idx.x
        column = fx.thread_idx.x
        X[row, column] = X[row, column] * fx.Float32(float(block))

    @flyc.kernel
    def backward_kernel(X: fx.Tensor, Y: fx.Tensor):
        row = fx.block_idx.x
        column = fx.thread_idx.x
        Y[row, column] = X[row, column]

    @flyc.jit
    def forward(X: fx.Tensor, rows: fx.Int32, block: fx.Constexpr[int], stream: fx.Stream = fx.Stream(None)):
        forward_kernel(X, block).launch(grid=(rows, 1, 1), block=(64, 1, 1), stream=stream)

    @flyc.jit
    def backward(X: fx.Tensor, Y: fx.Tensor, rows: fx.Int32, stream: fx.Stream = fx.Stream(None)):
        backward_kernel(X, Y).launch(grid=(rows, 1, 1), block=(64, 1, 1), stream=stream)

    return forward, backward


def build_table():
    """Return a launcher and its kernel."""

    @flyc.jit
    def launch(X: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
        add_kernel(X, n, 1.0).launch(grid=((n + 63) // 64, 1, 1), block=(64, 1, 1), stream=stream)

    return {"launch": launch, "kernel": add_kernel}


def _launcher_that_adds(amount):
    @flyc.jit
    def add(X: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
        add_kernel(X, n, amount).launch(grid=((n + 63) // 64, 1, 1), block=(64, 1, 1), stream=stream)

    return add


class Ways(NamedTuple):
    up: object
    down: object


def build_named():
    return Ways(_launcher_that_adds(1.0), _launcher_that_adds(-1.0))


class Shift:
    """Launchers that add an amount, and take it away."""

    def __init__(self, amount, scale=1.0):
        self.amount = amount * scale

    @flyc.jit
    def run(self, X: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
        add_kernel(X, n, self.amount).launch(grid=((n + 63) // 64, 1, 1), block=(64, 1, 1), stream=stream)

    @flyc.jit
    def undo(self, X: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
        add_kernel(X, n, -self.amount).launch(grid=((n + 63) // 64, 1, 1), block=(64, 1, 1), stream=stream)


class Callable:
    """A class whose instances are launchers."""

    def __init__(self, amount):
        self.amount = amount

    @flyc.jit
    def __call__(self, X: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
        add_kernel(X, n, self.amount).launch(grid=((n + 63) // 64, 1, 1), block=(64, 1, 1), stream=stream)
