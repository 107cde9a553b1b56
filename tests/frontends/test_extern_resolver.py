# SPDX-License-Identifier: Apache-2.0
"""What an extern is linked with, and everything that can be wrong with it: each fault in bitcode that has just that fault."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flydsl_build.config.tables import ExternTable
from flydsl_build.frontends.flydsl.externs import ExternCall, ExternResolver, ExternUse, expand_placeholders, init_reference
from flydsl_build.jobs.job import BitcodeUse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TESTS = Path(__file__).parents[1]
DATA = TESTS / "llvm_ir" / "data"
WHERE = 'tool.flydsl-build.externs."f"'
IR_WANTED = "give LLVM bitcode or textual LLVM IR: clang -x hip --cuda-device-only -emit-llvm -fgpu-rdc"
FITTING_TYPES = (
    "correct the types in ffi(…): int32 and uint32 are i32, int64 and uint64 are i64 or ptr, float32 is float, float64 is double"
)


def ir(*lines: str, cpu: str | None = "gfx950", version: int | None = 600, triple: str = "amdgcn-amd-amdhsa") -> str:
    """Return a module; its functions are given without their attributes, `define float @f(float %x) { … }`."""
    text = [f'target triple = "{triple}"', *lines]
    if cpu:
        text = [line.replace(" {", " #0 {", 1) if line.startswith("define") else line for line in text]
        text.append(f'attributes #0 = {{ "target-cpu"="{cpu}" }}')
    if version:
        text += ["!llvm.module.flags = !{!0}", f'!0 = !{{i32 1, !"amdhsa_code_object_version", i32 {version}}}']
    return "\n".join(text) + "\n"


def function(name: str = "f", linkage: str = "") -> str:
    return f"define {linkage} float @{name}(float %x) {{ ret float %x }}"


class Project:
    """A project folder, and a resolver in it for each question."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "project"
        self.staging = folder / "staging"
        for one in (self.root, self.staging):
            one.mkdir()

    def write(self, name: str, text: str | bytes) -> Path:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    def resolver(self, *rules: ExternTable, target: str = "gfx950", **options: Any) -> ExternResolver:
        return ExternResolver(
            rules=rules, target=target, project=self.root, staging=self.staging, **{"axes": {}, "environment": {}, **options}
        )

    def faults(self, *files: str, compatible: Sequence[str] = (), **call: Any) -> list[str]:
        """Call one extern that is linked with these files; return what is wrong."""
        resolver = self.resolver(rule(*files, compatible=tuple(compatible)) if files else rule())
        use = ExternUse()
        resolver.resolve(use, extern(**call))
        return [str(fault) for fault in resolver.check_linked(use)]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def rule(*bitcode: str, symbol: str = "f", **options: Any) -> ExternTable:
    return ExternTable(symbol=symbol, where=WHERE, bitcode=bitcode, **options)


def extern(symbol: str = "f", parameters: tuple[str, ...] = ("float32",), result: str = "float32", **options: Any) -> ExternCall:
    return ExternCall(symbol=symbol, parameters=parameters, result=result, **options)


@pytest.fixture
def author(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Write a module of the author's; return its name, which no other test has."""

    def write(text: str) -> str:
        name = "author_" + hashlib.sha256(str(tmp_path).encode() + text.encode()).hexdigest()[:12]
        (tmp_path / f"{name}.py").write_text(text)
        monkeypatch.syspath_prepend(tmp_path)
        return name

    return write


# ---- the file --------------------------------------------------------------------------------------------------------


def test_good(project: Project) -> None:
    path = project.write("lib/f.ll", ir(function()))
    resolver = project.resolver(rule("lib/f.ll", globals=("state",)))
    use = ExternUse()
    (staged,) = resolver.resolve(use, extern())
    assert resolver.check_linked(use) == []
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert staged == str(project.staging / f"{digest[:32]}.bc")
    assert Path(staged).read_bytes() == path.read_bytes()
    assert use.files == {staged: BitcodeUse(file="lib/f.ll", sha256=digest, size=path.stat().st_size, abi=6, externs=("f",))}
    assert (use.globals, use.init, use.axes) == (["state"], [], set())


def test_a_file_of_several_tables_is_of_all(project: Project) -> None:
    project.write("lib/f.ll", ir(function()))
    resolver = project.resolver(rule("lib/f.ll"), rule("lib/f.ll", symbol="g*"), rule(symbol="h"))
    use = ExternUse()
    for symbol in ("g1", "f", "g2"):
        resolver.resolve(use, extern(symbol))
    # A table without bitcode is still the one of a file that the source names; an extern without a table has none.
    resolver.resolve(use, extern("h", source_path="lib/f.ll"))
    resolver.resolve(use, extern("i", source_path="lib/f.ll"))
    assert [one.externs for one in use.files.values()] == [("g*", "f", "h")]


def test_real_bitcode(project: Project) -> None:
    shutil.copy(DATA / "device.gfx950.v6.llvm22.bc", project.root / "device.bc")
    call = {"symbol": "f", "parameters": ("float32", "int32")}
    resolver = project.resolver(rule("device.bc", symbol="scale_*"))
    use = ExternUse()
    resolver.resolve(use, extern(**{**call, "symbol": "scale_and_shift"}))
    assert resolver.check_linked(use) == []
    assert [(one.file, one.abi) for one in use.files.values()] == [("device.bc", 6)]


def test_missing(project: Project) -> None:
    assert project.faults("lib/gone.bc") == [f"extern f, gfx950: bitcode lib/gone.bc does not exist\n    -> it was named by {WHERE}"]
    assert project.faults(source_path="lib/gone.bc") == [
        "extern f, gfx950: bitcode lib/gone.bc does not exist\n    -> it was named by the source's bitcode_path"
    ]


def test_outside_of_the_project_is_named_without_its_folder(project: Project, tmp_path: Path) -> None:
    (fault,) = project.faults(source_path=str(tmp_path / "elsewhere" / "gone.bc"))
    assert fault.startswith("extern f, gfx950: bitcode gone.bc does not exist")


def test_unreadable(project: Project) -> None:
    (project.root / "lib").mkdir()
    assert project.faults("lib") == [f"extern f, gfx950: bitcode lib cannot be read (Is a directory)\n    -> it was named by {WHERE}"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_without_permission(project: Project) -> None:
    project.write("f.ll", ir(function())).chmod(0)
    assert "cannot be read (Permission denied)" in project.faults("f.ll")[0]


NOT_IR = {
    "empty": (b"", "is empty"),
    "ELF": (
        (TESTS / "targets" / "data" / "two_kernels.gfx942.elf").read_bytes(),
        "is not LLVM IR: it is an AMDGPU code object (ELF), already compiled; give clang -emit-llvm to get bitcode",
    ),
    "text": (b"Hello, world.\n", "is text, but not LLVM IR: line 1: top-level entity expected"),
    "archive": (
        b"!<arch>\n",
        "is not LLVM IR: it is an archive; name the bitcode file in it (llvm-ar x) or link its members with llvm-link",
    ),
}


@pytest.mark.parametrize("kind", NOT_IR)
def test_not_llvm_ir(project: Project, kind: str) -> None:
    data, what = NOT_IR[kind]
    project.write("f.bc", data)
    (fault,) = project.faults("f.bc")
    if kind == "text":
        assert fault.startswith("extern f, gfx950: bitcode f.bc is text, but not LLVM IR: line 1")
        assert fault.endswith(f"\n    -> {IR_WANTED}")
    else:
        assert fault == f"extern f, gfx950: bitcode f.bc {what}\n    -> {IR_WANTED}"


def test_truncated(project: Project) -> None:
    project.write("f.bc", (DATA / "device.gfx942.v6.llvm19.bc").read_bytes()[:-64])
    (fault,) = project.faults("f.bc")
    assert "bitcode f.bc is truncated" in fault


def test_code_object_version_5(project: Project) -> None:
    what = "is for code object version 5, FlyDSL compiles version 6\n    -> compile it with -mcode-object-version=6"
    shutil.copy(DATA / "device.gfx942.v5.llvm19.bc", project.root / "f.bc")
    assert project.faults("f.bc") == [f"extern f, gfx950: bitcode f.bc {what}"]
    project.write("f.ll", ir(function(), version=500))
    assert project.faults("f.ll") == [f"extern f, gfx950: bitcode f.ll {what}"]
    project.write("f.ll", ir(function(), version=None))
    assert project.faults("f.ll") == []


def test_another_chip(project: Project) -> None:
    """LLVM links gfx942 code into gfx950 code without a word."""
    project.write("f.ll", ir(function()).replace("gfx950", "gfx942"))
    assert project.faults("f.ll") == [
        (
            "extern f, gfx950: bitcode f.ll was compiled for gfx942\n"
            '    -> give bitcode for gfx950: bitcode = "…_{arch}.bc" in the extern\'s table; if it is known to run there, '
            'add compatible = ["gfx950"]'
        )
    ]
    assert project.faults("f.ll", compatible=["gfx950"]) == []
    assert len(project.faults("f.ll", compatible=["gfx1100"])) == 1


def test_another_chip_in_real_bitcode(project: Project) -> None:
    shutil.copy(DATA / "device.gfx942.v6.llvm19.bc", project.root / "f.bc")
    assert "f.bc was compiled for gfx942" in project.faults("f.bc")[0]


def test_permission_for_one_extern_is_none_for_another(project: Project) -> None:
    text = ir(function("f"), function("g"), cpu="gfx942")
    project.write("f.ll", text)
    for order in ("fg", "gf"):
        rules = (rule("f.ll", symbol="f", compatible=("gfx950",)), rule("f.ll", symbol="g"))
        resolver, use = project.resolver(*rules), ExternUse()
        for symbol in order:
            resolver.resolve(use, extern(symbol))
        (fault,) = resolver.check_linked(use)
        assert fault.where == "extern g, gfx950"


@pytest.mark.parametrize(
    ("cpu", "target", "fits"),
    [
        ("gfx9-4-generic", "gfx950", True),
        ("gfx9-4-generic", "gfx1100", False),
        ("gfx11-generic", "gfx1103", True),
        ("gfx942", "gfx9-4-generic", False),
        ("gfx9-4-generic", "gfx9-4-generic", True),
        ("generic", "gfx950", True),
        (None, "gfx950", True),
        ("gfx9999", "gfx950", False),
    ],
)
def test_generic_chips(project: Project, cpu: str | None, target: str, fits: bool) -> None:
    project.write("f.ll", ir(function(), cpu=cpu))
    resolver, use = project.resolver(rule("f.ll"), target=target), ExternUse()
    resolver.resolve(use, extern())
    assert [fault.what for fault in resolver.check_linked(use)] == ([] if fits else [f"bitcode f.ll was compiled for {cpu}"])


def test_host_code(project: Project) -> None:
    project.write("f.ll", ir(function(), cpu=None, triple="x86_64-unknown-linux-gnu", version=None))
    assert project.faults("f.ll") == [
        (
            "extern f, gfx950: bitcode f.ll was compiled for x86_64-unknown-linux-gnu\n"
            "    -> compile it for amdgcn-amd-amdhsa: clang -x hip --cuda-device-only"
        )
    ]


def test_a_file_of_many_externs_is_told_of_once(project: Project) -> None:
    project.write("f.ll", ir(function("f"), function("g"), cpu="gfx942"))
    resolver, use = project.resolver(rule("f.ll", symbol="*")), ExternUse()
    for symbol in "fgfg":
        assert resolver.resolve(use, extern(symbol)) == ()
    assert len(resolver.check_linked(use)) == 1


# ---- the symbol ------------------------------------------------------------------------------------------------------


def test_no_bitcode(project: Project) -> None:
    resolver, use = project.resolver(), ExternUse()
    assert resolver.resolve(use, extern()) == ()
    assert list(map(str, resolver.check_linked(use))) == [
        (
            "extern f, gfx950: has no bitcode\n"
            "    -> give it: link_extern(…, bitcode_path=…) in the source, "
            'or [tool.flydsl-build.externs."f"] bitcode = "…"'
        )
    ]


def test_no_bitcode_beside_a_table_with_nearly_the_name(project: Project) -> None:
    resolver, use = project.resolver(rule("f.ll", symbol="put_remote"), rule(symbol="other")), ExternUse()
    assert resolver.resolve(use, extern("put_remotes")) == ()
    (fault,) = resolver.check_linked(use)
    assert fault.fix.endswith(f'[tool.flydsl-build.externs."put_remotes"] bitcode = "…"; is {WHERE} meant for it?')


@pytest.mark.parametrize("symbol", ["__ocml_sqrt_f32", "__ockl_get_group_id", "llvm.amdgcn.s.barrier"])
def test_device_library(project: Project, symbol: str) -> None:
    resolver, use = project.resolver(), ExternUse()
    assert resolver.resolve(use, extern(symbol)) == ()
    assert resolver.check_linked(use) == []


DROPPED = 'check the name (extern "C"), and compile it with -fgpu-rdc: without it clang drops __device__ functions that nothing calls'


def test_not_defined(project: Project) -> None:
    project.write("a.ll", ir(function("other")))
    project.write("b.ll", ir(function("third")))
    assert project.faults("a.ll") == [f"extern f, gfx950: is not defined in a.ll\n    -> {DROPPED}"]
    assert project.faults("a.ll", "b.ll") == [f"extern f, gfx950: is not defined in a.ll, b.ll\n    -> {DROPPED}"]


def test_only_declared(project: Project) -> None:
    project.write("a.ll", ir(function("other"), "declare float @f(float)"))
    project.write("b.ll", ir(function("third")))
    assert project.faults("a.ll", "b.ll") == [f"extern f, gfx950: is not defined in a.ll, b.ll (only declared in a.ll)\n    -> {DROPPED}"]


def test_a_variable_is_no_function(project: Project) -> None:
    project.write("a.ll", ir("@f = addrspace(1) externally_initialized global i32 0"))
    assert "is not defined in a.ll" in project.faults("a.ll")[0]


@pytest.mark.parametrize("linkage", ["internal", "private", "available_externally"])
def test_linkage(project: Project, linkage: str) -> None:
    project.write("a.ll", ir(function(linkage=linkage)))
    assert project.faults("a.ll") == [f"extern f, gfx950: is {linkage} in a.ll\n    -> give it external linkage"]
    project.write("b.ll", ir(function()))
    assert project.faults("a.ll", "b.ll") == []


def test_defined_twice(project: Project) -> None:
    project.write("a.ll", ir(function()))
    project.write("b.ll", ir(function(), function("other")))
    assert project.faults("a.ll", "b.ll") == [
        "extern f, gfx950: is defined in a.ll and in b.ll\n    -> give each symbol in one bitcode file"
    ]
    shutil.copy(project.root / "a.ll", project.root / "same.ll")
    assert project.faults("a.ll", "same.ll") == []


@pytest.mark.parametrize("linkage", ["weak", "weak_odr", "linkonce_odr"])
def test_weak_and_strong(project: Project, linkage: str) -> None:
    project.write("strong.ll", ir(function()))
    project.write("weak.ll", ir(function(linkage=linkage)))
    assert project.faults("strong.ll", "weak.ll") == []
    assert project.faults("weak.ll") == []
    # The linker takes what is still undefined, so the weak definition would stay.
    assert project.faults("weak.ll", "strong.ll") == [
        (
            f"extern f, gfx950: is {linkage} in weak.ll, which is linked before the definition in strong.ll, "
            "so the weak one would be used\n"
            "    -> name strong.ll first"
        )
    ]


def test_global_defined_twice(project: Project) -> None:
    state = "@state = addrspace(1) externally_initialized global i32 0"
    project.write("a.ll", ir(function("f"), state))
    project.write("b.ll", ir(function("g"), state))
    resolver, use = project.resolver(rule("a.ll", "b.ll", symbol="*", globals=("state",))), ExternUse()
    resolver.resolve(use, extern("f"))
    assert [str(fault) for fault in resolver.check_linked(use)] == [
        "extern state, gfx950: is defined in a.ll and in b.ll\n    -> give each symbol in one bitcode file"
    ]
    project.write("b.ll", ir(function("g"), "@state = external addrspace(1) global i32"))
    resolver, use = project.resolver(rule("a.ll", "b.ll", symbol="*", globals=("state",))), ExternUse()
    resolver.resolve(use, extern("f"))
    assert resolver.check_linked(use) == []


def test_two_kernels_that_link_different_files(project: Project) -> None:
    """They become one code object, in which one of the definitions would serve both."""
    for name in "ab":
        project.write(f"{name}.ll", ir(function(), function(f"only_{name}")))
    resolver = project.resolver()
    uses = []
    for name in "ab":
        uses.append(ExternUse())
        resolver.resolve(uses[-1], extern(source_path=f"{name}.ll"))
        assert resolver.check_linked(uses[-1]) == []
    assert resolver.check_joined(uses[:1]) == []
    (fault,) = resolver.check_joined(uses)
    assert fault.what == "is defined in a.ll and in b.ll"


SIGNATURES = {
    "fits": (("float32", "int32"), "float32", "float", "float, i32", True),
    "unsigned": (("float32", "uint32"), "float32", "float", "float, i32", True),
    "pointers": (("uint64", "int64", "uint64"), "void", "void", "ptr, ptr addrspace(1), ptr addrspace(4)", True),
    "wide": (("int64", "float64"), "uint64", "i64", "i64, double", True),
    "pointer result": ((), "uint64", "ptr", "", True),
    "short pointer": (("uint32",), "void", "void", "ptr addrspace(3)", True),
    "too few": (("float32",), "float32", "float", "float, i32", False),
    "too many": (("float32", "int32"), "float32", "float", "float", False),
    "width": (("float32", "int64"), "float32", "float", "float, i32", False),
    "float for int": (("int32",), "void", "void", "float", False),
    "half": (("float32",), "void", "void", "half", False),
    "long for a short pointer": (("uint64",), "void", "void", "ptr addrspace(3)", False),
    "result": (("float32",), "float64", "float", "float", False),
    "result for void": (("float32",), "float32", "void", "float", False),
    "void for a result": (("float32",), "void", "float", "float", False),
    "vector": (("float32",), "void", "void", "<4 x float>", False),
    "variable": (("int32",), "void", "void", "i32, ...", False),
}


@pytest.mark.parametrize("case", SIGNATURES)
def test_signature(project: Project, case: str) -> None:
    parameters, result, found_result, found, fits = SIGNATURES[case]
    project.write("f.ll", ir(f"define {found_result} @f({found}) {{ unreachable }}"))
    text = f"({', '.join(parameters)}) -> {result}"
    expected = (
        f"extern f, gfx950: the ffi declaration {text} does not fit the function in f.ll, which is {found_result} ({found})\n"
        f"    -> {FITTING_TYPES}"
    )
    assert project.faults("f.ll", parameters=parameters, result=result) == ([] if fits else [expected])


def test_declared_with_two_types(project: Project) -> None:
    project.write("f.ll", ir(function()))
    resolver, use = project.resolver(rule("f.ll")), ExternUse()
    resolver.resolve(use, extern())
    resolver.resolve(use, extern(parameters=("int32",)))
    assert [str(fault) for fault in resolver.check_linked(use)] == [
        "extern f, gfx950: is declared with the types (float32) -> float32 and (int32) -> float32\n    -> declare it alike everywhere"
    ]


# ---- rules and paths -------------------------------------------------------------------------------------------------


def test_first_rule_that_fits(project: Project) -> None:
    for name in ("exact", "glob", "rest"):
        project.write(f"{name}.ll", ir(*(function(symbol) for symbol in ("shmem_put", "shmem_get", "other"))))
    rules = (
        rule("exact.ll", symbol="shmem_put"),
        rule("glob.ll", symbol="shmem_*", globals=("state",)),
        rule("rest.ll", symbol="*"),
        rule("never.ll", symbol="other"),
    )
    files = {}
    for symbol in ("shmem_put", "shmem_get", "other"):
        resolver, use = project.resolver(*rules), ExternUse()
        resolver.resolve(use, extern(symbol))
        assert resolver.check_linked(use) == []
        files[symbol] = [one.file for one in use.files.values()], use.globals
    assert files == {"shmem_put": (["exact.ll"], []), "shmem_get": (["glob.ll"], ["state"]), "other": (["rest.ll"], [])}


def test_glob_minds_case(project: Project) -> None:
    project.write("f.ll", ir(function("Put")))
    resolver, use = project.resolver(rule("f.ll", symbol="put")), ExternUse()
    assert resolver.resolve(use, extern("Put")) == ()


def test_plain_ffi_is_served_by_a_table(project: Project) -> None:
    """A call of `ffi` alone has no path and no init function of its own."""
    project.write("f.ll", ir(function()))
    assert project.faults("f.ll", source_path=None, source_init=None) == []


def test_table_wins_over_the_source(project: Project) -> None:
    project.write("f.ll", ir(function()))
    assert project.faults("f.ll", source_path="gone.bc") == []


def test_table_without_bitcode_leaves_the_sources_path(project: Project) -> None:
    project.write("f.ll", ir(function()))
    resolver, use = project.resolver(rule(globals=("state",))), ExternUse()
    assert len(resolver.resolve(use, extern(source_path=str(project.root / "f.ll")))) == 1
    assert [one.file for one in use.files.values()] == ["f.ll"]
    assert use.globals == ["state"]


def test_placeholders(project: Project) -> None:
    project.write("lib/f_gfx950_mlx5.ll", ir(function()))
    project.write("lib/plain.ll", ir(function("g")))
    resolver, use = project.resolver(rule("lib/f_{arch}_{nic}.ll", "lib/plain.ll"), axes={"nic": "mlx5", "width": "2"}), ExternUse()
    resolver.resolve(use, extern())
    assert resolver.check_linked(use) == []
    assert use.axes == {"nic"}
    assert [one.file for one in use.files.values()] == ["lib/f_gfx950_mlx5.ll", "lib/plain.ll"]


def test_expand_placeholders() -> None:
    assert expand_placeholders("{arch}{nic}/{{nic}}/{{{arch}}}", "gfx942", {"nic": "a"}) == "gfx942a/{nic}/{gfx942}"


@pytest.mark.parametrize("name", ["a b.ll", "a,b.ll", "it's.ll", 'say "x".ll', "{arch}.ll", "a;b$c`d.ll", "ümläut.ll", "l=x toolkit=y}.ll"])
def test_names_that_flydsl_refuses(project: Project, name: str) -> None:
    folder = 'of {x}, "y"'
    project.write(f"{folder}/{name}", ir(function()))
    written = f"{folder}/{name}".replace("{", "{{").replace("}", "}}")
    resolver, use = project.resolver(rule(written)), ExternUse()
    (staged,) = resolver.resolve(use, extern())
    assert resolver.check_linked(use) == []
    assert set(Path(staged).name) <= set("0123456789abcdef.")
    assert [one.file for one in use.files.values()] == [f"{folder}/{name}"]
    resolver, use = project.resolver(), ExternUse()
    assert resolver.resolve(use, extern(source_path=str(project.root / folder / name))) == (staged,)


def test_axes_of_an_environment_path(project: Project) -> None:
    project.write("lib/x_mlx5.ll", ir(function()))
    environment = {"SHMEM_BC": "lib/x_{nic}.ll", "ELSEWHERE": "off/{width}", "SAME": "lib/x_mlx5.ll", "BRACES": "{{width}}"}
    resolver, use = project.resolver(axes={"nic": "mlx5", "width": "2"}, environment=environment), ExternUse()
    resolver.resolve(use, extern(source_path="lib/x_mlx5.ll"))
    assert resolver.check_linked(use) == []
    assert use.axes == {"nic"}


class TestFunction:
    def test_is_called_with_target_and_axes(self, project: Project, author: Callable[[str], str]) -> None:
        name = author("from pathlib import Path\ndef find(arch, nic):\n    return Path('lib', f'{arch}-{nic}.ll')\n")
        project.write("lib/gfx950-mlx5.ll", ir(function()))
        resolver, use = project.resolver(rule(f"{name}:find"), axes={"nic": "mlx5"}), ExternUse()
        resolver.resolve(use, extern())
        assert resolver.check_linked(use) == []
        assert [one.file for one in use.files.values()] == ["lib/gfx950-mlx5.ll"]
        assert use.axes == {"nic"}

    def test_raises(self, project: Project, author: Callable[[str], str]) -> None:
        name = author("def find(arch):\n    raise LookupError('no ' + arch)\n")
        assert project.faults(f"{name}:find") == [
            f"extern f, gfx950: {name}:find failed: LookupError: no gfx950\n    -> it is called as {name}:find(arch) and returns a path"
        ]

    def test_takes_other_axes(self, project: Project, author: Callable[[str], str]) -> None:
        name = author("def find(arch):\n    return 'f.ll'\n")
        resolver, use = project.resolver(rule(f"{name}:find"), axes={"nic": "mlx5"}), ExternUse()
        resolver.resolve(use, extern())
        (fault,) = resolver.check_linked(use)
        assert str(fault) == (
            f"extern f, gfx950: {name}:find failed: TypeError: find() got an unexpected keyword argument 'nic'\n"
            f"    -> it is called as {name}:find(arch, nic=…) and returns a path"
        )

    def test_returns_no_path(self, project: Project, author: Callable[[str], str]) -> None:
        name = author("def find(arch):\n    pass\n")
        (fault,) = project.faults(f"{name}:find")
        assert fault.startswith(f"extern f, gfx950: {name}:find returned a NoneType\n")

    def test_is_not_there(self, project: Project) -> None:
        (fault,) = project.faults("no_such_module_here:find")
        assert fault.startswith("extern f, gfx950: no_such_module_here:find failed: ModuleNotFoundError: No module named")


# ---- init functions --------------------------------------------------------------------------------------------------

INIT = """
import functools

def good(module):
    return 0

class State:
    def bound(self, module):
        pass

    @staticmethod
    def static(module):
        pass

    @classmethod
    def of_class(cls, module):
        pass

def make():
    def inner(module):
        pass
    return inner

@functools.wraps(good)
def renamed(module):
    pass

def shadowed(module):
    pass
before = shadowed

def shadowed(module):
    pass

def gone(module):
    pass
kept = gone
del gone

def decorated(function):
    @functools.wraps(function)
    def wrapper(module):
        return function(module)
    return wrapper

@decorated
def wrapped(module):
    pass

class Callable:
    def __call__(self, module):
        pass
called = Callable()
number = 3
anonymous = lambda module: None
partial = functools.partial(good)
"""


@pytest.fixture
def inits(author: Callable[[str], str]) -> Any:
    return __import__(author(INIT))


def test_init_functions_that_have_a_name(inits: Any) -> None:
    for name in ("good", "wrapped"):
        assert init_reference(getattr(inits, name)) == (f"{inits.__name__}:{name}", "")
    assert init_reference(inits.State.static) == (f"{inits.__name__}:State.static", "")


def refusals(inits: Any) -> dict[str, tuple[Any, str]]:
    name = inits.__name__

    main = type(inits.make)(inits.make.__code__, {"__name__": "__main__"}, "init")
    return {
        "lambda": (inits.anonymous, "is a lambda, which has no name to import it by"),
        "partial": (inits.partial, "is a functools.partial, which has no name to import it by"),
        "bound method": (inits.State().bound, "is a bound method, whose object cannot be imported"),
        "class method": (inits.State.of_class, "is a bound method, whose object cannot be imported"),
        "local": (inits.make(), "is local to a function (make.<locals>.inner), so it cannot be imported"),
        "of the main module": (main, "is defined in __main__, which is not part of the wheel"),
        "shadowed": (inits.before, f"is not the object that {name}:shadowed names"),
        "renamed": (inits.renamed, f"is not the object that {name}:good names"),
        "gone": (inits.kept, f"cannot be imported as {name}:gone (AttributeError: module '{name}' has no attribute 'gone')"),
        "object": (inits.called, "is a Callable without a name"),
    }


REFUSED = ("lambda", "partial", "bound method", "class method", "local", "of the main module", "shadowed", "renamed", "gone", "object")


@pytest.mark.parametrize("case", REFUSED)
def test_init_functions_that_have_none(project: Project, inits: Any, case: str) -> None:
    project.write("f.ll", ir(function()))
    found, reason = refusals(inits)[case]
    assert project.faults("f.ll", source_init=found) == [
        (
            f"extern f, gfx950: its init function {reason}\n"
            "    -> make it a function at the top level of a module that is installed, or name one with `init` in the extern's table"
        )
    ]


def test_the_module_of_an_init_function_raises(author: Callable[[str], str]) -> None:
    name = author("raise ValueError('not here')\n")
    made = functools.wraps(test_good)(lambda _: None)
    made.__module__, made.__qualname__ = name, "init"
    assert init_reference(made) == (None, f"cannot be imported as {name}:init (ValueError: not here)")


def test_init_of_the_table(project: Project, inits: Any) -> None:
    """It wins over the source's, whatever that is."""
    project.write("f.ll", ir(function()))
    resolver, use = project.resolver(rule("f.ll", init=f"{inits.__name__}:State.static")), ExternUse()
    resolver.resolve(use, extern(source_init=inits.anonymous))
    assert resolver.check_linked(use) == []
    assert use.init == [f"{inits.__name__}:State.static"]


@pytest.mark.parametrize(
    ("reference", "what"),
    [
        ("no_such_module_here:init", "cannot be imported: ModuleNotFoundError: No module named 'no_such_module_here'"),
        ("{}:absent", "cannot be imported: AttributeError: module '{}' has no attribute 'absent'"),
    ],
)
def test_init_of_the_table_that_is_missing(project: Project, inits: Any, reference: str, what: str) -> None:
    project.write("f.ll", ir(function()))
    reference = reference.format(inits.__name__)
    resolver, use = project.resolver(rule("f.ll", init=reference)), ExternUse()
    resolver.resolve(use, extern())
    assert [str(fault) for fault in resolver.check_linked(use)] == [
        f"extern f, gfx950: its init function {reference} {what.format(inits.__name__)}\n    -> correct {WHERE}.init"
    ]


def test_init_of_the_table_that_cannot_be_called(project: Project, inits: Any) -> None:
    project.write("f.ll", ir(function()))
    resolver, use = project.resolver(rule("f.ll", init=f"{inits.__name__}:number")), ExternUse()
    resolver.resolve(use, extern())
    assert [str(fault) for fault in resolver.check_linked(use)] == [
        f"extern f, gfx950: {inits.__name__}:number is a int, not a function\n    -> correct {WHERE}.init"
    ]


def test_init_functions_are_kept_once_in_order_of_use(project: Project, inits: Any) -> None:
    project.write("f.ll", ir(*(function(symbol) for symbol in "fgh")))
    resolver, use = project.resolver(rule("f.ll", symbol="*")), ExternUse()
    for symbol, init in (("f", inits.wrapped), ("g", inits.good), ("h", inits.wrapped), ("f", inits.wrapped)):
        resolver.resolve(use, extern(symbol, source_init=init))
    assert resolver.check_linked(use) == []
    assert use.init == [f"{inits.__name__}:wrapped", f"{inits.__name__}:good"]


def test_all_faults_come_together(project: Project, inits: Any) -> None:
    project.write("v5.ll", ir(function("g"), version=500))
    rules = (rule("gone.bc", symbol="f"), rule("v5.ll", symbol="g"), rule("v5.ll", symbol="h"))
    resolver, use = project.resolver(*rules), ExternUse()
    for symbol in "fgh":
        resolver.resolve(use, extern(symbol, source_init=inits.anonymous if symbol == "h" else None))
    assert [(fault.where, fault.what.partition(",")[0]) for fault in resolver.check_linked(use)] == [
        ("extern f, gfx950", "bitcode gone.bc does not exist"),
        ("extern g, gfx950", "bitcode v5.ll is for code object version 5"),
        ("extern h, gfx950", "its init function is a lambda"),
    ]


def test_further_symbols_that_two_files_define(project: Project) -> None:
    """Nothing calls them, so none is a fault: which of them would be used is said."""
    common = [function(f"same_{number}") for number in range(7)]
    project.write("a.ll", ir(function("f"), *common, "@state = addrspace(1) global float 0.0", function("odr", "linkonce_odr")))
    project.write("b.ll", ir(function("g"), *common, "@state = addrspace(1) global float 1.0", function("odr", "linkonce_odr")))
    project.write("c.ll", ir(function("h"), common[0], function("f", "internal")))
    resolver = project.resolver()
    use = ExternUse()
    for symbol, file in (("f", "a.ll"), ("g", "b.ll"), ("h", "c.ll")):
        resolver.resolve(use, extern(symbol=symbol, source_path=file))
    assert resolver.check_joined([use]) == []
    assert resolver.repeated_definitions([use]) == [
        "bitcode a.ll and b.ll both define same_0, same_1, same_2, same_3, same_4 and 3 more; those of a.ll are linked",
        "bitcode a.ll and c.ll both define same_0; those of a.ll are linked",
    ]


def test_two_kernels_that_declare_it_differently(project: Project) -> None:
    project.write("f.ll", ir(function()))
    resolver = project.resolver(rule("f.ll"))
    uses = [ExternUse(), ExternUse()]
    resolver.resolve(uses[0], extern())
    resolver.resolve(uses[1], extern(result="int32"))
    (fault,) = resolver.check_joined(uses)
    assert fault.what == "is declared with the types (float32) -> float32 and (float32) -> int32"
