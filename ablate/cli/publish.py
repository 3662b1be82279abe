"""`ablate publish`: write the results of a study into a folder of small files, for a repository or
the supplement of a paper.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ablate.analysis.curves import curves_of
from ablate.cli.arguments import option
from ablate.cli.options import (
    DEFAULT_RESULTS,
    DEFAULT_STUDY,
    ResultsRoot,
    StudyFile,
    StudyOptions,
    local_folder,
)
from ablate.cli.output import Format, print_faults, print_written
from ablate.cli.scoring import outcome_to_show
from ablate.publication.archive import archive_of
from ablate.publication.crate import METADATA, crate
from ablate.publication.folder import TEXTS, publish, publishable
from ablate.publication.methods import uncited_corpus
from ablate.publication.paper import paper_files
from ablate.stdio import echo
from ablate.store.layout import ARCHIVE
from ablate.table.conclusion import unfinished_sentences

EXAMPLE = "ablate publish study.yaml --out supplement/study"


def command(
    study: StudyFile = DEFAULT_STUDY,
    *,
    out: Annotated[
        Path, option("Folder for the files.", "DIR", callback=local_folder, show_default=False)
    ],
    results: ResultsRoot = DEFAULT_RESULTS,
    format: Format = "text",
) -> None:
    """Write tables, figures, records, and the texts of a paper: methods, checklists, references."""
    from ablate.page.sections import figure_files

    planned, root = StudyOptions(results).open(study)
    outcome = outcome_to_show(planned, root)
    print_faults(outcome.table)
    for sentence in unfinished_sentences(outcome.table):
        echo(sentence, err=True)
    if note := uncited_corpus(outcome):
        echo(note, err=True)
    files = figure_files(outcome.table, curves_of(outcome, root), formats=("svg",))
    files[ARCHIVE] = archive_of(planned, root)
    outcome = publishable(outcome, root)
    files |= paper_files(outcome, root)
    files[METADATA] = crate(outcome, (*TEXTS, *files))
    written = publish(outcome, root, out, files)
    print_written([out / name for name in written], format)
