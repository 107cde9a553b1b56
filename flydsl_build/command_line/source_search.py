# SPDX-License-Identifier: Apache-2.0
"""Read a project's sources for launchers, what these write, and externs. Nothing is imported: what is found is what `init` proposes."""

from __future__ import annotations

import ast
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from flydsl_build.regular_files import read_regular

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

__all__ = ["Extern", "Found", "Launcher", "search_sources"]

_JIT = {"flydsl.compiler.jit", "flydsl.jit"}
_KERNEL = {"flydsl.compiler.kernel", "flydsl.kernel"}
_FFI = {"flydsl.expr.extern.ffi", "flydsl.expr.extern.ExternFunction"}
_LINK_EXTERN = {"flydsl.compiler.extern_link.link_extern"}
# Those whose last positional argument is written.
_COPIES = {"copy", "copy_atom_call"}
# What these return is no view of their arguments.
_FRESH = ("fragment", "_like", "load", "alloc", "rmem")
_SKIPPED = {"build", "dist", "tests", "test", "docs", "node_modules", "__pycache__", "venv", "site-packages"}
_ENUMS = {f"enum.{name}" for name in ("Enum", "IntEnum", "StrEnum", "Flag", "IntFlag")}
_EXTENTS = {1: "N", 2: "MN", 3: "LMN"}
_PYTHON_NUMBERS = {"int": "i32", "float": "f32", "bool": "bool"}
# A name that stands for a name that stands for a name.
_DEPTH = 20
# So deep may statements and expressions be in each other; Python itself gives up at about 1000 calls.
_DEEPEST = 400


@dataclass(frozen=True, kw_only=True, slots=True)
class Launcher:
    """A launcher, or a factory of one, as its source shows it.

    Parameters
    ----------
    args
        Guessed argument types of the parameters that need one.
    constexpr
        Names of its constexpr parameters, with the names of the members where one is of an enum.
    out
        Arguments that its kernels seem to write.
    params
        Likewise the factory's parameters that have no default; None for a plain launcher.
    choices
        Likewise those that have a default and are of an enum.
    """

    module: str
    attribute: str
    file: str
    line: int
    args: tuple[tuple[str, str], ...]
    constexpr: tuple[tuple[str, tuple[str, ...]], ...]
    out: tuple[str, ...]
    params: tuple[tuple[str, tuple[str, ...]], ...] | None
    choices: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Extern:
    """An extern function that a source declares.

    Parameters
    ----------
    bitcode
        The path that the source links, if it is a plain text.
    is_linked
        Whether the source links something.
    """

    symbol: str
    bitcode: str | None
    is_linked: bool


@dataclass(frozen=True, kw_only=True, slots=True)
class Found:
    """What the sources have, in order of file and line.

    Parameters
    ----------
    unreadable
        Files that could not be read, and why.
    """

    launchers: tuple[Launcher, ...]
    externs: tuple[Extern, ...]
    unreadable: tuple[tuple[str, str], ...]


def search_sources(project: Path, roots: list[Path]) -> Found:
    """Read the modules below the roots."""
    unreadable: list[tuple[str, str]] = []
    modules: dict[str, _Module] = {}
    for root in roots:
        for path in _sources(root):
            file = path.relative_to(project).as_posix()
            try:
                tree = ast.parse(read_regular(path))
            except (SyntaxError, ValueError) as error:
                unreadable.append((file, f"{type(error).__name__}: {error}"))
                continue
            except OSError as error:
                unreadable.append((file, error.strerror or str(error)))
                continue
            except (RecursionError, MemoryError):
                tree = None
            if tree is None or _is_deep(tree):
                unreadable.append((file, "it is nested too deeply"))
                continue
            parts = path.relative_to(root).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            modules.setdefault(name, _Module(name, file, tree, is_package=is_package))
    search = _Search(modules)
    return Found(launchers=tuple(search.launchers()), externs=tuple(search.externs()), unreadable=tuple(unreadable))


def _sources(root: Path) -> Iterator[Path]:
    for place, folders, files in os.walk(root):
        folders[:] = sorted(one for one in folders if one not in _SKIPPED and one.isidentifier() and not one.startswith((".", "_flydsl")))
        yield from (Path(place, one) for one in sorted(files) if one.endswith(".py") and one[:-3].isidentifier())


def _is_deep(tree: ast.AST) -> bool:
    """Tell whether a source is nested deeper than functions that call themselves can follow it."""
    level: list[ast.AST] = [tree]
    for _ in range(_DEEPEST):
        level = [inner for node in level for inner in ast.iter_child_nodes(node)]
        if not level:
            return False
    return True


class _Module:
    """One source, and what names in it stand for."""

    def __init__(self, name: str, file: str, tree: ast.Module, *, is_package: bool) -> None:
        self.name = name
        self.file = file
        self.tree = tree
        self._package = name.split(".") if is_package else name.split(".")[:-1]
        self.stars: list[str] = []
        self.names = self.imported(tree)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                self.names[node.name] = f"{name}.{node.name}"
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Name | ast.Attribute):
                value = _dotted(node.value, self.names)
                self.names |= {target.id: value for target in node.targets if isinstance(target, ast.Name) and value != target.id}

    def imported(self, tree: ast.AST) -> dict[str, str]:
        """Return local names and what they stand for, for everything that is imported anywhere in the tree."""
        found: dict[str, str] = {}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    found[alias.asname or alias.name.partition(".")[0]] = alias.name if alias.asname else alias.name.partition(".")[0]
            elif isinstance(node, ast.ImportFrom):
                base = self._package[: len(self._package) - node.level + 1] if node.level else []
                origin = ".".join(filter(None, [*base, node.module]))
                self.stars += [origin] * any(alias.name == "*" for alias in node.names)
                found.update((alias.asname or alias.name, f"{origin}.{alias.name}") for alias in node.names if alias.name != "*")
        return found


def _dotted(node: ast.expr | None, names: dict[str, str]) -> str:
    """Return the full dotted name of an expression, or "" if it is none."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([names.get(node.id, node.id), *reversed(parts)])


@dataclass(kw_only=True, slots=True)
class _Function:
    """A function of the project that is not inside of a kernel.

    Parameters
    ----------
    names
        What names in it stand for: those of the module, its own imports, functions beside it.
    calls
        The full names of the project's functions that it calls, with the calls.
    callers
        The functions that call it; "" stands for code outside of functions.
    writes
        The parameters that it seems to write.
    ranks
        Of parameters that it indexes, with how many indexes.
    """

    node: ast.FunctionDef
    module: _Module
    kind: str
    names: dict[str, str]
    calls: list[tuple[str, ast.Call]] = field(default_factory=list)
    callers: set[str] = field(default_factory=set)
    writes: set[str] = field(default_factory=set)
    ranks: dict[str, set[int]] = field(default_factory=dict)

    @property
    def parameters(self) -> list[str]:
        arguments = self.node.args
        return [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


class _Search:
    def __init__(self, modules: dict[str, _Module]) -> None:
        self._modules = modules
        self._functions: dict[str, _Function] = {}
        for module in modules.values():
            self._add_functions(module, module.tree.body, module.name, module.names)
        for module in modules.values():
            self._add_calls(module, "", module.tree, module.names)
        self._device = self._only_called_from_kernels()
        self._find_uses()
        self._enums = self._find_enums()

    # --- names ---------------------------------------------------------------------------------------------------------------

    def _name_of(self, module: _Module, node: ast.expr, names: dict[str, str]) -> str:
        """Return what an expression names, through the project's own modules that pass names on."""
        name = _dotted(node, names)
        first, _, rest = name.partition(".")
        if first and first not in names and (owner := self._from_star(module, first)):
            name = f"{owner}.{name}"
        for _ in range(_DEPTH):
            parts = name.split(".")
            places = (".".join(parts[:end]) for end in range(len(parts) - 1, 0, -1))
            place = next((one for one in places if one in self._modules), "")
            if not place:
                break
            first, _, rest = name.removeprefix(f"{place}.").partition(".")
            owner = self._from_star(self._modules[place], first)
            further = self._modules[place].names.get(first) or (f"{owner}.{first}" if owner else None)
            if further is None or further == f"{place}.{first}":
                break
            name = f"{further}.{rest}" if rest else further
        return name

    def _from_star(self, module: _Module, name: str) -> str:
        """Return the module whose names are imported with a star and that may have this one; "" if there is none."""
        return next((star for star in module.stars if star not in self._modules or name in self._modules[star].names), "")

    def _kind(self, module: _Module, node: ast.FunctionDef, names: dict[str, str]) -> str:
        found = {self._name_of(module, one.func if isinstance(one, ast.Call) else one, names) for one in node.decorator_list}
        return "jit" if found & _JIT else "kernel" if found & _KERNEL else ""

    # --- functions and calls -------------------------------------------------------------------------------------------------

    def _add_functions(self, module: _Module, body: Sequence[ast.stmt], place: str, names: dict[str, str]) -> None:
        for node in body:
            if isinstance(node, ast.FunctionDef):
                kind = self._kind(module, node, names)
                inner = {one.name: f"{place}.{node.name}.{one.name}" for one in _inside(node)} if kind != "kernel" else {}
                own = {**names, **module.imported(node), **inner}
                self._functions[f"{place}.{node.name}"] = _Function(node=node, module=module, kind=kind, names=own)
                if kind != "kernel":
                    self._add_functions(module, _inside(node), f"{place}.{node.name}", own)

    def _add_calls(self, module: _Module, owner: str, tree: ast.AST, names: dict[str, str]) -> None:
        """Note who calls whom; what is inside of a kernel is the kernel's."""
        place = owner or module.name
        for node in ast.iter_child_nodes(tree):
            inner = f"{place}.{node.name}" if isinstance(node, ast.FunctionDef) else ""
            if inner in self._functions and self._functions[inner].node is node:
                self._add_calls(module, inner, node, self._functions[inner].names)
                continue
            if isinstance(node, ast.Call):
                called = self._name_of(module, node.func, names)
                if called in self._functions and called != owner:
                    self._functions[called].callers.add(owner)
                    if owner:
                        self._functions[owner].calls.append((called, node))
            self._add_calls(module, owner, node, names)

    def _only_called_from_kernels(self) -> set[str]:
        """Return the kernels and the functions that run on the device alone."""
        device = {name for name, one in self._functions.items() if one.kind == "kernel"}
        size = 0
        while size != len(device):
            size = len(device)
            device |= {name for name, one in self._functions.items() if one.callers and one.callers <= device and not _launches(one.node)}
        return device

    def _find_enums(self) -> dict[str, tuple[str, ...]]:
        """Return by full name the enums of the project, with the names of their members."""
        classes = {
            f"{module.name}.{node.name}": (module, node)
            for module in self._modules.values()
            for node in module.tree.body
            if isinstance(node, ast.ClassDef)
        }
        bases = {name: {self._name_of(module, base, module.names) for base in node.bases} for name, (module, node) in classes.items()}
        found: set[str] = set()
        while more := {name for name, some in bases.items() if some & (_ENUMS | found)} - found:
            found |= more
        return {name: _members(classes[name][1]) for name in bases if name in found}

    def _choice(self, one: _Function, parameter: ast.arg, default: ast.expr | None) -> tuple[str, tuple[str, ...]]:
        """Return a parameter with the names of the members if its annotation or its default is of an enum."""
        annotation = _annotation(parameter)
        places = [*ast.walk(annotation)] if annotation is not None else []
        places += [default.value] if isinstance(default, ast.Attribute) else []
        named = (self._name_of(one.module, place, one.names) for place in places if isinstance(place, ast.Name | ast.Attribute))
        return parameter.arg, next((self._enums[name] for name in named if name in self._enums), ())

    # --- what is written and indexed -----------------------------------------------------------------------------------------

    def _find_uses(self) -> None:
        views = {name: _views(one) for name, one in self._functions.items()}
        for name, one in self._functions.items():
            for target in _written(one.node):
                one.writes |= _origins(target, views[name])
            one.ranks = _ranks(one)
        changed = True
        while changed:
            changed = False
            for name, one in self._functions.items():
                before = len(one.writes) + sum(map(len, one.ranks.values()))
                for called, call in one.calls:
                    there = self._functions[called]
                    given = [*zip(there.parameters, call.args, strict=False), *((word.arg, word.value) for word in call.keywords)]
                    for parameter, value in given:
                        if parameter in there.writes:
                            one.writes |= _origins(value, views[name])
                        if isinstance(value, ast.Name) and value.id in one.parameters and parameter in there.ranks:
                            one.ranks.setdefault(value.id, set()).update(there.ranks[parameter])
                changed |= len(one.writes) + sum(map(len, one.ranks.values())) != before

    # --- answers -------------------------------------------------------------------------------------------------------------

    def _is_launcher(self, name: str) -> bool:
        return self._functions[name].kind == "jit" and name not in self._device

    def launchers(self) -> Iterator[Launcher]:
        """Yield launchers and factories of them."""
        for module in self._modules.values():
            for node in module.tree.body:
                name = f"{module.name}.{getattr(node, 'name', '')}"
                if not isinstance(node, ast.FunctionDef) or self._functions[name].node is not node or name in self._device:
                    continue
                inner = next((one for one in self._functions if one.startswith(f"{name}.") and self._is_launcher(one)), None)
                if self._is_launcher(name):
                    yield self._described(module, node, self._functions[name], is_factory=False)
                elif inner is not None:
                    yield self._described(module, node, self._functions[inner], is_factory=True)

    def _described(self, module: _Module, node: ast.FunctionDef, found: _Function, *, is_factory: bool) -> Launcher:
        args, constexpr = _arguments(found, {one.arg for one, _ in _defaults(node)} if is_factory else set())
        factory = self._functions[f"{module.name}.{node.name}"]
        params = [(self._choice(factory, one, default), default is None) for one, default in _defaults(node)]
        out = tuple(name for name, text in args if name in found.writes and text not in _PYTHON_NUMBERS.values())
        return Launcher(
            module=module.name,
            attribute=node.name,
            file=module.file,
            line=node.lineno,
            args=args,
            constexpr=tuple(self._choice(found, one, None) for one in constexpr),
            out=out,
            params=tuple(one for one, is_needed in params if is_needed) if is_factory else None,
            choices=tuple(one for one, is_needed in params if one[1] and not is_needed) if is_factory else (),
        )

    def externs(self) -> Iterator[Extern]:
        """Yield each extern function once."""
        found: dict[str, Extern] = {}
        for module in self._modules.values():
            for node in ast.walk(module.tree):
                if not isinstance(node, ast.Call):
                    continue
                name = self._name_of(module, node.func, module.names)
                if name in _LINK_EXTERN and node.args:
                    symbol = self._symbol(module, node.args[0])
                    path = next((word.value for word in node.keywords if word.arg == "bitcode_path"), None)
                    if symbol:
                        text = path.value if isinstance(path, ast.Constant) and isinstance(path.value, str) else None
                        found[symbol] = Extern(symbol=symbol, bitcode=text, is_linked=path is not None)
                elif symbol := self._symbol(module, node):
                    found.setdefault(symbol, Extern(symbol=symbol, bitcode=None, is_linked=False))
        yield from found.values()

    def _symbol(self, module: _Module, node: ast.expr) -> str:
        """Return the symbol of an `ffi(…)`, directly or by the name of one of the module; "" if there is none."""
        if isinstance(node, ast.Name):
            values = [
                one.value
                for one in module.tree.body
                if isinstance(one, ast.Assign) and any(_is_name(target, node.id) for target in one.targets)
            ]
            node = values[-1] if values else node
        if isinstance(node, ast.Call) and self._name_of(module, node.func, module.names) in _FFI:
            given = [*node.args[:1], *(word.value for word in node.keywords if word.arg == "symbol")]
            if given and isinstance(given[0], ast.Constant) and isinstance(given[0].value, str):
                return given[0].value
        return ""


def _is_name(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _inside(node: ast.FunctionDef) -> list[ast.FunctionDef]:
    """Return the functions inside of a function, also those in branches, not those of functions in it."""
    found: list[ast.FunctionDef] = []
    queue: list[ast.AST] = list(node.body)
    while queue:
        one = queue.pop(0)
        if isinstance(one, ast.FunctionDef):
            found.append(one)
        elif not isinstance(one, ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            queue += ast.iter_child_nodes(one)
    return found


def _launches(node: ast.FunctionDef) -> bool:
    return any(isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute) and one.func.attr == "launch" for one in ast.walk(node))


def _views(function: _Function) -> dict[str, set[str]]:
    """Return, by local name, the parameters that the name is a view of, going by assignments in their order."""
    views = {name: {name} for name in function.parameters}
    assignments = [node for node in ast.walk(function.node) if isinstance(node, ast.Assign)]
    for node in sorted(assignments, key=lambda one: one.lineno):
        for target in node.targets:
            if isinstance(target, ast.Name) and target.id not in views:
                views[target.id] = _origins(node.value, views)
    return views


def _origins(node: ast.expr, views: dict[str, set[str]]) -> set[str]:
    """Return the parameters that an expression is a view of."""
    if isinstance(node, ast.Name):
        return views.get(node.id, set())
    if isinstance(node, ast.Attribute | ast.Subscript | ast.Starred):
        return _origins(node.value, views)
    if isinstance(node, ast.Call):
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if any(word in called for word in _FRESH):
            return set()
        # A view is made of the first argument, or is a method of what it is a view of.
        first = _origins(node.args[0], views) if node.args else set()
        return first or (_origins(node.func.value, views) if isinstance(node.func, ast.Attribute) else set())
    return set()


def _written(node: ast.FunctionDef) -> Iterator[ast.expr]:
    """Yield what is stored to: targets of item assignments, destinations of copies, objects of `store` methods."""
    for one in ast.walk(node):
        if isinstance(one, ast.Assign | ast.AugAssign):
            targets = one.targets if isinstance(one, ast.Assign) else [one.target]
            yield from (target.value for target in targets if isinstance(target, ast.Subscript))
        elif isinstance(one, ast.Call):
            called = one.func.attr if isinstance(one.func, ast.Attribute) else getattr(one.func, "id", "")
            if called in _COPIES and (len(one.args) > 2 or any(word.arg == "dst" for word in one.keywords)):
                yield next((word.value for word in one.keywords if word.arg == "dst"), one.args[-1])
            elif called == "buffer_store" and len(one.args) > 1:
                yield one.args[1]
            elif called == "store" and isinstance(one.func, ast.Attribute):
                yield one.func.value


def _annotation(parameter: ast.arg) -> ast.expr | None:
    """Return the annotation of a parameter, also one that is written as text."""
    annotation = parameter.annotation
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        try:
            return ast.parse(annotation.value, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return None
    return annotation


def _members(node: ast.ClassDef) -> tuple[str, ...]:
    """Return the names of the members of an enum."""
    targets = (target for one in node.body if isinstance(one, ast.Assign) for target in one.targets)
    return tuple(target.id for target in targets if isinstance(target, ast.Name) and not target.id.startswith("_"))


def _ranks(function: _Function) -> dict[str, set[int]]:
    """Return with how many indexes a function indexes its parameters."""
    assigned = {
        target.id: node.value
        for node in ast.walk(function.node)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    found: dict[str, set[int]] = {}
    for node in ast.walk(function.node):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in function.parameters:
            index = assigned.get(node.slice.id) if isinstance(node.slice, ast.Name) else node.slice
            found.setdefault(node.value.id, set()).add(len(index.elts) if isinstance(index, ast.Tuple) else 1)
    return found


def _arguments(function: _Function, params: Collection[str]) -> tuple[tuple[tuple[str, str], ...], tuple[ast.arg, ...]]:
    """Return what the table has to say of a launcher's parameters: guesses for arguments, and the constexpr ones.

    A scalar or stream annotation fixes the type, so that needs no entry.

    Parameters
    ----------
    params
        Those of the factory: an extent of the name of one is guessed to be its value, or else any would be taken for it.
    """
    args: list[tuple[str, str]] = []
    constexpr: list[ast.arg] = []
    for parameter, _ in _defaults(function.node):
        annotation = _annotation(parameter)
        name = _dotted(annotation.value if isinstance(annotation, ast.Subscript) else annotation, function.names).rpartition(".")[2]
        if name in {"Constexpr", "type", "Type"}:
            constexpr.append(parameter)
        elif name == "Pointer":
            args.append((parameter.arg, "ptr<f32>"))
        elif name in {"Tensor", ""}:
            ranks = function.ranks.get(parameter.arg, set())
            rank = next(iter(ranks)) if len(ranks) == 1 else 2
            extents = (f"{{{name}}}" if name in params else name for name in _EXTENTS.get(rank, _EXTENTS[2]))
            args.append((parameter.arg, f"f32[{', '.join(extents)}]"))
        elif name in _PYTHON_NUMBERS:
            args.append((parameter.arg, _PYTHON_NUMBERS[name]))
    return tuple(args), tuple(constexpr)


def _defaults(node: ast.FunctionDef) -> list[tuple[ast.arg, ast.expr | None]]:
    """Return the parameters of a function with their defaults."""
    positional = [*node.args.posonlyargs, *node.args.args]
    defaults = [*[None] * (len(positional) - len(node.args.defaults)), *node.args.defaults]
    return [*zip(positional, defaults, strict=True), *zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)]
