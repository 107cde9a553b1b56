# SPDX-License-Identifier: Apache-2.0
"""Custom ops of torch for launchers, as the generated `…_torch` modules define them.

torch is not imported here: the generated module hands it over. Ops are defined with `torch.library.Library`, because a call of what
`torch.library.custom_op` makes takes ten times as long.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from enum import Enum

from .annotations import Any, Callable
from .description import plain_value
from .dtypes import FRAMEWORK_NAMES, KEPT_IN_BYTES, TYPE_NAMES
from .enums import spelled

__all__ = ["Ops"]

_HELD = "_flydsl_build_ops"


class Ops:
    """The ops of one declared module.

    Parameters
    ----------
    torch
        The module `torch`.
    module
        Name of the declared module.
    namespace
        That of its ops, below `torch.ops`.

    Raises
    ------
    ImportError
        If the namespace belongs to the ops of another module.
    """

    def __init__(self, torch: Any, module: str, namespace: str) -> None:
        self._torch = torch
        self._namespace = getattr(torch.ops, namespace)
        self._prefix = namespace
        # torch forgets what a Library defined when it is collected. The namespace is never: so an op is defined once in a process,
        # however often the modules are imported. Another copy of this file may have written it: plain values.
        held = vars(self._namespace).get(_HELD)
        if held is None:
            held = (module, torch.library.Library(namespace, "FRAGMENT"), {})
            setattr(self._namespace, _HELD, held)
        if held[0] != module:
            msg = f"torch.ops.{namespace} has the ops of {held[0]}: those of {module} cannot be defined in one process with them"
            raise ImportError(msg)
        _, self._library, self._defined = held
        self.dtypes = {getattr(torch, theirs): ours for theirs, ours in FRAMEWORK_NAMES.items() if hasattr(torch, theirs)}
        self.wrote = torch.autograd.graph.increment_version
        # Without the exchange table (torch before 2.10), torch exports no tensor that requires a gradient.
        self._detaches = not hasattr(torch.Tensor, "__dlpack_c_exchange_api__")
        # Inductor may choose strides: it would copy arguments for a tag that fixes them. The launch checks them.
        self._tags = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)
        self._replaced: list[tuple[dict[str, Any], dict[str, Any]]] = []
        # By the identity of what the stub's factory returned, which returns the same for the same parameters.
        self._made: dict[int, tuple[Any, Any]] = {}
        self._raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # noqa: SLF001 - what torch's own generated code calls

    def define(self, name: str, schema: str, names: tuple[str, ...], launcher: Any, kernel: Callable[..., None]) -> Any:
        """Define an op, unless that has been done in this process; return it.

        The overload is named after the schema: the caches of torch know an op by its name, and would serve what was compiled for
        another declaration.

        Parameters
        ----------
        name
            In the namespace.
        schema
            Arguments and result.
        names
            The launcher's parameters that the arguments are for.
        launcher
            What the op launches.
        kernel
            Launches it with the op's arguments. Replaces that of an earlier import in `publish`.

        Raises
        ------
        ImportError
            If an earlier import has given the op another schema.
        """

        def fake(*arguments: Any) -> None:
            self._check(launcher, names, arguments)

        newest: dict[str, Any] = {"kernel": kernel, "fake": fake}

        def latest_kernel(*arguments: Any) -> None:
            newest["kernel"](*arguments)

        def latest_fake(*arguments: Any) -> None:
            self._order(op)
            newest["fake"](*arguments)

        if name not in self._defined:
            overload = f"{name}.s{hashlib.sha256(schema.encode()).hexdigest()[:8]}"
            self._library.define(overload + schema, tags=self._tags)
            self._library.impl(overload, latest_kernel, "CompositeExplicitAutograd")
            self._torch.library.register_fake(f"{self._prefix}::{overload}", latest_fake, lib=self._library)
            op = getattr(getattr(self._namespace, name), overload.rpartition(".")[2])
            for key in ("Conjugate", "Negative"):
                self._library.impl(overload, self._resolving(op), key)
            if not op._schema.is_mutable:  # noqa: SLF001 - what torch names it
                # It is called for an effect that torch does not see, and must not be removed from a graph.
                self._torch.fx.node.has_side_effect(op)
            self._defined[name] = (op, schema, newest)
        op, former, current = self._defined[name]
        if former != schema:
            msg = (
                f"torch.ops.{self._prefix}.{name} is {former} in this process, where its module has been imported before, and now "
                f"{schema}: torch cannot define it again\n    -> restart the process"
            )
            raise ImportError(msg)
        self._replaced.append((current, newest))
        return op

    @staticmethod
    def _order(op: Any) -> None:
        """Have inductor compute what was made of a tensor's values before the op writes them.

        Inductor puts off what is cheap. It computes that when an op writes what it reads, but queues it behind the op. Only inductor's
        own registry of how ops are lowered helps; inductor is not imported for it. It calls the fake before it lowers the op.
        """
        lowering = sys.modules.get("torch._inductor.lowering")
        if lowering is None or op in lowering.lowerings:
            return
        launch, virtualized, written = lowering.fallback_handler(op), lowering.V, _written(op)

        def lower(*arguments: Any) -> Any:
            for tensor, is_written in zip(arguments, written, strict=False):  # torch leaves out what is a default
                if is_written and tensor is not None:
                    tensor.realize()
                    virtualized.graph.mark_buffer_mutated(tensor.get_name())
            return launch(*arguments)

        lowering.register_lowering(op, type_promotion_kind=None)(lower)

    def _resolving(self, op: Any) -> Callable[..., None]:
        """Return what calls the op without these bits of tensors; torch itself does so only for ops that return what they write."""
        written = _written(op)

        def resolve(*arguments: Any) -> None:
            plain = [one.resolve_conj().resolve_neg() if isinstance(one, self._torch.Tensor) else one for one in arguments]
            op(*plain)
            for given, one, back in zip(arguments, plain, written, strict=True):
                if back and one is not given:
                    given.copy_(one)

        return resolve

    def publish(self) -> None:
        """Let the ops launch what was defined last: called at the end of an import, so that one that fails replaces nothing."""
        for current, newest in self._replaced:
            current.update(newest)

    def launchable(self, launcher: Any) -> Any:
        """Return the launcher as an op of this torch can call it."""
        if not self._detaches:
            return launcher
        tensor = self._torch.Tensor

        def plain(value: Any) -> Any:
            return value.detach() if isinstance(value, tensor) and value.requires_grad else value

        def launch(*arguments: Any, **keywords: Any) -> None:
            launcher(*map(plain, arguments), **{name: plain(value) for name, value in keywords.items()})

        return launch

    def stream(self, tensor: Any) -> int | None:
        """Return torch's current stream of the tensor's device; of the current device without a tensor; None where there is none."""
        cuda = self._torch.cuda
        if tensor is None:
            return int(cuda.current_stream().cuda_stream) if cuda.is_available() else None
        if not tensor.is_cuda:
            return None
        if self._raw_stream is not None:
            return int(self._raw_stream(tensor.get_device()))
        return int(cuda.current_stream(tensor.device).cuda_stream)

    def refuse_stream(self, name: str, tensor: Any) -> None:
        """Refuse the call of a launcher without a stream parameter, which runs in the default stream, where another is current.

        Raises
        ------
        RuntimeError
            In whose place the kernel would run before, or at the same time as, the operations that the caller has queued.
        """
        if self.stream(tensor):
            msg = (
                f"{name} has no stream parameter, so it runs in the default stream, and torch's current stream is another\n"
                "    -> give the launcher a stream parameter, or call the op in the default stream"
            )
            raise RuntimeError(msg)

    def remember(self, made: Any, ops: Any) -> Any:
        """Return the ops of what a factory of the stub made, and keep them for `recall`."""
        self._made[id(made)] = (made, ops)
        return ops

    def recall(self, made: Any) -> Any:
        """Return the ops of what a factory of the stub made."""
        return self._made[id(made)][1]

    @staticmethod
    def given(**values: Any) -> dict[str, Any]:
        """Return the values without those that were left to a default of which nothing but that is known."""
        return {name: value for name, value in values.items() if value is not ...}

    @staticmethod
    def frozen(value: Any) -> Any:
        """Return a value with lists as tuples, as it was built."""
        return tuple([Ops.frozen(item) for item in value]) if isinstance(value, (list, tuple)) else value

    @staticmethod
    def exact(value: Any) -> Any:
        """Return a value, or each item of a tuple or list, with its type, as a key: by themselves 1, 1.0 and True are one."""
        if isinstance(value, (list, tuple)):
            return tuple([Ops.exact(item) for item in value])
        return (type(value), str(value) if isinstance(value, float) else value)

    @staticmethod
    def member_name(value: Any, enum: str) -> Any:
        """Return the name of a member of the enum called `enum`; text as it is.

        Raises
        ------
        TypeError
            It is a member of another enum.
        """
        if not isinstance(value, Enum):
            return value
        if type(value).__name__ != enum:
            msg = f"{spelled(value)} is no member of {enum}"
            raise TypeError(msg)
        return value.name or str(value.value)

    def type_name(self, value: Any) -> Any:
        """Return the name of a dtype of torch, or of a type of FlyDSL; a name as it is."""
        if isinstance(value, type):
            return TYPE_NAMES.get(value.__name__, value.__name__)
        return self.dtypes.get(value, value)

    def _check(self, launcher: Any, names: tuple[str, ...], arguments: tuple[Any, ...]) -> None:
        """Refuse arguments that no specialization is for, as far as dtypes, ranks and constants tell.

        Raises
        ------
        ValueError
            None was built for the constexpr values.
        TypeError
            With the reason, for each specialization if there are several.
        """
        given = dict(zip(names, arguments, strict=True))
        spelling = launcher._name  # noqa: SLF001 - the launcher's own module
        reasons = []
        chosen = launcher._handle._selected(spelling)[1]  # noqa: SLF001
        if all(any(self._constant_reasons(entry, given)) for _, entry in chosen):
            constants = {name: self.frozen(given[name]) for name in chosen[0][1]["constexpr"] if name in given}
            launcher._handle._refuse_constants(spelling, constants)  # noqa: SLF001
        for position, entry in chosen:
            expected = launcher._handle._expected(position, entry)  # noqa: SLF001
            reason = next(self._reasons(entry, expected, given), None)
            if reason is None:
                return
            reasons.append((entry["name"], reason))
        if len(reasons) == 1:
            msg = f"{spelling}(): {reasons[0][1]}"
        else:
            msg = f"{spelling}(): the arguments fit none of the {len(reasons)} specializations in this wheel:"
            msg += "".join(f"\n  {name}: {reason}" for name, reason in reasons)
        raise TypeError(msg)

    def _constant_reasons(self, entry: dict[str, Any], given: dict[str, Any]) -> Iterator[str]:
        for name, value in entry["constexpr"].items():
            built, found = plain_value(value), self.frozen(given.get(name))
            if name in given and found != built:
                yield f"constexpr {name} is {found!r}, not {built!r}"

    def _reasons(self, entry: dict[str, Any], expected: dict[str, str], given: dict[str, Any]) -> Iterator[str]:
        yield from self._constant_reasons(entry, given)
        for name, argument in entry["arguments"].items():
            tensor = given.get(name)
            if not isinstance(tensor, self._torch.Tensor):
                continue
            dtype, rank = self.dtypes.get(tensor.dtype, str(tensor.dtype)), tensor.dim()
            want = argument["dtype"]
            narrow = want in KEPT_IN_BYTES and dtype in {"u8", "i8"}
            if dtype != want and not narrow:
                what = f"the dtype is {dtype}, not {want}"
            elif argument["kind"] == "tensor" and rank != len(argument["shape"]):
                what = f"the rank is {rank}, not {len(argument['shape'])}"
            else:
                continue
            shape = ", ".join(map(str, tensor.shape))
            yield f"argument {name} must be {expected[name]}, got {dtype}[{shape}]: {what}"


def _written(op: Any) -> list[bool]:
    """Return for each argument of an op whether the op writes it."""
    return [argument.alias_info is not None and argument.alias_info.is_write for argument in op._schema.arguments]  # noqa: SLF001
