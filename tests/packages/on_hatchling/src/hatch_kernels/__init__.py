# SPDX-License-Identifier: Apache-2.0
"""A package in pure Python but for its kernels."""


def main():
    print("kernels")
