# SPDX-License-Identifier: Apache-2.0
"""The worker process: compiles jobs of one front end, one after another.

Where modules compute constants from the architecture when they are imported, a process never sees two targets. Jobs come as lines of
JSON on the file descriptor that was standard input; events go as lines of JSON to the one that was standard output. What authors print
goes to standard error, and what they read from standard input is empty.

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
from flydsl_build.jobs.environment import put_on_path
from flydsl_build.jobs.frontend import frontend_of
from flydsl_build.jobs.job import Job, WorkerSettings

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
    os.environ.update(settings.env)
    recorder = Recorder(
        project=settings.project,
        roots=settings.package_roots,
        # What the build made for itself: the output folders are beside the tool kit.
        ignored=[str(Path(settings.toolkit.folder).parent)],
        constant=[*(name for name, _ in settings.env), "TMPDIR"],
        frontends=[settings.frontend],
    )
    recorder.install()
    put_on_path(settings.package_roots)
    try:
        compile_job = frontend_of(settings.frontend).load()(settings)
    except Exception:  # noqa: BLE001 - told to the parent process, which shows it
        send("broken", text=traceback.format_exc())
        return 1
    send("ready")
    for line in requests:
        job = decode(Job, json.loads(line), where="job")
        try:
            result = compile_job(job, settings, lambda name: send("start", specialization=name))
        except Exception:  # noqa: BLE001 - told to the parent process, which shows it
            send("bug", text=traceback.format_exc())
            return 1
        send("done", result=encode(result), dependencies=recorder.dependencies(job.module, environ))
    return 0


if __name__ == "__main__":
    sys.exit(main())
