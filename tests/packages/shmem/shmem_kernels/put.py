# SPDX-License-Identifier: Apache-2.0
"""One kernel that calls the device library, and one that does not."""

import flydsl.compiler as flyc
import flydsl.expr as fx
from shmem_kernels.device import wrappers


@flyc.kernel
def put_kernel(X: fx.Tensor, n: fx.Int32):
    index = fx.block_idx.x * 64 + fx.thread_idx.x
    if index < n:
        scaled = fx.Float32(wrappers["shmem_scale"](X[index]))
        X[index] = fx.Float32(wrappers["shmem_offset"](wrappers["shmem_rank"](), scaled))


@flyc.jit
def put(X: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
    """Scale by the library's state and add the card's number."""
    put_kernel(X, n).launch(grid=((n + 63) // 64, 1, 1), block=(64, 1, 1), stream=stream)


@flyc.kernel
def fill_kernel(X: fx.Tensor, n: fx.Int32):
    index = fx.block_idx.x * 64 + fx.thread_idx.x
    if index < n:
        X[index] = fx.Float32(3.0)


@flyc.jit
def fill(X: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
    """Write 3 to the first n elements."""
    fill_kernel(X, n).launch(grid=((n + 63) // 64, 1, 1), block=(64, 1, 1), stream=stream)
