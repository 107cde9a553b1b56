# SPDX-License-Identifier: Apache-2.0
"""Constants without a plain form, types, and factories with `**` parameters, on a package that is written here."""

from __future__ import annotations

import importlib
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from synthetic import tensor

if TYPE_CHECKING:
    from fake_hip import FakeHip
    from synthetic import Package

# Each with the only value that a wheel was built for.
ONLY: tuple[tuple[str, str | None, Any], ...] = (
    ("bool", "bool", True),
    ("int", "int", 1),
    ("float", "float", 1.0),
    ("literal", "Literal[1]", 1),
    ("zero", "float", 0.0),
    ("pair", "tuple[int, ...]", [1, 0]),
    ("fields", "Config", {"scale": 1.0, "rows": 1}),
    ("text", "str", "f32"),
    ("list", "list | None", [1, 2]),
)

LAUNCHERS: list[dict[str, Any]] = [
    {
        # `mode` has a default that the manifest has no form for; one specialization leaves it out, the other gives it.
        "name": "modes",
        "parameters": {
            "A": {},
            "mode": {"role": "constexpr", "default": None},
            "dtype": {"role": "type", "default": "f32"},
        },
        "specializations": [
            {"arguments": {"A": tensor("f32", ["?"])}, "constexpr": {"dtype": "f32"}},
            {"arguments": {"A": tensor("f32", ["?"])}, "constexpr": {"dtype": "f32", "mode": 3}},
            {"arguments": {"A": tensor("f32", ["?"])}, "constexpr": {"dtype": "bf16", "mode": 3}},
        ],
    },
    {
        # So many that they are looked up by their constants: of the same constants, the first whose arguments fit.
        "name": "many",
        "parameters": {"A": {}, "dtype": {"role": "type"}, "n": {"role": "constexpr"}},
        "specializations": [
            {"arguments": {"A": tensor(element, ["?"])}, "constexpr": {"dtype": dtype, "n": n}, "name": f"many-{element}-{dtype}-{n}"}
            for dtype in ("f32", "bf16")
            for n in (1, 2, [1, 2])
            for element in ("f32", "i32")
        ],
    },
    {
        "name": "build",
        "factory": [{"name": "N"}, {"name": "dtype", "role": "type", "default": "f32"}, {"name": "rest", "kind": "VAR_KEYWORD"}],
        "parameters": {"A": {}},
        "specializations": [
            {"arguments": {"A": tensor("f32", ["?"])}, "params": {"N": 1, "dtype": "f32"}},
            {"arguments": {"A": tensor("f32", ["?"])}, "params": {"N": 1, "dtype": "f32", "tile": [8, 8]}},
            {"arguments": {"A": tensor("f32", ["?"])}, "params": {"N": 1, "dtype": "bf16"}},
        ],
    },
    *(
        {
            "name": f"only_{name}",
            "parameters": {"A": {}, "m": {"role": "constexpr", "annotation": annotation}},
            "specializations": [{"arguments": {"A": tensor("f32", ["?"])}, "constexpr": {"m": value}}],
        }
        for name, annotation, value in ONLY
    ),
    *(
        {
            "name": f"made_{name}",
            "factory": [{"name": "m", "annotation": annotation}],
            "parameters": {"A": {}},
            "specializations": [{"arguments": {"A": tensor("f32", ["?"])}, "params": {"m": value}}],
        }
        for name, annotation, value in ONLY
    ),
    {
        # So many that they are looked up.
        "name": "numbers",
        "parameters": {"A": {}, "m": {"role": "constexpr"}},
        "specializations": [
            {"arguments": {"A": tensor("f32", ["?"])}, "constexpr": {"m": value}} for value in (0, 1, 1.0, True, 2, 0.0, -0.0, 3.0)
        ],
    },
]


ALL = [f"{element}-{dtype}-{n}" for dtype in ("f32", "bf16") for n in (1, 2, [1, 2]) for element in ("f32", "i32")]


@pytest.fixture(scope="module")
def factories(package: Package) -> Any:
    package.write_module("factories", LAUNCHERS, targets=("gfx942",))
    importlib.invalidate_caches()
    return importlib.import_module(f"{package.name}.factories")


class Float32:
    """Stands for FlyDSL's type."""


class BFloat16:
    """Likewise."""


def launched(hip: FakeHip, call: Any) -> str:
    hip.clear()
    call()
    (event,) = hip.events("launch")
    return str(event["kernel"])


def test_a_default_that_cannot_be_compared(factories: Any, hip: FakeHip) -> None:
    a = np.zeros(4, np.float32)
    assert launched(hip, lambda: factories.modes(a)) == "modes_0_kernel"
    assert launched(hip, lambda: factories.modes(a, 3)) == "modes_1_kernel"
    with pytest.raises(ValueError, match="modes") as caught:
        factories.modes(a, mode=4)
    assert str(caught.value) == (
        "modes(dtype='f32', mode=4): the wheel was not built for these constexpr values, only for:\n"
        "    modes(dtype='f32', mode=3)\n"
        "    modes(dtype='f32')\n"
        "    modes(dtype='bf16', mode=3)\n"
        '    -> add them where the wheel is built: [tool.flydsl-build.kernels."fake_kernels.factories:modes"] constexpr = { mode = [..., 4] }'
    )


def test_types(factories: Any, hip: FakeHip) -> None:
    a = np.zeros(4, np.float32)
    assert launched(hip, lambda: factories.modes(a, 3, "bf16")) == "modes_2_kernel"
    assert launched(hip, lambda: factories.modes(a, 3, dtype=BFloat16)) == "modes_2_kernel"
    assert launched(hip, lambda: factories.modes(a, dtype=Float32)) == "modes_0_kernel"
    with pytest.raises(ValueError, match=r"modes\(dtype=<class 'int'>\): the wheel was not built for these constexpr values"):
        factories.modes(a, dtype=int)
    assert factories.build(1, Float32) is factories.build(1)
    assert factories.build(1, BFloat16) is factories.build(1, "bf16") is not factories.build(1)


def test_parameters_of_any_name(factories: Any, hip: FakeHip) -> None:
    a = np.zeros(4, np.float32)
    tiled = factories.build(1, tile=(8, 8))
    assert launched(hip, lambda: tiled(a)) == "build_1_kernel"
    assert launched(hip, lambda: factories.build(1)(a)) == "build_0_kernel"
    with pytest.raises(ValueError, match=r"build\(N=1, dtype='f32', tile=\(8, 16\)\): the wheel was not built") as caught:
        factories.build(1, tile=(8, 16))
    assert "    build(N=1, dtype='f32', tile=(8, 8))" in str(caught.value)
    assert str(caught.value).endswith("params = { tile = [..., [8, 16]] }")


def test_many_specializations(factories: Any, hip: FakeHip) -> None:
    for dtype, other in (("f32", Float32), ("bf16", BFloat16)):
        for n in (1, 2, (1, 2)):
            for element in ("f32", "i32"):
                wanted = f"many_{ALL.index(f'{element}-{dtype}-{list(n) if isinstance(n, tuple) else n}')}_kernel"
                data = np.zeros(3, {"f32": np.float32, "i32": np.int32}[element])
                assert launched(hip, partial(factories.many, data, dtype, n)) == wanted
                assert launched(hip, partial(factories.many, data, n=n, dtype=other)) == wanted
    # Equal values, and what is no key of a dict.
    data = np.zeros(3, np.float32)
    assert launched(hip, lambda: factories.many(data, "f32", np.int64(2))) == "many_2_kernel"
    for n in (3, [1, 2], data, None, int):
        with pytest.raises(
            ValueError, match="the wheel was not built for these constexpr values, but for 6 others, the nearest of"
        ) as caught:
            factories.many(data, "f32", n)
        assert str(caught.value).startswith(f"many(dtype='f32', n={n!r}): ")
    with pytest.raises(ValueError, match="-> pass a tuple where the wheel was built for one: a list is not equal to it"):
        factories.many(data, "f32", [1, 2])
    with pytest.raises(TypeError, match=r"many-f32-f32-2: argument A must be f32\[\?\], got f64"):
        factories.many(np.zeros(3), "f32", 2)


class Failing:
    """Can be no key, and says so in its own way."""

    def __hash__(self) -> int:
        raise OSError(5, "no hash")


def test_a_value_whose_hash_fails(factories: Any) -> None:
    with pytest.raises(OSError, match="no hash"):
        factories.many(np.zeros(3, np.float32), "f32", Failing())


class Config:
    def __init__(self, scale: Any, rows: Any) -> None:
        self.scale = scale
        self.rows = rows

    def __repr__(self) -> str:
        return f"Config({self.scale!r}, {self.rows!r})"


NUMBERS = [
    # Which of the given values mean what was built; the others equal it, too, but make another kernel.
    ("bool", [True, np.bool_(True)], [1, 1.0, np.int64(1), np.float32(1)]),
    ("int", [1, np.int64(1), np.uint8(1)], [True, 1.0, np.float64(1), np.float32(1), np.bool_(True)]),
    ("float", [1.0, 1, np.float32(1), np.int64(1)], [True, np.bool_(True)]),
    ("literal", [1], [1.0, True]),
    ("zero", [0.0, 0], [-0.0, False, np.float32(-0.0)]),
    ("pair", [(1, 0)], [(True, False), (1.0, 0.0), (1, False)]),
    ("fields", [Config(1.0, 1), Config(1, 1)], [Config(1.0, True), Config(1.0, 1.0), Config(True, 1)]),
]


@pytest.mark.parametrize(("name", "same", "others"), NUMBERS)
def test_numbers_of_another_type(factories: Any, hip: FakeHip, name: str, same: list[Any], others: list[Any]) -> None:
    """In Python, 1, 1.0 and True are equal, but a kernel that was made for one of them is none for the others."""
    a = np.zeros(4, np.float32)
    launcher, factory = getattr(factories, f"only_{name}"), getattr(factories, f"made_{name}")
    for value in same:
        assert launched(hip, partial(launcher, a, value)) == f"only_{name}_0_kernel"
        if not isinstance(value, np.generic) or name != "float":
            assert launched(hip, partial(factory(value), a)) == f"made_{name}_0_kernel"
    for value in others:
        with pytest.raises(ValueError, match="the wheel was not built for these constexpr values, only for"):
            launcher(a, value)
        with pytest.raises(ValueError, match="the wheel was not built for these parameters, only for"):
            factory(value)


def test_numbers_of_all_types(factories: Any, hip: FakeHip) -> None:
    a = np.zeros(4, np.float32)
    for number, value in enumerate((0, 1, 1.0, True, 2, 0.0, -0.0, 3.0)):
        assert launched(hip, partial(factories.numbers, a, value)) == f"numbers_{number}_kernel"
    assert launched(hip, partial(factories.numbers, a, 3)) == "numbers_7_kernel"
    for value in (False, 2.0, np.bool_(False)):
        with pytest.raises(ValueError, match="the wheel was not built for these constexpr values"):
            factories.numbers(a, value)


class Wider(Config):
    """A dataclass with one field more."""

    __dataclass_fields__: dict[str, Any] = {  # noqa: RUF012 - as dataclasses have it
        name: SimpleNamespace(init=True, _field_type=SimpleNamespace(name="_FIELD")) for name in ("scale", "rows", "more")
    }


def test_what_only_looks_alike(factories: Any) -> None:
    for value in (np.array([1]), 1 + 0j, Decimal(1), Fraction(1)):
        with pytest.raises(ValueError, match="the wheel was not built for"):
            factories.made_int(value)
        with pytest.raises(ValueError, match="the wheel was not built for"):
            factories.only_int(np.zeros(4, np.float32), value)
    with pytest.raises(ValueError, match="the wheel was not built for these parameters"):
        factories.made_fields(Wider(1.0, 1))
    with pytest.raises(ValueError, match="the wheel was not built for these parameters"):
        factories.made_text(Float32)
    assert factories.made_text("f32") is factories.made_text("f32")
    assert factories.made_list([1, 2]) is factories.made_list([1, 2])
    with pytest.raises(ValueError, match="the wheel was not built for these parameters"):
        factories.made_list((1, 2))
    with pytest.raises(ValueError, match="the wheel was not built for these parameters"):
        factories.made_pair([1, 0])
    with pytest.raises(
        ValueError, match="m=None cannot be declared: None is what a parameter is that is left out, where it is the default"
    ):
        factories.made_int(None)


def test_enums_of_one_name_in_two_modules(factories: Any) -> None:
    enums = importlib.import_module(f"{type(factories.__flydsl__).__module__.rpartition('.')[0]}.enums")
    known = enums.Enums()
    known.described = {"kernels.m:Mode": {"bases": ["Enum"], "members": [{"name": "A", "value": 1}]}}
    built = enums.Member(known, "kernels.m:Mode", "A")
    mine, other = (Enum("Mode", {"A": 1}, module=module) for module in ("kernels.m", "kernels.other"))
    stub = known.define("kernels.m:Mode")(Enum("Mode", {"A": 1}, module="stub"))
    assert (built == mine.A, built == stub.A, built == "A") == (True, True, True)
    assert built != other.A
