# SPDX-License-Identifier: Apache-2.0
"""Values that say more than text, numbers and booleans: members of enums above all, from the declaration to the call.

`tests/packages/enums` is built once: its launchers have a workgroup of three wavefronts if the factory was given the very member, else of two.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from building import PACKAGES, call_hook, copy_project, manifest, run_script, unpack

if TYPE_CHECKING:
    from pathlib import Path

DEVICE = "gfx942:sramecc+:xnack-"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the package."""
    folder = tmp_path_factory.mktemp("enums")
    project = copy_project(PACKAGES / "enums", folder / "source")
    (dist := folder / "dist").mkdir()
    return dist / call_hook(project, "build_wheel", dist).value


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the package is installed."""
    return unpack(tmp_path_factory.mktemp("enums-site"), wheel)


def test_members_are_recorded(wheel: Path) -> None:
    recorded = manifest(wheel, "enum_kernels/_flydsl/modes.json")
    params = {one["name"]: [each["params"] for each in one["specializations"]] for one in recorded["launchers"]}
    mode, kinds = "enum_kernels.modes:Mode", "enum_kernels.kinds"
    assert params["build"] == [{"mode": {"$enum": f"{mode}.DOUBLE"}}, {"mode": {"$enum": f"{mode}.TRIPLE"}}]
    assert params["build_text"] == [{"mode": {"$enum": f"{kinds}:SMode.{name}"}} for name in ("DOUBLE", "TRIPLE")]
    assert params["build_access"] == [{"access": {"$enum": f"{kinds}:Access.{name}"}} for name in ("READ", "READ|WRITE")]
    assert params["build_configured"] == [
        {"config": {"mode": {"$enum": f"{mode}.{name}"}, "sizes": sizes}} for name, sizes in (("TRIPLE", [1, 2]), ("DOUBLE", [1]))
    ]
    # Nothing says that text could mean these.
    assert params["build_untold"] == [
        {"mode": {"$member": f"{mode}.TRIPLE"}},
        {"mode": {"$member": f"{kinds}:SMode.TRIPLE"}},
        {"mode": {"$member": f"{kinds}:Level.LOW"}},
        {"mode": "TRIPLE"},
    ]
    assert recorded["enums"][mode] == {
        "bases": ["Enum"],
        "doc": "How much.",
        "members": [
            {"name": "DOUBLE", "value": 1},
            {"name": "TRIPLE", "value": 2},
            {"name": "TWICE", "alias": "DOUBLE"},
            {"name": "MADE"},
        ],
    }
    assert {name: one["bases"] for name, one in recorded["enums"].items()} == {
        f"{kinds}:Access": ["Flag"],
        f"{kinds}:Level": ["IntEnum"],
        f"{kinds}:SMode": ["str", "Enum"],
        mode: ["Enum"],
    }
    assert {one["name"]: one["specializations"][0].get("doc") for one in recorded["launchers"]}["build"] == "Scale X in place."


def test_the_stub_has_the_classes(site: Path) -> None:
    stub = (site / "enum_kernels" / "modes.py").read_text(encoding="utf-8")
    assert (
        '@__flydsl__.enum("enum_kernels.modes:Mode")\n'
        "class Mode(_Enum):\n"
        '    """How much."""\n\n'
        "    DOUBLE = 1\n    TRIPLE = 2\n    TWICE = DOUBLE\n    MADE = object()\n"
    ) in stub
    assert 'class SMode(str, _Enum):\n    DOUBLE = "double"\n    TRIPLE = "triple"\n' in stub
    assert "class Level(_IntEnum):\n    LOW = 2\n    HIGH = 3\n" in stub
    assert "class Access(_Flag):\n    READ = 1\n    WRITE = 2\n    RUN = 4\n" in stub
    assert "def build(mode=Mode.DOUBLE):\n" in stub
    assert "def scale(X, n, mode=Mode.DOUBLE, stream=None):\n" in stub
    assert 'Config = __flydsl__.struct("Config", ("mode", "sizes"), {"mode": Mode.TRIPLE, "sizes": ()})\n' in stub
    # Those that the module only imports are no names of its own.
    assert '    "Mode",\n' in stub
    assert '"SMode"' not in stub.partition("]")[0]
    interface = (site / "enum_kernels" / "modes.pyi").read_text(encoding="utf-8")
    assert 'class Mode(_Enum):\n    """How much."""\n    DOUBLE = 1\n' in interface
    assert "def build(mode: Mode | str = Mode.DOUBLE) -> _Launcher_build:\n" in interface
    assert "    mode: Mode | str\n    sizes: _Any\n" in interface
    assert '        """Scale X in place."""\n' in interface
    assert "def build_untold(mode: Mode | SMode | Level | str) -> _Launcher_build_untold:\n" in interface


def test_type_checkers_read_the_stub(site: Path, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from enum_kernels.modes import Mode, build, build_text\n"
        'build(Mode.TRIPLE)\nbuild("TRIPLE")\nreveal_type(build.__defaults__)\nbuild(3)\n',
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--follow-imports=silent", str(program)]
    done = subprocess.run(command, cwd=site, capture_output=True, text=True, check=False, timeout=120)
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert len(errors) == 1, done.stdout + done.stderr
    assert 'Argument 1 to "build" has incompatible type "int"; expected "Mode | str"' in errors[0]


PREAMBLE = """
import copy, inspect, pickle
import numpy as np
import fake_hip
from enum_kernels import kinds, modes
from enum_kernels.modes import Config, Mode

hip = fake_hip.FakeHip(argument)
x = np.zeros(64, np.float32)

def waves(launcher, *args, **kwargs):
    hip.clear()
    launcher(x, 64, *args, **kwargs)
    (event,) = hip.events("launch")
    return event["block"][0] // 64

def refused(function, *args, **kwargs):
    try:
        function(*args, **kwargs)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    raise AssertionError("not refused")
"""

CALLS = """
answer = {
    "build": [waves(modes.build(one)) for one in (Mode.DOUBLE, Mode.TWICE, "TWICE", Mode.TRIPLE, "TRIPLE")] + [waves(modes.build())],
    "text": [waves(modes.build_text(one)) for one in (kinds.SMode.TRIPLE, modes.SMode.TRIPLE, "TRIPLE", "triple", kinds.SMode.DOUBLE)],
    "default": [waves(modes.build_default()), waves(modes.build_default(kinds.SMode.TRIPLE)), waves(modes.build_default("triple"))],
    "later": [waves(modes.build_later(one, [kinds.SMode.DOUBLE, "TRIPLE"])) for one in (Mode.TRIPLE, "TRIPLE")],
    "level": [waves(modes.build_level(one)) for one in (kinds.Level.HIGH, modes.Level.HIGH, "HIGH", 3)] + [waves(modes.build_level())],
    "access": [
        waves(modes.build_access(one))
        for one in (kinds.Access.READ | kinds.Access.WRITE, modes.Access.WRITE | modes.Access.READ, "WRITE|READ", "READ")
    ],
    "object": [waves(modes.build_configured(one)) for one in (Config(sizes=[1, 2]), Config("DOUBLE", (1,)), Config(Mode.DOUBLE, [1]))],
    "typed": [waves(modes.build_typed("bf16")), waves(modes.build_typed())],
    "untold": [waves(modes.build_untold(one)) for one in (Mode.TRIPLE, kinds.SMode.TRIPLE, kinds.Level.LOW, "TRIPLE")],
    "scale": [waves(modes.scale, *one) for one in ([], [Mode.TRIPLE], ["TRIPLE"], ["DOUBLE"], [Mode.TWICE])],
    "bound": waves(lambda *arguments: modes.scale.bind(*arguments, mode=Mode.TRIPLE)()),
    "same": [modes.build("TRIPLE") is modes.build(Mode.TRIPLE), pickle.loads(pickle.dumps(modes.build("TRIPLE"))) is modes.build("TRIPLE")],
    "pickled": pickle.loads(pickle.dumps(Mode.TRIPLE)) is Mode.TRIPLE,
    "returned": modes.build_side("left", 2, Mode.TRIPLE)[1:] == ("left", Mode.TRIPLE)
    and modes.build_side("left", 2, "TRIPLE")[2] is Mode.TRIPLE,
    "shown": [repr(modes.build("TRIPLE")), str(inspect.signature(modes.build)), modes.build("TRIPLE").__doc__],
    "specializations": modes.scale.specializations[1].constexpr == {"mode": Mode.TRIPLE},
    "manifest": json.dumps(modes.__flydsl__.manifest["launchers"][0]["specializations"][1]["params"]),
    "loaded": sorted({name.partition(".")[0] for name in sys.modules} & {"flydsl", "torch", "flydsl_build"}),
}
print(json.dumps(answer))
"""


def test_calls_take_members_and_text(site: Path, hip_library: Path) -> None:
    answer = run_script(PREAMBLE + CALLS, site=site, hip=hip_library, targets=DEVICE, argument=str(hip_library))
    assert answer == {
        "build": [2, 2, 2, 3, 3, 2],
        "text": [3, 3, 3, 3, 2],
        "default": [2, 3, 3],
        "later": [3, 3],
        "level": [3, 3, 3, 3, 2],
        "access": [3, 3, 3, 2],
        "object": [3, 2, 2],
        "typed": [3, 2],
        "untold": [3, 2, 2, 2],
        "scale": [2, 3, 3, 2, 2],
        "bound": 3,
        "same": [True, True],
        "pickled": True,
        "returned": True,
        "shown": ["<FlyDSL launcher enum_kernels.modes.build(mode=Mode.TRIPLE)>", "(mode=<Mode.DOUBLE: 1>)", "Scale X in place."],
        "specializations": True,
        "manifest": '{"mode": "TRIPLE"}',
        "loaded": [],
    }


REFUSED = """
class Foreign(modes._Enum):
    TRIPLE = 7

print(json.dumps({
    "text": refused(modes.build, "TRIPEL"),
    "not built": refused(modes.build, Mode.MADE),
    "number": refused(modes.build, 2),
    "another class": refused(modes.build, kinds.SMode.TRIPLE),
    "same names": refused(modes.build_text, Foreign.TRIPLE),
    "flags": refused(modes.build_access, kinds.Access.RUN | kinds.Access.READ),
    "bool": refused(modes.build_level, True),
    "untold": [refused(modes.build_untold, one) for one in (2, "triple", "LOW")],
    "many": refused(modes.scale, x, 64, "TRIPEL"),
    "one": refused(modes.once, x, 64),
    "object": refused(modes.build_configured, Config(Mode.MADE, (1, 2))),
}))
"""


def test_what_is_no_member_is_refused(site: Path, hip_library: Path) -> None:
    answer = run_script(PREAMBLE + REFUSED, site=site, hip=hip_library, targets=DEVICE, argument=str(hip_library))
    built = "the wheel was not built for these {}, only for:\n    {}(mode=Mode.DOUBLE)\n    {}(mode=Mode.TRIPLE)\n    -> "
    params = built.format("parameters", "build", "build")
    add = 'add them where the wheel is built: [tool.flydsl-build.kernels."enum_kernels.modes:'
    members = "no member of Mode, which has DOUBLE, TRIPLE, TWICE, MADE"
    assert answer["text"] == f"ValueError: build(mode='TRIPEL'): {params}mode: 'TRIPEL' is {members}"
    assert answer["not built"] == f'ValueError: build(mode=Mode.MADE): {params}{add}build"] params = {{ mode = [..., "MADE"] }}'
    assert answer["number"] == f"ValueError: build(mode=2): {params}mode: 2 is {members}"
    assert answer["another class"] == f"ValueError: build(mode=SMode.TRIPLE): {params}mode: SMode.TRIPLE is {members}"
    assert answer["same names"].endswith("mode: Foreign.TRIPLE is no member of SMode, which has DOUBLE, TRIPLE")
    assert answer["flags"].endswith('build_access"] params = { access = [..., "READ|RUN"] }')
    assert answer["bool"].endswith("level: True is no member of Level, which has LOW, HIGH")
    assert all("the wheel was not built for these parameters" in text for text in answer["untold"])
    scale = built.format("constexpr values", "scale", "scale")
    assert answer["many"] == f"ValueError: scale(mode='TRIPEL'): {scale}mode: 'TRIPEL' is {members}"
    # The same exception, and the line to add, where there is one specialization.
    assert answer["one"] == (
        "ValueError: once(mode=Mode.DOUBLE): the wheel was not built for these constexpr values, only for:\n    once(mode=Mode.TRIPLE)\n"
        f'    -> {add}once"] constexpr = {{ mode = [..., "DOUBLE"] }}'
    )
    assert answer["object"].endswith('params = { config = [..., { mode = "MADE", sizes = [1, 2] }] }')


OPS = """
import torch
from enum_kernels import modes_torch as ops
from enum_kernels.modes import Mode
from enum_kernels.kinds import SMode

def refused(function, *args):
    try:
        function(*args)
    except Exception as error:
        return f"{type(error).__name__}: {error}"

compiled = torch.compile(lambda x, mode: ops.scale(x, 64, mode), backend="eager", fullgraph=True)
with torch._subclasses.FakeTensorMode():
    x = torch.zeros(64)
    ops.scale(x, 64, Mode.TRIPLE), ops.scale(x, 64, "DOUBLE"), ops.scale(x, 64), ops.build(Mode.TRIPLE)(x, 64)
    compiled(x, Mode.TRIPLE), compiled(x, "DOUBLE")
    refusals = [refused(ops.scale, x, 64, "TRIPEL"), refused(ops.scale, x, 64, SMode.TRIPLE), refused(ops.build, "TRIPEL")]
print(json.dumps({
    "schema": str(getattr(torch.ops.enum_kernels_modes.scale, torch.ops.enum_kernels_modes.scale.overloads()[0])._schema) if hasattr(torch.ops, "enum_kernels_modes") else sorted(dir(torch.ops)),
    "same": [ops.build("TRIPLE") is ops.build(Mode.TRIPLE), ops.build() is ops.build(Mode.TWICE), ops.build_untold(Mode.TRIPLE) is
             ops.build_untold("TRIPLE")],
    "refused": refusals,
}))
"""


def test_ops_of_torch(site: Path) -> None:
    pytest.importorskip("torch")
    answer: Any = run_script(OPS, site=site)
    assert "str mode" in answer["schema"]
    assert answer["same"] == [True, True, False]
    text, other, factory = answer["refused"]
    assert text.startswith("ValueError: scale(mode='TRIPEL'): the wheel was not built for these constexpr values, only for:")
    assert other == "TypeError: SMode.TRIPLE is no member of Mode"
    assert factory.endswith("-> mode: 'TRIPEL' is no member of Mode, which has DOUBLE, TRIPLE, TWICE, MADE")


# --- what a declaration cannot say -------------------------------------------------------------------------------------

WRONG = """
from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NewType, Optional, Union

import flydsl.expr as fx

from enum_kernels.kinds import Access, Level, SMode
from enum_kernels.modes import Config, Mode, scaler

if TYPE_CHECKING:
    from elsewhere import Unknown


class Tile(int):
    pass


class Name(str):
    pass


Known = NewType("Known", Mode)


def mode(it: Mode): return scaler(False)
def default(it=SMode.DOUBLE): return scaler(False)
def annotated(it: Annotated[Optional[Mode], "how"] = None): return scaler(False)
def new(it: Known): return scaler(False)
def either(it: Union[str, SMode]): return scaler(False)
def flags(it: Access): return scaler(False)
def literal(it: Literal["left", 2]): return scaler(False)
def path(it: Path): return scaler(False)
def tile(it: Tile): return scaler(False)
def name(it: Optional[Name] = None): return scaler(False)
def unknown(it: Unknown): return scaler(False)
def dtype(it: Optional[type[fx.Numeric]] = None): return scaler(False)
def config(it: Config): return scaler(False)
def pair(it: tuple[SMode, int]): return scaler(False)
def several(it: list[SMode]): return scaler(False)
def chosen(it: frozenset[int]): return scaler(False)
def many(**rest: Mode): return scaler(False)
"""

WHAT_A_TABLE_SAYS = "a table says text, numbers, booleans, members of enums, FlyDSL types, and tuples and objects of these"
MODES = "Its members are DOUBLE, TRIPLE, TWICE, MADE"
FAULTS = {
    "mode": ('"TRIPEL"', f"'TRIPEL' is no member of Mode, and no value of one. {MODES}", 'Did you mean "TRIPLE"?'),
    "default": ('"x"', "'x' is no member of SMode, and no value of one. Its members are DOUBLE, TRIPLE", "write the name of a member"),
    "annotated": ("true", f"True is no member of Mode, and no value of one. {MODES}", "write the name of a member"),
    "new": ('"DUBLE"', f"'DUBLE' is no member of Mode, and no value of one. {MODES}", 'Did you mean "DOUBLE"?'),
    "either": (
        '"TRIPLE"',
        "'TRIPLE' can be text or a member of SMode, as Union[str, enum_kernels.kinds.SMode] admits both",
        "annotate with one of them, or give the member itself in the function of kernels-from",
    ),
    "flags": ('"READ|RIDE"', "'READ|RIDE' is no member of Access, and no value of one. Its members are READ, WRITE, RUN", ""),
    "literal": ('"middle"', "'middle' is none of 'left', 2", "write one of these"),
    "path": ('"a/b"', "'a/b' is no Path, as which it is annotated", WHAT_A_TABLE_SAYS),
    "tile": ("4", "4 is no Tile, as which it is annotated", WHAT_A_TABLE_SAYS),
    "name": ('"a"', "'a' is no Optional[enum_kernels.wrong.Name], as which it is annotated", WHAT_A_TABLE_SAYS),
    "unknown": (
        '"a"',
        "the annotation Unknown cannot be evaluated (NameError: name 'Unknown' is not defined), so what 'a' stands for is not known",
        "import what it names outside of `if TYPE_CHECKING`, or annotate it with what is known at run time",
    ),
    "dtype": ('"f31"', '"f31" is not the name of a FlyDSL type. Did you mean "f32"?', "write the name of a FlyDSL type"),
    "config": ("4", "4 is no Config, as which it is annotated", WHAT_A_TABLE_SAYS),
    "pair": ('[["DOUBLE"]]', "('DOUBLE',) has 1 items, and tuple[enum_kernels.kinds.SMode, int] has 2", "write as many"),
    "several": (
        '[["TRIPEL"]]',
        "'TRIPEL' is no member of SMode, and no value of one. Its members are DOUBLE, TRIPLE",
        'Did you mean "TRIPLE"?',
    ),
    "chosen": ("[[1]]", "(1,) is no frozenset[int], as which it is annotated", WHAT_A_TABLE_SAYS),
    "many": ('"x"', f"'x' is no member of Mode, and no value of one. {MODES}", "write the name of a member"),
}


def build(folder: Path, tables: str, files: dict[str, str]) -> str:
    """Build the package with these tables, which must fail; return the output."""
    project = copy_project(PACKAGES / "enums", folder / "source")
    text = (project / "pyproject.toml").read_text(encoding="utf-8")
    head = text.partition("[tool.flydsl-build.kernels")[0].replace("torch-ops = true", "")
    if "declared" not in files:
        head = head.replace('kernels-from = "enum_kernels.declared:kernels"', "")
    (project / "pyproject.toml").write_text(head + tables, encoding="utf-8")
    for name, content in files.items():
        (project / "enum_kernels" / f"{name}.py").write_text(content, encoding="utf-8")
    (dist := folder / "dist").mkdir()
    answer = call_hook(project, "build_wheel", dist, ok=False)
    assert answer.status != 0
    assert "Traceback" not in answer.output
    return answer.output


@pytest.fixture(scope="module")
def faults_output(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The output of one build with everything that is wrong."""
    tables = [
        f'[tool.flydsl-build.kernels."enum_kernels.wrong:{name}"]\nparams = {{ it = {value} }}\nargs = {{ X = "f32[L]" }}\n'
        for name, (value, _, _) in FAULTS.items()
    ]
    return build(tmp_path_factory.mktemp("wrong"), "\n".join(tables), {"wrong": WRONG})


@pytest.mark.parametrize("name", FAULTS)
def test_faults(name: str, faults_output: str) -> None:
    _, what, fix = FAULTS[name]
    (text,) = faults_output.split(f'tool.flydsl-build.kernels."enum_kernels.wrong:{name}"')[1:]
    assert f", gfx942: params.it: {what}\n    -> {fix}" in text.partition("tool.flydsl-build")[0]


STRANGERS = """
from enum import Enum, IntEnum
from typing import NamedTuple

from enum_kernels.kinds import SMode


class Tile(NamedTuple):
    rows: int


def kernels():
    class Local(IntEnum):
        ONE = 1

    yield "enum_kernels.modes:build_untold", {"params": {"mode": [SMode.DOUBLE, Local.ONE, Tile(1), {"$enum": "m:A.B"}]}}
"""


def test_objects_that_cannot_be_passed_on(tmp_path: Path) -> None:
    output = build(tmp_path, "", {"declared": STRANGERS})
    where = 'enum_kernels.declared:kernels[0] "enum_kernels.modes:build_untold".params.mode'
    assert f"{where}[1]: found a member of kernels.<locals>.Local, which is not found in its module enum_kernels.declared\n" in output
    assert f"{where}[2]: found a Tile\n" in output
    assert f'{where}[3]: found a key "$enum", which no table has\n' in output
    assert f"{where}[0]" not in output


TWICE = """
from enum import Enum

from enum_kernels.modes import Mode as Other, scaler


class Mode(Enum):
    TRIPLE = 1


def build(mode: Mode, other: Other):
    return scaler(False)
"""


def test_two_enums_of_one_name(tmp_path: Path) -> None:
    tables = (
        '[tool.flydsl-build.kernels."enum_kernels.wrong:build"]\nparams = { mode = "TRIPLE", other = "TRIPLE" }\nargs = { X = "f32[L]" }\n'
    )
    output = build(tmp_path, tables, {"wrong": TWICE})
    assert "enum_kernels.modes:Mode: enum_kernels.wrong:Mode has the name Mode, too, and the stub cannot define both\n" in output
