# SPDX-License-Identifier: Apache-2.0
"""The contract between build and run time: manifest, code objects, offload bundles, and the checks of all three."""
