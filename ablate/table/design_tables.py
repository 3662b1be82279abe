"""Tables of the effects of designs, and of the rows over model sizes."""

from __future__ import annotations

from ablate.formatting import p_text
from ablate.stats.metrics import Metric
from ablate.table.designs import Contrast, DesignEffects
from ablate.table.ladder import Ladder, RowOverSizes, ladder_notes
from ablate.table.layout import Layout, TextColumn
from ablate.table.scores import Scores
from ablate.table.table import Table


def effects_layout(table: Table, design: DesignEffects) -> Layout:
    """The effects of a design as a table."""
    columns = [TextColumn("effect" if design.is_factorial else "part", False, design.names)]
    for metric in table.compared:
        if design.by_metric and metric.name not in design.by_metric:
            continue
        contrasts = design.by_metric.get(metric.name, (Contrast(),) * len(design.names))
        cells = tuple(contrast.text(metric) for contrast in contrasts)
        p_values = tuple(p_text(contrast.p) for contrast in contrasts)
        columns.append(TextColumn(f"Δ{metric.title}\n[95 %]", True, cells))
        columns.append(TextColumn("p\n(adj.)", True, p_values))
    return Layout(tuple(columns), design.notes)


def ladder_layout(ladder: Ladder) -> Layout:
    """The rows over model sizes as a table."""
    heads = ["row"]
    for size, params in ladder.sizes.items():
        heads.append(f"{size}\n({params / 1e6:.3g}M)")
    lines = [[*heads, "sign", "rank", "slope\n[95 %]"]]
    for row in ladder.rows:
        lines.append(_ladder_cells(row, ladder.metric))
    columns = []
    for head, *cells in zip(*lines, strict=True):
        columns.append(TextColumn(head, "\n" in head, tuple(cells)))
    return Layout(tuple(columns), tuple(ladder_notes(ladder)))


def _ladder_cells(row: RowOverSizes, metric: Metric) -> list[str]:
    differences = [metric.difference_text(rung.difference.mean) for rung in row.rungs]
    ranks = ", ".join(str(rung.rank or "?") for rung in row.rungs)
    slope = metric.difference_text(Scores(row.slopes).mean, 1)
    if test := row.slope:
        slope += f" {metric.interval_text(test.low, test.high, 1)}"
    return [row.name, *differences, row.signs, ranks, slope]
