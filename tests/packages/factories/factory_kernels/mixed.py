# SPDX-License-Identifier: Apache-2.0
"""Launchers beside plain values, inside of Python functions, in classes; structs and other objects that select a specialization."""

import functools
from dataclasses import dataclass, field
from typing import NamedTuple, Optional

import flydsl.compiler as flyc
import flydsl.expr as fx
from flydsl.compiler.kernel_function import CompilationContext
from flydsl.runtime.device import get_warp_size

LANES = get_warp_size()


@flyc.kernel
def add_kernel(X: fx.Tensor, n: fx.Int32, amount: fx.Constexpr[float]):
    index = fx.block_idx.x * 64 + fx.thread_idx.x
    if index < n:
        X[index] = X[index] + fx.Float32(amount)


def adder(amount):
    @flyc.jit
    def launch_add(X: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
        add_kernel(X, n, amount).launch(grid=((n + 63) // 64, 1, 1), block=(64, 1, 1), stream=stream)

    return launch_add


# --- plain values beside launchers -------------------------------------------------------------------------------------


def build_gemm(block=64):
    """Return a launcher and the sizes of its blocks."""
    return adder(float(block)), block, (block, 2 * block), [1, 2], fx.BFloat16, None, "row", 0.5, True


def build_waves(waves):
    """Return a launcher and the size of its workgroup, which depends on the chip."""
    return adder(waves * 100.0), waves * LANES


class Plan(NamedTuple):
    launch: object
    lanes: int
    name: str


def build_plan():
    return Plan(adder(5.0), LANES, "plan")


class Tiled:
    """A launcher with its tile."""

    def __init__(self, tile):
        self.tile = tile
        self.run = adder(float(tile))


def build_dict():
    return {"launch": adder(6.0), "tile": 6, "kernel": add_kernel}


# --- objects as parameters ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scales:
    first: float = 1.0
    second: float = 2.0


@dataclass(frozen=True)
class Config:
    """How to add."""

    tile: int
    name: str = "plain"
    dtype: type[fx.Numeric] = fx.Float32
    scales: Scales = Scales()
    sizes: tuple = field(default_factory=lambda: (1, 2))


def build_configured(config: Config, other: Optional[Scales] = None):
    return adder(config.tile * 1000.0 + config.scales.first + sum(config.sizes))


@fx.struct
class Tile:
    rows: fx.Constexpr[int]
    wide: fx.Constexpr[bool]


@fx.struct
class Blend:
    factor: fx.Float32
    tile: Tile
    steps: fx.Constexpr[int]


@flyc.kernel
def blend_kernel(X: fx.Tensor, n: fx.Int32, blend: Blend):
    index = fx.block_idx.x * 64 + fx.thread_idx.x
    if index < n:
        X[index] = X[index] * blend.factor + fx.Float32(float(blend.steps * 100 + blend.tile.rows))


@flyc.jit
def blend(X: fx.Tensor, n: fx.Int32, blend: Blend, stream: fx.Stream = fx.Stream(None)):
    """Scale X, and add what is constant."""
    blend_kernel(X, n, blend).launch(grid=((n + 63) // 64, 1, 1), block=(64, 1, 1), stream=stream)


@flyc.jit
def tiled(X: fx.Tensor, n: fx.Int32, tile: Tile, stream: fx.Stream = fx.Stream(None)):
    """Add a constant of the tile."""
    add_kernel(X, n, float(tile.rows) + (0.5 if tile.wide else 0.0)).launch(grid=((n + 63) // 64, 1, 1), block=(64, 1, 1), stream=stream)


# --- launchers inside of Python functions ------------------------------------------------------------------------------


def build_wrapped(amount):
    """Return a function that fills in a default."""
    launch_add = adder(amount)

    def launch(X, n=64, *, stream=None):
        with CompilationContext.compile_hints({"waves_per_eu": 2}):
            return launch_add(X, n, fx.Stream(stream))

    return launch


def build_chosen(amount):
    """Return a function that chooses, and a value."""
    small, large = build_wrapped(amount), build_wrapped(amount * 2)

    @functools.wraps(small)
    def choose(X, n):
        return small(X, n) if n < 1000 else large(X, n)

    return choose, 7


negate = adder(-1.0)


def negated(X, n):
    """Call a launcher of the module."""
    return negate(X, n)


# --- launchers in classes ----------------------------------------------------------------------------------------------


class Gemm:
    """A namespace."""

    run = staticmethod(adder(11.0))

    class Inner:
        run = staticmethod(adder(12.0))

    @staticmethod
    def build(amount):
        """Return a launcher that adds an amount."""
        return adder(amount)
