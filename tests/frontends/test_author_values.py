# SPDX-License-Identifier: Apache-2.0
"""What a declared value stands for, by the annotation of what takes it: the value itself, one converted, or nothing."""

import inspect
import re
from dataclasses import InitVar, dataclass, field
from enum import IntFlag
from pathlib import Path
from typing import Any, Literal, Protocol, TypedDict

import pytest

pytest.importorskip("torch")  # FlyDSL imports it; compile processes have a stand-in

from flydsl.expr import BFloat16, Constexpr, Float32, Int32

from flydsl_build.frontends.flydsl.adapter import ArgumentError
from flydsl_build.frontends.flydsl.author_values import converted, recorded


class Access(IntFlag):
    READ = 1
    WRITE = 2


class Rows(int):
    pass


class Shape(TypedDict):
    x: int


class Sized(Protocol):
    x: int


@dataclass
class Base:
    a: int


@dataclass
class Same(Base):
    pass


@dataclass
class More(Base):
    b: int = 8


@dataclass
class Doubling:
    tile: int

    def __post_init__(self) -> None:
        self.tile *= 2


@dataclass
class Rounding:
    tile: int

    def __post_init__(self) -> None:
        self.tile = -(-self.tile // 64) * 64


@dataclass
class Scaled:
    n: int
    by: InitVar[int] = 3

    def __post_init__(self, by: int) -> None:
        self.n *= by


@dataclass
class Checked:
    n: int
    twice: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        if self.n < 0:
            raise ValueError
        self.twice = 2 * self.n


TAKEN: list[tuple[Any, Any, Any]] = [
    (bool, True, True),
    (int, 1, 1),
    (float, 1.5, 1.5),
    # As for type checkers.
    (float, 2, 2.0),
    (float | None, 2, 2.0),
    (Constexpr[float], 2, 2.0),
    (tuple[float, ...], (1, 2.0), (1.0, 2.0)),
    # What takes both takes it as it is.
    (int | float, 2, 2),
    (bool | int, True, True),
    (str, "1", "1"),
    (Literal[1, True], True, True),
    (Int32, 3, 3),
    (Float32, 3, 3),
    (Any, 1, 1),
    (Access, 3, Access.READ | Access.WRITE),
    (Access, "READ|2", Access.READ | Access.WRITE),
]


@pytest.mark.parametrize(("annotation", "value", "wanted"), TAKEN)
def test_what_a_value_stands_for(annotation: Any, value: Any, wanted: Any) -> None:
    found = converted(value, annotation)
    assert (type(found), repr(found)) == (type(wanted), repr(wanted))


REFUSED: list[tuple[Any, Any, str, str]] = [
    (bool, 1, "1 is no bool, as which it is annotated", "write true or false"),
    (bool, "true", "'true' is no bool, as which it is annotated", "write true or false"),
    (bool | None, 0, "0 is no bool | None, as which it is annotated", "write true or false"),
    (int, True, "True is no int, as which it is annotated", "write a whole number"),
    (int, 1.0, "1.0 is no int, as which it is annotated", "write a whole number"),
    (int, float("inf"), "inf is no int, as which it is annotated", "write a whole number"),
    (int, "1", "'1' is no int, as which it is annotated", "write a whole number"),
    (Constexpr[int], 1.5, "1.5 is no Constexpr[int], as which it is annotated", "write a whole number"),
    (float, True, "True is no float, as which it is annotated", "write a number"),
    (float, "1.0", "'1.0' is no float, as which it is annotated", "write a number"),
    (float, 2**53 + 1, "no float is equal to 9007199254740993", "write the float that is meant"),
    (float, 2**2000, f"no float is equal to {2**2000}", "write the float that is meant"),
    (str, 1, "1 is no str, as which it is annotated", "write text in quotes"),
    (int | str, 1.0, "1.0 is no int | str, as which it is annotated", "write a whole number or text in quotes"),
    (tuple[int, ...], (1, True), "True is no int, as which it is annotated", "write a whole number"),
    (tuple[int, ...], 1, "1 is no tuple[int, ...], as which it is annotated", "a table says text, numbers, booleans"),
    (Literal[1], 1.0, "1.0 is none of 1", "write one of these"),
    (Literal[1], True, "True is none of 1", "write one of these"),
    (Int32, "3", "'3' is no Int32, as which it is annotated", "a table says text, numbers, booleans"),
    (Access, -1, "-1 is no member of Access, and no value of one. Its members are READ, WRITE", "write the name of a member"),
    (Shape, 1, "1 is no Shape, as which it is annotated", "a table says text, numbers, booleans"),
    (Sized, 1, "1 is no Sized, as which it is annotated", "a table says text, numbers, booleans"),
    (str | type, "f32", "'f32' can be text or a type of FlyDSL's, as str | type admits both", "annotate with one of them"),
    (type[Float32], "bf16", "bf16 is no type[flydsl.expr.numeric.Float32]", "write one of Float32"),
    (Doubling, {"tile": 64}, "Doubling changes its fields when it is made (tile of 64 becomes 128), and", "let the class take finished"),
    (Rounding, {"tile": 60}, "Rounding changes its fields when it is made (tile of 60 becomes 64), and", "let the class take finished"),
    (Access, 2.0, "2.0 is no member of Access, and no value of one. Its members are READ, WRITE", "write the name of a member"),
]


@pytest.mark.parametrize(("annotation", "value", "what", "fix"), REFUSED)
def test_what_a_value_cannot_stand_for(annotation: Any, value: Any, what: str, fix: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        converted(value, annotation)
    assert str(caught.value).startswith(what)
    assert caught.value.fix.startswith(fix)


def test_what_the_default_says() -> None:
    empty = inspect.Parameter.empty
    assert converted("bf16", empty, Float32) is BFloat16
    assert converted("bf16", Any, Float32) is BFloat16
    assert converted("f32", str, "f32") == "f32"
    assert converted(3, int, Rows(3)) == 3
    # Defaults that stand for nothing but themselves say nothing.
    assert converted("relu", empty, print) == "relu"
    assert converted(1, empty, None) == 1
    for value, default in ((3, Rows(3)), ("a", Path("a"))):
        with pytest.raises(ArgumentError, match=f"is no {type(default).__name__}, of which its default is"):
            converted(value, empty, default)


RECORDED: list[tuple[Any, Any, Any, str]] = [
    (Same(1), Base, None, "of several classes: Same, Base"),
    (More(1), Base, More(1), "of several classes: More, Base"),
    (Base(1), Base | More, None, "of several classes: Base, More"),
    (Same(1), inspect.Parameter.empty, Base(1), "of several classes: Same, Base"),
    (Doubling(64), Doubling, None, "(tile of 128 becomes 256)"),
    (Scaled(2), Scaled, None, "(n of 6 becomes 18)"),
]


@pytest.mark.parametrize(("value", "annotation", "default", "what"), RECORDED)
def test_objects_of_which_the_fields_do_not_say_all(value: Any, annotation: Any, default: Any, what: str) -> None:
    with pytest.raises(ArgumentError, match=re.escape(what)):
        recorded(value, annotation, default)


def test_objects_of_which_the_fields_say_all() -> None:
    assert recorded(Base(1), Base) == {"a": 1}
    assert recorded(More(1, 2), More | None) == {"a": 1, "b": 2}
    assert recorded(Same(1)) == {"a": 1}
    assert recorded(Rounding(64), Rounding) == {"tile": 64}
    assert recorded(Checked(2), Checked) == {"n": 2}
