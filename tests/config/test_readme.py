# SPDX-License-Identifier: Apache-2.0
"""The README's table of settings is the generated one."""

from pathlib import Path

from flydsl_build.config.documentation import settings_table_markdown

README = Path(__file__).resolve().parents[2] / "README.md"


def test_settings_table() -> None:
    _, _, rest = README.read_text(encoding="utf-8").partition("<!-- settings: generated, see CONTRIBUTING -->\n")
    assert rest.partition("\n<!-- settings end -->")[0] == settings_table_markdown().strip()
