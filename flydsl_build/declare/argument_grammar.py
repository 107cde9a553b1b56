# SPDX-License-Identifier: Apache-2.0
"""The grammar of argument types: the text an author writes, to and from `ArgumentType`.

```
argument = tensor | pointer | scalar | "stream"
tensor   = dtype "[" dims [ ":" strides ] [ ";" width ] "]" [ "@" bytes ]
pointer  = "ptr" "<" dtype ">" [ "@" bytes ]
scalar   = dtype
dims     = dim { "," dim }              strides = dim { "," dim }, as many as dims
dim      = integer | ( "?" | name ) [ "%" power of two ]
width    = "i64" | "i32"                of a dynamic stride in the packed layout; i64 if left out
```

Blanks may stand between any two of these. An integer is static, `?` and names are dynamic; a name has the same value
wherever it stands in one call.

Without strides, a tensor whose every extent is static is contiguous (row-major, static strides). Any other has stride 1
in its last dim and dynamic strides in the others, also where an extent is static: that is what FlyDSL's JIT makes of a
plain contiguous tensor, so `f32[M, 128]` takes padded rows too. To fix the stride, write it: `f32[M, 128 : 128, 1]`.

Without `@bytes`, the data pointer is aligned to one element (one byte for types below a byte), as in FlyDSL.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from flydsl_build.dtypes import DTYPES, SCALAR_DTYPES, dtype_hint, element_bytes

from ..errors import ConfigError, Fault
from .argument_types import ArgumentType, Dim, PointerType, ScalarType, StreamType, StructType, TensorType

__all__ = ["default_strides", "format_argument", "parse_argument"]

_MAX_I32 = 2**31 - 1
_MAX_I64 = 2**63 - 1
_MAX_DIVISOR = 2**30
_MAX_ALIGNMENT = 2**12
_MAX_RANK = 16

_TOKEN = re.compile(r"\s*(?:(?P<word>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*)|(?P<integer>[0-9]+)|(?P<sign>\S))")


class _GrammarError(Exception):
    """A fault at a position of the text."""

    def __init__(self, position: int, what: str, fix: str) -> None:
        super().__init__(what)
        self.position = position
        self.what = what
        self.fix = fix


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int

    def __str__(self) -> str:
        return f'"{self.text}"' if self.text else "the end"


def parse_argument(text: str, *, where: str, written: str = "") -> ArgumentType:
    """Return the argument type that `text` writes.

    Parameters
    ----------
    text
        One argument, in the grammar of this module.
    where
        The place of the text, for the error.
    written
        What the author wrote, if `text` was made from it by filling placeholders.

    Raises
    ------
    ConfigError
        One fault, with the position marked.
    """
    try:
        return _parse(text)
    except _GrammarError as error:
        detail = f"{text}\n{' ' * error.position}^"
        if written and written != text:
            detail += f'\nfrom "{written}"'
        raise ConfigError(Fault(where=where, what=error.what, fix=error.fix, detail=detail)) from None


# A package has few distinct argument types, and thousands of specializations with them.
@lru_cache(maxsize=4096)
def _parse(text: str) -> ArgumentType:
    return _Parser(text).argument()


class _Parser:
    """Reads one argument from left to right."""

    def __init__(self, text: str) -> None:
        self.tokens = [
            _Token(match.lastgroup or "", match[match.lastgroup or 0], match.start(match.lastgroup or 0)) for match in _TOKEN.finditer(text)
        ]
        self.tokens.append(_Token("end", "", len(text.rstrip())))
        self.index = 0

    @property
    def token(self) -> _Token:
        return self.tokens[self.index]

    def take(self) -> _Token:
        token = self.token
        self.index += token.kind != "end"
        return token

    def accept(self, sign: str) -> bool:
        """Take the token if it is `sign`."""
        found = self.token.text == sign
        if found:
            self.take()
        return found

    def expect(self, sign: str, fix: str) -> None:
        if not self.accept(sign):
            raise _GrammarError(self.token.position, f'expected "{sign}", found {self.token}', fix)

    def end(self) -> None:
        if self.token.kind != "end":
            raise _GrammarError(self.token.position, f"expected the end, found {self.token}", 'after "]" or ">" only @bytes may follow')

    def argument(self) -> ArgumentType:
        first = self.take()
        if first.kind == "end":
            raise _GrammarError(first.position, "the argument type is empty", 'write a type such as "f32[M, N]", "i32" or "ptr<f32>"')
        if first.kind != "word":
            raise _GrammarError(first.position, f"expected a dtype, found {first}", 'write a type such as "f32[M, N]", "i32" or "ptr<f32>"')
        if first.text == "ptr":
            return self.pointer()
        if first.text == "stream":
            self.end()
            return StreamType()
        dtype = self.known(first)
        if self.accept("["):
            return self.tensor(dtype)
        if self.token.text == "@":
            raise _GrammarError(self.token.position, "a scalar has no alignment", 'only tensors and pointers do: "f32[M]@16"')
        if self.token.kind != "end":
            raise _GrammarError(self.token.position, f'expected "[" or the end, found {self.token}', f'write "{dtype}[M, N]" for a tensor')
        if dtype not in SCALAR_DTYPES:
            raise _GrammarError(first.position, f"{dtype} cannot be passed by value", "scalars are " + ", ".join(SCALAR_DTYPES))
        return ScalarType(dtype=dtype)

    def known(self, token: _Token) -> str:
        if token.text not in DTYPES:
            raise _GrammarError(token.position, f'unknown dtype "{token.text}"', dtype_hint(token.text))
        return token.text

    def pointer(self) -> PointerType:
        fix = 'write the type it points to: "ptr<f32>"'
        self.expect("<", fix)
        token = self.take()
        if token.kind != "word":
            raise _GrammarError(token.position, f"expected a dtype, found {token}", fix)
        dtype = self.known(token)
        self.expect(">", fix)
        return PointerType(dtype=dtype, alignment=self.alignment(dtype))

    def tensor(self, dtype: str) -> TensorType:
        opened = self.tokens[self.index - 1]
        if self.token.text in {"]", ":", ";"}:
            raise _GrammarError(self.token.position, "a tensor needs at least one dim", f'write "{dtype}[N]", or "{dtype}" for a scalar')
        shape = self.dims("an extent", 1, _MAX_I32)
        if len(shape) > _MAX_RANK:
            raise _GrammarError(opened.position, f"a tensor of {len(shape)} dims", f"a tensor has at most {_MAX_RANK}")
        strides: tuple[Dim, ...] = ()
        strides_at = self.token.position
        if self.accept(":"):
            strides = self.dims("a stride", 0, _MAX_I64)
            if len(strides) != len(shape):
                raise _GrammarError(
                    strides_at,
                    f"{_count(len(shape), 'dim')}, but {_count(len(strides), 'stride')}",
                    "write one stride for each dim, or none",
                )
        bits = self.width() if self.accept(";") else 64
        if self.token.kind == "end":
            raise _GrammarError(opened.position, '"[" is not closed', 'close it with "]"')
        self.expect("]", 'separate dims with ",", begin strides with ":", end with "]"')
        return TensorType(
            dtype=dtype,
            shape=shape,
            strides=strides or default_strides(shape),
            alignment=self.alignment(dtype),
            stride_bits=bits,
        )

    def dims(self, words: str, low: int, high: int) -> tuple[Dim, ...]:
        found = [self.dim(words, low, high)]
        while self.accept(","):
            found.append(self.dim(words, low, high))
        return tuple(found)

    def dim(self, words: str, low: int, high: int) -> Dim:
        token = self.take()
        if token.kind == "integer":
            size = _number(token)
            if not low <= size <= high:
                raise _GrammarError(token.position, f"{words} of {token.text}", f"{words} is from {low} to {high}")
            if self.token.text == "%":
                raise _GrammarError(
                    self.token.position,
                    f"{words} of {size} is static: a divisor says nothing",
                    f'write "{size}", or "?%…" for a dynamic one',
                )
            return Dim(size=size)
        if token.kind == "word" and "." not in token.text:
            name: str | None = token.text
        elif token.text == "?":
            name = None
        else:
            raise _GrammarError(
                token.position, f"expected {words}, found {token}", 'write an integer, "?", a name, or one of the last two with %8'
            )
        return Dim(name=name, divisor=self.divisor() if self.accept("%") else 1)

    def divisor(self) -> int:
        token = self.take()
        if token.kind != "integer" or not _is_power_of_two(_number(token)) or _number(token) > _MAX_DIVISOR:
            raise _GrammarError(token.position, f"expected a power of two, found {token}", 'a divisor is a power of two up to 2**30: "M%8"')
        return int(token.text)

    def width(self) -> int:
        token = self.take()
        if token.text not in {"i32", "i64"}:
            raise _GrammarError(token.position, f"expected the width of strides, found {token}", 'write "; i32" or "; i64"')
        return int(token.text[1:])

    def alignment(self, dtype: str) -> int:
        """Read `@bytes` and the end."""
        least = element_bytes(dtype)
        if not self.accept("@"):
            self.end()
            return least
        token = self.take()
        if token.kind != "integer" or not _is_power_of_two(_number(token)) or _number(token) > _MAX_ALIGNMENT:
            raise _GrammarError(
                token.position, f"expected a power of two, found {token}", 'an alignment is a power of two of bytes up to 4096: "@16"'
            )
        if int(token.text) < least:
            raise _GrammarError(
                token.position,
                f"an alignment of {_count(int(token.text), 'byte')} is less than an element",
                f"{dtype} has {_count(least, 'byte')}",
            )
        self.end()
        return int(token.text)


@lru_cache(maxsize=1024)
def default_strides(shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
    """Return the strides of a tensor written without: static ones if every extent is, else the last one 1 and dynamic others."""
    strides = [Dim(size=1)]
    if all(dim.size is not None for dim in shape):
        for dim in reversed(shape[1:]):
            strides.append(Dim(size=(strides[-1].size or 0) * (dim.size or 0)))
    else:
        strides += [Dim()] * (len(shape) - 1)
    return tuple(reversed(strides))


def format_argument(argument: ArgumentType) -> str:
    """Return the canonical text of an argument type; `parse_argument` reads the same value from it.

    Structs are written as tables, not as text, and shown here in braces for messages only.
    """
    if isinstance(argument, ScalarType):
        return argument.dtype
    if isinstance(argument, StreamType):
        return "stream"
    if isinstance(argument, StructType):
        return "{" + ", ".join(f"{name} = {format_argument(each)}" for name, each in argument.fields) + "}"
    aligned = "" if argument.alignment == element_bytes(argument.dtype) else f"@{argument.alignment}"
    if isinstance(argument, PointerType):
        return f"ptr<{argument.dtype}>{aligned}"
    text = ", ".join(map(str, argument.shape))
    if argument.strides != default_strides(argument.shape):
        text += " : " + ", ".join(map(str, argument.strides))
    if argument.stride_bits != 64:
        text += f"; i{argument.stride_bits}"
    return f"{argument.dtype}[{text}]{aligned}"


def _number(token: _Token) -> int:
    # Python refuses to convert thousands of digits; anything this long is out of every range.
    return int(token.text) if len(token.text) < len(str(_MAX_I64)) + 1 else _MAX_I64 + 1


def _is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
