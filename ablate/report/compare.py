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
    """An item of the test split that both rows have predicted.

    number: of the item, from 1.
    sample: (name, text) of the input and the reference.
    predictions: of both rows.
    scores: of each prediction alone.
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
        """The item for scripts."""
        content: dict[str, Any] = {"number": self.number, **dict(self.sample)}
        return content | {"translations": self.predictions, metric: self.scores}


@dataclass(frozen=True)
class RowComparison:
    """The second of two rows compared with the first. p values are not corrected for other rows.

    settings: the values of both rows, by each field that differs.
    verdicts: by metric.
    curves: learning curves of both rows.
    seed: of the sentences; None if no seed has predictions of both rows.
    sentences: items of the test split with the largest differences, the second row's worst first.
    """

    outcome: Outcome
    rows: tuple[TableRow, TableRow]
    settings: Mapping[str, tuple[Any, Any]]
    verdicts: dict[str, Verdict]
    curves: tuple[Curve, Curve]
    seed: int | None = None
    sentences: tuple[ItemDifference, ...] = ()

    @property
    def table(self) -> Table:
        """The table that has both rows."""
        return self.outcome.table

    @property
    def in_table(self) -> Mapping[str, Verdict]:
        """The verdicts of the table on this pair, by metric, corrected for all rows of the study;
        empty unless the first row is the base of the second.
        """
        first, second = self.rows
        is_in_table = second.row.base == first.label and self.table.experiment.tests > 1
        return second.verdicts if is_in_table else {}

    def text_of(self, verdict: Verdict) -> str:
        """The verdict as a sentence, with the first row in the place of base."""
        return verdict.text_against(self.rows[0].label)

    def as_json(self) -> dict[str, Any]:
        """The comparison for scripts."""
        first, second = self.rows
        scores = {}
        for name, verdict in self.verdicts.items():
            of_rows = [first.scores[name].as_json(), second.scores[name].as_json()]
            difference = verdict.as_json() | {"text": self.text_of(verdict)}
            scores[name] = {"rows": of_rows, "difference": difference}
            if name in self.in_table:
                scores[name]["in_table"] = self.in_table[name].as_json()
        settings, costs = self.settings.items(), []
        for row in self.rows:
            costs.append({"params": row.recipe.params, **row.recipe.cost.as_json()})
        return {
            "study": self.table.experiment.name,
            "rows": [first.label, second.label],
            "states": [first.states, second.states],
            "settings": [{"field": name, "values": values} for name, values in settings],
            "scores": scores,
            "cost": costs,
            "curves": [{"row": curve.row, "ppl": curve.by_seed} for curve in self.curves],
            "seed_of_sentences": self.seed,
            "sentences": [item.as_json(self.table.item_metric.name) for item in self.sentences],
        }


def compare_rows(outcome: Outcome, first: Row, second: Row, results: Results) -> RowComparison:
    """Compare two rows of a study, without sentences."""
    table = outcome.table
    rows = (table.by_label[first.label], table.by_label[second.label])
    # The pair alone, so that Holm's correction changes nothing.
    judged = table.compare_pair(*rows)
    after = second.config.model_dump()
    settings = {}
    for name, value in first.config.model_dump().items():
        if value != after[name]:
            settings[name] = value, after[name]
    curves = (curve_of(outcome, first, results), curve_of(outcome, second, results))
    shown = {metric.name: judged.verdicts[metric.name] for metric in table.metrics}
    return RowComparison(outcome, rows, settings, shown, curves)


def with_sentences(comparison: RowComparison, results: Results, count: int) -> RowComparison:
    """Add the `count` worst and best sentences of the second row, from the first seed that both
    rows have translated; none if the task does not score sentences, or if their corpus is not here.

    Raises:
        Damaged: the corpus is damaged.
    """
    from ablate.data.corpus import Corpus  # loads numpy

    outcome, metric = comparison.outcome, comparison.table.item_metric
    task, corpora = outcome.study.task, outcome.experiment.corpora
    # A probe has items of its own, and sentences of different corpora cannot be paired.
    is_of_items = task.scores_items(metric) and not metric.is_probe
    if not count or not is_of_items or len(corpora) != 1:
        return comparison
    if not results.has_corpus(corpora[0]):
        return comparison
    first, second = (outcome.by_label[row.label] for row in comparison.rows)
    for runs in zip(first, second, strict=False):  # base may have further seeds
        before = task.item_predictions(predictions_of(runs[0], results))
        after = task.item_predictions(predictions_of(runs[1], results))
        if before and after:
            corpus = Corpus(results.corpus(corpora[0]))
            scores = (
                task.measure_items(metric.name, before, corpus),
                task.measure_items(metric.name, after, corpus),
            )
            given = (count, metric.more_is_better, partial(task.samples, corpus))
            most = differing_most((before, after), scores, *given)
            return replace(comparison, seed=runs[0].run.seed, sentences=most)
    return comparison


def differing_most(
    predictions: tuple[Sequence[str], Sequence[str]],
    scores: tuple[Sequence[float], Sequence[float]],
    count: int,
    more_is_better: bool,
    samples: Callable[[Sequence[int]], Iterable[Sample]],
) -> tuple[ItemDifference, ...]:
    """The items in which two rows differ most: the `count` worst of the second row, then its
    `count` best.

    Args:
        predictions: of both rows.
        scores: of each prediction alone.
        count: of worst and of best items.
        more_is_better: whether a higher score is better.
        samples: returns the inputs and references of some items, by index.
    """
    sign = 1 if more_is_better else -1
    worse, better = [], []
    for i, (before, after) in enumerate(zip(*scores, strict=True)):
        difference = sign * (after - before)
        if difference < 0:
            worse.append((difference, i))
        elif difference > 0:
            better.append((difference, i))
    most = sorted(worse)[:count] + sorted(better, reverse=True)[:count]
    picked = [i for _, i in most]
    items = []
    for i, sample in zip(picked, samples(picked), strict=True):
        texts, values = (predictions[0][i], predictions[1][i]), (scores[0][i], scores[1][i])
        items.append(ItemDifference(i + 1, sample.texts, texts, values))
    return tuple(items)


# On a terminal

_BARS = "▁▂▃▄▅▆▇█"
_WIDEST = 40  # characters of a curve; longer ones are thinned out
SHORTEST_CUT = 120  # characters; a prediction is never cut below
STYLES = {"worse": "red", "better": "green"}


def print_comparison(comparison: RowComparison) -> None:
    """Print settings, scores, significance, learning curves and sentences."""
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
            if verdict.metric.name in comparison.in_table:
                console.print(_in_table(comparison, verdict.metric.name))
    console.print(_legend(comparison), style="dim")
    for text in (*_curves(comparison), *_sentences(comparison)):
        console.print(text)


def _settings(comparison: RowComparison) -> None:
    first, second = comparison.rows
    table = plain_table("setting", first.label, second.label)
    for name, values in comparison.settings.items():
        table.add_row(name, *map(Text, map(setting_text, values)))
    heads = ("params (10^6)", "FLOPs of a training", "time of a training")
    for head, *cells in zip(heads, _cost_texts(first), _cost_texts(second), strict=True):
        table.add_row(Text(head, style="dim"), *cells)
    print_wide(table)


def _cost_texts(row: TableRow) -> tuple[str, str, str]:
    flops, time = scaled(row.recipe.cost.flops, "").strip(), duration(row.recipe.cost.seconds.mean)
    return millions(row.recipe.params), flops, time


def _scores(comparison: RowComparison) -> None:
    first, second = comparison.rows
    table = plain_table("metric", f"+{first.label}", f"+{second.label}", "+difference")
    seeds = len(comparison.table.experiment.seeds)
    for name, verdict in comparison.verdicts.items():
        metric = verdict.metric
        before = mean_and_std(first.scores[name], metric.digits, seeds)
        after = mean_and_std(second.scores[name], metric.digits, seeds)
        table.add_row(metric.title, before, after, metric.difference_text(verdict.mean))
    print_wide(table)


def _significance(verdict: Verdict, text: str) -> Iterator[Text]:
    """The verdict in a metric, with the intervals over seeds and over test sentences."""
    metric = verdict.metric
    yield Text(f"{metric.title}: ").append(text, STYLES.get(verdict.word, ""))
    noises = []
    if verdict.interval and verdict.p is not None:
        noises.append((f"{verdict.n} seeds", verdict.interval, verdict.p))
    if test := verdict.bootstrap:
        noises.append((f"test {metric.item}s", (test.low, test.high), test.p))
    for noise, interval, p in noises:
        shown = f"{metric.interval_text(*interval)}, {p_equation(p)}"
        yield Text(f"  95 % over {noise} {shown}", style="dim")


def _in_table(comparison: RowComparison, metric: str) -> Text:
    """The verdict of the table on the same pair, whose interval is wider for its correction."""
    verdict, rows = comparison.in_table[metric], plural(comparison.table.experiment.tests, "row")
    shown = [f"  in the table, corrected for {rows}: {verdict.word}"]
    if verdict.interval:
        shown.append(verdict.metric.interval_text(*verdict.interval))
    if verdict.p is not None:
        shown.append(p_equation(verdict.p))
    return Text(", ".join(shown), style="dim")


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
    drawn = {curve.row: curve.mean for curve in comparison.curves if curve.mean}
    if not drawn:
        return
    values = [math.log(value) for _, value in chain(*drawn.values())]
    low, high = min(values), max(values)
    yield "\nPPL (dev) from the first to the last evaluation, log scale, geometric mean over seeds"
    wide = max(map(len, drawn))
    for row, points in drawn.items():
        # Every k-th evaluation, with the smallest k that fits.
        shown = points[:: -(-len(points) // _WIDEST)]
        bars = ""
        for _, value in shown:
            # 1.0: all values are equal, and the curve is flat.
            share = (math.log(value) - low) / (high - low or 1.0)
            bars += _BARS[round(share * (len(_BARS) - 1))]
        (first, start), (last, end) = points[0], points[-1]
        yield f"{row:<{wide}}  {bars}  {start:.2f} at step {first}, {end:.2f} at step {last}"


def _sentences(comparison: RowComparison) -> Iterator[Text]:
    if comparison.seed is None:
        yield Text("\nNo seed has predictions of both rows.", style="dim")
        return
    metric = comparison.table.item_metric
    yield Text(
        f"\n{metric.item.capitalize()}s that differ most in {metric.title} (scored one by one, "
        f"seed {comparison.seed})",
        style="bold",
    )
    # All differences are zero, so that none was picked.
    if not comparison.sentences:
        yield Text(f"None: both rows have equal scores for every {metric.item}.")
    for item in comparison.sentences:
        yield from _sentence(item, comparison)


def _shown(text: str, item: ItemDifference) -> str:
    """A prediction on one line, cut far beyond its reference: a model that has learned little may
    repeat words without an end.
    """
    longest = max(map(len, dict(item.sample).values()))
    width = max(SHORTEST_CUT, 2 * longest)
    if len(text) <= width:
        return printable(text)
    return f"{printable(text[:width])}… ({len(text) - width:,} more characters)"


def _sentence(item: ItemDifference, comparison: RowComparison) -> Iterator[Text]:
    metric = comparison.table.item_metric
    first, second = comparison.rows
    labels = (first.label, second.label)
    wide = max(map(len, (*dict(item.sample), *labels)))
    yield Text(
        f"\n{'':<{wide}}  {metric.item} {item.number}, {signed(item.difference, metric.digits)}",
        style="dim",
    )
    for name, text in item.sample:
        in_one_line = printable(" ".join(text.splitlines()))
        yield Text.assemble((f"{name:<{wide}}  ", "dim"), in_one_line)
    for label, text, score in zip(labels, item.predictions, item.scores, strict=True):
        shown = f"{score:.{metric.digits}f}"
        if not comparison.outcome.study.task.predicts_texts:
            yield Text.assemble((f"{label:<{wide}}  ", "dim"), f"{shown} {metric.title}")
            continue
        prediction = _shown(text, item) or "(empty)"
        yield Text.assemble((f"{label:<{wide}}  ", "dim"), prediction, (f"  {shown}", "dim"))
