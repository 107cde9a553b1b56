# SPDX-License-Identifier: Apache-2.0
"""The JSON schema: committed as generated, and right about good and bad tables."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING, Any

import pytest
from building import PACKAGES
from environment import ROOT

from flydsl_build.config.schema import SCHEMA_FILE, json_schema, schema_text, tool_schema

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """
archs = ["gfx942"]
load = "lazy"
options = { opt-level = 3, waves-per-eu = [1, 4], gfx942 = { fast-fp-math = true } }
[kernels."a.b:c"]
args = [{ A = "f32[M]", S = { x = "i32" } }]
[[kernels."a.b:c".sets]]
params = { N = [1, 2] }
options = { llvm-options = { x = true } }
[externs.symbol]
bitcode = ["a.bc"]
[axes.nic]
values = ["x"]
"""
BAD = [
    ("arch = []", "additional|contain"),
    ('archs = "gfx942"', "array"),
    ('load = "never"', "one of"),
    ("options = { opt-level = 4 }", "<= 3|maximum|smaller"),
    ("options = { gfx942 = { gfx950 = {} } }", "additional|contain"),
    ("kernels.x = { arg = {} }", "additional|contain"),
    ("axes.nic = {}", "values"),
]


def test_committed_as_generated(call: Any) -> None:
    assert SCHEMA_FILE.read_text(encoding="utf-8") == schema_text(), "python -m flydsl_build schema > flydsl_build/config/schema.json"
    assert call("schema").out == schema_text()
    assert tool_schema("flydsl-build") == json_schema()


def test_content() -> None:
    schema = json_schema()
    assert schema["properties"]["jobs"] == {"description": "How many compile processes run at once.", "type": "integer", "minimum": 1}
    assert schema["properties"]["kernels"]["additionalProperties"] == {"$ref": "#/definitions/KernelTable"}
    assert schema["definitions"]["KernelTable"]["properties"]["sets"]["items"] == {"$ref": "#/definitions/ParameterSet"}
    assert schema["definitions"]["AxisTable"]["required"] == ["values"]
    assert list(schema["definitions"]["CompileOptions"]["patternProperties"].values()) == [{"$ref": "#/definitions/TargetOptions"}]
    assert "patternProperties" not in schema["definitions"]["TargetOptions"]


def test_tables() -> None:
    fastjsonschema = pytest.importorskip("fastjsonschema")
    check = fastjsonschema.compile(json_schema())
    check(tomllib.loads(GOOD))
    for project in [ROOT / "example_pkg", *sorted(PACKAGES.iterdir())]:
        check(tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["flydsl-build"])
    for text, message in BAD:
        with pytest.raises(fastjsonschema.JsonSchemaException, match=message):
            check(tomllib.loads(text))


def test_registered() -> None:
    own = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert own["project"]["entry-points"]["validate_pyproject.tool_schema"] == {"flydsl-build": "flydsl_build.config.schema:tool_schema"}


def test_validate_pyproject(tmp_path: Path) -> None:
    pytest.importorskip("validate_pyproject")
    path = tmp_path / "pyproject.toml"
    command = [sys.executable, "-m", "validate_pyproject", "--disable", "setuptools", "distutils", "--", str(path)]
    for table, status in (('archs = ["gfx942"]', 0), ("arch = []", 1)):
        path.write_text(f'[project]\nname = "a"\nversion = "1"\n[tool.flydsl-build]\n{table}\n', encoding="utf-8")
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stdout + done.stderr
    assert "tool.flydsl-build" in done.stdout + done.stderr
    assert json.loads(SCHEMA_FILE.read_bytes())["$id"]
