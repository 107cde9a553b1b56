# SPDX-License-Identifier: Apache-2.0
"""The manifest of factories: launchers with parameters of their own, several launchers, and what contradicts itself."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from flydsl_build.bundle.manifest import LauncherEntry, Manifest, ManifestError, Returns, manifest_faults
from flydsl_build.codec import EnumMember
from flydsl_build.jobs.launcher import EnumClass, EnumEntry, Parameter

if TYPE_CHECKING:
    from collections.abc import Callable

N = Parameter(name="N", kind="POSITIONAL_OR_KEYWORD", annotation="int", role="constexpr")
EXTRA = Parameter(name="block", kind="KEYWORD_ONLY", annotation=None, role="constexpr", default=64)


def factory(manifest: Manifest) -> Manifest:
    """Return the manifest with its launcher as one of the two that a factory returns, and the other with a parameter more."""
    (entry,) = manifest.launchers
    (run,) = entry.specializations
    one = dataclasses.replace(run, name="build-N1-fwd", params={"N": 1}, element="fwd")
    other = dataclasses.replace(run, name="build-N1-bwd", params={"N": 1}, element="bwd", parameters=(*entry.parameters, EXTRA))
    made = dataclasses.replace(
        entry,
        name="build",
        kind="factory",
        factory_parameters=(N,),
        returns=Returns(form="tuple", names=("fwd", "bwd")),
        specializations=(one, other),
    )
    return dataclasses.replace(manifest, launchers=(made,))


def test_round_trip(manifest: Manifest) -> None:
    made = factory(manifest)
    text = made.to_text()
    assert Manifest.from_text(text, where="two.json") == made
    assert '"returns": {\n    "form": "tuple",\n    "names": [\n     "fwd",\n     "bwd"\n    ]\n   }' in text
    # Parameters are written where they differ.
    assert text.count('"parameters": [') == 2
    (entry,) = made.launchers
    assert [len(entry.parameters_of(one)) for one in entry.specializations] == [4, 5]


def test_members_of_enums(manifest: Manifest) -> None:
    members = (
        EnumEntry(name="READ", value=1),
        EnumEntry(name="WRITE", value=2),
        EnumEntry(name="PUT", alias="WRITE"),
        EnumEntry(name="ODD"),
    )
    kind = EnumClass(bases=("Flag",), doc=None, members=members)
    given = {"N": EnumMember(enum="m:Access", name="READ|WRITE"), "exact": (EnumMember(enum="m:Access", name="READ", is_exact=True),)}
    made = dataclasses.replace(changed(manifest, one={"params": given}), enums={"m:Access": kind})
    text = made.to_text()
    assert Manifest.from_text(text, where="enums.json") == made
    assert '"$enum": "m:Access.READ|WRITE"' in text
    assert '"$member": "m:Access.READ"' in text
    other = dataclasses.replace(kind, members=(*members[:2], EnumEntry(name="PUT", alias="SET")))
    faults = manifest_faults(dataclasses.replace(made, enums={"m:Access": other}), where="x")
    assert [fault.what for fault in faults] == ['"PUT" is another name of "SET", which is not there']
    faults = manifest_faults(dataclasses.replace(made, enums=None), where="x")
    assert [fault.what for fault in faults] == ["m:Access has no member READ", "m:Access has no member READ|WRITE"]


def changed(manifest: Manifest, **changes: Any) -> Manifest:
    """Change fields of the launcher, or (`one`, `other`) of its specializations."""
    (entry,) = factory(manifest).launchers
    parts = [dataclasses.replace(each, **changes.pop(key, {})) for key, each in zip(("one", "other"), entry.specializations, strict=True)]
    return dataclasses.replace(manifest, launchers=(dataclasses.replace(entry, specializations=tuple(parts), **changes),))


@pytest.mark.parametrize(
    ("change", "faults"),
    [
        (
            lambda m: changed(m, one={"element": None}),
            ["launchers[0].specializations[0].element: None is not what the launcher's `returns` names"],
        ),
        (
            lambda m: changed(m, one={"element": "x"}),
            ["launchers[0].specializations[0].element: x is not what the launcher's `returns` names"],
        ),
        (
            lambda m: changed(m, returns=None),
            [
                "launchers[0].specializations[0].element: fwd is not what the launcher's `returns` names",
                "launchers[0].specializations[1].element: bwd is not what the launcher's `returns` names",
            ],
        ),
        (
            lambda m: changed(m, returns=Returns(form="dict", names=("fwd", "bwd", "fwd"))),
            ['launchers[0].returns: two launchers have the name "fwd"'],
        ),
        (
            lambda m: changed(m, other={"element": "fwd"}),
            ["launchers[0].specializations[1].parameters: differ from those of another specialization of the same factory parameters"],
        ),
        (
            lambda m: changed(m, other={"parameters": (EXTRA,)}),
            [
                (
                    "launchers[0].specializations[1].arguments: does not have exactly the launcher's parameters that are passed: "
                    "A, B, n, stream"
                )
            ],
        ),
        (
            lambda m: changed(m, other={"parameters": (*factory(m).launchers[0].parameters, EXTRA, EXTRA)}),
            ['launchers[0].specializations[1].parameters: two parameters have the name "block"'],
        ),
        (
            lambda m: changed(m, one={"values": {"gfx942": {"tile": 1}}}),
            [
                "launchers[0].specializations[0].values: does not have exactly the targets of the specialization",
                "launchers[0].specializations[0].values.gfx942: tile is not what the launcher's `returns` names",
            ],
        ),
        (
            lambda m: changed(
                m, kind="launcher", factory_parameters=None, returns=None, one={"element": None}, other={"element": None, "params": {}}
            ),
            ["launchers[0].specializations[1].parameters: only the launchers of a factory have parameters of their own"],
        ),
    ],
)
def test_contradictions(manifest: Manifest, change: Callable[[Manifest], Manifest], faults: list[str]) -> None:
    assert [str(fault) for fault in manifest_faults(change(manifest), where="x")] == [f"x: {fault}" for fault in faults]


def test_plain_values(manifest: Manifest) -> None:
    def with_values(**second: Any) -> Manifest:
        values = {"tile": (64, 128), "list": {"list": (1, None)}, "dtype": {"dtype": "bf16"}}
        targets = manifest.targets
        one, other = ({"values": {target: {**values, **more} for target in targets}} for more in ({}, second))
        changes = {"returns": Returns(form="tuple", names=("fwd", "bwd", *values)), "one": one, "other": other}
        return dataclasses.replace(changed(manifest, **changes), classes={"Tile": (N, EXTRA)})

    made = with_values()
    assert Manifest.from_text(made.to_text(), where="two.json") == made
    assert [str(fault) for fault in manifest_faults(with_values(tile=3), where="x")] == [
        f"x: launchers[0].specializations[1].values.{target}: differ from those of another specialization of the same factory parameters"
        for target in manifest.targets
    ]


def test_an_unknown_form(manifest: Manifest) -> None:
    text = factory(manifest).to_text().replace('"form": "tuple"', '"form": "list"')
    with pytest.raises(ManifestError, match=r'launchers\[0\]\.returns\.form: is "list"'):
        Manifest.from_text(text, where="x")


def test_a_launcher_as_it_was(manifest: Manifest) -> None:
    (entry,) = manifest.launchers
    assert isinstance(entry, LauncherEntry)
    assert '"element"' not in manifest.to_text()
    assert '"returns"' not in manifest.to_text()
