# SPDX-License-Identifier: Apache-2.0
"""A launcher for each element type: of tensors, pointers and scalars."""

import flydsl.compiler as flyc
import flydsl.expr as fx

# FlyDSL 0.5 passes tensors of these on, and does not read single elements of them; those of i4 and f4 it takes for a byte apart.
WHOLE = ("f8e4m3fnuz", "f8e5m2fnuz", "f6e2m3fn", "f6e3m2fn", "f4e2m1fn", "i4")


def build_copy(dtype):
    """Return a launcher that copies four elements."""

    @flyc.kernel
    def copy_kernel(A: fx.Tensor, Out: fx.Tensor):
        i = fx.thread_idx.x
        Out[i] = A[i]

    @flyc.kernel
    def touch_kernel(A: fx.Tensor, Out: fx.Tensor):
        fx.thread_idx.x

    kernel = touch_kernel if dtype in WHOLE else copy_kernel

    @flyc.jit
    def copy(A: fx.Tensor, Out: fx.Tensor, stream: fx.Stream = fx.Stream(None)):
        kernel(A, Out).launch(grid=(1, 1, 1), block=(4, 1, 1), stream=stream)

    return copy


@flyc.kernel
def pointer_kernel(p: fx.Pointer):
    fx.thread_idx.x


def build_pointer(dtype):
    """Return a launcher that takes a pointer."""

    @flyc.jit
    def take(p: fx.Pointer, stream: fx.Stream = fx.Stream(None)):
        pointer_kernel(p).launch(grid=(1, 1, 1), block=(4, 1, 1), stream=stream)

    return take


def build_scalar(dtype):
    """Return a launcher that takes a number."""

    @flyc.kernel
    def scalar_kernel(x):
        fx.thread_idx.x

    @flyc.jit
    def take(x, stream: fx.Stream = fx.Stream(None)):
        scalar_kernel(x).launch(grid=(1, 1, 1), block=(4, 1, 1), stream=stream)

    return take
