# SPDX-License-Identifier: Apache-2.0
"""The table of gfx processors, and the names that are refused."""

from __future__ import annotations

import pytest

from flydsl_build.errors import ConfigError
from flydsl_build.targets.processors import GENERIC_TARGETS, TARGETS, parse_target, target_of_machine

KNOWN = "Known: " + ", ".join(TARGETS) + "."

# What lld wrote into code objects that the LLVM inside FlyDSL 0.5.0 compiled.
SEEN_E_FLAGS = {
    "gfx90a": 0x53F,
    "gfx90c": 0x132,
    "gfx942": 0x54C,
    "gfx950": 0x54F,
    "gfx1010": 0x133,
    "gfx1011": 0x134,
    "gfx1012": 0x135,
    "gfx1013": 0x142,
    "gfx1030": 0x36,
    "gfx1031": 0x37,
    "gfx1032": 0x38,
    "gfx1033": 0x39,
    "gfx1034": 0x3E,
    "gfx1035": 0x3D,
    "gfx1036": 0x45,
    "gfx1100": 0x41,
    "gfx1101": 0x46,
    "gfx1102": 0x47,
    "gfx1103": 0x44,
    "gfx1150": 0x43,
    "gfx1151": 0x4A,
    "gfx1152": 0x55,
    "gfx1153": 0x58,
    "gfx1154": 0x57,
    "gfx1170": 0x5D,
    "gfx1171": 0x5E,
    "gfx1172": 0x5C,
    "gfx1200": 0x48,
    "gfx1201": 0x4E,
    "gfx1250": 0x449,
    "gfx1251": 0x45A,
    "gfx9-4-generic": 0x0100055F,
    "gfx10-3-generic": 0x01000053,
    "gfx11-generic": 0x01000054,
    "gfx12-generic": 0x01000059,
}


def test_e_flags() -> None:
    assert {name: target.e_flags for name, target in TARGETS.items()} == SEEN_E_FLAGS


def test_machines_are_unique() -> None:
    assert [target_of_machine(target.e_flags) for target in TARGETS.values()] == list(TARGETS.values())
    assert target_of_machine(0) is None


def test_wavefronts_and_lds() -> None:
    for name, target in TARGETS.items():
        assert target.wavefront_size == (64 if name.startswith("gfx9") else 32)
    assert {name: target.lds_limit for name, target in TARGETS.items() if target.lds_limit != 65536} == {
        "gfx950": 163840,
        "gfx1250": 327680,
        "gfx1251": 327680,
    }


def test_generic_targets() -> None:
    assert {name: TARGETS[name].chip for name in GENERIC_TARGETS} == {
        "gfx9-4-generic": "gfx942",
        "gfx10-3-generic": "gfx1030",
        "gfx11-generic": "gfx1100",
        "gfx12-generic": "gfx1201",
    }
    for name in GENERIC_TARGETS:
        generic = TARGETS[name]
        assert generic.is_generic
        assert set(generic.members) == {target.name for target in TARGETS.values() if target.generic == name}
        members = [TARGETS[member] for member in generic.members]
        assert generic.lds_limit == min(member.lds_limit for member in members)
        assert generic.vgpr_total == min(member.vgpr_total for member in members)
    assert TARGETS["gfx942"].chip == "gfx942"
    assert not TARGETS["gfx942"].is_generic


@pytest.mark.parametrize(
    ("name", "vgprs", "waves"),
    [
        ("gfx942", 0, 8),
        ("gfx942", 64, 8),
        ("gfx942", 65, 7),
        ("gfx942", 512, 1),
        ("gfx1010", 1, 20),
        ("gfx1030", 144, 7),
        ("gfx1030", 145, 6),
        ("gfx1100", 96, 16),
        ("gfx1100", 216, 7),
        ("gfx1100", 217, 6),
        ("gfx1250", 1024, 1),
    ],
)
def test_occupancy(name: str, vgprs: int, waves: int) -> None:
    assert TARGETS[name].occupancy(vgprs) == waves


@pytest.mark.parametrize(
    ("name", "vgprs", "sgprs", "lds", "workgroup", "waves"),
    [
        # The `; Occupancy:` comment of llc 19 for kernels with these numbers in their metadata.
        ("gfx90a", 61, 100, 4, 1024, 8),
        ("gfx90c", 11, 15, 20000, 64, 1),
        ("gfx942", 11, 17, 20000, 192, 3),
        ("gfx942", 128, 107, 8192, 64, 2),
        ("gfx942", 11, 17, 65536, 64, 1),
        ("gfx1010", 11, 11, 20000, 192, 9),
        ("gfx1030", 11, 11, 40000, 256, 6),
        ("gfx1100", 128, 101, 4, 192, 10),
        ("gfx1100", 11, 11, 65536, 32, 1),
        ("gfx1103", 61, 96, 8192, 64, 8),
        ("gfx1201", 11, 11, 20000, 1024, 16),
        # More registers or LDS than there are: one wavefront, as LLVM says.
        ("gfx942", 600, 0, 0, 0, 1),
        ("gfx942", 8, 0, 1 << 20, 64, 1),
    ],
)
def test_occupancy_of_workgroups(name: str, vgprs: int, sgprs: int, lds: int, workgroup: int, waves: int) -> None:
    assert TARGETS[name].occupancy(vgprs, sgprs=sgprs, lds=lds, workgroup=workgroup) == waves


def test_parse() -> None:
    assert [parse_target(name, "K").name for name in TARGETS] == list(TARGETS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"K: an architecture name is empty\n    -> {KNOWN}"),
        ("  ", f"K: an architecture name is empty\n    -> {KNOWN}"),
        ("gfx 942", 'K: "gfx 942" is not an architecture name: it has blanks\n    -> write "gfx942"'),
        (" gfx942", 'K: " gfx942" is not an architecture name: it has blanks\n    -> write "gfx942"'),
        ("GFX942", 'K: "GFX942" is not an architecture name: these are lower case\n    -> write "gfx942"'),
        ("gfx9999", f'K: unknown architecture "gfx9999"\n    -> {KNOWN}'),
        ("gfx1199", f'K: unknown architecture "gfx1199"\n    -> {KNOWN}'),
        ("gfx943", f'K: unknown architecture "gfx943"\n    -> Did you mean "gfx942"? {KNOWN}'),
        ("gfx11000", f'K: unknown architecture "gfx11000"\n    -> Did you mean "gfx1100"? {KNOWN}'),
        (
            "gfx110",
            'K: unknown architecture "gfx110"\n    -> Targets that begin so: gfx1100, gfx1101, gfx1102, gfx1103.',
        ),
        (
            "GFX12",
            'K: unknown architecture "GFX12"\n    -> Targets that begin so: gfx1200, gfx1201, gfx1250, gfx1251, gfx12-generic.',
        ),
        ("gfx110:xnack+", 'K: unknown architecture "gfx110:xnack+"\n    -> Targets that begin so: gfx1100, gfx1101, gfx1102, gfx1103.'),
        ("gfx94", f'K: unknown architecture "gfx94"\n    -> Did you mean "gfx942"? {KNOWN}'),
        ("gfx", f'K: unknown architecture "gfx"\n    -> {KNOWN}'),
        ("942", f'K: unknown architecture "942"\n    -> Did you mean "gfx942"? {KNOWN}'),
        ("mi400", f'K: "mi400" is neither a gfx target nor a known product\n    -> {KNOWN}'),
        ("MI999", f'K: "MI999" is neither a gfx target nor a known product\n    -> {KNOWN}'),
        ("mi 999", f'K: "mi 999" is neither a gfx target nor a known product\n    -> {KNOWN}'),
        ("GFX9999", f'K: unknown architecture "GFX9999"\n    -> {KNOWN}'),
        ("GFX 942", 'K: "GFX 942" is not an architecture name: it has blanks\n    -> write "gfx942"'),
        ("GFX943", f'K: unknown architecture "GFX943"\n    -> Did you mean "gfx942"? {KNOWN}'),
        ("GFX908", f'K: "GFX908" is older than gfx90a, the oldest processor supported\n    -> {KNOWN}'),
        ("GFX940", 'K: "GFX940" was a pre-production chip and is no longer in LLVM\n    -> write "gfx942"'),
        (
            "MI100",
            (
                'K: "MI100" is the name of a product, whose architecture is gfx908, which is older than gfx90a, the oldest processor '
                f"supported\n    -> {KNOWN}"
            ),
        ),
        ("sm_90", f'K: "sm_90": NVIDIA targets are not supported; FlyDSL compiles for AMD gfx processors\n    -> {KNOWN}'),
        (
            "gfx942:xnack+",
            (
                'K: "gfx942:xnack+": feature suffixes are not supported at build: FlyDSL\'s LLVM ignores ":xnack+" and leaves the feature '
                '"any", so one code object serves all settings\n    -> write "gfx942"'
            ),
        ),
        ("gfx9999:xnack+", f'K: unknown architecture "gfx9999:xnack+"\n    -> {KNOWN}'),
        (
            "native",
            f'K: "native" is not an architecture name: the build machine is not probed and there is no default list\n    -> {KNOWN}',
        ),
        ("gfx940", 'K: "gfx940" was a pre-production chip and is no longer in LLVM\n    -> write "gfx942"'),
        ("gfx908", f'K: "gfx908" is older than gfx90a, the oldest processor supported\n    -> {KNOWN}'),
        (
            "gfx1310",
            f'K: "gfx1310" is not supported: FlyDSL takes its wavefront for 64 lanes, LLVM compiles it with 32\n    -> {KNOWN}',
        ),
        (
            "gfx12-5-generic",
            (
                'K: "gfx12-5-generic" is not one of the supported generic targets\n'
                "    -> Supported: gfx9-4-generic, gfx10-3-generic, gfx11-generic, gfx12-generic."
            ),
        ),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_target(text, "K")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "chip"),
    [
        ("MI300X", "gfx942"),
        ("mi300", "gfx942"),
        ("AMD Instinct MI250X", "gfx90a"),
        ("MI355X", "gfx950"),
        ("Radeon RX 7900 XTX", "gfx1100"),
        ("RX7900XTX", "gfx1100"),
        ("7900-xtx", "gfx1100"),
        ("Radeon PRO W7900 Dual Slot", "gfx1100"),
        ("W6800", "gfx1030"),
        ("AMD Radeon™ RX 6700 XT", "gfx1031"),
        ("RX 7600", "gfx1102"),
        ("RX 9070 XT", "gfx1201"),
        ("Radeon AI PRO R9700", "gfx1201"),
        ("Ryzen AI Max+ PRO 395", "gfx1151"),
        ("Strix Halo", "gfx1151"),
        ("AMD Ryzen AI 9 HX 370", "gfx1150"),
        ("Radeon 780M Graphics", "gfx1103"),
    ],
)
def test_products(text: str, chip: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_target(text, "K")
    assert str(caught.value) == f'K: "{text}" is the name of a product, whose architecture is {chip}\n    -> write "{chip}"'


def test_a_product_has_one_architecture() -> None:
    products = [product for target in TARGETS.values() for product in target.products]
    for product in products:
        assert products.count(product) == 1
        with pytest.raises(ConfigError, match="is the name of a product, whose architecture is gfx"):
            parse_target(product, "K")
