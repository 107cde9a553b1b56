# SPDX-License-Identifier: Apache-2.0
"""One declared module of a wheel, as the stub holds it in `__flydsl__`."""

from __future__ import annotations

import os
import sys

from . import _native
from .annotations import Any, Callable
from .driver import ask_driver, open_driver
from .errors import (
    CorruptFileError,
    FlydslRuntimeError,
    InitError,
    LaunchError,
    LoadError,
    NoDeviceError,
    UnsupportedTargetError,
    text_of,
)
from .launcher import Factory
from .process import debug, take_turn

__all__ = ["Capability", "ModuleHandle", "join_path", "write_global"]

_SCHEMA = 2
_CALL_TABLE = "flydsl_call_table"

# What HIP was given to load. It may look at the image again as long as the module lives, and no module is ever unloaded
# once it is in use, not even when its handle is collected.
_images: list[memoryview] = []


class Capability:
    """What a device can do with a module.

    `supported` says whether the wheel has code for the device; `device` and `target` are None where there is none;
    `archs` are the wheel's targets; `chosen` is the one that the device would use; `reason` is empty or says why not.
    """

    __slots__ = ("archs", "chosen", "device", "reason", "supported", "target")

    def __init__(self, archs: tuple[str, ...]) -> None:
        self.archs = archs
        self.supported = False
        self.device: int | None = None
        self.target: str | None = None
        self.chosen: str | None = None
        self.reason = ""

    def __repr__(self) -> str:
        return f"Capability({', '.join(f'{name}={getattr(self, name)!r}' for name in self.__slots__)})"


def write_global(module: int, name: str, data: bytes) -> None:
    """Write a device global of a loaded module; for init functions.

    Parameters
    ----------
    module
        The `hipModule_t` that the init function was given.
    name
        The symbol.
    data
        As many bytes as the global has.

    Raises
    ------
    LoadError
        If the module has no such global, or the sizes differ.
    """
    try:
        address, size = _native.global_variable(module, name)
        given = memoryview(data).nbytes
        if given != size:
            msg = f"device global {name} has {size} bytes, got {given}"
            raise LoadError(msg)
        _native.copy_to_device(address, data)
    except _native.DriverError as error:
        text, code, hip_name = error.args
        raise LoadError(text, code, hip_name) from None


class _Unit:
    """A unit that is loaded on a device: its handle, the mapped code object, its kernels."""

    __slots__ = ("facts", "image", "kernels", "module", "name")

    def __init__(self, name: str, facts: dict[str, Any], image: memoryview, module: int) -> None:
        self.name = name
        self.facts = facts
        self.image = image
        self.module = module
        self.kernels: tuple[tuple[int, str, int, tuple[int, ...]], ...] = ()


class _CurrentDevice:
    """Make a device current, and what was current before again, whatever happens in between."""

    def __init__(self, device: int) -> None:
        self._device = device

    def __enter__(self) -> None:
        self._before = ask_driver(_native.current_device)
        if self._before != self._device:
            ask_driver(_native.set_device, self._device)

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if ask_driver(_native.current_device) != self._before:
                ask_driver(_native.set_device, self._before)
        except LoadError as error:
            if kind is None:
                raise
            # The error on its way says more.
            debug("%s", error)


class ModuleHandle:
    """The code objects, launchers and load state of one declared module."""

    def __init__(  # noqa: PLR0913 - what a stub says
        self,
        name: str,
        manifest_file: str,
        manifest_sha256: str | None,
        *,
        archs: tuple[str, ...],
        other_archs: tuple[str, ...] = (),
        load: str,
    ) -> None:
        self.name = name
        self.archs = archs
        self._other_archs = other_archs
        self._file = manifest_file
        self._sha256 = manifest_sha256
        self._mode = load
        self._parsed: dict[str, Any] | None = None
        self._library_handle: int | None = None
        self._native = _native.Module(LaunchError)
        # Spelling to name and the positions of the specializations to choose from, None for all.
        self._selections: dict[str, tuple[str, tuple[int, ...] | None]] = {}
        self._attributes: dict[str, Any] = {}  # of launchers, by spelling
        self._enums: Any = None
        self._units: dict[tuple[int, int], list[_Unit]] = {}  # by (generation of the process, device)

    def __repr__(self) -> str:
        return f"<FlyDSL module {self.name} from {self._file}>"

    # ---- the manifest ------------------------------------------------------------------------------------------------

    @property
    def manifest(self) -> dict[str, Any]:
        """The manifest, read and checked on first use."""
        if self._parsed is None:
            self._parsed = self._read_manifest()
        return self._parsed

    def _read_manifest(self) -> dict[str, Any]:
        from json import loads

        from .description import number_or_object
        from .shape import misshapen

        data = self._read_checked(self._file, self._sha256, "the one in the package's Python module")
        # Values that JSON has no form for are rare, and a hook for every object is not free.
        hook = None
        if b'"$enum"' in data or b'"$member"' in data:
            enums = self._make_enums()

            def hook(pairs: dict[str, Any]) -> Any:
                made = enums.member_or_object(pairs)
                return number_or_object(pairs) if made is pairs else made

        elif b'"$float"' in data:
            hook = number_or_object
        try:
            manifest = loads(data, object_hook=hook)
        except (ValueError, RecursionError) as error:
            raise CorruptFileError(self._file, f"it is no JSON: {error}") from error
        schema = manifest.get("schema") if isinstance(manifest, dict) else None
        if schema != _SCHEMA:
            raise CorruptFileError(self._file, f"its schema is {schema!r}, this run time reads {_SCHEMA}")
        if fault := misshapen(manifest):
            raise CorruptFileError(self._file, fault)
        if self._enums is not None:
            self._enums.described = manifest.get("enums", {})
            if missing := self._enums.references.difference(self._enums.described):
                raise CorruptFileError(self._file, f"it has no enum {min(missing)}")
        return dict(manifest)

    @staticmethod
    def _read_checked(file: str, digest: str | None, whose: str) -> bytes:
        from hashlib import file_digest

        from .code_objects import open_file

        try:
            with open_file(file) as stream:
                # A piece at a time: what is not of the build can have any size.
                if digest is not None and file_digest(stream, "sha256").hexdigest() != digest:
                    raise CorruptFileError(file, f"its SHA-256 is not {whose}")
                stream.seek(0)
                return stream.read()
        except OSError as error:
            raise CorruptFileError(file, f"it cannot be read: {error.strerror or error}") from error

    def _path(self, name: str) -> str:
        return os.path.join(os.path.dirname(self._file), name)

    # ---- launchers ---------------------------------------------------------------------------------------------------

    def launcher(self, function: Callable[..., Any]) -> Any:
        """Make the launcher of the name and signature of `function`, whose body is not used. A decorator for stubs."""
        return self._make_launcher(function.__qualname__, function.__qualname__, None, function)

    def factory(self, function: Callable[..., Any]) -> Factory:
        """Make the factory of the name and signature of `function`, whose body is not used. A decorator for stubs."""
        return Factory(self, function)

    def struct(self, name: str, fields: tuple[str, ...], defaults: dict[str, Any] | None = None) -> type:
        """Make the plain counterpart of a FlyDSL struct, or another class with fields, of the source; for stubs."""
        from .struct import make_struct

        return make_struct(self.name, name, fields, defaults)

    def enum(self, reference: str) -> Callable[[type], type]:
        """Return a decorator for the class that stands for an enum of the source, `module:class`; for stubs."""
        decorate: Callable[[type], type] = self._make_enums().define(reference)
        return decorate

    def _make_enums(self) -> Any:
        if self._enums is None:
            from .enums import Enums

            self._enums = Enums()
        return self._enums

    def _make_launcher(self, spelling: str, name: str, positions: tuple[int, ...] | None, function: Callable[..., Any] | None) -> Any:
        made = _native.Launcher(self, self._native, spelling)
        made.__module__ = self.name
        made.__name__ = name.rpartition(".")[2]
        made.__qualname__ = spelling
        if function is not None:
            made.__wrapped__ = function
        self._selections[spelling] = (name, positions)
        return made

    def _entry(self, name: str) -> dict[str, Any]:
        for entry in self.manifest["launchers"]:
            if entry["name"] == name and entry["specializations"]:
                return dict(entry)
        raise CorruptFileError(self._file, f"it has no launcher {name}")

    def _selected(self, spelling: str) -> tuple[dict[str, Any], list[tuple[int, dict[str, Any]]]]:
        """Return the entry of the manifest and its specializations for a launcher, with their positions in the module."""
        name, positions = self._selections[spelling]
        entry = self._entry(name)
        found = self._numbered(entry)
        if positions is not None:
            found = [found[position] for position in positions]
            # The factory may return launchers with different parameters; those that it returns for one call have the same.
            entry["parameters"] = found[0][1].get("parameters", entry["parameters"])
        return entry, found

    def _numbered(self, entry: dict[str, Any]) -> list[tuple[int, dict[str, Any]]]:
        """Return the specializations of a launcher with their positions among all of the module."""
        before = 0
        for launcher in self.manifest["launchers"]:
            if launcher["name"] == entry["name"]:
                break
            before += len(launcher["specializations"])
        return list(enumerate(entry["specializations"], before))

    def _expected(self, position: int, entry: dict[str, Any]) -> dict[str, str]:
        """Return what each argument of a specialization must be, in the grammar of the declarations; of a struct, the name of its class."""
        self._library()
        texts = self._native.expected(position)
        return {
            name: str(argument.get("type", "a struct")) if argument["kind"] == "struct" else texts[name]
            for name, argument in entry["arguments"].items()
        }

    def _describe(self, spelling: str) -> tuple[Any, ...]:
        """Serve the native launcher on its first call."""
        from .description import describe_launcher

        entry, specializations = self._selected(spelling)
        self._library()
        return describe_launcher(entry, specializations, self._file)

    def _refuse_description(self, spelling: str, error: Exception) -> None:
        """Serve the native launcher where it cannot make tables of the description."""
        if isinstance(error, TypeError | ValueError | OverflowError | SystemError):
            raise CorruptFileError(self._file, f"launcher {spelling}: {error}") from error

    def _refuse_constants(self, spelling: str, given: dict[str, Any]) -> None:
        """Serve the native launcher where no specialization was built for the constexpr values of a call."""
        from .factory import explain_constants

        raise ValueError(explain_constants(self, spelling, given))

    # ---- loading -----------------------------------------------------------------------------------------------------

    def is_loaded(self, device: int | None = None) -> bool:
        """Say whether the module is loaded on a device (the current one) in this process."""
        if not _native.is_open():
            return False
        return bool(self._native.is_loaded(ask_driver(_native.current_device) if device is None else device))

    def on_import(self) -> None:
        """Load the module on the current device if its mode is "import"; what a stub does last.

        A machine without HIP or without a device may import the package; there, the first call raises. Likewise where only other
        modules of the wheel have code for the device: this one must not keep a package from being imported that imports it.

        Raises
        ------
        UnsupportedTargetError
            If no module of the wheel has code for the device.
        SystemExit
            If the stub is run as a program, as `python -m` does.
        """
        if self.name == "__main__":
            msg = (
                f"{self.manifest['module']}: this module has the compiled kernels; what its source does when it is run as a program "
                f'(`if __name__ == "__main__":`) is not in it\n'
                "    -> move that to a module that declares no kernels; in an editable install, FLYDSL_BUILD_EDITABLE=jit runs the source"
            )
            raise SystemExit(msg)
        mode = os.environ.get("FLYDSL_BUILD_LOAD") or self._mode
        if mode not in {"import", "lazy"}:
            msg = f"FLYDSL_BUILD_LOAD is {mode!r}; allowed: import, lazy"
            raise FlydslRuntimeError(msg)
        if mode == "lazy":
            return
        try:
            open_driver()
        except NoDeviceError as error:
            debug("%s: %s", self.name, error)
        else:
            if self._is_for_other_devices():
                debug("%s: not loaded, it has no code for the current device", self.name)
            else:
                self.load()

    def _is_for_other_devices(self) -> bool:
        """Say whether not this module, but another of the wheel has code for the current device; the manifest is not read for that."""
        if not self._other_archs:
            return False
        from .code_objects import choose_target

        target = ask_driver(_native.target, self._device(None))
        return choose_target(self.archs, target) is None and choose_target(self._other_archs, target) is not None

    def load(self, device: int | None = None) -> None:
        """Load the module on a device (the current one) and run its init functions, unless that has been done.

        Raises
        ------
        NoDeviceError
            If there is no HIP library or no device.
        UnsupportedTargetError
            If the wheel has no code for the device.
        CorruptFileError
            If a file of the package is not what the build wrote.
        LoadError
            If HIP refuses the code object, or the call comes from an init function of this module.
        InitError
            If an init function fails. Nothing stays loaded then; a later call tries again.
        """
        chosen = self._device(device)
        if not self._native.is_loaded(chosen):
            take_turn(
                self,
                chosen,
                self.name,
                lambda: bool(self._native.is_loaded(chosen)),
                lambda: self._load(chosen),
            )

    def reinitialize(self, device: int | None = None) -> None:
        """Run the init functions again on what is loaded, or load it: for a runtime that was ended and started again.

        Raises
        ------
        InitError
            If an init function fails; the next call runs them again.
        """
        chosen = self._device(device)
        if not self._native.is_loaded(chosen):
            self.load(chosen)
            return

        def work() -> None:
            with _CurrentDevice(chosen):
                try:
                    self._initialize(self._units[_native.generation(), chosen], chosen)
                except BaseException:
                    self._native.withdraw(chosen)
                    raise

        take_turn(self, chosen, self.name, lambda: False, work)

    def is_supported(self, device: int | None = None) -> bool:
        """Say whether a call on the device (the current one) can work; never raises."""
        return self.capability(device).supported

    def capability(self, device: int | None = None) -> Capability:
        """Describe what the device (the current one) can do with this module; never raises."""
        result = Capability(self.archs)
        try:
            result.device = self._device(device)
            result.target = ask_driver(_native.target, result.device)
            result.chosen = self._choose(result.target, result.device)
            result.supported = True
        except Exception as error:  # noqa: BLE001 - dispatch code must be able to ask on any machine
            result.reason = text_of(error)
        return result

    @staticmethod
    def _open_driver() -> None:
        open_driver()

    def _load_for_call(self, device: int, stream: int) -> None:
        """Serve the native launcher where the module is not loaded on the device of a call."""
        if _native.stream_is_capturing(stream):
            msg = (
                f"{self.name} is not loaded on device {device}, and loading it during a graph capture is an error in HIP\n"
                f"    -> call sys.modules[{self.name!r}].__flydsl__.load() before the capture begins"
            )
            raise LoadError(msg)
        self.load(device)

    @staticmethod
    def _device(device: int | None) -> int:
        open_driver()
        if device is None:
            return int(ask_driver(_native.current_device))
        try:
            number = int(device.__index__())
        except (AttributeError, TypeError):
            msg = f"a device is given by its number, got {device!r}"
            raise TypeError(msg) from None
        count = ask_driver(_native.device_count)
        if not 0 <= number < count:
            msg = f"there is no device {number}; HIP has {count}"
            raise LoadError(msg)
        return number

    def _choose(self, target: str, device: int) -> str:
        from .code_objects import choose_target, flags_fit

        manifest = self.manifest
        chosen = choose_target(filter(self._is_installed, manifest["targets"]), target)
        facts = [unit["code_objects"][chosen] for unit in manifest["units"] if chosen in unit["code_objects"]]
        if chosen is not None and all(flags_fit(fact["e_flags"], target) for fact in facts):
            return chosen
        distribution = manifest["distribution"]
        missing = choose_target(manifest["targets"], target) if chosen is None else None
        if missing is not None:
            msg = (
                f"{self.name}: device {device} is {target}, and the code of {distribution['name']} {distribution['version']} for {missing} "
                f'is not installed\n    -> pip install "{distribution["name"]}[device-{missing}]"'
            )
            raise UnsupportedTargetError(msg, name=self.name)
        chip = target.partition(":")[0]
        if self._other_archs:
            # A list for all of the build narrows that of the module's kernels.
            only, built = "has code of this module only for", "in which this module was built"
            remedy = f"add {chip} to `archs` of its kernels and build one"
        else:
            only, built = "has code only for", "that was built"
            remedy = f"build one with -C archs={','.join([*manifest['targets'], chip])}"
        msg = (
            f"{self.name}: device {device} is {target}, and {distribution['name']} {distribution['version']} {only} "
            f"{', '.join(manifest['targets'])}\n"
            f"    -> install a wheel of {distribution['name']} {built} for {chip}, or {remedy}"
        )
        raise UnsupportedTargetError(msg, name=self.name)

    def _is_installed(self, target: str) -> bool:
        """Say whether the code for a target is there: in a split package, each target's comes in a device wheel of its own."""
        bundles = {unit["bundle"] for unit in self.manifest["units"] if target in unit["code_objects"]}
        # One of several is enough: that another is missing is a fault, and no reason to take another target.
        return any("{target}" not in bundle or os.path.isfile(self._path(bundle.replace("{target}", target))) for bundle in bundles)

    def _load(self, device: int) -> None:
        try:
            self._load_units(device)
        # Names and numbers of the manifest that nothing can be called; what the author's functions raise is an InitError by then.
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            raise CorruptFileError(self._file, f"{type(error).__name__}: {error}") from error

    def _load_units(self, device: int) -> None:
        generation = _native.generation()
        # There after a `reinitialize()` in which an init function failed.
        kept = self._units.get((generation, device))
        units = list(kept or ())
        with _CurrentDevice(device):
            target = ask_driver(_native.target, device)
            chosen = self._choose(target, device)
            debug("%s: device %d is %s, using %s", self.name, device, target, chosen)
            try:
                library = self._library()
                values = self._axis_values()
                for unit in self.manifest["units"] if kept is None else ():
                    # Units that differ in an axis are alternatives.
                    if chosen in unit["code_objects"] and all(values[axis] == value for axis, value in unit["axes"].items()):
                        self._load_unit(unit, chosen, f"device {device} ({target})", units)
                if not units:
                    # Without this, init functions would count as run, and every call would find no kernel.
                    msg = f"{self.name}: no code object of the wheel is for {chosen} and {values}"
                    raise LoadError(msg)  # noqa: TRY301 - the handler below undoes a load that failed anywhere
                entries = self._entries(library, chosen, units)
                self._initialize(units, device)
            except BaseException:
                if kept is None:
                    self._unload(units)
                raise
            if kept is None:
                _images.extend(unit.image for unit in units)
                self._units[generation, device] = units
            self._native.publish(device, target, entries)
        debug("%s: loaded on device %d", self.name, device)

    def _axis_values(self) -> dict[str, str]:
        """Return this machine's value of each axis: the environment's, else the selector's; never one that was not built."""
        found = {}
        for name, axis in self.manifest["axes"].items():
            variable = "FLYDSL_BUILD_AXIS_" + name.upper()
            value = os.environ.get(variable)
            source = variable
            if not value:
                if axis["select"] is None:
                    msg = f"{self.name}: nothing says which value of the axis {name} this machine has\n    -> set {variable} to one of"
                    raise LoadError(f"{msg} {', '.join(axis['values'])}")
                source = axis["select"]
                try:
                    value = _resolve(source)()
                except Exception as error:
                    msg = f"{self.name}: {source}, which selects the axis {name}, raised {type(error).__name__}: {text_of(error)}"
                    raise LoadError(f"{msg}\n    -> {variable} names the value without it") from error
            if not isinstance(value, str) or value not in axis["values"]:
                msg = f"{self.name}: the axis {name} is {value!r} by {source}, and the wheel was built for {', '.join(axis['values'])}"
                raise LoadError(f"{msg}\n    -> build it for this value too, or set {variable}")
            debug("%s: axis %s is %s by %s", self.name, name, value, source)
            found[name] = value
        return found

    def _load_unit(self, unit: dict[str, Any], chosen: str, where: str, units: list[_Unit]) -> None:
        from .code_objects import map_code_object

        file = self._path(unit["bundle"].replace("{target}", chosen))
        facts = unit["code_objects"][chosen]
        try:
            image = map_code_object(file, chosen, facts)
        except CorruptFileError as error:
            if "{target}" not in unit["bundle"]:
                raise
            raise CorruptFileError(file, error.what, self._reinstall(chosen)) from None
        try:
            loaded = _Unit(unit["name"], unit, image, _native.load_code_object(image))
            units.append(loaded)
            loaded.kernels = tuple(
                (
                    _native.function(loaded.module, kernel["symbol"]),
                    kernel["symbol"],
                    kernel["max_workgroup"],
                    tuple(kernel.get("reqd_workgroup") or (0, 0, 0)),
                )
                for kernel in facts["kernels"]
            )
            for variable in unit["globals"]:
                _, size = _native.global_variable(loaded.module, variable["name"])
                if size != variable["size"]:
                    what = f"device global {variable['name']} has {size} bytes on {where}, the build saw {variable['size']}"
                    msg = f"{self.name}: {file}: {what}"
                    raise LoadError(msg)
        except _native.DriverError as error:
            text, code, name = error.args
            msg = f"{self.name}: {file}, entry {chosen}, on {where}: {text}"
            raise LoadError(msg, code, name) from None

    def _reinstall(self, target: str) -> str:
        """Say what to do about a device wheel that does not fit."""
        from importlib.metadata import PackageNotFoundError, version

        name, wanted = self.manifest["distribution"]["name"], self.manifest["distribution"]["version"]
        device = f"{name}-device-{target}"
        try:
            found = f"{device} {version(device)}"
        except PackageNotFoundError:
            found = device
        return (
            f"{found} is not of the same build as {name} {wanted}, or is damaged: install both from one build, "
            f'pip install --force-reinstall "{name}[device-{target}]=={wanted}"'
        )

    def _library(self) -> int:
        """Open the launcher library, once in a process and its children: it holds no state."""
        if self._library_handle is None:
            facts = self.manifest["library"]
            file = self._path(facts["file"])
            self._read_checked(file, facts["sha256"], "the one in the manifest")
            try:
                handle = _native.open_library(file)
                self._native.read_tables(_native.library_symbol(handle, _CALL_TABLE))
            except _native.DriverError as error:
                msg = f"{self.name}: {error.args[0]}"
                raise LoadError(msg) from None
            except ValueError as error:
                raise CorruptFileError(file, str(error)) from None
            self._library_handle = handle
        return self._library_handle

    def _entries(self, library: int, chosen: str, units: list[_Unit]) -> tuple[tuple[Any, ...] | None, ...]:
        kernels = {unit.name: unit.kernels for unit in units}
        found: list[tuple[Any, ...] | None] = []
        for launcher in self.manifest["launchers"]:
            for specialization in launcher["specializations"]:
                # By unit: of units that differ in an axis, one is loaded.
                by_unit = specialization["entries"].get(chosen, {})
                unit = next((unit for unit in by_unit if unit in kernels), None)
                if unit is None:
                    found.append(None)
                    continue
                try:
                    function = _native.library_symbol(library, by_unit[unit]["entry"])
                    found.append((function, tuple(kernels[unit][position] for position in by_unit[unit]["kernels"])))
                except _native.DriverError as error:
                    raise CorruptFileError(self._path(self.manifest["library"]["file"]), error.args[0]) from None
                except (KeyError, IndexError) as error:
                    raise CorruptFileError(self._file, f"{specialization['name']}: {error!r}") from error
        return tuple(found)

    def _initialize(self, units: list[_Unit], device: int) -> None:
        generation = _native.generation()
        for unit in units:
            for name in unit.facts["init"]:
                debug("%s: %s on device %d", self.name, name, device)
                where = f"init function {name} of {self.name} on device {device}"
                function = self._init_function(name)
                try:
                    status = _status(function(unit.module))
                except Exception as error:
                    msg = f"{where} raised {type(error).__name__}: {text_of(error)}"
                    raise InitError(msg) from error
                if status:
                    msg = f"{where} returned {status}"
                    raise InitError(msg)
                if generation != _native.generation():
                    msg = f"{where} returned in a process that it had forked, in which the module is not loaded"
                    raise InitError(msg)

    def _init_function(self, name: str) -> Callable[[int], Any]:
        try:
            return _resolve(name)
        except ModuleNotFoundError as error:
            missing = error.name or name.partition(":")[0]
            known = self.manifest["provenance"].get("distributions", {}).get(missing.partition(".")[0])
            remedy = f'install it: pip install "{known}"' if known else f"install the distribution that has {missing}"
            msg = f"init function {name} of {self.name} needs the module {missing}, which is not installed\n    -> {remedy}"
            raise InitError(msg) from error
        except Exception as error:  # of the module's own code, too
            msg = f"init function {name} of {self.name} cannot be imported: {type(error).__name__}: {text_of(error)}"
            raise InitError(msg) from error

    def _unload(self, units: list[_Unit]) -> None:
        """Unload what a failed load has loaded; the error on its way says more than one from here could."""
        for unit in reversed(units):
            try:
                _native.unload(unit.module)
            except _native.DriverError as error:
                debug("%s: unit %s: %s", self.name, unit.name, error.args[0])


def join_path(stub_file: str, manifest_file: str) -> str:
    """Return the manifest's absolute path."""
    return os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(stub_file)), manifest_file))


def _status(result: Any) -> int:
    """Return what an init function returned if it is an integer, also one of numpy and the like; else 0. True is no status."""
    if isinstance(result, bool) or not hasattr(result, "__index__"):
        return 0
    try:
        return int(result.__index__())
    except TypeError:  # arrays have the method, and are no integer
        return 0


def _resolve(reference: str) -> Callable[..., Any]:
    """Import `module:qualname`."""
    module, _, qualname = reference.partition(":")
    __import__(module)
    found: Any = sys.modules[module]
    for part in qualname.split("."):
        found = getattr(found, part)
    return found  # type: ignore[no-any-return]
