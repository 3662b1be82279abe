"""Resolve the settings of a study into complete configurations: symbols, presets, derived
fields.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from ablate.config.data import RowDataConfig
from ablate.config.decoding import DecodingConfig
from ablate.config.fields import facts_of
from ablate.config.inactive import canonical_values, check_active, inactive_fields
from ablate.config.model import MAX_SIZE, ModelConfig
from ablate.config.training import TrainingConfig


class RowConfig(ModelConfig, TrainingConfig, DecodingConfig, RowDataConfig):
    """Every field that a row may set, resolved, in one flat configuration."""


class Setting(NamedTuple):
    """A column of the paper's Table 3.

    head: the paper's symbol.
    field: of the configuration.
    latex: the symbol in LaTeX.
    """

    head: str
    field: str
    latex: str


_FACTS = facts_of(RowConfig)
# Letters of the paper's Table 3 -> field names.
SYMBOLS = {facts.symbol: name for name, facts in _FACTS.items() if facts.symbol}
SETTINGS = tuple(
    Setting(facts.head or facts.symbol or name, name, facts.latex)
    for name, facts in sorted(_FACTS.items(), key=lambda item: item[1].column)
    if facts.column
)
SETTING_FIELDS = {setting.field for setting in SETTINGS}
SYMBOL_OF = {name: symbol for symbol, name in SYMBOLS.items()}

# d_k and d_v are None, so that a preset in a row derives them again instead of keeping those of
# base.
_BASE: dict[str, Any] = {
    "n_layers": 6, "d_model": 512, "d_ff": 2048, "n_heads": 8, "d_k": None, "d_v": None,
    "dropout": 0.1, "label_smoothing": 0.1, "positional_encoding": "sinusoidal",
}  # fmt: skip
_CAUSAL: dict[str, Any] = {
    "architecture": "decoder-only",
    "d_k": None,
    "d_v": None,
    "label_smoothing": 0.0,
    "norm_position": "pre",
    "tied_embeddings": "all",
    "embedding_scale": 1,
}
# GPT-2 (Radford et al., 2019), with the exact GELU.
_GPT: dict[str, Any] = {
    **_CAUSAL,
    "dropout": 0.1,
    "positional_encoding": "learned",
    "norm": "layernorm",
    "activation": "gelu",
    "attention_bias": True,
}
# Llama (Touvron et al., 2023): no biases; the inner width of its gated network is 2/3 d_ff.
_LLAMA: dict[str, Any] = {
    **_CAUSAL,
    "dropout": 0.0,
    "positional_encoding": "rope",
    "norm": "rmsnorm",
    "activation": "swiglu",
    "feed_forward_bias": False,
}
# BERT (Devlin et al., 2019), for masked tokens: without its sentence pairs.
_BERT: dict[str, Any] = {
    "architecture": "encoder-only",
    "d_k": None,
    "d_v": None,
    "dropout": 0.1,
    "attention_dropout": 0.1,
    "label_smoothing": 0.0,
    "positional_encoding": "learned",
    "max_positions": 512,
    "norm": "layernorm",
    "norm_position": "post",
    "activation": "gelu",
    "attention_bias": True,
    "tied_embeddings": "all",
    "embedding_scale": 1,
    "embedding_norm": True,
    "token_types": 2,
    "output_transform": True,
    "output_bias": True,
}
PRESETS: dict[str, dict[str, Any]] = {
    "base": _BASE,
    "big": {**_BASE, "d_model": 1024, "d_ff": 4096, "n_heads": 16, "dropout": 0.3},
    "gpt-nano": {**_GPT, "n_layers": 3, "d_model": 48, "d_ff": 192, "n_heads": 3},
    "gpt2-small": {**_GPT, "n_layers": 12, "d_model": 768, "d_ff": 3072, "n_heads": 12},
    "llama-tiny": {**_LLAMA, "n_layers": 6, "d_model": 288, "d_ff": 1152, "n_heads": 6},
    "bert-tiny": {**_BERT, "n_layers": 2, "d_model": 128, "d_ff": 512, "n_heads": 2},
    "bert-base": {**_BERT, "n_layers": 12, "d_model": 768, "d_ff": 3072, "n_heads": 12},
}


def field_names() -> tuple[str, ...]:
    """Standard names of the fields that base and rows may set."""
    return tuple(RowConfig.model_fields)


def standard_name(name: str) -> str | None:
    """Standard name for a name or symbol; None if there is no such field."""
    name = SYMBOLS.get(name, name)
    return name if name in RowConfig.model_fields else None


def resolve_row(
    settings: Mapping[str, Any],
    written: Collection[str] = (),
    unused: Mapping[str, str] | None = None,
) -> RowConfig:
    """Resolve settings into a complete configuration.

    Args:
        settings: values by standard name, `preset` included; later ones override earlier ones.
        written: the fields that the study writes for this row itself. Each must have an effect;
            others need not.
        unused: fields that the task of the study does not use, and why.

    Raises:
        pydantic.ValidationError: a value has the wrong type or is out of range, or values are
            incompatible.
        ValueError: h does not divide d_model, and d_k or d_v is not set.
        InactiveSettings: a field in `written` has no effect.
    """
    merged = _merged(settings)
    for head_size in ("d_k", "d_v"):
        if merged.get(head_size) is None:
            merged[head_size] = _head_size(merged, head_size)
    config = RowConfig(**merged)
    # After validation: whether a field has an effect depends on the values of others.
    inactive = dict(inactive_fields(config, config))
    check_active(settings, written, {**inactive, **(unused or {})})
    return config.model_copy(update=canonical_values(config, inactive))


def unchecked_values(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Value of every field before any check, for `where`, which may drop rows that would be errors.

    An unset head size is d_model / h, possibly a fraction.
    """
    defaults = {
        name: field.default
        for name, field in RowConfig.model_fields.items()
        if name not in ("d_k", "d_v")
    }
    merged = {**defaults, **_merged(settings)}
    for head_size in ("d_k", "d_v"):
        if merged.get(head_size) is None:
            # A fraction is kept, so that `where: d_k == 64` drops the row instead of failing.
            exact = merged["d_model"] / merged["n_heads"]
            merged[head_size] = int(exact) if exact.is_integer() else exact
    return merged


def _merged(settings: Mapping[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for name, value in settings.items():
        merged.update(PRESETS[value] if name == "preset" else {name: value})
    if merged.get("epochs") is not None:
        merged.setdefault("train_steps", None)  # epochs replace the default number of steps
    return merged


def _head_size(merged: Mapping[str, Any], name: str) -> int:
    """Default of d_k and d_v: d_model / h (section 3.2.2)."""
    d_model = merged.get("d_model", ModelConfig.model_fields["d_model"].default)
    heads = merged.get("n_heads", ModelConfig.model_fields["n_heads"].default)
    if (
        type(d_model) is not int
        or type(heads) is not int
        or heads < 1
        or not 1 <= d_model <= MAX_SIZE
    ):
        return 1  # a placeholder: RowConfig reports the invalid value itself
    if d_model % heads:
        raise ValueError(
            f"h={heads} does not divide d_model={d_model}: set {name}, or change h or d_model"
        )
    return d_model // heads
