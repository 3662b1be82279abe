"""Find the row, the state and the seed of each line, and leave out lines without a finished run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import chain

from ablate.errors import Fault, UsageError, listed, unknown_name
from ablate.formatting import first_few, plural
from ablate.judging.columns import (
    DIVERGED,
    EXPECTED_COLUMNS,
    GROWING,
    RUN,
    SEED,
    STATE,
    Line,
    SourceTable,
    appearance,
    check_name,
    metric_name,
    parse_number,
    parse_setting,
    plain_name,
)
from ablate.judging.names import seed_in_name, without_seed
from ablate.judging.scores import direction_of

# States of runs in W&B, MLflow, ablate, Optuna, Ray Tune, Slurm and cloud services.
USUAL = ("finished", "done")  # read as finished without a note
FINISHED = (
    *USUAL, "complete", "completed", "success", "successful", "succeeded", "terminated", "ok",
)  # fmt: skip
UNFINISHED = {
    "aborted", "boot_fail", "canceled", "cancelled", "crashed", "created", "deadline", "error",
    "fail", "failed", "failure", "interrupted", "killed", "node_fail", "out_of_memory", "paused",
    "pending", "preempted", "preempting", "pruned", "queued", "running", "scheduled", "starting",
    "stopped", "stopping", "submitted", "suspended", "timeout", "waiting",
}  # fmt: skip

# Names of columns that identify the run of a line.
RUN_NAMES = (*RUN, "trial_id", "id", "name", "runname", "run name")
MOST_DIGITS = 18  # seeds with more digits are read as text


def merged_spellings(lines: Sequence[Line], table: SourceTable) -> list[Line]:
    """The lines with one spelling, the first, for equal numbers in the columns that name a row:
    then `3e-4` and `0.0003` name the same row.
    """
    for name in table.row_columns:
        first_spellings: dict[str | float, str] = {}
        replaced = Counter[tuple[str, str]]()
        merged = []
        for line in lines:
            text = line.text(name)
            first = first_spellings.setdefault(parse_setting(text), text)
            if first != text:
                replaced[text, first] += 1
            merged.append(line._replace(cells={**line.cells, name: first}))
        lines = merged
        for (text, first), count in replaced.items():
            table.notes.append(
                f"{table.columns[name]}: {text} is read as {first} in {plural(count, 'line')}."
            )
    return list(lines)


def named_lines(lines: Sequence[Line], table: SourceTable) -> list[Line]:
    """The lines with the names of their rows; empty for a line without a row."""
    named = []
    for line in lines:
        values = [line.text(name) for name in table.row_columns]
        row = values[0]
        if len(values) > 1:
            settings = zip(table.row_columns, values, strict=True)
            row = " ".join(f"{name}={value}" for name, value in settings)
        named.append(line._replace(row="" if "" in values else row))
    return named


def finished_lines(lines: Sequence[Line], table: SourceTable) -> list[Line]:
    """The lines of finished and diverged runs, with their states; all lines if no column has
    states. The notes tell the lines that are left out.
    """
    column = table.first_filled(lines, STATE)
    if column is None:
        return list(lines)
    seeds = [line.integer_text(table.first_filled(lines, SEED)) for line in lines]
    row_of = partial(_row_name, are_shortened=_are_names_shortened(lines, seeds))
    unfinished = Counter[tuple[str, str]]()  # (row, state)
    unusual_states: dict[str, None] = {}
    finished: list[Line] = []
    for line in lines:
        # A joined table may have the states of different lines in different columns.
        text = next(filter(None, map(line.text, STATE)), "")
        word = text.lower().replace(" ", "_")
        # Slurm also tells who cancelled a job: CANCELLED by 1000.
        if word in UNFINISHED or word.startswith(("cancelled_", "canceled_")):
            unfinished[row_of(line), text] += 1
            continue
        if word not in (*FINISHED, DIVERGED):
            remedy = (
                f"the state of a run with a score is {listed((*FINISHED, DIVERGED))}; if the "
                f'column "{table.columns[column]}" is not the state of a run, remove it'
            )
            fault = Fault("has no state", remedy=remedy)
            if text:
                fault = unknown_name("state", text, (*FINISHED, DIVERGED, *UNFINISHED), remedy)
            choices = (*FINISHED, DIVERGED)
            raise UsageError(line.located(replace(fault, choices=choices)))
        if word not in (*USUAL, DIVERGED):
            unusual_states[text] = None
        finished.append(line._replace(state=word))
    if unusual_states:
        table.notes.append(f"Read as finished: the state {first_few(list(unusual_states))}.")
    if unfinished:
        counts = []
        for (row, text), count in unfinished.items():
            counts.append(f"{row or 'without a row'} {count} ({text})")
        text = f"left out, because not finished: {'; '.join(counts)}"
        table.notes.append(f"Lines {text}.")
        table.left_out.append(f"lines {text}")
    finished_rows = {row_of(line) for line in finished}
    lost_rows = dict.fromkeys(row for row, _ in unfinished if row and row not in finished_rows)
    table.lost_rows += lost_rows
    if lost_rows:
        names = first_few(list(lost_rows))
        table.notes.append(f"Rows left out, because no run is finished: {names}.")
    return finished


def lines_with_rows(lines: Sequence[Line], table: SourceTable) -> list[Line]:
    """The lines that have a row. A note tells the number of the other lines.

    Raises:
        UsageError: the names of two rows look alike, or a name cannot be shown.
    """
    unnamed = [line for line in lines if not line.row]
    if unnamed:
        names = " or ".join(table.columns[name] for name in table.row_columns)
        text = (
            f"{plural(len(unnamed), 'line')} left out, because {names} is empty "
            f"(first {unnamed[0].place})"
        )
        table.notes.append(
            f"WARNING: {text}: these runs belong to no row, and Holm's correction does not count "
            "them."
        )
        table.left_out.append(text)
    of_rows = [line for line in lines if line.row]
    row_by_appearance: dict[object, str] = {}
    for row in dict.fromkeys(line.row for line in of_rows):
        check_name("row", row)
        first = row_by_appearance.setdefault(appearance(row), row)
        if first != row:
            problem = f"the rows {first!a} and {row!a} look alike"
            remedy = (
                "write them in the same way if they are one row; else give them different names"
            )
            raise UsageError(Fault(problem, remedy=remedy))
    return of_rows


def lines_with_seeds(
    lines: Sequence[Line], table: SourceTable, metrics: Sequence[str]
) -> list[Line]:
    """The lines with their seeds. Seeds are removed from the names of rows.

    Args:
        lines: the lines, with the names of their rows.
        table: the table of the lines.
        metrics: the requested metrics; a column of a metric is not read as training steps, even if
            its name is `steps`.

    Raises:
        UsageError: the run of a line is unknown.
    """
    column = table.first_filled(lines, SEED)
    in_names = [seed_in_name(line.row) for line in lines]
    are_names_shortened = True
    if column is not None:
        texts = [line.integer_text(column) for line in lines]
        if "" in texts:
            count = plural(texts.count(""), "line")
            raise UsageError(Fault(f"{count} without a seed", remedy=EXPECTED_COLUMNS))
        are_names_shortened = _are_names_shortened(lines, texts)
    elif all(in_names):
        texts = in_names
    elif any(in_names):
        seeded = next(line.row for line in lines if seed_in_name(line.row))
        unseeded = lines[in_names.index("")].row
        problem = f'the name "{seeded}" has a seed, and "{unseeded}" has none'
        raise UsageError(Fault(problem, remedy=EXPECTED_COLUMNS))
    else:
        texts = _run_numbers(lines, table, metrics)
    with_seeds = []
    for line, seed in zip(lines, _parse_seeds(texts), strict=True):
        with_seeds.append(line._replace(row=_row_name(line, are_names_shortened), seed=seed))
    return with_seeds


def _are_names_shortened(lines: Sequence[Line], seeds: Sequence[str]) -> bool:
    """Whether the seeds are removed from the names of rows. The seed in a name may be another one
    than the seed of the line, such as the seed of the data. Then it stays.
    """
    pairs = zip(lines, seeds, strict=True)
    return all(seed_in_name(line.row) in ("", seed) for line, seed in pairs if seed)


def _row_name(line: Line, are_shortened: bool) -> str:
    """The name of a line's row, without the seed if names are shortened."""
    return without_seed(line.row) if are_shortened else line.row


def _parse_seeds(texts: Sequence[str]) -> list[int]:
    """The seeds in texts. If a text is not a number, the seeds are numbered 1, 2, ...

    Raises:
        UsageError: a text without a digit, such as `mean` or `std`, is among texts with digits.
    """
    if all(text.isdecimal() and len(text) <= MOST_DIGITS for text in texts):
        return [int(text) for text in texts]
    words = [text for text in texts if not any(map(str.isdecimal, text))]
    if words and len(words) < len(texts):
        problem = "is not a number, and other seeds are"
        remedy = "lines with a mean or a standard deviation are not runs: remove them"
        given = f'"{words[0][:60]}"'
        raise UsageError(Fault(problem, subject="seed", given=given, remedy=remedy))
    numbers: dict[str | float, int] = {}  # 1e3 is the same seed as 1000
    return [numbers.setdefault(parse_setting(text), len(numbers) + 1) for text in texts]


def _run_numbers(lines: Sequence[Line], table: SourceTable, metrics: Sequence[str]) -> list[str]:
    """The number of each line's run, which takes the place of the seed.

    Lines with the same run name belong to one run. Without run names, the n-th line of a row with
    the same metric, item and resample belongs to the n-th run. Rows are paired by the names of runs
    if rows share names, and else not at all.
    """
    names = [name for name in RUN_NAMES if name not in table.row_columns]
    run_column = table.first_filled(lines, names)
    if run_column is None:
        _refuse_curves(lines, table, metrics)
    runs: dict[str, dict[str, list[Line]]] = {}  # row -> run -> lines
    run_of_line = []
    score_counts = Counter[tuple[str, ...]]()
    for line in lines:
        score_key = (line.row, *map(line.text, ("metric", "item", "resample")))
        score_counts[score_key] += 1
        # The count identifies the run of a line without a run name.
        run = line.text(run_column) or f"line {score_counts[score_key]}"
        run_of_line.append((line.row, run))
        runs.setdefault(line.row, {}).setdefault(run, []).append(line)
    counts = counts_text({row: len(row_runs) for row, row_runs in runs.items()})
    if run_column is not None and _share_names(list(runs.values())):
        numbers = _numbers_by_name(run_of_line)
        meaning = "rows are paired by the names of runs"
    else:
        numbers = _random_numbers(runs)
        table.is_paired = False
        meaning = "runs are taken as independent, and rows are not paired"
    note = f"No column seed: {meaning} ({counts})."
    if not table.is_paired and (pairing := pairing_columns(lines, table, metrics)):
        quoted = first_few([f'"{name}"' for name in pairing])
        note += (
            f" Not used: the column {quoted}. Rename it to seed if runs with the same value belong "
            "together."
        )
    table.notes.append(note)
    if duplicates := _count_duplicates(lines):
        table.notes.append(
            f"Lines equal to an earlier line, counted as further runs: {counts_text(duplicates)}."
        )
    return [numbers[run] for run in run_of_line]


def pairing_columns(lines: Sequence[Line], table: SourceTable, metrics: Sequence[str]) -> list[str]:
    """The columns that may pair the runs of rows, such as `fold`: every row has the same values,
    each of them once. Values are integers or short texts.

    Args:
        lines: the lines, with the names of their rows.
        table: the table of the lines.
        metrics: the requested metrics.
    """
    excluded = {*table.row_columns, *STATE, "metric", "value", "item", "resample"}
    excluded |= {*map(plain_name, metrics), *table.step_columns(GROWING, ())}
    found = []
    for plain, name in table.columns.items():
        metric = metric_name(plain)
        if {plain, metric} & excluded or direction_of(metric) is not None:
            continue
        values: dict[tuple[str, ...], list[str]] = {}  # by row, metric, item and resample
        for line in lines:
            key = (line.row, *map(line.text, ("metric", "item", "resample")))
            values.setdefault(key, []).append(line.integer_text(plain))
        first, *others = map(sorted, values.values())
        is_shared = others and all(texts == first for texts in others)
        is_once = len(set(first)) == len(first) > 1
        if name and is_shared and is_once and all(map(_may_name_run, first)):
            found.append(name)
    return found


def _may_name_run(text: str) -> bool:
    """Whether a text is an integer or a short text that is not a number."""
    return text.isdecimal() or (0 < len(text) <= 30 and parse_number(text) is None)


def _share_names(rows: Sequence[Collection[str]]) -> bool:
    """Whether a run of one row has the name of a run of another row. Numbers only count the runs of
    each row, perhaps in the order of their scores.
    """
    names = [name.removesuffix(".0") for name in chain.from_iterable(rows)]
    return len(names) > len(set(names)) and not all(map(str.isdecimal, names))


def _numbers_by_name(runs: Iterable[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """The number of each run, given as (row, name): the same for runs with the same name."""
    numbers: dict[str, str] = {}
    return {(row, name): numbers.setdefault(name, str(len(numbers) + 1)) for row, name in runs}


def _random_numbers(
    runs: Mapping[str, Mapping[str, Sequence[Line]]],
) -> dict[tuple[str, str], str]:
    """Number the runs of each row at random, in the same way for the same scores.

    The order of the file must not count. It is often the order of the scores, and of a row with
    more runs than base only as many runs as base has are compared with base. A hash of the lines of
    a run says nothing about its score.

    Args:
        runs: lines by row and by run.
    """
    numbers = {}
    for row, row_runs in runs.items():
        digests = {}
        for run, lines in row_runs.items():
            texts = sorted(repr(sorted(map(str, line.cells.items()))) for line in lines)
            # With the row, so that rows with equal scores are not paired by their scores.
            digests[run] = sha256(repr([row, texts]).encode()).hexdigest()
        for number, run in enumerate(sorted(row_runs, key=digests.__getitem__), 1):
            numbers[row, run] = str(number)
    return numbers


def _refuse_curves(lines: Sequence[Line], table: SourceTable, metrics: Sequence[str]) -> None:
    """Refuse lines of a row at several steps: evaluations of one training would be mistaken for
    several runs.
    """
    step_columns = table.step_columns(GROWING, metrics)
    steps: dict[tuple[str, str], set[tuple[str, ...]]] = {}
    for line in lines:
        step = tuple(map(line.text, step_columns))
        steps.setdefault((line.row, line.text("metric")), set()).add(step)
    for (row, _), row_steps in steps.items():
        if len(row_steps) > 1:
            problem = (
                f"{row} has lines at {len(row_steps)} steps, and no column has the seed or the "
                "run: evaluations of one training are not several seeds"
            )
            remedy = "keep only the last line of each run, and add its seed"
            raise UsageError(Fault(problem, remedy=remedy))


def _count_duplicates(lines: Sequence[Line]) -> dict[str, int]:
    """Number of lines that equal an earlier line, by row."""
    duplicates = Counter[str]()
    seen: set[object] = set()
    for line in lines:
        content = (line.row, *((name, str(value)) for name, value in line.cells.items()))
        if content in seen:
            duplicates[line.row] += 1
        seen.add(content)
    return duplicates


def counts_text(counts: Mapping[str, int]) -> str:
    """Names with their counts, such as `base 2, wide 1`."""
    return ", ".join(f"{name} {count}" for name, count in counts.items())
