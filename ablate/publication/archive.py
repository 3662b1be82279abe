"""Archive of a study's records: every score of its table, without weights, predictions and text.

The unpacked archive is a results root, from which `ablate table` computes the same table, or judges
the scores by another rule.
"""

from __future__ import annotations

import itertools
import zipfile
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

from ablate.analysis.tuning_runs import dev_runs_of, tuning_runs_of
from ablate.errors import StoreError
from ablate.store import Results
from ablate.store.corpora import MANIFEST
from ablate.store.files import read_bytes, sealed
from ablate.store.records import Failure
from ablate.study import Runs

_FAILURE = "failure.json"
_TIME = (1980, 1, 1, 0, 0, 0)  # of every file, so that the same records make the same archive


def archive_of(planned: Runs, results: Results) -> bytes:
    """The bytes of the archive.

    The archive has settings, provenance, result, learning curve and scores of each run that has
    ended (also the scores on the resampled test sets), custom classes, manifests of the corpora,
    and the record of how the study was judged. Of a failed run it has the kind of exception.

    Raises:
        StoreError: a file that belongs into the archive is a symbolic link.
    """
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        files = {_name(results, file): file for file in _files(planned, results)}
        judged = results.judged(planned.study.name)
        files[_name(results, judged)] = judged
        for name, file in sorted(files.items()):
            _refuse_link(file)
            content = _failure(file) if file.name == _FAILURE else read_bytes(file)
            if content is not None:
                entry = zipfile.ZipInfo(name.as_posix(), _TIME)
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _failure(file: Path) -> bytes | None:
    """The record of a failure, with the kind of exception in the place of its text, which may have
    paths of this machine, and without hosts.
    """
    failure = Failure.read(file)
    if failure is None:
        return None
    reason = failure.kind or "failed"
    return sealed(
        failure.model_copy(update={"hosts": (), "reason": reason}).model_dump(mode="json")
    )


def _name(results: Results, file: Path) -> Path:
    """The path of a file in a results root, in which shared corpora are in their usual folder."""
    if file.is_relative_to(results.root):
        return file.relative_to(results.root)
    return Path("corpora", *file.parts[-2:])


def _refuse_link(file: Path) -> None:
    """Refuse a symbolic link: in results of a stranger, it may lead to a private file of the person
    who publishes them.
    """
    for path in (file, file.parent) if file.suffix == ".py" else (file,):
        if path.is_symlink():
            raise StoreError(
                f"{path}: is a symbolic link, and is not published; put the files themselves there"
            )


def _files(planned: Runs, results: Results) -> Iterator[Path]:
    for run in itertools.chain(tuning_runs_of(planned) or (), dev_runs_of(planned) or (), planned):
        folder = results.run(run.id)
        try:
            result = folder.read_result()
        except StoreError:  # named below the table, and not archived
            continue
        if result is None:  # a stage of the study may end without a run that has failed
            if folder.failure.exists():
                yield from (folder.run, folder.failure)
            continue
        yield from (folder.run, folder.execution, folder.provenance, folder.result, folder.metrics)
        yield from map(folder.scores, run.decodings)
        yield from sorted(folder.sources.glob("*.py"))
        yield results.corpus(result.corpus) / MANIFEST
