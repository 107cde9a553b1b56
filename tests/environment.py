# SPDX-License-Identifier: Apache-2.0
"""Virtual environments and wheels for the two README commands and the tests; standard library only."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

__all__ = ["ROOT", "build_own_wheel", "make_venv", "pip_install"]

ROOT = Path(__file__).resolve().parents[1]

# What the own wheel is made of; everything else may change without a rebuild.
_OWN_SOURCES = ("pyproject.toml", "flydsl_build", "native", "templates")


def make_venv(folder: Path, base: Path | None = None) -> Path:
    """Make a virtual environment of this Python or `base`, or use the one that is there; return its interpreter."""
    python = folder / "bin" / "python"
    if not python.is_file():
        subprocess.run([str(base or sys.executable), "-m", "venv", "--clear", str(folder)], check=True)
    return python


def pip_install(python: Path, *arguments: str) -> None:
    """Install into a virtual environment."""
    subprocess.run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments], check=True)


def build_own_wheel(python: Path, folder: Path, *, isolated: bool = True) -> Path:
    """Build the wheel of flydsl-build into `folder`; return its path. An unchanged tree is built once.

    Parameters
    ----------
    isolated
        Get what the build needs from the package index; else the interpreter has it.
    """
    digest = hashlib.sha256(sys.version.encode())
    for name in _OWN_SOURCES:
        path = ROOT / name
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and file.suffix not in (".pyc", ".so"):
                digest.update(str(file.relative_to(ROOT)).encode() + file.read_bytes())
    stamp = folder / ".flydsl_build.sha256"
    wheels = list(folder.glob("flydsl_build-*.whl"))
    if len(wheels) == 1 and stamp.is_file() and stamp.read_text() == digest.hexdigest():
        return wheels[0]
    for old in wheels:
        old.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    options = [] if isolated else ["--no-build-isolation"]
    command = [
        str(python),
        "-m",
        "pip",
        "wheel",
        "--disable-pip-version-check",
        "--no-deps",
        *options,
        "--wheel-dir",
        str(folder),
        str(ROOT),
    ]
    done = subprocess.run(command, check=False, capture_output=True, text=True, env={**os.environ, "PIP_NO_INPUT": "1"})
    if done.returncode:
        sys.stderr.write(done.stdout + done.stderr)
        raise SystemExit(done.returncode)
    (wheel,) = folder.glob("flydsl_build-*.whl")
    stamp.write_text(digest.hexdigest())
    return wheel
