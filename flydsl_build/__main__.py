# SPDX-License-Identifier: Apache-2.0
"""The door of the command line: `python -m flydsl_build`, also installed as `flydsl-build`."""

from __future__ import annotations

import sys

from flydsl_build.command_line import main

__all__ = ["main"]

if __name__ == "__main__":
    sys.exit(main())
