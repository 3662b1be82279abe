"""Settings that have no effect in combination with others.

They are an error where a study writes them for a row, and get their default where the row inherits
them from base.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ablate.config.model import ModelConfig
from ablate.config.plugins import without_digest
from ablate.config.training import DEFAULT_MOMENTUM, TrainingConfig
from ablate.config.variants import ATTENTIONS, MIXERS, VARIANTS, Variant
from ablate.errors import listed
from ablate.formatting import setting_text

_HEADS = (
    "n_heads",
    "n_kv_heads",
    "d_k",
    "d_v",
    "attention_scale",
    "attention_bias",
    "attention_dropout",
)
_ENCODER_ONLY = ("embedding_norm", "token_types", "output_transform", "output_bias")
# Fields that get their default when they are inactive; the others keep their value.
_RESET = (
    "n_kv_heads",
    "n_cross_heads",
    "attention_scale",
    "attention_bias",
    "attention_dropout",
    "encoder_layers",
    "attention",
    "attention_window",
    "relative_clip",
    "norm",
    "schedule",
    "momentum",
    "adam_beta1",
    "adam_beta2",
    "adam_eps",
    "decoder_layers",
    *_ENCODER_ONLY,
)


class InactiveSettings(ValueError):  # noqa: N818
    """A study writes settings that have no effect. `errors`: (field, message) pairs."""

    def __init__(self, errors: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{name}: {message}" for name, message in errors))
        self.errors = errors


def inactive_fields(c: ModelConfig, training: TrainingConfig) -> Iterator[tuple[str, str]]:
    """Yield (field, the setting that makes it inactive) for every inactive field.

    A custom class may read any field of the model, so no field is inactive because of it.
    """
    if training.train_steps is not None and training.train_steps <= training.warmup_steps:
        yield "schedule", "train_steps that do not go beyond warmup_steps"
    if training.optimizer in ("adam", "adamw"):
        yield "momentum", f"optimizer={training.optimizer}"
    if training.optimizer == "sgd":
        yield from ((name, "optimizer=sgd") for name in ("adam_beta1", "adam_beta2", "adam_eps"))
    replaced = MIXERS[c.mixer].replaces
    yield from ((name, f"mixer={c.mixer}") for name in replaced)
    # With both stacks, cross-attention still uses these fields.
    if "attention" in replaced and not c.has_both_stacks:
        yield from (
            (name, f"mixer={c.mixer} with architecture={c.architecture}, which leaves no attention")
            for name in _HEADS
        )
    for field, variants in VARIANTS.items():
        variant = variants.get(getattr(c, field))
        if variant and field not in replaced:
            yield from _fields_of_others(field, variants, variant)
    yield from _of_missing_stacks(c)
    if c.norm_position == "none":
        yield "norm", "norm_position=none"
    attention = ATTENTIONS.get(c.attention)
    if (
        attention
        and not attention.forms_scores
        and not c.has_both_stacks
        and "attention" not in replaced
    ):
        for name in ("attention_scale", "attention_dropout"):
            yield name, f"attention={c.attention} with architecture={c.architecture}"


def _of_missing_stacks(c: ModelConfig) -> Iterator[tuple[str, str]]:
    """Yield the fields of a stack that the architecture lacks, and N where each stack has its own
    depth.
    """
    present = {
        "encoder_layers": c.has_encoder,
        "decoder_layers": c.has_decoder,
        "n_cross_heads": c.has_both_stacks,
    }
    yield from (
        (name, f"architecture={c.architecture}")
        for name, has_effect in present.items()
        if not has_effect
    )
    if c.has_decoder:
        yield from ((name, f"architecture={c.architecture}") for name in _ENCODER_ONLY)
    depths = [name for name in ("encoder_layers", "decoder_layers") if present[name]]
    if all(getattr(c, name) is not None for name in depths):
        both = "encoder_layers and decoder_layers both set"
        yield (
            "n_layers",
            both if len(depths) == 2 else f"architecture={c.architecture} and {depths[0]} set",
        )


def _fields_of_others(
    selector: str, variants: Mapping[str, Variant], selected: Variant
) -> Iterator[tuple[str, str]]:
    """Yield the fields that only other variants use, with the reason."""
    users: dict[str, list[str]] = {}
    for name, variant in variants.items():
        for field in variant.fields:
            users.setdefault(field, []).append(name)
    yield from ((field, f"{selector} other than {listed(names)}") for field, names in users.items()
                if field not in selected.fields)  # fmt: skip


def check_active(
    settings: Mapping[str, Any], written: Collection[str], inactive: Mapping[str, str]
) -> None:
    """Check that every field in `written` has an effect.

    Args:
        settings: values by field.
        written: fields that the study writes for this row.
        inactive: inactive fields, with the setting that makes them so.

    Raises:
        InactiveSettings: for those that have none.
    """
    idle = [name for name in written if name in inactive and settings.get(name) is not None]
    if idle:
        values = {name: without_digest(setting_text(settings[name])) for name in idle}
        raise InactiveSettings(
            [
                (name, f"{values[name]} has no effect with {inactive[name]}; remove it")
                for name in idle
            ]
        )


def canonical_values(config: ModelConfig, inactive: Mapping[str, str]) -> dict[str, Any]:
    """Canonical values: inactive fields at their default, and fields that repeat another field
    unset.

    Equal models then mostly have equal configurations; identity.py treats the remaining cases.
    """
    values = config.model_dump()
    for name in _RESET:
        if name in inactive:
            values[name] = type(config).model_fields[name].default
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
