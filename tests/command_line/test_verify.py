# SPDX-License-Identifier: Apache-2.0
"""`flydsl-build verify`: good wheels pass, changed ones do not."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from building import unpack
from calling import Built, change_manifest, changed_wheel

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST = "space/_flydsl_halve/halve.json"
BUNDLE = "space/_flydsl_halve/halve.hipfb"
STUB = "space/halve.py"
SBOM = "second_kernels-0.3.dist-info/sboms/flydsl-build.cdx.json"
REBUILD = "\n    -> the file was changed or damaged after the build: build or download the package again\n"


def flipped(data: bytes) -> bytes:
    return data[:-100] + bytes([data[-100] ^ 1]) + data[-99:]


def test_good(call: Any, second: Built, tmp_path: Path) -> None:
    answer = call("verify", second.wheel)
    said = f"{second.wheel}: 1 modules, 1 specializations, 2 code objects: no fault found\n"
    assert (answer.status, answer.out, answer.err) == (0, said, "")
    site = unpack(tmp_path / "site", second.wheel)
    before = sorted(site.rglob("*"))
    assert call("verify", site).status == 0
    assert sorted(site.rglob("*")) == before


def test_record(call: Any, second: Built, tmp_path: Path) -> None:
    changed = changed_wheel(second.wheel, tmp_path / "a.whl", {BUNDLE: flipped}, record=False)
    answer = call("verify", changed)
    assert (answer.status, answer.out) == (1, "")
    assert answer.err == f"flydsl-build: {BUNDLE}: the digest is not the one in RECORD{REBUILD}"
    gone = changed_wheel(second.wheel, tmp_path / "b.whl", {STUB: None}, record=False)
    assert call("verify", gone).err == f"flydsl-build: {STUB}: is in RECORD and not in the wheel{REBUILD}"


def test_digest(call: Any, second: Built, tmp_path: Path) -> None:
    changed = changed_wheel(second.wheel, tmp_path / "a.whl", {BUNDLE: flipped})
    answer = call("verify", changed)
    assert answer.status == 1
    assert answer.err.startswith(f"flydsl-build: {BUNDLE}, gfx1100: the SHA-256 digest is not the one in halve.json\n")


def test_manifest_against_code(call: Any, second: Built, tmp_path: Path) -> None:
    def more_registers(value: Any) -> None:
        value["units"][0]["code_objects"]["gfx942"]["kernels"][0]["vgpr"] += 1

    changed = changed_wheel(second.wheel, tmp_path / "a.whl", {MANIFEST: change_manifest(more_registers)})
    answer = call("verify", changed)
    assert answer.status == 1
    assert answer.err.startswith(f"flydsl-build: {BUNDLE}, gfx942: the manifest describes other kernels than the code object has\n")


def test_stub(call: Any, second: Built, tmp_path: Path) -> None:
    def renamed(value: Any) -> None:
        value["distribution"]["name"] = "third-kernels"

    changed = changed_wheel(second.wheel, tmp_path / "a.whl", {MANIFEST: change_manifest(renamed)})
    assert call("verify", changed).err == f"flydsl-build: {STUB}: the stub was made for another manifest than {MANIFEST}{REBUILD}"
    gone = changed_wheel(second.wheel, tmp_path / "b.whl", {STUB: None})
    assert call("verify", gone).err == f"flydsl-build: {STUB}: the stub of space.halve is missing{REBUILD}"


def test_bill_of_materials(call: Any, second: Built, tmp_path: Path) -> None:
    def other_linker(data: bytes) -> bytes:
        value = json.loads(data)
        (one,) = [one for one in value["components"] if one["name"] == "lld"]
        one["version"] = "1.0"
        return json.dumps(value).encode()

    changed = changed_wheel(second.wheel, tmp_path / "a.whl", {SBOM: other_linker})
    answer = call("verify", changed)
    assert answer.status == 1
    first, *_, missing, _ = answer.err.splitlines()
    assert first == "flydsl-build: 2 faults:"
    assert answer.err.splitlines()[1] == f"  1. {SBOM}: lists application lld 1.0, unlike the manifests"
    assert re.fullmatch(rf"  2\. {re.escape(SBOM)}: does not list application lld \S+, which is in the manifests", missing)
    junk = changed_wheel(second.wheel, tmp_path / "b.whl", {SBOM: lambda _: b"{}"})
    assert call("verify", junk).err == f"flydsl-build: {SBOM}: it is no CycloneDX document (KeyError('components')){REBUILD}"
    gone = changed_wheel(second.wheel, tmp_path / "c.whl", {SBOM: None})
    assert (
        call("verify", gone).err == f"flydsl-build: c.whl: has no bill of materials sboms/flydsl-build.cdx.json of these kernels{REBUILD}"
    )
    site = unpack(tmp_path / "site", changed)
    assert call("verify", site).err == answer.err


def test_folder(call: Any, second: Built, tmp_path: Path) -> None:
    site = unpack(tmp_path / "site", second.wheel)
    (site / BUNDLE).unlink()
    answer = call("verify", site)
    assert answer.status == 1
    assert answer.err.startswith(f"flydsl-build: {BUNDLE}: is named in the manifest and does not exist\n")


def test_a_folder_of_wheels(call: Any, second: Built, tmp_path: Path) -> None:
    wheel = changed_wheel(second.wheel, tmp_path / "second.whl", {})
    text = f"flydsl-build: {tmp_path}: has no kernels built by flydsl-build\n    -> name the wheel: {wheel}\n"
    answer = call("verify", tmp_path)
    assert (answer.status, answer.err) == (1, text)


def test_wheels_of_two_projects(call: Any, second: Built, tiny: Built, tmp_path: Path) -> None:
    said = {
        second.wheel: f"{second.wheel}: 1 modules, 1 specializations, 2 code objects: no fault found\n",
        tiny.wheel: f"{tiny.wheel}: 1 modules, 1 specializations, 1 code objects: no fault found\n",
    }
    answer = call("verify", second.wheel, tiny.wheel)
    assert (answer.status, answer.out, answer.err) == (0, said[second.wheel] + said[tiny.wheel], "")
    # Wheels of one project with the same files, of which each is right.
    again = changed_wheel(second.wheel, tmp_path / "again.whl", {})
    bad = changed_wheel(second.wheel, tmp_path / "bad.whl", {BUNDLE: flipped}, record=False)
    none = tmp_path / "none"
    none.mkdir()
    answer = call("verify", bad, again, none, tiny.wheel)
    assert (answer.status, answer.out) == (1, said[second.wheel].replace(str(second.wheel), str(again)) + said[tiny.wheel])
    assert answer.err.splitlines()[:2] == ["flydsl-build: 2 faults:", f"  1. bad.whl: {BUNDLE}: the digest is not the one in RECORD"]
    assert f"  2. {none}: has no kernels built by flydsl-build\n" in answer.err


def test_a_folder_with_two_projects(call: Any, second: Built, tiny: Built, tmp_path: Path) -> None:
    site = unpack(tmp_path / "site", second.wheel)
    unpack(site, tiny.wheel)
    answer = call("verify", site)
    assert (answer.out, answer.err) == (f"{site}: 2 modules, 2 specializations, 3 code objects: no fault found\n", "")


def test_kernels_of_editable_installs_are_left_alone(call: Any, second: Built, tmp_path: Path) -> None:
    generation = tmp_path / "build" / "flydsl-editable" / "01234567" / "g-1"
    left = unpack(generation, second.wheel)
    (left / BUNDLE).unlink()
    assert call("verify", tmp_path).err.splitlines()[0] == f"flydsl-build: {tmp_path}: has no kernels built by flydsl-build"
    unpack(tmp_path / "site", second.wheel)
    answer = call("verify", tmp_path)
    assert (answer.status, answer.err) == (0, "")
    # Asked for by name, they are looked at.
    assert call("verify", left).err.startswith(f"flydsl-build: {BUNDLE}: is named in the manifest and does not exist\n")


def test_no_wheel(call: Any, tmp_path: Path) -> None:
    answer = call("verify", tmp_path)
    assert (answer.status, answer.err.splitlines()[0]) == (1, f"flydsl-build: {tmp_path}: has no kernels built by flydsl-build")
