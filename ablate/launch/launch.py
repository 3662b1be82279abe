"""Launch a stage of a study: prepare its corpora, write run.json for its runs, and execute its
missing runs.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ablate.analysis.missing import Retries, damage_of_run, healed_state, is_missing, never
from ablate.analysis.results import run_state
from ablate.analysis.stages import Stage
from ablate.config import DecodingConfig
from ablate.config.identity import NOT_IDENTITY
from ablate.launch.control import Control, Watcher
from ablate.launch.devices import micro_batch, runs_of_pilot
from ablate.launch.executor import Demand, Executor, Slot
from ablate.launch.local import local_executor
from ablate.launch.preparation import prepare_runs
from ablate.launch.scheduler import Scheduler
from ablate.plan.resources import refuse_full_disk
from ablate.store import Results, State
from ablate.store.machine import DEFAULT_RESOURCES, Resources
from ablate.study import Run
from ablate.workers.assignment import Assignment, RunRequest

if TYPE_CHECKING:
    from ablate.data.corpus import Corpus

# Seconds between two progress reports of a run, if several launchers share a file system.
SHARED_REPORT_SECONDS = 10.0


@dataclass(frozen=True)
class Share:
    """A launcher's share of the runs, if several launchers work on a study at the same time.

    index: index of the launcher, counted from 0.
    launchers: number of launchers.
    report_seconds: seconds between two progress reports of a run.
    """

    index: int
    launchers: int
    report_seconds: float = SHARED_REPORT_SECONDS

    def ordered(self, runs: list[str]) -> list[str]:
        """Rotate the order of the runs, so that launchers start with different runs, and do not
        compete for the same leases.
        """
        first = self.index * len(runs) // self.launchers % max(1, len(runs))
        return runs[first:] + runs[:first]


ALONE = Share(0, 1, report_seconds=1.0)


def launch(
    stage: Stage,
    results: Results,
    watcher: Watcher,
    resources: Resources = DEFAULT_RESOURCES,
    retries: Retries = never,
    *,
    executor_for: Callable[[Demand], Executor] = local_executor,
    share: Share = ALONE,
    control: Control | None = None,
) -> None:
    """Execute the missing runs of a stage, starting with base and the first seed.

    Args:
        stage: the stage.
        results: the results root.
        watcher: receives the events of the launch.
        resources: resources that the runs may occupy.
        retries: decides which failed runs are repeated.
        executor_for: makes the executor.
        share: share of this launcher, if several launchers work on the study.
        control: decides when runs start and when the launch ends; by default, it ends after all
            runs.

    Raises:
        DataError: a corpus is missing or malformed.
        StudyError: a user's class does not fit its interface.
        StoreError: results on disk belong to other data or another version.
        MachineError: the disk is too small, or there is no GPU.
        Interrupted: a signal came; everything is saved.
    """
    results = Results(results.root.absolute())  # workers may have another working directory
    study = stage.study
    runs = {run.id: run for run in stage.runs if not run.awaits_choice}
    demand = Demand(
        configs=tuple(run.config for run in runs.values()),
        vocab_size=max(run.data.vocab_size for run in runs.values()),
        runs=runs_of_pilot(stage.total_runs, share.launchers),
        resources=resources,
    )
    executor = None
    # Made now, so that a missing GPU is reported before data are prepared. For other devices, the
    # executor is made later, if a run is missing.
    if resources.device == "cuda":
        executor = executor_for(demand)
    corpora = prepare_runs(study, stage.runs_to_prepare, results, watcher.log)
    missing = [id for id in stage.missing if is_missing(runs[id], results, retries)]
    if not missing:
        return
    missing = share.ordered(missing)
    for id in missing:
        damage = damage_of_run(runs[id], results)
        if damage is not None:  # in place of the usual remedy, which is this command
            watcher.log(str(replace(damage, remedy="it is made again")))
        # A retried run has not failed yet. But pilots must know the hosts on which it has failed.
        if share is ALONE:
            results.run(id).failure.unlink(missing_ok=True)
    executor = executor or executor_for(demand)
    slots = executor.slots()
    refuse_full_disk(stage.known_runs, results, len(slots))
    watcher.announce(corpora[stage.runs.data_of(stage.runs.base)], slots, len(missing))

    def assignment_for(id: str, slot: Slot, halve_micro_batch: bool) -> Assignment:
        corpus = corpora[runs[id].data]
        return _assignment(runs[id], results, corpus, slot, halve_micro_batch, share.report_seconds)

    def outcome_of(id: str) -> str | None:
        run = runs[id]
        return None if is_missing(run, results, retries) else run_state(run, results)

    Scheduler(executor, assignment_for, results.run, outcome_of, watcher, control).run(missing)


def outcome_of_launch(runs: Iterable[Run], results: Results) -> Counter[State]:
    """Number of runs in each state after a launch, as their files show it now."""
    return Counter(healed_state(run, results) for run in runs)


@functools.lru_cache(maxsize=64)
def _largest_batch(corpus: Corpus, batch_tokens: int, fraction: float) -> int:
    """Number of padded tokens of the largest batch. Cached, because it sorts the training split."""
    # Imported here, because it loads torch, which a launcher for a CPU does not need.
    from ablate.data.batches import largest_padded_batch

    return largest_padded_batch(corpus.split("train"), batch_tokens, fraction)


def _assignment(
    run: Run,
    results: Results,
    corpus: Corpus,
    slot: Slot,
    halve_micro_batch: bool,
    report_seconds: float,
) -> Assignment:
    decodings = {}
    for id, config in run.decodings.items():
        fields = config.model_dump(include=set(DecodingConfig.model_fields))
        decodings[id] = DecodingConfig(**fields)
    request = RunRequest(
        folder=results.run(run.id).path,
        corpus=corpus.folder.absolute(),
        test={"dev": run.data.dev, "test": run.data.test}[run.split],
        split=run.split,
        decodings=decodings,
        settings=run.config.model_dump(include=set(NOT_IDENTITY)),
    )
    largest = None
    if slot.kind != "cpu":  # a CPU's micro-batches are small in any case
        largest = _largest_batch(corpus, run.config.batch_tokens, run.config.train_fraction)
    return Assignment(
        run=request,
        devices=slot.devices,
        threads=slot.threads,
        micro_batch_tokens=micro_batch(run.config, run.data.vocab_size, slot, largest),
        halve_micro_batch=halve_micro_batch,
        report_seconds=report_seconds,
    )
