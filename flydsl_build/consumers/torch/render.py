# SPDX-License-Identifier: Apache-2.0
"""Render the module that has the launchers of a declared module as custom ops of torch.

A launcher is one op. A factory has an op for each launcher that was built, and is a function that torch.compile can trace: it looks up
its parameters. So an op has the arguments of its launcher and no others, whatever the parameters of the factory are.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from flydsl_build.codec import NO_DEFAULT, EnumMember
from flydsl_build.consumers.python_source import docstring, literal, names_of_type, signature
from flydsl_build.consumers.templates import StubError, render
from flydsl_build.declare.argument_types import PointerType, ScalarType, TensorType
from flydsl_build.dtypes import FLOAT_DTYPES
from flydsl_build.errors import Fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flydsl_build.bundle.manifest import LauncherEntry, Manifest, SpecializationEntry
    from flydsl_build.codec import PlainValue
    from flydsl_build.jobs.launcher import Parameter

__all__ = ["TorchOps", "render_torch_ops"]

# Names that the template uses inside of the functions that have the author's parameters.
_TAKEN: Final = frozenset({"_found", "_kernel", "_kernels", "_launch", "_launcher", "_name", "_op", "_ops", "_stream", "_wrote"})
# When torch.compile makes an op functional, it passes its arguments by keyword through functions that have parameters of these names.
_TAKEN_BY_TORCH: Final = frozenset({"args", "cls", "ctx", "func", "interpreter", "kwargs", "mode", "op", "proxy", "self", "types"})
_TAKEN_PREFIXES: Final = ("_made", "_make_", "_Returned_", "_torch", "_namedtuple", "_SimpleNamespace", "_type_name", "_Ops")
_KEYWORDS: Final = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}
_PYTHON_TYPES: Final = {"Tensor": "_Tensor", "SymInt": "int", "Scalar": "int | float", "int[]": "list[int] | tuple[int, ...]"}


@dataclass(frozen=True, kw_only=True, slots=True)
class TorchOps:
    """A generated module: its text, that of its interface, and what is not in it, in words."""

    source: str
    interface: str
    left_out: tuple[str, ...]


class _NoTypeError(Exception):
    """A parameter that no type of torch's schemas is for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Argument:
    """An argument of an op; `type` is of torch's schema language. A member of an enum is passed on by its name."""

    parameter: Parameter
    type: str
    written: bool
    enum: str = ""

    @property
    def name(self) -> str:
        return self.parameter.name

    @property
    def python_type(self) -> str:
        plain = self.type.removesuffix("?")
        text = "_Type" if self.parameter.role == "type" else _PYTHON_TYPES.get(plain, plain)
        text = f"{self.enum} | {text}" if self.enum else text
        return f"{text} | None" if self.type.endswith("?") else text

    def in_schema(self, position: int, name: str) -> str:
        """Return the argument as torch's schema language has it, under a name of that language."""
        return f"{self.type}(a{position}!) {name}" if self.written else f"{self.type} {name}"

    def to_op(self) -> str:
        """Return the expression that the op is called with."""
        if self.parameter.role == "type":
            return f"_type_name({self.name})"
        return _member_name(self.name, self.enum) if self.enum else self.name

    def to_launcher(self) -> str:
        """Return the expression that the launcher is called with."""
        return f"_ops.frozen({self.name})" if self.type == "int[]" else self.name


@dataclass(frozen=True, kw_only=True, slots=True)
class _Maker:
    """A function of the generated module that makes an op; every text is Python."""

    name: str
    function: str
    names: str
    launch: str
    refuse_stream: str
    out: tuple[str, ...]
    schema: str
    parameters: str
    signature: str
    typed_parameters: tuple[tuple[Parameter, str], ...]
    doc: str
    op_arguments: str

    def typed_signature(self, first: str | None = None) -> str:
        types = {parameter.name: text for parameter, text in self.typed_parameters}
        return signature([parameter for parameter, _ in self.typed_parameters], types, first=first)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Class:
    """A type of the interface."""

    name: str
    base: str
    call_signature: str = ""
    doc: str = ""
    attributes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Launcher:
    """A launcher that is an op."""

    name: str
    maker: str
    op: str
    typed_signature: str
    doc: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Built:
    """What a factory returned for some parameters: the call, the key of the look-up if it has one, the ops in their form."""

    call: str
    key: str
    value: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Factory:
    """A factory; `key` is empty where its parameters cannot be looked up."""

    name: str
    signature: str
    typed_signature: str
    result: str
    doc: str
    key: str
    call: str
    returned: str
    built: tuple[_Built, ...]


class _Module:
    """Collects what the templates need."""

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.makers: dict[str, _Maker] = {}
        self.classes: dict[str, _Class] = {}
        self.launchers: list[_Launcher] = []
        self.factories: list[_Factory] = []
        self.left_out: list[str] = []
        self.op_names: set[str] = set()
        self.has_types = False

    def add(self, launcher: LauncherEntry) -> None:
        """Add a launcher or factory, or say why it is left out."""
        kept = (dict(self.makers), dict(self.classes), set(self.op_names))
        try:
            if launcher.kind == "factory":
                self.factories.append(self.factory(launcher))
            else:
                self.launchers.append(self.launcher(launcher))
        except _NoTypeError as error:
            self.makers, self.classes, self.op_names = kept
            self.left_out.append(f"{launcher.name}: {error}")

    def launcher(self, launcher: LauncherEntry) -> _Launcher:
        doc = launcher.doc or f"Launch {launcher.name}."
        maker = self.maker(launcher, launcher.specializations, launcher.name, doc)
        return _Launcher(
            name=launcher.name,
            maker=maker.name,
            op=literal(self.op_name(launcher.name)),
            typed_signature=maker.typed_signature(),
            doc=docstring(doc, indent="    "),
        )

    @property
    def public_names(self) -> list[str]:
        return sorted([*(one.name for one in self.launchers), *(one.name for one in self.factories)])

    def op_name(self, wanted: str) -> str:
        """Return a name that no other op of the module has, and that torch's schemas and namespaces take."""
        name = re.sub(r"[^A-Za-z0-9_]", "_", wanted)
        if name == "name" or name.startswith("__"):
            name = f"op_{name.lstrip('_')}"
        number, free = 1, name
        while free in self.op_names:
            number += 1
            free = f"{name}_{number}"
        self.op_names.add(free)
        return free

    def maker(self, launcher: LauncherEntry, members: Sequence[SpecializationEntry], function: str, doc: str) -> _Maker:
        """Return the maker of the launcher that has these specializations, which may be one that is there already."""
        where = f"{self.manifest.module}:{launcher.name}"
        parameters = launcher.parameters_of(members[0])
        names = [launcher.name, *(one.name for one in (*parameters, *(launcher.factory_parameters or ())))]
        taken = [name for name in names if name in _TAKEN or name.startswith(_TAKEN_PREFIXES)]
        if taken:
            raise StubError(Fault(where=where, what=f"the name {taken[0]} is taken by the module of torch-ops", fix="rename it"))
        arguments = [one for one in (_argument(parameter, members) for parameter in parameters) if one is not None]
        self.has_types = self.has_types or any(one.parameter.role == "type" for one in arguments)
        tensor = next((one.name for one in arguments if one.type == "Tensor"), "None")
        inner = [one.name for one in arguments]
        types = ", ".join(one.in_schema(n, name) for n, (one, name) in enumerate(zip(arguments, _schema_names(inner), strict=True)))
        maker = _Maker(
            name=f"_make_{function}",
            function=function,
            names=", ".join(inner),
            launch=_launch(parameters, arguments, tensor),
            refuse_stream="" if any(one.role == "stream" for one in parameters) else f"_ops.refuse_stream(_name, {tensor})",
            out=tuple(one.name for one in arguments if one.written),
            schema=literal(f"({types}) -> ()"),
            parameters=literal(tuple(inner)),
            signature=signature([one.parameter for one in arguments], None),
            typed_parameters=tuple((one.parameter, one.python_type) for one in arguments),
            doc=docstring(doc, indent="        "),
            op_arguments=", ".join(one.to_op() for one in arguments),
        )
        # Launchers of a factory differ in their parameters only if the author made it so: most factories need one maker.
        number = 1
        while self.makers.setdefault(maker.name, maker) != maker:
            number += 1
            maker = replace(maker, name=f"_make_{function}_{number}")
        return maker

    def factory(self, launcher: LauncherEntry) -> _Factory:
        own = launcher.factory_parameters or ()
        by_params: dict[str, list[SpecializationEntry]] = {}
        for each in launcher.specializations:
            by_params.setdefault(repr(sorted(each.params.items())), []).append(each)
        groups = list(by_params.values())
        # Objects with fields have no hash that their tables would share.
        has_fields = any(isinstance(value, dict) for each in launcher.specializations for value in each.params.values())
        values_of = {one.name: [each.params[one.name] for each in launcher.specializations if one.name in each.params] for one in own}
        enums = {name: enum for name, every in values_of.items() if (enum := _only_enum(every))}
        # Members of several enums, or these and other values, may be equal and are not the same.
        is_mixed = any(_has_member(every) for name, every in values_of.items() if name not in enums)
        can_look_up = not has_fields and not is_mixed and not any(parameter.kind in _KEYWORDS for parameter in own)
        frozen = {name for each in launcher.specializations for name, value in each.params.items() if isinstance(value, tuple)}
        keys = [tuple(members[0].params.get(parameter.name, ...) for parameter in own) for members in groups]
        # 1, 1.0 and True would be one key.
        exact = {name for name, every in values_of.items() if any(map(_has_number, every))}
        built = []
        classes: dict[str | None, dict[str, None]] = {}
        for members, key in zip(groups, keys, strict=True):
            values: list[tuple[str | None, str]] = []
            for element in _elements(launcher, members):
                mine = [one for one in members if one.element == element]
                function = launcher.name if element is None else f"{launcher.name}_{element}"
                of = f"Launch what {launcher.name} returned." if element is None else f"Launch {element} of what {launcher.name} returned."
                of = mine[0].doc or of
                maker = self.maker(launcher, mine, function, of)
                op = self.op_name("_".join([launcher.name, *_value_words(members[0].params, own), *([element] if element else [])]))
                position = f"[{len(values)}]" if launcher.returns and launcher.returns.form == "tuple" else _place(launcher, element)
                values.append((element, f"{maker.name}(_made{position}, {literal(op)})"))
                name = self.type_of(maker)
                classes.setdefault(element, {})[name] = None
            call = _call(own, {name: literal(value) for name, value in members[0].params.items()})
            texts = {parameter.name: "..." if value is ... else _in_key(value) for parameter, value in zip(own, key, strict=True)}
            text = _key(own, {name: f"_ops.exact({text})" if name in exact else text for name, text in texts.items()})
            built.append(_Built(call=call, key=text if can_look_up else "", value=_in_form(launcher, values)))
        doc = launcher.doc or f"Return what {launcher.name} returns, as ops of torch."
        asked = {parameter.name: f"_ops.frozen({parameter.name})" if parameter.name in frozen else parameter.name for parameter in own}
        types = [parameter.name for parameter in own if parameter.role == "type"]
        asked |= {name: f"_type_name({name})" for name in types}
        asked |= {name: _member_name(name, enum) for name, enum in enums.items()}
        look_up = asked | {name: f"_ops.exact({name})" for name in exact}
        self.has_types = self.has_types or bool(types)
        left_out = _left_out(launcher)
        return _Factory(
            name=launcher.name,
            signature=signature(own, None, left_out=left_out),
            typed_signature=signature(own, {one.name: _factory_type(one, launcher) for one in own}, left_out=left_out),
            result=self.result(launcher, {element: list(names) for element, names in classes.items()}),
            doc=docstring(doc, indent="    "),
            key=_key(own, look_up) if can_look_up else "",
            call=_call(own, asked, left_out),
            returned=f'_Returned_{launcher.name} = _namedtuple("{launcher.name}", {literal(launcher.returns.names)})'
            if launcher.returns is not None and launcher.returns.form == "namedtuple"
            else "",
            built=tuple(built),
        )

    def type_of(self, maker: _Maker) -> str:
        """Return the name of the interface's type for the launchers of a maker."""
        name = maker.name.replace("_make_", "_Op_", 1)
        own = {parameter.name for parameter, _ in maker.typed_parameters}
        self.classes[name] = _Class(
            name=name,
            base="_Protocol",
            call_signature=maker.typed_signature("_self" if "self" in own else "self"),
            doc=maker.doc,
        )
        return name

    def result(self, launcher: LauncherEntry, types: dict[str | None, list[str]]) -> str:
        """Return the type of what a factory returns."""
        returns = launcher.returns
        if returns is None:
            return _one_type(types[None])
        if returns.form == "dict":
            return f"dict[str, {_one_type(list(dict.fromkeys(name for each in types.values() for name in each)))}]"
        each = [_one_type(types[name]) for name in returns.names if name in types]
        if returns.form == "tuple":
            whole = all(len(names) == 1 for names in types.values())
            return f"tuple[{', '.join(each)}]" if whole else "tuple[_Callable[..., None], ...]"
        name = f"_Returned_{launcher.name}"
        base = "_NamedTuple" if returns.form == "namedtuple" else "_Protocol"
        self.classes[name] = _Class(name=name, base=base, attributes=tuple(zip(returns.names, each, strict=False)))
        return name


def render_torch_ops(manifest: Manifest, *, namespace: str, runtime_package: str) -> TorchOps:
    """Render the module of ops.

    Parameters
    ----------
    manifest
        The declared module's; every specialization has `out`.
    namespace
        Of the ops, below `torch.ops`.
    runtime_package
        Dotted name of the private run time.

    Raises
    ------
    StubError
        A parameter has a name that the generated module uses itself.
    """
    module = _Module(manifest)
    for launcher in manifest.launchers:
        module.add(launcher)
    forms = {launcher.returns.form for launcher in manifest.launchers if launcher.returns is not None}
    context = {
        "module": manifest.module,
        "module_literal": literal(manifest.module),
        "namespace": namespace,
        "namespace_literal": literal(namespace),
        "runtime_package": runtime_package,
        "public_names": [literal(name) for name in module.public_names],
        "makers": list(module.makers.values()),
        "classes": list(module.classes.values()),
        "launchers": module.launchers,
        "factories": module.factories,
        "has_named_tuple": "namedtuple" in forms,
        "has_object": "object" in forms,
        "has_types": module.has_types,
        "enums": [EnumMember(enum=reference, name="").class_name for reference in manifest.enums or {}],
    }
    source, interface = (render(name, **context) for name in ("torch_ops.py.j2", "torch_ops.pyi.j2"))
    for text in (source, interface):
        ast.parse(text)
    return TorchOps(source=source, interface=interface, left_out=tuple(module.left_out))


# --- arguments of ops --------------------------------------------------------------------------------------------------


def _argument(parameter: Parameter, members: Sequence[SpecializationEntry]) -> _Argument | None:
    """Return the op's argument for a parameter; None for one that no op has: the stream, and what is left to its default."""
    if parameter.role == "stream":
        return None
    if parameter.role in {"constexpr", "type"}:
        values = [one.constexpr[parameter.name] for one in members if parameter.name in one.constexpr]
        if not values:
            return None
        if len(values) < len(members):
            raise _NoTypeError(f"{parameter.name} is left to its default in some specializations, and has values in others")
        return _Argument(parameter=parameter, type=_type_of_values(parameter.name, values), written=False, enum=_only_enum(values))
    kinds = {_type_of_argument(one, parameter.name) for one in members}
    if kinds == {"SymInt", "float"}:
        kinds = {"Scalar"}
    if len(kinds) > 1:
        raise _NoTypeError(f"{parameter.name} is of several kinds: {', '.join(sorted(kinds))}")
    return _Argument(parameter=parameter, type=kinds.pop(), written=any(parameter.name in (one.out or ()) for one in members))


def _only_enum(values: Sequence[PlainValue]) -> str:
    """Return the class of values that are all members of one enum which text can name, or None; empty for other values."""
    found = {value.class_name if isinstance(value, EnumMember) and not value.is_exact else "" for value in values if value is not None}
    return found.pop() if len(found) == 1 else ""


def _member_name(parameter: str, enum: str) -> str:
    return f"_ops.member_name({parameter}, {literal(enum)})"


def _schema_names(names: Sequence[str]) -> list[str]:
    """Return names that torch's schemas take, which are ASCII; those of the Python functions stay as they are."""
    found: list[str] = []
    for name in names:
        plain = re.sub(r"[^A-Za-z0-9_]", "_", name)
        while plain in _TAKEN_BY_TORCH or plain in found or (plain != name and plain in names):
            plain += "_"
        found.append(plain)
    return found


def _type_of_argument(specialization: SpecializationEntry, name: str) -> str:
    match specialization.arguments[name]:
        case TensorType() | PointerType():
            return "Tensor"
        case ScalarType(dtype="bool"):
            return "bool"
        case ScalarType(dtype=dtype):
            return "float" if dtype in FLOAT_DTYPES else "SymInt"
        case _:
            raise _NoTypeError(f"{name} is a struct, for which an op of torch has no type")


def _type_of_values(name: str, values: Iterable[PlainValue]) -> str:
    """Return the type of a constexpr parameter with these values."""
    every = list(values)
    names = {type(value).__name__ for value in every if value is not None}
    optional = "?" if None in every else ""
    if names == {"tuple"} and not optional:
        inner = [item for value in every if isinstance(value, tuple) for item in value]
        if all(type(item) is int for item in inner):
            return "int[]"
    if _only_enum(every):
        return f"str{optional}"
    if names == {"int", "float"}:
        names = {"float"}
    if len(names) == 1 and names <= {"bool", "int", "float", "str"}:
        return names.pop() + optional
    raise _NoTypeError(f"{name} has values for which an op of torch has no type: {', '.join(map(repr, every))}")


def _launch(parameters: Sequence[Parameter], arguments: Sequence[_Argument], tensor: str) -> str:
    """Return the arguments of the launcher's call."""
    by_name = {one.name: one.to_launcher() for one in arguments}
    by_name |= {one.name: f"_stream({tensor})" for one in parameters if one.role == "stream"}
    return _call(parameters, by_name)


def _call(parameters: Sequence[Parameter], texts: dict[str, str], left_out: Iterable[str] = ()) -> str:
    """Return the arguments of a call: by position as long as none is missing, then by keyword."""
    words = []
    by_keyword = False
    for parameter in parameters:
        name = parameter.name
        if parameter.kind in _KEYWORDS:
            if name in texts:
                words.append(f"{_KEYWORDS[parameter.kind]}{texts[name]}")
            continue
        by_keyword = by_keyword or parameter.kind == "KEYWORD_ONLY" or name not in texts or name in left_out
        if name in left_out:
            words.append(f"**_ops.given({name}={texts[name]})")
        elif name in texts:
            words.append(f"{name}={texts[name]}" if by_keyword else texts[name])
    known = {parameter.name for parameter in parameters}
    words += [f"{name}={text}" for name, text in texts.items() if name not in known]
    return ", ".join(words)


# --- factories ---------------------------------------------------------------------------------------------------------


def _left_out(launcher: LauncherEntry) -> set[str]:
    """Return the parameters of a factory that some specialization left to a default that cannot be compared."""
    return {
        parameter.name
        for parameter in launcher.factory_parameters or ()
        if parameter.default is not NO_DEFAULT and any(parameter.name not in one.params for one in launcher.specializations)
    }


def _one_type(names: Sequence[str]) -> str:
    """Return the type of launchers of these types: which of them it is depends on values that a type checker does not look at."""
    return names[0] if len(names) == 1 else "_Callable[..., None]"


def _elements(launcher: LauncherEntry, members: Sequence[SpecializationEntry]) -> list[str | None]:
    """Return which launchers the factory returned for these specializations, in their order."""
    if launcher.returns is None:
        return [None]
    there = {one.element for one in members}
    return [name for name in launcher.returns.names if name in there]


def _place(launcher: LauncherEntry, element: str | None) -> str:
    """Return where a launcher is in what the factory of the stub returned."""
    if launcher.returns is None:
        return ""
    return f"[{literal(element)}]" if launcher.returns.form == "dict" else f".{element}"


def _in_form(launcher: LauncherEntry, values: Sequence[tuple[str | None, str]]) -> str:
    """Return the ops together, in the form that the factory returns."""
    if launcher.returns is None:
        return values[0][1]
    match launcher.returns.form:
        case "tuple":
            return _tuple([text for _, text in values])
        case "dict":
            return f"{{{', '.join(f'{literal(element)}: {text}' for element, text in values)}}}"
        case "namedtuple":
            return f"_Returned_{launcher.name}({', '.join(f'{element}={text}' for element, text in values)})"
        case _:
            return f"_SimpleNamespace({', '.join(f'{element}={text}' for element, text in values)})"


def _value_words(params: dict[str, PlainValue], own: Sequence[Parameter]) -> list[str]:
    """Return what tells the ops of a factory apart: the parameters that are not left to their defaults."""
    defaults = {parameter.name: repr(parameter.default) for parameter in own if parameter.default is not NO_DEFAULT}
    shown = {name: value for name, value in params.items() if defaults.get(name) != repr(value)}
    return [_word(name, value) for name, value in shown.items()]


def _word(name: str, value: PlainValue) -> str:
    if isinstance(value, tuple):
        return name + "x".join(map(str, value))
    if isinstance(value, EnumMember):
        return value.name
    # A dtype needs no name.
    return value if isinstance(value, str) and value[:1].isalpha() else f"{name}{value}"


def _has_member(values: Iterable[PlainValue]) -> bool:
    return any(isinstance(one, EnumMember) or (isinstance(one, tuple) and _has_member(one)) for one in values)


def _has_number(value: PlainValue) -> bool:
    return any(map(_has_number, value)) if isinstance(value, tuple) else isinstance(value, int | float)


def _in_key(value: PlainValue) -> str:
    return literal(value.name if isinstance(value, EnumMember) else value)


def _key(own: Sequence[Parameter], texts: dict[str, str]) -> str:
    """Return the key under which the ops of a factory are looked up."""
    return _tuple([texts[parameter.name] for parameter in own])


def _tuple(items: Sequence[str]) -> str:
    return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"


def _factory_type(parameter: Parameter, launcher: LauncherEntry) -> str:
    if parameter.role == "type":
        return "_Type"
    values = [one.params[parameter.name] for one in launcher.specializations if parameter.name in one.params]
    if parameter.default is not NO_DEFAULT:
        values.append(parameter.default)
    plain = all(isinstance(value, bool | int | float | str | EnumMember) for value in values)
    if parameter.kind in _KEYWORDS or not values or not plain or any(parameter.name not in one.params for one in launcher.specializations):
        return "_Any"
    return " | ".join(dict.fromkeys(name for value in values for name in names_of_type(value)))
