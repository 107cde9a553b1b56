; An extern-style module: one global an init function may write, one that was internalized, one call that nothing defines.
target triple = "amdgcn-amd-amdhsa"

@factor = protected addrspace(1) externally_initialized global i64 0, align 8
@folded = internal addrspace(1) global i32 7, align 4
@weak_state = weak addrspace(1) externally_initialized global i32 0, align 4

declare float @missing_function(float)

define amdgpu_kernel void @scaled(ptr addrspace(1) %a, i32 %n, float %x) #0 {
  %f = load i64, ptr addrspace(1) @factor, align 8
  %g = load volatile i32, ptr addrspace(1) @folded, align 4
  %w = load i32, ptr addrspace(1) @weak_state, align 4
  %y = call float @missing_function(float %x)
  %i = call ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()
  %b = load i32, ptr addrspace(4) %i, align 4
  %s = add i32 %g, %b
  %t = add i32 %s, %w
  %u = sext i32 %t to i64
  %v = add i64 %u, %f
  store i64 %v, ptr addrspace(1) %a, align 8
  %p = getelementptr i8, ptr addrspace(1) %a, i64 8
  store float %y, ptr addrspace(1) %p, align 4
  ret void
}

declare ptr addrspace(4) @llvm.amdgcn.implicitarg.ptr()

attributes #0 = { "amdgpu-flat-work-group-size"="1,256" }
!llvm.module.flags = !{!0}
!0 = !{i32 1, !"amdhsa_code_object_version", i32 600}
