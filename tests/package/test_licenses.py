# SPDX-License-Identifier: Apache-2.0
"""Where device code comes from: licence files of bitcode, and the bill of materials of a wheel that links some."""

from __future__ import annotations

import email
import hashlib
import json
import tarfile
from typing import TYPE_CHECKING, Any

import pytest
from building import PACKAGES, call_hook, copy_project, members

if TYPE_CHECKING:
    from pathlib import Path

LICENSES = {"lib/LICENSE.first": "of the first\n", "lib/licenses/a b.txt": "a\n", "lib/licenses/c.txt": "c\n"}
GFX942 = {"archs": "gfx942"}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`tests/packages/externs` without what needs another distribution, and with licence files of its bitcode."""
    project = copy_project(PACKAGES / "externs", tmp_path_factory.mktemp("licenses") / "project")
    for name, text in LICENSES.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(text)
    settings = project / "pyproject.toml"
    text = settings.read_text()
    text = text.replace('[tool.flydsl-build.kernels."extern_kernels.foreign:foreign"]\nargs = { X = "f32[L]" }\n', "")
    text = text.replace('bitcode = "lib/first_{arch}.ll"\n', 'bitcode = "lib/first_{arch}.ll"\nlicense-files = ["lib/LICENSE.first"]\n')
    both = 'license-files = ["lib/licenses/*", "lib/LICENSE.f*"]\n'
    settings.write_text(text.replace('init = "extern_kernels.state:second"\n', f'init = "extern_kernels.state:second"\n{both}'))
    return project


def built(project: Path, folder: Path, cache: Path, **config: str) -> Path:
    env = {"FLYDSL_BUILD_CACHE": "true", "FLYDSL_BUILD_CACHE_DIR": str(cache)}
    return folder / call_hook(project, "build_wheel", folder, {**GFX942, **config}, env=env).value


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def wheel(project: Path, cache: Path) -> Path:
    """The fat wheel."""
    return built(project, project.parent, cache)


def licenses(wheel: Path) -> tuple[list[str], dict[str, str]]:
    """Return the licence files that METADATA names, and those that are there."""
    content = members(wheel)
    (name,) = [name for name in content if name.endswith(".dist-info/METADATA")]
    metadata = email.message_from_bytes(content[name])
    assert metadata["Metadata-Version"] >= "2.4"
    folder = name.replace("METADATA", "licenses/")
    return metadata.get_all("License-File") or [], {
        file.removeprefix(folder): data.decode() for file, data in content.items() if file.startswith(folder)
    }


def materials(wheel: Path) -> list[dict[str, Any]]:
    (data,) = [data for name, data in members(wheel).items() if name.endswith(".dist-info/sboms/flydsl-build.cdx.json")]
    return [one for one in json.loads(data)["components"] if one["type"] == "file"]


def test_wheel(project: Path, wheel: Path, tmp_path: Path) -> None:
    assert licenses(wheel) == (sorted(LICENSES), LICENSES)
    name = call_hook(project, "prepare_metadata_for_build_wheel", tmp_path, GFX942).value
    assert (tmp_path / name / "METADATA").read_bytes() == members(wheel)[f"{name}/METADATA"]
    assert {file: (tmp_path / name / "licenses" / file).read_text() for file in LICENSES} == LICENSES


def test_bill_of_materials(project: Path, wheel: Path) -> None:
    found = {
        one["name"]: (one["hashes"][0]["content"], [each["url"] for each in one.get("externalReferences", ())]) for one in materials(wheel)
    }
    digests = {name: hashlib.sha256((project / name).read_bytes()).hexdigest() for name in found}
    first, a, c = (f"../licenses/lib/{name}" for name in ("LICENSE.first", "licenses/a%20b.txt", "licenses/c.txt"))
    assert found == {
        "lib/first_gfx942.ll": (digests["lib/first_gfx942.ll"], [first]),
        "lib/second_gfx942.ll": (digests["lib/second_gfx942.ll"], [a, c, first]),
        "lib/stateless_gfx942.ll": (digests["lib/stateless_gfx942.ll"], []),
    }


def test_the_device_wheel_has_them_and_the_host_wheel_has_not(project: Path, cache: Path, wheel: Path, tmp_path: Path) -> None:
    host = built(project, tmp_path, cache, wheel="host")
    device = built(project, tmp_path, cache, wheel="device")
    assert licenses(host) == ([], {})
    assert materials(host) == []
    assert licenses(device) == (sorted(LICENSES), LICENSES)
    assert materials(device) == materials(wheel)


def test_source_distribution(project: Path, tmp_path: Path) -> None:
    name = call_hook(project, "build_sdist", tmp_path).value
    with tarfile.open(tmp_path / name) as archive:
        files = [one.name.partition("/")[2] for one in archive.getmembers() if one.isfile()]
        content = archive.extractfile(f"{name.removesuffix('.tar.gz')}/PKG-INFO")
        assert content is not None
        metadata = email.message_from_bytes(content.read())
    # Wheels built from it must not say more than it does: https://peps.python.org/pep-0643/.
    assert metadata.get_all("License-File") == sorted(LICENSES)
    assert metadata["Metadata-Version"] >= "2.4"
    assert metadata.get_all("Dynamic") is None
    assert [file for file in sorted(files) if file.startswith("lib/")] == sorted(
        [*LICENSES, *(f"lib/{name}_{target}.ll" for name in ("first", "second") for target in ("gfx1100", "gfx942"))]
    )


@pytest.mark.parametrize("hook", ["build_wheel", "build_sdist", "prepare_metadata_for_build_wheel"])
def test_a_missing_licence(hook: str, project: Path, tmp_path: Path) -> None:
    other = copy_project(project, tmp_path / "other")
    (other / "lib" / "LICENSE.first").unlink()
    (tmp_path / "dist").mkdir()
    answer = call_hook(other, hook, tmp_path / "dist", GFX942, ok=False)
    assert answer.status == 1
    assert answer.output.endswith(
        "flydsl-build: configuration failed: 2 faults:\n"
        '  1. tool.flydsl-build.externs.first_of_two.license-files[0]: "lib/LICENSE.first" fits no file of the project\n'
        "    -> correct it; a licence from elsewhere has to be copied into the project\n"
        '  2. tool.flydsl-build.externs.second_of_two.license-files[1]: "lib/LICENSE.f*" fits no file of the project\n'
        "    -> correct it; a licence from elsewhere has to be copied into the project\n"
    )


def test_an_odd_glob(project: Path, tmp_path: Path) -> None:
    other = copy_project(project, tmp_path / "other")
    settings = other / "pyproject.toml"
    settings.write_text(settings.read_text().replace('["lib/LICENSE.first"]', '["lib/**.first", "lib", "lib/[LICENSE"]'))
    (tmp_path / "dist").mkdir()
    answer = call_hook(other, "build_sdist", tmp_path / "dist", ok=False)
    assert answer.status == 1
    assert [line.partition(": ")[0] for line in answer.output.splitlines() if "fits no file" in line] == [
        f"  {number + 1}. tool.flydsl-build.externs.first_of_two.license-files[{number}]" for number in range(3)
    ]


def test_device_library(project: Path, tmp_path: Path) -> None:
    """ROCm's device libraries are linked where a kernel calls them, and then listed. LLVM reads its own text where it reads bitcode."""
    other = copy_project(project, tmp_path / "other")
    source = other / "extern_kernels" / "several.py"
    text = source.read_text()
    assert "X[index] = -X[index]" in text
    text = text.replace("X[index] = -X[index]", "X[index] = fx.Float32(exponential(X[index]))")
    source.write_text(text.replace("\n@flyc.kernel", '\nexponential = ffi("__ocml_exp_f32", ["float32"], "float32")\n\n\n@flyc.kernel', 1))
    libraries = tmp_path / "rocm" / "amdgcn" / "bitcode"
    libraries.mkdir(parents=True)
    ocml = 'target triple = "amdgcn-amd-amdhsa"\ndefine float @__ocml_exp_f32(float %x) {\n  ret float %x\n}\n'
    (libraries / "ocml.bc").write_text(ocml)
    (libraries / "ockl.bc").write_text('target triple = "amdgcn-amd-amdhsa"\n')
    (tmp_path / "dist").mkdir()
    wheel = built(other, tmp_path / "dist", tmp_path / "cache", **{"rocm-path": str(tmp_path / "rocm")})
    (linked,) = [one for one in materials(wheel) if one["description"] == "ROCm device library"]
    assert (linked["name"], linked["hashes"][0]["content"]) == ("ocml.bc", hashlib.sha256(ocml.encode()).hexdigest())
    provenance = json.loads(members(wheel)["extern_kernels/_flydsl/several.json"])["provenance"]
    assert [(one["file"], one["targets"]) for one in provenance["device_libraries"]] == [("ocml.bc", ["gfx942"])]
