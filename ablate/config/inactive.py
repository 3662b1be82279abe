"""Settings that have no effect beside others: refused where they are written, at their default where inherited."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ablate.config.model import ModelConfig
from ablate.config.plugins import reference, unpinned
from ablate.config.training import TrainingConfig
from ablate.formatting import setting_text

_HEADS = ("n_heads", "n_kv_heads", "d_k", "d_v", "attention_scale", "attention_bias", "attention_dropout")
# Of fields with a default, what they are set to where they have no effect; others are left as they are.
_RESET = (
    "n_kv_heads", "n_cross_heads", "attention_scale", "attention_bias", "attention_dropout", "encoder_layers",
    "attention", "attention_window", "relative_clip", "norm", "schedule",
)  # fmt: skip


class NoEffect(ValueError):  # noqa: N818
    """Settings that were written and have no effect. `faults`: (field, message), one for each."""

    def __init__(self, faults: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{name}: {message}" for name, message in faults))
        self.faults = faults


def without_effect(c: ModelConfig, training: TrainingConfig) -> Iterator[tuple[str, str]]:
    """(field, the setting that leaves it without effect), for every such field.

    A class of the user's own may ask for any field of the model, so none is without effect beside it.
    """
    if training.train_steps is not None and training.train_steps <= training.warmup_steps:
        yield "schedule", "train_steps that do not go beyond warmup_steps"
    if c.mixer == "lstm":
        yield from ((name, "mixer=lstm") for name in ("attention", "attention_window"))
        if not c.has_encoder:
            yield from ((name, "mixer=lstm in a decoder-only model, which has no attention") for name in _HEADS)
    if not c.has_encoder:
        yield "encoder_layers", "architecture=decoder-only"
        yield "n_cross_heads", "architecture=decoder-only"
        if c.decoder_layers is not None:
            yield "n_layers", "architecture=decoder-only and decoder_layers set"
    elif c.encoder_layers is not None and c.decoder_layers is not None:
        yield "n_layers", "encoder_layers and decoder_layers both set"
    if c.attention != "local" and c.mixer != "lstm" and reference(c.attention) is None:
        yield "attention_window", "attention other than local"
    if c.positional_encoding != "relative" and reference(c.positional_encoding) is None:
        yield "relative_clip", "positional_encoding other than relative"
    if c.norm_position == "none":
        yield "norm", "norm_position=none"
    if c.attention == "linear" and not c.has_encoder and c.mixer != "lstm":
        for name in ("attention_scale", "attention_dropout"):
            yield name, "attention=linear in a decoder-only model"


def refuse(settings: Mapping[str, Any], own: Collection[str], idle: Mapping[str, str]) -> None:
    """Refuse those of the settings in `own` that are idle.

    Raises:
        NoEffect: there are some.
    """
    written = [name for name in own if name in idle and settings.get(name) is not None]
    if written:
        raise NoEffect(
            [
                (name, f"{unpinned(setting_text(settings[name]))} has no effect with {idle[name]}: leave it out here")
                for name in written
            ]
        )


def settled(config: ModelConfig, idle: dict[str, str]) -> dict[str, Any]:
    """Resolved values without what says nothing: what has no effect at its default, what repeats another field unset.

    Configurations that train the same are then mostly the same; identity.py knows of those that still are not.
    """
    values = config.model_dump()
    for name in _RESET:
        if name in idle:
            values[name] = type(config).model_fields[name].default
    if values["n_cross_heads"] == values["n_heads"]:
        values["n_cross_heads"] = None
    if values["n_kv_heads"] == values["n_heads"] and values["n_cross_heads"] is None:
        values["n_kv_heads"] = None
    if "n_layers" in idle:  # the encoder's depth becomes the common one; in a decoder-only model the decoder's
        values["n_layers"] = values["encoder_layers"] or values["decoder_layers"]
    for name in ("encoder_layers", "decoder_layers"):
        if values[name] == values["n_layers"]:
            values[name] = None
    return values
