"""The scores of other code as a table with verdicts, and streams of proposals as sentences."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ablate.analysis.numbers import metric_of, table_of_numbers
from ablate.analysis.score_files import Line, numbers_of
from ablate.analysis.table import Table
from ablate.errors import UsageError, unknown_name
from ablate.formatting import plural, signed
from ablate.plan.power import power_of_runs
from ablate.stats.stream import Stream


def judged(
    lines: Sequence[Line],
    name: str,
    *,
    base: str | None,
    directions: Mapping[str, bool],
    metrics: Sequence[str] = (),
    by: Sequence[str] = (),
    margin: float | None = None,
) -> Table:
    """The table of the scores in lines, with the power that they had.

    Arguments and errors are those of `numbers_of` and `table_of_numbers`.
    """
    numbers, notes = numbers_of(lines, metrics, by)
    table = table_of_numbers(numbers, name, base, directions, margin)
    power = power_of_runs(table.study, [run for row in table.rows for run in row.runs])
    found = [one.text for one in power if one.sd]
    return replace(table, remarks=(*notes, *found))


def stream_lines(
    lines: Sequence[Line],
    base: str | None,
    directions: Mapping[str, bool],
    metrics: Sequence[str] = (),
    by: Sequence[str] = (),
) -> list[str]:
    """What a gate keeps of a stream of proposals, in sentences.

    Arguments and errors are those of `judged`. The lines are in the order of the runs, base first.
    """
    numbers, _ = numbers_of(lines, metrics, by)
    metric = metric_of(numbers[0].metric, numbers, directions)
    first = numbers[0].row if base is None else base
    if first not in {one.row for one in numbers}:
        raise UsageError(unknown_name("row", first, dict.fromkeys(one.row for one in numbers)))
    stream = Stream(first, metric.more_is_better)
    for one in numbers:
        if one.item or one.resample:
            raise UsageError(f"a stream has a score for each run, without items; got {one.row}")
        if not math.isfinite(one.value) and one.row in (stream.chain[0], stream.chain[-1]):
            raise UsageError(f"{one.row} diverged, and proposals are compared with it")
        stream.add(one.row, one.value)
    found = [
        f"{name}: {one.state} after {plural(len(one.scores), 'run')}"
        + (f", {signed(one.difference, metric.digits)} {metric.title}" if one.difference else "")
        for name, one in stream.proposals.items()
    ]
    found.append(f"Chain: {' -> '.join(stream.chain)}.")
    if stream.gain:
        gain, low, high = (signed(value, metric.digits) for value in stream.gain)
        found.append(
            f"It has gained {gain} {metric.title} [{low}, {high}], by the runs after all proposals."
        )
    if stream.ignored:
        count = plural(stream.ignored, "run")
        found.append(f"Ignored: {count} of proposals that are decided or untested.")
    return found + stream.next_steps
