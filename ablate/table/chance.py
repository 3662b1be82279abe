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
        if unlearned := unlearned_text(family.base, metric):
            learning = family.base.learning_metric(metric)
            sentences.append(
                f"{unlearned[:1].upper()}{unlearned[1:]}. Differences from it show only which "
                f"rows have learned, not the effect of a change on a trained model"
                f"{_remedy(table, learning, [family.base]) if advises else ''}."
            )
    return sentences


def unlearned_text(base: TableRow, metric: Metric) -> str:
    """`by PPL, base has learned nothing: the only score is not 20 % better than chance (46.79)`;
    empty if base has learned.
    """
    if base.has_learned(metric):
        return ""
    name = base_name(base)
    learning = base.learning_metric(metric)
    reason = _chance_text(learning, [base])
    return f"by {learning.title}, {name[:1].lower()}{name[1:]} has learned nothing: {reason}"


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
        f"rows cannot be compared in {metric.title}"
        f"{_remedy(table, learning, scored) if advises else ''}."
    ]


def _remedy(table: Table, metric: Metric, rows: Sequence[TableRow]) -> str:
    """The end of a sentence: the remedy for a metric at the level of chance in some rows."""
    notes = table.experiment.notes
    if notes.is_exchanged:
        return ". First mend the text as the notes say; more steps do not help against its faults"
    if metric.name in notes.unjudged:
        return (
            f". First change {metric.title} or its tokenizer as the notes on the text say; more "
            "steps do not help a metric that cannot judge the references"
        )
    remedy = ". Train for more steps"
    if _is_below_chance(metric, rows):
        remedy += (
            " if the training loss is still high; if it is low, dev is unlike the training text "
            "(`ablate data show` shows both), or its text is too small, and more steps do not help"
        )
    if metric.name == "bleu":  # BLEU is 0 for good translations if no text has a 4-gram
        remedy += (
            "; only if most references have fewer than 4 tokens, use `metrics: [chrf]` instead, "
            "because BLEU counts 4-grams"
        )
    if notes.text:
        remedy += "; see also the notes on the text"
    return remedy


def _is_below_chance(metric: Metric, rows: Sequence[TableRow]) -> bool:
    """Whether the mean of every row is worse than chance, as after training on a text that is
    unlike dev.
    """
    if not metric.is_log:
        return False
    for row in rows:
        chance, mean = row.part(metric, CHANCE_SCORE).mean, row.scores[metric.name].mean
        if chance is None or mean is None or mean <= chance:
            return False
    return True


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
    if metric.is_log:
        learned = number(level * (1 - MIN_GAIN), metric.digits)
        return f"{scores} below {learned}, which is {percent(MIN_GAIN)} below chance ({text})"
    return f"{scores} better than chance ({text})"
