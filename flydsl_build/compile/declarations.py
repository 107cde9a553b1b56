# SPDX-License-Identifier: Apache-2.0
"""Call the author's function that declares kernels, in a process of its own: the project's modules are imported there only.

Also run as `python -c "from flydsl_build.compile.declarations import main; …"`, which is the child's end.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flydsl_build.compile.author_code import collapsed, import_reference, relative_to_roots, text_of
from flydsl_build.compile.cache import python_digest
from flydsl_build.compile.environment import program, put_on_path, worker_environment
from flydsl_build.compile.recorder import Recorder
from flydsl_build.config.keys import quote_key
from flydsl_build.errors import ConfigError, Fault

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from flydsl_build.compile.cache import BuildCache

__all__ = ["Declarations", "collect_declarations", "main"]

_MOST = 10_000
_DEEPEST = 50
_SHOWN = 20
_FIX = "yield what TOML has: strings, numbers, booleans, lists and tables; numpy's values have `item()` and `tolist()`"
_PLACE = "tool.flydsl-build.kernels-from"


@dataclass(frozen=True, kw_only=True, slots=True)
class Declarations:
    """What an author's function declares.

    Parameters
    ----------
    pairs
        `[key, table]`, as JSON values.
    dependencies
        What they follow from, with fingerprints; None if that is not known.
    """

    pairs: list[Any]
    dependencies: Mapping[str, str | None] | None


def collect_declarations(reference: str, *, package_roots: Sequence[str], project: Path, timeout: float, cache: BuildCache) -> Declarations:
    """Return what the function `reference` declares.

    Parameters
    ----------
    reference
        `module:function`; called without arguments, in the project's folder.

    Raises
    ------
    ConfigError
        The function cannot be imported, raises, or yields what TOML could not say.
    """
    key = ("declarations", python_digest(project=project, package_roots=package_roots), reference)
    known = cache.recall(*key)
    if known is not None:
        return Declarations(**json.loads(known))
    request = json.dumps({"reference": reference, "roots": list(package_roots), "project": str(project)})
    try:
        done = subprocess.run(
            program("flydsl_build.compile.declarations"),
            input=request,
            capture_output=True,
            text=True,
            check=False,
            cwd=project,
            env=worker_environment(os.environ),
            timeout=timeout,
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(
            Fault(
                where=_PLACE,
                what=f"{reference} took longer than {timeout:g} s",
                fix="look for a loop that does not end, or raise `timeout`",
            )
        ) from None
    try:
        answer: dict[str, Any] = json.loads(done.stdout.rpartition("\n")[2])
    except ValueError:
        answer = {"fault": f"the process of {reference} ended with status {done.returncode}", "detail": done.stderr[-4000:]}
    if answer.get("strangers"):
        raise ConfigError(*(Fault(where=where, what=what, fix=_FIX) for where, what in answer["strangers"]))
    if "fault" in answer:
        raise ConfigError(Fault(where=_PLACE, what=answer["fault"], fix=answer.get("fix", "correct the function"), detail=answer["detail"]))
    if answer["dependencies"] is not None:
        cache.remember(json.dumps(answer).encode(), *key, dependencies=answer["dependencies"])
    return Declarations(**answer)


def main() -> int:
    """Answer one request on standard input with one line on standard output."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.dont_write_bytecode = True
    request = json.loads(sys.stdin.read())
    environ = dict(os.environ)
    recorder = Recorder(project=request["project"], roots=request["roots"], ignored=[], constant=[])
    recorder.install()
    put_on_path(request["roots"])
    answer = _answer(request["reference"], request["roots"], request["project"])
    dependencies = recorder.dependencies(request["reference"].partition(":")[0], environ)
    channel.write("\n" + json.dumps({**answer, "dependencies": dependencies}))
    channel.close()
    return 0


def _answer(reference: str, roots: list[str], project: str) -> dict[str, Any]:
    module = reference.partition(":")[0]
    try:
        found = import_reference(reference)()
        if isinstance(found, Mapping):
            found = found.items()
        if not isinstance(found, Iterable) or isinstance(found, str):
            return {"fault": f"{reference} returned {type(found).__name__}, not a dict and not (key, table) pairs", "detail": ""}
        pairs = [list(pair) if isinstance(pair, tuple | list) else pair for pair in itertools.islice(found, _MOST + 1)]
        if len(pairs) > _MOST:
            return {"fault": f"{reference} yields more than {_MOST:,} kernels", "detail": ""}
        strangers = itertools.chain.from_iterable(_strangers(pair, f"{reference}[{index}]") for index, pair in enumerate(pairs))
        if shown := list(itertools.islice(strangers, _SHOWN)):
            return {"strangers": shown}
        json.dumps(pairs)
    except BaseException as error:  # noqa: BLE001 - an author's function may raise anything
        frames = collapsed(
            f"{place}:{frame.lineno}: {frame.line}"
            for frame in traceback.extract_tb(error.__traceback__)
            if (place := relative_to_roots(frame.filename, roots)) is not None
        )
        if isinstance(error, ModuleNotFoundError) and error.name and f"{module}.".startswith(f"{error.name}."):
            places = [os.path.relpath(root, project) for root in roots]
            looked = ", ".join("its own folder" if place == "." else place for place in places)
            fix = f"modules of the project are looked for in {looked}: put it there, or correct the name"
            return {"fault": f"module {module} was not found", "fix": fix, "detail": ""}
        return {"fault": f"{reference} failed: {text_of(error)}", "detail": "\n".join(frames)}
    return {"pairs": pairs}


def _strangers(pair: Any, where: str) -> Iterator[tuple[str, str]]:
    """Yield place and kind of each value that has no form in JSON."""
    if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str):
        yield from _strangers_in(pair[1], f"{where} {quote_key(pair[0])}")
    else:
        yield from _strangers_in(pair, where)


def _strangers_in(value: Any, where: str, depth: int = 0) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict | list | tuple) and depth > _DEEPEST:
        yield where, f"lists and tables are nested more than {_DEEPEST} deep"
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _strangers_in(item, f"{where}.{quote_key(str(name))}", depth + 1)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _strangers_in(item, f"{where}[{index}]", depth + 1)
    elif value is not None and not isinstance(value, bool | int | float | str):
        yield where, f"found a {type(value).__name__}"
