"""Steps from one configuration to another, part by part, for `add-one-in: {preset: qwen3}`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ablate.config.inactive import inactive_fields
from ablate.config.presets import PARTS, SIZES
from ablate.config.resolve import merged, resolve_row
from ablate.config.row import RowConfig
from ablate.errors import Fault, Invalid

Steps = dict[str, dict[str, Any]]
Resolve = Callable[..., RowConfig]  # `resolve_row`, or a function that also does more


def steps_between(
    start: Mapping[str, Any], end: Mapping[str, Any], resolve: Resolve = resolve_row
) -> Steps:
    """The parts in which two configurations differ: part -> fields with their values at the end.

    The start with only one of the steps is valid, and so is the start with all steps but one. Parts
    that depend on each other are therefore one step, with the names of both, such as
    `positions-mixer`. A field that belongs to no part is a step.

    Args:
        start: settings as `resolve_row` takes them.
        end: further settings, such as a preset; all other settings stay as at the start.
        resolve: function with the arguments and errors of `resolve_row`.

    Raises:
        ValidationError: the start or the end is not valid.
        Invalid: start and end have different architectures, or the sizes of heads cannot be
            derived.
    """
    unchanged = {name: value for name, value in merged(start).items() if name not in end}
    written = merged({**unchanged, **end})  # a preset of the end overrides them
    first, last = resolve(start), resolve(written)
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
    if "max_positions" not in written:  # then it follows from the positions
        idle.add("max_positions")
    steps: Steps = {part: {} for part in part_of.values()}  # in the order of a model
    for name, value in first:
        if value != getattr(last, name) and name not in idle:
            changed = steps.setdefault(part_of.get(name, name), {})
            changed[name] = written.get(name, getattr(last, name))
    changed = {part: fields for part, fields in steps.items() if fields}
    return _joined(start, changed, resolve)


def _joined(start: Mapping[str, Any], steps: Steps, resolve: Resolve) -> Steps:
    """The steps, after joining steps that depend on each other."""
    for is_alone in (True, False):  # only this step, and then all steps but this one
        for part in steps:
            if _is_valid(start, steps, part, is_alone, resolve):
                continue
            unions = [_union(steps, part, partner) for partner in steps if partner != part]
            for union in unions:
                (united,) = union.keys() - steps.keys()
                if _is_valid(start, union, united, is_alone, resolve):
                    return _joined(start, union, resolve)
            if unions:  # it depends on more than one other step
                return _joined(start, unions[0], resolve)
    return steps


def _union(steps: Steps, part: str, partner: str) -> Steps:
    """The steps, with two of them joined at the place of the first."""
    first, second = sorted((part, partner), key=list(steps).index)
    united: Steps = {}
    for name, fields in steps.items():
        if name == first:
            united[f"{first}-{second}"] = {**fields, **steps[second]}
        elif name != second:
            united[name] = fields
    return united


def _is_valid(
    start: Mapping[str, Any], steps: Steps, part: str, is_alone: bool, resolve: Resolve
) -> bool:
    """Whether the start with only this step is valid; if not `is_alone`, with all other steps."""
    fields: dict[str, Any] = {}
    for name, changes in steps.items():
        if (name == part) == is_alone:
            fields |= changes
    try:
        resolve({**start, **fields}, written=fields)
    except ValueError:
        return False
    return True
