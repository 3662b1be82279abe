"""`ablate data`: list corpora, describe the corpus of a study, prepare it before a run."""

from __future__ import annotations

from functools import partial

import typer

from ablate.cli.launch_lines import training_records_text
from ablate.cli.options import (
    DEFAULT_RESULTS,
    DEFAULT_STUDY,
    Offline,
    Overrides,
    ResultsRoot,
    Rows,
    StudyFile,
    StudyOptions,
    go_offline,
)
from ablate.cli.output import Format
from ablate.cli.usage import Command, CommandGroup
from ablate.report.data_text import (
    description_of,
    named_corpora,
    prepared_corpora,
    print_description,
    print_list,
)
from ablate.stdio import echo, print_json
from ablate.store import Results
from ablate.store.corpora import with_labels
from ablate.study import runs_of
from ablate.tasks import TASKS

print_note = partial(echo, err=True)
app = typer.Typer(cls=CommandGroup, rich_markup_mode="rich", add_completion=False)


@app.callback()
def command() -> None:
    """List, describe and prepare corpora."""


@app.command(name="list", cls=Command, epilog="Example: [bold]ablate data list[/bold]")
def list_corpora(results: ResultsRoot = DEFAULT_RESULTS, format: Format = "text") -> None:
    """List named corpora, and corpora that are already prepared."""
    named = named_corpora(TASKS.values())
    prepared = prepared_corpora(Results(results).corpora)
    if format == "json":
        print_json({"named": named, "prepared": prepared})
    else:
        print_list(named, prepared)


@app.command(cls=Command, epilog="Example: [bold]ablate data show study.yaml[/bold]")
def show(
    study: StudyFile = DEFAULT_STUDY,
    results: ResultsRoot = DEFAULT_RESULTS,
    set: Overrides = None,
    offline: Offline = False,
    format: Format = "text",
) -> None:
    """Prepare a study's corpus and show its sources, counts, lengths, vocabulary and a sample."""
    go_offline(offline)
    content, root = StudyOptions(results, set).read(study, may_be_new=True)
    corpus = content.prepare(runs_of(content).data_of(content.base), root.corpora, print_note)
    description = description_of(corpus)
    description["noticed"] += content.task.notes_on_scores(corpus, content.metrics.shown)
    noticed = with_labels(description["noticed"], corpus.manifest, content.data.labels)
    description["noticed"] = noticed
    if format == "json":
        print_json(description)
    else:
        print_description(description, corpus.manifest, content.data.labels)


@app.command(cls=Command, epilog="Example: [bold]ablate data prepare study.yaml --offline[/bold]")
def prepare(
    study: StudyFile = DEFAULT_STUDY,
    results: ResultsRoot = DEFAULT_RESULTS,
    set: Overrides = None,
    rows: Rows = None,
    offline: Offline = False,
    format: Format = "text",
) -> None:
    """Download and prepare the corpora of a study, and verify every file."""
    go_offline(offline)
    content, root = StudyOptions(results, set, rows).read(study, may_be_new=True)
    prepared = []
    # Rows with different vocabularies use different corpora.
    for data in dict.fromkeys(map(runs_of(content).data_of, content.rows)):
        corpus = content.prepare(data, root.corpora, print_note)
        corpus.verify(hash_large=True)
        notes = [*corpus.manifest.all_warnings]
        notes += content.task.notes_on_scores(corpus, content.metrics.shown)
        notes = with_labels(notes, corpus.manifest, data.labels)
        prepared.append(
            {
                "corpus": corpus.id,
                "records": corpus.manifest.records,
                "left_out": corpus.manifest.left_out,
                "vocab_size": data.vocab_size,
                "notes": notes,
            }
        )
        if format == "text":
            train = training_records_text(corpus.manifest)
            echo(f"{corpus.folder}: {train}, V={data.vocab_size:,}")
            for line in notes:
                print_note(f"note: {line}")
    if format == "json":
        print_json({"study": content.name, "corpora": prepared})
