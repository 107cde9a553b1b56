# SPDX-License-Identifier: Apache-2.0
"""The FlyDSL front end: import, trace, lower, join and serialize; the only importer of flydsl."""
