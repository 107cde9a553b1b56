# SPDX-License-Identifier: Apache-2.0
"""Structs of arguments: the class a stub offers, and what is left out."""

from __future__ import annotations

import pytest
from test_stub_rendering import DIGEST, launcher, module, parameter, specialization

from flydsl_build.consumers.python_stub.render import render_stub
from flydsl_build.declare.argument_types import ScalarType, StructType
from flydsl_build.runtime.struct import make_struct

INNER = StructType(name="Inner", fields=(("scale", ScalarType(dtype="f32")),))
CONFIG = StructType(name="Config", fields=(("first", ScalarType(dtype="i8")), ("inner", INNER), ("flag", ScalarType(dtype="bool"))))


def rendered(struct: StructType, public_names: tuple[str, ...]) -> tuple[str, str]:
    manifest = module("pkg.mod", launcher("run", (parameter("config", "struct"),), specialization("run", {"config": struct})))
    return render_stub(
        manifest,
        manifest_sha256=DIGEST,
        manifest_file="_flydsl/mod.json",
        runtime_package="pkg._flydsl.runtime",
        module_doc=None,
        public_names=public_names,
    )


def test_public_structs_are_in_the_stub() -> None:
    stub, interface = rendered(CONFIG, ("Config", "Inner", "run"))
    assert '\nInner = __flydsl__.struct("Inner", ("scale",))\n' in stub
    assert '\nConfig = __flydsl__.struct("Config", ("first", "inner", "flag"))\n' in stub
    assert '    "Config",\n    "Inner",\n    "run",\n' in stub
    assert (
        "class Config:\n    first: int\n    inner: _Any\n    flag: bool\n"
        "    def __init__(self, first: int, inner: _Any, flag: bool) -> None: ...\n" in interface
    )


def test_private_structs_are_not() -> None:
    stub, interface = rendered(CONFIG, ("run",))
    assert "struct(" not in stub
    assert "class Config" not in interface


def test_struct_values() -> None:
    config = make_struct("pkg.mod", "Config", ("first", "flag"))
    value = config(3, flag=True)
    assert (value.first, value.flag) == (3, True)
    assert repr(value) == "Config(first=3, flag=True)"
    assert value == config(first=3, flag=True)
    assert value != config(4, flag=True)
    value.first = 5
    assert value.first == 5
    assert config.__module__ == "pkg.mod"


def test_defaults_and_hashes() -> None:
    config = make_struct("pkg.mod", "Config", ("first", "flag"), {"flag": True})
    assert config(3) == config(first=3, flag=True)
    assert {config(3): "a", config(4): "b"}[config(3, flag=True)] == "a"
    with pytest.raises(TypeError, match=r"Config\(\) misses first"):
        config()


@pytest.mark.parametrize(
    ("values", "named", "message"),
    [
        ((1, 2, 3), {}, "Config() takes 2 fields but 3 were given"),
        ((1,), {"other": 2}, "Config() has no field 'other'; its fields are first, flag"),
        ((1,), {"first": 2}, "Config() got two values for field 'first'"),
        ((), {"first": 2}, "Config() misses flag"),
    ],
)
def test_struct_faults(values: tuple[int, ...], named: dict[str, int], message: str) -> None:
    with pytest.raises(TypeError) as caught:
        make_struct("pkg.mod", "Config", ("first", "flag"))(*values, **named)
    assert str(caught.value) == message
