; The stateless externs of the tests for gfx1100. Made by make_device_ir.py.
target triple = "amdgcn-amd-amdhsa"

define protected float @without_state(float %value) #0 {
  ret float %value
}

attributes #0 = { nounwind "target-cpu"="gfx1100" }

!llvm.module.flags = !{!0}

!0 = !{i32 1, !"amdhsa_code_object_version", i32 600}
