# SPDX-License-Identifier: Apache-2.0
"""The documentation that is made from the dataclasses."""

from __future__ import annotations

import json

import pytest

from flydsl_build.config.documentation import document_settings, field_docs, settings_table_markdown
from flydsl_build.config.keys import keys_of
from flydsl_build.config.tables import AxisTable, CompileOptions, ExternTable, KernelTable, ParameterSet, Settings


@pytest.mark.parametrize("table", [Settings, KernelTable, ParameterSet, CompileOptions, ExternTable, AxisTable])
def test_every_field_is_documented(table: type) -> None:
    docs = field_docs(table)
    assert set(docs) == set(table.__dataclass_fields__)  # type: ignore[attr-defined]
    assert all(doc.endswith(".") for name, doc in docs.items() if name in keys_of(table))


def test_every_key_is_documented_once() -> None:
    keys = [each.path for each in document_settings()]
    assert len(keys) == len(set(keys))
    assert [key for key in keys if "." not in key] == [key.name for key in keys_of(Settings).values()]
    assert {
        "options.waves-per-eu",
        'kernels."module:attribute".args',
        'kernels."module:attribute".sets[].archs',
        'externs."symbol".bitcode',
        "axes.name.values",
    } < set(keys)


def test_one_setting() -> None:
    (jobs,) = [each for each in document_settings() if each.path == "jobs"]
    assert jobs.doc == "How many compile processes run at once."
    assert (jobs.key.type.text, jobs.key.default, jobs.key.config, jobs.key.env) == (
        "integer",
        "one for each core",
        "jobs",
        "FLYDSL_BUILD_JOBS",
    )
    assert jobs.key.type.schema == {"type": "integer", "minimum": 1}


def test_schemas_are_json() -> None:
    for each in document_settings():
        assert json.loads(json.dumps(each.key.type.schema)) == each.key.type.schema


def test_markdown() -> None:
    lines = settings_table_markdown().splitlines()
    assert lines[0] == "| Key | Type | Default | Meaning | `-C`, environment |"
    assert len(lines) == 2 + len(document_settings())
    assert all(line.count("|") - line.count("\\|") == 6 for line in lines)
    assert (
        '| `load` | "import" or "lazy" | `"import"` | When a module of the wheel loads its code objects and runs its init functions: '
        "at import, or at the first call. | `-C load=` |"
    ) in lines
