"""The effects of designs, and the rows over sizes, as tables."""

from __future__ import annotations

from ablate.analysis.designs import Contrast, DesignEffects, metrics_of
from ablate.analysis.ladder import Ladder, RowOverSizes, Rung, ladder_notes
from ablate.analysis.scores import Scores
from ablate.analysis.table import Table
from ablate.config.metrics import Metric
from ablate.formatting import p_text
from ablate.report.layout import Layout, TextColumn


def effects_layout(table: Table, design: DesignEffects) -> Layout:
    """The effects as a table, in every format that prints layouts."""
    columns = [TextColumn("effect" if design.is_factorial else "part", False, design.names)]
    for metric in metrics_of(table):
        contrasts = design.by_metric.get(metric.name, (Contrast(),) * len(design.names))
        cells = tuple(_effect(one, metric) for one in contrasts)
        columns.append(TextColumn(f"Δ{metric.title}\n[95 %]", True, cells))
        columns.append(TextColumn("p\n(adj.)", True, tuple(p_text(one.p) for one in contrasts)))
    return Layout(tuple(columns), design.notes)


def _effect(one: Contrast, metric: Metric) -> str:
    text = metric.difference_text(one.value)
    return (
        f"{text} {metric.interval_text(one.low, one.high)}"
        if one.low is not None and one.high is not None
        else text
    )


def ladder_layout(ladder: Ladder) -> Layout:
    """The ladder as a table."""
    metric = ladder.metric
    differences = [
        TextColumn(
            f"{size}\n({params / 1e6:.3g}M)",
            True,
            tuple(_difference(row.rungs[index], metric) for row in ladder.rows),
        )
        for index, (size, params) in enumerate(ladder.sizes.items())
    ]
    ranks = tuple(", ".join(str(rung.rank or "?") for rung in row.rungs) for row in ladder.rows)
    columns = [
        TextColumn("row", False, tuple(row.name for row in ladder.rows)),
        *differences,
        TextColumn("sign", False, tuple(row.signs for row in ladder.rows)),
        TextColumn("rank", False, ranks),
        TextColumn("slope\n[95 %]", True, tuple(_slope(row, metric) for row in ladder.rows)),
    ]
    return Layout(tuple(columns), tuple(ladder_notes(ladder)))


def _difference(rung: Rung, metric: Metric) -> str:
    return metric.difference_text(rung.difference.mean)


def _slope(row: RowOverSizes, metric: Metric) -> str:
    test = row.slope
    if test is not None:
        mean = metric.difference_text(test.mean, 1)
        return f"{mean} {metric.interval_text(test.low, test.high, 1)}"
    return metric.difference_text(Scores(row.slopes).mean, 1)
