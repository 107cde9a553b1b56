# SPDX-License-Identifier: Apache-2.0
"""Elementwise kernels in f32: vectorised, predicated, correct for any shape."""

import flydsl.compiler as flyc
import flydsl.expr as fx

AXPY_THREADS = 256
VECTOR_ADD_THREADS = 128
VECTOR = 4


def _add_where_inside(A, B, C, tiled_copy, copy_atom, coordinates, inside_of):
    """Add one tile of A and B into C with copies of one width, each only where `inside_of(coordinate)` holds."""
    tile = tiled_copy.tile_mn
    block = (None, None, fx.block_idx.x, fx.block_idx.y)
    thread_copy = tiled_copy.get_slice(fx.thread_idx.x)
    thread_a = thread_copy.partition_S(fx.flat_divide(A, tile)[block])
    thread_b = thread_copy.partition_S(fx.flat_divide(B, tile)[block])
    thread_c = thread_copy.partition_D(fx.flat_divide(C, tile)[block])
    # The first coordinate of each copy: one predicate a copy, whatever its width.
    first = thread_copy.partition_S(fx.flat_divide(coordinates, tile)[block])[(0, None), None, None]

    inside = fx.make_fragment_like(first, dtype=fx.Boolean)
    for index in fx.range_constexpr(fx.size(inside.shape).unpack()):
        inside[index] = inside_of(first[index])

    fragment_a = fx.make_fragment_like(thread_a)
    fragment_b = fx.make_fragment_like(thread_b)
    fragment_c = fx.make_fragment_like(thread_c)
    fx.copy(copy_atom, thread_a, fragment_a, pred=inside)
    fx.copy(copy_atom, thread_b, fragment_b, pred=inside)
    fragment_c.store(fragment_a.load() + fragment_b.load())
    fx.copy(copy_atom, fragment_c, thread_c, pred=inside)


@flyc.kernel
def vector_add_kernel(A: fx.Tensor, B: fx.Tensor, C: fx.Tensor, vector_copy: fx.TiledCopy, scalar_copy: fx.TiledCopy):
    rows, columns = A.shape.unpack()
    coordinates = fx.make_view((0, 0), fx.make_identity_layout((rows, columns)))
    # Columns that whole vectors cover; the rest of a row is copied element by element, since a vector would run into the next row.
    whole = columns // VECTOR * VECTOR

    _add_where_inside(
        A,
        B,
        C,
        vector_copy,
        fx.make_copy_atom(fx.UniversalCopy128b(), fx.Float32),
        coordinates,
        lambda coordinate: fx.elem_less(coordinate, (rows, whole)),
    )
    _add_where_inside(
        A,
        B,
        C,
        scalar_copy,
        fx.make_copy_atom(fx.UniversalCopy32b(), fx.Float32),
        coordinates,
        lambda coordinate: fx.elem_less(coordinate, (rows, columns)) & fx.elem_less((-1, whole - 1), coordinate),
    )


@flyc.jit
def vector_add(A: fx.Tensor, B: fx.Tensor, C: fx.Tensor, stream: fx.Stream = fx.Stream(None)):
    """Write A + B to C. All three are f32[M, N] with unit stride in the last dimension."""
    threads = fx.make_ordered_layout((8, 16), order=(1, 0))
    values = fx.make_ordered_layout((1, VECTOR), order=(0, 1))
    vector_copy = fx.make_tiled_copy_tv(fx.make_copy_atom(fx.UniversalCopy128b(), fx.Float32), threads, values)
    scalar_copy = fx.make_tiled_copy_tv(fx.make_copy_atom(fx.UniversalCopy32b(), fx.Float32), threads, values)
    tile_rows, tile_columns = vector_copy.tile_mn.unpack()
    rows, columns = A.shape.unpack()
    vector_add_kernel(A, B, C, vector_copy, scalar_copy).launch(
        grid=((rows + tile_rows - 1) // tile_rows, (columns + tile_columns - 1) // tile_columns, 1),
        block=(VECTOR_ADD_THREADS, 1, 1),
        stream=stream,
    )


@flyc.kernel
def axpy_kernel(alpha: fx.Float32, X: fx.Tensor, Y: fx.Tensor, n: fx.Int32):
    index = fx.block_idx.x * AXPY_THREADS + fx.thread_idx.x
    if index < n:
        Y[index] = alpha * X[index] + Y[index]


@flyc.jit
def axpy(alpha: fx.Float32, X: fx.Tensor, Y: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
    """Add alpha * X to Y in place, for the first n elements. X and Y are f32[L]."""
    axpy_kernel(alpha, X, Y, n).launch(grid=((n + AXPY_THREADS - 1) // AXPY_THREADS, 1, 1), block=(AXPY_THREADS, 1, 1), stream=stream)
