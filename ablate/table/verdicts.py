"""Verdicts on the rows of an experiment, from scores of the row and of base, paired by seed."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from ablate.stats.comparison import PairedScores
from ablate.stats.judge import early_verdicts, verdicts_over_looks
from ablate.stats.metrics import Metric
from ablate.stats.noise import BaseScores
from ablate.stats.significance import repeated_comparisons
from ablate.stats.verdict import Verdict
from ablate.table.experiment import Experiment, ExperimentRow, ExperimentRun
from ablate.table.scores import Scores


def scores_of(runs: Iterable[ExperimentRun], metric: Metric) -> Scores:
    """The scores of runs in a metric."""
    values = {}
    for run in runs:
        if metric.name in run.scores:
            values[run.seed] = metric.without_excess(run.scores[metric.name].value)
    return Scores(values, metric.is_log)


def resamples_of(runs: Iterable[ExperimentRun], metric: Metric) -> dict[int, Sequence[float]]:
    """The scores of runs on the resampled test sets, on the scale of the metric, by seed. A run
    without resampled scores is left out.
    """
    resamples: dict[int, Sequence[float]] = {}
    for run in runs:
        score = run.scores.get(metric.name)
        if score is not None and len(score.resamples):
            resamples[run.seed] = metric.transform_all(score.resamples)
    return resamples


def paired_scores(
    metric: Metric,
    row: ExperimentRow,
    base: ExperimentRow,
    seeds: Sequence[int],
    further: Sequence[int] = (),
    is_paired: bool = True,
) -> PairedScores:
    """Pair the scores of a row and of its base by seed. Only base has the further seeds. Without
    `is_paired`, the seeds only count the runs.
    """
    row_runs = [run for run in row.runs if run.seed in seeds]
    base_runs = [run for run in base.runs if run.seed in seeds]
    base_scores = scores_of(base_runs, metric)
    differences = scores_of(row_runs, metric).minus(base_scores).by_seed
    possible = (-math.inf, math.inf)
    if differences:
        paired_base_scores = base_scores.only_seeds(differences).transformed.values()
        possible = metric.possible_differences(statistics.fmean(paired_base_scores))
    all_base_scores = None
    if further or not is_paired:
        further_scores = scores_of(base.runs, metric).only_seeds(further)
        all_base_scores = BaseScores(base_scores.transformed, further_scores.transformed, is_paired)
    resampled = resamples_of(row_runs, metric)
    base_resampled = resamples_of(base_runs, metric)
    resamples = {}
    for seed in differences:
        if seed in resampled and seed in base_resampled:
            resamples[seed] = resampled[seed], base_resampled[seed]
    states = Counter(run.state for run in row_runs)
    base_states = Counter(run.state for run in base_runs)
    return PairedScores(
        differences,
        resamples,
        diverged=states["diverged"],
        base_diverged=base_states["diverged"],
        unpaired=states["done"] - len(differences),
        base_ended=base_states["done"] + base_states["diverged"],
        base_pending=len(base_runs) - base_states["done"] - base_states["diverged"],
        pending=len(row_runs) - states["done"] - states["diverged"],  # a failed run may be repeated
        same_training={run.id for run in row_runs} == {run.id for run in base_runs},
        base_scores=all_base_scores,
        possible=possible,
        base_label=base.label,
    )


def duplicates(rows: Iterable[ExperimentRow]) -> dict[str, str]:
    """The rows with the same runs and evaluation as an earlier row: label of the earlier row, by
    label. The two rows are one comparison, which is tested once.
    """
    keys = {}
    for row in rows:
        keys[row.label] = (row.base, row.evaluation, *(run.id for run in row.runs))
    return repeated_comparisons(keys)


def verdicts_on(
    experiment: Experiment,
    metric: Metric,
    pairs: Sequence[tuple[ExperimentRow, ExperimentRow]],
    n_tests: int,
) -> list[Verdict]:
    """Give a verdict on each pair (base, row) at the last judged look, if any. Holm's correction
    covers `n_tests` rows.
    """
    first_labels = duplicates(row for _, row in pairs)
    distinct = [(base, row) for base, row in pairs if row.label not in first_labels]

    def pair_up(seeds: Sequence[int]) -> list[PairedScores]:
        further, is_paired = experiment.further_seeds, experiment.is_paired
        return [
            paired_scores(metric, row, base, seeds, further, is_paired) for base, row in distinct
        ]

    looks = experiment.looks
    if looks.judged:
        verdicts = verdicts_over_looks(
            metric,
            [(look, pair_up(experiment.seeds[: look.seeds])) for look in looks.judged],
            n_tests=n_tests,
            margin=experiment.margins.get(metric.name),
            share=experiment.share_of_level(metric.name),
        )[-1]
    else:
        verdicts = early_verdicts(metric, pair_up(experiment.seeds), looks.planned[0])
    by_label = {}
    for (_, row), verdict in zip(distinct, verdicts, strict=True):
        by_label[row.label] = verdict
    return [by_label[first_labels.get(row.label, row.label)] for _, row in pairs]


def undecided_rows(experiment: Experiment) -> tuple[str, ...]:
    """Labels of the rows that are undecided in a judged metric at the last judged look, or that
    have a failed run. Bases are left out.
    """
    rows = [row for row in experiment.rows if not row.is_base]
    pairs = [(experiment.by_label[row.base], row) for row in rows]
    undecided = set()
    for row in rows:
        if any(run.state == "failed" and run.seed in experiment.judged_seeds for run in row.runs):
            undecided.add(row.label)
    for metric in experiment.judged:
        verdicts = verdicts_on(experiment, metric, pairs, experiment.n_tests)
        for row, verdict in zip(rows, verdicts, strict=True):
            if not verdict.is_decided:
                undecided.add(row.label)
    return tuple(row.label for row in rows if row.label in undecided)
