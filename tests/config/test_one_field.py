# SPDX-License-Identifier: Apache-2.0
"""A setting is one field: a copy of the package with one field more reads, documents and checks it, with no other change."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import flydsl_build
from flydsl_build.config.keys import TomlType, keys_of
from flydsl_build.config.tables import AxisTable, CompileOptions, ExternTable, KernelTable, ParameterSet, Settings

FIELDS = '''
    zeal: int = field(default=1, metadata=toml_key("zeal", kinds.integer(1, 9), default="1", config=True, env=True))
    """How much."""

    colour: Literal["red", "green"] = field(
        default="red", metadata=toml_key("colour", kinds.choice(Literal["red", "green"]), default='"red"', config=True, env=True)
    )
    """Which colour."""

    log_folder: Path | None = field(default=None, metadata=toml_key("log-folder", kinds.PATH, default="none", config=True, env=True))
    """Where."""

    mirror: str | None = field(default=None, metadata=toml_key("mirror", kinds.URL, default="none", config=True, env=True))
    """A URL that may hold a password."""

    quiet: bool = field(default=False, metadata=toml_key("quietly", kinds.BOOLEAN, default="false"))
    """A setting of the table alone."""
'''
SCRIPT = """
import json, sys
from pathlib import Path
from flydsl_build.config.documentation import settings_table_markdown
from flydsl_build.config.schema import json_schema
from flydsl_build.config.settings import read_settings
from flydsl_build.config.sources import given_settings
from flydsl_build.errors import ConfigError

names = ("zeal", "colour", "log_folder", "mirror", "quiet")
answers = []
for toml, config, environ in json.load(sys.stdin):
    Path("pyproject.toml").write_text("[tool.flydsl-build]\\nallow-empty = true\\n" + toml)
    try:
        settings = read_settings(Path("."), config, environ)
        answers.append([getattr(settings, name) for name in names])
    except ConfigError as error:
        answers.append([[fault.where, fault.what, fault.fix] for fault in error.faults])
properties = json_schema()["properties"]
print(json.dumps({
    "answers": answers,
    "schema": {key: properties.get(key) for key in ("zeal", "colour", "log-folder", "quietly")},
    "markdown": settings_table_markdown().splitlines(),
    "given": given_settings({}, {"FLYDSL_BUILD_ZEAL": "4"}),
}, default=str))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a copy of the package in it."""
    package = tmp_path / "flydsl_build"
    package.mkdir()
    installed = Path(flydsl_build.__file__).parent
    for name in ("__init__.py", "errors.py", "codec.py", "regular_files.py"):
        shutil.copy(installed / name, package)
    for name in ("config", "targets"):
        shutil.copytree(installed / name, package / name, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def with_fields(folder: Path, fields: str) -> None:
    tables = folder / "flydsl_build" / "config" / "tables.py"
    text = tables.read_text(encoding="utf-8")
    before = "\n    options: CompileOptions = field("
    head, found, rest = text.rpartition(before)
    assert found
    tables.write_text(head + fields + before + rest, encoding="utf-8")


def run(folder: Path, cases: list[Any]) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", SCRIPT], cwd=folder, input=json.dumps(cases), capture_output=True, text=True, check=False)


def test_a_new_setting_is_one_field(folder: Path) -> None:
    with_fields(folder, FIELDS)
    home = str(Path("~/logs").expanduser())
    known = [key.config for key in keys_of(Settings).values() if key.config]
    allowed = sorted([*known, "zeal", "colour", "log-folder", "mirror"])
    cases = [
        # (table, config settings, environment, what is read)
        ("", {}, {}, [1, "red", None, None, False]),
        ('zeal = 3\ncolour = "green"\nlog-folder = "logs"\nquietly = true\n', {}, {}, [3, "green", "logs", None, True]),
        ("zeal = 3\n", {"zeal": "4"}, {"FLYDSL_BUILD_ZEAL": "5", "FLYDSL_BUILD_COLOUR": "green"}, [4, "green", None, None, False]),
        ("", {"log-folder": "~/logs"}, {"FLYDSL_BUILD_MIRROR": "s3://a:b@c"}, [1, "red", home, "s3://a:b@c", False]),
        (
            'zeal = 10\ncolour = 1\nmirror = "p?w"\nquietly = "x"\n', {}, {},
            [
                ["tool.flydsl-build.zeal", "found the integer 10", "write an integer from 1 to 9"],
                ["tool.flydsl-build.colour", "found the integer 1", 'write "red" or "green"'],
                [
                    "tool.flydsl-build.mirror", "found no URL that names can be added to",
                    'write one without ?, # and globs, such as "s3://bucket/prefix"',
                ],
                ["tool.flydsl-build.quietly", 'found the string "x"', "write true or false"],
            ],
        ),
        (
            "", {"zeal": "0", "mirror": ["p?w", "q?w"], "quietly": "true"}, {"FLYDSL_BUILD_COLOUR": "blue", "FLYDSL_BUILD_ZEALS": "1"},
            [
                ["FLYDSL_BUILD_COLOUR", 'found "blue"', 'write "red" or "green"'],
                ["FLYDSL_BUILD_ZEALS", "unknown environment variable", 'Did you mean "FLYDSL_BUILD_ZEAL"?'],
                ["-C zeal", 'found "0"', "write an integer from 1 to 9"],
                ["-C mirror", "given 2 times with different values", "give it once"],
                ["-C quietly", "unknown config setting", f"Allowed: {', '.join(allowed)}."],
            ],
        ),
    ]  # fmt: skip
    done = run(folder, [case[:3] for case in cases])
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["answers"] == [case[3] for case in cases]
    assert answer["schema"] == {
        "zeal": {"description": "How much.", "type": "integer", "minimum": 1, "maximum": 9},
        "colour": {"description": "Which colour.", "enum": ["red", "green"]},
        "log-folder": {"description": "Where.", "type": "string"},
        "quietly": {"description": "A setting of the table alone.", "type": "boolean"},
    }
    assert set(answer["markdown"]) >= {
        "| `zeal` | integer 1 to 9 | `1` | How much. | `-C zeal=`, `FLYDSL_BUILD_ZEAL` |",
        '| `colour` | "red" or "green" | `"red"` | Which colour. | `-C colour=`, `FLYDSL_BUILD_COLOUR` |',
        "| `quietly` | boolean | `false` | A setting of the table alone. |  |",
    }
    assert answer["given"] == {"zeal": "4"}


def test_a_kind_that_text_cannot_give_is_refused_where_it_is_declared(folder: Path) -> None:
    with_fields(folder, '\n    bad: tuple[str, ...] = field(default=(), metadata=toml_key("bad", kinds.STRINGS, config=True))\n')
    done = run(folder, [])
    assert done.stderr.splitlines()[-1] == "TypeError: bad: a list of strings cannot be given as text"


def test_every_key_that_is_read_with_others_is_a_table() -> None:
    """What a kind does not read, `settings` reads by name: these and no others."""
    alone = TomlType(text="", schema={}).read
    tables = (Settings, KernelTable, ParameterSet, ExternTable, AxisTable, CompileOptions)
    assert {(table.__name__, key.name) for table in tables for key in keys_of(table).values() if key.type.read is alone} == {
        ("Settings", "options"),
        ("Settings", "env"),
        ("Settings", "kernels"),
        ("Settings", "externs"),
        ("Settings", "axes"),
        ("KernelTable", "options"),
        ("KernelTable", "sets"),
        ("ParameterSet", "options"),
    }
