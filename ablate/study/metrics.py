"""The sections `metrics`, `judge` and `margin`: the metrics of a study, the metrics of its
verdicts, and the margins of equivalence.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ablate.config.data import CorpusConfig
from ablate.config.identity import fold_vocab_size
from ablate.errors import Fault, listed, unknown_name
from ablate.stats.metrics import PPL, PPL_CHAR, Metric
from ablate.study.row import Row
from ablate.study.study import StudyMetrics
from ablate.study.study_file import StudyFile
from ablate.study.yaml_nodes import Node, Report
from ablate.tasks import Task


def read_metrics(
    file: StudyFile, sections: Mapping[str, Node], task: Task, report: Report
) -> StudyMetrics:
    """Read the metrics of a study. Faults are reported."""
    shown = _check_metrics(file.metrics, sections.get("metrics"), task, report)
    judge = _check_judge(file.judge, sections.get("judge"), task, shown, report)
    margins = _check_margins(file.margin, sections.get("margin"), task, shown, judge, report)
    return StudyMetrics(shown, judge or shown[:1], margins)


def _check_metrics(
    written: Sequence[str], node: Node | None, task: Task, report: Report
) -> tuple[str, ...]:
    """The metrics in `metrics`, or the defaults of the task. Faults are reported."""
    if node is None:
        return task.default_metrics
    measured = _always_measured(task)
    allowed = [name for name in task.metrics if name not in measured]
    return _each_once(written, node, allowed, measured, report)


def _check_judge(
    written: Sequence[str], node: Node | None, task: Task, metrics: Sequence[str], report: Report
) -> tuple[str, ...]:
    """The metrics in `judge`; empty without the section. Faults are reported."""
    if node is None:
        return ()
    scored = _scored(task, metrics)
    return _each_once(written, node, scored, (), report, set(task.metrics).difference(scored))


def _scored(task: Task, metrics: Sequence[str]) -> Collection[str]:
    """The metrics in which a study has scores."""
    return dict.fromkeys((*(metrics or task.default_metrics), *_always_measured(task)))


def compares_vocabularies(metric: Metric, data: CorpusConfig) -> bool:
    """Whether a metric can compare models with different vocabularies. Means over tokens cannot.

    With a vocabulary of words, perplexity per character cannot either: the fewer words are known,
    the more words are one and the same unknown token, which is easy to predict.
    """
    has_words = getattr(data, "tokenizer", "") == "word"
    return not metric.is_per_token and not (has_words and metric == PPL_CHAR)


def check_vocabularies(
    judged: Sequence[str],
    task: Task,
    data: CorpusConfig,
    rows: Sequence[Row],
    written: Mapping[str, Mapping[str, Node]],
    report: Report,
) -> None:
    """Report rows whose vocabulary differs from base's, if a metric of the verdicts cannot compare
    vocabularies.

    Args:
        judged: names of the metrics of the verdicts.
        task: task of the study.
        data: section `data` of the study.
        rows: all rows, each base before its rows.
        written: fields that each row writes, by label.
        report: records a fault with its position.
    """
    comparable = [
        name for name, metric in task.metrics.items() if compares_vocabularies(metric, data)
    ]
    incomparable = [name for name in judged if name not in comparable]
    if not incomparable:
        return
    sizes: dict[str, int] = {}  # of the vocabulary, by label of the row
    for row in rows:
        sizes[row.label] = fold_vocab_size(data, row.config)[0].vocab_size
        if sizes[row.label] == sizes[row.base]:
            continue
        remedy = "remove vocab_size from the row, or set it in `sizes`"
        if comparable:
            remedy = f"judge by {listed(comparable)}"
        fault = Fault(
            f"vocab_size={sizes[row.label]} differs from base's {sizes[row.base]}, and "
            f"{incomparable[0]} cannot compare vocabularies",
            ("vocab_size",),
            f'row "{row.label}"',
            remedy=remedy,
        )
        report(written[row.label]["vocab_size"].mark, fault)


def _each_once(
    written: Sequence[str],
    node: Node,
    allowed: Collection[str],
    measured: Collection[str],
    report: Report,
    left_out: Collection[str] = (),
) -> tuple[str, ...]:
    """The metrics as written, an unknown metric replaced by the probably meant metric or left out.
    Unknown and repeated metrics are reported, metrics in `measured`, which are always measured, and
    metrics in `left_out`, of which the study has no scores.
    """
    names = list(written)
    entries = [node]
    if isinstance(node.value, list):
        entries = node.value
    for index, (name, entry) in enumerate(zip(written, entries, strict=True)):
        if name in measured:
            always = Fault(f"{name} is always measured", remedy="list only other metrics")
            report(entry.mark, always)
        # The names are too different for `unknown_name` to find the one that is meant.
        elif name == "perplexity" and PPL.name in allowed:
            report(entry.mark, f'unknown metric "{name}"; did you mean "{PPL.name}"?')
            names[index] = PPL.name
        elif name in left_out:
            report(entry.mark, Fault(f"{name} is not measured", remedy="add it to metrics"))
            names[index] = ""
        elif name not in allowed:
            unknown = unknown_name("metric", name, allowed)
            report(entry.mark, unknown)
            names[index] = unknown.meant
        elif name in written[:index]:
            report(entry.mark, f'duplicate metric "{name}"')
    return tuple(filter(None, names))


def _check_margins(
    written: float | Mapping[str, float],
    node: Node | None,
    task: Task,
    metrics: Sequence[str],
    judged: Sequence[str],
    report: Report,
) -> dict[str, float]:
    """The margins by metric. A single number is the margin of the first metric of the verdicts."""
    if node is None:
        return {}
    if not isinstance(written, Mapping):
        if len(judged) > 1:
            margins = ", ".join(f"{name}: {written:g}" for name in judged)
            report(node.mark, f"margin: verdicts are by {len(judged)} metrics; write {{{margins}}}")
        main, *_ = judged or metrics or task.default_metrics
        return {main: written}
    measured = _scored(task, metrics)
    for name, mark, _ in node.items():
        if name not in measured:
            report(mark, unknown_name("metric", name, measured))
    return dict(written)


def _always_measured(task: Task) -> tuple[str, ...]:
    """The metrics that need no predictions, such as perplexity, if the task has other metrics by
    default; they are always measured.
    """
    if task.default_metrics[0] == PPL.name:
        return ()
    return tuple(metric.name for metric in task.model_metrics)
