# SPDX-License-Identifier: Apache-2.0
"""Uses the helper, a data file that is read at import, and an environment variable."""

import json
import os
from pathlib import Path

import flydsl.compiler as flyc
import flydsl.expr as fx

from two_kernels.helper import THREADS, scaled

FACTOR = json.loads((Path(__file__).parent / "data" / "factor.json").read_text())["factor"]
if os.environ.get("TWO_KERNELS_TWICE"):
    FACTOR *= 2


@flyc.kernel
def first_kernel(X: fx.Tensor, n: fx.Int32):
    index = fx.block_idx.x * THREADS + fx.thread_idx.x
    if index < n:
        X[index] = scaled(X[index], FACTOR)


@flyc.jit
def first(X: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
    """Scale the first n elements of X."""
    first_kernel(X, n).launch(grid=((n + THREADS - 1) // THREADS, 1, 1), block=(THREADS, 1, 1), stream=stream)
