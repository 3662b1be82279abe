"""Attention weights and importance as text: heat maps and tables for a terminal, and JSON and CSV
for scripts.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from ablate.attention.importance import Importances
from ablate.attention.weights import (
    TITLES,
    AttentionWeights,
    HeadStatistics,
    LayerWeights,
    head_statistics,
)
from ablate.formatting import plural, token_text
from ablate.metrics.perplexity import perplexity_of
from ablate.report.terminal import plain_table

DIGITS = 6  # of a weight


def weights_json(weights: AttentionWeights, run: str) -> str:
    """Return every weight with the tokens of its row and column, and the statistics of every
    head.
    """
    attentions = [
        {
            "kind": layer.kind,
            "layer": layer.layer,
            "queries": layer.queries,
            "keys": layer.keys,
            "heads": [_head(layer, statistics) for statistics in head_statistics(layer)],
        }
        for layer in weights.layers
    ]
    content = {"run": run, "source": weights.source, "target": weights.target}
    return _json({**content, "attentions": attentions, "hidden": weights.hidden})


def weights_csv(weights: AttentionWeights) -> str:
    """Return the statistics of every head, one line per head."""
    names = ("entropy", "distance", "itself", "previous", "next", "marks")
    rows = [
        (layer.kind, layer.layer, statistics.head, *(getattr(statistics, name) for name in names))
        for layer in weights.layers
        for statistics in head_statistics(layer)
    ]
    return _csv(("kind", "layer", "head", *names), rows)


def importances_json(importances: Importances, run: str) -> str:
    """Return the loss of the whole model, and the importance of every head."""
    heads = [
        {**asdict(head), "ppl": _finite(perplexity_of(head.loss))} for head in importances.heads
    ]
    whole = {"run": run, "split": "dev", "pairs": importances.pairs, "loss": importances.loss}
    return _json({**whole, "ppl": _finite(perplexity_of(importances.loss)), "heads": heads})


def importances_csv(importances: Importances) -> str:
    """Return the importance of every head, one line per head."""
    rows = [
        (head.kind, head.layer, head.head, head.importance, head.loss, perplexity_of(head.loss))
        for head in importances.heads
    ]
    return _csv(("kind", "layer", "head", "importance", "loss", "ppl"), rows)


def _head(layer: LayerWeights, statistics: HeadStatistics) -> dict[str, Any]:
    rows = layer.heads[statistics.head - 1].tolist()
    return {
        **asdict(statistics),
        "weights": [[round(weight, DIGITS) for weight in row] for row in rows],
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None  # JSON has no infinity


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n"


def _csv(names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    return out.getvalue()


SHADES = (
    (0.7, "█"),
    (0.4, "▓"),
    (0.2, "▒"),
    (0.05, "░"),
    (0.0, "·"),
)  # least weight of each; 0 is blank
# The color map viridis, which every kind of color vision can read, at 0, 1/4, 1/2, 3/4 and 1.
RAMP = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
LABEL = 14  # largest width of a row's label, in columns
GAP = 2  # columns between two heads
HEAD = len("head 10")
CELLS = (2, 1)  # columns per weight: if all heads fit side by side, and otherwise
BAR = 24  # columns of the longest bar


def print_weights(weights: AttentionWeights, console: Console) -> None:
    """Print every heat map that fits into the console's width, then the statistics of every
    head.
    """
    colors = console.color_system not in (None, "standard")  # 16 colors cannot show a gradient
    for line in (*_sides(weights, console.width), Text()):
        console.print(line, soft_wrap=True)
    for layer in weights.layers:
        console.print(Text(f"{TITLES[layer.kind]}, layer {layer.layer}", style="bold"))
        for line in heat_maps(layer, console.width, colors):
            console.print(line, soft_wrap=True)
    for reason in weights.hidden:
        console.print(reason)
    if weights.layers:
        for line in _legend(colors, any(layer.kind == "decoder" for layer in weights.layers)):
            console.print(line, soft_wrap=True)
        console.print()
        console.print(_table(weights))
        console.print(_meanings(weights), style="dim")


def heat_maps(weights: LayerWeights, width: int, colors: bool) -> Iterator[Text]:
    """Yield the lines of a layer's heat maps, as many side by side as fit; one line of explanation
    if none fits.
    """
    h, T, S = weights.heads.shape
    digits = len(str(max(T, S)))
    labels = [
        f"{number:>{digits}} {token_text(piece)}" for number, piece in enumerate(weights.queries, 1)
    ]
    label = min(LABEL, max(map(cell_len, labels)))
    if label + 1 + S > width:
        label, labels = digits, [f"{number:>{digits}}" for number in range(1, T + 1)]
    if label + 1 + S > width:
        yield Text(
            f"{S} tokens do not fit in {width} columns: see the table below, or --out FILE.png\n",
            style="dim",
        )
        return
    cell, count = _fit(width - label - 1, h, S)
    block = max(S * cell, HEAD)
    for first in range(0, h, count):
        heads = range(first, min(first + count, h))
        titles = (" " * GAP).join(f"head {head + 1}".ljust(block) for head in heads)
        ruler = "".join(str(key % 10).rjust(cell) for key in range(1, S + 1)).ljust(block)
        yield _plain(" " * (label + 1) + titles)
        yield _plain(" " * (label + 1) + (" " * GAP).join(ruler for _ in heads), "dim")
        for query, name in enumerate(labels):
            line = Text(_fitted(name, label))
            for head in heads:
                line.append(" " * (1 if head == first else block - S * cell + GAP))
                line.append_text(_row(weights.heads[head, query].tolist(), cell, colors))
            yield line if colors else _plain(line.plain)
        yield Text()


def _fitted(name: str, width: int) -> str:
    """Return the name in exactly `width` columns, padded or shortened with an ellipsis."""
    return (
        set_cell_size(name, width)
        if cell_len(name) <= width
        else f"{set_cell_size(name, width - 1)}…"
    )


def _fit(width: int, heads: int, S: int) -> tuple[int, int]:
    """Return the columns per weight, and the number of heads side by side."""
    for cell in CELLS:
        count = (width + GAP) // (max(S * cell, HEAD) + GAP)
        if count >= heads:
            return cell, heads
    return cell, max(1, count)


def _row(weights: Sequence[float], cell: int, colors: bool) -> Text:
    if not colors:
        return Text("".join(_shade(weight) * cell for weight in weights))
    row = Text()
    for weight in weights:
        row.append(" " * cell, Style(bgcolor=_color(weight)) if weight > 0 else None)
    return row


def _shade(weight: float) -> str:
    return next((shade for least, shade in SHADES if weight >= least), "·") if weight > 0 else " "


def _color(weight: float) -> Color:
    position = min(max(weight, 0.0), 1.0) * (len(RAMP) - 1)
    i = min(int(position), len(RAMP) - 2)
    mixed = (
        round(low + (position - i) * (high - low))
        for low, high in zip(RAMP[i], RAMP[i + 1], strict=True)
    )
    return Color.from_rgb(*mixed)


def _legend(colors: bool, has_decoder: bool) -> Iterator[Text]:
    if colors:
        bar = Text("weight 0 ")
        for step in range(25):
            bar.append(" ", Style(bgcolor=_color(step / 24)))
        yield bar.append(" 1; no color: 0, as for masked keys")
    else:
        steps = "  ".join(f"{shade} {least:g}" for least, shade in SHADES[:-1])
        yield Text(f"weight from: {steps}  · below; blank: 0, as for masked keys")
    yield Text("Rows are queries, columns are keys.")
    if has_decoder:
        yield Text("A row of the decoder names the token that it reads, and predicts the next one.")


def _sides(weights: AttentionWeights, width: int) -> Iterator[Text]:
    """Yield the lines of both sentences, with the numbers of the columns, within the width."""
    first = 1 + len(weights.source) if weights.is_one_sequence else 1
    if weights.source:
        yield from _numbered("source", weights.source, 1, width)
    yield from _numbered("target" if weights.source else "text", weights.target, first, width)


def _numbered(name: str, pieces: Sequence[str], first: int, width: int) -> Iterator[Text]:
    line, indent = Text.assemble((f"{name}  ", "bold")), len(name) + 2
    for number, piece in enumerate(map(token_text, pieces), first):
        item = Text.assemble((f"{number} ", "dim"), f"{piece}  ")
        if line.cell_len + item.cell_len - 2 > width and line.cell_len > indent:
            line.rstrip()
            yield line
            line = Text(" " * indent)
        line.append_text(item)
    line.rstrip()
    yield line


def _table(weights: AttentionWeights) -> Table:
    columns = {
        "entropy": "entropy",
        "distance": "distance",
        "self": "itself",
        "prev": "previous",
        "next": "next",
    }
    lines = [
        (layer, statistics) for layer in weights.layers for statistics in head_statistics(layer)
    ]
    kept = {
        head: name
        for head, name in columns.items()
        if any(getattr(s, name) is not None for _, s in lines)
    }
    table = plain_table("head", *(f"+{head}" for head in kept), "+marks", "strongest")
    table.collapse_padding = True
    for column in table.columns[:-1]:
        column.no_wrap = True  # only the last one may be shortened
    for layer, statistics in lines:
        numbers = (_number(getattr(statistics, name)) for name in (*kept.values(), "marks"))
        table.add_row(
            f"{layer.kind} {layer.layer}.{statistics.head}", *numbers, _pair(layer, statistics)
        )
    return table


def _meanings(weights: AttentionWeights) -> str:
    """Explain the columns of the table."""
    distances = (
        "distance: from row to column, in tokens. self, prev, next: weight on the same, the "
        "previous and the next "
        "token. "
    )
    has_distances = any(layer.is_self_attention for layer in weights.layers)
    return (
        "Means over the rows. entropy: of the weights, in nats. "
        f"{distances if has_distances else ''}marks: weight on <s> and </s>. strongest: the "
        f"largest weight, row -> "
        "column."
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _pair(weights: LayerWeights, statistics: HeadStatistics) -> Text:
    if not statistics.strongest:
        return Text()
    query, key, weight = statistics.strongest[0]
    return Text(
        f"{weight:.2f} {token_text(weights.queries[query])} -> {token_text(weights.keys[key])}",
        no_wrap=True,
        overflow="ellipsis",
    )


def _plain(line: str, style: str = "") -> Text:
    return Text(line.rstrip(), style=style)


def print_importances(importances: Importances, console: Console) -> None:
    """Print one line per head in the order of the model, with a bar proportional to its
    importance.
    """
    largest = max(abs(head.importance) for head in importances.heads)
    table = plain_table("head", "+importance", "", "+loss", "+PPL")
    for head in importances.heads:
        name, value = f"{head.kind} {head.layer}.{head.head}", head.importance
        table.add_row(name, f"{value:+.4f}", _bar(value, largest), *_loss(head.loss))
    table.add_row("whole model", "", "", *_loss(importances.loss), style="bold")
    console.print(table)
    useless = sum(head.importance <= 0 for head in importances.heads)
    for line in (
        f"importance: increase of the dev loss ({plural(importances.pairs, 'record')}), in nats "
        f"per token,",
        f"when the head is masked. Heads at 0 or below (light bars): {useless} of "
        f"{len(importances.heads)}.",
        "One head is masked at a time: two that do the same work both look unimportant.",
    ):
        console.print(line, style="dim", soft_wrap=True)


def _loss(nats: float) -> tuple[str, str]:
    return f"{nats:.4f}", f"{perplexity_of(nats):.3f}"


def _bar(value: float, largest: float) -> str:
    return ("█" if value > 0 else "░") * (round(BAR * abs(value) / largest) if largest else 0)
