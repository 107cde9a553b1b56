# SPDX-License-Identifier: Apache-2.0
"""What travels to a cluster, and what is made of the answer."""

from __future__ import annotations

import importlib.util
import json
from typing import TYPE_CHECKING, Any

import pytest

from flydsl_build.cache.dependencies import Fingerprints
from flydsl_build.codec import encode
from flydsl_build.engine.dask import DaskExecutor
from flydsl_build.engine.job_inputs import pack_inputs, unpack_inputs
from flydsl_build.engine.remote_job import differences, run_job, versions
from flydsl_build.errors import BuildError, CompileError, ConfigError
from flydsl_build.jobs.executor import WorkerBugError
from flydsl_build.jobs.job import Job, Linker, Toolkit, WorkerSettings
from flydsl_build.jobs.results import pack_files, unpack_files

if TYPE_CHECKING:
    from pathlib import Path

LINKER = Linker(command=("ld.lld",), version="LLD 19.1.7", identity="a")


class Task:
    """A task of a cluster that is done."""

    def __init__(self, answer: dict[str, Any], files: dict[str, bytes] | None = None) -> None:
        self.data = pack_files(json.dumps(answer).encode(), files or {})

    def result(self) -> bytes:
        return self.data


def executor(folder: Path, **environ: str) -> DaskExecutor:
    toolkit = Toolkit(folder=str(folder), linker=LINKER.version, has_device_bitcode=False, trace=())
    return DaskExecutor(
        "tcp://127.0.0.1:1",
        timeout=1.0,
        worker=WorkerSettings(target="", package_roots=(str(folder),), toolkit=toolkit, project=str(folder)),
        linker=LINKER,
        frontends=("flydsl",),
        lld=None,
        rocm_path=None,
        fingerprints=Fingerprints(str(folder), environ),
        environ=environ,
        say=pytest.fail,
    )


def job(folder: Path) -> Job:
    (folder / "output").mkdir(exist_ok=True)
    return Job(module="pkg.mod", target="gfx942", output=str(folder / "output"), specializations=())


def answered(**dependencies: str | None) -> Task:
    names = {name.replace("__", ":"): value for name, value in dependencies.items()}
    outcome = {"seconds": 1.0, "result": {"faults": []}, "dependencies": names, "fault": None, "killed": False}
    return Task({"outcome": outcome}, {"main.hsaco": b"code"})


def test_an_outcome_with_its_files(tmp_path: Path) -> None:
    outcome = executor(tmp_path)._outcome(job(tmp_path), answered(file__absent=None), {})
    assert outcome is not None
    assert (outcome.result, outcome.dependencies, outcome.fault) == ({"faults": []}, {"file:absent": None}, None)
    assert (tmp_path / "output" / "main.hsaco").read_bytes() == b"code"


def test_what_depends_on_another_file_is_no_result(tmp_path: Path) -> None:
    outcome = executor(tmp_path)._outcome(job(tmp_path), answered(file__data="another", dist__numpy="another"), {})
    assert outcome is not None
    assert outcome.result is None
    assert str(outcome.fault) == (
        "pkg.mod, gfx942: the cluster compiled it with other inputs than there are here: file:data, dist:numpy\n"
        "    -> files must be in the project's folder to travel, packages installed alike on all machines"
    )
    assert not (tmp_path / "output" / "main.hsaco").exists()


def test_variables_are_sent_once_they_are_asked_for(tmp_path: Path) -> None:
    made = executor(tmp_path, SET="1")
    assert made._outcome(job(tmp_path), answered(env__SET=None, env__UNSET="something"), {}) is None
    assert made._variables == {"SET": "1", "UNSET": None}
    again = made._outcome(job(tmp_path), answered(env__SET=None), made._variables)
    assert again is not None
    assert again.fault is not None
    assert again.fault.what == "the cluster compiled it with other inputs than there are here: env:SET"


def test_bugs_and_ends(tmp_path: Path) -> None:
    made = executor(tmp_path)
    with pytest.raises(WorkerBugError, match=r"pkg\.mod, gfx942:\nTraceback"):
        made._outcome(job(tmp_path), Task({"bug": "Traceback …"}), {})
    with pytest.raises(CompileError, match="flydsl: FlyDSL could not be imported"):
        made._outcome(job(tmp_path), Task({"ends": [{"where": "flydsl", "what": "FlyDSL could not be imported"}]}), {})


def test_differences() -> None:
    here = versions(LINKER)
    assert differences(here, json.loads(json.dumps(here))) == ""
    assert differences(here, {**here, "linker": ["LLD 18.1.0", "b"]}) == "linker LLD 18.1.0 there, LLD 19.1.7 here"
    assert differences(here, {**here, "linker": ["LLD 19.1.7", "b"]}) == (
        "linker LLD 19.1.7 there, LLD 19.1.7 here, and they are not the same build"
    )
    there = {name: pair for name, pair in here.items() if name != "FlyDSL"}
    assert differences(here, there) == f"FlyDSL none there, {here['FlyDSL'][0]} here"


def test_a_job_that_reaches_a_worker_with_other_versions(tmp_path: Path) -> None:
    there = {**versions(LINKER), "Python": ["3.8.0", "cpython-38"]}
    request = {"versions": there, "lld": None, "rocm_path": None, "job": encode(job(tmp_path))}
    (fault,) = json.loads(unpack_files(run_job(b"", json.dumps(request)))[0])["ends"]
    assert fault["where"] == "pkg.mod, gfx942"
    assert fault["what"].startswith("a worker of the cluster was refused: Python ")


def test_what_travels(tmp_path: Path) -> None:
    project = tmp_path / "project"
    for name in (
        "src/pkg/mod.py",
        "lib/a.bc",
        "src/pkg/build/x.py",
        "build/x.py",
        "dist/x.whl",
        ".git/HEAD",
        "a.egg-info/x",
        "v/bin/python",
    ):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(name)
    (project / "v" / "pyvenv.cfg").write_text("")
    (project / "src" / "circle").symlink_to(project)
    (tmp_path / "outside.bc").write_text("outside")
    (project / "lib" / "link.bc").symlink_to(tmp_path / "outside.bc")
    (tmp_path / "bitcode").mkdir()
    (tmp_path / "bitcode" / "ockl.bc").write_text("device")
    (tmp_path / "there").mkdir()
    unpack_inputs(pack_inputs(project, [str(project / "src")], tmp_path / "bitcode"), tmp_path / "there")
    there = {str(path.relative_to(tmp_path / "there")): path.read_text() for path in (tmp_path / "there").rglob("*") if path.is_file()}
    assert there == {
        "project/src/pkg/mod.py": "src/pkg/mod.py",
        "project/src/pkg/build/x.py": "src/pkg/build/x.py",
        "project/lib/a.bc": "lib/a.bc",
        "project/lib/link.bc": "outside",
        "bitcode/ockl.bc": "device",
    }
    with pytest.raises(ConfigError, match=r"the package folder .*/elsewhere is not in the project"):
        pack_inputs(project, [str(tmp_path / "elsewhere")], tmp_path / "bitcode")


def test_without_distributed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name == "distributed" else real(name, *rest))
    with pytest.raises(BuildError) as caught:
        executor(tmp_path)
    assert str(caught.value) == (
        'tool.flydsl-build.executor: distributed is not installed, and executor = "dask" needs it\n'
        '    -> add "flydsl-build[dask]" or "distributed" to build-system.requires'
    )
