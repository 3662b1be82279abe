"""Score stored predictions in the metrics of a study, without training or decoding."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ablate.analysis.results import RunResult, measured_metrics, read_runs
from ablate.errors import Damaged, StoreError
from ablate.formatting import plural
from ablate.store import Results, RunFolder, score_cache
from ablate.store.records import Decoding, Measurement
from ablate.study import Runs
from ablate.tasks import Task

if TYPE_CHECKING:
    from ablate.data.corpus import Corpus


class _Unscored(NamedTuple):
    """A decoding without scores in some metrics.

    folder: folder of the run.
    id: id of the decoding.
    decoding: record of the decoding.
    metrics: names of the metrics without scores.
    """

    folder: RunFolder
    id: str
    decoding: Decoding
    metrics: list[str]


def score_missing(planned: Runs, results: Results) -> list[str]:
    """Compute scores as `read_scored_runs` does, and return a line for each fault."""
    return read_scored_runs(planned, results)[1]


def read_scored_runs(
    planned: Runs,
    results: Results,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[list[RunResult], list[str]]:
    """Read the runs of a study. The missing scores of their predictions are computed and cached.
    `on_progress` is called with the number of decodings scored so far, and the number of all.

    If no score is missing, no heavy module is loaded. A run without its corpus is skipped. A run
    with damaged predictions or a damaged corpus is skipped with a line in the returned list.

    Returns:
        The runs, and a line for each fault because of which scores are missing.
    """
    runs = read_runs(planned, results)
    unscored = _unscored(planned, runs, results)
    faults: dict[str, None] = {}
    corpora: dict[str, Corpus | None] = {}
    for done, decoding in enumerate(unscored):
        on_progress(done, len(unscored))
        try:
            _score(decoding, planned.study.task, results, corpora)
        except Damaged as error:
            (fault,) = error.faults
            remedy = fault.remedy or "`ablate run` makes it again"
            faults[str(replace(fault, remedy=remedy))] = None
        except StoreError as error:
            faults[str(error)] = None
        except OSError as error:
            faults[f"{error.filename}: {error.strerror}; new scores are left out"] = None
            break
    if unscored:
        on_progress(len(unscored), len(unscored))
        runs = read_runs(planned, results)
    return runs, list(faults)


def _unscored(planned: Runs, runs: Iterable[RunResult], results: Results) -> list[_Unscored]:
    """The decodings of a study that lack scores and can be scored."""
    on_predictions = planned.study.task.prediction_metric_names
    wanted = [metric for metric in measured_metrics(planned.study) if metric.name in on_predictions]
    unscored: dict[tuple[str, str], _Unscored] = {}
    for run in runs:
        decoding, id = run.decoding, run.row.decoding
        if decoding is None or decoding.sha256 is None or not run.has_predictions:
            continue
        metrics = []
        for metric in wanted:
            score = run.scores.get(metric.name)
            # A score that is not in the cache has no resamples. Older versions stored no parts.
            if not isinstance(score, Measurement) or len(metric.parts) > len(score.parts):
                metrics.append(metric.name)
        if metrics and results.has_corpus(decoding.corpus):
            folder = results.run(run.run.id)
            unscored[run.run.id, id] = _Unscored(folder, id, decoding, metrics)
    return list(unscored.values())


def _score(
    unscored: _Unscored, task: Task, results: Results, corpora: dict[str, Corpus | None]
) -> None:
    """Score a decoding; `corpora` keeps open corpora by id, and None for a damaged corpus."""
    from ablate.data.corpus import Corpus  # loads numpy

    folder, name, decoding, metrics = unscored
    id = decoding.corpus
    if id not in corpora:
        corpora[id] = None  # stays if opening fails, so that the fault is reported once
        corpora[id] = Corpus(results.corpus(id))
    corpus = corpora[id]
    if corpus is None:
        return
    damage = score_cache.fault_in_predictions(folder, name, decoding)
    if damage is not None:
        raise Damaged(damage)
    predictions = score_cache.read_predictions(folder, name, decoding)
    expected = task.n_predictions(corpus)
    items = task.item_predictions(predictions)
    if len(items) != expected:
        raise StoreError(
            f"{folder.predictions(name)}: has {plural(len(items), 'line')}, and the "
            f"test split of corpus {id} has {plural(expected, 'item')}; restore the corpus"
        )
    cached = dict[str, Measurement]()
    with suppress(StoreError):  # a damaged cache is computed again
        cached = score_cache.read_measurements(folder, name, decoding)
    measured = {metric: task.measure(metric, predictions, corpus) for metric in metrics}
    assert decoding.sha256 is not None
    score_cache.write_scores(
        folder, name, score_cache.score_source(decoding.sha256, id), {**cached, **measured}
    )
