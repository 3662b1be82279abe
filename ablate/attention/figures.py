"""Attention weights as a figure, laid out by Matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ablate.attention.weights import AttentionWeights, LayerWeights
from ablate.errors import UsageError, listed
from ablate.formatting import ellipsis, token_text
from ablate.plotting import FORMATS, families_for, render, style
from ablate.store.files import write_bytes

WEIGHTS = "viridis"  # a color map that can be read with every kind of color vision
CELL, SMALLEST_CELL = 0.16, 0.09  # inches of one weight; smaller for long sentences
SIDE = 4.0  # inches of a map, from which on its cells become smaller
TEXT = 0.9  # inches for labels and the title of a map
HEADING = 1.2  # inches for the title of the figure
NARROWEST = 6.0  # inches of a figure
CHARACTERS = 10  # of the title that fit into an inch
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


def write_figure(figure: Figure, paths: Sequence[Path]) -> None:
    """Write a figure to each path, in the format of its suffix."""
    for path in paths:
        write_bytes(path, render(figure, path.suffix.lower()[1:]), durable=False)


def draw_weights(weights: AttentionWeights, run: str) -> Figure:
    """Draw one heat map per head, the heads of a layer side by side; rows are queries, columns are
    keys. A weight of exactly 0 is white.
    """
    pieces, tokens, h = set[str](), 0, 0
    for layer in weights.layers:
        pieces.update(layer.queries, layer.keys)
        tokens = max(tokens, len(layer.queries), len(layer.keys))
        h = max(h, len(layer.heads))
    families, missing = families_for(set("".join(map(token_text, pieces))))
    # The word mark of SentencePiece is drawn far below the line in many fonts; an underscore is
    # not.
    replaced = {ord("▁"): "_", **dict.fromkeys(map(ord, missing), "\N{REPLACEMENT CHARACTER}")}
    cell, columns = min(CELL, max(SMALLEST_CELL, SIDE / tokens)), min(HEADS_PER_ROW, h)
    # A layer begins a row of its own.
    maps: list[tuple[LayerWeights, int] | None] = []
    for layer in weights.layers:
        maps += product([layer], range(len(layer.heads)))
        maps += [None] * (-len(maps) % columns)
    side, rows = tokens * cell + TEXT, len(maps) // columns
    size = (max(NARROWEST, columns * side), HEADING + rows * side)
    with style(families):
        figure = Figure(size, layout="constrained")
        axes = figure.subplots(rows, columns, squeeze=False)
        for place, drawn in zip(axes.flat, maps, strict=True):
            if drawn is None:
                place.set_axis_off()
            else:
                _draw_head(*drawn, place, replaced, 50 * cell)
        image = axes[0, 0].images[0]
        figure.colorbar(image, ax=axes, location="bottom", shrink=0.3, aspect=40, label="weight")
        lines = [f"Attention weights of run {run}"]
        for name, text in weights.texts.items():
            line = f"{name}: {token_text(text).translate(replaced)}"
            lines.append(ellipsis(line, int(CHARACTERS * figure.get_figwidth())))
        figure.suptitle("\n".join(lines))
    return figure


def _draw_head(
    layer: LayerWeights, head: int, axes: Axes, replaced: dict[int, str], size: float
) -> None:
    weights = np.ma.masked_equal(layer.heads[head].numpy(), 0.0)
    axes.imshow(weights, cmap=WEIGHTS, vmin=0, vmax=1, interpolation="nearest")
    axes.set_title(f"{layer.kind} {layer.layer}.{head + 1}")
    for axis, pieces in ((axes.xaxis, layer.keys), (axes.yaxis, layer.queries)):
        labels = [token_text(piece).translate(replaced) for piece in pieces]
        axis.set_ticks(range(len(labels)), labels, size=size)
    axes.tick_params("x", rotation=90)
    axes.tick_params(length=0)
