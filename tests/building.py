# SPDX-License-Identifier: Apache-2.0
"""The two ends of a wheel: the one way in which tests build, without torch in sight, and a process that uses what was installed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = [
    "NO_TORCH",
    "PACKAGES",
    "TESTS",
    "WITHOUT_ROOTS_RIGHTS",
    "Answer",
    "build_environment",
    "call_hook",
    "copy_project",
    "hide_torch",
    "manifest",
    "members",
    "read_only",
    "run_script",
    "unpack",
]

TESTS = Path(__file__).resolve().parent
PACKAGES = TESTS / "packages"

# What a hook does besides answering, seen from inside its process.
_HOOK = """
import json, os, sys
request = json.loads(sys.argv[1])
os.umask(request["umask"])
sys.modules.update(dict.fromkeys(request["hidden"]))
spawned = []
sys.addaudithook(lambda event, facts: spawned.append(list(map(str, facts[1]))) if event == "subprocess.Popen" else None)
import flydsl_build.backend
value = getattr(flydsl_build.backend, request["hook"])(*request["arguments"])
imported = sorted(name for name, module in sys.modules.items() if module is not None)
with open(request["answer"], "w") as file:
    json.dump({"value": value, "spawned": spawned, "imported": imported}, file)
"""

# Root writes where nobody may, unless it gives that up. Others have nothing to give up.
_RIGHTS = "-dac_override,-dac_read_search"
WITHOUT_ROOTS_RIGHTS = ["setpriv", f"--bounding-set={_RIGHTS}", f"--inh-caps={_RIGHTS}"] if os.geteuid() == 0 else []

# An isolated build has no torch, and a worker that imports torch needs seconds.
NO_TORCH = """
import importlib.util
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *package: None if name == "torch" else find_spec(name, *package)
"""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a hook returned, and what it did on the way.

    Parameters
    ----------
    spawned
        Command lines of the processes that it started.
    imported
        Top-level names of the modules that it imported.
    """

    status: int
    output: str
    value: Any
    spawned: list[list[str]]
    imported: set[str]


def hide_torch(folder: Path) -> Path:
    """Keep torch out of sight of every Python that has a folder on its path; return the folder, whose own sitecustomize stays."""
    folder.mkdir(parents=True, exist_ok=True)
    site = folder / "sitecustomize.py"
    given = site.read_text(encoding="utf-8") if site.is_file() else ""
    site.write_text(given.replace(NO_TORCH, "") + NO_TORCH, encoding="utf-8")
    return folder


def build_environment(hide_torch_by: Path | None) -> dict[str, str]:
    """Return the environment without SOURCE_DATE_EPOCH and all settings of ours, for a build without a cache.

    Parameters
    ----------
    hide_torch_by
        A folder for a file that keeps torch out of sight; None leaves it.
    """
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("FLYDSL_", "SOURCE_DATE_EPOCH"))}
    environ["FLYDSL_BUILD_CACHE"] = "false"
    if hide_torch_by is not None:
        environ["PYTHONPATH"] = str(hide_torch(hide_torch_by))
    return environ


def call_hook(
    project: Path,
    hook: str,
    *arguments: Any,
    env: Mapping[str, str] | None = None,
    umask: int = 0o022,
    hidden: Sequence[str] = (),
    torch: bool = False,
    python_path: Path | None = None,
    prefix: Sequence[str] = (),
    python: Path | str = sys.executable,
    ok: bool = True,
) -> Answer:
    """Call one PEP 517 hook as front ends do: in a process of its own, in the project's folder.

    Parameters
    ----------
    env
        Added to the environment, from which SOURCE_DATE_EPOCH and all settings of ours have been taken.
    hidden
        Modules that cannot be imported.
    torch
        Let compile processes see torch, if it is installed.
    python_path
        A folder on the path of all processes; one of the call's own if None.
    prefix
        A command that runs the command after it.
    python
        The interpreter.
    ok
        Fail the test if the hook fails.
    """
    with tempfile.TemporaryDirectory() as temporary:
        answer = Path(temporary, "answer.json")
        request = {"hook": hook, "arguments": list(map(_plain, arguments)), "umask": umask, "hidden": list(hidden), "answer": str(answer)}
        environ = {**build_environment(None if torch else python_path or Path(temporary)), **(env or {})}
        command = [*prefix, str(python), "-c", _HOOK, json.dumps(request)]
        done = subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True, check=False, timeout=300)
        output = done.stdout + done.stderr
        if ok:
            assert done.returncode == 0, output
        facts = json.loads(answer.read_text()) if done.returncode == 0 else {"value": None, "spawned": [], "imported": []}
    imported = {name.partition(".")[0] for name in facts["imported"]}
    return Answer(status=done.returncode, output=output, value=facts["value"], spawned=facts["spawned"], imported=imported)


def _plain(argument: Any) -> Any:
    return str(argument) if isinstance(argument, Path) else argument


def copy_project(source: Path, destination: Path) -> Path:
    """Copy a project without what builds have left in it."""
    shutil.copytree(source, destination, ignore=shutil.ignore_patterns("build", "dist", "*.egg-info", "__pycache__"))
    return destination


def members(wheel: Path) -> dict[str, bytes]:
    """Return the content of each member of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def manifest(wheel: Path, name: str) -> Any:
    """Return a manifest that is in a wheel."""
    return json.loads(members(wheel)[name])


def unpack(folder: Path, *wheels: Path) -> Path:
    """Install wheels into a folder, as `pip install --target` does with wheels that have no scripts."""
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    return folder


def run_script(
    script: str,
    *,
    python: Path | str = sys.executable,
    site: Path | None = None,
    hip: Path | None = None,
    targets: str = "",
    argument: Any = None,
    **env: str,
) -> Any:
    """Run a script in a fresh interpreter and return what it printed last, read as JSON.

    Parameters
    ----------
    site
        Folder with installed packages.
    hip
        The stand-in HIP library; without it the process finds none.
    targets
        The target IDs of its devices.
    argument
        What the script finds in `argument`.

    The test fails if the process did not end well, by a signal above all.
    """
    # The bare name goes through LD_LIBRARY_PATH; as a setting it also wins over a ROCm that the machine may have.
    library = (
        {"LD_LIBRARY_PATH": str(hip.parent), "FLYDSL_BUILD_HIP_LIBRARY": hip.name}
        if hip
        else {"FLYDSL_BUILD_HIP_LIBRARY": "/no/such/hip.so"}
    )
    environ = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(map(str, [*([site] if site else []), TESTS])),
        "PYTHONDONTWRITEBYTECODE": "1",
        "FAKE_HIP_TARGETS": targets,
        **library,
        **env,
    }
    preamble = f"import json, sys\nargument = json.loads({json.dumps(argument)!r})\n"
    done = subprocess.run([str(python), "-c", preamble + script], env=environ, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, f"status {done.returncode}\n{done.stdout}{done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Let nobody write into a folder and all that is in it."""
    paths = [folder, *folder.rglob("*")]
    for path in paths:
        path.chmod(path.stat().st_mode & ~0o222)
    try:
        yield
    finally:
        for path in paths:
            path.chmod(path.stat().st_mode | 0o200)
