; SPDX-License-Identifier: Apache-2.0
; Pointers as LLVM 14 and before wrote them, structures that hold themselves, and no data layout.
target triple = "amdgcn-amd-amdhsa"

%struct.Node = type { i32, %struct.Node*, [2 x %struct.Node]*, void (%struct.Node*, i8 addrspace(3)*)*, {}* }
%struct.Pair = type { %struct.Node, i64 }
@head = addrspace(1) externally_initialized global %struct.Pair zeroinitializer
@table = addrspace(1) global [2 x i32 (i32)*] [i32 (i32)* @callee, i32 (i32)* null]
@inside = external addrspace(4) constant i8 addrspace(3)*
@llvm.used = appending global [1 x i8*] [i8* bitcast (i32 (i32)* @callee to i8*)], section "llvm.metadata"
@llvm.compiler.used = appending addrspace(1) global [2 x i8*] [i8* addrspacecast (i8 addrspace(1)* bitcast (%struct.Pair addrspace(1)* @head to i8 addrspace(1)*) to i8*), i8* addrspacecast (i8 addrspace(1)* getelementptr (i8, i8 addrspace(1)* bitcast ([2 x i32 (i32)*] addrspace(1)* @table to i8 addrspace(1)*), i64 0) to i8*)], section "llvm.metadata"
@alias = alias i32 (i32), i32 (i32)* @callee

define i32 @callee(i32 %x) #0 { ret i32 %x }
declare void (i32)* @returns_function(i8*, %struct.Node addrspace(5)*, void (i32)*)
declare void @takes([4 x float]* noalias, <2 x i8*>)

attributes #0 = { "target-cpu"="gfx90a" }
!llvm.module.flags = !{!0}
!0 = !{i32 1, !"amdgpu_code_object_version", i32 500}
