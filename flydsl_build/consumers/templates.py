# SPDX-License-Identifier: Apache-2.0
"""Render the templates: generated Python modules and HTML pages."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import jinja2

import flydsl_build
from flydsl_build.errors import BuildError, Fault

__all__ = ["StubError", "render"]


class StubError(BuildError):
    """A module whose public names cannot stand in a Python module."""

    stage = "stubs"


def render(template: str, **values: Any) -> str:
    """Return the text of a template; what goes into an HTML page is escaped.

    Raises
    ------
    StubError
        The templates are not there.
    """
    text: str = _environment().get_template(template).render(values)
    return text


# Templates are compiled once, for all modules of a build.
@functools.cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_folder()),
        undefined=jinja2.StrictUndefined,
        # Python source is not escaped: nothing unchecked gets into it.
        autoescape=jinja2.select_autoescape(enabled_extensions=("html.j2",)),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def _folder() -> Path:
    package = Path(flydsl_build.__file__).parent
    # Installed, the templates are inside of the package; in a source checkout they stand beside it.
    folders = (package / "templates", package.parent / "templates")
    for folder in folders:
        if (folder / "stub.py.j2").is_file():
            return folder
    places = " or ".join(map(str, folders))
    raise StubError(Fault(where="templates", what=f"stub.py.j2 is not in {places}", fix="install flydsl-build again"))
