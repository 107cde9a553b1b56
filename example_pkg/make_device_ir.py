# SPDX-License-Identifier: Apache-2.0
"""Write the extern device code of `example_pkg.scaled` as textual LLVM IR, one file a target.

    python make_device_ir.py

A project with a ROCm compiler would make bitcode from HIP instead:
    clang -x hip --cuda-device-only --offload-arch=gfx942 -fgpu-rdc -mcode-object-version=6 -emit-llvm -c scale.hip -o scale_gfx942.bc
"""

from pathlib import Path

TARGETS = ("gfx942", "gfx950", "gfx1100", "gfx1201")

TEMPLATE = """\
; Extern device code of example_pkg.scaled for {target}. Made by make_device_ir.py.
target triple = "amdgcn-amd-amdhsa"

; externally_initialized, as HIP's __device__ variables are: without it the linker would make the variable local and fold its
; loads to the initial value, and no init function could reach it.
@example_factor = protected addrspace(1) externally_initialized global float 0.000000e+00, align 4

define protected float @scale_and_shift(float %value, i32 %shift) #0 {{
  %factor = load float, ptr addrspace(1) @example_factor, align 4
  %scaled = fmul float %value, %factor
  %offset = sitofp i32 %shift to float
  %result = fadd float %scaled, %offset
  ret float %result
}}

attributes #0 = {{ mustprogress nofree norecurse nounwind willreturn "target-cpu"="{target}" }}

!llvm.module.flags = !{{!0}}

!0 = !{{i32 1, !"amdhsa_code_object_version", i32 600}}
"""


def main() -> None:
    """Write all files."""
    folder = Path(__file__).parent / "src" / "example_pkg" / "device"
    for target in TARGETS:
        (folder / f"scale_{target}.ll").write_text(TEMPLATE.format(target=target), encoding="utf-8")


if __name__ == "__main__":
    main()
