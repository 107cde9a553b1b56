# SPDX-License-Identifier: Apache-2.0
"""The manifest: its exact text, and faults that name the file and the place."""

from __future__ import annotations

import copy
import dataclasses
import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flydsl_build.bundle.manifest import (
    SCHEMA,
    Axis,
    Bitcode,
    DeviceGlobal,
    Manifest,
    ManifestError,
    manifest_faults,
    read_manifest,
)
from flydsl_build.codec import DecodeError, decode, encode
from flydsl_build.declare.argument_types import ArgumentType, Dim, PointerType, ScalarType, StreamType, StructType, TensorType
from flydsl_build.jobs.job import Tool
from flydsl_build.jobs.launcher import Parameter, Slot

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

# One specialization of the text, key by key; the digests are not repeated here.
SPECIALIZATION = {
    "name": "run",
    "constexpr": {},
    "params": {},
    "targets": ["gfx942", "gfx1100"],
    "arguments": {
        "A": {"kind": "tensor", "dtype": "f32", "shape": ["M", "N%8"], "strides": ["?", 1], "align": 4, "stride_bits": 64},
        "B": {"kind": "tensor", "dtype": "f32", "shape": ["M", "N%8"], "strides": ["?", 1], "align": 4, "stride_bits": 64},
        "n": {"kind": "scalar", "dtype": "i32"},
        "stream": {"kind": "stream"},
    },
    "slots": [
        {"argument": "A", "kind": "data", "size": 8, "align": 8},
        {
            "argument": "A",
            "kind": "layout",
            "size": 16,
            "align": 1,
            "shape_dims": [0, 1],
            "stride_dims": [0],
            "shape_bits": 32,
            "stride_bits": 64,
        },
        {"argument": "B", "kind": "data", "size": 8, "align": 8},
        {
            "argument": "B",
            "kind": "layout",
            "size": 16,
            "align": 1,
            "shape_dims": [0, 1],
            "stride_dims": [0],
            "shape_bits": 32,
            "stride_bits": 64,
        },
        {"argument": "n", "kind": "scalar", "size": 4, "align": 4},
        {"argument": "stream", "kind": "stream", "size": 8, "align": 8},
    ],
    "entries": {
        "gfx1100": {"main": {"entry": "fdb_add", "kernels": [0, 1]}},
        "gfx942": {"main": {"entry": "fdb_add", "kernels": [0, 1]}},
    },
    "options": {},
    "source": {"file": "example_pkg/two.py", "line": 12},
}


def test_text(manifest: Manifest) -> None:
    text = manifest.to_text()
    value = json.loads(text)
    assert list(value) == ["schema", "module", "distribution", "load", "targets", "axes", "library", "units", "launchers", "provenance"]
    assert value["schema"] == SCHEMA == 2
    assert json.dumps(value["launchers"][0]["specializations"][0]) == json.dumps(SPECIALIZATION)
    assert value["launchers"][0]["parameters"] == [
        {"name": "A", "kind": "POSITIONAL_OR_KEYWORD", "annotation": "fx.Tensor", "role": "tensor"},
        {"name": "B", "kind": "POSITIONAL_OR_KEYWORD", "annotation": "fx.Tensor", "role": "tensor"},
        {"name": "n", "kind": "POSITIONAL_OR_KEYWORD", "annotation": "fx.Int32", "role": "scalar"},
        {"name": "stream", "kind": "POSITIONAL_OR_KEYWORD", "annotation": "fx.Stream", "role": "stream", "default": None},
    ]
    assert list(value["units"][0]) == ["name", "axes", "bundle", "init", "globals", "code_objects"]
    assert value["units"][0]["code_objects"]["gfx942"]["kernels"][1] == {
        "symbol": "double_1",
        "kernarg_size": 28,
        "code_size": 84,
        "lds": 0,
        "private": 0,
        "vgpr": 3,
        "agpr": 0,
        "sgpr": 10,
        "vgpr_spills": 0,
        "sgpr_spills": 0,
        "wavefront": 64,
        "max_workgroup": 64,
        "reqd_workgroup": [64, 1, 1],
        "args": [{"offset": 0, "size": 8}, {"offset": 8, "size": 16}, {"offset": 24, "size": 4}],
    }
    assert text.startswith('{\n "schema": 2,\n "module": "example_pkg.two",\n "distribution": {\n  "name"')
    assert text.endswith("\n}\n")
    assert text.isascii()


def test_round_trip(manifest: Manifest) -> None:
    text = manifest.to_text()
    read = Manifest.from_text(text, where="two.json")
    assert read == manifest
    assert read.to_text() == text


def everything(manifest: Manifest) -> Manifest:
    """Return a manifest that uses what the simple one does not."""
    (launcher,) = manifest.launchers
    (run,) = launcher.specializations
    run = dataclasses.replace(
        run,
        name="make_run-8",
        params={"n": 8, "names": ("a", ("b", None)), "eps": 1e-6},
        constexpr={"fast": True},
        options={"waves_per_eu": 2},
        source=None,
        arguments={
            **run.arguments,
            "n": StructType(name="Params", fields=(("z", ScalarType(dtype="f16")), ("a", PointerType(dtype="f32", alignment=4)))),
        },
        slots=(
            *run.slots[:4],
            Slot(argument="n", field="z", kind="scalar", size=2, align=2),
            Slot(argument=None, kind="stream", size=8, align=8),
        ),
    )
    parameters = (*launcher.parameters, Parameter(name="fast", kind="KEYWORD_ONLY", annotation=None, role="constexpr", default=(1, 2)))
    made = (Parameter(name="n", kind="POSITIONAL_OR_KEYWORD", annotation="int", role="constexpr"),)
    launcher = dataclasses.replace(
        launcher,
        name="make_run",
        kind="factory",
        doc='quotes " \\ and ünïcode \U0001f600',
        parameters=parameters,
        factory_parameters=made,
        specializations=(run,),
    )
    unit = dataclasses.replace(
        manifest.units[0], axes={"nic": "mlx5"}, init=("example_pkg.state:Class.init",), globals=(DeviceGlobal(name="factor", size=8),)
    )
    bitcode = Bitcode(file="lib/shmem.bc", sha256="a" * 64, size=1000, code_object_version=6, targets=("gfx942",))
    return dataclasses.replace(
        manifest,
        load="lazy",
        axes={"nic": Axis(values=("mlx5", "bnxt"), select="example_pkg.state:nic")},
        units=(unit,),
        launchers=(launcher,),
        provenance=dataclasses.replace(manifest.provenance, bitcode=(bitcode,)),
    )


def test_round_trip_of_everything(manifest: Manifest) -> None:
    full = everything(manifest)
    assert Manifest.from_text(full.to_text(), where="two.json") == full


def test_order_of_maps_does_not_matter(manifest: Manifest) -> None:
    (unit,) = manifest.units
    turned = dataclasses.replace(unit, code_objects=dict(reversed(unit.code_objects.items())))
    assert dataclasses.replace(manifest, units=(turned,)).to_text() == manifest.to_text()


def test_struct_fields_keep_their_order() -> None:
    value = {"kind": "struct", "type": "Params", "fields": {"z": {"kind": "scalar", "dtype": "i8"}, "a": {"kind": "stream"}}}
    argument = decode(ArgumentType, value, where="x")
    assert argument == StructType(name="Params", fields=(("z", ScalarType(dtype="i8")), ("a", StreamType())))
    assert list(encode(argument)["fields"]) == ["z", "a"]


def test_dims() -> None:
    value = {
        "kind": "tensor",
        "dtype": "bf16",
        "shape": [1, "?", "?%16", "M", "M%2"],
        "strides": [0, 1, 2, 3, 4],
        "align": 16,
        "stride_bits": 32,
    }
    argument = decode(ArgumentType, value, where="x")
    shape = (Dim(size=1), Dim(), Dim(divisor=16), Dim(name="M"), Dim(name="M", divisor=2))
    assert argument == TensorType(dtype="bf16", shape=shape, strides=tuple(Dim(size=n) for n in range(5)), alignment=16, stride_bits=32)
    assert encode(argument) == value


def change(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Return a function that sets the value at a path of keys and indexes; `...` deletes it."""
    keys: list[Any] = [int(key) if key.isdigit() else key for key in path.split("/")]

    def do(document: Any) -> None:
        for key in keys[:-1]:
            document = document[key]
        if value is ...:
            del document[keys[-1]]
        else:
            document[keys[-1]] = value

    return do


RUN = "launchers/0/specializations/0"
TENSOR = f"{RUN}/arguments/A"
WHERE_A = "launchers[0].specializations[0].arguments.A"


@pytest.mark.parametrize(
    ("path", "value", "faults"),
    [
        ("schema", 3, ["two.json: schema: is 3, this version of flydsl-build reads manifests of schema 2"]),
        ("schema", 1, ["two.json: schema: is 1, this version of flydsl-build reads manifests of schema 2"]),
        ("schema", "1", ["two.json: schema: is not a version number, so the file is not a manifest"]),
        ("schema", ..., ["two.json: schema: is not a version number, so the file is not a manifest"]),
        ("modul", "x", ["two.json: modul: is not a known key"]),
        ("module", ..., ["two.json: module: is missing"]),
        ("module", 5, ["two.json: module: is 5, not text"]),
        ("load", "eager", ['two.json: load: is "eager"']),
        ("library/sha256", "XY", ['two.json: library.sha256: is "XY", not a SHA-256 digest in hexadecimal']),
        ("library/file", "../two.so", ['two.json: library.file: is "../two.so", not the name of a file beside the manifest']),
        ("units/0/bundle", "a/b.hipfb", ['two.json: units[0].bundle: is "a/b.hipfb", not the name of a file beside the manifest']),
        ("units/0/code_objects/gfx942/size", -1, ["two.json: units[0].code_objects.gfx942.size: is -1, not a count"]),
        ("units/0/code_objects/gfx942/size", True, ["two.json: units[0].code_objects.gfx942.size: is true, not a count"]),
        ("units/0/code_objects/gfx942/kernels", {}, ["two.json: units[0].code_objects.gfx942.kernels: is {}, not an array"]),
        (
            "units/0/code_objects/gfx942/kernels/0/reqd_workgroup",
            [1],
            ["two.json: units[0].code_objects.gfx942.kernels[0].reqd_workgroup: is [1], not an array of 3"],
        ),
        ("units/0/init", ["init"], ['two.json: units[0].init: "init" is not of the form module:qualname']),
        ("units/0/axes", {"nic": "x"}, ['two.json: units[0].axes: there is no axis "nic"']),
        ("targets", ["gfx942", "gfx942", "gfx1100"], ['two.json: targets: two targets have the name "gfx942"']),
        (
            "provenance/sources",
            {"/abs/two.py": "0" * 64},
            ['two.json: provenance.sources (key): is "/abs/two.py", not a relative path with forward slashes'],
        ),
        (
            f"{RUN}/source/file",
            "a/../b.py",
            ['two.json: launchers[0].specializations[0].source.file: is "a/../b.py", not a relative path with forward slashes'],
        ),
        (
            f"{RUN}/entries/gfx942",
            {"other": {"entry": "fdb_add", "kernels": [0]}},
            ['two.json: launchers[0].specializations[0].entries.gfx942: there is no unit "other"'],
        ),
        (
            f"{RUN}/entries/gfx942/main/kernels",
            [2],
            ["two.json: launchers[0].specializations[0].entries.gfx942.main.kernels: the code object has 2 kernels"],
        ),
        (
            f"{RUN}/entries/gfx942",
            ...,
            ["two.json: launchers[0].specializations[0].entries: does not have exactly the targets of the specialization"],
        ),
        (
            f"{RUN}/arguments/n",
            ...,
            [
                "two.json: launchers[0].specializations[0].arguments: does not have exactly the launcher's parameters that are passed: n",
                'two.json: launchers[0].specializations[0].slots[4].argument: "n" is not an argument',
            ],
        ),
        (
            f"{RUN}/slots/0/shape_dims",
            [0],
            ["two.json: launchers[0].specializations[0].slots[0]: has shape and stride dims and bits if, and only if, its kind is layout"],
        ),
        (f"{TENSOR}/kind", "tensr", ['two.json: launchers[0].specializations[0].arguments.A.kind: is "tensr"']),
        (f"{TENSOR}/shape", ["M"], ["two.json: launchers[0].specializations[0].arguments.A: has 1 extents and 2 strides"]),
        (
            f"{TENSOR}/shape/0",
            "M%3",
            [f'two.json: {WHERE_A}.shape[0]: is "M%3", not a dim: ?, a name, or one of them with % and a power of two'],
        ),
        (f"{TENSOR}/shape/0", -5, ["two.json: launchers[0].specializations[0].arguments.A.shape[0]: is -5, not a count"]),
        ("launchers/0/kind", "factory", ["two.json: launchers[0]: has factory_parameters if, and only if, its kind is factory"]),
        ("launchers/0/specializations", [], ["two.json: launchers[0]: has no specialization"]),
    ],
)
def test_faults(manifest: Manifest, path: str, value: object, faults: list[str]) -> None:
    document = json.loads(manifest.to_text())
    change(path, value)(document)
    with pytest.raises(ManifestError) as caught:
        Manifest.from_text(json.dumps(document), where="two.json")
    assert [f"{fault.where}: {fault.what}" for fault in caught.value.faults] == faults


def test_all_faults_come_together(manifest: Manifest) -> None:
    document = json.loads(manifest.to_text())
    for path, value in [("load", "x"), ("library/size", "y"), (f"{TENSOR}/dtype", 5)]:
        change(path, value)(document)
    with pytest.raises(ManifestError) as caught:
        Manifest.from_text(json.dumps(document), where="two.json")
    assert len(caught.value.faults) == 3


def test_unknown_keys_suggest_the_nearest(manifest: Manifest) -> None:
    document = json.loads(manifest.to_text())
    document["units"][0]["bundel"] = "x"
    with pytest.raises(ManifestError, match=r'units\[0\].bundel: is not a known key\n    -> Did you mean "bundle"\?'):
        Manifest.from_text(json.dumps(document), where="two.json")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "two.json:1:1: is not JSON: Expecting value"),
        (b"[]", "two.json: is not a JSON object, so it is not a manifest"),
        (b'{"a": 1, "b": 2, "a": 3}', 'two.json: the key "a" stands twice in one object'),
        (b'{"schema": NaN}', "two.json: is not JSON that can be read: NaN is not JSON"),
        (b"\xff\xfe", "two.json: is not UTF-8 text"),
        (b"[" * 100_000, "two.json: is not JSON that can be read"),
        (b'{"schema": ' + b"9" * 5000 + b"}", "two.json: is not JSON that can be read"),
    ],
)
def test_not_json(text: bytes, message: str) -> None:
    with pytest.raises(ManifestError) as caught:
        Manifest.from_text(text, where="two.json")
    assert str(caught.value).startswith(message)


def test_deep_nesting_is_a_fault() -> None:
    value: dict[str, Any] = {"kind": "stream"}
    for _ in range(100):
        value = {"kind": "struct", "type": "S", "fields": {"f": value}}
    with pytest.raises(DecodeError, match="is nested more than 32 deep"):
        decode(ArgumentType, value, where="x")


def test_every_prefix_and_changed_characters(manifest: Manifest) -> None:
    text = manifest.to_text()
    for end in range(0, len(text) - 1, 7):
        with pytest.raises(ManifestError):
            Manifest.from_text(text[:end], where="two.json")


@given(at=st.integers(0, 1 << 16), character=st.characters())
@settings(max_examples=200, deadline=None)
def test_changed_characters(manifest: Manifest, at: int, character: str) -> None:
    text = manifest.to_text()
    at %= len(text)
    try:
        Manifest.from_text(text[:at] + character + text[at + 1 :], where="two.json")
    except ManifestError as error:
        places = [fault.where for fault in error.faults]
    else:
        places = []
    assert all(place.startswith("two.json") for place in places)


def paths(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(path for key, item in children for path in paths(item, (*at, key)))]


@pytest.mark.parametrize("junk", [None, True, -1, 1 << 70, 1.5, "x", [], {}, [[]], {"a": 1}])
def test_any_value_anywhere(manifest: Manifest, junk: object) -> None:
    """Put a wrong value at every place: the reader either takes it or raises its own error."""
    document = json.loads(manifest.to_text())
    for path in paths(document)[1:]:
        changed = copy.deepcopy(document)
        place = changed
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = junk
        try:
            Manifest.from_text(json.dumps(changed), where="two.json")
        except ManifestError:
            continue


def test_absolute_paths_are_not_written(manifest: Manifest) -> None:
    for provenance in [
        dataclasses.replace(manifest.provenance, tools=(Tool(name="/usr/lib/llvm/bin/ld.lld", version="1"),)),
        dataclasses.replace(manifest.provenance, sources={"/root/two.py": "0" * 64}),
    ]:
        with pytest.raises(ManifestError, match="absolute path"):
            dataclasses.replace(manifest, provenance=provenance).to_text()


def test_a_docstring_may_speak_of_paths(manifest: Manifest) -> None:
    (launcher,) = manifest.launchers
    launcher = dataclasses.replace(launcher, doc="/opt/rocm/lib is not needed.")
    assert "/opt/rocm/lib" in dataclasses.replace(manifest, launchers=(launcher,)).to_text()


@pytest.mark.parametrize(("value", "text"), [(float("nan"), "nan"), (float("inf"), "inf"), (float("-inf"), "-inf")])
def test_numbers_that_json_has_no_form_for(manifest: Manifest, value: float, text: str) -> None:
    (launcher,) = manifest.launchers
    run = dataclasses.replace(launcher.specializations[0], params={"eps": value, "pair": (1.0, {"low": value})})
    manifest = dataclasses.replace(manifest, launchers=(dataclasses.replace(launcher, specializations=(run,)),))
    written = manifest.to_text()
    spelled = {"$float": text}
    assert json.loads(written)["launchers"][0]["specializations"][0]["params"] == {"eps": spelled, "pair": [1.0, {"low": spelled}]}
    read = Manifest.from_text(written, where="two.json")
    assert repr(read.launchers[0].specializations[0].params) == repr(run.params)
    wrong = written.replace(f'"$float": "{text}"', '"$float": "many"')
    with pytest.raises(ManifestError, match=r'params.eps."\$float": is "many"'):
        Manifest.from_text(wrong, where="two.json")


def test_contradictions_are_not_written(manifest: Manifest) -> None:
    with pytest.raises(ManifestError, match="is not among the targets"):
        dataclasses.replace(manifest, targets=("gfx942",)).to_text()


def test_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"^two.json: cannot be read: No such file"):
        read_manifest(tmp_path / "two.json")


def test_slots() -> None:
    slot = Slot(argument="n", kind="scalar", size=4, align=4)
    assert decode(Slot, {"argument": "n", "kind": "scalar", "size": 4, "align": 4}, where="x") == slot
    with pytest.raises(DecodeError, match="x: align: is missing"):
        decode(Slot, {"argument": "n", "kind": "scalar", "size": 4}, where="x")


def test_calls_of_too_many_arguments(manifest: Manifest) -> None:
    """What the run time would refuse at the first call is not built."""
    launcher = manifest.launchers[0]
    (specialization,) = launcher.specializations
    many = StructType(name="Many", fields=tuple((f"x{n}", ScalarType(dtype="i32")) for n in range(513)))
    arguments = {**specialization.arguments, "n": many}
    slots = tuple(
        dataclasses.replace(specialization.slots[0], size=64 * 1024) if n == 0 else slot for n, slot in enumerate(specialization.slots)
    )
    changed = dataclasses.replace(launcher, specializations=(dataclasses.replace(specialization, arguments=arguments, slots=slots),))
    faults = manifest_faults(dataclasses.replace(manifest, launchers=(changed,)), where="two.json")
    place = "two.json: launchers[0].specializations[0]"
    assert [str(fault) for fault in faults] == [
        f"{place}.arguments: a call passes 516 values by 4 parameters, the run time 512",
        f"{place}.slots: the packed arguments have 65616 bytes, the run time passes 65504",
    ]
