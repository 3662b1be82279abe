"""Draw attention weights as heat maps."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ablate.attention.weights import AttentionWeights, LayerWeights
from ablate.errors import UsageError, listed, refuse_output
from ablate.formatting import ellipsis, token_text
from ablate.plotting import FORMATS, families_for, render, style
from ablate.store.files import write_bytes

COLOR_MAP = "viridis"  # readable with every kind of color vision
# Sizes in inches.
CELL_SIZE = 0.16  # side of the square of a weight
MIN_CELL_SIZE = 0.09  # for long sentences
MAP_SIZE = 4.0  # larger maps have smaller cells
LABEL_SIZE = 0.9  # for the labels and the title of a map
HEADING_HEIGHT = 1.2  # for the title of the figure
MIN_WIDTH = 6.0  # smallest width of the figure
CHARACTERS_PER_INCH = 10  # number of characters of the title per inch
HEADS_PER_ROW = 8


def check_paths(paths: Sequence[Path]) -> None:
    """Check that figures can be written to these paths.

    Raises:
        UsageError: a suffix is no format of figures, or a file cannot be written.
    """
    suffixes = [f".{format}" for format in FORMATS]
    for path in paths:
        if path.suffix.lower() not in suffixes:
            raise UsageError(f"--out {path}: must end in {listed(suffixes)}")
        refuse_output("--out", path)


def write_figure(figure: Figure, paths: Sequence[Path]) -> None:
    """Write a figure to each path, in the format of its suffix."""
    for path in paths:
        write_bytes(path, render(figure, path.suffix.lower()[1:]), durable=False)


def draw_weights(weights: AttentionWeights, run: str) -> Figure:
    """Draw a heat map for each head, with the heads of a layer side by side. Rows are queries,
    columns are keys. A weight of exactly 0 is white.
    """
    pieces: set[str] = set()
    tokens = 0
    h = 0
    for layer in weights.layers:
        pieces.update(layer.queries, layer.keys)
        tokens = max(tokens, len(layer.queries), len(layer.keys))
        h = max(h, len(layer.heads))
    families, missing = families_for(set("".join(map(token_text, pieces))))
    # An underscore for the word mark of SentencePiece, which many fonts draw far below the line.
    replaced = {ord("▁"): "_", **dict.fromkeys(map(ord, missing), "\N{REPLACEMENT CHARACTER}")}
    cell_size = min(CELL_SIZE, max(MIN_CELL_SIZE, MAP_SIZE / tokens))
    n_columns = min(HEADS_PER_ROW, h)
    # Each layer starts a new row of maps.
    maps: list[tuple[LayerWeights, int] | None] = []
    for layer in weights.layers:
        maps += product([layer], range(len(layer.heads)))
        maps += [None] * (-len(maps) % n_columns)
    n_rows = len(maps) // n_columns
    map_size = tokens * cell_size + LABEL_SIZE
    size = (max(MIN_WIDTH, n_columns * map_size), HEADING_HEIGHT + n_rows * map_size)
    with style(families):
        figure = Figure(size, layout="constrained")
        axes = figure.subplots(n_rows, n_columns, squeeze=False)
        for map_axes, head in zip(axes.flat, maps, strict=True):
            if head is None:
                map_axes.set_axis_off()
            else:
                _draw_head(*head, map_axes, replaced, 50 * cell_size)
        image = axes[0, 0].images[0]
        figure.colorbar(image, ax=axes, location="bottom", shrink=0.3, aspect=40, label="weight")
        lines = [f"Attention weights of run {run}"]
        for name, text in weights.texts.items():
            line = f"{name}: {token_text(text).translate(replaced)}"
            lines.append(ellipsis(line, int(CHARACTERS_PER_INCH * figure.get_figwidth())))
        figure.suptitle("\n".join(lines))
    return figure


def _draw_head(
    layer: LayerWeights, head: int, axes: Axes, replaced: dict[int, str], size: float
) -> None:
    weights = np.ma.masked_equal(layer.heads[head].numpy(), 0.0)
    axes.imshow(weights, cmap=COLOR_MAP, vmin=0, vmax=1, interpolation="nearest")
    axes.set_title(f"{layer.kind} {layer.layer}.{head + 1}")
    for axis, pieces in ((axes.xaxis, layer.keys), (axes.yaxis, layer.queries)):
        labels = [token_text(piece).translate(replaced) for piece in pieces]
        axis.set_ticks(range(len(labels)), labels, size=size)
    axes.tick_params("x", rotation=90)
    axes.tick_params(length=0)
