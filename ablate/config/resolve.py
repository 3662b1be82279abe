"""Resolve the settings of a study into configurations: symbols, presets, derived fields."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ablate.config.inactive import canonical_values, check_active, inactive_fields
from ablate.config.model import ModelConfig, shortest_pattern
from ablate.config.presets import PRESETS
from ablate.config.row import RowConfig
from ablate.errors import Fault, Invalid
from ablate.fields import entries_of, facts_of
from ablate.paper import PaperColumn
from ablate.parts.sizes import MAX_SIZE

_FACTS = facts_of(RowConfig)
# Letters of the paper's Table 3 -> field names.
SYMBOLS = {facts.symbol: name for name, facts in _FACTS.items() if facts.symbol}
SETTINGS = tuple(
    PaperColumn(facts.head or facts.symbol or name, name)
    for name, facts in sorted(_FACTS.items(), key=lambda item: item[1].column)
    if facts.column
)
SETTING_FIELDS = {setting.field for setting in SETTINGS}
SYMBOL_OF = {name: symbol for symbol, name in SYMBOLS.items()}


def field_names() -> tuple[str, ...]:
    """Standard names of the fields that base and rows may set."""
    return tuple(RowConfig.model_fields)


def standard_name(name: str) -> str | None:
    """Standard name for a name or symbol; None if there is no such field."""
    name = SYMBOLS.get(name, name)
    return name if name in RowConfig.model_fields else None


def resolve_row(settings: Mapping[str, Any], written: Collection[str] = ()) -> RowConfig:
    """Resolve settings into a complete configuration.

    Args:
        settings: values by standard name, `preset` included; later ones override earlier ones.
        written: fields that the study writes for this row. Each must have an effect, in contrast to
            fields that come from base.

    Raises:
        pydantic.ValidationError: a value has the wrong type or is out of range, or values are
            incompatible.
        Invalid: h does not divide d_model, and d_k or d_v is not set.
        InactiveSettings: a field in `written` has no effect.
    """
    values = merged(settings)
    for head_size in ("d_k", "d_v"):
        if values.get(head_size) is None:
            values[head_size] = _head_size(values, head_size)
    config = RowConfig(**values)
    # After validation, because the effect of a field depends on the values of other fields.
    inactive = inactive_fields(config)
    check_active(config, settings, written, inactive)
    return config.model_copy(update=canonical_values(config, inactive))


def unchecked_values(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The value of every field before any check, for `where`, which may drop invalid rows.

    An unset head size is d_model / h, possibly a fraction.
    """
    values = {name: field.default for name, field in RowConfig.model_fields.items()}
    values |= {"d_k": None, "d_v": None, **merged(settings)}
    widths = []
    for number in entries_of(values["n_heads"]):
        # A fraction is kept, so that `where: d_k == 64` drops the row instead of failing.
        exact = values["d_model"] / number
        widths.append(int(exact) if exact.is_integer() else exact)
    for head_size in ("d_k", "d_v"):
        if values.get(head_size) is None:
            values[head_size] = shortest_pattern(tuple(widths))
    return values


def merged(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with the fields of a preset in its place; later settings override earlier ones."""
    values: dict[str, Any] = {}
    for name, value in settings.items():
        if name == "preset":
            values |= PRESETS[value]
        else:
            values[name] = value
    if values.get("epochs") is not None:
        values.setdefault("train_steps", None)  # epochs replace the default number of steps
    return values


def _head_size(values: Mapping[str, Any], name: str) -> Any:
    """Default of d_k and d_v: d_model / h (section 3.2.2), for each entry of a pattern of h."""
    d_model = values.get("d_model", ModelConfig.model_fields["d_model"].default)
    heads = values.get("n_heads", ModelConfig.model_fields["n_heads"].default)
    if isinstance(heads, (list, tuple)) and heads:
        return tuple(_head_size({**values, "n_heads": number}, name) for number in heads)
    are_numbers = type(d_model) is int and type(heads) is int
    if not (are_numbers and heads >= 1 and 1 <= d_model <= MAX_SIZE):
        return 1  # a placeholder: RowConfig reports the invalid value itself
    if d_model % heads:
        raise Invalid(
            Fault(
                f"h={heads} does not divide d_model={d_model}",
                ("n_heads", "d_model"),
                remedy=f"set {name}, or change h or d_model",
            )
        )
    return d_model // heads
