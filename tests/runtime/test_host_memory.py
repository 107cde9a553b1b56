# SPDX-License-Identifier: Apache-2.0
"""Tensors in host memory, on devices that read no pageable memory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import fake_hip
import pytest

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    Run = Callable[..., subprocess.CompletedProcess[str]]

START = """
import array, json
from types import SimpleNamespace
import fake_hip, numpy as np
from fake_kernels import table
hip = fake_hip.FakeHip({library!r})
def answer(call, *arguments, **named):
    try:
        call(*arguments, **named)
    except Exception as error:
        return f"{{type(error).__name__}}: {{error}}"
    return len(hip.events("launch"))
held = []
def known(memory, kind):
    held.append(memory)
    hip.memory(memory.__array_interface__["data"][0], memory.nbytes, kind)
    return memory
a = np.zeros((2, 3), np.float32)
"""

# What to call, and the argument that is named.
CALLS = {
    "numpy": ("answer(table.static, a)", "static(): argument A"),
    "third": (
        "answer(table.vector_add, known(a.copy(), 1), known(np.ones((2, 3), np.float32), 1), a)",
        "vector_add(): argument C",
    ),
    "buffer": ("answer(table.written, array.array('f', [1.0]), 0x1000, array.array('f', [1.0]))", "written(): argument A"),
    "dlpack": (
        "answer(table.static, type('T', (), {m: lambda s, m=m, **k: getattr(a, m)(**k) for m in ('__dlpack__', '__dlpack_device__')})())",
        "static(): argument A",
    ),
    "pointer": ("answer(table.written, np.zeros(0, np.float32), np.ones(1, np.float32), np.zeros(0, np.float32))", "written(): argument p"),
    "struct": (
        "answer(table.structured, SimpleNamespace(A=np.ones(2, np.float32), inner=SimpleNamespace(n=1)))",
        "structured(): argument p.A",
    ),
    "bind": ("answer(table.static.bind, a)", "static(): argument A"),
    "update": ("answer(table.static.bind(known(a.copy(), 1)).update, A=a)", "static(): argument A"),
}


@pytest.fixture(params=["HIP 5", "HIP 7"])
def library(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    defines = ("FAKE_HIP_OLD",) if request.param == "HIP 5" else ()
    return fake_hip.build(tmp_path, *defines, soname=f"libamdhip64.so.{request.param[-1]}")


def asked(run_python: Run, library: Path, *expressions: str, **env: str) -> list[Any]:
    lines = "".join(f"print(json.dumps({expression}))\n" for expression in expressions)
    done = run_python(START.format(library=str(library)) + lines, hip=library.parent, **{"FAKE_HIP_PAGEABLE": "0", **env})
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("how", CALLS)
def test_pageable_memory(run_python: Run, library: Path, how: str) -> None:
    call, place = CALLS[how]
    text, error, launches = asked(run_python, library, call, "hip.last_error()", "len(hip.events('launch'))")
    assert text == (f"TypeError: {place} is in host memory, which device 0 cannot read; move it to the device, or allocate it pinned")
    assert (error, launches) == (0, 0)


def test_a_device_that_reads_pageable_memory(run_python: Run, library: Path) -> None:
    calls = "answer(table.static, a)", "answer(table.static, a)", "hip.events('device_attribute', 'pointer_attributes')"
    answers = asked(run_python, library, *calls, FAKE_HIP_PAGEABLE="1")
    assert answers == [1, 2, [{"event": "device_attribute", "attribute": 65, "device": 0}]]


def test_memory_that_hip_knows(run_python: Run, library: Path) -> None:
    """Pinned and managed memory, by the numbers of each release."""
    kinds = (0, 3, 4) if library.name.endswith("5") else (1, 3, 11)
    calls = [f"answer(table.static, known(np.zeros((2, 3), np.float32), {kind}))" for kind in kinds]
    assert asked(run_python, library, *calls) == [1, 2, 3]


def test_what_is_not_asked(run_python: Run, library: Path) -> None:
    """Device memory, plain integers, and tensors without elements."""
    calls = (
        "answer(table.written, np.zeros(0, np.float32), 0x1000, np.zeros(0, np.float32))",
        "answer(table.static, type('T', (), {'__cuda_array_interface__': {'version': 3, 'data': (0x1000, False), 'shape': (2, 3), 'typestr': '<f4'}})())",
        "hip.events('device_attribute', 'pointer_attributes')",
    )
    assert asked(run_python, library, *calls) == [1, 2, []]


def test_each_device_is_asked(run_python: Run, library: Path) -> None:
    call = "answer(table.static, a)"
    text, _, other, events = asked(run_python, library, call, "hip._library.hipSetDevice(2)", call, "hip.events('device_attribute')")
    assert "which device 0 cannot read" in text
    assert "which device 2 cannot read" in other
    assert [event["device"] for event in events] == [0, 2]


def test_hip_without_the_question(run_python: Run, tmp_path: Path) -> None:
    library = fake_hip.build(tmp_path, "FAKE_HIP_NO_ATTRIBUTES")
    assert asked(run_python, library, "answer(table.static, a)") == [1]


def test_questions_that_fail(run_python: Run, library: Path) -> None:
    """A device that cannot be asked is taken for one that does not; memory that cannot be asked about is passed on."""
    calls = (
        "hip.fail('hipDeviceGetAttribute', 999)",
        "answer(table.static, a)",
        "hip.fail('hipPointerGetAttributes', 999)",
        "answer(table.static, a)",
        "hip.last_error()",
    )
    first, text, second, launches, error = asked(run_python, library, *calls)
    assert (first, second, launches, error) == (None, None, 1, 0)
    assert "host memory" in text
