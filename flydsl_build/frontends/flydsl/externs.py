# SPDX-License-Identifier: Apache-2.0
"""Decide which bitcode and init function each extern gets, and check them before anything is linked.

FlyDSL records an extern's bitcode path and init function when the extern is called while a kernel is traced. Nothing
checks them there: a missing symbol, bitcode of another chip or a vanished global show on the GPU. Here each is checked.

Used in worker processes; knows nothing of FlyDSL (`adapter` calls it).
"""

from __future__ import annotations

import difflib
import functools
import hashlib
import os
import types
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flydsl_build.config.names import placeholders
from flydsl_build.config.tables import ExternTable
from flydsl_build.errors import Fault
from flydsl_build.jobs.author_code import import_reference
from flydsl_build.jobs.environment import expand_placeholders
from flydsl_build.jobs.job import BitcodeUse
from flydsl_build.llvm_ir.reader import IRError, IRModule, read_ir
from flydsl_build.regular_files import read_regular
from flydsl_build.targets.processors import parse_target

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path


__all__ = ["ExternCall", "ExternResolver", "ExternUse", "init_reference"]

_CODE_OBJECT_VERSION = 6
# How many names of a long list a message has.
_SHOWN = 5
# Newer LLVM spells the processor's family into the triple.
_TRIPLES = ("amdgcn", "amdgpu")
# What LLVM links from ROCm's device libraries by itself.
_DEVICE_LIBRARY = ("__ocml_", "__ockl_", "llvm.")
# https://llvm.org/docs/AMDGPUUsage.html#address-spaces: pointers to LDS and scratch have 32 bits.
_POINTERS = ("ptr", "ptr addrspace(1)", "ptr addrspace(4)")
_SHORT_POINTERS = ("ptr addrspace(2)", "ptr addrspace(3)", "ptr addrspace(5)", "ptr addrspace(6)")
# What no other module can link to, or what leaves the code to another module.
_NOT_LINKED = frozenset({"internal", "private", "available_externally"})
# FlyDSL's ffi type names and the LLVM types that take them.
_WIDTHS: Mapping[str, frozenset[str]] = {
    "int32": frozenset({"i32", *_SHORT_POINTERS}),
    "uint32": frozenset({"i32", *_SHORT_POINTERS}),
    "int64": frozenset({"i64", *_POINTERS}),
    "uint64": frozenset({"i64", *_POINTERS}),
    "float32": frozenset({"float"}),
    "float64": frozenset({"double"}),
    "void": frozenset({"void"}),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ExternCall:
    """One call of an extern in a kernel that is traced.

    Parameters
    ----------
    parameters, result
        The ffi declaration's type names.
    source_path, source_init
        What the source gave to `link_extern`.
    """

    symbol: str
    parameters: tuple[str, ...]
    result: str
    source_path: str | None = None
    source_init: Callable[[int], Any] | None = None


@dataclass(kw_only=True, slots=True)
class ExternUse:
    """The externs that one specialization called.

    Parameters
    ----------
    symbols
        Symbol to its declared parameter types and result.
    files
        Staged bitcode file to what is recorded of it.
    init
        Init functions as `module:qualname`, in order of first use.
    globals
        Device globals that must be visible in the code object.
    axes
        Names of the axes whose value decided a file.
    faults
        What is wrong; collected, since tracing cannot stop in the middle of an author's kernel.
    """

    symbols: dict[str, tuple[tuple[str, ...], str]] = field(default_factory=dict)
    files: dict[str, BitcodeUse] = field(default_factory=dict)
    init: list[str] = field(default_factory=list)
    globals: list[str] = field(default_factory=list)
    axes: set[str] = field(default_factory=set)
    faults: list[Fault] = field(default_factory=list)


def init_reference(function: Any) -> tuple[str | None, str]:  # noqa: PLR0911 - one return for each reason
    """Return `module:qualname` for an init function, or None and the reason why it has none."""
    if isinstance(function, functools.partial):
        return None, "is a functools.partial, which has no name to import it by"
    if isinstance(function, types.MethodType):
        return None, "is a bound method, whose object cannot be imported"
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not module or not name:
        return None, f"is a {type(function).__name__} without a name"
    if "<lambda>" in name:
        return None, "is a lambda, which has no name to import it by"
    if "<locals>" in name:
        return None, f"is local to a function ({name}), so it cannot be imported"
    if module == "__main__":
        return None, "is defined in __main__, which is not part of the wheel"
    reference = f"{module}:{name}"
    try:
        found = import_reference(reference)
    except BaseException as error:  # noqa: BLE001 - an author's module may raise anything
        return None, f"cannot be imported as {reference} ({type(error).__name__}: {error})"
    if found is not function:
        return None, f"is not the object that {reference} names"
    return reference, ""


class ExternResolver:
    """Answers, for one worker, what an extern is linked with.

    Parameters
    ----------
    rules
        The extern tables of the project, in order; the first whose glob fits a symbol counts.
    target
        The gfx name that is compiled for.
    axes
        Axis values of the job.
    axis_values
        By axis: paths that the source's own bitcode path may have got from the environment, to tell which axes it depends on.
    staging
        Folder for copies of bitcode files: FlyDSL takes no blanks, commas, braces or quotes in a path.
    """

    def __init__(  # noqa: PLR0913 - each is one thing that an answer depends on
        self,
        *,
        rules: Sequence[ExternTable],
        target: str,
        axes: Mapping[str, str],
        project: Path,
        environment: Mapping[str, str],
        staging: Path,
    ) -> None:
        self.rules = tuple(rules)
        self.target = target
        self.axes = dict(axes)
        self.project = project
        self.environment = dict(environment)
        self.staging = staging
        self.modules: dict[str, IRModule | str] = {}
        self.staged: dict[str, str] = {}

    def resolve(self, use: ExternUse, call: ExternCall) -> tuple[str, ...]:
        """Record the call of an extern in `use`; return the staged bitcode files to link."""
        symbol = call.symbol
        self._declare(use, symbol, (call.parameters, call.result))
        rule = next((one for one in self.rules if one.fits(symbol)), None)
        self._record_init(use, symbol, rule, call.source_init)
        if rule is not None:
            use.globals += [one for one in rule.globals if one not in use.globals]
        paths = self._paths(use, symbol, rule, call.source_path)
        return tuple(staged for path in paths if (staged := self._stage(use, symbol, rule, path)))

    def _fault(self, symbol: str, what: str, fix: str, detail: str = "") -> Fault:
        return Fault(where=f"extern {symbol}, {self.target}", what=what, fix=fix, detail=detail)

    def _declare(self, use: ExternUse, symbol: str, declared: tuple[tuple[str, ...], str]) -> None:
        known = use.symbols.setdefault(symbol, declared)
        if known != declared:
            what = f"is declared with the types {_spell(*known)} and {_spell(*declared)}"
            use.faults.append(self._fault(symbol, what, "declare it alike everywhere"))

    def _record_init(self, use: ExternUse, symbol: str, rule: ExternTable | None, source_init: Any) -> None:
        if rule is not None and rule.init is not None:
            reference = rule.init
            try:
                found = import_reference(reference)
            except BaseException as error:  # noqa: BLE001 - an author's module may raise anything
                use.faults.append(
                    self._fault(
                        symbol,
                        f"its init function {reference} cannot be imported: {type(error).__name__}: {error}",
                        f"correct {rule.where}.init",
                    )
                )
                return
            if not callable(found):
                use.faults.append(
                    self._fault(symbol, f"{reference} is a {type(found).__name__}, not a function", f"correct {rule.where}.init")
                )
                return
        elif source_init is not None:
            named, reason = init_reference(source_init)
            if named is None:
                use.faults.append(
                    self._fault(
                        symbol,
                        f"its init function {reason}",
                        "make it a function at the top level of a module that is installed, or name one with `init` in the extern's table",
                    )
                )
                return
            reference = named
        else:
            return
        if reference not in use.init:
            use.init.append(reference)

    def _paths(self, use: ExternUse, symbol: str, rule: ExternTable | None, source_path: str | None) -> list[Path]:
        if rule is None or not rule.bitcode:
            if source_path is None:
                return []
            # The author's environment table may have put an axis into the path that the source read.
            for value, axes in self._environment_axes.items():
                if value and value in str(source_path):
                    use.axes.update(axes)
            return [self.project / source_path]
        paths = []
        for text in rule.bitcode:
            if ExternTable.is_function(text):
                use.axes.update(self.axes)
                answer = self._ask(use, symbol, text)
            else:
                use.axes.update(placeholders(text))
                answer = expand_placeholders(text, self.target, self.axes)
            if answer is not None:
                paths.append(self.project / answer)
        use.axes.intersection_update(self.axes)
        return paths

    def _ask(self, use: ExternUse, symbol: str, reference: str) -> str | None:
        """Call an author's function that names the bitcode for this target and these axis values."""
        fix = f"it is called as {reference}(arch{''.join(f', {one}=…' for one in self.axes)}) and returns a path"
        try:
            answer = import_reference(reference)(self.target, **self.axes)
        except BaseException as error:  # noqa: BLE001 - an author's function may raise anything
            use.faults.append(self._fault(symbol, f"{reference} failed: {type(error).__name__}: {error}", fix))
            return None
        if not isinstance(answer, (str, os.PathLike)):
            use.faults.append(self._fault(symbol, f"{reference} returned a {type(answer).__name__}", fix))
            return None
        return os.fspath(answer)

    @functools.cached_property
    def _environment_axes(self) -> dict[str, set[str]]:
        """Map each expanded value of the environment table to the axes in its template."""
        found: dict[str, set[str]] = {}
        for text in self.environment.values():
            axes = found.setdefault(expand_placeholders(text, self.target, self.axes), set())
            axes.update(set(placeholders(text)) & self.axes.keys())
        return found

    def _stage(self, use: ExternUse, symbol: str, rule: ExternTable | None, path: Path) -> str | None:
        shown = self._shown(path)
        origin = rule.where if rule is not None and rule.bitcode else "the source's bitcode_path"
        try:
            data = read_regular(path)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            what = "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read ({reason})"
            use.faults.append(self._fault(symbol, f"bitcode {shown} {what}", f"it was named by {origin}"))
            return None
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self.modules:
            try:
                self.modules[digest] = read_ir(data)
            except IRError as error:
                self.modules[digest] = str(error)
        module = self.modules[digest]
        what, fix = _unreadable(module) if isinstance(module, str) else self._misfit(module, rule)
        if what or isinstance(module, str):
            # A library has many externs; what is wrong with the file is said once.
            if not any(f"bitcode {shown} {what}" == fault.what for fault in use.faults):
                use.faults.append(self._fault(symbol, f"bitcode {shown} {what}", fix))
            return None
        if digest not in self.staged:
            target = self.staging / f"{digest[:32]}.bc"
            target.write_bytes(data)
            self.staged[digest] = str(target)
        staged = self.staged[digest]
        known = use.files[staged].externs if staged in use.files else ()
        externs = tuple(dict.fromkeys([*known, *([rule.symbol] if rule is not None else [])]))
        use.files[staged] = BitcodeUse(file=shown, sha256=digest, size=len(data), abi=module.version, externs=externs)
        return staged

    def _shown(self, path: Path) -> str:
        """Name a file relative to the project; one outside it by its name alone, since builders' folders do not belong into wheels."""
        try:
            return str(path.resolve().relative_to(self.project.resolve()))
        except (ValueError, OSError, RuntimeError):  # RuntimeError: a loop of symbolic links, before Python 3.13
            return path.name.replace("\0", "\\0")

    def _misfit(self, module: IRModule, rule: ExternTable | None) -> tuple[str, str]:
        """Return why a module cannot be linked for this target, and what to do; two empty strings if it can."""
        if module.triple and not module.triple.startswith(_TRIPLES):
            return f"was compiled for {module.triple}", "compile it for amdgcn-amd-amdhsa: clang -x hip --cuda-device-only"
        version = module.version
        if version is not None and version != _CODE_OBJECT_VERSION:
            return (
                f"is for code object version {version}, FlyDSL compiles version {_CODE_OBJECT_VERSION}",
                "compile it with -mcode-object-version=6",
            )
        wrong = [chip for chip in sorted(module.target_cpus) if chip and not _chip_fits(chip, self.target)]
        if wrong and (rule is None or self.target not in rule.compatible):
            return (
                f"was compiled for {', '.join(wrong)}",
                (
                    f'give bitcode for {self.target}: bitcode = "…_{{arch}}.bc" in the extern\'s table; if it is known to run there, '
                    f'add compatible = ["{self.target}"]'
                ),
            )
        return "", ""

    def check_tables(self) -> list[Fault]:
        """Check the files and init functions of all tables, whichever symbols kernels call."""
        use = ExternUse()
        for rule in self.rules:
            self._record_init(use, rule.symbol, rule, None)
            for path in self._paths(use, rule.symbol, rule, None):
                self._stage(use, rule.symbol, rule, path)
        return use.faults

    def check_linked(self, use: ExternUse) -> list[Fault]:
        """Check the files that were gathered against the symbols that were called."""
        faults = list(use.faults)
        if faults:
            return faults
        modules = [(file.file, self.modules[file.sha256]) for file in use.files.values()]
        loaded = [(name, module) for name, module in modules if isinstance(module, IRModule)]
        for symbol, (parameters, result) in use.symbols.items():
            if not symbol.startswith(_DEVICE_LIBRARY):
                faults += self._check_function(symbol, parameters, result, loaded)
        for symbol in use.globals:
            holders = [(name, module.globals[symbol]) for name, module in loaded if symbol in module.globals]
            strong = [name for name, one in holders if one.is_strong]
            if len(strong) > 1:
                faults.append(self._defined_twice(symbol, strong))
        return faults

    def repeated_definitions(self, uses: Sequence[ExternUse]) -> list[str]:
        """Return a warning for each two files of one code object that define the same further symbols: the first one's are linked.

        Another linker would refuse the symbols; this one takes only what is still undefined. What kernels call, and declared globals, are
        faults of `check_joined`.
        """
        known = {name for use in uses for name in (*use.symbols, *use.globals)}
        files = {one.sha256: one for use in uses for one in use.files.values()}
        owners: dict[str, str] = {}
        repeated: dict[tuple[str, str], list[str]] = {}
        for digest, file in files.items():
            module = self.modules[digest]
            for name in () if isinstance(module, str) else module.strong_definitions():
                first = owners.setdefault(name, file.file)
                if first != file.file and name not in known:
                    repeated.setdefault((first, file.file), []).append(name)
        return [
            f"bitcode {first} and {second} both define {', '.join(names[:_SHOWN])}"
            f"{f' and {len(names) - _SHOWN} more' if len(names) > _SHOWN else ''}; those of {first} are linked"
            for (first, second), names in repeated.items()
        ]

    def check_joined(self, uses: Sequence[ExternUse]) -> list[Fault]:
        """Check what specializations that become one code object link together: each symbol has one definition for all of them."""
        joined = ExternUse()
        for use in uses:
            for symbol, declared in use.symbols.items():
                self._declare(joined, symbol, declared)
            joined.files.update(use.files)
            joined.globals += [one for one in use.globals if one not in joined.globals]
        return self.check_linked(joined)

    def _check_function(self, symbol: str, parameters: tuple[str, ...], result: str, loaded: list[tuple[str, IRModule]]) -> list[Fault]:
        called = [(name, module.functions[symbol]) for name, module in loaded if symbol in module.functions]
        holders = [(name, function) for name, function in called if function.is_definition]
        linked = [(name, function) for name, function in holders if function.linkage not in _NOT_LINKED]
        if not linked:
            for name, function in holders:
                return [self._fault(symbol, f"is {function.linkage} in {name}", "give it external linkage")]
            return [self._undefined(symbol, [name for name, _ in loaded], loaded)]
        name, function = linked[0]
        strong = [file for file, one in linked if one.is_strong]
        if len(strong) > 1:
            return [self._defined_twice(symbol, strong)]
        if strong and strong[0] != name:
            # FlyDSL's linker takes only what is still undefined, so the first definition stays, however weak.
            what = f"is {function.linkage} in {name}, which is linked before the definition in {strong[0]}, so the weak one would be used"
            return [self._fault(symbol, what, f"name {strong[0]} first")]
        if not _signature_fits(parameters, result, function.parameters, function.result) or function.var_args:
            found = f"{function.result} ({', '.join([*function.parameters, *(['...'] if function.var_args else [])])})"
            return [
                self._fault(
                    symbol,
                    f"the ffi declaration {_spell(parameters, result)} does not fit the function in {name}, which is {found}",
                    "correct the types in ffi(…): int32 and uint32 are i32, int64 and uint64 are i64 or ptr, float32 is float, "
                    "float64 is double",
                )
            ]
        return []

    def _defined_twice(self, symbol: str, files: Sequence[str]) -> Fault:
        return self._fault(symbol, f"is defined in {' and in '.join(files)}", "give each symbol in one bitcode file")

    def _undefined(self, symbol: str, names: list[str], loaded: list[tuple[str, IRModule]]) -> Fault:
        if not names:
            fix = f'give it: link_extern(…, bitcode_path=…) in the source, or [tool.flydsl-build.externs."{symbol}"] bitcode = "…"'
            tables = {rule.symbol: rule.where for rule in self.rules if not rule.fits(symbol)}
            near = difflib.get_close_matches(symbol, tables, n=1)
            return self._fault(symbol, "has no bitcode", f"{fix}; is {tables[near[0]]} meant for it?" if near else fix)
        declared = [name for name, module in loaded if symbol in module.functions]
        hint = "compile it with -fgpu-rdc: without it clang drops __device__ functions that nothing calls"
        what = f"is not defined in {', '.join(names)}" + (f" (only declared in {', '.join(declared)})" if declared else "")
        return self._fault(symbol, what, f'check the name (extern "C"), and {hint}')


def _unreadable(reason: str) -> tuple[str, str]:
    return reason, "give LLVM bitcode or textual LLVM IR: clang -x hip --cuda-device-only -emit-llvm -fgpu-rdc"


def _spell(parameters: Sequence[str], result: str) -> str:
    return f"({', '.join(parameters)}) -> {result}"


def _chip_fits(chip: str, target: str) -> bool:
    if chip == target or chip.startswith("generic"):
        return True
    try:
        return target in parse_target(chip, where="").members
    except Exception:  # noqa: BLE001 - a name that is unknown here fits nothing
        return False


def _signature_fits(parameters: Sequence[str], result: str, found_parameters: Sequence[str], found_result: str) -> bool:
    def fits(declared: str, found: str) -> bool:
        return found in _WIDTHS.get(declared, frozenset())

    return (
        len(parameters) == len(found_parameters)
        and fits(result, found_result)
        and all(fits(one, other) for one, other in zip(parameters, found_parameters, strict=True))
    )
