# SPDX-License-Identifier: Apache-2.0
"""Config settings (`-C key=value`) and environment variables: what they are called and how their text is read.

Front ends hand config settings to the back end unchecked, and setuptools passes over those it does not know
(https://github.com/pypa/setuptools/issues/2491), so every key is checked here.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import did_you_mean
from .keys import keys_of
from .table_reader import describe
from .tables import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..errors import FaultCollector
    from .keys import TomlType

__all__ = ["Override", "base_settings", "given_settings", "read_overrides"]

_PREFIX = "flydsl-build."

SETUPTOOLS_KEYS = ("--build-option", "--editable_mode", "--global-option", "--quiet", "editable-mode", "editable_mode", "quiet")
"""Config settings that setuptools' own back end or common front ends understand; they are none of our business."""

RUNTIME_VARIABLES = ("FLYDSL_BUILD_EDITABLE_REBUILD", "FLYDSL_BUILD_LOAD")
"""Variables of the same prefix that installed packages read when they load, and the build does not."""


class Override(NamedTuple):
    """A value from outside the table, with its place."""

    value: Any
    where: str


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
        override = _override(keys[name].type, [text], variable, faults) if text.strip() else None
        if override is not None:
            found[name] = override
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
        override = None if texts is None else _override(keys[name].type, texts, where, faults)
        if override is not None:
            found[name] = override
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


def _override(toml_type: TomlType, texts: list[str], where: str, faults: FaultCollector) -> Override | None:
    """Read the text for one setting, or record why it cannot be read."""
    if toml_type.parse_list is not None:
        return Override(toml_type.parse_list(texts, where, faults), where)
    assert toml_type.parse is not None
    if len(set(texts)) > 1:
        values = "" if toml_type.secret else ": " + ", ".join(f'"{text}"' for text in texts)
        faults.add(where, f"given {len(texts)} times with different values{values}", "give it once")
        return None
    value = toml_type.parse(texts[0].strip())
    if value is None:
        faults.add(where, toml_type.secret or f'found "{texts[0]}"', f"write {toml_type.words}")
        return None
    return Override(value, where)


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
