"""Power of a study for `ablate plan`: detectable differences, from the spread of finished runs, a
stated one, or that of the published studies.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

from ablate.analysis.experiment import experiment_of
from ablate.analysis.results import by_row, read_runs
from ablate.plan.typical import published_differences, typical_spreads
from ablate.stats.metrics import Metric
from ablate.store import Results
from ablate.study import Runs, Study
from ablate.table.experiment import Experiment
from ablate.table.power import OTHER_SEEDS, Power, power_of_scores

ENOUGH_SEEDS = 5  # for half of the published differences; advised in place of too few
RARE = 0.25  # a study is hopeless if a smaller share of the published differences is as large


def power_of(planned: Runs, results: Results, spread: float | None = None) -> list[Power]:
    """Power in the metrics of the study's verdicts, and in perplexity if runs show its spread; the
    main metric is first.

    The spread is the stated one, that of the study's runs, that of the published studies, or
    unknown, in this order. The main metric has the sd 0 if its scores show no spread.

    Args:
        planned: the runs of the study.
        results: with the runs that exist.
        spread: a stated sd over seeds of the main metric; None to estimate it from runs.

    Raises:
        StoreError: a result is damaged.
    """
    if not planned.comparisons[planned.base.label]:
        return []
    study = planned.study
    runs = read_runs(planned, results) if spread is None else []
    experiment = experiment_of(planned, by_row(runs))
    if spread is not None:
        return [Power(experiment, experiment.judged[0], spread, 0.0, "stated")]
    metrics = (*experiment.judged, *study.task.model_metrics[:1])
    of_runs = power_of_scores(experiment, metrics)
    return of_runs or [_typical_power(study, experiment, metric) for metric in experiment.judged]


def _typical_power(study: Study, experiment: Experiment, metric: Metric) -> Power:
    """Power with the median spread of the published studies, or in standard deviations."""
    published = typical_spreads(study.task_name, metric.name, study.data.corpus)
    if published:
        sd = statistics.median(spread.sd for spread in published)
        sentences = statistics.median(spread.sentences for spread in published)
        by_study = {spread.study: spread.sd for spread in published}
        return Power(experiment, metric, sd, sentences, "typical", by_study)
    title = "standard deviations over seeds"
    if len(study.metrics.judged) > 1:
        title = f"standard deviations of {metric.title} over seeds"
    in_sds = replace(metric, title=title, digits=1, is_percentage=False, scale="linear")
    return Power(experiment, in_sds, 1.0, 0.0, "unknown")


def power_json(power: Power) -> dict[str, Any]:
    """The power for scripts, with detectable differences by number of seeds. Numbers that need an
    unknown spread are None.
    """

    def known(difference: float | None) -> float | None:
        return None if power.source == "unknown" else difference

    detectable = {}
    for seeds in sorted({len(power.experiment.seeds), *OTHER_SEEDS}):
        detectable[str(seeds)] = known(power.detectable_difference(seeds))
    content: dict[str, Any] = {
        "sd": known(power.sd),
        "sentences": power.sentences,
        "stated": power.source == "stated",
        "source": power.source,
        "published": list(power.published),
        "detectable": detectable,
        "detectable_sds": power.detectable_sds,
        "warning": power_warning(power),
    }
    for look in power.looks:
        smallest = known(power.detectable_difference(look.seeds, look.level))
        content.setdefault("looks", []).append({**look.as_json(), "detectable": smallest})
    return content


def power_warning(power: Power) -> str | None:
    """A warning with a remedy if the seeds are too few to detect most of the differences in the
    published studies; None if they are enough.
    """
    if power.detectable_sds is None:
        reason = "one seed gives no verdict, because it shows no spread"
    else:
        larger, rows = published_differences(power.detectable_sds)
        if larger >= RARE * rows:
            return None
        reason = (
            f"a row must differ from base by {power.detectable_sds:.0f} standard deviations "
            f"over seeds, as {larger} of {rows} rows of published studies do"
        )
    remedy = f"`seeds: {list(range(1, ENOUGH_SEEDS + 1))}`"
    detectable = power.detectable_difference(ENOUGH_SEEDS)
    benefit = "shows more"
    if detectable is not None:
        benefit = f"would find {power.amount(detectable)}"
    return f"Too few seeds: {reason}. {remedy} {benefit}."
