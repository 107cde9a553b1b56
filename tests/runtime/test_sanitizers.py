# SPDX-License-Identifier: Apache-2.0
"""The native run time built with AddressSanitizer and UndefinedBehaviorSanitizer: its tests, its fuzzers, and what stays allocated."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import synthetic
from synthetic import Package, scalar, tensor

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.sanitizer

HERE = Path(__file__).parent
FUZZERS = sorted(HERE.glob("fuzz_*.py"))
# Not those that measure memory, of which the sanitizer takes its part, nor those that look for libraries or compile ten of them.
TESTS = ["arguments", "bind", "broken_producers", "factory_calls", "loading", "servers"]
LEFT_OUT = "not memory and not block_is_lost and not order_of_resolution and not releases_of_hip and not torch and not divisibility"
STREAM = {"stream": {"role": "stream", "default": None}}
LAUNCHERS = [
    {
        "name": "add",
        "parameters": {"A": {}, "B": {}, **STREAM},
        "specializations": [{"arguments": {"A": tensor("f32", ["M", "N"]), "B": tensor("f32", ["M", "N"]), "stream": {"kind": "stream"}}}],
    },
    {"name": "one", "parameters": {"x": {}}, "specializations": [{"arguments": {"x": scalar("i32")}}]},
]


@pytest.fixture(scope="module")
def sanitized(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """The environment in which Python runs with the sanitized extension."""
    compiler = os.environ.get("CC", "cc")
    found = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True).stdout.strip()
    if not Path(found).is_absolute():
        pytest.skip(f"{compiler} has no AddressSanitizer")
    flags = ("-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
    native = synthetic.compile_native(tmp_path_factory.mktemp("sanitized"), *flags)
    return {
        **os.environ,
        "FLYDSL_BUILD_TEST_NATIVE": str(native),
        "LD_PRELOAD": found,
        # Python itself leaves much behind; what we do is counted below.
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=512",
        "UBSAN_OPTIONS": "print_stacktrace=1",
        "PYTHONMALLOC": "malloc",  # each object is a block of its own, with red zones around it
        "FAKE_HIP_FREE": "1",
    }


def run(environ: Mapping[str, str], *words: str) -> str:
    done = subprocess.run([sys.executable, "-P", *words], cwd=HERE.parents[1], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-20000:] + done.stderr[-20000:]
    assert "Sanitizer" not in done.stderr
    return done.stdout


PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:faulthandler")


def test_the_sanitizer_finds_what_it_should(sanitized: Mapping[str, str]) -> None:
    # A description whose memory is freed while it is in use cannot be made from outside: so a use after free in ctypes.
    script = "import ctypes; c = ctypes.CDLL(None); c.malloc.restype = ctypes.c_void_p; p = c.malloc(8); c.free(ctypes.c_void_p(p)); ctypes.memset(p, 1, 8)"
    done = subprocess.run([sys.executable, "-c", script], env=sanitized, capture_output=True, text=True, check=False)
    assert done.returncode
    assert "AddressSanitizer: heap-use-after-free" in done.stderr


def test_native_tests(sanitized: Mapping[str, str]) -> None:
    output = run(sanitized, *PYTEST, *(str(HERE / f"test_{name}.py") for name in TESTS), "-k", LEFT_OUT)
    assert " passed" in output


def test_fuzzers(sanitized: Mapping[str, str]) -> None:
    assert len(FUZZERS) == 2
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for output in pool.map(lambda fuzzer: run(sanitized, *PYTEST, str(fuzzer)), FUZZERS):
            assert " passed" in output


# ---- what stays allocated --------------------------------------------------------------------------------------------

COUNT = """
import ctypes, gc, os, sys, types
allocated = ctypes.CDLL(None).__sanitizer_get_current_allocated_bytes
allocated.restype = ctypes.c_size_t
inits = sys.modules["inits"] = types.ModuleType("inits")
answers = []
inits.f = lambda module: answers.pop() if answers else None
import leaks.module as m
handle = m.__flydsl__
a, b = (memoryview(bytearray(24)).cast("B").cast("f", (2, 3)) for _ in range(2))

class Dlpack:
    # The same capsule each time: a new one would be the producer's allocation.
    def __dlpack_device__(self): return (1, 0)
    def __dlpack__(self, **_): return None

def launches(count):
    bound = m.add.bind(a, b)
    for n in range(count // 5):
        m.add(a, b); m.add(a, B=b, stream=3); m.one(n); bound(); bound.update(A=b); bound()

def refusals(count):
    for bad in [(a, 5), (a, memoryview(b"abc")), (a, b, "stream"), (Dlpack(), b), (a,), (a, b, 0, 0)] * count:
        try: m.add(*bad)
        except (TypeError, BufferError): pass
        else: raise SystemError(bad)

def loads(count):
    for _ in range(count):
        fresh = type(handle)("leaks.module", handle._file, None, archs=handle.archs, load="lazy")
        answers.append(-1)
        try: fresh.load()
        except RuntimeError: pass
        else: raise SystemError
        try: fresh.launcher(m.one)(5)  # loads, and stays loaded: so unload it by hand
        finally:
            for units in fresh._units.values():
                for unit in units: native.unload(unit.module)
        del images[before:]
        hip.fake_hip_clear()

hip = ctypes.CDLL(os.environ["FLYDSL_BUILD_HIP_LIBRARY"])
native = sys.modules["leaks._flydsl.runtime._native"]
images = sys.modules["leaks._flydsl.runtime.module"]._images
before = len(images)

def grown(work, warm, count):
    # Python's own caches fill up first, and its tables grow now and then; what is lost is lost each time.
    work(warm)
    windows = []
    for _ in range(3):
        gc.collect(); first = allocated(); work(count); gc.collect()
        windows.append(allocated() - first)
    return min(windows)

def mapped():
    gc.collect()
    return open("/proc/self/maps").read().count("module.hipfb")

launches(10); loads(10)
maps = mapped()
print(grown(launches, 5000, 35_000), grown(refusals, 4000, 1000), grown(loads, 1500, 100), mapped() - maps)
"""


def test_nothing_is_lost(sanitized: Mapping[str, str], hip_library: Path, tmp_path: Path) -> None:
    """Bytes that are allocated, as the sanitizer counts them: 100 000 launches, refused calls, loads and unloads, in one process."""
    package = Package(tmp_path, "leaks", Path(sanitized["FLYDSL_BUILD_TEST_NATIVE"]))
    package.write_module("module", LAUNCHERS, init=("inits:f",))
    environ = {
        **sanitized,
        "PYTHONPATH": str(tmp_path),
        "FAKE_HIP_TARGETS": "gfx942",
        "FAKE_HIP_NULL": "1",
        "FLYDSL_BUILD_HIP_LIBRARY": str(hip_library),
    }
    launches, refusals, loads, maps = map(int, run(environ, "-c", COUNT).split())
    # Of 35 000 launches, 6000 refused calls, 100 loads: the smallest object has more than 30 bytes.
    assert launches < 1000
    assert refusals < 1000
    assert loads < 1000
    assert maps == 0
