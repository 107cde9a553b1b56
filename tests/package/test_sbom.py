# SPDX-License-Identifier: Apache-2.0
"""The software bill of materials, made of manifests."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from flydsl_build.bundle.manifest import Bitcode
from flydsl_build.jobs.job import Tool
from flydsl_build.package.sbom import sbom, sbom_facts

if TYPE_CHECKING:
    from flydsl_build.bundle.manifest import Manifest

MORI = Bitcode(
    file="lib/mori 1.bc", sha256="a" * 64, size=9, code_object_version=6, targets=("gfx950",), license_files=("lib/LICENSE.mori",)
)
OCML = Bitcode(file="ocml.bc", sha256="b" * 64, size=5, code_object_version=None, targets=("gfx942", "gfx950"))


@pytest.fixture
def made(manifest: Manifest) -> Manifest:
    """A manifest with bitcode of an extern and a device library."""
    return replace(manifest, provenance=replace(manifest.provenance, bitcode=(MORI,), device_libraries=(OCML,)))


def document(*manifests: Manifest, **changes: Any) -> Any:
    settings = {"name": "Some.Kernels", "version": "1.0+gfx942", "targets": ("gfx942", "gfx950"), **changes}
    return json.loads(sbom([one.provenance for one in manifests], **settings))


def components(value: Any) -> list[tuple[str, str, str]]:
    return [(one["name"], one.get("version", ""), one["scope"]) for one in value["components"]]


def test_components(made: Manifest) -> None:
    value = document(made)
    assert value["metadata"] == {
        "lifecycles": [{"phase": "build"}],
        "tools": {
            "components": [
                {
                    "type": "application",
                    "bom-ref": "pkg:pypi/flydsl-build@0.1.0",
                    "name": "flydsl-build",
                    "version": "0.1.0",
                    "purl": "pkg:pypi/flydsl-build@0.1.0",
                }
            ]
        },
        "component": {
            "type": "library",
            "bom-ref": "pkg:pypi/some-kernels@1.0%2Bgfx942",
            "name": "Some.Kernels",
            "version": "1.0+gfx942",
            "purl": "pkg:pypi/some-kernels@1.0%2Bgfx942",
        },
    }
    assert components(value) == [
        ("flydsl", "0.5.0", "excluded"),
        ("LLVM", "24.0git", "excluded"),
        ("lld", "22.1.0", "excluded"),
        ("flydsl-build", "0.1.0", "required"),
        ("lib/mori 1.bc", "", "required"),
        ("ocml.bc", "", "required"),
    ]
    assert value["components"][0]["purl"] == "pkg:pypi/flydsl@0.5.0"
    assert value["components"][4] == {
        "type": "file",
        "bom-ref": f"lib/mori 1.bc@{'a' * 64}",
        "name": "lib/mori 1.bc",
        "scope": "required",
        "description": "bitcode of an extern",
        "hashes": [{"alg": "SHA-256", "content": "a" * 64}],
        "properties": [{"name": "flydsl-build:target", "value": "gfx950"}],
        "externalReferences": [{"type": "license", "url": "../licenses/lib/LICENSE.mori"}],
    }


def test_what_is_not_in_the_wheel_is_not_in_its_list(made: Manifest) -> None:
    assert [name for name, _, scope in components(document(made, targets=())) if scope == "required"] == ["flydsl-build"]
    device = document(made, targets=("gfx942",), host=False)
    assert [name for name, _, scope in components(device) if scope == "required"] == ["ocml.bc"]
    assert device["components"][-1]["properties"] == [{"name": "flydsl-build:target", "value": "gfx942"}]


def test_modules_share_what_they_share(made: Manifest) -> None:
    other = replace(made.provenance, bitcode=(replace(MORI, targets=("gfx942",), license_files=("NOTICE",)),), device_libraries=())
    value = document(made, replace(made, module="other", provenance=other))
    (mori,) = [one for one in value["components"] if one["name"] == MORI.file]
    assert [one["value"] for one in mori["properties"]] == ["gfx942", "gfx950"]
    assert [one["url"] for one in mori["externalReferences"]] == ["../licenses/lib/LICENSE.mori", "../licenses/NOTICE"]


def test_equal_input_gives_equal_bytes_without_time_or_chance(made: Manifest) -> None:
    text = sbom([made.provenance], name="a", version="1", targets=("gfx942",))
    assert text == sbom([made.provenance], name="a", version="1", targets=("gfx942",))
    assert not {"serialNumber", "timestamp"} & {*json.loads(text), *json.loads(text)["metadata"]}


def test_references_are_unique_and_lead_somewhere(made: Manifest) -> None:
    value = document(made)
    known = [one["bom-ref"] for one in (value["metadata"]["component"], *value["metadata"]["tools"]["components"], *value["components"])]
    assert len(known) == len(set(known))
    used = {ref for one in value["dependencies"] for ref in (one["ref"], *one.get("dependsOn", ()))}
    assert used <= set(known)


@pytest.mark.parametrize("targets", [("gfx942", "gfx950"), ()])
def test_schema(made: Manifest, targets: tuple[str, ...]) -> None:
    validation: Any = pytest.importorskip("cyclonedx.validation.json")
    schema: Any = pytest.importorskip("cyclonedx.schema")
    validator = validation.JsonStrictValidator(schema.SchemaVersion.V1_6)
    assert validator.validate_str(json.dumps({**document(made), "components": [{"type": "thing"}]})) is not None
    assert validator.validate_str(sbom([made.provenance], name="Some.Kernels", version="1.0", targets=targets)) is None


def test_modules_of_several_compilers(made: Manifest) -> None:
    """Each compiler depends on what it runs; a tool of both is listed once."""
    clang = Tool(name="clang", version="20.1", distribution="ziglang")
    lld, own = made.provenance.tools[-2:]
    other = replace(made.provenance, tools=(clang, lld, own), bitcode=(), device_libraries=())
    value = document(made, replace(made, module="other", provenance=other))
    assert components(value)[:5] == [
        ("flydsl", "0.5.0", "excluded"),
        ("LLVM", "24.0git", "excluded"),
        ("lld", "22.1.0", "excluded"),
        ("clang", "20.1", "excluded"),
        ("flydsl-build", "0.1.0", "required"),
    ]
    assert value["components"][3]["description"] == "the copy inside ziglang"
    assert value["dependencies"][1:5] == [
        {"ref": "pkg:pypi/flydsl@0.5.0", "dependsOn": ["LLVM@24.0git", "lld@22.1.0"]},
        {"ref": "clang@20.1", "dependsOn": ["lld@22.1.0"]},
        {"ref": "LLVM@24.0git"},
        {"ref": "lld@22.1.0"},
    ]


def test_facts(made: Manifest) -> None:
    text = sbom([made.provenance], name="a", version="1", targets=("gfx950",))
    assert sbom_facts(text) == [
        ("application", "LLVM", "24.0git", ""),
        ("application", "flydsl", "0.5.0", ""),
        ("application", "lld", "22.1.0", ""),
        ("file", "lib/mori 1.bc", "", "a" * 64),
        ("file", "ocml.bc", "", "b" * 64),
        ("library", "flydsl-build", "0.1.0", ""),
    ]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"components": 1}', '{"components": [{"type": "file"}]}', "[" * 100_000])
def test_no_such_document(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no CycloneDX document|Expecting value"):
        sbom_facts(text)
