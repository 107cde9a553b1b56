# SPDX-License-Identifier: Apache-2.0
"""The codec: every row of its table, forth and back; what is wrong is named by its place."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping  # noqa: TC003 - annotations are evaluated
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flydsl_build.codec import DecodeError, PlainValue, decode, encode


class Absent(Enum):
    ABSENT = "absent"


@dataclass(frozen=True)
class Size:
    value: int

    def to_json(self) -> str:
        return f"{self.value} px"

    @classmethod
    def from_json(cls, value: object) -> Size:
        number, _, unit = str(value).partition(" ")
        if unit != "px":
            msg = "a size"
            raise ValueError(msg)
        return cls(int(number))


@dataclass(frozen=True, kw_only=True, slots=True)
class Circle:
    kind: ClassVar[str] = "circle"
    radius: int = field(metadata={"key": "r"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    kind: ClassVar[str] = "group"
    members: tuple[tuple[str, Shape], ...]


Shape = Circle | Group


def positive(value: int) -> list[tuple[str, object, str]]:
    return [] if value else [("", value, "above 0")]


@dataclass(frozen=True, kw_only=True, slots=True)
class Everything:
    text: str
    count: int
    number: float
    flag: bool
    word: Literal["a", "b"]
    items: tuple[str, ...]
    three: tuple[int, int, int]
    pairs: tuple[tuple[str, int], ...]
    mapping: dict[str, str]
    maybe: str | None
    maybe_pairs: tuple[tuple[str, int], ...] | None
    shape: Shape
    size: Size
    plain: PlainValue
    anything: Any
    other: Mapping[str, tuple[int, ...]]
    checked: int = field(metadata={"check": positive})
    default: PlainValue | Absent = Absent.ABSENT
    more: tuple[int, ...] = ()
    always: int = field(default=7, metadata={"always": True})


def everything(**changes: Any) -> Everything:
    values: dict[str, Any] = {
        "text": "t",
        "count": 1,
        "number": 0.5,
        "flag": True,
        "word": "a",
        "items": ("x",),
        "three": (1, 2, 3),
        "pairs": (("z", 1), ("a", 2)),
        "mapping": {"k": "v"},
        "maybe": None,
        "maybe_pairs": (("b", 1), ("a", 2)),
        "shape": Group(members=(("z", Circle(radius=2)), ("a", Group(members=())))),
        "size": Size(3),
        "plain": (1, {"a": (True, None, -2)}, "s"),
        "anything": [1],
        "other": {"a": (1,)},
        "checked": 1,
    }
    return Everything(**{**values, **changes})


def test_forth_and_back() -> None:
    written = encode(everything())
    assert json.loads(json.dumps(written)) == written
    assert written["pairs"] == {"z": 1, "a": 2}
    assert list(written["pairs"]) == ["z", "a"]
    assert written["maybe_pairs"] == {"b": 1, "a": 2}
    assert encode(everything(maybe_pairs=None))["maybe_pairs"] is None
    assert written["shape"] == {"kind": "group", "members": {"z": {"kind": "circle", "r": 2}, "a": {"kind": "group", "members": {}}}}
    assert written["size"] == "3 px"
    assert "default" not in written
    assert "more" not in written
    assert written["always"] == 7
    assert decode(Everything, written, where="f") == everything()


def test_a_default_of_none_differs_from_no_default() -> None:
    assert encode(everything(default=None))["default"] is None
    assert decode(Everything, encode(everything(default=None)), where="f").default is None


def test_sorted() -> None:
    value = everything(mapping={"b": "1", "a": "2"}, plain={"y": 1, "x": 2})
    assert list(encode(value)["mapping"]) == ["b", "a"]
    assert list(encode(value, sort=True)["mapping"]) == ["a", "b"]
    assert list(encode(value, sort=True)["plain"]) == ["x", "y"]
    # Pairs have an order of their own.
    assert list(encode(value, sort=True)["pairs"]) == ["z", "a"]


plain_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner).map(tuple) | st.dictionaries(st.text().filter(lambda name: not name.startswith("$")), inner),
    max_leaves=20,
)


@given(plain_values)
def test_plain_values(value: PlainValue) -> None:
    written = json.loads(json.dumps(encode(everything(plain=value)), allow_nan=False))
    assert decode(Everything, written, where="f").plain == value


def test_nan() -> None:
    written = encode(everything(plain=(math.nan, math.inf)))
    assert written["plain"] == [{"$float": "nan"}, {"$float": "inf"}]
    first, second = decode(Everything, written, where="f").plain
    assert math.isnan(first)
    assert second == math.inf


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"text": 1}, "f: text: is 1, not text"),
        ({"count": -1}, "f: count: is -1, not a count"),
        ({"count": True}, "f: count: is true, not a count"),
        ({"number": "1"}, 'f: number: is "1", not a number'),
        ({"flag": 1}, "f: flag: is 1, not true or false"),
        ({"word": "c"}, 'f: word: is "c"\n    -> Allowed: a, b.'),
        ({"items": "x"}, 'f: items: is "x", not an array'),
        ({"items": ["x", 2]}, "f: items[1]: is 2, not text"),
        ({"three": [1, 2]}, "f: three: is [1, 2], not an array of 3"),
        ({"pairs": []}, "f: pairs: is [], not an object"),
        ({"mapping": {"a b": 1}}, 'f: mapping."a b": is 1, not text'),
        ({"maybe": 1}, "f: maybe: is 1, not text"),
        ({"shape": {"kind": "square"}}, 'f: shape.kind: is "square"\n    -> Allowed: circle, group.'),
        ({"shape": {"kind": "circle", "r": 1, "radius": 1}}, "f: shape.radius: is not a known key\n    -> Allowed: kind, r."),
        ({"shape": {"kind": "group", "members": {"a": {"kind": "circle"}}}}, "f: shape.members.a.r: is missing"),
        ({"shape": None}, "f: shape: is null, not an object"),
        ({"size": "3"}, 'f: size: is "3", not a size'),
        ({"checked": 0}, "f: checked: is 0, not above 0"),
        *(
            (
                {"plain": {"x": [value]}},
                f"f: plain.x[0]: is {json.dumps(value)}, not a plain value: what stands for a member or a number has",
            )
            for value in ({"$float": "inf", "x": 1}, {"$enum": "m:A.B", "x": 1}, {"$enum": "m:A.B", "$member": "m:A.B"}, {"$x": 1})
        ),
        *(
            ({"plain": {"$enum": text}}, f'f: plain: is {{"$enum": "{text}"}}, not a module:class.name')
            for text in ("m:A", "m.A.B", ":A.B", "m:.B", "m:A.", "m..n:A.B", "m:A.b-c", "m:A.b|", "1:A.B", "m: A.B", "m:A:B.C", "")
        ),
        ({"plain": {"$enum": 5}}, 'f: plain: is {"$enum": 5}, not a module:class.name'),
        ({"unknown": 0}, "f: unknown: is not a known key\n    -> Allowed: always, anything, checked, count, default, flag, items, "),
    ],
)
def test_faults(changes: dict[str, Any], fault: str) -> None:
    with pytest.raises(DecodeError) as caught:
        decode(Everything, {**encode(everything()), **changes}, where="f")
    (found,) = caught.value.faults
    assert str(found).startswith(fault)


@pytest.mark.parametrize("text", ["m:A.B", "m.n:A.B.C", "m:A.B|C", "m:A.B|8", "m:A.0"])
def test_members(text: str) -> None:
    found = decode(Everything, {**encode(everything()), "plain": {"$enum": text}}, where="f").plain
    assert (found.enum, found.name) == tuple(text.rsplit(".", 1))
    assert encode(found) == {"$enum": text}


def test_all_faults_come_together() -> None:
    value = encode(everything()) | {"text": 1, "count": "x"}
    del value["flag"]
    with pytest.raises(DecodeError) as caught:
        decode(Everything, value, where="f")
    assert [fault.where for fault in caught.value.faults] == ["f: flag"]
    value["flag"] = False
    with pytest.raises(DecodeError) as caught:
        decode(Everything, value, where="f")
    assert [fault.where for fault in caught.value.faults] == ["f: text", "f: count"]


def test_nesting_without_end() -> None:
    plain: Any = 1
    shape: Any = {"kind": "circle", "r": 1}
    for _ in range(100):
        plain = [plain]
        shape = {"kind": "group", "members": {"a": shape}}
    for changes in ({"plain": plain}, {"shape": shape}):
        with pytest.raises(DecodeError):
            decode(Everything, {**encode(everything()), **changes}, where="f")


def test_an_annotation_without_a_form_is_a_bug() -> None:
    @dataclass(frozen=True)
    class Wrong:
        value: complex

    with pytest.raises(TypeError, match="no form in JSON for <class 'complex'>"):
        decode(Wrong, {"value": 1}, where="f")
