# SPDX-License-Identifier: Apache-2.0
"""What launchers write: `out` of kernels and sets, by returned launcher, and what `torch-ops` asks for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from flydsl_build.codec import decode, encode
from flydsl_build.declare import Specialization, expand

if TYPE_CHECKING:
    from collections.abc import Callable

    from flydsl_build.config import Settings

    Read = Callable[..., Settings]
    ConfigFault = Callable[[Callable[[], object]], str]

K = '[tool.flydsl-build.kernels."m:build"]\n'
S = '[[tool.flydsl-build.kernels."m:build".sets]]\n'
WHERE = 'tool.flydsl-build.kernels."m:build"'
MISSING = ".out: missing: an op of torch-ops says which arguments are written"
PAIR = K + 'params = {}\nreturns = ["fwd", "bwd"]\n'


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        (K, [None]),
        (K + "out = []\n", [()]),
        (K + 'out = ["C", "D", "C"]\n', [("C", "D")]),
        (PAIR + 'out = { bwd = ["dX"], fwd = [] }\n', [(), ("dX",)]),
        (PAIR + 'out = { bwd = ["dX"] }\n', [None, ("dX",)]),
        (K + 'out = ["A"]\n' + S + "params = { N = 1 }\n" + S + 'params = { N = 2 }\nout = ["A", "B"]\n', [("A",), ("A", "B")]),
    ],
)
def test_what_is_written(read: Read, table: str, expected: list[tuple[str, ...] | None]) -> None:
    found = expand(read(table))
    assert [each.out for each in found] == expected
    for each in found:
        assert decode(Specialization, json.loads(json.dumps(encode(each))), where="x") == each


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (K + 'out = "C"\n', f'{WHERE}.out: found the string "C"\n    -> write a list of strings'),
        (K + "out = { fwd = 1 }\n", f"{WHERE}.out.fwd: found the integer 1\n    -> write a list of strings"),
        (
            K + 'out = { fwd = ["X"] }\n',
            f'{WHERE}.out.fwd: there are no `returns`, so there is one launcher\n    -> write a list: out = ["C"]',
        ),
        (PAIR + 'out = { fw = ["X"] }\n', f'{WHERE}.out.fw: fw is not among the returned launchers\n    -> Did you mean "fwd"?'),
        (
            PAIR + 'out = ["X"]\n',
            f"{WHERE}.out: found a list\n    -> write a list for each returned launcher: out = {{ fwd = […], bwd = […] }}",
        ),
        (
            "torch-ops = true\n" + PAIR + 'out = { fwd = ["X"] }\n',
            f"{WHERE}{MISSING} by bwd\n    -> add out = {{ fwd = […], bwd = […] }} with the names of the tensors and pointers that are written; [] for none",
        ),
        # One fault for what all sets have from their kernel.
        (
            "torch-ops = true\n" + K + S + "params = { N = 1 }\n" + S + "params = { N = 2 }\n",
            f'{WHERE}{MISSING}\n    -> add out = ["C"] with the names of the tensors and pointers that are written; [] for none',
        ),
        ("torch-ops = 1\n" + K, "tool.flydsl-build.torch-ops: found the integer 1\n    -> write true or false"),
    ],
)
def test_faults(read: Read, config_fault: ConfigFault, table: str, message: str) -> None:
    assert config_fault(lambda: expand(read(table))) == message
