# SPDX-License-Identifier: Apache-2.0
"""A stand-in for torch, for the worker processes only.

`flydsl.compiler` imports torch for a Tensor class, a Stream class and the names of dtypes; none of them is needed to
compile. Where torch is not installed this module takes its place, so that kernels can be built without it.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
import types
from typing import NoReturn

from flydsl_build.dtypes import DTYPE_TABLE

__all__ = ["TorchMissingError", "install_torch_stand_in"]

# Names that numpy has with ml_dtypes, and torch has not.
_NOT_TORCH = {"float8_e4m3", "float8_e4m3b11fnuz"}
_DTYPES = tuple(dtype.framework for dtype in DTYPE_TABLE if dtype.framework and dtype.framework not in _NOT_TORCH)


class TorchMissingError(ModuleNotFoundError):
    """A kernel module used more of torch than the stand-in has."""

    def __init__(self, attribute: str) -> None:
        super().__init__(
            f'the kernel module uses torch.{attribute}, but torch is not installed in the build environment; add "torch" to '
            "build-system.requires in pyproject.toml",
            name="torch",
        )


class _StandIn(types.ModuleType):
    """A module whose missing attributes are an error that says what to install."""

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise TorchMissingError(f"{self.__name__.removeprefix('torch')}.{name}".lstrip("."))


class _DType:
    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"torch.{self._name}"


def install_torch_stand_in() -> bool:
    """Put the stand-in into `sys.modules` if torch is not installed; return whether that was done."""
    if "torch" in sys.modules or importlib.util.find_spec("torch") is not None:
        return False
    torch, cuda = _StandIn("torch"), _StandIn("torch.cuda")
    for module in (torch, cuda):
        module.__spec__ = importlib.machinery.ModuleSpec(module.__name__, None, is_package=True)
        module.__path__ = []
    names = vars(torch)
    names["Tensor"] = type("Tensor", (), {"__module__": "torch"})
    names["dtype"] = _DType
    for name in _DTYPES:
        names[name] = _DType(name)
    names["cuda"] = cuda
    vars(cuda)["Stream"] = type("Stream", (), {"__module__": "torch.cuda"})
    vars(cuda)["is_available"] = lambda: False
    sys.modules["torch"], sys.modules["torch.cuda"] = torch, cuda
    return True
