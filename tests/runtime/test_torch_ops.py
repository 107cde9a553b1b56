# SPDX-License-Identifier: Apache-2.0
"""What ops ask of torch where there is a device: with a stand-in for torch. With torch itself: `tests/backend/test_torch_ops.py`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flydsl_build.runtime.torch_ops import Ops


class Tensor:
    """Of a device; None is host memory."""

    def __init__(self, device: int | None, *, requires_grad: bool = False) -> None:
        self.device = device
        self.is_cuda = device is not None
        self.requires_grad = requires_grad

    def get_device(self) -> int:
        return -1 if self.device is None else self.device

    def detach(self) -> Tensor:
        return Tensor(self.device)


def torch(*, raw: bool = True, available: bool = True, current: int = 0, exchange: bool = True) -> Any:
    """Return the parts of torch that are used; the current stream of device n is 1000 + n, but for `current` it is the default one."""

    def handle(device: int | None = None) -> int:
        return 0 if device in {None, current} else 1000 + (device or 0)

    return SimpleNamespace(
        ops=SimpleNamespace(kernels=SimpleNamespace()),
        library=SimpleNamespace(Library=lambda *_: object()),
        autograd=SimpleNamespace(graph=SimpleNamespace(increment_version=None)),
        Tag=SimpleNamespace(pt2_compliant_tag="compliant", flexible_layout="flexible"),
        Tensor=type("Tensor", (Tensor,), {"__dlpack_c_exchange_api__": None} if exchange else {}),
        cuda=SimpleNamespace(is_available=lambda: available, current_stream=lambda *of: SimpleNamespace(cuda_stream=handle(*of))),
        _C=SimpleNamespace(_cuda_getCurrentRawStream=handle) if raw else SimpleNamespace(),
        float32="torch.float32",
    )


def ops(**parts: Any) -> Ops:
    return Ops(torch(**parts), "pkg.kernels", "kernels")


@pytest.mark.parametrize("raw", [True, False])
def test_the_stream_is_the_current_one_of_the_tensors_device(raw: bool) -> None:
    made = ops(raw=raw, current=3)
    assert [made.stream(Tensor(device)) for device in (None, 1, 3)] == [None, 1001, 0]


def test_the_stream_of_an_op_without_tensors() -> None:
    assert ops().stream(None) == 0
    assert ops(available=False).stream(None) is None


def test_a_launcher_without_a_stream_runs_in_the_default_stream_only() -> None:
    made = ops(current=0)
    made.refuse_stream("add", Tensor(0))
    made.refuse_stream("add", Tensor(None))
    with pytest.raises(RuntimeError) as caught:
        made.refuse_stream("add", Tensor(1))
    assert str(caught.value) == (
        "add has no stream parameter, so it runs in the default stream, and torch's current stream is another\n"
        "    -> give the launcher a stream parameter, or call the op in the default stream"
    )


def test_tensors_that_torch_does_not_export() -> None:
    given: list[Any] = []

    def launcher(*arguments: Any, **keywords: Any) -> None:
        given.extend([*arguments, *keywords.values()])

    assert ops().launchable(launcher) is launcher
    made = torch(exchange=False)
    plain, leaf = made.Tensor(0), made.Tensor(0, requires_grad=True)
    Ops(made, "pkg.kernels", "kernels").launchable(launcher)(plain, 1, X=leaf)
    assert given[:2] == [plain, 1]
    assert (given[2].device, given[2].requires_grad) == (0, False)


def test_values() -> None:
    made = ops()
    assert [made.type_name(value) for value in ("torch.float32", "i32", type("Float16", (), {}), type("Own", (), {}))] == [
        "f32",
        "i32",
        "f16",
        "Own",
    ]
    assert made.frozen([1, (2, [3])]) == (1, (2, (3,)))
    assert made.given(a=..., b=None) == {"b": None}
