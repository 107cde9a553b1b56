# SPDX-License-Identifier: Apache-2.0
"""Which specializations share a code object, and what happens where that differs between targets."""

from __future__ import annotations

import json
import zipfile
from typing import TYPE_CHECKING

from building import PACKAGES, call_hook, copy_project

from flydsl_build.jobs.job import CodeObjectBuild, JobResult
from flydsl_build.package.assemble import _with_one_init_a_unit

if TYPE_CHECKING:
    from pathlib import Path


def result(target: str, *objects: CodeObjectBuild) -> JobResult:
    return JobResult(
        module="m",
        target=target,
        axes=(),
        output="",
        doc=None,
        public_names=(),
        specializations=(),
        sources={},
        distributions={},
        tools=(),
        seconds=0.0,
        code_objects=objects,
    )


def code(group: str, *init: str) -> CodeObjectBuild:
    return CodeObjectBuild(group=group, file="", kernels=(), init=init)


def groups(results: list[JobResult]) -> list[list[str]]:
    return [[one.group for one in each.code_objects] for each in results]


def test_equal_init_functions_stay_in_one_unit() -> None:
    renamed, origin = _with_one_init_a_unit([result("a", code("main", "m:f")), result("b", code("main", "m:f"))])
    assert groups(renamed) == [["main"], ["main"]]
    assert origin == {"main": "main"}


def test_other_init_functions_make_a_unit_of_their_own() -> None:
    results = [result("a", code("main"), code("opt-1", "m:f")), result("b", code("main", "m:f")), result("c", code("main"))]
    renamed, origin = _with_one_init_a_unit(results)
    assert groups(renamed) == [["main", "opt-1"], ["main-2"], ["main"]]
    # A bundle of one target is named without looking at the others.
    assert origin == {"main": "main", "opt-1": "opt-1", "main-2": "main"}


def test_options_that_differ_make_a_second_bundle(tmp_path: Path) -> None:
    project = copy_project(PACKAGES / "tiny", tmp_path / "project")
    pyproject = project / "pyproject.toml"
    second = '\n[tool.flydsl-build.kernels."tiny_kernels.negate:twice"]\nargs = { X = "f32[L]" }\noptions = { gfx1100 = { fast-fp-math = true } }\n'
    pyproject.write_text(pyproject.read_text(encoding="utf-8").replace('["gfx942"]', '["gfx942", "gfx1100"]') + second, encoding="utf-8")
    module = project / "tiny_kernels" / "negate.py"
    source = module.read_text(encoding="utf-8")
    launcher = source[source.index("@flyc.jit") :].replace("def negate(", "def twice(")
    module.write_text(source + "\n\n" + launcher, encoding="utf-8")
    dist = tmp_path / "dist"
    dist.mkdir()
    with zipfile.ZipFile(dist / call_hook(project, "build_wheel", dist).value) as wheel:
        manifest = json.loads(wheel.read("tiny_kernels/_flydsl/negate.json"))
    units = {unit["name"]: sorted(unit["code_objects"]) for unit in manifest["units"]}
    (other,) = set(units) - {"main"}
    assert units == {"main": ["gfx1100", "gfx942"], other: ["gfx1100"]}
    entries = {launcher["name"]: launcher["specializations"][0]["entries"] for launcher in manifest["launchers"]}
    assert {target: list(by_unit) for target, by_unit in entries["negate"].items()} == {"gfx1100": ["main"], "gfx942": ["main"]}
    assert {target: list(by_unit) for target, by_unit in entries["twice"].items()} == {"gfx1100": [other], "gfx942": ["main"]}
