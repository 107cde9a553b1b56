# SPDX-License-Identifier: Apache-2.0
"""Find the linker, the device libraries and the disassembler."""
