# SPDX-License-Identifier: Apache-2.0
"""What is to be compiled: argument types, specializations, and their expansion from the settings."""

from __future__ import annotations

from .argument_grammar import format_argument, parse_argument
from .argument_types import ArgumentType
from .expand import expand
from .specialization import Specialization

__all__ = [
    "ArgumentType",
    "Specialization",
    "expand",
    "format_argument",
    "parse_argument",
]
