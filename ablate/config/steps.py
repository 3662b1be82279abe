"""Find the parts in which two configurations differ, for designs such as
`add-one-in: {preset: qwen3}`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ablate.config.inactive import inactive_fields
from ablate.config.presets import PARTS, SIZES
from ablate.config.resolve import merged, resolve_row
from ablate.config.row import RowConfig
from ablate.errors import Fault, Invalid

Steps = dict[str, dict[str, Any]]  # part -> its changed fields, with the values of the end
Resolve = Callable[..., RowConfig]  # `resolve_row`, or a function with its arguments and errors


def steps_between(
    start: Mapping[str, Any], end: Mapping[str, Any], resolve: Resolve = resolve_row
) -> Steps:
    """The parts in which two configurations differ, each as one step from start to end.

    Each step is valid as the only step, and all other steps are valid without it. Parts that depend
    on each other are joined to one step with the names of both, such as `positions-mixer`. A field
    that belongs to no part is a step with the name of the field.

    Args:
        start: settings of the start, as for `resolve_row`.
        end: further settings, such as a preset, which change the start into the end.
        resolve: makes a configuration from settings.

    Raises:
        ValidationError: one of the configurations is not valid.
        Invalid: the configurations have different architectures, or h does not divide d_model in
            one of them.
    """
    unchanged = {name: value for name, value in merged(start).items() if name not in end}
    written = merged({**unchanged, **end})  # a preset in `end` overrides `unchanged`
    first = resolve(start)
    last = resolve(written)
    if first.architecture != last.architecture:
        raise Invalid(
            Fault(
                f"architecture={first.architecture} and architecture={last.architecture} have no "
                "parts between them",
                ("architecture",),
            )
        )
    part_of = {}
    for part, names in {**PARTS, "sizes": SIZES}.items():
        part_of.update(dict.fromkeys(names, part))
    idle = {*inactive_fields(last)}
    if "max_positions" not in written:  # then it follows from other fields of positions
        idle.add("max_positions")
    steps: Steps = {part: {} for part in part_of.values()}  # in the order of a model
    for name, value in first:
        if value != getattr(last, name) and name not in idle:
            fields = steps.setdefault(part_of.get(name, name), {})
            fields[name] = written.get(name, getattr(last, name))
    changed = {part: fields for part, fields in steps.items() if fields}
    return _join_dependent(start, changed, resolve)


def _join_dependent(start: Mapping[str, Any], steps: Steps, resolve: Resolve) -> Steps:
    """Join steps that depend on each other, until each step is valid alone and can be left out."""
    for checks_rest in (False, True):
        for part in steps:
            if _is_valid(start, steps, part, checks_rest, resolve):
                continue
            joins = [_join(steps, part, partner) for partner in steps if partner != part]
            for joined in joins:
                (joined_name,) = joined.keys() - steps.keys()
                if _is_valid(start, joined, joined_name, checks_rest, resolve):
                    return _join_dependent(start, joined, resolve)
            if joins:  # the part depends on several others: join the first and try again
                return _join_dependent(start, joins[0], resolve)
    return steps


def _join(steps: Steps, part: str, partner: str) -> Steps:
    """The steps with two of them joined, at the place of the first."""
    first, second = sorted((part, partner), key=list(steps).index)
    joined: Steps = {}
    for name, fields in steps.items():
        if name == first:
            joined[f"{first}-{second}"] = {**fields, **steps[second]}
        elif name != second:
            joined[name] = fields
    return joined


def _is_valid(
    start: Mapping[str, Any], steps: Steps, part: str, checks_rest: bool, resolve: Resolve
) -> bool:
    """Whether the start is valid with one step, or, if `checks_rest`, with all other steps."""
    if checks_rest:
        taken = [fields for name, fields in steps.items() if name != part]
    else:
        taken = [steps[part]]
    fields: dict[str, Any] = {}
    for changes in taken:
        fields |= changes
    try:
        resolve({**start, **fields}, written=fields)
    except ValueError:
        return False
    return True
