"""Read the results of a study once: the table, and the runs behind it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from ablate.analysis.choices import with_all_rows
from ablate.analysis.current_look import CurrentLook, find_current_look
from ablate.analysis.equal_weights import equal_weights_remarks
from ablate.analysis.experiment import experiment_of, with_recipes
from ablate.analysis.judgments import error_bound
from ablate.analysis.missing_scores import read_scored_runs
from ablate.analysis.provenance_diff import provenance_remarks
from ablate.analysis.results import (
    RunResult,
    faults_of,
    read_runs,
    runs_by_row,
    runs_with_seeds,
    signatures,
    with_rows_of,
)
from ablate.analysis.short_texts import cause_of
from ablate.analysis.text_changes import refuse_other_text
from ablate.analysis.text_notes import text_notes
from ablate.analysis.tuned_on_dev import tuned_on_dev_remarks
from ablate.config.lengths import ASSUMED_LENGTH
from ablate.formatting import first_few, number, plural, shares_text
from ablate.store import Results
from ablate.store.corpora import MANIFEST, lengths_in, overlaps_in
from ablate.study import Runs, Study
from ablate.table.experiment import Experiment
from ablate.table.table import Table


@dataclass(frozen=True)
class Outcome:
    """A study with its results.

    planned: the runs of the study, with the seeds up to its current look.
    by_label: the results of each row's runs, by the label of the row.
    table: the table of these runs.
    unscored: a line for each score that could not be computed.
    """

    planned: Runs
    by_label: Mapping[str, Sequence[RunResult]]
    table: Table
    unscored: tuple[str, ...] = ()

    @property
    def study(self) -> Study:
        """The study with its options, before results."""
        return self.planned.study

    @property
    def experiment(self) -> Experiment:
        """The experiment of the table."""
        return self.table.experiment

    @property
    def runs(self) -> list[RunResult]:
        """The results of the runs of all rows."""
        return list(chain.from_iterable(self.by_label.values()))


def scored_outcome_of(
    planned: Runs,
    results: Results,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> Outcome:
    """Compute the missing scores of a study as `read_scored_runs` does, then read its results.
    Results of other text are refused before, because scores may take minutes.

    Args:
        planned: the runs of the study, with all seeds.
        results: results root.
        on_progress: called with the number of decodings scored so far, and the number of all.

    Raises:
        StoreError: the results were made with other text than the text of the study.
    """
    uncompared = refuse_other_text(planned, results)
    runs, faults = read_scored_runs(with_all_rows(planned, results), results, on_progress)
    return outcome_of(planned, results, faults, runs, uncompared)


def outcome_of(
    planned: Runs,
    results: Results,
    faults: Sequence[str] = (),
    runs: Sequence[RunResult] | None = None,
    uncompared: Sequence[str] = (),
) -> Outcome:
    """Read the results of a study as far as they exist. If a file cannot be used, only the cells of
    its run are missing.

    Args:
        planned: the runs of the study, with all seeds.
        results: results root.
        faults: lines about scores that could not be computed, to show with the table.
        runs: all runs of the study, as they were read, also of rows that `planned` does not have,
            whose noise counts in the verdicts; None to read them.
        uncompared: remarks of `refuse_other_text`.
    """
    if runs is None:
        runs = read_runs(with_all_rows(planned, results), results)
    bound = error_bound(planned, results)
    current = _latest_look(planned, runs)
    planned = current.runs
    runs = runs_with_seeds(runs, planned.seeds.base)
    experiment = experiment_of(with_rows_of(planned, runs), runs_by_row(runs))
    runs = [run for run in runs if run.row.label in planned.by_label]
    by_label = runs_by_row(runs)
    experiment = with_recipes(experiment, planned, by_label, results)
    trained, decoded = set(), set()
    problems: dict[str, None] = {}
    for run in runs:
        if run.result is not None:
            trained.add(run.result.corpus)
        if run.decoding is not None:
            decoded.add(run.decoding.corpus)
        problems |= dict.fromkeys((*run.damage, *faults_of(run, results)))
    problems |= dict.fromkeys(_corpus_faults(sorted(trained), results))
    problems |= dict.fromkeys(filter(None, (bound.fault, *faults)))
    corpora = tuple(sorted(decoded))
    experiment = replace(
        experiment,
        looks=current.looks,
        error_rate=bound.error_rate,
        signatures=signatures(planned, runs),
        corpora=corpora,
    )
    table = Table.build(experiment).with_rows(planned.by_label)
    advice = dict(_low_parts(table, planned, by_label))
    remarks = [*provenance_remarks(planned.study.task, runs), *equal_weights_remarks(by_label)]
    remarks += tuned_on_dev_remarks(planned)
    remarks += [*advice, *filter(None, (bound.remark,)), *_overlaps(results, corpora)]
    archived = list(_archived(runs))
    # An archive of records has no text to compare.
    (archived if archived else remarks).extend(uncompared)
    notes = replace(
        text_notes(planned, results, corpora),
        remarks=tuple(remarks),
        advice=advice,
        archived=tuple(archived),
        faults=tuple(problems),
    )
    return Outcome(planned, by_label, table.with_notes(notes), tuple(faults))


def _latest_look(planned: Runs, runs: Sequence[RunResult]) -> CurrentLook:
    """The look of the selected rows, or the look of the whole study if that is later: a row has the
    same scores and verdict in a table of selected rows as in the whole table.
    """
    selected = find_current_look(planned, runs)
    whole = find_current_look(with_rows_of(planned, runs), runs)
    if len(whole.looks.judged) <= len(selected.looks.judged):
        return selected
    return CurrentLook(whole.runs.with_rows(planned.by_label), whole.looks)


def _low_parts(
    table: Table, planned: Runs, runs: Mapping[str, Sequence[RunResult]]
) -> Iterator[tuple[str, str]]:
    """Yield (remark, advice) for each part of a shown metric that is too small in some rows, such
    as the brevity penalty of BLEU, and for each cause of it, the surest cause first.

    A row whose score divided by this factor is below half of the best score has larger faults, and
    is left out (docs/verdict.md).
    """
    for metric in table.experiment.shown:
        means = [row.scores[metric.name].mean or 0.0 for row in table.rows]
        enough = max(means, default=0.0) / 2
        for part in metric.parts:
            low: dict[tuple[int, str], list[str]] = defaultdict(list)
            for row in table.rows:
                mean = row.part(metric, part).mean
                if mean is None or mean >= part.least or not row.has_learned(metric):
                    continue
                if (row.scores[metric.name].mean or 0.0) >= enough * mean:
                    planned_row = planned.by_label[row.label]
                    cause = cause_of(runs[row.label], planned_row, 1 - part.least)
                    label = f"{row.label} ({number(mean, 3)}{cause.evidence})"
                    low[cause.order, cause.remedy].append(label)
            name = part.name.replace("_", " ")
            for (_, remedy), labels in sorted(low.items()):
                yield f"{part.remark} ({name} below {part.least}): {first_few(labels)}.", remedy


def _archived(runs: Sequence[RunResult]) -> Iterator[str]:
    """Yield a line if the predictions of some runs are not in the results root."""
    if count := sum(not run.has_predictions for run in runs):
        archived = f"{plural(count, 'run')} from an archive of records"
        yield f"{archived}: scores as stored, without predictions."


def _corpus_faults(corpora: Iterable[str], results: Results) -> Iterator[str]:
    """Yield a line for each corpus of finished runs whose sentence lengths are lost. A folder that
    was removed is not a fault.
    """
    for corpus in corpora:
        folder = results.corpus(corpus)
        if folder.exists() and lengths_in(folder) is None:
            yield (
                f"{folder / MANIFEST}: is missing or damaged; FLOPs assume sentences of "
                f"{ASSUMED_LENGTH} tokens, and "
                "predictions are not scored; `ablate run` prepares the corpus again"
            )


def _overlaps(results: Results, corpora: Sequence[str]) -> Iterator[str]:
    """Yield a line on the share of test text, and of dev text, that is also in the training data;
    the same line only once.
    """
    lines: dict[str, None] = {}
    for corpus in corpora:
        for split, shares in overlaps_in(results.corpus(corpus)).items():
            if any(shares.values()):
                name = split.capitalize()
                share = shares_text(shares)
                lines[f"{name} text that also occurs in the training data: {share}."] = None
    yield from lines
