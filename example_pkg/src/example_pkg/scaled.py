# SPDX-License-Identifier: Apache-2.0
"""A kernel that calls extern device code, whose state an init function sets when the code object is loaded."""

from pathlib import Path

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.compiler.extern_link import link_extern
from flydsl.expr.extern import ffi
from flydsl.runtime.device import get_rocm_arch

from example_pkg.device_state import init_module

THREADS = 256

scale_and_shift = link_extern(
    ffi("scale_and_shift", ["float32", "int32"], "float32"),
    bitcode_path=str(Path(__file__).parent / "device" / f"scale_{get_rocm_arch()}.ll"),
    module_init_fn=init_module,
)


@flyc.kernel
def scale_kernel(X: fx.Tensor, Out: fx.Tensor, shift: fx.Int32, n: fx.Int32):
    index = fx.block_idx.x * THREADS + fx.thread_idx.x
    if index < n:
        Out[index] = fx.Float32(scale_and_shift(X[index], shift))


@flyc.jit
def scale(X: fx.Tensor, Out: fx.Tensor, shift: fx.Int32, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
    """Write factor * X + shift to Out, for the first n elements. The factor is that of `example_pkg.device_state`."""
    scale_kernel(X, Out, shift, n).launch(grid=((n + THREADS - 1) // THREADS, 1, 1), block=(THREADS, 1, 1), stream=stream)
