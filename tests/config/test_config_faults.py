# SPDX-License-Identifier: Apache-2.0
"""Everything that can be wrong with the settings, and the whole message of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flydsl_build.codec import EnumMember
from flydsl_build.config import extend_with_declarations, read_settings
from flydsl_build.errors import ConfigError
from flydsl_build.targets.processors import TARGETS

if TYPE_CHECKING:
    from pathlib import Path

T = "tool.flydsl-build"
SECONDS = "a number of seconds above 0 and at most 31622400"
ARCHS = '[tool.flydsl-build]\narchs = ["gfx942"]\n'
K = '[tool.flydsl-build.kernels."m:f"]\n'
MINIMAL = ARCHS + K
MEMBER = EnumMember(enum="m:Mode", name="TWO")
WHERE = f'{T}.kernels."m:f"'
NAME = "write the name that stands in the source, a Python name such as N"
BEGIN_WITH_GFX1 = ", ".join(name for name in TARGETS if not name.startswith("gfx9"))
KNOWN = "Known: " + ", ".join(TARGETS) + "."
TOP = (
    "allow-empty, archs, axes, base, cache, cache-dir, cache-size, dump-ir, editable, env, executor, executor-address, externs, "
    "jobs, kernels, kernels-from, lld, load, options, per-arch-tag, remote-cache, remote-cache-write, rocm-path, timeout, "
    "torch-ops, verbose, wheel."
)


def fault(folder: Path, text: str | bytes, config_settings: dict[str, object] | None = None, environ: dict[str, str] | None = None) -> str:
    (folder / "pyproject.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError) as caught:
        read_settings(folder, config_settings, environ or {})
    return str(caught.value)


def in_table(line: str) -> str:
    return f'[tool.flydsl-build]\narchs = ["gfx942"]\n{line}\n{K}'


def test_no_pyproject(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        read_settings(tmp_path, None, {})
    assert str(caught.value) == (
        f"pyproject.toml: there is none in {tmp_path}\n"
        "    -> give the project's folder; in a new project, write one that begins so, and have `flydsl-build init` add the kernels\n"
        "    | [project]\n"
        '    | name = "my-kernels"\n'
        '    | version = "0.1"'
    )


def test_pyproject_is_a_folder(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").mkdir()
    with pytest.raises(ConfigError) as caught:
        read_settings(tmp_path, None, {})
    assert str(caught.value) == "pyproject.toml: cannot be read: Is a directory"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[project]\nname = "x\n',
            "pyproject.toml:2:10: Illegal character '\\n'\n    | name = \"x\n    |          ^",
        ),
        ("a = [1,", "pyproject.toml:1:8: Invalid value\n    | a = [1,\n    |        ^"),
        (
            K + "[tool.flydsl-build.kernels.'m:f']\n",
            (
                "pyproject.toml:2:33: Cannot declare ('tool', 'flydsl-build', 'kernels', 'm:f') twice\n"
                "    -> a kernel has one table; several parameter sets of it go into its `sets`\n"
                "    | [tool.flydsl-build.kernels.'m:f']\n    |                                 ^"
            ),
        ),
        (b'a = 1\nb = "\xff"\n', "pyproject.toml:2: byte 0xff is not UTF-8\n    -> TOML files are UTF-8"),
        ("tool = 1", "pyproject.toml: `tool` is the integer 1\n    -> write a table"),
        ("[tool]\nflydsl-build = []", f"{T}: found an empty list\n    -> write a table"),
        ("[tool.flydsl_build]", 'tool.flydsl_build: unknown table\n    -> Did you mean "tool.flydsl-build"?'),
    ],
)
def test_files(text: str | bytes, message: str, tmp_path: Path) -> None:
    assert fault(tmp_path, text) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "",
            (
                f"{T}.kernels: no kernels are declared\n"
                "    -> run `flydsl-build init`, which finds launchers and writes their tables; or "
                f'add a table [{T}.kernels."module:attribute"], or allow-empty = true for a package without kernels'
            ),
        ),
        (
            ARCHS + "[tool.flydsl-build.kernels]",
            (
                f"{T}.kernels: no kernels are declared\n"
                "    -> run `flydsl-build init`, which finds launchers and writes their tables; or "
                f'add a table [{T}.kernels."module:attribute"], or allow-empty = true for a package without kernels'
            ),
        ),
        (ARCHS + '[tool.flydsl-build.kernel."m:f"]', f'{T}.kernel: unknown key\n    -> Did you mean "kernels"?'),
        (in_table("arch = 1"), f'{T}.arch: unknown key\n    -> Did you mean "archs"?'),
        (in_table("zzz = 1"), f"{T}.zzz: unknown key\n    -> Allowed: {TOP}"),
        (in_table('"a b" = 1'), f'{T}."a b": unknown key\n    -> Allowed: {TOP}'),
        (
            K,
            (
                f"{T}.archs: no architectures are given to build for: m:f\n"
                '    -> write archs = ["gfx942", "gfx1100"] in the table, pass -C archs=gfx942,gfx1100, or set '
                "FLYDSL_BUILD_ARCHS=gfx942,gfx1100; there is no default, and the build machine is not probed"
            ),
        ),
        (f"[{T}]\narchs = []\n{K}", f'{T}.archs: the list of architectures is empty\n    -> write at least one, such as ["gfx942"]'),
        (f'[{T}]\narchs = "gfx942"\n{K}', f'{T}.archs: found the string "gfx942"\n    -> write a list of strings'),
        (
            f'[{T}]\narchs = ["gfx942", 1, " "]\n{K}',
            f"2 faults:\n  1. {T}.archs[1]: found the integer 1\n    -> write a string\n  2. {T}.archs[2]: the string is empty\n    -> remove it",
        ),
        (f'[{T}]\narchs = ["gfx9999"]\n{K}', f'{T}.archs: unknown architecture "gfx9999"\n    -> {KNOWN}'),
        (
            f'[{T}]\narchs = ["MI300X"]\n{K}',
            f'{T}.archs: "MI300X" is the name of a product, whose architecture is gfx942\n    -> write "gfx942"',
        ),
        (in_table('load = "eager"'), f'{T}.load: found the string "eager"\n    -> write "import" or "lazy"'),
        (in_table('executor = "ray"'), f'{T}.executor: found the string "ray"\n    -> write "local" or "dask"'),
        (
            in_table('executor = "dask"'),
            (
                f'{T}.executor-address: executor is "dask", and no address of a scheduler is given\n'
                '    -> write executor-address = "tcp://HOST:8786", pass -C executor-address=…, or set FLYDSL_BUILD_EXECUTOR_ADDRESS'
            ),
        ),
        (in_table('executor = "dask"\nexecutor-address = "a b"'), f'{T}.executor-address: found "a b"\n    -> write "tcp://HOST:8786"'),
        (
            in_table('executor = "dask"\nexecutor-address = "a:1"\ndump-ir = "ir"'),
            f'{T}.dump-ir: executor is "dask", and IR is written on the machine that compiles\n    -> build with executor = "local"',
        ),
        # What was written is not shown: it may have a password in it.
        (
            in_table('remote-cache = "secret"'),
            (
                f"{T}.remote-cache: found no URL that names can be added to\n"
                '    -> write one without ?, # and globs, such as "s3://bucket/prefix"'
            ),
        ),
        (
            in_table('remote-cache = "https://host/a?token=secret"'),
            (
                f"{T}.remote-cache: found no URL that names can be added to\n"
                '    -> write one without ?, # and globs, such as "s3://bucket/prefix"'
            ),
        ),
        (in_table("load = 1"), f'{T}.load: found the integer 1\n    -> write "import" or "lazy"'),
        (in_table("timeout = 0"), f"{T}.timeout: found the integer 0\n    -> write {SECONDS}"),
        (in_table("timeout = inf"), f"{T}.timeout: found the number inf\n    -> write {SECONDS}"),
        (in_table("timeout = 1e300"), f"{T}.timeout: found the number 1e+300\n    -> write {SECONDS}"),
        (in_table('lld = "a\\u0000b"'), f"{T}.lld: the string has a NUL character\n    -> remove it"),
        (
            in_table('archs = ["gfx942", "a\\u0000"]').replace('archs = ["gfx942"]\n', "", 1),
            f"{T}.archs[1]: the string has a NUL character\n    -> remove it",
        ),
        (in_table('timeout = "1"'), f'{T}.timeout: found the string "1"\n    -> write {SECONDS}'),
        (in_table("jobs = 0"), f"{T}.jobs: found the integer 0\n    -> write an integer of at least 1"),
        (in_table("jobs = true"), f"{T}.jobs: found the boolean true\n    -> write an integer of at least 1"),
        (in_table("jobs = 1.5"), f"{T}.jobs: found the number 1.5\n    -> write an integer of at least 1"),
        (in_table('lld = ""'), f"{T}.lld: the string is empty\n    -> write a value, or leave the key out"),
        (in_table("lld = 1979-05-27"), f"{T}.lld: found a date\n    -> write a string"),
        (in_table('verbose = "yes"'), f'{T}.verbose: found the string "yes"\n    -> write true or false'),
        (
            in_table("kernels-from = 'a.b'"),
            f'{T}.kernels-from: "a.b" has no colon\n    -> did you mean "a:b"? write "module:attribute", both dotted names\n    | a.b\n    |  ^',
        ),
        (in_table("options = 1"), f"{T}.options: found the integer 1\n    -> write a table"),
        (in_table("options = { opt-level = 4 }"), f"{T}.options.opt-level: found the integer 4\n    -> write an integer from 0 to 3"),
        (in_table("options = { fast_fp_math = true }"), f'{T}.options.fast_fp_math: unknown key\n    -> Did you mean "fast-fp-math"?'),
        (
            in_table("options = { waves-per-eu = 21 }"),
            f"{T}.options.waves-per-eu: found the integer 21\n    -> write an integer from 0 to 20",
        ),
        (
            in_table("options = { waves-per-eu = [4, 2] }"),
            f"{T}.options.waves-per-eu: found [4, 2]\n    -> write an integer, or [low, high] with 1 <= low <= high <= 20",
        ),
        (
            in_table("options = { waves-per-eu = [4] }"),
            (
                f"{T}.options.waves-per-eu: found a list that is not two integers\n"
                "    -> write an integer, or [low, high] with 1 <= low <= high <= 20"
            ),
        ),
        (
            in_table('options = { llvm-options = { "-a-b" = 1 } }'),
            f'{T}.options.llvm-options.-a-b: the name has its dashes\n    -> write "a-b"',
        ),
        (in_table('options = { llvm-options = { "a b" = 1 } }'), f'{T}.options.llvm-options."a b": not the name of an LLVM option'),
        (
            in_table("options = { llvm-options = { a = 1.5 } }"),
            f"{T}.options.llvm-options.a: found the number 1.5\n    -> write a boolean, an integer or a string",
        ),
        (
            in_table("options = { gfx942 = { gfx942 = {} } }"),
            (
                f"{T}.options.gfx942.gfx942: unknown key\n    -> Allowed: debug-lines, fast-fp-math, llvm-options, opt-level, "
                "unsafe-fp-math, waves-per-eu."
            ),
        ),
        (in_table("env = { ARCH = 'x' }"), f"{T}.env.ARCH: the build sets this variable itself, to the target\n    -> remove it"),
        (in_table("env = { 'A=B' = 'x' }"), f'{T}.env."A=B": not the name of an environment variable'),
        (in_table("env = { A = 1 }"), f"{T}.env.A: found the integer 1\n    -> write a string"),
        (in_table("env = { A = '{nic}' }"), f'{T}.env.A: "{{nic}}": unknown placeholder {{nic}}\n    -> Allowed: arch.'),
        (
            in_table("env = { A = '{arch:>3}' }"),
            f'{T}.env.A: "{{arch:>3}}": {{arch}} is not a placeholder\n    -> write {{name}}, and literal braces as {{{{ and }}}}',
        ),
        (
            in_table("env = { A = '}' }"),
            f"{T}.env.A: \"}}\": Single '}}' encountered in format string\n    -> write {{name}}, and literal braces as {{{{ and }}}}",
        ),
        (
            in_table("axes = { arch = { values = ['x'] } }"),
            f'{T}.axes.arch: "arch" cannot be the name of an axis\n    -> write a Python name other than arch',
        ),
        (
            in_table("axes = { nic = { values = ['a'] }, NIC = { values = ['b'] } }"),
            f"{T}.axes.NIC: FLYDSL_BUILD_AXIS_NIC would set this axis and nic\n    -> rename one of them",
        ),
        (in_table("axes = { nic = {} }"), f'{T}.axes.nic.values: missing\n    -> list the values to build for, such as ["mlx5", "bnxt"]'),
        (
            in_table("axes = { nic = { values = [] } }"),
            f'{T}.axes.nic.values: the list is empty\n    -> list the values to build for, such as ["mlx5", "bnxt"]',
        ),
        (
            in_table("axes = { nic = { values = ['a/b'] } }"),
            f'{T}.axes.nic.values: "a/b" has a character other than letters, digits and _.+-',
        ),
        (in_table("axes = { nic = { value = ['a'], values = ['a'] } }"), f'{T}.axes.nic.value: unknown key\n    -> Did you mean "values"?'),
        (
            in_table("axes = { nic = { values = ['a'], select = 'f' } }"),
            f'{T}.axes.nic.select: "f" has no colon\n    -> write "module:attribute", both dotted names\n    | f\n    |  ^',
        ),
        (in_table("externs = { a = { bitcod = 'x' } }"), f'{T}.externs.a.bitcod: unknown key\n    -> Did you mean "bitcode"?'),
        (
            in_table("externs = { a = { bitcode = 1 } }"),
            f"{T}.externs.a.bitcode: found the integer 1\n    -> write a string or a list of strings",
        ),
        (
            in_table("externs = { a = { bitcode = '{arch' } }"),
            f"{T}.externs.a.bitcode: \"{{arch\": expected '}}' before end of string\n    -> write {{name}}, and literal braces as {{{{ and }}}}",
        ),
        (in_table("externs = { 'a b' = {} }"), f'{T}.externs."a b": "a b" is neither a symbol name nor a glob'),
        (
            in_table("externs = { a = { init = 'm:<lambda>' } }"),
            f'{T}.externs.a.init: "m:<lambda>": "<lambda>" is not a Python name\n    -> write "module:attribute", both dotted names\n    | m:<lambda>\n    |   ^',
        ),
        (
            in_table("externs = { a = { compatible = ['gfx1'] } }"),
            f'{T}.externs.a.compatible: unknown architecture "gfx1"\n    -> Targets that begin so: {BEGIN_WITH_GFX1}.',
        ),
        (in_table("kernels = 1").replace(K, ""), f"{T}.kernels: found the integer 1\n    -> write a table"),
        (ARCHS + "kernels = { 'm:f' = 1 }", f"{WHERE}: found the integer 1\n    -> write a table"),
        (MINIMAL + "arg = {}", f'{WHERE}.arg: unknown key\n    -> Did you mean "args"?'),
        (MINIMAL + "args = 'f32'", f'{WHERE}.args: found the string "f32"\n    -> write a table or a list of tables'),
        (MINIMAL + "args = []", f"{WHERE}.args: found an empty list\n    -> write a table or a list of tables"),
        (MINIMAL + "args = [1]", f"{WHERE}.args[0]: found the integer 1\n    -> write a table"),
        (
            MINIMAL + "args = { A = 1 }",
            f'{WHERE}.args.A: found the integer 1\n    -> write an argument type such as "f32[M, N]", or a table for a struct',
        ),
        (MINIMAL + "args = { p = { 'x y' = 'f32' } }", f'{WHERE}.args.p."x y": not the name of a parameter\n    -> {NAME}'),
        (MINIMAL + "params = { N = [] }", f"{WHERE}.params.N: the list is empty\n    -> write at least one value"),
        (MINIMAL + "params = { N = [1, 2, 1] }", f"{WHERE}.params.N[2]: the integer 1 stands in the list twice"),
        (MINIMAL + "params = { N = [[1], [1]] }", f"{WHERE}.params.N[1]: a value stands in the list twice"),
        (
            MINIMAL + "options = { llvm-options = { help-hidden = true } }",
            f"{WHERE}.options.llvm-options.help-hidden: LLVM prints something for this option and ends the process\n    -> remove it",
        ),
        (MINIMAL + "params = { N = [nan, -nan] }", f"{WHERE}.params.N[1]: the number nan stands in the list twice"),
        (
            MINIMAL + f"params = {{ N = {'[' * 18}{']' * 18} }}",
            f"{WHERE}.params.N{'[0]' * 17}: lists and tables are nested more than 16 deep\n    -> write a flatter value",
        ),
        (
            MINIMAL + f"args = {{ p = {'{ a = ' * 17}'f32'{' }' * 17} }}",
            f"{WHERE}.args.p{'.a' * 16}: lists and tables are nested more than 16 deep\n    -> write a flatter value",
        ),
        (
            MINIMAL + "params = { N = 2020-01-01 }",
            f"{WHERE}.params.N: found a date\n    -> write a string, number, boolean, or a list of these, or a table for a struct",
        ),
        (MINIMAL + "params = { N = [{}] }", f"{WHERE}.params.N[0]: the table is empty\n    -> write the fields of the struct"),
        (MINIMAL + "params = { N = { a = { 'b c' = 1 } } }", f'{WHERE}.params.N.a."b c": not the name of a field\n    -> {NAME}'),
        (
            MINIMAL + """params = { N = { "$enum" = "m:A.B" } }""",
            f'{WHERE}.params.N."$enum": not the name of a field\n    -> give a member of an enum by its name alone, as text',
        ),
        (MINIMAL + "params = { N = [{ a = 1 }, { a = 1 }] }", f"{WHERE}.params.N[1]: a table stands in the list twice"),
        (
            MINIMAL + "params = {}\nlauncher = 'a-b'",
            f'{WHERE}.launcher: "a-b" is not a name\n    -> write the name that the launcher has in the function, such as "launch_gemm"',
        ),
        (MINIMAL + "launcher = 1", f"{WHERE}.launcher: found the integer 1\n    -> write a string"),
        (MINIMAL + "launcher = { run = 1 }", f"{WHERE}.launcher.run: found the integer 1\n    -> write a string"),
        (MINIMAL + """params = { "a b" = 1 }""", f'{WHERE}.params."a b": not the name of a parameter\n    -> {NAME}'),
        (MINIMAL + "constexpr = { class = 1 }", f"{WHERE}.constexpr.class: not the name of a parameter\n    -> {NAME}"),
        (MINIMAL + "axes = ['nic']", f'{WHERE}.axes: unknown axis "nic"\n    -> declare it: [{T}.axes.nic]'),
        (
            MINIMAL + "params = { N = 1 }\nsets = [{ params = { N = 2 } }, { params = { N = 3 }, args = { A = 'f32' } }]",
            f"{WHERE}.params: every set has params of its own, so this is used by none\n    -> remove it, or add a set for it",
        ),
        (MINIMAL + "sets = {}", f"{WHERE}.sets: found a table\n    -> write a list of tables: [[{WHERE}.sets]]"),
        (MINIMAL + "sets = [{ param = {} }]", f'{WHERE}.sets[0].param: unknown key\n    -> Did you mean "params"?'),
        (
            MINIMAL + "sets = [{ archs = ['sm_90'] }]",
            f'{WHERE}.sets[0].archs: "sm_90": NVIDIA targets are not supported; FlyDSL compiles for AMD gfx processors\n    -> {KNOWN}',
        ),
    ],
)
def test_tables(text: str, message: str, tmp_path: Path) -> None:
    assert fault(tmp_path, text) == message


@pytest.mark.parametrize(
    ("key", "what", "position"),
    [
        ("pkg.mod", '"pkg.mod" has no colon\n    -> did you mean "pkg:mod"? write "module:attribute", both dotted names', 3),
        ("mod", '"mod" has no colon\n    -> write "module:attribute", both dotted names', 3),
        ("a.b: c", '"a.b: c" has a blank\n    -> write "module:attribute", both dotted names', 4),
        ("a:b:c", '"a:b:c" has more than one colon\n    -> write "module:attribute", both dotted names', 3),
        (":f", '":f" names no module\n    -> write "module:attribute", both dotted names', 0),
        ("m:", '"m:" names no attribute\n    -> write "module:attribute", both dotted names', 2),
        ("a..b:f", '"a..b:f": there is nothing between two dots\n    -> write "module:attribute", both dotted names', 2),
        ("a-b.c:f", '"a-b.c:f": "a-b" is not a Python name\n    -> write "module:attribute", both dotted names', 0),
        ("a.b:f.1", '"a.b:f.1": "1" is not a Python name\n    -> write "module:attribute", both dotted names', 6),
        ("a.class:f", '"a.class:f": "class" is not a Python name\n    -> write "module:attribute", both dotted names', 2),
    ],
)
def test_kernel_keys(key: str, what: str, position: int, tmp_path: Path) -> None:
    message = fault(tmp_path, f'{ARCHS}[tool.flydsl-build.kernels."{key}"]\n')
    where = f"{T}.kernels.mod" if key == "mod" else f'{T}.kernels."{key}"'
    assert message == f"{where}: {what}\n    | {key}\n    | {' ' * position}^"


def test_two_spellings_of_one_key(tmp_path: Path) -> None:
    message = fault(tmp_path, f'{ARCHS}[tool.flydsl-build.kernels."a.b:c"]\n[tool.flydsl-build.kernels."a.b: c"]\n')
    assert message == (
        f'2 faults:\n  1. {T}.kernels."a.b: c": "a.b: c" has a blank\n    -> write "module:attribute", both dotted names\n'
        f"    | a.b: c\n    |     ^\n"
        f'  2. {T}.kernels."a.b: c": the same kernel as "a.b:c"\n    -> declare it once'
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"arch": "gfx942"}, '-C arch: unknown config setting\n    -> Did you mean "archs"?'),
        ({"flydsl-build.arch": "gfx942"}, '-C flydsl-build.arch: unknown config setting\n    -> Did you mean "archs"?'),
        ({"dump_ir": "x"}, '-C dump_ir: unknown config setting\n    -> Did you mean "dump-ir"?'),
        (
            {"zzz": ""},
            "-C zzz: unknown config setting\n    -> Allowed: archs, cache, cache-dir, cache-size, dump-ir, editable, executor, executor-address, jobs, lld, load, per-arch-tag, remote-cache, remote-cache-write, rocm-path, timeout, verbose, wheel.",
        ),
        ({"archs": ""}, "-C archs: the list of architectures is empty\n    -> write -C archs=gfx942,gfx1100"),
        ({"archs": [" ", ","]}, "-C archs: the list of architectures is empty\n    -> write -C archs=gfx942,gfx1100"),
        ({"archs": 1}, "-C archs: found the integer 1\n    -> write a string"),
        ({"archs": "GFX942"}, '-C archs: "GFX942" is not an architecture name: these are lower case\n    -> write "gfx942"'),
        (
            {"archs": "RX 7900 XTX"},
            '-C archs: "RX 7900 XTX" is the name of a product, whose architecture is gfx1100\n    -> write "gfx1100"',
        ),
        ({"archs": ["GFX 942"]}, '-C archs: "GFX 942" is not an architecture name: it has blanks\n    -> write "gfx942"'),
        (
            {"archs": "gfx1100 AMD Instinct MI300A, gfx950\tGFX942;gfx90a"},
            (
                '2 faults:\n  1. -C archs: "AMD Instinct MI300A" is the name of a product, whose architecture is gfx942\n    -> write "gfx942"\n'
                '  2. -C archs: "GFX942" is not an architecture name: these are lower case\n    -> write "gfx942"'
            ),
        ),
        (
            {"archs": "gfx942", "flydsl-build.archs": "gfx942"},
            "-C flydsl-build.archs: the same setting is given by -C archs\n    -> give it once",
        ),
        ({"jobs": ["1", "2"]}, '-C jobs: given 2 times with different values: "1", "2"\n    -> give it once'),
        ({"jobs": "0"}, '-C jobs: found "0"\n    -> write an integer of at least 1'),
        ({"jobs": "many"}, '-C jobs: found "many"\n    -> write an integer of at least 1'),
        ({"timeout": "-1"}, f'-C timeout: found "-1"\n    -> write {SECONDS}'),
        ({"timeout": "x"}, f'-C timeout: found "x"\n    -> write {SECONDS}'),
        ({"timeout": "nan"}, f'-C timeout: found "nan"\n    -> write {SECONDS}'),
        ({"timeout": "1e300"}, f'-C timeout: found "1e300"\n    -> write {SECONDS}'),
        (
            {"remote-cache": "me:secret@host"},
            (
                "-C remote-cache: found no URL that names can be added to\n"
                '    -> write one without ?, # and globs, such as "s3://bucket/prefix"'
            ),
        ),
        ({"remote-cache": ["s3://a", "s3://b"]}, "-C remote-cache: given 2 times with different values\n    -> give it once"),
        ({"executor": "ray"}, '-C executor: found "ray"\n    -> write "local" or "dask"'),
        ({"load": "eager"}, '-C load: found "eager"\n    -> write "import" or "lazy"'),
        ({"wheel": "thin"}, '-C wheel: found "thin"\n    -> write "fat" or "per-arch" or "host" or "device" or "variant"'),
        ({"per-arch-tag": "name"}, '-C per-arch-tag: found "name"\n    -> write "local-version" or "build-tag"'),
        (
            {"wheel": "per-arch", "archs": "gfx942,gfx1100"},
            '-C wheel: a "per-arch" wheel is for one target, and the kernels are built for gfx942, gfx1100\n    -> pass -C archs=gfx942, and build once for each target',
        ),
        ({"verbose": "2"}, '-C verbose: found "2"\n    -> write true or false'),
        ({"lld": ""}, '-C lld: found ""\n    -> write a path'),
        (
            {"cache-size": "5 bananas"},
            '-C cache-size: found "5 bananas"\n    -> write a number of bytes above 0, or text such as "500 MB" or "5 GB"',
        ),
        ({"cache-size": "0"}, '-C cache-size: found "0"\n    -> write a number of bytes above 0, or text such as "500 MB" or "5 GB"'),
    ],
)
def test_config_settings(given: dict[str, object], message: str, tmp_path: Path) -> None:
    assert fault(tmp_path, MINIMAL, given) == message


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (
            {"FLYDSL_BUILD_ARCHS": "sm_90"},
            f'FLYDSL_BUILD_ARCHS: "sm_90": NVIDIA targets are not supported; FlyDSL compiles for AMD gfx processors\n    -> {KNOWN}',
        ),
        (
            {"FLYDSL_BUILD_ARCHS": ","},
            "FLYDSL_BUILD_ARCHS: the list of architectures is empty\n    -> write FLYDSL_BUILD_ARCHS=gfx942,gfx1100",
        ),
        ({"FLYDSL_BUILD_ARCH": "gfx942"}, 'FLYDSL_BUILD_ARCH: unknown environment variable\n    -> Did you mean "FLYDSL_BUILD_ARCHS"?'),
        ({"FLYDSL_BUILD_JOBS": "-2"}, 'FLYDSL_BUILD_JOBS: found "-2"\n    -> write an integer of at least 1'),
        ({"FLYDSL_BUILD_VERBOSE": "maybe"}, 'FLYDSL_BUILD_VERBOSE: found "maybe"\n    -> write true or false'),
    ],
)
def test_environment(environ: dict[str, str], message: str, tmp_path: Path) -> None:
    assert fault(tmp_path, MINIMAL, None, environ) == message


def test_an_arch_that_no_kernel_is_for(tmp_path: Path) -> None:
    text = K + 'archs = ["gfx942"]\n[tool.flydsl-build.kernels."m:g"]\narchs = ["gfx950", "gfx942"]\n'
    assert fault(tmp_path, text, {"archs": "gfx942,gfx1201"}) == (
        "-C archs: no kernel is declared for gfx1201; every kernel has its own list of archs\n    -> declared: gfx942, gfx950"
    )
    assert fault(tmp_path, text, None, {"FLYDSL_BUILD_ARCHS": "gfx1201,gfx90a"}) == (
        "FLYDSL_BUILD_ARCHS: no kernel is declared for gfx1201, gfx90a; every kernel has its own list of archs\n"
        "    -> declared: gfx942, gfx950"
    )


def test_many_kernels_without_archs(tmp_path: Path) -> None:
    text = "".join(f'[tool.flydsl-build.kernels."m:f{n}"]\n' for n in range(5)) + 'archs = ["gfx942"]\n'
    assert fault(tmp_path, text).splitlines()[0] == f"{T}.archs: no architectures are given to build for: m:f0, m:f1, m:f2 and 1 more"


def test_faults_come_together(tmp_path: Path) -> None:
    message = fault(
        tmp_path,
        f'[{T}]\narchs = ["gfx9999"]\njobs = 0\nlod = "lazy"\n{K}args = {{ A = 1 }}\n',
        {"verbos": "1"},
        {"FLYDSL_BUILD_TIMEOUT": "x"},
    )
    assert [line for line in message.splitlines() if not line.startswith("    ")] == [
        "6 faults:",
        '  1. FLYDSL_BUILD_TIMEOUT: found "x"',
        "  2. -C verbos: unknown config setting",
        f"  3. {T}.lod: unknown key",
        f'  4. {T}.archs: unknown architecture "gfx9999"',
        f"  5. {T}.jobs: found the integer 0",
        f"  6. {WHERE}.args.A: found the integer 1",
    ]


@pytest.mark.parametrize(
    ("declarations", "message"),
    [
        (None, f"{T}.kernels-from: d:kernels gave None\n    -> return a dict, or yield (key, table) pairs"),
        ("m:f", f'{T}.kernels-from: d:kernels gave the string "m:f"\n    -> return a dict, or yield (key, table) pairs'),
        ([1], 'd:kernels[0]: found the integer 1\n    -> yield a pair ("module:attribute", table)'),
        ([("m:g", 1)], 'd:kernels[0] "m:g": found the integer 1\n    -> write a table'),
        ([("m:g", {"arg": {}})], 'd:kernels[0] "m:g".arg: unknown key\n    -> Did you mean "args"?'),
        (
            [("m:g", {"args": {"A": None}})],
            'd:kernels[0] "m:g".args.A: found None\n    -> write an argument type such as "f32[M, N]", or a table for a struct',
        ),
        ([("m", {})], 'd:kernels[0] m: "m" has no colon\n    -> write "module:attribute", both dotted names\n    | m\n    |  ^'),
        (
            [("m:f", {})],
            f'd:kernels[0] "m:f": m:f is declared already at {WHERE}\n    -> several parameter sets of one kernel go into its `sets`',
        ),
        ([("m:g", {"params": {"N": [MEMBER, 1, MEMBER]}})], 'd:kernels[0] "m:g".params.N[2]: Mode.TWO stands in the list twice'),
        (
            [("m:g", {"args": {"N": MEMBER}})],
            'd:kernels[0] "m:g".args.N: found Mode.TWO\n    -> write an argument type such as "f32[M, N]", or a table for a struct',
        ),
    ],
)
def test_declarations_in_python(declarations: object, message: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(in_table('kernels-from = "d:kernels"'), encoding="utf-8")
    settings = read_settings(tmp_path, None, {})
    with pytest.raises(ConfigError) as caught:
        extend_with_declarations(settings, declarations)
    assert str(caught.value) == message


def test_faulty_declarations_are_not_missing(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(f'[{T}]\nkernels-from = "d:kernels"\n', encoding="utf-8")
    settings = read_settings(tmp_path, None, {})
    with pytest.raises(ConfigError) as caught:
        extend_with_declarations(settings, [1])
    assert str(caught.value) == 'd:kernels[0]: found the integer 1\n    -> yield a pair ("module:attribute", table)'
    assert fault(tmp_path, f'[{T}]\nkernels-from = "d:k:s"\n').startswith(f'{T}.kernels-from: "d:k:s" has more than one colon\n')


def test_no_kernels_from_python_either(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(f'[{T}]\nkernels-from = "d:kernels"\n', encoding="utf-8")
    settings = read_settings(tmp_path, None, {})
    with pytest.raises(ConfigError) as caught:
        extend_with_declarations(settings, {})
    assert str(caught.value).startswith(f"{T}.kernels: no kernels are declared\n")
    with pytest.raises(ConfigError) as caught:
        extend_with_declarations(settings, {"m:f": {}})
    assert str(caught.value).startswith(f"{T}.archs: no architectures are given to build for: m:f\n")


@pytest.mark.parametrize("path", ["../LICENSE", "/usr/share/LICENSE", "lib\\\\LICENSE"])
def test_licence_files_outside_of_the_project(path: str, tmp_path: Path) -> None:
    text = f'{MINIMAL}[{T}.externs.f]\nlicense-files = ["LICENSE", "{path}"]\n'
    shown = path.replace("\\\\", "\\")
    assert fault(tmp_path, text) == (
        f'{T}.externs.f.license-files[1]: "{shown}" is not a path inside the project\n    -> write a glob relative to the project, '
        "with forward slashes; a licence from elsewhere has to be copied into the project"
    )


def test_a_wheel_for_one_target_in_the_table(tmp_path: Path) -> None:
    text = MINIMAL.replace("archs = ", 'wheel = "device"\narchs = ').replace('["gfx942"]', '["gfx950", "gfx942"]')
    assert fault(tmp_path, text) == (
        f'{T}.wheel: a "device" wheel is for one target, and the kernels are built for gfx950, gfx942\n'
        "    -> pass -C archs=gfx950, and build once for each target"
    )


def test_a_wheel_for_one_target_without_kernels(tmp_path: Path) -> None:
    text = '[tool.flydsl-build]\nallow-empty = true\nwheel = "variant"\n'
    what = f'{T}.wheel: a "variant" wheel is for one target, and no kernels are declared\n    -> leave `wheel` at its default'
    assert fault(tmp_path, text) == what
