; External device code for gfx942, written by hand.
target triple = "amdgcn-amd-amdhsa"

define protected float @shift(float %value) #0 {
  %result = fadd float %value, 1.0
  ret float %result
}

attributes #0 = { nounwind "target-cpu"="gfx942" }

!llvm.module.flags = !{!0}

!0 = !{i32 1, !"amdhsa_code_object_version", i32 600}
