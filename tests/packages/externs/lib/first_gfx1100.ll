; The first externs of the tests for gfx1100. Made by make_device_ir.py.
target triple = "amdgcn-amd-amdhsa"

@first_state = protected addrspace(1) externally_initialized global float zeroinitializer, align 4

define protected float @first_of_two(float %value) #0 {
  %state = load float, ptr addrspace(1) @first_state, align 4
  %result = fmul float %value, %state
  ret float %result
}

attributes #0 = { nounwind "target-cpu"="gfx1100" }

!llvm.module.flags = !{!0}

!0 = !{i32 1, !"amdhsa_code_object_version", i32 600}
