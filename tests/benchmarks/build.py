# SPDX-License-Identifier: Apache-2.0
"""Print what a build costs beside what it may cost: `python tests/benchmarks/build.py [unchanged|tiny|workers|overhead|memory|plan …]`.

unchanged  a rebuild of an unchanged project, over setuptools' build of the same project without its kernels; below 1.5
tiny       the same for 400 jobs in 100 modules, whose wheel has five times as many files as one without kernels
workers    eight jobs on one worker, over the same on two; at least 1.7 on two free cores
overhead   a build with one worker, over the compile times of FlyDSL itself for the same specializations; at most 1.15
memory     the peak of a worker, and of the parent that takes 2 000 jobs from the cache; below 1 GB and 200 MB
plan       `flydsl-build plan` of 10 000 declarations, over the start of Python and the reading of the file alone; below 2 s

Subjects take turns, so that a busy machine is unfair to all alike; ratios are of medians, of the least times, and of processor
time, which others disturb least. Needs flydsl, setuptools and jinja2; no GPU. Torch is kept out of sight, as in an isolated build.
"""

from __future__ import annotations

import json
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))

from building import build_environment

TARGET = "gfx942"
ROUNDS = 7
MODULES = 8
COLUMNS = (4096, 8192, 16384, 32768)
JOBS = 2000
MANY_TARGETS = ("gfx942", "gfx950", "gfx1100", "gfx1201")

PYPROJECT = """\
[build-system]
requires = ["flydsl-build"]
build-backend = "flydsl_build.backend"

[project]
name = "benchmark-kernels"
version = "1.0"

[tool.setuptools]
packages = ["benchmark_kernels"]

[tool.flydsl-build]
archs = ["{target}"]
"""

TABLE = """
[tool.flydsl-build.kernels."benchmark_kernels.{module}:build_scan"]
params = {{ COLUMNS = {columns} }}
args = {{ X = "f32[M, {{COLUMNS}}]", Out = "f32[M, {{COLUMNS}}]" }}
"""

# As long as its rows are wide: every thread has COLUMNS / 256 elements, in straight code.
KERNEL = '''\
"""Exponentials of rows, each divided by the sum of its thread's."""

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.expr import math as fmath

THREADS = 256


def build_scan(COLUMNS):
    PER_THREAD = COLUMNS // THREADS

    @flyc.kernel
    def scan_kernel(X: fx.Tensor, Out: fx.Tensor):
        row = fx.block_idx.x
        thread = fx.thread_idx.x
        values = [fmath.exp(X[row, thread + index * THREADS]) for index in fx.range_constexpr(PER_THREAD)]
        total = values[0]
        for index in fx.range_constexpr(1, PER_THREAD):
            total = total + values[index]
        for index in fx.range_constexpr(PER_THREAD):
            Out[row, thread + index * THREADS] = values[index] / total

    @flyc.jit
    def scan(X: fx.Tensor, Out: fx.Tensor, rows: fx.Int32, stream: fx.Stream = fx.Stream(None)):
        scan_kernel(X, Out).launch(grid=(rows, 1, 1), block=(THREADS, 1, 1), stream=stream)

    return scan
'''

# FlyDSL's whole pipeline, binary included, for the same argument types; nothing of flydsl-build but the words for them.
ALONE = """
import json, sys, time
folder, modules, columns = json.loads(sys.argv[1])
sys.path.insert(0, folder)
started = time.perf_counter()
from flydsl_build.frontends.flydsl.torch_stand_in import install_torch_stand_in
install_torch_stand_in()
import importlib
import flydsl.compiler, flydsl.expr
imported = time.perf_counter() - started
from flydsl_build.frontends.flydsl import adapter
from flydsl_build.declare.argument_grammar import parse_argument
seconds = 0.0
for module in modules:
    build = importlib.import_module(f"benchmark_kernels.{module}").build_scan
    for count in columns:
        started = time.perf_counter()
        launcher = build(count)
        function, _ = adapter.jit_function._unwrap_jit_function(launcher)
        annotations = adapter.signature_of(launcher).parameters
        tensor = parse_argument(f"f32[M, {count}]", where="benchmark")
        arguments = {name: adapter.make_argument(tensor, annotations[name].annotation) for name in ("X", "Out")}
        function._compile_only(**arguments, rows=flydsl.expr.Int32(1), stream=flydsl.expr.Stream(None))
        seconds += time.perf_counter() - started
print(json.dumps([seconds, imported]))
"""


@dataclass(frozen=True)
class Cost:
    """What a process and those it started took."""

    wall: float
    processor: float
    output: str


def run(code: str, folder: Path, *arguments: str, **env: str) -> Cost:
    """Run Python code in a process of its own, in a folder."""
    environ = {**build_environment(folder.parent / "no-torch"), **env}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code, *arguments], cwd=folder, env=environ, capture_output=True, text=True, check=False)
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(done.stdout + done.stderr)
    processor = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Cost(wall=wall, processor=processor, output=done.stdout)


def build(project: Path, *, backend: str = "flydsl_build.backend", jobs: int = 1, cache: Path | None = None) -> Cost:
    """Build a project's wheel through the PEP 517 hook."""
    dist = project.parent / "dist"
    dist.mkdir(exist_ok=True)
    code = f"import {backend} as b; b.build_wheel({str(dist)!r})"
    env = {"FLYDSL_BUILD_JOBS": str(jobs), "FLYDSL_BUILD_CACHE": "true" if cache else "false", "FLYDSL_BUILD_CACHE_DIR": str(cache or "")}
    return run(code, project, **env)


def ratios(first: list[Cost], second: list[Cost]) -> str:
    """Return the ratio of two lists of costs in three ways."""
    wall = [[one.wall for one in costs] for costs in (first, second)]
    processor = [statistics.median(one.processor for one in costs) for costs in (first, second)]
    return (
        f"{statistics.median(wall[0]) / statistics.median(wall[1]):.2f} of medians, {min(wall[0]) / min(wall[1]):.2f} of the least, "
        f"{processor[0] / processor[1]:.2f} of processor time"
    )


def seconds(costs: list[Cost]) -> str:
    """Return the median."""
    return f"{statistics.median(one.wall for one in costs):.2f} s"


# ---- the questions -----------------------------------------------------------------------------------------------------


def unchanged(folder: Path) -> None:
    """Compare a rebuild with a build without kernels."""
    project = shutil.copytree(ROOT / "example_pkg", folder / "example", ignore=shutil.ignore_patterns("build", "*.egg-info"))
    plain = shutil.copytree(project, folder / "plain")
    settings = plain / "pyproject.toml"
    settings.write_text(settings.read_text(encoding="utf-8").partition("[tool.flydsl-build]")[0], encoding="utf-8")
    cold = build(project, jobs=2, cache=folder / "cache")
    build(plain, backend="setuptools.build_meta")
    compare("unchanged", project, plain, folder / "cache", cold)


def compare(name: str, project: Path, plain: Path, cache: Path, cold: Cost) -> None:
    """Let rebuilds of two projects take turns."""
    hot, without = [], []
    for _ in range(ROUNDS):
        hot.append(build(project, cache=cache))
        without.append(build(plain, backend="setuptools.build_meta"))
    assert all(" 0 compiled" in one.output for one in hot)
    print(f"{name}: {seconds(hot)} over {seconds(without)} of setuptools alone (the first build: {cold.wall:.1f} s)")
    print(f"  ratio {ratios(hot, without)}; the goal is below 1.5")


def tiny(folder: Path) -> None:
    """Compare a rebuild of many tiny modules with a build without kernels."""
    project = tiny_modules(folder / "tiny", 100)
    plain = shutil.copytree(project, folder / "plain")
    settings = plain / "pyproject.toml"
    settings.write_text(settings.read_text(encoding="utf-8").partition("[tool.flydsl-build]")[0], encoding="utf-8")
    cold = build(project, jobs=2, cache=folder / "cache")
    build(plain, backend="setuptools.build_meta")
    compare("tiny", project, plain, folder / "cache", cold)


def tiny_modules(folder: Path, count: int) -> Path:
    """Write a project of many modules with one small kernel each, for four targets."""
    package = folder / "benchmark_kernels"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("", encoding="utf-8")
    kernel = (ROOT / "tests/packages/tiny/tiny_kernels/negate.py").read_text(encoding="utf-8")
    text = PYPROJECT.format(target='", "'.join(MANY_TARGETS))
    for number in range(count):
        (package / f"kernels_{number}.py").write_text(kernel, encoding="utf-8")
        text += f'\n[tool.flydsl-build.kernels."benchmark_kernels.kernels_{number}:negate"]\nargs = {{ X = "f32[L]" }}\n'
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return folder


def generated(folder: Path) -> Path:
    """Write the project of eight modules."""
    package = folder / "project" / "benchmark_kernels"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("", encoding="utf-8")
    text = PYPROJECT.format(target=TARGET)
    for number in range(MODULES):
        (package / f"kernels_{number}.py").write_text(KERNEL, encoding="utf-8")
        text += TABLE.format(module=f"kernels_{number}", columns=list(COLUMNS))
    (folder / "project" / "pyproject.toml").write_text(text, encoding="utf-8")
    return folder / "project"


def capacity() -> float:
    """Return how much more two processes of plain arithmetic get done than one: 2 where two cores are free."""

    def spin(count: int) -> float:
        started = time.perf_counter()
        command = [sys.executable, "-c", "x = 0\nfor i in range(10_000_000): x += i"]
        for process in [subprocess.Popen(command) for _ in range(count)]:
            process.wait()
        return time.perf_counter() - started

    return 2 * spin(1) / spin(2)


def workers(folder: Path) -> None:
    """Compare one worker with two."""
    project = generated(folder)
    one, two, free = [], [], []
    for _ in range(3):
        free.append(capacity())
        one.append(build(project, jobs=1))
        two.append(build(project, jobs=2))
    print(f"workers: {MODULES} jobs, {seconds(one)} on one, {seconds(two)} on two")
    print(f"  ratio {ratios(one, two)}; the goal is at least 1.7 on two free cores")
    print(f"  at the time two processes of plain arithmetic did {statistics.median(free):.2f} times the work of one")


def overhead(folder: Path) -> None:
    """Compare a build with what FlyDSL takes for the same."""
    from flydsl_build.toolchain.discovery import make_toolkit

    project = generated(folder)
    (folder / "toolkit").mkdir()
    make_toolkit(folder / "toolkit")
    request = json.dumps([str(project), [f"kernels_{number}" for number in range(MODULES)], list(COLUMNS)])
    env = {"ARCH": TARGET, "FLYDSL_GPU_ARCH": TARGET, "COMPILE_ONLY": "1", "FLYDSL_RUNTIME_ENABLE_CACHE": "0"}
    ours, compiling, importing, alone = [], [], [], []
    for _ in range(3):
        ours.append(build(project))
        alone.append(run(ALONE, folder, request, **env, ROCM_PATH=str(folder / "toolkit")))
        own, imported = json.loads(alone[-1].output.splitlines()[-1])
        compiling.append(own)
        importing.append(imported)
    pairs = list(zip(ours, compiling, importing, strict=True))
    count = MODULES * len(COLUMNS)
    print(
        f"overhead: {seconds(ours)} for {count} specializations; FlyDSL's own {statistics.median(compiling):.2f} s, its import beside that"
    )
    print(f"  {statistics.median(one.wall / own for one, own, _ in pairs):.2f} times FlyDSL's compile times; the goal is 1.15")
    print(f"  {statistics.median(one.wall / (own + imported) for one, own, imported in pairs):.2f} times these and one import of FlyDSL")
    print(f"  processor time of the whole build over that of FlyDSL's process: {ratios(ours, alone).rpartition(', ')[2]}")


MEMORY = """
import resource, sys
import flydsl_build.backend as b
b.build_wheel(sys.argv[1])
print("PEAK", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def memory(folder: Path) -> None:
    """Measure the largest worker of the example, and the parent of many jobs."""
    project = shutil.copytree(ROOT / "example_pkg", folder / "example", ignore=shutil.ignore_patterns("build", "*.egg-info"))
    watch = (
        "import flydsl_build.engine.local as p, atexit\nseen = []\nobserve = p._Memory.observe\n"
        "def note(self, pid):\n    observe(self, pid)\n    seen.append(self.peak)\n"
        "p._Memory.observe = note\natexit.register(lambda: print('WORKER', max(seen)))\n"
    )
    (folder / "dist").mkdir()
    code = f"{watch}import flydsl_build.backend as b; b.build_wheel({str(folder / 'dist')!r})"
    worker = int(re.findall(r"WORKER (\d+)", run(code, project, FLYDSL_BUILD_CACHE="false").output)[0])
    print(f"memory: the largest worker of the example takes {worker / 1e6:.0f} MB; the goal is below 1 GB")

    many = tiny_modules(folder / "many", JOBS // len(MANY_TARGETS))
    cache = {"FLYDSL_BUILD_CACHE": "true", "FLYDSL_BUILD_CACHE_DIR": str(folder / "cache"), "FLYDSL_BUILD_JOBS": "2"}
    for what in ("compiled", "from the cache"):
        cost = run(MEMORY, many, str(folder / "dist"), **cache)
        peak = int(re.findall(r"PEAK (\d+)", cost.output)[0])
        (line,) = re.findall(r"flydsl-build: (\d+ jobs: .*)", cost.output)
        print(f"  the parent takes {peak / 1e6:.0f} MB and {cost.wall:.0f} s ({line}); the goal is below 200 MB")
        assert what in line


def plan(folder: Path) -> None:
    """Time the plan of ten thousand declarations."""
    tables = [
        f'[tool.flydsl-build.kernels."pkg.m{index % 50}:k{index}"]\nargs = {{ A = "f32[M, N]", n = "i32" }}\n' for index in range(10_000)
    ]
    (folder / "pyproject.toml").write_text('[tool.flydsl-build]\narchs = ["gfx942"]\n' + "".join(tables))
    ours = "import sys; from flydsl_build.__main__ import main; sys.argv[1:] = ['plan', '.']; main()"
    plain = "import tomllib; tomllib.load(open('pyproject.toml', 'rb'))"
    times = {code: min(run(code, folder).wall for _ in range(ROUNDS)) for code in (ours, plain)}
    print(
        f"plan: {times[ours]:.2f} s for 10 000 declarations, {times[ours] / times[plain]:.1f} times reading the file; the goal is below 2 s"
    )


QUESTIONS = {"unchanged": unchanged, "tiny": tiny, "workers": workers, "overhead": overhead, "memory": memory, "plan": plan}


def main(names: list[str]) -> None:
    """Answer the questions that are named, or all."""
    for name in names or QUESTIONS:
        with tempfile.TemporaryDirectory(prefix="flydsl-build-benchmark-") as folder:
            QUESTIONS[name](Path(folder))


if __name__ == "__main__":
    main(sys.argv[1:])
