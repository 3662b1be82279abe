"""Attention weights and importance for scripts: everything as JSON, one line per head as CSV."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import asdict
from typing import Any

from ablate.analysis.importance import Importances
from ablate.analysis.weights import AttentionWeights, HeadStatistics, LayerWeights, head_statistics
from ablate.metrics.perplexity import perplexity_of

DIGITS = 6  # of a weight


def weights_json(weights: AttentionWeights, run: str) -> str:
    """Return every weight with the tokens of its row and column, and the statistics of every head."""
    attentions = [
        {
            "kind": layer.kind,
            "layer": layer.layer,
            "queries": layer.queries,
            "keys": layer.keys,
            "heads": [_head(layer, statistics) for statistics in head_statistics(layer)],
        }
        for layer in weights.layers
    ]
    content = {"run": run, "source": weights.source, "target": weights.target}
    return _json({**content, "attentions": attentions, "hidden": weights.hidden})


def weights_csv(weights: AttentionWeights) -> str:
    """Return the statistics of every head, one line per head."""
    names = ("entropy", "distance", "itself", "previous", "next", "marks")
    rows = [
        (layer.kind, layer.layer, statistics.head, *(getattr(statistics, name) for name in names))
        for layer in weights.layers
        for statistics in head_statistics(layer)
    ]
    return _csv(("kind", "layer", "head", *names), rows)


def importances_json(importances: Importances, run: str) -> str:
    """Return the loss of the whole model, and the importance of every head."""
    heads = [{**asdict(head), "ppl": _finite(perplexity_of(head.loss))} for head in importances.heads]
    whole = {"run": run, "split": "dev", "pairs": importances.pairs, "loss": importances.loss}
    return _json({**whole, "ppl": _finite(perplexity_of(importances.loss)), "heads": heads})


def importances_csv(importances: Importances) -> str:
    """Return the importance of every head, one line per head."""
    rows = [
        (head.kind, head.layer, head.head, head.importance, head.loss, perplexity_of(head.loss))
        for head in importances.heads
    ]
    return _csv(("kind", "layer", "head", "importance", "loss", "ppl"), rows)


def _head(layer: LayerWeights, statistics: HeadStatistics) -> dict[str, Any]:
    rows = layer.heads[statistics.head - 1].tolist()
    return {**asdict(statistics), "weights": [[round(weight, DIGITS) for weight in row] for row in rows]}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None  # JSON has no infinity


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n"


def _csv(names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    return out.getvalue()
