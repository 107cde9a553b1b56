# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the run-time tests: one fake HIP with three devices, and one package, in this process."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fake_hip
import pytest
import synthetic
from synthetic import Package, pointer, scalar, stream, tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TARGETS = "gfx942:sramecc+:xnack-,gfx1100,gfx942:sramecc+:xnack-,gfx1201"


@pytest.fixture(scope="session")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The extension module: installed, or compiled."""
    return synthetic.build_native(tmp_path_factory.mktemp("native"))


@pytest.fixture(scope="session")
def hip(hip_library: Path) -> Iterator[fake_hip.FakeHip]:
    """The fake HIP of this process: device 0 and 2 gfx942, 1 gfx1100, 3 gfx1201."""
    os.environ["FAKE_HIP_TARGETS"] = TARGETS
    yield fake_hip.FakeHip(hip_library)
    del os.environ["FAKE_HIP_TARGETS"]


STREAM = {"stream": {"role": "stream", "default": None}}
TABLE: list[dict[str, Any]] = [
    {
        "name": "vector_add",
        "doc": "Add.",
        "parameters": {"A": {}, "B": {}, "C": {}, **STREAM},
        "specializations": [{"arguments": {name: tensor("f32", ["M", "N"]) for name in "ABC"} | {"stream": stream()}}],
    },
    {
        "name": "gemm",
        "parameters": {"A": {}, "B": {}, **STREAM},
        "specializations": [
            {
                "arguments": {
                    "A": tensor("bf16", ["M", "K%8"], ["lda%8", 1], align=16),
                    "B": tensor("bf16", [64, "K%8"], [128, 1], stride_bits=32),
                    "stream": stream(),
                }
            }
        ],
    },
    {
        "name": "static",
        "parameters": {"A": {}},
        "specializations": [{"arguments": {"A": tensor("f32", [2, 3], [3, 1])}}],
    },
    {
        "name": "written",
        "parameters": {"A": {}, "p": {"role": "pointer"}, "C": {}},
        "specializations": [
            {"arguments": {"A": tensor("f32", ["?"]), "p": pointer("f32", 4), "C": tensor("f32", ["?"])}, "out": ["p", "C"]}
        ],
    },
    {
        "name": "spread",
        "parameters": {"A": {}, "C": {}, "D": {}},
        "specializations": [
            {
                "arguments": {
                    "A": tensor("f32", ["?", "?"], ["?", "?"]),
                    "C": tensor("f32", ["?", "?"], ["?", "?"]),
                    "D": tensor("f32", ["?", 4], [0, 1]),
                },
                "out": ["C", "D"],
            }
        ],
    },
    {
        "name": "narrow",
        "parameters": {"A": {}},
        "specializations": [{"arguments": {"A": tensor("f8e4m3fn", ["?"])}}],
    },
    {
        "name": "cube",
        "parameters": {"A": {}},
        "specializations": [{"arguments": {"A": tensor("i32", ["?", "?", "?"], ["?", "?", "?"], stride_bits=32)}}],
    },
    {
        "name": "flags",
        "parameters": {"A": {}},
        "specializations": [{"arguments": {"A": tensor("bool", ["?"])}}],
    },
    {
        "name": "at",
        "parameters": {"p": {"role": "pointer"}, **STREAM},
        "specializations": [{"arguments": {"p": pointer("f32", 16), "stream": stream()}}],
    },
    {
        "name": "grid",
        "parameters": {name: {"role": "scalar"} for name in ("gx", "gy", "bx", "cluster", "lds")},
        "specializations": [
            {
                "arguments": {name: scalar("i64") for name in ("gx", "gy", "bx", "cluster", "lds")},
                "config": "{I64(0), I64(1), 1, I64(2), 1, 1, I64(3), I64(3) != 0, I64(3) != 0, I64(4)}",
            }
        ],
    },
    {
        "name": "choose",
        "parameters": {"A": {}, "n": {"role": "constexpr", "default": 4}},
        "specializations": [
            {"arguments": {"A": tensor("f32", ["?"])}, "constexpr": {"n": 4}, "name": "choose-f32-4"},
            {"arguments": {"A": tensor("f32", ["?"])}, "constexpr": {"n": 8}, "name": "choose-f32-8"},
            {"arguments": {"A": tensor("i32", ["?"])}, "constexpr": {"n": 4}, "name": "choose-i32-4", "targets": ("gfx942",)},
        ],
    },
    {
        "name": "structured",
        "parameters": {"p": {"role": "struct"}},
        "specializations": [
            {
                "arguments": {
                    "p": {
                        "kind": "struct",
                        "type": "Params",
                        "fields": {
                            "A": tensor("f32", ["?"]),
                            "inner": {"kind": "struct", "type": "Inner", "fields": {"n": scalar("i16")}},
                        },
                    }
                }
            }
        ],
    },
    {
        "name": "build",
        "doc": "Build.",
        "factory": [{"name": "N"}, {"name": "dtype", "default": "f32"}, {"name": "tile", "default": [1, 2]}],
        "parameters": {"A": {}, "k": {"role": "constexpr", "default": 1}},
        "specializations": [
            {"arguments": {"A": tensor(dtype, [n])}, "params": {"N": n, "dtype": dtype, "tile": [1, 2]}, "constexpr": {"k": k}}
            for n, dtype, k in ((16, "f32", 1), (16, "f32", 2), (32, "f32", 1), (32, "i32", 1))
        ],
    },
    {
        "name": "only",
        "parameters": {
            "a": {"kind": "POSITIONAL_ONLY"},
            "b": {},
            "c": {"kind": "KEYWORD_ONLY", "default": 7},
            "d": {"kind": "KEYWORD_ONLY"},
        },
        "specializations": [{"arguments": {name: scalar("i32") for name in "abcd"}}],
    },
    *(
        {"name": f"scalar_{dtype}", "parameters": {"x": {"role": "scalar"}}, "specializations": [{"arguments": {"x": scalar(dtype)}}]}
        for dtype in synthetic.SIZES
    ),
]


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory, native: Path) -> Package:
    """An importable package `fake_kernels` with a module `table`."""
    folder = tmp_path_factory.mktemp("site")
    made = Package(folder, "fake_kernels", native)
    made.write_module("table", TABLE)
    sys.path.insert(0, str(folder))
    return made


@pytest.fixture
def table(package: Package, hip: fake_hip.FakeHip) -> Any:
    """The stub `fake_kernels.table`, on the fake HIP."""
    hip.clear()
    return importlib.import_module(f"{package.name}.table")


@pytest.fixture
def runtime(table: Any) -> Any:
    """The run time of the package."""
    del table
    return importlib.import_module("fake_kernels._flydsl.runtime")


@pytest.fixture
def run_python(package: Package, hip_library: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a script in a fresh interpreter that can import the packages; `hip` is the library's folder, None: no library."""

    def run(script: str, *, targets: str = TARGETS, hip: Path | None = hip_library.parent, **env: str) -> subprocess.CompletedProcess[str]:
        paths = [package.root.parent, Path(__file__).parents[1]]
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": os.pathsep.join(map(str, paths)),
            "FAKE_HIP_TARGETS": targets,
            **({"LD_LIBRARY_PATH": str(hip)} if hip else {}),
            **{name: os.environ[name] for name in ("LD_PRELOAD", "ASAN_OPTIONS", "UBSAN_OPTIONS", "PYTHONMALLOC") if name in os.environ},
            **env,
        }
        return subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120, check=False)

    return run
