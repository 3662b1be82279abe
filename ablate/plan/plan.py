"""The plan of a study: what each row changes and costs, before anything is trained."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from ablate.analysis.tuning_runs import tuning_runs_of
from ablate.config import RowConfig, cost
from ablate.config.data import CorpusConfig
from ablate.config.lengths import ASSUMED_LENGTH, Lengths
from ablate.config.memory import CPU_MICRO_BATCH, peak_memory
from ablate.config.training import resolve_precision
from ablate.formatting import plural
from ablate.plan.time_left import PlannedDevice, Rates, measured_rates, other_machine
from ablate.stats.designs import FactorialDesign
from ablate.store import Results, State, none_if_unreadable, state_of
from ablate.store.checkpoints import RESUMABLE
from ablate.store.corpora import known_lengths
from ablate.store.machine import Device, processor_has_bf16, visible_gpus
from ablate.store.records import Progress
from ablate.study import Row, Run, Runs, Study
from ablate.study.choice import TUNING


@dataclass(frozen=True)
class PlanRow:
    """A row with its runs. Its cost in closed form is computed when it is first read.

    V: vocabulary size.
    runs: runs with their states, in the order of the seeds.
    lengths: sentence lengths of the corpus; None until the corpus is prepared.
    device: kind of device for which memory is estimated.
    processes: number of processes that train one run.
    draws_items: whether every training item is newly generated, so that there are no epochs.
    """

    row: Row
    V: int
    runs: tuple[tuple[Run, State], ...]
    lengths: Lengths | None
    device: PlannedDevice
    processes: int
    draws_items: bool

    @property
    def label(self) -> str:
        """Label of the row."""
        return self.row.label

    @property
    def config(self) -> RowConfig:
        """Configuration of the row."""
        return self.row.config

    @cached_property
    def params(self) -> int:
        """Number of trained parameters."""
        return cost.parameters(self.config, self.V)

    @property
    def active_params(self) -> int:
        """Number of parameters that a token uses: without experts to which it is not routed."""
        return self.params - cost.idle_parameters(self.config)

    @property
    def epochs(self) -> float | None:
        """Number of passes over the training text; None until the corpus is prepared, and for items
        that are newly generated.
        """
        if self.lengths is None or self.draws_items:
            return None
        return cost.epochs(self.config, self.lengths)

    @property
    def steps(self) -> int | None:
        """Number of optimizer steps; None if the configuration does not determine it."""
        return cost.steps(self.config, self.lengths)

    @cached_property
    def flops_per_step(self) -> float:
        """FLOPs of one optimizer step."""
        return cost.flops_per_step(self.config, self.V, self.lengths or Lengths.assumed())

    @property
    def flops(self) -> float | None:
        """FLOPs of one training; None if the number of steps is not known yet."""
        return None if self.steps is None else self.flops_per_step * self.steps

    @property
    def checkpoint_bytes(self) -> int:
        """Size of one checkpoint."""
        return cost.checkpoint_bytes(self.config, self.V)

    @cached_property
    def run_bytes(self) -> int:
        """The largest size of the files of one run during training, in bytes."""
        # The oldest checkpoint is deleted only after the newest is complete.
        return cost.run_bytes(self.config, self.V, RESUMABLE + 1)

    @cached_property
    def peak_memory(self) -> int:
        """Peak memory of one process in bytes, with the largest micro-batches that training tries:
        `micro_batch_tokens` if it is set; else, on a GPU, the whole batch or the process's part of
        it, and on a CPU at most CPU_MICRO_BATCH tokens.
        """
        part = math.ceil(self.config.batch_tokens / self.processes)
        limit = CPU_MICRO_BATCH if self.device == "cpu" else part
        tokens = min(part, self.config.micro_batch_tokens or limit)
        length = None
        if self.lengths is not None and self.config.context is None:
            # The memory of attention is proportional to the sum of T² over the sentences of a
            # batch, which has a given sum of T. So the mean length per token counts,
            # sum T² / sum T.
            length = self.lengths.target_squares // self.lengths.target_tokens
        return peak_memory(
            self.config, self.V, tokens, self.device, processes=self.processes, length=length
        )

    def completed_share(self, report: Progress | None) -> float:
        """The share of the steps of an unfinished run that its last report has, 0 to 1."""
        if report is None or not report.step or not self.steps:
            return 0.0
        return min(1.0, report.step / self.steps)


class PlannedRun(NamedTuple):
    """A run of the plan.

    row: a row that needs the run.
    state: state of the run for this row.
    is_trained: whether the run has weights, so that it lacks at most a decoding.
    """

    row: PlanRow
    state: State
    is_trained: bool

    @property
    def is_missing(self) -> bool:
        """Whether the run is neither done nor diverged."""
        return self.state not in ("done", "diverged")


@dataclass(frozen=True)
class Plan:
    """The plan of a study.

    planned: runs of the study, without tuning runs.
    rows: rows of the study.
    tuning: rows of the tuning runs, which count in all totals.
    runs: each run of all rows, by id.
    lengths: sentence lengths of base's corpus; None until all corpora are prepared, so that lengths
        are assumed.
    seconds_by_run: estimated seconds left of each run that must still be trained, by id; None until
        a run has finished on this machine.
    device: device for which time and memory are estimated.
    processes: number of processes that train one run.
    """

    planned: Runs
    rows: tuple[PlanRow, ...]
    tuning: tuple[PlanRow, ...]
    runs: Mapping[str, PlannedRun]
    lengths: Lengths | None
    seconds_by_run: dict[str, float] | None
    device: PlannedDevice
    processes: int

    @property
    def study(self) -> Study:
        """The study with its options, before results."""
        return self.planned.study

    @property
    def seconds(self) -> float | None:
        """Estimated seconds for all unfinished runs; None if unknown."""
        return None if self.seconds_by_run is None else sum(self.seconds_by_run.values())

    @property
    def all_rows(self) -> tuple[PlanRow, ...]:
        """The rows of tuning runs and of the study, in the order of execution."""
        return *self.tuning, *self.rows

    @property
    def missing(self) -> frozenset[str]:
        """Ids of the runs that are neither done nor diverged."""
        return frozenset(id for id, run in self.runs.items() if run.is_missing)

    @property
    def runs_text(self) -> str:
        """The number of runs, and of tuning runs: `70 runs (16 of them for tuning)`."""
        text = plural(len(self.runs), "run")
        tuning = len(self.runs.keys() - self.planned.by_id.keys())
        return f"{text} ({tuning} of them for tuning)" if tuning else text

    @property
    def only_decoding(self) -> frozenset[str]:
        """Ids of the missing runs that are trained and lack only a decoding."""
        return frozenset(id for id in self.missing if self.runs[id].is_trained)

    @property
    def flops(self) -> float | None:
        """FLOPs of all runs, each counted once; None if the FLOPs of a row are not known yet."""
        total = 0.0
        for run in self.runs.values():
            if run.row.flops is None:
                return None
            total += run.row.flops
        return total

    @property
    def disk_bytes(self) -> int:
        """The largest size of the files of all runs during training, in bytes."""
        return sum(run.row.run_bytes for run in self.runs.values())

    def as_json(self) -> dict[str, Any]:
        """The plan as JSON values. Parts that the study does not have are left out."""
        content: dict[str, Any] = {
            "study": self.study.name,
            "judge": list(self.study.metrics.judged),
        }
        if self.planned.base.decoding_choice is not None:
            content["decoding"] = self.planned.base.decoding_choice.as_json()
        content["rows"] = list(map(self._row_json, self.rows))
        if self.tuning:
            content[TUNING] = list(map(self._row_json, self.tuning))
        for design in self.study.designs:
            if isinstance(design, FactorialDesign):
                content.setdefault("designs", []).append(design.as_json())
        content["dropped"] = self.study.whole.dropped
        content["totals"] = {
            "rows": len(self.rows),
            "runs": len(self.runs),
            "missing": len(self.missing),
            "only_decoding": len(self.only_decoding),
            "flops": self.flops,
            "disk_bytes": self.disk_bytes,
            "seconds": self.seconds,
        }
        content["assumed_length"] = None
        if self.lengths is None and not self.study.data.is_stream:
            content["assumed_length"] = ASSUMED_LENGTH
        return content

    def _row_json(self, plan_row: PlanRow) -> dict[str, Any]:
        row = plan_row.row
        params = plan_row.params
        runs = []
        for run, state in plan_row.runs:
            id = None if run.awaits_choice else run.id
            runs.append({"id": id, "seed": run.seed, "state": state})
        optional: dict[str, Any] = {}
        if row.matched:
            optional["matched"] = row.matched.as_json()
        if row.own_choice:
            optional[TUNING] = row.own_choice.as_json()
        if plan_row.active_params < params:
            optional["active_params"] = plan_row.active_params
        return {
            "row": row.label,
            "group": row.group,
            "changed": row.changed,
            **optional,
            "config": row.config.model_dump(),
            "params": params,
            "flops_per_step": plan_row.flops_per_step,
            "steps": plan_row.steps,
            "epochs": plan_row.epochs,
            "precision": precision_on(self.device, row.config),
            "checkpoint_bytes": plan_row.checkpoint_bytes,
            "peak_memory_bytes": plan_row.peak_memory,
            "runs": runs,
        }


def device_kind(device: Device) -> PlannedDevice:
    """The device that `ablate run` takes on this machine."""
    return "cuda" if device == "cuda" or (device == "auto" and visible_gpus()) else "cpu"


def has_bf16(device: PlannedDevice) -> bool:
    """Whether a device computes products in bf16; assumed of a GPU."""
    return device == "cuda" or processor_has_bf16()


def precision_on(device: PlannedDevice, config: RowConfig) -> str:
    """The precision of a row on a device."""
    return resolve_precision(config.precision, device, has_bf16(device))


def plan_of(
    runs: Runs,
    results: Results,
    device: Device = "auto",
    processes: int = 1,
) -> Plan:
    """Plan runs and the tuning runs of their rows, without training and without reading the corpus.

    Args:
        runs: runs of the rows.
        results: results root.
        device: device for which time and memory are estimated; `auto` for the device that
            `ablate run` would use on this machine. The time is estimated from runs that this
            machine has finished on the same kind of device.
        processes: number of processes that train one run, each on a part of the batch.

    Raises:
        StoreError: a result is damaged.
    """
    kind = device_kind(device)
    rows = _plan_rows(runs, results, kind, processes)
    tuning_runs = tuning_runs_of(runs)
    tuning = _plan_rows(tuning_runs, results, kind, processes) if tuning_runs else ()
    planned_runs = _planned_runs((*tuning, *rows), results)
    rates = {}
    if _untrained(planned_runs):
        rates = measured_rates(results, planned_runs, device=kind)
    # Lengths of base are shown only if the lengths of all rows are known.
    are_known = all(row.lengths is not None for row in rows)
    return Plan(
        runs,
        rows,
        tuning,
        planned_runs,
        lengths=rows[0].lengths if are_known else None,
        seconds_by_run=_seconds_by_run(planned_runs, results, kind, rates),
        device=kind,
        processes=processes,
    )


def _plan_rows(
    runs: Runs, results: Results, device: PlannedDevice, processes: int
) -> tuple[PlanRow, ...]:
    lengths_by_data = lengths_of(runs, results)
    rows = []
    for row in runs.rows:
        data = runs.data_of(row)
        states = [(run, state_of(results.run(run.id), row.decoding)) for run in runs.of(row)]
        plan_row = PlanRow(
            row,
            data.vocab_size,
            tuple(states),
            lengths_by_data[data],
            device=device,
            processes=processes,
            draws_items=data.draws_items,
        )
        rows.append(plan_row)
    return tuple(rows)


def _planned_runs(rows: Iterable[PlanRow], results: Results) -> dict[str, PlannedRun]:
    """Each run of some rows, by id.

    Rows that differ only in decoding share a run, which may be done for one row and not for
    another. Then the run is not done, and the row is one for which it is not done.
    """
    runs: dict[str, PlannedRun] = {}
    for row in rows:
        for run, state in row.runs:
            earlier = runs.get(run.id)
            if earlier is None or (earlier.state == "done" and state != "done"):
                is_trained = state == "done" or results.run(run.id).has_result
                runs[run.id] = PlannedRun(row, state, is_trained)
    return runs


def lengths_of(runs: Runs, results: Results) -> dict[CorpusConfig, Lengths | None]:
    """Sentence lengths of the corpora of some rows; None for a corpus that is not prepared."""
    return {
        data: known_lengths(data, results.corpora)
        for data in dict.fromkeys(map(runs.data_of, runs.rows))
    }


def _untrained(runs: Mapping[str, PlannedRun]) -> dict[str, PlanRow]:
    """The missing runs that must still be trained: a row of each run, by id. A run that lacks only
    a decoding takes little time and is left out.
    """
    return {id: run.row for id, run in runs.items() if run.is_missing and not run.is_trained}


def _seconds_by_run(
    runs: Mapping[str, PlannedRun],
    results: Results,
    device: PlannedDevice,
    rates: Mapping[str, Rates],
    default: Rates | None = None,
) -> dict[str, float] | None:
    """Estimated seconds left of each run that must still be trained, by id.

    Args:
        runs: runs of the plan, by id.
        results: results root.
        device: device on which the runs will be trained.
        rates: rates of a machine, by precision.
        default: rates for rows that set no precision; None to use the rates at the default
            precision of this machine. The default precision of another machine is not known.

    Returns:
        The seconds; None if they are unknown for one of the runs, because a sum over the others
        would be too small.
    """
    seconds: dict[str, float] = {}
    for id, row in _untrained(runs).items():
        measured = rates.get(precision_on(device, row.config))
        if row.config.precision is None and default is not None:
            measured = default
        if row.flops is None or measured is None:
            return None
        report = none_if_unreadable(results.run(id).read_progress)
        work = row.flops * (1.0 - row.completed_share(report))
        seconds[id] = work / measured.rate(row.flops_per_step)
    return seconds


def seconds_on_cluster(plan: Plan, results: Results) -> tuple[float, str] | None:
    """Estimate the time of all unfinished runs on a node of a cluster. The rates are measured on
    the machine, other than this one, that has finished most runs, or on this machine if no other
    machine has finished a run.

    Returns:
        The seconds on one node, or on one of its GPUs if it has GPUs, and the name of the
        processor; None if the rates are not known.
    """
    node = other_machine(results, plan.runs)
    rates = measured_rates(results, plan.runs, node)
    default = None
    if len(rates) == 1:
        (default,) = rates.values()
    seconds = _seconds_by_run(plan.runs, results, plan.device, rates, default)
    if seconds is None:
        return None
    return sum(seconds.values()), node.processor or "this machine"
