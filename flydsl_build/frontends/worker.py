# SPDX-License-Identifier: Apache-2.0
"""The worker process: compiles jobs for one target, one after another.

FlyDSL modules compute constants from the architecture when they are imported, so a process never sees two targets. Jobs
come as lines of JSON on the file descriptor that was standard input; events go as lines of JSON to the one that was standard
output. What authors print goes to standard error, and what they read from standard input is empty.

Started by `engine.local` as `python -m flydsl_build.frontends.worker`.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import Any, TextIO

from flydsl_build.codec import decode, encode
from flydsl_build.frontends.dependency_tracker import Recorder
from flydsl_build.frontends.flydsl.torch_stand_in import install_torch_stand_in
from flydsl_build.jobs.environment import put_on_path
from flydsl_build.jobs.job import Job, WorkerSettings
from flydsl_build.targets.processors import parse_target

__all__ = ["main"]


def _take_standard_output() -> TextIO:
    """Keep standard output for the protocol; everything printed from now on goes to standard error."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    return channel


def _take_standard_input() -> TextIO:
    """Keep standard input for the protocol; whoever reads it from now on is at its end."""
    channel = os.fdopen(os.dup(0), encoding="utf-8")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - for as long as the process
    return channel


def _set_environment(settings: WorkerSettings) -> None:
    target = settings.target
    os.environ.pop("HSA_OVERRIDE_GFX_VERSION", None)
    # Both: with one alone, half of FlyDSL believes in gfx942.
    # A generic target is compiled as one of its members, up to the code generator.
    os.environ["ARCH"] = os.environ["FLYDSL_GPU_ARCH"] = parse_target(target, where="target").chip
    os.environ["COMPILE_ONLY"] = "1"
    os.environ["FLYDSL_RUNTIME_ENABLE_CACHE"] = "0"
    os.environ.update(settings.env)


# https://man7.org/linux/man-pages/man2/PR_SET_PDEATHSIG.2const.html
_PR_SET_PDEATHSIG = 1


def _end_with_parent() -> None:
    """Let the system end this process when the build ends, by whatever means: it may be in LLVM's code for minutes."""
    parent = os.getppid()
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit(1)


def main() -> int:
    """Run the protocol until its input ends."""
    _end_with_parent()
    environ = dict(os.environ)
    channel = _take_standard_output()
    requests = _take_standard_input()
    faulthandler.enable(file=2)
    sys.dont_write_bytecode = True

    def send(event: str, **data: Any) -> None:
        channel.write(json.dumps({"event": event, **data}) + "\n")
        channel.flush()

    settings = decode(WorkerSettings, json.loads(requests.readline()), where="settings")
    _set_environment(settings)
    recorder = Recorder(
        project=settings.project,
        roots=settings.package_roots,
        # What the build made for itself: the output folders are beside the tool kit.
        ignored=[str(Path(settings.toolkit.folder).parent)],
        constant=[*(name for name, _ in settings.env), "TMPDIR"],
    )
    recorder.install()
    put_on_path(settings.package_roots)
    try:
        install_torch_stand_in()
        from flydsl_build.frontends.flydsl import adapter
        from flydsl_build.frontends.flydsl.compiler import compile_module

        adapter.register_packaging_backend()
    except Exception:  # noqa: BLE001 - told to the parent process, which shows it
        send("broken", text=traceback.format_exc())
        return 1
    send("ready")
    for line in requests:
        job = decode(Job, json.loads(line), where="job")
        try:
            result = compile_module(job, settings, lambda name: send("start", specialization=name))
        except Exception:  # noqa: BLE001 - told to the parent process, which shows it
            send("bug", text=traceback.format_exc())
            return 1
        send("done", result=encode(result), dependencies=recorder.dependencies(job.module, environ))
    return 0


if __name__ == "__main__":
    sys.exit(main())
