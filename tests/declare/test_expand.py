# SPDX-License-Identifier: Apache-2.0
"""Declarations become specializations."""

from __future__ import annotations

import itertools
import json
import time
from typing import TYPE_CHECKING

import pytest

from flydsl_build.codec import decode, encode
from flydsl_build.config import CompileOptions, Settings, extend_with_declarations
from flydsl_build.declare import Specialization, expand, format_argument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Read = Callable[..., Settings]
    ConfigFault = Callable[[Callable[[], object]], str]

K = '[tool.flydsl-build.kernels."m:f"]\n'
WHERE = 'tool.flydsl-build.kernels."m:f"'


def names(specializations: Iterable[Specialization]) -> list[str]:
    return [each.name for each in specializations]


def test_one_launcher(read: Read) -> None:
    (only,) = expand(read(K + 'args = { A = "f32[M, N]", n = "i32" }\nconstexpr = { block = 256 }'))
    assert only.name == "f-block256"
    assert (only.key, only.module, only.attribute, only.where) == ("m:f", "m", "f", WHERE)
    assert only.params is None
    assert only.constexpr == (("block", 256),)
    assert [(name, format_argument(each)) for name, each in only.args] == [("A", "f32[M, N]"), ("n", "i32")]
    assert only.targets == ("gfx942", "gfx1100")
    assert only.options == CompileOptions()
    assert only.axes == ()
    assert decode(Specialization, json.loads(json.dumps(encode(only))), where="x") == only


def test_a_plain_launcher_has_its_own_name(read: Read) -> None:
    assert names(expand(read(K))) == ["f"]


def test_products(read: Read) -> None:
    found = expand(
        read(K + 'params = { N = [1024, 4096], dtype_str = ["f32", "bf16"] }\nargs = { A = "{dtype_str}[M, {N}]", rows = "i32" }')
    )
    assert names(found) == ["f-N1024-f32", "f-N1024-bf16", "f-N4096-f32", "f-N4096-bf16"]
    assert [each.params for each in found][1] == (("N", 1024), ("dtype_str", "bf16"))
    assert [format_argument(each.args[0][1]) for each in found] == ["f32[M, 1024]", "bf16[M, 1024]", "f32[M, 4096]", "bf16[M, 4096]"]


def test_lists_of_tables(read: Read) -> None:
    found = expand(
        read(
            K
            + 'params = [{ N = 1, t = "f32" }, { N = [2, 4], t = "bf16" }]\n'
            + "constexpr = [{ block = [64, 128] }]\n"
            + 'args = [{ A = "{t}[M]" }, { A = "{t}[M, N]" }]\n'
        )
    )
    assert len(found) == 3 * 2 * 2
    assert names(found)[:4] == ["f-N1-f32-block64-args0", "f-N1-f32-block64-args1", "f-N1-f32-block128-args0", "f-N1-f32-block128-args1"]


def test_values_of_every_kind_have_names(read: Read) -> None:
    (found,) = expand(
        read(K + 'constexpr = { causal = true, eps = 0.5, tile = [[16, 16]], neg = -1, path = "a/b", empty = "", odd = "1x" }')
    )
    assert found.name == "f-causal_True-eps0_5-tile16x16-neg-1-a_b-empty_-odd_1x"
    assert found.constexpr[2] == ("tile", (16, 16))
    assert decode(Specialization, json.loads(json.dumps(encode(found))), where="x") == found


def test_nested_arguments_and_braces(read: Read) -> None:
    (found,) = expand(read(K + 'params = { t = "f16" }\nargs.p = { x = "{t}[M]", inner = { q = "ptr<{t}>" } }'))
    assert format_argument(found.args[0][1]) == "{x = f16[M], inner = {q = ptr<f16>}}"


def test_sets_override_the_kernel(read: Read) -> None:
    found = expand(
        read(
            K
            + 'args = { A = "f32[M]" }\nconstexpr = { block = 64 }\noptions = { waves-per-eu = 2, fast-fp-math = true }\n'
            + f'[[{WHERE}.sets]]\nparams = {{ N = [1, 2] }}\narchs = ["gfx950"]\noptions = {{ waves-per-eu = 4 }}\n'
            + f'[[{WHERE}.sets]]\nparams = {{ N = 3 }}\nargs = {{ A = "bf16[M]" }}\nconstexpr = {{ block = 128 }}\n'
        )
    )
    assert names(found) == ["f-N1-block64", "f-N2-block64", "f-N3-block128"]
    assert [each.targets for each in found] == [("gfx950",), ("gfx950",), ("gfx942", "gfx1100")]
    assert [each.options for each in found] == [
        CompileOptions(waves_per_eu=4, fast_fp_math=True),
        CompileOptions(waves_per_eu=4, fast_fp_math=True),
        CompileOptions(waves_per_eu=2, fast_fp_math=True),
    ]
    assert [format_argument(each.args[0][1]) for each in found] == ["f32[M]", "f32[M]", "bf16[M]"]
    assert [each.where for each in found] == [f"{WHERE}.sets[0]", f"{WHERE}.sets[0]", f"{WHERE}.sets[1]"]


def test_options_of_package_kernel_and_target(read: Read) -> None:
    (found,) = expand(
        read(
            'options = { opt-level = 3, llvm-options = { a = 1, b = "x" }, gfx942 = { waves-per-eu = 1 } }\n'
            + K
            + "options = { debug-lines = true, llvm-options = { a = 2 }, gfx942 = { opt-level = 1 }, gfx1100 = { waves-per-eu = [2, 4] } }"
        )
    )
    flat = {"opt-level": 3, "debug-lines": True, "llvm-options": {"a": 2, "b": "x"}}
    assert found.options.for_target("gfx942").to_json() == flat | {"opt-level": 1, "waves-per-eu": 1}
    assert found.options.for_target("gfx1100").to_json() == flat | {"waves-per-eu": [2, 4]}
    assert found.options.for_target("gfx950").to_json() == flat
    assert CompileOptions.from_json(json.loads(json.dumps(found.options.to_json()))) == found.options


def test_axes(read: Read) -> None:
    settings = read(
        '[tool.flydsl-build.axes.nic]\nvalues = ["mlx5", "bnxt"]\n[tool.flydsl-build.axes.size]\nvalues = ["1", "2"]\n'
        + K
        + 'axes = ["nic"]\nargs = { A = "f32[M, {size}]" }\n[tool.flydsl-build.kernels."m:g"]\n'
    )
    found = expand(settings)
    assert names(found) == ["f-mlx5-1", "f-mlx5-2", "f-bnxt-1", "f-bnxt-2", "g"]
    assert found[1].axes == (("nic", "mlx5"), ("size", "2"))


def test_narrower_targets_leave_out(read: Read) -> None:
    text = (
        K
        + f'archs = ["gfx950", "gfx942"]\n[[{WHERE}.sets]]\nparams = {{ N = 1 }}\n'
        + f'[[{WHERE}.sets]]\nparams = {{ N = 2 }}\narchs = ["gfx1201"]\n[tool.flydsl-build.kernels."m:g"]\narchs = ["gfx1201"]'
    )
    settings = read(text, {"archs": "gfx942,gfx950"})
    found = expand(settings)
    assert [(each.name, each.targets) for each in found] == [("f-N1", ("gfx950", "gfx942"))]
    assert settings.skipped == ("m:g",)


def test_long_names_end_in_a_hash(read: Read) -> None:
    found = expand(read(K + f"constexpr = {{ {'x' * 90} = [1, 2] }}"))
    assert all(len(each.name) == 80 for each in found)
    assert len(set(names(found))) == 2
    assert names(found) == names(expand(read(K + f"constexpr = {{ {'x' * 90} = [1, 2] }}")))


def test_names_are_unique_where_files_ignore_case(read: Read) -> None:
    both = '[tool.flydsl-build.kernels."m:{}"]\n[tool.flydsl-build.kernels."m:{}"]\n'
    found = names(expand(read(both.format("F.g", "f_g"))))
    assert [name[:4] for name in found] == ["F_g-", "f_g-"]
    assert found == names(expand(read(both.format("f_g", "F.g"))))[::-1]
    other = expand(read('[tool.flydsl-build.kernels."m:f"]\n[tool.flydsl-build.kernels."n:f"]'))
    assert names(other) == ["f", "f"]


def test_same_values_for_other_targets(read: Read) -> None:
    found = expand(
        read(K + f'[[{WHERE}.sets]]\narchs = ["gfx942"]\noptions = {{ waves-per-eu = 1 }}\n[[{WHERE}.sets]]\narchs = ["gfx1100"]\n')
    )
    assert [name[:2] for name in names(found)] == ["f-", "f-"]
    assert len(set(names(found))) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'args = { A = "f32[M N]" }',
            (
                f'{WHERE}.args.A: expected "]", found "N"\n    -> separate dims with ",", begin strides with ":", end with "]"\n'
                "    | f32[M N]\n    |       ^"
            ),
        ),
        (
            'args = { p = { x = "half" } }',
            f'{WHERE}.args.p.x: unknown dtype "half"\n    -> Did you mean "f16"?\n    | half\n    | ^',
        ),
        (
            'args = [{ A = "f32" }, { A = "f33" }]',
            f'{WHERE}.args[1].A: unknown dtype "f33"\n    -> Did you mean "f32"?\n    | f33\n    | ^',
        ),
        (
            'params = { t = ["half", "f32"], n = [1, 2] }\nargs = { A = "{t}[M]" }',
            f'{WHERE}.args.A: unknown dtype "half"\n    -> Did you mean "f16"?\n    | half[M]\n    | ^\n    | from "{{t}}[M]"',
        ),
        (
            'params = { dtype = "f32", n = [1, 2] }\nargs = { A = "{dtypes}[M]" }',
            f'{WHERE}.args.A: unknown placeholder {{dtypes}}\n    -> Did you mean "dtype"?\n    | {{dtypes}}[M]\n    | ^',
        ),
        (
            'args = { A = "f32[{N}]" }',
            f"{WHERE}.args.A: unknown placeholder {{N}}\n    -> this kernel has no params, constexpr values or axes\n    | f32[{{N}}]\n    |     ^",
        ),
        (
            'params = { N = 1 }\nargs = { A = "f32[{N + 1}]" }',
            f"{WHERE}.args.A: unknown placeholder {{N + 1}}\n    -> a placeholder is a name\n    | f32[{{N + 1}}]\n    |     ^",
        ),
        (
            'args = { A = "f32[{arch}]" }',
            (
                f"{WHERE}.args.A: {{arch}} cannot be in an argument type: it is the same for all targets\n"
                "    -> use a parameter, or one set for each target\n    | f32[{arch}]\n    |     ^"
            ),
        ),
        (
            'params = { N = true }\nargs = { A = "f32[{N}]" }',
            f"{WHERE}.args.A: {{N}} is True\n    -> only strings and integers can be filled in\n    | f32[{{N}}]\n    |     ^",
        ),
        (
            'args = { A = "f32[N}]" }',
            f'{WHERE}.args.A: "}}" has no partner\n    -> write literal braces as {{{{ and }}}}\n    | f32[N}}]\n    |      ^',
        ),
        (
            'args = { A = "f32[{{N}}]" }',
            (
                f'{WHERE}.args.A: expected an extent, found "{{"\n    -> write an integer, "?", a name, or one of the last two with %8\n'
                '    | f32[{N}]\n    |     ^\n    | from "f32[{{N}}]"'
            ),
        ),
        (
            'constexpr = { A = 1 }\nargs = { A = "f32" }',
            f"{WHERE}.constexpr.A: A is also in args\n    -> a parameter is either an argument or constexpr",
        ),
        (
            "constexpr = { A = 1 }\nparams = { A = 1 }",
            f"{WHERE}.constexpr.A: A is also in params\n    -> {{A}} could mean either; rename one",
        ),
        (
            "params = [{ N = [1, 2] }, { N = 2 }]",
            f"{WHERE}: declares f(N=2) twice\n    -> remove one of them, or give them different targets",
        ),
        (
            'args = [{ A = "f32[M, N]" }, { A = "f32[M,N : ?, 1]" }]',
            f"{WHERE}: declares f twice\n    -> remove one of them, or give them different targets",
        ),
        (
            f'[[{WHERE}.sets]]\nconstexpr = {{ n = 1 }}\narchs = ["gfx942"]\n[[{WHERE}.sets]]\nconstexpr = {{ n = 1 }}',
            f"{WHERE}.sets[1]: declares f(n=1) for gfx942, as {WHERE}.sets[0] does\n    -> remove one of them, or give them different targets",
        ),
    ],
)
def test_faults(text: str, message: str, read: Read, config_fault: ConfigFault) -> None:
    settings = read(K + text)
    assert config_fault(lambda: expand(settings)) == message


def test_faults_come_together(read: Read, config_fault: ConfigFault) -> None:
    settings = read(K + 'args = { A = "x", B = "f32[" }\n[tool.flydsl-build.kernels."m:g"]\nargs = { A = "ptr" }')
    assert config_fault(lambda: expand(settings)).splitlines()[0] == "3 faults:"


# Ten times as many take ten times as long, not a hundred times. Processor time, of which this machine's other work takes some.
LINEAR = 30


def test_time_for_ten_thousand_declarations(read: Read) -> None:
    settings = read("allow-empty = true\n")
    tables = {
        f"pkg.mod{n // 100}:build{n}": {"params": {"N": n, "t": "bf16"}, "args": {"A": f"{{t}}[M, N%{2 ** (n % 8)}]", "B": "{t}[M, {N}]"}}
        for n in range(1, 10001)
    }
    seconds = []
    for count in (1000, 10000):
        began = time.process_time()
        found = expand(extend_with_declarations(settings, dict(itertools.islice(tables.items(), count))))
        seconds.append(time.process_time() - began)
        assert len({(each.module, each.name) for each in found}) == count
    assert seconds[1] < LINEAR * seconds[0]


def test_time_for_one_declaration_of_ten_thousand(read: Read) -> None:
    seconds = []
    for count in (10, 100):
        settings: Settings = read(
            K + f"params = {{ a = {list(range(100))}, b = {list(range(1, count + 1))} }}\nargs = {{ A = 'f32[M, {{b}}]' }}"
        )
        began = time.process_time()
        assert len(set(names(expand(settings)))) == 100 * count
        seconds.append(time.process_time() - began)
    assert seconds[1] < LINEAR * seconds[0]


def test_products_of_more_than_can_be_built(read: Read, config_fault: ConfigFault) -> None:
    ten = list(range(10))
    lists = ", ".join(f"{name} = {ten}" for name in "abcdef")
    assert config_fault(lambda: expand(read(K + f"params = {{ {lists} }}\nconstexpr = {{ g = {ten}, h = 1 }}"))) == (
        f"{WHERE}: declares 10,000,000 specializations, the products of 10 values of params.a, 10 values of params.b, 10 values of params.c, "
        "10 values of params.d, 10 values of params.e and 2 more\n"
        "    -> at most 10,000 can be built of one kernel: list the combinations that are needed, as in params = [{ … }, { … }]"
    )
    # Sets have the lists of their kernel.
    sets = "sets = [" + ", ".join(f"{{ params = {{ n = {n} }} }}" for n in range(11)) + "]\n"
    assert config_fault(lambda: expand(read(K + sets + f"constexpr = {{ a = {list(range(1000))} }}"))) == (
        f"{WHERE}: declares 11,000 specializations, the products of 1000 values of constexpr.a\n"
        "    -> at most 10,000 can be built of one kernel: list the combinations that are needed, as in params = [{ … }, { … }]"
    )
    assert len(expand(read(K + f"params = {{ a = {ten}, b = {ten}, c = {ten} }}"))) == 1000


def test_names_of_dims_make_no_difference(read: Read, config_fault: ConfigFault) -> None:
    tables = 'args = [{ A = "f32[M, N]", B = "f32[N]" }, { B = "f32[L]", A = "f32[K, L]" }]'
    assert config_fault(lambda: expand(read(K + tables))) == (
        f"{WHERE}: declares f twice: a call fits B = f32[L], A = f32[K, L] where it fits A = f32[M, N], B = f32[N]\n"
        "    -> remove one of them, or give them different targets"
    )
    # Where a name stands again does.
    assert len(expand(read(K + 'args = [{ A = "f32[M, N]" }, { A = "f32[M, M]" }]'))) == 2
