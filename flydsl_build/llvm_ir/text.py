# SPDX-License-Identifier: Apache-2.0
r"""Read LLVM IR text (`.ll`): what a module defines and declares.

This is no full parser. The text is cut into top-level statements, and of these are taken: `target triple`, global variables,
aliases and ifuncs, `declare` and the header of `define`, `attributes #N`, and the metadata that `llvm.module.flags` leads to.
All else is passed over unread, so that text of LLVM releases older and newer than this reader is taken. What is read
is checked no further than needed: LLVM itself reads the text when it links it.

Taken: comments; quoted names and their `\xx` escapes; any order of statements; several statements on one line; typed pointers (`i32*`).

Source: https://llvm.org/docs/LangRef.html.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from flydsl_build.llvm_ir.model import (
    CODE_OBJECT_VERSION_FLAGS,
    IRError,
    IRFunction,
    IRGlobal,
    IRModule,
    pointer,
    spelled,
    structure_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TypeAlias

    # Kind, text and offset in the file.
    _Token: TypeAlias = tuple[str, str, int]

__all__ = ["read_ir_text"]

_TOKEN: Final = re.compile(
    r"""
      (?P<skip>(?:[ \t\r\n\f\v]+|;[^\n]*)+)
    | (?P<global>@(?:"[^"]*"|[-a-zA-Z$._0-9]+))
    | (?P<local>%(?:"[^"]*"|[-a-zA-Z$._0-9]+))
    | (?P<comdat>\$(?:"[^"]*"|[-a-zA-Z$._0-9]+))
    | (?P<mdstring>!"[^"]*")
    | (?P<metadata>![-a-zA-Z$._0-9\\]*)
    | (?P<group>\#[0-9]+)
    | (?P<string>c?"[^"]*")
    | (?P<summary>\^[0-9]+)
    | (?P<word>[-+a-zA-Z$._0-9]+)
    | (?P<punct>[=,*(){}\[\]<>:|/])
    """,
    re.VERBOSE,
)
_ASM: Final = re.compile(r"\s+asm\b")
_MLIR: Final = re.compile(r"\b(?:func\.func|llvm\.func|gpu\.module|gpu\.func|builtin\.module)\b|^\s*module\b", re.MULTILINE)
_MLIR_SEARCHED: Final = 1 << 14
_BRACES: Final = re.compile(r'"[^"]*"|;[^\n]*|([{])|([}])')
_PARENTHESES: Final = re.compile(r'"[^"]*"|;[^\n]*|([(])|([)])')
_ESCAPE: Final = re.compile(rb"\\([0-9a-fA-F]{2}|\\)")
_OPEN: Final = frozenset("([{")
_CLOSE: Final = frozenset(")]}")
_NAMES: Final = frozenset({"global", "local", "metadata", "comdat", "summary"})
_STARTS: Final = frozenset({"declare", "define", "attributes", "source_filename", "module", "target", "uselistorder", "uselistorder_bb"})
_OPERAND_WORDS: Final = frozenset({"prefix", "prologue", "personality"})

_LINKAGES: Final = frozenset(
    {
        "private", "internal", "available_externally", "linkonce", "weak", "common", "appending", "extern_weak", "linkonce_odr",
        "weak_odr", "external",
    }
)  # fmt: skip
_DECLARED: Final = frozenset({"external", "extern_weak"})
_SIMPLE_TYPES: Final = frozenset(
    {
        "void", "half", "bfloat", "float", "double", "x86_fp80", "fp128", "ppc_fp128", "label", "metadata", "token", "x86_mmx", "x86_amx",
    }
)  # fmt: skip
_INTEGER: Final = re.compile(r"([ib])([0-9]{1,20})")
_DECIMAL: Final = re.compile(r"-?[0-9]{1,20}")
# `target triple = "…"`
_TARGET_VALUE: Final = 3
_MODULE_FLAGS: Final = "!llvm.module.flags"
_FLAG_OPERANDS: Final = 3
_MAX_TYPE_DEPTH: Final = 64
# Tokens before the body. Each brace among them costs a look at all before it, and no real header comes near this.
_MAX_HEADER: Final = 4096


def read_ir_text(data: bytes) -> IRModule:
    """Read a module in the text form of LLVM IR.

    Parameters
    ----------
    data
        The whole file.

    Raises
    ------
    IRError
        The text is not LLVM IR, ends early, or has a statement that cannot be read; the message has the line.
    """
    # Bytes one to one: LLVM's names are bytes, and its own text escapes all that are not ASCII.
    reader = _Reader(data.decode("latin-1"))
    for statement in reader.statements():
        reader.take(statement)
    return reader.module()


@dataclass(kw_only=True, slots=True)
class _Statements:
    """The statements that matter, by what they say."""

    triple: str = ""
    variables: list[list[_Token]] = field(default_factory=list)
    functions: list[list[_Token]] = field(default_factory=list)
    cpus: dict[str, str | None] = field(default_factory=dict)
    nodes: dict[str, list[_Token]] = field(default_factory=dict)


class _Type(NamedTuple):
    """A type's spelling; of a function type the result, the parameters and whether more may follow."""

    spelling: str
    signature: tuple[str, tuple[str, ...], bool] | None = None


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._pos = 0
        # Whether anything was found that begins a statement: until then, what does not fit is no fault in IR.
        self._begun = False
        self._found = _Statements()
        self._names: set[str] = set()

    # Cutting the text into statements

    def _token(self) -> _Token | None:
        while True:
            found = _TOKEN.match(self._text, self._pos)
            if found is None:
                if self._pos >= len(self._text):
                    return None
                if self._text[self._pos : self._pos + 1] in '"@%$':
                    raise self._error(self._pos, "a quoted name or string is not closed, or a name is empty; the file may be truncated")
                raise self._error(self._pos, f"{self._text[self._pos]!r} cannot stand in LLVM IR")
            self._pos = found.end()
            kind = found.lastgroup or ""
            if kind != "skip":
                return (kind, found[0], found.start())

    def statements(self) -> Iterator[list[_Token]]:
        """Yield the tokens of each top-level statement, a function without its body."""
        current: list[_Token] = []
        brackets = 0
        while (token := self._token()) is not None:
            if not brackets:
                if self._skipped(token, current):
                    continue
                kept = self._begins_at(token, current)
                if kept is not None:
                    self._begun = True
                    if kept:
                        yield current[:kept]
                    current = current[kept:]
            kind, text, offset = token
            if kind == "punct":
                brackets += (text in _OPEN) - (text in _CLOSE)
                if brackets < 0:
                    raise self._error(offset, f"{text!r} closes nothing")
            current.append(token)
        if brackets:
            raise self._error(len(self._text), "a bracket is not closed; the file is truncated")
        if current:
            yield current

    def _begins_at(self, token: _Token, current: list[_Token]) -> int | None:
        """Return how many of the tokens so far are of the statement that ends here; None if none ends."""
        kind, text, _offset = token
        if kind == "word" and text in _STARTS and self._begins_statement(text):
            return len(current)
        if text == "=" and current and current[-1][0] in _NAMES:
            return len(current) - 1
        return None

    def _skipped(self, token: _Token, current: list[_Token]) -> bool:
        """Pass over what begins with this bracket, if it is a function's body or a node of debug information."""
        _kind, text, offset = token
        if not current or text not in _OPEN:
            return False
        if text == "{" and current[0][1] == "define" and len(current) > _MAX_HEADER:
            raise self._error(current[0][2], "the header of a function does not end")
        if text == "{" and current[0][1] == "define" and _is_body(current):
            self._skip(_BRACES, offset, "the body of a function")
            current.append(("body", "", offset))
            return True
        if text == "(" and current[0][0] == "metadata":
            # `!DILocation(…)`
            self._skip(_PARENTHESES, offset, "a metadata node")
            return True
        return False

    def _begins_statement(self, word: str) -> bool:
        """Whether the word just read is more than a target type, `target("…")`, a key, `^0 = module: (…)`, or MLIR's `module`."""
        following = self._text[self._pos : self._pos + 1]
        if word == "module":
            return _ASM.match(self._text, self._pos) is not None
        return following != ":" and (word != "target" or following != "(")

    def _skip(self, pattern: re.Pattern[str], offset: int, what: str) -> None:
        """Go on behind the bracket that closes the one at `offset`."""
        depth = 0
        for found in pattern.finditer(self._text, offset):
            if found[1]:
                depth += 1
            elif found[2]:
                depth -= 1
                if not depth:
                    self._pos = found.end()
                    return
        raise self._error(offset, f"{what} is not closed; the file is truncated")

    def _error(self, offset: int, what: str) -> IRError:
        if not self._begun:
            return self._not_ir(offset, f": {what}")
        return IRError(f"is malformed LLVM IR text: line {self._line(offset)}: {what}")

    def _not_ir(self, offset: int, what: str) -> IRError:
        mlir = (
            "; it looks like MLIR, which mlir-translate --mlir-to-llvmir translates" if _MLIR.search(self._text, 0, _MLIR_SEARCHED) else ""
        )
        return IRError(f"is text, but not LLVM IR: line {self._line(offset)}{what}{mlir}")

    def _line(self, offset: int) -> int:
        return self._text.count("\n", 0, offset) + 1

    # Sorting the statements

    def take(self, tokens: list[_Token]) -> None:
        """Keep one statement for `module`, or pass it over."""
        kind, text, offset = tokens[0]
        if kind == "word" and text in _STARTS:
            self._take_word(tokens)
        elif kind not in _NAMES or _text_at(tokens, 1) != "=":
            raise self._not_ir(offset, f" begins with {text[:40]!r}")
        elif kind == "global":
            self._found.variables.append(tokens)
        elif kind == "metadata":
            self._found.nodes[text] = tokens[2:]

    def _take_word(self, tokens: list[_Token]) -> None:
        _kind, text, offset = tokens[0]
        if not self._begun:
            raise self._not_ir(offset, f" begins with {text!r}")
        if text in ("declare", "define"):
            body = next((place for place, token in enumerate(tokens) if token[0] == "body"), None)
            if text == "define" and body is None:
                raise self._error(offset, "a function's header has no body; the file is truncated")
            if body is not None and body + 1 < len(tokens):
                raise self._error(tokens[body + 1][2], f"{tokens[body + 1][1][:40]!r} begins no statement")
            self._found.functions.append(tokens[:body])
        elif text == "target" and _text_at(tokens, 2) == "=" and len(tokens) > _TARGET_VALUE and tokens[_TARGET_VALUE][0] == "string":
            if tokens[1][1] == "triple":
                self._found.triple = _unquoted(tokens[_TARGET_VALUE][1])
        elif text == "attributes" and _text_at(tokens, 1).startswith("#"):
            self._found.cpus[tokens[1][1]] = _target_cpu(tokens)

    # What the statements say

    def module(self) -> IRModule:
        """Make the module of the statements taken."""
        found = self._found
        functions: dict[str, IRFunction] = {}
        variables: dict[str, IRGlobal] = {}
        cpus = {self._cpu(tokens) for tokens in found.functions if tokens[0][1] == "define"}
        for tokens in found.functions:
            name, function = self._function(tokens)
            if name is not None:
                functions[name] = function
        for tokens in found.variables:
            name, made = self._variable(tokens)
            if name is not None and isinstance(made, IRFunction):
                functions[name] = made
            elif name is not None:
                variables[name] = made
        return IRModule(
            triple=found.triple,
            target_cpus=frozenset(cpu for cpu in cpus if cpu is not None),
            functions=functions,
            globals=variables,
            code_object_version=self._code_object_version(),
        )

    def _new_name(self, token: _Token) -> str | None:
        """Return a symbol's name, None for a numbered one, which nothing can link to."""
        name = _name(token[1])
        if token[1][1:2] != '"' and name.isdigit():
            return None
        if name in self._names:
            raise self._error(token[2], f"symbol {name!r} is there twice")
        self._names.add(name)
        return name

    def _function(self, tokens: list[_Token]) -> tuple[str | None, IRFunction]:
        at = _header_name(tokens)
        if at is None:
            raise self._error(tokens[0][2], f"{tokens[0][1]} has no function name with parameters")
        name = self._new_name(tokens[at])
        result = self._result_type(tokens, at)
        parameters, var_args = self._parameters(tokens[at + 2 : _closing(tokens, at + 1)], 0)
        return name, IRFunction(
            is_definition=tokens[0][1] == "define",
            linkage=next((token[1] for token in tokens[1:at] if token[0] == "word" and token[1] in _LINKAGES), "external"),
            result=result,
            parameters=parameters,
            var_args=var_args,
        )

    def _parameters(self, tokens: Sequence[_Token], depth: int) -> tuple[tuple[str, ...], bool]:
        """Return the types of parameters, and whether more may follow."""
        parts = _split(tokens)
        var_args = bool(parts) and _text_at(parts[-1], 0) == "..."
        return tuple(self._type(part, 0, depth)[0].spelling for part in parts[: len(parts) - var_args]), var_args

    def _result_type(self, tokens: list[_Token], at: int) -> str:
        """Find the type among linkage, visibility, calling convention and attributes of the result."""
        place = 1
        while place < at:
            if _begins_type(tokens, place):
                made, after = self._type(tokens, place, 0)
                if after == at:
                    return made.spelling
                place = after
            elif tokens[place][1] in _OPEN:
                place = _closing(tokens, place) + 1
            else:
                place += 1
        raise self._error(tokens[at][2], f"function {tokens[at][1]} has no result type that can be read")

    def _cpu(self, tokens: Sequence[_Token]) -> str | None:
        """Return the processor in a function's header, or in the first attribute group there that has one."""
        groups = (self._found.cpus.get(text) for kind, text, _offset in tokens if kind == "group")
        return _target_cpu(tokens) or next((cpu for cpu in groups if cpu is not None), None)

    def _variable(self, tokens: list[_Token]) -> tuple[str | None, IRFunction | IRGlobal]:
        name = self._new_name(tokens[0])
        at = next((place for place, token in enumerate(tokens) if token[1] in ("global", "constant", "alias", "ifunc")), None)
        if at is None:
            raise self._error(tokens[0][2], f"{tokens[0][1]} is no variable, alias or ifunc that can be read")
        said = next((token[1] for token in tokens[2:at] if token[1] in _LINKAGES), None)
        linkage = said or "external"
        if tokens[at][1] in ("global", "constant"):
            # A definition with external linkage does not say so.
            return name, IRGlobal(is_definition=said not in _DECLARED, linkage=linkage)
        signature = self._type(tokens, at + 1, 0)[0].signature
        if signature is None:
            return name, IRGlobal(is_definition=True, linkage=linkage)
        result, parameters, var_args = signature
        return name, IRFunction(is_definition=True, linkage=linkage, result=result, parameters=parameters, var_args=var_args)

    def _code_object_version(self) -> int | None:
        for _kind, reference, _offset in (token for token in self._found.nodes.get(_MODULE_FLAGS, ()) if token[0] == "metadata"):
            if reference == "!":
                continue
            node = self._found.nodes.get(reference)
            braces = next((place for place, token in enumerate(node or ()) if token[1] == "{"), None)
            if node is None or braces is None:
                msg = f"is malformed LLVM IR text: module flag {reference} is not there or not a plain node"
                raise IRError(msg)
            parts = _split(node[braces + 1 : _closing(node, braces)])
            if len(parts) != _FLAG_OPERANDS or len(parts[1]) != 1 or parts[1][0][0] != "mdstring":
                continue
            key, value = _unquoted(parts[1][0][1][1:]), parts[2]
            if key not in CODE_OBJECT_VERSION_FLAGS:
                continue
            if len(value) > 1 and _INTEGER.fullmatch(value[0][1]) and _DECIMAL.fullmatch(value[1][1]):
                return int(value[1][1])
            raise self._error(parts[1][0][2], f"module flag {key} is not an integer")
        return None

    # Types

    def _type(self, tokens: Sequence[_Token], place: int, depth: int) -> tuple[_Type, int]:
        """Read the type at `place`; return it and the place behind it."""
        if place >= len(tokens) or depth > _MAX_TYPE_DEPTH:
            raise self._error(tokens[-1][2] if tokens else len(self._text), "a type is missing or nests too deep")
        spelling, place = self._base_type(tokens, place, depth + 1)
        made = _Type(spelling)
        while place < len(tokens):
            text = tokens[place][1]
            if text == "*":
                made, place = _Type(pointer(0)), place + 1
            elif text == "addrspace" and _text_at(tokens, place + 4) == "*":
                made, place = _Type(pointer(self._number(tokens, place + 2))), place + 5
            elif text == "(":
                end = _closing(tokens, place)
                parameters, var_args = self._parameters(tokens[place + 1 : end], depth + 1)
                made, place = _Type("other", (made.spelling, parameters, var_args)), end + 1
            else:
                break
        return made, place

    def _base_type(self, tokens: Sequence[_Token], place: int, depth: int) -> tuple[str, int]:
        kind, text, offset = tokens[place]
        if kind == "local":
            return (structure_name(_name(text)) if text[1] == '"' else text), place + 1
        if kind == "punct" and text in "[{<":
            return self._bracketed_type(tokens, place, depth)
        if text == "ptr":
            spaced = _text_at(tokens, place + 1) == "addrspace"
            return pointer(self._number(tokens, place + 3) if spaced else 0), place + (5 if spaced else 1)
        if text in _SIMPLE_TYPES or _INTEGER.fullmatch(text):
            return text, place + 1
        if text == "target" and _text_at(tokens, place + 1) == "(":
            end = _closing(tokens, place + 1)
            words = ("".join(token[1] for token in part) for part in _split(tokens[place + 2 : end]))
            return spelled("target(", spelled(*words, between=", "), ")"), end + 1
        raise self._error(offset, f"{text[:40]!r} is not a type that can be read")

    def _bracketed_type(self, tokens: Sequence[_Token], place: int, depth: int) -> tuple[str, int]:
        """Read `[4 x i32]`, `<4 x i32>`, `<vscale x 4 x i32>`, `{ i32, float }` or `<{ i32, float }>`."""
        opening = tokens[place][1]
        packed = opening == "<" and _text_at(tokens, place + 1) == "{"
        if opening == "{" or packed:
            end = _closing(tokens, place + packed)
            elements = [self._type(part, 0, depth)[0].spelling for part in _split(tokens[place + packed + 1 : end])]
            inner = spelled("{ ", spelled(*elements, between=", "), " }") if elements else "{}"
            return spelled("<", inner, ">") if packed else inner, end + packed + 1
        scalable = _text_at(tokens, place + 1) == "vscale"
        at = place + (3 if scalable else 1)
        count = f"{'vscale x ' if scalable else ''}{self._number(tokens, at)} x "
        element, end = self._type(tokens, at + 2, depth)
        return spelled(opening, count, element.spelling, "]" if opening == "[" else ">"), end + 1

    def _number(self, tokens: Sequence[_Token], place: int) -> int:
        text = _text_at(tokens, place)
        if not _DECIMAL.fullmatch(text) or text.startswith("-"):
            raise self._error(tokens[min(place, len(tokens) - 1)][2], f"{text[:40]!r} stands where a number should")
        return int(text)


def _is_body(tokens: Sequence[_Token]) -> bool:
    """Whether a `{` after these tokens of a `define` opens the body, and is not of a type."""
    at = _header_name(tokens)
    if at is None:
        return False
    # A constant of structure type, `prologue { i32 } { i32 1 }`: neither of its braces is the body's.
    for back in range(len(tokens) - 1, at, -1):
        if tokens[back][1] in _OPERAND_WORDS:
            groups = _groups(tokens[back + 1 :])
            return groups is None or groups > 1
    return True


def _groups(tokens: Sequence[_Token]) -> int | None:
    """Count the braced groups that an operand begins with; None if it begins otherwise."""
    count = place = 0
    while place < len(tokens) and (tokens[place][1] == "{" or (tokens[place][1] == "<" and _text_at(tokens, place + 1) == "{")):
        place = _closing(tokens, place + (tokens[place][1] == "<")) + 1
        if _text_at(tokens, place) == ">":
            place += 1
        count += 1
    if place < len(tokens):
        return None
    return count if tokens else 0


def _header_name(tokens: Sequence[_Token]) -> int | None:
    """Return the place of a function's name, the first global name that `(` follows, if the parameters are all there."""
    for place in range(1, len(tokens) - 1):
        if tokens[place][0] == "global" and tokens[place + 1][1] == "(":
            return place if _closing(tokens, place + 1) < len(tokens) else None
    return None


def _closing(tokens: Sequence[_Token], place: int) -> int:
    """Return the place of the bracket that closes the one at `place`, or the number of tokens."""
    depth = 0
    for at in range(place, len(tokens)):
        kind, text, _offset = tokens[at]
        if kind != "punct":
            continue
        if text in _OPEN:
            depth += 1
        elif text in _CLOSE:
            depth -= 1
            if not depth:
                return at
    return len(tokens)


def _split(tokens: Sequence[_Token]) -> list[Sequence[_Token]]:
    """Split at the commas that are in no brackets; nothing at all is no part."""
    parts: list[Sequence[_Token]] = []
    depth = start = 0
    for place, (kind, text, _offset) in enumerate(tokens):
        if kind != "punct":
            continue
        if text in _OPEN or text == "<":
            depth += 1
        elif text in _CLOSE or text == ">":
            depth -= 1
        elif text == "," and not depth:
            parts.append(tokens[start:place])
            start = place + 1
    if parts or tokens:
        parts.append(tokens[start:])
    return parts


def _text_at(tokens: Sequence[_Token], place: int) -> str:
    return tokens[place][1] if place < len(tokens) else ""


def _begins_type(tokens: Sequence[_Token], place: int) -> bool:
    kind, text, _offset = tokens[place]
    if kind == "word":
        return (
            text == "ptr"
            or text in _SIMPLE_TYPES
            or bool(_INTEGER.fullmatch(text))
            or (text == "target" and _text_at(tokens, place + 1) == "(")
        )
    return kind == "local" or (kind == "punct" and text in "[{<")


def _target_cpu(tokens: Sequence[_Token]) -> str | None:
    for place in range(len(tokens) - 2):
        if tokens[place][1] == '"target-cpu"' and tokens[place + 1][1] == "=" and tokens[place + 2][0] == "string":
            return _unquoted(tokens[place + 2][1])
    return None


def _name(text: str) -> str:
    """Return the name in `@name`, `%name` or `@"a name"`."""
    return _unquoted(text[1:]) if text[1:2] == '"' else text[1:]


def _unquoted(text: str) -> str:
    raw = text.strip('"').encode("latin-1")
    return _ESCAPE.sub(lambda found: b"\\" if found[1] == b"\\" else bytes([int(found[1], 16)]), raw).decode("utf-8", "backslashreplace")
