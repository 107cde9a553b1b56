# SPDX-License-Identifier: Apache-2.0
"""Call tables: what the build writes, `native/core` reads; what was changed is refused, and never read outside of."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import random
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from elftools.elf.elffile import ELFFile

from flydsl_build.bundle.call_table import SYMBOL, call_table, object_file
from flydsl_build.declare.argument_types import Dim, PointerType, ScalarType, StreamType, StructType, TensorType

if TYPE_CHECKING:
    from flydsl_build.bundle.manifest import Manifest
    from flydsl_build.jobs.launcher import Slot

CORE = Path(__file__).parents[2] / "native" / "core"

# Prints what a call table says, by the reader of the run time.
PROGRAM = """
#include "runtime.h"
#include <stdio.h>
#include <stdlib.h>
static char out[1 << 16];
static size_t used;
#define SAY(...) (used += (size_t)snprintf(out + used, sizeof out - used, __VA_ARGS__))
const char *describe(const void *given, size_t size) {
  struct fdb_tables *tables;
  void *data = aligned_alloc(16, (size + 15) / 16 * 16 + 16);
  memcpy(data, given, size);
  used = 0;
  if (fdb_read_tables(data, size, &tables)) {
    free(data);
    return fdb_last_error()->text;
  }
  SAY("%s", tables->module);
  for (uint32_t i = 0; i < tables->target_count; i++) {
    SAY(" %s/%u", tables->targets[i].name, tables->targets[i].member_count);
  }
  for (uint32_t i = 0; i < tables->specialization_count; i++) {
    const struct fdb_specialization *one = &tables->specializations[i];
    SAY("\\n%s %u bytes", one->name, one->table.block_size);
    for (uint32_t a = 0; a < one->table.argument_count; a++) {
      const struct fdb_argument *argument = &one->table.arguments[a];
      SAY("\\n%s: %s dtype %x align %u%s%s", argument->label, argument->expected, argument->dtype, argument->align,
          argument->written ? " written" : "", argument->offsets_32 ? " 32" : "");
    }
    for (uint32_t e = 0; e < one->entry_count; e++) {
      SAY("\\n%u %u %s %u", one->entries[e].target, one->entries[e].unit, one->entries[e].symbol, one->entries[e].kernel_count);
    }
  }
  fdb_free_tables(tables);
  free(data);
  return out;
}
const char *chosen(const void *data, const char *device) {
  struct fdb_tables *tables;
  uint32_t found;
  if (fdb_read_tables(data, ((const struct fdb_table_header *)data)->size, &tables)) {
    return fdb_last_error()->text;
  }
  snprintf(out, sizeof out, "%s", fdb_choose_target(tables, NULL, device, &found) ? tables->targets[found].name : "none");
  fdb_free_tables(tables);
  return out;
}
"""


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("reader")
    (folder / "reader.c").write_text(PROGRAM)
    sources = [CORE / "table.c", CORE / "arguments.c", CORE / "status.c", "reader.c"]
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-I", CORE]
    subprocess.run([os.environ.get("CC", "cc"), *flags, *sources, "-o", "reader.so", "-lm", "-lpthread"], cwd=folder, check=True)
    library = ctypes.CDLL(str(folder / "reader.so"))
    library.describe.restype = library.chosen.restype = ctypes.c_char_p
    library.describe.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
    return library


def table_of(manifest: Manifest) -> bytes:
    return call_table(module=manifest.module, targets=manifest.targets, units=manifest.units, launchers=manifest.launchers)


def described(reader: ctypes.CDLL, table: bytes) -> str:
    return str(reader.describe(table, len(table)).decode(errors="replace"))


def with_arguments(manifest: Manifest, slots: tuple[Slot, ...] | None = None, **arguments: object) -> Manifest:
    (launcher,) = manifest.launchers
    (run,) = launcher.specializations
    run = dataclasses.replace(run, arguments={**run.arguments, **arguments}, slots=run.slots if slots is None else slots)
    return dataclasses.replace(manifest, launchers=(dataclasses.replace(launcher, specializations=(run,)),))


def test_what_is_written_is_read(reader: ctypes.CDLL, manifest: Manifest) -> None:
    assert described(reader, table_of(manifest)).splitlines() == [
        "example_pkg.two gfx942/0 gfx1100/0",
        "run 128 bytes",
        "A: f32[M, N%8 : ?, 1] dtype 220 align 4",
        "B: f32[M, N%8 : ?, 1] dtype 220 align 4",
        "n: i32 dtype 20 align 1",
        "stream: a stream dtype 0 align 1",
        "1 0 fdb_add 2",
        "0 0 fdb_add 2",
    ]


def test_arguments_of_every_kind(reader: ctypes.CDLL, manifest: Manifest) -> None:
    tensor = TensorType(dtype="bf16", shape=(Dim(size=8), Dim(size=4)), strides=(Dim(size=4), Dim(size=1)), alignment=16, stride_bits=32)
    inner = StructType(fields=(("p", PointerType(dtype="u8", alignment=64)), ("s", ScalarType(dtype="bool"))), name="Inner")
    changed = with_arguments(manifest, slots=(), B=StructType(fields=(("t", tensor), ("inner", inner)), name="Outer"), n=StreamType())
    (launcher,) = changed.launchers
    run = dataclasses.replace(launcher.specializations[0], out=("B",))
    changed = dataclasses.replace(changed, launchers=(dataclasses.replace(launcher, specializations=(run,)),))
    assert described(reader, table_of(changed)).splitlines()[2:8] == [
        "A: f32[M, N%8 : ?, 1] dtype 220 align 4",
        "B.t: bf16[8, 4]@16 dtype 410 align 16 written 32",
        "B.inner.p: ptr<u8>@64 dtype 108 align 64 written",
        "B.inner.s: bool dtype 608 align 1 written",
        "n: a stream dtype 0 align 1",
        "stream: a stream dtype 0 align 1",
    ]


def test_the_order_of_maps_makes_no_difference(manifest: Manifest) -> None:
    (unit,) = manifest.units
    turned = dataclasses.replace(unit, code_objects=dict(reversed(unit.code_objects.items())))
    assert table_of(dataclasses.replace(manifest, units=(turned,))) == table_of(manifest)


@pytest.mark.parametrize(
    ("targets", "device", "wanted"),
    [
        (("gfx942",), "gfx942:sramecc+:xnack-", "gfx942"),
        (("gfx942", "gfx942:xnack-"), "gfx942:sramecc+:xnack-", "gfx942:xnack-"),
        (("gfx942:xnack+",), "gfx942:sramecc+:xnack-", "none"),
        (("gfx942:sramecc-:xnack-",), "gfx942:sramecc+:xnack-", "none"),
        (("gfx9-4-generic",), "gfx950:sramecc+:xnack-", "gfx9-4-generic"),
        (("gfx9-4-generic", "gfx950"), "gfx950:sramecc+:xnack-", "gfx950"),
        (("gfx11-generic",), "gfx1201", "none"),
        (("gfx94",), "gfx942", "none"),
    ],
)
def test_choice_of_the_target(reader: ctypes.CDLL, manifest: Manifest, targets: tuple[str, ...], device: str, wanted: str) -> None:
    table = call_table(module="m", targets=targets, units=(), launchers=())
    assert reader.chosen(table, device.encode()).decode() == wanted
    del manifest


def damaged(table: bytes, at: int, value: int) -> bytes:
    return table[:at] + struct.pack("<I", value) + table[at + 4 :]


def test_damaged_tables(reader: ctypes.CDLL, manifest: Manifest) -> None:
    table = table_of(manifest)
    assert described(reader, b"junk") == "the call table is damaged: it is too short"
    assert described(reader, bytes(200)) == "the call table is damaged: it has no header"
    assert described(reader, damaged(table, 8, 2)) == "the call table has version 2, this run time reads 1"
    assert described(reader, damaged(table, 12, len(table) + 1)) == "the call table is damaged: it has no header"
    assert described(reader, damaged(table, 16, len(table))) == "the call table is damaged: a text is not inside of it"
    assert described(reader, damaged(table, 24, len(table))) == "the call table is damaged: an array is not inside of it"
    (launcher,) = manifest.launchers
    slots = launcher.specializations[0].slots
    for wrong, text in (
        (dataclasses.replace(slots[4], size=8), "a slot has 8 bytes where 4 are packed"),
        (dataclasses.replace(slots[1], shape_dims=(0, 2)), "a slot has a dim that its tensor does not have"),
        (dataclasses.replace(slots[1], shape_bits=16), "a slot has a dim that its tensor does not have"),
        (dataclasses.replace(slots[4], argument="A"), "a slot is out of range"),
    ):
        assert described(reader, table_of(with_arguments(manifest, slots=(*slots[:1], wrong)))) == f"the call table is damaged: {text}"


def test_changed_words_are_refused_or_read(reader: ctypes.CDLL, manifest: Manifest) -> None:
    """Every word is replaced by numbers that could lead astray; a crash ends the test run."""
    table = table_of(manifest)
    generator = random.Random(0)
    refused = 0
    for at in range(0, len(table) - 3, 4):
        for value in (0, 1, 3, len(table), len(table) - 1, 2**31, 2**32 - 1, generator.randrange(len(table))):
            refused += described(reader, damaged(table, at, value)).startswith("the call table")
    assert refused > len(table) // 4
    for size in range(0, len(table), 7):
        assert described(reader, table[:size]).startswith("the call table is damaged")


def test_object_file(manifest: Manifest, tmp_path: Path) -> None:
    table = table_of(manifest)
    (tmp_path / "table.o").write_bytes(object_file(table))
    with (tmp_path / "table.o").open("rb") as file:
        (symbol,) = ELFFile(file).get_section_by_name(".symtab").get_symbol_by_name(SYMBOL)
        assert (symbol["st_size"], symbol["st_info"]["type"], symbol["st_info"]["bind"]) == (len(table), "STT_OBJECT", "STB_GLOBAL")
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-nostdlib", "-o", "table.so", "table.o"], cwd=tmp_path, check=True)
    library = ctypes.CDLL(str(tmp_path / "table.so"))
    found = (ctypes.c_char * len(table)).in_dll(library, SYMBOL)
    assert found.raw == table
    assert ctypes.addressof(found) % 16 == 0


def test_a_tensor_of_too_many_dims(manifest: Manifest) -> None:
    from flydsl_build.errors import VerifyError

    (launcher,) = manifest.launchers
    slots = launcher.specializations[0].slots
    with pytest.raises(VerifyError) as caught:
        table_of(with_arguments(manifest, slots=(dataclasses.replace(slots[1], shape_dims=tuple(range(17))),)))
    (fault,) = caught.value.faults
    assert (fault.where, fault.what) == (
        "example_pkg.two, run",
        "its call table cannot be made: a slot has 17 dims, the run time packs 16",
    )
