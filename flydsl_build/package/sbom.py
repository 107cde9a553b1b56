# SPDX-License-Identifier: Apache-2.0
"""The software bill of materials of a wheel, made of its manifests.

PEP 770 gives its place, `.dist-info/sboms/`; CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json/) its form. What only made the code is
listed with scope `excluded`, what is in the wheel with scope `required`. There is no serial number and no time,
so equal wheels have equal documents.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from flydsl_build.config.names import normalized

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

    from flydsl_build.bundle.manifest import Bitcode, Provenance
    from flydsl_build.jobs.job import Tool

__all__ = ["SBOM_FILE", "Fact", "sbom", "sbom_facts"]

SBOM_FILE: Final = "flydsl-build.cdx.json"
"""File name in `.dist-info/sboms/`."""

Fact = tuple[str, str, str, str]
"""Type, name, version and SHA-256 of a component; empty strings for what it does not have."""

_RUN_TIME = "flydsl-build"


def sbom(made: Sequence[Provenance], *, name: str, version: str, targets: Container[str], host: bool = True) -> str:
    """Return the document.

    Parameters
    ----------
    made
        Of each module of the wheel; at least one.
    name, version
        Of the distribution.
    targets
        Those whose code is in the wheel.
    host
        Whether the run time is in the wheel.
    """
    root = _python(name, version)
    # The references of what a module's compiler runs, by that of the compiler.
    runs: dict[str, dict[str, None]] = {}
    tools: dict[str, dict[str, Any]] = {}
    for provenance in made:
        compiler, *others = [_tool(one) for one in provenance.tools if one.name != _RUN_TIME]
        tools.update({one["bom-ref"]: one for one in (compiler, *others)})
        runs.setdefault(compiler["bom-ref"], {}).update({one["bom-ref"]: None for one in others})
    own = next(one for one in made[0].tools if one.name == _RUN_TIME)
    contained: list[dict[str, Any]] = []
    if host:
        # Not the reference of the tool, which is unique in a document.
        copied = _python(_RUN_TIME, own.version)
        contained.append(
            {**copied, "bom-ref": "run-time", "scope": "required", "description": "its run-time library, of which the wheel has a copy"}
        )
    contained += [_bitcode(one, "bitcode of an extern") for one in _linked(made, "bitcode", targets)]
    contained += [_bitcode(one, "ROCm device library") for one in _linked(made, "device_libraries", targets)]
    components = [*tools.values(), *contained]
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "lifecycles": [{"phase": "build"}],
            "tools": {"components": [_python(own.name, own.version, "application")]},
            "component": root,
        },
        "components": components,
        "dependencies": [
            {"ref": root["bom-ref"], "dependsOn": [one["bom-ref"] for one in contained]},
            *({"ref": one, "dependsOn": list(others)} for one, others in runs.items()),
            *({"ref": one["bom-ref"]} for one in components if one["bom-ref"] not in runs),
        ],
    }
    return json.dumps(document, indent=1, ensure_ascii=True) + "\n"


def _python(name: str, version: str, kind: str = "library") -> dict[str, Any]:
    purl = f"pkg:pypi/{normalized(name)}@{quote(version, safe='')}"
    return {"type": kind, "bom-ref": purl, "name": name, "version": version, "purl": purl}


def _named(kind: str, name: str, version: str) -> dict[str, Any]:
    return {"type": kind, "bom-ref": f"{name}@{version}", "name": name, "version": version}


def _tool(tool: Tool) -> dict[str, Any]:
    if tool.distribution == tool.name:
        return {**_python(tool.name, tool.version, "application"), "scope": "excluded"}
    inside = {"description": f"the copy inside {tool.distribution}"} if tool.distribution else {}
    return {**_named("application", tool.name, tool.version), "scope": "excluded", **inside}


def _bitcode(bitcode: Bitcode, description: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "type": "file",
        "bom-ref": f"{bitcode.file}@{bitcode.sha256}",
        "name": bitcode.file,
        "scope": "required",
        "description": description,
        "hashes": [{"alg": "SHA-256", "content": bitcode.sha256}],
        "properties": [{"name": "flydsl-build:target", "value": target} for target in bitcode.targets],
    }
    if bitcode.license_files:
        found["externalReferences"] = [{"type": "license", "url": f"../licenses/{quote(file)}"} for file in bitcode.license_files]
    return found


def _linked(made: Sequence[Provenance], kind: str, wanted: Container[str]) -> Iterator[Bitcode]:
    """Yield what was linked into code objects of any module, each file once."""
    found: dict[tuple[str, str], Bitcode] = {}
    for one in (one for provenance in made for one in getattr(provenance, kind)):
        known = found.get((one.file, one.sha256), one)
        targets = [each for each in dict.fromkeys((*known.targets, *one.targets)) if each in wanted]
        files = dict.fromkeys((*known.license_files, *one.license_files))
        found[one.file, one.sha256] = replace(known, targets=tuple(sorted(targets)), license_files=tuple(files))
    for key in sorted(found):
        if found[key].targets:
            yield found[key]


def sbom_facts(document: str | bytes) -> list[Fact]:
    """Return what a document says of its components, sorted.

    Raises
    ------
    ValueError
        It is not such a document.
    """
    try:
        data = json.loads(document)
        return sorted(
            (
                str(one["type"]),
                str(one["name"]),
                str(one.get("version", "")),
                next((str(each["content"]) for each in one.get("hashes", ()) if each["alg"] == "SHA-256"), ""),
            )
            for one in data["components"]
        )
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        msg = f"it is no CycloneDX document ({error!r})"
        raise ValueError(msg) from None
