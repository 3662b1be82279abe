"""Settings without effect, because the part that they belong to is not there.

A setting without effect is an error if a study writes it for a row, and gets its default if the row
inherits it from base.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from ablate.config.optimizers import OPTIMIZERS
from ablate.config.row import RowConfig
from ablate.errors import Fault, Invalid
from ablate.fields import Part, facts_of
from ablate.formatting import setting_text
from ablate.parts import attention

_FACTS = facts_of(RowConfig)


def _fields_by_part() -> list[tuple[Part, list[str]]]:
    """Each part with its fields, so that a plan asks for each part only once for a row."""
    parts: list[tuple[Part, list[str]]] = []
    for name, facts in _FACTS.items():
        same = [names for part, names in parts if part == facts.part]
        if same:
            same[0].append(name)
        elif facts.part is not None:
            parts.append((facts.part, [name]))
    return parts


_FIELDS_BY_PART = _fields_by_part()


class InactiveSettings(Invalid):
    """A study writes settings that have no effect. The subject of each fault is the field."""


def inactive_fields(c: RowConfig) -> dict[str, Part]:
    """The fields that no layer uses, each with the missing part that it belongs to.

    A user's class may read any field of the model, so it counts as every part.
    """
    # Without patterns, all layers are equal, and one is enough.
    first, *further = map(_fields_without_part, c.all_layers if c.patterns else [c])
    for layer in further:
        first = {name: part for name, part in first.items() if name in layer}
    return first


def _fields_without_part(c: RowConfig) -> dict[str, Part]:
    """The fields that a layer does not use, by the configuration of the layer."""
    inactive: dict[str, Part] = {}
    for part, names in _FIELDS_BY_PART:
        missing = part.missing(c)
        if missing is not None:
            inactive |= dict.fromkeys(names, missing)
    return inactive


def idle_entries(c: RowConfig) -> Iterator[Fault]:
    """Yield a fault for every value in a pattern that no layer uses.

    Every layer gets a value, even a layer that ignores the field. A value is a fault only if all
    layers with it ignore the field.
    """
    patterns = c.patterns
    if not patterns:  # fast for plans of a thousand rows
        return
    idle: dict[str, dict[Any, Part]] = {name: {} for name in patterns}
    used: dict[str, set[Any]] = {name: set() for name in patterns}
    for layer in c.all_layers:
        inactive = _fields_without_part(layer)
        for name in patterns:
            if name in inactive:
                idle[name][getattr(layer, name)] = inactive[name]
            else:
                used[name].add(getattr(layer, name))
    for name in patterns:
        for value, part in idle[name].items():
            if used[name] and value not in used[name] and value is not None:
                text = setting_text(value)
                what = f"stands only in layers where it has no effect: {part}"
                yield Fault(what, (name, *part.fields), name, given=text)


def idle_fault(
    name: str, value: Any, problem: str, fields: Iterable[str] = (), remedy: str = "remove it"
) -> Fault:
    """The fault of a field whose value has no effect; `fields` are the fields that cause this."""
    text = setting_text(value)
    return Fault(problem, (name, *fields), name, given=text, remedy=remedy)


def check_active(
    c: RowConfig,
    settings: Mapping[str, Any],
    written: Collection[str],
    inactive: Mapping[str, Part],
) -> None:
    """Check that every written field, and every value of a pattern, has an effect.

    Args:
        c: the configuration.
        settings: values by field, as written.
        written: fields that the study writes for this row.
        inactive: fields without effect.

    Raises:
        InactiveSettings: some field or value has no effect.
    """
    faults = [fault for fault in idle_entries(c) if fault.subject in written]
    for name in written:
        if name in inactive and settings.get(name) is not None:
            part = inactive[name]
            problem = f"has no effect: {part}"
            faults.append(idle_fault(name, settings[name], problem, part.fields, part.remedy))
    if faults:
        raise InactiveSettings(*faults)


def canonical_values(config: RowConfig, inactive: Collection[str]) -> dict[str, Any]:
    """Values of all fields. Inactive fields have their default, and a field with the value that it
    would have if unset is unset.

    Equal models then mostly have equal configurations; identity.py treats the remaining cases.
    """
    values = config.model_dump()
    for name in inactive:
        field = type(config).model_fields[name]
        if _FACTS[name].is_reset and not field.is_required():
            values[name] = field.default
    if values["momentum"] == OPTIMIZERS[values["optimizer"]].momentum:
        values["momentum"] = None
    attention.unset_equal_heads(values)
    if values["stride"] == values["context"]:
        values["stride"] = None
    if values["eval_stride"] == (values["eval_context"] or values["context"]):
        values["eval_stride"] = None
    if values["eval_context"] == values["context"]:
        values["eval_context"] = None
    # Where all depths are set, N becomes the depth of the encoder or, without it, of the decoder.
    if "n_layers" in inactive:
        values["n_layers"] = values["encoder_layers"] or values["decoder_layers"]
    for name in ("encoder_layers", "decoder_layers"):
        if values[name] == values["n_layers"]:
            values[name] = None
    return values
