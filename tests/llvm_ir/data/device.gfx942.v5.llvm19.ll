; ModuleID = 'device.hip'
source_filename = "device.hip"
target datalayout = "e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-p7:160:256:256:32-p8:128:128-p9:192:256:256:32-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-v2048:2048-n32:64-S32-A5-G1-ni:7:8:9"
target triple = "amdgcn-amd-amdhsa"

%struct.State = type { i32, float, [3 x ptr] }

@state = protected addrspace(1) externally_initialized global %struct.State zeroinitializer, align 8
@table = protected addrspace(4) externally_initialized global [16 x i32] zeroinitializer, align 16
@elsewhere = external protected local_unnamed_addr addrspace(1) global i32, align 4
@_ZL14hidden_counter = internal unnamed_addr addrspace(1) global i32 0, align 4
@.str = private unnamed_addr addrspace(4) constant [3 x i8] c"hi\00", align 1
@__hip_cuid_ = addrspace(1) global i8 0
@__oclc_ABI_version = weak_odr hidden local_unnamed_addr addrspace(4) constant i32 500
@llvm.compiler.used = appending addrspace(1) global [3 x ptr] [ptr addrspacecast (ptr addrspace(1) @__hip_cuid_ to ptr), ptr addrspacecast (ptr addrspace(1) @state to ptr), ptr addrspacecast (ptr addrspace(4) @table to ptr)], section "llvm.metadata"

; Function Attrs: mustprogress nofree norecurse nosync nounwind willreturn memory(readwrite, argmem: none, inaccessiblemem: none)
define hidden float @scale_and_shift(float noundef %0, i32 noundef %1) local_unnamed_addr #0 {
  %3 = load float, ptr addrspace(1) getelementptr inbounds (i8, ptr addrspace(1) @state, i64 4), align 4, !tbaa !5
  %4 = fmul contract float %3, %0
  %5 = sitofp i32 %1 to float
  %6 = fadd contract float %4, %5
  %7 = and i32 %1, 15
  %8 = zext nneg i32 %7 to i64
  %9 = getelementptr inbounds [16 x i32], ptr addrspace(4) @table, i64 0, i64 %8
  %10 = load i32, ptr addrspace(4) %9, align 4, !tbaa !11
  %11 = sitofp i32 %10 to float
  %12 = fadd contract float %6, %11
  %13 = load i32, ptr addrspace(1) @elsewhere, align 4, !tbaa !11
  %14 = sitofp i32 %13 to float
  %15 = fadd contract float %12, %14
  %16 = load i32, ptr addrspace(1) @_ZL14hidden_counter, align 4, !tbaa !11
  %17 = add nsw i32 %16, 1
  store i32 %17, ptr addrspace(1) @_ZL14hidden_counter, align 4, !tbaa !11
  %18 = sitofp i32 %16 to float
  %19 = fadd contract float %15, %18
  ret float %19
}

; Function Attrs: convergent mustprogress nounwind
define hidden double @many(double noundef %0, i64 noundef %1, i8 noundef zeroext %2, i1 noundef zeroext %3, ptr nocapture noundef readonly %4, <4 x float> noundef %5) local_unnamed_addr #1 {
  %7 = sitofp i64 %1 to double
  %8 = fadd contract double %7, %0
  %9 = uitofp i8 %2 to double
  %10 = fadd contract double %8, %9
  %11 = uitofp i1 %3 to double
  %12 = fadd contract double %10, %11
  %13 = extractelement <4 x float> %5, i64 0
  %14 = fpext float %13 to double
  %15 = fadd contract double %12, %14
  %16 = load i32, ptr %4, align 4, !tbaa !11
  %17 = sitofp i32 %16 to double
  %18 = fadd contract double %15, %17
  %19 = trunc i64 %1 to i32
  %20 = tail call noundef i32 @_Z5otheri(i32 noundef %19) #6
  %21 = sitofp i32 %20 to double
  %22 = fadd contract double %18, %21
  ret double %22
}

; Function Attrs: convergent nounwind
declare hidden noundef i32 @_Z5otheri(i32 noundef) local_unnamed_addr #2

; Function Attrs: mustprogress nounwind
define weak hidden i32 @maybe() local_unnamed_addr #3 {
  %1 = load i32, ptr addrspace(1) @elsewhere, align 4, !tbaa !11
  %2 = shl nsw i32 %1, 1
  ret i32 %2
}

; Function Attrs: mustprogress nofree norecurse nosync nounwind willreturn memory(argmem: write)
define hidden void @by_value(i32 %0, float %1, [3 x ptr] %2, ptr nocapture noundef writeonly %3) local_unnamed_addr #4 {
  %5 = extractvalue [3 x ptr] %2, 0
  %6 = extractvalue [3 x ptr] %2, 1
  %7 = extractvalue [3 x ptr] %2, 2
  store i32 %0, ptr %3, align 8, !tbaa !11
  %8 = getelementptr inbounds i8, ptr %3, i64 4
  store float %1, ptr %8, align 4, !tbaa !12
  %9 = getelementptr inbounds i8, ptr %3, i64 8
  store ptr %5, ptr %9, align 8
  %10 = getelementptr inbounds i8, ptr %3, i64 16
  store ptr %6, ptr %10, align 8
  %11 = getelementptr inbounds i8, ptr %3, i64 24
  store ptr %7, ptr %11, align 8, !tbaa !13
  ret void
}

; Function Attrs: convergent mustprogress nounwind
define hidden void @user() local_unnamed_addr #1 {
  tail call void (ptr, ...) @print(ptr noundef addrspacecast (ptr addrspace(4) @.str to ptr), i32 noundef 1) #6
  ret void
}

; Function Attrs: convergent nounwind
declare hidden void @print(ptr noundef, ...) local_unnamed_addr #2

; Function Attrs: mustprogress nofree norecurse nosync nounwind willreturn memory(readwrite, argmem: write, inaccessiblemem: none)
define protected amdgpu_kernel void @kernel(ptr addrspace(1) nocapture noundef writeonly %0) local_unnamed_addr #5 {
  %2 = load float, ptr addrspace(1) getelementptr inbounds (i8, ptr addrspace(1) @state, i64 4), align 4, !tbaa !5
  %3 = fadd contract float %2, 2.000000e+00
  %4 = load i32, ptr addrspace(4) getelementptr inbounds (i8, ptr addrspace(4) @table, i64 8), align 8, !tbaa !11
  %5 = sitofp i32 %4 to float
  %6 = fadd contract float %3, %5
  %7 = load i32, ptr addrspace(1) @elsewhere, align 4, !tbaa !11
  %8 = sitofp i32 %7 to float
  %9 = fadd contract float %6, %8
  %10 = load i32, ptr addrspace(1) @_ZL14hidden_counter, align 4, !tbaa !11
  %11 = add nsw i32 %10, 1
  store i32 %11, ptr addrspace(1) @_ZL14hidden_counter, align 4, !tbaa !11
  %12 = sitofp i32 %10 to float
  %13 = fadd contract float %9, %12
  %14 = fadd contract float %13, 1.000000e+00
  store float %14, ptr addrspace(1) %0, align 4, !tbaa !12
  ret void
}

attributes #0 = { mustprogress nofree norecurse nosync nounwind willreturn memory(readwrite, argmem: none, inaccessiblemem: none) "amdgpu-no-agpr" "amdgpu-no-completion-action" "amdgpu-no-default-queue" "amdgpu-no-dispatch-id" "amdgpu-no-dispatch-ptr" "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" "amdgpu-no-implicitarg-ptr" "amdgpu-no-lds-kernel-id" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-queue-ptr" "amdgpu-no-workgroup-id-x" "amdgpu-no-workgroup-id-y" "amdgpu-no-workgroup-id-z" "amdgpu-no-workitem-id-x" "amdgpu-no-workitem-id-y" "amdgpu-no-workitem-id-z" "amdgpu-waves-per-eu"="4,8" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="gfx942" "target-features"="+16-bit-insts,+atomic-buffer-global-pk-add-f16-insts,+atomic-ds-pk-add-16-insts,+atomic-fadd-rtn-insts,+atomic-flat-pk-add-16-insts,+atomic-global-pk-add-bf16-inst,+ci-insts,+dl-insts,+dot1-insts,+dot10-insts,+dot2-insts,+dot3-insts,+dot4-insts,+dot5-insts,+dot6-insts,+dot7-insts,+dpp,+fp8-conversion-insts,+fp8-insts,+gfx8-insts,+gfx9-insts,+gfx90a-insts,+gfx940-insts,+mai-insts,+s-memrealtime,+s-memtime-inst,+wavefrontsize64" "uniform-work-group-size"="false" }
attributes #1 = { convergent mustprogress nounwind "amdgpu-waves-per-eu"="4,8" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="gfx942" "target-features"="+16-bit-insts,+atomic-buffer-global-pk-add-f16-insts,+atomic-ds-pk-add-16-insts,+atomic-fadd-rtn-insts,+atomic-flat-pk-add-16-insts,+atomic-global-pk-add-bf16-inst,+ci-insts,+dl-insts,+dot1-insts,+dot10-insts,+dot2-insts,+dot3-insts,+dot4-insts,+dot5-insts,+dot6-insts,+dot7-insts,+dpp,+fp8-conversion-insts,+fp8-insts,+gfx8-insts,+gfx9-insts,+gfx90a-insts,+gfx940-insts,+mai-insts,+s-memrealtime,+s-memtime-inst,+wavefrontsize64" "uniform-work-group-size"="false" }
attributes #2 = { convergent nounwind "amdgpu-waves-per-eu"="4,8" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="gfx942" "target-features"="+16-bit-insts,+atomic-buffer-global-pk-add-f16-insts,+atomic-ds-pk-add-16-insts,+atomic-fadd-rtn-insts,+atomic-flat-pk-add-16-insts,+atomic-global-pk-add-bf16-inst,+ci-insts,+dl-insts,+dot1-insts,+dot10-insts,+dot2-insts,+dot3-insts,+dot4-insts,+dot5-insts,+dot6-insts,+dot7-insts,+dpp,+fp8-conversion-insts,+fp8-insts,+gfx8-insts,+gfx9-insts,+gfx90a-insts,+gfx940-insts,+mai-insts,+s-memrealtime,+s-memtime-inst,+wavefrontsize64" "uniform-work-group-size"="false" }
attributes #3 = { mustprogress nounwind "amdgpu-waves-per-eu"="4,8" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="gfx942" "target-features"="+16-bit-insts,+atomic-buffer-global-pk-add-f16-insts,+atomic-ds-pk-add-16-insts,+atomic-fadd-rtn-insts,+atomic-flat-pk-add-16-insts,+atomic-global-pk-add-bf16-inst,+ci-insts,+dl-insts,+dot1-insts,+dot10-insts,+dot2-insts,+dot3-insts,+dot4-insts,+dot5-insts,+dot6-insts,+dot7-insts,+dpp,+fp8-conversion-insts,+fp8-insts,+gfx8-insts,+gfx9-insts,+gfx90a-insts,+gfx940-insts,+mai-insts,+s-memrealtime,+s-memtime-inst,+wavefrontsize64" "uniform-work-group-size"="false" }
attributes #4 = { mustprogress nofree norecurse nosync nounwind willreturn memory(argmem: write) "amdgpu-no-agpr" "amdgpu-no-completion-action" "amdgpu-no-default-queue" "amdgpu-no-dispatch-id" "amdgpu-no-dispatch-ptr" "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" "amdgpu-no-implicitarg-ptr" "amdgpu-no-lds-kernel-id" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-queue-ptr" "amdgpu-no-workgroup-id-x" "amdgpu-no-workgroup-id-y" "amdgpu-no-workgroup-id-z" "amdgpu-no-workitem-id-x" "amdgpu-no-workitem-id-y" "amdgpu-no-workitem-id-z" "amdgpu-waves-per-eu"="4,8" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="gfx942" "target-features"="+16-bit-insts,+atomic-buffer-global-pk-add-f16-insts,+atomic-ds-pk-add-16-insts,+atomic-fadd-rtn-insts,+atomic-flat-pk-add-16-insts,+atomic-global-pk-add-bf16-inst,+ci-insts,+dl-insts,+dot1-insts,+dot10-insts,+dot2-insts,+dot3-insts,+dot4-insts,+dot5-insts,+dot6-insts,+dot7-insts,+dpp,+fp8-conversion-insts,+fp8-insts,+gfx8-insts,+gfx9-insts,+gfx90a-insts,+gfx940-insts,+mai-insts,+s-memrealtime,+s-memtime-inst,+wavefrontsize64" "uniform-work-group-size"="false" }
attributes #5 = { mustprogress nofree norecurse nosync nounwind willreturn memory(readwrite, argmem: write, inaccessiblemem: none) "amdgpu-flat-work-group-size"="1,1024" "amdgpu-no-agpr" "amdgpu-no-completion-action" "amdgpu-no-default-queue" "amdgpu-no-dispatch-id" "amdgpu-no-dispatch-ptr" "amdgpu-no-heap-ptr" "amdgpu-no-hostcall-ptr" "amdgpu-no-implicitarg-ptr" "amdgpu-no-lds-kernel-id" "amdgpu-no-multigrid-sync-arg" "amdgpu-no-queue-ptr" "amdgpu-no-workgroup-id-x" "amdgpu-no-workgroup-id-y" "amdgpu-no-workgroup-id-z" "amdgpu-no-workitem-id-x" "amdgpu-no-workitem-id-y" "amdgpu-no-workitem-id-z" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="gfx942" "target-features"="+16-bit-insts,+atomic-buffer-global-pk-add-f16-insts,+atomic-ds-pk-add-16-insts,+atomic-fadd-rtn-insts,+atomic-flat-pk-add-16-insts,+atomic-global-pk-add-bf16-inst,+ci-insts,+dl-insts,+dot1-insts,+dot10-insts,+dot2-insts,+dot3-insts,+dot4-insts,+dot5-insts,+dot6-insts,+dot7-insts,+dpp,+fp8-conversion-insts,+fp8-insts,+gfx8-insts,+gfx9-insts,+gfx90a-insts,+gfx940-insts,+mai-insts,+s-memrealtime,+s-memtime-inst,+wavefrontsize64" "uniform-work-group-size"="true" }
attributes #6 = { convergent nounwind }

!llvm.module.flags = !{!0, !1, !2, !3}
!llvm.ident = !{!4}

!0 = !{i32 1, !"amdhsa_code_object_version", i32 500}
!1 = !{i32 1, !"amdgpu_printf_kind", !"hostcall"}
!2 = !{i32 1, !"wchar_size", i32 4}
!3 = !{i32 8, !"PIC Level", i32 2}
!4 = !{!"Debian clang version 19.1.7 (3~deb12u1)"}
!5 = !{!6, !10, i64 4}
!6 = !{!"_ZTS5State", !7, i64 0, !10, i64 4, !8, i64 8}
!7 = !{!"int", !8, i64 0}
!8 = !{!"omnipotent char", !9, i64 0}
!9 = !{!"Simple C++ TBAA"}
!10 = !{!"float", !8, i64 0}
!11 = !{!7, !7, i64 0}
!12 = !{!10, !10, i64 0}
!13 = !{!8, !8, i64 0}
