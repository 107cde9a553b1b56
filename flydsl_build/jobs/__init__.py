# SPDX-License-Identifier: Apache-2.0
"""What travels between the build process and compile processes: jobs, results, their environment; the interface of executors."""
