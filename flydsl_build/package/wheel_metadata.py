# SPDX-License-Identifier: Apache-2.0
"""The header files of a wheel, METADATA and WHEEL: fields are changed, and everything else stays as the base back end wrote it.

Fields: https://packaging.python.org/en/latest/specifications/core-metadata/.
"""

from __future__ import annotations

import re
import zipfile
from typing import TYPE_CHECKING

from flydsl_build.config.names import normalized

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Headers", "distribution_of", "escaped"]

_FIELD = re.compile(r"([A-Za-z0-9-]+):(.*)")


def escaped(name: str) -> str:
    """Return a distribution's name as it stands in file names."""
    return normalized(name).replace("-", "_")


class Headers:
    """Fields in their order, and the text after them.

    Parameters
    ----------
    text
        The file's content.
    """

    def __init__(self, text: str) -> None:
        head, self._separator, self.body = text.partition("\n\n")
        self._fields: list[tuple[str, str]] = []
        for line in head.removesuffix("\n").split("\n"):
            match = _FIELD.fullmatch(line)
            if match is None:
                # A continued value, or something that is not ours to judge.
                name, value = self._fields.pop() if self._fields else ("", "")
                self._fields.append((name, f"{value}\n{line}"))
            else:
                self._fields.append((match[1], match[2]))

    def all(self, name: str) -> list[str]:
        """Return the values of a field that may stand several times."""
        return [value.strip() for key, value in self._fields if key.lower() == name.lower()]

    def get(self, name: str) -> str:
        """Return the value of a field, or an empty string."""
        return next(iter(self.all(name)), "")

    def put(self, name: str, value: str) -> None:
        """Change a field where it stands, or add it."""
        for index, (key, _) in enumerate(self._fields):
            if key.lower() == name.lower():
                self._fields[index] = (key, f" {value}")
                return
        self.add(name, value)

    def add(self, name: str, value: str) -> None:
        """Add a field at the end."""
        self._fields.append((name, f" {value}"))

    def remove(self, *names: str) -> None:
        """Remove fields."""
        lower = {name.lower() for name in names}
        self._fields = [(key, value) for key, value in self._fields if key.lower() not in lower]

    def text(self) -> str:
        """Return the file's content."""
        lines = "\n".join(f"{name}:{value}" if name else value for name, value in self._fields)
        return lines + (f"\n\n{self.body}" if self._separator else "\n")


def distribution_of(wheel: Path) -> tuple[str, str]:
    """Return the name and version of the distribution in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [one for one in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", one)]
        headers = Headers(archive.read(name).decode())
    return headers.get("Name"), headers.get("Version")
