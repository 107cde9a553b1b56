# SPDX-License-Identifier: Apache-2.0
"""Wheel tags computed from the files of a wheel."""

from __future__ import annotations

import dataclasses
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from sample_bundle import DATA

import flydsl_build
from flydsl_build.errors import VerifyError
from flydsl_build.package.platform_tag import _glibc_minor, platform_tag, wheel_tag
from flydsl_build.targets.elf import read_elf

HOST = DATA / "needs_glibc.x86_64.elf"
BARE = DATA / "two_entries.x86_64.elf"
CODE_OBJECT = DATA / "two_kernels.gfx942.elf"


def changed(tmp_path: Path, old: bytes, new: bytes) -> Path:
    """Return the host library with one name of its string table exchanged; equal lengths keep the file sound."""
    content = HOST.read_bytes()
    assert len(old) == len(new)
    assert old in content
    path = tmp_path / "changed.so"
    path.write_bytes(content.replace(old, new))
    return path


def test_without_host_files(tmp_path: Path) -> None:
    text = tmp_path / "module.py"
    text.write_text("x = 1\n", encoding="ascii")
    empty = tmp_path / "empty"
    empty.write_bytes(b"")
    assert platform_tag([text, empty, CODE_OBJECT]) == "any"
    assert wheel_tag("py3-none-any", [text, CODE_OBJECT]) == "py3-none-any"


def test_files_that_need_nothing_constrain_nothing() -> None:
    assert platform_tag([BARE, CODE_OBJECT]) == "manylinux_2_17_x86_64"


def test_the_most_demanding_file_decides() -> None:
    assert platform_tag([BARE, HOST]) == "manylinux_2_34_x86_64"


@pytest.mark.parametrize(
    ("version", "tag"),
    [
        (b"GLIBC_2.28", "manylinux_2_28_x86_64"),
        (b"GLIBC_2.05", "manylinux_2_17_x86_64"),
        (b"GLIBC_3.34", "linux_x86_64"),
        (b"GLIBC_PRIV", "linux_x86_64"),
        (b"GCC_12.0.0", "manylinux_2_35_x86_64"),
        (b"GCC_99.0.0", "linux_x86_64"),
        (b"CXXABI_1.3", "manylinux_2_17_x86_64"),
    ],
)
def test_versions(tmp_path: Path, version: bytes, tag: str) -> None:
    assert platform_tag([changed(tmp_path, b"GLIBC_2.34", version)]) == tag


@pytest.mark.parametrize(
    ("versions", "minor"),
    [
        ((), 0),
        (("GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_2.4"), 17),
        (("GLIBCXX_3.4.19", "CXXABI_1.3.7", "CXXABI_TM_1", "GCC_3.0"), 17),
        (("GLIBCXX_3.4.25",), 31),
        (("CXXABI_FLOAT128",), 24),
        (("GLIBC_ABI_DT_RELR", "GLIBC_2.2.5"), 36),
        (("GLIBCXX_3.4.33", "CXXABI_1.3.15"), 39),
        (("GLIBCXX_3.4.99",), None),
        (("GLIBC_PRIVATE", "GLIBC_2.17"), None),
        (("ZLIB_1.2.0",), None),
        (("",), None),
    ],
)
def test_versions_of_all_libraries(versions: tuple[str, ...], minor: int | None) -> None:
    assert _glibc_minor(dataclasses.replace(read_elf(BARE.read_bytes()), needed_versions=versions)) == minor


def test_a_library_outside_of_the_policy(tmp_path: Path) -> None:
    assert platform_tag([changed(tmp_path, b"libc.so.6", b"libz.so.1")]) == "linux_x86_64"
    assert platform_tag([changed(tmp_path, b"libc.so.6", b"libm.so.6"), BARE]) == "manylinux_2_34_x86_64"


def test_other_processors(tmp_path: Path) -> None:
    content = bytearray(BARE.read_bytes())
    struct.pack_into("<H", content, 18, 183)
    path = tmp_path / "arm.so"
    path.write_bytes(content)
    with pytest.raises(VerifyError) as caught:
        platform_tag([path, BARE])
    (fault,) = caught.value.faults
    assert (fault.where, fault.what) == (str(path), "is no sound ELF file: it is for AArch64, and wheels are built for x86-64")
    struct.pack_into("<H", content, 18, 190)  # CUDA
    path.write_bytes(content)
    assert platform_tag([path]) == "any"


def test_damaged_files(tmp_path: Path) -> None:
    short = tmp_path / "short.so"
    short.write_bytes(HOST.read_bytes()[:2000])
    with pytest.raises(VerifyError) as caught:
        platform_tag([short, tmp_path / "absent.so"])
    assert [fault.where for fault in caught.value.faults] == [str(short), str(tmp_path / "absent.so")]


@pytest.mark.parametrize(
    ("existing", "tag"),
    [
        ("py3-none-any", "cp311-abi3-manylinux_2_34_x86_64"),
        ("py3-none-linux_x86_64", "cp311-abi3-manylinux_2_34_x86_64"),
        ("cp312-cp312-linux_x86_64", "cp312-cp312-manylinux_2_34_x86_64"),
        ("cp39-abi3-linux_x86_64", "cp311-abi3-manylinux_2_34_x86_64"),
        ("cp313-abi3-linux_x86_64", "cp313-abi3-manylinux_2_34_x86_64"),
    ],
)
def test_wheel_tags(existing: str, tag: str) -> None:
    assert wheel_tag(existing, [HOST, CODE_OBJECT]) == tag


@pytest.mark.parametrize("existing", ["cp310-cp310-linux_x86_64", "cp313-cp313t-linux_x86_64", "pp311-pypy311_pp73-linux_x86_64"])
def test_interpreters_the_run_time_cannot_run_in(existing: str) -> None:
    with pytest.raises(VerifyError, match=f"built for {existing.removesuffix('-linux_x86_64')}"):
        wheel_tag(existing, [HOST])


def test_not_a_tag() -> None:
    with pytest.raises(ValueError, match="is not a wheel tag"):
        wheel_tag("py3", [])


def test_the_run_time_binds_no_symbol_that_is_too_new() -> None:
    """Whatever gcc and glibc built it: manylinux_2_28 is what ROCm's own wheels need."""
    runtime = Path(flydsl_build.__file__).parent / "runtime"
    (native,) = runtime.glob("_native*.so")
    needs = set(read_elf(native.read_bytes()).needed_versions)
    newer = {need for need in needs if tuple(map(int, need.removeprefix("GLIBC_").split("."))) > (2, 28)}
    assert newer == set()
    assert platform_tag([native]) in {f"manylinux_2_{minor}_x86_64" for minor in range(17, 29)}


def test_the_versions_are_those_of_the_policy() -> None:
    """Every version of a symbol that some manylinux policy knows asks for the first policy that has it."""
    policies: Any = pytest.importorskip("auditwheel.policy")
    architecture: Any = pytest.importorskip("auditwheel.architecture")
    libc: Any = pytest.importorskip("auditwheel.libc")
    known = policies.WheelPolicies(libc=libc.Libc.GLIBC, arch=architecture.Architecture.x86_64)
    first: dict[str, int] = {}
    for policy in known:
        for name in (policy.name, *policy.aliases):
            match = re.fullmatch(r"manylinux_2_(\d+)", name.removesuffix("_x86_64"))
            for prefix, versions in policy.symbol_versions.items() if match else ():
                for version in versions:
                    text = f"{prefix}_{version}"
                    first[text] = min(first.get(text, 99), int(match[1]))
    assert "GLIBC_2.34" in first
    checked = {text: minor for text, minor in first.items() if text.startswith(("GLIBC_2", "GLIBCXX_3", "CXXABI_1", "GCC_"))}
    assert len(checked) > 100
    wrong = {}
    for text, minor in checked.items():
        mine = _glibc_minor(dataclasses.replace(read_elf(BARE.read_bytes()), needed_versions=(text,)))
        policy_minors = sorted(set(first.values()))
        # A policy for each release of glibc is not there: ours may be finer, never looser.
        if mine is None or next((one for one in policy_minors if one >= max(mine, 17)), None) != max(minor, 17):
            wrong[text] = (mine, minor)
    assert wrong == {}
