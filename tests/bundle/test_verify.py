# SPDX-License-Identifier: Apache-2.0
"""Verification: good artefacts pass, each single fault is found and worded."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import struct
from typing import TYPE_CHECKING

import pytest

from flydsl_build.bundle.manifest import ManifestError
from flydsl_build.bundle.verify import verify_bundles, verify_package
from flydsl_build.errors import Fault, FaultCollector
from flydsl_build.targets.checks import check_code_object, check_launcher_library, readable_code_object
from flydsl_build.targets.code_object import read_code_object
from flydsl_build.targets.offload_bundle import ALIGNMENT, write_bundle

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from flydsl_build.bundle.manifest import Manifest
    from flydsl_build.targets.offload_bundle import OffloadBundle

KERNELS = {"add_0": (8, 16, 8, 16, 4), "double_1": (8, 16, 4)}
BUG = "this is a fault of flydsl-build or FlyDSL: please report it"


def verify(
    content: bytes, kernels: Mapping[str, Sequence[int]] | None = None, variables: Mapping[str, int | None] | None = None
) -> list[str]:
    faults = FaultCollector()
    code_object = readable_code_object(content, "two, gfx942", faults)
    if code_object is not None:
        faults.extend(
            check_code_object(
                code_object,
                where="two, gfx942",
                target="gfx942",
                e_flags=0x54C,
                kernels=KERNELS if kernels is None else kernels,
                globals=variables,
            )
        )
    return [f"{fault.where}: {fault.what}" for fault in faults.faults]


@pytest.fixture
def good(data: Callable[[str], bytes]) -> bytes:
    return data("two_kernels.gfx942.elf")


def test_good(good: bytes) -> None:
    assert verify(good) == []


def test_header(good: bytes) -> None:
    changed = bytearray(good)
    changed[7:9] = bytes([0, 3])
    assert verify(bytes(changed)) == [
        "two, gfx942: EI_OSABI is 0, a code object for HIP has 64",
        "two, gfx942: EI_ABIVERSION is 3 (code object version 5), 4 (version 6) was asked for",
    ]
    assert verify(b"junk") == ["two, gfx942: the code object cannot be read: the file does not start with the ELF magic"]


def test_another_target(data: Callable[[str], bytes]) -> None:
    assert verify(data("two_kernels.gfx1100.elf")) == [
        "two, gfx942: the code object is for gfx1100 (e_flags 0x41); target gfx942 needs gfx942, xnack any, sramecc any (e_flags 0x54c)"
    ]


def test_kernels(good: bytes) -> None:
    assert verify(good, {"add_0": (8, 16), "other": ()}) == [
        "two, gfx942, kernel add_0: the kernel takes arguments of 8, 16, 8, 16, 4 bytes, its launcher passes 8, 16 bytes",
        "two, gfx942, kernel other: the code object has no such kernel; it has add_0, double_1",
    ]
    assert verify(good, {"add_0": ()}) == [
        "two, gfx942, kernel add_0: the kernel takes arguments of 8, 16, 8, 16, 4 bytes, its launcher passes none"
    ]


def test_symbols_of_a_kernel(good: bytes) -> None:
    # In .dynstr the names are add_0, add_0.kd, double_1, double_1.kd; the metadata keeps its own copies.
    at = good.index(b"\0add_0\0add_0.kd\0")
    renamed = good[: at + 1] + b"xdd_0\0xdd_0.kd" + good[at + 15 :]
    assert verify(renamed) == [
        "two, gfx942, kernel add_0: its function add_0 is not in .dynsym",
        "two, gfx942, kernel add_0: its kernel descriptor add_0.kd is not in .dynsym",
    ]


def test_descriptor_unlike_the_metadata(good: bytes) -> None:
    changed = bytearray(good)
    struct.pack_into("<IIIIq", changed, 0x7C0, 16, 4, 56, 0, 0x1144)
    assert verify(bytes(changed)) == [
        "two, gfx942, kernel add_0: kernarg segment is 56 bytes in the kernel descriptor and 52 in the metadata",
        "two, gfx942, kernel add_0: static LDS is 16 bytes in the kernel descriptor and 0 in the metadata",
        "two, gfx942, kernel add_0: scratch is 4 bytes in the kernel descriptor and 0 in the metadata",
        "two, gfx942, kernel add_0: the kernel descriptor starts at 0x1904, the function stands at 0x1900",
    ]


def test_globals_and_undefined_symbols(data: Callable[[str], bytes]) -> None:
    content = data("globals.gfx942.elf")
    variables = {"factor": None, "folded": None, "gone": None, "weak_state": None, "scaled": None, "missing_function": None}
    assert verify(content, {"scaled": (8, 4, 4)}, variables) == [
        "two, gfx942: undefined symbol missing_function: no bitcode defines it",
        "two, gfx942, global folded: is local to the code object, so no init function can find it",
        "two, gfx942, global gone: is not in the code object: no bitcode defines it, or it was folded away",
        "two, gfx942, global weak_state: has weak linkage; HIP looks up global symbols",
        "two, gfx942, global scaled: is a FUNC in .dynsym, not a variable",
    ]
    assert verify(content, {"scaled": (8, 4, 4)}, {"factor": 8}) == verify(content, {"scaled": (8, 4, 4)})
    assert verify(content, {"scaled": (8, 4, 4)}, {"factor": 80})[1:] == ["two, gfx942, global factor: has 8 bytes, 80 are expected"]


def test_remedies(data: Callable[[str], bytes]) -> None:
    code_object = read_code_object(data("globals.gfx942.elf"))
    faults = check_code_object(code_object, where="", target="gfx942", e_flags=0x54C, kernels={}, globals={"folded": None, "gone": None})
    assert ["-fgpu-rdc" in fault.fix for fault in faults] == [True, False, False]
    assert ["externally_initialized" in fault.fix for fault in faults] == [False, True, True]


def test_every_fault_says_what_to_do(data: Callable[[str], bytes]) -> None:
    unreadable = FaultCollector()
    assert readable_code_object(b"junk", "x", unreadable) is None
    found: list[Fault] = unreadable.faults
    for name in ("globals.gfx942.elf", "two_kernels.gfx1100.elf"):
        code_object = read_code_object(data(name))
        found += check_code_object(code_object, where="x", target="gfx950", e_flags=0x54F, kernels={"x": (1,)}, globals={"y": None})
    assert len(found) > 5
    assert all(fault.fix for fault in found)


def test_launcher_library(data: Callable[[str], bytes]) -> None:
    good = data("two_entries.x86_64.elf")
    assert check_launcher_library(good, where="two.launchers.elf", entries=["fdb_add", "fdb_double"]) == []
    assert texts(check_launcher_library(good, where="two.launchers.elf", entries=["fdb_other"])) == [
        "two.launchers.elf: does not export fdb_other, which the manifest names"
    ]
    assert texts(check_launcher_library(data("needs_glibc.x86_64.elf"), where="x.so", entries=["fdb_entry", "puts"])) == [
        "x.so: needs libc.so.6; a launcher library needs no other",
        "x.so: has undefined symbols: puts, dlopen, not_defined_here",
        "x.so: does not export puts, which the manifest names",
    ]
    assert texts(check_launcher_library(data("two_kernels.gfx942.elf"), where="x.so", entries=[])) == [
        "x.so: e_machine is 224, an x86-64 library has 62"
    ]
    assert texts(check_launcher_library(b"", where="x.so", entries=[])) == [
        "x.so: the launcher library cannot be read: the file does not start with the ELF magic"
    ]


def texts(faults: list[Fault]) -> list[str]:
    return [f"{fault.where}: {fault.what}" for fault in faults]


def test_good_package(package: Path) -> None:
    (package / "runtime").mkdir()
    (package / "runtime" / "native.abi3.so").write_bytes(b"not looked into")
    assert verify_package(package) == []


def test_package_in_a_sub_folder(package: Path) -> None:
    (package / "sub").mkdir()
    for path in list(package.glob("two.*")):
        path.rename(package / "sub" / path.name)
    assert verify_package(package) == []
    (package / "sub" / "two.hipfb").unlink()
    assert texts(verify_package(package)) == ["sub/two.hipfb: is named in the manifest and does not exist"]


def test_code_objects_that_are_known_are_not_parsed_again(
    package: Path, bundle: OffloadBundle, monkeypatch: pytest.MonkeyPatch, manifest: Manifest
) -> None:
    contents = {target: bundle.data[entry.offset : entry.offset + entry.size] for target, entry in bundle.entries.items()}
    known = {hashlib.sha256(content).hexdigest(): read_code_object(content) for content in contents.values()}
    monkeypatch.setattr("flydsl_build.targets.checks.read_code_object", None)
    assert verify_package(package, known) == []
    # What is known of them is still compared with the manifest.
    one, other = (manifest.units[0].code_objects[target].sha256 for target in contents)
    assert texts(verify_package(package, {one: known[other], other: known[other]})) == [
        "two.hipfb, gfx942: the code object is for gfx1100 (e_flags 0x41); target gfx942 needs gfx942, xnack any, sramecc any (e_flags 0x54c)"
    ]


def test_changed_bytes_of_a_package(package: Path) -> None:
    bundle = bytearray((package / "two.hipfb").read_bytes())
    bundle[5000] ^= 1
    (package / "two.hipfb").write_bytes(bundle)
    library = (package / "two.launchers.elf").read_bytes()
    (package / "two.launchers.elf").write_bytes(library[:-1])
    assert texts(verify_package(package)) == [
        f"two.launchers.elf: has {len(library) - 1} bytes, two.json says {len(library)}",
        "two.hipfb, gfx942: the SHA-256 digest is not the one in two.json",
    ]


def test_truncated_bundle(package: Path) -> None:
    (package / "two.hipfb").write_bytes((package / "two.hipfb").read_bytes()[:8000])
    assert texts(verify_package(package)) == ["two.hipfb: the object of hipv4-amdgcn-amd-amdhsa--gfx942 lies outside of the file"]


def test_swapped_files(package: Path) -> None:
    (package / "two.hipfb").write_bytes((package / "two.launchers.elf").read_bytes())
    (package / "two.json").write_bytes(b"{}")
    assert texts(verify_package(package)) == [
        "two.json: schema: is not a version number, so the file is not a manifest",
        "two.hipfb: belongs to no manifest",
        "two.launchers.elf: belongs to no manifest",
    ]


def test_missing_and_odd_files(package: Path, tmp_path: Path) -> None:
    (package / "two.launchers.elf").unlink()
    (package / "old.hipfb").write_bytes(b"")
    assert texts(verify_package(package)) == [
        "two.launchers.elf: is named in the manifest and does not exist",
        "old.hipfb: belongs to no manifest",
    ]
    (tmp_path / "empty").mkdir()
    assert texts(verify_package(tmp_path / "empty")) == ["empty: there is no manifest in the folder"]


def test_manifest_with_fewer_targets_than_the_bundle(package: Path, manifest: Manifest) -> None:
    (unit,) = manifest.units
    (launcher,) = manifest.launchers
    (run,) = launcher.specializations
    run = dataclasses.replace(run, targets=("gfx942",), entries={"gfx942": run.entries["gfx942"]})
    changed = dataclasses.replace(
        manifest,
        targets=("gfx942",),
        units=(dataclasses.replace(unit, code_objects={"gfx942": unit.code_objects["gfx942"]}),),
        launchers=(dataclasses.replace(launcher, specializations=(run,)),),
    )
    (package / "two.json").write_text(changed.to_text(), encoding="ascii")
    assert texts(verify_package(package)) == ["two.hipfb: the bundle has gfx1100, gfx942, two.json has gfx942"]


def test_edited_manifest(package: Path) -> None:
    document = json.loads((package / "two.json").read_text(encoding="ascii"))
    code_objects = document["units"][0]["code_objects"]
    code_objects["gfx942"]["e_flags"] = 0x54F
    code_objects["gfx1100"]["kernels"][0]["vgpr"] = 5
    document["launchers"][0]["specializations"][0]["entries"]["gfx942"]["main"]["entry"] = "fdb_other"
    (package / "two.json").write_text(json.dumps(document), encoding="ascii")
    found, needed = (f"{chip}, xnack any, sramecc any (e_flags {e_flags})" for chip, e_flags in (("gfx942", "0x54c"), ("gfx950", "0x54f")))
    assert texts(verify_package(package)) == [
        "two.launchers.elf: does not export fdb_other, which the manifest names",
        "two.hipfb, gfx1100: the manifest describes other kernels than the code object has",
        f"two.hipfb, gfx942: the code object is for {found}; target gfx942 needs {needed}",
    ]


def test_exchanged_code_objects(package: Path) -> None:
    """The bundle says gfx942 where the bytes of gfx1100 stand, and the manifest agrees with the bundle."""
    document = json.loads((package / "two.json").read_text(encoding="ascii"))
    one, other = (document["units"][0]["code_objects"][target] for target in ("gfx942", "gfx1100"))
    one["sha256"], other["sha256"] = other["sha256"], one["sha256"]
    assert hashlib.sha256(b"").hexdigest() not in {one["sha256"], other["sha256"]}
    (package / "two.json").write_text(json.dumps(document), encoding="ascii")
    assert texts(verify_package(package)) == [
        "two.hipfb, gfx1100: the SHA-256 digest is not the one in two.json",
        "two.hipfb, gfx942: the SHA-256 digest is not the one in two.json",
    ]


def split(package: Path, manifest: Manifest, bundle: OffloadBundle) -> Path:
    """Make the package one whose targets have bundles of their own."""
    (package / "two.hipfb").unlink()
    (unit,) = manifest.units
    code_objects = {target: dataclasses.replace(one, offset=ALIGNMENT) for target, one in unit.code_objects.items()}
    changed = dataclasses.replace(manifest, units=(dataclasses.replace(unit, bundle="two.{target}.hipfb", code_objects=code_objects),))
    (package / "two.json").write_text(changed.to_text())
    for target, entry in bundle.entries.items():
        data = write_bundle({target: bundle.data[entry.offset : entry.offset + entry.size]}).data
        (package / f"two.{target}.hipfb").write_bytes(data)
    return package


def words(faults: list[Fault]) -> list[str]:
    return [f"{fault.where}: {fault.what}" for fault in faults]


def test_split_package(package: Path, manifest: Manifest, bundle: OffloadBundle) -> None:
    split(package, manifest, bundle)
    assert verify_package(package) == []
    # That of a device wheel which is not installed.
    (package / "two.gfx1100.hipfb").rename(package / "two.gfx90a.hipfb")
    assert words(verify_package(package)) == ["two.gfx90a.hipfb: belongs to no manifest"]
    (package / "two.gfx90a.hipfb").replace(package / "two.gfx942.hipfb")
    assert words(verify_package(package)) == ["two.gfx942.hipfb: the bundle has gfx1100, two.json has gfx942"]


def test_bundles_of_a_device_wheel(package: Path, manifest: Manifest, bundle: OffloadBundle) -> None:
    split(package, manifest, bundle)
    (package / "two.json").unlink()
    assert verify_bundles(package) == []
    (package / "two.gfx1100.hipfb").replace(package / "two.gfx942.hipfb")
    assert words(verify_bundles(package)) == ["two.gfx942.hipfb: the bundle has gfx1100, its name says gfx942"]
    (package / "two.gfx942.hipfb").write_bytes(b"junk")
    assert words(verify_bundles(package)) == ["two.gfx942.hipfb: is not an offload bundle: it does not start with the magic"]
    code = bundle.data[bundle.entries["gfx1100"].offset :][: bundle.entries["gfx1100"].size]
    (package / "two.gfx942.hipfb").write_bytes(write_bundle({"gfx942": code}).data)
    assert words(verify_bundles(package)) == [
        "two.gfx942.hipfb: the code object is for gfx1100 (e_flags 0x41); target gfx942 needs gfx942, xnack any, sramecc any (e_flags 0x54c)"
    ]


def test_targets_with_one_bundle_name(manifest: Manifest) -> None:
    (unit,) = manifest.units
    other = dataclasses.replace(unit, name="other")
    twice = dataclasses.replace(manifest, units=tuple(dataclasses.replace(one, bundle="two.{target}.hipfb") for one in (unit, other)))
    with pytest.raises(ManifestError, match=r'units: two bundles have the name "two.gfx942.hipfb"'):
        twice.to_text()
    # Two units may share a pattern if no target is in both.
    halves = [
        dataclasses.replace(one, bundle="two.{target}.hipfb", code_objects={target: one.code_objects[target]})
        for one, target in ((unit, "gfx942"), (other, "gfx1100"))
    ]
    assert [dict(one.bundles()) for one in halves] == [{"two.gfx942.hipfb": ("gfx942",)}, {"two.gfx1100.hipfb": ("gfx1100",)}]
