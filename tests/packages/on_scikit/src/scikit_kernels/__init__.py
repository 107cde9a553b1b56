# SPDX-License-Identifier: Apache-2.0
"""A package with an extension module that its base back end builds."""

from scikit_kernels._size import threads

__all__ = ["main", "threads"]


def main():
    print(threads())
