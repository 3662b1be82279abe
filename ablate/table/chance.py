"""Scores at the level of chance: the rows that a metric can compare, and sentences about metrics in
which nothing is learned yet.
"""

from __future__ import annotations

from collections.abc import Sequence

from ablate.formatting import number, percent
from ablate.stats.metrics import CHANCE_SCORE, EXACT, MIN_GAIN, Metric
from ablate.table.designs import base_name
from ablate.table.table import Table, TableRow


def comparable_rows(table: Table, metric: Metric) -> list[TableRow]:
    """The rows that a metric can compare with base, and the rows without a score yet.

    A metric at the level of chance compares no rows. Rows of a base that has not learned count only
    if they have learned and differ significantly: the difference then shows that they have learned.
    """
    is_usable = _row_with_exact_zero(table, metric) is None
    unlearned = {row.label for row in table.rows if not row.has_learned(metric)}
    rows = []
    for row in table.compared_rows:
        verdict = row.verdicts[metric.name]
        differs_by_learning = verdict.is_different and row.label not in unlearned
        is_comparable = row.base not in unlearned or differs_by_learning
        if verdict.mean is None or (is_usable and is_comparable):
            rows.append(row)
    return rows


def unlearned_sentences(table: Table, metric: Metric, *, advises: bool = True) -> list[str]:
    """A sentence if a metric is at the level of chance for all rows; otherwise a sentence for each
    base at the level of chance. With `advises`, a sentence says what to do.
    """
    if sentences := chance_sentences(table, metric, advises=advises):
        return sentences
    for family in table.families:
        if not family.base.has_learned(metric):
            name = base_name(family.base)
            name = f"{name[:1].lower()}{name[1:]}"
            learning = family.base.learning_metric(metric)
            sentences.append(
                f"By {learning.title}, {name} has learned nothing: "
                f"{_chance_text(learning, [family.base])}. Differences from it show only which "
                f"rows have learned, not the effect of a change on a trained model"
                f"{_remedy(learning) if advises else ''}."
            )
    return sentences


def chance_sentences(table: Table, metric: Metric, *, advises: bool = True) -> list[str]:
    """A sentence if no score of any row is printed as better than chance, or if a metric gives 0 to
    exact predictions. With `advises`, the sentence says what to do.
    """
    if exact_row := _row_with_exact_zero(table, metric):
        exact = percent(max(exact_row.part(metric, EXACT).by_seed.values()))
        sentence = (
            f"{metric.title} cannot judge these texts: it is {number(0.0, metric.digits)} for "
            f"{exact_row.label}, although {exact} of its predictions equal their references."
        )
        return [f"{sentence} `metrics: [chrf]` counts characters." if advises else sentence]
    scored = [row for row in table.rows if row.scores[metric.name].n]
    if not scored or any(row.has_learned(metric) for row in scored):
        return []
    learning = scored[0].learning_metric(metric)
    return [
        f"By {learning.title}, no row has learned anything: {_chance_text(learning, scored)}. The "
        f"rows cannot be compared in {metric.title}{_remedy(learning) if advises else ''}."
    ]


def _remedy(metric: Metric) -> str:
    """The end of a sentence: the remedy for a metric at the level of chance."""
    remedy = ". Train for more steps"
    if metric.name == "bleu":  # BLEU is 0 for good translations if no text has a 4-gram
        remedy += (
            "; only if most references have fewer than 4 tokens, use `metrics: [chrf]` instead, "
            "because BLEU counts 4-grams"
        )
    return remedy


def _row_with_exact_zero(table: Table, metric: Metric) -> TableRow | None:
    """The first row with exact predictions whose scores are printed as 0; None if there is none, or
    if a row with other scores has learned.
    """
    exact = [row for row in table.rows if row.prints_zero_despite_exact(metric)]
    others = [row for row in table.rows if row not in exact]
    return exact[0] if exact and not any(row.has_learned(metric) for row in others) else None


def _chance_text(metric: Metric, rows: Sequence[TableRow]) -> str:
    """`all 3 scores are as low as 0.0`, or `none of the 3 scores is better than chance (50.0)`."""
    count = 0
    chance = [metric.chance] if metric.has_known_chance else []
    for row in rows:
        count += row.scores[metric.name].n
        chance += row.part(metric, CHANCE_SCORE).by_seed.values()
    level = max(chance) if metric.more_is_better else min(chance)
    text = number(level, metric.digits)
    if round(level, metric.digits) == 0:
        scores = "the only score is" if count == 1 else f"all {count} scores are"
        return f"{scores} as low as {text}"
    scores = "the only score is not" if count == 1 else f"none of the {count} scores is"
    better = f"{percent(MIN_GAIN)} better" if metric.is_log else "better"
    return f"{scores} {better} than chance ({text})"
