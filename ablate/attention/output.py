"""Attention weights and importance as JSON, and importance as a table on a terminal."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from rich.table import Table

from ablate.attention.importance import Importances
from ablate.attention.weights import AttentionWeights
from ablate.metrics.perplexity import nats_to_perplexity
from ablate.report.terminal import plain_table, right

DIGITS = 6  # decimals of a weight


def weights_json(weights: AttentionWeights, run: str) -> dict[str, Any]:
    """The weights as JSON values, with the tokens of queries and keys."""
    attentions = []
    for layer in weights.layers:
        rounded = layer.heads.double().round(decimals=DIGITS).tolist()
        heads = [{"head": head, "weights": rows} for head, rows in enumerate(rounded, 1)]
        sides = {"queries": layer.queries, "keys": layer.keys}
        attentions.append({"kind": layer.kind, "layer": layer.layer, **sides, "heads": heads})
    sentences = {"source": weights.source, "target": weights.target}
    return {"run": run, **sentences, "attentions": attentions, "hidden": weights.hidden}


def importances_json(importances: Importances, run: str) -> dict[str, Any]:
    """The importance of heads as JSON values, with the loss of the unmasked model."""
    heads = [{**asdict(head), "ppl": _perplexity_json(head.loss)} for head in importances.heads]
    return {
        "run": run,
        "split": "dev",
        "records": importances.records,
        "loss": importances.loss,
        "ppl": _perplexity_json(importances.loss),
        "heads": heads,
    }


def _perplexity_json(loss: float) -> float | None:
    """The perplexity; None if it is infinite, because JSON has no infinity."""
    perplexity = nats_to_perplexity(loss)
    return perplexity if math.isfinite(perplexity) else None


def importances_table(importances: Importances) -> Table:
    """A table with a line for each head, and a line for the unmasked model."""
    table = plain_table("head", right("importance"), right("loss"), right("PPL"))
    for head in importances.heads:
        name = f"{head.kind} {head.layer}.{head.head}"
        table.add_row(name, f"{head.importance:+.4f}", *_loss_cells(head.loss))
    table.add_row("whole model", "", *_loss_cells(importances.loss), style="bold")
    return table


def _loss_cells(nats: float) -> tuple[str, str]:
    return f"{nats:.4f}", f"{nats_to_perplexity(nats):.3f}"
