#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Make the bitcode and IR text of this folder again. Needs LLVM 14 and 19 under their Debian names, and ziglang, whose clang is LLVM 22.
set -eu
cd "$(dirname "$0")"
zig="${PYTHON:-python3} -m ziglang clang"
hip="-x hip --cuda-device-only -nogpulib -nogpuinc -fgpu-rdc -fuse-cuid=none -emit-llvm -O1"

for version in 5 6; do
  clang-19 $hip --offload-arch=gfx942 -mcode-object-version=$version -c device.hip -o device.gfx942.v$version.llvm19.bc
  clang-19 $hip --offload-arch=gfx942 -mcode-object-version=$version -S device.hip -o device.gfx942.v$version.llvm19.ll
done
$zig $hip --offload-arch=gfx950 -mcode-object-version=6 -c device.hip -o device.gfx950.v6.llvm22.bc
$zig $hip --offload-arch=gfx950 -mcode-object-version=6 -S device.hip -o device.gfx950.v6.llvm22.ll
clang-19 --target=x86_64-linux-gnu -emit-llvm -c plain.c -o plain.llvm19.bc
clang-19 --target=x86_64-linux-gnu -emit-llvm -S plain.c -o plain.llvm19.ll
llvm-as-19 shapes.ll -o shapes.llvm19.bc
$zig --target=amdgcn-amd-amdhsa -nogpulib -x ir shapes.ll -emit-llvm -c -o shapes.llvm22.bc
llvm-as-14 typed_pointers.ll -o typed_pointers.llvm14.bc
