# SPDX-License-Identifier: Apache-2.0
"""Answer, in a process of its own, what the author's function declares; started by `package.declared`."""

from __future__ import annotations

import itertools
import json
import os
import sys
import traceback
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any

from flydsl_build.codec import from_enum_reference
from flydsl_build.config.keys import quote_key
from flydsl_build.errors import collapsed
from flydsl_build.frontends.dependency_tracker import Recorder
from flydsl_build.frontends.missing_modules import missing_module
from flydsl_build.jobs.author_code import import_reference, member_reference, relative_to_roots, text_of
from flydsl_build.jobs.environment import put_on_path

if TYPE_CHECKING:
    from collections.abc import Iterator


__all__ = ["main"]

_MOST = 10_000
# More than tables may be, and less than the codec reads.
_DEEPEST = 30
_SHOWN = 20


def main() -> int:
    """Answer one request on standard input with one line on standard output."""
    channel = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.dont_write_bytecode = True
    request = json.loads(sys.stdin.read())
    environ = dict(os.environ)
    recorder = Recorder(project=request["project"], roots=request["roots"], ignored=[], constant=[], frontends=request["frontends"])
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
        pairs = _with_references(pairs)
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
        missing = missing_module(error, roots)
        told = (
            {"fault": f"{reference} failed: {text_of(error)}"}
            if missing is None
            else {"fault": f"{reference} needs {missing[0]}", "fix": missing[1]}
        )
        return {**told, "detail": "\n".join(frames)}
    return {"pairs": pairs}


def _with_references(value: Any) -> Any:
    """Return a value without strangers in which the members of enums are objects that stand for them."""
    if isinstance(value, Enum):
        reference = member_reference(value)
        assert reference is not None
        return from_enum_reference(reference)
    if isinstance(value, dict):
        return {name: _with_references(one) for name, one in value.items()}
    return [_with_references(one) for one in value] if type(value) in {list, tuple} else value


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
            if isinstance(name, str) and name.startswith("$"):
                yield where, f"found a key {quote_key(name)}, which no table has"
            yield from _strangers_in(item, f"{where}.{quote_key(str(name))}", depth + 1)
    elif type(value) in {list, tuple}:
        for index, item in enumerate(value):
            yield from _strangers_in(item, f"{where}[{index}]", depth + 1)
    elif isinstance(value, Enum):
        if member_reference(value) is not None:
            return
        yield where, f"found a member of {type(value).__qualname__}, which is not found in its module {type(value).__module__}"
    # What is of a class of its own, such as a named tuple, says more than the values in it.
    elif value is not None and type(value) not in {bool, int, float, str}:
        yield where, f"found a {type(value).__name__}"
