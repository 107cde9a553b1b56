; ModuleID = 'plain.c'
source_filename = "plain.c"
target datalayout = "e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128"
target triple = "x86_64-unknown-linux-gnu"

%struct.S = type { i8, i32, ptr }

@factor = dso_local global double 2.000000e+00, align 8
@weak_variable = weak dso_local global i32 4, align 4
@kept = internal global i32 3, align 4
@hidden = internal global [4 x i32] zeroinitializer, align 16
@away = external global i32, align 4
@.str = private unnamed_addr constant [2 x i8] c"x\00", align 1
@structure = dso_local global %struct.S zeroinitializer, align 8
@llvm.compiler.used = appending global [1 x ptr] [ptr @kept], section "llvm.metadata"

@function_alias = dso_local alias i32 (ptr), ptr @g
@variable_alias = dso_local alias double, ptr @factor

; Function Attrs: noinline nounwind optnone uwtable
define dso_local i32 @f(i32 noundef %0) #0 {
  %2 = alloca i32, align 4
  store i32 %0, ptr %2, align 4
  %3 = load i32, ptr %2, align 4
  %4 = load i32, ptr %2, align 4
  %5 = and i32 %4, 3
  %6 = sext i32 %5 to i64
  %7 = getelementptr inbounds [4 x i32], ptr @hidden, i64 0, i64 %6
  %8 = load i32, ptr %7, align 4
  %9 = add nsw i32 %8, 1
  store i32 %9, ptr %7, align 4
  %10 = add nsw i32 %3, %8
  %11 = load i32, ptr @away, align 4
  %12 = add nsw i32 %10, %11
  ret i32 %12
}

; Function Attrs: noinline nounwind optnone uwtable
define dso_local i32 @g(ptr noundef %0) #0 {
  %2 = alloca ptr, align 8
  store ptr %0, ptr %2, align 8
  %3 = load ptr, ptr %2, align 8
  %4 = getelementptr inbounds %struct.S, ptr %3, i32 0, i32 2
  %5 = load ptr, ptr %4, align 8
  %6 = load ptr, ptr %2, align 8
  call void %5(ptr noundef %6)
  %7 = call i32 (ptr, ...) @variadic(ptr noundef @.str, i32 noundef 2)
  ret i32 %7
}

declare i32 @variadic(ptr noundef, ...) #1

; Function Attrs: noinline nounwind optnone uwtable
define dso_local i32 @call_odd() #0 {
  %1 = call i32 @"odd name \22\C3\A9"()
  ret i32 %1
}

declare i32 @"odd name \22\C3\A9"() #1

attributes #0 = { noinline nounwind optnone uwtable "frame-pointer"="all" "min-legal-vector-width"="0" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="x86-64" "target-features"="+cmov,+cx8,+fxsr,+mmx,+sse,+sse2,+x87" "tune-cpu"="generic" }
attributes #1 = { "frame-pointer"="all" "no-trapping-math"="true" "stack-protector-buffer-size"="8" "target-cpu"="x86-64" "target-features"="+cmov,+cx8,+fxsr,+mmx,+sse,+sse2,+x87" "tune-cpu"="generic" }

!llvm.module.flags = !{!0, !1, !2, !3, !4}
!llvm.ident = !{!5}

!0 = !{i32 1, !"wchar_size", i32 4}
!1 = !{i32 8, !"PIC Level", i32 2}
!2 = !{i32 7, !"PIE Level", i32 2}
!3 = !{i32 7, !"uwtable", i32 2}
!4 = !{i32 7, !"frame-pointer", i32 2}
!5 = !{!"Debian clang version 19.1.7 (3~deb12u1)"}
