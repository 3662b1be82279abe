"""Read the sections `metrics` and `margin`: the scores of a study, and their margins of
equivalence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ablate.config.metrics import PPL
from ablate.errors import listed, unknown_name
from ablate.study.yaml_nodes import Node, Report
from ablate.tasks import Task


def read_metrics(node: Node | None, task: Task, report: Report) -> tuple[str, ...]:
    """Read the study's metrics: a list or a single name; the task's default if there are none.
    Errors are reported.
    """
    if node is None:
        return task.default_metrics
    values = node.value if isinstance(node.value, list) else [node]
    if not values:
        report(
            node.mark, f"the list of metrics is empty; remove it for {listed(task.default_metrics)}"
        )
    allowed = {
        name: metric for name, metric in task.metrics.items() if name not in _always_measured(task)
    }
    metrics: list[str] = []
    for value in values:
        if value.value in _always_measured(task):
            report(value.mark, f"{value.value} is always measured; list only other metrics")
        elif not isinstance(value.value, str) or value.value not in allowed:
            report(value.mark, unknown_name("metric", str(value.to_python()), allowed))
        elif value.value in metrics:
            report(value.mark, f'duplicate metric "{value.value}"')
        else:
            metrics.append(value.value)
    return tuple(metrics)


def read_margins(
    node: Node | None, task: Task, metrics: Sequence[str], report: Report
) -> dict[str, float]:
    """Read the margins of equivalence: a number for the first metric, or one for each metric.
    Errors are reported.
    """
    if node is None:
        return {}
    measured = dict.fromkeys((*(metrics or task.default_metrics), *_always_measured(task)))
    one = [(metric, node.mark, node) for metric in (*metrics, *task.default_metrics)[:1]]
    named = list(node.items()) if isinstance(node.value, dict) else one
    margins = {}
    for name, mark, value in named:
        if name not in measured:
            report(mark, unknown_name("metric", name, measured))
        elif type(value.value) not in (int, float) or not 0 < value.value < math.inf:
            report(
                value.mark, f"margin of {name}: {value.kind} is not a positive number, such as 0.5"
            )
        else:
            margins[name] = float(value.value)
    return margins


def _always_measured(task: Task) -> tuple[str, ...]:
    """Perplexities, where the verdicts use another metric."""
    return (
        ()
        if task.default_metrics[0] == PPL.name
        else tuple(metric.name for metric in task.model_metrics)
    )
