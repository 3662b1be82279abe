"""The importance of heads in a terminal."""

from __future__ import annotations

from rich.console import Console

from ablate.analysis.importance import Importances
from ablate.metrics.perplexity import perplexity_of
from ablate.report.plan_text import plain_table

BAR = 24  # columns of the largest


def print_importances(found: Importances, console: Console) -> None:
    """Print a line a head, in the order of the model, with a bar as long as it is worth."""
    largest = max(abs(head.importance) for head in found.heads)
    table = plain_table("head", "+importance", "", "+loss", "+PPL")
    for head in found.heads:
        name, value = f"{head.kind} {head.layer}.{head.head}", head.importance
        table.add_row(name, f"{value:+.4f}", _bar(value, largest), *_loss(head.loss))
    table.add_row("whole model", "", "", *_loss(found.loss), style="bold")
    console.print(table)
    idle = sum(head.importance <= 0 for head in found.heads)
    for line in (
        f"importance: the dev loss ({found.pairs} pairs) with the head masked, less that of the",
        "whole model, in nats a token. Above 0, the head was worth something; at 0 or",
        f"below, with a light bar, are {idle} of {len(found.heads)} heads. One is masked at a time: heads",
        "that do the same work look spare, each of them.",
    ):
        console.print(line, style="dim", markup=False, soft_wrap=True)


def _loss(nats: float) -> tuple[str, str]:
    return f"{nats:.4f}", f"{perplexity_of(nats):.3f}"


def _bar(value: float, largest: float) -> str:
    return ("█" if value > 0 else "░") * (round(BAR * abs(value) / largest) if largest else 0)
