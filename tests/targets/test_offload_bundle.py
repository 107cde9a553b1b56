# SPDX-License-Identifier: Apache-2.0
"""Offload bundles: the bytes, LLVM's own reader, and files that are none."""

from __future__ import annotations

import shutil
import struct
import subprocess
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flydsl_build.targets.offload_bundle import BundleEntry, OffloadBundleError, read_bundle, write_bundle

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from flydsl_build.targets.offload_bundle import OffloadBundle


TARGETS = ("gfx942", "gfx1100")


def test_bytes_of_a_bundle() -> None:
    bundle = write_bundle({"gfx9-4-generic": b"generic", "gfx942": b"first" * 1000, "gfx1100": b"second"})
    host = b"host-x86_64-unknown-linux-gnu-"
    ids = [b"hipv4-amdgcn-amd-amdhsa--gfx942", b"hipv4-amdgcn-amd-amdhsa--gfx1100", b"hipv4-amdgcn-amd-amdhsa--gfx9-4-generic"]
    table = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", 4)
    table += struct.pack("<QQQ", 4096, 0, len(host)) + host
    for bundle_id, offset, size in zip(ids, (4096, 12288, 16384), (5000, 6, 7), strict=True):
        table += struct.pack("<QQQ", offset, size, len(bundle_id)) + bundle_id
    assert bundle.data == table.ljust(4096, b"\0") + (b"first" * 1000).ljust(8192, b"\0") + b"second".ljust(4096, b"\0") + b"generic"
    assert bundle.entries == {
        "gfx942": BundleEntry(id="hipv4-amdgcn-amd-amdhsa--gfx942", offset=4096, size=5000),
        "gfx1100": BundleEntry(id="hipv4-amdgcn-amd-amdhsa--gfx1100", offset=12288, size=6),
        "gfx9-4-generic": BundleEntry(id="hipv4-amdgcn-amd-amdhsa--gfx9-4-generic", offset=16384, size=7),
    }
    assert list(bundle.entries) == ["gfx942", "gfx1100", "gfx9-4-generic"]
    assert read_bundle(bundle.data) == bundle


@pytest.mark.parametrize(
    ("objects", "message"),
    [
        ({}, "there is no code object to bundle"),
        ({"gfx942": b""}, "the code object of gfx942 is empty"),
        ({f"gfx{n:04}": b"x" for n in range(80)}, "the entry table of 80 targets has 4566 bytes, HIP reads 4096"),
    ],
)
def test_bundles_that_cannot_be_written(objects: dict[str, bytes], message: str) -> None:
    with pytest.raises(OffloadBundleError) as caught:
        write_bundle(objects, where="two.hipfb")
    (fault,) = caught.value.faults
    assert (fault.where, fault.what) == ("two.hipfb", message)


def test_the_most_targets_that_fit() -> None:
    bundle = write_bundle({f"gfx{n:04}": b"x" for n in range(71)})
    assert len(read_bundle(bundle.data).entries) == 71


def test_llvm_reads_it(bundle: OffloadBundle, data: Callable[[str], bytes], tmp_path: Path) -> None:
    tool = shutil.which("clang-offload-bundler-19") or shutil.which("clang-offload-bundler")
    if tool is None:
        pytest.skip("there is no clang-offload-bundler")
    (tmp_path / "two.hipfb").write_bytes(bundle.data)

    def bundler(*arguments: str) -> str:
        done = subprocess.run([tool, "--type=o", "--input=two.hipfb", *arguments], cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout

    ids = ["host-x86_64-unknown-linux-gnu-", *(f"hipv4-amdgcn-amd-amdhsa--{target}" for target in TARGETS)]
    assert sorted(bundler("--list").split()) == sorted(ids)
    for target in TARGETS:
        bundler("--unbundle", f"--targets=hipv4-amdgcn-amd-amdhsa--{target}", "--output=out.elf")
        assert (tmp_path / "out.elf").read_bytes() == data(f"two_kernels.{target}.elf")


def changed(data: bytes, at: int, value: int) -> bytes:
    return data[:at] + struct.pack("<Q", value) + data[at + 8 :]


GOOD = write_bundle({"gfx942": b"first", "gfx1100": b"second"}).data
HOST_ENTRY = 32
FIRST_ENTRY = HOST_ENTRY + 24 + 30


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not an offload bundle: it does not start with the magic"),
        (b"CCOB" + bytes(100), "is a compressed offload bundle"),
        (GOOD[:30], "ends inside the entry table"),
        (GOOD[:100], "ends inside the entry table"),
        (GOOD[:-1], "the object of hipv4-amdgcn-amd-amdhsa--gfx1100 lies outside of the file"),
        (changed(GOOD, 24, (1 << 64) - 1), "the entry table does not end within 4096 bytes, which is all HIP reads"),
        (changed(GOOD, FIRST_ENTRY, 64), "the object of hipv4-amdgcn-amd-amdhsa--gfx942 overlaps the entry table"),
        (changed(GOOD, FIRST_ENTRY, (1 << 64) - 1), "the object of hipv4-amdgcn-amd-amdhsa--gfx942 lies outside of the file"),
        (changed(GOOD, FIRST_ENTRY + 16, 1 << 40), "ends inside the entry table"),
        (GOOD.replace(b"gfx942", b"gfx\0\xff2"), "entry 1 has an id that is not printable ASCII"),
        (
            write_bundle({"gfx942": b"a", "gfx950": b"b"}).data.replace(b"gfx950", b"gfx942"),
            "has more than one entry hipv4-amdgcn-amd-amdhsa--gfx942",
        ),
    ],
)
def test_not_a_bundle(content: bytes, message: str) -> None:
    with pytest.raises(OffloadBundleError) as caught:
        read_bundle(content, where="two.hipfb")
    (fault,) = caught.value.faults
    assert (fault.where, fault.what) == ("two.hipfb", message)


def read_any(content: bytes) -> None:
    try:
        bundle = read_bundle(content)
    except OffloadBundleError:
        return
    for entry in bundle.entries.values():
        assert entry.offset + entry.size <= len(content)


def test_every_prefix() -> None:
    for end in [*range(300), *range(4000, len(GOOD))]:
        read_any(GOOD[:end])


@given(changes=st.lists(st.tuples(st.integers(0, 250), st.integers(0, 255)), min_size=1, max_size=8))
@settings(max_examples=500, deadline=None)
def test_changed_bytes(changes: list[tuple[int, int]]) -> None:
    content = bytearray(GOOD)
    for at, value in changes:
        content[at] = value
    read_any(bytes(content))
