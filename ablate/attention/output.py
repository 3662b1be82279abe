"""Attention weights and importance as tables for a terminal, and as JSON for scripts."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from rich import box
from rich.table import Table

from ablate.attention.importance import Importances
from ablate.attention.weights import AttentionWeights, HeadStatistics, LayerWeights, head_statistics
from ablate.formatting import token_text
from ablate.metrics.perplexity import perplexity_of

DIGITS = 6  # of a weight
# Head of a column -> field of HeadStatistics.
COLUMNS = {
    "entropy": "entropy",
    "distance": "distance",
    "self": "itself",
    "prev": "previous",
    "next": "next",
    "marks": "marks",
}


def weights_json(weights: AttentionWeights, run: str) -> dict[str, Any]:
    """Every weight with the tokens of its row and column, and the statistics of every head."""
    attentions = []
    for layer in weights.layers:
        heads = []
        for statistics, head in zip(head_statistics(layer), layer.heads.tolist(), strict=True):
            rows = [[round(weight, DIGITS) for weight in row] for row in head]
            heads.append({**asdict(statistics), "weights": rows})
        attentions.append(
            {
                "kind": layer.kind,
                "layer": layer.layer,
                "queries": layer.queries,
                "keys": layer.keys,
                "heads": heads,
            }
        )
    return {
        "run": run,
        "source": weights.source,
        "target": weights.target,
        "attentions": attentions,
        "hidden": weights.hidden,
    }


def importances_json(importances: Importances, run: str) -> dict[str, Any]:
    """The loss of the whole model, and the importance of every head."""
    heads = [{**asdict(head), "ppl": _perplexity_json(head.loss)} for head in importances.heads]
    return {
        "run": run,
        "split": "dev",
        "pairs": importances.pairs,
        "loss": importances.loss,
        "ppl": _perplexity_json(importances.loss),
        "heads": heads,
    }


def _perplexity_json(loss: float) -> float | None:
    """The perplexity; None if it is infinite, which JSON cannot say."""
    perplexity = perplexity_of(loss)
    return perplexity if math.isfinite(perplexity) else None


def weights_table(weights: AttentionWeights) -> Table:
    """One line per head: means over its queries, and its largest weight."""
    measured: list[tuple[LayerWeights, HeadStatistics]] = []
    for layer in weights.layers:
        measured += [(layer, statistics) for statistics in head_statistics(layer)]
    columns = {}
    for head, field in COLUMNS.items():  # cross-attention has no distances
        if any(getattr(statistics, field) is not None for _, statistics in measured):
            columns[head] = field
    table = _table("head", *columns)
    table.add_column("strongest", no_wrap=True, overflow="ellipsis")
    for layer, statistics in measured:
        values = [_number(getattr(statistics, field)) for field in columns.values()]
        head = f"{layer.kind} {layer.layer}.{statistics.head}"
        table.add_row(head, *values, _strongest(layer, statistics))
    return table


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _strongest(layer: LayerWeights, statistics: HeadStatistics) -> str:
    if not statistics.strongest:
        return ""
    query, key, weight = statistics.strongest[0]
    return f"{weight:.2f} {token_text(layer.queries[query])} -> {token_text(layer.keys[key])}"


def importances_table(importances: Importances) -> Table:
    """One line per head, and one for the whole model."""
    table = _table("head", "importance", "loss", "PPL")
    for head in importances.heads:
        name = f"{head.kind} {head.layer}.{head.head}"
        table.add_row(name, f"{head.importance:+.4f}", *_loss(head.loss))
    table.add_row("whole model", "", *_loss(importances.loss), style="bold")
    return table


def _loss(nats: float) -> tuple[str, str]:
    return f"{nats:.4f}", f"{perplexity_of(nats):.3f}"


def _table(first: str, *numbers: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column(first, no_wrap=True)
    for head in numbers:
        table.add_column(head, justify="right", no_wrap=True)
    return table
