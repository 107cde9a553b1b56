# SPDX-License-Identifier: Apache-2.0
"""Read LLVM IR, as bitcode and as text, without LLVM."""
