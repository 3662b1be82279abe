"""`ablate report`: the results of a study as one self-contained web page."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ablate.analysis.curves import curves_of
from ablate.analysis.outcome import Outcome
from ablate.cli.arguments import option
from ablate.cli.options import DEFAULT_STUDY, StudyFile, StudyOptions
from ablate.cli.output import Format, print_faults, print_written
from ablate.cli.scoring import outcome_to_show
from ablate.errors import Damaged, Fault, UsageError, refuse_output, wrong_option
from ablate.publication.folder import without_paths
from ablate.publication.name import claim
from ablate.stdio import echo
from ablate.store import Results
from ablate.store.corpora import is_archived
from ablate.store.files import write_bytes

if TYPE_CHECKING:
    from ablate.page.page import Attention, Example

EXAMPLE = "ablate report study.yaml --figures figures"
FILE = "report.html"
FIGURE_KINDS = ("pdf", "png", "svg")  # ablate.plotting.FORMATS, which loads matplotlib


def command(
    study: StudyFile = DEFAULT_STUDY,
    *,
    options: StudyOptions,
    out: Annotated[
        Path | None,
        option("Output file.", "FILE", show_default="report.html in the study's results"),
    ] = None,
    figures: Annotated[
        Path | None, option("Also write the figures here, as PDF, PNG and SVG.", "DIR")
    ] = None,
    sentences: Annotated[int, option("Number of sample translations.", "N", min=0, max=1000)] = 5,
    attention: Annotated[
        str | None, option("Add base's attention weights for this sentence.", "TEXT")
    ] = None,
    format: Format = "text",
) -> None:
    """Write one HTML page: table, curves, costs, samples, provenance."""
    from ablate.page.study_page import study_page

    planned, root = options.open(study)
    content = planned.study
    _refuse_undrawable(figures)
    if out is not None:
        refuse_output("--out", out, [content.path])
    if content.source.is_modified and out is None:
        raise UsageError(
            "--set, --rows and --seeds change the study: give --out FILE, to keep the report of "
            "the study"
        )
    outcome = outcome_to_show(planned, root)
    if out is None:
        claim(content, root)
    print_faults(outcome.table)
    curves = curves_of(outcome, root)
    seen = _attention(outcome, root, attention) if attention is not None else None
    # Make the whole page before writing: an error leaves an existing page unchanged.
    examples = _samples(outcome, root, sentences)
    # Figures are cyclic garbage; without the results, it is collected often and quickly.
    gc.freeze()
    text = study_page(without_paths(outcome, root), root, curves, examples, seen)
    path = out or root.study(content.name) / FILE
    # Not durable, because the page can be made again.
    write_bytes(path, text.encode(), durable=False)
    written = [path]
    if figures is not None:
        from ablate.page.sections import figure_files

        for name, figure in figure_files(outcome.table, curves).items():
            write_bytes(figures / name, figure, durable=False)
            written.append(figures / name)
    print_written(written, format)


def _refuse_undrawable(figures: Path | None) -> None:
    """Refuse a path for figures that is not a folder, before any work."""
    if figures is None:
        return
    if figures.exists() and not figures.is_dir():
        raise wrong_option(f"--figures {figures}", "not a folder")
    if figures.suffix.lower().removeprefix(".") in FIGURE_KINDS:
        fault = Fault("is the name of a file", remedy="give a folder, for figures in three formats")
        raise wrong_option(f"--figures {figures}", fault)


def _samples(outcome: Outcome, root: Results, count: int) -> list[Example]:
    """Samples of predictions for the page: generated texts, or predictions for the test split. The
    latter need the text of the corpus, and that all rows have the same corpus.
    """
    from ablate.page.study_page import generated_samples, samples

    generated = generated_samples(outcome, count)
    corpora = outcome.experiment.corpora
    if generated or not count or len(corpora) != 1 or not root.has_corpus(corpora[0]):
        return generated
    folder = root.corpus(corpora[0])
    if is_archived(folder):
        echo(f"{folder}: is of an archive of records, without texts. The page has no samples")
        return []
    from ablate.data.corpus import Corpus

    try:
        return samples(outcome, root, Corpus(folder), count)
    except Damaged as error:
        echo(f"{error}; `ablate run` prepares the corpus again. The page has no samples", err=True)
        return []


def _attention(outcome: Outcome, root: Results, sentence: str) -> Attention:
    """The attention weights of base with the first seed.

    Raises:
        UsageError: that run is not done, or has no attention.
    """
    base = outcome.planned.base
    run = outcome.planned.of(base)[0]
    if outcome.table.rows[0].states[run.seed] != "done":
        problem = "--attention: base is not done with the study's first seed"
        raise UsageError(Fault(problem, remedy=f"`{root.command('run', 'STUDY')}` finishes it"))
    from ablate.attention.figures import draw_weights
    from ablate.attention.weights import attention_layers, attention_weights
    from ablate.page.page import Attention
    from ablate.plotting import render
    from ablate.workers.inference import load_run, predicting_task

    predicting_task(root.run(run.id))
    opened = load_run(root.run(run.id), root, row=base)
    weights = attention_weights(opened, sentence, None, attention_layers(opened.model, [], ()))
    return Attention(base.label, run.id, sentence, render(draw_weights(weights, run.id), "svg"))
