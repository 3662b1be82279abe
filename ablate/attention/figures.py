"""Attention weights and importance as figures, laid out by Matplotlib."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import CenteredNorm
from matplotlib.figure import Figure

from ablate.attention.importance import Importances
from ablate.attention.weights import TITLES, AttentionWeights, LayerWeights
from ablate.errors import UsageError, listed
from ablate.formatting import ellipsis, plural, token_text
from ablate.plotting import FORMATS, families_for, style

# Both color maps can be read with every kind of color vision.
WEIGHTS, IMPORTANCE = "viridis", "PuOr"
CELL, SMALLEST_CELL = 0.16, 0.09  # inches of one weight; smaller for long sentences
SIDE = 4.0  # inches of a map, from which on its cells become smaller
TEXT = 0.9  # inches for labels and the title of a map
HEADING = 1.2  # inches for the title of the figure
NARROWEST = 6.0  # inches of a figure
CHARACTERS = 10  # of the title that fit into an inch
HEADS_PER_ROW = 8
GRID = (0.6, 0.35)  # inches of a cell with a number in it


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
    keys. A weight of exactly 0 is white.
    """
    pieces: set[str] = set()
    for layer in weights.layers:
        pieces.update(layer.queries, layer.keys)
    families, missing = families_for(set("".join(map(token_text, pieces))))
    # The word mark of SentencePiece is drawn far below the line in many fonts; an underscore is
    # not.
    replaced = {ord("▁"): "_", **dict.fromkeys(map(ord, missing), "\N{REPLACEMENT CHARACTER}")}
    tokens = max(max(len(layer.queries), len(layer.keys)) for layer in weights.layers)
    cell = min(CELL, max(SMALLEST_CELL, SIDE / tokens))
    columns = min(HEADS_PER_ROW, max(len(layer.heads) for layer in weights.layers))
    rows_of_layers = [-(-len(layer.heads) // columns) for layer in weights.layers]
    side, rows = tokens * cell + TEXT, sum(rows_of_layers)
    with style(families):
        figure = Figure(
            (max(NARROWEST, columns * side), HEADING + rows * side), layout="constrained"
        )
        axes = figure.subplots(rows, columns, squeeze=False)
        top = 0
        for layer, count in zip(weights.layers, rows_of_layers, strict=True):
            _draw_layer(layer, axes[top : top + count].flat, replaced, 50 * cell)
            top += count
        image = axes[0, 0].images[0]
        figure.colorbar(image, ax=axes, location="bottom", shrink=0.3, aspect=40, label="weight")
        lines = [f"Attention weights of run {run}"]
        for side_name, text in weights.texts:
            line = f"{side_name}: {token_text(text).translate(replaced)}"
            lines.append(ellipsis(line, int(CHARACTERS * figure.get_figwidth())))
        figure.suptitle("\n".join(lines))
    return figure


def _draw_layer(
    layer: LayerWeights, places: Iterable[Axes], replaced: dict[int, str], size: float
) -> None:
    """Draw the heads of a layer, and leave the other places empty."""
    for number, axes in enumerate(places):
        if number >= len(layer.heads):
            axes.set_axis_off()
            continue
        head = np.ma.masked_equal(layer.heads[number].numpy(), 0.0)
        axes.imshow(head, cmap=WEIGHTS, vmin=0, vmax=1, interpolation="nearest")
        axes.set_title(f"{layer.kind} {layer.layer}.{number + 1}")
        keys = [token_text(piece).translate(replaced) for piece in layer.keys]
        queries = [token_text(piece).translate(replaced) for piece in layer.queries]
        axes.set_xticks(range(len(keys)), keys, rotation=90, size=size)
        axes.set_yticks(range(len(queries)), queries, size=size)
        axes.tick_params(length=0)


def draw_importances(importances: Importances, run: str) -> Figure:
    """Draw a grid of layers and heads for each kind, with the importance in every cell."""
    kinds = dict.fromkeys(head.kind for head in importances.heads)
    grids = {kind: importances.grid(kind) for kind in TITLES if kind in kinds}
    heights = [len(grid.values) for grid in grids.values()]
    width = max(len(grid.values[0]) for grid in grids.values()) * GRID[0] + TEXT
    height = HEADING + sum(heights) * GRID[1] + TEXT * len(grids)
    largest = max(abs(head.importance) for head in importances.heads)
    norm = CenteredNorm(0, halfrange=max(largest, 1e-9))
    with style():
        figure = Figure((max(NARROWEST, width), height), layout="constrained")
        axes = figure.subplots(len(grids), 1, squeeze=False, height_ratios=heights)[:, 0]
        for place, (kind, grid) in zip(axes, grids.items(), strict=True):
            image = place.imshow(grid.values, cmap=IMPORTANCE, norm=norm, aspect="auto")
            for (row, column), value in np.ndenumerate(np.array(grid.values)):
                is_dark = abs(norm(value) - 0.5) > 0.3  # the ends of the color map are
                color = "white" if is_dark else "black"
                place.text(column, row, f"{value:+.3f}", ha="center", va="center", color=color)
            place.set_title(TITLES[kind])
            heads = range(len(grid.values[0]))
            place.set_xticks(heads, [f"head {number + 1}" for number in heads])
            place.set_yticks(range(len(grid.layers)), [f"layer {layer}" for layer in grid.layers])
            place.tick_params(length=0)
        figure.colorbar(image, ax=axes, location="bottom", shrink=0.3, aspect=40)
        figure.suptitle(
            f"Importance of the heads of run {run}\nIncrease of the dev loss when the head is "
            f"masked, in nats per token.\nLoss of the whole model: {importances.loss:.4f} on "
            f"{plural(importances.pairs, 'record')}."
        )
    return figure
