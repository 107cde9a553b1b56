# SPDX-License-Identifier: Apache-2.0
"""Declarations of factories that return several launchers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from flydsl_build.codec import decode, encode
from flydsl_build.declare import Specialization, expand, format_argument

if TYPE_CHECKING:
    from collections.abc import Callable

    from flydsl_build.config import Settings

    Read = Callable[..., Settings]
    ConfigFault = Callable[[Callable[[], object]], str]

K = '[tool.flydsl-build.kernels."m:build"]\n'
S = '[[tool.flydsl-build.kernels."m:build".sets]]\n'
WHERE = 'tool.flydsl-build.kernels."m:build"'


def test_each_name_is_a_specialization(read: Read) -> None:
    found = expand(
        read(
            K
            + 'params = { N = [16, 32] }\nreturns = ["fwd", "bwd"]\n'
            + 'args = { fwd = { X = "f32[M, {N}]" }, bwd = { X = "f32[M, {N}]", Y = "f32[{N}]" } }\n'
        )
    )
    assert [each.name for each in found] == ["build-N16-fwd", "build-N16-bwd", "build-N32-fwd", "build-N32-bwd"]
    last = found[-1]
    assert (last.element, last.returns, last.params, last.title) == ("bwd", ("fwd", "bwd"), (("N", 32),), "build.bwd")
    assert [(name, format_argument(each)) for name, each in last.args] == [("X", "f32[M, 32]"), ("Y", "f32[32]")]
    for each in found:
        assert decode(Specialization, json.loads(json.dumps(encode(each))), where="x") == each


def test_a_name_without_arguments_of_its_own(read: Read) -> None:
    found = expand(read(K + 'params = {}\nreturns = ["fwd", "bwd"]\nargs = { fwd = { X = "f32[M]" } }\n'))
    assert [(each.name, len(each.args)) for each in found] == [("build-fwd", 1), ("build-bwd", 0)]


def test_constexpr_and_lists_of_arguments(read: Read) -> None:
    # What is constexpr for one may be an argument of the other.
    found = expand(
        read(
            K
            + 'params = {}\nreturns = ["fwd", "bwd"]\nconstexpr = { block = [64, 128] }\n'
            + 'args = [{ fwd = { X = "f32[M]" } }, { fwd = { X = "f16[M]" }, bwd = { block = "i32" } }]\n'
        )
    )
    assert [each.name for each in found][:5] == [
        "build-block64-fwd-args0",
        "build-block64-fwd-args1",
        "build-block64-bwd-args0",
        "build-block64-bwd-args1",
        "build-block128-fwd-args0",
    ]
    assert {each.constexpr for each in found} == {(("block", 64),), (("block", 128),)}


def test_sets_have_their_own(read: Read) -> None:
    found = expand(
        read(
            K
            + 'returns = ["fwd"]\nargs = { fwd = { X = "f32[M]" } }\n'
            + (S + "params = { N = 1 }\n")
            + (S + 'params = { N = 2 }\nreturns = ["fwd", "bwd"]\nargs = { fwd = { X = "f32[M]" }, bwd = { X = "f32[M]" } }\n')
        )
    )
    assert [(each.name, each.returns) for each in found] == [
        ("build-N1-fwd", ("fwd",)),
        ("build-N2-fwd", ("fwd", "bwd")),
        ("build-N2-bwd", ("fwd", "bwd")),
    ]


def test_launchers_inside_of_functions(read: Read) -> None:
    (one,) = expand(read(K + 'params = {}\nlauncher = "a.run"\n'))
    assert one.inner == (("", "a.run"),)
    found = expand(read(K + 'params = {}\nreturns = ["fwd", "N"]\nlauncher = { fwd = "run" }\n'))
    assert [each.inner for each in found] == [(("fwd", "run"),)] * 2
    own = expand(read(K + 'launcher = "run"\n' + (S + "params = { N = 1 }\n") + (S + 'params = { N = 2 }\nlauncher = "other"\n')))
    assert [each.inner for each in own] == [(("", "run"),), (("", "other"),)]
    for each in (one, *found, *own):
        assert decode(Specialization, json.loads(json.dumps(encode(each))), where="x") == each


def test_tables_are_values(read: Read) -> None:
    found = expand(
        read(
            K
            + 'params = { c = [{ tile = 8, inner = { k = "bf16", sizes = [1, 2] } }, { inner = { k = "f16", sizes = [1] }, tile = 16 }] }\n'
            + 'args = { X = "{c.inner.k}[M, {c.tile}]" }\n'
        )
    )
    assert [each.params for each in found] == [
        (("c", {"inner": {"k": "bf16", "sizes": (1, 2)}, "tile": 8}),),
        (("c", {"inner": {"k": "f16", "sizes": (1,)}, "tile": 16}),),
    ]
    assert [format_argument(each.args[0][1]) for each in found] == ["bf16[M, 8]", "f16[M, 16]"]
    assert [each.name for each in found] == ["build-c-inner-bf16-sizes1x2-tile8", "build-c-inner-f16-sizes1-tile16"]
    for each in found:
        assert decode(Specialization, json.loads(json.dumps(encode(each))), where="x") == each


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            K + "returns = []\nparams = {}\n",
            f'{WHERE}.returns: the list is empty\n    -> name what the factory returns, such as ["fwd", "bwd"]',
        ),
        (K + 'returns = ["a", "a"]\nparams = {}\n', f"{WHERE}.returns: a name stands in the list twice"),
        (K + 'returns = ["a-b"]\nparams = {}\n', f'{WHERE}.returns: "a-b" is not a Python name'),
        (K + 'returns = ["__call__"]\nparams = {}\n', f'{WHERE}.returns: "__call__" is not a Python name'),
        (K + 'returns = "a"\nparams = {}\n', f'{WHERE}.returns: found the string "a"\n    -> write a list of strings'),
        (K + 'return = ["a"]\n', f'{WHERE}.return: unknown key\n    -> Did you mean "returns"?'),
        (
            K + 'returns = ["fwd"]\n',
            f"{WHERE}.returns: there are no `params`, so nothing is called that could return launchers\n    -> add params",
        ),
        (
            K + 'returns = ["fwd"]\nparams = {}\nargs = { X = "f32[M]" }\n',
            (
                f"{WHERE}.args.X: X is not among the returned launchers\n"
                '    -> write a table for each returned launcher: args = { fwd = { X = "f32[M, N]" } }'
            ),
        ),
        (
            K + 'returns = ["fwd"]\nparams = {}\nargs = { fw = { X = "f32[M]" } }\n',
            f'{WHERE}.args.fw: fw is not among the returned launchers\n    -> Did you mean "fwd"?',
        ),
        (
            K + 'returns = ["fwd"]\nparams = {}\nargs = [{}, { fwd = "f32[M]" }]\n',
            f'{WHERE}.args[1].fwd: found the string "f32[M]"\n    -> write a table with the argument types of fwd',
        ),
        (
            K + 'returns = ["fwd"]\nparams = {}\nlauncher = "run"\n',
            f'{WHERE}.launcher: found the string "run"\n    -> write a table by returned name: launcher = {{ fwd = "run" }}',
        ),
        (
            K + 'returns = ["fwd"]\nparams = {}\nlauncher = { fw = "run" }\n',
            f'{WHERE}.launcher.fw: fw is not among what is returned\n    -> Did you mean "fwd"?',
        ),
        (
            K + 'params = {}\nlauncher = { fwd = "run" }\n',
            f'{WHERE}.launcher.fwd: fwd is not among what is returned\n    -> nothing is named by `returns`: write launcher = "run"',
        ),
        (
            K + 'returns = ["fwd"]\nparams = {}\nargs = { fwd = { X = "f33[M]" } }\n',
            f"{WHERE}.args.fwd.X: ",
        ),
        (
            K + (S + "params = { N = 1 }\n") + (S + 'params = { N = 2 }\nreturns = ["fwd"]\n'),
            f"{WHERE}.sets[0].returns: missing, but {WHERE}.sets[1] has it",
        ),
        (
            K + (S + "params = { N = 1 }\n") + (S + 'args = { X = "f32[M]" }\n'),
            f"{WHERE}.sets[1].params: missing, but {WHERE}.sets[0] has it\n    -> the attribute is a factory for all sets, or for none",
        ),
        (
            K + 'returns = ["fwd"]\n' + (S + "params = { N = 1 }\n") + (S + "params = { N = 1 }\n"),
            f"{WHERE}.sets[1]: declares build(N=1) fwd for gfx942, gfx1100, as {WHERE}.sets[0] does",
        ),
    ],
)
def test_faults(read: Read, config_fault: ConfigFault, text: str, message: str) -> None:
    assert message in config_fault(lambda: expand(read(text)))
