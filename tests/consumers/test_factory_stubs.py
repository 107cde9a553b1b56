# SPDX-License-Identifier: Apache-2.0
"""Interfaces of factories: what they return, and names that must not meet. A whole one is in `tests/backend/test_factories.py`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from test_stub_rendering import TENSOR, launcher, module, parameter, render, specialization

from flydsl_build.bundle.manifest import Returns
from flydsl_build.consumers.templates import StubError
from flydsl_build.declare.argument_types import PointerType, ScalarType

if TYPE_CHECKING:
    from flydsl_build.bundle.manifest import LauncherEntry, ReturnsForm


def factory(form: ReturnsForm, *elements: tuple[str, int], names: tuple[str, ...] = ("fwd", "bwd")) -> LauncherEntry:
    """Return a factory with one specialization for each (element, N)."""
    made = [replace(specialization(f"build-N{n}-{element}", {"A": TENSOR}, params={"N": n}), element=element) for element, n in elements]
    entry = launcher("build", (parameter("A"),), *made)
    return replace(entry, kind="factory", factory_parameters=(parameter("N", "constexpr"),), returns=Returns(form=form, names=names))


def definition(text: str, name: str) -> str:
    (line,) = [line for line in text.splitlines() if line.startswith(f"def {name}(")]
    return line.partition(" -> ")[2]


@pytest.mark.parametrize(
    ("form", "result"),
    [
        ("tuple", "tuple[_Launcher_build_fwd, _Launcher_build_bwd]:"),
        ("namedtuple", "_Returned_build:"),
        ("dict", "dict[str, _Launcher_build]:"),
        ("object", "_Returned_build:"),
    ],
)
def test_results(form: ReturnsForm, result: str) -> None:
    text = render(module("example_pkg.x", factory(form, ("fwd", 1), ("bwd", 1))))[1]
    assert definition(text, "build") == result
    assert ("NamedTuple" in text) == (form == "namedtuple")


def test_a_tuple_of_different_lengths() -> None:
    text = render(module("example_pkg.x", factory("tuple", ("fwd", 1), ("fwd", 2), ("bwd", 2))))[1]
    assert definition(text, "build") == "tuple[_Any, ...]:"


def test_classes_of_different_launchers_do_not_meet() -> None:
    other = launcher("build_fwd", (parameter("B"),), specialization("build_fwd", {"B": TENSOR}))
    text = render(module("example_pkg.x", factory("tuple", ("fwd", 1), ("bwd", 1)), other))[1]
    assert definition(text, "build") == "tuple[_Launcher_build_fwd_, _Launcher_build_bwd]:"
    assert "build_fwd: _Launcher_build_fwd\n" in text


def test_a_parameter_of_several_kinds() -> None:
    kinds: list[Any] = [TENSOR, PointerType(dtype="f32", alignment=4), ScalarType(dtype="i32")]
    entry = launcher("f", (parameter("A"),), *(specialization(f"f{n}", {"A": kind}) for n, kind in enumerate(kinds)))
    assert "def __call__(self, A: _Tensor | _Pointer | int) -> None:" in render(module("example_pkg.x", entry))[1]


def test_names_are_checked() -> None:
    entry = factory("dict", ("fwd", 1), names=("fwd", "b-d"))
    odd = replace(entry.specializations[0], parameters=(parameter("A"), parameter("lambda", "constexpr")))
    with pytest.raises(StubError) as caught:
        render(module("example_pkg.x", replace(entry, specializations=(odd,))))
    assert [fault.what for fault in caught.value.faults] == [
        'the parameter "lambda" is not a Python name',
        '"b-d" of what it returns is not a Python name',
    ]
