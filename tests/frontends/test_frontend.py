# SPDX-License-Identifier: Apache-2.0
"""Front ends: descriptions that import no compiler, and what workers are bound to."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from flydsl_build.backend.hooks import kernel_requirements
from flydsl_build.declare.specialization import Specialization
from flydsl_build.engine.remote_job import differences, versions
from flydsl_build.jobs import frontend
from flydsl_build.jobs.environment import worker_environment
from flydsl_build.jobs.job import Job, Linker

if TYPE_CHECKING:
    from pathlib import Path

ONE = Specialization(name="f", frontend="flydsl", module="m", attribute="f", where="here")
JOB = Job(module="m", target="gfx942", output="", specializations=(ONE,), axes=(("nic", "mlx5"),))


@pytest.mark.parametrize("name", frontend.FRONTENDS)
def test_a_description_imports_no_compiler(name: str) -> None:
    code = (
        "import sys\n"
        "from flydsl_build.jobs.frontend import frontend_of\n"
        f"one = frontend_of({name!r})\n"
        "assert one.digest() and one.version()\n"
        "print(one.name, sorted({*one.packages, 'torch', 'numpy'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{name} []\n"


def test_what_a_worker_is_bound_to(monkeypatch: pytest.MonkeyPatch) -> None:
    assert frontend.worker_key(JOB) == ("flydsl", "gfx942", ())
    assert frontend.worker_key(replace(JOB, environment=(("A", "{nic}"),))) == ("flydsl", "gfx942", (("nic", "mlx5"),))
    free = replace(frontend.frontend_of("flydsl"), name="free", is_bound_to_target=False)
    monkeypatch.setattr(frontend, "frontend_of", {"free": free}.__getitem__)
    job = replace(JOB, specializations=(replace(ONE, frontend="free"),), environment=(("A", "{nic}"),))
    assert frontend.worker_key(job) == ("free", "", ())


def test_what_is_installed_is_what_the_front_ends_in_use_need(monkeypatch: pytest.MonkeyPatch) -> None:
    flydsl = frontend.frontend_of("flydsl")
    other = replace(flydsl, name="other", requirements=("other-compiler>=1", "numpy"))
    monkeypatch.setattr(frontend, "frontend_of", {"flydsl": flydsl, "other": other}.__getitem__)
    assert kernel_requirements([]) == []
    assert kernel_requirements(["other"]) == ["jinja2>=3.1", "other-compiler>=1", "numpy"]
    assert kernel_requirements(["flydsl", "other"]) == ["jinja2>=3.1", "flydsl>=0.5,<0.6", "numpy", "other-compiler>=1"]


def test_machines_of_a_cluster_differ_in_the_compilers_that_jobs_use(monkeypatch: pytest.MonkeyPatch) -> None:
    flydsl = frontend.frontend_of("flydsl")
    digests = {"flydsl": "1", "other": "1"}
    titles = {"flydsl": "FlyDSL", "other": "Other"}
    known = {
        name: replace(flydsl, name=name, title=titles[name], version=lambda: "1.0", digest=lambda name=name: digests[name])
        for name in digests
    }
    monkeypatch.setattr(frontend, "frontend_of", known.__getitem__)
    linker = Linker(command=("ld.lld",), version="LLD 19.1.7", identity="a")
    here = versions(linker, ["flydsl"])
    digests["other"] = "2"
    assert not differences(here, versions(linker, known))
    digests["flydsl"] = "2"
    assert differences(here, versions(linker, known)) == "FlyDSL 1.0 there, 1.0 here, and they are not the same build"


@pytest.mark.parametrize("names", [[], ["flydsl"]])
def test_a_compiler_is_an_ordinary_dependency_of_jobs_of_other_front_ends(tmp_path: Path, names: list[str]) -> None:
    (tmp_path / "imports_compiler.py").write_text("import flydsl\n", encoding="utf-8")
    code = (
        "import json, os, sys\n"
        "from flydsl_build.frontends.dependency_tracker import Recorder\n"
        "from flydsl_build.jobs.environment import put_on_path\n"
        "environ = dict(os.environ)\n"
        f"root, names = {str(tmp_path)!r}, {names!r}\n"
        "recorder = Recorder(project=root, roots=[root], ignored=[], constant=[], frontends=names)\n"
        "recorder.install()\n"
        "put_on_path([root])\n"
        "import imports_compiler\n"
        "print(json.dumps(recorder.dependencies('imports_compiler', environ)))\n"
    )
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert "file:imports_compiler.py" in found
    assert any(one.startswith("import:flydsl@flydsl ") for one in found) == (not names)


def test_what_compilers_read_does_not_come_from_the_shell() -> None:
    given = {"ARCH": "gfx90a", "ARCHIVE": "x", "FLYDSL_DEBUG": "1", "FLYDSL_BUILD_LLD": "lld", "MLIR_X": "1", "HOME": "/h"}
    kept = worker_environment(given)
    assert kept.keys() & given.keys() == {"ARCHIVE", "FLYDSL_BUILD_LLD", "HOME"}
