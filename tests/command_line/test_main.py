# SPDX-License-Identifier: Apache-2.0
"""The door: commands, usage errors, exit statuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from flydsl_build import __version__
from flydsl_build.command_line import plan

if TYPE_CHECKING:
    import argparse


def test_version_and_help(call: Any) -> None:
    assert call("--version").out == f"flydsl-build {__version__}\n"
    words = call("--help").out
    for name in ("init", "plan", "build", "inspect", "verify", "diff", "report", "cache", "doctor", "schema"):
        assert f"\n    {name} " in words
        assert call(name, "--help").status == 0


@pytest.mark.parametrize("words", [(), ("plann",), ("inspect",), ("report", "x"), ("schema", "extra")])
def test_usage_errors(call: Any, words: tuple[str, ...]) -> None:
    answer = call(*words)
    assert (answer.status, answer.out) == (2, "")
    assert "usage: flydsl-build" in answer.err


def test_interrupt(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_arguments: argparse.Namespace) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(plan, "_run", interrupted)
    answer = call("plan")
    assert (answer.status, answer.err) == (130, "flydsl-build: interrupted\n")


def test_a_bug_keeps_its_traceback(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_arguments: argparse.Namespace) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(plan, "_run", broken)
    with pytest.raises(ZeroDivisionError):
        call("plan")
