# SPDX-License-Identifier: Apache-2.0
"""Builds on a cluster of two workers: the wheel is that of a local build, and what goes wrong is said as it is there."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from building import PACKAGES, build_environment, call_hook, copy_project

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest.importorskip("distributed")

CLUSTER = """
import sys
from distributed import LocalCluster
if __name__ == "__main__":
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None, protocol="tcp://")
    print(cluster.scheduler_address, flush=True)
    sys.stdin.read()
    cluster.close()
"""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A scheduler and two workers.

    Parameters
    ----------
    temporary
        The folder for what workers write.
    """

    address: str
    temporary: Path

    def build(self, project: Path, dist: Path, *, ok: bool = True, **env: str) -> str:
        """Return what a build said."""
        shutil.rmtree(dist, ignore_errors=True)
        dist.mkdir()
        config = {"executor": "dask", "executor-address": self.address}
        return call_hook(project, "build_wheel", dist, config, env=env, ok=ok).output

    def left(self) -> list[str]:
        """Return what jobs have left in the temporary folder."""
        return [path.name for path in self.temporary.glob("flydsl-build-*")]


def processes_with(marker: str) -> list[tuple[int, str]]:
    """Return numbers and command lines of the processes that have a text in their environment."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (folder / "environ").read_bytes():
                found.append((int(folder.name), (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()))
        except OSError:
            continue
    return found


def start_cluster(folder: Path, **env: str) -> Iterator[Cluster]:
    for name in ("shim", "temporary"):
        (folder / name).mkdir()
    environ = {**build_environment(folder / "shim"), "TMPDIR": str(folder / "temporary"), **env}
    script = folder / "cluster.py"
    script.write_text(CLUSTER)
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(
            [sys.executable, script], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
        ) as process,
    ):
        assert process.stdout is not None
        yield Cluster(address=process.stdout.readline().strip(), temporary=folder / "temporary")
        process.communicate("", timeout=60)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    yield from start_cluster(tmp_path_factory.mktemp("cluster"), CLUSTER_ONLY="1")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return copy_project(PACKAGES / "two", tmp_path / "a project" / "two")


def wheel(dist: Path) -> bytes:
    (path,) = dist.glob("*.whl")
    return path.read_bytes()


def test_the_wheel_is_that_of_a_local_build(cluster: Cluster, project: Path, tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    # Read by a kernel module: it travels once that is known.
    env = {"TWO_KERNELS_TWICE": "1", "FLYDSL_BUILD_CACHE": "true", "FLYDSL_BUILD_CACHE_DIR": str(tmp_path / "cache")}
    call_hook(project, "build_wheel", tmp_path / "local", env={"TWO_KERNELS_TWICE": "1"})
    output = cluster.build(project, tmp_path / "dist", **env)
    assert "4 jobs: 0 from the cache, 4 compiled" in output
    assert wheel(tmp_path / "dist") == wheel(tmp_path / "local")
    assert cluster.left() == []
    # The cache knows what a cluster made, and a local build goes on with it.
    answer = call_hook(project, "build_wheel", tmp_path / "dist", env=env)
    assert "4 jobs: 4 from the cache, 0 compiled" in answer.output
    assert answer.spawned == []


def test_faults_are_those_of_a_local_build(cluster: Cluster, project: Path, tmp_path: Path) -> None:
    source = project / "two_kernels" / "second.py"
    source.write_text(source.read_text().replace("shift(X[index])", "shift(X[index]) + missing"))
    (project / "lib" / "shift_gfx1100.ll").write_text("this is no IR")
    (tmp_path / "local").mkdir()
    local = call_hook(project, "build_wheel", tmp_path / "local", ok=False)
    output = cluster.build(project, tmp_path / "dist", ok=False)
    failed = output[output.index("compile failed") :]
    assert failed == local.output[local.output.index("compile failed") :]
    assert "two_kernels/second.py" in failed
    assert str(cluster.temporary) not in output
    assert list((tmp_path / "dist").iterdir()) == []
    assert cluster.left() == []


KILLS_ITS_WORKER = """
import os, signal
from pathlib import Path
with open({marker!r}, "a") as file:
    file.write("x")
if {condition}:
    os.kill(os.getppid(), signal.SIGKILL)
    signal.pause()
"""


@pytest.mark.parametrize("always", [False, True], ids=["once", "always"])
def test_a_worker_that_is_lost(cluster: Cluster, project: Path, tmp_path: Path, always: bool) -> None:
    marker = tmp_path / "marker"
    source = project / "two_kernels" / "second.py"
    text = source.read_text()
    condition = "True" if always else f"len(Path({str(marker)!r}).read_text()) == 1"
    source.write_text(text + KILLS_ITS_WORKER.format(marker=str(marker), condition=condition))
    output = cluster.build(project, tmp_path / "dist", ok=not always, FLYDSL_BUILD_ARCHS="gfx942")
    if always:
        expected = "two_kernels.second, gfx942: the cluster lost 4 workers, one after another, that had this job"
        assert expected in output
        assert list((tmp_path / "dist").iterdir()) == []
    else:
        assert "2 jobs: 0 from the cache, 2 compiled" in output
        assert len(marker.read_text()) == 2
    for path in cluster.temporary.glob("flydsl-build-*"):
        shutil.rmtree(path)  # what killed workers left


def test_an_interrupt_ends_the_processes_of_the_cluster(cluster: Cluster, project: Path, tmp_path: Path) -> None:
    source = project / "two_kernels" / "second.py"
    marker = tmp_path / "marker"
    source.write_text(source.read_text() + f"\nimport time, pathlib\npathlib.Path({str(marker)!r}).touch()\ntime.sleep(600)\n")
    (tmp_path / "shim").mkdir()
    (tmp_path / "dist").mkdir()
    config = {"executor": "dask", "executor-address": cluster.address, "archs": "gfx942"}
    code = f"import flydsl_build.backend as b; b.build_wheel({str(tmp_path / 'dist')!r}, {config!r})"
    with subprocess.Popen([sys.executable, "-c", code], cwd=project, env=build_environment(tmp_path / "shim")) as build:
        deadline = time.monotonic() + 60
        while not marker.exists() and time.monotonic() < deadline:
            time.sleep(0.1)
        build.send_signal(signal.SIGINT)
        build.wait(60)
    while cluster.left() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert cluster.left() == []
    assert not [line for _, line in processes_with("CLUSTER_ONLY=1") if "flydsl_build.frontends.worker" in line]
    assert list((tmp_path / "dist").iterdir()) == []


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


def test_an_address_where_nobody_answers(project: Path, tmp_path: Path) -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    code = (
        "import flydsl_build.engine.dask as d; d._CONNECT = 1.0\n"
        f"import flydsl_build.backend as b; b.build_wheel({str(tmp_path)!r}, {{'executor': 'dask', 'executor-address': {address!r}}})"
    )
    (tmp_path / "shim").mkdir()
    environ = build_environment(tmp_path / "shim")
    started = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], cwd=project, env=environ, capture_output=True, text=True, check=False)
    assert time.monotonic() - started < 30
    assert done.returncode == 1
    assert f"tool.flydsl-build.executor-address: no scheduler answers at {address} (" in done.stderr
    assert '-> start one (`dask scheduler`, and `dask worker ADDRESS` on each machine), or build with executor = "local"' in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.glob("*.whl")) == []


def test_workers_that_differ_are_refused(project: Path, tmp_path: Path) -> None:
    """Workers that find another linker than this machine."""
    real = shutil.which("ld.lld") or shutil.which("ld.lld-19")
    if real is None:
        pytest.skip("no ld.lld on PATH")
    folder = tmp_path / "cluster"
    (folder / "bin").mkdir(parents=True)
    tool = folder / "bin" / "ld.lld"
    tool.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo LLD 11.0; else exec {real} "$@"; fi\n')
    tool.chmod(0o755)
    for cluster in start_cluster(folder, PATH=f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"):
        output = cluster.build(project, tmp_path / "dist", ok=False)
    assert f"tool.flydsl-build.executor-address: no worker of the cluster at {cluster.address} has what this machine has" in output
    assert len(re.findall(r"tcp://[\d.:]+: linker LLD 11\.0 there, LLD [\d.]+ here", output)) == 2
    assert "-> install the same versions on all machines" in output
    assert "Traceback" not in output
