"""Refuse tables with a column for each run or row, and say how to get a line for each run."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ablate.errors import Fault, UsageError
from ablate.formatting import first_few
from ablate.judging.columns import GROWING, ROW, SEED, Line, parse_number, plain_name
from ablate.judging.scores import direction_of

# Such as `Seed 1` or `fold_3`; or `3`, as `pivot` of pandas names the column of seed 3.
_RUN = re.compile(r"((seed|run|trial|rep|replicate|fold|split|s)[\s_-]*)?\d{1,9}", re.I)


def refuse_wide(lines: Sequence[Line], metrics: Sequence[str], row_columns: Sequence[str]) -> None:
    """Refuse a chart of W&B, and a table with a column for each seed or for each row.

    Args:
        lines: the lines of the table.
        metrics: the requested metrics; a table with such a column is not refused.
        row_columns: the requested columns that name a row.

    Raises:
        UsageError: the table has one of these shapes.
    """
    names = [str(name) for name in lines[0].cells] if lines else []
    plain = {plain_name(name) for name in names}
    if plain & {"value", *map(plain_name, metrics)}:
        return
    if any(f"{name}__MIN" in names for name in names):
        problem = "a chart that W&B has exported has a column for each run"
        remedy = "export the table of runs as CSV, which has a line for each run"
        raise UsageError(Fault(problem, remedy=remedy))
    numeric = [name for name in names if _is_numeric(lines, name)]
    if not plain & {*SEED}:
        runs = [name for name in numeric if _RUN.fullmatch(name.strip())]
        others = [name for name in names if name not in runs]
        texts = [name for name in others if name not in numeric]
        asked = [name for name in texts if name in row_columns]
        for row in (asked or texts)[:1]:
            has_each_once = len({line.text(row) for line in lines}) == len(lines)
            if len(runs) > 1 and has_each_once:
                raise _wide("seed", runs, row, [name for name in others if name != row])
    elif not row_columns and not plain & {*ROW}:
        rows = [name for name in names if plain_name(name) not in SEED]
        known = any(plain_name(name) in GROWING or direction_of(name) is not None for name in rows)
        if len(rows) > 1 and not known and all(name in numeric for name in rows):
            seed = next(name for name in names if plain_name(name) in SEED)
            raise _wide("row", rows, seed, [])


def _is_numeric(lines: Sequence[Line], name: str) -> bool:
    """Whether a column has numbers and no other text."""
    texts = [line.text(name) for line in lines if line.text(name)]
    return bool(texts) and all(parse_number(text) is not None for text in texts)


def _wide(kind: str, columns: Sequence[str], key: str, dropped: Sequence[str]) -> UsageError:
    """The error of a table with a column for each seed or row.

    Args:
        kind: what each of the columns is, `seed` or `row`.
        columns: names of these columns.
        key: name of the column that tells the lines apart.
        dropped: names of all other columns.
    """
    # `read_csv` gives a column without a name this one.
    key = key or "Unnamed: 0"
    call = "df"
    if dropped:
        call += f".drop(columns={list(dropped)})"
    call += f'.melt(id_vars="{key}", var_name="{kind}", value_name="METRIC")'
    if plain_name(key) not in (*ROW, *SEED):
        call += f'.rename(columns={{"{key}": "row"}})'
    remedy = f"write a line for each run, with the columns row, seed and METRIC; in pandas: {call}"
    problem = f"the table has a column for each {kind}: {first_few(columns, 3)}"
    return UsageError(Fault(problem, remedy=remedy))
