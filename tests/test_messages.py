# SPDX-License-Identifier: Apache-2.0
"""What of long outputs is shown, which faults are one, and which distribution has a module."""

from __future__ import annotations

import runpy
import tempfile
from typing import TYPE_CHECKING

import pytest

from flydsl_build.engine.scheduler import merged
from flydsl_build.errors import Fault, excerpt
from flydsl_build.frontends.missing_modules import distribution_of, missing_module
from flydsl_build.jobs.captured_output import read_log

if TYPE_CHECKING:
    from pathlib import Path

KERNEL = 'tool.flydsl-build.kernels."pkg.mod:build"'


def lines(count: int, word: str = "line") -> list[str]:
    return [f"{word} {number}" for number in range(count)]


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ([], []),
        (lines(60), lines(60)),
        (lines(61), [*lines(61)[:40], "… 1 lines …", *lines(61)[-20:]]),
        (["a", "a", "", "", "b", "a"], ["a (2 times)", "", "b", "a"]),
        # LLVM's reason stands first; what it wrote before is not lost.
        (["warning: w", "x", "LLVM ERROR: r", "dump"], ["LLVM ERROR: r", "dump", "warning: w", "x"]),
        (["LLVM ERROR: r", *lines(99)], ["LLVM ERROR: r", *lines(39), "… 40 lines …", *lines(99)[-20:]]),
        # Another reason only where it would be cut.
        (["x", "error: r"], ["x", "error: r"]),
        ([*lines(80), "ld.lld: error: r"], ["ld.lld: error: r", *lines(39), "… 21 lines …", *lines(80)[-20:]]),
        # The same message at other places, with or without the line that it is about.
        (
            ["<unknown>:1:2: error: no", "  v1", "  ^", "<unknown>:3:4: error: no", "  v2", "  ^", "error: other"],
            ["<unknown>:1:2: error: no (2 times)", "  v1", "  ^", "error: other"],
        ),
        (
            ["k.ll:1:2: warning: at 0x12", "between", "k.ll:9:9: warning: at 0x34", "k.ll:9:9: note: at 0x34"],
            ["k.ll:1:2: warning: at 0x12 (2 times)", "between", "k.ll:9:9: note: at 0x34"],
        ),
    ],
)
def test_excerpts(given: list[str], shown: list[str]) -> None:
    assert excerpt("\n".join(given)).splitlines() == shown


def test_excerpts_of_long_lines() -> None:
    text = excerpt("a" * 15_000 + "b" * 15_000)
    assert text == f"{'a' * 10_000}\n… 10000 characters …\n{'b' * 10_000}"


def test_a_log_without_end() -> None:
    with tempfile.TemporaryFile() as file:
        file.write(b"former\n")
        start = file.tell()
        file.write(b"first\n" + b"x" * 3_000_000 + b"\nLLVM ERROR: reason\n" + b"y" * 3_000_000 + b"\nlast\n")
        file.flush()
        text = read_log(file.fileno(), start)
        assert text.startswith("LLVM ERROR: reason\nyyy")
        assert text.endswith("yyy\nlast")
        assert len(text) < 2_100_000 + 100
        assert read_log(file.fileno(), 0).startswith("LLVM ERROR: reason\n")


def fault(name: str, target: str, detail: str, what: str = "it failed") -> Fault:
    return Fault(where=f"{KERNEL}{f' [{name}]' if name else ''}, {target}", what=what, fix="see below", detail=detail)


def test_one_cause_is_one_fault() -> None:
    many = [
        fault(f"build-N{n}-{dtype}", target, f"k.py:7: f()\nValueError: {n} of {dtype} on {target}", f"f failed for build-N{n}-{dtype}")
        for target in ("gfx942", "gfx950")
        for n in (64, 128)
        for dtype in ("f16", "bf16")
    ]
    (one,) = merged(many)
    assert one == Fault(
        where=f"{KERNEL} [build-N64-f16 and 3 more], gfx942, gfx950",
        what="f failed for build-N64-f16",
        fix="see below",
        detail="k.py:7: f()\nValueError: 64 of f16 on gfx942",
    )


def test_other_causes_are_other_faults() -> None:
    faults = [
        fault("a1", "gfx942", "k.py:7: f()\nValueError: x"),
        fault("a2", "gfx942", "k.py:7: f()\nValueError: y"),
        fault("a3", "gfx942", "k.py:8: g()\nValueError: x"),
        fault("a4", "gfx942", "k.py:7: f()\nValueError: x", "another"),
        fault("", "gfx942", "1"),
        fault("", "gfx950", "2"),
        Fault(where="alone", what="w"),
    ]
    assert merged(faults)[0] == faults[0]
    assert [one.where for one in merged(faults)] == [one.where for one in faults]


@pytest.mark.parametrize(
    ("module", "distribution"),
    [
        ("torch.nn", "torch"),
        ("yaml", "PyYAML"),
        ("yaml.reader", "PyYAML"),
        ("google.protobuf.message", "protobuf"),
        ("google.cloud", None),
        ("google.cloud.storage.client", "google-cloud-storage"),
        ("google.oauth2.credentials", "google-auth"),
        ("azure.storage.blob", "azure-storage-blob"),
        ("azure.identity", "azure-identity"),
        ("ruamel.yaml", "ruamel-yaml"),
        ("ruamel", None),
        ("PIL.Image", "Pillow"),
        # Installed here, under another name than the package's.
        ("_pytest.nodes", "pytest"),
        ("no_such.thing", "no_such"),
    ],
)
def test_distributions(module: str, distribution: str | None) -> None:
    assert distribution_of(module) == distribution


def test_modules_of_what_is_installed() -> None:
    missing = missing_module(ModuleNotFoundError(name="numpy.nothing"), [])
    assert missing == (
        "numpy.nothing, which numpy as it is installed here does not have",
        'correct the name, or require a version of "numpy" that has it in build-system.requires in pyproject.toml',
    )
    assert missing_module(ImportError("install it"), []) is None
    assert missing_module(ModuleNotFoundError("install it"), []) is None


@pytest.mark.parametrize(
    ("line", "what", "fix"),
    [
        ("import zope.no_such", "zope.no_such", '"zope-no_such"'),
        ("import google.protobuf.message as message", "google.protobuf.message", '"protobuf"'),
        ("from google.protobuf import message", "google.protobuf", '"protobuf"'),
        ("from google import protobuf", "google.protobuf", '"protobuf"'),
        ("from google.cloud import storage", "google.cloud.storage", '"google-cloud-storage"'),
        ("__import__('importlib').import_module('google.protobuf')", "google.protobuf", '"protobuf"'),
        ("import google", "google", "the distribution that has what is used of google"),
    ],
)
def test_modules_in_namespaces(tmp_path: Path, line: str, what: str, fix: str) -> None:
    file = tmp_path / "importing.py"
    file.write_text(line, encoding="utf-8")
    with pytest.raises(ModuleNotFoundError) as caught:
        runpy.run_path(str(file))
    found = missing_module(caught.value, [str(tmp_path)])
    assert found is not None
    assert found[0] == f"{what}, which is not installed in the build environment"
    assert found[1].startswith(f"add {fix} to build-system.requires in pyproject.toml")


def test_modules_of_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, installed = tmp_path / "own_package", tmp_path / "venv" / "site-packages" / "other_package"
    for folder in (own, installed):
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
        monkeypatch.syspath_prepend(str(folder.parent))
    roots = [str(tmp_path)]
    assert missing_module(ModuleNotFoundError(name="own_package.typo"), roots) == (
        "own_package.typo, which is not in the project",
        "correct the name, or add the module",
    )
    what, _ = missing_module(ModuleNotFoundError(name="other_package.typo"), roots) or ("", "")
    assert what == "other_package.typo, which other_package as it is installed here does not have"
