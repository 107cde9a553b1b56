; SPDX-License-Identifier: Apache-2.0
; Hand-written: the shapes a reader can meet, in an order LLVM would not print them in.
target triple = "amdgcn-amd-amdhsa"
target datalayout = "e-p:64:64-p1:64:64-p2:32:32-p3:32:32-p4:64:64-p5:32:32-p6:32:32-p7:160:256:256:32-p8:128:128-p9:192:256:256:32-i64:64-v16:16-v24:32-v32:32-v48:64-v96:128-v192:256-v256:256-v512:512-v1024:1024-v2048:2048-n32:64-S32-A5-G1-ni:7:8:9"

define float @first(float noundef %x, i32 zeroext %n) #0 { ret float %x } define void @second() "target-cpu"="gfx950" { ret void } ; two on a line
%struct.Inner = type { i8, i64 }
%"odd; type" = type <{ i8, %struct.Inner, [3 x i16] }>
%opaque = type opaque
@plain = addrspace(1) global i32 0, align 4
@zero_used = addrspace(1) global [5 x %struct.Inner] zeroinitializer
@packed = weak_odr addrspace(1) global %"odd; type" undef
@anonymous = internal addrspace(1) constant { i1, <3 x float>, ptr addrspace(3), double } zeroinitializer
@outer = external addrspace(1) externally_initialized global [4 x ptr]
@"quoted \22}{ name" = addrspace(1) externally_initialized global <2 x half> zeroinitializer
@tagged = linkonce_odr hidden addrspace(4) constant bfloat 1.0, section ".x;y", align 2
@lds = internal addrspace(3) global [0 x i8] undef
@maybe = extern_weak addrspace(1) global i128
@0 = private addrspace(1) constant [4 x i8] c"};\22\00"
@llvm.used = appending addrspace(1) global [2 x ptr addrspace(1)] [ptr addrspace(1) @plain, ptr addrspace(1) @outer], section "llvm.metadata"
@llvm.compiler.used = appending addrspace(1) global [2 x ptr] [ptr addrspacecast (ptr addrspace(1) @zero_used to ptr), ptr @first], section "llvm.metadata"
@again = alias i32, ptr addrspace(1) @plain
@first_again = weak alias float (float, i32), ptr @first
@chosen = ifunc void (), ptr @resolver
define internal ptr @resolver() { ret ptr @second }

declare i32 @printf(ptr addrspace(4), ...)
declare extern_weak { i32, [2 x float] } @aggregate(<4 x half>, { i8, i16 }, <{ i8, i32 }>, %struct.Inner, ptr byval(%struct.Inner) align 8, [2 x <2 x i32>])
declare noundef range(i32 0, 10) i32 @ranged(i32 range(i32 0, 5)) #1
declare hidden dereferenceable(8) ptr addrspace(1) @"a b"(ptr addrspace(5))
declare target("amdgcn.named.barrier", 0) @barrier()
declare void @types(half, bfloat, double, fp128, i1, i7, i128, <vscale x 4 x i32>, ptr addrspace(7), ptr addrspace(8))
define amdgpu_kernel void @kernel(ptr addrspace(1) %p) #0 !meta !4 {
entry:
  %c = call i32 @ranged(i32 1) ; } not the end
  %s = insertvalue { i32, { i32 } } undef, i32 %c, 0
  br label %"label }"
"label }":
  call void asm sideeffect "; } {", ""()
  ret void
}
define linkonce_odr i64 @merged(i64 %x) prologue { i32, i32 } { i32 1, i32 2 } { ret i64 %x }
define available_externally void @elsewhere() { ret void }
define weak protected fastcc signext i16 @cc(i16 signext %x) unnamed_addr #2 comdat align 256 { ret i16 %x }
$cc = comdat any
module asm "; comment with \22 and }"

attributes #0 = { nounwind "amdgpu-flat-work-group-size"="1,256" "target-cpu"="gfx942" "target-features"="+dpp" }
attributes #1 = { memory(none) "other" }
attributes #2 = { alignstack=16 "target-cpu"="gfx950" }
!llvm.module.flags = !{!1, !0, !2}
!0 = !{i32 1, !"amdhsa_code_object_version", i32 600}
!1 = !{i32 1, !"wchar_size", i32 4}
!2 = !{i32 8, !"PIC Level", i32 2}
!4 = !{!5, ptr addrspace(1) @plain, double 1.0}
!5 = distinct !{}
