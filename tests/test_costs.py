# SPDX-License-Identifier: Apache-2.0
"""Tests get the marks of what they use, and a fast run starts no build."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from building import call_hook
from costs import COSTS, costs_of
from environment import make_venv

HERE = Path(__file__).parent


class Place:
    def made(self):
        return [call_hook(word, "build_sdist") for word in "ab"]


def through_a_class():
    return Place().made()


def through_another():
    def inner():
        return through_a_class()

    return inner


def with_pip():
    return subprocess.run([sys.executable, "-m", "pip", "list"], check=True)


def with_torch():
    return pytest.importorskip("torch")


def without():
    return {"torch": 1, "jax": 2}


@pytest.mark.parametrize(
    ("function", "costs"),
    [
        (through_a_class, {"build"}),
        (through_another, {"build"}),
        (with_pip, {"build"}),
        (lambda: make_venv(HERE), {"isolated"}),
        (with_torch, {"torch"}),
        (lambda: pytest.importorskip("jax.numpy"), {"jax"}),
        (without, set()),
    ],
)
def test_costs(function, costs):
    assert costs_of([without, function]) == costs


def test_marks(request):
    # Through a fixture of conftest.py, in a function inside of it.
    marks = {item.name: {mark.name for mark in item.iter_markers()} & set(COSTS) for item in request.session.items}
    assert marks[request.node.name] == set()
    if not request.config.getoption("--fast"):
        assert marks["test_with_a_wheel"] == {"build"}


def test_with_a_wheel(tiny_wheel):
    assert tiny_wheel.is_file()


@pytest.mark.parametrize(
    "command",
    [
        ["-c", "import flydsl_build.backend as b; b.build_wheel('.')"],
        ["-m", "flydsl_build", "build", "."],
        ["-m", "pip", "list"],
        ["-c", "from flydsl_build.frontends.worker import main; main()"],
    ],
)
def test_a_fast_run_starts_no_build(command):
    # The words come through a pipe: a fast run would not let the outer process start either.
    script = "import json, subprocess, sys; from costs import forbid_builds; forbid_builds(); subprocess.run([sys.executable, *json.load(sys.stdin)])"
    words = json.dumps(command)
    done = subprocess.run([sys.executable, "-c", script], input=words, cwd=HERE, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].startswith("AssertionError: a test without the mark `build` starts a build (tests/costs.py): ")
