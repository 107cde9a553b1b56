# SPDX-License-Identifier: Apache-2.0
"""Print what a launch costs the host, beside what it may cost: `python tests/benchmarks/launch.py [wheel or unzipped wheel]`.

One process, the driver stubbed out by the fake HIP's null launch. The subjects take turns in short rounds, so that a busy
machine is unfair to all alike; the ratios are of medians, and of the least times, which a busy machine disturbs less. Without
an argument the example is built through the back end's hook. Needs flydsl, torch and numpy; JAX is measured where it is
installed.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "runtime")]

import synthetic
from synthetic import scalar

if TYPE_CHECKING:
    from collections.abc import Callable

ARCH = "gfx942"
ROUNDS, CALLS, SLOW_CALLS = 300, 300, 20
STARTS = 5
WORKPLACE = "FLYDSL_BUILD_BENCHMARK_FOLDER"


# ---- set-up ----------------------------------------------------------------------------------------------------------


def build_example(folder: Path) -> Path:
    """Build the example's wheel through the PEP 517 hook, in a copy of its source."""
    source = shutil.copytree(ROOT / "example_pkg", folder / "source", ignore=shutil.ignore_patterns("build", "*.egg-info"))
    code = f"import flydsl_build.backend as b; b.build_wheel({str(folder)!r}, {{'archs': {ARCH!r}}})"
    environ = {**os.environ, "XDG_CACHE_HOME": str(folder / "xdg")}
    subprocess.run([sys.executable, "-c", code], cwd=source, env=environ, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob("*.whl")
    return wheel


def compile_library(sources: list[Path], library: Path, *flags: str | Path) -> None:
    library.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run([os.environ.get("CC", "cc"), "-std=gnu11", "-O2", "-fPIC", "-shared", *flags, "-o", library, *sources], check=True)


def set_up(folder: Path, wheel: Path | None) -> dict[str, str]:
    """Fill the folder; return the environment for the process that measures."""
    from flydsl_build.toolchain.discovery import make_toolkit

    site = folder / "site"
    wheel = wheel or build_example(folder)
    if wheel.is_dir():
        shutil.copytree(wheel, site)
    else:
        zipfile.ZipFile(wheel).extractall(site)
    version = folder / "hip.map"
    version.write_text("hip_4.2 { *; };\n")
    soname = "libamdhip64.so.7"
    sources = [HERE.parent / "fake_hip" / "fake_hip.c", HERE / "hip_for_flydsl.c"]
    compile_library(sources, folder / "hip" / soname, f"-Wl,-soname,{soname}", f"-Wl,--version-script={version}", "-lpthread")
    compile_library([HERE / "floor.c"], site / "launch_floor.so", "-isystem", sysconfig.get_paths()["include"])
    toolkit = folder / "toolkit"
    toolkit.mkdir()
    make_toolkit(toolkit)
    (site / "flydsl_source.py").write_bytes((ROOT / "example_pkg" / "src" / "example_pkg" / "elementwise.py").read_bytes())
    native = next((site / "example_pkg" / "_flydsl" / "runtime").glob("_native*.so"))
    launchers = [{"name": f"one_{n}", "parameters": {"x": {}}, "specializations": [{"arguments": {"x": scalar("i32")}}]} for n in range(8)]
    package = synthetic.Package(site, "many_kernels", native)
    package.write_module("eight", launchers)
    # The bundle of many targets: 50 MB, of which a device needs one code object.
    targets = (ARCH, "gfx90a", "gfx950", "gfx1100", "gfx1201")
    package.write_module("large", launchers[:1], targets=targets, padding=10 << 20)
    return {
        # An installed package has its byte code.
        **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        WORKPLACE: str(folder),
        "LD_LIBRARY_PATH": str(folder / "hip"),
        "ROCM_PATH": str(toolkit),
        "FAKE_HIP_TARGETS": ARCH,
        "FAKE_HIP_NULL": "1",
        "ARCH": ARCH,
        "FLYDSL_GPU_ARCH": ARCH,
        "FLYDSL_RUNTIME_CACHE_DIR": str(folder / "cache"),
        "PYTHONPATH": os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]),
    }


# ---- measuring -------------------------------------------------------------------------------------------------------


class Timings:
    """Nanoseconds a call of each subject."""

    def __init__(self) -> None:
        self.subjects: dict[str, tuple[Callable[[], Any], int]] = {}
        self.times: dict[str, list[float]] = {}

    def add(self, name: str, call: Callable[[], Any], calls: int = CALLS) -> None:
        call()
        self.subjects[name] = call, calls
        self.times[name] = []

    def run(self) -> None:
        clock = time.perf_counter
        for _ in range(ROUNDS):
            for name, (call, calls) in self.subjects.items():
                repeat = range(calls)
                begin = clock()
                for _ in repeat:
                    call()
                self.times[name].append((clock() - begin) / calls * 1e9)

    def report(self) -> None:
        for name, times in self.times.items():
            print(f"{name:44} median {statistics.median(times):9.1f} ns   least {min(times):9.1f} ns")

    def ratio(self, subject: str, base: str, goal: str) -> None:
        if subject in self.times and base in self.times:
            # Of neighbours in time, so that what else the machine does is in both.
            pairs = [a / b for a, b in zip(self.times[subject], self.times[base], strict=True)]
            least = min(self.times[subject]) / min(self.times[base])
            print(f"{subject} / {base}: median {statistics.median(pairs):.2f}, least times {least:.2f}   goal: {goal}")


class InterfaceOnly:
    """An array that has nothing but the array interface of CUDA."""

    def __init__(self, array: Any) -> None:
        self._array = array

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self._array.__array_interface__, "version": 3}


class DlpackOnly(InterfaceOnly):
    """A CuPy-like array as far as protocols go: DLPack, and the array interface of CUDA beside it."""

    def __dlpack_device__(self) -> tuple[int, int]:
        return (1, 0)

    def __dlpack__(self, **keywords: Any) -> Any:
        return self._array.__dlpack__(max_version=keywords.get("max_version"))


def launches() -> None:  # noqa: PLR0915 - one line a subject
    import launch_floor as floor
    import numpy as np
    import torch

    elementwise = importlib.import_module("example_pkg.elementwise")
    call, timings = elementwise.vector_add, Timings()
    t, stream = [torch.ones(20, 132) for _ in range(3)], 5
    a = [np.ones((20, 132), np.float32) for _ in range(3)]
    print("---- vector_add(A, B, C, stream=s), every check on")
    timings.add("nothing", lambda: None)
    timings.add("C function of no arguments", floor.nothing)
    timings.add("the same, releasing the interpreter lock", floor.unlocked)
    if hasattr(torch.Tensor, "__dlpack_c_exchange_api__"):
        floor.set_type(torch.Tensor)
        timings.add("floor, torch", lambda: floor.three(t[0], t[1], t[2], stream=stream))
    timings.add("torch", lambda: call(t[0], t[1], t[2], stream=stream))
    timings.add("floor, numpy buffers", lambda: floor.three_buffers(a[0], a[1], a[2], stream=stream))
    timings.add("numpy", lambda: call(a[0], a[1], a[2], stream=stream))
    d, i = [DlpackOnly(one) for one in a], [InterfaceOnly(one) for one in a]
    timings.add("floor, __dlpack__ alone", lambda: floor.three_dlpack(d[0], d[1], d[2], stream=stream), SLOW_CALLS)
    timings.add("__dlpack__ alone, in Python (CuPy-like)", lambda: call(d[0], d[1], d[2], stream=stream), SLOW_CALLS)
    timings.add("floor, array interfaces", lambda: floor.three_interfaces(i[0], i[1], i[2], stream=stream), SLOW_CALLS)
    timings.add("__cuda_array_interface__ alone", lambda: call(i[0], i[1], i[2], stream=stream), SLOW_CALLS)
    try:
        jax = importlib.import_module("jax.numpy")
    except ImportError:
        print("JAX is not installed")
    else:
        j = [jax.ones((20, 132), "float32") for _ in range(3)]
        timings.add("floor, JAX", lambda: floor.three_dlpack(j[0], j[1], j[2], stream=stream), SLOW_CALLS)
        timings.add("JAX", lambda: call(j[0], j[1], j[2], stream=stream), SLOW_CALLS)
    bound = call.bind(*t, stream=stream) if hasattr(call, "bind") else None
    if bound is not None:
        timings.add("bind()", bound)
        kept = call.bind(*t, stream=stream)
        kept.releases_gil = False
        timings.add("bind(), keeping the interpreter lock", kept)
        timings.add("bind(), update(A=...)", lambda: bound.update(A=t[1]))
    compiled = compile_by_flydsl(t)
    if compiled is not None:
        timings.add("FlyDSL's CompiledFunction", lambda: compiled(t[0], t[1], t[2], torch_stream), SLOW_CALLS)
    timings.run()
    timings.report()
    print()
    timings.ratio("FlyDSL's CompiledFunction", "torch", "at least 12")
    timings.ratio("torch", "floor, torch", "at most 2")
    timings.ratio("numpy", "floor, numpy buffers", "reported; at most 2")
    timings.ratio("__dlpack__ alone, in Python (CuPy-like)", "floor, __dlpack__ alone", "reported")
    timings.ratio("__cuda_array_interface__ alone", "floor, array interfaces", "reported")
    timings.ratio("JAX", "floor, JAX", "reported")
    timings.ratio("bind()", "C function of no arguments", "at most 2")
    timings.ratio("bind(), keeping the interpreter lock", "C function of no arguments", "at most 2")
    timings.ratio("bind()", "the same, releasing the interpreter lock", "reported")


torch_stream: Any = None


def compile_by_flydsl(tensors: list[Any]) -> Callable[..., Any] | None:
    """Return FlyDSL's CompiledFunction of the same source, for the same tensors."""
    global torch_stream  # noqa: PLW0603 - made where flydsl is imported
    import flydsl.compiler as flyc
    import flydsl.expr as fx

    source = importlib.import_module("flydsl_source")
    torch_stream = fx.Stream(None)
    compiled = flyc.compile(source.vector_add, *tensors, torch_stream)
    print(f"FlyDSL's: {type(compiled).__name__}")
    return compiled  # type: ignore[no-any-return]


def threads() -> None:
    """Eight threads, each with a kernel of its own, against one: the interpreter lock lets one run at a time."""
    import launch_floor as floor

    module = importlib.import_module("many_kernels.eight")
    total = 160_000

    def rate(count: int, kernels: list[Callable[[], Any]]) -> float:
        barrier = threading.Barrier(count + 1)

        def work(kernel: Callable[[], Any]) -> None:
            barrier.wait()
            for _ in range(total // count):
                kernel()
            barrier.wait()

        workers = [threading.Thread(target=work, args=(kernel,)) for kernel in kernels[:count]]
        for worker in workers:
            worker.start()
        barrier.wait()
        begin = time.perf_counter()
        barrier.wait()
        taken = time.perf_counter() - begin
        for worker in workers:
            worker.join()
        return total / taken

    launchers = [getattr(module, f"one_{n}") for n in range(8)]
    print("---- eight threads on different kernels, against one")
    for name, kernels in {
        "launches": [lambda launcher=launcher: launcher(1) for launcher in launchers],
        "C function that releases the interpreter lock": [floor.unlocked] * 8,
    }.items():
        for kernel in kernels:
            kernel()
        one, eight = max(rate(1, kernels) for _ in range(3)), max(rate(8, kernels) for _ in range(3))
        print(f"{name}: {one / 1e6:.2f} million a second from 1, {eight / 1e6:.2f} from 8: ratio {eight / one:.2f}")


def resident() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def memory() -> None:
    """How much loading one target of a bundle of five adds."""
    importlib.import_module("many_kernels.eight").__flydsl__.load()
    module = importlib.import_module("many_kernels.large")
    size = (Path(module.__file__).parent / "_flydsl" / "large.hipfb").stat().st_size
    before = resident()
    module.one_0(1)
    grown = resident() - before
    print(f"---- memory: {grown / 2**20:.1f} MB more after loading a bundle of {size / 2**20:.1f} MB   goal: one code object, 10 MB")


OURS = "import numpy as np\nfrom example_pkg.elementwise import vector_add\na = np.ones((20, 132), np.float32)\nvector_add(a, a, a)\n"
THEIRS = (
    "import torch, flydsl.expr as fx\nfrom flydsl_source import vector_add\na = torch.ones(20, 132)\nvector_add(a, a, a, fx.Stream(None))\n"
)
TORCH = OURS.replace("import numpy as np\n", "import torch\n").replace("np.ones((20, 132), np.float32)", "torch.ones(20, 132)")


def starts() -> None:
    """From the start of a process to the end of its first launch."""

    def best(script: str, **environ: str) -> float:
        times = []
        for _ in range(STARTS + 1):  # the first fills caches: FlyDSL's, Python's, the kernel's
            begin = time.perf_counter()
            subprocess.run([sys.executable, "-c", script], env={**os.environ, **environ}, check=True, stdout=subprocess.DEVNULL)
            times.append(time.perf_counter() - begin)
        return statistics.median(times[1:])

    python, arrays, torch = best("pass"), best("import numpy"), best("import torch")
    ours, ours_torch, theirs = best(OURS), best(TORCH), best(THEIRS)
    print("---- from process start to the first launch done, medians")
    for name, value in {
        "python -c pass": python,
        "import numpy": arrays,
        "import torch": torch,
        "the wheel, numpy arrays": ours,
        "the wheel, torch tensors": ours_torch,
        "FlyDSL with a warm disk cache, torch tensors": theirs,
    }.items():
        print(f"{name:46} {value * 1e3:8.1f} ms")
    print(f"FlyDSL / wheel, whole process: {theirs / ours:.1f}   goal: at least 10")
    print(f"FlyDSL / wheel, without Python and the array package: {(theirs - torch) / max(ours - arrays, 1e-4):.1f}")
    print(f"FlyDSL / wheel, both with torch: {theirs / ours_torch:.1f}")


def main() -> None:
    """Set up and start the process that measures, which needs the fake HIP on its library path from its start."""
    if WORKPLACE in os.environ:
        memory()
        launches()
        threads()
        starts()
        return
    with tempfile.TemporaryDirectory(prefix="launch-benchmark-") as name:
        environ = set_up(Path(name), Path(sys.argv[1]).resolve() if sys.argv[1:] else None)
        sys.exit(subprocess.run([sys.executable, __file__], env=environ, check=False).returncode)


if __name__ == "__main__":
    main()
