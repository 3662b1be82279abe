"""Attention weights and importance as figures. The size of a figure follows from its labels, so
that none is cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import CenteredNorm, Normalize
from matplotlib.figure import Figure

from ablate.attention.importance import HeadImportance, Importances
from ablate.attention.weights import TITLES, AttentionWeights, LayerWeights
from ablate.errors import UsageError, listed
from ablate.formatting import plural, token_text
from ablate.plotting import (
    FONT,
    FORMATS,
    LINE,
    MARGIN,
    SMALL,
    TITLE,
    Sheet,
    families_for,
    fitted,
    style,
    text_width,
)

# Both color maps can be read with every kind of color vision.
WEIGHTS, IMPORTANCE = "viridis", "PuOr"
# Sizes in inches. They are absolute, so that text has the same size in every figure.
CELL, SMALLEST_CELL = 0.16, 0.09  # of one weight; smaller for long sentences
SIDE = 4.0  # of a map, from which on its cells become smaller
GAP = 0.15  # between maps
NARROWEST = 5.0  # width of a figure
HEADING = 1.3  # height of the title, the sentences and the scale of colors
GRID = (0.55, 0.3)  # width and height of a cell with a number in it

HEADS_PER_ROW = 8


def check_paths(paths: Sequence[Path]) -> None:
    """Check, before any work, that figures can be written to these paths.

    Raises:
        UsageError: a suffix is not one of a format for figures, or a path is a folder.
    """
    suffixes = [f".{kind}" for kind in FORMATS]
    for path in paths:
        if path.suffix.lower() not in suffixes:
            raise UsageError(f"--out {path}: must end in {listed(suffixes)}")
        if path.is_dir():
            raise UsageError(f"--out {path}: is a folder")


def draw_weights(weights: AttentionWeights, run: str) -> Figure:
    """Draw one heat map per head, the heads of a layer side by side; rows are queries, columns are
    keys.
    """
    families, missing = families_for(
        {c for piece in (*weights.source, *weights.target) for c in token_text(piece)}
    )
    with style(families):
        return _HeatMaps(weights, run, missing).sheet.finished()


def draw_importances(importances: Importances, run: str) -> Figure:
    """Draw a grid of layers and heads for each kind of attention, with the importance written into
    every cell.
    """
    with style():
        return _grids(importances, run)


class _HeatMaps:
    """The figure of attention weights, filled from top to bottom."""

    def __init__(self, weights: AttentionWeights, run: str, missing: set[str]) -> None:
        self.weights = weights
        # The word mark of SentencePiece is drawn far below the line in many fonts; an underscore is
        # not.
        self.replaced = {
            ord("▁"): "_",
            **dict.fromkeys(map(ord, missing), "\N{REPLACEMENT CHARACTER}"),
        }
        longest = max(max(len(layer.queries), len(layer.keys)) for layer in weights.layers)
        self.cell = min(CELL, max(SMALLEST_CELL, SIDE / longest))
        self.font = FONT * min(1.0, 1.1 * self.cell / CELL)
        self.left = MARGIN + max(self._label_width(layer.queries) for layer in weights.layers)
        width = max(NARROWEST, *(self._width(layer) for layer in weights.layers))
        self.top = MARGIN + HEADING
        self.sheet = Sheet(width, self.top + sum(self._height(layer) for layer in weights.layers))
        self._heading(run)
        for layer in weights.layers:
            self._layer(layer)

    def _label(self, piece: str) -> str:
        """Return a token piece in characters that the fonts have."""
        return token_text(piece).translate(self.replaced)

    def _label_width(self, pieces: Sequence[str]) -> float:
        return max(text_width(self._label(piece), self.font) for piece in pieces) + 0.08

    def _width(self, layer: LayerWeights) -> float:
        return self.left + min(HEADS_PER_ROW, len(layer.heads)) * self._head_width(layer) + MARGIN

    def _head_width(self, layer: LayerWeights) -> float:
        """Return the width of one map and the gap after it."""
        return max(len(layer.keys) * self.cell, text_width("head 10", FONT)) + GAP

    def _row_height(self, layer: LayerWeights) -> float:
        return LINE + len(layer.queries) * self.cell + self._label_width(layer.keys) + GAP

    def _height(self, layer: LayerWeights) -> float:
        """Return the height of a layer: its title, and as many rows of maps as its heads need."""
        return LINE + -(-len(layer.heads) // HEADS_PER_ROW) * self._row_height(layer) + GAP

    def _heading(self, run: str) -> None:
        self.sheet.title(MARGIN, f"Attention weights of run {run}", TITLE)
        for number, (side, content) in enumerate(self.weights.texts):
            text = f"{side}: {self._label(content)}"
            text = fitted(text, FONT, self.sheet.width - 2 * MARGIN)
            self.sheet.text(MARGIN, MARGIN + 0.3 + number * LINE, text, FONT)
        self.sheet.color_bar(MARGIN + 0.85, Normalize(0, 1), WEIGHTS)
        legend = "Rows are queries, columns are keys. White: exactly 0."
        self.sheet.text(MARGIN + 1.8, MARGIN + 0.83, legend, SMALL)

    def _layer(self, layer: LayerWeights) -> None:
        self.sheet.title(self.top, f"{TITLES[layer.kind]}, layer {layer.layer}", FONT + 1)
        for number in range(len(layer.heads)):
            row, column = divmod(number, HEADS_PER_ROW)
            x = self.left + column * self._head_width(layer)
            self._head(
                layer,
                number,
                x,
                self.top + LINE + row * self._row_height(layer),
                labeled=column == 0,
            )
        self.top += self._height(layer)

    def _head(self, layer: LayerWeights, number: int, x: float, y: float, labeled: bool) -> None:
        T, S, pad = len(layer.queries), len(layer.keys), 0.03 / self.cell
        self.sheet.text(x, y, f"head {number + 1}", FONT)
        axes = self.sheet.axes(x, y + LINE, S * self.cell, T * self.cell)
        visible = np.ma.masked_equal(layer.heads[number].numpy(), 0.0)  # masked keys stay white
        axes.imshow(visible, cmap=WEIGHTS, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(True)
        # Labels are texts and not ticks: each tick is several objects, which take long to draw.
        look: dict[str, Any] = {
            "size": self.font,
            "ha": "right",
            "va": "center_baseline",
            "rotation_mode": "anchor",
        }
        for index, key in enumerate(layer.keys):
            axes.text(index, T - 0.5 + pad, self._label(key), rotation=90, **look)
        for index, query in enumerate(layer.queries if labeled else ()):
            axes.text(-0.5 - pad, index, self._label(query), **look)


def _grids(importances: Importances, run: str) -> Figure:
    heads = importances.heads
    kinds = {head.kind: [other for other in heads if other.kind == head.kind] for head in heads}
    widest = max(head.head for head in heads)
    rows = len({(head.kind, head.layer) for head in heads})
    height = MARGIN + HEADING + rows * GRID[1] + len(kinds) * 3 * LINE
    sheet = Sheet(max(NARROWEST, 4 * MARGIN + widest * GRID[0]), height)
    sheet.title(MARGIN, f"Importance of the heads of run {run}", TITLE)
    sheet.text(
        MARGIN,
        MARGIN + 0.3,
        "Increase of the dev loss when the head is masked, in nats per token.",
        FONT,
    )
    whole = (
        f"Loss of the whole model: {importances.loss:.4f} on {plural(importances.pairs, 'record')}."
    )
    sheet.text(MARGIN, MARGIN + 0.3 + LINE, whole, FONT)
    norm = CenteredNorm(0, halfrange=max(max(abs(head.importance) for head in heads), 1e-9))
    sheet.color_bar(MARGIN + 0.85, norm, IMPORTANCE)
    top = MARGIN + HEADING
    for kind, of_kind in kinds.items():
        sheet.title(top, TITLES[kind], FONT + 1)
        top += _grid(sheet, top + LINE, of_kind, norm) + 3 * LINE
    return sheet.finished()


def _grid(sheet: Sheet, top: float, heads: list[HeadImportance], norm: Normalize) -> float:
    """Draw the heads of one kind, and return the height of their grid."""
    layers = sorted({head.layer for head in heads})
    count = max(head.head for head in heads)
    values = np.array([head.importance for head in heads]).reshape(len(layers), count)
    axes = sheet.axes(3 * MARGIN, top, count * GRID[0], len(layers) * GRID[1])
    axes.imshow(values, cmap=IMPORTANCE, norm=norm, aspect="auto", interpolation="nearest")
    axes.spines[:].set_visible(True)
    for (row, column), value in np.ndenumerate(values):
        color = (
            "white" if abs(norm(value) - 0.5) > 0.3 else "black"
        )  # the ends of the color map are dark
        axes.text(column, row, f"{value:+.3f}", size=SMALL, ha="center", va="center", color=color)
    axes.set_xticks(range(count), [f"head {number}" for number in range(1, count + 1)])
    axes.set_yticks(range(len(layers)), [f"layer {layer}" for layer in layers])
    axes.tick_params(length=0, pad=2)
    return len(layers) * GRID[1]
