# SPDX-License-Identifier: Apache-2.0
"""`flydsl-build report`: one page with right numbers, which asks nothing of the network."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

from calling import Built, change_manifest, changed_wheel

from flydsl_build.command_line.report_page import Bar, ReportRow, render_report

if TYPE_CHECKING:
    from pathlib import Path

MANIFEST = "space/_flydsl_halve/halve.json"


class Page(HTMLParser):
    """Reads the rows of the tables, the widths of the bars, and every attribute."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.cell = False
        self.widths: list[str] = []
        self.attributes: dict[str, set[str]] = {}
        self.tags: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            self.attributes.setdefault(name, set()).add(value or "")
            if name == "style":
                self.widths.append(value or "")
        if tag == "tr":
            self.rows.append([])
        if tag in {"td", "th"}:
            self.rows[-1].append("")
            self.cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in {"td", "th"}:
            self.cell = False

    def handle_data(self, data: str) -> None:
        if self.cell:
            self.rows[-1][-1] += data.strip()


def test_values(call: Any, second: Built, tmp_path: Path) -> None:
    answer = call("report", second.wheel, "-o", tmp_path / "report.html")
    assert (answer.status, answer.out) == (0, f"flydsl-build: wrote {tmp_path / 'report.html'}\n")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    (module,) = json.loads(call("inspect", second.wheel, "--json").out)["modules"]
    kernels = {target: one["kernels"][0] for target, one in module["units"][0]["code_objects"].items()}
    page = Page(text)
    header, *rows = page.rows
    assert header[:4] == ["Specialization", "Target", "Kernel", "Arguments"]
    limits = {"gfx942": ("512", "108", "65536", "8"), "gfx1100": ("256", "108", "65536", "16")}
    for row, target in zip(rows[:2], ("gfx942", "gfx1100"), strict=True):
        kernel = kernels[target]
        vgpr, sgpr, lds, waves = limits[target]
        assert row == [
            "space.halve:halve",
            target,
            "halve_kernel_0",
            "X: f32[L], n: i32",
            str(kernel["code_size"]),
            f"{kernel['vgpr']}/ {vgpr}",
            str(kernel["agpr"]),
            f"{kernel['sgpr']}/ {sgpr}",
            f"{kernel['lds']}/ {lds}",
            f"{kernel['occupancy']}/ {waves}",
            str(kernel["private"]),
            "0",
            "192",
        ]
    assert rows[2:] == [["File", "Bytes"], *([name, str(size)] for name, size in sorted(module["files"].items()))]


def test_no_network(call: Any, second: Built, tmp_path: Path) -> None:
    call("report", second.wheel, "-o", tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    assert not {"src", "href", "srcset", "action", "onclick"} & set(page.attributes)
    assert not {"link", "img", "iframe", "base"} & page.tags
    assert not re.search(r"https?:|//[a-z]|@import|url\(|fetch|XMLHttp", text)


def test_warnings_and_bars(call: Any, second: Built, tmp_path: Path) -> None:
    def change(value: Any) -> None:
        value["units"][0]["code_objects"]["gfx1100"]["kernels"][0].update(lds=70000, vgpr=128, sgpr_spills=2)

    other = changed_wheel(second.wheel, tmp_path / "b.whl", {MANIFEST: change_manifest(change)})
    call("report", other, "-o", tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "space.halve:halve, gfx1100, kernel halve_kernel_0 has 70000 bytes of static LDS, and a workgroup can have 65536" in text
    assert "spills 2 SGPRs" in text
    widths = Page(text).widths
    # The second row: VGPR half full, LDS over the limit.
    assert (widths[4], widths[6]) == ("width: 50%", "width: 100%")


def test_text_is_escaped() -> None:
    bar = Bar(value=1, limit=None)
    row = ReportRow(
        specialization="<b>",
        target="t",
        kernel="k",
        types='"<i>"',
        code_size=1,
        vgpr=bar,
        agpr=0,
        sgpr=bar,
        lds=bar,
        scratch=0,
        spills=0,
        workgroup="1",
        occupancy=Bar(value=None, limit=None),
    )
    text = render_report(title="<script>alert(1)</script>", facts=[("a", "<u>")], files=[("<s>", 1)], rows=[row], warnings=["<em>"])
    assert not {"b", "i", "u", "s", "em"} & Page(text).tags
    assert text.count("<script>") == 1


def test_bad_output(call: Any, second: Built, tmp_path: Path) -> None:
    answer = call("report", second.wheel, "-o", tmp_path / "none" / "report.html")
    assert (answer.status, answer.out) == (1, "")
    assert answer.err == (
        f"flydsl-build: {tmp_path / 'none' / 'report.html'}: cannot be written: No such file or directory\n"
        "    -> name a file in a folder that is writable\n"
    )
    assert call("report", second.wheel).status == 2
