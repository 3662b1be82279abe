"""Write the conclusion of a table: sentences made by rules from the verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from ablate.formatting import enumeration, number, percent, plural, spread_text
from ablate.stats.metrics import Metric
from ablate.stats.significance import LEVEL
from ablate.stats.verdict import Verdict, Word
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
    unlearned = _unlearned(table)
    sentences = unfinished_sentences(table)
    sentences += [_base_sentence(table, family.base) for family in table.families]
    sentences += leak_sentences(table)
    sentences += bound_sentences(table)
    looks = experiment.looks
    sentences += filter(None, (looks.text, looks.error_spent(experiment.error_rate)))
    for metric in table.judged_metrics:
        sentences += unlearned.pop(metric.name)
    if len(table.judged_metrics) == 1:
        metric = table.main_metric
        rows = []
        for row in comparable_rows(table, metric):
            rows.append(RowVerdict(row.label, row.verdicts[metric.name]))
        sentences += _verdict_sentences(metric, rows, experiment.n_tests, experiment.error_rate)
    else:
        rows_of_all = _joint_rows(table)
        metrics = len(table.judged_metrics)
        sentences += _joint_sentences(
            rows_of_all, experiment.n_tests, experiment.error_rate, metrics
        )
    # Readers may take the column of a metric without verdicts for a result.
    sentences += chain.from_iterable(unlearned.values())
    return list(dict.fromkeys(sentences))


def leak_sentences(table: Table) -> list[str]:
    """A sentence for each large share of dev or test text that is also in the training data, with
    the metrics that are measured on it.
    """
    sentences = []
    for leak, split in table.experiment.notes.leaks.items():
        titles = [metric.title for metric in table.shown_metrics if metric.side == split]
        subject = f"{enumeration(titles)} {'does' if len(titles) == 1 else 'do'}"
        if not titles:
            subject = "the scores do"
        sentences.append(f"{leak}: {subject} not show the quality on new text.")
    return sentences


def bound_sentences(table: Table) -> list[str]:
    """The bounds of the metrics that hide changes of base; empty if a model has learned nothing."""
    if any(unlearned_sentences(table, metric) for metric in table.judged_metrics):
        return []
    return list(bound_notes(table))


@dataclass(frozen=True)
class _JointRow:
    """The label of a row, and its verdicts in the metrics that can compare it."""

    label: str
    verdicts: tuple[Verdict, ...]
    has_score: bool

    @property
    def decided(self) -> list[Verdict]:
        """The verdicts that decide."""
        return [verdict for verdict in self.verdicts if verdict.word not in ("", "cannot tell")]

    @property
    def different(self) -> list[Verdict]:
        """The verdicts `worse` and `better`."""
        return [verdict for verdict in self.verdicts if verdict.is_different]

    @property
    def undecided(self) -> list[Verdict]:
        """The verdicts `cannot tell`."""
        return [verdict for verdict in self.verdicts if verdict.word == "cannot tell"]

    @property
    def verbs(self) -> tuple[str, str]:
        """The verb before `predicate`, for one row and for several."""
        has_diverged = any(verdict.word == "diverged" for verdict in self.verdicts)
        return ("is", "are") if self.has_score and not has_diverged else ("has", "have")

    @property
    def predicate(self) -> str:
        """`worse than base by PPL and undecided by BLEU`: the decided metrics first. A row that no
        metric decides has the reasons.
        """
        if not self.has_score:
            return "no score yet"
        phrases: dict[Word, list[Verdict]] = {}
        for verdict in self.decided:
            phrases.setdefault(verdict.word, []).append(verdict)
        texts = list(map(_joint_phrase, phrases.values()))
        reasons: dict[str, list[Verdict]] = {}
        for verdict in self.undecided:
            reason = "" if texts else _reason_without_limit(verdict)
            reasons.setdefault(reason, []).append(verdict)
        texts += [f"undecided{_by(same)}{reason}" for reason, same in reasons.items()]
        return ("; " if any(reasons) else " and ").join(texts) or "undecided"


def unlearned_limits(table: Table) -> list[str]:
    """The sentences of the conclusion on metrics that show nothing learned, without advice."""
    sentences = chain.from_iterable(_unlearned(table, advises=False).values())
    return list(dict.fromkeys(sentences))


def _unlearned(table: Table, *, advises: bool = True) -> dict[str, list[str]]:
    """The sentences on each metric in which nothing is learned, by the name of the metric: on each
    base too, if the table shows the differences from it. Metrics that follow the score of chance of
    one metric, as PPL/char follows PPL, have its advice once.
    """
    sentences: dict[str, list[str]] = {}
    advised = set[str]()
    for metric in dict.fromkeys((*table.judged_metrics, *table.shown_metrics)):
        learning = table.rows[0].learning_metric(metric).name
        find = unlearned_sentences if metric in table.compared_metrics else chance_sentences
        found = find(table, metric, advises=advises and learning not in advised)
        if found:
            advised.add(learning)
        sentences[metric.name] = found
    return sentences


def _by(verdicts: Sequence[Verdict]) -> str:
    return f" by {enumeration(verdict.metric.title for verdict in verdicts)}"


def _joint_phrase(verdicts: Sequence[Verdict]) -> str:
    """`worse than base by PPL and BLEU`, of metrics with the same deciding verdict."""
    match verdicts[0].word:
        case "as good as base":
            margins = [f"{verdict.margin_text} {verdict.metric.title}" for verdict in verdicts]
            return f"as good as base within {enumeration(margins)}"
        case "no difference":
            return f"equal to base{_by(verdicts)} with every seed"
        case "diverged":
            return "diverged"
    return f"{verdicts[0].word} than base{_by(verdicts)}"


def _joint_rows(table: Table) -> list[_JointRow]:
    comparable = {metric.name: comparable_rows(table, metric) for metric in table.judged_metrics}
    rows = []
    for row in table.compared_rows:
        verdicts = [row.verdicts[metric.name] for metric in table.judged_metrics]
        can_compare = [v for v in verdicts if row in comparable[v.metric.name]]
        has_score = any(verdict.word for verdict in verdicts)
        rows.append(_JointRow(row.label, tuple(can_compare), has_score))
    return rows


def _joint_sentences(
    rows: Sequence[_JointRow], n_tests: int, error: float, metrics: int
) -> list[str]:
    """A sentence for the rows with the same verdicts by several metrics: the rows that most metrics
    decide come first. A sentence on the error rate of all metrics follows the decided rows.
    """
    groups: dict[str, list[_JointRow]] = {}
    for row in sorted(rows, key=lambda row: (not row.has_score, -len(row.decided))):
        groups.setdefault(row.predicate, []).append(row)
    different = [RowVerdict(row.label, verdict) for row in rows for verdict in row.different]
    between = _error_sentences(different, n_tests, error, metrics)
    if not different and any(verdict.seed_test for row in rows for verdict in row.verdicts):
        between = ["No row is shown to be worse or better than base."]
    decided: list[str] = []
    others: list[str] = []
    first = f"Of {plural(len(rows), 'row')}, "
    for predicate, group in groups.items():
        singular, plural_form = group[0].verbs
        verb = singular if len(group) == 1 else plural_form
        place = decided if group[0].decided else others
        count = f"{first}{len(group)}" if first else plural(len(group), "row")
        place.append(f"{count} {verb} {predicate}: {_joint_labels(group)}")
        first = ""
    return [*decided, *between, *others]


def _joint_labels(rows: Sequence[_JointRow]) -> str:
    """The labels of rows with the same verdicts, with their differences or their detectable
    differences.
    """
    if not rows[0].different:
        text = ", ".join(row.label for row in rows)
        if not rows[0].decided:
            text += _joint_limits(rows)
        return f"{text}."
    ordered = sorted(rows, key=lambda row: _size(row.different[0]), reverse=True)
    if len(rows) <= MOST_NAMED:
        return f"{', '.join(_row_text(row.label, row.different) for row in ordered)}."
    text = ", ".join(row.label for row in ordered)
    ranges = []
    for same in zip(*(row.different for row in rows), strict=True):
        sizes = [abs(verdict.mean) for verdict in same if verdict.mean is not None]
        if sizes:
            metric = same[0].metric
            ranges.append(f"{_range_text(metric, min(sizes), max(sizes))} {metric.title}")
    if ranges:
        text += f"; by {enumeration(ranges)}"
    return f"{text}; most of all {_row_text(ordered[0].label, ordered[0].different)}."


def _joint_limits(rows: Sequence[_JointRow]) -> str:
    """The detectable differences of undecided rows in each metric, and the fewest seeds that find
    an observed difference; empty without detectable differences.
    """
    limits: list[str] = []
    nearest: dict[tuple[str, str], list[str]] = {}  # label, seeds -> observed differences
    for same in zip(*(row.undecided for row in rows), strict=True):
        if any(map(_reason_without_limit, same)):
            continue
        metric = same[0].metric
        limits.append(f"{_limits_text(same)} {metric.title}")
        found = [RowVerdict(row.label, verdict) for row, verdict in zip(rows, same, strict=True)]
        if best := _nearest(found):
            key = best.label, best.verdict.more_seeds_text
            observed = f"{metric.difference_text(best.verdict.mean)} {metric.title}"
            nearest.setdefault(key, []).append(observed)
    if not limits:
        return ""
    differences = "difference" if len(rows) == 1 else "differences"
    texts = [f" (detectable {differences}: {enumeration(limits)})"]
    for (label, seeds), observed_differences in nearest.items():
        texts.append(_finding(label, observed_differences, seeds))
    return ". ".join(texts)


def _verdict_sentences(
    metric: Metric, rows: Sequence[RowVerdict], n_tests: int, error: float = LEVEL
) -> list[str]:
    """The sentences about the rows in a metric: a sentence for each kind of verdict.

    Args:
        metric: the metric.
        rows: the rows to report, without base.
        n_tests: number of tests that Holm's correction covers, one for each row of the study.
        error: bound of the familywise error rate.
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
            return f", because the differences from base show no spread in {verdict.metric.title}"
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
    rows = sorted(rows, key=lambda row: _size(row.verdict), reverse=True)
    texts = [_row_text(row.label, [row.verdict]) for row in rows]
    start = f"{word.capitalize()} than base: "
    if len(rows) <= MOST_NAMED:
        return [f"{start}{', '.join(texts)}."]
    text = f"{start}{len(rows)} rows"
    sizes = [abs(row.verdict.mean) for row in rows if row.verdict.mean is not None]
    if sizes:
        text += f", by {_range_text(metric, sizes[-1], sizes[0])} {metric.title}"
        text += f"; most of all {texts[-len(sizes)]}"
    if len(sizes) < len(rows):
        text += f"; {len(rows) - len(sizes)} diverged with every seed"
    return [f"{text}."]


def _size(verdict: Verdict) -> float:
    """The size of a difference. A row that diverged with every seed has no difference; its size is
    infinite, because it is worse than every other row.
    """
    return math.inf if verdict.mean is None else abs(verdict.mean)


def _row_text(label: str, verdicts: Iterable[Verdict]) -> str:
    """`A h=1 (-4.1 BLEU [-7.0, -1.2])`; the differences in several metrics are divided by `;`."""
    return f"{label} ({'; '.join(dict.fromkeys(map(_difference_text, verdicts)))})"


def _difference_text(verdict: Verdict) -> str:
    metric = verdict.metric
    if verdict.mean is None:
        seeds = f"all {plural(verdict.diverged, 'seed')}"
        if verdict.diverged < verdict.ended:
            seeds = f"{verdict.diverged} of {plural(verdict.ended, 'seed')}"
        return f"diverged with {seeds}"
    text = f"{metric.difference_text(verdict.mean)} {metric.title}"
    if verdict.interval:
        text += f" {metric.interval_text(*verdict.interval)}"
    if verdict.is_within_margin:
        text += f", within {verdict.margin_text}"
    if verdict.diverged:
        text += f", {verdict.diverged} of {plural(verdict.ended, 'seed')} diverged"
    return text


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
    limits = _limits_text([row.verdict for row in rows])
    of_rows = "detectable difference" if len(rows) == 1 else "detectable differences of these rows"
    text = f"Undecided: {_labels(rows)} ({of_rows}: {limits} {metric.title})."
    nearest = _nearest(rows)
    if nearest is None:
        return [text]
    observed = f"{metric.difference_text(nearest.verdict.mean)} {metric.title}"
    return [f"{text} {_finding(nearest.label, [observed], nearest.verdict.more_seeds_text)}."]


def _limits_text(verdicts: Sequence[Verdict]) -> str:
    """The smallest and the largest detectable difference in a metric: `1.6 to 3.8`."""
    sizes = [verdict.minimum_detectable or 0.0 for verdict in verdicts]
    ends = map(verdicts[0].metric.size_text, (min(sizes), max(sizes)))
    return " to ".join(dict.fromkeys(ends))


def _nearest(rows: Sequence[RowVerdict]) -> RowVerdict | None:
    """The row whose observed difference the fewest further seeds find; None if no advisable number
    of seeds finds any.
    """
    nearest = min(rows, key=lambda row: (row.verdict.more_seeds or math.inf, row.label))
    verdict = nearest.verdict
    if not verdict.more_seeds or verdict.more_seeds > MOST_TIMES * verdict.n:
        return None
    return nearest


def _finding(label: str, observed: Sequence[str], seeds: str) -> str:
    size = "a true difference" if len(observed) == 1 else "true differences"
    return f"Detecting {size} of {enumeration(observed)}, as observed for {label}, takes {seeds}"


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
        has_looks = table.experiment.looks.has_several
        scope = " up to this look" if has_looks else ""
        if any(row.recipe.tuned for row in table.rows):
            scope += ", without tuning runs,"
        have = "has" if len(missing) == 1 else "have"
        text = f"Unfinished: {len(missing)} of {count} runs{scope} {have} no scores yet"
        text += "." if has_looks else ", so every verdict is provisional."
    sentences = [text]
    if any(run.lacks_decoding for run in table.runs):
        sentences.append("Some runs are trained and lack a decoding: `ablate run` decodes them.")
    for setting in dict.fromkeys(run.former_default for run in table.runs if run.former_default):
        sentences.append(
            f"Some runs have scores with {setting}, the default of an earlier version: "
            f"`--set {setting}` shows these scores."
        )
    return sentences
