# SPDX-License-Identifier: Apache-2.0
"""Render the stub of a declared module: a `.py` that launches and a `.pyi` for type checkers.

Everything that is worked out is worked out here; the templates only put it in place. Names and texts come from the author's source, so
each is either checked to be what it must be, or written as a literal that reads back as itself.
"""

from __future__ import annotations

import ast
import inspect
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from flydsl_build.codec import NO_DEFAULT, EnumMember
from flydsl_build.consumers.python_source import docstring, is_name, literal, names_of_type, signature
from flydsl_build.consumers.templates import StubError, render
from flydsl_build.declare.argument_types import PointerType, ScalarType, StreamType, StructType, TensorType
from flydsl_build.dtypes import FLOAT_DTYPES
from flydsl_build.errors import FaultCollector

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from flydsl_build.bundle.manifest import LauncherEntry, Manifest, Returns, SpecializationEntry
    from flydsl_build.codec import PlainValue
    from flydsl_build.declare.argument_types import ArgumentType
    from flydsl_build.jobs.launcher import EnumClass, Parameter

__all__ = ["argument_structs", "enum_name", "render_stub"]

# Names that the templates use at the top level of a stub. A leading underscore keeps them out of the way of public names.
_TAKEN: Final = frozenset(
    {
        "_Any",
        "_Bound",
        "_CudaArray",
        "_CudaStream",
        "_DLPackTensor",
        "_Enum",
        "_Flag",
        "_IntEnum",
        "_IntFlag",
        "_Launcher",
        "_ModuleHandle",
        "_NamedTuple",
        "_Pointer",
        "_Protocol",
        "_StrEnum",
        "_Stream",
        "_Tensor",
        "_TorchStream",
        "_TypeAlias",
        "_attach",
    }
)
# Attributes that the run time gives every launcher: they are what they are, whatever the source set.
_OF_EVERY_LAUNCHER: Final = frozenset({"bind", "compile_hints", "load", "specializations"})
_CLASS_PREFIX: Final = "_Launcher_"
_BOUND_PREFIX: Final = "_Bound_"
_RETURNED_PREFIX: Final = "_Returned_"
_OWN_PREFIXES: Final = (_CLASS_PREFIX, _BOUND_PREFIX, _RETURNED_PREFIX)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Call:
    """How a launcher is called; every text is Python.

    Parameters
    ----------
    signature
        Of `__call__` and of `bind`.
    doc
        Of `__call__`.
    bound_name
        The type of what `bind` returns.
    update_signature
        Of its method `update`.
    """

    signature: str
    doc: str
    bound_name: str
    update_signature: str


@dataclass(frozen=True, kw_only=True, slots=True)
class _Class:
    """The type of a launcher, or of several together; every text is Python.

    Parameters
    ----------
    bases
        In the definition.
    call
        None for what is no launcher.
    attributes
        Names and types.
    """

    name: str
    bases: str
    call: _Call | None = None
    attributes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Function:
    """One launcher or factory as the templates need it: every text is Python.

    Parameters
    ----------
    headers
        The lines that begin the classes it is in, where it is the first in them.
    indent
        Of the definition.
    classes
        What the type checker needs for it; for a launcher, its type is the last.
    result
        Type of what a factory returns, or of the launcher.
    """

    name: str
    headers: tuple[str, ...]
    indent: str
    kind: str
    doc: str
    signature: str
    typed_signature: str
    classes: tuple[_Class, ...]
    result: str


def render_stub(  # noqa: PLR0913 - each is one thing the stub says
    manifest: Manifest,
    *,
    manifest_sha256: str,
    manifest_file: str,
    runtime_package: str,
    module_doc: str | None,
    public_names: Sequence[str] = (),
    other_targets: Sequence[str] = (),
) -> tuple[str, str]:
    """Render the stub of a module.

    Parameters
    ----------
    manifest
        The module's manifest.
    manifest_sha256
        Digest of the manifest file, hexadecimal; the run time compares it before it believes the file.
    manifest_file
        Path of the manifest from the folder of the module, with forward slashes.
    runtime_package
        Dotted name of the private run time, e.g. `example_pkg._flydsl.runtime`.
    module_doc
        Docstring of the source module, None for none.
    public_names
        Public names of the source module: those that are structs of an argument get a class to make such arguments with.
    other_targets
        The targets that only other modules of the wheel have code for.

    Returns
    -------
    tuple[str, str]
        The text of the `.py` and of the `.pyi`.

    Raises
    ------
    StubError
        A launcher, parameter or module whose name is no identifier, is a keyword, or is taken by the stub itself.
    """
    _check_names(manifest, runtime_package)
    classes = manifest.classes or {}
    found = [_struct(one) for one in argument_structs(manifest) if one.name not in classes]
    enums = [_enum(reference, one) for reference, one in (manifest.enums or {}).items()]
    enum_types = {one.name: f"{one.name} | str" for one in enums}
    found += [_value_class(name, fields, enum_types) for name, fields in classes.items()]
    structs = [one for one in found if one.name in public_names and one.name not in _TAKEN and is_name(one.name)]
    taken = {_class_name(launcher) for launcher in manifest.launchers}
    functions = _functions(manifest, taken)
    public = {launcher.name.partition(".")[0] for launcher in manifest.launchers} | {one.name for one in structs}
    public |= {one.name for one in enums if one.name in public_names}
    context = {
        "module_doc": docstring(module_doc or f"Kernels of {manifest.module}, compiled ahead of time by flydsl-build.", indent=""),
        "runtime_package": runtime_package,
        "public_names": [literal(name) for name in sorted(public)],
        "manifest_file": literal(manifest_file),
        "manifest_sha256": literal(manifest_sha256),
        "archs": [literal(target) for target in manifest.targets],
        "other_archs": [literal(target) for target in other_targets],
        "load": literal(manifest.load),
        "functions": functions,
        "structs": structs,
        "enums": enums,
        "enum_bases": sorted({one.base for one in enums}),
        "has_named_tuple": any(one.bases == "_NamedTuple" for function in functions for one in function.classes),
    }
    stub, interface = (render(name, **context) for name in ("stub.py.j2", "stub.pyi.j2"))
    for text in (stub, interface):
        ast.parse(text)
    return stub, interface


def argument_structs(manifest: Manifest) -> tuple[StructType, ...]:
    """Return the struct types of a module's arguments, one for each name; a name that stands for two types is left out."""
    found: dict[str, StructType | None] = {}

    def collect(argument: ArgumentType) -> None:
        if isinstance(argument, StructType):
            for _, field in argument.fields:
                collect(field)
            if argument.name:
                found[argument.name] = argument if found.get(argument.name, argument) == argument else None

    for _, specialization in manifest.specializations():
        for argument in specialization.arguments.values():
            collect(argument)
    return tuple(one for one in found.values() if one is not None)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Struct:
    """One struct class as the templates need it: every field is Python text."""

    name: str
    literal: str
    fields: str
    typed_fields: tuple[tuple[str, str], ...]
    signature: str
    defaults: str = ""


def _struct(struct: StructType) -> _Struct:
    typed = tuple((name, _field_type(field)) for name, field in struct.fields)
    return _Struct(
        name=struct.name,
        literal=literal(struct.name),
        fields=literal(tuple(name for name, _ in struct.fields)),
        typed_fields=typed,
        signature=f"(self, {', '.join(f'{name}: {text}' for name, text in typed)})",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Enum:
    """One enum as the templates need it: every field but `base` is Python text."""

    name: str
    reference: str
    base: str
    bases: str
    doc: str
    members: tuple[tuple[str, str], ...]


def _enum(reference: str, one: EnumClass) -> _Enum:
    *mixed, base = one.bases
    return _Enum(
        name=enum_name(reference),
        reference=literal(reference),
        base=base,
        bases=", ".join([*mixed, f"_{base}"]),
        doc=docstring(one.doc, indent="    ") if one.doc else "",
        # A value that the wheel does not have is equal to no other.
        members=tuple(
            (entry.name, entry.alias or ("object()" if entry.value is NO_DEFAULT else literal(entry.value))) for entry in one.members
        ),
    )


def enum_name(reference: str) -> str:
    """Return the name of an enum's class in the stub."""
    return EnumMember(enum=reference, name="").class_name


_FIELD_TYPE: Final = re.compile(r"(?:Constexpr\[)?(int|bool|float|str)\]?")


def _value_class(name: str, fields: Sequence[Parameter], enum_types: dict[str, str]) -> _Struct:
    types = {one.name: enum_types.get(one.annotation or "") or _plain_field_type(one.annotation or "") for one in fields}
    defaults = {one.name: one.default for one in fields if one.default is not NO_DEFAULT}
    return _Struct(
        name=name,
        literal=literal(name),
        fields=literal(tuple(types)),
        typed_fields=tuple(types.items()),
        signature=signature(fields, types, first="self"),
        defaults=f", {literal(defaults)}" if defaults else "",
    )


def _plain_field_type(annotation: str) -> str:
    match = _FIELD_TYPE.fullmatch(annotation)
    return match[1] if match else "_Any"


def _field_type(field: ArgumentType) -> str:
    match field:
        case TensorType():
            return "_Tensor"
        case PointerType():
            return "_Pointer"
        case ScalarType():
            return _scalar(field.dtype)
        case _:
            return "_Any"


def _check_names(manifest: Manifest, runtime_package: str) -> None:
    faults = FaultCollector()
    for dotted in (manifest.module, runtime_package):
        for part in dotted.split("."):
            if not is_name(part):
                faults.add(f"module {dotted}", f'"{part}" cannot be imported: it is not a Python name', "rename it")
    for launcher in manifest.launchers:
        where = f"{manifest.module}:{launcher.name}"
        parts = launcher.name.split(".")
        outer = [".".join(parts[:depth]) for depth in range(1, len(parts))]
        if not all(map(is_name, parts)):
            faults.add(where, f'"{launcher.name}" is not a Python name, so the stub cannot define it', "give the launcher a plain name")
        elif parts[0] in _TAKEN or parts[0].startswith(_OWN_PREFIXES) or any(one.startswith("__") for one in parts):
            faults.add(where, f"the name {launcher.name} is taken by the stub itself", "rename the launcher")
        for name in outer:
            if any(other.name == name for other in manifest.launchers):
                what = f"{name} is declared, too, so the stub cannot have a class {name} with it"
                faults.add(where, what, f"declare {name} alone, with `returns`, or its attributes alone")
        _check_inner_names(launcher, where, faults)
    _check_enum_names(manifest, faults)
    faults.raise_if_any(StubError)


def _check_enum_names(manifest: Manifest, faults: FaultCollector) -> None:
    taken = {one.name: f"{manifest.module}:{one.name}" for one in argument_structs(manifest)}
    taken |= {name: f"{manifest.module}:{name}" for name in manifest.classes or ()}
    taken |= {launcher.name.partition(".")[0]: f"{manifest.module}:{launcher.name}" for launcher in manifest.launchers}
    for reference, one in (manifest.enums or {}).items():
        name = enum_name(reference)
        if name in taken:
            what = f"{taken[name]} has the name {name}, too, and the stub cannot define both"
            faults.add(reference, what, "rename one of them")
        elif name in _TAKEN or name.startswith(_OWN_PREFIXES):
            faults.add(reference, f"the name {name} is taken by the stub itself", "rename the enum")
        taken[name] = reference
        for entry in one.members:
            if not is_name(entry.name):
                faults.add(reference, f'"{entry.name}" is not a Python name, so the stub cannot define it', "rename the member")


def _check_inner_names(launcher: LauncherEntry, where: str, faults: FaultCollector) -> None:
    own = (parameter for each in launcher.specializations for parameter in each.parameters or ())
    names = [parameter.name for parameter in (*launcher.parameters, *(launcher.factory_parameters or ()), *own)]
    for name in dict.fromkeys(names):
        if not is_name(name):
            faults.add(where, f'the parameter "{name}" is not a Python name', "rename the parameter")
    for name in () if launcher.returns is None else launcher.returns.names:
        if not is_name(name):
            faults.add(where, f'"{name}" of what it returns is not a Python name', "rename it in `returns`")


def _functions(manifest: Manifest, taken: set[str]) -> list[_Function]:
    """Return the launchers of a module; those in classes last, class by class, and in each class before those of classes in it."""
    found: list[_Function] = []
    opened: list[str] = []
    for launcher in sorted(manifest.launchers, key=lambda one: one.name.split(".")[:-1]):
        path = launcher.name.split(".")[:-1]
        common = next((depth for depth, (a, b) in enumerate(zip(path, opened, strict=False)) if a != b), min(len(path), len(opened)))
        headers = []
        for depth, name in enumerate(path[common:], common):
            indent = "    " * depth
            headers += [f"{indent}class {name}:", f'{indent}    """Launchers of {".".join(path[: depth + 1])}."""', ""]
        opened = path
        found.append(_function(launcher, taken, tuple(headers)))
    return found


def _class_name(launcher: LauncherEntry) -> str:
    return _CLASS_PREFIX + launcher.name.replace(".", "_")


def _function(launcher: LauncherEntry, taken: set[str], headers: tuple[str, ...]) -> _Function:
    indent = "    " * launcher.name.count(".")
    own = launcher.parameters if launcher.factory_parameters is None else launcher.factory_parameters
    is_factory = launcher.kind == "factory"
    what = "a launcher" if launcher.returns is None else "the launchers"
    doc = launcher.doc or (f"Return {what} of {launcher.name}." if is_factory else f"Launch {launcher.name}.")
    if launcher.returns is None:
        call_doc = f"Launch what {launcher.name} returned." if is_factory else inspect.cleandoc(doc)
        call_doc = _inner_doc(launcher.specializations) or call_doc
        classes = [_launcher_class(_class_name(launcher), launcher, launcher.specializations, call_doc)]
        result = classes[0].name
    else:
        classes, result = _returned(launcher, launcher.returns, taken)
    return _Function(
        name=launcher.name.rpartition(".")[2],
        headers=headers,
        indent=indent,
        kind=launcher.kind,
        doc=docstring(doc, indent=indent + "    "),
        signature=signature(own, None),
        typed_signature=signature(own, {parameter.name: _factory_type(parameter, launcher) for parameter in own}),
        classes=tuple(classes),
        result=result,
    )


def _inner_doc(members: Sequence[SpecializationEntry]) -> str | None:
    """Return the docstring of launchers that a factory returned, if they have one and the same."""
    docs = {one.doc for one in members}
    return docs.pop() if len(docs) == 1 else None


def _returned(launcher: LauncherEntry, returns: Returns, taken: set[str]) -> tuple[list[_Class], str]:
    """Return the classes for the launchers that a factory returns together, and the type of what it returns."""
    call_doc = f"Launch one of what {launcher.name} returned."
    values = {name: _returned_type(launcher, name) for name in returns.names}
    if returns.form == "dict":
        # One type of all values, as a dict has.
        name = _class_name(launcher)
        item = name if not any(values.values()) else "_Any"
        call_doc = _inner_doc(launcher.specializations) or call_doc
        return [_launcher_class(name, launcher, launcher.specializations, call_doc)], f"dict[str, {item}]"
    classes, types = [], []
    for element in returns.names:
        members = [each for each in launcher.specializations if each.element == element]
        if not members:
            types.append(values[element] or "_Any")
            continue
        name = f"{_class_name(launcher)}_{element}"
        while name in taken:
            name += "_"
        taken.add(name)
        call_doc = _inner_doc(members) or f"Launch {element} of what {launcher.name} returned."
        classes.append(_launcher_class(name, launcher, members, call_doc))
        # For other parameters, the factory may return a value in its place.
        types.append(f"{name} | {values[element]}" if values[element] else name)
    if returns.form == "tuple":
        by_params: dict[str, set[str | None]] = {}
        for each in launcher.specializations:
            names = by_params.setdefault(repr(sorted(each.params.items())), set())
            names |= {each.element, *next(iter((each.values or {}).values()), ())}
        whole = all(elements == set(returns.names) for elements in by_params.values())
        return classes, f"tuple[{', '.join(types)}]" if whole else "tuple[_Any, ...]"
    name = _RETURNED_PREFIX + launcher.name.replace(".", "_")
    bases = "_NamedTuple" if returns.form == "namedtuple" else "_Protocol"
    classes.append(_Class(name=name, bases=bases, attributes=tuple(zip(returns.names, types, strict=True))))
    return classes, name


def _returned_type(launcher: LauncherEntry, name: str) -> str:
    """Return the type of a plain value that a factory returns; empty if it returns none of this name."""
    found = {
        _type_of_value(values[name]): None for each in launcher.specializations for values in (each.values or {}).values() if name in values
    }
    return " | ".join(found)


def _type_of_value(value: PlainValue) -> str:
    """Return the type of a value in the manifest's spelling: lists and FlyDSL types are marked."""
    if isinstance(value, EnumMember):
        return value.class_name
    if isinstance(value, dict):
        return "list[_Any]" if "list" in value else "str"
    if isinstance(value, tuple):
        return f"tuple[{', '.join(map(_type_of_value, value)) or '()'}]"
    return "None" if value is None else type(value).__name__


def _launcher_class(name: str, launcher: LauncherEntry, members: Sequence[SpecializationEntry], call_doc: str) -> _Class:
    """Return the type of the launcher that has these specializations; if they have different parameters, it takes any."""
    every = [launcher.parameters_of(each) for each in members]
    parameters = every[0]
    if any(_untyped(other) != _untyped(parameters) for other in every):
        typed, update = "(self, *args: _Any, **kwargs: _Any)", "(self, **arguments: _Any)"
    else:
        types = {parameter.name: _type(parameter, members) for parameter in parameters}
        first = _self_name(parameters)
        typed = signature(parameters, types, first=first)
        keywords = ", ".join(f"{name}: {text} = ..." for name, text in types.items())
        update = f"({first}, *, {keywords})" if keywords else f"({first})"
    call = _Call(
        signature=typed,
        doc=docstring(call_doc, indent="        "),
        bound_name=_BOUND_PREFIX + name.removeprefix(_CLASS_PREFIX),
        update_signature=update,
    )
    return _Class(name=name, bases="_Launcher, _Protocol", call=call, attributes=_attributes(members))


def _attributes(members: Sequence[SpecializationEntry]) -> tuple[tuple[str, str], ...]:
    """Return names and types of what the source set on launchers; some may not have it."""
    found: dict[str, dict[str, None]] = {}
    for each in members:
        for values in (each.attributes or {}).values():
            for name, value in values.items():
                if name not in _OF_EVERY_LAUNCHER and is_name(name):
                    found.setdefault(name, {})[_type_of_value(value)] = None
    return tuple((name, " | ".join(types)) for name, types in sorted(found.items()))


def _untyped(parameters: Sequence[Parameter]) -> list[tuple[str, str, object]]:
    return [(each.name, each.kind, repr(each.default)) for each in parameters]


def _self_name(parameters: Iterable[Parameter]) -> str:
    names = {parameter.name for parameter in parameters}
    name = "self"
    while name in names:
        name = "_" + name
    return name


def _type(parameter: Parameter, specializations: Sequence[SpecializationEntry]) -> str:
    """Return the type of a launcher's parameter, over these specializations."""
    if parameter.role == "constexpr":
        return _value_type(parameter, [each.constexpr[parameter.name] for each in specializations if parameter.name in each.constexpr])
    names = []
    for each in specializations:
        match each.arguments.get(parameter.name):
            case TensorType():
                names.append("_Tensor")
            case PointerType():
                names.append("_Pointer")
            case StreamType():
                return "_Stream"
            case ScalarType(dtype=dtype):
                names.append(_scalar(dtype))
            case _:
                return "_Any"
    return _union(names, parameter)


def _factory_type(parameter: Parameter, launcher: LauncherEntry) -> str:
    if parameter.role == "type" or parameter.kind in {"VAR_POSITIONAL", "VAR_KEYWORD"}:
        return "_Any"
    return _value_type(parameter, [each.params[parameter.name] for each in launcher.specializations if parameter.name in each.params])


def _scalar(dtype: str) -> str:
    if dtype == "bool":
        return "bool"
    return "float" if dtype in FLOAT_DTYPES else "int"


def _value_type(parameter: Parameter, values: Iterable[PlainValue]) -> str:
    names = []
    for value in values:
        if isinstance(value, tuple | list | dict):
            return "_Any"
        names += names_of_type(value)
    return _union(names, parameter)


def _union(names: Iterable[str], parameter: Parameter) -> str:
    found = list(dict.fromkeys(names))
    if not found:
        return "_Any"
    default = parameter.default
    if default is None and "None" not in found:
        found.append("None")
    elif default is not NO_DEFAULT and default is not None and not isinstance(default, tuple | list) and not found[0].startswith("_"):
        # A default of another type than the values that were built is still a value one may name.
        found = list(dict.fromkeys([*found, *names_of_type(default)]))
    if "float" in found:
        found = [name for name in found if name not in {"int", "bool"}]
    elif "int" in found:
        found = [name for name in found if name != "bool"]
    if "None" in found:
        found = [*(name for name in found if name != "None"), "None"]
    return " | ".join(found)
