"""Find the runs of a study that are missing, from their files."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable

from ablate.analysis.results import RunResult
from ablate.errors import Fault
from ablate.store import Results, RunFiles, State, none_if_unreadable
from ablate.store.records import Failure
from ablate.store.status import fault_in_result
from ablate.study import Run

ENDED: tuple[State, ...] = ("done", "diverged", "failed")
# Decides whether a failed run is executed again, from the record of its failure, which is None if
# it cannot be read.
Retries = Callable[[Failure | None], bool]


def never(failure: Failure | None) -> bool:
    """Repeat no failed run."""
    return False


def failed_before(time: float, all_failures: bool) -> Retries:
    """Repeat runs that failed before a time, for `ablate run`: all of them, or only killed ones."""

    def retries(failure: Failure | None) -> bool:
        if failure is None:
            return all_failures
        return failure.time < time and (all_failures or failure.killed)

    return retries


def on_some_host(failure: Failure | None) -> bool:
    """Repeat a run that may succeed on any host of a cluster."""
    return failure is None or failure.should_try_elsewhere


def on_this_host(failure: Failure | None) -> bool:
    """Repeat a run that may succeed on this host, for the pilot of a cluster."""
    return failure is None or failure.should_try_on(socket.gethostname())


def missing_runs(runs: Iterable[Run], results: Results, retries: Retries = never) -> list[str]:
    """Ids of the runs that must still be executed, in order, without runs whose configuration is
    not known yet.
    """
    missing = []
    for run in runs:
        if not run.awaits_choice and is_missing(run, results, retries):
            missing.append(run.id)
    return missing


def is_missing(run: Run, results: Results, retries: Retries = never) -> bool:
    """Whether a run must still be executed. A diverged run is a result, so it is not missing."""
    files = RunFiles.read(results.run(run.id))
    state = files.state_in(run.decodings)
    if state == "failed":
        return retries(none_if_unreadable(files.folder.read_failure))
    if state == "diverged":
        return False
    if state == "done" and files.fault_in_predictions(run.decodings) is None:
        return False
    # A run with an unusable record cannot be executed until the user has repaired it.
    return files.folder.unusable_record() is None


def healed_state(run: Run, results: Results) -> State:
    """The state of a run: `interrupted` in place of `done` if one of its files is damaged or cannot
    be read.
    """
    files = RunFiles.read(results.run(run.id))
    state = files.state_in(run.decodings)
    if state != "done":
        return state
    fault = files.folder.unusable_record() or files.fault_in_predictions(run.decodings)
    return "interrupted" if fault else "done"


def failed_runs_to_repeat(
    runs: Iterable[RunResult], results: Results, retries: Retries
) -> set[str]:
    """Ids of the failed runs that are repeated."""
    ids = set()
    for run in runs:
        folder = results.run(run.run.id)
        if run.state == "failed" and retries(none_if_unreadable(folder.read_failure)):
            ids.add(run.run.id)
    return ids


def forget_failures(runs: Iterable[Run], results: Results) -> None:
    """Delete the failures of runs, so that pilots execute the runs again."""
    for run in runs:
        results.run(run.id).failure.unlink(missing_ok=True)


def damage_of_run(run: Run, results: Results) -> Fault | None:
    """The fault of a damaged result or of damaged predictions of a run, which the next launch makes
    again; None if neither is damaged.
    """
    folder = results.run(run.id)
    return fault_in_result(folder) or RunFiles.read(folder).fault_in_predictions(run.decodings)
