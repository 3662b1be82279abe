"""A study with its results, read once: the table that they make, and the runs behind it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from ablate.analysis.experiment import experiment_of, with_recipes
from ablate.analysis.position import error_of_verdicts, position_of_runs
from ablate.analysis.provenance_diff import provenance_remarks
from ablate.analysis.results import RunResult, by_row, faults_of, of_seeds, read_runs, signatures
from ablate.analysis.short_texts import cause_of
from ablate.config.lengths import ASSUMED_LENGTH
from ablate.formatting import first_few, number, plural, shares_text
from ablate.store import Results
from ablate.store.corpora import MANIFEST, lengths_in, overlap_in
from ablate.study import Runs, Study
from ablate.table.experiment import Experiment, Notes
from ablate.table.table import Table


@dataclass(frozen=True)
class Outcome:
    """A study with its results.

    planned: the rows of the study, with the seeds up to its position.
    by_label: the runs of each row.
    table: of these runs.
    """

    planned: Runs
    by_label: Mapping[str, Sequence[RunResult]]
    table: Table

    @property
    def study(self) -> Study:
        """The study as asked."""
        return self.planned.study

    @property
    def experiment(self) -> Experiment:
        """The experiment of the table."""
        return self.table.experiment

    @property
    def runs(self) -> list[RunResult]:
        """The runs of all rows."""
        return list(chain.from_iterable(self.by_label.values()))


def outcome_of(planned: Runs, results: Results, faults: Sequence[str] = ()) -> Outcome:
    """Read the results that a study has so far. A file that cannot be used takes only the cells of
    its run.

    Args:
        planned: the runs of the study, with all seeds.
        results: root of the results.
        faults: lines about scores that could not be computed, for the remarks.
    """
    runs = read_runs(planned, results)
    error, changed, damage = error_of_verdicts(planned, results)
    position = position_of_runs(planned, runs)
    planned = position.runs
    runs = of_seeds(runs, planned.seeds.base)
    by_label = by_row(runs)
    experiment = experiment_of(planned, by_label)
    experiment = with_recipes(experiment, planned, by_label, results)
    trained, decoded = set(), set()
    problems: dict[str, None] = {}
    for run in runs:
        if run.result is not None:
            trained.add(run.result.corpus)
        if run.decoding is not None:
            decoded.add(run.decoding.corpus)
        problems |= dict.fromkeys((*run.damage, *faults_of(run, results)))
    problems |= dict.fromkeys((*_corpus_faults(sorted(trained), results), *damage, *faults))
    corpora = tuple(sorted(decoded))
    experiment = replace(
        experiment,
        looks=position.looks,
        error_rate=error,
        signatures=signatures(planned, runs),
        corpora=corpora,
    )
    table = Table.build(experiment)
    advice = tuple(_low_parts(table, planned, by_label))
    remarks = [*provenance_remarks(planned.study.task, runs), *advice, *changed]
    remarks += _overlaps(results, corpora)
    notes = Notes(tuple(remarks), advice, tuple(_archived(runs)), tuple(problems))
    return Outcome(planned, by_label, table.with_notes(notes))


def _low_parts(
    table: Table, planned: Runs, runs: Mapping[str, Sequence[RunResult]]
) -> Iterator[str]:
    """Yield a line on each part of a shown metric that is too small, and its cause, with the rows;
    the surest cause first.
    """
    for metric in table.experiment.shown:
        for part in metric.parts:
            low: dict[tuple[int, str], list[str]] = defaultdict(list)
            for row in table.rows:
                mean = row.part(metric, part).mean
                if mean is not None and mean < part.least and row.has_learned(metric):
                    config = planned.by_label[row.label].config
                    cause = cause_of(runs[row.label], config, 1 - part.least)
                    label = f"{row.label} ({number(mean, 3)}{cause.evidence})"
                    low[cause.order, cause.text].append(label)
            what = part.name.replace("_", " ")
            for (_, cause_text), labels in sorted(low.items()):
                yield (
                    f"NOTE: {what} below {part.least}: {first_few(labels)}: {part.remark}. "
                    f"{cause_text}."
                )


def _archived(runs: Sequence[RunResult]) -> Iterator[str]:
    """Yield a line on the runs whose predictions are not here, if there are any."""
    if count := sum(not run.has_predictions for run in runs):
        archived = f"{plural(count, 'run')} from an archive of records"
        yield f"{archived}: scores as stored, without predictions."


def _corpus_faults(corpora: Iterable[str], results: Results) -> Iterator[str]:
    """Yield the corpora of finished runs whose lengths are lost. A folder that was removed is no
    fault.
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
    """Yield a line on the share of test text in the training data; one for all corpora with the
    same shares.
    """
    texts: dict[str, None] = {}
    for corpus in corpora:
        shares = overlap_in(results.corpus(corpus))
        if shares and any(shares.values()):
            texts[shares_text(shares)] = None
    for text in texts:
        yield f"Test text that also occurs in the training data: {text}."
