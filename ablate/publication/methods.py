"""The methods section of a paper on a study, from its settings and records: what was compared, on
which text, how it was trained, chosen, scored and judged, what it cost, and what it leaves open.

The sentences are in templates/methods.md. Each states what the study or its records say; the rest
is left to the author.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from statistics import mean
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from ablate.analysis.outcome import Outcome
from ablate.config import RowConfig
from ablate.config.data import CorpusConfig
from ablate.config.model import ModelConfig
from ablate.config.resolve import SETTING_FIELDS, SYMBOL_OF, resolve_row
from ablate.config.training import TrainingConfig
from ablate.fields import Section
from ablate.formatting import (
    enumeration,
    first_few,
    flops_text,
    millions,
    percent,
    plural,
    setting_text,
)
from ablate.publication.bibliography import cite, cite_corpus, cite_setting, latex_text
from ablate.publication.compute import compute_of
from ablate.stats.bootstrap import RESAMPLES
from ablate.stats.metrics import PPL, PPL_CHAR
from ablate.stats.significance import LEVEL, POWER
from ablate.store import Results, none_if_unreadable
from ablate.store.corpora import MANIFEST
from ablate.store.records import CorpusManifest
from ablate.study.row import changes
from ablate.table.columns.rows import derived_heads, settings_of_labels
from ablate.table.conclusion import (
    bound_sentences,
    leak_sentences,
    unfinished_sentences,
    unlearned_limits,
)
from ablate.table.experiment import ChosenSettings, Experiment
from ablate.table.latex import escaped
from ablate.table.table import Table

# Settings of the data that have a sentence, or that do not change it.
_DATA_TEXT = {"corpus", "folder", "direction", "train", "dev", "test", "vocab_size"}
# Settings of training that have a place in a sentence, or that do not change a model.
_TRAINING_TEXT = (
    "train_steps", "epochs", "batch_tokens", "optimizer", "learning_rate", "warmup_steps",
    "schedule", "dropout", "label_smoothing", "eval_every", "checkpoint_every",
)  # fmt: skip
_SHARE = re.compile(r"[\d.]+%?")


@cache
def environment() -> Environment:
    """The environment of `templates/`, whose texts are Markdown and LaTeX."""
    templates = Environment(
        loader=PackageLoader("ablate.publication"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    texts = (enumeration, escaped, first_few, flops_text, latex_text, millions, percent, plural)
    for text in texts:
        templates.filters[text.__name__] = text
    templates.globals |= {"cite": cite, "cite_corpus": cite_corpus, "setting": _setting}
    templates.globals |= {"LEVEL": LEVEL, "POWER": POWER, "RESAMPLES": RESAMPLES}
    return templates


def methods(outcome: Outcome, results: Results) -> dict[str, str]:
    """The sections of a study's methods, its compute and its limitations: texts by title, with
    citations as Pandoc's Markdown has them.
    """
    template = environment().get_template("methods.md")
    context = template.new_context(_facts(outcome, results))
    return {title: "".join(block(context)).strip() for title, block in template.blocks.items()}


def artifacts(outcome: Outcome) -> str:
    """Sentences: the software and the corpus of a study with their citations, and whether the
    authors have to cite the corpus themselves.
    """
    data = outcome.study.data
    uses = [f"{name}{cite(name)}" for name in ("ablate", "PyTorch")]
    tokenizer = cite(f"tokenizer={getattr(data, 'tokenizer', None)}")
    if tokenizer:
        uses.append(f"SentencePiece{tokenizer}")
    scorers: dict[str, None] = {}
    for metric in outcome.experiment.shown:
        if metric.scorer:
            scorers[f"{metric.scorer}{cite(metric.name)}"] = None
    uses += scorers
    if not data.generated and (paper := cite_corpus(data)):
        uses.append(f"the corpus {data.corpus}{paper}")
    sentences = [
        f"The study uses {enumeration(uses)}.",
        "The methods also cite the papers of the parts, of the optimizer and of the tests.",
        uncited_corpus(outcome),
    ]
    return "\n".join(filter(None, sentences))


def uncited_corpus(outcome: Outcome) -> str:
    """A sentence if the authors have to cite the corpus themselves, because its source is unknown;
    otherwise empty.
    """
    data = outcome.study.data
    if data.generated or cite_corpus(data):
        return ""
    return f"Cite the source of the data (corpus {data.corpus}) by hand: no record names its paper."


def _facts(outcome: Outcome, results: Results) -> dict[str, Any]:
    """The variables of methods.md."""
    table, experiment, task = outcome.table, outcome.experiment, outcome.study.task
    config = outcome.planned.base.config
    rows = [row for row in table.rows if not row.is_base]
    tuned = {row.label: row.recipe.tuned for row in table.rows if row.recipe.tuned}
    matched = [row.label for row in rows if row.recipe.matched]
    rules = [row.matched.rule for row in outcome.study.rows if row.matched]
    cost = compute_of(outcome, results)
    return {
        "table": table,
        "experiment": experiment,
        "task": task,
        "config": config,
        "base": table.rows[0],
        "rows": rows,
        "sizes": _sizes(table),
        "model_settings": _departures(config, ModelConfig, SETTING_FIELDS),
        "labels": [f"{label} ({settings})" for label, settings in settings_of_labels(table)],
        "derived_heads": derived_heads(table),
        "length_of_training": _length_of_training(config),
        "trained_tokens": _trained_tokens(outcome, results),
        "sharing": _sharing(outcome.study.data),
        "own_corpus": Path(outcome.study.data.folder or "").name,
        "training_settings": _departures(config, TrainingConfig, _TRAINING_TEXT),
        "data": outcome.study.data,
        "data_settings": list(_data_settings(outcome)),
        "cited_changes": _cited_changes(table),
        "custom_classes": [
            f"{custom.written} ({custom.written_file})" for custom in outcome.study.custom_classes
        ],
        "matched": matched,
        "ways_of_matching": "; ".join(dict.fromkeys(rules)),
        "tuned": list(tuned),
        "untuned": [
            row.label
            for row in rows
            if row.label not in tuned and not row.has_runs_of(table.by_label[row.base])
        ],
        "grid": _grid(tuned.values()),
        "tuning_runs": " and ".join({choice.trainings: None for choice in tuned.values()}),
        "judges_tuning_split": any(metric.side == "dev" for metric in table.shown_metrics),
        "edges": [label for label, choice in tuned.items() if choice.content["edges"]],
        "splits": _splits(outcome.study.data),
        "corpora": list(_corpora(experiment, results)),
        "scores": list(_scores(table)),
        "searches": any("beam" in section.model_fields for section in task.settings),
        "n_seeds": len(experiment.seeds),
        "n_further": len(experiment.further_seeds),
        "margins": list(_margins(experiment)),
        "cost": cost,
        "times": [_time(hours, kind) for kind, hours in sorted(cost.hours.items())],
        "undecided_rows": list(_undecided_rows(table)),
        "bounds": [*leak_sentences(table), *unlearned_limits(table), *bound_sentences(table)],
        "unfinished": unfinished_sentences(table),
        "without_score": [row.label for row in table.rows if row.state != "done"],
    }


def _setting(name: str, value: Any) -> str:
    """`norm=rmsnorm`, with its citation."""
    return f"{SYMBOL_OF.get(name, name)}={setting_text(value)}{cite_setting(name, value)}"


def _departures(config: RowConfig, section: type[Section], named: Collection[str]) -> list[str]:
    """The settings of a section that differ from the original Transformer, except the settings
    that the text names elsewhere.
    """
    departures = []
    for name, value in changes(config, resolve_row({})).items():
        if name in section.model_fields and name not in named:
            departures.append(_setting(name, value))
    return departures


def _sizes(table: Table) -> list[str]:
    """The sizes of base: `N=6`, `d_model=512`."""
    sizes = []
    for column in table.experiment.setup.settings:
        value = table.rows[0].recipe.settings.get(column.field)
        if value is not None and column.field in ModelConfig.model_fields:
            sizes.append(f"{column.head}={setting_text(value)}")
    return sizes


def _cited_changes(table: Table) -> list[str]:
    """The changes of rows that come from a paper."""
    cited: dict[str, None] = {}
    for row in table.rows:
        for name, value in row.recipe.changed.items():
            if cite_setting(name, value):
                cited[_setting(name, value)] = None
    return list(cited)


def _length_of_training(config: RowConfig) -> str:
    """`4,000 steps`, `8 epochs`, or the rule of early stopping."""
    if config.epochs is not None:
        return f"{config.epochs:g} epochs"
    if config.train_steps is not None:
        return f"{config.train_steps:,} steps"
    return f"as many steps as early stopping allows (patience of {config.patience} evaluations)"


def _trained_tokens(outcome: Outcome, results: Results) -> str:
    """The target tokens of base's finished runs, and their number over the target tokens of the
    training set; empty without a finished run that knows them.
    """
    tokens: list[int] = []
    epochs: list[float] = []
    for run in outcome.table.rows[0].runs:
        result = none_if_unreadable(results.run(run.id).read_result)
        if result is None or result.tokens is None:
            continue
        tokens.append(result.tokens)
        path = results.corpus(result.corpus) / MANIFEST
        manifest = none_if_unreadable(partial(CorpusManifest.read, path))
        size = manifest.lengths.get("target_tokens") if manifest else None
        if size and not outcome.study.data.draws_items:
            epochs.append(result.tokens / size)
    if not tokens:
        return ""
    text = f"{round(mean(tokens)):,} target tokens"
    if epochs:
        text += f", which is {mean(epochs):.1f} times the training set"
    return f"{text} (mean over seeds)" if len(set(tokens)) > 1 else text


def _sharing(data: CorpusConfig) -> str:
    """Whether two languages share the vocabulary; empty for a task on one language."""
    if data.separate_vocabularies:
        return "for each of the two languages"
    return "that both languages share" if data.fields == ("source", "target") else ""


def _data_settings(outcome: Outcome) -> Iterator[str]:
    data = outcome.study.data
    defaults = type(data).model_fields
    for name, value in data.model_dump(exclude=_DATA_TEXT).items():
        if name == "tokenizer" or (value is not None and value != defaults[name].default):
            yield f"{name}={setting_text(value)}{cite_setting(name, value)}"


def _corpora(
    experiment: Experiment, results: Results
) -> Iterator[tuple[str, list[str], int | None, list[str]]]:
    """Yield (id, sizes of the splits, number of training tokens, numbers of records that were left
    out). The number of tokens is None for corpora of records with several fields.
    """
    for corpus in experiment.corpora:
        path = results.corpus(corpus) / MANIFEST
        manifest = none_if_unreadable(partial(CorpusManifest.read, path))
        if manifest is not None:
            sizes = [f"{count:,} {split}" for split, count in manifest.records.items()]
            left_out = [f"{count:,} ({why})" for why, count in manifest.left_out.items() if count]
            yield corpus, sizes, manifest.lengths.get("text_tokens"), left_out


def _scores(table: Table) -> Iterator[str]:
    """Yield each metric with its split and signature: `BLEU on test_2016_flickr (...)`."""
    experiment = table.experiment
    for metric in dict.fromkeys((*experiment.shown, *experiment.judged, *table.shown_metrics)):
        signature = "; ".join(experiment.signatures.get(metric.name, ()))
        split = experiment.test_sets.get(metric.name, metric.side)
        if _SHARE.fullmatch(split):  # of the training text, or a number of generated items
            split = metric.side
        name = f"perplexity ({metric.title})" if metric in (PPL, PPL_CHAR) else metric.title
        yield f"{name}{cite(metric.name)} on {split} ({signature})"


def _grid(choices: Iterable[ChosenSettings]) -> list[str]:
    """Each tuned field with its values: `learning_rate (0.002, 0.005)`."""
    values: dict[str, dict[str, None]] = {}  # by field
    for choice in choices:
        for point in choice.content["grid"]:
            for name, value in point["values"].items():
                values.setdefault(SYMBOL_OF.get(name, name), {})[setting_text(value)] = None
    return [f"{name} ({', '.join(texts)})" for name, texts in values.items()]


def _splits(data: CorpusConfig) -> str:
    """The training, development and test sets, if their names say more than the split; with shares
    of the training text, and numbers of generated items.
    """
    if data.draws_items or data.repeats_items:
        train = "items drawn anew in every step" if data.draws_items else f"{data.train} items"
        return f"{train} for training, {data.dev} for development and {data.test} for the test"
    splits = [data.train, data.dev, data.test]
    if splits == ["train", "dev", "test"]:
        return ""
    if not any(map(_SHARE.fullmatch, splits)):
        return f"{enumeration(splits)} as training, development and test sets"
    dev, test = (
        f"{split} of its text" if _SHARE.fullmatch(split) else split for split in splits[1:]
    )
    if data.tests_on_dev:
        return f"{data.train} as training set, and {dev} as development set and test set"
    return f"{data.train} as training set, {dev} as development set and {test} as test set"


def _time(hours: float, kind: str) -> str:
    """`2.5 GPU hours`, `6 CPU core minutes`."""
    if hours >= 1:
        return f"{hours:.1f} {kind} hours"
    return plural(max(1, round(60 * hours)), f"{kind} minute")


def _margins(experiment: Experiment) -> Iterator[str]:
    for name, margin in experiment.margins.items():
        metric = experiment.metrics[name]
        yield f"{metric.size_text(margin)} {metric.title}"


def _undecided_rows(table: Table) -> Iterator[tuple[str, list[str]]]:
    """Yield (title, rows with their detectable difference) of each metric with undecided rows."""
    for metric in table.judged_metrics:
        texts = []
        for row in table.rows:
            verdict = row.verdicts.get(metric.name)
            if verdict is None or verdict.word != "cannot tell":
                continue
            text = row.label
            if verdict.minimum_detectable is not None:
                text += f" ({metric.size_text(verdict.minimum_detectable)})"
            texts.append(text)
        if texts:
            yield metric.title, texts
