"""Judge the scores of other code: a table with verdicts, or decisions on a stream of proposals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ablate.errors import Fault, UsageError, not_allowed, unknown_name, wrong_option
from ablate.formatting import plural, signed
from ablate.judging.columns import Line, SourceTable, metric_name
from ablate.judging.lines import read_measurements
from ablate.judging.scores import metric_of, scores_experiment
from ablate.stats.metrics import Metric
from ablate.stats.proposals import MAX_PROPOSALS, Stream
from ablate.table.experiment import Notes
from ablate.table.power import power_of_scores
from ablate.table.table import Table


def judged(
    lines: Sequence[Line],
    name: str,
    *,
    base: str | None,
    directions: Mapping[str, bool],
    metrics: Sequence[str] = (),
    row_columns: Sequence[str] = (),
    margin: float | None = None,
) -> Table:
    """Make the table of the scores in lines, with notes on the power of the comparison.

    `read_measurements` and `scores_experiment` describe the arguments and the errors. If `metrics`
    is empty and `directions` has only one metric, the verdicts are by this metric.
    """
    _check_margin(margin)
    directions = _by_metric(directions)
    measurements, source = read_measurements(
        lines, metrics or _only_metric(directions), row_columns, base=base
    )
    try:
        experiment = scores_experiment(
            measurements, name, base, directions, margin, source.is_paired
        )
    except UsageError as error:
        raise UsageError(*(_with_cause(fault, source, base) for fault in error.faults)) from None
    remarks = list(source.notes)
    for power in power_of_scores(experiment, experiment.judged):
        if power.sd:
            remarks.append(power.text)
    return Table.build(replace(experiment, notes=Notes(tuple(remarks))))


def _with_cause(fault: Fault, source: SourceTable, base: str | None) -> Fault:
    """The fault with the lines that were left out, which may be its cause, unless it is a name
    that is written in another way.
    """
    if base in source.lost_rows:
        fault = replace(fault, meant="", remedy="no run of this row is finished")
    if fault.meant:
        return fault
    remedy = "; ".join(filter(None, (fault.remedy, *source.left_out)))
    return replace(fault, remedy=remedy)


def _check_margin(margin: float | None) -> None:
    if margin is not None and not 0 < margin < math.inf:
        raise wrong_option("margin", not_allowed(f"{margin:g}", "above 0 and finite"))


def _by_metric(directions: Mapping[str, bool]) -> dict[str, bool]:
    """The directions by the plain names of the metrics."""
    return {metric_name(metric): is_higher for metric, is_higher in directions.items()}


def _only_metric(directions: Mapping[str, bool]) -> Sequence[str]:
    """The metric in `directions` if there is only one; else empty."""
    return list(directions) if len(directions) == 1 else ()


def read_stream(
    lines: Sequence[Line],
    base: str | None,
    directions: Mapping[str, bool],
    metrics: Sequence[str] = (),
    row_columns: Sequence[str] = (),
) -> tuple[Stream, Metric, list[str]]:
    """Read a stream of proposals.

    Args:
        lines: the runs in the order in which they were done, first a run of base.
        base: label of base; None for the row of the first line.
        directions: as for `judged`.
        metrics: as for `judged`.
        row_columns: as for `judged`.

    Returns:
        The stream, the metric by which it is decided, and notes on lines that were left out or
        interpreted.
    """
    directions = _by_metric(directions)
    measurements, source = read_measurements(
        lines, metrics or _only_metric(directions), row_columns, has_numbered_rows=True
    )
    metric = metric_of(measurements[0].metric, measurements, directions)
    first = measurements[0].row if base is None else base
    rows = dict.fromkeys(measurement.row for measurement in measurements)
    if first not in rows:
        raise UsageError(_with_cause(unknown_name("row", first, rows), source, base))
    stream = Stream(first, metric.more_is_better)
    for measurement in measurements:
        if measurement.item or measurement.resample:
            problem = "has scores of items or of resampled test sets"
            remedy = "a stream has one score for each run"
            raise UsageError(Fault(problem, given=measurement.row, remedy=remedy))
        is_reference = measurement.row in (stream.chain[0], stream.chain[-1])
        if is_reference and not math.isfinite(measurement.value):
            problem = "diverged, so no proposal can be compared with it"
            raise UsageError(Fault(problem, given=measurement.row))
        stream.add(measurement.row, measurement.value)
    return stream, metric, source.notes


def stream_json(stream: Stream, metric: Metric, notes: Sequence[str]) -> dict[str, Any]:
    """The decisions on a stream and the runs to do next, as JSON values."""
    proposals = []
    for proposal in stream.proposals.values():
        runs = {"runs": len(proposal.scores), "difference": proposal.difference}
        proposals.append({"row": proposal.name, "state": proposal.state, **runs})
    gain = None
    if stream.gain is not None:
        value, low, high = stream.gain
        gain = {"value": value, "low": low, "high": high}
    return {
        "metric": metric.name,
        "chain": stream.chain,
        "proposals": proposals,
        "gain": gain,
        "ignored": stream.ignored,
        "remarks": list(notes),
        "run": stream.runs_next,
        "run_last": stream.runs_last,
    }


def stream_lines(stream: Stream, metric: Metric, notes: Sequence[str]) -> list[str]:
    """The decisions on a stream and the runs to do next, as sentences."""
    sentences = []
    for name, proposal in stream.proposals.items():
        sentence = f"{name}: {proposal.state} after {plural(len(proposal.scores), 'run')}"
        if proposal.difference:
            sentence += f", {signed(proposal.difference, metric.digits)} {metric.title}"
        sentences.append(sentence)
    sentences.append(f"Chain: {' -> '.join(stream.chain)}.")
    if stream.gain:
        gain, low, high = (signed(value, metric.digits) for value in stream.gain)
        sentences.append(
            f"The chain has gained {gain} {metric.title} [{low}, {high}], measured by the runs "
            f"after all proposals."
        )
    if stream.ignored:
        count = plural(stream.ignored, "run")
        sentences.append(f"Ignored: {count} of proposals that are already decided, or not tested.")
    return [*sentences, *notes, *next_steps(stream)]


def next_steps(stream: Stream) -> list[str]:
    """A sentence for each next step."""
    steps = []
    for proposal in stream.proposals.values():
        if proposal.state == "open":
            missing = stream.runs_missing(proposal)
            runs = f"{stream.chain[-1]} {plural(missing, 'more time')}"
            if not missing:
                runs = f"{proposal.name} again"
            steps.append(f"{proposal.name} is undecided: run {runs}.")
    if any(proposal.state == "untested" for proposal in stream.proposals.values()):
        steps.append(
            f"The significance level is used up after {MAX_PROPOSALS} proposals: to test more, "
            f"begin a new log with {stream.chain[-1]} as base."
        )
    last_runs = [f"{count} times {row}" for row, count in stream.runs_last.items()]
    if last_runs:
        runs = " and ".join(last_runs)
        steps.append(f"To estimate the gain of the chain, run after all proposals: {runs}.")
    return steps
