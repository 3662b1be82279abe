"""Make the `Experiment` of a study and its results: rows, runs, scores and recipes for tables.

Rows, runs, scores and choices are copied, because a table does not depend on a study.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ablate.analysis.results import RunResult, measured_metrics, vocabularies_of
from ablate.config import cost
from ablate.config.cost import idle_parameters
from ablate.config.identity import INTRODUCED_DECODING, NOT_IDENTITY
from ablate.config.lengths import Lengths
from ablate.config.resolve import SETTING_FIELDS, SETTINGS, resolve_row
from ablate.formatting import plural, settings_text
from ablate.paper import PaperRow, PaperTable
from ablate.store import Results
from ablate.store.corpora import lengths_in
from ablate.store.records import Measurement, Provenance
from ablate.study import Row, Runs
from ablate.study.choice import Choice
from ablate.study.matching import Matched
from ablate.table.experiment import (
    CandidateLoss,
    ChosenSettings,
    Experiment,
    ExperimentRow,
    ExperimentRun,
    Recipe,
    RunScore,
    Setup,
    TrainingCost,
)
from ablate.table.looks import Looks
from ablate.table.scores import Scores


def experiment_of(planned: Runs, runs: Mapping[str, Sequence[RunResult]]) -> Experiment:
    """Make the experiment without recipes, which verdicts do not need. `runs` has the results of
    each row's runs, by the label of the row.
    """
    study = planned.study
    seeds = planned.seeds
    metrics = {metric.name: metric for metric in measured_metrics(study)}
    test_sets = {}
    for metric in metrics.values():
        if study.task.scores_items(metric):
            test_sets[metric.name] = study.data.test
    looks = Looks.judged_once(len(seeds.rows))
    if seeds.looks:
        looks = Looks(seeds.looks)
    return Experiment(
        study.name,
        tuple(_row(row, runs[row.label]) for row in planned.rows),
        seeds.rows,
        measured=tuple(metrics.values()),
        shown=tuple(metrics[name] for name in study.metrics.shown),
        judged=tuple(metrics[name] for name in study.metrics.judged),
        totals=planned.comparisons,
        looks=looks,
        further_seeds=seeds.further,
        margins=study.metrics.margins,
        test_sets=test_sets,
    )


def _row(row: Row, runs: Sequence[RunResult]) -> ExperimentRow:
    return ExperimentRow(
        row.label,
        row.group,
        row.base,
        tuple(map(_run, runs)),
        size=row.size,
        evaluation=row.decoding,
    )


def _run(run: RunResult) -> ExperimentRun:
    scores = {}
    for name, score in run.scores.items():
        resamples = score.resamples if isinstance(score, Measurement) else ()
        scores[name] = RunScore(score.value, resamples, score.parts)
    return ExperimentRun(
        run.run.id,
        run.run.seed,
        run.state,
        run.note,
        scores,
        lacks_decoding=run.lacks_decoding,
        former_default=run.former_default,
    )


def with_recipes(
    experiment: Experiment,
    planned: Runs,
    runs: Mapping[str, Sequence[RunResult]],
    results: Results,
) -> Experiment:
    """Add the recipe of each row and the setup of the study to an experiment.

    Args:
        experiment: the experiment of the study.
        planned: the runs of the rows that get a recipe: all rows, or the selected rows.
        runs: the results of each row's runs, by the label of the row.
        results: results root, which has the sentence lengths of the corpora.
    """
    rows = []
    for row in experiment.rows:
        if row.label in planned.by_label:
            recipe = _recipe(planned, planned.by_label[row.label], runs[row.label], results)
            row = replace(row, recipe=recipe)
        rows.append(row)
    return replace(experiment, rows=tuple(rows), setup=_setup(planned, results))


def _recipe(planned: Runs, row: Row, runs: Sequence[RunResult], results: Results) -> Recipe:
    config = row.config
    study = planned.study
    done = [run for run in runs if run.decoding]
    steps = done[-1].steps if done else config.train_steps
    # Take the number that a run has counted, if one has ended: the closed form does not know the
    # parameters of custom classes.
    ended = [run for run in runs if run.result]
    params = (ended or runs)[-1].params
    return Recipe(
        settings={setting.field: getattr(config, setting.field) for setting in SETTINGS},
        changed=row.changed,
        changes=tuple(settings_text({name: value}) for name, value in row.changed.items()),
        other=_other_changes(row),
        derived=_derived_heads(row),
        is_labeled=row.is_labeled,
        params=params,
        active_params=params - idle_parameters(config),
        steps=steps,
        cost=_cost(planned, row, runs, results),
        matched=_matched(row.matched) if row.matched else None,
        tuned=_tuned(row.own_choice) if row.own_choice else None,
        paper=paper_row(study.task.paper, row, planned.base_of(row)),
        test_size=study.task.test_size(study.data, config),
    )


def _derived_heads(row: Row) -> tuple[str, ...]:
    """The changed fields, of d_k and d_v, that are d_model / h."""
    names = [name for name in ("d_k", "d_v") if name in row.changed]
    return tuple(name for name in names if row.config.has_derived_heads(name))


def _other_changes(row: Row) -> str:
    """The changes of fields that have no column in the table; the label of a row whose label is not
    made from its settings.
    """
    if row.is_labeled or row.has_parts:
        return row.label
    with_column = set(SETTING_FIELDS)
    if row.choice:
        with_column.update(row.choice.candidates[0].values)
    changed = row.changed.items()
    return settings_text({name: value for name, value in changed if name not in with_column})


def _matched(matched: Matched) -> ChosenSettings:
    text = f"{matched.field}={matched.value}"
    return ChosenSettings(text, matched.legend, matched.as_json())


def _tuned(choice: Choice) -> ChosenSettings:
    """The choice of tuned fields or of the decoding, for a table."""
    candidates = []
    losses = choice.losses or [None] * len(choice.candidates)
    for candidate, loss in zip(choice.candidates, losses, strict=True):
        is_chosen = candidate == choice.chosen
        candidates.append(CandidateLoss(candidate.label, loss, is_chosen))
    return ChosenSettings(
        choice.text,
        choice.legend,
        choice.as_json(),
        tuple(candidates),
        choice.sensitivity,
        choice.trainings,
    )


def _setup(planned: Runs, results: Results) -> Setup:
    study = planned.study
    base = planned.base
    paper = study.task.paper
    is_as_paper = False
    if paper is not None:
        shape = ("n_layers", "d_model", "d_ff")
        is_as_paper = all(getattr(base.config, name) == paper.base[name] for name in shape)
        is_as_paper = is_as_paper and study.data.corpus == paper.corpus
    return Setup(
        SETTINGS,
        settings_text(_other_settings(planned)),
        designs=study.designs,
        decoding=_tuned(base.decoding_choice) if base.decoding_choice else None,
        vocabularies=vocabularies_of(planned),
        task=study.task.name,
        command=results.command("table", study.path),
        paper=paper,
        is_as_paper=is_as_paper,
    )


def _other_settings(planned: Runs) -> dict[str, object]:
    """The settings of base that have no column in the table: fields that the task always shows, and
    fields that differ from the paper's base model.

    A decoding field is compared with the default with which it was introduced, so that tables of
    older results do not change.
    """
    # `resolve_row` without settings gives the paper's base model.
    paper = {**resolve_row({}).model_dump(), **INTRODUCED_DECODING}
    # `probes` follows from the metrics, and a study may not set it.
    left_out = SETTING_FIELDS | NOT_IDENTITY | {"probes"}
    settings = {}
    for name, value in planned.base.config.model_dump().items():
        if name in left_out:
            continue
        if name in planned.study.task.shown_fields or value != paper[name]:
            settings[name] = value
    return settings


def _cost(planned: Runs, row: Row, runs: Sequence[RunResult], results: Results) -> TrainingCost:
    """The cost of a row, measured in its finished runs."""
    seconds: dict[int, float] = {}  # by seed
    rates: dict[int, float] = {}  # by seed
    machines: set[str] = set()
    steps_made: list[int] = []
    for run in runs:
        if run.result is None or run.decoding is None:
            continue
        steps_made.append(run.result.steps)
        if run.seconds:
            seconds[run.run.seed] = run.seconds
        if run.tokens_per_second is not None:
            rates[run.run.seed] = run.tokens_per_second
        if run.provenance:
            machines.update(map(machine_text, run.provenance.all_parts))
    flops = None
    if steps_made:
        steps = sum(steps_made) / len(steps_made)
        lengths = lengths_of(runs, results)
        flops = flops_per_step(planned, row, lengths) * row.config.mean_steps(steps)
    return TrainingCost(Scores(seconds), Scores(rates), flops, tuple(sorted(machines)))


def flops_per_step(planned: Runs, row: Row, lengths: Lengths | None) -> float:
    """Mean FLOPs of an optimizer step of a row, in closed form from the sentence lengths of its
    corpus; None for assumed lengths.
    """
    vocab_size = planned.data_of(row).vocab_size
    return cost.flops_per_step(row.config, vocab_size, lengths or Lengths.assumed())


def lengths_of(runs: Sequence[RunResult], results: Results) -> Lengths | None:
    """Sentence lengths of the corpus of the first finished run; None if no run is finished."""
    for run in runs:
        if run.result is not None and run.decoding is not None:
            return lengths_in(results.corpus(run.result.corpus))
    return None


def machine_text(provenance: Provenance) -> str:
    """The device of a run: `cpu (1 thread), Some Processor`, or the name of the GPU."""
    if provenance.device != "cpu":
        return provenance.device
    return f"cpu ({plural(provenance.threads, 'thread')}), {provenance.machine.processor}"


def paper_row(paper: PaperTable | None, row: Row, base: Row) -> PaperRow | None:
    """The row of the paper's table that changes the same fields by the same factors; None if there
    is none.
    """
    if paper is None:
        return None
    derived = _derived_heads(row)
    changed = {}
    for name, value in row.changed.items():
        if name in paper.base and name not in derived:
            changed[name] = value
    # The row changes only fields that are constant in the paper's table.
    if not changed and row.changed:
        return None
    match = paper.counterpart({name: getattr(base.config, name) for name in paper.base}, changed)
    if match is None:
        return None
    # Only the paper's big model is trained with another recipe than its base.
    recipe = paper.recipe if match.group == "big" else ()
    further = row.changed.keys() - {*paper.base, *recipe}
    if further == {"learning_rate"} and _rate_follows_width(base, row):
        return match
    return None if further else match


def _rate_follows_width(base: Row, row: Row) -> bool:
    """Whether the learning rates of a row and of base are proportional to 1 / sqrt(d_model), as in
    the schedule of the paper (section 5.3), within 2 %.
    """
    base_rate = base.config.learning_rate
    rate = row.config.learning_rate
    if base_rate is None or rate is None:
        return False
    factor = math.sqrt(base.config.d_model / row.config.d_model)
    return math.isclose(rate, base_rate * factor, rel_tol=0.02)
