"""The plan of a study: what each row changes and costs, before anything is trained."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from ablate.analysis.tuning_runs import tuning_runs_of
from ablate.config import RowConfig, cost
from ablate.config.data import CorpusConfig
from ablate.config.lengths import ASSUMED_LENGTH, Lengths
from ablate.config.memory import CPU_MICRO_BATCH, peak_memory
from ablate.config.synthetic_data import DRAWN
from ablate.config.training import precision_note, resolve_precision
from ablate.formatting import concerned_rows, first_few, percent
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
    is_drawn: whether every training item is newly generated, so that there are no epochs.
    device: kind of device for which memory is estimated.
    processes: number of processes that train one run.
    """

    row: Row
    V: int
    runs: tuple[tuple[Run, State], ...]
    lengths: Lengths | None = None
    is_drawn: bool = False
    device: PlannedDevice = "cpu"
    processes: int = 1

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
        if self.lengths is None or self.is_drawn:
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

    @property
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


class RunStatus(NamedTuple):
    """One run for `ablate status`; `detail` is its progress, outcome or failure in one line."""

    row: str
    seed: int
    id: str
    state: State
    detail: str


class PlannedRun(NamedTuple):
    """A row that needs a run, and the state of the run for this row."""

    row: PlanRow
    state: State


@dataclass(frozen=True)
class Plan:
    """The plan of a study.

    planned: runs of the rows.
    rows: rows of the study.
    lengths: sentence lengths of base's corpus; None until all corpora are prepared, so that lengths
        are assumed.
    seconds_of: estimated seconds left of each unfinished run, by id; None until a run has finished
        on this machine.
    trained: ids of the runs that lack only a decoding.
    tuning: rows of the tuning runs, which count in all totals.
    device: device for which time and memory are estimated.
    processes: number of processes that train one run.
    """

    planned: Runs
    rows: tuple[PlanRow, ...]
    lengths: Lengths | None
    seconds_of: dict[str, float] | None
    trained: frozenset[str] = frozenset()
    tuning: tuple[PlanRow, ...] = ()
    device: PlannedDevice = "cpu"
    processes: int = 1

    @property
    def study(self) -> Study:
        """The study with its options, before results."""
        return self.planned.study

    @property
    def has_bf16(self) -> bool:
        """Whether the device computes products in bf16; assumed of a GPU."""
        return self.device == "cuda" or processor_has_bf16()

    def precision(self, config: RowConfig) -> str:
        """The precision of a row on this plan's device."""
        return resolve_precision(config.precision, self.device, self.has_bf16)

    @property
    def seconds(self) -> float | None:
        """Estimated seconds for all unfinished runs; None if unknown."""
        return None if self.seconds_of is None else sum(self.seconds_of.values())

    @property
    def all_rows(self) -> tuple[PlanRow, ...]:
        """The rows of tuning runs and of the study, in the order of execution."""
        return *self.tuning, *self.rows

    @cached_property
    def runs(self) -> dict[str, PlannedRun]:
        """Each run, by id.

        Rows that differ only in decoding share a run, which may be done for one row and not for
        another. Then the run is not done, and the row is one for which it is not done.
        """
        runs: dict[str, PlannedRun] = {}
        for row in self.all_rows:
            for run, state in row.runs:
                earlier = runs.get(run.id)
                if earlier is None or (earlier.state == "done" and state != "done"):
                    runs[run.id] = PlannedRun(row, state)
        return runs

    @cached_property
    def missing(self) -> dict[str, PlanRow]:
        """The runs that are neither done nor diverged: a row of each run, by id."""
        missing = {}
        for id, (row, state) in self.runs.items():
            if state not in ("done", "diverged"):
                missing[id] = row
        return missing

    @property
    def untrained(self) -> dict[str, PlanRow]:
        """The missing runs that must still be trained: a row of each run, by id. A run that lacks
        only a decoding takes little time and is left out.
        """
        return {id: row for id, row in self.missing.items() if id not in self.trained}

    @property
    def flops(self) -> float | None:
        """FLOPs of all runs, each counted once; None if the FLOPs of a row are not known yet."""
        total = 0.0
        for row, _ in self.runs.values():
            if row.flops is None:
                return None
            total += row.flops
        return total

    @property
    def disk_bytes(self) -> int:
        """The largest size of the files of all runs during training, in bytes."""
        runs_by_label = Counter(row.label for row, _ in self.runs.values())
        total = 0
        for row in self.all_rows:
            if row.label in runs_by_label:
                # The oldest checkpoint is deleted only after the newest is complete.
                bytes_of_run = cost.run_bytes(row.config, row.V, RESUMABLE + 1)
                total += runs_by_label[row.label] * bytes_of_run
        return total

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
                content.setdefault("designs", []).append(_design_json(design))
        content["dropped"] = self.study.whole.dropped
        content["totals"] = {
            "rows": len(self.rows),
            "runs": len(self.runs),
            "missing": len(self.missing),
            "only_decoding": len(self.trained),
            "flops": self.flops,
            "disk_bytes": self.disk_bytes,
            "seconds": self.seconds,
        }
        content["assumed_length"] = None
        if self.lengths is None and not self.study.data.is_stream:
            content["assumed_length"] = ASSUMED_LENGTH
        return content

    def _row_json(self, planned: PlanRow) -> dict[str, Any]:
        row = planned.row
        params = planned.params
        runs = []
        for run, state in planned.runs:
            id = None if run.awaits_choice else run.id
            runs.append({"id": id, "seed": run.seed, "state": state})
        optional: dict[str, Any] = {}
        if row.matched:
            optional["matched"] = row.matched.as_json()
        if row.own_choice:
            optional[TUNING] = row.own_choice.as_json()
        if planned.active_params < params:
            optional["active_params"] = planned.active_params
        return {
            "row": row.label,
            "group": row.group,
            "changed": row.changed,
            **optional,
            "config": row.config.model_dump(),
            "params": params,
            "flops_per_step": planned.flops_per_step,
            "steps": planned.steps,
            "epochs": planned.epochs,
            "precision": self.precision(row.config),
            "checkpoint_bytes": planned.checkpoint_bytes,
            "peak_memory_bytes": planned.peak_memory,
            "runs": runs,
        }


def device_kind(device: Device) -> PlannedDevice:
    """The device that `ablate run` takes on this machine."""
    return "cuda" if device == "cuda" or (device == "auto" and visible_gpus()) else "cpu"


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
    tuning = tuning_runs_of(runs)
    kind = device_kind(device)
    lengths_by_data = lengths_of(runs, results)

    def plan_rows(runs: Runs) -> tuple[PlanRow, ...]:
        rows = []
        for row in runs.rows:
            data = runs.data_of(row)
            states = [(run, state_of(results.run(run.id), row.decoding)) for run in runs.of(row)]
            rows.append(
                PlanRow(
                    row,
                    data.vocab_size,
                    tuple(states),
                    lengths_by_data[data],
                    is_drawn(runs.study.data),
                    kind,
                    processes,
                )
            )
        return tuple(rows)

    # The plan shows the lengths of base, or says that lengths are assumed, as soon as they are
    # assumed for any row.
    base_lengths = lengths_by_data[runs.data_of(runs.base)]
    plan = Plan(
        runs,
        plan_rows(runs),
        lengths=None if None in lengths_by_data.values() else base_lengths,
        seconds_of=None,
        tuning=plan_rows(tuning) if tuning else (),
        device=kind,
        processes=processes,
    )
    trained = frozenset(id for id in plan.missing if results.run(id).has_result)
    plan = replace(plan, trained=trained)
    rates = {}
    if plan.untrained:
        rates = measured_rates(results, plan.runs, device=kind)
    return replace(plan, seconds_of=seconds_left(plan, results, rates))


def lengths_of(runs: Runs, results: Results) -> dict[CorpusConfig, Lengths | None]:
    """Sentence lengths of the corpora of some rows; None for a corpus that is not prepared."""
    return {
        data: known_lengths(data, results.corpora)
        for data in dict.fromkeys(map(runs.data_of, runs.rows))
    }


def is_drawn(data: CorpusConfig) -> bool:
    """Whether every training item is newly generated, so that there are no epochs."""
    return data.generated and data.train == DRAWN


def epochs_lines(epochs: Mapping[str, float | None]) -> Iterator[str]:
    """Yield the number of epochs of each row, and a note on rows that do not read all of their
    training text.

    Args:
        epochs: number of epochs by the label of a row; None if it is not known.
    """
    labels_by_text: dict[str, list[str]] = defaultdict(list)
    partial: dict[str, float] = {}
    for label, number in epochs.items():
        if number is None:
            continue
        text = f"{number:.2g}" if number < 10 else f"{number:,.0f}"
        labels_by_text[text].append(label)
        if number < 1:
            partial[label] = number
    if not labels_by_text:
        return
    texts = list(labels_by_text)
    if len(texts) > 1:
        texts = [f"{text} ({first_few(labels)})" for text, labels in labels_by_text.items()]
    yield f"Epochs per run (passes over the training text): {', '.join(texts)}."
    if partial:
        share = percent(min(partial.values()))
        if len(set(partial.values())) > 1:
            share += " or more"
        yield (
            f"note: training ends after {share} of the training text in "
            f"{concerned_rows(list(partial), len(epochs))}; more train_steps or a larger "
            "batch_tokens would read the rest."
        )


def seconds_left(
    plan: Plan,
    results: Results,
    rates: Mapping[str, Rates],
    default: Rates | None = None,
) -> dict[str, float] | None:
    """Estimated seconds left of each run that must still be trained, by id.

    Args:
        plan: plan of the study.
        results: results root.
        rates: rates of a machine, by precision.
        default: rates of that machine for rows that set no precision; None for this machine, whose
            default precision is known.

    Returns:
        The seconds; None if they are unknown for one of the runs, because a sum over the others
        would be too small.
    """
    seconds: dict[str, float] = {}
    for id, row in plan.untrained.items():
        measured = rates.get(plan.precision(row.config))
        if row.config.precision is None and default is not None:
            measured = default
        if row.flops is None or measured is None:
            return None
        report = none_if_unreadable(results.run(id).read_progress)
        work = row.flops * (1.0 - row.completed_share(report))
        seconds[id] = work / measured.rate(row.flops_per_step)
    return seconds


def seconds_elsewhere(plan: Plan, results: Results) -> tuple[float, str] | None:
    """Estimate the time of all unfinished runs on a node of a cluster.

    The node is the machine, other than this one, that has finished most runs; this machine if no
    other one has finished a run.

    Returns:
        The seconds on one node, or on one of its GPUs if it has GPUs, and the name of the node's
        processor; None if no rate of the node is known.
    """
    node = other_machine(results, plan.runs)
    rates = measured_rates(results, plan.runs, node)
    default = None
    if len(rates) == 1:
        (default,) = rates.values()
    seconds = seconds_left(plan, results, rates, default)
    if seconds is None:
        return None
    return sum(seconds.values()), node.processor or "this machine"


def _design_json(design: FactorialDesign) -> dict[str, Any]:
    return {
        "group": design.group,
        "title": design.title,
        "rows": list(design.rows),
        "aliases": design.alias_lines(),
    }


def precision_lines(plan: Plan) -> list[str]:
    """The precision of the rows on the plan's device, and notes on settings of `precision` that do
    not suit the device.
    """
    settings: dict[str | None, None] = {}
    chosen: dict[str, None] = {}
    for row in plan.rows:
        settings[row.config.precision] = None
        chosen[plan.precision(row.config)] = None
    by_device = ""
    if plan.device == "cpu" and None in settings:
        by_device = " on this CPU; bf16 on a GPU that has it"
    lines = [f"Precision: {', '.join(chosen)}{by_device}."]
    for setting in settings:
        note = precision_note(setting, plan.device, plan.has_bf16)
        if note is not None:
            lines.append(f"{note}.")
    return lines


def memory_line(plan: Plan) -> str:
    """The device and the batch for which the memory of the rows is estimated, in a sentence."""
    device = "a GPU"
    batch = "a whole batch"
    if plan.processes > 1:
        batch = f"one of {plan.processes} parts of a batch"
    if plan.device == "cpu":
        device = "a CPU"
        batch = f"micro-batches of up to {CPU_MICRO_BATCH:,} tokens"
    return (
        f"Memory is estimated for one process on {device} with {batch}, without the memory of "
        f"Python and torch themselves; if it does not fit, the batch is split further."
    )
