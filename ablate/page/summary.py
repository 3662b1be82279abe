"""The outcome of a study in a few sentences."""

from __future__ import annotations

from ablate.errors import listed
from ablate.formatting import number, plural
from ablate.report.layout import verdicts_of
from ablate.report.table import Table, TableRow

MOST_NAMED = 6  # rows that are named one by one

# By verdict, in the order of the sentence: its predicate for one row, and for several.
PREDICATES = {
    "better": ("is better", "are better"),
    "worse": ("is worse", "are worse"),
    "diverged": ("diverged", "diverged"),
    "no difference": ("shows no difference", "show no difference"),
    "within noise": ("is not significantly different", "are not significantly different"),
    "cannot tell": ("is undecided", "are undecided"),
    "": ("has no score yet", "have no score yet"),
}


def summary(table: Table) -> str:
    """Return base's scores, the number of rows by verdict, and the number of unfinished rows."""
    sentences = [_base(table)]
    rows = table.rows[1:]
    if rows:
        has_spread = any(verdict.seed_test for verdict in verdicts_of(table, table.main))
        sentences.append(_outcome(table, rows) if has_spread else _undecided(table, len(rows)))
    unfinished = sum(row.state != "done" for row in table.rows)
    if unfinished:
        verb = "is" if unfinished == 1 else "are"
        sentences.append(f"{unfinished} of {plural(len(table.rows), 'row')} {verb} not finished or diverged.")
    return " ".join(sentences)


def _base(table: Table) -> str:
    metrics = (table.main, table.perplexity)
    scores = [(metric, table.rows[0].scores[metric.name]) for metric in metrics]
    texts = []
    for metric, found in scores:
        if found.mean is not None:
            spread = f" ± {number(found.std, metric.digits)}" if found.std is not None else ""
            texts.append(f"{number(found.mean, metric.digits)}{spread} {metric.title} ({metric.side})")
    if not texts:
        return "Base has no score yet."
    return f"Base reaches {' and '.join(texts)} with {plural(scores[0][1].n, 'seed')}."


def _undecided(table: Table, count: int) -> str:
    which = "The other row is" if count == 1 else f"The {count} other rows are"
    why = "one seed shows no variance" if len(table.study.seeds) == 1 else "fewer than two seeds have finished"
    return f"{which} undecided: {why}."


def _outcome(table: Table, rows: tuple[TableRow, ...]) -> str:
    main = table.main
    by_verdict: dict[str, list[TableRow]] = {}
    for row in rows:
        by_verdict.setdefault(row.verdicts[main.name].word, []).append(row)
    parts = []
    for word, (one, several) in PREDICATES.items():
        found = by_verdict.get(word, [])
        if found:
            detail = _detectable(table, found) if word == "within noise" else _names(found)
            parts.append(f"{plural(len(found), 'row')} {one if len(found) == 1 else several}{detail}")
    return f"Compared with base in {main.title}, {listed(parts).replace(' or ', ' and ')}."


def _detectable(table: Table, rows: list[TableRow]) -> str:
    """` (smallest detectable difference: 0.8 to 1.9 BLEU)`, where it is known."""
    verdicts = [row.verdicts[table.main.name] for row in rows]
    ordered = sorted(
        (verdict for verdict in verdicts if verdict.minimum_detectable is not None),
        key=lambda one: one.minimum_detectable or 0.0,
    )
    if not ordered:
        return ""
    span = " to ".join(dict.fromkeys((ordered[0].minimum_detectable_text, ordered[-1].minimum_detectable_text)))
    return f" (smallest detectable difference: {span} {table.main.title})"


def _names(rows: list[TableRow]) -> str:
    return f" ({', '.join(row.row.label for row in rows)})" if len(rows) <= MOST_NAMED else ""
