# SPDX-License-Identifier: Apache-2.0
"""`flydsl-build inspect`: what the manifest and the ELF files say."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from building import unpack
from calling import Built, change_manifest, changed_wheel, run_command

from flydsl_build.toolchain.disassembler import find_disassemblers

MANIFEST = "space/_flydsl_halve/halve.json"
BUNDLE = "space/_flydsl_halve/halve.hipfb"

SBOM = "second_kernels-0.3.dist-info/sboms/flydsl-build.cdx.json"

TEXT = """\
bill of materials: second_kernels-0.3.dist-info/sboms/flydsl-build.cdx.json
space.halve
    from       second-kernels 0.3
    targets    gfx942, gfx1100
    loads      at import
    file       space/_flydsl_halve/halve.json, N bytes
    file       space/_flydsl_halve/halve.launchers.elf, N bytes
    file       space/_flydsl_halve/halve.hipfb, N bytes
    made with  VERSIONS
    source     space/halve.py, SHA-256 DIGEST
    unit main
        gfx942     N bytes at 4096, gfx942, xnack any, sramecc any (e_flags 0x54c), code object version 6, SHA-256 DIGEST
        gfx1100    N bytes at 12288, gfx1100 (e_flags 0x41), code object version 6, SHA-256 DIGEST
    launcher halve(X, n, stream)
        halve, space/halve.py:LINE
            argument   X = f32[L]
            argument   n = i32
            argument   stream = stream
            out        X
            slot       data of X, 8 bytes, aligned to 8
            slot       layout of X, 4 bytes, aligned to 1, extents [0] of 32 bits, strides [] of 64 bits
            slot       scalar of n, 4 bytes, aligned to 4
            slot       stream of stream, 8 bytes, aligned to 8
            entry      gfx942: ENTRY launches halve_kernel_0
            entry      gfx1100: ENTRY launches halve_kernel_0

"""


def stable(text: str) -> str:
    """Replace what depends on versions of FlyDSL, LLVM and the linker."""
    text = re.sub(r"\b[0-9a-f]{64}\b", "DIGEST", text)
    text = re.sub(r"(?<=made with  ).*", "VERSIONS", text)
    text = re.sub(r"\b\d+ bytes at", "N bytes at", re.sub(r"(file +\S+), \d+ bytes", r"\1, N bytes", text))
    return re.sub(r"fdb_[0-9a-f]+", "ENTRY", re.sub(r"halve\.py:\d+", "halve.py:LINE", text))


def test_text(call: Any, second: Built) -> None:
    answer = call("inspect", second.wheel)
    assert (answer.status, answer.err) == (0, "")
    described, header, *rows = stable(answer.out).partition("specialization ")
    assert described == TEXT
    assert header
    table = [line.split() for line in ("specialization " + rows[0]).splitlines()]
    assert table[0] == ["specialization", "target", "kernel", "code", "B", "VGPR", "AGPR", "SGPR", "LDS", "B", "spills", "waves"]
    assert [row[:3] for row in table[1:]] == [["space.halve:halve", target, "halve_kernel_0"] for target in ("gfx942", "gfx1100")]


def test_json(call: Any, second: Built) -> None:
    answer = call("inspect", second.wheel, "--json")
    value = json.loads(answer.out)
    assert (value["path"], value["size"], value["sboms"]) == (second.wheel.name, second.wheel.stat().st_size, [SBOM])
    (module,) = value["modules"]
    with zipfile.ZipFile(second.wheel) as archive:
        manifest = json.loads(archive.read(MANIFEST))
        sizes = {info.filename: info.file_size for info in archive.infolist()}
    assert module.pop("manifest_file") == MANIFEST
    assert module.pop("files") == {name: sizes[name] for name in (MANIFEST, "space/_flydsl_halve/halve.launchers.elf", BUNDLE)}
    (specialization,) = module["launchers"][0]["specializations"]
    assert specialization["arguments"] == {"X": "f32[L]", "n": "i32", "stream": "stream"}
    objects = module["units"][0]["code_objects"]
    elf = {target: one.pop("elf") for target, one in objects.items()}
    assert elf["gfx942"]["e_flags"] == "gfx942, xnack any, sramecc any (e_flags 0x54c)"
    assert (elf["gfx1100"]["os_abi"], elf["gfx1100"]["abi_version"]) == (64, 4)
    symbols = {one["name"]: (one["type"], one["binding"]) for one in elf["gfx942"]["symbols"]}
    assert symbols == {"halve_kernel_0": ("FUNC", "GLOBAL"), "halve_kernel_0.kd": ("OBJECT", "GLOBAL")}
    # 192 work items: ten workgroups of six wavefronts in the 64 places of a WGP of gfx1100, or of three in the 32 of a CU of gfx942.
    assert {target: one["kernels"][0].pop("occupancy") for target, one in objects.items()} == {"gfx942": 8, "gfx1100": 15}
    # Everything else is the manifest, word for word.
    specialization["arguments"] = manifest["launchers"][0]["specializations"][0]["arguments"]
    assert module == manifest


def test_folders(call: Any, second: Built, tiny: Built, tmp_path: Path) -> None:
    site = unpack(tmp_path / "site", second.wheel, tiny.wheel)
    modules = [one["module"] for one in json.loads(call("inspect", site, "--json").out)["modules"]]
    assert modules == ["space.halve", "tiny_kernels.negate"]
    for folder in (site / "space", site / "space" / "_flydsl_halve"):
        (module,) = json.loads(call("inspect", folder, "--json").out)["modules"]
        assert module["module"] == "space.halve"
        assert None not in module["files"].values()


# --- disassembly --------------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not list(find_disassemblers()), reason="there is no llvm-objdump")
def test_isa(call: Any, second: Built) -> None:
    answer = call("inspect", second.wheel, "--isa", "halve_kernel_0", "--arch", "gfx942")
    assert answer.status == 0
    first, label, *lines = answer.out.splitlines()
    assert (first, label) == ("; space.halve, unit main, gfx942", "halve_kernel_0:")
    words = [line.split()[0] for line in lines if line.strip()]
    assert "s_endpgm" in words
    assert any(word.startswith("v_mul_f32") for word in words)
    assert {"global_load_dword", "flat_load_dword"} & set(words)


def test_isa_without_a_tool(second: Built, tmp_path: Path) -> None:
    (tmp_path / "rocm").mkdir()
    words = ("inspect", second.wheel, "--isa", "halve_kernel_0", "--arch", "gfx1100")
    if Path("/opt/rocm/llvm/bin/llvm-objdump").exists():
        pytest.skip("ROCm's tool cannot be hidden")
    done = run_command(*words, cwd=tmp_path, env={"PATH": str(tmp_path), "ROCM_PATH": str(tmp_path / "rocm"), "HIP_PATH": ""})
    assert (done.returncode, done.stdout) == (1, "")
    what = "no llvm-objdump that knows gfx1100 was found, and FlyDSL's own LLVM has no disassembler that can be called"
    fix = "install ROCm or a newer LLVM with llvm-objdump, put it on PATH or set ROCM_PATH, or build with -C dump-ir=DIR for the ISA"
    assert done.stderr.splitlines()[:2] == [f"flydsl-build: halve_kernel_0, gfx1100: {what}", f"    -> {fix}"]
    assert f"ROCM_PATH ({tmp_path}/rocm/llvm/bin/llvm-objdump): not found" in done.stderr


def test_isa_of_a_tool_that_does_not_know_the_chip(second: Built, tmp_path: Path) -> None:
    tool = tmp_path / "llvm-objdump"
    tool.write_text(
        "#!/bin/sh\necho \"'gfx1100' is not a recognized processor for this target (ignoring processor)\" >&2\n"
        'printf "0 <halve_kernel_0>:\\n\\ts_endpgm\\n"\n'
    )
    tool.chmod(0o755)
    if Path("/opt/rocm/llvm/bin/llvm-objdump").exists():
        pytest.skip("ROCm's tool cannot be hidden")
    words = ("inspect", second.wheel, "--isa", "halve_kernel_0", "--arch", "gfx1100")
    done = run_command(*words, cwd=tmp_path, env={"PATH": str(tmp_path)})
    assert done.returncode == 1
    assert f"{tool}: cannot disassemble gfx1100 ('gfx1100' is not a recognized processor" in done.stderr


def test_isa_with_instructions_that_the_tool_does_not_know(second: Built, tmp_path: Path) -> None:
    tool = tmp_path / "llvm-objdump"
    tool.write_text('#!/bin/sh\nprintf "0 <halve_kernel_0>:\\n\\t.long 0xd73c0000\\n\\ts_endpgm\\n"\n')
    tool.chmod(0o755)
    if Path("/opt/rocm/llvm/bin/llvm-objdump").exists():
        pytest.skip("ROCm's tool cannot be hidden")
    words = ("inspect", second.wheel, "--isa", "halve_kernel_0", "--arch", "gfx1100")
    done = run_command(*words, cwd=tmp_path, env={"PATH": str(tmp_path)})
    assert done.stdout == "; space.halve, unit main, gfx1100\nhalve_kernel_0:\n\t.long 0xd73c0000\n\ts_endpgm\n"
    assert f"warning: {tool} does not know 1 instructions (.long)" in done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--isa", "halve_kernel"), '--isa: there is no kernel halve_kernel\n    -> Did you mean "halve_kernel_0"?'),
        (("--isa", "halve_kernel_0"), "--isa: halve_kernel_0 is there for gfx942, gfx1100\n    -> add --arch gfx942"),
        (
            ("--isa", "halve_kernel_0", "--arch", "gfx1101"),
            '--arch: halve_kernel_0 is not there for gfx1101\n    -> Did you mean "gfx1100"?',
        ),
        (("--arch", "gfx942"), "--arch: says nothing without --isa\n    -> add --isa KERNEL"),
    ],
)
def test_bad_isa(call: Any, second: Built, words: tuple[str, ...], message: str) -> None:
    answer = call("inspect", second.wheel, *words)
    assert (answer.status, answer.out, answer.err) == (1, "", f"flydsl-build: {message}\n")


# --- bad input ------------------------------------------------------------------------------------------------------------------


def test_bad_paths(call: Any, tmp_path: Path) -> None:
    fix = "\n    -> give a wheel, or a folder with an installed or built package\n"
    assert call("inspect", tmp_path / "no.whl").err == f"flydsl-build: {tmp_path / 'no.whl'}: does not exist{fix}"
    (tmp_path / "text.whl").write_text("text")
    assert (
        call("inspect", tmp_path / "text.whl").err == f"flydsl-build: {tmp_path / 'text.whl'}: is not a wheel (File is not a zip file){fix}"
    )
    with zipfile.ZipFile(tmp_path / "other.whl", "w") as archive:
        archive.writestr("other/data.json", "{}")
    fixes = {
        tmp_path / "other.whl": "give a wheel or folder that has a _flydsl folder",
        tmp_path: f"name the wheel: {tmp_path / 'other.whl'}",
    }
    for path, fix in fixes.items():
        assert call("inspect", path).err == f"flydsl-build: {path}: has no kernels built by flydsl-build\n    -> {fix}\n"


def test_damaged_wheels(call: Any, second: Built, tmp_path: Path) -> None:
    cut = changed_wheel(second.wheel, tmp_path / "cut.whl", {BUNDLE: lambda data: data[:5000]})
    assert call("inspect", cut).err.startswith(f"flydsl-build: {BUNDLE}: ends before the code object of gfx942 does")
    other = changed_wheel(second.wheel, tmp_path / "other.whl", {BUNDLE: lambda data: data[:4096] + bytes(len(data) - 4096)})
    assert call("inspect", other, "--json").err.startswith(f"flydsl-build: {BUNDLE}, gfx1100: is damaged: ")
    gone = changed_wheel(second.wheel, tmp_path / "gone.whl", {BUNDLE: None})
    assert call("inspect", gone).err.startswith(f"flydsl-build: {BUNDLE}: is not in the wheel\n")
    newer = changed_wheel(second.wheel, tmp_path / "newer.whl", {MANIFEST: change_manifest(lambda value: value.update(schema=99))})
    answer = call("inspect", newer)
    assert (answer.status, answer.err.split(",")[0]) == (1, f"flydsl-build: {MANIFEST}: schema: is 99")


def test_a_reader_that_stops(second: Built, tmp_path: Path) -> None:
    if shutil.which("head") is None:
        pytest.skip("there is no head")
    command = f"{sys.executable} -m flydsl_build inspect --json {second.wheel} | head -c 10"
    done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ('{\n "path":', "")
