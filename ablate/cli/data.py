"""`ablate data`: the corpora there are, what a study's corpus holds, and preparing it ahead of a run."""

from __future__ import annotations

import json
from enum import Enum
from typing import Annotated

import typer

from ablate.cli.options import (
    DEFAULT_RESULTS,
    Offline,
    Overrides,
    ResultsRoot,
    Rows,
    StudyFile,
    go_offline,
    study_and_results,
)
from ablate.store import Results

app = typer.Typer(help="Corpora: which there are, what one holds, prepare one.")


class Format(str, Enum):
    """Forms of what is shown."""

    rich = "rich"
    json = "json"


Form = Annotated[Format, typer.Option("--format", help="rich to read, json for scripts.")]


@app.command(name="list")
def list_corpora(results: ResultsRoot = DEFAULT_RESULTS, format: Form = Format.rich) -> None:
    """List the corpora that go by a name, and those that are prepared here."""
    from ablate.data.listing import named_corpora, prepared_corpora

    named, prepared = named_corpora(), prepared_corpora(Results(results).corpora)
    if format is Format.json:
        typer.echo(json.dumps({"named": named, "prepared": prepared}, indent=1))
        return
    from ablate.report.data_text import print_list

    print_list(named, prepared)


@app.command()
def show(
    study: StudyFile,
    results: ResultsRoot = DEFAULT_RESULTS,
    set: Overrides = None,
    offline: Offline = False,
    format: Form = Format.rich,
) -> None:
    """Show what a study's corpus holds: its sources, sizes, lengths, vocabulary and a sample. It is prepared first."""
    go_offline(offline)
    content, root = study_and_results(study, results, set, None, None)
    from ablate.data.listing import portrait
    from ablate.data.prepare import prepare

    corpus = prepare(content.data_of(content.base), content.data_folder, root.corpora, _tell)
    shown = portrait(corpus)
    if format is Format.json:
        typer.echo(json.dumps(shown, indent=1, ensure_ascii=False))
        return
    from ablate.report.data_text import print_portrait

    print_portrait(shown)


@app.command()
def prepare(
    study: StudyFile,
    results: ResultsRoot = DEFAULT_RESULTS,
    set: Overrides = None,
    rows: Rows = None,
    offline: Offline = False,
) -> None:
    """Download and prepare what a study's runs are trained on, and verify every file of it."""
    go_offline(offline)
    content, root = study_and_results(study, results, set, rows, None)
    from ablate.data.prepare import prepare

    for data in dict.fromkeys(content.data_of(row) for row in content.rows):
        corpus = prepare(data, content.data_folder, root.corpora, _tell)
        corpus.verify(every=True)
        typer.echo(f"{corpus.folder}: {corpus.manifest['pairs']['train']:,} pairs, V={data.vocab_size:,}")


def _tell(line: str) -> None:
    typer.echo(line, err=True)
