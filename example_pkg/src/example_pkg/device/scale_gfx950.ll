; Extern device code of example_pkg.scaled for gfx950. Made by make_device_ir.py.
target triple = "amdgcn-amd-amdhsa"

; externally_initialized, as HIP's __device__ variables are: without it the linker would make the variable local and fold its
; loads to the initial value, and no init function could reach it.
@example_factor = protected addrspace(1) externally_initialized global float 0.000000e+00, align 4

define protected float @scale_and_shift(float %value, i32 %shift) #0 {
  %factor = load float, ptr addrspace(1) @example_factor, align 4
  %scaled = fmul float %value, %factor
  %offset = sitofp i32 %shift to float
  %result = fadd float %scaled, %offset
  ret float %result
}

attributes #0 = { mustprogress nofree norecurse nounwind willreturn "target-cpu"="gfx950" }

!llvm.module.flags = !{!0}

!0 = !{i32 1, !"amdhsa_code_object_version", i32 600}
