"""Notes on the text of a study, for the lines below its table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from ablate.errors import StoreError
from ablate.stats.metrics import CannotJudge
from ablate.store import Results
from ablate.store.corpora import exchanged_in, is_archived, leaks_in, warnings_in, with_labels
from ablate.study import Runs
from ablate.table.experiment import Notes


def text_notes(planned: Runs, results: Results, corpora: Sequence[str]) -> Notes:
    """What the preparation has found in the text of these corpora, and why metrics of the study do
    not suit their references, with the names of languages in the study.
    """
    leaks: dict[str, str] = {}
    text: dict[str, None] = {}
    unjudged: dict[str, None] = {}
    is_exchanged = False
    for corpus in corpora:
        folder = results.corpus(corpus)
        leaks |= {line: split for split, line in leaks_in(folder).items()}
        text |= dict.fromkeys(warnings_in(folder, planned.study.data.labels))
        is_exchanged |= bool(exchanged_in(folder))
        with suppress(StoreError):  # the table reports a damaged corpus
            for metric, note, cannot_judge in _notes_on_references(planned, results, corpus):
                text[note] = None
                if cannot_judge:
                    unjudged[metric] = None
    return Notes(leaks=leaks, text=tuple(text), is_exchanged=is_exchanged, unjudged=tuple(unjudged))


def _notes_on_references(
    planned: Runs, results: Results, corpus: str
) -> Iterator[tuple[str, str, bool]]:
    """Yield (name of a metric, why it does not suit the references of a corpus, whether it cannot
    judge them).

    Raises:
        StoreError: the corpus cannot be read.
    """
    study = planned.study
    folder = results.corpus(corpus)
    metrics = dict.fromkeys((*study.metrics.shown, *study.metrics.judged))
    names = [name for name in metrics if name in study.task.prediction_metric_names]
    if not names or not results.has_corpus(corpus) or is_archived(folder):
        return
    from ablate.data.corpus import Corpus  # loads numpy

    opened = Corpus(folder)
    for name in names:
        for note in study.task.notes_on_scores(opened, [name]):
            (text,) = with_labels([note], opened.manifest, study.data.labels)
            yield name, text, isinstance(note, CannotJudge)
