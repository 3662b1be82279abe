"""JSON and CSV are complete and can be parsed by standard parsers."""

import csv
import io
import json
import math

import pytest
from rich.console import Console

from ablate.attention import formats
from ablate.attention.importance import HeadImportance, Importances
from ablate.attention.weights import head_statistics
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
    content = json.loads(formats.weights_json(WEIGHTS, "0123456789ab"))
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
        for head, rows, expected in zip(
            found["heads"], weights.heads.tolist(), head_statistics(weights), strict=True
        ):
            assert head["head"] == expected.head
            assert head["entropy"] == pytest.approx(expected.entropy)
            assert [pytest.approx(row, abs=1e-6) for row in head["weights"]] == rows


def test_csv_has_one_line_per_head():
    lines = list(csv.DictReader(io.StringIO(formats.weights_csv(WEIGHTS))))
    assert [(line["kind"], line["layer"], line["head"]) for line in lines] == [
        ("decoder", "1", "1"), ("decoder", "1", "2"), ("decoder", "1", "3"), ("cross", "2", "1"), ("cross", "2", "2"),
    ]  # fmt: skip
    expected = [measured for weights in WEIGHTS.layers for measured in head_statistics(weights)]
    for line, measured in zip(lines, expected, strict=True):
        for name in ("entropy", "distance", "itself", "previous", "next", "marks"):
            value = getattr(measured, name)
            assert line[name] == ("" if value is None else repr(value))


def test_importance_as_json_and_csv():
    content = json.loads(formats.importances_json(FOUND, "0123456789ab"))
    first, second = content.pop("heads")
    assert content == {
        "run": "0123456789ab",
        "split": "dev",
        "pairs": 7,
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
    lines = list(csv.DictReader(io.StringIO(formats.importances_csv(FOUND))))
    assert {name: lines[0][name] for name in expected} == {
        name: str(value) for name, value in expected.items()
    }
    assert lines[1]["ppl"] == "inf"


def test_the_table_of_importances_counts_records_which_may_be_pairs_texts_or_trees():
    console = Console(width=120, file=io.StringIO())
    formats.print_importances(FOUND, console)
    assert "dev loss (7 records), in nats" in console.file.getvalue()
