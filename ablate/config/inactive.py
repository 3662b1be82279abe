"""Settings that have no effect in combination with others.

They are an error where a study writes them for a row, and get their default where the row inherits
them from base.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

from ablate.config.fields import SET, facts_of
from ablate.config.model import ModelConfig
from ablate.config.plugins import is_own, without_digest
from ablate.config.training import DEFAULT_MOMENTUM, TrainingConfig
from ablate.config.variants import ATTENTIONS, MIXERS
from ablate.formatting import setting_text

_OF_MODEL = frozenset(ModelConfig.model_fields)
_FACTS = {**facts_of(ModelConfig), **facts_of(TrainingConfig)}


class InactiveSettings(ValueError):  # noqa: N818
    """A study writes settings that have no effect. `errors`: (field, message) pairs."""

    def __init__(self, errors: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{name}: {message}" for name, message in errors))
        self.errors = errors


def inactive_fields(c: ModelConfig, training: TrainingConfig) -> Iterator[tuple[str, str]]:
    """Yield (field, the setting that makes it so) for every field that no layer uses.

    A custom class may read any field of the model, so no field is inactive because of it.
    """
    if fault := warmup_fault(training):
        yield "schedule", fault
    # Plans of a thousand rows ask for this, and without patterns all layers are equal.
    layers = c.all_layers if c.patterns else [c]
    first, *further = (dict(_inactive_in_layer(layer, training)) for layer in layers)
    for name, reason in first.items():
        if all(name in layer for layer in further):
            yield name, reason
    yield from _of_depths(c)


def warmup_fault(training: TrainingConfig) -> str:
    """`warmup_steps=100, which is not below train_steps=80`; empty if the rate has its peak
    before the last step.
    """
    steps, warmup = training.train_steps, training.warmup_steps
    if steps is None or steps > warmup:
        return ""
    return f"warmup_steps={warmup}, which is not below train_steps={steps}"


def idle_entries(c: ModelConfig, training: TrainingConfig) -> Iterator[tuple[str, str]]:
    """Yield (field, message) for every pattern with a value that no layer uses.

    Every layer gets a value, also one that ignores it. It is an error only if all layers with this
    value ignore it.
    """
    patterns = c.patterns
    reasons = []
    if patterns:  # plans of a thousand rows ask for this
        reasons = [dict(_inactive_in_layer(layer, training)) for layer in c.all_layers]
    for name in patterns:
        idle, used = dict[Any, str](), set[Any]()
        for layer, inactive in zip(c.all_layers, reasons, strict=True):
            value = getattr(layer, name)
            if name in inactive:
                idle[value] = inactive[name]
            else:
                used.add(value)
        for value, reason in idle.items():
            if used and value not in used and value is not None:
                text = without_digest(setting_text(value))
                yield name, f"{text} stands only in layers where it has no effect, with {reason}"


def _inactive_in_layer(c: ModelConfig, training: TrainingConfig) -> Iterator[tuple[str, str]]:
    """Yield the same for one layer, by its own configuration."""
    for name, facts in _FACTS.items():
        for selector, values in facts.needs.items():
            value = getattr(c if selector in _OF_MODEL else training, selector)
            if values == (SET,):
                if not value:
                    yield name, f"{selector} unset" if value is None else f"{selector}={value:g}"
            elif value not in values and not is_own(value):
                needed = f"{selector} other than {setting_text(values[0])}"
                yield name, needed if len(values) == 1 else f"{selector}={value}"
    if c.has_both_stacks or is_own(c.mixer):  # cross-attention uses the fields of attention
        return
    left_out = f"mixer={c.mixer} with architecture={c.architecture}, which leaves no attention"
    for name, facts in _FACTS.items():
        if facts.acts_in == "heads" and MIXERS[c.mixer].has_heads:
            continue
        if facts.acts_in and c.mixer != "attention":
            yield name, left_out
        elif facts.acts_in == "attention scores" and not ATTENTIONS[c.attention].forms_scores:
            yield name, f"attention={c.attention} with architecture={c.architecture}"


def _of_depths(c: ModelConfig) -> Iterator[tuple[str, str]]:
    """Yield N where each stack has a depth of its own."""
    depths = []
    if c.has_encoder:
        depths.append("encoder_layers")
    if c.has_decoder:
        depths.append("decoder_layers")
    if all(getattr(c, name) is not None for name in depths):
        both = "encoder_layers and decoder_layers both set"
        alone = f"architecture={c.architecture} and {depths[0]} set"
        yield "n_layers", both if len(depths) == 2 else alone


def check_active(
    settings: Mapping[str, Any],
    written: Collection[str],
    inactive: Mapping[str, str],
    idle: Iterable[tuple[str, str]] = (),
) -> None:
    """Check that every field in `written` has an effect, and every value of a pattern.

    Args:
        settings: values by field.
        written: fields that the study writes for this row.
        inactive: inactive fields, with the setting that makes them so.
        idle: fields with an idle value, with the message.

    Raises:
        InactiveSettings: for those that have none.
    """
    errors = [(name, message) for name, message in idle if name in written]
    for name in written:
        if name in inactive and settings.get(name) is not None:
            value = without_digest(setting_text(settings[name]))
            remedy = "lower warmup_steps, or remove it" if name == "schedule" else "remove it"
            errors.append((name, f"{value} has no effect with {inactive[name]}; {remedy}"))
    if errors:
        raise InactiveSettings(errors)


def canonical_values(config: ModelConfig, inactive: Mapping[str, str]) -> dict[str, Any]:
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
    # With other heads in cross-attention, the number of key heads is not that of both attentions.
    if values["n_kv_heads"] == values["n_heads"] and values["n_cross_heads"] is None:
        values["n_kv_heads"] = None
    if (
        "n_layers" in inactive
    ):  # the depths are set: the encoder's becomes N; without an encoder, the decoder's
        values["n_layers"] = values["encoder_layers"] or values["decoder_layers"]
    for name in ("encoder_layers", "decoder_layers"):
        if values[name] == values["n_layers"]:
            values[name] = None
    return values
