"""The plan of a study: the changes of each row and its cost, before anything is trained."""

from __future__ import annotations

import itertools
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple

from ablate.config import RowConfig, cost
from ablate.config.cost import Lengths
from ablate.config.memory import CPU_MICRO_BATCH, SMALLEST_MICRO_BATCH, peak_memory
from ablate.config.training import precision_note, resolve_precision
from ablate.errors import StoreError
from ablate.store import Results, State, state_of
from ablate.store.checkpoints import RESUMABLE
from ablate.store.corpora import known_lengths, lengths_in
from ablate.store.machine import machine, processor_has_bf16, visible_gpus
from ablate.store.records import Machine, Progress
from ablate.store.status import read_progress, read_provenance
from ablate.study import Row, Run, Study
from ablate.study.designs import FactorialDesign

PlannedDevice = Literal["cpu", "cuda"]
# Finished runs, of other studies too, that this machine's rate is measured from. A large root has
# too many to read all.
RATE_SAMPLES = 50


@dataclass(frozen=True)
class PlanRow:
    """A row with its cost in closed form.

    V: size of its vocabulary.
    params: trained parameters.
    steps: optimizer steps; None if the configuration does not determine them.
    checkpoint_bytes: size of one checkpoint.
    peak_memory: bytes of one process of a training, for a whole batch or its part,
        `micro_batch_tokens`, or the largest micro-batch of a CPU; `least_memory`: with the smallest
        micro-batches.
    runs: with their states, in the order of the seeds.
    """

    row: Row
    V: int
    params: int
    flops_per_step: float
    steps: int | None
    checkpoint_bytes: int
    peak_memory: int
    least_memory: int
    runs: tuple[tuple[Run, State], ...]

    @property
    def flops(self) -> float | None:
        """FLOPs of one training; None if its steps are not known yet."""
        return None if self.steps is None else self.flops_per_step * self.steps

    def completed_share(self, report: Progress | None) -> float:
        """The completed share of an unfinished run's steps by its last report, 0 to 1."""
        step = report.step if report else None
        return min(1.0, step / self.steps) if step and self.steps else 0.0


@dataclass(frozen=True)
class Totals:
    """Sums over the runs of a study; a run that several rows share counts once.

    missing: runs that are neither done nor diverged.
    only_decoding: trained runs that lack a decoding.
    flops: of all trainings; None if a row's are not known yet.
    disk_bytes: the most that all runs take during training.
    seconds: estimated for the missing runs; None if unknown.
    """

    rows: int
    runs: int
    missing: int
    only_decoding: int
    flops: float | None
    disk_bytes: int
    seconds: float | None


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

    tuning: the rows of the tuning runs; their runs count in all totals.
    lengths: of the corpus; None while it is not prepared, so that lengths are assumed.
    seconds_of: estimated time left of each unfinished run, by id; None until a run has finished on
        this machine.
    trained: ids of the runs that lack only a decoding.
    device: that time and memory are estimated for.
    processes: that train each run together.
    """

    study: Study
    rows: tuple[PlanRow, ...]
    lengths: Lengths | None
    seconds_of: dict[str, float] | None
    trained: frozenset[str] = frozenset()
    tuning: tuple[PlanRow, ...] = ()
    device: PlannedDevice = "cpu"
    processes: int = 1

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
        return *self.tuning, *self.rows

    @property
    def runs(self) -> dict[str, tuple[PlanRow, State]]:
        """Each run once, by id. A run that several rows share is done only if it is done for all of
        them.
        """
        runs: dict[str, tuple[PlanRow, State]] = {}
        for row in self.all_rows:
            for run, state in row.runs:
                if run.id not in runs or runs[run.id][1] == "done":
                    runs[run.id] = (row, state)
        return runs

    def totals(self) -> Totals:
        """Sums over the runs."""
        runs = self.runs.values()
        flops = [row.flops for row, _ in runs]
        written = RESUMABLE + 1  # the oldest checkpoint is deleted after the newest is complete
        return Totals(
            rows=len(self.rows),
            runs=len(self.runs),
            missing=sum(state not in ("done", "diverged") for _, state in runs),
            only_decoding=len(self.trained),
            flops=sum(f for f in flops if f is not None) if None not in flops else None,
            disk_bytes=sum(cost.run_bytes(row.row.config, row.V, written) for row, _ in runs),
            seconds=self.seconds,
        )

    def as_json(self) -> dict[str, Any]:
        """The plan for scripts."""
        designs = [one for one in self.study.designs if isinstance(one, FactorialDesign)]
        choice = self.study.base.decoding_choice
        return {
            "study": self.study.name,
            **({"decoding": choice.as_json()} if choice else {}),
            "rows": [self._row_json(row) for row in self.rows],
            **({"tuning": [self._row_json(row) for row in self.tuning]} if self.tuning else {}),
            **({"designs": [_design_json(one) for one in designs]} if designs else {}),
            "dropped": self.study.dropped,
            "totals": asdict(self.totals()),
            "assumed_length": None
            if self.lengths or self.study.data.is_stream
            else cost.ASSUMED_LENGTH,
        }

    def _row_json(self, row: PlanRow) -> dict[str, Any]:
        idle = cost.idle_parameters(row.row.config)
        return {
            "row": row.row.label,
            "group": row.row.group,
            "changed": row.row.changed,
            **({"matched": row.row.matched.as_json()} if row.row.matched else {}),
            **({"tuning": row.row.tuning.as_json()} if row.row.tuning else {}),
            "config": row.row.config.model_dump(),
            "params": row.params,
            # Of a mixture of experts, those that a token meets.
            **({"active_params": row.params - idle} if idle else {}),
            "flops_per_step": row.flops_per_step,
            "steps": row.steps,
            "precision": self.precision(row.row.config),
            "checkpoint_bytes": row.checkpoint_bytes,
            "peak_memory_bytes": row.peak_memory,
            "runs": [
                {"id": None if run.awaits_tuning else run.id, "seed": run.seed, "state": state}
                for run, state in row.runs
            ],
        }


def plan_of(
    study: Study,
    results: Results,
    device: PlannedDevice | Literal["auto"] = "auto",
    processes: int = 1,
) -> Plan:
    """Plan a study, without training and without reading the corpus.

    Args:
        study: to plan.
        results: root of the results.
        device: that time and memory are estimated for; `auto` is the one that `ablate run` takes on
            this machine. The time follows from the runs that this machine has finished on it.
        processes: that train each run together, each on a part of the batch.

    Raises:
        StoreError: a result is damaged.
    """
    kind: PlannedDevice = "cpu"
    if device == "cuda" or (device == "auto" and visible_gpus()):
        kind = "cuda"
    known = {data: known_lengths(data, results.corpora) for data in map(study.data_of, study.rows)}

    def planned(of: Study, row: Row) -> PlanRow:
        return _plan_row(of, row, results, known[of.data_of(row)], kind, processes)

    rows = tuple(planned(study, row) for row in study.rows)
    lengths = known[study.data_of(study.base)] if None not in known.values() else None
    trials = study.tuning
    tuning = tuple(planned(trials, row) for row in trials.rows) if trials else ()
    plan = Plan(study, rows, lengths, None, tuning=tuning, device=kind, processes=processes)
    missing = {id for id, (_, state) in plan.runs.items() if state not in ("done", "diverged")}
    trained = frozenset(id for id in missing if results.run(id).result.exists())
    # A trained run lacks only a decoding, which takes little beside a training.
    untrained = set(missing - trained)
    rates = measured_rates(results, list(plan.runs), None, kind) if untrained else {}
    seconds = seconds_left(plan, untrained, results, rates)
    return replace(plan, trained=trained, seconds_of=seconds)


def _plan_row(
    study: Study,
    row: Row,
    results: Results,
    lengths: Lengths | None,
    device: PlannedDevice,
    processes: int,
) -> PlanRow:
    V = study.data_of(row).vocab_size
    part = -(-row.config.batch_tokens // processes)
    tokens = min(
        part, row.config.micro_batch_tokens or (CPU_MICRO_BATCH if device == "cpu" else part)
    )
    length = None
    if lengths is not None and row.config.context is None:
        length = lengths.target_squares // lengths.target_tokens

    def memory(tokens: int) -> int:
        return peak_memory(row.config, V, tokens, device, processes=processes, length=length)

    return PlanRow(
        row=row,
        V=V,
        params=cost.parameters(row.config, V),
        flops_per_step=cost.flops_per_step(row.config, V, lengths or Lengths.assumed()),
        steps=cost.steps(row.config, lengths),
        checkpoint_bytes=cost.checkpoint_bytes(row.config, V),
        peak_memory=memory(tokens),
        least_memory=memory(min(tokens, SMALLEST_MICRO_BATCH)),
        runs=tuple(
            (run, state_of(results.run(run.id), row.decoding)) for run in study.runs_of(row)
        ),
    )


def seconds_left(
    plan: Plan,
    untrained: set[str],
    results: Results,
    rates: Mapping[str, float],
    default: float | None = None,
) -> dict[str, float] | None:
    """Estimated time left of each training; None if it is unknown.

    Args:
        plan: of the study.
        untrained: ids of the runs.
        results: root of the results.
        rates: in FLOP/s, by precision.
        default: rate of runs in the default precision of a node, where that is not known here.
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
        seconds[id] = row.flops * (1.0 - row.completed_share(read_progress(results.run(id)))) / rate
    return seconds


def seconds_elsewhere(plan: Plan, results: Results) -> tuple[float, str] | None:
    """Estimated seconds for all unfinished runs on one node of a cluster, or on one of its GPUs,
    and its processor.

    The node is the machine, other than this one, that has finished most runs; else this machine.
    None if the rate of neither is known.
    """
    untrained = {
        id for id, (_, state) in plan.runs.items() if state not in ("done", "diverged")
    } - plan.trained
    finished = [
        id
        for id in dict.fromkeys([*plan.runs, *results.run_ids()])
        if results.run(id).result.exists()
    ]
    marks = [read_provenance(results.run(id)) for id in finished[:RATE_SAMPLES]]
    found = Counter(
        mark.machine for mark in marks if mark is not None and mark.machine != machine()
    )
    node = found.most_common(1)[0][0] if found else machine()
    rates = measured_rates(results, list(plan.runs), node, None)
    default = next(iter(rates.values())) if len(rates) == 1 else None
    seconds = seconds_left(plan, untrained, results, rates, default)
    return None if seconds is None else (sum(seconds.values()), node.processor or "this machine")


def measured_rates(
    results: Results,
    first: list[str],
    node: Machine | None = None,
    device: PlannedDevice | None = None,
) -> dict[str, float]:
    """Training rate of a machine in FLOPs per second, by precision: the median over finished runs.

    The rate of a CPU is for all its cores: a run with 1 of 2 threads counts as one of two
    concurrent runs.

    Args:
        results: root of the results.
        first: ids of the runs that are read first.
        node: the machine; None for this one.
        device: of the runs; None for any.
    """
    found: dict[str, list[float]] = defaultdict(list)
    node = node or machine()
    # The study's runs first: they are the most similar to those that are left.
    finished = (
        id for id in dict.fromkeys([*first, *results.run_ids()]) if results.run(id).result.exists()
    )
    for id in itertools.islice(finished, RATE_SAMPLES):
        rate = _rate(results, id, node, device)
        if rate is not None:
            found[rate[0]].append(rate[1])
    return {precision: statistics.median(rates) for precision, rates in found.items()}


def _rate(
    results: Results, id: str, node: Machine, device: PlannedDevice | None
) -> tuple[str, float] | None:
    """(precision, FLOPs per second) of a finished run; None if another machine or another kind of
    device trained it, or its files are damaged.
    """
    folder = results.run(id)
    try:
        result, run, provenance = folder.read_result(), folder.read_run(), folder.read_provenance()
        execution = folder.read_execution()
    except StoreError:
        return None
    if not result or not run or not provenance or provenance.machine != node or not result.seconds:
        return None
    precision = (execution and execution.precision) or run.config.precision or "fp32"
    lengths = lengths_in(results.corpus(result.corpus)) or Lengths.assumed()
    vocab_size = run.data["vocab_size"]
    assert isinstance(vocab_size, int)
    on_cpu, processes = provenance.device == "cpu", provenance.processes
    if device is not None and on_cpu != (device == "cpu"):
        return None
    flops = cost.flops_per_step(run.config, vocab_size, lengths) * result.steps
    # Runs on a GPU do not share it; one that was trained on several counts for each of them.
    at_once = max(1, node.cores // (provenance.threads * processes)) if on_cpu else 1 / processes
    return precision, at_once * flops / result.seconds


def _design_json(design: FactorialDesign) -> dict[str, Any]:
    return {
        "group": design.group,
        "title": design.title,
        "rows": list(design.rows),
        "aliases": design.alias_lines(),
    }


def precision_lines(plan: Plan) -> list[str]:
    """The precision of the device, and remarks on settings that it does not serve well."""
    settings = dict.fromkeys(row.row.config.precision for row in plan.rows)
    chosen = dict.fromkeys(plan.precision(row.row.config) for row in plan.rows)
    by_device = ""
    if plan.device == "cpu" and None in settings:
        by_device = " on this CPU; bf16 on a GPU that has it"
    notes = (precision_note(setting, plan.device, plan.has_bf16) for setting in settings)
    return [
        f"Precision: {', '.join(chosen)}{by_device}.",
        *(f"{note}." for note in notes if note is not None),
    ]


def memory_line(plan: Plan) -> str:
    """The device and the batch that the memory of the rows is estimated for."""
    on = "a GPU"
    batch = "a whole batch" if plan.processes == 1 else f"one of {plan.processes} parts of a batch"
    if plan.device == "cpu":
        on, batch = "a CPU", f"micro-batches of up to {CPU_MICRO_BATCH:,} tokens"
    return (
        f"Memory is that of one process on {on} with {batch}; if it does not fit, the batch is "
        f"split further."
    )
