# SPDX-License-Identifier: Apache-2.0
"""Damaged files of an installed package: an error that names the file, never a crash, and never a launch."""

from __future__ import annotations

import hashlib
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from building import PACKAGES, members, run_script

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BUNDLE = "tiny_kernels/_flydsl/negate.hipfb"
MANIFEST = "tiny_kernels/_flydsl/negate.json"
LIBRARY = "tiny_kernels/_flydsl/negate.launchers.elf"
STUB = "tiny_kernels/negate.py"
DIGEST_OF_STUB = "its SHA-256 is not the one in the package's Python module"
DIGEST_OF_MANIFEST = "its SHA-256 is not the one in the manifest"
ABSENT = "it cannot be read: No such file or directory"

# Import, and where that succeeds, call. What was launched says whether an error came in time.
USE = """
import numpy
kinds = ("CorruptFileError", "ImportError", "ModuleNotFoundError", "SyntaxError")
answer = []
for attempt in range(2):
    try:
        import tiny_kernels.negate
        tiny_kernels.negate.negate(numpy.zeros(4, "f4"), 4)
        answer.append(None)
    except Exception as error:
        answer.append([type(error).__name__, str(error), getattr(error, "file", None)])
import fake_hip
launches = fake_hip.FakeHip("libamdhip64.so.7").events("launch")
print(json.dumps([answer, len(launches)]))
"""


def use(site: Path, hip_library: Path, **env: str) -> tuple[list[list[str] | None], int]:
    answer, launches = run_script(USE, site=site, hip=hip_library, targets="gfx942:sramecc+:xnack-", **env)
    return answer, launches


def test_undamaged(site: Path, hip_library: Path) -> None:
    assert use(site, hip_library) == ([None, None], 2)


def missing(path: Path) -> None:
    path.unlink()


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def halved(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def shortened(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def edited(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) * 3 // 4] ^= 1
    path.write_bytes(data)


def lengthened(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


CASES: list[tuple[str, Callable[[Path], None], str]] = [
    (BUNDLE, missing, ABSENT),
    (BUNDLE, folder, "it cannot be read: Is a directory"),
    (BUNDLE, emptied, "this is no clang offload bundle"),
    (BUNDLE, halved, "entry hipv4-amdgcn-amd-amdhsa--gfx942 ends at byte"),
    (BUNDLE, shortened, "entry hipv4-amdgcn-amd-amdhsa--gfx942 ends at byte"),
    (BUNDLE, edited, "the SHA-256 of entry gfx942 is not the one in the manifest"),
    (MANIFEST, missing, ABSENT),
    (MANIFEST, folder, "it cannot be read: Is a directory"),
    (MANIFEST, emptied, DIGEST_OF_STUB),
    (MANIFEST, halved, DIGEST_OF_STUB),
    (MANIFEST, shortened, DIGEST_OF_STUB),
    (MANIFEST, edited, DIGEST_OF_STUB),
    (MANIFEST, lengthened, DIGEST_OF_STUB),
    (LIBRARY, missing, ABSENT),
    (LIBRARY, folder, "it cannot be read: Is a directory"),
    (LIBRARY, emptied, DIGEST_OF_MANIFEST),
    (LIBRARY, halved, DIGEST_OF_MANIFEST),
    (LIBRARY, shortened, DIGEST_OF_MANIFEST),
    (LIBRARY, edited, DIGEST_OF_MANIFEST),
    (LIBRARY, lengthened, DIGEST_OF_MANIFEST),
]


@pytest.mark.parametrize(
    ("name", "damage", "what"), CASES, ids=[f"{name.partition('.')[2]}-{damage.__name__}" for name, damage, _ in CASES]
)
@pytest.mark.parametrize("load", ["import", "lazy"])
def test_damaged_file(site: Path, hip_library: Path, name: str, damage: Callable[[Path], None], what: str, load: str) -> None:
    damage(site / name)
    answer, launches = use(site, hip_library, FLYDSL_BUILD_LOAD=load)
    assert launches == 0
    for error in answer:
        assert error is not None
        kind, text, file = error
        assert (kind, file) == ("CorruptFileError", str(site / name))
        assert text.startswith(f"{site / name}: {what}")
        assert text.endswith("\n    -> the installed file is damaged or was edited; reinstall the package")


# Whole files of another build. Its manifest is sound JSON of the right schema, its bundle has a sound entry for the device.
SWAPPED = {
    BUNDLE: ("space/_flydsl_halve/halve.hipfb", ("entry gfx942 is ", "the SHA-256 of entry gfx942 is not the one in the manifest")),
    MANIFEST: ("space/_flydsl_halve/halve.json", (DIGEST_OF_STUB,)),
    LIBRARY: ("space/_flydsl_halve/halve.launchers.elf", (DIGEST_OF_MANIFEST,)),
}


@pytest.mark.parametrize("name", SWAPPED)
def test_swapped_file(site: Path, second_wheel: Path, hip_library: Path, name: str) -> None:
    other, what = SWAPPED[name]
    (site / name).write_bytes(members(second_wheel)[other])
    answer, launches = use(site, hip_library)
    assert launches == 0
    for error in answer:
        assert error is not None
        assert (error[0], error[2]) == ("CorruptFileError", str(site / name))
        assert error[1].startswith(tuple(f"{site / name}: {one}" for one in what))


def _schema(manifest: dict[str, Any]) -> None:
    manifest["schema"] = 3


def _kernel(manifest: dict[str, Any]) -> None:
    manifest["launchers"][0]["specializations"][0]["entries"]["gfx942"]["main"]["kernels"] = [7]


def _entry(manifest: dict[str, Any]) -> None:
    manifest["launchers"][0]["specializations"][0]["entries"]["gfx942"]["main"]["entry"] = "fdb_nought"


def _offset(manifest: dict[str, Any]) -> None:
    manifest["units"][0]["code_objects"]["gfx942"]["offset"] += 8


def _argument(manifest: dict[str, Any]) -> None:
    manifest["launchers"][0]["specializations"][0]["arguments"]["X"]["kind"] = "nought"


def _launcher(manifest: dict[str, Any]) -> None:
    manifest["launchers"][0]["name"] = "nought"


@pytest.mark.parametrize(
    ("change", "blamed"),
    [(_schema, MANIFEST), (_kernel, MANIFEST), (_entry, LIBRARY), (_offset, BUNDLE), (_argument, MANIFEST), (_launcher, MANIFEST)],
)
def test_manifest_and_stub_changed_alike(site: Path, hip_library: Path, change: Callable[[dict[str, Any]], None], blamed: str) -> None:
    path, stub = site / MANIFEST, site / STUB
    before = path.read_bytes()
    manifest = json.loads(before)
    change(manifest)
    path.write_text(json.dumps(manifest))
    old, new = (hashlib.sha256(data).hexdigest() for data in (before, path.read_bytes()))
    assert old in stub.read_text()
    stub.write_text(stub.read_text().replace(old, new))
    answer, launches = use(site, hip_library)
    assert launches == 0
    assert [error and (error[0], error[2]) for error in answer] == [("CorruptFileError", str(site / blamed))] * 2


def test_stub_of_another_build(site: Path, hip_library: Path) -> None:
    stub = site / STUB
    text = stub.read_text()
    (line,) = [line for line in text.splitlines() if len(line.strip(' ",')) == 64]
    stub.write_text(text.replace(line, f'    "{"0" * 64}",'))
    answer, launches = use(site, hip_library)
    assert launches == 0
    assert [error and (error[0], error[2]) for error in answer] == [("CorruptFileError", str(site / MANIFEST))] * 2


def test_source_in_place_of_the_stub(site: Path, hip_library: Path) -> None:
    # A package that was unpacked over its own wheel: there is no FlyDSL to run the source, and the error says so.
    shutil.copyfile(PACKAGES / "tiny" / STUB, site / STUB)
    script = "sys.modules['flydsl'] = None\n" + USE
    answer, launches = run_script(script, site=site, hip=hip_library, targets="gfx942")
    assert launches == 0
    assert [error[0] for error in answer] == ["ModuleNotFoundError"] * 2


@pytest.mark.parametrize("name", ["_native.abi3.so", "module.py", "code_objects.py", "__init__.py"])
def test_run_time_without_a_file(site: Path, hip_library: Path, name: str) -> None:
    (site / "tiny_kernels/_flydsl/runtime" / name).unlink()
    answer, launches = use(site, hip_library)
    assert launches == 0
    for error in answer:
        assert error is not None
        assert error[0] in {"ImportError", "ModuleNotFoundError"}
        assert "tiny_kernels._flydsl.runtime" in error[1]
        assert name == "__init__.py" or name.partition(".")[0] in error[1]


@pytest.mark.parametrize("damage", [emptied, shortened])
def test_damaged_extension_module(site: Path, hip_library: Path, damage: Callable[[Path], None]) -> None:
    file = site / "tiny_kernels/_flydsl/runtime/_native.abi3.so"
    data = file.read_bytes()
    damage(file)
    if damage is shortened:
        file.write_bytes(data[:100])
    answer, launches = use(site, hip_library)
    assert launches == 0
    assert [error and error[0] for error in answer] == ["ImportError"] * 2
    assert all(error is not None and str(file) in error[1] for error in answer)


def test_repair_helps_the_same_process(site: Path, hip_library: Path) -> None:
    script = """
import numpy, pathlib, fake_hip
from tiny_kernels.negate import negate
x = numpy.zeros(4, "f4")
answer = []
for name in argument:
    path = pathlib.Path(name)
    data = path.read_bytes()
    path.unlink()
    try:
        negate(x, 4)
    except RuntimeError as error:
        answer.append(error.file)
    path.write_bytes(data)
negate(x, 4)
hip = fake_hip.FakeHip("libamdhip64.so.7")
print(json.dumps([answer, [event["event"] for event in hip.events()]]))
"""
    files = [str(site / name) for name in (MANIFEST, LIBRARY, BUNDLE)]
    failed, events = run_script(script, site=site, hip=hip_library, targets="gfx942", argument=files, FLYDSL_BUILD_LOAD="lazy")
    assert failed == files
    assert events == ["init", "device_attribute", "load", "launch"]


FLIP = """
import importlib, numpy, pathlib
import fake_hip
x = numpy.zeros(4, "f4")
path = pathlib.Path(argument["file"])
data = path.read_bytes()
answer = {}
for position in argument["positions"]:
    for bit in argument["bits"]:
        # A new file: the old one may be mapped.
        path.unlink()
        path.write_bytes(data[:position] + bytes([data[position] ^ 1 << bit]) + data[position + 1 :])
        sys.modules.pop("tiny_kernels.negate", None)
        try:
            importlib.import_module("tiny_kernels.negate").negate(x, 4)
            what = "worked"
        except Exception as error:
            what = type(error).__name__ if str(path) in str(error) else repr(error)
        answer.setdefault(what, []).append(position)
hip = fake_hip.FakeHip("libamdhip64.so.7")
print(json.dumps([answer, [event["args"] for event in hip.events("launch")]]))
"""


def flip(site: Path, hip_library: Path, name: str, positions: list[int], bits: list[int]) -> tuple[dict[str, list[int]], list[list[str]]]:
    argument = {"file": str(site / name), "positions": positions, "bits": bits}
    answer, launches = run_script(FLIP, site=site, hip=hip_library, targets="gfx942", argument=argument)
    return answer, launches


@pytest.mark.parametrize("name", [MANIFEST, LIBRARY])
def test_any_flipped_bit_is_found(site: Path, hip_library: Path, name: str) -> None:
    size = (site / name).stat().st_size
    positions = [*range(64), *range(64, size - 1, 37), size - 1]
    answer, launches = flip(site, hip_library, name, positions, [0, 7])
    assert list(answer) == ["CorruptFileError"]
    assert launches == []


def test_any_flipped_bit_of_the_code_object_is_found(site: Path, hip_library: Path) -> None:
    size = (site / BUNDLE).stat().st_size
    answer, launches = flip(site, hip_library, BUNDLE, [*range(4096, 4160), *range(4160, size, 97), size - 1], [3])
    assert list(answer) == ["CorruptFileError"]
    assert launches == []


def test_any_flipped_bit_of_the_header_is_found_or_does_not_matter(site: Path, hip_library: Path) -> None:
    # magic, count; the host's offset, size, length, id; the device's; then padding.
    host, device = len("host-x86_64-unknown-linux-gnu-"), len("hipv4-amdgcn-amd-amdhsa--gfx942")
    table = 32 + 24 + host
    header = table + 24 + device
    answer, _ = flip(site, hip_library, BUNDLE, list(range(header + 64)), list(range(8)))
    assert set(answer) == {"CorruptFileError", "worked"}
    # What HIP is given does not hang on the host's entry, nor on the padding.
    harmless = {*range(32, 48), *range(56, table), *range(header, header + 64)}
    # A larger count takes zeros of the padding for empty entries.
    assert set(answer["worked"]) - harmless <= {24}
    assert {*range(table, header), 24} <= set(answer["CorruptFileError"])
