# SPDX-License-Identifier: Apache-2.0
"""The JSON schema of the `[tool.flydsl-build]` table, made from the dataclasses of `tables`.

`schema.json` beside this file is what `json_schema` gave last; a test compares them. Editors and validate-pyproject read the file.
"""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

from .documentation import field_docs
from .keys import TomlType, keys_of
from .tables import CompileOptions, Settings

__all__ = ["SCHEMA_FILE", "json_schema", "schema_text", "tool_schema"]

SCHEMA_FILE = Path(__file__).with_name("schema.json")

# The entry point of validate-pyproject takes draft 7: https://validate-pyproject.readthedocs.io/en/latest/dev-guide.html
_DRAFT = "http://json-schema.org/draft-07/schema#"
_ID = "https://flydsl-build.invalid/schema.json"
_TARGET = "^gfx[0-9a-z-]+$"


def json_schema() -> dict[str, Any]:
    """Return the schema: one property for each key, with its documentation; unknown keys are refused."""
    definitions: dict[str, Any] = {}
    root = _table(Settings, definitions)
    return {
        "$schema": _DRAFT,
        "$id": _ID,
        "title": "The [tool.flydsl-build] table of pyproject.toml",
        **root,
        "definitions": definitions,
    }


def schema_text() -> str:
    """Return the schema as it stands in `schema.json`."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def tool_schema(tool_name: str) -> dict[str, Any]:  # noqa: ARG001 - validate-pyproject gives the name of the table
    """Return the schema to validate-pyproject, whose entry point `validate_pyproject.tool_schema` names this function."""
    schema: dict[str, Any] = json.loads(SCHEMA_FILE.read_bytes())
    return schema


def _table(table: type, definitions: dict[str, Any]) -> dict[str, Any]:
    docs = field_docs(table)
    keys = keys_of(table)
    required = [
        keys[item.name].name for item in fields(table) if item.name in keys and item.default is MISSING and item.default_factory is MISSING
    ]
    found: dict[str, Any] = {
        "type": "object",
        "properties": {key.name: {"description": docs[name], **_value(key.type, definitions)} for name, key in keys.items()},
        "additionalProperties": False,
    }
    if required:
        found["required"] = required
    return found


def _value(toml_type: TomlType, definitions: dict[str, Any]) -> dict[str, Any]:
    if toml_type.table is None:
        return toml_type.schema
    reference = _defined(toml_type.table, definitions)
    if toml_type.named == "[]":
        return {"type": "array", "items": reference}
    if toml_type.named:
        return {"type": "object", "additionalProperties": reference}
    # A reference hides what stands beside it in draft 7, the description too.
    return {"allOf": [reference]}


def _defined(table: type, definitions: dict[str, Any]) -> dict[str, Any]:
    if table.__name__ not in definitions:
        definitions[table.__name__] = {}
        schema = _table(table, definitions)
        if table is CompileOptions:
            # The options of single targets are flat tables beside the keys.
            definitions["TargetOptions"] = schema
            schema = {**schema, "patternProperties": {_TARGET: _reference("TargetOptions")}}
        definitions[table.__name__] = schema
    return _reference(table.__name__)


def _reference(name: str) -> dict[str, Any]:
    return {"$ref": f"#/definitions/{name}"}
