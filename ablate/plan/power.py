"""The power of a study for `ablate plan`: the differences that it can detect.

They follow from the standard deviation over seeds (the spread), which is stated by the user,
estimated from finished runs, or taken from the published studies.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import replace
from typing import Any

from ablate.analysis.choices import with_all_rows
from ablate.analysis.experiment import experiment_of
from ablate.analysis.results import read_runs, runs_by_row
from ablate.config import cost
from ablate.config.data import FILES
from ablate.config.lengths import Lengths
from ablate.plan.typical import published_differences, typical_spreads
from ablate.stats.metrics import Metric
from ablate.store import Results
from ablate.store.corpora import known_lengths
from ablate.study import Runs
from ablate.table.experiment import Experiment
from ablate.table.power import SIMILAR, Power, power_of_scores

ENOUGH_SEEDS = 5  # detect half of the published differences; advised if more seeds are needed
COMPARED_SEEDS = (2, 3, 5, 8)  # numbers of seeds in the JSON, beside the study's number
LARGEST_EXCESS = 10.0  # a study with a larger factor less text or training has another noise
RARE = 0.25  # warn if a smaller share of the published differences could be detected


def power_of(planned: Runs, results: Results, spread: float | None = None) -> list[Power]:
    """The power in each metric of the study's verdicts, the main metric first, and in perplexity if
    runs give its spread.

    The spread is `spread`, else it is estimated from the study's runs, else it is the median of the
    published studies, else it is unknown. It is 0 for the main metric if all scores are equal.

    Args:
        planned: the runs of the study.
        results: results root.
        spread: standard deviation of the main metric over seeds; None to estimate it.

    Raises:
        StoreError: a result is damaged.
    """
    if not planned.comparisons[planned.base.label]:
        return []
    study = planned.study
    whole = with_all_rows(planned, results)  # the noise of all rows counts, as in verdicts
    runs = read_runs(whole, results) if spread is None else []
    experiment = experiment_of(whole, runs_by_row(runs))
    if spread is not None:
        return [Power(experiment, experiment.judged[0], spread, 0.0, "stated")]
    metrics = (*experiment.judged, *study.task.model_metrics[:1])
    measured = power_of_scores(experiment, metrics)
    if measured:
        return measured
    return [_typical_power(planned, results, experiment, metric) for metric in experiment.judged]


def _typical_power(
    planned: Runs, results: Results, experiment: Experiment, metric: Metric
) -> Power:
    """The power with the median spread of the published studies, of studies of a similar size if
    there are any; in standard deviations if no published study has the metric, or all are much
    larger than this study.
    """
    study = planned.study
    published = typical_spreads(study.task_name, metric.name, study.data.corpus)
    lengths = known_lengths(planned.data_of(planned.base), results.corpora)
    size = training_size(planned, lengths)
    excess = min((spread.times_larger(*size) for spread in published), default=math.inf)
    if size == (None, None) and study.data.corpus == FILES:  # a text of any size
        excess = math.inf
    if excess <= SIMILAR:
        published = [spread for spread in published if spread.times_larger(*size) <= SIMILAR]
    if excess <= LARGEST_EXCESS:
        sd = statistics.median(spread.sd for spread in published)
        sentences = statistics.median(spread.sentences for spread in published)
        by_study = {spread.study: spread.sd for spread in published}
        return Power(experiment, metric, sd, sentences, "typical", by_study, excess=excess)
    title = "standard deviations over seeds"
    if len(study.metrics.judged) > 1:
        title = f"standard deviations of {metric.title} over seeds"
    in_sds = replace(metric, title=title, digits=1, is_percentage=False, scale="linear")
    return Power(experiment, in_sds, 1.0, 0.0, "unknown")


def training_size(planned: Runs, lengths: Lengths | None) -> tuple[int | None, int | None]:
    """The number of tokens of base's training text, None without its lengths, and the number that a
    run of base trains on, None if it is not known.
    """
    config = planned.base.config
    steps = cost.steps(config, lengths)
    text = lengths.longer_tokens if lengths else None
    return text, round(steps * config.mean_batch_tokens) if steps else None


def power_json(power: Power) -> dict[str, Any]:
    """The power as JSON values, with detectable differences by number of seeds. Values that depend
    on an unknown spread are None.
    """

    def if_known(value: float | None) -> float | None:
        return None if power.source == "unknown" else value

    detectable = {}
    for seeds in sorted({len(power.experiment.seeds), *COMPARED_SEEDS}):
        detectable[str(seeds)] = if_known(power.detectable_difference(seeds))
    content: dict[str, Any] = {
        "sd": if_known(power.sd),
        "sentences": power.sentences,
        "stated": power.source == "stated",
        "source": power.source,
        "published": list(power.published),
        "is_lower_bound": power.is_lower_bound,
        "detectable": detectable,
        "detectable_sds": power.detectable_sds,
        "warning": power_warning(power),
    }
    for look in power.looks:
        smallest = if_known(power.detectable_difference(look.seeds, look.level))
        content.setdefault("looks", []).append({**look.as_json(), "detectable": smallest})
    return content


def power_warning(power: Power) -> str | None:
    """A warning with a remedy if the seeds are too few to detect most of the differences in the
    published studies; None if they are enough.
    """
    if power.detectable_sds is None:
        reason = "one seed gives no verdict, because it has no standard deviation"
    else:
        larger, rows = published_differences(power.detectable_sds)
        if larger >= RARE * rows:
            return None
        reason = (
            f"they detect a difference of {power.detectable_sds:.0f} standard deviations over "
            f"seeds, and only {larger} of {rows} rows of the published studies show one as large"
        )
    remedy = f"`seeds: {list(range(1, ENOUGH_SEEDS + 1))}`"
    detectable = power.detectable_difference(ENOUGH_SEEDS)
    smallest = "smaller differences"
    if detectable is not None and not power.is_lower_bound:
        smallest = f"differences from {power.amount(detectable)} upwards"
    return f"Too few seeds: {reason}. {remedy} would detect {smallest}."
