# SPDX-License-Identifier: Apache-2.0
"""Turn what an author's code raises into faults: where, what, and the author's lines."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

from flydsl_build.errors import Fault, excerpt
from flydsl_build.frontends.flydsl import adapter
from flydsl_build.frontends.missing_modules import missing_module
from flydsl_build.jobs.author_code import passed_through, relative_to_roots, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from flydsl_build.jobs.job import WorkerSettings

__all__ = ["AUTHORS_LINES", "FaultError", "author_objects", "explain", "joined_fault", "missing_fault_text", "relative_name"]


class FaultError(Exception):
    """Carries faults to the place where they are collected."""

    def __init__(self, *faults: Fault) -> None:
        super().__init__("\n".join(str(fault) for fault in faults))
        self.faults = faults


# MLIR prints the operation that a message is about, which for a pass over the whole kernel is the kernel: megabytes.
_PRINTED_OPERATION = re.compile(
    r"(see current operation:[^\n]{0,200})[^\n]*(?:\n(?!\s*(?:error|warning|note|remark): |\s*DSL Traceback)[^\n]*)+\n?"
)


# Of an author's exception; of the output of tools, less is shown.
_EXPLAINED = 100


def explain(error: BaseException, settings: WorkerSettings) -> str:
    """Return what an author sees of an exception: the lines of the author's that it came through, and its text."""
    frames = adapter.author_frames(error, settings.package_roots)
    text = str(error) if isinstance(error, adapter.DSLCompileError) else text_of(error)
    if not settings.verbose:
        text = _PRINTED_OPERATION.sub(r"\1 …\n", text)
    if isinstance(error, SyntaxError) and error.filename:
        frames = [f"{relative_name(error.filename, settings.package_roots)}:{error.lineno}: {(error.text or '').strip()}"]
        text = f"{type(error).__name__}: {error.msg}"
    detail = excerpt("\n".join([*frames, *text.splitlines()]), head=_EXPLAINED, tail=_EXPLAINED)
    if settings.verbose:
        import traceback

        detail += "\n\n" + "".join(traceback.format_exception(error))
    return detail


def relative_name(path: str, roots: tuple[str, ...]) -> str:
    """Return a file's path relative to the package root that it is in; its name alone for a file from elsewhere."""
    return relative_to_roots(path, roots) or Path(path).name


AUTHORS_LINES = "see the author's lines below"


def missing_fault_text(error: BaseException | None, who: str, settings: WorkerSettings) -> tuple[str, str] | None:
    """Return what is wrong and what to do where an author's code needs a module that is not there; None for any other error."""
    missing = missing_module(error, settings.package_roots)
    return None if missing is None else (f"{who} needs {missing[0]}", missing[1])


@contextlib.contextmanager
def author_objects(where: str, settings: WorkerSettings) -> Iterator[None]:
    """Make a fault of what is raised in the author's code while an object of the author's is looked at: properties, methods of classes."""
    try:
        yield
    except FaultError:
        raise
    except BaseException as error:
        if not passed_through(error, settings.package_roots):
            raise
        fault = Fault(
            where=where,
            what="an object of the author's module cannot be looked at",
            fix=AUTHORS_LINES,
            detail=explain(error, settings),
        )
        raise FaultError(fault) from None


def joined_fault(faults: list[Fault]) -> Fault:
    """Make one fault of several that stand at one place."""
    if len(faults) == 1:
        return faults[0]
    lines = [f"{one.what}\n  -> {one.fix}" for one in faults]
    return Fault(where=faults[0].where, what=f"{len(faults)} arguments do not fit", fix="correct each of them", detail="\n".join(lines))
