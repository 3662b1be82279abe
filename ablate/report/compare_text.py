"""The comparison of two rows, on a terminal."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import chain

from rich.text import Text

from ablate.config.resolve import SYMBOL_OF
from ablate.errors import listed
from ablate.formatting import millions, plural, printable, scaled, setting_text, signed
from ablate.report.compare import ItemDifference, RowComparison
from ablate.report.terminal import plain_table, print_wide, right, text_console
from ablate.stats.significance import LEVEL
from ablate.stats.verdict import Verdict, p_equation
from ablate.table.scores import mean_and_std
from ablate.table.table import TableRow

_BARS = "▁▂▃▄▅▆▇█"
_MAX_BARS = 40  # longer curves are thinned out
MIN_CUT = 120  # predictions up to this number of characters are not cut
STYLES = {"worse": "red", "better": "green"}


def print_comparison(comparison: RowComparison) -> None:
    """Print settings, scores, significance, learning curves and items of the test split."""
    console = text_console()
    _print_settings(comparison)
    console.print()
    _print_scores(comparison)
    for row in comparison.rows:
        if row.note:
            console.print(f"{row.label}: {row.note}")
    console.print()
    for verdict in comparison.verdicts.values():
        if verdict.n:
            console.print(*_significance_lines(verdict, comparison.text_of(verdict)), sep="\n")
            if verdict.metric.name in comparison.table_verdicts:
                console.print(_table_verdict_line(comparison, verdict.metric.name))
    console.print(_legend(comparison), style="dim")
    for text in (*_curve_lines(comparison), *_item_lines(comparison)):
        console.print(text)


def _print_settings(comparison: RowComparison) -> None:
    first, second = comparison.rows
    table = plain_table("setting", first.label, second.label)
    for name, values in comparison.settings.items():
        table.add_row(SYMBOL_OF.get(name, name), *map(Text, map(setting_text, values)))
    heads = ("params (10^6)", "FLOPs of a training")
    for head, *cells in zip(heads, _cost_texts(first), _cost_texts(second), strict=True):
        table.add_row(Text(head, style="dim"), *cells)
    print_wide(table)


def _cost_texts(row: TableRow) -> tuple[str, str]:
    return millions(row.recipe.params), scaled(row.recipe.cost.flops, "").strip()


def _print_scores(comparison: RowComparison) -> None:
    first, second = comparison.rows
    table = plain_table("metric", *map(right, (first.label, second.label, "difference")))
    experiment = comparison.table.experiment
    for name, verdict in comparison.verdicts.items():
        metric = verdict.metric
        cells = []
        for row in comparison.rows:
            seeds = len(experiment.seeds_of(row))
            cells.append(mean_and_std(row.scores[name], metric.digits, seeds))
        table.add_row(metric.title, *cells, metric.difference_text(verdict.mean))
    print_wide(table)


def _significance_lines(verdict: Verdict, text: str) -> Iterator[Text]:
    """The verdict in a metric, with the intervals over seeds and over test sentences."""
    metric = verdict.metric
    yield Text(f"{metric.title}: ").append(text, STYLES.get(verdict.word, ""))
    noises = []
    if verdict.interval and verdict.p_adjusted is not None:
        noises.append((f"{verdict.n} seeds", verdict.interval, verdict.p_adjusted))
    if test := verdict.bootstrap:
        noises.append((f"test {metric.item}s", (test.low, test.high), test.p))
    for noise, interval, p in noises:
        interval_text = metric.interval_text(*interval)
        yield Text(f"  95 % over {noise} {interval_text}, {p_equation(p)}", style="dim")


def _table_verdict_line(comparison: RowComparison, metric: str) -> Text:
    """The verdict of the table on the second row, whose interval is wider because of the
    correction.
    """
    verdict = comparison.table_verdicts[metric]
    rows = plural(comparison.table.experiment.n_tests, "row")
    phrases = [f"  in the table, corrected for {rows}: {verdict.word}"]
    if verdict.interval:
        phrases.append(verdict.metric.interval_text(*verdict.interval))
    if verdict.p_adjusted is not None:
        phrases.append(p_equation(verdict.p_adjusted))
    if verdict.more_seeds_text:
        phrases.append(
            f"detecting a true difference as large as observed takes {verdict.more_seeds_text}"
        )
    return Text(", ".join(phrases), style="dim")


def _legend(comparison: RowComparison) -> str:
    first, second = comparison.rows
    noise = dict.fromkeys(["the seeds of all rows"])
    for verdict in comparison.verdicts.values():
        if verdict.bootstrap:
            noise[f"the test {verdict.metric.item}s"] = None
    legend = (
        f"Differences: {second.label} minus {first.label}, paired by seed, with the noise "
        f"of {' and of '.join(noise)}. Only this pair is tested: p < {LEVEL:g} and the number "
        f"of seeds are not corrected for other rows."
    )
    shown = comparison.table.shown_metrics
    if per_token := [metric.title for metric in shown if metric.name not in comparison.verdicts]:
        legend += f" The vocabularies differ, so {listed(per_token)} cannot compare the rows."
    return legend


def _curve_lines(comparison: RowComparison) -> Iterator[str]:
    drawn = {curve.label: curve.mean for curve in comparison.curves if len(curve.mean) > 1}
    if not drawn:
        return
    values = [math.log(value) for _, value in chain(*drawn.values())]
    low = min(values)
    high = max(values)
    # Scores of the table are of averaged weights, where a row averages checkpoints.
    yield (
        "\nPPL (dev) of single checkpoints, from the first to the last evaluation, log scale, "
        "geometric mean over seeds"
    )
    label_width = max(map(len, drawn))
    for row, points in drawn.items():
        stride = math.ceil(len(points) / _MAX_BARS)
        bars = ""
        for _, value in points[::stride]:
            # 1.0 if all values are equal: the curve is flat.
            height = (math.log(value) - low) / (high - low or 1.0)
            bars += _BARS[round(height * (len(_BARS) - 1))]
        first, start = points[0]
        last, end = points[-1]
        yield f"{row:<{label_width}}  {bars}  {start:.2f} at step {first}, {end:.2f} at step {last}"


def _item_lines(comparison: RowComparison) -> Iterator[Text]:
    if comparison.seed is None:
        yield Text("\nNo seed has predictions of both rows.", style="dim")
        return
    metric = comparison.table.item_metric
    yield Text(
        f"\n{metric.item.capitalize()}s that differ most in {metric.title} (scored one by one, "
        f"seed {comparison.seed})",
        style="bold",
    )
    if not comparison.items:
        yield Text(f"None: both rows have equal scores for every {metric.item}.")
    for item in comparison.items:
        yield from _lines_of_item(item, comparison)


def _prediction_text(text: str, item: ItemDifference) -> str:
    """A prediction on a single line. It is cut if it is much longer than the input and the
    reference, because a model that has learned little may repeat words endlessly.
    """
    longest = max(len(sample_text) for _, sample_text in item.sample)
    width = max(MIN_CUT, 2 * longest)
    if len(text) <= width:
        return printable(text)
    return f"{printable(text[:width])}… ({len(text) - width:,} more characters)"


def _lines_of_item(item: ItemDifference, comparison: RowComparison) -> Iterator[Text]:
    metric = comparison.table.item_metric
    first, second = comparison.rows
    labels = (first.label, second.label)
    width = max(map(len, (*dict(item.sample), *labels)))
    yield Text(
        f"\n{'':<{width}}  {metric.item} {item.number}, {signed(item.difference, metric.digits)}",
        style="dim",
    )
    for name, text in item.sample:
        line = printable(" ".join(text.splitlines()))
        yield Text.assemble((f"{name:<{width}}  ", "dim"), line)
    for label, text, score in zip(labels, item.predictions, item.scores, strict=True):
        head = (f"{label:<{width}}  ", "dim")
        score_text = f"{score:.{metric.digits}f}"
        if comparison.outcome.study.task.predicts_texts:
            prediction = _prediction_text(text, item) or "(empty)"
            yield Text.assemble(head, prediction, (f"  {score_text}", "dim"))
        else:
            yield Text.assemble(head, f"{score_text} {metric.title}")
