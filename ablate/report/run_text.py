"""The text of a run: settings, execution, state, and the last lines of its log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ablate.config import RowConfig
from ablate.config.identity import INTRODUCED_DECODING
from ablate.formatting import duration, plural, setting_text
from ablate.store import RunFolder, State, none_if_unreadable
from ablate.store.audit import Audit, read_records
from ablate.store.records import Execution, Phase, Progress, Provenance, Record, Result, RunRecord
from ablate.store.status import last_lines, state_in_any_decoding

LOG_LINES = 8
# Phases of a run besides training, in words.
PHASES: dict[Phase, str] = {
    "evaluating": "evaluating on dev",
    "measuring": "evaluating on dev",
    "decoding": "decoding the test set",
}


@dataclass(frozen=True)
class RunSummary:
    """The state and the records of a run.

    records: records by name; None for missing and damaged records.
    progress: progress of the run; None if it is missing or damaged.
    failure: reason of a failure; None without a failure.
    log: last lines of the log.
    damaged: a line for each damaged file.
    """

    id: str
    state: State
    records: Mapping[str, Record | None]
    progress: Progress | None
    failure: str | None
    log: list[str]
    damaged: list[str]

    def as_json(self) -> dict[str, Any]:
        """The summary as JSON values."""
        content: dict[str, Any] = {"id": self.id, "state": self.state}
        for name, record in (*self.records.items(), ("progress", self.progress)):
            content[name] = record and record.model_dump(mode="json", by_alias=True)
        return content | {"failure": self.failure, "log": self.log, "damaged": self.damaged}


def read_summary(folder: RunFolder) -> RunSummary:
    """Read the summary of a run from its folder."""
    audit = Audit()
    records = read_records(folder, audit)
    failure = none_if_unreadable(folder.read_failure)
    return RunSummary(
        folder.id,
        state_in_any_decoding(folder),
        records,
        none_if_unreadable(folder.read_progress),
        failure.reason if failure else None,
        last_lines(folder.log, LOG_LINES),
        audit.faults,
    )


def as_lines(summary: RunSummary) -> list[str]:
    """The summary for people."""
    lines = [f"run {summary.id}: {summary.state}", *summary.damaged]
    for name, describe in _SECTIONS.items():
        # A damaged record has a line in `damaged`.
        record = summary.records[name]
        if record is not None:
            lines.append(f"{name}:")
            lines += map("  {}".format, describe(record))
    if summary.failure:
        lines += ["failure:", f"  {summary.failure}"]
    if summary.log:
        lines += ["the last lines of its log:", *map("  {}".format, summary.log)]
    return lines


def _run(run: RunRecord) -> list[str]:
    changed = []
    for name, value in run.config.model_dump().items():
        # Unset fields are derived from other fields.
        default = INTRODUCED_DECODING.get(name, RowConfig.model_fields[name].default)
        if value is not None and value != default:
            changed.append(f"{name}={setting_text(value)}")
    corpus = f"{run.data.get('corpus')} {run.data.get('direction') or ''}".rstrip()
    return [
        f"seed {run.seed}, corpus {corpus}",
        f"not as in the paper: {', '.join(changed) or 'nothing'}",
    ]


def _execution(execution: Execution) -> list[str]:
    threads = plural(execution.threads, "thread")
    conditions = f"training text {execution.training_hash}, on {execution.device}, {threads}"
    if execution.precision:
        conditions += f", {execution.precision}"
    if execution.deterministic:
        conditions += ", deterministic"
    batches = f"micro-batches of {execution.current_micro_batch_tokens} padded tokens"
    if execution.halvings:
        batches += f", halved {plural(execution.halvings, 'time')} after running out of memory"
    return [conditions, batches]


def _provenance(provenance: Provenance) -> list[str]:
    lines = _part(provenance)
    for part in provenance.later:
        lines += ["resumed with:", *map("  {}".format, _part(part))]
    return lines


def _part(provenance: Provenance) -> list[str]:
    code = provenance.ablate
    machine = provenance.machine
    versions = provenance.packages.items()
    packages = ", ".join(f"{name} {version}" for name, version in versions if version)
    return [
        code.text if code else "ablate ?",
        f"Python {provenance.python or '?'}, {packages}",
        f"{machine.processor}, {plural(machine.cores, 'core')}, {machine.system}",
        f"device {provenance.device}, {plural(provenance.threads, 'thread')}",
    ]


def _result(result: Result) -> list[str]:
    steps = plural(result.steps, "step")
    lines = [f"{result.outcome} after {steps} in {duration(result.seconds)}"]
    if result.reason:
        lines[0] += f": {result.reason}"
    if result.weights:
        lines.append(f"weights {result.weights.file}, SHA-256 {result.weights.sha256}")
    for id, decoding in result.decodings.items():
        settings = f"beam {decoding.beam}, alpha {decoding.alpha}"
        if decoding.length_penalty != "gnmt":
            settings += f", penalty {decoding.length_penalty}"
        settings += f", {plural(decoding.averaged, 'checkpoint')} averaged"
        scores = []
        for name, score in decoding.scores.items():
            scores.append(f"{name} {score.value:.3f} {score.signature}".strip())
        test = f"of {decoding.test} in corpus {decoding.corpus}"
        lines.append(f"decoding {id} ({settings}) {test}: {', '.join(scores)}")
    return lines


_SECTIONS: dict[str, Callable[[Any], list[str]]] = {
    "run": _run, "execution": _execution, "provenance": _provenance, "result": _result
}  # fmt: skip


def progress_line(progress: Progress) -> str:
    """The progress of a run: `step 120 of 450, loss 2.31, PPL 8.12, 7,300 tokens/s`."""
    facts = []
    if progress.step:
        facts.append(f"step {progress.step} of {progress.steps or '?'}")
    if progress.phase not in ("training", "left"):
        facts.append(PHASES.get(progress.phase, progress.phase))
    if progress.loss is not None:
        facts.append(f"loss {progress.loss:.2f}")
    if progress.perplexity is not None:
        facts.append(f"PPL {progress.perplexity:.2f}")
    if progress.tokens_per_second and progress.phase == "training":
        facts.append(f"{progress.tokens_per_second:,.0f} tokens/s")
    return ", ".join(facts)
