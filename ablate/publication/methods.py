"""The methods section of a paper on a study, from its settings and records: what was compared, on
which text, how it was trained, chosen, scored and judged, what it cost, and what it leaves open.

Every sentence states what the study or its records say. What they do not say is left to the author.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from ablate.analysis.outcome import Outcome
from ablate.config import RowConfig
from ablate.config.model import ModelConfig
from ablate.config.resolve import SETTING_FIELDS, SYMBOL_OF, resolve_row
from ablate.config.training import TrainingConfig
from ablate.fields import Section as Fields
from ablate.formatting import enumeration, first_few, millions, plural, setting_text
from ablate.publication.bibliography import cite, cite_setting
from ablate.publication.compute import compute
from ablate.stats.bootstrap import RESAMPLES
from ablate.stats.metrics import Metric
from ablate.stats.significance import LEVEL, POWER
from ablate.store import Results, if_readable
from ablate.store.corpora import MANIFEST
from ablate.store.records import CorpusManifest
from ablate.study.row import changes
from ablate.table.experiment import Experiment
from ablate.table.table import Table, TableRow

_ALWAYS_SAID = ("vocab_size", "tokenizer", "train", "dev", "test")  # of the data settings


@dataclass(frozen=True)
class Section:
    """A section of a text, with citations as Pandoc's Markdown has them."""

    title: str
    paragraphs: tuple[str, ...]


def methods(outcome: Outcome, results: Results) -> list[Section]:
    """The sections of a study's methods, its compute and its limitations."""
    table = outcome.table
    base = outcome.planned.base.config
    return [
        Section("Models", (_base(table, base), _rows(table))),
        Section("Data", tuple(_data(outcome, results))),
        Section("Training", (_training(base), _selection(table))),
        Section("Evaluation", tuple(_evaluation(outcome, base))),
        Section("Statistics", (_seeds(table.experiment), _test(table.experiment))),
        Section("Compute", tuple(compute(outcome, results))),
        Section("Limitations", tuple(limitations(outcome))),
    ]


def _setting(name: str, value: Any) -> str:
    """`norm=rmsnorm`, with its citation."""
    return f"{SYMBOL_OF.get(name, name)}={setting_text(value)}{cite_setting(name, value)}"


def _departures(config: RowConfig, section: type[Fields], said: Collection[str]) -> list[str]:
    """The settings of a section that differ from the original Transformer's, but for those that are
    said elsewhere.
    """
    departures = []
    for name, value in changes(config, resolve_row({})).items():
        if name in section.model_fields and name not in said:
            departures.append(_setting(name, value))
    return departures


def _base(table: Table, config: RowConfig) -> str:
    recipe = table.rows[0].recipe
    setup = table.experiment.setup
    assert setup is not None
    sizes = []
    for column in setup.settings:
        value = recipe.settings.get(column.field)
        if value is not None and column.field in ModelConfig.model_fields:
            sizes.append(f"{column.head}={setting_text(value)}")
    text = (
        f"The base model is a Transformer{cite('Transformer')} with {enumeration(sizes)}, and "
        f"{millions(recipe.params)} million parameters."
    )
    departures = _departures(config, ModelConfig, SETTING_FIELDS)
    if departures:
        text += f" It differs from the original in {enumeration(departures)}."
    return text


def _rows(table: Table) -> str:
    rows = [row for row in table.rows if not row.row.is_base]
    text = (
        f"{plural(len(rows), 'row')} of the table differ from base in the settings shown, and in "
        "nothing else."
    )
    parts: dict[str, None] = {}
    matched = []
    for row in rows:
        for name, value in row.recipe.changed.items():
            if cite_setting(name, value):
                parts[_setting(name, value)] = None
        if row.recipe.matched:
            matched.append(row.label)
    if parts:
        text += f" Among them are {enumeration(parts)}."
    if matched:
        text += f" The cost of base is matched in {first_few(matched)}."
    return text


def _data(outcome: Outcome, results: Results) -> Iterator[str]:
    settings = []
    data = outcome.study.data
    defaults = type(data).model_fields
    for name, value in data.model_dump(exclude={"folder"}).items():
        if name in _ALWAYS_SAID or (value is not None and value != defaults[name].default):
            settings.append(f"{name}={setting_text(value)}{cite_setting(name, value)}")
    yield f"Task: {outcome.study.task.name}. Data: {', '.join(settings)}."
    for corpus in outcome.experiment.corpora:
        path = results.corpus(corpus) / MANIFEST
        manifest = if_readable(partial(CorpusManifest.read, path))
        if manifest is None:
            continue
        sizes = [f"{count:,} {split}" for split, count in manifest.pairs.items()]
        left_out = [f"{count:,} ({why})" for why, count in manifest.left_out.items() if count]
        text = f"Corpus {corpus} has {enumeration(sizes)} items."
        yield f"{text} Left out: {'; '.join(left_out)}." if left_out else text


def _training(config: RowConfig) -> str:
    length = f"{config.train_steps:,} steps"
    if config.epochs is not None:
        length = f"{config.epochs:g} epochs"
    rate = "that of the original paper"
    if config.learning_rate is not None:
        rate = f"{config.learning_rate:g}"
    schedule = _setting("schedule", config.schedule)
    text = (
        f"Base is trained for {length} of {config.batch_tokens:,} tokens with "
        f"{_setting('optimizer', config.optimizer)}; the peak learning rate is {rate}, after "
        f"{config.warmup_steps:,} steps of warm-up, with {schedule}. "
        f"Dropout{cite('dropout')} is {config.dropout:g}, and label smoothing"
        f"{cite('label_smoothing')} {config.label_smoothing:g}."
    )
    said = {"train_steps", "epochs", "batch_tokens", "optimizer", "learning_rate", "warmup_steps"}
    said |= {"schedule", "dropout", "label_smoothing", "eval_every", "checkpoint_every"}
    if further := _departures(config, TrainingConfig, said):
        text += f" Further settings: {', '.join(further)}."
    return f"{text} Settings that are not named are those of the original Transformer."


def _selection(table: Table) -> str:
    tuned = [row for row in table.rows if row.recipe.tuned]
    legends = {row.recipe.tuned.legend: None for row in tuned if row.recipe.tuned}
    if not tuned:
        return (
            "No setting was chosen by the tool: each row has base's values but for the settings "
            "shown."
        )
    rows = "every row"
    if len(tuned) < len(table.rows):
        rows = first_few([row.label for row in tuned])
    ways = "; ".join(legends).removesuffix(".")
    return f"Settings were chosen for {rows} ({ways}). The test split had no part."


def _evaluation(outcome: Outcome, config: RowConfig) -> Iterator[str]:
    experiment = outcome.experiment
    measured = []
    for metric in dict.fromkeys((*experiment.shown, *experiment.judged)):
        signature = "; ".join(experiment.signatures.get(metric.name, ()))
        split = experiment.test_sets.get(metric.name, metric.side)
        measured.append(f"{metric.title}{cite(metric.name)} ({split}; {signature})")
    yield f"Scores: {'; '.join(measured)}."
    if not outcome.study.task.prediction_metric_names:
        return
    text = "Weights are those of the last checkpoint"
    if config.average_checkpoints > 1:
        text = f"Weights are averaged over {config.average_checkpoints} checkpoints"
    searches = any("beam" in section.model_fields for section in outcome.study.task.settings)
    if searches:
        text += (
            f", and predictions are decoded with beam={config.beam} and a length penalty"
            f"{cite('length penalty')} of alpha={config.alpha:g}"
        )
    yield f"{text}."


def _seeds(experiment: Experiment) -> str:
    text = f"Each row is trained with {plural(len(experiment.seeds), 'seed')}"
    if experiment.further_seeds:
        total = len(experiment.seeds) + len(experiment.further_seeds)
        text += f", and base with {total}"
    if experiment.standing.has_looks:
        looks = ", ".join(map(str, experiment.standing.plan))
        text += f"; the study is judged at {looks} seeds, by a uniform spending of the error"
        text += cite("looks")
    return f"{text}."


def _test(experiment: Experiment) -> str:
    if len(experiment.seeds) == 1:
        return "One seed shows no variance over seeds, so no row has a verdict."
    shared = ", shared equally by the metrics" if len(experiment.judged) > 1 else ""
    titles = enumeration(metric.title for metric in experiment.judged)
    text = (
        f"A row is called worse or better than base by {titles} if its mean difference, paired by "
        f"seed, passes two t tests over seeds at {LEVEL:g}{shared}: one with the variance that the "
        f"rows share, by Holm's method{cite('multiple comparisons')} for "
        f"{plural(experiment.tests, 'row')}, and one with the variances of the row and of base "
        f"alone. Scores of test items add the variance of {RESAMPLES:,} bootstrap samples"
        f"{cite('bootstrap')}."
    )
    margins = []
    for name, margin in experiment.margins.items():
        margins.append(_margin(experiment.metrics[name], margin))
    if margins:
        text += (
            f" A row is called as good as base if its difference is significantly smaller than "
            f"{enumeration(margins)}{cite('equivalence')}."
        )
    if experiment.error > LEVEL:
        text += (
            f" The rule of judgment was changed after a verdict: the error of all verdicts is at "
            f"most {experiment.error:.0%}."
        )
    return text


def _margin(metric: Metric, margin: float) -> str:
    return f"{metric.size_text(margin)} {metric.title}"


def limitations(outcome: Outcome) -> Iterator[str]:
    """Yield what the study could not show, a sentence each."""
    table = outcome.table
    for metric in table.judged:
        undecided = []
        for row in table.rows:
            verdict = row.verdicts.get(metric.name)
            if verdict is not None and verdict.word == "cannot tell":
                undecided.append(_undecided(row, metric))
        if undecided:
            yield (
                f"By {metric.title}, the study does not tell whether these rows differ from base, "
                f"with the detectable difference at {POWER:.0%} power where it is known: "
                f"{', '.join(undecided)}."
            )
    unfinished = [row.label for row in table.rows if row.state != "done"]
    if unfinished:
        yield f"Not all seeds of {first_few(unfinished)} have a score."
    if not table.experiment.margins:
        yield "No margin of equivalence was stated, so no row can be called as good as base."
    if not any(row.recipe.tuned for row in table.rows):
        yield (
            "Rows have base's learning rate and other settings; a row may be better with values of "
            "its own."
        )
    if len(table.experiment.corpora) == 1:
        yield "All rows are trained and tested on one corpus."
    yield from table.experiment.notes.remarks


def _undecided(row: TableRow, metric: Metric) -> str:
    detectable = row.verdicts[metric.name].minimum_detectable
    if detectable is None:
        return row.label
    return f"{row.label} ({metric.size_text(detectable)})"
