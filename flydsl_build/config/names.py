# SPDX-License-Identifier: Apache-2.0
"""Names of Python things as authors write them: `name`, `dotted.name`, `module:attribute`, and names of distributions."""

from __future__ import annotations

import keyword
import re
import string

__all__ = ["is_dotted_name", "is_name", "normalized", "placeholders", "reference_fault"]


def normalized(name: str) -> str:
    """Return the one spelling of a distribution's name or extra that all others are equal to (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def is_name(text: str) -> bool:
    """Whether `text` is a Python identifier and no keyword."""
    return text.isidentifier() and not keyword.iskeyword(text)


def is_dotted_name(text: str) -> bool:
    """Whether `text` is one or more Python identifiers joined by dots."""
    return all(is_name(part) for part in text.split("."))


def reference_fault(text: str) -> tuple[str, str, str] | None:
    """Return what is wrong with a `module:attribute`, how to write it, and its text with the place marked; None if it is right."""
    fix = 'write "module:attribute", both dotted names'

    def marked(position: int) -> str:
        return f"{text}\n{' ' * position}^"

    for position, character in enumerate(text):
        if character.isspace():
            return f'"{text}" has a blank', fix, marked(position)
    module, colon, attribute = text.partition(":")
    if not colon:
        dot = text.rfind(".")
        hint = f'did you mean "{text[:dot]}:{text[dot + 1 :]}"? ' if dot > 0 and is_dotted_name(text) else ""
        return f'"{text}" has no colon', hint + fix, marked(max(dot, 0) if hint else len(text))
    if ":" in attribute:
        return f'"{text}" has more than one colon', fix, marked(len(module) + 1 + attribute.index(":"))
    for part_of, start, words in ((module, 0, "module"), (attribute, len(module) + 1, "attribute")):
        if not part_of:
            return f'"{text}" names no {words}', fix, marked(start)
        position = start
        for part in part_of.split("."):
            if not is_name(part):
                shown = f'"{part}" is not a Python name' if part else "there is nothing between two dots"
                return f'"{text}": {shown}', fix, marked(position)
            position += len(part) + 1
    return None


def placeholders(text: str) -> tuple[str, ...]:
    """Return the names of the `{name}` placeholders in a path or value, in order.

    Raises
    ------
    ValueError
        If a brace has no partner, or a placeholder is more than a name.
    """
    names = []
    for _, name, spec, conversion in string.Formatter().parse(text):
        if name is None:
            continue
        if spec or conversion or not is_name(name):
            msg = f"{{{name}}} is not a placeholder"
            raise ValueError(msg)
        names.append(name)
    return tuple(dict.fromkeys(names))
