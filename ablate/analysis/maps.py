"""Weights in a terminal: a heat map a head, side by side, and a line a head with its measures.

In a terminal with colours a weight is a background; elsewhere, and in a pipe, it is a shade.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len, set_cell_size
from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from ablate.analysis.heads import TITLES
from ablate.analysis.measures import Measures, measures
from ablate.analysis.weights import View, Weights
from ablate.formatting import printable
from ablate.report.plan_text import plain_table

SHADES = ((0.7, "█"), (0.4, "▓"), (0.2, "▒"), (0.05, "░"), (0.0, "·"))  # from this weight on; 0 itself is blank
# Of the colour map viridis, made for every kind of colour vision: at 0, 1/4, 1/2, 3/4 and 1.
RAMP = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))
LABEL = 14  # columns of a row's label, at most
GAP = 2  # columns between two heads
HEAD = len("head 10")
CELLS = (2, 1)  # columns of a weight, where all heads fit side by side, and otherwise


def print_view(view: View, console: Console) -> None:
    """Print every map that the console is wide enough for, then the measures of every head."""
    colours = console.color_system not in (None, "standard")  # 16 colours are too few to tell weights by
    for line in (*_sides(view, console.width), Text()):
        console.print(line, soft_wrap=True)
    for weights in view.weights:
        console.print(Text(f"{TITLES[weights.kind]}, layer {weights.layer}", style="bold"))
        for line in heat_maps(weights, console.width, colours):
            console.print(line, soft_wrap=True)
    for reason in view.hidden:
        console.print(reason, markup=False, highlight=False)
    if view.weights:
        for line in _legend(colours):
            console.print(line, soft_wrap=True)
        console.print()
        console.print(_table(view))
        console.print(_meanings(view), style="dim", markup=False)


def heat_maps(weights: Weights, width: int, colours: bool) -> Iterator[Text]:
    """The maps of an attention's heads in bands that are as wide as they may be; one line of excuse where none fits."""
    h, T, S = weights.heads.shape
    digits = len(str(max(T, S)))
    labels = [f"{number:>{digits}} {printable(piece)}" for number, piece in enumerate(weights.queries, 1)]
    label = min(LABEL, max(map(cell_len, labels)))
    if label + 1 + S > width:
        label, labels = digits, [f"{number:>{digits}}" for number in range(1, T + 1)]
    if label + 1 + S > width:
        yield Text(f"{S} tokens do not fit in {width} columns: see the table below, or --out FILE.png\n", style="dim")
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
                line.append_text(_row(weights.heads[head, query].tolist(), cell, colours))
            yield line if colours else _plain(line.plain)
        yield Text()


def _fitted(name: str, width: int) -> str:
    """The name in exactly so many columns; what is cut off it, an ellipsis tells."""
    return set_cell_size(name, width) if cell_len(name) <= width else f"{set_cell_size(name, width - 1)}…"


def _fit(width: int, heads: int, S: int) -> tuple[int, int]:
    """Columns of a weight, and how many heads stand side by side."""
    for cell in CELLS:
        count = (width + GAP) // (max(S * cell, HEAD) + GAP)
        if count >= heads:
            return cell, heads
    return cell, max(1, count)


def _row(weights: Sequence[float], cell: int, colours: bool) -> Text:
    if not colours:
        return Text("".join(_shade(weight) * cell for weight in weights))
    row = Text()
    for weight in weights:
        row.append(" " * cell, Style(bgcolor=_colour(weight)) if weight > 0 else None)
    return row


def _shade(weight: float) -> str:
    return next((shade for least, shade in SHADES if weight >= least), "·") if weight > 0 else " "


def _colour(weight: float) -> Color:
    place = min(max(weight, 0.0), 1.0) * (len(RAMP) - 1)
    i = min(int(place), len(RAMP) - 2)
    mixed = (round(low + (place - i) * (high - low)) for low, high in zip(RAMP[i], RAMP[i + 1], strict=True))
    return Color.from_rgb(*mixed)


def _legend(colours: bool) -> Iterator[Text]:
    if colours:
        bar = Text("weight 0 ")
        for step in range(25):
            bar.append(" ", Style(bgcolor=_colour(step / 24)))
        yield bar.append(" 1; no colour: 0, as behind a mask")
    else:
        steps = "  ".join(f"{shade} {least:g}" for least, shade in SHADES[:-1])
        yield Text(f"weight from: {steps}  · below; blank: 0, as behind a mask")
    yield Text("A row asks, its columns are looked at. A decoder's row has read its token\nand says the next.")


def _sides(view: View, width: int) -> Iterator[Text]:
    """Both sides with the numbers that stand over the columns, within the width."""
    yield from _numbered("source", view.source, 1, width)
    yield from _numbered("target", view.target, 1 + len(view.source) * view.in_a_row, width)


def _numbered(name: str, pieces: Sequence[str], first: int, width: int) -> Iterator[Text]:
    line, indent = Text.assemble((f"{name}  ", "bold")), len(name) + 2
    for number, piece in enumerate(map(printable, pieces), first):
        item = Text.assemble((f"{number} ", "dim"), f"{piece}  ")
        if line.cell_len + item.cell_len - 2 > width and line.cell_len > indent:
            line.rstrip()
            yield line
            line = Text(" " * indent)
        line.append_text(item)
    line.rstrip()
    yield line


def _table(view: View) -> Table:
    columns = {"entropy": "entropy", "distance": "distance", "self": "itself", "prev": "previous", "next": "next"}
    lines = [(weights, measured) for weights in view.weights for measured in measures(weights)]
    kept = {head: name for head, name in columns.items() if any(getattr(m, name) is not None for _, m in lines)}
    table = plain_table("head", *(f"+{head}" for head in kept), "+marks", "strongest")
    table.collapse_padding = True
    for column in table.columns[:-1]:
        column.no_wrap = True  # the last one gives way
    for weights, measured in lines:
        numbers = (_number(getattr(measured, name)) for name in (*kept.values(), "marks"))
        table.add_row(f"{weights.kind} {weights.layer}.{measured.head}", *numbers, _pair(weights, measured))
    return table


def _meanings(view: View) -> str:
    """What the table's columns are."""
    places = "distance: from row to column, in tokens. self, prev, next: weight on the row's own token, on the one "
    places += "before it, on the one after. "
    has_places = any(weights.over_itself for weights in view.weights)
    return (
        f"Means over the rows. entropy: of the weights, in nats. {places if has_places else ''}marks: weight on <s> "
        "and </s>. strongest: the largest weight, row -> column."
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _pair(weights: Weights, measured: Measures) -> Text:
    if not measured.strongest:
        return Text()
    query, key, weight = measured.strongest[0]
    return Text(
        f"{weight:.2f} {printable(weights.queries[query])} -> {printable(weights.keys[key])}",
        no_wrap=True,
        overflow="ellipsis",
    )


def _plain(line: str, style: str = "") -> Text:
    return Text(line.rstrip(), style=style)
