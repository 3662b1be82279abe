"""JSON is complete, and tables have a line for every head."""

import json
import math

import pytest
from rich.console import Console

from ablate.attention.importance import HeadImportance, Importances
from ablate.attention.output import importances_json, importances_table, weights_json
from tests.attention.by_hand import all_weights, random_weights

WEIGHTS = all_weights(
    random_weights(3, 4, 4, "decoder", 1, queries=("<s>", "▁ü", '"', "d"), marks=(0,)),
    random_weights(2, 4, 3, "cross", 2),
    hidden=["encoder layer 1: shows no weights"],
)
FOUND = Importances(
    2.0, 7, (HeadImportance("encoder", 1, 1, 2.5, 0.5), HeadImportance("cross", 2, 1, 999.0, 997.0))
)


def test_json_has_every_weight_with_its_row_and_column():
    content = json.loads(json.dumps(weights_json(WEIGHTS, "0123456789ab")))
    assert (content["run"], content["source"], content["target"]) == (
        "0123456789ab",
        [*WEIGHTS.source],
        [*WEIGHTS.target],
    )
    assert content["hidden"] == ["encoder layer 1: shows no weights"]
    assert [(a["kind"], a["layer"]) for a in content["attentions"]] == [
        ("decoder", 1),
        ("cross", 2),
    ]
    for found, weights in zip(content["attentions"], WEIGHTS.layers, strict=True):
        assert (found["queries"], found["keys"]) == ([*weights.queries], [*weights.keys])
        assert len(found["heads"]) == len(weights.heads)
        assert [head["head"] for head in found["heads"]] == [*range(1, len(weights.heads) + 1)]
        for head, rows in zip(found["heads"], weights.heads.tolist(), strict=True):
            assert [pytest.approx(row, abs=1e-6) for row in head["weights"]] == rows


def test_importance_as_json():
    content = importances_json(FOUND, "0123456789ab")
    first, second = content.pop("heads")
    assert content == {
        "run": "0123456789ab",
        "split": "dev",
        "records": 7,
        "loss": 2.0,
        "ppl": math.exp(2.0),
    }
    expected = {
        "kind": "encoder",
        "layer": 1,
        "head": 1,
        "loss": 2.5,
        "importance": 0.5,
        "ppl": math.exp(2.5),
    }
    assert first == expected
    assert second["ppl"] is None  # JSON has no infinity


def lines_of(table):
    console = Console(width=100)
    with console.capture() as capture:
        console.print(table)
    return [line.split() for line in capture.get().splitlines() if line and "\u2500" not in line]


def test_the_table_of_importances_has_a_line_for_each_head_and_for_the_whole_model():
    assert lines_of(importances_table(FOUND)) == [
        ["head", "importance", "loss", "PPL"],
        ["encoder", "1.1", "+0.5000", "2.5000", "12.182"],
        ["cross", "2.1", "+997.0000", "999.0000", "inf"],
        ["whole", "model", "2.0000", "7.389"],
    ]
