"""The runs of a study that are missing, by their state on disk."""

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
# Whether a failed run is executed once more, by its failure; None if that cannot be read.
Retries = Callable[[Failure | None], bool]


def never(failure: Failure | None) -> bool:
    """A failed run has ended."""
    return False


def failed_before(time: float, all_of_them: bool) -> Retries:
    """`ablate run` repeats what failed before it began: all of it, or what was killed."""

    def retries(failure: Failure | None) -> bool:
        if failure is None:
            return all_of_them
        return failure.time < time and (all_of_them or failure.killed)

    return retries


def on_some_host(failure: Failure | None) -> bool:
    """Pilots together repeat a run that may succeed on another host."""
    return failure is None or failure.may_succeed_elsewhere


def on_this_host(failure: Failure | None) -> bool:
    """A pilot repeats a run that may succeed on its host."""
    return failure is None or failure.may_succeed_on(socket.gethostname())


def missing_runs(runs: Iterable[Run], results: Results, retries: Retries = never) -> list[str]:
    """Ids of the runs that are still to be executed and have a known configuration; base first."""
    missing = []
    for run in runs:
        if not run.awaits_choice and is_missing(run, results, retries):
            missing.append(run.id)
    return missing


def is_missing(run: Run, results: Results, retries: Retries = never) -> bool:
    """Whether a run is still to be executed. A diverged run is a result."""
    files = RunFiles.read(results.run(run.id))
    state = files.state_in(run.decodings)
    if state == "failed":
        return retries(none_if_unreadable(files.folder.read_failure))
    if state == "diverged":
        return False
    if state == "done" and files.fault_in_predictions(run.decodings) is None:
        return False
    return files.folder.unusable_record() is None  # which a person must mend first


def healed_state(run: Run, results: Results) -> State:
    """The state of a run, which is not done while a file of it is damaged or cannot be read."""
    files = RunFiles.read(results.run(run.id))
    state = files.state_in(run.decodings)
    if state != "done":
        return state
    fault = files.folder.unusable_record() or files.fault_in_predictions(run.decodings)
    return "interrupted" if fault else "done"


def has_ended(run: RunResult, results: Results, retries: Retries = never) -> bool:
    """Whether a run is done or diverged, or has failed and is not repeated."""
    if run.state != "failed":
        return run.state in ("done", "diverged")
    return not retries(none_if_unreadable(results.run(run.run.id).read_failure))


def forget_failures(runs: Iterable[Run], results: Results) -> None:
    """Let pilots execute failed runs as if they had never failed."""
    for run in runs:
        results.run(run.id).failure.unlink(missing_ok=True)


def damage_of_run(run: Run, results: Results) -> Fault | None:
    """The damage of the result or of the predictions of a run, which the next launch makes again;
    None if both are whole.
    """
    folder = results.run(run.id)
    return fault_in_result(folder) or RunFiles.read(folder).fault_in_predictions(run.decodings)
