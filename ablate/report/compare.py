"""Comparison of two rows: settings, scores, significance, learning curves, predictions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ablate.analysis.curves import curve_of
from ablate.analysis.outcome import Outcome
from ablate.analysis.results import predictions_of
from ablate.stats.verdict import Verdict
from ablate.store import Results
from ablate.study import Row
from ablate.table.curves import Curve
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
        """The item as JSON values, with the same keys for every task: `translations` has the
        predictions of any kind.
        """
        content: dict[str, Any] = {"number": self.number, **dict(self.sample)}
        return content | {"translations": self.predictions, metric: self.scores}


@dataclass(frozen=True)
class RowComparison:
    """The comparison of the second of two rows with the first, without a correction of p values for
    further rows.

    settings: (value of the first row, value of the second row), by field; only fields that differ.
    verdicts: verdict of the comparison, by metric; not corrected, unlike `table_verdicts`. Means
        over tokens are left out if the rows have different vocabularies.
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
            row_scores = [row.scores[name].as_json(len(row.runs)) for row in self.rows]
            difference = verdict.as_json() | {"text": self.text_of(verdict)}
            scores[name] = {"rows": row_scores, "difference": difference}
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
    sizes = {outcome.planned.data_of(row).vocab_size for row in (first, second)}
    verdicts = {}
    for metric in table.shown_metrics:
        if len(sizes) == 1 or not metric.is_per_token:
            verdicts[metric.name] = judged.verdicts[metric.name]
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
    has_a_corpus = len(corpora) == 1 and results.has_corpus(corpora[0])
    if not count or not has_item_scores or not has_a_corpus:
        return comparison
    first_runs, second_runs = (outcome.by_label[row.label] for row in comparison.rows)
    # Runs are in the order of the seeds, which is the same for all rows; base may have further
    # seeds at the end.
    for first_run, second_run in zip(first_runs, second_runs, strict=False):
        first_items = task.item_predictions(predictions_of(first_run, results))
        second_items = task.item_predictions(predictions_of(second_run, results))
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
            return replace(comparison, seed=first_run.run.seed, items=items)
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
    gains = [sign * (second - first) for first, second in zip(*scores, strict=True)]
    order = sorted(range(len(gains)), key=gains.__getitem__)
    largest_losses = [i for i in order[:count] if gains[i] < 0]
    largest_gains = [i for i in order[::-1][:count] if gains[i] > 0]
    indices = largest_losses + largest_gains
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
