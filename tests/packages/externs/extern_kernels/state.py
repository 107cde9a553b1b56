# SPDX-License-Identifier: Apache-2.0
"""Init functions that do what a test has ordered."""

import struct
from collections.abc import Callable

calls: list[tuple[str, int]] = []
orders: dict[str, list[Callable[[int], object]]] = {}


def _obey(name: str, module: int, values: tuple[float, ...]) -> object:
    calls.append((name, module))
    if orders.get(name):
        return orders[name].pop(0)(module)
    from extern_kernels._flydsl.runtime import write_global

    write_global(module, f"{name}_state", struct.pack(f"<{len(values)}f", *values))
    return None


def first(module: int) -> object:
    return _obey("first", module, (2.0,))


def second(module: int) -> object:
    return _obey("second", module, (10.0, 20.0, 30.0))
