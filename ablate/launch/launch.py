"""Launch a study: prepare its corpora, write run.json for its runs, and execute the missing ones."""

from __future__ import annotations

import functools
import heapq
import shutil
import socket
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ablate.config import DecodingConfig, RowConfig, cost
from ablate.config.data import CorpusConfig
from ablate.config.identity import NOT_IDENTITY
from ablate.config.plugins import parse_reference, references
from ablate.config.training import resolve_precision
from ablate.data.corpus import Corpus
from ablate.errors import Damaged, StoreError
from ablate.formatting import size
from ablate.launch.devices import micro_batch, runs_of_pilot, usable_gpus
from ablate.launch.executor import Demand, Device, Executor, Slot
from ablate.launch.gpu_sharing import RunOnGPU, SharedGPUs, free_gpus, measured_memory, share_gpus, whole_micro_batch
from ablate.launch.local import local_executor
from ablate.launch.scheduler import Control, Scheduler, Watcher
from ablate.report.looks import IsOver, has_ended, position_of, record_judgment
from ablate.report.missing_scores import score_missing
from ablate.run.job import Job, RunRequest
from ablate.store import Results, RunFolder, State, state_of
from ablate.store.checkpoints import RESUMABLE
from ablate.store.cleaning import size_of
from ablate.store.corpora import lengths_in
from ablate.store.files import write_bytes
from ablate.store.records import Execution, RunRecord
from ablate.store.score_cache import damage_of_predictions
from ablate.store.status import NO_DECODING, damage_of, read_failure
from ablate.study import Run, Study, settle

# Between two progress reports of a run, if several launchers share a file system.
SHARED_REPORT_SECONDS = 10.0


@dataclass(frozen=True)
class Share:
    """The place of a launcher among `of` launchers that work on a study at the same time; `index` counts from 0."""

    index: int
    of: int

    def ordered(self, runs: list[str]) -> list[str]:
        """The runs from another one on for each launcher, so that launchers do not meet at the same leases."""
        first = self.index * len(runs) // self.of % max(1, len(runs))
        return runs[first:] + runs[:first]


@dataclass(frozen=True)
class Launch:
    """The outcome of a launch: the number of runs of the study, and how many are in each state."""

    runs: int
    states: Counter[State]

    @property
    def complete(self) -> bool:
        """Whether every run is done."""
        return self.states["done"] == self.runs


def launch(
    study: Study,
    results: Results,
    watcher: Watcher,
    *,
    device: Device = "auto",
    jobs: int | Literal["auto"] | None = None,
    processes: int | None = 1,
    retry_failed: bool = False,
    announce: Callable[[Corpus, Sequence[Slot], int], None] = lambda corpus, slots, missing: None,
    log: Callable[[str], None] = lambda line: None,
    executor_for: Callable[[Demand], Executor] = local_executor,
    share: Share | None = None,
    control: Control | None = None,
) -> Launch:
    """Execute the missing runs of a study, starting with base and the first seed.

    A run that failed by itself is skipped unless `retry_failed` is set, or unless this launcher is one of several and
    the run has failed on one other host only. A diverged run is a result.

    Args:
        study: to execute.
        results: root of the results.
        watcher: receives the events.
        device: `auto` uses GPUs if there are any.
        jobs: runs at once; None for the executor's default. `auto` also shares GPUs of this machine among several runs,
            as many as their memory and their share of a GPU allow.
        processes: for each run, on a device each; see `Demand`.
        retry_failed: execute failed runs again.
        announce: receives the corpus of base, the slots and the number of missing runs, before the first starts.
        log: receives a line for each stage of preparing a corpus, and for damage.
        executor_for: makes the executor.
        share: of this launcher in the work, if others work on the study at the same time.
        control: decides when to start runs and when to end; None to go on until every run has ended.

    Raises:
        DataError: a corpus is missing or malformed.
        StudyError: a plug-in does not fit its interface.
        StoreError: results on disk belong to other data or another version, or the disk is too small.
        UsageError: there is no GPU, or nothing to choose the number of jobs by.
        Interrupted: a signal came; everything is saved.
    """
    results = Results(results.root.absolute())  # workers may have another working directory
    runs = {run.id: run for run in study.runs() if not run.awaits_tuning}
    if not runs:  # tuning runs have failed, or others hold them
        return outcome_of_launch(study, results)
    largest = max(run.data.vocab_size for run in runs.values())
    total = runs_of_pilot(study.total_runs, share.of) if share else study.total_runs
    shares_gpus = jobs == "auto" and bool(usable_gpus(device))
    demand = Demand(
        tuple(run.config for run in runs.values()), largest, total, device, None if jobs == "auto" else jobs, processes
    )
    # Fail before preparing data if there is no GPU. Otherwise an executor is made only if a run is missing.
    executor = executor_for(demand) if device == "cuda" and not shares_gpus else None
    corpora = prepare(study, results, log)
    missing = missing_runs(study, results, retry_failed, retry_elsewhere=share is not None)
    if share:
        missing = share.ordered(missing)
    for id in missing:
        _log_damage(study, results, id, log)
        if not share:  # pilots must know the hosts on which a run has failed
            results.run(id).failure.unlink(missing_ok=True)  # a retried run has not failed yet
    if missing:
        if shares_gpus:
            shared = _share_gpus(results, corpora, runs.values(), total)
            log(shared.reason)
            demand = replace(demand, jobs=shared.jobs)
        executor = executor or executor_for(demand)
        slots = executor.slots()
        check_disk_space_of(study, results, missing, len(slots))
        announce(corpora[study.data_of(study.base)], slots, len(missing))

        def job_for(id: str, slot: Slot, halve_micro_batch: bool) -> Job:
            job = _job(study, results, corpora[runs[id].data], runs[id], slot, halve_micro_batch)
            return job.model_copy(update={"report_seconds": SHARED_REPORT_SECONDS}) if share else job

        def outcome_of(id: str) -> str | None:
            is_missing = _is_missing(study, results, id, retry_elsewhere=share is not None)
            return None if is_missing else run_state(study, results, id)

        Scheduler(executor, job_for, results.run, outcome_of, watcher, control).run(missing)
    return outcome_of_launch(study, results)


def _log_damage(study: Study, results: Results, id: str, log: Callable[[str], None]) -> None:
    """Log that a damaged result or its predictions are made again."""
    damage = damage_of(results.run(id)) or _damage(study, results, id)
    if damage is not None:
        # The rest of the message tells people to run the command that runs now.
        fault, _, _ = damage.partition("; `ablate run` ")
        log(f"{fault}; it is made again")


def launch_stages(
    study: Study,
    results: Results,
    execute: Callable[[Study], Launch],
    log: Callable[[str], None],
    is_over: IsOver = has_ended,
) -> Launch:
    """Execute a study in stages: its tuning runs, then the rows whose values they have chosen, look by look.

    Choices follow from the results on disk, so that several launchers of one results root agree. If others hold the
    last tuning runs, the rows that are chosen already go first.

    Args:
        study: to execute, with the choices made so far.
        results: root of the results.
        execute: launches a part of the study, and returns when each of its runs has ended, or is left to others.
        log: receives a line after each look.
        is_over: whether a run has ended for all launchers.

    Returns:
        The outcome of the last part.

    Raises:
        StoreError: a result is damaged.
        Interrupted: a signal came; everything is saved.
    """
    while True:
        if study.pending_tuning is not None:
            execute(study.pending_tuning)
            study = settle(study, results)
        outcome = launch_looks(study, results, execute, log, is_over)
        waiting, study = _waiting(study), settle(study, results)
        if _waiting(study) == waiting:
            return outcome


def _waiting(study: Study) -> set[str]:
    """Labels of the rows whose tuning runs are missing."""
    return {row.label for row in study.rows if row.awaits_tuning}


def launch_looks(
    study: Study,
    results: Results,
    execute: Callable[[Study], Launch],
    log: Callable[[str], None],
    is_over: IsOver = has_ended,
) -> Launch:
    """Execute a study; one with looks up to the first look that settles every row.

    The look follows from the results on disk, so that several launchers of one results root agree. No run of a look
    starts before all runs of the look before have ended.

    Args:
        study: to execute.
        results: root of the results.
        execute: launches a part of the study, and returns when each of its runs has ended, or is left to others.
        log: receives a line after each look that another one follows; the table says the outcome of the last.
        is_over: whether a run has ended for all launchers.

    Returns:
        The outcome of the last part.

    Raises:
        StoreError: a result is damaged.
        Interrupted: a signal came; everything is saved.
    """
    if study.looks is None:
        return execute(study)
    before = position_of(study, results, is_over)
    while True:
        outcome = execute(before.study)
        faults = score_missing(before.study, results)
        for fault in faults:
            log(fault)
        after = position_of(study, results, is_over)
        record_judgment(study, results)
        # A missing score could let another launcher see another verdict.
        if faults or len(after.study.seeds) <= len(before.study.seeds):
            return outcome
        log(after.text)
        before = after


def outcome_of_launch(study: Study, results: Results) -> Launch:
    """The outcome of a launch as the files show it now: the number of runs in each state."""
    ids = [run.id for run in study.runs()]
    return Launch(len(ids), Counter(_healed_state(study, results, id) for id in ids))


def _healed_state(study: Study, results: Results, id: str) -> State:
    """The state of a run, which is not done while a file of it is damaged or cannot be read."""
    state = run_state(study, results, id)
    is_whole = state != "done" or (_unusable(results.run(id)) is None and _damage(study, results, id) is None)
    return state if is_whole else "interrupted"


def prepare(study: Study, results: Results, log: Callable[[str], None]) -> dict[CorpusConfig, Corpus]:
    """Prepare the corpora of a study, one for each size of vocabulary, and write run.json for its runs.

    A run with a file that cannot be read is left out, and `log` receives a line about it.

    Raises:
        DataError: a corpus is missing or malformed.
        StudyError: a plug-in does not fit its interface.
        StoreError: results on disk belong to other data or another version.
    """
    runs = list(study.runs())
    corpora = {
        data: study.task.prepare(data, study.data_folder, results.corpora, lambda line: log(f"corpus: {line}"))
        for data in dict.fromkeys(run.data for run in runs)
    }
    usable = []
    for run in runs:
        if run.awaits_tuning:
            continue
        folder = results.run(run.id)
        for path in folder.make_room():
            log(f"{path}: is a folder in place of a file, or the reverse; renamed to {path.name}.damaged")
        fault = _unusable(folder)
        if fault is not None:
            log(fault)
            continue
        _write_run_record(run, results, corpora[run.data], study)
        usable.append(run)
    _check_plugins(study, usable, results, corpora)
    return corpora


def run_state(study: Study, results: Results, id: str) -> State:
    """The state of a run over all decodings of this study; it is done only if all of them are."""
    states = {state_of(results.run(id), decoding) for decoding in study.decodings[id] or (NO_DECODING,)}
    return next(iter(states - {"done"}), "done")


def missing_runs(
    study: Study, results: Results, retry_failed: bool = False, retry_elsewhere: bool = False
) -> list[str]:
    """Ids of the runs that a launch would execute now.

    Args:
        study: whose runs are meant.
        results: root of the results.
        retry_failed: include failed runs.
        retry_elsewhere: include failed runs that may succeed on this host, because they failed on others.
    """
    ids = [run.id for run in study.runs() if not run.awaits_tuning]
    return [id for id in ids if _is_missing(study, results, id, retry_failed, retry_elsewhere)]


@dataclass(frozen=True)
class MissingRuns:
    """Ids of the runs of a study that can be executed now, by stage, and how many rows' runs wait for tuning runs."""

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
    """The parts of a study that can be executed now: tuning runs that some row waits for, and rows up to the look."""
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
    tuning = [id for stage in before for id in missing_runs(stage, results, retry_failed, retry_elsewhere=True)]
    rows = missing_runs(part, results, retry_failed, retry_elsewhere=True)
    return MissingRuns(tuning, rows, sum(run.awaits_tuning for run in part.runs()))


def _is_missing(
    study: Study, results: Results, id: str, retry_failed: bool = False, retry_elsewhere: bool = False
) -> bool:
    state = run_state(study, results, id)
    if state == "failed":
        failure = read_failure(results.run(id))
        if failure is None:
            return retry_failed
        return retry_failed or failure.killed or (retry_elsewhere and failure.may_succeed_on(socket.gethostname()))
    if state == "done":
        return _damage(study, results, id) is not None and _unusable(results.run(id)) is None
    return state != "diverged" and _unusable(results.run(id)) is None


def _unusable(folder: RunFolder) -> str | None:
    """Describe a record that cannot be read, or that another version wrote; None if all are whole or damaged.

    A damaged record is made again; these need a person.
    """
    for read in (folder.read_run, folder.read_execution, folder.read_result):
        try:
            _is_whole(read)
        except StoreError as error:
            return str(error)
    return None


def _damage(study: Study, results: Results, id: str) -> str | None:
    """The damage of the predictions of a finished run in the decodings of a study; None if all are whole."""
    folder = results.run(id)
    result = folder.read_result()
    decodings = {} if result is None else result.decodings
    wanted = [each for each in study.decodings[id] if each in decodings]
    damages = (damage_of_predictions(folder, each, decodings[each]) for each in wanted)
    return next(filter(None, damages), None)


def _check_plugins(study: Study, runs: Iterable[Run], results: Results, corpora: Mapping[CorpusConfig, Corpus]) -> None:
    """Check the user's own classes before anything is trained; torch is loaded only if there are some.

    Raises:
        StudyError: one does not fit its interface.
    """
    checked: set[tuple[object, ...]] = set()
    for run in runs if study.plugin_sources else ():
        c, plugins = run.config, references(run.config)
        combination = (plugins, c.architecture, c.attention, c.positional_encoding)
        if plugins and combination not in checked:
            from ablate.model.plugin_check import check_plugins

            check_plugins(run.config, results.run(run.id).sources)
            checked.add(combination)
        task = parse_reference(study.task_name)
        if task is not None and (run.data, c.architecture) not in checked:
            from ablate.tasks.task_check import check_task

            check_task(study.task, task, corpora[run.data], c, results.run(run.id).sources)
            checked.add((run.data, c.architecture))


def _write_run_record(run: Run, results: Results, corpus: Corpus, study: Study) -> None:
    """Write run.json and the sources of plug-ins, and refuse results of other data.

    Raises:
        StoreError: the run began with other text, or has decoded other text under the same name.
    """
    folder = results.run(run.id)
    for plugin in study.plugins_of(run):
        file = folder.sources / plugin.file
        if not file.exists():
            write_bytes(file, study.plugin_sources[str(plugin.digest)])
    execution = folder.read_execution() if _is_whole(folder.read_execution) else None
    if not _is_whole(folder.read_run) or (execution is None and _names_other_precision(folder, run)):
        record = RunRecord(
            id=run.id,
            seed=run.seed,
            task=study.task_name,
            config=run.config,
            data=run.data.model_dump(mode="json", exclude={"folder"}),
        )
        record.write(folder.run)
    if execution is not None and execution.training != corpus.training:
        raise StoreError(
            f"{folder.path}: the training data has changed since these results were made (text {execution.training}, "
            f"now {corpus.training}); restore the files, or use another --results"
        )
    if execution is not None:
        _refuse_other_precision(folder, run, execution)
    decoded = _decoded_corpora(folder)
    for decoding in study.decodings[run.id]:
        id = decoded.get(decoding, corpus.id)
        if id != corpus.id:
            raise StoreError(
                f"{folder.path}: the test data {run.data.test} has changed since these results were made (corpus {id}, "
                f"now {corpus.id}); restore the files, give the test data another name, or use another --results"
            )


def _names_other_precision(folder: RunFolder, run: Run) -> bool:
    """Whether run.json has another setting of `precision` than the study, with the same id: unset, or fp32."""
    record = folder.read_run()
    return record is not None and record.config.precision != run.config.precision


def _refuse_other_precision(folder: RunFolder, run: Run, execution: Execution) -> None:
    """Refuse a run that chose its precision by its device, where the study now names another one.

    Raises:
        StoreError: names both.
    """
    wanted = run.config.precision
    if wanted in (None, "auto") or execution.precision is None:
        return
    if resolve_precision(wanted, execution.device, has_bf16=True) != execution.precision:
        raise StoreError(
            f"{folder.path}: began in {execution.precision}, which its device chose, but the study sets "
            f"precision={wanted}; remove that setting, or use another --results"
        )


def _decoded_corpora(folder: RunFolder) -> dict[str, str]:
    """The corpus of each decoding of a run; none if the result is damaged."""
    try:
        result = folder.read_result()
    except Damaged:
        return {}
    return {} if result is None else {id: decoding.corpus for id, decoding in result.decodings.items()}


def _is_whole(read: Callable[[], object]) -> bool:
    """Whether a record exists and matches its hash."""
    try:
        return read() is not None
    except Damaged:
        return False


@functools.lru_cache(maxsize=64)
def _largest_batch(corpus: Corpus, batch_tokens: int, fraction: float) -> int:
    """Padded tokens of the largest batch; cached, because sorting millions of lengths takes a moment."""
    from ablate.data.batches import largest_padded_batch  # loads torch, which a launcher for a CPU does without

    return largest_padded_batch(corpus.split("train"), batch_tokens, fraction)


def _job(study: Study, results: Results, corpus: Corpus, run: Run, slot: Slot, halve_micro_batch: bool) -> Job:
    fields = set(DecodingConfig.model_fields)
    request = RunRequest(
        folder=results.run(run.id).path,
        corpus=corpus.folder.absolute(),
        test=run.data.test,
        decodings={
            id: DecodingConfig(**config.model_dump(include=fields)) for id, config in study.decodings[run.id].items()
        },
        settings=run.config.model_dump(include=set(NOT_IDENTITY)),
    )
    largest = None
    if slot.device != "cpu":  # a CPU's micro-batches are small in any case
        largest = _largest_batch(corpus, run.config.batch_tokens, run.config.train_fraction)
    return Job(
        run=request,
        device=slot.device,
        peers=slot.peers,
        threads=slot.threads,
        micro_batch_tokens=micro_batch(run.config, run.data.vocab_size, slot, largest),
        halve_micro_batch=halve_micro_batch,
    )


def _share_gpus(
    results: Results, corpora: Mapping[CorpusConfig, Corpus], runs: Iterable[Run], total: int
) -> SharedGPUs:
    """The number of runs at once on the GPUs of this machine, by their free memory and the memory of finished runs.

    Raises:
        UsageError: the free memory is not known.
    """
    gpus = free_gpus()
    names = {gpu.name for gpu in gpus}
    found: dict[tuple[RowConfig, CorpusConfig], RunOnGPU] = {}
    for run in runs:
        c = run.config
        largest = _largest_batch(corpora[run.data], c.batch_tokens, c.train_fraction)
        measured = measured_memory(results.run(run.id), names, whole_micro_batch(c, largest))
        before = found.get((c, run.data))
        if before is None:
            found[c, run.data] = RunOnGPU(c, run.data.vocab_size, largest, measured)
        elif measured is not None:
            found[c, run.data] = replace(before, measured=max(measured, before.measured or 0))
    lengths = [lengths_in(corpus.folder) or cost.Lengths.assumed() for corpus in corpora.values()]
    return share_gpus(gpus, list(found.values()), total, lengths[0])


def check_disk_space_of(study: Study, results: Results, missing: Iterable[str], at_once: int) -> None:
    """Refuse to start if the disk is too small for the missing runs of a study, `at_once` of them in training.

    Raises:
        StoreError: names the space that is needed, and the space that is free.
    """
    runs, ids = {run.id: run for run in study.runs()}, list(missing)
    largest = max(run.data.vocab_size for run in runs.values())
    on_disk = sum(size_of(results.run(id).checkpoints.glob("*.safetensors")) for id in ids)
    to_train = [runs[id].config for id in ids if not results.run(id).result.exists()]
    check_disk_space(results.root, to_train, largest, at_once, on_disk)


def check_disk_space(root: Path, configs: Iterable[RowConfig], vocab_size: int, at_once: int, on_disk: int) -> None:
    """Refuse to start if the disk is too small for the missing runs.

    Every run leaves the weights that it averages; the runs in training also hold their checkpoints.

    Args:
        root: of the results; it need not exist yet.
        configs: of the missing runs.
        vocab_size: of the largest vocabulary.
        at_once: number of runs in training at once.
        on_disk: bytes that these runs already use.

    Raises:
        StoreError: names the space that is needed, and the space that is free.
    """
    kept, working = 0, []
    for config in configs:
        weights = cost.BYTES * cost.parameters(config, vocab_size)
        kept += config.average_checkpoints * weights
        # A new checkpoint is whole before the oldest is removed.
        peak = cost.run_bytes(config, vocab_size, RESUMABLE + 1)
        working.append(max(0, peak - config.average_checkpoints * weights))
    # At worst, the runs that need most train at the same time.
    needed = kept + sum(heapq.nlargest(at_once, working)) - on_disk
    # disk_usage needs a folder that exists.
    existing = next(folder for folder in (root, *root.absolute().parents) if folder.is_dir())
    free = shutil.disk_usage(existing).free
    if needed > free:
        raise StoreError(
            f"{root}: the missing runs need {size(needed)}, and {size(free)} are free; make room "
            "(`ablate clean STUDY` lists removable files), use --results on another disk, or start with fewer --rows"
        )
