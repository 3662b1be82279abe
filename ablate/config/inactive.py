"""Settings that have no effect in combination with others.

They are an error where a study writes them for a row, and get their default where the row inherits
them from base.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ablate.config.row import RowConfig
from ablate.config.training import DEFAULT_MOMENTUM
from ablate.errors import Fault, Invalid
from ablate.fields import SET, facts_of
from ablate.formatting import setting_text
from ablate.own.reference import is_own, without_digest
from ablate.parts.attention import ATTENTIONS
from ablate.parts.mixers import MIXERS

_FACTS = facts_of(RowConfig)


class InactiveSettings(Invalid):
    """A study writes settings that have no effect; each is the subject of its fault."""


class Reason(NamedTuple):
    """Why a field has no effect: `architecture=encoder-only`, and the fields that it names."""

    text: str
    fields: tuple[str, ...] = ()


def inactive_fields(c: RowConfig) -> dict[str, Reason]:
    """The fields that no layer uses, each with the setting that makes it so.

    A custom class may read any field of the model, so no field is inactive because of it.
    """
    # Plans of a thousand rows ask for this, and without patterns all layers are equal.
    first, *further = map(_inactive_in_layer, c.all_layers if c.patterns else [c])
    for layer in further:
        first = {name: reason for name, reason in first.items() if name in layer}
    return first | _of_one_layer(c)


def _of_one_layer(c: RowConfig) -> dict[str, Reason]:
    """What needs a further layer, where a single one is passed once."""
    if c.passes > 1 or c.future_tokens:
        return {}
    idle = ["norm_scale", "value_residual"]
    if c.layer_skips == "unet":
        idle.append("layer_skips")
    reason = Reason("a single layer", ("n_layers", "encoder_layers", "decoder_layers", "loops"))
    return dict.fromkeys(idle, reason)


def warmup_fault(c: RowConfig) -> str:
    """`warmup_steps=100, which is not below train_steps=80`; empty if the rate has its peak
    before the last step.
    """
    if c.train_steps is None or c.train_steps > c.warmup_steps:
        return ""
    return f"warmup_steps={c.warmup_steps}, which is not below train_steps={c.train_steps}"


def idle_entries(c: RowConfig) -> Iterator[Fault]:
    """Yield a fault for every pattern with a value that no layer uses.

    Every layer gets a value, also one that ignores it. It is an error only if all layers with this
    value ignore it.
    """
    patterns = c.patterns
    if not patterns:  # plans of a thousand rows ask for this
        return
    idle: dict[str, dict[Any, Reason]] = {name: {} for name in patterns}
    used: dict[str, set[Any]] = {name: set() for name in patterns}
    for layer in c.all_layers:
        inactive = _inactive_in_layer(layer)
        for name in patterns:
            if name in inactive:
                idle[name][getattr(layer, name)] = inactive[name]
            else:
                used[name].add(getattr(layer, name))
    for name in patterns:
        for value, reason in idle[name].items():
            if used[name] and value not in used[name] and value is not None:
                text = without_digest(setting_text(value))
                what = f"stands only in layers where it has no effect, with {reason.text}"
                yield Fault(what, (name, *reason.fields), name, given=text)


def _inactive_in_layer(c: RowConfig) -> dict[str, Reason]:
    """The same for one layer, by its own configuration."""
    inactive = _of_depths(c)
    if fault := warmup_fault(c):
        inactive["schedule"] = Reason(fault, ("warmup_steps", "train_steps"))
    for name, facts in _FACTS.items():
        for selector, values in facts.needs.items():
            value = getattr(c, selector)
            if values == (SET,):
                if not value:
                    unset = f"{selector} unset" if value is None else f"{selector}={value:g}"
                    inactive[name] = Reason(unset, (selector,))
            elif value not in values and not is_own(value):
                text = f"{selector}={value}"
                if len(values) == 1:
                    text = f"{selector} other than {setting_text(values[0])}"
                inactive[name] = Reason(text, (selector,))
    if c.has_both_stacks or is_own(c.mixer):  # cross-attention uses the fields of attention
        return inactive
    for name, facts in _FACTS.items():
        if facts.acts_in == "heads" and MIXERS[c.mixer].has_heads:
            continue
        if facts.acts_in and c.mixer != "attention":
            alone = f"mixer={c.mixer} with architecture={c.architecture}"
            text = f"{alone}, which leaves no attention"
            inactive[name] = Reason(text, ("mixer", "architecture"))
        elif facts.acts_in == "attention scores" and not ATTENTIONS[c.attention].forms_scores:
            text = f"attention={c.attention} with architecture={c.architecture}"
            inactive[name] = Reason(text, ("attention", "architecture"))
    return inactive


def _of_depths(c: RowConfig) -> dict[str, Reason]:
    """N, where each stack has a depth of its own."""
    depths = []
    if c.has_encoder:
        depths.append("encoder_layers")
    if c.has_decoder:
        depths.append("decoder_layers")
    if any(getattr(c, name) is None for name in depths):
        return {}
    if len(depths) == 2:
        return {"n_layers": Reason("encoder_layers and decoder_layers both set", tuple(depths))}
    text = f"architecture={c.architecture} and {depths[0]} set"
    return {"n_layers": Reason(text, ("architecture", depths[0]))}


def check_active(
    settings: Mapping[str, Any],
    written: Collection[str],
    inactive: Mapping[str, Reason],
    idle: Iterable[Fault] = (),
) -> None:
    """Check that every field in `written` has an effect, and every value of a pattern.

    Args:
        settings: values by field.
        written: fields that the study writes for this row.
        inactive: inactive fields, with the setting that makes them so.
        idle: faults of fields with an idle value.

    Raises:
        InactiveSettings: for those that have none.
    """
    faults = [fault for fault in idle if fault.subject in written]
    for name in written:
        if name in inactive and settings.get(name) is not None:
            value = without_digest(setting_text(settings[name]))
            reason = inactive[name]
            remedy = "lower warmup_steps, or remove it" if name == "schedule" else "remove it"
            what = f"has no effect with {reason.text}"
            fields = (name, *reason.fields)
            faults.append(Fault(what, fields, name, given=value, remedy=remedy))
    if faults:
        raise InactiveSettings(*faults)


def canonical_values(config: RowConfig, inactive: Collection[str]) -> dict[str, Any]:
    """Canonical values: inactive fields at their default, and repetitions of other fields unset.

    Equal models then mostly have equal configurations; identity.py treats the remaining cases.
    """
    values = config.model_dump()
    for name in inactive:
        field = type(config).model_fields[name]
        if _FACTS[name].is_reset and not field.is_required():
            values[name] = field.default
    if values["momentum"] == DEFAULT_MOMENTUM.get(values["optimizer"]):
        values["momentum"] = None
    if values["n_cross_heads"] == values["n_heads"]:
        values["n_cross_heads"] = None
    if values["stride"] == values["context"]:
        values["stride"] = None
    if values["eval_stride"] == (values["eval_context"] or values["context"]):
        values["eval_stride"] = None
    if values["eval_context"] == values["context"]:
        values["eval_context"] = None
    # With other heads in cross-attention, the number of key heads is not that of both attentions.
    if values["n_kv_heads"] == values["n_heads"] and values["n_cross_heads"] is None:
        values["n_kv_heads"] = None
    # The depths are set: the encoder's becomes N; without an encoder, the decoder's.
    if "n_layers" in inactive:
        values["n_layers"] = values["encoder_layers"] or values["decoder_layers"]
    for name in ("encoder_layers", "decoder_layers"):
        if values[name] == values["n_layers"]:
            values[name] = None
    return values
