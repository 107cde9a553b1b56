# SPDX-License-Identifier: Apache-2.0
"""Make packages as flydsl-build's wheels hold them, without compiling a kernel.

Code objects are AMDGPU ELF files written by hand (no code in them: the fake HIP runs nothing), launcher libraries are C
that follows the ABI, and the run time is copied in with the extension compiled from `native/`, or the installed one.
"""

from __future__ import annotations

import ctypes
import hashlib
import inspect
import json
import os
import shutil
import struct
import subprocess
import sysconfig
import tempfile
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from flydsl_build.bundle.call_table import call_table, object_file
from flydsl_build.bundle.manifest import DeviceGlobal, HostEntry
from flydsl_build.codec import decode
from flydsl_build.declare.argument_types import ArgumentType
from flydsl_build.jobs.launcher import Slot

__all__ = ["Package", "build_native", "bundle", "code_object", "compile_native", "pointer", "scalar", "stream", "tensor"]

REPOSITORY = Path(__file__).resolve().parents[2]
RUNTIME = REPOSITORY / "flydsl_build" / "runtime"

E_FLAGS = {
    "gfx90a": 0x53F,
    "gfx942": 0x54C,
    "gfx950": 0x54F,
    "gfx1100": 0x41,
    "gfx1201": 0x4E,
    "gfx9-4-generic": 0x0100055F,
    "gfx942:xnack-": 0x64C,
}


def build_native(folder: Path, python_include: str | None = None) -> Path:
    """Return the extension module: that of FLYDSL_BUILD_TEST_NATIVE, the installed one if there is one, else compiled into `folder`."""
    given = os.environ.get("FLYDSL_BUILD_TEST_NATIVE")
    if given:
        return Path(given)
    installed = find_spec("flydsl_build.runtime._native") if python_include is None and _has_native() else None
    if installed is not None and installed.origin:
        return Path(installed.origin)
    return compile_native(folder, "-O2", python_include=python_include)


def compile_native(folder: Path, *more: str, python_include: str | None = None) -> Path:
    """Compile the extension module into `folder` with more flags."""
    library = folder / "_native.abi3.so"
    folder.mkdir(parents=True, exist_ok=True)
    flags = [*more, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden"]
    include = python_include or sysconfig.get_paths()["include"]
    sources = sorted((REPOSITORY / "native").rglob("*.c"))
    defines = ["-D_GNU_SOURCE", "-DPy_LIMITED_API=0x030B0000"]
    subprocess.run(
        [os.environ.get("CC", "cc"), *flags, *defines, "-I", REPOSITORY / "native" / "core", "-isystem", include, "-o", library, *sources],
        check=True,
    )
    return library


def _has_native() -> bool:
    spec = find_spec("flydsl_build")
    folders = spec.submodule_search_locations if spec is not None else None
    return any(next(Path(folder, "runtime").glob("_native*.so"), None) for folder in folders or ())


# ---- code objects ----------------------------------------------------------------------------------------------------


def _pack(value: Any) -> bytes:
    """Encode as msgpack; only what code object metadata needs."""
    if isinstance(value, dict):
        return b"\xde" + struct.pack(">H", len(value)) + b"".join(_pack(item) for pair in value.items() for item in pair)
    if isinstance(value, list):
        return b"\xdc" + struct.pack(">H", len(value)) + b"".join(map(_pack, value))
    if isinstance(value, str):
        return b"\xd9" + struct.pack(">B", len(value.encode())) + value.encode()
    return b"\xce" + struct.pack(">I", value)


def code_object(
    target: str,
    kernels: dict[str, list[int]],
    variables: dict[str, int] | None = None,
    undefined: tuple[str, ...] = (),
    max_workgroup: int = 1024,
) -> bytes:
    """Return an AMDGPU ELF.

    Parameters
    ----------
    kernels
        Argument sizes in bytes, by symbol.
    variables
        Sizes of device globals, by symbol.
    undefined
        Symbols that it asks of others.
    """
    metadata = {
        "amdhsa.target": f"amdgcn-amd-amdhsa--{target}",
        "amdhsa.version": [1, 2],
        "amdhsa.kernels": [
            {
                ".name": name,
                ".symbol": f"{name}.kd",
                ".kernarg_segment_size": sum(sizes),
                ".max_flat_workgroup_size": max_workgroup,
                ".args": [{".offset": sum(sizes[:i]), ".size": size, ".value_kind": "by_value"} for i, size in enumerate(sizes)],
            }
            for name, sizes in kernels.items()
        ],
    }
    payload = _pack(metadata)
    note = struct.pack("<III", 7, len(payload), 32) + b"AMDGPU\0\0" + payload + b"\0" * (-len(payload) % 4)
    names, symbols, address = b"\0", b"\0" * 24, 0
    for name, size, defined in [(n, s, True) for n, s in (variables or {}).items()] + [(n, 0, False) for n in undefined]:
        symbols += struct.pack("<IBBHQQ", len(names), 0x11, 0, 1 if defined else 0, 0x10000 + address if defined else 0, size)
        names += name.encode() + b"\0"
        address += size + (-size % 16)
    section_names = b"\0.note\0.dynsym\0.dynstr\0.shstrtab\0"
    parts, at = [], 64 + 2 * 56
    offsets = []
    for part in (note, symbols, names, section_names):
        padding = -at % 16
        parts.append(b"\0" * padding + part)
        offsets.append(at + padding)
        at += padding + len(part)
    sections_at = at + -at % 16
    sections = b"\0" * 64
    for name_at, kind, offset, size, link, entry in (
        (1, 7, offsets[0], len(note), 0, 0),
        (7, 11, offsets[1], len(symbols), 3, 24),
        (15, 3, offsets[2], len(names), 0, 0),
        (23, 3, offsets[3], len(section_names), 0, 0),
    ):
        sections += struct.pack("<IIQQQQIIQQ", name_at, kind, 0, 0, offset, size, link, 0, 8, entry)
    header = b"\x7fELF\x02\x01\x01\x40\x04" + b"\0" * 7
    header += struct.pack("<HHIQQQIHHHHHH", 3, 224, 1, 0, 64, sections_at, E_FLAGS[target], 64, 56, 2, 64, 5, 4)
    header += struct.pack("<IIQQQQQQ", 1, 6, 0, 0x10000, 0x10000, 0, address + 16, 4096)
    header += struct.pack("<IIQQQQQQ", 4, 4, offsets[0], 0, 0, len(note), len(note), 4)
    body = header + b"".join(parts)
    return body + b"\0" * (sections_at - len(body)) + sections


def bundle(objects: dict[str, bytes]) -> tuple[bytes, dict[str, tuple[int, int]]]:
    """Return a clang offload bundle and (offset, size) of each target's entry."""
    places, at = {}, 4096
    for target, image in objects.items():
        places[target] = (at, len(image))
        at += len(image) + -len(image) % 4096
    entries = [("host-x86_64-unknown-linux-gnu-", 4096, 0)]
    entries += [(f"hipv4-amdgcn-amd-amdhsa--{target}", *places[target]) for target in objects]
    header = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(entries))
    for name, offset, size in entries:
        header += struct.pack("<QQQ", offset, size, len(name)) + name.encode()
    data = header
    for target, image in objects.items():
        data += b"\0" * (places[target][0] - len(data)) + image
    return data, places


# ---- manifest --------------------------------------------------------------------------------------------------------

SIZES = {"i8": 1, "u8": 1, "bool": 1, "i16": 2, "u16": 2, "f16": 2, "bf16": 2, "i32": 4, "u32": 4, "f32": 4, "i64": 8, "u64": 8, "f64": 8}


def tensor(dtype: str, shape: list[int | str], strides: list[int | str] | None = None, **more: Any) -> dict[str, Any]:
    """Return a tensor argument; without strides, unit stride on the last dim and the others dynamic."""
    strides = ["?"] * (len(shape) - 1) + [1] if strides is None else strides
    return {"kind": "tensor", "dtype": dtype, "shape": shape, "strides": strides, "align": SIZES.get(dtype, 1), "stride_bits": 64, **more}


def scalar(dtype: str) -> dict[str, Any]:
    """Return a scalar argument."""
    return {"kind": "scalar", "dtype": dtype}


def pointer(dtype: str, align: int) -> dict[str, Any]:
    """Return a pointer argument."""
    return {"kind": "pointer", "dtype": dtype, "align": align}


def stream() -> dict[str, Any]:
    """Return a stream argument."""
    return {"kind": "stream"}


def _slots(name: str | None, argument: dict[str, Any], field: str = "") -> list[dict[str, Any]]:
    base: dict[str, Any] = {"argument": name, **({"field": field} if field else {})}
    match argument["kind"]:
        case "tensor":
            shape = [d for d, dim in enumerate(argument["shape"]) if isinstance(dim, str)]
            strides = [d for d, dim in enumerate(argument["strides"]) if isinstance(dim, str)]
            bits = argument["stride_bits"]
            slots = [{**base, "kind": "data", "size": 8, "align": 8}]
            if shape or strides:
                size = 4 * len(shape) + bits // 8 * len(strides)
                dims = {"shape_dims": shape, "stride_dims": strides, "shape_bits": 32, "stride_bits": bits}
                slots.append({**base, "kind": "layout", "size": size, "align": 1, **dims})
            return slots
        case "scalar":
            return [{**base, "kind": "scalar", "size": SIZES[argument["dtype"]], "align": SIZES[argument["dtype"]]}]
        case "struct":
            joint = f"{field}." if field else ""
            return [slot for key, inner in argument["fields"].items() for slot in _slots(name, inner, joint + key)]
        case kind:
            return [{**base, "kind": kind, "size": 8, "align": 8}]


def _tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _signature(parameters: list[dict[str, Any]]) -> str:
    made = [inspect.Parameter(item["name"], getattr(inspect.Parameter, item["kind"])) for item in parameters]
    made = [one.replace(default=_tuple(item["default"])) if "default" in item else one for one, item in zip(made, parameters, strict=True)]
    return str(inspect.Signature(made, __validate_parameters__=False))


class Package:
    """A package to be written: modules with launchers, each of which launches kernels with all of its slots.

    Parameters
    ----------
    folder
        Where the package's folder goes; put it on sys.path.
    name
        The package's name.
    native
        The extension module.
    """

    def __init__(self, folder: Path, name: str, native: Path) -> None:
        self.root = folder / name
        self.name = name
        self._sources: dict[str, str] = {}
        self._other_archs: dict[str, tuple[str, ...]] = {}
        runtime = self.root / "_flydsl" / "runtime"
        # The extension and the Python files of one version: the installed ones, or those of the source tree.
        source = native.parent if (native.parent / "module.py").exists() else RUNTIME
        shutil.copytree(source, runtime, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
        shutil.copy(native, runtime / "_native.abi3.so")
        (self.root / "__init__.py").write_text("")

    def write_module(
        self,
        module: str,
        launchers: list[dict[str, Any]],
        *,
        targets: tuple[str, ...] = ("gfx942", "gfx1100"),
        other_archs: tuple[str, ...] = (),
        load: str = "lazy",
        init: tuple[str, ...] = (),
        variables: dict[str, int] | None = None,
        undefined: tuple[str, ...] = (),
        config: str = "{1, 1, 1, 64, 1, 1, 0, 0, 0, 0}",
        max_workgroup: int = 256,
        reqd_workgroup: tuple[int, int, int] | None = None,
        padding: int = 0,
    ) -> dict[str, Any]:
        """Write stub, manifest, bundle and launcher library of one module; return the manifest.

        A launcher is `{"name", "parameters": {name: parameter dict}, "specializations": [{"arguments", "constexpr"…}]}`.
        `config` is a C initialiser, in which `slots` may be used.
        """
        manifest, kernels, source = self._describe(module, launchers, targets, config)
        manifest["load"] = load
        self._other_archs[module] = other_archs
        folder = self.root / "_flydsl"
        objects = {target: code_object(target, kernels, variables, undefined, max_workgroup) + b"\0" * padding for target in targets}
        data, places = bundle(objects)
        (folder / f"{module}.hipfb").write_bytes(data)
        manifest["units"][0] |= {
            "init": list(init),
            "globals": [{"name": name, "size": size} for name, size in (variables or {}).items()],
            "code_objects": {
                target: {
                    "offset": places[target][0],
                    "size": places[target][1],
                    "sha256": hashlib.sha256(image).hexdigest(),
                    "e_flags": E_FLAGS[target],
                    "kernels": [{"symbol": symbol, "max_workgroup": max_workgroup, "reqd_workgroup": reqd_workgroup} for symbol in kernels],
                }
                for target, image in objects.items()
            },
        }
        self.link(module, manifest, source)
        return manifest

    def link(self, module: str, manifest: dict[str, Any], source: str = "") -> None:
        """Link the launcher library that a manifest stands for, and write both; without source, of a module that was written before."""
        library = self.root / "_flydsl" / f"{module}.launchers.elf"
        self._sources[module] = source = source or self._sources[module]
        self._compile(source, object_file(_call_table(manifest)), library)
        data = library.read_bytes()
        manifest["library"] = {"file": library.name, "sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
        self.write_manifest(module, manifest)

    def write_manifest(self, module: str, manifest: dict[str, Any]) -> None:
        """Write the manifest and the stub that holds its digest."""
        text = json.dumps(manifest, indent=1)
        (self.root / "_flydsl" / f"{module}.json").write_text(text)
        digest = hashlib.sha256(text.encode()).hexdigest()
        lines = [
            f"from {self.name}._flydsl.runtime import attach as _attach",
            f"__flydsl__ = _attach(__name__, __file__, '_flydsl/{module}.json', {digest!r},",
            f"    archs={tuple(manifest['targets'])!r}, other_archs={self._other_archs.get(module, ())!r}, load={manifest['load']!r})",
        ]
        for launcher in manifest["launchers"]:
            parameters = launcher.get("factory_parameters") or launcher["parameters"]
            lines += [
                f"@__flydsl__.{launcher['kind']}",
                f"def {launcher['name']}{_signature(parameters)}:",
                f"    {launcher['doc'] or 'Launch.'!r}",
            ]
        lines.append("__flydsl__.on_import()")
        (self.root / f"{module}.py").write_text("\n".join(lines) + "\n")

    def _describe(
        self, module: str, launchers: list[dict[str, Any]], targets: tuple[str, ...], config: str
    ) -> tuple[dict[str, Any], dict[str, list[int]], str]:
        kernels: dict[str, list[int]] = {}
        source = ABI
        entries = []
        for launcher in launchers:
            parameters = [
                {"name": name, "kind": "POSITIONAL_OR_KEYWORD", "annotation": None, "role": "tensor", **parameter}
                for name, parameter in launcher["parameters"].items()
            ]
            specializations = []
            for number, item in enumerate(launcher["specializations"]):
                slots = [slot for name, argument in item["arguments"].items() for slot in _slots(name, argument)]
                if not any(slot["kind"] == "stream" for slot in slots):
                    slots.append({"argument": None, "kind": "stream", "size": 8, "align": 8})
                name = f"{launcher['name']}_{number}"
                kernels[f"{name}_kernel"] = [slot["size"] for slot in slots if slot["kind"] != "stream"]
                passed = [position for position, slot in enumerate(slots) if slot["kind"] != "stream"]
                (stream_slot,) = (position for position, slot in enumerate(slots) if slot["kind"] == "stream")
                arguments = ", ".join(f"slots[{position}]" for position in passed) or "0"
                source += ENTRY % (name, item.get("config", config), arguments, len(passed), stream_slot)
                built_for = item.get("targets", targets)
                specializations.append(
                    {
                        "name": item.get("name", name),
                        "constexpr": item.get("constexpr", {}),
                        "params": item.get("params", {}),
                        **({"out": item["out"]} if "out" in item else {}),
                        "targets": list(built_for),
                        "arguments": item["arguments"],
                        "slots": slots,
                        "entries": {target: {"main": {"entry": f"fdb_{name}", "kernels": [len(kernels) - 1]}} for target in built_for},
                        "options": {},
                        "source": {"file": f"{self.name}/{module}.py", "line": 1},
                    }
                )
            entry = {"name": launcher["name"], "kind": "launcher", "doc": launcher.get("doc"), "parameters": parameters}
            if "factory" in launcher:
                made = [{"kind": "POSITIONAL_OR_KEYWORD", "annotation": None, "role": "constexpr", **one} for one in launcher["factory"]]
                entry |= {"kind": "factory", "factory_parameters": made}
            entries.append({**entry, "specializations": specializations})
        manifest = {
            "schema": 2,
            "module": f"{self.name}.{module}",
            "distribution": {"name": self.name.replace("_", "-"), "version": "1.2"},
            "targets": list(targets),
            "axes": {},
            "units": [{"name": "main", "axes": {}, "bundle": f"{module}.hipfb"}],
            "launchers": entries,
            "provenance": {},
        }
        return manifest, kernels, source

    @staticmethod
    def _compile(source: str, table: bytes, library: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "table.o").write_bytes(table)
            flags = ["-O1", "-Wall", "-Werror", "-fPIC", "-shared", "-nostdlib", "-o", library, "-x", "c", "-", "-x", "none", "table.o"]
            subprocess.run([os.environ.get("CC", "cc"), *flags], input=source.encode(), cwd=folder, check=True)


def _call_table(manifest: dict[str, Any]) -> bytes:
    """Return the call table of a manifest, which need not be whole otherwise."""
    launchers = [
        SimpleNamespace(
            parameters_of=lambda _, launcher=launcher: [SimpleNamespace(name=one["name"]) for one in launcher["parameters"]],
            specializations=[
                SimpleNamespace(
                    name=one["name"],
                    out=one.get("out"),
                    arguments=decode(dict[str, ArgumentType], one["arguments"], where="synthetic"),
                    slots=decode(tuple[Slot, ...], one["slots"], where="synthetic"),
                    entries=decode(dict[str, dict[str, HostEntry]], one["entries"], where="synthetic"),
                )
                for one in launcher["specializations"]
            ],
        )
        for launcher in manifest["launchers"]
    ]
    units = [
        SimpleNamespace(
            name=unit["name"],
            bundle=unit["bundle"],
            axes=unit["axes"],
            init=unit["init"],
            globals=decode(tuple[DeviceGlobal, ...], unit["globals"], where="synthetic"),
            code_objects={
                target: SimpleNamespace(**{**one, "kernels": [SimpleNamespace(**kernel) for kernel in one["kernels"]]})
                for target, one in unit["code_objects"].items()
            },
        )
        for unit in manifest["units"]
    ]
    module: Any = manifest["module"]
    return call_table(module=module, targets=manifest["targets"], units=cast("Any", units), launchers=cast("Any", launchers))


ABI = """
#include <stdint.h>
struct fdb_call {
  void (*launch)(struct fdb_call *, int32_t, const int64_t *, void **, int32_t, void *);
  int32_t status;
};
#define I64(n) (*(int64_t *)slots[n])
"""
ENTRY = """
int32_t fdb_%s(struct fdb_call *call, void **slots) {
  int64_t config[10] = %s;
  void *args[] = {%s};
  call->launch(call, 0, config, args, %d, *(void **)slots[%d]);
  return call->status;
}
"""


class DLTensor(ctypes.Structure):
    """A DLManagedTensor: https://dmlc.github.io/dlpack/latest/c_api.html."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("byte_offset", ctypes.c_uint64),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    )
