; The device library of the tests for gfx1100 and bnxt. Made by make_device_ir.py.
target triple = "amdgcn-amd-amdhsa"

@shmem_state = protected addrspace(1) externally_initialized global [2 x float] zeroinitializer, align 4

define protected float @shmem_scale(float %value) #0 {
  %base = load float, ptr addrspace(1) @shmem_state, align 4
  %place = getelementptr float, ptr addrspace(1) @shmem_state, i32 1
  %factor = load float, ptr addrspace(1) %place, align 4
  %scaled = fmul float %value, %factor
  %result = fadd float %scaled, %base
  ret float %result
}

define protected i32 @shmem_rank() #0 {
  ret i32 20
}

define protected float @shmem_offset(i32 %rank, float %value) #0 {
  %offset = sitofp i32 %rank to float
  %result = fadd float %value, %offset
  ret float %result
}

attributes #0 = { mustprogress nofree norecurse nounwind willreturn "target-cpu"="gfx1100" }

!llvm.module.flags = !{!0}

!0 = !{i32 1, !"amdhsa_code_object_version", i32 600}
