# SPDX-License-Identifier: Apache-2.0
"""Runs kernels of the wheel that `published_kernels.py` makes, small, against numpy.

    python tests/benchmarks/published_kernels_check.py TARGET [CASE …]

Needs the wheel installed, numpy, and a device of that target, or an emulator of it whose memory is the process's own: the
arrays are numpy's. Nothing of FlyDSL, torch or flydsl-build is imported. Prints one line a case; ends with 1 if a value is wrong.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CDNA = ("gfx942", "gfx950")
RDNA = ("gfx1100", "gfx1201")
ALL = CDNA + RDNA
EPSILON = 1e-5
ROWS = 2
COLUMNS = 1024

Result = tuple[np.ndarray, np.ndarray, float]
"""What came, what should have, and how much they may differ."""

random = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return random.standard_normal(shape, dtype=np.float32)


class BFloat16:
    """An array of bfloat16, which numpy has no dtype for: 16-bit words that say what they are, as ml_dtypes' arrays do.

    The run time takes the words for bfloat16 because of the dtype's name; a plain uint16 array it refuses.
    """

    class dtype:  # noqa: N801 - what the attribute of an array is called
        name = "bfloat16"

    def __init__(self, values: np.ndarray) -> None:
        bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
        # Round to nearest, ties to even.
        self.words = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return self.words.__array_interface__ | {"typestr": "<V2", "descr": [("", "<V2")]}

    def float(self) -> np.ndarray:
        return (self.words.astype(np.uint32) << 16).view(np.float32)


def refused(launcher: Callable[..., Any], *arguments: Any) -> None:
    """Check that a call is refused before anything runs."""
    try:
        launcher(*arguments)
    except (TypeError, ValueError):
        return
    raise AssertionError(f"{launcher} took arguments of the wrong dtype")


def normalize(x: np.ndarray) -> np.ndarray:
    """Divide by the root of the mean square, in double."""
    wide = x.astype(np.float64)
    return wide / np.sqrt((wide**2).mean(1, keepdims=True) + EPSILON)


def softmax() -> Result:
    from kernels.norm.softmax_kernel import build_softmax_module

    x, y = normal(ROWS, COLUMNS), np.zeros((ROWS, COLUMNS), np.float32)
    launch = build_softmax_module(128, COLUMNS, "f32")
    refused(launch, x.astype(np.float16), y, ROWS)
    refused(launch, x, y.astype(np.float64), ROWS)
    launch(x, y, ROWS)
    reference = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return y, reference / reference.sum(1, keepdims=True), 1e-6


def softmax_f16_ragged() -> Result:
    from kernels.norm.softmax_kernel import build_softmax_module

    columns = 1000
    x, y = normal(ROWS, columns).astype(np.float16), np.zeros((ROWS, columns), np.float16)
    launch = build_softmax_module(128, columns, dtype_str="f16")
    refused(launch, x.view(np.uint16), y, ROWS)
    launch(x, y, ROWS)
    reference = np.exp(x.astype(np.float64) - x.max(1, keepdims=True).astype(np.float64))
    return y, reference / reference.sum(1, keepdims=True), 1e-4


def rmsnorm() -> Result:
    from kernels.norm.rmsnorm_kernel import build_rmsnorm_module

    x, gamma, y = normal(ROWS, COLUMNS), normal(COLUMNS), np.zeros((ROWS, COLUMNS), np.float32)
    build_rmsnorm_module(COLUMNS, "f32")(x, gamma, y, ROWS)
    return y, normalize(x) * gamma, 1e-5


def rmsnorm_bf16() -> Result:
    from kernels.norm.rmsnorm_kernel import build_rmsnorm_module

    x, gamma, y = BFloat16(normal(ROWS, COLUMNS)), BFloat16(normal(COLUMNS)), BFloat16(np.zeros((ROWS, COLUMNS), np.float32))
    launch = build_rmsnorm_module(N=COLUMNS, dtype_str="bf16")
    refused(launch, x.words, gamma, y, ROWS)
    refused(launch, x.words.view(np.float16), gamma, y, ROWS)
    launch(x, gamma, y, ROWS)
    return y.float(), normalize(x.float()) * gamma.float(), 4e-2


def rmsnorm_constexpr() -> Result:
    from kernels.norm.rmsnorm_kernel import rmsnorm_direct

    columns = 4096
    x, gamma, y = normal(ROWS, columns), normal(columns), np.zeros((ROWS, columns), np.float32)
    rmsnorm_direct(x, gamma, y, ROWS, columns, "f32", 256)
    return y, normalize(x) * gamma, 1e-5


def layernorm() -> Result:
    """Launch with raw pointers: there is nothing to check but that they are pointers."""
    from kernels.norm.layernorm_kernel import build_layernorm_module

    x, gamma, beta, y = normal(ROWS, COLUMNS), normal(COLUMNS), normal(COLUMNS), np.zeros((ROWS, COLUMNS), np.float32)
    build_layernorm_module(COLUMNS, "f32")(x.ctypes.data, gamma.ctypes.data, beta.ctypes.data, y.ctypes.data, ROWS)
    wide = x.astype(np.float64)
    centred = wide - wide.mean(1, keepdims=True)
    return y, centred / np.sqrt((centred**2).mean(1, keepdims=True) + EPSILON) * gamma + beta, 1e-5


def quantized_rmsnorm() -> Result:
    """Two reductions over a workgroup, each across lanes and then through LDS."""
    from kernels.norm.rmsnorm_kernel import build_rmsnorm_dynamicquant_module

    x, gamma = normal(ROWS, COLUMNS), normal(COLUMNS)
    y, scale = np.zeros((ROWS, COLUMNS), np.int8), np.zeros(ROWS, np.float32)
    launch = build_rmsnorm_dynamicquant_module(COLUMNS, "f32")
    refused(launch, x, gamma, y.view(np.uint8), scale, ROWS)
    launch(x, gamma, y, scale, ROWS)
    reference = normalize(x) * gamma
    step = np.abs(reference).max(1) / 127
    assert np.allclose(scale, step, rtol=1e-5), "other scales"
    # The kernel cuts the fraction off.
    return y, np.trunc(reference / step[:, None]), 1 if np.mean(y == np.trunc(reference / step[:, None])) > 0.999 else 0


def topk_gating() -> Result:
    """Softmax and selection across lanes."""
    from kernels.moe.topk_gating_softmax_kernel import build_topk_gating_softmax_module

    tokens, experts, topk = 5, 128, 8
    gating = normal(tokens, experts)
    weights, ids, slots = np.zeros((tokens, topk), np.float32), np.zeros((tokens, topk), np.int32), np.zeros((tokens, topk), np.int32)
    build_topk_gating_softmax_module(experts, topk, "f32", True)(gating, weights, ids, slots, tokens)
    chosen = np.argsort(-gating, axis=1)[:, :topk]
    assert np.array_equal(ids, chosen), "other experts were chosen"
    reference = np.exp(np.take_along_axis(gating, chosen, 1).astype(np.float64) - gating.max(1, keepdims=True))
    return weights, reference / reference.sum(1, keepdims=True), 1e-5


def shuffle_weight(weight: np.ndarray) -> np.ndarray:
    """Lay B out as the kernel's lanes read it: blocks of 16 rows and of 16-byte groups."""
    rows, columns = weight.shape
    group = 16 // weight.itemsize
    shape = (rows // 16, 16, columns // 32, 32 // group, group)
    return np.ascontiguousarray(weight.reshape(shape).transpose(0, 2, 3, 1, 4)).reshape(-1)


def preshuffle(in_dtype: str, out_dtype: str, **more: Any) -> tuple[Callable[..., Any], int, int, int]:
    from kernels.gemm.preshuffle_gemm import compile_preshuffle_gemm

    rows, columns, depth = 16, 64, 256
    tile = {"tile_m": 16, "tile_n": columns, "tile_k": depth}
    return compile_preshuffle_gemm(N=columns, K=depth, **tile, in_dtype=in_dtype, out_dtype=out_dtype, **more), rows, columns, depth


def mfma_f16() -> Result:
    launch, rows, columns, depth = preshuffle("fp16", "fp16")
    a, b = normal(rows, depth).astype(np.float16), normal(columns, depth).astype(np.float16)
    c, none = np.zeros(rows * columns, np.float16), np.empty(0, np.float32)
    call = (a.reshape(-1), shuffle_weight(b), none, none, np.empty(0, np.float16), rows, columns, None)
    refused(launch, c.astype(np.float32), *call)
    launch(c, *call)
    return c.reshape(rows, columns), a.astype(np.float64) @ b.astype(np.float64).T, 5e-2


def mfma_bf16() -> Result:
    launch, rows, columns, depth = preshuffle("bf16", "bf16")
    a, b = BFloat16(normal(rows, depth)), BFloat16(normal(columns, depth))
    flat_a, flat_b = BFloat16(a.float().reshape(-1)), BFloat16(np.zeros(columns * depth, np.float32))
    flat_b.words = shuffle_weight(b.words)
    c, none = BFloat16(np.zeros(rows * columns, np.float32)), np.empty(0, np.float32)
    launch(c, flat_a, flat_b, none, none, BFloat16(np.zeros(0, np.float32)), rows, columns, None)
    return c.float().reshape(rows, columns), a.float().astype(np.float64) @ b.float().astype(np.float64).T, 0.25


def mfma_i8() -> Result:
    launch, rows, columns, depth = preshuffle("int8", "bf16")
    a, b = (random.integers(-127, 128, (count, depth), dtype=np.int8) for count in (rows, columns))
    scale_a, scale_b = random.random(rows, dtype=np.float32) / 127, random.random(columns, dtype=np.float32) / 127
    c, bias = BFloat16(np.zeros(rows * columns, np.float32)), BFloat16(np.zeros(0, np.float32))
    launch(c, a.reshape(-1), shuffle_weight(b), scale_a, scale_b, bias, rows, columns, None)
    reference = (a.astype(np.int64) @ b.astype(np.int64).T) * scale_a[:, None].astype(np.float64) * scale_b
    return c.float().reshape(rows, columns), reference, float(np.abs(reference).max()) / 128


def wmma(out_dtype: str) -> Result:
    if target.startswith("gfx11"):
        from kernels.gemm.rdna3_f16_gemm import create_wmma_gemm_module
    else:
        from kernels.gemm.rdna_f16_gemm import create_wmma_gemm_module
    size = {"M": 32, "N": 32, "K": 64}
    tile = {"reg_m": 2, "reg_n": 2, "reg_k": 2, "waves_m": 1, "waves_n": 1}
    launch, *blocks = create_wmma_gemm_module(**size, **tile, in_dtype="f16", out_dtype=out_dtype)
    assert blocks == [32, 32, 32], f"other blocks: {blocks}"
    a, b = normal(size["M"], size["K"]).astype(np.float16), normal(size["N"], size["K"]).astype(np.float16)
    c = np.zeros((size["M"], size["N"]), {"f32": np.float32, "f16": np.float16}[out_dtype])
    refused(launch, c, a.astype(np.float32), b, None)
    refused(launch, c, a.view(np.int16), b, None)
    launch(c, a, b, None)
    return c, a.astype(np.float64) @ b.astype(np.float64).T, {"f32": 1e-4, "f16": 2e-2}[out_dtype]


def wmma_f32() -> Result:
    return wmma("f32")


def wmma_f16() -> Result:
    return wmma("f16")


def rope_cache() -> Result:
    """Rotate queries and keys, and write keys and values to the slots of a cache."""
    from kernels.attention.fused_rope_cache_kernel import build_fused_rope_cache_module

    tokens, heads, size, block = 3, 8, 128, 16
    launch = build_fused_rope_cache_module(head_dim=size, num_q_heads=heads, num_kv_heads=1, block_size=block, dtype_str="f16")
    q, k, v = (normal(tokens, count, size).astype(np.float16) for count in (heads, 1, 1))
    angles = normal(10, size // 2)
    cosine, sine = np.cos(angles).astype(np.float16), np.sin(angles).astype(np.float16)
    positions, slots = np.array([4, 0, 9], np.int32), np.array([17, 2, 30], np.int32)
    keys, values = (np.zeros((2, block, 1, size), np.float16) for _ in range(2))
    q_out, k_out, none = np.zeros_like(q), np.zeros_like(k), np.zeros(1, np.float32)
    launch(q, k, v, positions, cosine, sine, slots, keys, values, q_out, k_out, tokens, none, none)

    def rotated(x: np.ndarray) -> np.ndarray:
        first, second = np.split(x.astype(np.float64), 2, axis=2)
        c, s = (one[positions].astype(np.float64)[:, None] for one in (cosine, sine))
        return np.concatenate([first * c - second * s, second * c + first * s], axis=2)

    assert np.abs(k_out - rotated(k)).max() < 1e-2, "other keys"
    assert np.array_equal(keys.reshape(-1, 1, size)[slots], k_out), "other keys in the cache"
    assert np.array_equal(values.reshape(-1, 1, size)[slots], v), "other values in the cache"
    return q_out, rotated(q), 1e-2


def gemm_of_a_struct() -> Result:
    """Choose the kernel by a struct of constants."""
    from kernels.gemm.gemm_a16w16_gfx950 import GemmA16W16Gfx950Param, gemm_a16w16_gfx950

    rows, columns, depth = 64, 64, 128
    small = {"block_m": 64, "block_n": 64, "block_k": 64, "block_threads": 256, "ldg_x_threads": 8, "ldg_a_iters": 2, "ldg_b_iters": 2}
    types = dict.fromkeys(("in_dtype_id", "out_dtype_id", "in_data_bytes", "out_data_bytes", "stages", "m_waves", "n_waves"), 2)
    flags = dict.fromkeys(("is_split_k", "use_half_tile_interleaved", "a_is_transposed", "has_bias"), False)
    rest = {"b_is_transposed": True, "k_waves": 1, "group_m": 0, "mma_m": 16, "mma_n": 16, "mma_k": 32}
    param = GemmA16W16Gfx950Param(**small, **types, **flags, **rest, async_load_bytes=16, cshuffle_r2g_vec_size=8)
    a, b = BFloat16(normal(rows, depth)), BFloat16(normal(columns, depth))
    turned, out = BFloat16(np.zeros((1, 1), np.float32)), BFloat16(np.zeros((rows, columns), np.float32))
    turned.words = b.words.T
    counters = np.zeros(256, np.int32)
    gemm_a16w16_gfx950(out, a, turned, a, counters, counters, 1, param)
    return out.float(), a.float().astype(np.float64) @ b.float().astype(np.float64).T, 0.25


def flash_attention() -> Result:
    from kernels.attention.flash_attn_generic import build_flash_attn_func_module_primary

    heads, size, length = 8, 128, 128
    launch = build_flash_attn_func_module_primary(heads, size, True, "f16", block_m=128, path_tag="N32")
    q, k, v = (normal(length, heads, size).astype(np.float16) for _ in range(3))
    out = np.zeros(length * heads * size, np.float16)
    launch(q.reshape(-1), k.reshape(-1), v.reshape(-1), out, out, out, out, out, 0, 1, length, length)
    scores = np.einsum("qhd,khd->hqk", q.astype(np.float64), k.astype(np.float64)) / np.sqrt(size)
    scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(2, keepdims=True))
    weights /= weights.sum(2, keepdims=True)
    return out.reshape(length, heads, size), np.einsum("hqk,khd->qhd", weights, v.astype(np.float64)), 1e-2


CASES: dict[Callable[[], Result], tuple[str, ...]] = {
    softmax: ALL,
    softmax_f16_ragged: ALL,
    rmsnorm: ALL,
    rmsnorm_bf16: ALL,
    rmsnorm_constexpr: ALL,
    layernorm: ALL,
    quantized_rmsnorm: ALL,
    topk_gating: ALL,
    mfma_f16: CDNA,
    mfma_bf16: CDNA,
    mfma_i8: CDNA,
    wmma_f32: RDNA,
    wmma_f16: RDNA,
    rope_cache: ALL,
    gemm_of_a_struct: ("gfx950",),
    flash_attention: ("gfx942",),
}


def lines(names: list[str]) -> Iterator[tuple[bool, str]]:
    for case, targets in CASES.items():
        if target not in targets or (names and case.__name__ not in names):
            continue
        started = time.perf_counter()
        try:
            got, wanted, tolerance = case()
        except Exception as error:  # noqa: BLE001 - a case that cannot run must not hide the others
            yield False, f"{target:8} {case.__name__:20} {type(error).__name__}: {error}"
            continue
        worst = float(np.abs(got.astype(np.float64) - wanted).max())
        right = worst <= tolerance
        seconds = time.perf_counter() - started
        word = "right" if right else "WRONG"
        yield right, f"{target:8} {case.__name__:20} {word}: off by {worst:.3g} of {tolerance:.3g}, {seconds:.1f} s"


def main(names: list[str]) -> int:
    wrong = 0
    for right, line in lines(names):
        wrong += not right
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
    loaded = sorted({name.partition(".")[0] for name in sys.modules} & {"flydsl", "torch", "flydsl_build"})
    assert not loaded, f"imported: {loaded}"
    return wrong > 0


if __name__ == "__main__":
    target = sys.argv[1].partition(":")[0]
    sys.exit(main(sys.argv[2:]))
