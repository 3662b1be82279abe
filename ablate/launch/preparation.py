"""Prepare runs of a study: prepare their corpora, write their run.json, check the user's
classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ablate.checks.row import check_runs
from ablate.config.data import CorpusConfig
from ablate.errors import StoreError
from ablate.store import Results
from ablate.store.files import write_bytes
from ablate.store.records import RunRecord, none_if_damaged
from ablate.study import Run, Study

if TYPE_CHECKING:
    from ablate.data.corpus import Corpus


def prepare_runs(
    study: Study, runs: Iterable[Run], results: Results, log: Callable[[str], None]
) -> dict[CorpusConfig, Corpus]:
    """Prepare the corpora of some runs of a study, one for each size of the vocabulary, and write
    run.json for each run.

    A run whose files cannot be read is left out.

    Returns:
        The corpora by their settings.

    Raises:
        DataError: a corpus is missing or malformed.
        StudyError: a user's class does not fit its interface.
        StoreError: results on disk belong to other data or another version.
    """
    runs = list(runs)
    corpora = {
        data: study.prepare(data, results.corpora, lambda line: log(f"corpus: {line}"))
        for data in dict.fromkeys(run.data for run in runs)
    }
    usable = []
    for run in runs:
        if run.awaits_choice:
            continue
        folder = results.run(run.id)
        for path in folder.make_room():
            log(f"{path}: is not the expected file or folder; renamed to {path.name}.damaged")
        fault = folder.unusable_record()
        if fault is not None:
            log(str(fault))
            continue
        _write_run_record(run, results, corpora[run.data], study)
        usable.append(run)
    check_runs(study, usable, results, corpora)
    return corpora


def _write_run_record(run: Run, results: Results, corpus: Corpus, study: Study) -> None:
    """Write run.json and the sources of user's classes.

    Raises:
        StoreError: the run began with other text, or has decoded other text under the same name.
    """
    folder = results.run(run.id)
    for reference in study.classes_of([run.config]):
        file = folder.sources / reference.file
        if not file.exists():
            write_bytes(file, study.source.classes[str(reference.digest)])
    execution = none_if_damaged(folder.read_execution)
    record = none_if_damaged(folder.read_run)
    # Runs with precision unset and with fp32 have the same id. Until the run begins, the study
    # decides.
    if record is None or (execution is None and record.config.precision != run.config.precision):
        record = RunRecord(
            id=run.id,
            seed=run.seed,
            task=study.task_name,
            config=run.config,
            data=run.data.model_dump(mode="json", exclude={"folder"}),
        )
        record.write(folder.run)
    if execution is not None:
        folder.refuse_other_text(execution, corpus.training_hash)
        folder.refuse_other_precision(execution, run.config.precision)
    result = none_if_damaged(folder.read_result)
    decoded = result.decodings if result else {}
    for decoding in run.decodings:
        if decoding in decoded and decoded[decoding].corpus != corpus.id:
            raise StoreError(
                f"{folder.path}: the test data {run.data.test} has changed since these results "
                f"were made (corpus {decoded[decoding].corpus}, now {corpus.id}); restore the "
                "files, give the test data another name, or use another --results"
            )
