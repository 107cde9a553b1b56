# SPDX-License-Identifier: Apache-2.0
"""The gfx table; read, check and bundle AMDGPU code objects."""
