"""The sections `metrics`, `judge` and `margin`: the scores of a study, those that verdicts are by,
and their margins of equivalence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ablate.config.metrics import PPL
from ablate.errors import unknown_name
from ablate.study.yaml_nodes import Node, Report
from ablate.tasks import Task


def check_metrics(
    written: Sequence[str], node: Node | None, task: Task, report: Report
) -> tuple[str, ...]:
    """The study's metrics; the task's default if there are none. Unknown ones are reported."""
    if node is None:
        return task.default_metrics
    measured = _always_measured(task)
    allowed = [name for name in task.metrics if name not in measured]
    metrics: list[str] = []
    for name, entry in zip(written, _entries(node), strict=True):
        if name in measured:
            report(entry.mark, f"{name} is always measured; list only other metrics")
        elif name not in allowed:
            report(entry.mark, unknown_name("metric", name, allowed))
        elif name in metrics:
            report(entry.mark, f'duplicate metric "{name}"')
        metrics.append(name)
    return tuple(metrics)


def check_judge(
    written: Sequence[str],
    node: Node | None,
    task: Task,
    metrics: Sequence[str],
    report: Report,
) -> tuple[str, ...]:
    """The metrics that verdicts are by; none for the first of `metrics`. Unknown ones are
    reported.
    """
    if node is None:
        return ()
    allowed = dict.fromkeys((*(metrics or task.default_metrics), *_always_measured(task)))
    judged: list[str] = []
    for name, entry in zip(written, _entries(node), strict=True):
        if name not in allowed:
            report(entry.mark, unknown_name("metric", name, allowed))
        elif name in judged:
            report(entry.mark, f'duplicate metric "{name}"')
        judged.append(name)
    return tuple(judged)


def _entries(node: Node) -> list[Node]:
    return node.value if isinstance(node.value, list) else [node]


def check_margins(
    written: float | Mapping[str, float],
    node: Node | None,
    task: Task,
    metrics: Sequence[str],
    judged: Sequence[str],
    report: Report,
) -> dict[str, float]:
    """The margins by metric; a number is that of the metric of the verdicts. Unknown ones are
    reported.
    """
    if node is None:
        return {}
    if not isinstance(written, Mapping):
        if len(judged) > 1:
            each = ", ".join(f"{name}: {written:g}" for name in judged)
            report(node.mark, f"margin: verdicts are by {len(judged)} metrics; write {{{each}}}")
        return {(*judged, *metrics, *task.default_metrics)[0]: float(written)}
    measured = dict.fromkeys((*(metrics or task.default_metrics), *_always_measured(task)))
    for name, mark, _ in node.items():
        if name not in measured:
            report(mark, unknown_name("metric", name, measured))
    return {name: float(margin) for name, margin in written.items()}


def _always_measured(task: Task) -> tuple[str, ...]:
    """Perplexities, where the verdicts use another metric."""
    if task.default_metrics[0] == PPL.name:
        return ()
    return tuple(metric.name for metric in task.model_metrics)
