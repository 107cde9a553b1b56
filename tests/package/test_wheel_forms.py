# SPDX-License-Identifier: Apache-2.0
"""Host and device wheels, wheels for one target, wheel variants: what is in them, what pip makes of them, what they do."""

from __future__ import annotations

import csv
import email
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING, Any

import pytest
from building import PACKAGES, build_environment, call_hook, copy_project, members, run_script, unpack
from environment import make_venv

if TYPE_CHECKING:
    from pathlib import Path

HOST = "second_kernels-0.3-cp311-abi3-manylinux_2_17_x86_64.whl"
DEVICES = {target: f"second_kernels_device_{target}-0.3-py3-none-any.whl" for target in ("gfx1100", "gfx942")}
ANCHOR = "space/_flydsl_halve"

LOAD = """
try:
    import space.halve
except Exception as error:
    print(json.dumps([type(error).__name__, str(error)]))
else:
    handle = space.halve.__flydsl__
    print(json.dumps([handle.is_loaded(), handle.capability().chosen]))
"""


def fields(wheel: Path, file: str) -> dict[str, list[str]]:
    """Return a header file of a wheel."""
    (data,) = [data for name, data in members(wheel).items() if name.endswith(f".dist-info/{file}")]
    message = email.message_from_bytes(data)
    return {name: message.get_all(name) or [] for name in message}


def built(project: Path, folder: Path, **config: str) -> Path:
    folder.mkdir(exist_ok=True)
    return folder / call_hook(project, "build_wheel", folder, {name.replace("_", "-"): value for name, value in config.items()}).value


def refused(project: Path, folder: Path, hook: str = "build_wheel", **config: str) -> str:
    answer = call_hook(project, hook, folder, {name.replace("_", "-"): value for name, value in config.items()}, ok=False)
    assert answer.status == 1
    assert "Traceback" not in answer.output
    return answer.output


def build_split(project: Path, folder: Path, *config: str) -> str:
    """Write host and device wheels of a project; return what the command said."""
    environ = build_environment(project.parent)
    command = [sys.executable, "-m", "flydsl_build", "build", project, "-o", folder, "--split", *config]
    done = subprocess.run(command, cwd=project.parent, env=environ, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def command(*words: str | Path) -> str:
    """Run a command of flydsl-build; return what it printed, or what it complained of."""
    done = subprocess.run([sys.executable, "-P", "-m", "flydsl_build", *words], capture_output=True, text=True, check=False)
    return done.stdout or done.stderr


def verify(*wheels: Path) -> str:
    return command("verify", *wheels)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of `tests/packages/second`."""
    return copy_project(PACKAGES / "second", tmp_path_factory.mktemp("forms") / "second")


@pytest.fixture(scope="module")
def split(project: Path) -> Path:
    """A folder with the host wheel and its device wheels, from one build."""
    folder = project.parent / "dist"
    said = build_split(project, folder)
    wrote = [line for line in said.splitlines() if line.startswith("flydsl-build: wrote ")]
    assert wrote == [f"flydsl-build: wrote {folder / name}" for name in (HOST, *DEVICES.values())]
    assert "2 jobs: 0 from the cache, 2 compiled" in said
    return folder


@pytest.fixture(scope="module")
def python(split: Path) -> Path:
    """A virtual environment of its own."""
    return make_venv(split.parent / "venv")


def pip(python: Path, *words: str | Path) -> None:
    command = [python, "-m", "pip", "--disable-pip-version-check", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def install(python: Path, wheels: Path, requirement: str) -> None:
    pip(python, "uninstall", "-q", "-y", "second-kernels", *(f"second-kernels-device-{target}" for target in DEVICES))
    pip(python, "install", "-q", "--no-index", "--find-links", wheels, requirement)


# --- split wheels: the files ----------------------------------------------------------------------------------------------


def test_no_file_is_in_two_wheels(split: Path, second_wheel: Path) -> None:
    assert sorted(path.name for path in split.iterdir()) == sorted([HOST, *DEVICES.values()])
    content = {path.name: list(members(path)) for path in split.iterdir()}
    fat = [name for name in members(second_wheel) if not name.endswith(".hipfb")]
    assert content[HOST] == fat
    for target, name in DEVICES.items():
        info = f"second_kernels_device_{target}-0.3.dist-info"
        assert content[name] == [
            f"{ANCHOR}/halve.{target}.hipfb",
            *(f"{info}/{file}" for file in ("METADATA", "WHEEL", "sboms/flydsl-build.cdx.json", "RECORD")),
        ]


def test_metadata(split: Path) -> None:
    version = fields(split / HOST, "METADATA")["Metadata-Version"]
    assert fields(split / HOST, "METADATA") == {
        "Metadata-Version": version,
        "Name": ["second-kernels"],
        "Version": ["0.3"],
        "Provides-Extra": ["device-gfx1100", "device-gfx942", "device-all"],
        "Requires-Dist": [
            'second-kernels-device-gfx1100==0.3; extra == "device-gfx1100"',
            'second-kernels-device-gfx942==0.3; extra == "device-gfx942"',
            'second-kernels-device-gfx1100==0.3; extra == "device-all"',
            'second-kernels-device-gfx942==0.3; extra == "device-all"',
        ],
    }
    device = split / DEVICES["gfx942"]
    assert fields(device, "METADATA") == {
        "Metadata-Version": version,
        "Name": ["second-kernels-device-gfx942"],
        "Version": ["0.3"],
        "Summary": ["Code objects of second-kernels for gfx942"],
        "Requires-Dist": ["second-kernels==0.3"],
    }
    # Beside the files of the host wheel, whatever the folders are.
    assert fields(device, "WHEEL")["Root-Is-Purelib"] == fields(split / HOST, "WHEEL")["Root-Is-Purelib"] == ["false"]
    assert fields(device, "WHEEL")["Tag"] == ["py3-none-any"]
    for wheel in split.iterdir():
        ((record, data),) = [(name, data) for name, data in members(wheel).items() if name.endswith(".dist-info/RECORD")]
        rows = list(csv.reader(io.StringIO(data.decode())))
        assert [row[0] for row in rows] == list(members(wheel))
        assert [row[0] for row in rows if not row[1]] == [record]


def test_one_wheel_a_build_gives_the_same_bytes(project: Path, split: Path, tmp_path: Path) -> None:
    assert built(project, tmp_path / "dist", wheel="host").read_bytes() == (split / HOST).read_bytes()
    for target, name in DEVICES.items():
        one = built(project, tmp_path / "dist", wheel="device", archs=target)
        assert one.name == name
        assert members(one) == members(split / name)  # says what differs
        assert one.read_bytes() == (split / name).read_bytes()


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ({"wheel": "host"}, "second_kernels-0.3.dist-info"),
        ({"wheel": "device", "archs": "gfx942"}, "second_kernels_device_gfx942-0.3.dist-info"),
    ],
)
def test_prepared_metadata_is_that_of_the_wheel(config: dict[str, str], name: str, project: Path, split: Path, tmp_path: Path) -> None:
    assert call_hook(project, "prepare_metadata_for_build_wheel", tmp_path, config).value == name
    wheel = members(split / (HOST if config["wheel"] == "host" else DEVICES["gfx942"]))
    assert (tmp_path / name / "METADATA").read_bytes() == wheel[f"{name}/METADATA"]
    assert {path.name for path in (tmp_path / name).iterdir()} - {"top_level.txt"} == {"METADATA"}


def test_an_extra_brings_the_generic_target_that_some_module_has_alone(tmp_path: Path) -> None:
    project = copy_project(PACKAGES / "second", tmp_path / "project")
    path = project / "pyproject.toml"
    other = '[tool.flydsl-build.kernels."space.other:halve"]\nargs = { X = "f32[L]" }\n'
    own = '["gfx942", "gfx950", "gfx9-4-generic"]'
    path.write_text(
        path.read_text().replace('"gfx1100"]', '"gfx950", "gfx1100"]')
        + 'archs = ["gfx942", "gfx1100"]\n'
        + f'{other}archs = ["gfx9-4-generic"]\n'
        + other.replace("other", "third")
        + f"archs = {own}\n"
    )
    name = call_hook(project, "prepare_metadata_for_build_wheel", tmp_path, {"wheel": "host"}).value
    message = email.message_from_bytes((tmp_path / name / "METADATA").read_bytes())
    wanted: dict[str, list[str]] = {}
    for requirement in message.get_all("Requires-Dist") or []:
        device, _, extra = requirement.partition('==0.3; extra == "device-')
        wanted.setdefault(extra.rstrip('"'), []).append(device.removeprefix("second-kernels-device-"))
    assert wanted == {
        "gfx1100": ["gfx1100"],
        "gfx9-4-generic": ["gfx9-4-generic"],
        "gfx942": ["gfx942", "gfx9-4-generic"],
        "gfx950": ["gfx950", "gfx9-4-generic"],
        "all": ["gfx1100", "gfx9-4-generic", "gfx942", "gfx950"],
    }
    # Where every module has the chip's own code, its extra brings that alone.
    path.write_text(path.read_text().replace('archs = ["gfx9-4-generic"]', f"archs = {own}"))
    (tmp_path / "more").mkdir()
    name = call_hook(project, "prepare_metadata_for_build_wheel", tmp_path / "more", {"wheel": "host", "archs": "gfx942,gfx9-4-generic"})
    text = (tmp_path / "more" / name.value / "METADATA").read_text()
    assert text.count('extra == "device-gfx942"') == 1


def test_verify(split: Path, second_wheel: Path, tiny_wheel: Path, tmp_path: Path) -> None:
    host, device = split / HOST, split / DEVICES["gfx942"]
    assert verify(host) == f"{host}: 1 modules, 1 specializations, 0 of 2 code objects: no fault found\n"
    assert verify(host, device) == f"{host}: 1 modules, 1 specializations, 1 of 2 code objects: no fault found\n"
    assert verify(device) == f"{device}: 1 bundles of a device wheel: no fault found\n"
    assert verify(second_wheel, device).startswith(
        f"flydsl-build: {ANCHOR}/halve.gfx942.hipfb: belongs to no manifest\n    -> remove it, or build the package again\n"
    )
    # Whatever the order is, and whatever else is given; a device wheel goes to the host wheel that it is for.
    both = f"{host}: 1 modules, 1 specializations, 1 of 2 code objects: no fault found\n"
    assert verify(device, host) == both
    assert verify(device, tiny_wheel) == (
        f"{tiny_wheel}: 1 modules, 1 specializations, 1 code objects: no fault found\n{device}: 1 bundles of a device wheel: no fault found\n"
    )
    assert verify(second_wheel, device, host) == (f"{second_wheel}: 1 modules, 1 specializations, 2 code objects: no fault found\n{both}")
    again = shutil.copy(device, tmp_path / "again.whl")
    assert verify(host, device, again) == (
        f"flydsl-build: again.whl: has code objects of {device.name}, and only one of the two can be installed\n    -> give one of them\n"
    )


def test_inspect(split: Path) -> None:
    host, device = split / HOST, split / DEVICES["gfx942"]
    lines = [line.strip() for line in command("inspect", host).splitlines()]
    assert [line.partition(",")[0] for line in lines if line.startswith("file ")] == [
        f"file       {ANCHOR}/halve.json",
        f"file       {ANCHOR}/halve.launchers.elf",
    ]
    (where,) = [line for line in lines if line.startswith("gfx942 ")]
    assert "bytes in the wheel of second-kernels-device-gfx942, SHA-256 " in where
    (module,) = json.loads(command("inspect", "--json", host))["modules"]
    assert ["elf" in one for unit in module["units"] for one in unit["code_objects"].values()] == [False, False]
    assert command("inspect", host, "--isa", "halve_kernel_0", "--arch", "gfx942") == (
        f"flydsl-build: {ANCHOR}/halve.gfx942.hipfb: is not here: the code for gfx942 is in the wheel of second-kernels-device-gfx942\n"
        "    -> give a folder in which both are installed\n"
    )
    assert command("inspect", device) == (
        f"flydsl-build: {device}: has the code objects of a device wheel alone; what describes them is in the host wheel\n"
        "    -> give the host wheel, or a folder in which both are installed\n"
    )


def test_several_bundles_of_one_module(tmp_path: Path) -> None:
    """One for each value of an axis, and for each set of compile options."""
    project = copy_project(PACKAGES / "shmem", tmp_path / "shmem")
    build_split(project, tmp_path / "dist")
    host, first, second = sorted((tmp_path / "dist").iterdir())
    bundles = [name.rpartition("/")[2] for name in members(first) if name.endswith(".hipfb")]
    assert len(bundles) > 1
    assert [name.replace("gfx1100", "gfx942") for name in bundles] == [
        name.rpartition("/")[2] for name in members(second) if name.endswith(".hipfb")
    ]
    count = 2 * len(bundles)
    assert verify(host, first, second).endswith(f"{count} code objects: no fault found\n")
    assert verify(host, first).endswith(f"{count // 2} of {count} code objects: no fault found\n")
    alone = built(project, tmp_path / "alone", wheel="device", archs="gfx1100")
    assert members(alone) == members(first)
    assert alone.read_bytes() == first.read_bytes()


def test_a_module_for_other_chips_in_split_wheels(tmp_path: Path, hip_library: Path) -> None:
    """Which targets the wheel has is known to each of its modules, whatever device wheels are installed."""
    project = copy_project(PACKAGES / "two", tmp_path / "two")
    settings = project / "pyproject.toml"
    settings.write_text(settings.read_text().replace('second:second"]\n', 'second:second"]\narchs = ["gfx1100"]\n'))
    build_split(project, tmp_path / "dist")
    host, _, device = sorted((tmp_path / "dist").iterdir())
    script = """
found = {}
for name in ("first", "second"):
    try:
        module = __import__(f"two_kernels.{name}", fromlist=[name])
        module.__flydsl__.load()
        found[name] = "loaded"
    except ImportError as error:
        found[name] = ["imported" if f"two_kernels.{name}" in sys.modules else "not imported", str(error)]
print(json.dumps(found))
"""
    text = (
        "two_kernels.second: device 0 is gfx942, and two-kernels 1.0 has code of this module only for gfx1100\n"
        "    -> install a wheel of two-kernels in which this module was built for gfx942, or add gfx942 to `archs` of its kernels and build one"
    )
    both = run_script(script, site=unpack(tmp_path / "both", host, device), hip=hip_library, targets="gfx942")
    assert both == {"first": "loaded", "second": ["imported", text]}
    missing = (
        "two_kernels.first: device 0 is gfx942, and the code of two-kernels 1.0 for gfx942 is not installed\n"
        '    -> pip install "two-kernels[device-gfx942]"'
    )
    alone = run_script(script, site=unpack(tmp_path / "alone", host), hip=hip_library, targets="gfx942")
    assert alone == {"first": ["not imported", missing], "second": ["imported", text]}


# --- split wheels: pip and the run time ------------------------------------------------------------------------------------


def test_extras_install_the_code_of_one_target(python: Path, split: Path, hip_library: Path) -> None:
    install(python, split, "second-kernels[device-gfx942]")
    assert run_script(LOAD, python=python, hip=hip_library, targets="gfx942:sramecc+:xnack-") == [True, "gfx942"]
    assert run_script(LOAD, python=python, hip=hip_library, targets="gfx1100") == [
        "UnsupportedTargetError",
        (
            "space.halve: device 0 is gfx1100, and the code of second-kernels 0.3 for gfx1100 is not installed\n"
            '    -> pip install "second-kernels[device-gfx1100]"'
        ),
    ]
    assert run_script(LOAD, python=python, hip=hip_library, targets="gfx1201") == [
        "UnsupportedTargetError",
        (
            "space.halve: device 0 is gfx1201, and second-kernels 0.3 has code only for gfx942, gfx1100\n"
            "    -> install a wheel of second-kernels that was built for gfx1201, or build one with -C archs=gfx942,gfx1100,gfx1201"
        ),
    ]
    # Without a device, as everywhere.
    assert run_script(LOAD, python=python) == [False, None]


def test_the_host_wheel_alone(python: Path, split: Path, hip_library: Path) -> None:
    install(python, split, "second-kernels")
    kind, text = run_script(LOAD, python=python, hip=hip_library, targets="gfx942:sramecc+:xnack-")
    assert kind == "UnsupportedTargetError"
    assert text.endswith('-> pip install "second-kernels[device-gfx942]"')


def test_device_all_and_removal(python: Path, split: Path, hip_library: Path) -> None:
    install(python, split, "second-kernels[device-all]")
    for target in DEVICES:
        assert run_script(LOAD, python=python, hip=hip_library, targets=target) == [True, target]
    pip(python, "uninstall", "-q", "-y", "second-kernels-device-gfx942")
    assert run_script(LOAD, python=python, hip=hip_library, targets="gfx942")[0] == "UnsupportedTargetError"
    assert run_script(LOAD, python=python, hip=hip_library, targets="gfx1100") == [True, "gfx1100"]


def test_a_device_wheel_of_another_build(python: Path, project: Path, split: Path, hip_library: Path, tmp_path: Path) -> None:
    other = copy_project(project, tmp_path / "other")
    source = other / "space" / "halve.py"
    assert "0.5" in source.read_text()
    source.write_text(source.read_text().replace("0.5", "0.25"))
    wheel = built(other, tmp_path / "dist", wheel="device", archs="gfx942")
    install(python, split, "second-kernels[device-gfx942]")
    pip(python, "install", "-q", "--no-index", "--no-deps", "--force-reinstall", wheel)
    kind, text = run_script(LOAD, python=python, hip=hip_library, targets="gfx942")
    assert kind == "CorruptFileError"
    what, _, fix = text.partition("\n    -> ")
    assert what.endswith(f"{ANCHOR}/halve.gfx942.hipfb: the SHA-256 of entry gfx942 is not the one in the manifest")
    assert fix == (
        "second-kernels-device-gfx942 0.3 is not of the same build as second-kernels 0.3, or is damaged: install both from one build, "
        'pip install --force-reinstall "second-kernels[device-gfx942]==0.3"'
    )


# --- one target ------------------------------------------------------------------------------------------------------------


def test_a_wheel_for_one_target(project: Path, tmp_path: Path) -> None:
    by_version = built(project, tmp_path / "dist", wheel="per-arch", archs="gfx942")
    assert by_version.name == "second_kernels-0.3+gfx942-cp311-abi3-manylinux_2_17_x86_64.whl"
    assert fields(by_version, "METADATA")["Version"] == ["0.3+gfx942"]
    manifest = json.loads(members(by_version)[f"{ANCHOR}/halve.json"])
    assert manifest["distribution"] == {"name": "second-kernels", "version": "0.3+gfx942"}
    assert f"{ANCHOR}/halve.hipfb" in members(by_version)
    by_tag = built(project, tmp_path / "dist", wheel="per-arch", archs="gfx942", per_arch_tag="build-tag")
    assert by_tag.name == "second_kernels-0.3-1gfx942-cp311-abi3-manylinux_2_17_x86_64.whl"
    assert fields(by_tag, "METADATA")["Version"] == ["0.3"]
    assert fields(by_tag, "WHEEL")["Build"] == ["1gfx942"]


def test_pip_builds_it(project: Path, tmp_path: Path) -> None:
    """Pip compares the names and versions that the hooks give."""
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-build-isolation", "--no-deps", "-w", tmp_path]
    for config, wheel in [("per-arch", "second_kernels-0.3+gfx1100-cp311-abi3-manylinux_2_17_x86_64.whl"), ("device", DEVICES["gfx1100"])]:
        words = [*command, "-C", f"wheel={config}", "-C", "archs=gfx1100", project]
        environ = {**os.environ, "FLYDSL_BUILD_CACHE": "false"}
        done = subprocess.run(words, env=environ, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        assert (tmp_path / wheel).is_file()


def test_more_than_one_target(project: Path, tmp_path: Path) -> None:
    for hook in ("build_wheel", "prepare_metadata_for_build_wheel"):
        assert (
            'flydsl-build: configuration failed: -C wheel: a "per-arch" wheel is for one target, and the kernels are built for gfx942, gfx1100\n'
            "    -> pass -C archs=gfx942, and build once for each target\n"
        ) in refused(project, tmp_path, hook, wheel="per-arch")


def test_an_extra_of_the_authors(project: Path, tmp_path: Path) -> None:
    other = copy_project(project, tmp_path / "other")
    settings = other / "pyproject.toml"
    text = settings.read_text().replace(
        "[tool.setuptools]", '[project.optional-dependencies]\n"Device.All" = ["numpy"]\n\n[tool.setuptools]'
    )
    settings.write_text(text)
    assert (
        "project.optional-dependencies.device-all: the host wheel has an extra of this name, for its device wheels\n    -> rename it\n"
    ) in refused(other, tmp_path, "prepare_metadata_for_build_wheel", wheel="host")


def test_a_source_distribution_for_host_wheels(project: Path, tmp_path: Path) -> None:
    """What its wheels have and it has not is dynamic in it: https://peps.python.org/pep-0643/."""
    other = copy_project(project, tmp_path / "other")
    settings = other / "pyproject.toml"
    settings.write_text(settings.read_text().replace("[tool.flydsl-build]\n", '[tool.flydsl-build]\nwheel = "host"\n'))
    name = call_hook(other, "build_sdist", tmp_path).value
    with tarfile.open(tmp_path / name) as archive:
        content = archive.extractfile("second_kernels-0.3/PKG-INFO")
        assert content is not None
        assert email.message_from_bytes(content.read()).get_all("Dynamic") == ["Provides-Extra", "Requires-Dist"]


def test_declarations_in_python(project: Path, tmp_path: Path) -> None:
    other = copy_project(project, tmp_path / "other")
    settings = other / "pyproject.toml"
    text = settings.read_text().partition("[tool.flydsl-build]")[0]
    settings.write_text(text + '[tool.flydsl-build]\nkernels-from = "space.declared:kernels"\n')
    code = 'def kernels():\n    yield "space.halve:halve", {"args": {"X": "f32[L]"}, "archs": ["gfx1100", "gfx942"]}\n'
    (other / "space" / "declared.py").write_text(code)
    name = call_hook(other, "prepare_metadata_for_build_wheel", tmp_path, {"wheel": "host"}).value
    wheel = built(other, tmp_path / "dist", wheel="host")
    assert (tmp_path / name / "METADATA").read_bytes() == members(wheel)[f"{name}/METADATA"]
    assert fields(wheel, "METADATA")["Provides-Extra"] == ["device-gfx1100", "device-gfx942", "device-all"]


# --- variants --------------------------------------------------------------------------------------------------------------


def test_variant(project: Path, tmp_path: Path) -> None:
    api: Any = pytest.importorskip("variantlib.api")
    info: Any = pytest.importorskip("variantlib.variant_dist_info")
    wheel = built(project, tmp_path / "dist", wheel="variant", archs="gfx942")
    assert wheel.name == "second_kernels-0.3-cp311-abi3-manylinux_2_17_x86_64-gfx942.whl"
    described = info.VariantDistInfo(members(wheel)["second_kernels-0.3.dist-info/variant.json"], expected_label="gfx942")
    assert described.variant_desc.properties == [api.VariantProperty("amd", "gfx_arch", "gfx942")]
    assert described.namespace_priorities == ["amd"]
    assert described.providers["amd"].requires == ["amd-variant-provider"]


def test_a_variant_needs_variantlib(project: Path, tmp_path: Path) -> None:
    config = {"wheel": "variant", "archs": "gfx942"}
    assert "variantlib>=0.2,<0.3" in call_hook(project, "get_requires_for_build_wheel", config).value
    assert "variantlib>=0.2,<0.3" not in call_hook(project, "get_requires_for_build_wheel", None).value
    answer = call_hook(project, "build_wheel", tmp_path / "dist", config, hidden=["variantlib"], ok=False)
    assert answer.status == 1
    # Before anything is compiled.
    assert "specializations" not in answer.output
    assert answer.output == (
        "\nflydsl-build: toolchain failed: build environment: variantlib is not installed\n"
        '    -> pip install "variantlib>=0.2,<0.3", or "flydsl-build[variants]", which brings all that is needed; '
        "builds with isolation install it themselves\n"
    )


def test_a_variant_table_of_the_authors(project: Path, tmp_path: Path) -> None:
    pytest.importorskip("variantlib")
    other = copy_project(project, tmp_path / "other")
    settings = other / "pyproject.toml"
    table = '[variant.default-priorities]\nnamespace = ["amd"]\n[variant.providers.amd]\nrequires = ["our-provider"]\nplugin-api = "our:plugin"\n'
    settings.write_text(settings.read_text() + table)
    wheel = built(other, tmp_path / "dist", wheel="variant", archs="gfx1100")
    described = json.loads(members(wheel)["second_kernels-0.3.dist-info/variant.json"])
    assert described["providers"] == {"amd": {"plugin-api": "our:plugin", "requires": ["our-provider"]}}
    settings.write_text(settings.read_text().replace("plugin-api", "plug-in"))
    assert "flydsl-build: configuration failed: pyproject.toml: variant: variantlib refuses it: " in refused(
        other, tmp_path, wheel="variant", archs="gfx1100"
    )


def test_a_variant_of_a_generic_target(project: Path, tmp_path: Path) -> None:
    assert (
        "-C wheel: a wheel variant is selected by the chip of a device, and gfx11-generic is a generic target\n"
        "    -> build a variant for each chip, or a per-arch wheel\n"
    ) in refused(project, tmp_path, wheel="variant", archs="gfx11-generic")
