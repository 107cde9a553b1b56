# SPDX-License-Identifier: Apache-2.0
"""Write Python source for names, values and signatures."""

from __future__ import annotations

import keyword
import math
from typing import TYPE_CHECKING

from flydsl_build.codec import NO_DEFAULT, EnumMember

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from flydsl_build.codec import PlainValue
    from flydsl_build.jobs.launcher import Parameter

__all__ = ["docstring", "is_name", "literal", "names_of_type", "signature"]


def is_name(text: str) -> bool:
    """Tell whether a text is a name that Python code can define."""
    return text.isidentifier() and not keyword.iskeyword(text)


def signature(
    parameters: Sequence[Parameter], types: dict[str, str] | None, *, first: str | None = None, left_out: Collection[str] = ()
) -> str:
    """Return the text of a parameter list with its parentheses; without annotations where `types` is None.

    Parameters that are `left_out` have a default of which nothing is known.
    """
    parts = [first] if first else []
    last = None
    for parameter in parameters:
        if last == "POSITIONAL_ONLY" and parameter.kind != "POSITIONAL_ONLY":
            parts.append("/")
        if parameter.kind == "KEYWORD_ONLY" and last not in {"KEYWORD_ONLY", "VAR_POSITIONAL"}:
            parts.append("*")
        text = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind, "") + parameter.name
        if types is not None:
            text += f": {types[parameter.name]}"
        if parameter.default is not NO_DEFAULT:
            # For type checkers, a table stands for an object that the interface cannot make.
            is_vague = parameter.name in left_out or (types is not None and isinstance(parameter.default, dict))
            default = "..." if is_vague else literal(parameter.default)
            text += f" = {default}" if types is not None else f"={default}"
        parts.append(text)
        last = parameter.kind
    if last == "POSITIONAL_ONLY":
        parts.append("/")
    return f"({', '.join(parts)})"


def literal(value: PlainValue) -> str:
    """Return Python source for a plain value; text in double quotes where that needs no escape."""
    if isinstance(value, str):
        text = repr(value)
        return f'"{text[1:-1]}"' if text[0] == "'" and '"' not in text and "\\'" not in text else text
    if isinstance(value, tuple | list):
        items = [literal(item) for item in value]
        return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{literal(name)}: {literal(item)}' for name, item in value.items())}}}"
    if isinstance(value, EnumMember):
        parts = (f"{value.class_name}({part})" if part.isdecimal() else f"{value.class_name}.{part}" for part in value.name.split("|"))
        return " | ".join(parts)
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return repr(value)


def names_of_type(value: PlainValue) -> list[str]:
    """Return the types of a value in a call: a member of an enum may be given by its name."""
    if isinstance(value, EnumMember):
        return [value.class_name] if value.is_exact else [value.class_name, "str"]
    return ["None" if value is None else type(value).__name__]


def docstring(doc: str, *, indent: str) -> str:
    """Return a literal for a docstring: as the author wrote it where that is safe, else escaped into one line.

    Lines keep their own indentation; a text whose lines have none in common gets that of the block. `inspect.cleandoc` of the result
    is that of the original either way.
    """
    if not all(character.isprintable() or character == "\n" for character in doc):
        return literal(doc)
    # A quote at the end would merge with the closing ones.
    body, end = (doc[:-1], '\\"') if doc.endswith('"') else (doc, "")
    text = body.replace("\\", "\\\\").replace('"""', '\\"\\"\\"') + end
    first, *rest = text.split("\n")
    if any(line and not line[0].isspace() for line in rest):
        rest = [indent + line if line else line for line in rest]
    return '"""' + "\n".join([first, *rest]) + '"""'
