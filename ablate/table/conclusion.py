"""Write the conclusion of a table: sentences made by rules from the verdicts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ablate.formatting import enumeration, number, percent, plural, spread_text
from ablate.stats.metrics import Metric
from ablate.stats.significance import LEVEL
from ablate.stats.verdict import Verdict, Word, joint_word
from ablate.table.chance import chance_sentences, comparable_rows, unlearned_sentences
from ablate.table.designs import base_name, bound_notes
from ablate.table.table import Table, TableRow

MOST_NAMED = 6  # a sentence about more rows gives their number in place of their labels
MOST_TIMES = 10  # a study of more than this many times as many seeds is no advice


@dataclass(frozen=True)
class RowVerdict:
    """The label of a row, and its verdict in a metric."""

    label: str
    verdict: Verdict


def conclusion(table: Table) -> list[str]:
    """The conclusion of a table: the number of missing runs, the scores of base, the verdicts, and
    what is undecided.
    """
    experiment = table.experiment
    comparable = {metric.name: comparable_rows(table, metric) for metric in table.judged_metrics}
    unlearned = {metric.name: unlearned_sentences(table, metric) for metric in table.judged_metrics}
    sentences = unfinished_sentences(table)
    sentences += [_base_sentence(table, family.base) for family in table.families]
    sentences += leak_sentences(table)
    sentences += bound_sentences(table)
    looks = experiment.looks
    sentences += filter(None, (looks.text, looks.error_spent(experiment.error_rate)))
    if len(table.judged_metrics) == 1:
        metric = table.main_metric
        rows = [_row_verdict(row, metric) for row in comparable[metric.name]]
        sentences += unlearned[metric.name]
        sentences += _verdict_sentences(metric, rows, experiment.n_tests, experiment.error_rate)
    else:
        joint = _joint_words(table, comparable)
        sentences += _joint_sentences(table, comparable, joint)
        for metric in table.judged_metrics:
            rows = _rows_to_report(metric, comparable[metric.name], joint)
            verdicts = _verdict_sentences(metric, rows, experiment.n_tests, error=None)
            for sentence in (*unlearned[metric.name], *verdicts):
                sentences.append(f"By {metric.title}: {sentence}")
    for metric in table.shown_metrics:
        # Readers may take the column of a metric without verdicts for a result.
        if metric not in table.judged_metrics:
            sentences += chance_sentences(table, metric)
    return sentences


def leak_sentences(table: Table) -> list[str]:
    """A sentence for each large share of dev or test text that is also in the training data."""
    consequence = "the scores do not show the quality on new text"
    return [f"{leak}: {consequence}." for leak in table.experiment.notes.leaks]


def bound_sentences(table: Table) -> list[str]:
    """The bounds of the metrics that hide changes of base; empty if a model has learned nothing."""
    if any(unlearned_sentences(table, metric) for metric in table.judged_metrics):
        return []
    return list(bound_notes(table))


def _row_verdict(row: TableRow, metric: Metric) -> RowVerdict:
    return RowVerdict(row.label, row.verdicts[metric.name])


def _joint_words(table: Table, comparable: Mapping[str, Sequence[TableRow]]) -> dict[str, str]:
    """The joint verdict on each row, by label, from the metrics that can compare the row:
    `comparable` has the rows of each metric.
    """
    words = {}
    for row in table.compared_rows:
        verdicts = []
        for metric in table.judged_metrics:
            verdict = row.verdicts[metric.name]
            if row not in comparable[metric.name]:
                verdict = replace(verdict, word="cannot tell")
            verdicts.append(verdict)
        words[row.label] = joint_word(verdicts)
    return words


def _rows_to_report(
    metric: Metric, rows: Sequence[TableRow], joint: Mapping[str, str]
) -> list[RowVerdict]:
    """The rows that the sentences about one of several metrics report.

    `_joint_sentences` reports the other rows: rows without any score, and rows that are undecided
    in this metric and decided in another one.
    """
    reported = []
    for row in rows:
        word = joint[row.label]
        is_undecided = row.verdicts[metric.name].word == "cannot tell"
        if word and (word == "cannot tell" or not is_undecided):
            reported.append(_row_verdict(row, metric))
    return reported


def _joint_sentences(
    table: Table, comparable: Mapping[str, Sequence[TableRow]], joint: Mapping[str, str]
) -> list[str]:
    """A sentence with the joint verdicts, and a sentence with the error rate of all metrics."""
    labels: dict[str, list[str]] = {}
    for label, word in joint.items():
        labels.setdefault(word or "no score yet", []).append(label)
    phrases = []
    for word in sorted(labels, key=lambda word: word in ("cannot tell", "no score yet")):
        phrases.append(f"{len(labels[word])} {word} ({', '.join(labels[word])})")
    different = []
    for metric in table.judged_metrics:
        for row in comparable[metric.name]:
            if row.verdicts[metric.name].is_different:
                different.append(_row_verdict(row, metric))
    titles = " and ".join(metric.title for metric in table.judged_metrics)
    experiment = table.experiment
    return [
        f"Of {plural(len(joint), 'row')}, by {titles}: {'; '.join(phrases)}.",
        *_error_sentences(
            different, experiment.n_tests, experiment.error_rate, len(table.judged_metrics)
        ),
    ]


def _verdict_sentences(
    metric: Metric, rows: Sequence[RowVerdict], n_tests: int, error: float | None = LEVEL
) -> list[str]:
    """The sentences about the rows in a metric: a sentence for each kind of verdict.

    Args:
        metric: the metric.
        rows: the rows to report, without base.
        n_tests: number of tests that Holm's correction covers, one for each row of the study.
        error: bound of the familywise error rate; None to leave out the sentence about it.
    """
    if not rows:
        return []
    by_word: dict[Word, list[RowVerdict]] = {}
    for row in rows:
        by_word.setdefault(row.verdict.word, []).append(row)
    worse = by_word.get("worse", [])
    better = by_word.get("better", [])
    sentences = _difference_sentences(metric, "worse", worse)
    sentences += _difference_sentences(metric, "better", better)
    if error is not None:
        sentences += _error_sentences([*worse, *better], n_tests, error)
    if not sentences and any(row.verdict.seed_test for row in rows):
        sentences.append("No row is shown to be worse or better than base.")
    if equal := by_word.get("as good as base"):
        margin = f"{equal[0].verdict.margin_text} {metric.title}"
        sentences.append(f"As good as base within {margin}: {_labels(equal)}.")
    if same := by_word.get("no difference"):
        sentences.append(f"Same {metric.title} as base with every seed: {_labels(same)}.")
    if diverged := by_word.get("diverged"):
        sentences.append(f"Diverged: {_labels(diverged)}.")
    sentences += _undecided_sentences(metric, by_word.get("cannot tell", []))
    if empty := by_word.get(""):
        sentences.append(f"No score yet: {_labels(empty)}.")
    return sentences


def _undecided_sentences(metric: Metric, rows: Sequence[RowVerdict]) -> list[str]:
    """Sentences about undecided rows, with the rows of the same reason in one sentence."""
    tested: list[RowVerdict] = []
    by_reason: dict[str, list[RowVerdict]] = {}
    for row in rows:
        reason = _reason_without_limit(row.verdict)
        same_rows = by_reason.setdefault(reason, []) if reason else tested
        same_rows.append(row)
    sentences = [f"Undecided: {_labels(same)}{reason}." for reason, same in by_reason.items()]
    return sentences + _underpowered_sentences(metric, tested)


def _reason_without_limit(verdict: Verdict) -> str:
    """Why an undecided row has no detectable difference; empty if it has one."""
    match verdict.obstacle:
        case "before the first look":
            return ", before the first look"
        case "one seed":
            return ", because one seed shows no spread"
        case "no spread":
            return f", because the seeds show no spread in {verdict.metric.title}"
        case "divergence":
            return "; significant only over the seeds that did not diverge"
    return ""


def _base_sentence(table: Table, base: TableRow) -> str:
    name = base_name(base)
    texts = []
    for metric in table.compared_metrics:
        scores = base.scores[metric.name]
        if scores.mean is not None:
            spread = spread_text(scores.std, metric.digits, metric.is_log)
            texts.append(f"{number(scores.mean, metric.digits)}{spread} {metric.full_title}")
    if not texts:
        return f"{name} has no score yet."
    seeds = plural(base.scores[table.main_metric.name].n, "seed")
    return f"{name} reaches {' and '.join(texts)} with {seeds}."


def _difference_sentences(metric: Metric, word: Word, rows: list[RowVerdict]) -> list[str]:
    """`Worse than base: A h=1 (-4.1 BLEU [-7.0, -1.2]).`, with the largest difference first."""
    if not rows:
        return []
    rows = sorted(rows, key=_size, reverse=True)
    start = f"{word.capitalize()} than base: "
    if len(rows) <= MOST_NAMED:
        return [f"{start}{', '.join(_row_text(metric, row) for row in rows)}."]
    text = f"{start}{len(rows)} rows"
    scored = [row for row in rows if row.verdict.mean is not None]
    if scored:
        text += f", by {_range_text(metric, _size(scored[-1]), _size(scored[0]))} {metric.title}"
        text += f"; most of all {_row_text(metric, scored[0])}"
    if len(scored) < len(rows):
        text += f"; {len(rows) - len(scored)} diverged with every seed"
    return [f"{text}."]


def _size(row: RowVerdict) -> float:
    """The size of the row's difference. A row that diverged with every seed has no difference; its
    size is infinite, because it is worse than every other row.
    """
    return math.inf if row.verdict.mean is None else abs(row.verdict.mean)


def _row_text(metric: Metric, row: RowVerdict) -> str:
    """`A h=1 (-4.1 BLEU [-7.0, -1.2])`."""
    verdict = row.verdict
    if verdict.mean is None:
        seeds = f"all {plural(verdict.diverged, 'seed')}"
        if verdict.diverged < verdict.ended:
            seeds = f"{verdict.diverged} of {plural(verdict.ended, 'seed')}"
        return f"{row.label} (diverged with {seeds})"
    text = f"{metric.difference_text(verdict.mean)} {metric.title}"
    if verdict.interval:
        text += f" {metric.interval_text(*verdict.interval)}"
    if verdict.is_within_margin:
        text += f", within {verdict.margin_text}"
    if verdict.diverged:
        text += f", {verdict.diverged} of {plural(verdict.ended, 'seed')} diverged"
    return f"{row.label} ({text})"


def _error_sentences(
    different: Sequence[RowVerdict], n_tests: int, error: float, metrics: int = 1
) -> list[str]:
    """A sentence on the probability of a false verdict. Empty unless a row with a score is worse or
    better: rows that diverged with every seed have no test.
    """
    tested = sum(row.verdict.mean is not None for row in different)
    if not tested:
        return []
    corrected = []
    if n_tests > 1:
        corrected.append(f"the {n_tests} rows of the study")
    if metrics > 1:
        corrected.append(f"{metrics} metrics")
    start = f"Corrected for {enumeration(corrected)}: if" if corrected else "If"
    text = (
        f"{start} no row differed from base, about {percent(error)} of such studies would call a "
        f"row worse or better"
    )
    if tested < len(different):
        text += "; rows that diverged with every seed are worse without a test"
    return [f"{text}."]


def _underpowered_sentences(metric: Metric, rows: Sequence[RowVerdict]) -> list[str]:
    """A sentence about rows whose difference is not significant, with their detectable differences,
    and a sentence with the number of seeds that would detect the observed difference.
    """
    if not rows:
        return []
    detectable = [row.verdict.minimum_detectable or 0.0 for row in rows]
    sizes = " to ".join(dict.fromkeys(map(metric.size_text, (min(detectable), max(detectable)))))
    of_rows = "detectable difference" if len(rows) == 1 else "detectable differences of these rows"
    text = f"Undecided: {_labels(rows)} ({of_rows}: {sizes} {metric.title})."
    nearest = min(rows, key=lambda row: (row.verdict.more_seeds or math.inf, row.label))
    verdict = nearest.verdict
    if not verdict.more_seeds or verdict.more_seeds > MOST_TIMES * verdict.n:
        return [text]
    return [
        f"{text} Finding the observed difference of {nearest.label} "
        f"({metric.difference_text(verdict.mean)} {metric.title}) takes {verdict.more_seeds_text}."
    ]


def _range_text(metric: Metric, low: float, high: float) -> str:
    """`6.3 to 22.1`, or `6.3` if both ends print so; `×1.051 to ×1.242` for ratios."""
    ends = [number(low, metric.digits), number(high, metric.digits)]
    if metric.is_log:
        ends = [metric.size_text(low), metric.size_text(high)]
    return " to ".join(dict.fromkeys(ends))


def _labels(rows: Sequence[RowVerdict]) -> str:
    """The labels of up to MOST_NAMED rows; for more rows, only their number."""
    if len(rows) > MOST_NAMED:
        return f"{len(rows)} rows"
    return ", ".join(row.label for row in rows)


def unfinished_sentences(table: Table) -> list[str]:
    """The number of runs without scores, and how to show scores that exist for them."""
    missing = table.missing_runs
    if not missing:
        return []
    count = len({run.id for run in table.runs})
    if not any(run.scores or run.state == "diverged" for run in table.runs):
        text = "Unfinished: no run has scores yet."
    else:
        until = " up to this look" if table.experiment.looks.has_several else ""
        have = "has" if len(missing) == 1 else "have"
        text = f"Unfinished: {len(missing)} of {count} runs{until} {have} no scores yet"
        text += "." if until else ", so every verdict is provisional."
    sentences = [text]
    if any(run.lacks_decoding for run in table.runs):
        sentences.append("Some runs are trained and lack a decoding: `ablate run` decodes them.")
    for setting in dict.fromkeys(run.former_default for run in table.runs if run.former_default):
        sentences.append(
            f"Some runs have scores with {setting}, the default of an earlier version: "
            f"`--set {setting}` shows these scores."
        )
    return sentences
