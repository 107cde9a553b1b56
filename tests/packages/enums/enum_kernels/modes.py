# SPDX-License-Identifier: Apache-2.0
"""Factories and launchers that ask for the identity of an enum's member: a workgroup of two or three wavefronts is what they make of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Literal, NewType, Optional

import flydsl.compiler as flyc
import flydsl.expr as fx

from enum_kernels.kinds import Access, Level, SMode

if TYPE_CHECKING:
    from collections.abc import Sequence

Width = NewType("Width", int)


class Mode(Enum):
    """How much."""

    DOUBLE = 1
    TRIPLE = 2
    TWICE = 1
    MADE = object()


@flyc.kernel
def scale_kernel(X: fx.Tensor, n: fx.Int32, factor: fx.Constexpr[float]):
    index = fx.thread_idx.x
    if index < n:
        X[index] = X[index] * fx.Float32(factor)


def scaler(is_triple):
    waves = 3 if is_triple else 2

    @flyc.jit
    def launch(X: fx.Tensor, n: fx.Int32, stream: fx.Stream = fx.Stream(None)):
        """Scale X in place."""
        scale_kernel(X, n, float(waves)).launch(grid=(1, 1, 1), block=(waves * 64, 1, 1), stream=stream)

    return launch


def build(mode: Mode = Mode.DOUBLE):
    """Return a launcher that scales."""
    return scaler(mode is Mode.TRIPLE)


def build_text(mode: SMode):
    return scaler(mode is SMode.TRIPLE)


def build_default(mode=SMode.DOUBLE):
    return scaler(mode is SMode.TRIPLE)


def build_later(mode: Annotated[Optional["Mode"], "later"] = None, modes: Sequence[SMode] = ()):
    assert modes == (SMode.DOUBLE, SMode.TRIPLE) and modes[1] is SMode.TRIPLE
    return scaler(mode is Mode.TRIPLE)


def build_level(level: Level = Level.LOW):
    return scaler(level is Level.HIGH)


def build_access(access: Access):
    return scaler(access is Access.READ | Access.WRITE)


@dataclass(frozen=True)
class Config:
    mode: Mode = Mode.TRIPLE
    sizes: list[int] = ()


def build_configured(config: Config = Config()):
    assert config.mode is Mode.TRIPLE or config.sizes == [1]
    return scaler(config.mode is Mode.TRIPLE)


def build_side(side: Literal["left", "right"], width: Width | None = None, scale: Literal[Mode.TRIPLE] | float = 1.0):
    return scaler(scale is Mode.TRIPLE), side, scale


def build_typed(dtype: Optional[type[fx.Numeric]] = None):
    return scaler(dtype is fx.BFloat16)


def build_untold(mode):
    return scaler(mode is Mode.TRIPLE)


@flyc.jit
def scale(X: fx.Tensor, n: fx.Int32, mode: fx.Constexpr = Mode.DOUBLE, stream: fx.Stream = fx.Stream(None)):
    """Scale X."""
    waves = 3 if mode is Mode.TRIPLE else 2
    scale_kernel(X, n, float(waves)).launch(grid=(1, 1, 1), block=(waves * 64, 1, 1), stream=stream)


@flyc.jit
def once(X: fx.Tensor, n: fx.Int32, mode: fx.Constexpr = Mode.DOUBLE, stream: fx.Stream = fx.Stream(None)):
    waves = 3 if mode is Mode.TRIPLE else 2
    scale_kernel(X, n, float(waves)).launch(grid=(1, 1, 1), block=(waves * 64, 1, 1), stream=stream)
