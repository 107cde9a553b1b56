# SPDX-License-Identifier: Apache-2.0
"""A launcher for each element type: of tensors, pointers and scalars."""

import flydsl.compiler as flyc
import flydsl.expr as fx

from flydsl_build.dtypes import NOT_INDEXED

def build_copy(dtype):
    """Return a launcher that copies four elements."""

    @flyc.kernel
    def copy_kernel(A: fx.Tensor, Out: fx.Tensor):
        i = fx.thread_idx.x
        Out[i] = A[i]

    @flyc.kernel
    def touch_kernel(A: fx.Tensor, Out: fx.Tensor):
        fx.thread_idx.x

    kernel = touch_kernel if dtype in NOT_INDEXED else copy_kernel

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


def build_indexed(dtype, step=1):
    """Return a launcher whose kernel takes single elements of two arguments."""

    @flyc.kernel
    def indexed_kernel(A, B):
        i = fx.thread_idx.x
        B[i] = A[i + 4 // step]

    @flyc.jit
    def take(A, B, stream: fx.Stream = fx.Stream(None)):
        indexed_kernel(A, B).launch(grid=(1, 1, 1), block=(4, 1, 1), stream=stream)

    return take


def build_buffered(dtype, whole):
    """Return a launcher whose kernel copies eight elements at once, or takes single ones, through buffer resources."""

    @flyc.kernel
    def buffered_kernel(A: fx.Tensor, Out: fx.Tensor):
        i = fx.block_idx.x
        a, out = fx.rocdl.make_buffer_tensor(A), fx.rocdl.make_buffer_tensor(Out)
        if fx.const_expr(whole):
            atom = fx.make_copy_atom(fx.rocdl.BufferCopy32b(), A.element_type)
            held = fx.make_rmem_tensor(8, A.element_type)
            fx.copy_atom_call(atom, fx.slice(fx.zipped_divide(a, fx.make_tile(8)), (None, i)), held)
            fx.copy_atom_call(atom, held, fx.slice(fx.zipped_divide(out, fx.make_tile(8)), (None, i)))
        else:
            out[i] = a[i]

    @flyc.jit
    def take(A: fx.Tensor, Out: fx.Tensor, stream: fx.Stream = fx.Stream(None)):
        buffered_kernel(A, Out).launch(grid=(2, 1, 1), block=(1, 1, 1), stream=stream)

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
