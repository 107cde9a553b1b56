# SPDX-License-Identifier: Apache-2.0
"""One launcher for each family of argument kinds. The kernels touch what they get, so that nothing is left out."""

import flydsl.compiler as flyc
import flydsl.expr as fx


@fx.struct
class Inner:
    scale: fx.Float32
    count: fx.Int64


@fx.struct
class Config:
    first: fx.Int8
    inner: Inner
    flag: fx.Boolean
    last: fx.Float64


@flyc.kernel
def tensors_kernel(F: fx.Tensor, H: fx.Tensor, B: fx.Tensor, D: fx.Tensor, W: fx.Tensor):
    row = fx.thread_idx.x
    F[row, 0] = F[row, 1]
    H[row, 0] = H[row, 1]
    B[row, 0] = B[row, 1]
    D[row, 0] = D[row, 1]
    W[row, 0] = W[row, 1]


@flyc.jit
def tensors(F: fx.Tensor, H: fx.Tensor, B: fx.Tensor, D: fx.Tensor, W: fx.Tensor, stream: fx.Stream = fx.Stream(None)):
    rows, columns = F.shape.unpack()
    tensors_kernel(F, H, B, D, W).launch(grid=(rows, columns, 1), block=(4, 1, 1), stream=stream)


@flyc.kernel
def integers_kernel(
    A: fx.Tensor, B: fx.Tensor, C: fx.Tensor, D: fx.Tensor, E: fx.Tensor, F: fx.Tensor, G: fx.Tensor, H: fx.Tensor
):
    i = fx.thread_idx.x
    A[i] = A[i + 1]
    B[i] = B[i + 1]
    C[i] = C[i + 1]
    D[i] = D[i + 1]
    E[i] = E[i + 1]


@flyc.jit
def integers(
    A: fx.Tensor,
    B: fx.Tensor,
    C: fx.Tensor,
    D: fx.Tensor,
    E: fx.Tensor,
    F: fx.Tensor,
    G: fx.Tensor,
    H: fx.Tensor,
    stream: fx.Stream = fx.Stream(None),
):
    integers_kernel(A, B, C, D, E, F, G, H).launch(grid=(1, 1, 1), block=(4, 1, 1), stream=stream)


@flyc.kernel
def strided_kernel(X: fx.Tensor, Y: fx.Tensor, Z: fx.Tensor):
    i = fx.thread_idx.x
    X[0, i] = X[1, i]
    Y[i, 0] = Y[i, 1]
    Z[0, 0, i] = Z[1, 1, i]


@flyc.jit
def strided(X: fx.Tensor, Y: fx.Tensor, Z: fx.Tensor, stream: fx.Stream = fx.Stream(None)):
    strided_kernel(X, Y, Z).launch(grid=(1, 1, 1), block=(4, 1, 1), stream=stream)


@flyc.kernel
def scalars_kernel(
    out: fx.Pointer,
    a: fx.Int8,
    b: fx.Int16,
    c: fx.Int32,
    d: fx.Int64,
    e: fx.Uint8,
    f: fx.Uint16,
    g: fx.Uint32,
    h: fx.Uint64,
    i: fx.Float16,
    j: fx.BFloat16,
    k: fx.Float32,
    l: fx.Float64,
    m: fx.Boolean,
    extra: fx.Int16,
):
    fx.thread_idx.x


@flyc.jit
def scalars(
    out: fx.Pointer,
    a: fx.Int8,
    b: fx.Int16,
    c: fx.Int32,
    d: fx.Int64,
    e: fx.Uint8,
    f: fx.Uint16,
    g: fx.Uint32,
    h: fx.Uint64,
    i: fx.Float16,
    j: fx.BFloat16,
    k: fx.Float32,
    l: fx.Float64,
    m: fx.Boolean,
    extra,
    stream: fx.Stream = fx.Stream(None),
):
    scalars_kernel(out, a, b, c, d, e, f, g, h, i, j, k, l, m, extra).launch(grid=(1, 1, 1), block=(4, 1, 1), stream=stream)


@flyc.kernel
def structs_kernel(X: fx.Tensor, config: Config):
    i = fx.thread_idx.x
    X[i] = config.inner.scale


@flyc.jit
def structs(X: fx.Tensor, config: Config, stream: fx.Stream = fx.Stream(None)):
    structs_kernel(X, config).launch(grid=(1, 1, 1), block=(4, 1, 1), stream=stream)
