# SPDX-License-Identifier: Apache-2.0
"""The gfx processors that kernels can be built for.

The table holds what LLVM's AMDGPU back end knows of each processor from gfx90a up: machine numbers from
https://llvm.org/docs/AMDGPUUsage.html#amdgpu-ef-amdgpu-mach-table, target features from its processor table. Every row
was compared with the ELF header, the LDS limit and the register allocation that the LLVM inside FlyDSL 0.5.0 yields.
Products are those of https://rocm.docs.amd.com/en/latest/reference/gpu-specs.html and of LLVM's table.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from flydsl_build.errors import ConfigError, Fault

__all__ = [
    "GENERIC_TARGETS",
    "TARGETS",
    "Target",
    "parse_target",
    "target_of_machine",
]

_KIB = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """One gfx processor, or a generic target that several of them run.

    Parameters
    ----------
    name
        What LLVM, HIP and the author call it, e.g. `gfx942` or `gfx9-4-generic`.
    machine
        `EF_AMDGPU_MACH`, bits 0 to 7 of a code object's `e_flags`.
    wavefront_size
        Lanes of a wavefront as FlyDSL compiles for this target.
    lds_limit
        Bytes of LDS that one workgroup can have.
    xnack, sramecc
        Whether the processor has the feature; a code object then leaves it "any".
    vgpr_total
        32-bit vector registers of one lane position in a SIMD, shared by its wavefronts (AGPRs included where unified).
    vgpr_granule
        Registers are given to a wavefront in multiples of this.
    vgpr_addressable
        The most registers one wavefront can use.
    max_waves
        The most wavefronts one SIMD holds.
    generic
        The generic target whose code objects run on this processor, if any.
    members
        For a generic target: the processors that run it.
    representative
        For a generic target: the member that FlyDSL is told to compile for (its own passes know no generic names).
    generic_version
        For a generic target: bits 24 to 31 of `e_flags`.
    products
        What the chip is sold as, without AMD's names of product lines.
    """

    name: str
    machine: int
    wavefront_size: int
    lds_limit: int
    xnack: bool
    sramecc: bool
    vgpr_total: int
    vgpr_granule: int
    vgpr_addressable: int
    max_waves: int
    generic: str | None = None
    members: tuple[str, ...] = ()
    representative: str | None = None
    generic_version: int = 0
    products: tuple[str, ...] = ()

    @property
    def instead(self) -> str:
        """What to declare instead of a generic target."""
        chips = ", ".join(f'"{name}"' for name in self.members)
        return f"leave {self.name} out, and declare the chips that it is to run on: archs = [{chips}]"

    @property
    def is_generic(self) -> bool:
        """Whether this is a generic target."""
        return bool(self.members)

    @property
    def chip(self) -> str:
        """The concrete processor that FlyDSL compiles for."""
        return self.representative or self.name

    @property
    def e_flags(self) -> int:
        """The `e_flags` of a code object for this target: code object version 6, all target features "any"."""
        return self.machine | (int(self.xnack) << 8) | (int(self.sramecc) << 10) | (self.generic_version << 24)

    @property
    def sgpr_limit(self) -> int:
        """The most scalar registers that metadata can count: VCC and, before gfx10, FLAT_SCRATCH and XNACK are among them.

        `getAddressableNumSGPRs` and `getNumExtraSGPRs` of LLVM's AMDGPUBaseInfo.cpp: 102 + 6 before gfx10, 106 + 2 from there on.
        """
        return 108

    def occupancy(self, vgprs: int, *, sgprs: int = 0, lds: int = 0, workgroup: int = 0) -> int:
        """Return how many wavefronts a SIMD can hold at once.

        Parameters
        ----------
        vgprs
            Vector registers of each wavefront (AGPRs included, as `.vgpr_count` does from gfx90a on).
        sgprs
            Scalar registers; they bound the number before gfx10 only.
        lds
            Bytes of LDS of each workgroup.
        workgroup
            Work items of a workgroup; 0 leaves LDS and the number of workgroups out of account.

        The rules are LLVM's, whose `; Occupancy:` comment in the ISA has the same number: `GCNSubtarget::computeOccupancy`,
        `AMDGPUSubtarget::getOccupancyWithWorkGroupSizes` and `IsaInfo::getMaxWorkGroupsPerCU`. From gfx10 on kernels run in WGP mode, in
        which four SIMDs share twice the LDS of one compute unit; gfx125x has no such mode.
        """
        granted = -(-max(vgprs, 1) // self.vgpr_granule) * self.vgpr_granule
        waves = min(self.max_waves, max(self.vgpr_total // granted, 1))
        if not self._is_gfx10_or_later:
            waves = min(waves, next(most for bound, most in _WAVES_BY_SGPRS if sgprs <= bound))
        return min(waves, self._occupancy_of_workgroups(lds, workgroup)) if workgroup else waves

    @property
    def _is_gfx10_or_later(self) -> bool:
        return not self.name.startswith("gfx9")

    @property
    def _in_wgp_mode(self) -> bool:
        return self._is_gfx10_or_later and not self.name.startswith("gfx125")

    def _occupancy_of_workgroups(self, lds: int, workgroup: int) -> int:
        each = -(-workgroup // self.wavefront_size)
        most = self.max_waves * _SIMDS
        # Workgroups of one wavefront take no barrier.
        groups = most if each == 1 else min(most // each, _BARRIERS * (1 + self._in_wgp_mode))
        groups = min(groups, self.lds_limit * (1 + self._in_wgp_mode) // max(lds, 1))
        return max(1, min(self.max_waves, -(-each * groups // _SIMDS)))


_SIMDS = 4
_BARRIERS = 16
# GCNSubtarget::getOccupancyWithNumSGPRs: scalar registers, and the most wavefronts with so many of them.
_WAVES_BY_SGPRS = ((80, 10), (88, 9), (100, 8), (1 << 30, 7))


@dataclass(frozen=True, kw_only=True, slots=True)
class _Family:
    """What the processors of one family have in common."""

    wavefront_size: int
    vgpr_total: int
    vgpr_granule: int
    max_waves: int
    vgpr_addressable: int = 256
    lds_limit: int = 64 * _KIB
    xnack: bool = False
    sramecc: bool = False
    generic: str | None = None

    def target(self, name: str, machine: int, products: str = "", *, lds_limit: int = 0, members: tuple[str, ...] = ()) -> Target:
        """Return the row of one processor, or of a generic target if it has members (the first one represents it).

        Parameters
        ----------
        products
            Separated by commas.
        """
        return Target(
            name=name,
            machine=machine,
            wavefront_size=self.wavefront_size,
            lds_limit=lds_limit or self.lds_limit,
            xnack=self.xnack,
            sramecc=self.sramecc,
            vgpr_total=self.vgpr_total,
            vgpr_granule=self.vgpr_granule,
            vgpr_addressable=self.vgpr_addressable,
            max_waves=self.max_waves,
            generic=None if members else self.generic,
            members=members,
            representative=members[0] if members else None,
            generic_version=1 if members else 0,
            products=tuple(products.split(", ")) if products else (),
        )


_VEGA_APU = _Family(wavefront_size=64, vgpr_total=256, vgpr_granule=4, max_waves=10, xnack=True)
# From gfx90a on VGPRs and AGPRs are one file of 512, of which a wavefront can use all.
_CDNA2 = _Family(wavefront_size=64, vgpr_total=512, vgpr_granule=8, max_waves=8, vgpr_addressable=512, xnack=True, sramecc=True)
_CDNA3 = _Family(
    wavefront_size=64,
    vgpr_total=512,
    vgpr_granule=8,
    max_waves=8,
    vgpr_addressable=512,
    xnack=True,
    sramecc=True,
    generic="gfx9-4-generic",
)
_RDNA1 = _Family(wavefront_size=32, vgpr_total=1024, vgpr_granule=8, max_waves=20, xnack=True)
_RDNA2 = _Family(wavefront_size=32, vgpr_total=1024, vgpr_granule=16, max_waves=16, generic="gfx10-3-generic")
_RDNA3 = _Family(wavefront_size=32, vgpr_total=1024, vgpr_granule=16, max_waves=16, generic="gfx11-generic")
# The larger RDNA3 and RDNA3.5 chips have half as many vector registers again.
_RDNA3_LARGE = _Family(wavefront_size=32, vgpr_total=1536, vgpr_granule=24, max_waves=16, generic="gfx11-generic")
# gfx1154 and gfx117x are not among the processors that HIP runs gfx11-generic on.
_RDNA3_ALONE = _Family(wavefront_size=32, vgpr_total=1024, vgpr_granule=16, max_waves=16)
_RDNA4 = _Family(wavefront_size=32, vgpr_total=1536, vgpr_granule=24, max_waves=16, generic="gfx12-generic")
_GFX125 = _Family(
    wavefront_size=32,
    vgpr_total=1024,
    vgpr_granule=16,
    max_waves=16,
    vgpr_addressable=1024,
    lds_limit=320 * _KIB,
    sramecc=True,
)

_ROWS = (
    _CDNA2.target("gfx90a", 0x3F, "MI200, MI210, MI250, MI250X"),
    _VEGA_APU.target("gfx90c", 0x32),
    _CDNA3.target("gfx942", 0x4C, "MI300, MI300A, MI300X, MI308X, MI325X"),
    _CDNA3.target("gfx950", 0x4F, "MI350, MI350P, MI350X, MI355X", lds_limit=160 * _KIB),
    _RDNA1.target("gfx1010", 0x33, "RX 5600 XT, RX 5700, RX 5700 XT, W5700"),
    _RDNA1.target("gfx1011", 0x34, "V520"),
    _RDNA1.target("gfx1012", 0x35, "RX 5300, RX 5500, RX 5500 XT, W5500"),
    _RDNA1.target("gfx1013", 0x42),
    _RDNA2.target("gfx1030", 0x36, "RX 6800, RX 6800 XT, RX 6900 XT, RX 6950 XT, V620, W6800"),
    _RDNA2.target("gfx1031", 0x37, "RX 6700, RX 6700 XT, RX 6750 XT"),
    _RDNA2.target("gfx1032", 0x38, "RX 6600, RX 6600 XT, RX 6650 XT, W6600"),
    _RDNA2.target("gfx1033", 0x39, "Steam Deck"),
    _RDNA2.target("gfx1034", 0x3E, "RX 6300, RX 6400, RX 6500 XT, W6300, W6400"),
    _RDNA2.target("gfx1035", 0x3D, "660M, 680M"),
    _RDNA2.target("gfx1036", 0x45),
    _RDNA3_LARGE.target("gfx1100", 0x41, "RX 7900 GRE, RX 7900 XT, RX 7900 XTX, RX 7900M, W7800, W7800 48GB, W7900, W7900 Dual Slot"),
    _RDNA3_LARGE.target("gfx1101", 0x46, "RX 7700, RX 7700 XT, RX 7800 XT, RX 7800M, V710, W7700"),
    _RDNA3.target("gfx1102", 0x47, "RX 7600, RX 7600 XT, RX 7600M, RX 7600M XT, RX 7600S, RX 7700S, W7500, W7600"),
    _RDNA3.target("gfx1103", 0x44, "760M, 780M, 7 7840HS, 7 7840U, 7 8700G, 7 8840U, 9 270, 9 7940HS, 9 8945HS, Hawk Point, Phoenix"),
    _RDNA3.target("gfx1150", 0x43, "880M, 890M, 9 365, 9 HX 370, 9 HX 375, Strix Point"),
    _RDNA3_LARGE.target("gfx1151", 0x4A, "8050S, 8060S, Max 385, Max 390, Max 395, Strix Halo"),
    _RDNA3.target("gfx1152", 0x55, "840M, 860M, 5 340, 7 350, Krackan Point"),
    _RDNA3.target("gfx1153", 0x58),
    _RDNA3_ALONE.target("gfx1154", 0x57),
    _RDNA3_ALONE.target("gfx1170", 0x5D),
    _RDNA3_ALONE.target("gfx1171", 0x5E),
    _RDNA3_ALONE.target("gfx1172", 0x5C),
    _RDNA4.target("gfx1200", 0x48, "RX 9050, RX 9060, RX 9060 XT, RX 9060 XT LP"),
    _RDNA4.target("gfx1201", 0x4E, "R9600D, R9700, RX 9070, RX 9070 GRE, RX 9070 XT"),
    _GFX125.target("gfx1250", 0x49),
    _GFX125.target("gfx1251", 0x5A),
    # A generic target has the smallest limits of its members. The first member represents it in FlyDSL's own passes.
    _CDNA3.target("gfx9-4-generic", 0x5F, members=("gfx942", "gfx950")),
    _RDNA2.target("gfx10-3-generic", 0x53, members=("gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036")),
    _RDNA3.target(
        "gfx11-generic",
        0x54,
        members=("gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153"),
    ),
    # gfx1201 comes first because it is the one FlyDSL's own tests compile for.
    _RDNA4.target("gfx12-generic", 0x59, members=("gfx1201", "gfx1200")),
)

TARGETS: dict[str, Target] = {row.name: row for row in _ROWS}
"""Every target by name, oldest first, generic targets last."""

GENERIC_TARGETS: tuple[str, ...] = tuple(row.name for row in _ROWS if row.is_generic)
"""The names of the generic targets."""

_BY_MACHINE = {row.machine: row for row in _ROWS}

# AMD's names of product lines, and what people leave out of a product's name.
_LINES = re.compile(r"amd|instinct|radeon|ryzen|graphics|pro|ai|rx|\(tm\)|[\s_+™®-]")
_OLDER_PRODUCTS = {"mi25": "gfx900", "mi50": "gfx906", "mi60": "gfx906", "mi100": "gfx908", "vii": "gfx906"}


def _product(text: str) -> str:
    return _LINES.sub("", text.lower())


_BY_PRODUCT = {**_OLDER_PRODUCTS, **{_product(product): row.name for row in _ROWS for product in row.products}}

_OLDEST = "gfx90a, the oldest processor supported"
_NVIDIA = re.compile(r"(sm|compute)_?[0-9]+[a-z]?")
_OLDER = re.compile(r"gfx([678][0-9]{2}|90[0-9])")
_OTHER_GENERIC = re.compile(r"gfx[0-9]+(-[0-9]+)?-generic")


def target_of_machine(e_flags: int) -> Target | None:
    """Return the target that the `EF_AMDGPU_MACH` bits of `e_flags` name, or None for one that is not in the table."""
    return _BY_MACHINE.get(e_flags & 0xFF)


def parse_target(text: str, where: str) -> Target:
    """Return the target that `text` names.

    Parameters
    ----------
    text
        A name of the table, written exactly so.
    where
        The place of `text`, for the error.

    Raises
    ------
    ConfigError
        One fault that says why `text` is not a target one can build for.
    """
    found = TARGETS.get(text)
    if found is not None:
        return found
    what, fix = _why_not(text)
    raise ConfigError(Fault(where=where, what=what, fix=fix))


def _why_not(text: str) -> tuple[str, str]:  # noqa: C901, PLR0911 - one reason after the other
    """Return what is wrong with an architecture name, and what to write instead."""
    known = "Known: " + ", ".join(TARGETS) + "."
    if not text.strip():
        return "an architecture name is empty", known
    chip = _BY_PRODUCT.get(_product(text))
    if chip is not None:
        what = f'"{text}" is the name of a product, whose architecture is {chip}'
        return (what, f'write "{chip}"') if chip in TARGETS else (f"{what}, which is older than {_OLDEST}", known)
    plain = "".join(text.split()).lower()
    if plain in TARGETS:
        reason = "these are lower case" if plain == text.lower() else "it has blanks"
        return f'"{text}" is not an architecture name: {reason}', f'write "{plain}"'
    chip, colon, suffix = plain.partition(":")
    if colon and chip in TARGETS:
        reason = f'FlyDSL\'s LLVM ignores ":{suffix}" and leaves the feature "any", so one code object serves all settings'
        return f'"{text}": feature suffixes are not supported at build: {reason}', f'write "{chip}"'
    if _NVIDIA.fullmatch(chip):
        return f'"{text}": NVIDIA targets are not supported; FlyDSL compiles for AMD gfx processors', known
    if plain in {"native", "auto", "all"}:
        return f'"{text}" is not an architecture name: the build machine is not probed and there is no default list', known
    if plain in {"gfx940", "gfx941"}:
        return f'"{text}" was a pre-production chip and is no longer in LLVM', 'write "gfx942"'
    if plain == "gfx1310":
        # flydsl.runtime.device.get_warp_size says 64 for it, LLVM 32: a kernel's lane arithmetic would be wrong, without a word.
        return '"gfx1310" is not supported: FlyDSL takes its wavefront for 64 lanes, LLVM compiles it with 32', known
    if _OLDER.fullmatch(plain):
        return f'"{text}" is older than {_OLDEST}', known
    if _OTHER_GENERIC.fullmatch(plain):
        return f'"{text}" is not one of the supported generic targets', "Supported: " + ", ".join(GENERIC_TARGETS) + "."
    begun = [name for name in TARGETS if name.startswith(chip)] if chip.startswith("gfx") and chip != "gfx" else []
    if len(begun) > 1:
        return f'unknown architecture "{text}"', "Targets that begin so: " + ", ".join(begun) + "."
    # One character more, less or other: names that have more in common are other processors.
    near = begun or [name for name in TARGETS if name == f"gfx{chip}"] or difflib.get_close_matches(chip, TARGETS, n=1, cutoff=0.8)
    what = f'unknown architecture "{text}"' if near or chip.startswith("gfx") else f'"{text}" is neither a gfx target nor a known product'
    return what, (f'Did you mean "{near[0]}"? ' if near else "") + known
