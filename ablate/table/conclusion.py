"""The conclusion in words, made by rules from the verdicts: no more than the numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ablate.formatting import enumeration, number, percent, plural, spread_text
from ablate.stats.metrics import CHANCE_SCORE, EXACT, LEAST_GAIN, Metric
from ablate.stats.significance import LEVEL, POWER
from ablate.stats.verdict import EARLY, Verdict, Word, joint_word, seeds_text
from ablate.table.designs import base_name, bound_notes
from ablate.table.table import Table, TableRow

MOST_NAMED = 6  # rows that a sentence names one by one


@dataclass(frozen=True)
class Judged:
    """A row's label, and its verdict in the main metric."""

    label: str
    verdict: Verdict


def conclusion(table: Table) -> list[str]:
    """The conclusion of a table: base, what each row does to the main metric, and what the study
    could not see.
    """
    judged: list[str] = []
    experiment = table.experiment
    told = {metric.name: _told(table, metric) for metric in table.judged}
    has_learned = True
    for metric in table.judged:
        unlearned, rows = _nothing_learned(table, metric), []
        has_learned = has_learned and not unlearned
        for row in table.rows:
            if row.label in told[metric.name]:
                verdict = row.verdicts[metric.name]
                joint = _word(table, row, told)
                # A row that another metric decides is known, and `_together` names those without
                # any score.
                is_open = verdict.word != "cannot tell" or joint == "cannot tell"
                if is_open and (joint or len(table.judged) == 1):
                    rows.append(Judged(row.label, verdict))
        if len(table.judged) == 1:
            judged += [
                *unlearned,
                *_sentences(metric, rows, experiment.tests, experiment.error),
            ]
        else:
            # `_together` has the error of all metrics.
            for sentence in (
                *unlearned,
                *_sentences(metric, rows, experiment.tests, error=None),
            ):
                judged.append(f"By {metric.title}: {sentence}")
    for metric in table.metrics:
        if metric not in table.judged:  # a reader takes its column for a result all the same
            judged += _shows_nothing(table, metric)
    sentences = [_base(table, family.base) for family in table.families]
    if has_learned:
        sentences += bound_notes(table)
    sentences += table.experiment.standing.sentences(table.experiment.error)
    return sentences + _together(table, told) + judged + _unfinished(table)


def _told(table: Table, metric: Metric) -> set[str]:
    """Labels of the rows that a metric can judge. Of a base without learning, a difference says
    alone which rows have learned.
    """
    can_judge = not _cannot_judge(table, metric)
    untaught = {row.label for row in table.rows if not row.has_learned(metric)}
    told = set()
    for row in table.rows:
        if row.row.is_base:
            continue
        verdict = row.verdicts[metric.name]
        says = row.row.base not in untaught or (verdict.is_different and row.label not in untaught)
        if verdict.mean is None or (can_judge and says):
            told.add(row.label)
    return told


def _word(table: Table, row: TableRow, told: Mapping[str, set[str]]) -> str:
    """The verdict on a row by the metrics that can judge it.

    Args:
        table: of the row.
        row: but base.
        told: by metric, the labels of the rows that it can judge.
    """
    verdicts = []
    for metric in table.judged:
        verdict = row.verdicts[metric.name]
        if row.label not in told[metric.name]:
            verdict = replace(verdict, word="cannot tell")
        verdicts.append(verdict)
    return joint_word(verdicts)


def _together(table: Table, told: Mapping[str, set[str]]) -> list[str]:
    """The rows by their verdicts in all metrics, if the study judges by several.

    Args:
        table: of the study.
        told: as in `_word`.
    """
    if len(table.judged) == 1:
        return []
    labels: dict[str, list[str]] = {}
    decided = []
    for row in table.rows:
        if row.row.is_base:
            continue
        word = _word(table, row, told)
        labels.setdefault(word or "no score yet", []).append(row.label)
        for metric in table.judged:
            if row.verdicts[metric.name].is_different and row.label in told[metric.name]:
                decided.append(Judged(row.label, row.verdicts[metric.name]))
    parts = []
    for word in sorted(labels, key=lambda word: word in ("cannot tell", "no score yet")):
        parts.append(f"{len(labels[word])} {word} ({', '.join(labels[word])})")
    titles = " and ".join(metric.title for metric in table.judged)
    rows = sum(map(len, labels.values()))
    return [
        f"Of {plural(rows, 'row')}, by {titles}: {'; '.join(parts)}.",
        *_doubt(decided, table.experiment.tests, table.experiment.error, metrics=len(table.judged)),
    ]


def _sentences(
    metric: Metric, rows: Sequence[Judged], tests: int, error: float | None = LEVEL
) -> list[str]:
    """A sentence for each kind of verdict among the rows.

    Args:
        metric: the main metric.
        rows: all rows but base.
        tests: number of rows that Holm's correction covers.
        error: bound of the error of all verdicts; None to leave it out.
    """
    if not rows:
        return []
    by_word: dict[Word, list[Judged]] = {}
    for row in rows:
        by_word.setdefault(row.verdict.word, []).append(row)
    worse, better = by_word.get("worse", []), by_word.get("better", [])
    sentences = [*_different(metric, "worse", worse), *_different(metric, "better", better)]
    if error is not None:
        sentences += _doubt([*worse, *better], tests, error)
    if not sentences and any(row.verdict.seed_test for row in rows):
        sentences.append("No row is shown to be worse or better than base.")
    if equal := by_word.get("as good as base"):
        margin = f"{equal[0].verdict.margin_text} {metric.title}"
        sentences.append(f"As good as base within {margin}: {_names(equal)}.")
    if same := by_word.get("no difference"):
        sentences.append(f"Same {metric.title} as base with every seed: {_names(same)}.")
    if diverged := by_word.get("diverged"):
        sentences.append(f"Diverged: {_names(diverged)}.")
    survivors, blind, unknown = [], [], []
    for row in by_word.get("cannot tell", []):
        if row.verdict.is_survivors_only:
            survivors.append(row)
        elif row.verdict.is_uninformative:
            blind.append(row)
        else:
            unknown.append(row)
    if survivors:
        sentences.append(
            f"Not known: {_names(survivors)}; significant only over the seeds that did not diverge."
        )
    if blind:
        seeds = seeds_text(max(row.verdict.n for row in blind))
        sentences.append(f"Not known: {_names(blind)}; {seeds} do not tell.")
    sentences += _unknown(metric, unknown)
    if empty := by_word.get(""):
        sentences.append(f"No score yet: {_names(empty)}.")
    return sentences


def _base(table: Table, base: TableRow) -> str:
    name, texts = base_name(base), []
    for metric in table.compared:
        scores = base.scores[metric.name]
        if scores.mean is not None:
            spread = spread_text(scores.std, metric.digits, metric.is_log)
            texts.append(f"{number(scores.mean, metric.digits)}{spread} {metric.full_title}")
    if not texts:
        return f"{name} has no score yet."
    seeds = plural(base.scores[table.main.name].n, "seed")
    return f"{name} reaches {' and '.join(texts)} with {seeds}."


def _nothing_learned(table: Table, metric: Metric) -> list[str]:
    """A sentence if a metric shows nothing of all rows, else for each base without learning."""
    if sentences := _shows_nothing(table, metric):
        return sentences
    for family in table.families:
        if not family.base.has_learned(metric):
            name = base_name(family.base)
            shows = family.base.shows_learning(metric)
            sentences.append(
                f"{shows.title} shows nothing learned by {name[:1].lower()}{name[1:]}: "
                f"{_level(shows, [family.base])}. A difference from it says which rows have "
                f"learned, and not what a change does to a trained model; {_way_to_learn(shows)}."
            )
    return sentences


def _shows_nothing(table: Table, metric: Metric) -> list[str]:
    """A sentence if no row has a score that is printed as better than chance, or if the metric
    cannot judge the predictions.
    """
    if blind := _cannot_judge(table, metric):
        exact = percent(max(blind.part(metric, EXACT).by_seed.values()))
        return [
            f"{metric.title} cannot judge these texts: it is {number(0.0, metric.digits)} for "
            f"{blind.label}, of which {exact} of the predictions equal their references. "
            "`metrics: [chrf]` counts characters."
        ]
    scored = [row for row in table.rows if row.scores[metric.name].n]
    if not scored or any(row.has_learned(metric) for row in scored):
        return []
    shows = scored[0].shows_learning(metric)
    return [
        f"{shows.title} shows nothing learned by any row: {_level(shows, scored)}. The rows "
        f"cannot be compared in {metric.title}; {_way_to_learn(shows)}."
    ]


def _way_to_learn(metric: Metric) -> str:
    """The remedy for a metric that shows nothing."""
    remedy = "train for more steps"
    if metric.name == "bleu":  # which is 0 for good translations of texts without a 4-gram
        remedy += ", or use `metrics: [chrf]` if most references have fewer than 4 tokens"
    return remedy


def _cannot_judge(table: Table, metric: Metric) -> TableRow | None:
    """The first row with exact predictions, if all scores of all rows are printed as 0."""
    exact = [row for row in table.rows if row.is_exact_at_zero(metric)]
    others = [row for row in table.rows if row not in exact]
    return exact[0] if exact and not any(row.has_learned(metric) for row in others) else None


def _level(metric: Metric, rows: Sequence[TableRow]) -> str:
    """`all 3 scores are as low as 0.0`, the level of chance."""
    count, chance = 0, [metric.chance] if metric.has_level else []
    for row in rows:
        count += row.scores[metric.name].n
        chance += row.part(metric, CHANCE_SCORE).by_seed.values()
    every = f"all {count} scores are"
    if count == 1:
        every = "the only score is"
    level = max(chance) if metric.more_is_better else min(chance)
    text = number(level, metric.digits)
    if not float(text):
        return f"{every} as low as {text}"
    better = f"{LEAST_GAIN:.0%} better" if metric.is_log else "better"
    return f"{every} not {better} than chance, {text}"


def _different(metric: Metric, word: Word, rows: list[Judged]) -> list[str]:
    """`Worse than base: A h=1 (-4.1 BLEU [-7.0, -1.2]).`, the largest difference first."""
    if not rows:
        return []
    # Rows that diverged with every seed have no difference; they are worst.
    rows = sorted(rows, key=_size, reverse=True)
    start = f"{word.capitalize()} than base: "
    if len(rows) <= MOST_NAMED:
        return [f"{start}{', '.join(_named(metric, row) for row in rows)}."]
    text = f"{start}{len(rows)} rows"
    scored = [row for row in rows if row.verdict.mean is not None]
    if scored:
        text += f", by {_span(metric, _size(scored[-1]), _size(scored[0]))} {metric.title}"
        text += f"; most of all {_named(metric, scored[0])}"
    if len(scored) < len(rows):
        text += f"; {len(rows) - len(scored)} diverged with every seed"
    return [f"{text}."]


def _size(row: Judged) -> float:
    """The size of a difference; infinite for a row that diverged with every seed."""
    return math.inf if row.verdict.mean is None else abs(row.verdict.mean)


def _named(metric: Metric, row: Judged) -> str:
    verdict = row.verdict
    if verdict.mean is None:
        return f"{row.label} (diverged with all {plural(verdict.diverged, 'seed')})"
    text = f"{metric.difference_text(verdict.mean)} {metric.title}"
    if verdict.interval:
        text += f" {metric.interval_text(*verdict.interval)}"
    if verdict.is_within_margin:
        text += f", within {verdict.margin_text}"
    if verdict.diverged:
        text += f", {verdict.diverged} of {plural(verdict.ended, 'seed')} diverged"
    return f"{row.label} ({text})"


def _doubt(named: Sequence[Judged], tests: int, error: float, metrics: int = 1) -> list[str]:
    """How often a study without a difference names a row; only rows with a score count."""
    tested = sum(row.verdict.mean is not None for row in named)
    if not tested:
        return []
    corrected = []
    if tests > 1:
        corrected.append(f"the {tests} rows of the study")
    if metrics > 1:
        corrected.append(f"{metrics} metrics")
    start = f"Corrected for {enumeration(corrected)}: if" if corrected else "If"
    text = (
        f"{start} no row differed from base, about {percent(error)} of such studies would name one"
    )
    if tested < len(named):
        text += "; rows that diverged with every seed are named without a test"
    return [f"{text}."]


def _unknown(metric: Metric, rows: list[Judged]) -> list[str]:
    """Differences that undecided rows would show, and the seeds that the observed ones need."""
    if not rows:
        return []
    seen = []
    for row in rows:
        if row.verdict.minimum_detectable is not None:
            seen.append(row.verdict.minimum_detectable)
    text = f"Not known: {_names(rows)}"
    if any(row.verdict.is_early for row in rows):
        return [f"{text}, {EARLY}."]
    if not seen:
        why = f"the seeds show no spread in {metric.title}"
        if all(row.verdict.n == 1 for row in rows):
            why = "one seed shows no spread"
        return [f"{text}, because {why}."]
    which = "it" if len(rows) == 1 else "them"
    span = " to ".join(dict.fromkeys(map(metric.size_text, (min(seen), max(seen)))))
    text += (
        f"; a true difference of {span} {metric.title} would be found in {which} with "
        f"{POWER:.0%} probability."
    )
    needed = [row for row in rows if row.verdict.more_seeds is not None]
    if not needed:
        return [text]
    nearest = min(needed, key=lambda row: (row.verdict.more_seeds or 0, row.label))
    seeds = nearest.verdict.more_seeds_text
    return [
        f"{text} {seeds[:1].upper()}{seeds[1:]} would find the difference observed for "
        f"{nearest.label}, if it is the true one."
    ]


def _span(metric: Metric, low: float, high: float) -> str:
    """`6.3`, or `6.3 to 22.1` where the ends print differently; of ratios `×1.051 to ×1.242`."""
    ends = [number(low, metric.digits), number(high, metric.digits)]
    if metric.is_log:
        ends = [metric.size_text(low), metric.size_text(high)]
    return " to ".join(dict.fromkeys(ends))


def _names(rows: list[Judged]) -> str:
    if len(rows) > MOST_NAMED:
        return f"{len(rows)} rows"
    return ", ".join(row.label for row in rows)


def _unfinished(table: Table) -> list[str]:
    count = sum(not {*row.states.values()} <= {"done", "diverged"} for row in table.rows)
    if not count:
        return []
    are = "is" if count == 1 else "are"
    sentences = [f"{count} of {plural(len(table.rows), 'row')} {are} not finished."]
    runs = [run for row in table.rows for run in row.runs]
    if any(run.lacks_decoding for run in runs):
        sentences.append("Some are trained and lack a decoding: `ablate run` decodes them.")
    for setting in dict.fromkeys(run.former for run in runs if run.former):
        sentences.append(
            f"They have scores with {setting}, the default of earlier versions: `--set {setting}` "
            f"shows these."
        )
    return sentences
