# SPDX-License-Identifier: Apache-2.0
"""The kernel arguments of every kind of slot and form of launch are those of FlyDSL's own launch, byte for byte."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from building import PACKAGES, call_hook, copy_project, unpack

from flydsl_build.toolchain.discovery import make_toolkit, safe_temporary_folder

NAMES = [
    *("tensors", "integers", "strided", "scalars", "structs", "stream_first", "no_stream"),
    *("conditional, few", "conditional, many", "looped", "dynamic_lds"),
]


@pytest.fixture(scope="module")
def report(hip_library: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[list[dict]]]:
    pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("slots")
    project = copy_project(PACKAGES / "slots", folder / "project")
    dist = folder / "dist"
    dist.mkdir()
    site = unpack(folder / "site", dist / call_hook(project, "build_wheel", dist).value)
    with safe_temporary_folder() as toolkit:
        make_toolkit(Path(toolkit))
        script = Path(__file__).with_name("slots_script.py")
        environ = {**os.environ, "FAKE_HIP_TARGETS": "gfx942", "LD_LIBRARY_PATH": str(hip_library.parent)}
        command = [sys.executable, script, site, PACKAGES / "slots", toolkit, hip_library]
        done = subprocess.run([str(word) for word in command], env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", NAMES)
def test_launches_are_flydsls(name: str, report: dict[str, list[list[dict]]]) -> None:
    ours, theirs = report[name]
    for launch in ours:
        # One code object holds the kernels of all launchers, so equal names get the launcher's as a suffix.
        launch["kernel"] = launch["kernel"].partition("__")[0]
    assert theirs
    assert ours == theirs


def test_every_case_ran(report: dict[str, list[list[dict]]]) -> None:
    assert list(report) == NAMES
    assert len(report["conditional, few"][0]) == 2
    assert len(report["conditional, many"][0]) == 3
    assert [launch["grid"] for launch in report["looped"][0]] == [[1, 1, 1], [2, 1, 1], [3, 1, 1]]
    assert report["dynamic_lds"][0][0]["lds"] == 384
