# SPDX-License-Identifier: Apache-2.0
"""Settings that are right: what each key means, and which source wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from flydsl_build.config import (
    AxisTable,
    CompileOptions,
    ExternTable,
    KernelTable,
    ParameterSet,
    Settings,
    base_settings,
    extend_with_declarations,
    read_settings,
)

MINIMAL = '[tool.flydsl-build]\narchs = ["gfx942", "gfx1100"]\n[tool.flydsl-build.kernels."m:f"]\n'
KERNEL = KernelTable(key="m:f", module="m", attribute="f", where='tool.flydsl-build.kernels."m:f"')


def read(folder: Path, text: str, config_settings: dict[str, object] | None = None, environ: dict[str, str] | None = None) -> Settings:
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")
    return read_settings(folder, config_settings, environ or {})


def test_defaults(tmp_path: Path) -> None:
    assert read(tmp_path, MINIMAL) == Settings(
        project_dir=tmp_path, archs=("gfx942", "gfx1100"), archs_from="tool.flydsl-build.archs", kernels=(KERNEL,)
    )


def test_everything(tmp_path: Path) -> None:
    settings = read(
        tmp_path,
        """
        [tool.flydsl-build]
        archs = ["gfx942", "gfx942", "gfx9-4-generic"]
        load = "lazy"
        timeout = 60
        jobs = 3
        lld = "tools/ld.lld"
        rocm-path = "/opt/rocm"
        verbose = true
        dump-ir = "ir"
        wheel = "host"
        per-arch-tag = "build-tag"
        cache = false
        cache-dir = "kept"
        cache-size = "1.5 MB"
        remote-cache = "s3://key:secret@bucket/prefix"
        remote-cache-write = true
        executor = "local"
        executor-address = "tcp://10.0.0.1:8786"
        allow-empty = true
        kernels-from = "pkg.declarations:kernels"
        [tool.flydsl-build.options]
        opt-level = 2
        fast-fp-math = true
        unsafe-fp-math = false
        waves-per-eu = [1, 2]
        debug-lines = true
        llvm-options = { amdgpu-early-inline-all = true, inline-threshold = 5, name = "x" }
        gfx942 = { waves-per-eu = 4 }
        [tool.flydsl-build.env]
        MORI_SHMEM_BC = "lib/libshmem_{arch}_{nic}.bc"
        [tool.flydsl-build.axes.nic]
        values = ["mlx5", "bnxt"]
        select = "pkg.device:detect_nic"
        [tool.flydsl-build.externs."mori_shmem_*"]
        bitcode = "lib/libshmem_{arch}_{nic}.bc"
        globals = ["_ZN1gE"]
        init = "pkg.device:State.init"
        compatible = ["gfx950"]
        license-files = ["lib/LICENSE.mori", "lib/licenses/*"]
        [tool.flydsl-build.externs.other]
        bitcode = ["a.bc", "pkg.bitcode:find"]
        [tool.flydsl-build.kernels."pkg.mod:build"]
        params = [{ N = [1, 2], t = "f32" }, { N = 4, t = "bf16" }]
        constexpr = { tile = [[16, 16], [32, 8]], flag = true, x = 1.5 }
        args = { A = "{t}[M, N]", p = { q = "ptr<f32>" } }
        archs = ["gfx942"]
        axes = ["nic"]
        options = { waves-per-eu = 2 }
        [[tool.flydsl-build.kernels."pkg.mod:build".sets]]
        params = { N = 8 }
        constexpr = { flag = false }
        args = [{ A = "f16[M]" }, { A = "f32[M]" }]
        archs = ["gfx950"]
        options = { opt-level = 1 }
        [[tool.flydsl-build.kernels."pkg.mod:build".sets]]
        """,
    )
    where = 'tool.flydsl-build.kernels."pkg.mod:build"'
    assert settings == Settings(
        project_dir=tmp_path,
        archs=("gfx942", "gfx9-4-generic"),
        archs_from="tool.flydsl-build.archs",
        load="lazy",
        timeout=60.0,
        jobs=3,
        lld=tmp_path / "tools/ld.lld",
        rocm_path=Path("/opt/rocm"),
        verbose=True,
        dump_ir=tmp_path / "ir",
        wheel="host",
        wheel_from="tool.flydsl-build.wheel",
        per_arch_tag="build-tag",
        cache=False,
        cache_dir=tmp_path / "kept",
        cache_size=1_500_000,
        remote_cache="s3://key:secret@bucket/prefix",
        remote_cache_write=True,
        executor="local",
        executor_address="tcp://10.0.0.1:8786",
        allow_empty=True,
        kernels_from="pkg.declarations:kernels",
        options=CompileOptions(
            opt_level=2,
            fast_fp_math=True,
            unsafe_fp_math=False,
            waves_per_eu=(1, 2),
            debug_lines=True,
            llvm_options=(("amdgpu-early-inline-all", True), ("inline-threshold", 5), ("name", "x")),
            targets=(("gfx942", CompileOptions(waves_per_eu=4)),),
        ),
        env={"MORI_SHMEM_BC": "lib/libshmem_{arch}_{nic}.bc"},
        axes=(AxisTable(name="nic", where="tool.flydsl-build.axes.nic", values=("mlx5", "bnxt"), select="pkg.device:detect_nic"),),
        externs=(
            ExternTable(
                symbol="mori_shmem_*",
                where='tool.flydsl-build.externs."mori_shmem_*"',
                bitcode=("lib/libshmem_{arch}_{nic}.bc",),
                globals=("_ZN1gE",),
                init="pkg.device:State.init",
                compatible=("gfx950",),
                license_files=("lib/LICENSE.mori", "lib/licenses/*"),
            ),
            ExternTable(symbol="other", where="tool.flydsl-build.externs.other", bitcode=("a.bc", "pkg.bitcode:find")),
        ),
        kernels=(
            KernelTable(
                key="pkg.mod:build",
                module="pkg.mod",
                attribute="build",
                where=where,
                params=({"N": (1, 2), "t": ("f32",)}, {"N": (4,), "t": ("bf16",)}),
                constexpr=({"tile": ((16, 16), (32, 8)), "flag": (True,), "x": (1.5,)},),
                args=({"A": "{t}[M, N]", "p": {"q": "ptr<f32>"}},),
                archs=("gfx942",),
                axes=("nic",),
                options=CompileOptions(waves_per_eu=2),
                sets=(
                    ParameterSet(
                        where=f"{where}.sets[0]",
                        params=({"N": (8,)},),
                        constexpr=({"flag": (False,)},),
                        args=({"A": "f16[M]"}, {"A": "f32[M]"}),
                        archs=("gfx950",),
                        options=CompileOptions(opt_level=1),
                    ),
                    ParameterSet(where=f"{where}.sets[1]"),
                ),
            ),
        ),
    )
    assert [ExternTable.is_function(text) for text in settings.externs[1].bitcode] == [False, True]


@pytest.mark.parametrize(
    ("config_settings", "environ", "archs", "source"),
    [
        (None, {"FLYDSL_BUILD_ARCHS": "gfx950;gfx1201"}, ("gfx950", "gfx1201"), "FLYDSL_BUILD_ARCHS"),
        (None, {"FLYDSL_BUILD_ARCHS": " "}, ("gfx942", "gfx1100"), "tool.flydsl-build.archs"),
        ({"archs": "gfx90a"}, {"FLYDSL_BUILD_ARCHS": "gfx950"}, ("gfx90a",), "-C archs"),
        ({"archs": "gfx90a, gfx950;gfx90a gfx942"}, {}, ("gfx90a", "gfx950", "gfx942"), "-C archs"),
        ({"archs": ["gfx90a", "gfx950,gfx90a"]}, {}, ("gfx90a", "gfx950"), "-C archs"),
        ({"flydsl-build.archs": "gfx90a"}, {}, ("gfx90a",), "-C flydsl-build.archs"),
    ],
)
def test_who_wins(
    config_settings: dict[str, object] | None, environ: dict[str, str], archs: tuple[str, ...], source: str, tmp_path: Path
) -> None:
    settings = read(tmp_path, MINIMAL, config_settings, environ)
    assert (settings.archs, settings.archs_from) == (archs, source)
    assert settings.archs_override == (source != "tool.flydsl-build.archs")


def test_all_overrides(tmp_path: Path) -> None:
    table = MINIMAL.replace("archs", 'jobs = 1\ntimeout = 1\nload = "import"\nverbose = false\narchs')
    environ = {
        "FLYDSL_BUILD_JOBS": "4",
        "FLYDSL_BUILD_TIMEOUT": "2.5",
        "FLYDSL_BUILD_LLD": "/usr/bin/ld.lld",
        "FLYDSL_BUILD_ROCM_PATH": "/rocm",
        "FLYDSL_BUILD_VERBOSE": "Yes",
        "FLYDSL_BUILD_DUMP_IR": "/tmp/ir",
        "FLYDSL_BUILD_REMOTE_CACHE": "file:///mnt/cache",
        "FLYDSL_BUILD_REMOTE_CACHE_WRITE": "1",
        "FLYDSL_BUILD_EXECUTOR": "dask",
        "FLYDSL_BUILD_EXECUTOR_ADDRESS": "tcp://a:1",
        "FLYDSL_BUILD_LOAD": "lazy",
        "FLYDSL_BUILD_AXIS_NIC": "mlx5",
    }
    by_env = read(tmp_path, table, None, {name: text for name, text in environ.items() if name != "FLYDSL_BUILD_DUMP_IR"})
    assert (by_env.remote_cache, by_env.remote_cache_write) == ("file:///mnt/cache", True)
    assert (by_env.executor, by_env.executor_address) == ("dask", "tcp://a:1")
    environ["FLYDSL_BUILD_EXECUTOR"] = "local"
    by_env = read(tmp_path, table, None, environ)
    assert (by_env.jobs, by_env.timeout, by_env.verbose, by_env.load) == (4, 2.5, True, "import")
    assert (by_env.lld, by_env.rocm_path, by_env.dump_ir) == (Path("/usr/bin/ld.lld"), Path("/rocm"), Path("/tmp/ir"))
    config: dict[str, object] = {
        "jobs": "5",
        "timeout": ["7", "7"],
        "load": "lazy",
        "verbose": "off",
        "dump-ir": "ir",
        "remote-cache": "memory://x",
        "remote-cache-write": "no",
        "executor-address": "tcp://b:1",
        "lld": "l",
        "rocm-path": "r",
    }
    by_config = read(tmp_path, table, config, environ)
    assert (by_config.remote_cache, by_config.remote_cache_write) == ("memory://x", False)
    assert by_config.executor_address == "tcp://b:1"
    assert (by_config.jobs, by_config.timeout, by_config.verbose, by_config.load) == (5, 7.0, False, "lazy")
    assert (by_config.lld, by_config.rocm_path, by_config.dump_ir) == (tmp_path / "l", tmp_path / "r", tmp_path / "ir")
    assert read(tmp_path, table, {"verbose": ""}).verbose
    assert read(tmp_path, table, {"verbose": True}).verbose


def test_settings_of_setuptools_pass(tmp_path: Path) -> None:
    theirs: dict[str, object] = {"--global-option": ["a"], "--build-option": "b", "editable_mode": "strict", "--quiet": ""}
    given: dict[str, object] = {**theirs, "archs": "gfx942"}
    assert read(tmp_path, MINIMAL, given).archs == ("gfx942",)
    assert base_settings(given) == theirs
    assert base_settings(None) == {}


def test_targets_of_kernels(tmp_path: Path) -> None:
    text = MINIMAL + '[tool.flydsl-build.kernels."m:g"]\narchs = ["gfx950", "gfx942"]\n'
    plain = read(tmp_path, text)
    assert [plain.targets_for(kernel) for kernel in plain.kernels] == [("gfx942", "gfx1100"), ("gfx950", "gfx942")]
    assert plain.skipped == ()
    narrow = read(tmp_path, text, {"archs": "gfx942,gfx1201"})
    assert [narrow.targets_for(kernel) for kernel in narrow.kernels] == [("gfx942", "gfx1201"), ("gfx942",)]
    other = read(tmp_path, text, {"archs": "gfx1201"})
    assert other.skipped == ("m:g",)


def test_front_ends_are_those_of_the_declared_kernels(tmp_path: Path) -> None:
    table = '[tool.flydsl-build]\narchs = ["gfx942"]\n'
    assert read(tmp_path, MINIMAL).frontends == ("flydsl",)
    assert read(tmp_path, f'{table}kernels-from = "m:f"\n').frontends == ("flydsl",)
    assert read(tmp_path, f"{table}allow-empty = true\n").frontends == ()


def test_archs_of_every_kernel_are_enough(tmp_path: Path) -> None:
    settings = read(tmp_path, '[tool.flydsl-build.kernels."m:f"]\narchs = ["gfx942"]\n')
    assert settings.archs == ()
    assert settings.targets_for(settings.kernels[0]) == ("gfx942",)


def test_an_sdist_needs_no_archs(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.flydsl-build.kernels."m:f"]\n', encoding="utf-8")
    assert read_settings(tmp_path, None, {}, need_archs=False).archs == ()


def test_no_kernels_if_allowed(tmp_path: Path) -> None:
    assert read(tmp_path, "[tool.flydsl-build]\nallow-empty = true\n").kernels == ()


def test_declarations_in_python(tmp_path: Path) -> None:
    settings = read(tmp_path, MINIMAL.replace("archs", 'kernels-from = "d:kernels"\narchs'))
    table = {"params": {"N": (1, 2), "tile": [(8, 8)]}, "args": {"A": "f32[M]"}}
    extended = extend_with_declarations(settings, {"m:g": table})
    assert extended == extend_with_declarations(settings, iter([("m:g", table)]))
    assert extended.kernels == (
        KERNEL,
        KernelTable(
            key="m:g",
            module="m",
            attribute="g",
            where='d:kernels[0] "m:g"',
            params=({"N": (1, 2), "tile": ((8, 8),)},),
            args=({"A": "f32[M]"},),
        ),
    )


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("5 GB", 5 * 10**9), ("5gb", 5 * 10**9), ("2 GiB", 2 << 30), ("1.5M", 1_500_000), ("10 B", 10), ("3 TB", 3 * 10**12)],
)
def test_cache_size(text: str, size: int, tmp_path: Path) -> None:
    assert read(tmp_path, MINIMAL, {"cache-size": text}).cache_size == size
    assert read(tmp_path, MINIMAL, environ={"FLYDSL_BUILD_CACHE_SIZE": text}).cache_size == size


def test_the_cache_is_on_unless_it_is_turned_off(tmp_path: Path) -> None:
    assert read(tmp_path, MINIMAL).cache
    assert not read(tmp_path, MINIMAL, environ={"FLYDSL_BUILD_CACHE": "0"}).cache
    assert read(tmp_path, MINIMAL, {"cache": ""}, {"FLYDSL_BUILD_CACHE": "0"}).cache


def test_paths_in_a_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "pyproject.toml").write_text(
        '[tool.flydsl-build]\narchs = ["gfx942"]\nlld = "~no-such-user/lld"\n[tool.flydsl-build.kernels."m:f"]\n'
    )
    settings = read_settings(tmp_path, {"cache-dir": "~/kept"}, {})
    assert (settings.cache_dir, settings.lld) == (tmp_path / "home/kept", tmp_path / "~no-such-user/lld")
