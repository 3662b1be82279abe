"""Weights and importance as figures, whose sizes follow from their labels so that none is cut off."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.colors import CenteredNorm, Normalize
from matplotlib.figure import Figure

from ablate.analysis.heads import TITLES
from ablate.analysis.importance import Importances, MaskedHead
from ablate.analysis.sheet import (
    FONT,
    LINE,
    MARGIN,
    SMALL,
    TITLE,
    Sheet,
    cut,
    families_for,
    inches,
    style,
)
from ablate.analysis.weights import View, Weights
from ablate.formatting import printable

# Both maps are told apart by every kind of colour vision.
WEIGHTS, IMPORTANCE = "viridis", "PuOr"
CELL, SMALLEST_CELL = 0.16, 0.09  # of a weight: smaller where tokens are many
SIDE = 4.0  # of a map, above which its cells are made smaller
GAP = 0.15
A_ROW = 8  # heads side by side
NARROWEST = 5.0
HEADING = 1.3
GRID = (0.55, 0.3)  # of a cell that an importance is written into


def draw_view(view: View, run: str) -> Figure:
    """A map a head, those of a layer side by side, labelled with what asks and what is looked at."""
    families, missing = families_for({c for piece in (*view.source, *view.target) for c in printable(piece)})
    with style(families):
        return _Maps(view, run, missing).sheet.finished()


def draw_importances(found: Importances, run: str) -> Figure:
    """A grid of layers and heads for each kind of attention, with the importance written into every cell."""
    with style():
        return _grids(found, run)


class _Maps:
    """The figure of a view, filled from the top."""

    def __init__(self, view: View, run: str, missing: set[str]) -> None:
        self.view = view
        # The mark of a word's beginning would stand far below its line, and far from it where the line is turned.
        self.spelled = {ord("▁"): "_", **dict.fromkeys(map(ord, missing), "\N{REPLACEMENT CHARACTER}")}
        longest = max(max(len(weights.queries), len(weights.keys)) for weights in view.weights)
        self.cell = min(CELL, max(SMALLEST_CELL, SIDE / longest))
        self.font = FONT * min(1.0, 1.1 * self.cell / CELL)
        self.beside = max(self._room(weights.queries) for weights in view.weights)
        width = max(NARROWEST, *(self._width(weights) for weights in view.weights))
        self.top = MARGIN + HEADING
        self.sheet = Sheet(width, self.top + sum(self._height(weights) for weights in view.weights))
        self._heading(run)
        for weights in view.weights:
            self._attention(weights)

    def _named(self, piece: str) -> str:
        """A piece, as far as the fonts here have its characters."""
        return printable(piece).translate(self.spelled)

    def _room(self, pieces: Sequence[str]) -> float:
        """What the labels of these take, with some air."""
        return max(inches(self._named(piece), self.font) for piece in pieces) + 0.08

    def _width(self, weights: Weights) -> float:
        return MARGIN + self.beside + min(A_ROW, len(weights.heads)) * self._block(weights) + MARGIN

    def _block(self, weights: Weights) -> float:
        """The width of a head with the gap after it."""
        return max(len(weights.keys) * self.cell, inches("head 10", FONT)) + GAP

    def _row_height(self, weights: Weights) -> float:
        return LINE + len(weights.queries) * self.cell + self._room(weights.keys) + GAP

    def _height(self, weights: Weights) -> float:
        """Of an attention: its title, and its heads in as many rows as they need."""
        return LINE + -(-len(weights.heads) // A_ROW) * self._row_height(weights) + GAP

    def _heading(self, run: str) -> None:
        self.sheet.title(MARGIN, f"Attention weights of run {run}", TITLE)
        sides = ("source", self.view.source[:-1]), ("target", self.view.target[1:])
        for number, (side, pieces) in enumerate(sides):
            text = f"{side}: {self._named(''.join(pieces).replace('▁', ' ').strip())}"
            self.sheet.text(MARGIN, MARGIN + 0.3 + number * LINE, cut(text, FONT, self.sheet.width - 2 * MARGIN), FONT)
        self.sheet.colour_bar(MARGIN + 0.85, Normalize(0, 1), WEIGHTS)
        legend = "A row asks, its columns are looked at; white: exactly 0."
        self.sheet.text(MARGIN + 1.8, MARGIN + 0.83, legend, SMALL)

    def _attention(self, weights: Weights) -> None:
        self.sheet.title(self.top, f"{TITLES[weights.kind]}, layer {weights.layer}", FONT + 1)
        for number in range(len(weights.heads)):
            row, column = divmod(number, A_ROW)
            x = MARGIN + self.beside + column * self._block(weights)
            self._head(weights, number, x, self.top + LINE + row * self._row_height(weights), labelled=column == 0)
        self.top += self._height(weights)

    def _head(self, weights: Weights, number: int, x: float, y: float, labelled: bool) -> None:
        T, S, pad = len(weights.queries), len(weights.keys), 0.03 / self.cell
        self.sheet.text(x, y, f"head {number + 1}", FONT)
        axes = self.sheet.axes(x, y + LINE, S * self.cell, T * self.cell)
        seen = np.ma.masked_equal(weights.heads[number].numpy(), 0.0)  # what is masked is left white
        axes.imshow(seen, cmap=WEIGHTS, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
        axes.set_xticks([])
        axes.set_yticks([])
        # Labels are texts: ticks, several objects each, take most of the time where heads are many.
        how: dict[str, Any] = {"size": self.font, "parse_math": False}
        for place, key in enumerate(weights.keys):
            axes.text(place, T - 0.5 + pad, self._named(key), ha="center", va="top", rotation=90, **how)
        for place, query in enumerate(weights.queries if labelled else ()):
            axes.text(-0.5 - pad, place, self._named(query), ha="right", va="center_baseline", **how)


def _grids(found: Importances, run: str) -> Figure:
    kinds = {head.kind: [other for other in found.heads if other.kind == head.kind] for head in found.heads}
    widest = max(head.head for head in found.heads)
    rows = len({(head.kind, head.layer) for head in found.heads})
    height = MARGIN + HEADING + rows * GRID[1] + len(kinds) * 3 * LINE
    sheet = Sheet(max(NARROWEST, 4 * MARGIN + widest * GRID[0]), height)
    sheet.title(MARGIN, f"Importance of the heads of run {run}", TITLE)
    meaning = "The dev loss with the head masked, less that of the whole model,"
    sheet.text(MARGIN, MARGIN + 0.3, meaning, FONT)
    sheet.text(MARGIN, MARGIN + 0.3 + LINE, f"which is {found.loss:.4f} nats a token on {found.pairs} pairs.", FONT)
    norm = CenteredNorm(0, halfrange=max(max(abs(head.importance) for head in found.heads), 1e-9))
    sheet.colour_bar(MARGIN + 0.85, norm, IMPORTANCE)
    top = MARGIN + HEADING
    for kind, heads in kinds.items():
        sheet.title(top, TITLES[kind], FONT + 1)
        top += _grid(sheet, top + LINE, heads, norm) + 3 * LINE
    return sheet.finished()


def _grid(sheet: Sheet, top: float, heads: list[MaskedHead], norm: Normalize) -> float:
    """The heads of one kind; how high the grid is."""
    layers = sorted({head.layer for head in heads})
    count = max(head.head for head in heads)
    values = np.array([head.importance for head in heads]).reshape(len(layers), count)
    axes = sheet.axes(3 * MARGIN, top, count * GRID[0], len(layers) * GRID[1])
    axes.imshow(values, cmap=IMPORTANCE, norm=norm, aspect="auto", interpolation="nearest")
    for (row, column), value in np.ndenumerate(values):
        colour = "white" if abs(norm(value) - 0.5) > 0.3 else "black"  # on the dark ends of the map
        axes.text(column, row, f"{value:+.3f}", size=SMALL, ha="center", va="center", color=colour)
    axes.set_xticks(range(count), [f"head {number}" for number in range(1, count + 1)])
    axes.set_yticks(range(len(layers)), [f"layer {layer}" for layer in layers])
    axes.tick_params(labelsize=SMALL, length=0, pad=2)
    return len(layers) * GRID[1]
