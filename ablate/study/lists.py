"""What a study lists beside its rows: its seeds, and the metrics of its translations."""

from __future__ import annotations

from ablate.config.metrics import DEFAULT_METRICS, ON_TRANSLATIONS, PPL
from ablate.study.rows import Report, unknown
from ablate.study.select import MAX_SEEDS
from ablate.study.yaml_nodes import Node


def read_seeds(node: Node | None, report: Report) -> tuple[int, ...]:
    """The seeds; one where the study names none. Faults are reported."""
    if node is None:
        return (1,)
    if not isinstance(node.value, list):
        report(node.mark, f"seeds is a list, such as [1, 2, 3]; here is {node.kind}")
        return ()
    values = node.value
    if not values or len(values) > MAX_SEEDS:
        report(node.mark, f"{len(values)} seeds; a study has 1 to {MAX_SEEDS}")
        return ()
    seeds: list[int] = []
    for value in values:
        if type(value.value) is not int or not 0 <= value.value < 2**32:
            report(value.mark, f"{value.kind} is not a seed: a whole number from 0 to {2**32 - 1}")
        elif value.value in seeds:
            report(value.mark, f"seed {value.value} stands twice")
        else:
            seeds.append(value.value)
    return tuple(seeds)


def read_metrics(node: Node | None, report: Report) -> tuple[str, ...]:
    """The metrics of translations; BLEU where the study names none. Faults are reported."""
    if node is None:
        return DEFAULT_METRICS
    values = node.value if isinstance(node.value, list) else [node]
    if not values:
        report(node.mark, "no metrics; leave the line out for BLEU alone")
    metrics: list[str] = []
    for value in values:
        if value.value == PPL.name:
            report(value.mark, "ppl is always measured; metrics are those of translations")
        elif not isinstance(value.value, str) or value.value not in ON_TRANSLATIONS:
            report(value.mark, unknown("metric", str(value.plain()), ON_TRANSLATIONS))
        elif value.value in metrics:
            report(value.mark, f'metric "{value.value}" stands twice')
        else:
            metrics.append(value.value)
    return tuple(metrics)
