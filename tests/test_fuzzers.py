# SPDX-License-Identifier: Apache-2.0
"""Runs the fuzzers of the rooms but the run time's, as many at once as there are cores; FLYDSL_BUILD_FUZZ_SECONDS says how long each takes."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytestmark = pytest.mark.fuzz

# Those of the run time run with sanitizers: runtime/test_sanitizers.py.
FUZZERS = sorted(path for path in Path(__file__).parent.glob("*/fuzz_*.py") if path.parent.name != "runtime")


def run(fuzzer: Path) -> str:
    command = [sys.executable, "-P", "-m", "pytest", "-q", "-p", "no:cacheprovider", str(fuzzer)]
    done = subprocess.run(command, cwd=fuzzer.parents[2], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_fuzzers() -> None:
    assert len(FUZZERS) == 3
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for fuzzer, failure in zip(FUZZERS, pool.map(run, FUZZERS), strict=True):
            assert not failure, f"{fuzzer.name}:\n{failure}"
