"""The plan of a study: the changes of each row and its cost, before anything is trained."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

from ablate.analysis.trials import trials_of
from ablate.config import RowConfig, cost
from ablate.config.data import CorpusConfig
from ablate.config.lengths import ASSUMED_LENGTH, Lengths
from ablate.config.memory import CPU_MICRO_BATCH, peak_memory
from ablate.config.synthetic_data import DRAWN
from ablate.config.training import precision_note, resolve_precision
from ablate.formatting import first_few, percent
from ablate.plan.time_left import PlannedDevice, Rates, measured_rates, other_machine
from ablate.stats.designs import FactorialDesign
from ablate.store import Results, State, none_if_unreadable, state_of
from ablate.store.checkpoints import RESUMABLE
from ablate.store.corpora import known_lengths
from ablate.store.jobs import Device
from ablate.store.machine import processor_has_bf16, visible_gpus
from ablate.store.records import Progress
from ablate.store.status import state_of_all
from ablate.study import Row, Run, Runs, Study
from ablate.study.choice import KEY


@dataclass(frozen=True)
class PlanRow:
    """A row with its cost in closed form.

    V: size of its vocabulary.
    params: trained parameters.
    steps: optimizer steps; None if the configuration does not determine them.
    checkpoint_bytes: size of one checkpoint.
    peak_memory: bytes of one process of a training, for a whole batch or its part,
        `micro_batch_tokens`, or the largest micro-batch of a CPU.
    runs: with their states, in the order of the seeds.
    lengths: of its corpus; None while it is not prepared, and of items drawn without end.
    """

    row: Row
    V: int
    params: int
    flops_per_step: float
    steps: int | None
    checkpoint_bytes: int
    peak_memory: int
    runs: tuple[tuple[Run, State], ...]
    lengths: Lengths | None = None

    @property
    def active_params(self) -> int:
        """Parameters without those of experts that a token does not meet."""
        return self.params - cost.idle_parameters(self.row.config)

    @property
    def epochs(self) -> float | None:
        """Times that training reads its text; None while that is not known, or without end."""
        if self.lengths is None:
            return None
        return cost.epochs(self.row.config, self.lengths)

    @property
    def flops(self) -> float | None:
        """FLOPs of one training; None if its steps are not known yet."""
        return None if self.steps is None else self.flops_per_step * self.steps

    def completed_share(self, report: Progress | None) -> float:
        """The completed share of an unfinished run's steps by its last report, 0 to 1."""
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


@dataclass(frozen=True)
class Plan:
    """The plan of a study.

    planned: the runs of the rows.
    trials: the rows of the trials; their runs count in all totals.
    lengths: of the corpus; None while it is not prepared, so that lengths are assumed.
    seconds_of: estimated time left of each unfinished run, by id; None until a run has finished on
        this machine.
    trained: ids of the runs that lack only a decoding.
    device: that time and memory are estimated for.
    processes: that train each run together.
    """

    planned: Runs
    rows: tuple[PlanRow, ...]
    lengths: Lengths | None
    seconds_of: dict[str, float] | None
    trained: frozenset[str] = frozenset()
    trials: tuple[PlanRow, ...] = ()
    device: PlannedDevice = "cpu"
    processes: int = 1

    @property
    def study(self) -> Study:
        """The study as asked."""
        return self.planned.study

    @property
    def has_bf16(self) -> bool:
        """Whether the device computes products in bf16; a GPU is taken to do so."""
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
        """In the order of execution."""
        return *self.trials, *self.rows

    @cached_property
    def runs(self) -> dict[str, tuple[PlanRow, State]]:
        """Each run once, by id: its state, and a row that has it in this state."""
        runs: dict[str, tuple[PlanRow, State]] = {}
        for row in self.all_rows:
            for run, state in row.runs:
                before = runs.get(run.id, (row, state))
                of_all = state_of_all((before[1], state))
                runs[run.id] = before if of_all == before[1] else (row, state)
        return runs

    @cached_property
    def missing(self) -> dict[str, PlanRow]:
        """The rows of the runs that are neither done nor diverged, by id."""
        missing = {}
        for id, (row, state) in self.runs.items():
            if state not in ("done", "diverged"):
                missing[id] = row
        return missing

    @property
    def untrained(self) -> dict[str, PlanRow]:
        """Those of them that do not lack a decoding alone, which takes little beside a training."""
        return {id: row for id, row in self.missing.items() if id not in self.trained}

    @property
    def flops(self) -> float | None:
        """FLOPs of all trainings, each once; None if a row's are not known yet."""
        of_runs = [row.flops for row, _ in self.runs.values()]
        return None if None in of_runs else sum(filter(None, of_runs), 0.0)

    @property
    def disk_bytes(self) -> int:
        """The most that all runs take during training."""
        # The oldest checkpoint is deleted after the newest is complete.
        rows = Counter(row.row.label for row, _ in self.runs.values())
        total = 0
        for row in self.all_rows:
            if row.row.label in rows:
                bytes_of_run = cost.run_bytes(row.row.config, row.V, RESUMABLE + 1)
                total += rows[row.row.label] * bytes_of_run
        return total

    def as_json(self) -> dict[str, Any]:
        """The plan for scripts; what the study does not have is left out."""
        content: dict[str, Any] = {
            "study": self.study.name,
            "judge": list(self.study.metrics.judged),
        }
        if self.planned.base.decoding_choice is not None:
            content["decoding"] = self.planned.base.decoding_choice.as_json()
        content["rows"] = list(map(self._row_json, self.rows))
        if self.trials:
            content[KEY] = list(map(self._row_json, self.trials))
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
        row, params = planned.row, planned.params
        runs = []
        for run, state in planned.runs:
            id = None if run.awaits_choice else run.id
            runs.append({"id": id, "seed": run.seed, "state": state})
        of_some: dict[str, Any] = {}
        if row.matched:
            of_some["matched"] = row.matched.as_json()
        if row.own_choice:
            of_some[KEY] = row.own_choice.as_json()
        if planned.active_params < params:
            of_some["active_params"] = planned.active_params
        return {
            "row": row.label,
            "group": row.group,
            "changed": row.changed,
            **of_some,
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
    """Plan runs and the trials of their rows, without training and without reading the corpus.

    Args:
        runs: of the rows.
        results: root of the results.
        device: that time and memory are estimated for; `auto` is the one that `ablate run` takes on
            this machine. The time follows from the runs that this machine has finished on it.
        processes: that train each run together, each on a part of the batch.

    Raises:
        StoreError: a result is damaged.
    """
    trials, kind = trials_of(runs), device_kind(device)
    known = lengths_of(runs, results)

    def planned(runs: Runs) -> tuple[PlanRow, ...]:
        rows = []
        for row in runs.rows:
            lengths = known[runs.data_of(row)]
            rows.append(_plan_row(runs, row, results, lengths, kind, processes))
        return tuple(rows)

    plan = Plan(
        runs,
        planned(runs),
        None if None in known.values() else known[runs.data_of(runs.base)],
        None,
        trials=planned(trials) if trials else (),
        device=kind,
        processes=processes,
    )
    trained = frozenset(id for id in plan.missing if results.run(id).has_result)
    plan = replace(plan, trained=trained)
    rates = {}
    if plan.untrained:
        rates = measured_rates(results, plan.runs, None, kind)
    return replace(plan, seconds_of=seconds_left(plan, plan.untrained, results, rates))


def lengths_of(runs: Runs, results: Results) -> dict[CorpusConfig, Lengths | None]:
    """Lengths of the corpora of some rows; None for one that is not prepared."""
    return {
        data: known_lengths(data, results.corpora)
        for data in dict.fromkeys(map(runs.data_of, runs.rows))
    }


def _plan_row(
    planned: Runs,
    row: Row,
    results: Results,
    lengths: Lengths | None,
    device: PlannedDevice,
    processes: int,
) -> PlanRow:
    V = planned.data_of(row).vocab_size
    most = part = -(-row.config.batch_tokens // processes)
    if device == "cpu":
        most = CPU_MICRO_BATCH
    tokens = min(part, row.config.micro_batch_tokens or most)
    length = None
    if lengths is not None and row.config.context is None:
        length = lengths.target_squares // lengths.target_tokens

    runs = [(run, state_of(results.run(run.id), row.decoding)) for run in planned.of(row)]
    return PlanRow(
        row=row,
        V=V,
        params=cost.parameters(row.config, V),
        flops_per_step=cost.flops_per_step(row.config, V, lengths or Lengths.assumed()),
        steps=cost.steps(row.config, lengths),
        checkpoint_bytes=cost.checkpoint_bytes(row.config, V),
        peak_memory=peak_memory(row.config, V, tokens, device, processes=processes, length=length),
        runs=tuple(runs),
        lengths=None if is_drawn(planned.study.data) else lengths,
    )


def is_drawn(data: CorpusConfig) -> bool:
    """Whether training items are generated without end, so that there are no epochs."""
    return data.generated and data.train == DRAWN


def epochs_lines(epochs: Mapping[str, float | None]) -> Iterator[str]:
    """Yield the epochs of rows, and which of them do not read all of their text.

    Args:
        epochs: by the label of a row; None where they are not known.
    """
    known = {label: number for label, number in epochs.items() if number is not None}
    by_text: dict[str, list[str]] = defaultdict(list)
    for label, number in known.items():
        by_text[f"{number:.2g}" if number < 10 else f"{number:,.0f}"].append(label)
    if not by_text:
        return
    texts = [f"{text} ({first_few(labels)})" for text, labels in by_text.items()]
    yield f"Epochs: {next(iter(by_text)) if len(texts) == 1 else ', '.join(texts)}."
    partial = {label: number for label, number in known.items() if number < 1}
    if partial:
        yield (
            f"NOTE: training ends before it has read its text once, after "
            f"{percent(min(partial.values()))} of it or more: {first_few(list(partial))}; "
            "more train_steps or a larger batch_tokens would read the rest."
        )


def seconds_left(
    plan: Plan,
    untrained: Collection[str],
    results: Results,
    rates: Mapping[str, Rates],
    default: Rates | None = None,
) -> dict[str, float] | None:
    """Estimated time left of each training; None if it is unknown.

    Args:
        plan: of the study.
        untrained: ids of the runs.
        results: root of the results.
        rates: by precision.
        default: rates of runs in the default precision of a node, where that is not known here.
    """
    seconds: dict[str, float] = {}
    for id, (row, _) in plan.runs.items():
        if id not in untrained:
            continue
        rate = rates.get(plan.precision(row.row.config))
        if row.row.config.precision is None and default is not None:
            rate = default
        # The sum over the other runs would be an underestimate.
        if row.flops is None or rate is None:
            return None
        report = none_if_unreadable(results.run(id).read_progress)
        work = row.flops * (1.0 - row.completed_share(report))
        seconds[id] = work / rate.of(row.flops_per_step)
    return seconds


def seconds_elsewhere(plan: Plan, results: Results) -> tuple[float, str] | None:
    """Estimated seconds for all unfinished runs on one node of a cluster, or on one of its GPUs,
    and its processor.

    The node is the machine, other than this one, that has finished most runs; else this machine.
    None if the rate of neither is known.
    """
    node = other_machine(results, plan.runs)
    rates = measured_rates(results, plan.runs, node)
    default = None
    if len(rates) == 1:
        (default,) = rates.values()
    seconds = seconds_left(plan, plan.untrained, results, rates, default)
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
    """The precision of the device, and remarks on settings that it does not serve well."""
    settings: dict[str | None, None] = {}
    chosen: dict[str, None] = {}
    for row in plan.rows:
        settings[row.row.config.precision] = None
        chosen[plan.precision(row.row.config)] = None
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
    """The device and the batch that the memory of the rows is estimated for."""
    on, batch = "a GPU", "a whole batch"
    if plan.processes > 1:
        batch = f"one of {plan.processes} parts of a batch"
    if plan.device == "cpu":
        on, batch = "a CPU", f"micro-batches of up to {CPU_MICRO_BATCH:,} tokens"
    return (
        f"Memory is that of one process on {on} with {batch}, beside Python and torch; if it does "
        f"not fit, the batch is split further."
    )
