# SPDX-License-Identifier: Apache-2.0
"""A launcher with 40 specializations beside one with a single one: import time, wheel size, call time, as ratios of one run.

    python tests/benchmarks/specializations.py

Needs what a build needs, numpy, and a C compiler; the driver is the tests' fake HIP, whose launches return at once.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import fake_hip

COUNT = 40
ROUNDS = 15

PYPROJECT = """
[build-system]
requires = ["flydsl-build"]
build-backend = "flydsl_build.backend"
[project]
name = "many-{count}"
version = "1.0"
[tool.setuptools]
packages = ["many{count}"]
[tool.flydsl-build]
archs = ["gfx942"]
[tool.flydsl-build.kernels."many{count}.kernels:scale"]
args = {{ X = "f32[L]" }}
constexpr = {{ factor = {values} }}
"""

KERNELS = """
import flydsl.compiler as flyc
import flydsl.expr as fx


@flyc.jit
def scale(X: fx.Tensor, n: fx.Int32, factor: fx.Constexpr[int], stream: fx.Stream = fx.Stream(None)):
    @flyc.kernel
    def scale_kernel(X: fx.Tensor, n: fx.Int32):
        index = fx.block_idx.x * 64 + fx.thread_idx.x
        if index < n:
            X[index] = X[index] * fx.Float32(float(factor))

    scale_kernel(X, n).launch(grid=((n + 63) // 64, 1, 1), block=(64, 1, 1), stream=stream)
"""

# Beside a module of as many bytes with nothing in them, in turns within one process, each time imported anew from its byte code.
IMPORTS = """
import importlib, json, pathlib, statistics, sys, time
import many{count}.kernels as kernels
package = pathlib.Path(kernels.__file__).parent
size = sum(file.stat().st_size for file in package.rglob("*") if file.is_file() and "__pycache__" not in str(file))
(package.parent / "empty.py").write_text("# " + "x" * (size - 3) + chr(10))
ours = [name for name in sys.modules if name.startswith("many{count}")]
stub = ["many{count}.kernels"]
def once(names, module):
    for name in names: sys.modules.pop(name, None)
    begin = time.thread_time(); importlib.import_module(module)
    return time.thread_time() - begin
times = [[once(["empty"], "empty"), once(ours, "many{count}.kernels"), once(stub, "many{count}.kernels")] for _ in range(101)]
print(json.dumps([size, *map(statistics.median, zip(*times[1:]))]))
"""

# Imports with nothing to load, then the load with all kernels, then calls of the last specialization.
MEASURE = """
import json, sys, time
import numpy
started = time.perf_counter()
import many{count}.kernels as kernels
imported = time.perf_counter()
kernels.__flydsl__.load()
loaded = time.perf_counter()
x = numpy.zeros(100, "f4")
kernels.scale(x, 90, {last})
first = time.perf_counter()
calls = 20000
for _ in range(calls):
    kernels.scale(x, 90, {last})
print(json.dumps([imported - started, loaded - imported, first - loaded, (time.perf_counter() - first) / calls]))
"""


def build(folder: Path, count: int) -> Path:
    """Build the wheel with `count` specializations and unpack it; return it."""
    project = folder / f"project{count}"
    package = project / f"many{count}"
    package.mkdir(parents=True)
    values = json.dumps(list(range(1, count + 1)))
    (project / "pyproject.toml").write_text(PYPROJECT.format(count=count, values=values), encoding="utf-8")
    (package / "__init__.py").write_text("", encoding="utf-8")
    (package / "kernels.py").write_text(KERNELS, encoding="utf-8")
    code = f"import flydsl_build.backend as b; b.build_wheel({str(folder)!r}, {{'cache': 'false'}})"
    subprocess.run([sys.executable, "-c", code], cwd=project, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob(f"many_{count}-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return wheel


def compare_imports(environ: dict[str, str]) -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS.format(count=COUNT)], env=environ, capture_output=True, text=True, check=True)
    size, empty, whole, stub = json.loads(done.stdout)
    print(f"---- import with {COUNT} specializations, against an empty module of the same {size / 1e3:.0f} kB on disk")
    print(f"the empty module {empty * 1e6:.0f} us; the stub {stub * 1e6:.0f} us; the stub with its run time {whole * 1e6:.0f} us")
    print(f"the stub / the empty module: {stub / empty:.2f}; with the run time: {whole / empty:.2f}   goal: under 3")


def main() -> None:
    """Build both, measure in turns, print the ratios."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = fake_hip.build(folder / "hip")
        wheels = {count: build(folder, count) for count in (1, COUNT)}
        environ = {**os.environ, "PYTHONPATH": str(folder / "site"), "FLYDSL_BUILD_HIP_LIBRARY": str(library)}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its byte code
        environ |= {"FAKE_HIP_TARGETS": "gfx942", "FAKE_HIP_NULL": "1", "FLYDSL_BUILD_LOAD": "lazy"}
        times: dict[int, list[list[float]]] = {count: [] for count in wheels}
        for _ in range(ROUNDS):
            for count in wheels:
                script = MEASURE.format(count=count, last=count)
                done = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, text=True, check=True)
                times[count].append(json.loads(done.stdout))
        print(f"{'':24}{'1':>12}{COUNT:>12}{'ratio':>8}")
        sizes = [wheels[count].stat().st_size for count in wheels]
        print(f"{'wheel, bytes':24}{sizes[0]:12}{sizes[1]:12}{sizes[1] / sizes[0]:8.2f}")
        for index, what in enumerate(("import, lazy", "load", "first call", "a call")):
            one, many = (statistics.median(row[index] for row in times[count]) * 1e6 for count in wheels)
            print(f"{what + ', us':24}{one:12.2f}{many:12.2f}{many / one:8.2f}")
        compare_imports(environ)


if __name__ == "__main__":
    main()
