# SPDX-License-Identifier: Apache-2.0
"""The command line from outside: processes, wheels, and changed copies of wheels."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from building import PACKAGES, build_environment, copy_project, hide_torch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["Built", "build_package", "change_manifest", "changed_wheel", "run_command"]


@dataclass(frozen=True, kw_only=True)
class Built:
    """A wheel, and what the command said."""

    wheel: Path
    output: str
    project: Path


def run_command(*words: object, cwd: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run `python -m flydsl_build` in a process of its own, away from the source tree and without a cache."""
    command = [sys.executable, "-m", "flydsl_build", *map(str, words)]
    return subprocess.run(
        command,
        cwd=cwd,
        env={**build_environment(None), **(env or {})},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def build_package(name: str, folder: Path) -> Built:
    """Build one of `tests/packages`."""
    project = copy_project(PACKAGES / name, folder / name)
    env = {"PYTHONPATH": str(hide_torch(folder / "site"))}
    done = run_command("build", name, "-o", "dist", "-C", "jobs=2", cwd=folder, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = (folder / "dist").iterdir()
    return Built(wheel=wheel, output=done.stdout, project=project)


def changed_wheel(wheel: Path, path: Path, changes: dict[str, Callable[[bytes], bytes] | None], *, record: bool = True) -> Path:
    """Write a copy of a wheel in which some members are other (None: gone); with `record`, RECORD says so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}
    for name, change in changes.items():
        if change is None:
            del content[name]
        else:
            content[name] = change(content[name])
    (list_name,) = [name for name in content if name.endswith(".dist-info/RECORD")]
    if record:
        rows = []
        for name, data in content.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.append(f"{name},," if name == list_name else f"{name},sha256={digest},{len(data)}")
        content[list_name] = "\n".join(rows).encode()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in content.items():
            archive.writestr(name, data)
    return path


def change_manifest(change: Callable[[Any], None]) -> Callable[[bytes], bytes]:
    """Return a change of a member that is a manifest."""

    def run(data: bytes) -> bytes:
        value = json.loads(data)
        change(value)
        return (json.dumps(value, indent=1) + "\n").encode()

    return run
