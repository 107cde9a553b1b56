# SPDX-License-Identifier: Apache-2.0
"""The manifest's launchers, of what was compiled for all targets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from flydsl_build.bundle.manifest import HostEntry, LauncherEntry, Returns, Source, SpecializationEntry, path_faults
from flydsl_build.codec import NO_DEFAULT, encode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from flydsl_build.bundle.manifest import Unit
    from flydsl_build.codec import PlainValue
    from flydsl_build.declare.specialization import Specialization
    from flydsl_build.errors import FaultCollector
    from flydsl_build.jobs.job import JobResult, SpecializationBuild
    from flydsl_build.jobs.launcher import EnumClass, Parameter

__all__ = ["launcher_entries", "value_classes", "value_enums"]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Member:
    """A specialization and its builds: for each target one, or one for each value of the axes it depends on."""

    specialization: Specialization
    per_target: dict[str, list[SpecializationBuild]]

    @property
    def first(self) -> SpecializationBuild:
        return next(iter(self.per_target.values()))[0]

    def builds(self) -> Iterator[tuple[str, SpecializationBuild]]:
        for target, builds in self.per_target.items():
            for build in builds:
                yield target, build


def launcher_entries(
    specializations: Sequence[Specialization], results: Sequence[JobResult], units: dict[str, Unit], faults: FaultCollector
) -> tuple[LauncherEntry, ...]:
    """Return the manifest's launchers, in the order of their declarations.

    Parameters
    ----------
    specializations
        What was declared. Those that the compiler found to repeat another are in no result.
    units
        The code objects, which have the kernels.
    faults
        Gets what differs between targets, or between the specializations of one launcher, and must not.
    """
    built: dict[str, dict[str, list[SpecializationBuild]]] = {}
    for result in results:
        for one in result.specializations:
            built.setdefault(one.name, {}).setdefault(result.target, []).append(one)
    by_launcher: dict[str, list[_Member]] = {}
    for specialization in specializations:
        if specialization.name in built:
            member = _Member(specialization=specialization, per_target=built[specialization.name])
            by_launcher.setdefault(specialization.attribute, []).append(member)
    return tuple(_launcher(name, members, units, faults) for name, members in by_launcher.items())


def value_classes(results: Sequence[JobResult]) -> dict[str, tuple[Parameter, ...]] | None:
    """Return the classes whose objects select specializations, by name; a name that stands for two is left out."""
    found: dict[str, tuple[Parameter, ...] | None] = {}
    for result in results:
        for build in result.specializations:
            for name, infos in build.classes.items():
                fields = tuple(_parameter(one) for one in infos)
                found[name] = fields if found.get(name, fields) == fields else None
    return {name: fields for name, fields in found.items() if fields is not None} or None


def value_enums(results: Sequence[JobResult], faults: FaultCollector) -> dict[str, EnumClass] | None:
    """Return the enums that values are members of, by `module:class`; record those that are not the same for all targets."""
    found: dict[str, EnumClass] = {}
    for result in results:
        for name, mine in result.enums.items():
            if repr(found.setdefault(name, mine)) != repr(mine):
                where = f"{result.module}, {result.target}"
                faults.add(where, f"the enum {name} has other members than for another target", "give it the same members on every target")
    return found or None


def _launcher(name: str, members: list[_Member], units: dict[str, Unit], faults: FaultCollector) -> LauncherEntry:
    for member in members:
        _check_targets_agree(member, faults)
        _check_values(member, faults)
    first = members[0].first
    is_factory = members[0].specialization.params is not None
    factory_parameters = _factory_parameters(members, faults) if is_factory else ()
    params = [_completed(member.first.params, factory_parameters) for member in members]
    own = _own_parameters(members, params, faults)
    return LauncherEntry(
        name=name,
        kind="factory" if is_factory else "launcher",
        doc=first.doc,
        parameters=tuple(_parameter(one) for one in first.parameters),
        factory_parameters=tuple(_parameter(one) for one in factory_parameters) if is_factory else None,
        returns=_returns(members, faults),
        specializations=tuple(
            _specialization(member, values, parameters, units) for member, values, parameters in zip(members, params, own, strict=True)
        ),
    )


def _check_values(member: _Member, faults: FaultCollector) -> None:
    """Record plain values that a factory returns differently for one target: they may differ between targets, which the run time knows."""
    for target, builds in member.per_target.items():
        for build in builds:
            if repr(build.values) != repr(builds[0].values):
                faults.add(
                    f"{member.specialization.where}, {target}",
                    f"the values that the factory returns beside its launchers differ between values of an axis: {builds[0].values} "
                    f"and {build.values}",
                    "return the same for every value of the axis, or leave them out of what the factory returns",
                )
            if set(build.values) != set(member.first.values):
                faults.add(
                    f"{member.specialization.where}, {target}",
                    "what the factory returns as plain values differs between targets: "
                    f"{_quoted(member.first.values)} and {_quoted(build.values)}",
                    "return launchers under the same names for all targets",
                )


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _check_targets_agree(member: _Member, faults: FaultCollector) -> None:
    for target, other in member.builds():
        for what in ("parameters", "arguments", "slots", "constexpr", "params"):
            if getattr(other, what) != getattr(member.first, what):
                faults.add(
                    f"{member.specialization.where}, {target}",
                    f"the launcher's {what} differ between targets",
                    "give it the same signature on every target, or declare it once for each target list",
                )


# --- parameters --------------------------------------------------------------------------------------------------------


def _parameter(one: Parameter) -> Parameter:
    """Return a parameter as the manifest has it: a default of which nothing is known is None there."""
    return replace(one, opaque=False)


def _factory_parameters(members: list[_Member], faults: FaultCollector) -> tuple[Parameter, ...]:
    """Return the factory's parameters. A default that is not the same for every target counts as one that cannot be compared."""
    found = members[0].first.factory_parameters
    for member in members:
        for target, build in member.builds():
            others = build.factory_parameters
            if [(one.name, one.kind, one.has_default) for one in others] != [(one.name, one.kind, one.has_default) for one in found]:
                faults.add(
                    f"{member.specialization.where}, {target}",
                    "the factory's parameters differ between targets",
                    "give it the same signature on every target",
                )
                return found
            found = tuple(
                one if repr(one.default) == repr(other.default) and one.opaque == other.opaque else replace(one, default=None, opaque=True)
                for one, other in zip(found, others, strict=True)
            )
    return found


def _completed(params: dict[str, PlainValue], parameters: tuple[Parameter, ...]) -> dict[str, PlainValue]:
    """Return what the factory was called with, with its defaults that can be compared, in the order of its signature."""
    given: dict[str, PlainValue] = dict(params)
    found = {}
    for one in parameters:
        if one.name in given:
            found[one.name] = given[one.name]
        elif one.has_default and not one.opaque:
            found[one.name] = cast("PlainValue", one.default)
    # What goes into `**parameters`.
    return {**found, **given}


def _shape(parameters: tuple[Parameter, ...]) -> list[tuple[Any, ...]]:
    """Return what of the parameters makes a signature. What an argument without an annotation is, differs between specializations."""
    return [
        (one.name, one.kind, one.has_default, repr(one.default), one.role if one.role in {"constexpr", "type"} else "")
        for one in parameters
    ]


def _own_parameters(
    members: list[_Member], params: list[dict[str, PlainValue]], faults: FaultCollector
) -> list[tuple[Parameter, ...] | None]:
    """Return each specialization's parameters where they are not those of the first one."""
    common = _shape(members[0].first.parameters)
    groups: dict[str, _Member] = {}
    found: list[tuple[Parameter, ...] | None] = []
    for member, values in zip(members, params, strict=True):
        # One call of the factory gives one launcher, whatever it is specialized for.
        group = groups.setdefault(repr((sorted(values.items()), member.specialization.element)), member)
        mine = _shape(member.first.parameters)
        if mine != _shape(group.first.parameters):
            faults.add(
                member.specialization.where,
                f"{member.specialization.name} has other parameters than {group.specialization.name}: "
                f"{_names(member)}, not {_names(group)}",
                "give the launcher the same signature for all of its targets",
            )
        found.append(None if mine == common else tuple(_parameter(one) for one in group.first.parameters))
    return found


def _names(member: _Member) -> str:
    return f"({', '.join(one.name for one in member.first.parameters)})"


def _returns(members: list[_Member], faults: FaultCollector) -> Returns | None:
    """Return in what form the factory returns several launchers: the same for all parameters."""
    form = members[0].first.form
    names = tuple(dict.fromkeys(name for member in members for name in member.specialization.returns))
    for member in members:
        for target, build in member.builds():
            if build.form != form:
                faults.add(
                    f"{member.specialization.where}, {target}",
                    f"the factory returns a {build.form} for {member.specialization.name}, and a {form} for "
                    f"{members[0].specialization.name}",
                    "return the same for all parameters and targets",
                )
        if list(member.specialization.returns) != [name for name in names if name in member.specialization.returns]:
            faults.add(
                f"{member.specialization.where}.returns",
                f"has {', '.join(member.specialization.returns)} in another order than {members[0].specialization.where}",
                "name them in one order",
            )
    return None if form is None else Returns(form=form, names=names)  # type: ignore[arg-type]  # `factories` gives the manifest's forms


# --- specializations ---------------------------------------------------------------------------------------------------


def _specialization(
    member: _Member, params: dict[str, PlainValue], parameters: tuple[Parameter, ...] | None, units: dict[str, Unit]
) -> SpecializationEntry:
    specialization, first = member.specialization, member.first
    return SpecializationEntry(
        name=specialization.name,
        constexpr=first.constexpr,
        params=params,
        element=specialization.element,
        values={target: builds[0].values for target, builds in member.per_target.items()} if first.values else None,
        attributes={target: found for target, builds in member.per_target.items() if (found := _attributes(builds))} or None,
        doc=first.launcher_doc,
        parameters=parameters,
        out=specialization.out,
        targets=tuple(member.per_target),
        arguments=first.arguments,
        slots=first.slots,
        entries={
            target: {one.group: _entry(one, units[one.group], target) for one in builds} for target, builds in member.per_target.items()
        },
        options=_flat(specialization.options.to_json()),
        source=Source(file=first.source_file, line=first.source_line),
    )


def _attributes(builds: Sequence[SpecializationBuild]) -> dict[str, PlainValue]:
    """Return the attributes that a launcher has for all values of axes. One that names a place of this machine is not for others."""
    first = builds[0].attributes
    return {
        name: value
        for name, value in first.items()
        if all(repr(one.attributes.get(name, NO_DEFAULT)) == repr(value) for one in builds) and not any(path_faults(encode(value), ""))
    }


def _flat(options: dict[str, Any], place: str = "") -> dict[str, Any]:
    """Join nested keys with dots: `gfx942.waves-per-eu`, `llvm-options.amdgpu-early-inline-all`."""
    found: dict[str, Any] = {}
    for name, value in options.items():
        found.update(
            _flat(value, f"{place}{name}.")
            if isinstance(value, dict)
            else {f"{place}{name}": tuple(value) if isinstance(value, list) else value}
        )
    return found


def _entry(build: SpecializationBuild, unit: Unit, target: str) -> HostEntry:
    positions = {kernel.symbol: index for index, kernel in enumerate(unit.code_objects[target].kernels)}
    return HostEntry(entry=build.entry, kernels=tuple(positions[kernel] for kernel in build.kernels))
