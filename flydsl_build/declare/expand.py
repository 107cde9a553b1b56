# SPDX-License-Identifier: Apache-2.0
"""Expands declarations into specializations: products, parameter sets, placeholders, names."""

from __future__ import annotations

import hashlib
import itertools
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..codec import enum_reference
from ..config.keys import quote_key
from ..config.names import is_dotted_name
from ..errors import ConfigError, Fault, FaultCollector, did_you_mean
from .argument_grammar import format_argument, parse_argument
from .argument_types import ArgumentType, Dim, StructType, TensorType
from .specialization import Specialization

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..config.tables import ArgumentText, AxisTable, CompileOptions, KernelTable, ParameterSet, PlainValue, Settings, WrittenNames

__all__ = ["expand"]

_MOST = 10_000
_SHOWN = 5
_LONGEST_NAME = 80
_HASH_DIGITS = 8

_Values = tuple[tuple[str, "PlainValue"], ...]
_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Declaration:
    """A kernel, or one of its sets, with everything it takes from the kernel."""

    kernel: KernelTable
    params: tuple[Mapping[str, tuple[PlainValue, ...]], ...] | None
    constexpr: tuple[Mapping[str, tuple[PlainValue, ...]], ...]
    args: tuple[Mapping[str, ArgumentText], ...]
    returns: tuple[str, ...]
    launcher: str | Mapping[str, str] | None
    out: WrittenNames | None
    out_where: str
    where: str
    args_where: str
    targets: tuple[str, ...]
    options: CompileOptions


def expand(settings: Settings) -> tuple[Specialization, ...]:
    """Return the specializations that the settings declare for the targets of this build, in the order of the declarations.

    Parameters
    ----------
    settings
        The settings, with the kernels of `kernels-from` if there are any.

    Raises
    ------
    ConfigError
        With every fault found: argument types, placeholders, names used twice, declarations that repeat another.
    """
    faults = FaultCollector()
    found: list[Specialization] = []
    for kernel in settings.kernels:
        declarations = list(_declarations(kernel, settings))
        if len(declarations) > 1:
            _check_sets_alike(declarations, faults)
        for declaration in declarations:
            _check_out(declaration, faults, torch_ops=settings.torch_ops)
        if not _check_number(declarations, settings.axes, faults):
            continue
        own = [specialization for declaration in declarations for specialization in _specializations(declaration, settings.axes, faults)]
        _check_repeated(own, faults)
        found += own
    faults.raise_if_any(ConfigError)
    return _with_unique_names(found)


def _declarations(kernel: KernelTable, settings: Settings) -> Iterator[_Declaration]:
    for each in kernel.sets or (None,):
        targets = settings.targets_for(kernel, each)
        # A narrower -C archs leaves this one out of the build; it is checked when it is in.
        if not targets:
            continue
        yield _declaration(kernel, each, targets, settings.options)


def _declaration(kernel: KernelTable, own: ParameterSet | None, targets: tuple[str, ...], options: CompileOptions) -> _Declaration:
    options = kernel.options.over(options)
    if own is None:
        return _Declaration(
            kernel=kernel,
            params=kernel.params,
            constexpr=kernel.constexpr,
            args=kernel.args,
            returns=kernel.returns,
            launcher=kernel.launcher,
            out=kernel.out,
            out_where=kernel.where,
            where=kernel.where,
            args_where=kernel.where,
            targets=targets,
            options=options,
        )
    return _Declaration(
        kernel=kernel,
        params=kernel.params if own.params is None else own.params,
        constexpr=kernel.constexpr if own.constexpr is None else own.constexpr,
        args=kernel.args if own.args is None else own.args,
        returns=kernel.returns if own.returns is None else own.returns,
        launcher=kernel.launcher if own.launcher is None else own.launcher,
        out=kernel.out if own.out is None else own.out,
        out_where=kernel.where if own.out is None else own.where,
        where=own.where,
        args_where=kernel.where if own.args is None else own.where,
        targets=targets,
        options=own.options.over(options),
    )


def _check_number(declarations: list[_Declaration], axes: tuple[AxisTable, ...], faults: FaultCollector) -> bool:
    """Record products that are more than anybody builds: they would fill the memory before the first is compiled."""
    total = 0
    lengths: dict[str, None] = {}
    for each in declarations:
        number = max(1, len(each.returns)) * len(each.args)
        used = {axis.name: axis.values for axis in _axes_used(each, axes)}
        for kind, tables in (("params", each.params), ("constexpr", each.constexpr), ("axes", (used,))):
            number *= 1 if tables is None else sum(math.prod(map(len, table.values())) for table in tables)
            lengths.update(
                (f"{len(values)} values of {kind}.{name}", None)
                for table in tables or ()
                for name, values in table.items()
                if len(values) > 1
            )
        total += number
    if total <= _MOST:
        return True
    shown = ", ".join(itertools.islice(lengths, _SHOWN)) + (f" and {len(lengths) - _SHOWN} more" if len(lengths) > _SHOWN else "")
    faults.add(
        declarations[0].kernel.where,
        f"declares {total:,} specializations" + (f", the products of {shown}" if shown else ""),
        f"at most {_MOST:,} can be built of one kernel: list the combinations that are needed, as in params = [{{ … }}, {{ … }}]",
    )
    return False


def _specializations(declaration: _Declaration, axes: tuple[AxisTable, ...], faults: FaultCollector) -> list[Specialization]:
    """Return the product of a declaration: params outermost, then constexpr, returned launchers, argument tables and axes."""
    used = _axes_used(declaration, axes)
    right = _check_returns(declaration, faults)
    if not _check_names(declaration, used, faults) or not right:
        return []
    every_params: Sequence[_Values | None] = [None] if declaration.params is None else _products(declaration.params)
    found = []
    # The same text with the same placeholders makes the same fault in every product.
    reported: set[str] = set()
    for params, constexpr, element, (index, table), combination in itertools.product(
        every_params,
        _products(declaration.constexpr),
        declaration.returns or (None,),
        enumerate(declaration.args),
        list(itertools.product(*(axis.values for axis in used))),
    ):
        axis_values = tuple(zip((axis.name for axis in used), combination, strict=True))
        values = _with_fields({**dict(params or ()), **dict(constexpr), **dict(axis_values)})
        several = len(declaration.args) > 1
        where = f"{declaration.args_where}.args" + (f"[{index}]" if several else "")
        texts: ArgumentText = table
        if element is not None:
            texts, where = table.get(element, {}), f"{where}.{quote_key(element)}"
        assert isinstance(texts, Mapping)
        args = _arguments(texts, values, where, faults, reported)
        words = [*([] if element is None else [element]), *([f"args{index}"] if several else []), *combination]
        found.append(
            Specialization(
                name=_readable_name(declaration.kernel.attribute, (*(params or ()), *constexpr), words),
                frontend=declaration.kernel.frontend,
                module=declaration.kernel.module,
                attribute=declaration.kernel.attribute,
                where=declaration.where,
                params=params,
                element=element,
                returns=declaration.returns,
                inner=_inner(declaration.launcher),
                out=declaration.out.get(element or "") if isinstance(declaration.out, Mapping) else declaration.out,
                constexpr=constexpr,
                args=args,
                targets=declaration.targets,
                options=declaration.options,
                axes=axis_values,
            )
        )
    return found


def _with_fields(values: dict[str, PlainValue]) -> dict[str, PlainValue]:
    """Return the values with the fields of tables beside them, under dotted names: `{config.tile}` is a placeholder."""
    for name, value in list(values.items()):
        member = enum_reference(value)
        if member is not None:
            values[name] = member.rpartition(".")[2]
        elif isinstance(value, dict):
            values.update(_with_fields({f"{name}.{field}": item for field, item in value.items()}))
    return values


def _inner(launcher: str | Mapping[str, str] | None) -> tuple[tuple[str, str], ...]:
    if launcher is None:
        return ()
    return (("", launcher),) if isinstance(launcher, str) else tuple(launcher.items())


def _products(tables: tuple[Mapping[str, tuple[PlainValue, ...]], ...]) -> list[_Values]:
    """Return the products of each table, one after the other."""
    return [tuple(zip(table, values, strict=True)) for table in tables for values in itertools.product(*table.values())]


def _axes_used(declaration: _Declaration, axes: tuple[AxisTable, ...]) -> list[AxisTable]:
    """Return the axes that the kernel names, or whose placeholder is in its argument types."""
    if not axes:
        return []
    names = {match[1] for table in declaration.args for text in _texts(table) for match in _BRACES.finditer(text)}
    return [axis for axis in axes if axis.name in declaration.kernel.axes or axis.name in names]


def _texts(table: Mapping[str, ArgumentText]) -> Iterator[str]:
    for value in table.values():
        if isinstance(value, str):
            yield value
        else:
            yield from _texts(value)


def _check_sets_alike(declarations: list[_Declaration], faults: FaultCollector) -> None:
    """Record sets of which some are of a factory, or of several launchers, and others not: the stub has one thing for all."""
    rules = (
        ("params", "the attribute is a factory for all sets, or for none", [each.params is not None for each in declarations]),
        (
            "returns",
            'the factory returns named launchers for all sets, or one for all: add returns = ["…"]',
            [bool(each.returns) for each in declarations],
        ),
    )
    for key, fix, has in rules:
        if len(set(has)) > 1:
            other, first = declarations[has.index(False)], declarations[has.index(True)]
            faults.add(f"{other.where}.{key}", f"missing, but {first.where} has it", fix)


def _check_returns(declaration: _Declaration, faults: FaultCollector) -> bool:
    """Record `returns` without a factory, and `args` that are not by returned launcher."""
    returns = declaration.returns
    right = _check_inner(declaration, faults)
    if not returns:
        return right
    if declaration.params is None:
        faults.add(
            f"{declaration.where}.returns",
            "there are no `params`, so nothing is called that could return launchers",
            "add params = { … } with the arguments of the factory; params = {} if it takes none",
        )
        right = False
    for index, table in enumerate(declaration.args):
        where = f"{declaration.args_where}.args" + (f"[{index}]" if len(declaration.args) > 1 else "")
        for name, texts in table.items():
            example = f'args = {{ {returns[0]} = {{ {name} = "f32[M, N]" }} }}'
            if name not in returns:
                fix = did_you_mean(name, returns) if isinstance(texts, Mapping) else f"write a table for each returned launcher: {example}"
                faults.add(f"{where}.{quote_key(name)}", f"{name} is not among the returned launchers", fix)
            elif isinstance(texts, str):
                faults.add(
                    f"{where}.{quote_key(name)}",
                    f'found the string "{texts}"',
                    f'write a table with the argument types of {name}: {name} = {{ A = "f32[M, N]" }}',
                )
            else:
                continue
            right = False
    return right


def _check_inner(declaration: _Declaration, faults: FaultCollector) -> bool:
    """Record `launcher` that is not by returned name where there are several, or that is where there are none."""
    inner, returns, where = declaration.launcher, declaration.returns, f"{declaration.where}.launcher"
    if isinstance(inner, str) and returns:
        faults.add(where, f'found the string "{inner}"', f'write a table by returned name: launcher = {{ {returns[0]} = "{inner}" }}')
        return False
    named = inner if isinstance(inner, Mapping) else {}
    for name, text in named.items():
        if name not in returns:
            fix = did_you_mean(name, returns) if returns else f'nothing is named by `returns`: write launcher = "{text}"'
            faults.add(f"{where}.{quote_key(name)}", f"{name} is not among what is returned", fix)
    return all(name in returns for name in named)


def _check_out(declaration: _Declaration, faults: FaultCollector, *, torch_ops: bool) -> None:
    """Record an `out` that is not by returned launcher, or not there although ops are made."""
    returns, out, where = declaration.returns, declaration.out, f"{declaration.out_where}.out"
    found: list[Fault] = []
    example = f"out = {{ {', '.join(f'{name} = […]' for name in returns)} }}" if returns else 'out = ["C"]'
    if isinstance(out, Mapping):
        for name in out:
            if not returns:
                what = "there are no `returns`, so there is one launcher"
                found.append(Fault(where=f"{where}.{quote_key(name)}", what=what, fix=f"write a list: {example}"))
            elif name not in returns:
                what = f"{name} is not among the returned launchers"
                found.append(Fault(where=f"{where}.{quote_key(name)}", what=what, fix=did_you_mean(name, returns)))
    elif out is not None and returns:
        found.append(Fault(where=where, what="found a list", fix=f"write a list for each returned launcher: {example}"))
    silent = [name for name in returns if out is None or (isinstance(out, Mapping) and name not in out)]
    if torch_ops and (silent or (out is None and not returns)):
        of = f" by {', '.join(silent)}" if silent else ""
        what = f"missing: an op of torch-ops says which arguments are written{of}"
        fix = f"add {example} with the names of the tensors and pointers that are written; [] for none"
        found.append(Fault(where=where, what=what, fix=fix))
    # Sets that have it from their kernel have its faults, too.
    faults.extend(one for one in found if one not in faults.faults)


def _check_names(declaration: _Declaration, axes: list[AxisTable], faults: FaultCollector) -> bool:
    """Record names that stand for two things in one declaration."""
    kinds: list[tuple[str, set[str]]] = [
        ("params", {name for table in declaration.params or () for name in table}),
        ("constexpr", {name for table in declaration.constexpr for name in table}),
        ("axes", {axis.name for axis in axes}),
    ]
    right = True
    for (kind, names), (other, others) in itertools.combinations(kinds, 2):
        for name in sorted(names & others):
            faults.add(f"{declaration.where}.{other}.{name}", f"{name} is also in {kind}", f"{{{name}}} could mean either; rename one")
            right = False
    # Of several returned launchers, one may have as an argument what another has as constexpr.
    # A struct may be both: its constexpr fields are in a table.
    tables = declaration.constexpr if not declaration.returns else ()
    constexpr = {name for table in tables for name, values in table.items() if not any(isinstance(one, dict) for one in values)}
    for name in sorted(constexpr & {name for table in declaration.args for name in table}):
        faults.add(f"{declaration.where}.constexpr.{name}", f"{name} is also in args", "a parameter is either an argument or constexpr")
        right = False
    return right


def _arguments(
    table: Mapping[str, ArgumentText], values: Mapping[str, PlainValue], where: str, faults: FaultCollector, reported: set[str]
) -> tuple[tuple[str, ArgumentType], ...]:
    found: list[tuple[str, ArgumentType]] = []
    for name, text in table.items():
        place = f"{where}.{quote_key(name)}"
        if not isinstance(text, str):
            found.append((name, StructType(fields=_arguments(text, values, place, faults, reported))))
            continue
        filled = _fill(text, values, place, faults, reported) if "{" in text or "}" in text else text
        if filled is None:
            continue
        try:
            found.append((name, parse_argument(filled, where=place, written=text)))
        except ConfigError as error:
            for fault in error.faults:
                if str(fault) not in reported:
                    faults.extend([fault])
                    reported.add(str(fault))
    return tuple(found)


def _fill(text: str, values: Mapping[str, PlainValue], where: str, faults: FaultCollector, reported: set[str]) -> str | None:
    """Return the text with its placeholders filled, or None with a fault."""
    wrong: list[tuple[int, str, str]] = []

    def value_of(match: re.Match[str]) -> str:
        found = match[0]
        if found in {"{{", "}}"}:
            return found[0]
        name = match[1]
        if name is None:
            wrong.append((match.start(), f'"{found}" has no partner', "write literal braces as {{ and }}"))
        elif name == "arch" and name not in values:
            wrong.append(
                (
                    match.start(),
                    "{arch} cannot be in an argument type: it is the same for all targets",
                    "use a parameter, or one set for each target",
                )
            )
        elif name not in values:
            hint = did_you_mean(name, list(values)) if is_dotted_name(name) else "a placeholder is a name"
            wrong.append((match.start(), f"unknown placeholder {{{name}}}", hint or "this kernel has no params, constexpr values or axes"))
        elif not isinstance(values[name], str | int) or isinstance(values[name], bool):
            wrong.append((match.start(), f"{{{name}}} is {values[name]!r}", "only strings and integers can be filled in"))
        else:
            return str(values[name])
        return ""

    filled = _BRACES.sub(value_of, text)
    for position, what, fix in wrong:
        key = f"{where} {position} {what}"
        if key not in reported:
            faults.add(where, what, fix, f"{text}\n{' ' * position}^")
            reported.add(key)
    return None if wrong else filled


# Repetition


def _check_repeated(specializations: list[Specialization], faults: FaultCollector) -> None:
    """Record specializations that are declared for one target twice.

    The same values for other targets, with other options, are no repetition.
    """
    if len(specializations) < 2:
        return
    groups: dict[str, list[Specialization]] = {}
    for each in specializations:
        groups.setdefault(_identity(each), []).append(each)
    for group in groups.values():
        for position, second in enumerate(group):
            first = next((one for one in group[:position] if not set(second.targets).isdisjoint(one.targets)), None)
            if first is not None:
                both = [target for target in second.targets if target in first.targets]
                what = f"declares {_describe(second)} "
                what += "twice" if second.where == first.where else f"for {', '.join(both)}, as {first.where} does"
                if second.args != first.args:
                    one, other = (
                        ", ".join(f"{name} = {format_argument(each)}" for name, each in args) for args in (first.args, second.args)
                    )
                    what += f": a call fits {other} where it fits {one}"
                faults.add(second.where, what, "remove one of them, or give them different targets")


def _identity(specialization: Specialization) -> str:
    """Return what makes a specialization, apart from targets and options."""
    # repr, because 1, 1.0 and True are equal to Python and are different parameters.
    return repr(
        (
            None if specialization.params is None else sorted(specialization.params, key=_first),
            specialization.element,
            sorted(specialization.constexpr, key=_first),
            _forms(specialization.args),
            sorted(specialization.axes, key=_first),
        )
    )


def _forms(args: tuple[tuple[str, ArgumentType], ...]) -> list[tuple[str, str]]:
    """Return the arguments as text by name. It counts where the name of a dim stands again, and not what the name is."""
    ordered = sorted(args, key=_first)
    count = Counter(dim.name for _, each in ordered for dim in _dims(each) if dim.name is not None)
    numbers = {name: f"_{number}" for number, name in enumerate(name for name in count if count[name] > 1)}
    return [(name, format_argument(_renamed(each, numbers))) for name, each in ordered]


def _dims(argument: ArgumentType) -> Iterator[Dim]:
    if isinstance(argument, TensorType):
        yield from argument.shape + argument.strides
    elif isinstance(argument, StructType):
        for _, each in argument.fields:
            yield from _dims(each)


def _renamed(argument: ArgumentType, names: Mapping[str, str]) -> ArgumentType:
    """Return the argument with other names of dims; those that have no other lose theirs."""
    if isinstance(argument, StructType):
        return replace(argument, fields=tuple((name, _renamed(each, names)) for name, each in argument.fields))
    if not isinstance(argument, TensorType):
        return argument
    shape, strides = (tuple(replace(dim, name=names.get(dim.name or "")) for dim in dims) for dims in (argument.shape, argument.strides))
    return replace(argument, shape=shape, strides=strides)


def _first(pair: tuple[str, object]) -> str:
    return pair[0]


def _describe(specialization: Specialization) -> str:
    values = [*(specialization.params or ()), *specialization.constexpr, *specialization.axes]
    words = ", ".join(f"{name}={value!r}" for name, value in values)
    return specialization.attribute + (f"({words})" if values else "") + (f" {specialization.element}" if specialization.element else "")


# Names


def _readable_name(attribute: str, values: _Values, words: list[str]) -> str:
    """Return a name from params and constexpr values and what else tells specializations apart.

    It may be too long or not unique yet.
    """
    return _file_safe("-".join([attribute.replace(".", "_"), *(_name_part(name, value) for name, value in values), *words]))


def _name_part(name: str, value: PlainValue) -> str:
    # "f32" says enough of a dtype, "1024" would not say of what.
    if isinstance(value, str) and value[:1].isalpha():
        return value
    if isinstance(value, tuple):
        return name + "x".join(str(item) for item in value)
    member = enum_reference(value)
    if member is not None:
        return member.rpartition(".")[2]
    if isinstance(value, dict):
        return "-".join([name, *(_name_part(field, item) for field, item in value.items())])
    if isinstance(value, bool | str):
        return f"{name}_{value}"
    return f"{name}{value}"


def _file_safe(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)


def _bounded(name: str, identity: str, *, always: bool = False) -> str:
    """Return the name, with a hash of `identity` instead of its end if it is too long (or `always`)."""
    if len(name) <= _LONGEST_NAME and not always:
        return name
    digest = hashlib.sha256(identity.encode()).hexdigest()[:_HASH_DIGITS]
    return f"{name[: _LONGEST_NAME - _HASH_DIGITS - 1]}-{digest}"


def _with_unique_names(specializations: list[Specialization]) -> tuple[Specialization, ...]:
    """Return the specializations with final names.

    Whether a name gets a hash does not depend on the order of declarations, so that names are stable.
    """
    count: dict[tuple[str, str], int] = {}
    for each in specializations:
        key = (each.module, each.name.lower())
        count[key] = count.get(key, 0) + 1
    found = []
    for each in specializations:
        clash = count[each.module, each.name.lower()] > 1
        if clash or len(each.name) > _LONGEST_NAME:
            identity = f"{each.key} {_identity(each)} {each.targets}"
            found.append(replace(each, name=_bounded(each.name, identity, always=clash)))
        else:
            found.append(each)
    return tuple(found)
