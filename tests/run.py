# SPDX-License-Identifier: Apache-2.0
"""Run the tests in a virtual environment made for them.

    python3 tests/run.py [--fast] [arguments for pytest]

`--fast` is for the loop of a contributor: the tests that build nothing, in less than a minute, and after the first time without a
package index. Which tests these are is in `costs.py`.

Needs Python 3.11 or later, a C compiler and a package index. Tests that need torch, or LLVM's command line tools, are
skipped where those are not installed; `--with-torch` and `--with-jax` install these too.
"""

from __future__ import annotations

import os
import subprocess
import sys

from environment import ROOT, build_own_wheel, make_venv, pip_install

REQUIREMENTS = (
    "pytest>=8",
    "pytest-xdist",
    "llvmlite",
    "pyelftools",
    "hypothesis",
    "numpy",
    "jinja2>=3.1",
    "setuptools>=77",
    "flydsl>=0.5,<0.6",
    "ziglang",
    "build",
    "mypy",
    "ruff",
    "rich>=13",
    "fsspec>=2024.2",
    "aiohttp",
    "distributed>=2024.2",
    "validate-pyproject",
    "auditwheel>=6",
    "cyclonedx-python-lib[json-validation]>=8",
    "variantlib>=0.2,<0.3",
    "hatchling",
    "editables",
    "scikit-build-core>=0.11",
    "cmake",
    "ninja",
    "beartype>=0.22",
    "pyinstaller>=6",
    "typeguard>=4",
)


def main(arguments: list[str]) -> int:
    """Set up `.venv-test` and run pytest in it."""
    python = make_venv(ROOT / ".venv-test")
    requirements = list(REQUIREMENTS)
    for option, requirement in (("--with-torch", os.environ.get("FLYDSL_BUILD_TEST_TORCH", "torch")), ("--with-jax", "jax")):
        if option in arguments:
            arguments = [argument for argument in arguments if argument != option]
            requirements.append(requirement)
    pip_install(python, *requirements)
    own = build_own_wheel(python, ROOT / "dist", isolated="--fast" not in arguments)
    pip_install(python, "--force-reinstall", "--no-deps", str(own))
    environ = {**os.environ, "FLYDSL_BUILD_TEST_WHEEL": str(own)}
    # Not `python -m pytest`, which puts this folder on the path: the tests are for the installed package, native part included.
    # Most tests wait for one process that builds. Those of a file share what they have built, so a file stays in one process.
    given = [argument for argument in arguments if argument != "--fast"]
    fast = ["--fast"] * (len(given) < len(arguments))
    command = [str(python.with_name("pytest")), *fast, *(given or ["-n", "auto", "--dist", "loadfile", "tests"])]
    return subprocess.run(command, check=False, cwd=ROOT, env=environ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
