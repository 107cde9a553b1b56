# SPDX-License-Identifier: Apache-2.0
"""Packages the kernels that FlyDSL publishes, from a checkout of its repository, without touching their source.

    python tests/benchmarks/published_kernels.py CHECKOUT [--only NAME …] [--archs gfx942,…] [--wheel DIR] [--keep DIR]

Needs a Python with flydsl-build, FlyDSL and torch (the kernels' host code imports it). Each kernel of `KERNELS` is first built as
a project of its own, so that one failure hides no other; what fails is tried again in FlyDSL alone, with the same values and
no flydsl-build. Then one project of everything that works is built, and its wheel measured. No GPU is used.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flydsl_build.toolchain.discovery import make_toolkit

BUILD_TIMEOUT = 1500
CDNA = ("gfx942", "gfx950")
RDNA = ("gfx1100", "gfx1201")
ALL = CDNA + RDNA

FP8 = {"gfx942": "f8e4m3fnuz", "gfx950": "f8e4m3fn"}


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """One line of the table: a launcher of the checkout, or a factory with some of its parameters."""

    file: str
    """Under kernels/, without .py."""
    name: str
    """The launcher or factory in it."""
    archs: tuple[str, ...]
    args: dict[str, str] = field(default_factory=dict)
    params: dict[str, Any] | None = None
    """None: `name` is a launcher."""
    constexpr: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    returns: dict[str, dict[str, str]] = field(default_factory=dict)
    """The factory returns several things, in a tuple or a dict: the argument types of each launcher, by name, in the factory's order; for a plain value,
    none."""
    launcher: str | dict[str, str] = ""
    """The launcher inside of the Python function that the factory returns; by returned name, if it returns several things."""
    given: dict[str, str] = field(default_factory=dict)
    """Structs with constexpr fields as Python, for the attempt in FlyDSL alone."""
    tag: str = ""

    @property
    def label(self) -> str:
        return f"{self.file}:{self.name}" + (f" ({self.tag})" if self.tag else "")

    @property
    def module(self) -> str:
        return "kernels." + self.file.replace("/", ".")


def all_of(names: str, value: Any) -> dict[str, Any]:
    """Give several arguments one type, or parameters one value."""
    return dict.fromkeys(names.split(), value)


def norm(file: str, name: str, args: dict[str, str], **more: Any) -> Kernel:
    """Return a kernel of kernels/norm, which are written for every target."""
    params = {"N": 1024, "dtype_str": ["f32", "bf16"]} | more.pop("params", {})
    return Kernel(file=f"norm/{file}", name=name, archs=more.pop("archs", ALL), params=params, args=args, **more)


MN, V = "{dtype_str}[M, N]", "{dtype_str}[N]"
PTR = "ptr<{dtype_str}>"
BY_ROW = "f32[M]"

NORM = [
    norm(
        "softmax_kernel",
        "build_softmax_module",
        {"A": MN, "C": MN},
        params={"M": 128, "N": [1000, 1024], "dtype_str": ["f32", "f16", "bf16"]},
    ),
    norm("softmax_bwd_kernel", "build_softmax_bwd_module", {"DY": MN, "Y": MN, "DX": MN}),
    norm("layernorm_kernel", "build_layernorm_module", all_of("Input Gamma Beta Output", PTR)),
    norm(
        "layernorm_kernel",
        "build_layernorm_module",
        {**all_of("Input Gamma Beta Output", PTR), **all_of("Mean Rstd", "ptr<f32>")},
        params={"store_stats": True},
        tag="statistics",
    ),
    norm(
        "layernorm_kernel",
        "build_layernorm_bwd_module",
        {**all_of("Input Gamma DY DX", PTR), **all_of("Mean Rstd DGamma DBias", "ptr<f32>")},
    ),
    norm(
        "layernorm_kernel",
        "build_fused_add_layernorm_module",
        {"Input": MN, "ResidualIn": MN, "Gamma": V, "Beta": V, "Output": MN, "ResidualOut": MN},
    ),
    norm(
        "layernorm_kernel",
        "build_layernorm_dynamicquant_module",
        {"Input": MN, "Gamma": V, "Beta": V, "Output": "i8[M, N]", "YScale": BY_ROW},
    ),
    norm(
        "layernorm_kernel",
        "build_layernorm_smoothquant_module",
        {"Input": MN, "Gamma": V, "Beta": V, "XScale": V, "Output": "i8[M, N]", "YScale": BY_ROW},
    ),
    norm(
        "layernorm_kernel",
        "build_fused_add_layernorm_dynamicquant_module",
        {"Input": MN, "ResidualIn": MN, "Gamma": V, "Beta": V, "Output": "i8[M, N]", "ResidualOut": MN, "YScale": BY_ROW},
    ),
    norm("rmsnorm_kernel", "build_rmsnorm_module", {"Input": MN, "Gamma": V, "Output": MN}),
    norm(
        "rmsnorm_kernel",
        "build_rmsnorm_module",
        {"Input": MN, "Gamma": V, "Output": MN, "Rstd": BY_ROW},
        params={"store_rstd": True},
        tag="rstd",
    ),
    Kernel(
        file="norm/rmsnorm_kernel",
        name="rmsnorm_direct",
        archs=ALL,
        args={"Input": MN, "Gamma": V, "Output": MN},
        constexpr={"N": [1024, 4096], "dtype_str": ["f32", "bf16"], "BLOCK_THREADS": 256},
    ),
    norm(
        "rmsnorm_kernel",
        "build_fused_add_rmsnorm_module",
        {"Input": MN, "ResidualIn": MN, "Gamma": V, "Output": MN, "ResidualOut": MN},
    ),
    norm("rmsnorm_kernel", "build_rmsnorm_dynamicquant_module", {"Input": MN, "Gamma": V, "Output": "i8[M, N]", "YScale": BY_ROW}),
    norm(
        "rmsnorm_kernel",
        "build_rmsnorm_smoothquant_module",
        {"Input": MN, "Gamma": V, "XScale": V, "Output": "i8[M, N]", "YScale": BY_ROW},
    ),
    norm(
        "rmsnorm_kernel",
        "build_fused_add_rmsnorm_smoothquant_module",
        {"Input": MN, "ResidualIn": MN, "Gamma": V, "XScale": V, "Output": "i8[M, N]", "ResidualOut": MN, "YScale": BY_ROW},
    ),
    norm(
        "rmsnorm_bwd_kernel",
        "build_rmsnorm_bwd_module",
        {"Input": MN, "Gamma": V, "DY": MN, "Rstd": BY_ROW, "DX": MN, "DWeight": "f32[N]"},
    ),
    norm(
        "rmsnorm_bwd_kernel",
        "build_rmsnorm_bwd_two_stage_module",
        {"Input": MN, "Gamma": V, "DY": MN, "Rstd": BY_ROW, "DX": MN, "DWeight": "f32[N]", "DWeightPartial": "f32[P, N]"},
        params={"num_programs": 64},
        tag="two kernels",
    ),
]


def preshuffle(dtype: str, out: str, archs: tuple[str, ...] = CDNA, **more: Any) -> Kernel:
    """Return the GEMM with preshuffled weights: every operand flat, 8-bit floats as bytes, as the checkout's tests pass them."""
    element = {"fp8": "i8", "int8": "i8", "fp16": "f16", "bf16": "bf16"}[dtype]
    return Kernel(
        file="gemm/preshuffle_gemm",
        name="compile_preshuffle_gemm",
        archs=archs,
        params={"N": 64, "K": 256, "tile_m": 16, "tile_n": 64, "tile_k": 256, "in_dtype": dtype, "out_dtype": out, **more},
        args={
            "arg_c": {"fp16": "f16[L]", "bf16": "bf16[L]"}[out],
            "arg_a": f"{element}[?]",
            "arg_b": f"{element}[?]",
            "arg_scale_a": "f32[?]",
            "arg_scale_b": "f32[?]",
            "arg_bias": {"fp16": "f16[?]", "bf16": "bf16[?]"}[out],
        },
        tag=" ".join([dtype, *(f"{name}={value}" for name, value in more.items())]),
    )


WMMA = {"arg_c": "{out_dtype}[M, N]", "arg_a": "{in_dtype}[M, K]", "arg_bt": "{in_dtype}[N, K]"}
# What make_gemm_a16w16_gfx950_param gives for bf16 and blocks of 256 x 256 and of 64 x 64.
A16W16 = {
    **all_of("in_dtype_id out_dtype_id stages m_waves in_data_bytes out_data_bytes", 2),
    **all_of("is_split_k use_half_tile_interleaved a_is_transposed has_bias", False),
    "block_k": 64,
    "k_waves": 1,
    "group_m": 0,
    "b_is_transposed": True,
    "mma_m": 16,
    "mma_n": 16,
    "mma_k": 32,
    "async_load_bytes": 16,
    "cshuffle_r2g_vec_size": 8,
    "ldg_x_threads": 8,
}
A16W16_LARGE = {"block_m": 256, "block_n": 256, "n_waves": 4, "block_threads": 512, "ldg_a_iters": 4, "ldg_b_iters": 4}
A16W16_SMALL = {"block_m": 64, "block_n": 64, "n_waves": 2, "block_threads": 256, "ldg_a_iters": 2, "ldg_b_iters": 2}
BLOCKS: dict[str, dict[str, str]] = {"BLOCK_M": {}, "BLOCK_N": {}, "BLOCK_K": {}}
WMMA_SMALL = {"M": 32, "N": 32, "K": 64, "reg_m": 2, "reg_n": 2, "reg_k": 2, "waves_m": 1, "waves_n": 1}
WMMA_TYPES = {"in_dtype": ["f16", "bf16"], "out_dtype": ["f32", "f16", "bf16"]}
FLAT_FP8 = {"A": "i8[?]", "B_T": "i8[?]", "C": "bf16[?]", "A_scale": "f32[?]", "B_scale": "f32[?]"}
FLAT_FP4 = {"A": "u8[?]", "B_T": "u8[?]", "C": "bf16[?]", "A_scale": "u8[?]", "B_scale": "u8[?]"}
MX_TILES = {"tile_m": 128, "tile_n": 256, "tile_k": 128, "m_warp": 2, "n_warp": 2, "num_buffers": 2, "out_is_f16": [0, 1]}

GEMM = [
    preshuffle("bf16", "bf16"),
    preshuffle("fp16", "fp16"),
    preshuffle("fp8", "bf16"),
    preshuffle("int8", "bf16"),
    preshuffle("fp16", "fp16", epilogue="bias_silu"),
    preshuffle("bf16", "bf16", N=5120, K=8192, tile_m=128, tile_n=128, tile_k=128),
    preshuffle("bf16", "bf16", ("gfx950",), use_async_copy=True),
    Kernel(
        file="gemm/rdna_f16_gemm",
        name="create_wmma_gemm_module",
        archs=("gfx1201",),
        params=WMMA_SMALL | WMMA_TYPES,
        returns={"launch_gemm": WMMA} | BLOCKS,
    ),
    Kernel(
        file="gemm/rdna3_f16_gemm",
        name="create_wmma_gemm_module",
        archs=("gfx1100",),
        params=WMMA_SMALL | WMMA_TYPES,
        returns={"launch": WMMA} | BLOCKS,
        launcher={"launch": "launch_gemm"},
    ),
    Kernel(
        file="gemm/rdna_fp8_preshuffle_gemm",
        name="compile_fp8_gemm",
        archs=("gfx1201",),
        params={"M": [32, 64], "N": 256, "K": 512},
        args={
            "arg_c": "bf16[M, N]",
            "arg_a": "f32[M, ?]",
            "arg_b": "f32[?, ?, ?, ?, ?]",
            "arg_scale_a": "f32[M]",
            "arg_scale_b": "f32[N]",
        },
    ),
    Kernel(
        file="gemm/fp8_gemm_4wave",
        name="compile_fp8_gemm_4w",
        archs=("gfx950",),
        params={"K": 1024, "BLOCK_M": [128, 256], "b_preshuffled": [False, True]},
        args=FLAT_FP8,
    ),
    Kernel(
        file="gemm/fp8_gemm_8wave",
        name="compile_fp8_gemm_8w",
        archs=("gfx950",),
        params={"K": 1024, "BLOCK_M": [128, 256], "b_preshuffled": [False, True]},
        args=FLAT_FP8,
    ),
    Kernel(file="gemm/fp4_gemm_4wave", name="compile_fp4_gemm_4w", archs=("gfx950",), params={"K": [2048, 4096]}, args=FLAT_FP4),
    Kernel(
        file="gemm/mxfp4_preshuffle",
        name="launch_gemm",
        archs=("gfx950",),
        args=all_of("arg_c arg_a arg_b arg_scale_a arg_scale_b", "ptr<u8>"),
        constexpr={
            "N": 1024,
            "K": 1024,
            "tile_m": 64,
            "tile_n": 128,
            "tile_k": 256,
            "a_dtype": ["fp4", "fp8"],
            "out_dtype": "bf16",
            "b_dtype": "fp4",
            "batch": 1,
            "waves_per_eu": 0,
            **all_of("a_row_stride a_batch_stride sca_row_stride sca_batch_stride c_row_stride c_batch_stride", -1),
        },
    ),
    Kernel(
        file="gemm/gemm_a16w16_gfx950",
        name="gemm_a16w16_gfx950",
        archs=("gfx950",),
        args={
            "out": "bf16[M, N]",
            "a": "bf16[M, K]",
            "b": "bf16[K, N : 1, ?]",
            "bias": "bf16[M, K]",
            **all_of("semaphore signal", "i32[?]"),
        },
        constexpr={"param": [A16W16 | A16W16_LARGE, A16W16 | A16W16_SMALL]},
        given={"param": "make_gemm_a16w16_gfx950_param(GEMM_A16W16_DTYPE_BF16, GEMM_A16W16_DTYPE_BF16)"},
        tag="constexpr struct",
    ),
    Kernel(
        file="gemm/gemm_a8w8_gfx1250",
        name="launch_gemm_a8w8",
        archs=("gfx1250",),
        args=all_of("arg_c arg_a arg_b arg_scale_a arg_scale_b", "ptr<u8>"),
        constexpr=MX_TILES | {"cluster_m": 1, "cluster_n": 1, "is_bsc": False},
    ),
    Kernel(
        file="gemm/gemm_a8w8_gfx1250",
        name="launch_gemm_a8w8",
        archs=("gfx1250",),
        args=all_of("arg_c arg_a arg_b arg_scale_a arg_scale_b", "ptr<u8>"),
        constexpr=MX_TILES | {"cluster_m": 2, "cluster_n": 2, "is_bsc": False},
        tag="clusters of 4",
    ),
    Kernel(
        file="gemm/gemm_a8w4_mxscale_gfx1250",
        name="launch_gemm_a8w4_mxscale",
        archs=("gfx1250",),
        args={"arg_c": "bf16[M, ?]", **all_of("arg_a arg_b", "ptr<i8>@16"), **all_of("arg_scale_a arg_scale_b", "u8[?, ?]")},
        constexpr=MX_TILES | {"cluster_m": 1, "cluster_n": 1, "out_is_f16": 0},
    ),
]

CONV_SHAPE = {"n": 1, "c": 64, "d": 4, "h": 16, "k": 256, "kt": 3, "kh": 3, "kw": 3, "st": 1, "sh": 1, "sw": 1, "pt": 1, "ph": 1, "pw": 1}
CONV = [
    Kernel(
        file="conv/conv3d_implicit",
        name="compile_transpose_ncdhw_ndhwc",
        archs=CDNA,
        params={"n": 1, "c": 64, "s": 1024},
        args=all_of("out inp", "bf16[?, ?, ?, ?, ?]"),
    ),
    Kernel(
        file="conv/conv3d_implicit",
        name="compile_conv3d_implicit",
        archs=CDNA,
        params=CONV_SHAPE | {"w": 16, "has_bias": [False, True]},
        args={"y": "bf16[?, ?, ?, ?, ?]", "x": "bf16[?, ?, ?, ?, ?]", "weight": "bf16[?, ?]", "bias": "f32[?]"},
    ),
    Kernel(
        file="conv/conv3d_implicit_fp8",
        name="compile_transpose_ncdhw_ndhwc_fp8",
        archs=("gfx950",),
        params={"n": 1, "c": 64, "s": 1024},
        args=all_of("out inp", "i8[65536]"),
    ),
    Kernel(
        file="conv/conv3d_implicit_fp8",
        name="compile_conv3d_implicit_fp8",
        archs=("gfx950",),
        params=CONV_SHAPE | {"width": 16},
        args={"y": "bf16[262144]", "x": "i8[65536]", "weight": "i8[458752]", "bias": "f32[1]"},
    ),
]

FLAT = "{dtype_str}[?]"
FMHA_OPTIONS: dict[str, Any] = {
    "fast-fp-math": True,
    "unsafe-fp-math": True,
    "llvm-options": {"enable-post-misched": False, "lsr-drop-solution": True},
}
FP8_OPTIONS = FMHA_OPTIONS | {"llvm-options": {**FMHA_OPTIONS["llvm-options"], "disable-machine-sink": True}}
FP8_ATTENTION = {
    **all_of("Q K V", "f8e4m3fn[?]"),
    "O": "bf16[?]",
    **all_of("DebugCounts CuSeqQ CuSeqKv", "bf16[?]"),
    **all_of("QDescale KDescale VDescale", "f32[?]"),
}
ATTENTION = [
    Kernel(
        file="attention/flash_attn_generic",
        name="build_flash_attn_func_module_primary",
        archs=CDNA,
        params={"num_heads": 8, "head_dim": 128, "causal": True, "dtype_str": ["f16", "bf16"], "block_m": 128, "path_tag": "N32"},
        args={**all_of("Q K V O LSE CuSeqQ CuSeqKv BlockTable", FLAT)},
        options=FMHA_OPTIONS | {"gfx942": {"llvm-options": {"amdgpu-expert-scheduling-mode": True}}},
        launcher="launch_flash_attn_generic",
    ),
    Kernel(
        file="attention/flash_attn_gfx950",
        name="build_flash_attn_dualwave_swp_module",
        archs=("gfx950",),
        params={"num_heads": 8, "head_dim": 128, "causal": [False, True], "dtype_str": "bf16"},
        args={**all_of("Q K V O LSE DebugCounts CuSeqQ CuSeqKv BlockTable Bias AlibiSlopes Sink", FLAT)},
        options=FMHA_OPTIONS,
        launcher="launch_flash_attn_dualwave_swp",
    ),
    Kernel(
        file="attention/flash_attn_generic",
        name="build_flash_attn_func_module_primary",
        archs=CDNA,
        params={"num_heads": 32, "head_dim": 128, "causal": True, "dtype_str": "bf16", "path_tag": "N32"},
        args={**all_of("Q K V O LSE CuSeqQ CuSeqKv BlockTable", FLAT)},
        options=FMHA_OPTIONS | {"gfx942": {"llvm-options": {"amdgpu-expert-scheduling-mode": True}}},
        launcher="_launcher_m256.launch_flash_attn_generic",
        tag="the larger of two blocks",
    ),
    Kernel(
        file="attention/flash_attn_fp8_gfx950",
        name="build_flash_attn_dualwave_swp_fp8_module",
        archs=("gfx950",),
        params={"num_heads": 8, "head_dim": 128, "causal": True, "dtype_str": "fp8"},
        args=FP8_ATTENTION,
        options=FP8_OPTIONS,
        launcher="launch_flash_attn_dualwave_swp",
        tag="causal",
    ),
    Kernel(
        file="attention/flash_attn_fp8_gfx950",
        name="build_flash_attn_dualwave_swp_fp8_module",
        archs=("gfx950",),
        params={"num_heads": 8, "head_dim": 128, "causal": False, "dtype_str": "fp8"},
        args=FP8_ATTENTION,
        options=FP8_OPTIONS,
        launcher="_pick._launch.launch_flash_attn_dualwave_swp",
        tag="one of two",
    ),
    Kernel(
        file="attention/swa_gfx950",
        name="build_gqa_attn",
        archs=("gfx950",),
        params={"ATTN_B": 2, "ATTN_H": 16, "ATTN_H_KV": 2, "ATTN_D": 128, "sliding_window": [[128, 0]]},
        args=all_of("Q K V O", "bf16[?]"),
        options={"fast-fp-math": True},
        launcher="launch",
    ),
    Kernel(
        file="attention/fused_rope_cache_kernel",
        name="build_fused_rope_cache_module",
        archs=ALL,
        params={"head_dim": 128, "num_q_heads": 8, "num_kv_heads": 1, "block_size": 16, "dtype_str": ["f16", "bf16"]},
        args={
            "Q": "{dtype_str}[T, 8, 128 : 1024, 128, 1]",
            "Q_out": "{dtype_str}[T, 8, 128 : 1024, 128, 1]",
            **all_of("K V K_out", "{dtype_str}[T, 1, 128 : 128, 128, 1]"),
            "Positions": "i32[T]",
            "SlotMapping": "i32[T]",
            **all_of("CosCache SinCache", "{dtype_str}[?, ?]"),
            **all_of("KeyCache ValueCache", "{dtype_str}[?, ?, ?, ?]"),
            **all_of("KScale VScale", "f32[?]"),
        },
        launcher="_jit_launch_fused_rope_cache",
    ),
    Kernel(
        file="attention/qk_norm_rope_quant",
        name="compile_flydsl_qk_norm_rope_quant",
        archs=CDNA,
        params={
            "num_q_heads": 16,
            "head_dim": 512,
            "rope_head_dim": 64,
            "quant": False,
            "group_size": 512,
            "scale_dtype": "fp32",
            "q_weighted": [False, True],
        },
        args={
            **all_of("q_in kv_in q_out kv_out", "ptr<bf16>"),
            **all_of("q_weight kv_weight", "bf16[?]"),
            **all_of("cos_cache sin_cache", "bf16[?, ?]"),
            "positions": "ptr<i64>",
            "q_scale": "ptr<f32>",
            "kv_scale": "ptr<f32>",
        },
    ),
    Kernel(
        file="attention/pa_decode_tile",
        name="compile_pa_decode_tile",
        archs=CDNA,
        params={
            "head_dim": 128,
            "query_group_size": 8,
            "block_size": 16,
            "num_partitions": 1,
            "query_dtype": "bf16",
            "softmax_scale": 0.0884,
        },
        returns={
            "launch": {
                "output": "bf16[?, ?, ?]",
                "query": "bf16[?, ?, ?]",
                **all_of("pmax psum", "f32[?]"),
                "pout": "bf16[?]",
                "key_cache": "u8[?, ?, ?, ?, ?]",
                "value_cache": "u8[?, ?, ?, ?, ?]",
                "block_tables": "i32[?, ?]",
                "context_lengths": "i32[?]",
                **all_of("key_scale value_scale", "f32[?]"),
            }
        },
    ),
    Kernel(
        file="attention/pa_decode_swa",
        name="compile_pa_decode_sw_reduce",
        archs=CDNA,
        params={
            "max_context_partition_num": 8,
            "query_seq_len": 1,
            "query_group_size": 8,
            "head_size": 128,
            "output_dtype_str": "bf16",
        },
        returns={
            "launch": all_of(
                "stride_output_bs stride_output_len stride_output_kv_head stride_output_group_size stride_exp_sums_seq stride_exp_sums_head "
                "stride_exp_sums_part stride_logits_seq stride_logits_head stride_logits_part stride_logits_group batch_size num_kv_heads",
                "i32",
            )
        },
    ),
    Kernel(
        file="attention/pa_decode_swa",
        name="compile_pa_decode_sw",
        archs=CDNA,
        params={"sliding_window": 128, "max_context_partition_num": 2, "softmax_scale": 0.0884, "query_group_size": 8},
        returns={"launch": {}},
    ),
    Kernel(
        file="attention/pa_metadata",
        name="compile_pa_metadata_v1",
        archs=CDNA,
        params={"num_cu": 304, "num_heads_k": 1, "gqa": 8, "kv_granularity": 1, "query_length": 1},
        returns={
            "launch": {
                **all_of("seqlens_qo_indptr context_lens work_indptr reduce_indptr reduce_partial_map", "i32[?]"),
                **all_of("work_info reduce_final_map", "i32[?, ?]"),
            }
        },
    ),
    Kernel(
        file="attention/mla_fwd_decode_m16x8_fp8_fp8",
        name="launch_mla_fwd_decode_m16x8_fp8_fp8",
        archs=("gfx942",),
        args={
            **all_of("query kv_buffer", "f8e4m3fnuz[?, ?]"),
            "kv_page_indices": "i32[?]",
            "work_indptr": "i32[?]",
            "work_info_set": "i32[?]",
            "final_output": "bf16[?, ?]",
            "split_output": "f32[?, ?]",
            "split_lse": "f32[?]",
        },
        constexpr={"num_cus": 304, "lds_size": 65536},
    ),
]


def moe_stage(stage: int, dtype: str, name: str) -> Kernel:
    """Return one stage of the two-stage MoE GEMM."""
    eight_bits = "i8[?]" if dtype != "fp8" else "{fp8}[?]"
    own = {"doweight_stage1": False} if stage == 1 else {"doweight_stage2": True, "accumulate": [False, True]}
    return Kernel(
        file=f"moe/moe_gemm_2stage/gemm{stage}",
        name=name,
        archs=CDNA,
        params={
            "model_dim": 1024,
            "inter_dim": 256,
            "experts": 8,
            "topk": 2,
            "tile_m": 32,
            "tile_n": 128,
            "tile_k": 128,
            "out_dtype": "f16",
            "in_dtype": dtype,
            **own,
        },
        args={
            "arg_out": "f16[?, ?, ?]" if stage == 1 else "f16[?, ?]",
            **all_of("arg_x arg_w", eight_bits),
            **all_of("arg_scale_x arg_scale_w arg_sorted_weights", "f32[?]"),
            **all_of(f"arg_sorted_token_ids arg_expert_ids {'arg_max_token_ids' if stage == 1 else 'arg_num_valid_ids'}", "i32[?]"),
        },
        tag=dtype,
    )


SORT = {
    "sorted_token_ids": "i32[?]",
    "sorted_weights_out": "f32[?]",
    "sorted_expert_ids": "i32[?]",
    "num_valid_ids_out": "i32[?]",
    "moe_buf": "i32[?, ?]",
    "expert_mask_tensor": "i32[?]",
}
MOE = [
    Kernel(
        file="moe/topk_gating_softmax_kernel",
        name="build_topk_gating_softmax_module",
        archs=ALL,
        params={"num_experts": [128, 256], "topk": 8, "dtype_str": ["f32", "bf16"], "renormalize": True},
        args={"GatingOutput": "{dtype_str}[T, E]", "TopkWeights": "f32[T, ?]", **all_of("TopkIndices TokenExpertIndices", "i32[T, ?]")},
    ),
    Kernel(
        file="moe/moe_sorting_kernel",
        name="_compile_moe_sorting_oneshot",
        archs=CDNA,
        params={"num_experts": 64, "topk": 4, "max_tokens": 64, "has_mask": [False, True]},
        args={"topk_ids_tensor": "i32[T, ?]", "topk_weights_tensor": "f32[T, ?]", **SORT},
    ),
    Kernel(
        file="moe/moe_sorting_kernel",
        name="compile_moe_sorting_oneshot_fused",
        archs=CDNA,
        params={"num_experts": 64, "topk": 4, "dtype_str": ["f16", "bf16"]},
        args={"gating_logits": "{dtype_str}[T, E]", **SORT},
        constexpr={"n_grid_blocks": [1, 64]},
    ),
    Kernel(
        file="moe/moe_sorting_kernel",
        name="_compile_moe_sorting_multiphase",
        archs=CDNA,
        params={"num_experts": 64, "topk": 4},
        returns={
            "clear_ws": {"workspace": "i32[?]"},
            "p0": {"topk_ids": "i32[T, ?]", "workspace": "i32[?]"},
            "p1": {"workspace": "i32[?]", "expert_mask_tensor": "i32[?]"},
            "p23": {"workspace": "i32[?]", "topk_weights_tensor": "f32[T, ?]", **SORT},
            "p0v2": {"topk_ids": "i32[T, ?]", "workspace": "i32[?]", "expert_mask_tensor": "i32[?]"},
            "p0v2_p23": {"topk_ids": "i32[T, ?]", "workspace": "i32[?]", "topk_weights_tensor": "f32[T, ?]", **SORT},
            "fused_4k": {"topk_ids": "i32[T, ?]", "workspace": "i32[?]", "topk_weights_tensor": "f32[T, ?]", **SORT},
        },
    ),
    Kernel(
        file="moe/moe_gemm_2stage/moe_reduce",
        name="compile_moe_reduction",
        archs=CDNA,
        params={"topk": [2, 8], "model_dim": 1024, "dtype_str": ["f16", "f32"]},
        args=all_of("X Y expert_mask topk_ids", "ptr<u8>"),
    ),
    moe_stage(1, "int8", "compile_moe_gemm1"),
    moe_stage(1, "fp8", "compile_moe_gemm1"),
    moe_stage(2, "int8", "compile_moe_gemm2"),
    Kernel(
        file="moe/moe_2stage_a16wmix/gemm1",
        name="compile_gemm1_a16w4_port",
        archs=CDNA,
        params={"BM": 32, "D_HIDDEN": 1024, "D_INTER": 512, "NE": 8, "TOPK": 2, "w_dtype": ["int4", "bf16"]},
    ),
    Kernel(
        file="moe/moe_2stage_a16wmix/gemm1",
        name="compile_gemm1_a16w4_port",
        archs=("gfx950",),
        params={"BM": 32, "D_HIDDEN": 1024, "D_INTER": 512, "NE": 8, "TOPK": 2, "w_dtype": "mxfp4"},
        tag="mxfp4",
    ),
    Kernel(
        file="moe/moe_2stage_a16wmix/gemm2",
        name="compile_gemm2_a16w4_port",
        archs=CDNA,
        params={"BM": 32, "NE": 8, "N_OUT": 1024, "D_INTER": 512, "w_dtype": ["int4", "bf16"]},
    ),
    Kernel(
        file="moe/mxfp_moe/gemm1",
        name="compile_gemm1_a4w4_port",
        archs=("gfx950",),
        params={"BM": 32, "use_nt": True, "inline_quant": False, "D_HIDDEN": 1024, "D_INTER": 256, "NE": 8, "TOPK": 2},
    ),
    Kernel(
        file="moe/mxfp_moe/gemm2",
        name="compile_gemm2_a4w4_port",
        archs=("gfx950",),
        params={"BM": 32, "NE": 8, "N_OUT": 1024, "D_INTER": 256, "epilog": ["atomic", "nonatomic"]},
    ),
    Kernel(
        file="moe/moe_a8w4_mxscale_gfx1250",
        name="launch_moe_gemm_a8w4",
        archs=("gfx1250",),
        args={
            "arg_c": "bf16[?, ?]",
            **all_of("arg_a arg_b arg_m_tile_map arg_bias", "ptr<i8>@16"),
            **all_of("arg_scale_a arg_scale_b", "i32[?, ?]"),
        },
        constexpr={
            "K": 1024,
            "tile_m": 64,
            "tile_n": 256,
            "tile_k": 256,
            "m_warp": 1,
            "n_warp": 4,
            "out_is_f16": 0,
            "num_buffers": 3,
            "a_is_fp4": 0,
            "n_experts": 8,
            "stage1_act": [0, 1],
            "has_bias": 0,
        },
    ),
    Kernel(
        file="mega_moe/quant",
        name="build_per_1x32_mx_quant_module",
        archs=("gfx950",),
        params={"n": 1024, "quant_mode": ["fp4", "fp8"]},
        args={"x": "bf16[?, ?]", "y": "u8[?, ?]", "scale": "u8[?, ?]"},
    ),
    Kernel(
        file="mega_moe/gemm1",
        name="compile_gemm1",
        archs=("gfx950",),
        params={"model_dim": 1024, "inter_dim": 512},
        args={**all_of("out x w scale_x scale_w out_scale", "u8[?]"), **all_of("tile_row_base expert_ids", "i32[?]")},
    ),
]

COMM = [
    Kernel(
        file="comm/custom_all_reduce_kernel",
        name="make_allreduce_kernels",
        archs=CDNA,
        params={"N": 4096, "dtype_str": "f16", "world_size": 8},
        returns={"run_1stage_arr": {}, "run_2stage_arr": {}, "run_2stage_write_mode": {}},
    ),
    Kernel(
        file="comm/flydsl_dispatch_combine_intranode_kernel",
        name="make_dispatch_jit",
        archs=CDNA,
        params={
            "rank": 0,
            "npes": 8,
            "experts_per_rank": 8,
            "experts_per_token": 4,
            "hidden_dim": 1024,
            "max_tok_per_rank": 128,
            "block_num": 64,
            "warp_num_per_block": 8,
            "data_type": "bf16",
        },
    ),
]


def for_target_types(kernel: Kernel) -> list[Kernel]:
    """Return the kernel once for each target if its argument types depend on it."""
    if not any("{fp8}" in text for text in kernel.args.values()):
        return [kernel]
    return [
        Kernel(
            **{item: getattr(kernel, item) for item in ("file", "name", "params", "constexpr", "options", "returns", "launcher")},
            archs=(arch,),
            args={name: text.replace("{fp8}", FP8[arch]) for name, text in kernel.args.items()},
            tag=f"{kernel.tag} {arch}",
        )
        for arch in kernel.archs
    ]


KERNELS = [one for kernel in (*NORM, *GEMM, *CONV, *ATTENTION, *MOE, *COMM) for one in for_target_types(kernel)]


# The generated project


def toml(value: Any) -> str:
    """Write a TOML value in one line."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(name)} = {toml(each)}" for name, each in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml, value)) + "]"
    return json.dumps(value)


def declaration(kernel: Kernel) -> dict[str, Any]:
    own = {
        "params": kernel.params,
        "constexpr": kernel.constexpr,
        "args": kernel.returns or kernel.args,
        "returns": list(kernel.returns),
        "launcher": kernel.launcher,
        "archs": kernel.archs,
        "options": kernel.options,
    }
    return {name: value for name, value in own.items() if value}


def write_project(folder: Path, checkout: Path, kernels: list[Kernel]) -> None:
    """Write a project that packages the checkout's `kernels` as they are."""
    folder.mkdir(parents=True)
    shutil.copytree(checkout / "kernels", folder / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    tables: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        tables.setdefault(f"{kernel.module}:{kernel.name}", []).append(kernel)
    packages = sorted(str(path.parent.relative_to(folder)).replace(os.sep, ".") for path in folder.glob("**/__init__.py"))
    lines = [
        '[build-system]\nrequires = ["flydsl-build", "torch"]\nbuild-backend = "flydsl_build.backend"\n',
        '[project]\nname = "published-kernels"\nversion = "1.0"\n',
        f"[tool.setuptools]\npackages = {toml(packages)}\n",
    ]
    for key, members in tables.items():
        lines.append(f"[tool.flydsl-build.kernels.{json.dumps(key)}]")
        if len(members) == 1:
            lines += [f"{name} = {toml(value)}" for name, value in declaration(members[0]).items()]
        else:
            # The parameters of one are not those of the next: a set each.
            lines += ["sets = [", *(f"  {toml(declaration(one))}," for one in members), "]"]
        lines.append("")
    (folder / "pyproject.toml").write_text("\n".join(lines), "utf-8")


# Building


@dataclass(kw_only=True)
class Outcome:
    """What came of one build."""

    seconds: float
    wheel: Path | None
    text: str


def build(folder: Path, archs: str, jobs: int) -> Outcome:
    """Build the project with the hook, in a process of its own, as a front end does."""
    out = folder / "dist"
    settings = {"jobs": str(jobs)} | ({"archs": archs} if archs else {})
    code = f"import sys, flydsl_build.backend as b; sys.stderr.write(b.build_wheel({str(out)!r}, {settings!r}))"
    started = time.perf_counter()
    try:
        done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False, timeout=BUILD_TIMEOUT)
    except subprocess.TimeoutExpired:
        return Outcome(seconds=time.perf_counter() - started, wheel=None, text=f"stopped after {BUILD_TIMEOUT} s")
    wheels = list(out.glob("*.whl")) if done.returncode == 0 else []
    return Outcome(seconds=time.perf_counter() - started, wheel=wheels[0] if wheels else None, text=done.stdout + done.stderr)


def manifests(wheel: Path) -> list[dict[str, Any]]:
    with zipfile.ZipFile(wheel) as archive:
        return [json.loads(archive.read(name)) for name in archive.namelist() if "/_flydsl/" in name and name.endswith(".json")]


def measure(wheel: Path, entry: str = "") -> tuple[int, set[str], int]:
    """Return the number of specializations, the targets and the bytes of device code of a wheel."""
    count, targets, size = 0, set(), 0
    for manifest in manifests(wheel):
        for launcher in manifest["launchers"]:
            if not entry or f"{manifest['module']}:{launcher['name']}" == entry:
                count += len(launcher["specializations"])
                targets |= {target for one in launcher["specializations"] for target in one["targets"]}
        size += sum(
            kernel["code_size"] for unit in manifest["units"] for code in unit["code_objects"].values() for kernel in code["kernels"]
        )
    return count, targets, size


# The same call in FlyDSL alone

ALONE = r"""
import inspect, itertools, json, os, sys
call, folder = json.loads(sys.argv[1]), sys.argv[2]
sys.path.insert(0, folder)
import torch, importlib
import flydsl.compiler as flyc, flydsl.expr as fx
NAMES = {"f32": "Float32", "f16": "Float16", "bf16": "BFloat16", "i8": "Int8", "u8": "Uint8", "i32": "Int32", "i64": "Int64"}
DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "i8": "int8", "u8": "uint8", "i32": "int32", "i64": "int64",
          "f8e4m3fn": "float8_e4m3fn", "f8e4m3fnuz": "float8_e4m3fnuz"}
def value(text):
    if text.startswith("ptr<"):
        inner, _, align = text[4:].partition(">@")
        more = {"assumed_align": int(align)} if align else {}
        return flyc.from_c_void_p(getattr(fx, NAMES[inner.rstrip(">")]), 0, **more)
    if "[" not in text:
        return 1
    dtype, _, rest = text.partition("[")
    dims, _, strides = rest.rstrip("]").partition(":")
    sizes = [int(one) if one.strip().isdigit() else 64 for one in dims.split(",")]
    tensor = torch.zeros(sizes, dtype=getattr(torch, DTYPES[dtype]))
    if strides and strides.split(",")[0].strip() == "1":
        tensor = tensor.T.contiguous().T
    return flyc.from_torch_tensor(tensor) if all(one.strip().isdigit() for one in dims.split(",")) else tensor
made = getattr(importlib.import_module(call["module"]), call["name"])
if call["params"] is not None:
    made = made(**call["params"])
if call["returns"]:
    name, call["args"] = next(iter(call["returns"].items()))
    made = made[name] if isinstance(made, dict) else made[0]
    call["launcher"] = (call["launcher"] or {}).get(name)
for name in (call["launcher"] or "").split(".") if call["launcher"] else ():
    made = inspect.getclosurevars(made).nonlocals[name]
names = {**(call["params"] or {}), **call["constexpr"]}
arguments = {name: value(text.format(**names)) for name, text in call["args"].items()}
arguments |= {name: eval(text, vars(importlib.import_module(call["module"]))) for name, text in call["given"].items()}
from flydsl.compiler import jit_function
function, _ = jit_function._unwrap_jit_function(made)
function._ensure_sig()
for name in call["given"]:
    call["constexpr"].pop(name, None)
for name, parameter in function._sig.parameters.items():
    if name in arguments or name in call["constexpr"] or parameter.default is not parameter.empty:
        continue
    kind = getattr(parameter.annotation, "__name__", "")
    arguments[name] = fx.Stream(None) if kind == "Stream" else 1.0 if kind.startswith("Float") else 1
made(**arguments, **call["constexpr"])
print("FlyDSL alone compiles it")
"""


def first(values: dict[str, Any] | None) -> dict[str, Any] | None:
    """Take the first of each list of values; FlyDSL's factories want tuples where a list stands for one value."""
    if values is None:
        return None
    return {name: value[0] if isinstance(value, list) else value for name, value in values.items()}


def try_alone(kernel: Kernel, folder: Path) -> dict[str, str]:
    """Compile the first specialization for each target with FlyDSL only; return what it says, the last line of an error.

    It is told where the linker and the device bitcode are, which without ROCm it would not find.
    """
    toolkit = folder / "toolkit"
    if not toolkit.exists():
        toolkit.mkdir()
        make_toolkit(toolkit)
    call = {
        "module": kernel.module,
        "name": kernel.name,
        "params": first(kernel.params),
        "constexpr": first(kernel.constexpr),
        "args": kernel.args,
        "returns": kernel.returns,
        "launcher": kernel.launcher,
        "given": kernel.given,
    }
    said = {}
    for arch in kernel.archs:
        environment = {**os.environ, "ARCH": arch, "FLYDSL_GPU_ARCH": arch, "COMPILE_ONLY": "1", "FLYDSL_RUNTIME_ENABLE_CACHE": "0"}
        environment["ROCM_PATH"] = str(toolkit)
        command = [sys.executable, "-c", ALONE, json.dumps(call), str(folder)]
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=BUILD_TIMEOUT)
        except subprocess.TimeoutExpired:
            said[arch] = f"stopped after {BUILD_TIMEOUT} s"
            continue
        lines = [line for line in (done.stdout + done.stderr).strip().splitlines() if line.strip()]
        errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b", line)]
        said[arch] = (errors or lines or [f"ended with {done.returncode}"])[-1]
    return said


# The table


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def row(*cells: object) -> None:
    label, count, targets, seconds, size = map(str, cells)
    say(f"{label:<78} {count:>5} {seconds:>7} {size:>9}  {targets}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("checkout", type=Path, help="a checkout of FlyDSL's repository")
    parser.add_argument("--archs", default="", help="narrow every kernel's targets to these")
    parser.add_argument("--only", nargs="+", default=[], help="kernels whose file, name or tag has this text")
    parser.add_argument("--wheel", type=Path, help="put the wheel of everything that works here")
    parser.add_argument("--keep", type=Path, help="write the projects here and leave them")
    parser.add_argument("--jobs", type=int, default=2, help="builds at a time")
    options = parser.parse_args()
    wanted = [one for one in KERNELS if not options.only or any(text in one.label for text in options.only)]
    narrow = set(options.archs.split(",")) - {""}
    wanted = [one for one in wanted if not narrow or narrow & set(one.archs)]
    with tempfile.TemporaryDirectory() as temporary:
        return run(wanted, options.keep or Path(temporary), options)


def run(wanted: list[Kernel], root: Path, options: argparse.Namespace) -> int:
    row("kernel", "specs", "targets", "seconds", "code")
    works: list[Kernel] = []
    failed: list[tuple[Kernel, Path, Outcome]] = []

    def single(numbered: tuple[int, Kernel]) -> tuple[Path, Outcome]:
        number, kernel = numbered
        folder = root / f"{number:02}-{kernel.file.replace('/', '_')}"
        write_project(folder, options.checkout, [kernel])
        return folder, build(folder, options.archs, 1)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for kernel, (folder, outcome) in zip(wanted, pool.map(single, enumerate(wanted)), strict=True):
            if outcome.wheel is None:
                failed.append((kernel, folder, outcome))
                row(kernel.label, "-", "not built", f"{outcome.seconds:.1f}", "-")
                continue
            count, targets, size = measure(outcome.wheel)
            works.append(kernel)
            row(kernel.label, count, " ".join(sorted(targets)), f"{outcome.seconds:.1f}", size)
    for kernel, folder, outcome in failed:
        say(f"\nnot built: {kernel.label}\n{textwrap.indent(explain(outcome.text), '    ')}")
        for arch, said in try_alone(kernel, folder).items():
            say(f"    FlyDSL alone, {arch}: {said}")
    files = {kernel.file for kernel in works}
    launchers = len({(one.file, one.name, name) for one in works for name in one.returns or [""] if name not in BLOCKS})
    say(f"\n{len(works)} declarations of {launchers} launchers in {len(files)} files were built")
    return together(works, root, options) if works else 1


def explain(text: str) -> str:
    """Return what flydsl-build says at the end, without what setuptools said before."""
    lines = text.rstrip().splitlines()
    starts = [index for index, line in enumerate(lines) if line.startswith(("flydsl-build: ", "Traceback"))]
    return "\n".join(line[:300] for line in lines[starts[-1] if starts else -30 :][:40])


def together(works: list[Kernel], root: Path, options: argparse.Namespace) -> int:
    """Build one project of all of them."""
    folder = root / "all"
    write_project(folder, options.checkout, works)
    outcome = build(folder, options.archs, options.jobs)
    if outcome.wheel is None:
        say(f"the project of all of them was not built:\n{explain(outcome.text)}")
        return 1
    count, targets, size = measure(outcome.wheel)
    row(f"one project of {len(works)} declarations", count, " ".join(sorted(targets)), f"{outcome.seconds:.1f}", size)
    say(f"{outcome.wheel.name}: {outcome.wheel.stat().st_size} bytes")
    if options.wheel:
        options.wheel.mkdir(parents=True, exist_ok=True)
        shutil.copy(outcome.wheel, options.wheel)
    return 0


if __name__ == "__main__":
    sys.exit(main())
