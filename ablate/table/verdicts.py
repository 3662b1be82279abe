"""Verdicts on the rows of an experiment: their scores, paired with those of base by seed."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from ablate.stats.comparison import PairedScores
from ablate.stats.judge import early_verdicts, verdicts_over_looks
from ablate.stats.looks import Look, planned_looks
from ablate.stats.metrics import Metric
from ablate.stats.noise import BaseScores
from ablate.stats.verdict import Verdict
from ablate.table.experiment import Experiment, Row, Run
from ablate.table.scores import Scores


def scores_of(runs: Iterable[Run], metric: Metric) -> Scores:
    """The scores of runs in a metric."""
    by_seed = {}
    for run in runs:
        if metric.name in run.scores:
            by_seed[run.seed] = run.scores[metric.name].value
    return Scores(by_seed, metric.is_log)


def resamples_of(runs: Iterable[Run], metric: Metric) -> dict[int, Sequence[float]]:
    """The scores of runs on the resampled test sets, on the metric's scale, by seed. A run whose
    predictions are gone may have none.
    """
    by_seed: dict[int, Sequence[float]] = {}
    for run in runs:
        score = run.scores.get(metric.name)
        if score is not None and len(score.resamples):
            by_seed[run.seed] = metric.transform_all(score.resamples)
    return by_seed


def paired_scores(
    metric: Metric, row: Row, base: Row, seeds: Sequence[int], further: Sequence[int] = ()
) -> PairedScores:
    """The scores of a row and of its base, as verdicts take them.

    Args:
        metric: of the scores.
        row: that is compared.
        base: that it is compared with.
        seeds: of the row and of base.
        further: seeds that only base has.
    """
    lower_bound, of_base, further_of_base = -math.inf, None, scores_of(base.runs, metric)
    ours = [run for run in row.runs if run.seed in seeds]
    theirs = [run for run in base.runs if run.seed in seeds]
    shared = scores_of(theirs, metric)
    differences = scores_of(ours, metric).minus(shared).by_seed
    if differences:
        of_pairs = shared.with_seeds(differences).transformed.values()
        lower_bound = metric.lower_bound(statistics.fmean(of_pairs))
    if further:
        of_base = BaseScores(shared.transformed, further_of_base.with_seeds(further).transformed)
    resampled, base_resampled = resamples_of(ours, metric), resamples_of(theirs, metric)
    resamples = {}
    for seed in differences:
        if seed in resampled and seed in base_resampled:
            resamples[seed] = resampled[seed], base_resampled[seed]
    states = Counter(run.state for run in ours)
    base_states = Counter(run.state for run in theirs)
    ended = states["done"] + states["diverged"]
    return PairedScores(
        differences,
        resamples,
        diverged=states["diverged"],
        base_diverged=base_states["diverged"],
        ended=ended,
        base_ended=base_states["done"] + base_states["diverged"],
        pending=len(ours) - ended,
        same_training={run.id for run in ours} == {run.id for run in theirs},
        base=of_base,
        lower_bound=lower_bound,
        base_label=base.label,
    )


def repeated(rows: Iterable[Row]) -> dict[str, str]:
    """The rows with the scores of an earlier one, by label, with the label of that row: both are
    one comparison, which is tested once.
    """
    first: dict[tuple[str, ...], str] = {}
    labels = {}
    for row in rows:
        key = (row.base, row.evaluation, *(run.id for run in row.runs))
        earlier = first.setdefault(key, row.label)
        if earlier != row.label:
            labels[row.label] = earlier
    return labels


def verdicts_on(
    experiment: Experiment,
    metric: Metric,
    pairs: Sequence[tuple[Row, Row]],
    family: int,
    looks: Sequence[Look],
) -> list[Verdict]:
    """Verdicts on rows, each compared with another one.

    Args:
        experiment: of the rows.
        metric: that they are compared in.
        pairs: (the row that is compared with, the row) of each verdict.
        family: number of rows that Holm's correction covers.
        looks: that have been judged; empty before the first one.
    """
    rule: dict[str, Any] = {
        "family": family,
        "margin": experiment.margins.get(metric.name),
        "share": experiment.share_of_level(metric.name),
    }
    repeats = repeated(row for _, row in pairs)
    different = [(base, row) for base, row in pairs if row.label not in repeats]

    def scores(seeds: Sequence[int]) -> list[PairedScores]:
        further = experiment.further_seeds
        return [paired_scores(metric, row, base, seeds, further) for base, row in different]

    if looks:
        at_looks = [(look, scores(experiment.seeds[: look.seeds])) for look in looks]
        verdicts = verdicts_over_looks(metric, at_looks, **rule)[-1]
    else:
        first = planned_looks(experiment.standing.plan)[0]
        verdicts = early_verdicts(metric, scores(experiment.seeds), first)
    of_labels = {}
    for (_, row), verdict in zip(different, verdicts, strict=True):
        of_labels[row.label] = verdict
    return [of_labels[repeats.get(row.label, row.label)] for _, row in pairs]


def open_rows(experiment: Experiment, looks: Sequence[Look]) -> tuple[str, ...]:
    """Labels of the rows that are not settled at the last of some looks in each metric that
    verdicts are by, or that lack a run.
    """
    at_look = experiment.seeds[: looks[-1].seeds]
    rows = [row for row in experiment.rows if not row.is_base]
    pairs = [(experiment.by_label[row.base], row) for row in rows]
    undecided = set()
    for row in rows:
        if any(run.state == "failed" and run.seed in at_look for run in row.runs):
            undecided.add(row.label)
    for metric in experiment.judged:
        verdicts = verdicts_on(experiment, metric, pairs, experiment.tests, looks)
        for row, verdict in zip(rows, verdicts, strict=True):
            if not verdict.is_settled:
                undecided.add(row.label)
    return tuple(row.label for row in rows if row.label in undecided)
