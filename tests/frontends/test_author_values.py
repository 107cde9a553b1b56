# SPDX-License-Identifier: Apache-2.0
"""What a declared value stands for, by the annotation of what takes it: the value itself, one converted, or nothing."""

from __future__ import annotations

from enum import IntFlag
from typing import Any, Literal

import pytest

pytest.importorskip("torch")  # FlyDSL imports it; compile processes have a stand-in

from flydsl.expr import Constexpr, Float32, Int32

from flydsl_build.frontends.flydsl.adapter import ArgumentError
from flydsl_build.frontends.flydsl.author_values import converted


class Access(IntFlag):
    READ = 1
    WRITE = 2


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
    (Access, 2.0, "2.0 is no member of Access, and no value of one. Its members are READ, WRITE", "write the name of a member"),
]


@pytest.mark.parametrize(("annotation", "value", "what", "fix"), REFUSED)
def test_what_a_value_cannot_stand_for(annotation: Any, value: Any, what: str, fix: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        converted(value, annotation)
    assert str(caught.value) == what
    assert caught.value.fix.startswith(fix)
