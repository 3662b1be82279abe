"""Comparison of two rows: settings, scores, significance, learning curves, predictions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any

from rich.text import Text

from ablate.analysis.curves import curve_of
from ablate.analysis.outcome import Outcome
from ablate.analysis.results import predictions_of
from ablate.config.resolve import SYMBOL_OF
from ablate.formatting import duration, millions, plural, printable, scaled, setting_text, signed
from ablate.report.terminal import plain_table, print_wide, text_console
from ablate.stats.significance import LEVEL
from ablate.stats.verdict import Verdict, p_equation
from ablate.store import Results
from ablate.study import Row
from ablate.table.curves import Curve
from ablate.table.scores import mean_and_std
from ablate.table.table import Table, TableRow
from ablate.tasks import Sample


@dataclass(frozen=True)
class ItemDifference:
    """An item of the test split, with predictions of both rows.

    number: number of the item, from 1.
    sample: (name, text) of the input and the reference.
    predictions: predictions of the first and of the second row.
    scores: scores of these predictions.
    """

    number: int
    sample: tuple[tuple[str, str], ...]
    predictions: tuple[str, str]
    scores: tuple[float, float]

    @property
    def difference(self) -> float:
        """Score of the second row minus score of the first."""
        return self.scores[1] - self.scores[0]

    def as_json(self, metric: str) -> dict[str, Any]:
        """The item as JSON values."""
        content: dict[str, Any] = {"number": self.number, **dict(self.sample)}
        return content | {"translations": self.predictions, metric: self.scores}


@dataclass(frozen=True)
class RowComparison:
    """The comparison of the second of two rows with the first, without a correction of p values for
    further rows.

    settings: (value of the first row, value of the second row), by field; only fields that differ.
    verdicts: verdict of the comparison, by metric.
    curves: learning curves of both rows.
    seed: seed of the items; None if no seed has predictions of both rows.
    items: items of the test split with the largest differences, beginning with the largest
        losses of the second row.
    """

    outcome: Outcome
    rows: tuple[TableRow, TableRow]
    settings: Mapping[str, tuple[Any, Any]]
    verdicts: dict[str, Verdict]
    curves: tuple[Curve, Curve]
    seed: int | None = None
    items: tuple[ItemDifference, ...] = ()

    @property
    def table(self) -> Table:
        """The table with both rows."""
        return self.outcome.table

    @property
    def table_verdicts(self) -> Mapping[str, Verdict]:
        """The verdicts of the table on the second row, by metric, which are corrected for all rows
        of the study. Empty unless the first row is the base of the second.
        """
        first, second = self.rows
        has_verdicts = second.base == first.label and self.table.experiment.n_tests > 1
        return second.verdicts if has_verdicts else {}

    def text_of(self, verdict: Verdict) -> str:
        """A verdict of this comparison as a sentence that names the first row."""
        return verdict.text_against(self.rows[0].label)

    def as_json(self) -> dict[str, Any]:
        """The comparison as JSON values."""
        first, second = self.rows
        scores = {}
        for name, verdict in self.verdicts.items():
            rows = [row.scores[name].as_json(len(row.runs)) for row in self.rows]
            difference = verdict.as_json() | {"text": self.text_of(verdict)}
            scores[name] = {"rows": rows, "difference": difference}
            if name in self.table_verdicts:
                scores[name]["in_table"] = self.table_verdicts[name].as_json()
        settings = [{"field": name, "values": values} for name, values in self.settings.items()]
        costs = []
        for row in self.rows:
            cost = row.recipe.cost.as_json(len(row.runs))
            costs.append({"params": row.recipe.params, **cost})
        return {
            "study": self.table.experiment.name,
            "rows": [first.label, second.label],
            "states": [first.states, second.states],
            "settings": settings,
            "scores": scores,
            "cost": costs,
            "curves": [{"row": curve.label, "ppl": curve.by_seed} for curve in self.curves],
            "seed_of_sentences": self.seed,
            "sentences": [item.as_json(self.table.item_metric.name) for item in self.items],
        }


def compare_rows(outcome: Outcome, first: Row, second: Row, results: Results) -> RowComparison:
    """Compare two rows of a study, without items of the test split."""
    table = outcome.table
    rows = (table.by_label[first.label], table.by_label[second.label])
    judged = table.compare_pair(*rows)
    second_config = second.config.model_dump()
    settings = {}
    for name, value in first.config.model_dump().items():
        if value != second_config[name]:
            settings[name] = value, second_config[name]
    curves = (curve_of(outcome, first, results), curve_of(outcome, second, results))
    verdicts = {metric.name: judged.verdicts[metric.name] for metric in table.shown_metrics}
    return RowComparison(outcome, rows, settings, verdicts, curves)


def add_items(comparison: RowComparison, results: Results, count: int) -> RowComparison:
    """Add the `count` test items in which the second row loses most and the `count` test items in
    which it gains most, from the first seed with predictions of both rows. No item is added if the
    task does not score items, or if the corpus is not on this machine.

    Raises:
        Damaged: the corpus is damaged.
    """
    from ablate.data.corpus import Corpus  # loads numpy

    outcome = comparison.outcome
    metric = comparison.table.item_metric
    task = outcome.study.task
    corpora = outcome.experiment.corpora
    # Probes have other items, and items of different corpora cannot be paired.
    has_item_scores = task.scores_items(metric) and not metric.is_probe
    if not count or not has_item_scores or len(corpora) != 1:
        return comparison
    if not results.has_corpus(corpora[0]):
        return comparison
    first, second = (outcome.by_label[row.label] for row in comparison.rows)
    for runs in zip(first, second, strict=False):  # base may have further seeds
        first_items = task.item_predictions(predictions_of(runs[0], results))
        second_items = task.item_predictions(predictions_of(runs[1], results))
        if first_items and second_items:
            corpus = Corpus(results.corpus(corpora[0]))
            items = largest_differences(
                (first_items, second_items),
                (
                    task.measure_items(metric.name, first_items, corpus),
                    task.measure_items(metric.name, second_items, corpus),
                ),
                count,
                metric.more_is_better,
                partial(task.samples, corpus),
            )
            return replace(comparison, seed=runs[0].run.seed, items=items)
    return comparison


def largest_differences(
    predictions: tuple[Sequence[str], Sequence[str]],
    scores: tuple[Sequence[float], Sequence[float]],
    count: int,
    more_is_better: bool,
    samples: Callable[[Sequence[int]], Iterable[Sample]],
) -> tuple[ItemDifference, ...]:
    """The items with the largest differences: the `count` largest losses of the second row, then
    its `count` largest gains.

    Args:
        predictions: predictions of both rows.
        scores: scores of these predictions.
        count: number of losses, and of gains.
        more_is_better: whether a higher score is better.
        samples: returns the inputs and references of items, by index.
    """
    sign = 1 if more_is_better else -1
    losses = []
    gains = []
    for i, (first_score, second_score) in enumerate(zip(*scores, strict=True)):
        gain = sign * (second_score - first_score)
        if gain < 0:
            losses.append((gain, i))
        elif gain > 0:
            gains.append((gain, i))
    largest = sorted(losses)[:count] + sorted(gains, reverse=True)[:count]
    indices = [i for _, i in largest]
    items = []
    for i, sample in zip(indices, samples(indices), strict=True):
        item = ItemDifference(
            i + 1,
            sample.texts,
            (predictions[0][i], predictions[1][i]),
            (scores[0][i], scores[1][i]),
        )
        items.append(item)
    return tuple(items)


# On a terminal

_BARS = "▁▂▃▄▅▆▇█"
_MAX_BARS = 40  # longer curves are thinned out
MIN_CUT = 120  # predictions up to this number of characters are not cut
STYLES = {"worse": "red", "better": "green"}


def print_comparison(comparison: RowComparison) -> None:
    """Print settings, scores, significance, learning curves and items of the test split."""
    console = text_console()
    _settings(comparison)
    console.print()
    _scores(comparison)
    for row in comparison.rows:
        if row.note:
            console.print(f"{row.label}: {row.note}")
    console.print()
    for verdict in comparison.verdicts.values():
        if verdict.n:
            console.print(*_significance(verdict, comparison.text_of(verdict)), sep="\n")
            if verdict.metric.name in comparison.table_verdicts:
                console.print(_table_verdict(comparison, verdict.metric.name))
    console.print(_legend(comparison), style="dim")
    for text in (*_curves(comparison), *_items(comparison)):
        console.print(text)


def _settings(comparison: RowComparison) -> None:
    first, second = comparison.rows
    table = plain_table("setting", first.label, second.label)
    for name, values in comparison.settings.items():
        table.add_row(SYMBOL_OF.get(name, name), *map(Text, map(setting_text, values)))
    heads = ("params (10^6)", "FLOPs of a training", "time of a training")
    for head, *cells in zip(heads, _cost_texts(first), _cost_texts(second), strict=True):
        table.add_row(Text(head, style="dim"), *cells)
    print_wide(table)


def _cost_texts(row: TableRow) -> tuple[str, str, str]:
    flops = scaled(row.recipe.cost.flops, "").strip()
    time = duration(row.recipe.cost.seconds.mean)
    return millions(row.recipe.params), flops, time


def _scores(comparison: RowComparison) -> None:
    first, second = comparison.rows
    table = plain_table("metric", f"+{first.label}", f"+{second.label}", "+difference")
    experiment = comparison.table.experiment
    for name, verdict in comparison.verdicts.items():
        metric = verdict.metric
        cells = []
        for row in comparison.rows:
            seeds = len(experiment.seeds_of(row))
            cells.append(mean_and_std(row.scores[name], metric.digits, seeds))
        table.add_row(metric.title, *cells, metric.difference_text(verdict.mean))
    print_wide(table)


def _significance(verdict: Verdict, text: str) -> Iterator[Text]:
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


def _table_verdict(comparison: RowComparison, metric: str) -> Text:
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
    return Text(", ".join(phrases), style="dim")


def _legend(comparison: RowComparison) -> str:
    first, second = comparison.rows
    noise = dict.fromkeys(["the seeds of all rows"])
    for verdict in comparison.verdicts.values():
        if verdict.bootstrap:
            noise[f"the test {verdict.metric.item}s"] = None
    return (
        f"Differences: {second.label} minus {first.label}, paired by seed, with the noise "
        f"of {' and of '.join(noise)}. Only this pair is tested: p < {LEVEL:g} is not corrected "
        f"for other rows."
    )


def _curves(comparison: RowComparison) -> Iterator[str]:
    drawn = {curve.label: curve.mean for curve in comparison.curves if curve.mean}
    if not drawn:
        return
    values = [math.log(value) for _, value in chain(*drawn.values())]
    low = min(values)
    high = max(values)
    yield "\nPPL (dev) from the first to the last evaluation, log scale, geometric mean over seeds"
    label_width = max(map(len, drawn))
    for row, points in drawn.items():
        stride = -(-len(points) // _MAX_BARS)
        bars = ""
        for _, value in points[::stride]:
            # 1.0 if all values are equal: the curve is flat.
            height = (math.log(value) - low) / (high - low or 1.0)
            bars += _BARS[round(height * (len(_BARS) - 1))]
        first, start = points[0]
        last, end = points[-1]
        yield f"{row:<{label_width}}  {bars}  {start:.2f} at step {first}, {end:.2f} at step {last}"


def _items(comparison: RowComparison) -> Iterator[Text]:
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
        yield from _item(item, comparison)


def _prediction_text(text: str, item: ItemDifference) -> str:
    """A prediction on a single line. It is cut if it is much longer than its reference, because a
    model that has learned little may repeat words endlessly.
    """
    longest = max(map(len, dict(item.sample).values()))
    width = max(MIN_CUT, 2 * longest)
    if len(text) <= width:
        return printable(text)
    return f"{printable(text[:width])}… ({len(text) - width:,} more characters)"


def _item(item: ItemDifference, comparison: RowComparison) -> Iterator[Text]:
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
        score_text = f"{score:.{metric.digits}f}"
        if not comparison.outcome.study.task.predicts_texts:
            score_text += f" {metric.title}"
            yield Text.assemble((f"{label:<{width}}  ", "dim"), score_text)
            continue
        prediction = _prediction_text(text, item) or "(empty)"
        yield Text.assemble((f"{label:<{width}}  ", "dim"), prediction, (f"  {score_text}", "dim"))
