# SPDX-License-Identifier: Apache-2.0
"""What the tests of declarations share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from flydsl_build.config import read_settings
from flydsl_build.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from flydsl_build.config import Settings


@pytest.fixture
def config_fault() -> Callable[[Callable[[], object]], str]:
    """Call something and return the text of the ConfigError it raises."""

    def call(function: Callable[[], object]) -> str:
        with pytest.raises(ConfigError) as caught:
            function()
        return str(caught.value)

    return call


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., Settings]:
    """Return the settings of a pyproject.toml text; archs are gfx942 and gfx1100 unless `config_settings` say otherwise."""

    def call(text: str, config_settings: dict[str, object] | None = None) -> Settings:
        header = '[tool.flydsl-build]\narchs = ["gfx942", "gfx1100"]\n'
        (tmp_path / "pyproject.toml").write_text(header + text, encoding="utf-8")
        return read_settings(tmp_path, config_settings, {})

    return call
