# SPDX-License-Identifier: Apache-2.0
"""Progress, the summary table and its warnings."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from building import members

from flydsl_build.bundle.manifest import Manifest
from flydsl_build.codec import encode, parse
from flydsl_build.jobs.job import Job
from flydsl_build.package.progress import PlainProgress, RichProgress, make_progress
from flydsl_build.package.summary import KernelRow, empty_launchers, kernel_rows, print_summary, print_warnings, resource_warnings

if TYPE_CHECKING:
    from pathlib import Path


class Clock:
    """A time that tests set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def job(module: str, target: str = "gfx942") -> Job:
    return Job(module=module, target=target, output="", specializations=())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_lines() -> None:
    out, clock = io.StringIO(), Clock()
    jobs = [job("a.one"), job("a.two", "gfx1100"), job("a.three"), job("a.four")]
    with PlainProgress(out, clock) as progress:
        progress.expect(3)
        progress.job_cached(jobs[2])
        progress.job_started(jobs[0])
        progress.specialization_started(jobs[0], "k")
        clock.now = 60.0
        progress.job_finished(jobs[0], 60.04, failed=False)
        progress.expect(1)
        progress.job_started(jobs[1])
        clock.now = 62.0
        progress.job_finished(jobs[1], 0.4, failed=False)
        progress.job_finished(jobs[3], 0.1, failed=False)
    assert out.getvalue() == (
        "[2/3] a.one, gfx942: 60.0 s, about 1 min 0 s left\n[3/4] a.two, gfx1100: 0.4 s, about 31 s left\n[4/4] a.four, gfx942: 0.1 s\n"
    )


def test_failed_jobs_and_those_of_the_cache_are_counted() -> None:
    out, clock = io.StringIO(), Clock()
    jobs = [job("a.one"), job("a.two", "gfx1100"), job("a.three")]
    progress = PlainProgress(out, clock)
    with progress:
        progress.expect(5, cached=2)
        progress.job_started(jobs[0])
        progress.job_started(jobs[1])
        clock.now = 30.0
        progress.job_finished(jobs[0], 30.0, failed=True)
        # Killed where memory ran out, and done the second time.
        progress.job_put_back(jobs[1])
        progress.job_started(jobs[1])
        progress.job_finished(jobs[1], 0.4, failed=False)
    assert out.getvalue() == (
        "[3/5, 1 failed] a.one, gfx942: failed after 30.0 s, about 1 min 0 s left\n[4/5, 1 failed] a.two, gfx1100: 0.4 s, about 15 s left\n"
    )
    assert progress.counts() == "5 jobs: 2 from the cache, 1 compiled, 1 failed"
    with progress:
        progress.job_started(jobs[2])
        progress.job_finished(jobs[2], 0.1, failed=False)
    assert out.getvalue().splitlines()[2] == "[5/5, 1 failed] a.three, gfx942: 0.1 s"


def test_large_builds_are_quiet() -> None:
    out, clock = io.StringIO(), Clock()
    with PlainProgress(out, clock) as progress:
        progress.expect(1000)
        for number in range(1000):
            one = job(f"m{number}")
            progress.job_started(one)
            clock.now += 0.05
            progress.job_finished(one, 0.05, failed=False)
    lines = out.getvalue().splitlines()
    # Fifty seconds, a line every two of them.
    assert len(lines) == 26
    assert (lines[0][:9], lines[-1]) == ("[1/1000] ", "[1000/1000] m999, gfx942: 0.1 s")


def test_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(make_progress(io.StringIO()), PlainProgress)
    monkeypatch.setitem(__import__("sys").modules, "rich.console", None)
    assert isinstance(make_progress(Terminal()), PlainProgress)


def test_live_display(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    out = Terminal()
    assert isinstance(make_progress(out), RichProgress)
    clock = Clock()
    progress = RichProgress(out, clock)
    one, two = job("a.one"), job("a.two", "gfx1100")
    with progress:
        progress.expect(4)
        progress.job_cached(job("a.three"))
        progress.job_started(one)
        progress.job_started(two)
        clock.now = 30.0
        progress.job_finished(one, 30.0, failed=False)
        progress.specialization_started(two, "two-N128")
        progress._live.refresh()
    with progress:
        progress.job_finished(two, 1.0, failed=True)
        progress._live.refresh()
    shown = out.getvalue()
    assert "3 of 4 jobs, 1 from the cache, 1 failed, about 15 s left" in shown
    assert "2 of 4 jobs, 1 from the cache, about 1 min 0 s left" in shown
    assert "  a.two, gfx1100: two-N128" in shown
    # The display takes itself away.
    assert progress._live.transient
    assert not progress._live.is_started


# --- summary ---------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def manifest(second_wheel: Path) -> Manifest:
    name = "space/_flydsl_halve/halve.json"
    return Manifest.from_text(members(second_wheel)[name], where=name)


def changed(manifest: Manifest, target: str, **values: Any) -> Manifest:
    """Return a manifest in which the kernel of one target has other values."""
    (unit,) = manifest.units
    code_object = unit.code_objects[target]
    kernel = replace(code_object.kernels[0], **values)
    objects = {**unit.code_objects, target: replace(code_object, kernels=(kernel,))}
    return replace(manifest, units=(replace(unit, code_objects=objects),))


def table(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_summary(manifest: Manifest) -> None:
    seconds = {("space.halve", "halve", "gfx942", "main"): 1.25}
    values = {"code_size": 96, "vgpr": 40, "agpr": 8, "sgpr": 20, "lds": 8192, "vgpr_spills": 2, "sgpr_spills": 1}
    out = io.StringIO()
    print_summary(list(kernel_rows([changed(manifest, "gfx942", **values)])), out, seconds)
    header, first, second = table(out.getvalue())
    assert header == ["specialization", "target", "kernel", "seconds", "code", "B", "VGPR", "AGPR", "SGPR", "LDS", "B", "spills", "waves"]
    assert first == ["space.halve:halve", "gfx942", "halve_kernel_0", "1.25", "96", "40", "8", "20", "8192", "3", "6"]
    assert second[:3] == ["space.halve:halve", "gfx1100", "halve_kernel_0"]
    assert len(second) == len(first) - 1


def test_no_seconds_no_column(manifest: Manifest) -> None:
    out = io.StringIO()
    print_summary(list(kernel_rows([manifest])), out)
    assert "seconds" not in out.getvalue()


def test_long_tables_show_the_slowest(manifest: Manifest) -> None:
    (launcher,) = manifest.launchers
    (one,) = launcher.specializations
    many = tuple(replace(one, name=f"s{number}") for number in range(150))
    large = replace(manifest, launchers=(replace(launcher, specializations=many),))
    seconds = {("space.halve", f"s{number}", target, "main"): float(number) for number in range(150) for target in manifest.targets}
    out = io.StringIO()
    print_summary(list(kernel_rows([large])), out, seconds)
    rows = table(out.getvalue())
    assert [row[0] for row in rows[1:-1]] == [f"space.halve:s{number}" for number in range(50, 150) for _ in manifest.targets]
    assert out.getvalue().endswith("100 more rows, compiled faster than these: flydsl-build inspect WHEEL\n")


def test_warnings(manifest: Manifest) -> None:
    assert list(resource_warnings(kernel_rows([manifest]))) == []
    heavy = changed(changed(manifest, "gfx942", vgpr_spills=1, sgpr_spills=12), "gfx1100", lds=65537)
    out = io.StringIO()
    print_warnings(kernel_rows([heavy]), out)
    assert out.getvalue() == (
        "flydsl-build: warning: space.halve:halve, gfx942, kernel halve_kernel_0 spills 1 VGPR and 12 SGPRs: smaller tiles, or a smaller "
        "`waves-per-eu`, leave it more registers\n"
        "flydsl-build: warning: space.halve:halve, gfx1100, kernel halve_kernel_0 has 65537 bytes of static LDS, and a workgroup can have "
        "65536: it cannot be launched\n"
    )


def test_a_launcher_that_launches_nothing(manifest: Manifest) -> None:
    raw = json.loads(manifest.to_text())
    raw["launchers"][0]["specializations"][0]["entries"]["gfx1100"]["main"]["kernels"] = []
    empty = Manifest.from_text(json.dumps(raw), where="x")
    assert list(empty_launchers(empty)) == ["space.halve:halve, gfx1100: the launcher launches no kernel, so a call does nothing"]


def test_a_target_of_a_newer_version(manifest: Manifest) -> None:
    text = json.dumps(json.loads(manifest.to_text())).replace("gfx1100", "gfx1999")
    newer = Manifest.from_text(text, where="x")
    assert [row.occupancy for row in kernel_rows([newer])] == [8, None]
    bare = [replace(row, kernel=replace(row.kernel, args=())) for row in kernel_rows([newer])]
    assert (
        list(parse(tuple[KernelRow, ...], json.dumps(encode([row.without_arguments() for row in kernel_rows([newer])])), where="")) == bare
    )
    assert list(resource_warnings(kernel_rows([newer]))) == []


@pytest.mark.parametrize("term", [None, "dumb"])
def test_a_terminal_that_cannot_redraw(term: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TERM", raising=False)
    if term is not None:
        monkeypatch.setenv("TERM", term)
    assert isinstance(make_progress(Terminal()), PlainProgress)
