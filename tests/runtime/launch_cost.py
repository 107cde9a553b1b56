# SPDX-License-Identifier: Apache-2.0
"""Print what a call costs on the fake HIP's null launch, beside the floor: `python tests/runtime/launch_cost.py`."""

from __future__ import annotations

import importlib
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import timeit
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import fake_hip
import synthetic
from synthetic import scalar, stream, tensor

ROUNDS, CALLS = 31, 20_000
LAUNCHERS = [
    {
        "name": "vector_add",
        "parameters": {"A": {}, "B": {}, "C": {}, "stream": {"default": None}},
        "specializations": [{"arguments": {name: tensor("f32", ["M", "N"]) for name in "ABC"} | {"stream": stream()}}],
    },
    {"name": "one", "parameters": {"x": {}}, "specializations": [{"arguments": {"x": scalar("i32")}}]},
]


def main() -> None:
    """Measure in turns, so that a busy machine is unfair to all alike."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ |= {"FAKE_HIP_TARGETS": "gfx942", "FAKE_HIP_NULL": "1"}
        os.environ["FLYDSL_BUILD_HIP_LIBRARY"] = str(fake_hip.build(folder / "hip"))
        synthetic.Package(folder, "cost_kernels", synthetic.build_native(folder / "native")).write_module("table", LAUNCHERS)
        include = sysconfig.get_paths()["include"]
        command = [os.environ.get("CC", "cc"), "-O2", "-fPIC", "-shared", "-isystem", include, "-o", folder / "launch_floor.so"]
        subprocess.run([*command, HERE / "floor.c"], check=True)
        sys.path.insert(0, name)
        table, floor = importlib.import_module("cost_kernels.table"), importlib.import_module("launch_floor")
        subjects = {"one scalar": lambda: table.one(3), "nothing": lambda: None}
        try:
            torch = importlib.import_module("torch")
            floor.set_type(torch.Tensor)
            t = torch.ones(20, 132)
            subjects |= {"torch": lambda: table.vector_add(t, t, t, stream=5), "torch, floor": lambda: floor.three(t, t, t, stream=5)}
        except ImportError:
            print("torch is not installed")
        try:
            a = importlib.import_module("numpy").ones((20, 132), "f4")
            subjects |= {
                "numpy": lambda: table.vector_add(a, a, a, stream=5),
                "numpy, floor": lambda: floor.three_buffers(a, a, a, stream=5),
            }
        except ImportError:
            print("numpy is not installed")
        times: dict[str, list[float]] = {subject: [] for subject in subjects}
        for _ in range(ROUNDS):
            for subject, call in subjects.items():
                times[subject].append(timeit.timeit(call, number=CALLS) / CALLS * 1e9)
        for subject, measured in times.items():
            print(f"{subject:14} median {statistics.median(measured):7.1f} ns   least {min(measured):7.1f} ns")


if __name__ == "__main__":
    main()
