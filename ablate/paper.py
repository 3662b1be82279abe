"""Results of "Attention Is All You Need" (arXiv 1706.03762) as data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Value = int | float | str  # value of a field in a table of the paper


class PaperColumn(NamedTuple):
    """A column of settings in Table 3.

    head: symbol of the paper.
    field: field of the configuration.
    """

    head: str
    field: str


@dataclass(frozen=True)
class PaperRow:
    """A row of a table, as printed.

    scores: scores by name of the metric.
    params_millions: millions of parameters; None if the paper does not print them.
    changed: values of the fields that differ from the base of the table.
    """

    group: str
    scores: dict[str, float]
    params_millions: float | None = None
    changed: dict[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Published:
    """A result of another system in a table of the paper.

    system: authors and year.
    training: training data, as printed.
    score: score in the metric of the table, as printed.
    """

    system: str
    training: str
    score: float


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper.

    title: such as `Table 3`.
    rows: rows, as printed.
    base: values of the varied fields in the base of the table. The head sizes of a row are
        d_model / h unless the row sets them.
    recipe: further fields that the row `big` changes.
    corpus: name of the training corpus in studies.
    measured_on: test data, as text of a legend.
    published: results of other systems, in the order of the table.
    """

    title: str
    rows: tuple[PaperRow, ...]
    base: dict[str, Value]
    recipe: tuple[str, ...]
    corpus: str
    measured_on: str
    published: tuple[Published, ...] = ()

    def counterpart(self, base: Mapping[str, Any], changed: Mapping[str, Any]) -> PaperRow | None:
        """The row with the same change to the paper's base; None if there is none.

        Changes of numbers are equal if their factors are equal: from six layers to two, and from
        three to one.

        Args:
            base: values of the varied fields in the base of another table.
            changed: the fields that a row of this other table changes, with their values.
        """
        for row in self.rows:
            if row.changed.keys() != changed.keys():
                continue
            matches = []
            for name, value in row.changed.items():
                matches.append(_is_same_change(base[name], changed[name], self.base[name], value))
            if all(matches):
                return row
        return None


def _is_same_change(base: Any, value: Any, paper_base: Value, paper_value: Value) -> bool:
    """Whether the change of a field from its value in base equals the change in the paper."""
    for entry in (base, value, paper_base, paper_value):
        if isinstance(entry, bool) or not isinstance(entry, int | float):
            return bool((base, value) == (paper_base, paper_value))
    return math.isclose(value * paper_base, base * paper_value)


def _row(
    group: str,
    ppl: float,
    bleu: float,
    params: float | None = None,
    changed: dict[str, Value] | None = None,
) -> PaperRow:
    return PaperRow(group, {"ppl": ppl, "bleu": bleu}, params, changed or {})


# Perplexity is per wordpiece; the paper does not define its BLEU. Head sizes are listed if they
# differ from d_model / h.
TABLE_3 = PaperTable(
    title="Table 3",
    rows=(
        _row("base", 4.92, 25.8, 65),
        _row("A", 5.29, 24.9, changed={"n_heads": 1}),
        _row("A", 5.00, 25.5, changed={"n_heads": 4}),
        _row("A", 4.91, 25.8, changed={"n_heads": 16}),
        _row("A", 5.01, 25.4, changed={"n_heads": 32}),
        _row("B", 5.16, 25.1, 58, {"d_k": 16}),
        _row("B", 5.01, 25.4, 60, {"d_k": 32}),
        _row("C", 6.11, 23.7, 36, {"n_layers": 2}),
        _row("C", 5.19, 25.3, 50, {"n_layers": 4}),
        _row("C", 4.88, 25.5, 80, {"n_layers": 8}),
        _row("C", 5.75, 24.5, 28, {"d_model": 256}),
        _row("C", 4.66, 26.0, 168, {"d_model": 1024}),
        _row("C", 5.12, 25.4, 53, {"d_ff": 1024}),
        _row("C", 4.75, 26.2, 90, {"d_ff": 4096}),
        _row("D", 5.77, 24.6, changed={"dropout": 0.0}),
        _row("D", 4.95, 25.5, changed={"dropout": 0.2}),
        _row("D", 4.67, 25.3, changed={"label_smoothing": 0.0}),
        _row("D", 5.47, 25.7, changed={"label_smoothing": 0.2}),
        _row("E", 4.92, 25.7, changed={"positional_encoding": "learned"}),
        _row(
            "big", 4.33, 26.4, 213, {"d_model": 1024, "d_ff": 4096, "n_heads": 16, "dropout": 0.3}
        ),
    ),
    base={
        "n_layers": 6,
        "d_model": 512,
        "d_ff": 2048,
        "n_heads": 8,
        "d_k": 64,
        "d_v": 64,
        "dropout": 0.1,
        "label_smoothing": 0.1,
        "positional_encoding": "sinusoidal",
    },
    recipe=("train_steps",),
    corpus="wmt14",
    measured_on="newstest2013, English to German",
)

_WSJ_ONLY = "WSJ only, discriminative"
_SEMI_SUPERVISED = "semi-supervised"

# Section 6.3 gives the depth and the width of the parser. The other fields are as in the base model
# for translation. The semi-supervised result uses 17 million further sentences of parsed text.
TABLE_4 = PaperTable(
    title="Table 4",
    rows=(PaperRow("base", {"f1": 91.3}),),
    base={**TABLE_3.base, "n_layers": 4, "d_model": 1024, "d_k": 128, "d_v": 128},
    recipe=(),
    corpus="wsj",
    measured_on="section 23 of the WSJ",
    published=(
        Published("Vinyals & Kaiser et al. (2014)", _WSJ_ONLY, 88.3),
        Published("Petrov et al. (2006)", _WSJ_ONLY, 90.4),
        Published("Zhu et al. (2013)", _WSJ_ONLY, 90.4),
        Published("Dyer et al. (2016)", _WSJ_ONLY, 91.7),
        Published("Transformer (4 layers)", _WSJ_ONLY, 91.3),
        Published("Zhu et al. (2013)", _SEMI_SUPERVISED, 91.3),
        Published("Huang & Harper (2009)", _SEMI_SUPERVISED, 91.3),
        Published("McClosky et al. (2006)", _SEMI_SUPERVISED, 92.1),
        Published("Vinyals & Kaiser et al. (2014)", _SEMI_SUPERVISED, 92.1),
        Published("Transformer (4 layers)", _SEMI_SUPERVISED, 92.7),
        Published("Luong et al. (2015)", "multi-task", 93.0),
        Published("Dyer et al. (2016)", "generative", 93.3),
    ),
)
