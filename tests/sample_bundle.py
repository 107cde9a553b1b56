# SPDX-License-Identifier: Apache-2.0
"""Fixtures of a complete package of two kernels, made of the ELF files in `targets/data`; the rooms that use it import them."""

from __future__ import annotations

import hashlib
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from flydsl_build.bundle.call_table import call_table, object_file
from flydsl_build.bundle.manifest import (
    CodeObject,
    Distribution,
    HostEntry,
    LauncherEntry,
    Library,
    Manifest,
    Provenance,
    Source,
    SpecializationEntry,
    Unit,
    manifest_kernels,
)
from flydsl_build.declare.argument_types import Dim, ScalarType, StreamType, TensorType
from flydsl_build.jobs.job import Tool
from flydsl_build.jobs.launcher import Parameter, Slot
from flydsl_build.targets.code_object import read_code_object
from flydsl_build.targets.offload_bundle import write_bundle

if TYPE_CHECKING:
    from collections.abc import Callable

    from flydsl_build.targets.offload_bundle import OffloadBundle

__all__ = ["DATA", "bundle", "data", "library", "manifest", "package", "with_library"]

DATA = Path(__file__).parent / "targets" / "data"
TARGETS = ("gfx942", "gfx1100")


@pytest.fixture(scope="session")
def data() -> Callable[[str], bytes]:
    """Read a file of the data folder."""
    return lambda name: (DATA / name).read_bytes()


@pytest.fixture(scope="session")
def bundle() -> OffloadBundle:
    """Return the bundle of the two code objects."""
    return write_bundle({target: (DATA / f"two_kernels.{target}.elf").read_bytes() for target in TARGETS})


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Manifest], bytes]:
    """Link the launcher library that a manifest stands for."""
    linked: dict[bytes, bytes] = {}

    def link(manifest: Manifest) -> bytes:
        table = call_table(module=manifest.module, targets=manifest.targets, units=manifest.units, launchers=manifest.launchers)
        if table not in linked:
            folder = tmp_path_factory.mktemp("library")
            (folder / "table.o").write_bytes(object_file(table))
            (folder / "entries.c").write_text("int fdb_add(void) { return 0; }\nint fdb_double(void) { return 0; }\n")
            flags = ["-O1", "-fPIC", "-shared", "-nostdlib", "-Wl,--build-id=none", "-o", "two.launchers.elf"]
            subprocess.run([os.environ.get("CC", "cc"), *flags, "entries.c", "table.o"], cwd=folder, check=True)
            linked[table] = (folder / "two.launchers.elf").read_bytes()
        return linked[table]

    return link


def with_library(manifest: Manifest, library: Callable[[Manifest], bytes]) -> Manifest:
    """Return a manifest with its launcher library linked anew."""
    linked = library(manifest)
    return replace(manifest, library=Library(file="two.launchers.elf", sha256=hashlib.sha256(linked).hexdigest(), size=len(linked)))


@pytest.fixture(scope="session")
def manifest(bundle: OffloadBundle, library: Callable[[Manifest], bytes]) -> Manifest:
    """Return the manifest of a module with one launcher of two kernels."""
    code_objects = {}
    for target, entry in bundle.entries.items():
        elf = bundle.data[entry.offset : entry.offset + entry.size]
        code_object = read_code_object(elf)
        code_objects[target] = CodeObject(
            offset=entry.offset,
            size=entry.size,
            sha256=hashlib.sha256(elf).hexdigest(),
            e_flags=code_object.elf.e_flags,
            kernels=manifest_kernels(code_object),
        )
    tensor = TensorType(
        dtype="f32", shape=(Dim(name="M"), Dim(name="N", divisor=8)), strides=(Dim(), Dim(size=1)), alignment=4, stride_bits=64
    )
    layout = Slot(argument="A", kind="layout", size=16, align=1, shape_dims=(0, 1), stride_dims=(0,), shape_bits=32, stride_bits=64)
    run = SpecializationEntry(
        name="run",
        constexpr={},
        params={},
        targets=TARGETS,
        arguments={"A": tensor, "B": tensor, "n": ScalarType(dtype="i32"), "stream": StreamType()},
        slots=(
            Slot(argument="A", kind="data", size=8, align=8),
            layout,
            Slot(argument="B", kind="data", size=8, align=8),
            replace(layout, argument="B"),
            Slot(argument="n", kind="scalar", size=4, align=4),
            Slot(argument="stream", kind="stream", size=8, align=8),
        ),
        entries={target: {"main": HostEntry(entry="fdb_add", kernels=(0, 1))} for target in TARGETS},
        options={},
        source=Source(file="example_pkg/two.py", line=12),
    )
    parameters = (
        Parameter(name="A", kind="POSITIONAL_OR_KEYWORD", annotation="fx.Tensor", role="tensor"),
        Parameter(name="B", kind="POSITIONAL_OR_KEYWORD", annotation="fx.Tensor", role="tensor"),
        Parameter(name="n", kind="POSITIONAL_OR_KEYWORD", annotation="fx.Int32", role="scalar"),
        Parameter(name="stream", kind="POSITIONAL_OR_KEYWORD", annotation="fx.Stream", role="stream", default=None),
    )
    units = (Unit(name="main", axes={}, bundle="two.hipfb", init=(), globals=(), code_objects=code_objects),)
    launchers = (LauncherEntry(name="run", kind="launcher", doc="Add, then double.", parameters=parameters, specializations=(run,)),)
    made = Manifest(
        module="example_pkg.two",
        distribution=Distribution(name="example-kernels", version="0.1.0"),
        load="import",
        targets=TARGETS,
        axes={},
        library=Library(file="two.launchers.elf", sha256="0" * 64, size=0),
        units=units,
        launchers=launchers,
        provenance=Provenance(
            tools=(
                Tool(name="flydsl", version="0.5.0", distribution="flydsl"),
                Tool(name="LLVM", version="24.0git", distribution="flydsl"),
                Tool(name="lld", version="22.1.0"),
                Tool(name="flydsl-build", version="0.1.0", distribution="flydsl-build"),
            ),
            bitcode=(),
            sources={"example_pkg/two.py": "0" * 64},
        ),
    )
    return with_library(made, library)


@pytest.fixture
def package(tmp_path: Path, manifest: Manifest, bundle: OffloadBundle, library: Callable[[Manifest], bytes]) -> Path:
    """Write the package's `_flydsl` folder."""
    folder = tmp_path / "_flydsl"
    folder.mkdir()
    (folder / "two.json").write_text(manifest.to_text(), encoding="ascii")
    (folder / "two.hipfb").write_bytes(bundle.data)
    (folder / "two.launchers.elf").write_bytes(library(manifest))
    return folder
