# SPDX-License-Identifier: Apache-2.0
"""Write the bitcode of this package's externs, one set for each target."""

from pathlib import Path

TARGETS = ("gfx942", "gfx1100")

FUNCTION = """\
define protected float @{name}(float %value) #0 {{
  %state = load float, ptr addrspace(1) @{state}, align 4
  %result = {operation} float %value, %state
  ret float %result
}}
"""
GLOBAL = "@{state} = protected addrspace(1) externally_initialized global {type} zeroinitializer, align 4\n"
FILES = {
    "first": (
        GLOBAL.format(state="first_state", type="float"),
        FUNCTION.format(name="first_of_two", state="first_state", operation="fmul"),
    ),
    "second": (
        GLOBAL.format(state="second_state", type="[3 x float]"),
        FUNCTION.format(name="second_of_two", state="second_state", operation="fadd"),
        FUNCTION.format(name="of_foreign", state="second_state", operation="fsub"),
    ),
    "stateless": ("define protected float @without_state(float %value) #0 {\n  ret float %value\n}\n",),
}
FRAME = """\
; The {name} externs of the tests for {target}. Made by make_device_ir.py.
target triple = "amdgcn-amd-amdhsa"

{body}
attributes #0 = {{ nounwind "target-cpu"="{target}" }}

!llvm.module.flags = !{{!0}}

!0 = !{{i32 1, !"amdhsa_code_object_version", i32 600}}
"""

folder = Path(__file__).parent / "lib"
folder.mkdir(exist_ok=True)
for target in TARGETS:
    for name, parts in FILES.items():
        text = FRAME.format(name=name, target=target, body="\n".join(parts))
        (folder / f"{name}_{target}.ll").write_text(text, encoding="utf-8")
