# SPDX-License-Identifier: Apache-2.0
"""Collect what the author's function declares, from a process of its own: the project's modules are imported there only."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flydsl_build.cache.build_cache import compilers_digest, python_digest
from flydsl_build.cache.records import check_dependencies
from flydsl_build.codec import DecodeError, PlainValue, decode, parse
from flydsl_build.errors import ConfigError, Fault, excerpt
from flydsl_build.jobs.environment import program, worker_environment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from flydsl_build.cache.build_cache import BuildCache
    from flydsl_build.config.settings import Settings

__all__ = ["Declarations", "collect_declarations"]

_FIX = (
    "yield what TOML has: strings, numbers, booleans, lists and tables, and members of enums that a module defines; numpy's values have "
    "`item()` and `tolist()`"
)
_PLACE = "tool.flydsl-build.kernels-from"


@dataclass(frozen=True, kw_only=True, slots=True)
class Declarations:
    """What an author's function declares.

    Parameters
    ----------
    pairs
        `(key, table)`.
    dependencies
        What they follow from, with fingerprints; None if that is not known.
    """

    pairs: tuple[PlainValue, ...]
    dependencies: dict[str, str | None] | None = field(metadata={"check": check_dependencies})


def collect_declarations(settings: Settings, *, package_roots: Sequence[str], project: Path, cache: BuildCache) -> Declarations:
    """Return what the function of `kernels-from` declares, which is called without arguments, in the project's folder.

    Parameters
    ----------
    settings
        Settings with `kernels_from`.

    Raises
    ------
    ConfigError
        The function cannot be imported, raises, or yields what TOML could not say.
    """
    reference = settings.kernels_from
    assert reference is not None
    made_by = python_digest(project=project, package_roots=package_roots)
    key = ("declarations", made_by, compilers_digest(settings.frontends), reference)
    known = cache.recall(*key)
    if known is not None:
        # What has another form is as good as nothing.
        with contextlib.suppress(DecodeError):
            return _declarations(parse(dict[str, Any], known, where=reference), reference)
    request = json.dumps({"reference": reference, "roots": list(package_roots), "project": str(project), "frontends": settings.frontends})
    try:
        done = subprocess.run(
            program("flydsl_build.frontends.declarations"),
            input=request,
            capture_output=True,
            text=True,
            check=False,
            cwd=project,
            env=worker_environment(os.environ),
            timeout=settings.timeout,
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(
            Fault(
                where=_PLACE,
                what=f"{reference} took longer than {settings.timeout:g} s",
                fix="look for a loop that does not end, or raise `timeout`",
            )
        ) from None
    try:
        answer: dict[str, Any] = json.loads(done.stdout.rpartition("\n")[2])
    except ValueError:
        answer = {"fault": f"the process of {reference} ended with status {done.returncode}", "detail": excerpt(done.stderr)}
    if answer.get("strangers"):
        raise ConfigError(*(Fault(where=where, what=what, fix=_FIX) for where, what in answer["strangers"]))
    if "fault" in answer:
        raise ConfigError(Fault(where=_PLACE, what=answer["fault"], fix=answer.get("fix", "correct the function"), detail=answer["detail"]))
    if answer["dependencies"] is not None:
        cache.remember(json.dumps(answer).encode(), *key, dependencies=answer["dependencies"])
    return _declarations(answer, reference)


def _declarations(answer: dict[str, Any], reference: str) -> Declarations:
    found: Declarations = decode(Declarations, answer, where=reference)
    return found
