# SPDX-License-Identifier: Apache-2.0
"""The readers of LLVM IR against LLVM itself, by way of llvmlite: every fact they give, of real files and of made ones."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flydsl_build.llvm_ir.reader import IRFunction, IRGlobal, IRModule, read_ir

llvm: Any = pytest.importorskip("llvmlite.binding")

DATA = Path(__file__).parent / "data"
FILES = sorted(path.name for path in DATA.iterdir() if path.suffix in {".bc", ".ll"})
# The names of LLVM's C interface that the language has others for.
LINKAGES = {"linkonce_any": "linkonce", "weak_any": "weak", "external_weak": "extern_weak"}
ALIAS = re.compile(r"@(\S+) = ([a-z_ ]*)\b(?:alias|ifunc) (.+), (?:ptr |addrspacecast \(ptr )(?:addrspace\([0-9]+\) )?@")
FLAG = re.compile(r'!"amdhsa_code_object_version", i32 ([0-9]+)')


def parse(data: bytes) -> Any:
    # In a context of its own: structures of one name in two modules of a context get new names.
    context = llvm.create_context()
    return llvm.parse_bitcode(data, context) if data.startswith(b"BC") else llvm.parse_assembly(data.decode(), context)


def linkage(value: Any) -> str:
    name = value.linkage.name
    return LINKAGES.get(name, name)


def spelling(kind: Any) -> str:
    """Return a type without the body that is printed behind the name of a structure."""
    return str(kind).partition(" = ")[0]


def by_llvm(module: Any) -> IRModule:
    """Return what LLVM says of a module. Its C interface has no aliases and no module flags: those are in its text."""
    text = str(module)
    functions = {
        one.name: IRFunction(
            is_definition=not one.is_declaration,
            linkage=linkage(one),
            result=spelling(one.global_value_type.get_function_return()),
            parameters=tuple(map(spelling, one.global_value_type.get_function_parameters())),
            var_args=one.global_value_type.is_function_vararg,
        )
        for one in module.functions
    }
    variables = {one.name: IRGlobal(is_definition=not one.is_declaration, linkage=linkage(one)) for one in module.global_variables}
    for name, words, value_type in ALIAS.findall(text):
        known = next((word for word in words.split() if word in {"weak", "internal", "weak_odr"}), "external")
        if found := re.fullmatch(r"(.+) \((.*)\)", value_type):
            parameters = tuple(part for part in found[2].split(", ") if part)
            functions[name] = IRFunction(is_definition=True, linkage=known, result=found[1], parameters=parameters, var_args=False)
        else:
            variables[name] = IRGlobal(is_definition=True, linkage=known)
    attributes = [b" ".join(one.attributes).decode() for one in module.functions if not one.is_declaration]
    cpus = {found[1] for each in attributes if (found := re.search(r'"target-cpu"="([^"]*)"', each))}
    flag = FLAG.search(text)
    return IRModule(
        triple=module.triple,
        target_cpus=frozenset(cpus),
        functions={name: one for name, one in functions.items() if name},
        globals={name: one for name, one in variables.items() if name},
        code_object_version=int(flag[1]) if flag else None,
    )


def check(data: bytes) -> None:
    """Compare what is read of a module, and of the text and bitcode that LLVM writes for it, with what LLVM says."""
    module = parse(data)
    expected = by_llvm(module)
    assert read_ir(data) == expected
    assert read_ir(str(module).encode()) == expected
    assert read_ir(module.as_bitcode()) == expected


@pytest.mark.parametrize("name", FILES)
def test_files(name: str) -> None:
    check((DATA / name).read_bytes())


@pytest.mark.parametrize(
    "options", [("--target=x86_64-linux-gnu", "-O0"), ("--target=amdgcn-amd-amdhsa", "-mcpu=gfx1100", "-nogpulib", "-O2", "-g")]
)
@pytest.mark.parametrize("form", ["-c", "-S"])
def test_what_this_machines_clang_writes(options: tuple[str, ...], form: str, tmp_path: Path) -> None:
    clang = shutil.which("clang-19") or shutil.which("clang")
    if clang is None:
        pytest.skip("clang is not installed")
    out = tmp_path / "out"
    subprocess.run([clang, *options, "-emit-llvm", form, str(DATA / "plain.c"), "-o", str(out)], check=True)
    check(out.read_bytes())


SIMPLE = st.sampled_from(
    ["i1", "i8", "i32", "i33", "i128", "half", "bfloat", "float", "double", "ptr", "ptr addrspace(3)", "%named", '%"a name"', "%opaque"]
)
SIZED = st.recursive(
    SIMPLE.filter(lambda kind: kind != "%opaque"),
    lambda inner: st.one_of(
        st.builds("[{} x {}]".format, st.integers(0, 1 << 40), inner),
        st.builds("{{ {} }}".format, st.lists(inner, min_size=1, max_size=3).map(", ".join)),
        st.builds("<{{ {} }}>".format, st.lists(inner, min_size=1, max_size=3).map(", ".join)),
        st.builds("<{} x {}>".format, st.integers(1, 9), st.sampled_from(["i1", "i32", "float", "ptr", "ptr addrspace(1)"])),
        st.builds("<vscale x {} x {}>".format, st.integers(1, 9), st.sampled_from(["i8", "double"])),
        st.just("{}"),
    ).filter(lambda kind: "vscale" not in kind or kind.startswith("<v")),
    max_leaves=5,
)
CPU = st.sampled_from(["", ' "target-cpu"="gfx942"', " #0", ' nounwind "target-cpu"="gfx90a"'])


@st.composite
def modules(draw: st.DrawFn) -> str:
    lines = [
        'target triple = "amdgcn-amd-amdhsa"',
        "%named = type { i8, ptr }",
        '%"a name" = type <{ i32, [2 x i64] }>',
        "%opaque = type opaque",
    ]
    for number in range(draw(st.integers(0, 4))):
        result, parameters = draw(st.one_of(st.just("void"), SIZED)), draw(st.lists(SIZED, max_size=4))
        name = f"@f{number}" if draw(st.booleans()) else f'@"f {number}\\22"'
        if draw(st.booleans()):
            words = draw(st.sampled_from(["", "extern_weak ", "hidden ", "noundef " * (result != "void")]))
            lines.append(f"declare {words}{result} {name}({', '.join([*parameters, *draw(st.sampled_from([[], ['...']]))])}){draw(CPU)}")
        else:
            words = draw(
                st.sampled_from(["", "internal ", "weak_odr ", "linkonce ", "private ", "available_externally ", "protected fastcc "])
            )
            lines.append(f"define {words}{result} {name}({', '.join(parameters)}){draw(CPU)} {{\n  unreachable\n}}")
    for number in range(draw(st.integers(0, 4))):
        kind = draw(SIZED.filter(lambda kind: "vscale" not in kind))
        words = draw(
            st.sampled_from(
                [
                    "external addrspace(1) global",
                    "extern_weak global",
                    "weak constant",
                    "common global",
                    "internal addrspace(3) global",
                    "global",
                ]
            )
        )
        value = "" if words.startswith("ext") else " zeroinitializer" if words.startswith("common") else " poison"
        lines.append(f"@g{number} = {words} {kind}{value}")
    if draw(st.booleans()):
        lines += [
            "!llvm.module.flags = !{!0}",
            f'!0 = !{{i32 1, !"amdhsa_code_object_version", i32 {draw(st.sampled_from([0, 400, 600]))}}}',
        ]
    return "\n".join([*lines[:4], *draw(st.permutations(lines[4:])), 'attributes #0 = { nounwind "target-cpu"="gfx1201" }', ""])


@settings(deadline=None, max_examples=200)
@given(modules())
def test_made_modules(text: str) -> None:
    check(text.encode())
