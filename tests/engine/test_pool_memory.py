# SPDX-License-Identifier: Apache-2.0
"""How many workers fit into the memory there is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from flydsl_build.engine import local, memory

if TYPE_CHECKING:
    from pathlib import Path

GB = 1 << 30


@pytest.mark.parametrize(
    ("available", "peak", "resident", "room"),
    [
        (2.5, 0, [], True),
        (0.5, 0, [], False),  # nothing measured yet: a worker is taken to need 1 GB
        (1.5, 0, [0.2], False),  # and one that has just started to take it yet
        (1.5, 0.4, [0.2], True),
        (0.5, 0.4, [0.2], False),
        (0.5, 0.4, [0.4, 0.4], True),
        (2.5, 3.0, [3.0], False),
    ],
)
def test_room(available: float, peak: float, resident: list[float], room: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "available_memory", lambda: int(available * GB))
    monkeypatch.setattr(local, "resident_memory", lambda pid: int(resident[pid] * GB))
    monkeypatch.setattr(local, "peak_memory", lambda pid: int(peak * GB) * (pid + 1))
    measured = local._Memory()
    measured.observe(0)
    assert measured.has_room(range(len(resident))) is room
    measured.observe(1)
    assert measured.peak == int(peak * GB) * 2


def test_this_process() -> None:
    assert memory.peak_memory(os.getpid()) >= memory.resident_memory(os.getpid()) * 0.9 > 1 << 20
    assert memory.available_memory() > 1 << 20
    assert memory.peak_memory(2**30) == memory.resident_memory(2**30) == 0


GROUPS = {
    "version 2": ("0::/user/build", {"memory.max": "max", "user/memory.max": "1000", "user/build/memory.max": "5000"}, "current", 700),
    "a container's own": ("0::/the/path/on/the/host", {"memory.max": "1000"}, "current", 700),
    "version 1": ("4:memory:/user\n0::/", {"memory/user/memory.limit_in_bytes": "2000"}, "usage_in_bytes", 1700),
    "without a limit": ("0::/", {"memory.max": "max"}, "current", None),
    "none": ("", {}, "current", None),
}


@pytest.mark.parametrize("case", GROUPS)
def test_control_groups(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, limits, usage, expected = GROUPS[case]
    for name, limit in limits.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(limit + "\n")
        (path.parent / f"memory.{usage}").write_text("400\n")
        (path.parent / "memory.stat").write_text("anon 1\ninactive_file 100\ntotal_inactive_file 100\n")
    (tmp_path / "self").write_text(own + "\n" if own else "")
    monkeypatch.setattr(memory, "_CGROUPS", tmp_path)
    monkeypatch.setattr(memory, "_OWN_GROUPS", tmp_path / "self")
    assert memory._left_in_group() == (memory.sys.maxsize if expected is None else expected)
