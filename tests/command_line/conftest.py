# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the command-line tests: two wheels, each built once through the command itself, and a way to call commands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from calling import Built, build_package

from flydsl_build.command_line import main

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a command did."""

    status: int
    out: str
    err: str


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Call a command in this process: `call("inspect", wheel, "--json")`."""

    def run(*words: object) -> Answer:
        try:
            status = main([str(word) for word in words])
        except SystemExit as end:
            status = int(end.code or 0)
        out, err = capsys.readouterr()
        return Answer(status=status, out=out, err=err)

    return run


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The wheel of `tests/packages/tiny`: one kernel for gfx942."""
    return build_package("tiny", tmp_path_factory.mktemp("cl-tiny"))


@pytest.fixture(scope="session")
def second(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The wheel of `tests/packages/second`: one kernel for gfx942 and gfx1100."""
    return build_package("second", tmp_path_factory.mktemp("cl-second"))
