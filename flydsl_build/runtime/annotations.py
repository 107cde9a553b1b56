# SPDX-License-Identifier: Apache-2.0
"""The names in the annotations of this package, which run-time type checkers and `typing.get_type_hints` evaluate.

Importing typing would cost more than the whole of this package. `object` takes everything, as `Any` does.
Generators are not annotated as iterators: checkers know them by the import from `collections.abc` only.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping
    from typing import Any, Self
else:
    # Every process has it: os imports it, but nothing of `collections`.
    from _collections_abc import Callable, Collection, Iterable, Mapping

    Any = Self = object

__all__ = ["Any", "Callable", "Collection", "Iterable", "Mapping", "Self"]
