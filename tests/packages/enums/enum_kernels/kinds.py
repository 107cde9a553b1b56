# SPDX-License-Identifier: Apache-2.0
"""Enums of a module that has no kernels, and is in the wheel as it is."""

from enum import Enum, Flag, IntEnum


class SMode(str, Enum):
    DOUBLE = "double"
    TRIPLE = "triple"


class Level(IntEnum):
    LOW = 2
    HIGH = 3


class Access(Flag):
    READ = 1
    WRITE = 2
    RUN = 4
