# SPDX-License-Identifier: Apache-2.0
"""The state that `example_pkg.scaled` keeps on the device: one factor, written when its code object is loaded."""

import struct

FACTOR = 2.5


def init_module(module: int) -> None:
    """Write the factor into a loaded module, given as `hipModule_t`."""
    try:
        from example_pkg._flydsl.runtime import write_global
    except ImportError:  # From source, FlyDSL's JIT loads the module, and there is no private run time.
        from flydsl_build.runtime import write_global
    write_global(module, "example_factor", struct.pack("<f", FACTOR))
