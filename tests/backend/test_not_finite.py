# SPDX-License-Identifier: Apache-2.0
"""Infinities and NaN, which JSON has no form for, wherever a number can be: defaults, constexpr values, parameters, returned values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from building import run_script, unpack

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from conftest import Build

PYPROJECT = """
[build-system]
requires = ["flydsl-build"]
build-backend = "flydsl_build.backend"

[project]
name = "limits"
version = "1.0"

[tool.setuptools]
packages = ["limits"]

[tool.flydsl-build]
archs = ["gfx942", "gfx1100"]
torch-ops = true

[tool.flydsl-build.kernels."limits.pad:clamp"]
args = { X = "f32[L]" }
out = ["X"]

[tool.flydsl-build.kernels."limits.pad:pad"]
constexpr = { value = [inf, -inf, nan, 0.0, 1.0] }
args = { X = "f32[L]" }
out = ["X"]

[tool.flydsl-build.kernels."limits.pad:build"]
params = [{ value = [nan, inf, 2.0] }, { value = 2.0, bounds = { low = nan, high = -inf } }]
returns = ["launch", "value", "pair"]
args = { launch = { X = "f32[L]" } }
out = { launch = ["X"], value = [], pair = [] }
"""

MODULE = """
import math
from typing import NamedTuple

import flydsl.compiler as flyc
import flydsl.expr as fx


@flyc.kernel
def add_kernel(X: fx.Tensor, amount: fx.Float32):
    X[fx.thread_idx.x] = X[fx.thread_idx.x] + amount


@flyc.kernel
def pad_kernel(X: fx.Tensor, value: fx.Constexpr[float]):
    X[fx.thread_idx.x] = fx.Float32(value)


@flyc.jit
def clamp(X: fx.Tensor, low: fx.Float32 = float("-inf"), high: fx.Float32 = fx.Float32(math.nan)):
    add_kernel(X, low).launch(grid=(1, 1, 1), block=(64, 1, 1))
    add_kernel(X, high).launch(grid=(1, 1, 1), block=(64, 1, 1))


@flyc.jit
def pad(X: fx.Tensor, value: fx.Constexpr[float] = math.inf):
    pad_kernel(X, value).launch(grid=(1, 1, 1), block=(64, 1, 1))


class Bounds(NamedTuple):
    low: float = -math.inf
    high: float = math.inf


def build(value=math.nan, bounds: Bounds = Bounds()):
    @flyc.jit
    def launch(X: fx.Tensor):
        pad_kernel(X, value + bounds.high).launch(grid=(1, 1, 1), block=(64, 1, 1))

    return launch, value, (-math.inf, [math.nan])
"""

SCRIPT = """
import inspect, pickle
import numpy as np
import fake_hip
from limits import pad as limits
from limits.pad import Bounds, build, clamp, pad

hip = fake_hip.FakeHip(argument)
inf, nan = float("inf"), float("nan")
x = np.zeros(64, np.float32)

def launched(launcher, *args):
    hip.clear()
    launcher(x, *args)
    return [event["kernel"].partition("__")[2] or event["args"][-1] for event in hip.events("launch")]

def refused(function, *args):
    try:
        function(*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("not refused")

print(json.dumps({
    "scalars": [launched(clamp), launched(clamp, 1.0, -inf)],
    "constexpr": [launched(pad, *one)[0] for one in ((-inf,), (nan,), (np.float64("nan"),), (np.float32("-inf"),), (1,))],
    "default": launched(pad) == launched(pad, inf) == launched(pad, np.float64("inf")),
    "none": refused(pad, x, 3.0),
    "returned": repr([build()[1:], build(inf)[1:], build(2.0, Bounds(np.float32("nan"), -inf))[1:]]),
    "is nan": build()[1] != build()[1],
    "same": [
        build(nan) is build(), build(nan, Bounds()) is build(), build(2.0, Bounds(nan, -inf)) is build(2.0, Bounds(nan, -inf)),
        build(2.0) is build(2.0, Bounds(nan, -inf)), pickle.loads(pickle.dumps(build()[0])) is build()[0],
    ],
    "unbuilt": [refused(build, -inf), refused(build, 10**400).partition(", ")[0][-10:], refused(build, inf, Bounds(nan))],
    "signature": str(inspect.signature(clamp)),
}))
"""


def test_numbers_that_json_has_no_form_for(build: Callable[..., Build], hip_library: Path, tmp_path: Path) -> None:
    built = build({"pyproject.toml": PYPROJECT, "limits/__init__.py": "", "limits/pad.py": MODULE})
    assert built.wheel is not None, built.output
    site = unpack(tmp_path / "site", built.wheel)

    def strict(name: str) -> None:
        raise AssertionError(name)

    manifest = json.loads((site / "limits/_flydsl/pad.json").read_bytes(), parse_constant=strict)
    (pad,) = (one for one in manifest["launchers"] if one["name"] == "pad")
    assert [one["constexpr"]["value"] for one in pad["specializations"]] == [
        {"$float": "inf"},
        {"$float": "-inf"},
        {"$float": "nan"},
        0.0,
        1.0,
    ]
    stub = (site / "limits/pad.py").read_text(encoding="utf-8")
    assert 'def clamp(X, low=float("-inf"), high=float("nan")):' in stub
    interface = (site / "limits/pad.pyi").read_text(encoding="utf-8")
    assert 'def __call__(self, X: _Tensor, value: float = float("inf")) -> None:' in interface
    # Objects with fields are no keys of the ops' table.
    assert '_made = _kernels.build(2.0, {"low": float("nan"), "high": float("-inf")})' in (site / "limits/pad_torch.py").read_text("utf-8")
    answer: dict[str, Any] = run_script(SCRIPT, site=site, hip=hip_library, targets="gfx942:sramecc+:xnack-", argument=str(hip_library))
    built_for = (
        "the wheel was not built for these parameters, only for:\n"
        "    build({0}\n"
        "    build({1}\n"
        "    build({2}\n"
        "    build({3}\n"
        '    -> add them where the wheel is built: [tool.flydsl-build.kernels."limits.pad:build"] params = {{ {4} }}'
    )
    whole = "bounds=(high=inf, low=-inf))"
    other = "value=2.0, bounds=(high=-inf, low=nan))"
    assert answer == {
        # -inf and NaN in 32 bits; 1.0 and -inf.
        "scalars": [["000080ff", "0000c07f"], ["0000803f", "000080ff"]],
        "constexpr": ["pad_value_inf", "pad_valuenan", "pad_valuenan", "pad_value_inf", "pad_value1_0"],
        "default": True,
        "none": "ValueError: pad(value=3.0): the wheel was not built for these constexpr values, only for:\n"
        "    pad(value=1.0)\n"
        "    pad(value=0.0)\n"
        "    pad(value=inf)\n"
        "    pad(value=-inf)\n"
        "    pad(value=nan)\n"
        '    -> add them where the wheel is built: [tool.flydsl-build.kernels."limits.pad:pad"] constexpr = { value = [..., 3.0] }',
        "returned": "[(nan, (-inf, [nan])), (inf, (-inf, [nan])), (2.0, (-inf, [nan]))]",
        "is nan": True,
        "same": [True, True, True, False, True],
        "unbuilt": [
            "ValueError: build(value=-inf, bounds={'low': -inf, 'high': inf}): "
            + built_for.format(f"value=nan, {whole}", f"value=inf, {whole}", f"value=2.0, {whole}", other, "value = [..., -inf]"),
            "0000000000",
            "ValueError: build(value=inf, bounds=Bounds(low=nan, high=inf)): "
            + built_for.format(
                f"value=inf, {whole}", f"value=nan, {whole}", f"value=2.0, {whole}", other, "bounds = [..., { high = inf, low = nan }]"
            ),
        ],
        "signature": "(X, low=-inf, high=nan)",
    }
