# SPDX-License-Identifier: Apache-2.0
"""Modules of ops: golden files, the types of arguments, and names. Whole ones run in `tests/backend/test_torch_ops.py`."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from test_stub_rendering import GOLDEN, TENSOR, elementwise, launcher, module, parameter, specialization

from flydsl_build.bundle.manifest import Returns
from flydsl_build.consumers.templates import StubError
from flydsl_build.consumers.torch.render import render_torch_ops
from flydsl_build.declare.argument_types import PointerType, ScalarType, StreamType, StructType

if TYPE_CHECKING:
    from flydsl_build.bundle.manifest import LauncherEntry, Manifest, SpecializationEntry
    from flydsl_build.consumers.torch.render import TorchOps
    from flydsl_build.jobs.launcher import Parameter


def render(*launchers: LauncherEntry) -> TorchOps:
    return rendered(module("example_pkg.x", *launchers))


def rendered(manifest: Manifest) -> TorchOps:
    return render_torch_ops(manifest, namespace=manifest.module.replace(".", "_"), runtime_package="example_pkg._flydsl.runtime")


def writes(entry: LauncherEntry, *names: str) -> LauncherEntry:
    return replace(entry, specializations=tuple(replace(one, out=names) for one in entry.specializations))


def schemas(ops: TorchOps) -> list[str]:
    return [line.partition('_name, "')[2].partition('", (')[0] for line in ops.source.splitlines() if "_ops.define(" in line]


def of_values(*values: Any) -> LauncherEntry:
    """Return a launcher with a constexpr parameter."""
    made = (specialization(f"f{n}", {"X": TENSOR}, {"value": value}) for n, value in enumerate(values))
    return writes(launcher("f", (parameter("X"), parameter("value", "constexpr")), *made), "X")


def test_golden_files() -> None:
    """To make them anew after a change that is meant: FLYDSL_BUILD_GOLDEN=write, then read the diff."""
    plain = elementwise()
    add, axpy = plain.launchers
    scale = specialization("scale-N8", {"A": TENSOR, "stream": StreamType()}, params={"N": 8, "lanes": 64})
    made = launcher(
        "build_scale", (parameter("A"), parameter("stream", "stream", default=None)), scale, replace(scale, name="s2", params={"N": 9})
    )
    factory = replace(
        writes(made, "A"),
        kind="factory",
        factory_parameters=(parameter("N", "constexpr"), parameter("lanes", "constexpr", "KEYWORD_ONLY", default=None)),
    )
    ops = rendered(replace(plain, launchers=(writes(add, "C"), writes(axpy, "Y"), factory)))
    assert ops.left_out == ()
    for text, suffix in ((ops.source, "py"), (ops.interface, "pyi")):
        path = GOLDEN / f"elementwise_torch.{suffix}.txt"
        if os.environ.get("FLYDSL_BUILD_GOLDEN") == "write":
            path.write_text(text, encoding="utf-8")
        assert text.encode() == path.read_bytes()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((1, 2), "int"),
        ((1, 2.5), "float"),
        ((True,), "bool"),
        (("a", "b"), "str"),
        ((None, 3), "int?"),
        (("a", None), "str?"),
        (((1, 2), (3,)), "int[]"),
    ],
)
def test_types_of_values(values: tuple[Any, ...], expected: str) -> None:
    assert schemas(render(of_values(*values))) == [f"(Tensor(a0!) X, {expected} value) -> ()"]


@pytest.mark.parametrize("values", [(1, "a"), (True, 1), ((1, "a"),), ((1,), None), (None,)])
def test_values_without_a_type(values: tuple[Any, ...]) -> None:
    ops = render(of_values(*values))
    shown = ", ".join(map(repr, values))
    assert ops.left_out == (f"f: value has values for which an op of torch has no type: {shown}",)
    assert "__all__ = [\n]" in ops.source
    assert "_make_f" not in ops.source


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([TENSOR, PointerType(dtype="f32", alignment=4)], "Tensor"),
        ([ScalarType(dtype="u64"), ScalarType(dtype="i8")], "SymInt"),
        ([ScalarType(dtype="bf16")], "float"),
        ([ScalarType(dtype="bool")], "bool"),
        ([ScalarType(dtype="f32"), ScalarType(dtype="i32")], "Scalar"),
        ([TENSOR, ScalarType(dtype="i32")], "A is of several kinds: SymInt, Tensor"),
        ([StructType(name="P", fields=())], "A is a struct, for which an op of torch has no type"),
    ],
)
def test_types_of_arguments(arguments: list[Any], expected: str) -> None:
    ops = render(launcher("f", (parameter("A"),), *(specialization(f"f{n}", {"A": one}) for n, one in enumerate(arguments))))
    assert [*(text.partition(" A)")[0][1:] for text in schemas(ops)), *(text.removeprefix("f: ") for text in ops.left_out)] == [expected]


def test_what_is_left_to_its_default() -> None:
    parameters = (parameter("X"), parameter("f", "constexpr", default=None), parameter("n", "scalar", default=3))
    arguments = {"X": TENSOR, "n": ScalarType(dtype="i32")}
    one, other = specialization("f0", arguments), specialization("f1", arguments, {"f": 1})
    ops = render(launcher("f", parameters, one))
    assert schemas(ops) == ["(Tensor X, SymInt n) -> ()"]
    assert "_launch(X, n=n)" in ops.source
    assert "def f(X, n=3):" in ops.source
    assert "_ops.refuse_stream(_name, X)" in ops.source
    assert render(launcher("f", parameters, one, other)).left_out == (
        "f: f is left to its default in some specializations, and has values in others",
    )


def test_names_that_torch_does_not_take() -> None:
    names = ("größe", "mode", "self", "gr__e")
    arguments = dict.fromkeys(names, TENSOR)
    entry = launcher("name", tuple(map(parameter, names)), specialization("f", arguments))
    ops = render(entry)
    assert schemas(ops) == ["(Tensor gr__e_, Tensor mode_, Tensor self_, Tensor gr__e) -> ()"]
    assert "def name(größe, mode, self, gr__e):" in ops.source
    assert 'name = _make_name(_kernels.name, "op_name")' in ops.source


def test_names_that_the_module_uses() -> None:
    for entry in (
        launcher("f", (parameter("_launch"),), specialization("f", {"_launch": TENSOR})),
        launcher("_made_f", (parameter("A"),), specialization("f", {"A": TENSOR})),
    ):
        with pytest.raises(StubError) as caught:
            render(entry)
        (fault,) = caught.value.faults
        assert (fault.where, fault.what, fault.fix) == (
            f"example_pkg.x:{entry.name}",
            f"the name {'_launch' if entry.name == 'f' else '_made_f'} is taken by the module of torch-ops",
            "rename it",
        )


def make(form: Any, elements: list[tuple[str, dict[str, Any]]], own: tuple[Parameter, ...]) -> LauncherEntry:
    members: list[SpecializationEntry] = [
        replace(specialization(f"s{n}", {"A": TENSOR}, params=params), element=element) for n, (element, params) in enumerate(elements)
    ]
    names = tuple(dict.fromkeys(element for element, _ in elements))
    return replace(
        launcher("build", (parameter("A"),), *members), kind="factory", factory_parameters=own, returns=Returns(form=form, names=names)
    )


def test_op_names_do_not_meet() -> None:
    own = (parameter("N", "constexpr"),)
    ops = render(
        launcher("build_N1_fwd", (parameter("A"),), specialization("f", {"A": TENSOR})),
        make("dict", [("fwd", {"N": 1})], own),
    )
    assert '_make_build_N1_fwd(_kernels.build_N1_fwd, "build_N1_fwd")' in ops.source
    assert '_make_build_fwd(_made["fwd"], "build_N1_fwd_2")' in ops.source


def test_a_factory_that_takes_any_parameters() -> None:
    own = (parameter("N", "constexpr"), parameter("more", "constexpr", "VAR_KEYWORD"))
    ops = render(make("tuple", [("fwd", {"N": 1, "block": 2})], own))
    assert "_made = _kernels.build(1, block=2)\n_ops.remember(_made, (_make_build_fwd(_made[0]" in ops.source
    assert "def build(N, **more):" in ops.source
    assert "return _ops.recall(_kernels.build(N, **more))" in ops.source
    assert ".get(" not in ops.source


def test_launchers_of_one_factory_with_different_parameters() -> None:
    own = (parameter("N", "constexpr"),)
    entry = make("tuple", [("fwd", {"N": 1}), ("fwd", {"N": 2})], own)
    one, other = entry.specializations
    other = replace(other, parameters=(parameter("A"), parameter("B")), arguments={"A": TENSOR, "B": TENSOR})
    ops = render(replace(entry, specializations=(one, other)))
    assert schemas(ops) == ["(Tensor A) -> ()", "(Tensor A, Tensor B) -> ()"]
    assert "def build(N: int) -> tuple[_Callable[..., None], ...]:" in ops.interface
