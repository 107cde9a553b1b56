# SPDX-License-Identifier: Apache-2.0
"""Launch every kind of argument through the wheel and through FlyDSL itself, on the fake HIP; print both logs as JSON.

python slots_script.py SITE SOURCE TOOLKIT LIBRARY
"""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace

site, source, toolkit, library = sys.argv[1:]
os.environ.update(ARCH="gfx942", FLYDSL_GPU_ARCH="gfx942", FLYDSL_RUNTIME_ENABLE_CACHE="0", ROCM_PATH=toolkit)
sys.path[:0] = [site, str(Path(__file__).resolve().parents[1])]

import fake_hip
import flydsl.compiler as flyc
import flydsl.expr as fx
import torch

hip = fake_hip.FakeHip(library)
# FlyDSL leaves the initialisation to torch, whose CPU build does not do it.
ctypes.CDLL(library).hipInit(0)
STREAM = 0x5000


def launches(run) -> list[dict]:
    hip.clear()
    run()
    return hip.events("launch")


def modules(folder: str):
    # The wheel's private run time stays: it imports parts of itself when they are needed.
    for name in ("slot_kernels", "slot_kernels.kinds", "slot_kernels.launches"):
        sys.modules.pop(name, None)
    sys.path.insert(0, folder)
    try:
        return importlib.import_module("slot_kernels.kinds"), importlib.import_module("slot_kernels.launches")
    finally:
        sys.path.remove(folder)


stub_kinds, stub_launches = modules(site)
kinds, launch_forms = modules(source)


def dynamic(tensor, **marks):
    """A tensor as FlyDSL's JIT takes a plain one, or with single dims marked."""
    argument = flyc.from_torch_tensor(tensor, assumed_align=marks.get("align"), use_32bit_stride=marks.get("short", False))
    if "shape" in marks:
        argument.mark_shape_dynamic(marks["shape"])
    if "stride" in marks:
        argument.mark_stride_dynamic(marks["stride"], marks.get("divisor", 1))
    if not marks.keys() & {"shape", "stride", "static"}:
        argument.mark_layout_dynamic()
    return argument


def strided(shape, strides, dtype=torch.float32):
    return torch.empty(4096, dtype=dtype).as_strided(shape, strides)


F = strided((5, 7), (9, 1))
H = strided((5, 7), (11, 1), torch.float16)
B = strided((4, 8), (8, 1), torch.bfloat16)
D = strided((5, 7), (16, 1), torch.float64)
W = strided((5, 7), (24, 1), torch.int64)
L = [
    torch.empty(33, dtype=dtype)
    for dtype in (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2fnuz)
]
X = strided((3, 6), (1, 5))
Y = strided((4, 8), (10, 1))
Z = strided((2, 3, 9), (31, 10, 1))
P = torch.empty(64)
VALUES = [-3, -300, 70000, -(2**40), 250, 65000, 2**32 - 1, 2**64 - 1, 1.5, -2.25, 0.1, 1e300, True]
NUMBERS = [
    *(fx.Int8, fx.Int16, fx.Int32, fx.Int64, fx.Uint8, fx.Uint16, fx.Uint32, fx.Uint64),
    *(fx.Float16, fx.BFloat16, fx.Float32, fx.Float64, fx.Boolean),
]
V = torch.empty(100)
# The stub has plain counterparts of the structs; any object with the fields serves as well.
config = stub_kinds.Config(first=-7, inner=SimpleNamespace(scale=2.5, count=2**35), flag=True, last=-1e-3)
flydsl_config = kinds.Config(
    first=fx.Int8(-7),
    inner=kinds.Inner(scale=fx.Float32(2.5), count=fx.Int64(2**35)),
    flag=fx.Boolean(True),
    last=fx.Float64(-1e-3),
)

CASES = {
    "tensors": (
        lambda: stub_kinds.tensors(F, H, B, D, W, stream=STREAM),
        kinds.tensors,
        lambda: (
            dynamic(F),
            dynamic(H),
            dynamic(B, static=True),
            dynamic(D, shape=[0, 1]),
            dynamic(W, shape=[0, 1], stride=[0], divisor=8, short=True, align=16),
            STREAM,
        ),
    ),
    "integers": (lambda: stub_kinds.integers(*L, STREAM), kinds.integers, lambda: (*map(dynamic, L), STREAM)),
    "strided": (
        lambda: stub_kinds.strided(X, Y, Z, STREAM),
        kinds.strided,
        lambda: (dynamic(X), dynamic(Y, shape=[0], stride=[0]), dynamic(Z, shape=[2], stride=[0, 1]), STREAM),
    ),
    "scalars": (
        lambda: stub_kinds.scalars(P, *VALUES, extra=-5, stream=STREAM),
        kinds.scalars,
        lambda: (
            flyc.from_c_void_p(fx.Float32, P.data_ptr()),
            *(number(value) for number, value in zip(NUMBERS, VALUES, strict=True)),
            fx.Int16(-5),
            STREAM,
        ),
    ),
    "structs": (
        lambda: stub_kinds.structs(V, config, stream=STREAM),
        kinds.structs,
        lambda: (dynamic(V), flydsl_config, STREAM),
    ),
    "stream_first": (
        lambda: stub_launches.stream_first(STREAM, V),
        launch_forms.stream_first,
        lambda: (STREAM, dynamic(V), 5),
    ),
    "no_stream": (lambda: stub_launches.no_stream(V, 4), launch_forms.no_stream, lambda: (dynamic(V), 4)),
    "conditional, few": (lambda: stub_launches.conditional(V, 4), launch_forms.conditional, lambda: (dynamic(V), 4, None)),
    "conditional, many": (lambda: stub_launches.conditional(V, 40), launch_forms.conditional, lambda: (dynamic(V), 40, None)),
    "looped": (lambda: stub_launches.looped(V, 3), launch_forms.looped, lambda: (dynamic(V), 3, None)),
    "dynamic_lds": (lambda: stub_launches.dynamic_lds(V, 3), launch_forms.dynamic_lds, lambda: (dynamic(V), 3, None)),
}

report = {}
for name, (ours, launcher, arguments) in CASES.items():
    given = arguments()
    compiled = flyc.compile(launcher, *given)
    theirs = launches(lambda: compiled(*given))  # noqa: B023 - called at once
    report[name] = [launches(ours), theirs]
print(json.dumps(report))
