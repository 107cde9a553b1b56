# SPDX-License-Identifier: Apache-2.0
"""Which network card this machine has."""

import os


def detect() -> str:
    return os.environ.get("SHMEM_NIC", "mlx5")
