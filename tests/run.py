# SPDX-License-Identifier: Apache-2.0
"""Run the tests in a virtual environment made for them.

    python3 tests/run.py [arguments for pytest]

Needs Python 3.11 or later, a C compiler and a package index. Tests that need torch, or LLVM's command line tools, are
skipped where those are not installed; `--with-torch` as the first argument installs torch too.
"""

from __future__ import annotations

import os
import subprocess
import sys

from environment import ROOT, build_own_wheel, make_venv, pip_install

REQUIREMENTS = (
    "pytest>=8",
    "hypothesis",
    "numpy",
    "jinja2>=3.1",
    "setuptools>=77",
    "flydsl>=0.5,<0.6",
    "ziglang",
    "platformdirs>=3",
    "build",
    "mypy",
    "ruff",
    "rich>=13",
    "validate-pyproject",
    "hatchling",
    "editables",
    "scikit-build-core>=0.11",
    "cmake",
    "ninja",
)


def main(arguments: list[str]) -> int:
    """Set up `.venv-test` and run pytest in it."""
    python = make_venv(ROOT / ".venv-test")
    requirements = list(REQUIREMENTS)
    if arguments[:1] == ["--with-torch"]:
        arguments = arguments[1:]
        requirements.append(os.environ.get("FLYDSL_BUILD_TEST_TORCH", "torch"))
    pip_install(python, *requirements)
    own = build_own_wheel(python, ROOT / "dist")
    pip_install(python, "--force-reinstall", "--no-deps", str(own))
    environ = {**os.environ, "FLYDSL_BUILD_TEST_WHEEL": str(own)}
    # Not `python -m pytest`, which puts this folder on the path: the tests are for the installed package, native part included.
    command = [str(python.with_name("pytest")), *(arguments or ["tests"])]
    return subprocess.run(command, check=False, cwd=ROOT, env=environ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
