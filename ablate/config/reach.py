"""Fields of a model that are larger than all texts need: windows of attention, relative distances
and learned positions.
"""

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
    """Numbers of positions of the longest sequences, with their marks.

    trained: positions in training.
    of_data: positions in training, dev and test text.
    read: positions in these texts, in predictions and in all evaluations of the row.
    """

    trained: int
    of_data: int
    read: int


def is_limited(c: ModelConfig) -> bool:
    """Whether a field of the model limits positions or distances."""
    return any(_is_local(layer) for layer in c.all_layers) or _has(c, "learned", "relative")


def idle_settings(c: RowConfig, reach: Reach) -> Iterator[Fault]:
    """Yield a fault for each window that is longer than all texts, and for a clipping distance that
    no two tokens of a text have.
    """
    tokens = reach.read
    furthest = reach.read - 1
    windows = _idle_windows(c, reach)
    is_full = f"covers all {tokens:,} tokens of the longest text; note that it is full attention"
    for window in windows:
        problem = f"{window:,} has no effect: it {is_full}"
        yield Fault(problem, ("attention_window",), "attention_window")
    if windows and not any(_is_active(layer, reach) for layer in c.all_layers):
        problem = f"local has no effect: attention_window={windows[0]} {is_full}"
        yield Fault(problem, ("attention", "attention_window"), "attention")
    if _has(c, "relative") and c.relative_clip > furthest:
        reason = f"the largest distance in a text of {tokens:,} tokens is {furthest:,}"
        problem = f"{c.relative_clip:,} has no effect beyond {furthest:,}: {reason}"
        yield Fault(problem, ("relative_clip", "positional_encoding"), "relative_clip")


def _idle_windows(c: RowConfig, reach: Reach) -> list[int]:
    """The windows that are longer than all texts, sorted."""
    return sorted({layer.attention_window for layer in c.all_layers if _is_idle(layer, reach)})


def idle_windows_note(c: RowConfig, reach: Reach) -> str:
    """A note on windows that are longer than all texts; empty if there are none."""
    windows = _idle_windows(c, reach)
    if not windows:
        return ""
    sizes = ", ".join(f"{window:,}" for window in windows)
    return (
        f"local attention with attention_window={sizes} covers all {reach.read:,} tokens of the "
        "longest text, so it is full attention"
    )


def untrained_positions_note(c: RowConfig, reach: Reach) -> str:
    """A note on learned positions that only dev or test text has; empty if there are none."""
    if not _has(c, "learned") or reach.trained >= reach.of_data:
        return ""
    return (
        f"dev or test text has up to {reach.of_data:,} positions and training text up to "
        f"{reach.trained:,}: the vectors of later positions are not trained"
    )


def unread_positions(c: RowConfig, reach: Reach) -> int:
    """Number of learned positions that no training, dev or test text has."""
    if not _has(c, "learned"):
        return 0
    return max(0, c.max_positions - max(reach.of_data, LEAST_POSITIONS))


def fitted(c: RowConfig, reach: Reach, sets_positions: bool) -> RowConfig:
    """Fit a row to the lengths of its texts: replace windows that are longer than all texts by full
    attention, and take as many learned positions as the longest text has.

    `sets_positions`: whether the study sets `max_positions`, which then stays.
    """
    changed: dict[str, Any] = {}
    if not sets_positions and _has(c, "learned"):
        changed["max_positions"] = max(reach.of_data, LEAST_POSITIONS)
    if any(_is_idle(layer, reach) for layer in c.all_layers):
        changed |= _full_attention(c, reach)
    return c.model_copy(update=changed) if changed else c


def _full_attention(c: RowConfig, reach: Reach) -> dict[str, Any]:
    """The fields `attention` and `attention_window` with full attention in idle layers.

    Layers without a window get the window of another layer, so that equal models have equal fields.
    """
    windows = [layer.attention_window for layer in c.all_layers if _is_active(layer, reach)]
    window = windows[0] if windows else type(c).model_fields["attention_window"].default
    kinds = []
    layer_windows = []
    for layer in c.all_layers:
        kinds.append("full" if _is_idle(layer, reach) else layer.attention)
        layer_windows.append(layer.attention_window if _is_active(layer, reach) else window)
    return {
        "attention": shortest_pattern(tuple(kinds)),
        "attention_window": shortest_pattern(tuple(layer_windows)),
    }


def _has(c: ModelConfig, *encodings: str) -> bool:
    """Whether a layer has one of these positional encodings."""
    return any(layer.positional_encoding in encodings for layer in c.all_layers)


def _is_local(layer: ModelConfig) -> bool:
    return layer.mixer == "attention" and layer.attention == "local"


def _is_idle(layer: ModelConfig, reach: Reach) -> bool:
    """Whether the layer has local attention with a window that is longer than all texts."""
    return _is_local(layer) and layer.attention_window >= reach.read - 1


def _is_active(layer: ModelConfig, reach: Reach) -> bool:
    return _is_local(layer) and not _is_idle(layer, reach)
