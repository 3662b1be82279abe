"""Weights and importance for scripts: everything as JSON, a line a head as CSV."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import asdict
from typing import Any

from ablate.analysis.importance import Importances
from ablate.analysis.measures import Measures, measures
from ablate.analysis.weights import View, Weights
from ablate.metrics.perplexity import perplexity_of

DIGITS = 6


def view_json(view: View, run: str) -> str:
    """Every weight, with what its row and its column are."""
    attentions = [
        {
            "kind": weights.kind,
            "layer": weights.layer,
            "queries": weights.queries,
            "keys": weights.keys,
            "heads": [_head(weights, measured) for measured in measures(weights)],
        }
        for weights in view.weights
    ]
    content = {"run": run, "source": view.source, "target": view.target}
    return _dumped({**content, "attentions": attentions, "hidden": view.hidden})


def view_csv(view: View) -> str:
    """A line a head with its measures."""
    names = ("entropy", "distance", "itself", "previous", "next", "marks")
    rows = [
        (weights.kind, weights.layer, measured.head, *(getattr(measured, name) for name in names))
        for weights in view.weights
        for measured in measures(weights)
    ]
    return _lines(("kind", "layer", "head", *names), rows)


def importances_json(found: Importances, run: str) -> str:
    """The loss of the whole model, and of each head what it is worth."""
    heads = [{**asdict(head), "ppl": _finite(perplexity_of(head.loss))} for head in found.heads]
    whole = {"run": run, "split": "dev", "pairs": found.pairs, "loss": found.loss}
    return _dumped({**whole, "ppl": _finite(perplexity_of(found.loss)), "heads": heads})


def importances_csv(found: Importances) -> str:
    """A line a head."""
    rows = [
        (head.kind, head.layer, head.head, head.importance, head.loss, perplexity_of(head.loss)) for head in found.heads
    ]
    return _lines(("kind", "layer", "head", "importance", "loss", "ppl"), rows)


def _head(weights: Weights, measured: Measures) -> dict[str, Any]:
    rows = weights.heads[measured.head - 1].tolist()
    return {**asdict(measured), "weights": [[round(weight, DIGITS) for weight in row] for row in rows]}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _dumped(content: dict[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, allow_nan=False) + "\n"


def _lines(names: tuple[str, ...], rows: list[tuple[Any, ...]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    return out.getvalue()
