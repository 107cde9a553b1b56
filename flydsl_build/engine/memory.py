# SPDX-License-Identifier: Apache-2.0
"""How much memory there is, and how much processes take: https://docs.kernel.org/filesystems/proc.html.

Everything is in bytes. Where the system does not tell, memory is taken to be without end.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

__all__ = ["available_memory", "peak_memory", "resident_memory"]

_CGROUPS = Path("/sys/fs/cgroup")
_OWN_GROUPS = Path("/proc/self/cgroup")


def available_memory() -> int:
    """Return what can be taken without swapping: of the machine, or of the control group if that has less."""
    return min(_field(Path("/proc/meminfo"), "MemAvailable") or sys.maxsize, _left_in_group())


def peak_memory(pid: int) -> int:
    """Return the most that a process ever had resident; 0 if it is gone."""
    return _field(Path(f"/proc/{pid}/status"), "VmHWM") or 0


def resident_memory(pid: int) -> int:
    """Return what a process has resident; 0 if it is gone."""
    return _field(Path(f"/proc/{pid}/status"), "VmRSS") or 0


def _field(path: Path, name: str) -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        for line in path.read_text(encoding="ascii", errors="replace").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    return None


def _left_in_group() -> int:
    """Return what this process's control group and those around it leave: https://docs.kernel.org/admin-guide/cgroup-v2.html."""
    left = sys.maxsize
    with contextlib.suppress(OSError):
        for line in _OWN_GROUPS.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            root = _CGROUPS / "memory" if controllers else _CGROUPS
            folder = root / path.lstrip("/")
            # In a container the path may be one of the host's, which is not there; the root then is the container's own group.
            for one in [folder, *folder.parents] if folder.is_dir() else [root]:
                if one.is_relative_to(root):
                    left = min(left, _left_in(one, *(_VERSION_1 if controllers else _VERSION_2)))
    return left


_VERSION_1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
_VERSION_2 = ("memory.max", "memory.current", "inactive_file")


def _left_in(folder: Path, limit: str, usage: str, inactive: str) -> int:
    try:
        allowed = (folder / limit).read_text(encoding="ascii").strip()
        used = int((folder / usage).read_text(encoding="ascii"))
        statistics = dict(line.split() for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines())
        # Pages of files that nobody uses are given back when they are needed.
        return sys.maxsize if allowed == "max" else max(0, int(allowed) - used + int(statistics.get(inactive, 0)))
    except (OSError, ValueError):
        return sys.maxsize
