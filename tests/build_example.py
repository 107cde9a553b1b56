# SPDX-License-Identifier: Apache-2.0
"""Build flydsl-build's own wheel, then the example's wheel against it in a real isolated build, and show what is in it.

    python3 tests/build_example.py [extra arguments for pip wheel, e.g. -C archs=gfx942]

Needs Python 3.11 or later, a C compiler and a package index. The wheels are in dist/ afterwards.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from environment import ROOT, build_own_wheel, make_venv

DIST = ROOT / "dist"


def main(arguments: list[str]) -> int:
    """Build both wheels and print the table of the example's."""
    python = make_venv(ROOT / ".venv-example")
    own = build_own_wheel(python, DIST)
    before = set(DIST.glob("example_kernels-*.whl"))
    for old in before:
        old.unlink()
    command = [python, "-m", "pip", "wheel", "--no-deps", "--find-links", DIST, "--wheel-dir", DIST, *arguments, ROOT / "example_pkg"]
    done = subprocess.run([str(word) for word in command], check=False)
    if done.returncode:
        return done.returncode
    (wheel,) = DIST.glob("example_kernels-*.whl")
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--force-reinstall", str(own)], check=True)
    subprocess.run([str(python), "-m", "flydsl_build", "inspect", str(wheel)], check=True)
    sys.stdout.write(f"\n{wheel.relative_to(Path.cwd()) if wheel.is_relative_to(Path.cwd()) else wheel}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
