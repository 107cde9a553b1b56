; The second externs of the tests for gfx942. Made by make_device_ir.py.
target triple = "amdgcn-amd-amdhsa"

@second_state = protected addrspace(1) externally_initialized global [3 x float] zeroinitializer, align 4

define protected float @second_of_two(float %value) #0 {
  %state = load float, ptr addrspace(1) @second_state, align 4
  %result = fadd float %value, %state
  ret float %result
}

define protected float @of_foreign(float %value) #0 {
  %state = load float, ptr addrspace(1) @second_state, align 4
  %result = fsub float %value, %state
  ret float %result
}

attributes #0 = { nounwind "target-cpu"="gfx942" }

!llvm.module.flags = !{!0}

!0 = !{i32 1, !"amdhsa_code_object_version", i32 600}
