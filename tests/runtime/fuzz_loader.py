# SPDX-License-Identifier: Apache-2.0
"""Fuzzer of the loader: manifests of other forms than the build's, up to what is loaded and bound. Started by test_sanitizers.py."""

from __future__ import annotations

import hashlib
import importlib
import json
from typing import TYPE_CHECKING, Any

from fuzzing import edited, fuzz
from synthetic import pointer, scalar, stream, tensor
from test_arguments import f32

if TYPE_CHECKING:
    from fake_hip import FakeHip
    from synthetic import Package

LAUNCHERS: list[dict[str, Any]] = [
    {
        "name": "add",
        "parameters": {"A": {}, "B": {}, "n": {"role": "constexpr", "default": 4}, "stream": {"role": "stream", "default": None}},
        "specializations": [
            {
                "arguments": {"A": tensor("f32", ["M", "N%1"]), "B": tensor("f32", ["M", 3], [3, 1]), "stream": stream()},
                "constexpr": {"n": n},
            }
            for n in (4, 8)
        ],
    },
    {
        "name": "make",
        "factory": [{"name": "N"}],
        "parameters": {"p": {"role": "pointer"}, "k": {"role": "scalar"}},
        "specializations": [{"arguments": {"p": pointer("f32", 4), "k": scalar("i32")}, "params": {"N": 16}}],
    },
]


def test_loader(package: Package, hip: FakeHip, runtime: Any) -> None:
    native = importlib.import_module(f"{runtime.__name__}._native")
    module = importlib.import_module(f"{runtime.__name__}.module")
    manifest = package.write_module("fuzzed", LAUNCHERS, variables={"factor": 8})
    file = package.root / "_flydsl" / "fuzzed.json"
    stub = str(package.root / "fuzzed.py")
    hip.clear()

    def add(A: Any, B: Any, n: int = 4, stream: Any = None) -> None:  # noqa: N803
        del A, B, n, stream

    def make(N: int) -> None:  # noqa: N803
        del N

    # As in a stub, where they are not inside of a function.
    add.__qualname__, make.__qualname__ = "add", "make"

    def load(tree: Any) -> None:
        data = json.dumps(tree).encode()
        file.write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        handle = runtime.attach("fake_kernels.fuzzed", stub, "_flydsl/fuzzed.json", digest, archs=("gfx942", "gfx1100"), load="lazy")
        assert handle.capability().device == 0
        launchers = [handle.launcher(add)]
        before = len(module._images)
        try:
            handle.load()
            launchers[0].bind(f32(2, 3), f32(2, 3))
            assert len(launchers[0].specializations) >= 1
            handle.factory(make)(16).bind(0x1000, 3)
        except (TypeError, ValueError, OverflowError) as error:
            # Arguments that a changed declaration refuses; all else would be without the name of a launcher.
            if not str(error).startswith(("add(", "make(")):
                raise
        finally:
            # What is loaded stays, by design: not in here.
            for units in handle._units.values():
                for unit in units:
                    native.unload(unit.module)
            del module._images[before:]

    load(manifest)
    errors = (runtime.CorruptFileError, runtime.UnsupportedTargetError, runtime.LoadError, runtime.InitError)
    fuzz(edited(manifest), load, errors)
    assert hip.events("launch") == []
