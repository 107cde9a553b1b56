# SPDX-License-Identifier: Apache-2.0
"""`flydsl-build diff`: resources, sizes, and what came and went."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from calling import Built, change_manifest, changed_wheel

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST = "space/_flydsl_halve/halve.json"
PLACE = {"module": "space.halve", "specialization": "halve", "target": "gfx942", "axes": {}, "index": 0}


def heavier(value: Any) -> None:
    kernel = value["units"][0]["code_objects"]["gfx942"]["kernels"][0]
    kernel.update(vgpr=200, vgpr_spills=3, lds=32768)
    next(one for one in value["provenance"]["tools"] if one["name"] == "lld")["version"] = "99.0"


def renamed(value: Any) -> None:
    value["launchers"][0]["specializations"][0]["name"] = "halve-2"


def other_digest(value: Any) -> None:
    value["units"][0]["code_objects"]["gfx942"]["sha256"] = "0" * 64


def test_equal(call: Any, second: Built) -> None:
    assert call("diff", second.wheel, second.wheel).out == "no difference\n"
    value = json.loads(call("diff", second.wheel, second.wheel, "--json").out)
    size = second.wheel.stat().st_size
    assert value == {
        "size": {"a": size, "b": size},
        "files": [],
        "made_with": {},
        "added": [],
        "removed": [],
        "changed": [],
        "same_resources_other_code": [],
    }


def test_a_tool_that_one_side_has(call: Any, second: Built, tmp_path: Path) -> None:
    def without(value: Any) -> None:
        value["provenance"]["tools"] = [one for one in value["provenance"]["tools"] if one["name"] != "LLVM"]

    other = changed_wheel(second.wheel, tmp_path / "b.whl", {MANIFEST: change_manifest(without)})
    made = json.loads(call("diff", second.wheel, other, "--json").out)["made_with"]
    version = made["LLVM"]["a"]
    assert made == {"LLVM": {"a": version, "b": None}}
    assert f"made with LLVM {version} -> none\n" in call("diff", second.wheel, other).out
    assert f"made with LLVM none -> {version}\n" in call("diff", other, second.wheel).out


def test_changed(call: Any, second: Built, tmp_path: Path) -> None:
    other = changed_wheel(second.wheel, tmp_path / "b.whl", {MANIFEST: change_manifest(heavier)})
    answer = call("diff", second.wheel, other, "--json")
    assert answer.status == 0
    value = json.loads(answer.out)
    (changed,) = value["changed"]
    before = changed["fields"]["vgpr"]["a"]
    assert changed == {
        **PLACE,
        "kernel": "halve_kernel_0",
        "fields": {
            "vgpr": {"a": before, "b": 200},
            "lds": {"a": 0, "b": 32768},
            "vgpr_spills": {"a": 0, "b": 3},
            # Two workgroups of three wavefronts fit into the LDS of the four SIMDs; 200 registers would leave room for two wavefronts.
            "occupancy": {"a": 8, "b": 2},
        },
    }
    assert list(value["made_with"]) == ["lld"]
    assert value["made_with"]["lld"]["b"] == "99.0"
    assert (value["added"], value["removed"]) == ([], [])
    text = call("diff", second.wheel, other).out
    assert "changed   space.halve:halve, gfx942, kernel halve_kernel_0\n" in text
    assert "    LDS bytes          0 -> 32768 (+32768)\n" in text
    assert "    occupancy          8 -> 2 (-6, -75.0 %)\n" in text
    assert f"made with lld {value['made_with']['lld']['a']} -> 99.0\n" in text


def test_added_and_removed(call: Any, second: Built, tiny: Built, tmp_path: Path) -> None:
    other = changed_wheel(second.wheel, tmp_path / "b.whl", {MANIFEST: change_manifest(renamed)})
    value = json.loads(call("diff", second.wheel, other, "--json").out)
    assert value["removed"] == [{**PLACE, "target": target} for target in ("gfx942", "gfx1100")]
    assert value["added"] == [{**PLACE, "specialization": "halve-2", "target": target} for target in ("gfx942", "gfx1100")]
    text = call("diff", second.wheel, tiny.wheel).out
    assert text.splitlines()[0] == "added     tiny_kernels.negate:negate, gfx942"
    assert f"{MANIFEST}: " in text
    assert "-> not there" in text


def test_other_code(call: Any, second: Built, tmp_path: Path) -> None:
    other = changed_wheel(second.wheel, tmp_path / "b.whl", {MANIFEST: change_manifest(other_digest)})
    assert "same resources, other code object: space.halve:halve, gfx942, kernel halve_kernel_0\n" in call("diff", second.wheel, other).out


def test_bad_input(call: Any, second: Built, tmp_path: Path) -> None:
    answer = call("diff", second.wheel, tmp_path / "no.whl")
    assert (answer.status, answer.out, answer.err.splitlines()[0]) == (1, "", f"flydsl-build: {tmp_path / 'no.whl'}: does not exist")
    assert call("diff", second.wheel).status == 2
