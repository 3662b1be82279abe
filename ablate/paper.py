"""Table 3 of "Attention Is All You Need" (arXiv 1706.03762) as data.

Perplexity is per wordpiece and BLEU unspecified in flavour, both on newstest2013, English to German;
params are as printed, in millions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class PaperRow:
    """A row as printed: what it changes against base, and what came out."""

    group: str
    ppl: float
    bleu: float
    params_millions: float | None = None
    changed: dict[str, Any] = field(default_factory=dict)


# Head sizes are given only where they are not d_model / h.
TABLE3 = (
    PaperRow("base", 4.92, 25.8, 65),
    PaperRow("A", 5.29, 24.9, changed={"n_heads": 1}),
    PaperRow("A", 5.00, 25.5, changed={"n_heads": 4}),
    PaperRow("A", 4.91, 25.8, changed={"n_heads": 16}),
    PaperRow("A", 5.01, 25.4, changed={"n_heads": 32}),
    PaperRow("B", 5.16, 25.1, 58, {"d_k": 16}),
    PaperRow("B", 5.01, 25.4, 60, {"d_k": 32}),
    PaperRow("C", 6.11, 23.7, 36, {"n_layers": 2}),
    PaperRow("C", 5.19, 25.3, 50, {"n_layers": 4}),
    PaperRow("C", 4.88, 25.5, 80, {"n_layers": 8}),
    PaperRow("C", 5.75, 24.5, 28, {"d_model": 256}),
    PaperRow("C", 4.66, 26.0, 168, {"d_model": 1024}),
    PaperRow("C", 5.12, 25.4, 53, {"d_ff": 1024}),
    PaperRow("C", 4.75, 26.2, 90, {"d_ff": 4096}),
    PaperRow("D", 5.77, 24.6, changed={"dropout": 0.0}),
    PaperRow("D", 4.95, 25.5, changed={"dropout": 0.2}),
    PaperRow("D", 4.67, 25.3, changed={"label_smoothing": 0.0}),
    PaperRow("D", 5.47, 25.7, changed={"label_smoothing": 0.2}),
    PaperRow("E", 4.92, 25.7, changed={"positional_encoding": "learned"}),
    PaperRow("big", 4.33, 26.4, 213, {"d_model": 1024, "d_ff": 4096, "n_heads": 16, "dropout": 0.3}),
)

# Where Table 3 starts from. A row's head sizes are d_model / h unless it says otherwise.
BASE: dict[str, Any] = {
    "n_layers": 6, "d_model": 512, "d_ff": 2048, "n_heads": 8, "d_k": 64, "d_v": 64, "dropout": 0.1,
    "label_smoothing": 0.1, "positional_encoding": "sinusoidal",
}  # fmt: skip

# The fields that Table 3 varies; train_steps, which only big changes, is part of that row's recipe.
FIELDS = (
    "n_layers", "d_model", "d_ff", "n_heads", "d_k", "d_v", "dropout", "label_smoothing", "positional_encoding",
)  # fmt: skip
