"""Judge the scores of other code: a table with verdicts, or decisions on a stream of proposals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ablate.errors import UsageError, unknown_name
from ablate.formatting import plural, signed
from ablate.judging.lines import read_numbers
from ablate.judging.scores import metric_of, scores_experiment
from ablate.stats.metrics import Metric
from ablate.stats.stream import MAX_PROPOSALS, Stream
from ablate.table.experiment import Notes
from ablate.table.power import power_of_scores
from ablate.table.table import Table


def judged(
    lines: Sequence[Mapping[Any, Any]],
    name: str,
    *,
    base: str | None,
    directions: Mapping[str, bool],
    metrics: Sequence[str] = (),
    row_columns: Sequence[str] = (),
    margin: float | None = None,
) -> Table:
    """The table of the scores in lines, with notes on the power of the comparison.

    `read_numbers` and `scores_experiment` describe the arguments and the errors. If `metrics` is
    empty and `directions` has a single metric, this one is judged.
    """
    _check_margin(margin)
    numbers, notes = read_numbers(lines, metrics or _only_metric(directions), row_columns)
    try:
        experiment = scores_experiment(numbers, name, base, directions, margin)
    except UsageError as error:  # lines that were left out may be the cause
        raise UsageError(". ".join((str(error), *notes))) from None
    remarks = list(notes)
    for power in power_of_scores(experiment, experiment.judged):
        if power.sd:
            remarks.append(power.text)
    return Table.build(replace(experiment, notes=Notes(tuple(remarks))))


def _check_margin(margin: float | None) -> None:
    if margin is not None and not 0 < margin < math.inf:
        raise UsageError(f"a margin of {margin:g} is not allowed: must be above 0 and finite")


def _only_metric(directions: Mapping[str, bool]) -> Sequence[str]:
    """The metric in `directions` if it has a single one; else empty."""
    return list(directions) if len(directions) == 1 else ()


def read_stream(
    lines: Sequence[Mapping[Any, Any]],
    base: str | None,
    directions: Mapping[str, bool],
    metrics: Sequence[str] = (),
    row_columns: Sequence[str] = (),
) -> tuple[Stream, Metric, list[str]]:
    """Read a stream of proposals.

    Args:
        lines: the runs in their order, base first.
        base: label of base; None for the row of the first line.
        directions: as in `judged`.
        metrics: as in `judged`.
        row_columns: as in `judged`.

    Returns:
        The stream, the metric that decides, and notes on lines that were left out or interpreted.
    """
    numbers, notes = read_numbers(lines, metrics or _only_metric(directions), row_columns)
    metric = metric_of(numbers[0].metric, numbers, directions)
    first = numbers[0].row if base is None else base
    rows = dict.fromkeys(number.row for number in numbers)
    if first not in rows:
        raise UsageError(unknown_name("row", first, rows))
    stream = Stream(first, metric.more_is_better)
    for number in numbers:
        if number.item or number.resample:
            raise UsageError(f"a stream has a score for each run, without items; got {number.row}")
        is_reference = number.row in (stream.chain[0], stream.chain[-1])
        if is_reference and not math.isfinite(number.value):
            raise UsageError(f"{number.row} diverged, and proposals are compared with it")
        stream.add(number.row, number.value)
    return stream, metric, notes


def stream_json(stream: Stream, metric: Metric, notes: Sequence[str]) -> dict[str, Any]:
    """The decisions on a stream, and the runs to do next, for scripts."""
    proposals = []
    for proposal in stream.proposals.values():
        runs = {"runs": len(proposal.scores), "difference": proposal.difference}
        proposals.append({"row": proposal.name, "state": proposal.state, **runs})
    gain = stream.gain and dict(zip(("value", "low", "high"), stream.gain, strict=True))
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
    """The decisions on a stream, and the runs to do next, as sentences."""
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
            f"It has gained {gain} {metric.title} [{low}, {high}], by the runs after all proposals."
        )
    if stream.ignored:
        count = plural(stream.ignored, "run")
        sentences.append(f"Ignored: {count} of proposals that are decided or untested.")
    return [*sentences, *notes, *next_steps(stream)]


def next_steps(stream: Stream) -> list[str]:
    """A sentence for each next step."""
    steps = []
    for proposal in stream.proposals.values():
        if proposal.state == "open":
            missing = stream.runs_missing(proposal)
            runs = f"{missing} times {stream.chain[-1]}" if missing else proposal.name
            steps.append(f"{proposal.name} is open: run {runs} again.")
    if any(proposal.state == "untested" for proposal in stream.proposals.values()):
        steps.append(
            f"The level is spent over {MAX_PROPOSALS} proposals: for more, begin a new log with "
            f"{stream.chain[-1]} as base."
        )
    last_runs = [f"{count} times {row}" for row, count in stream.runs_last.items()]
    if last_runs:
        runs = " and ".join(last_runs)
        steps.append(f"To estimate the gain of the chain, run after all proposals: {runs}.")
    return steps
