# SPDX-License-Identifier: Apache-2.0
"""Front ends: descriptions that import no compiler, and what workers are bound to."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from flydsl_build.declare.specialization import Specialization
from flydsl_build.jobs import frontend
from flydsl_build.jobs.environment import worker_environment
from flydsl_build.jobs.job import Job

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


def test_what_compilers_read_does_not_come_from_the_shell() -> None:
    given = {"ARCH": "gfx90a", "ARCHIVE": "x", "FLYDSL_DEBUG": "1", "FLYDSL_BUILD_LLD": "lld", "MLIR_X": "1", "HOME": "/h"}
    kept = worker_environment(given)
    assert kept.keys() & given.keys() == {"ARCHIVE", "FLYDSL_BUILD_LLD", "HOME"}
