# SPDX-License-Identifier: Apache-2.0
"""Find tables of externs that no kernel calls: what they say of bitcode and init functions would have no effect."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from flydsl_build.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flydsl_build.config.settings import ExternTable

__all__ = ["unused_externs"]

_SHOWN = 5


def unused_externs(tables: Sequence[ExternTable], symbols: Iterable[str]) -> list[Fault]:
    """Return a fault for each table that no symbol gets.

    Parameters
    ----------
    tables
        In the project's order: the first that fits a symbol is the one that it gets.
    symbols
        The extern functions that kernels call.
    """
    called = list(dict.fromkeys(symbols))
    faults = []
    used = {symbol: next((table.where for table in tables if table.fits(symbol)), "") for symbol in called}
    for table in tables:
        fitting = [symbol for symbol in called if table.fits(symbol)]
        if table.where in used.values():
            continue
        if fitting:
            what, fix = f"{used[fitting[0]]} stands before it and is for {fitting[0]} too", "put the narrower table first"
        else:
            near = difflib.get_close_matches(table.symbol, called, n=1)
            names = ", ".join(called[:_SHOWN]) + (f" and {len(called) - _SHOWN} more" if len(called) > _SHOWN else "")
            fix = f'Did you mean "{near[0]}"?' if near else f"kernels call {names}" if called else "no kernel calls one: remove the table"
            what = f"no kernel calls an extern function {table.symbol}"
        faults.append(Fault(where=table.where, what=what, fix=fix))
    return faults
