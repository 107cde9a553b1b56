# SPDX-License-Identifier: Apache-2.0
"""torch: a module of custom ops beside a declared one."""
