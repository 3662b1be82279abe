"""Settings that reach beyond the longest text: attention windows, distances, learned positions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ablate.config.model import ModelConfig, shortest_pattern
from ablate.config.row import RowConfig
from ablate.errors import Fault

LEAST_POSITIONS = 8  # the smallest max_positions


@dataclass(frozen=True)
class Reach:
    """Number of positions of the longest sequence, marks included.

    trained: of the training text.
    of_data: of the training, dev and test text.
    read: of all that the model ever reads: the text, its predictions and every evaluation.
    """

    trained: int
    of_data: int
    read: int


def is_limited(c: ModelConfig) -> bool:
    """Whether some setting limits the number of positions that the model reaches."""
    return any(_is_local(layer) for layer in c.all_layers) or _has(c, "learned", "relative")


def idle_settings(c: RowConfig, reach: Reach) -> Iterator[Fault]:
    """Yield a fault for each window and distance that is as long as the longest text or longer."""
    tokens, furthest = reach.read, reach.read - 1
    windows = sorted({layer.attention_window for layer in c.all_layers if _is_idle(layer, reach)})
    is_full = f"reaches all of the {tokens:,} tokens of a text; note that it is full attention"
    for window in windows:
        why = f"{window:,} has no effect: it {is_full}"
        yield Fault(why, ("attention_window",), "attention_window")
    if windows and not any(_is_active(layer, reach) for layer in c.all_layers):
        why = f"local has no effect: attention_window={windows[0]} {is_full}"
        yield Fault(why, ("attention", "attention_window"), "attention")
    if _has(c, "relative") and c.relative_clip > furthest:
        what = f"distances in a text of {tokens:,} tokens end at {furthest:,}"
        why = f"{c.relative_clip:,} has no effect beyond {furthest:,}: {what}"
        yield Fault(why, ("relative_clip", "positional_encoding"), "relative_clip")


def idle_windows(c: RowConfig, reach: Reach) -> str:
    """The note on attention windows that reach all of every text; empty if there are none."""
    windows = sorted({layer.attention_window for layer in c.all_layers if _is_idle(layer, reach)})
    if not windows:
        return ""
    named = ", ".join(f"{window:,}" for window in windows)
    return (
        f"local attention with attention_window={named} reaches all of the {reach.read:,} tokens "
        "of a text, and so is full attention"
    )


def untrained_positions(c: RowConfig, reach: Reach) -> str:
    """The note on learned positions that dev or test text reaches and training text does not; empty
    if there are none.
    """
    if not _has(c, "learned") or reach.trained >= reach.of_data:
        return ""
    return (
        f"dev or test text has up to {reach.of_data:,} positions and training text up to "
        f"{reach.trained:,}: learned positions beyond these are read as they were initialized"
    )


def unread_positions(c: RowConfig, reach: Reach) -> int:
    """Number of learned positions that no text reaches."""
    if not _has(c, "learned"):
        return 0
    return max(0, c.max_positions - max(reach.of_data, LEAST_POSITIONS))


def fitted(c: RowConfig, reach: Reach, sets_positions: bool) -> RowConfig:
    """The row with full attention instead of windows that reach all of every text, and with as many
    learned positions as the longest text has, unless the study sets `max_positions`.
    """
    changed: dict[str, Any] = {}
    if not sets_positions and _has(c, "learned"):
        changed["max_positions"] = max(reach.of_data, LEAST_POSITIONS)
    if any(_is_idle(layer, reach) for layer in c.all_layers):
        changed |= _full_attention(c, reach)
    return c.model_copy(update=changed) if changed else c


def _full_attention(c: RowConfig, reach: Reach) -> dict[str, Any]:
    """The fields of the row with full attention.

    Equal models must have equal fields, so a layer with full attention gets the window of the first
    layer with local attention, or the default.
    """
    windows = [layer.attention_window for layer in c.all_layers if _is_active(layer, reach)]
    window = windows[0] if windows else type(c).model_fields["attention_window"].default
    kinds, layer_windows = [], []
    for layer in c.all_layers:
        kinds.append("full" if _is_idle(layer, reach) else layer.attention)
        layer_windows.append(layer.attention_window if _is_active(layer, reach) else window)
    return {
        "attention": shortest_pattern(tuple(kinds)),
        "attention_window": shortest_pattern(tuple(layer_windows)),
    }


def _has(c: ModelConfig, *encodings: str) -> bool:
    return any(layer.positional_encoding in encodings for layer in c.all_layers)


def _is_local(layer: ModelConfig) -> bool:
    return layer.mixer == "attention" and layer.attention == "local"


def _is_idle(layer: ModelConfig, reach: Reach) -> bool:
    return _is_local(layer) and layer.attention_window >= reach.read - 1


def _is_active(layer: ModelConfig, reach: Reach) -> bool:
    return _is_local(layer) and not _is_idle(layer, reach)
