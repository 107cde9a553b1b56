# SPDX-License-Identifier: Apache-2.0
"""Names bitcode to the build."""

from pathlib import Path


def find(arch: str) -> str:
    return str(Path(__file__).parents[1] / "lib" / f"stateless_{arch}.ll")
