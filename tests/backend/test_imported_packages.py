# SPDX-License-Identifier: Apache-2.0
"""What kernels import from elsewhere changes, one thing at a time: builds and editable installs notice, and compute with the new value."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import struct
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from building import PACKAGES, TESTS, call_hook, copy_project, members, unpack
from test_editable import install

if TYPE_CHECKING:
    from collections.abc import Callable

NEGATE = "tiny_kernels.negate"
COUNTS = re.compile(r"^flydsl-build: 1 jobs: (\d+) from the cache, (\d+) compiled$", re.MULTILINE)
OLD, NEW = 2.718281, 5.436563

# As `site` of a real environment: with its .pth files, and without torch, which takes seconds to import.
STARTUP = """
import importlib.util, os, site
find_spec = importlib.util.find_spec
importlib.util.find_spec = lambda name, *package: None if name == "torch" else find_spec(name, *package)
for folder in os.environ["TEST_SITES"].split(os.pathsep):
    site.addsitedir(folder)
"""


@dataclass
class World:
    """A project that compiles one kernel, and the folders that it imports from; all may be changed."""

    folder: Path
    sites: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.project = copy_project(PACKAGES / "tiny", self.folder / "project")
        self.cache = self.folder / "cache"
        self.move("here")
        self.outside = self.folder / "outside"
        self.outside.mkdir()

    @property
    def site(self) -> Path:
        return self.sites[0]

    def move(self, name: str) -> None:
        """Use another environment, as an isolated build does, with what the one before had."""
        before, self.sites = self.sites, [self.folder / name / one / "site-packages" for one in ("first", "second")]
        for number, site in enumerate(self.sites):
            if before:
                shutil.copytree(before[number], site)
            else:
                site.mkdir(parents=True)
        self.startup = self.folder / name / "startup"
        self.startup.mkdir()
        (self.startup / "sitecustomize.py").write_text(STARTUP)

    def kernel(self, header: str) -> None:
        """Let the kernel scale by FACTOR, which the header sets."""
        path = self.project / "tiny_kernels" / "negate.py"
        text = path.read_text()
        assert text.count("-X[index]") == 1
        header = textwrap.dedent(header).replace("OUTSIDE", repr(str(self.outside)))
        path.write_text(
            text.replace("-X[index]", "X[index] * FACTOR").replace("import flydsl.compiler", f"{header}\nimport flydsl.compiler", 1)
        )

    def write(self, name: str, text: str, place: Path | None = None) -> None:
        path = (place or self.site) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        status = path.stat() if path.exists() else None
        path.write_text(text)
        if status is not None:
            # A .pyc would be valid still.
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def distribution(self, name: str, version: str, files: dict[str, str], place: Path | None = None) -> None:
        """Install one, as installers do; an earlier version goes."""
        place = place or self.site
        for old in place.glob(f"{name}-*.dist-info"):
            self.uninstall(old)
        info = f"{name}-{version}.dist-info"
        files = {**files, f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"}
        record = []
        for path, text in files.items():
            self.write(path, text, place)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            record.append(f"{path},sha256={digest},{len(text)}\n")
        self.write(f"{info}/RECORD", "".join(record) + f"{info}/RECORD,,\n", place)

    @staticmethod
    def uninstall(info: Path) -> None:
        for line in (info / "RECORD").read_text().splitlines():
            path = info.parent / line.partition(",")[0]
            path.unlink(missing_ok=True)
            if path.parent not in {info, info.parent} and not [one for one in path.parent.iterdir() if one.name != "__pycache__"]:
                shutil.rmtree(path.parent)
        shutil.rmtree(info, ignore_errors=True)

    @property
    def environ(self) -> dict[str, str]:
        return {
            "PYTHONPATH": os.pathsep.join(map(str, (self.startup, TESTS))),
            "TEST_SITES": os.pathsep.join(map(str, self.sites)),
            "FLYDSL_BUILD_CACHE": "true",
            "FLYDSL_BUILD_CACHE_DIR": str(self.cache),
        }


def values(data: bytes) -> set[float]:
    """Return which of the two numbers is a literal of an instruction."""
    return {one for one in (OLD, NEW) if struct.pack("<f", one) in data}


def build(world: World, folder: Path, **env: str) -> tuple[int, set[float]]:
    """Return how many jobs were compiled, and the number that the wheel computes with."""
    dist = folder / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir()
    answer = call_hook(world.project, "build_wheel", dist, {}, env={**world.environ, **env})
    workers = [command for command in answer.spawned if "flydsl_build.frontends.worker" in command[-1]]
    compiled = len(workers)
    if env.get("FLYDSL_BUILD_CACHE") != "false":
        assert COUNTS.findall(answer.output) == [(str(1 - compiled), str(compiled))]
    (bundle,) = [data for name, data in members(dist / answer.value).items() if name.endswith(".hipfb")]
    return compiled, values(bundle)


# --- what changes ------------------------------------------------------------------------------------------------------------------------

OPS = """
from kcommon import ops
FACTOR = ops.FACTOR
"""


def package(value: float, **more: str) -> dict[str, str]:
    return {"kcommon/__init__.py": "", "kcommon/ops.py": f"FACTOR = {value}\n", **more}


def _wheel(world: World, version: str, value: float, *, editable: bool) -> None:
    """Install it as setuptools makes it; what there was of it is uninstalled, and a checkout stays."""
    for old in world.site.glob("kcommon-*.dist-info"):
        world.uninstall(old)
    checkout = world.outside / f"{version} {editable}"
    for name, text in package(value).items():
        world.write(name, text, checkout)
    world.write(
        "pyproject.toml", f'[project]\nname = "kcommon"\nversion = "{version}"\n[tool.setuptools]\npackages = ["kcommon"]\n', checkout
    )
    hook = "build_editable" if editable else "build_wheel"
    done = subprocess.run(
        [sys.executable, "-c", f"import setuptools.build_meta as b; b.{hook}({str(world.outside)!r})"],
        cwd=checkout,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = world.outside.glob("*.whl")
    unpack(world.site, wheel)
    wheel.unlink()


@dataclass(frozen=True)
class Case:
    """The head of the kernel's module, and what makes FACTOR the old number and then the new one."""

    header: str
    before: Callable[[World], object]
    after: Callable[[World], object]


def _checkout_on_path(world: World) -> None:
    for name, text in package(OLD).items():
        world.write(name, text, world.outside)
    world.distribution("kcommon", "0.1", {"__editable__.kcommon-0.1.pth": f"{world.outside}\n"})


def _two_places(world: World) -> None:
    for site, value in zip(world.sites, (OLD, NEW), strict=True):
        for name, text in package(value).items():
            world.write(name, text, site)


def _pth(world: World, name: str) -> None:
    for place, value in (("one", OLD), ("other", NEW)):
        for file, text in package(value).items():
            world.write(file, text, world.outside / place)
    world.write("places.pth", f"{world.outside / name}\n")


def _edited_in_place(name: str, text: str) -> Callable[[World], None]:
    def edit(world: World) -> None:
        assert (world.site / name).exists()
        world.write(name, text)

    return edit


def nothing(_: World) -> None:
    """Leave everything as it is."""


LOOK = f"""
import os, pathlib, importlib.resources, importlib.util, importlib.metadata
PLACE = pathlib.Path(OUTSIDE)
FACTOR = {NEW} if CONDITION else {OLD}
"""


def looks(condition: str, name: str = "", text: str = "", place: str = "outside") -> Case:
    """A file that the module looks for appears."""
    return Case(
        LOOK.replace("CONDITION", condition),
        lambda world: world.distribution("kcommon", "0.1", package(OLD)),
        lambda world: world.write(name, text, getattr(world, place)),
    )


CASES: dict[str, Case] = {
    "another version": Case(
        OPS,
        lambda world: world.distribution("kcommon", "0.1", package(OLD)),
        lambda world: world.distribution("kcommon", "0.2", package(NEW)),
    ),
    "an editable install by a finder is a wheel": Case(
        OPS,
        lambda world: _wheel(world, "0.1", OLD, editable=True),
        lambda world: _wheel(world, "0.2", NEW, editable=False),
    ),
    "an editable install by a .pth file is a wheel": Case(
        OPS, _checkout_on_path, lambda world: world.distribution("kcommon", "0.2", package(NEW))
    ),
    "an edited checkout": Case(
        OPS,
        lambda world: _wheel(world, "0.1", OLD, editable=True),
        lambda world: world.write("kcommon/ops.py", f"FACTOR = {NEW}\n", world.outside / "0.1 True"),
    ),
    "the order of the path": Case(OPS, _two_places, lambda world: world.sites.reverse()),
    "a .pth file": Case(OPS, lambda world: _pth(world, "one"), lambda world: _pth(world, "other")),
    "a module is a package": Case(
        OPS,
        lambda world: world.distribution("kcommon", "0.1", package(OLD)),
        lambda world: world.write("kcommon/ops/__init__.py", f"FACTOR = {NEW}\n"),
    ),
    "a module at the top is a package": Case(
        "from kcommon import FACTOR",
        lambda world: world.write("kcommon.py", f"FACTOR = {OLD}\n"),
        lambda world: world.write("kcommon/__init__.py", f"FACTOR = {NEW}\n"),
    ),
    "a submodule appears": Case(
        """
        try:
            from kcommon.fast import FACTOR
        except ImportError:
            from kcommon.ops import FACTOR
        """,
        lambda world: world.distribution("kcommon", "0.1", package(OLD)),
        lambda world: world.write("kcommon/fast.py", f"FACTOR = {NEW}\n"),
    ),
    "a submodule appears that was a name": Case(
        """
        try:
            from kcommon import fast
            FACTOR = fast.FACTOR
        except ImportError:
            from kcommon.ops import FACTOR
        """,
        lambda world: world.distribution("kcommon", "0.1", package(OLD)),
        lambda world: world.write("kcommon/fast.py", f"FACTOR = {NEW}\n"),
    ),
    "a package appears": Case(
        f"""
        try:
            from kfast import FACTOR
        except ImportError:
            FACTOR = {OLD}
        """,
        nothing,
        lambda world: world.write("kfast.py", f"FACTOR = {NEW}\n"),
    ),
    "a folder without metadata": Case(
        OPS,
        lambda world: [world.write(name, text) for name, text in package(OLD).items()],
        _edited_in_place("kcommon/ops.py", f"FACTOR = {NEW}\n"),
    ),
    "a distribution edited in place": Case(
        OPS, lambda world: world.distribution("kcommon", "0.1", package(OLD)), _edited_in_place("kcommon/ops.py", f"FACTOR = {NEW}\n")
    ),
    "a package that an imported one imports": Case(
        OPS,
        lambda world: [
            world.distribution("kbase", "1", {"kbase.py": f"FACTOR = {OLD}\n"}),
            world.distribution("kcommon", "0.1", package(OLD) | {"kcommon/ops.py": "from kbase import FACTOR\n"}),
        ],
        lambda world: world.distribution("kbase", "2", {"kbase.py": f"FACTOR = {NEW}\n"}),
    ),
    "a package that an imported one looks for": Case(
        OPS,
        lambda world: world.distribution(
            "kcommon",
            "0.1",
            package(OLD) | {"kcommon/ops.py": f"try:\n    from kbase import FACTOR\nexcept ImportError:\n    FACTOR = {OLD}\n"},
        ),
        lambda world: world.distribution("kbase", "2", {"kbase.py": f"FACTOR = {NEW}\n"}),
    ),
    "data of an installed package": Case(
        OPS,
        lambda world: world.distribution(
            "kcommon",
            "0.1",
            package(OLD)
            | {
                "kcommon/ops.py": 'import pathlib\nFACTOR = float(pathlib.Path(__file__).with_name("factor.txt").read_text())\n',
                "kcommon/factor.txt": str(OLD),
            },
        ),
        _edited_in_place("kcommon/factor.txt", str(NEW)),
    ),
    "data of an installed package that the module reads": Case(
        """
        import importlib.resources
        FACTOR = float((importlib.resources.files("kcommon") / "factor.txt").read_text())
        """,
        lambda world: world.distribution("kcommon", "0.1", package(OLD) | {"kcommon/factor.txt": str(OLD)}),
        _edited_in_place("kcommon/factor.txt", str(NEW)),
    ),
    "a portion of a namespace": Case(
        f"""
        import pkgutil
        import kspace.one
        FACTOR = {NEW} if len(list(pkgutil.iter_modules(kspace.__path__))) == 2 else {OLD}
        """,
        lambda world: world.write("kspace/one.py", ""),
        lambda world: world.write("kspace/two.py", "", world.sites[1]),
    ),
    "a version that is asked": Case(
        f"""
        import importlib.metadata
        FACTOR = {OLD} if importlib.metadata.version("kcommon") == "0.1" else {NEW}
        """,
        lambda world: world.distribution("kcommon", "0.1", package(OLD)),
        lambda world: world.distribution("kcommon", "0.2", package(OLD)),
    ),
    "a folder that the module puts on the path": Case(
        """
        import sys
        sys.path[:0] = [OUTSIDE + "/first", OUTSIDE + "/second"]
        from koutside import FACTOR
        """,
        lambda world: world.write("second/koutside.py", f"FACTOR = {OLD}\n", world.outside),
        lambda world: world.write("first/koutside.py", f"FACTOR = {NEW}\n", world.outside),
    ),
    "Path.exists": looks('(PLACE / "a").exists()', "a"),
    "Path.is_dir": looks('(PLACE / "a").is_dir()', "a/b"),
    "os.path.isfile": looks('os.path.isfile(PLACE / "a")', "a"),
    "os.path.lexists": looks('os.path.lexists(PLACE / "a")', "a"),
    "os.access": looks('os.access(PLACE / "a", os.R_OK)', "a"),
    "importlib.resources": looks('(importlib.resources.files("kcommon") / "a").is_file()', "kcommon/a", place="site"),
    "in the project": looks('os.path.exists("a")', "a", place="project"),
    "importlib.util.find_spec": looks('importlib.util.find_spec("kfast")', "kfast.py", place="site"),
    "the size of a file": Case(
        f"import os\nFACTOR = {OLD} if os.path.getsize(OUTSIDE + '/a') < 2 else {NEW}",
        lambda world: world.write("a", "1", world.outside),
        lambda world: world.write("a", "22", world.outside),
    ),
    "a file that is gone": Case(
        f"import os\nFACTOR = {OLD} if os.path.exists(OUTSIDE + '/a') else {NEW}",
        lambda world: world.write("a", "1", world.outside),
        lambda world: (world.outside / "a").unlink(),
    ),
}


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.fixture
def world(tmp_path: Path, case: Case) -> World:
    """A world in which FACTOR is the old number."""
    world = World(tmp_path)
    world.kernel(case.header)
    case.before(world)
    return world


def test_a_build_has_the_new_value(world: World, case: Case, tmp_path: Path) -> None:
    assert build(world, tmp_path) == (1, {OLD})
    assert build(world, tmp_path) == (0, {OLD})
    case.after(world)
    assert build(world, tmp_path) == (1, {NEW})
    assert build(world, tmp_path) == (0, {NEW})


def test_an_editable_install_has_the_new_value(world: World, case: Case, tmp_path: Path) -> None:
    installed = install(world.project, tmp_path, cache=world.cache, **world.environ)

    def served() -> tuple[bool, set[float]]:
        """Return whether it was compiled, and the number of what is served."""
        answer = installed.run(NEGATE, **world.environ)
        assert (answer.get("error"), answer["warnings"]) == (None, [])
        bundles = Path(answer["origin"][NEGATE]).parent.rglob("*.hipfb")
        return answer["spawned"] == 1, set().union(*(values(path.read_bytes()) for path in bundles))

    assert served() == (False, {OLD})
    case.after(world)
    assert served() == (True, {NEW})
    assert served() == (False, {NEW})


# --- what is not noticed, as README says ---------------------------------------------------------------------------------------------------

UNNOTICED: dict[str, tuple[Case, dict[str, str]]] = {
    "another program": (
        Case(
            "import subprocess\nFACTOR = float(subprocess.run(['cat', OUTSIDE + '/a'], capture_output=True).stdout)",
            lambda world: world.write("a", str(OLD), world.outside),
            lambda world: world.write("a", str(NEW), world.outside),
        ),
        {},
    ),
    "compiled code": (
        Case(
            """
            import ctypes
            C = ctypes.CDLL(None)
            C.fopen.restype = ctypes.c_void_p
            TEXT = ctypes.create_string_buffer(20)
            C.fgets(TEXT, 20, ctypes.c_void_p(C.fopen((OUTSIDE + '/a').encode(), b'r')))
            FACTOR = float(TEXT.value)
            """,
            lambda world: world.write("a", str(OLD), world.outside),
            lambda world: world.write("a", str(NEW), world.outside),
        ),
        {},
    ),
    "the time of a file": (
        Case(
            f"import os\nFACTOR = {OLD} if os.path.getmtime(OUTSIDE + '/a') < 9 else {NEW}",
            lambda world: [world.write("a", "", world.outside), os.utime(world.outside / "a", (1, 1))],
            lambda world: os.utime(world.outside / "a", (10, 10)),
        ),
        {},
    ),
    "a variable that an installed package asks for": (
        Case(
            OPS,
            lambda world: world.distribution(
                "kcommon", "0.1", package(OLD) | {"kcommon/ops.py": f"import os\nFACTOR = float(os.environ.get('KCOMMON', {OLD}))\n"}
            ),
            nothing,
        ),
        {"KCOMMON": str(NEW)},
    ),
    "a file elsewhere that an installed package reads": (
        Case(
            OPS,
            lambda world: [
                world.write("a", str(OLD), world.outside),
                world.distribution(
                    "kcommon", "0.1", package(OLD) | {"kcommon/ops.py": f"FACTOR = float(open({str(world.outside / 'a')!r}).read())\n"}
                ),
            ],
            lambda world: world.write("a", str(NEW), world.outside),
        ),
        {},
    ),
    "a loop over the environment": (
        Case(f"import os\nFACTOR = {NEW} if 'KNOWN' in [one for one in os.environ] else {OLD}", nothing, nothing),
        {"KNOWN": "1"},
    ),
    "os.path.expandvars": (
        Case(f"import os\nFACTOR = {NEW} if os.path.expandvars('$KNOWN') == '1' else {OLD}", nothing, nothing),
        {"KNOWN": "1"},
    ),
    "how Python was started": (
        Case(f"FACTOR = {OLD} if __debug__ else {NEW}", nothing, nothing),
        {"PYTHONOPTIMIZE": "1"},
    ),
    "a symbolic link": (
        Case(
            "import os\nFACTOR = float(os.readlink(OUTSIDE + '/link'))",
            lambda world: (world.outside / "link").symlink_to(str(OLD)),
            lambda world: [(world.outside / "link").unlink(), (world.outside / "link").symlink_to(str(NEW))],
        ),
        {},
    ),
    "a loader of its own": (
        Case(
            "from importlib.machinery import SourceFileLoader\nFACTOR = SourceFileLoader('kloaded', OUTSIDE + '/a.py').load_module().FACTOR",
            lambda world: world.write("a.py", f"FACTOR = {OLD}\n", world.outside),
            lambda world: world.write("a.py", f"FACTOR = {NEW}\n", world.outside),
        ),
        {},
    ),
    "entry points": (
        Case(
            f"""
            import importlib.metadata
            FACTOR = {NEW} if importlib.metadata.entry_points(group="kernels") else {OLD}
            """,
            nothing,
            lambda world: world.distribution("kplugin", "1", {"kplugin-1.dist-info/entry_points.txt": "[kernels]\na = kplugin:a\n"}),
        ),
        {},
    ),
}


@pytest.mark.parametrize(("case", "env"), UNNOTICED.values(), ids=UNNOTICED)
def test_what_readme_says_is_not_noticed(world: World, case: Case, env: dict[str, str], tmp_path: Path) -> None:
    assert build(world, tmp_path) == (1, {OLD})
    case.after(world)
    assert build(world, tmp_path, **env) == (0, {OLD})
    assert build(world, tmp_path, FLYDSL_BUILD_CACHE="false", **env) == (1, {NEW})


# --- isolated builds -------------------------------------------------------------------------------------------------------------------------

HEADLINES = [
    "another version",
    "an editable install by a finder is a wheel",
    "a folder without metadata",
    "a distribution edited in place",
    "data of an installed package",
    "importlib.resources",
    "the order of the path",
]


@pytest.mark.parametrize("case", [CASES[one] for one in HEADLINES], ids=HEADLINES)
def test_isolated_builds_on_machines_that_share_a_cache(world: World, case: Case, tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    shared = {"FLYDSL_BUILD_REMOTE_CACHE": f"file://{tmp_path}/shared", "FLYDSL_BUILD_REMOTE_CACHE_WRITE": "true"}
    assert build(world, tmp_path, **shared) == (1, {OLD})
    # The same distributions in another environment, whose folder has another name; on a machine that has built nothing.
    for name in ("there", "elsewhere"):
        world.move(name)
        shutil.rmtree(world.cache)
        assert build(world, tmp_path, **shared) == (0, {OLD})
    case.after(world)
    world.move("again")
    shutil.rmtree(world.cache)
    assert build(world, tmp_path, **shared) == (1, {NEW})
    world.move("at last")
    assert build(world, tmp_path) == (0, {NEW})
