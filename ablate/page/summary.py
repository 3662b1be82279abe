"""The study's outcome in a sentence or two."""

from __future__ import annotations

from ablate.errors import listed
from ablate.formatting import number
from ablate.report.columns import of_rows
from ablate.report.table import Table, TableRow

_MOST = 6  # rows named one by one


def summary(table: Table) -> str:
    """What came out: which rows are better or worse than base, and what could not be told."""
    base, main = table.rows[0], table.main
    others = table.rows[1:]
    parts = [_base(base, table)]
    if others and not any(verdict.seeds for verdict in of_rows(table, main)):
        why = "one seed shows no spread" if len(table.study.seeds) == 1 else "too few seeds are in yet"
        parts.append(f"Whether the {_rows(len(others))} differ from it cannot be told: {why}.")
    elif others:
        parts.append(_outcome(table, others))
    missing = sum(row.state != "done" for row in table.rows)
    if missing:
        verbs = ("is", "has") if missing == 1 else ("are", "have")
        parts.append(f"{_rows(missing)} of {len(table.rows)} {verbs[0]} not finished or {verbs[1]} no score.")
    return " ".join(parts)


def _base(base: TableRow, table: Table) -> str:
    scores, main = base.scores[table.main.name], table.main
    if scores.mean is None:
        return "Base has no score yet."
    spread = f" ± {number(scores.std, main.digits)}" if scores.std is not None else ""
    ppl = number(base.ppl.mean, 2)
    reached = f"{number(scores.mean, main.digits)}{spread} {main.title}"
    return f"Base reaches {reached} and a perplexity of {ppl} (n = {scores.n})."


def _outcome(table: Table, others: tuple[TableRow, ...]) -> str:
    words: dict[str, list[TableRow]] = {}
    for row in others:
        words.setdefault(row.verdicts[table.main.name].word or "without a score", []).append(row)
    told = [
        f"{_rows(len(words[word]))} {'is' if len(words[word]) == 1 else 'are'} {word}{_names(words[word])}"
        for word in ("better", "worse", "diverged", "no difference", "cannot tell")
        if word in words
    ]
    noise = words.get("within noise", [])
    if noise:
        verdicts = sorted((row.verdicts[table.main.name] for row in noise), key=lambda verdict: verdict.least or 0.0)
        span = " to ".join(dict.fromkeys((verdicts[0].least_text, verdicts[-1].least_text)))
        told.append(
            f"{_rows(len(noise))} {'is' if len(noise) == 1 else 'are'} within noise "
            f"(smallest difference this study could see: {span} {table.main.title})"
        )
    return f"Against it, by {table.main.title}, {listed(told).replace(' or ', ' and ')}." if told else ""


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _names(rows: list[TableRow]) -> str:
    return f" ({', '.join(row.row.label for row in rows)})" if len(rows) <= _MOST else ""
