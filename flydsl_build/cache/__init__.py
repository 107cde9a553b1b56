# SPDX-License-Identifier: Apache-2.0
"""Content-addressed store of results, local and remote, and the fingerprints of what they depend on."""
