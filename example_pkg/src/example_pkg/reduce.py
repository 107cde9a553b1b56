# SPDX-License-Identifier: Apache-2.0
"""Row reductions that go across wavefronts through LDS, for wavefronts of 32 and 64 lanes."""

import math

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr import gpu
from flydsl.expr import math as fmath
from flydsl.runtime.device import get_warp_size

COLUMNS = 1024
THREADS = 256
PER_THREAD = COLUMNS // THREADS
WAVEFRONT = get_warp_size()
WAVEFRONTS = THREADS // WAVEFRONT


@fx.struct
class SharedStorage:
    """One partial result a wavefront, for each of the two reductions: no slot is reused, so two barriers are enough."""

    maxima: fx.Array[fx.Float32, WAVEFRONTS, 16]
    sums: fx.Array[fx.Float32, WAVEFRONTS, 16]


@flyc.kernel
def row_softmax_kernel(X: fx.Tensor, Out: fx.Tensor):
    row = fx.block_idx.x
    thread = fx.thread_idx.x
    lane = thread % WAVEFRONT
    wavefront = thread // WAVEFRONT
    shared = fx.SharedAllocator().allocate(SharedStorage).peek()
    maxima = shared.maxima.view(fx.make_layout(WAVEFRONTS, 1))
    sums = shared.sums.view(fx.make_layout(WAVEFRONTS, 1))

    values = [X[row, thread + index * THREADS] for index in fx.range_constexpr(PER_THREAD)]

    largest = values[0]
    for index in fx.range_constexpr(1, PER_THREAD):
        largest = fx.max(largest, values[index])
    for step in fx.range_constexpr(int(math.log2(WAVEFRONT))):
        largest = fx.max(largest, largest.shuffle_xor(WAVEFRONT >> (step + 1), WAVEFRONT))
    if lane == 0:
        fx.memref_store(largest, maxima, wavefront)
    gpu.barrier()
    largest = fx.memref_load(maxima, 0)
    for index in fx.range_constexpr(1, WAVEFRONTS):
        largest = fx.max(largest, fx.memref_load(maxima, index))

    exponentials = [fmath.exp(value - largest) for value in values]
    total = exponentials[0]
    for index in fx.range_constexpr(1, PER_THREAD):
        total = total + exponentials[index]
    for step in fx.range_constexpr(int(math.log2(WAVEFRONT))):
        total = total + total.shuffle_xor(WAVEFRONT >> (step + 1), WAVEFRONT)
    if lane == 0:
        fx.memref_store(total, sums, wavefront)
    gpu.barrier()
    total = fx.memref_load(sums, 0)
    for index in fx.range_constexpr(1, WAVEFRONTS):
        total = total + fx.memref_load(sums, index)

    for index in fx.range_constexpr(PER_THREAD):
        Out[row, thread + index * THREADS] = exponentials[index] / total


@flyc.jit
def row_softmax(X: fx.Tensor, Out: fx.Tensor, rows: fx.Int32, stream: fx.Stream = fx.Stream(None)):
    """Write the softmax of each of the first `rows` rows of X to Out. Both are f32[M, 1024]."""
    row_softmax_kernel(X, Out).launch(grid=(rows, 1, 1), block=(THREADS, 1, 1), stream=stream)
