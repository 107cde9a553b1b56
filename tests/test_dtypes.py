# SPDX-License-Identifier: Apache-2.0
"""The run time's tables of dtypes are made from that of flydsl_build.

`python tests/test_dtypes.py` writes them anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from flydsl_build.dtypes import DTYPE_TABLE

ROOT = Path(__file__).resolve().parents[1]
_MADE = "Made from flydsl_build/dtypes.py by tests/test_dtypes.py."


def render_python() -> str:
    """Return the table of the run time."""
    lines = ["# SPDX-License-Identifier: Apache-2.0", f'"""The element types. {_MADE}"""', "", "from __future__ import annotations"]
    lines += ["", '__all__ = ["DTYPES", "FRAMEWORK_NAMES", "KEPT_IN_BYTES", "TYPE_NAMES"]', "", "DTYPES = {"]
    lines += [f'    "{dtype.name}": {dtype.code} << 8 | {dtype.bits},' for dtype in DTYPE_TABLE]
    lines += ["}", '"""DLPack\'s type code << 8 | bits."""', "", "FRAMEWORK_NAMES = {"]
    lines += [f'    "{dtype.framework}": "{dtype.name}",' for dtype in DTYPE_TABLE if dtype.framework]
    lines += ["}", '"""The dtype by the name that torch and numpy have for it."""', "", "TYPE_NAMES = {"]
    lines += [f'    "{dtype.flydsl}": "{dtype.name}",' for dtype in DTYPE_TABLE if dtype.flydsl]
    lines += ["}", '"""FlyDSL\'s types, which the process may have or not, by class name."""', "", "KEPT_IN_BYTES = {"]
    lines += [f'    "{dtype.name}",' for dtype in DTYPE_TABLE if dtype.bits <= 8 and not dtype.scalar]
    lines += ["}", '"""What a call takes as bytes too, from frameworks without such a dtype."""', ""]
    return "\n".join(lines)


def render_c() -> str:
    """Return the table of the native run time."""
    lines = ["// SPDX-License-Identifier: Apache-2.0", f"// The element types. {_MADE}", "", "#ifndef FLYDSL_DTYPES_H"]
    lines += ["#define FLYDSL_DTYPES_H", "", "#include <stdint.h>", "", "static const struct {"]
    lines += ["  uint32_t dtype; // DLPack's type code << 8 | bits", "  const char *name, *framework;", "} fdr_dtypes[] = {"]
    lines += [f'    {{{dtype.code} << 8 | {dtype.bits}, "{dtype.name}", "{dtype.framework}"}},' for dtype in DTYPE_TABLE]
    lines += ["};", "", "#endif", ""]
    return "\n".join(lines)


TABLES = {"flydsl_build/runtime/dtypes.py": render_python, "native/dtypes.h": render_c}


@pytest.mark.parametrize("path", TABLES)
def test_tables(path: str) -> None:
    assert (ROOT / path).read_text(encoding="utf-8") == TABLES[path]()


if __name__ == "__main__":
    for path, render in TABLES.items():
        (ROOT / path).write_text(render(), encoding="utf-8")
