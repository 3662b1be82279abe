"""From what a study writes to a resolved configuration: symbols, presets, derived fields."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ablate.config.data import CORPORA, HUB, HUB_SPLITS, LAYOUTS, DataConfig, RowDataConfig
from ablate.config.decoding import DecodingConfig
from ablate.config.inactive import refuse, settled, without_effect
from ablate.config.model import MAX_SIZE, ModelConfig
from ablate.config.training import TrainingConfig
from ablate.errors import did_you_mean, listed


class RowConfig(ModelConfig, TrainingConfig, DecodingConfig, RowDataConfig):
    """All that a row may change, in one flat set of fields, resolved."""


# The paper's letters (Table 3) for the fields' names.
SYMBOLS = {
    "N": "n_layers",
    "h": "n_heads",
    "P_drop": "dropout",
    "eps_ls": "label_smoothing",
}
SYMBOL_OF = {name: symbol for symbol, name in SYMBOLS.items()}

# None: derived from the other fields again, so that a preset in a row undoes what base has set.
_BASE: dict[str, Any] = {
    "n_layers": 6, "d_model": 512, "d_ff": 2048, "n_heads": 8, "d_k": None, "d_v": None,
    "dropout": 0.1, "label_smoothing": 0.1, "positional_encoding": "sinusoidal",
}  # fmt: skip
PRESETS: dict[str, dict[str, Any]] = {
    "base": _BASE,
    "big": {**_BASE, "d_model": 1024, "d_ff": 4096, "n_heads": 16, "dropout": 0.3},
}


def field_names() -> tuple[str, ...]:
    """Every field that base and rows may set, by its standard name."""
    return tuple(RowConfig.model_fields)


def canonical(name: str) -> str | None:
    """The standard name for a written name or symbol; None where there is no such field."""
    name = SYMBOLS.get(name, name)
    return name if name in RowConfig.model_fields else None


def resolve_row(settings: Mapping[str, Any], own: Collection[str] = ()) -> RowConfig:
    """Resolve settings under standard names, in the order of their writing, `preset` included.

    Args:
        settings: base's, and the row's over them.
        own: the fields that must have an effect: those that are written for this row, not inherited.

    Raises:
        pydantic.ValidationError: a value is of the wrong type or out of range, or values cannot go together.
        ValueError: h does not divide d_model and d_k or d_v is not set.
        NoEffect: a field in `own` has no effect.
    """
    merged = _merged(settings)
    for head_size in ("d_k", "d_v"):
        if merged.get(head_size) is None:
            merged[head_size] = _head_size(merged, head_size)
    config = RowConfig(**merged)
    idle = dict(without_effect(config, config))
    refuse(settings, own, idle)
    return config.model_copy(update=settled(config, idle))


def provisional(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Every field's value before any rule is applied, for `where` to judge rows that may not be possible.

    A head size that is not set is d_model / h, whole or not.
    """
    defaults = {name: field.default for name, field in RowConfig.model_fields.items() if name not in ("d_k", "d_v")}
    merged = {**defaults, **_merged(settings)}
    for head_size in ("d_k", "d_v"):
        if merged.get(head_size) is None:
            exact = merged["d_model"] / merged["n_heads"]
            merged[head_size] = int(exact) if exact.is_integer() else exact
    return merged


def _merged(settings: Mapping[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for name, value in settings.items():
        merged.update(PRESETS[value] if name == "preset" else {name: value})
    if merged.get("epochs") is not None:
        merged.setdefault("train_steps", None)  # an end of one's own replaces the default end
    return merged


def _head_size(merged: Mapping[str, Any], name: str) -> int:
    """d_model / h, the size that d_k and d_v take when they are not set (3.2.2)."""
    d_model = merged.get("d_model", ModelConfig.model_fields["d_model"].default)
    heads = merged.get("n_heads", ModelConfig.model_fields["n_heads"].default)
    if type(d_model) is not int or type(heads) is not int or heads < 1 or not 1 <= d_model <= MAX_SIZE:
        return 1  # the wrong value itself is what RowConfig refuses
    if d_model % heads:
        raise ValueError(f"h={heads} does not divide d_model={d_model}: set {name}, or change h or d_model")
    return d_model // heads


def resolve_data(settings: Mapping[str, Any]) -> DataConfig:
    """Resolve the study's data section: a named corpus brings its splits and direction.

    Raises:
        pydantic.ValidationError: a value is of the wrong type, out of range or missing.
        ValueError: the corpus is unknown, or has no such direction.
    """
    corpus = settings.get("corpus")
    known = listed((*CORPORA, "hf:OWNER/NAME"))
    if corpus is None:
        raise ValueError(f"data needs a corpus: {known}")
    if isinstance(corpus, str) and corpus.startswith(HUB):
        return DataConfig(**{**HUB_SPLITS, **settings})
    if corpus not in CORPORA:
        raise ValueError(f'corpus "{corpus}" is not known: {known}{did_you_mean(str(corpus), CORPORA)}')
    layout = LAYOUTS.get(str(corpus))
    if layout is None:
        return DataConfig(**settings)
    names: dict[str, Any] = {
        "train": layout.train,
        "dev": layout.dev,
        "test": layout.test,
        "direction": layout.directions[0],
    }
    names["vocab_size"] = layout.vocab_size
    data = DataConfig(**{**names, **settings})
    if data.direction not in layout.directions:
        raise ValueError(f'corpus "{corpus}" has no direction "{data.direction}": {listed(layout.directions)}')
    if corpus == "toy":
        for name in ("folder", "train", "dev", "test", "source_column", "target_column"):
            if name in settings:
                raise ValueError(f'"{name}" has no effect on the toy corpus: it is generated')
    return data
