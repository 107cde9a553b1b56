# SPDX-License-Identifier: Apache-2.0
"""Schedule jobs, and run them in processes of this machine or of a cluster."""
