"""The experiment that a study and its results make: rows, runs, scores and recipes for tables."""

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
from ablate.study import choice as tuning
from ablate.study.matching import Matched
from ablate.table import experiment as tables
from ablate.table.experiment import Choice, Cost, Experiment, Recipe, Score, Setup
from ablate.table.looks import Looks
from ablate.table.scores import Scores


def experiment_of(planned: Runs, runs: Mapping[str, Sequence[RunResult]]) -> Experiment:
    """The experiment without recipes: what verdicts follow from.

    Args:
        planned: with the seeds to judge.
        runs: of each row, by its label.
    """
    study, seeds = planned.study, planned.seeds
    metrics = {metric.name: metric for metric in measured_metrics(study)}
    test_sets = {}
    for metric in metrics.values():
        if study.task.scores_items(metric):
            test_sets[metric.name] = study.data.test
    looks = Looks.single_look(len(seeds.rows))
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


def _row(row: Row, runs: Sequence[RunResult]) -> tables.Row:
    return tables.Row(
        row.label,
        row.group,
        row.base,
        tuple(map(_run, runs)),
        size=row.size,
        evaluation=row.decoding,
    )


def _run(run: RunResult) -> tables.Run:
    scores = {}
    for name, score in run.scores.items():
        resamples = score.resamples if isinstance(score, Measurement) else ()
        scores[name] = Score(score.value, resamples, score.parts)
    return tables.Run(
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
    """The experiment with the recipe of each row, and the setup of the study.

    Args:
        experiment: of the study.
        planned: whose rows these are.
        runs: of each row, by its label.
        results: root of the results, with the lengths of the corpora.
    """
    rows = []
    for row in experiment.rows:
        recipe = _recipe(planned, planned.by_label[row.label], runs[row.label], results)
        rows.append(replace(row, recipe=recipe))
    return replace(experiment, rows=tuple(rows), setup=_setup(planned))


def _recipe(planned: Runs, row: Row, runs: Sequence[RunResult], results: Results) -> Recipe:
    config, study = row.config, planned.study
    steps = config.train_steps
    for run in runs:
        if run.decoding:
            steps = run.steps
    # As counted by the last run that has ended: the closed form does not know the parameters of an
    # own class.
    params = runs[-1].params
    for run in runs:
        if run.result:
            params = run.params
    derived = {name for name in ("d_k", "d_v") if config.has_derived_heads(name)}
    return Recipe(
        settings={setting.field: getattr(config, setting.field) for setting in SETTINGS},
        changed=row.changed,
        changes=tuple(settings_text({name: value}) for name, value in row.changed.items()),
        derived=frozenset(derived),
        other=_other_changes(row),
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


def _other_changes(row: Row) -> str:
    """Changes of fields that are no columns of Table 3, or a label that does not show them; chosen
    fields have their own column.
    """
    if row.is_labeled or row.has_parts:
        return row.label
    with_column = set(SETTING_FIELDS)
    if row.choice:
        with_column.update(row.choice.candidates[0].values)
    changed = row.changed.items()
    return settings_text({name: value for name, value in changed if name not in with_column})


def _matched(matched: Matched) -> Choice:
    text = f"{matched.field}={matched.value}"
    return Choice(text, matched.legend, matched.as_json())


def _tuned(choice: tuning.Choice) -> Choice:
    candidates = []
    losses = choice.losses or [None] * len(choice.candidates)
    for candidate, loss in zip(choice.candidates, losses, strict=True):
        is_chosen = candidate == choice.chosen
        candidates.append(tables.Candidate(candidate.label, loss, is_chosen))
    return Choice(
        choice.text, choice.legend, choice.as_json(), tuple(candidates), choice.sensitivity
    )


def _setup(planned: Runs) -> Setup:
    study, base = planned.study, planned.base
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
        paper=paper,
        is_as_paper=is_as_paper,
    )


def _other_settings(planned: Runs) -> dict[str, object]:
    """Base's settings without a column: batch, decoding, and all that is not the paper's.

    A decoding field counts from its first default, so that tables of older results keep their text.
    """
    # `resolve_row` without settings gives the paper's base model.
    paper = {**resolve_row({}).model_dump(), **INTRODUCED_DECODING}
    settings = {}
    for name, value in planned.base.config.model_dump().items():
        # `probes` follows from the metrics; who reads it here would write it, which is refused.
        if name in SETTING_FIELDS | NOT_IDENTITY | {"probes"}:
            continue
        if name in planned.study.task.shown_fields or value != paper[name]:
            settings[name] = value
    return settings


def _cost(planned: Runs, row: Row, runs: Sequence[RunResult], results: Results) -> Cost:
    """The cost of a row from its finished runs."""
    seconds, rates, machines = dict[int, float](), dict[int, float](), set[str]()
    made: list[int] = []
    for run in runs:
        if run.result is None or run.decoding is None:
            continue
        made.append(run.result.steps)
        if run.seconds:
            seconds[run.run.seed] = run.seconds
        if run.tokens_per_second is not None:
            rates[run.run.seed] = run.tokens_per_second
        if run.provenance:
            machines.add(machine_text(run.provenance))
    lengths, flops = _lengths(runs, results), None
    # Of the steps made if training has ended, else of those planned.
    steps: float | None = cost.steps(row.config, lengths)
    if made:
        steps = sum(made) / len(made)
    if steps is not None:
        flops = _flops_per_step(planned, row, lengths) * steps
    return Cost(Scores(seconds), Scores(rates), flops, tuple(sorted(machines)))


def flops_per_step(planned: Runs, row: Row, runs: Sequence[RunResult], results: Results) -> float:
    """FLOPs of an optimizer step of a row, in closed form, by the lengths of its corpus."""
    return _flops_per_step(planned, row, _lengths(runs, results))


def _flops_per_step(planned: Runs, row: Row, lengths: Lengths | None) -> float:
    V = planned.data_of(row).vocab_size
    return cost.flops_per_step(row.config, V, lengths or Lengths.assumed())


def _lengths(runs: Sequence[RunResult], results: Results) -> Lengths | None:
    """The lengths of the corpus of the first finished run; None without one."""
    for run in runs:
        if run.result is not None and run.decoding is not None:
            return lengths_in(results.corpus(run.result.corpus))
    return None


def machine_text(provenance: Provenance) -> str:
    """`cpu (1 thread), Some Processor`, or the GPU's name."""
    if provenance.device != "cpu":
        return provenance.device
    return f"cpu ({plural(provenance.threads, 'thread')}), {provenance.machine.processor}"


def paper_row(paper: PaperTable | None, row: Row, base: Row) -> PaperRow | None:
    """The row of the paper's table that changes the same fields by the same factors."""
    if paper is None:
        return None
    changed = {}
    for name, value in row.changed.items():
        # Head sizes of d_model / h follow from h.
        follows = name in ("d_k", "d_v") and row.config.has_derived_heads(name)
        if name in paper.base and not follows:
            changed[name] = value
    # All that the row changes is constant in the paper's table.
    if not changed and row.changed:
        return None
    match = paper.counterpart({name: getattr(base.config, name) for name in paper.base}, changed)
    if match is None:
        return None
    # The paper trains its big model by another recipe too; its other rows share base's.
    recipe = paper.recipe if match.group == "big" else ()
    others = row.changed.keys() - {*paper.base, *recipe}
    if others == {"learning_rate"} and _rate_follows_width(base, row):
        return match
    return None if others else match


def _rate_follows_width(base: Row, row: Row) -> bool:
    """Whether the learning rate of a row is base's over the square root of the width, as in the
    schedule of the paper (section 5.3), to two digits.
    """
    before, after = base.config.learning_rate, row.config.learning_rate
    if before is None or after is None:
        return False
    factor = math.sqrt(base.config.d_model / row.config.d_model)
    return math.isclose(after, before * factor, rel_tol=0.02)
