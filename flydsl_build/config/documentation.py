# SPDX-License-Identifier: Apache-2.0
"""Documentation of the settings, made from their dataclasses: the README's table, and what a JSON schema needs.

A field's documentation is the string under it. Python keeps no trace of such strings, so they are read from the source.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .keys import Key, keys_of
from .tables import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SettingDoc", "document_settings", "field_docs", "settings_table_markdown"]


@dataclass(frozen=True, kw_only=True, slots=True)
class SettingDoc:
    """The documentation of one TOML key.

    Parameters
    ----------
    path
        The key from `[tool.flydsl-build]` on, e.g. `kernels."module:attribute".args`.
    doc
        What the setting does.
    key
        Its type, its default, and what it is called outside the table.
    """

    path: str
    doc: str
    key: Key


def field_docs(table: type) -> dict[str, str]:
    """Return the strings under the fields of a dataclass, by field name, each on one line."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(table))).body
    assert isinstance(definition, ast.ClassDef)
    found: dict[str, str] = {}
    for first, second in zip(definition.body, definition.body[1:], strict=False):
        if (
            isinstance(first, ast.AnnAssign)
            and isinstance(first.target, ast.Name)
            and isinstance(second, ast.Expr)
            and isinstance(second.value, ast.Constant)
            and isinstance(second.value.value, str)
        ):
            found[first.target.id] = " ".join(second.value.value.split())
    return found


def document_settings(table: type = Settings, prefix: str = "") -> tuple[SettingDoc, ...]:
    """Return the documentation of every key of a table, nested tables after their own key.

    The compile options are documented once: those of kernels and sets are the same.
    """
    return tuple(_document(table, prefix, set()))


def _document(table: type, prefix: str, seen: set[type]) -> Iterator[SettingDoc]:
    seen.add(table)
    docs = field_docs(table)
    for name, key in keys_of(table).items():
        path = prefix + key.name
        yield SettingDoc(path=path, doc=docs[name], key=key)
        inner = key.type.table
        if inner is not None and inner not in seen:
            named = key.type.named
            yield from _document(inner, path + (named if named == "[]" else f".{named}" if named else "") + ".", seen)


def settings_table_markdown() -> str:
    """Return the README's table of settings."""
    lines = ["| Key | Type | Default | Meaning | `-C`, environment |", "| --- | --- | --- | --- | --- |"]
    for each in document_settings():
        key = each.key
        outside = ", ".join(f"`{text}`" for text in (key.config and f"-C {key.config}=", key.env) if text)
        default = f"`{key.default}`" if _is_toml(key.default) else key.default
        cells = (f"`{each.path}`", key.type.text, default, each.doc, outside)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _is_toml(text: str) -> bool:
    """Whether a default is a TOML value, not words."""
    return text in {"true", "false"} or text[:1] in {'"', "[", "{"} or text.isdigit()
