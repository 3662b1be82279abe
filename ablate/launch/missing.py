"""The runs of a study that a launcher would execute, by their state on disk."""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass

from ablate.analysis.looks import position_of
from ablate.analysis.results import run_state
from ablate.errors import Damaged, StoreError
from ablate.store import Results, RunFolder
from ablate.store.score_cache import damage_of_predictions
from ablate.store.status import read_failure
from ablate.study import Study


def missing_runs(
    study: Study, results: Results, retry_failed: bool = False, retry_elsewhere: bool = False
) -> list[str]:
    """Ids of the runs that a launch would execute now.

    Args:
        study: whose runs are meant.
        results: root of the results.
        retry_failed: include failed runs.
        retry_elsewhere: include failed runs that may succeed on this host, because they failed on
            others.
    """
    ids = [run.id for run in study.runs() if not run.awaits_tuning]
    return [id for id in ids if is_missing(study, results, id, retry_failed, retry_elsewhere)]


@dataclass(frozen=True)
class MissingRuns:
    """Ids of the runs of a study that can be executed now, by stage, and how many rows' runs wait
    for tuning runs.
    """

    tuning: list[str]
    rows: list[str]
    waiting: int

    @property
    def ids(self) -> list[str]:
        """All that can be executed now."""
        return list(dict.fromkeys([*self.tuning, *self.rows]))

    @property
    def at_once(self) -> int:
        """The most runs that can be executed at the same time, now or after tuning."""
        return max(len(self.tuning), len(self.rows) + (self.waiting if self.tuning else 0))


def stages_of(study: Study, results: Results) -> tuple[Study, ...]:
    """The parts of a study that can be executed now: tuning runs that some row waits for, and rows
    up to the look.
    """
    part = position_of(study, results).study if study.looks else study
    return (part,) if study.pending_tuning is None else (study.pending_tuning, part)


def missing_in_stages(study: Study, results: Results, retry_failed: bool = False) -> MissingRuns:
    """The runs that launchers on several hosts would execute.

    Args:
        study: with the choices of its tuning runs, as far as they are made.
        results: root of the results.
        retry_failed: include failed runs.
    """
    *before, part = stages_of(study, results)
    tuning = [
        id
        for stage in before
        for id in missing_runs(stage, results, retry_failed, retry_elsewhere=True)
    ]
    rows = missing_runs(part, results, retry_failed, retry_elsewhere=True)
    return MissingRuns(tuning, rows, sum(run.awaits_tuning for run in part.runs()))


def is_missing(
    study: Study,
    results: Results,
    id: str,
    retry_failed: bool = False,
    retry_elsewhere: bool = False,
) -> bool:
    """Whether a launch would execute a run now; arguments as for `missing_runs`."""
    state = run_state(study, results, id)
    if state == "failed":
        failure = read_failure(results.run(id))
        if failure is None:
            return retry_failed
        return (
            retry_failed
            or failure.killed
            or (retry_elsewhere and failure.may_succeed_on(socket.gethostname()))
        )
    if state == "done":
        return (
            damaged_predictions(study, results, id) is not None
            and unusable_record(results.run(id)) is None
        )
    return state != "diverged" and unusable_record(results.run(id)) is None


def unusable_record(folder: RunFolder) -> str | None:
    """Describe a record that cannot be read, or that another version wrote; None if all are whole
    or damaged.

    A damaged record is made again; these need a person.
    """
    for read in (folder.read_run, folder.read_execution, folder.read_result):
        try:
            is_whole(read)
        except StoreError as error:
            return str(error)
    return None


def damaged_predictions(study: Study, results: Results, id: str) -> str | None:
    """The damage of the predictions of a finished run in the decodings of a study; None if all are
    whole.
    """
    folder = results.run(id)
    result = folder.read_result()
    decodings = {} if result is None else result.decodings
    wanted = [each for each in study.decodings[id] if each in decodings]
    damages = (damage_of_predictions(folder, each, decodings[each]) for each in wanted)
    return next(filter(None, damages), None)


def is_whole(read: Callable[[], object]) -> bool:
    """Whether a record exists and matches its hash."""
    try:
        return read() is not None
    except Damaged:
        return False
