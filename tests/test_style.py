# SPDX-License-Identifier: Apache-2.0
"""The tree is as the linter, the formatter and the type checker want it, with the settings in pyproject.toml."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys

import pytest
from environment import ROOT

COMMANDS = {
    "lint": ("ruff", "check", "--no-cache"),
    "format": ("ruff", "format", "--check", "--no-cache"),
    "types": ("mypy", f"--cache-dir={os.devnull}"),
}


@pytest.fixture(params=COMMANDS)
def command(request: pytest.FixtureRequest) -> list[str]:
    tool, *words = COMMANDS[request.param]
    if importlib.util.find_spec(tool) is None:
        pytest.skip(f"{tool} is not installed")
    return [sys.executable, "-m", tool, *words]


def test_style(command: list[str]) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
