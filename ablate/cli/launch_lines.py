"""Lines that `ablate run` prints before the first run starts, and when a run has ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ablate.config import cost
from ablate.formatting import number, plural
from ablate.launch.executor import Slot, devices_text
from ablate.report.plan_text import epochs_lines
from ablate.stats.metrics import Metric
from ablate.store import RunFolder, none_if_unreadable
from ablate.store.corpora import lengths_in, with_labels
from ablate.store.metrics_log import evaluation_at
from ablate.store.records import CorpusManifest, Score
from ablate.study import Run, Runs

if TYPE_CHECKING:
    from ablate.data.corpus import Corpus


def corpus_lines(runs: Runs, corpus: Corpus) -> Iterator[str]:
    """Lines on the size of a corpus, on records that were left out, and on the number of epochs for
    which the rows will read it.
    """
    study = runs.study
    records = corpus.manifest.records
    train = training_records_text(corpus.manifest)
    yield f"corpus {corpus.id}: {train}, dev {records['dev']:,}, test {records['test']:,}"
    labels = study.data.labels
    for line in with_labels(corpus.manifest.all_warnings, corpus.manifest, labels):
        yield f"note: {line}"
    notes = study.task.notes_on_scores(corpus, runs.metrics)
    for line in with_labels(notes, corpus.manifest, labels):
        yield f"note: {line}."
    lengths = lengths_in(corpus.folder)
    if lengths is None or study.data.draws_items:
        return
    data_of_base = runs.data_of(runs.base)
    epochs = {}
    for row in runs.rows:
        if runs.data_of(row) == data_of_base:
            epochs[row.label] = cost.epochs(row.config, lengths)
    yield from epochs_lines(epochs)


def training_records_text(manifest: CorpusManifest) -> str:
    """`198 records, 2 left out (empty)`: the size of a training split."""
    text = plural(manifest.records["train"], "record")
    for why, count in manifest.left_out.items():
        text += f", {count:,} left out ({why})"
    return text


def devices_line(slots: Sequence[Slot], missing: int, runs: str) -> str:
    """`18 of 18 runs to do, 2 at once on cpu, 1 thread each`; `runs` is `18 runs`."""
    threads = plural(slots[0].threads, "thread")
    if len(slots) * len(slots[0].devices) > 1:
        threads += " each"
    devices = devices_text(slots[0])
    return f"{missing} of {runs} to do, {len(slots)} at once on {devices}, {threads}"


def scores_text(folder: RunFolder, run: Run, metrics: Iterable[Metric]) -> str:
    """The scores of a finished run, such as `: PPL 4.92, BLEU 25.3`; the dev perplexity of a tuning
    run.
    """
    result = none_if_unreadable(folder.read_result)
    if result is None:  # damaged meanwhile; the table reports it
        return ""
    for id, decoding in result.decodings.items():
        if id in run.decodings:
            return f": {_scores(decoding.scores, metrics)}"
    perplexity = evaluation_at(folder.metrics, result.chosen_step)
    if perplexity is None:
        return ""
    return f": PPL {perplexity:.2f}"


def _scores(scores: Mapping[str, Score], metrics: Iterable[Metric]) -> str:
    texts = []
    for metric in metrics:
        if metric.name in scores:
            texts.append(f"{metric.title} {number(scores[metric.name].value, metric.digits)}")
    return ", ".join(texts)


def failure_text(folder: RunFolder, reason: str) -> str:
    """Why a run has diverged or failed; `reason` if the folder of the run does not say."""
    result = none_if_unreadable(folder.read_result)
    if result is not None and result.reason is not None:
        return f" at step {result.steps}: {result.reason}"
    if failure := none_if_unreadable(folder.read_failure):
        reason = failure.reason
    if reason:
        reason = f": {reason}"
    return f"{reason}; see {folder.log}"
