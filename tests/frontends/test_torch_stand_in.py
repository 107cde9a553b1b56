# SPDX-License-Identifier: Apache-2.0
"""The stand-in for torch has the dtypes that torch has."""

from __future__ import annotations

import pytest

from flydsl_build.dtypes import DTYPE_TABLE
from flydsl_build.frontends.flydsl import torch_stand_in


def test_dtypes() -> None:
    torch = pytest.importorskip("torch")
    named = {dtype.framework for dtype in DTYPE_TABLE if dtype.framework}
    assert set(torch_stand_in._DTYPES) == {name for name in named if isinstance(getattr(torch, name, None), torch.dtype)}
