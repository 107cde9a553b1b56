# SPDX-License-Identifier: Apache-2.0
"""Three externs of three files: one with the source's init function, one with the table's, one with none."""

import flydsl.compiler as flyc
import flydsl.expr as fx
from extern_kernels.state import first
from flydsl.compiler.extern_link import link_extern
from flydsl.expr.extern import ffi

# A plain ffi, which the table serves.
second_of_two = ffi("second_of_two", ["float32"], "float32")
first_of_two = link_extern(ffi("first_of_two", ["float32"], "float32"), bitcode_path="absent.bc", module_init_fn=first)


@flyc.kernel
def several_kernel(X: fx.Tensor, n: fx.Int32):
    # Made while the kernel is traced, as some libraries do.
    without_state = link_extern(ffi("without_state", ["float32"], "float32"), bitcode_path="absent.bc")
    index = fx.block_idx.x * 64 + fx.thread_idx.x
    if index < n:
        value = fx.Float32(without_state(X[index]))
        X[index] = fx.Float32(second_of_two(fx.Float32(first_of_two(value))))


@flyc.jit
def several(X: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
    """Multiply by the first state, add the second."""
    several_kernel(X, n).launch(grid=((n + 63) // 64, 1, 1), block=(64, 1, 1), stream=stream)


@flyc.kernel
def plain_kernel(X: fx.Tensor, n: fx.Int32):
    index = fx.block_idx.x * 64 + fx.thread_idx.x
    if index < n:
        X[index] = -X[index]


@flyc.jit
def plain(X: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
    """Negate; calls no extern, but is in the same code object."""
    plain_kernel(X, n).launch(grid=((n + 63) // 64, 1, 1), block=(64, 1, 1), stream=stream)
