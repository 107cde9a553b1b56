# SPDX-License-Identifier: Apache-2.0
"""Config settings (`-C key=value`) and environment variables: what they are called and how their text is read.

Front ends hand config settings to the back end unchecked, and setuptools passes over those it does not know
(https://github.com/pypa/setuptools/issues/2491), so every key is checked here.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, FaultCollector, did_you_mean
from ..targets.processors import parse_target
from .keys import keys_of
from .table_reader import SECONDS, describe, seconds_of
from .tables import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "PER_ARCH_TAGS",
    "SETUPTOOLS",
    "SIZE_FIX",
    "URL_FAULT",
    "WHEELS",
    "Override",
    "base_settings",
    "given_settings",
    "is_url",
    "read_overrides",
    "size_of",
    "split_list",
    "targets_of",
]

SETUPTOOLS = "setuptools.build_meta"
"""The base that a project has which names none."""

_PREFIX = "flydsl-build."

SETUPTOOLS_KEYS = ("--build-option", "--editable_mode", "--global-option", "--quiet", "editable-mode", "editable_mode", "quiet")
"""Config settings that setuptools' own back end or common front ends understand; they are none of our business."""

RUNTIME_VARIABLES = ("FLYDSL_BUILD_EDITABLE_REBUILD", "FLYDSL_BUILD_LOAD")
"""Variables of the same prefix that installed packages read when they load, and the build does not."""

WHEELS = ("fat", "per-arch", "host", "device", "variant")
PER_ARCH_TAGS = ("local-version", "build-tag")

_TRUE = ("1", "on", "true", "yes")
_FALSE = ("0", "false", "no", "off")


class Override:
    """A value from outside the table, with its place."""

    __slots__ = ("value", "where")

    def __init__(self, value: Any, where: str) -> None:
        self.value = value
        self.where = where


def split_list(text: str) -> list[str]:
    """Return the items of a list written with commas, semicolons or blanks, without repetition."""
    return list(dict.fromkeys(item for item in re.split(r"[,;\s]+", text) if item))


def targets_of(names: tuple[str, ...] | list[str], where: str, faults: FaultCollector) -> tuple[str, ...]:
    """Return the names that are targets, each once, and record a fault for each other one."""
    found: list[str] = []
    for name in names:
        try:
            found.append(parse_target(name, where).name)
        except ConfigError as error:
            faults.extend(error.faults)
    return tuple(dict.fromkeys(found))


def read_overrides(
    config_settings: Mapping[str, object] | None, environ: Mapping[str, str], faults: FaultCollector, *, others_pass: bool = False
) -> dict[str, Override]:
    """Return what config settings and environment variables say, by field of `Settings`.

    Parameters
    ----------
    config_settings
        As a front end gave them: each value a string, a list of strings (a key given several times), or a boolean.
    environ
        The environment. An empty variable is as good as none.
    faults
        Collects unknown keys and values that cannot be read.
    others_pass
        Whether keys that are not nearly one of ours may be those of a base back end that has more of them than setuptools.
    """
    keys = keys_of(Settings)
    by_env = {key.env: name for name, key in keys.items() if key.env}
    by_config = {key.config: name for name, key in keys.items() if key.config}
    found: dict[str, Override] = {}

    for variable, name in by_env.items():
        text = environ.get(variable, "")
        if text.strip():
            _take(found, name, [text], variable, faults)
    _find_misspelt(environ, list(by_env), faults)

    given: dict[str, str] = {}
    for key, value in (config_settings or {}).items():
        if key in SETUPTOOLS_KEYS:
            continue
        where = f"-C {key}"
        name = by_config.get(key.removeprefix(_PREFIX), "")
        if not name:
            if others_pass and not key.startswith(_PREFIX) and not difflib.get_close_matches(key, by_config, n=1, cutoff=0.8):
                continue
            faults.add(where, "unknown config setting", did_you_mean(key.removeprefix(_PREFIX), list(by_config)))
            continue
        if name in given:
            faults.add(where, f"the same setting is given by {given[name]}", "give it once")
            continue
        given[name] = where
        texts = _texts(value, where, faults)
        if texts is not None:
            _take(found, name, texts, where, faults)
    return found


def base_settings(config_settings: Mapping[str, object] | None) -> dict[str, object]:
    """Return the config settings that are not ours but the base back end's."""
    return {key: value for key, value in (config_settings or {}).items() if key.removeprefix(_PREFIX) not in _own_keys()}


def _own_keys() -> set[str]:
    return {key.config for key in keys_of(Settings).values() if key.config}


def given_settings(config_settings: Mapping[str, object] | None, environ: Mapping[str, str]) -> dict[str, object]:
    """Return what is given outside of the table, by environment variables too, as config settings of a later build."""
    keys = [key for key in keys_of(Settings).values() if key.config]
    found: dict[str, object] = {key.config: environ[key.env] for key in keys if environ.get(key.env, "").strip()}
    own = _own_keys()
    given = {key.removeprefix(_PREFIX): value for key, value in (config_settings or {}).items()}
    return found | {key: value for key, value in given.items() if key in own}


def _texts(value: object, where: str, faults: FaultCollector) -> list[str] | None:
    """Return the text of a config setting, once for each time it was given."""
    if isinstance(value, bool):
        return [str(value).lower()]
    texts: list[str] = []
    for text in value if isinstance(value, list) else [value]:
        if not isinstance(text, str):
            faults.add(where, f"found {describe(text)}", "write a string")
            return None
        texts.append(text)
    return texts


def _take(found: dict[str, Override], name: str, texts: list[str], where: str, faults: FaultCollector) -> None:
    """Read the text for one field, or record why it cannot be read."""
    if name == "archs":
        names = split_list(" ".join(texts))
        if not names:
            faults.add(where, "the list of architectures is empty", f"write {_example(where, 'gfx942,gfx1100')}")
        # Although some are wrong, the author did override the table: the rest of the checks go by this list.
        found[name] = Override(targets_of(names, where, faults), where)
        return
    secret = name in _SECRET
    if len(set(texts)) > 1:
        values = "" if secret else ": " + ", ".join(f'"{text}"' for text in texts)
        faults.add(where, f"given {len(texts)} times with different values{values}", "give it once")
        return
    text = texts[0].strip()
    value, words = _VALUES[name](text)
    if value is None:
        faults.add(where, URL_FAULT[0] if secret else f'found "{texts[0]}"', f"write {words}")
    else:
        found[name] = Override(value, where)


def _example(where: str, value: str) -> str:
    return f"{where}={value}"


def _boolean(text: str) -> tuple[bool | None, str]:
    # `-C verbose` reaches the back end as an empty string.
    low = text.lower()
    return (True if low in ("", *_TRUE) else False if low in _FALSE else None), "true or false"


def _jobs(text: str) -> tuple[int | None, str]:
    return (int(text) if re.fullmatch(r"[0-9]{1,9}", text) and int(text) else None), "an integer of at least 1"


def _seconds(text: str) -> tuple[float | None, str]:
    return seconds_of(text), SECONDS


def _one_of(*words: str) -> Callable[[str], tuple[str | None, str]]:
    spelled = " or ".join(f'"{word}"' for word in words)
    return lambda text: ((text if text in words else None), spelled)


def _path(text: str) -> tuple[str | None, str]:
    return (text or None), "a path"


_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*(?:([kmgt])(i?))?b?", re.IGNORECASE | re.ASCII)
SIZE_FIX = 'write a number of bytes above 0, or text such as "500 MB" or "5 GB"'


def size_of(text: str) -> int | None:
    """Return the bytes that a text such as "5 GB", "512 MiB" or "1000000" means, or None."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        return None
    number, prefix, binary = match.groups()
    unit = (1024 if binary else 1000) ** ("kmgt".index(prefix.lower()) + 1) if prefix else 1
    return int(float(number) * unit) or None


def _bytes(text: str) -> tuple[int | None, str]:
    return size_of(text), SIZE_FIX.removeprefix("write ")


# A query would stand behind the names of files, and what looks like a glob is one to fsspec.
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(::[A-Za-z][A-Za-z0-9+.-]*)*://[^\s?#*\[\]]*")
URL_FAULT = ("found no URL that names can be added to", 'write one without ?, # and globs, such as "s3://bucket/prefix"')
"""What is wrong, and what to do. Not what was found: it may have a password in it."""


def is_url(text: str) -> bool:
    """Tell whether a text is a URL that can be the beginning of others."""
    return _URL.fullmatch(text) is not None


def _url(text: str) -> tuple[str | None, str]:
    return (text if is_url(text) else None), URL_FAULT[1].removeprefix("write ")


def _text(text: str) -> tuple[str | None, str]:
    return (text or None), "a text"


_SECRET = ("remote_cache",)

_VALUES: dict[str, Any] = {
    "cache": _boolean,
    "cache_dir": _path,
    "cache_size": _bytes,
    "executor": _one_of("local", "dask"),
    "executor_address": _text,
    "remote_cache": _url,
    "remote_cache_write": _boolean,
    "load": _one_of("import", "lazy"),
    "editable": _one_of("aot", "jit"),
    "wheel": _one_of(*WHEELS),
    "per_arch_tag": _one_of(*PER_ARCH_TAGS),
    "timeout": _seconds,
    "jobs": _jobs,
    "lld": _path,
    "rocm_path": _path,
    "verbose": _boolean,
    "dump_ir": _path,
}


def _find_misspelt(environ: Mapping[str, str], variables: list[str], faults: FaultCollector) -> None:
    """Record variables that are nearly one of ours.

    Not every unknown one: the run-time library reads variables of the same prefix, and so may the author's own code.
    """
    for variable in sorted(environ):
        if not variable.startswith("FLYDSL_BUILD_") or variable in variables or variable in RUNTIME_VARIABLES:
            continue
        suffixes = [each.removeprefix("FLYDSL_BUILD_") for each in variables]
        near = difflib.get_close_matches(variable.removeprefix("FLYDSL_BUILD_"), suffixes, n=1, cutoff=0.8)
        if near:
            faults.add(variable, "unknown environment variable", f'Did you mean "FLYDSL_BUILD_{near[0]}"?')
