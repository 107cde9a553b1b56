# SPDX-License-Identifier: Apache-2.0
"""All wrappers of the device library, made at import from one path that the environment names."""

import os

from flydsl.compiler.extern_link import link_extern
from flydsl.expr.extern import ffi
from shmem_kernels.state import module_init

PATH = os.environ["SHMEM_BC"]
_DECLARATIONS = {
    "shmem_scale": (["float32"], "float32"),
    "shmem_rank": ([], "int32"),
    "shmem_offset": (["int32", "float32"], "float32"),
    **{f"shmem_unused_{number}": (["uint64", "uint64", "int32"], "int32") for number in range(86)},
}
wrappers = {
    name: link_extern(ffi(name, parameters, result), bitcode_path=PATH, module_init_fn=module_init)
    for name, (parameters, result) in _DECLARATIONS.items()
}
