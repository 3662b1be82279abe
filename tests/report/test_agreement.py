"""Does a study put its rows into the paper's order?"""

import json

import pytest

from ablate.report.agreement import agreement_lines, agreements
from ablate.report.render import as_json
from ablate.study import read_study
from tests.report.fakes import STUDIES, Fake


@pytest.fixture
def table3(tmp_path):
    """All of Table 3 with one seed, each row with the paper's own scores, or with others made from them."""

    def table3(change=lambda ppl, bleu: (ppl, bleu)):
        results = Fake(tmp_path / "results", read_study(STUDIES / "table3.yaml"))
        for row in results.table().rows:
            results.done(row.row.label, 1, *change(row.paper.ppl, row.paper.bleu))
        return results.table()

    return table3


def test_the_paper_agrees_with_itself_in_every_group(table3):
    found = agreements(table3())
    assert [(one.group, one.rows) for one in found] == [
        ("A", 5), ("B", 3), ("C", 8), ("D", 5), ("E", 2), ("big", 2), ("all", 20),
    ]  # fmt: skip
    assert all(one.ppl == one.bleu == pytest.approx(1) for one in found if one.group != "E")
    (e,) = [one for one in found if one.group == "E"]
    assert (e.bleu, e.ppl) == (1.0, None)  # the paper's perplexities are the same: 4.92 and 4.92


def test_a_reversed_order_is_told_as_one(table3):
    found = agreements(table3(lambda ppl, bleu: (-ppl + 100, -bleu + 100)))
    assert all(one.bleu == pytest.approx(-1) for one in found)


def test_lines_warn_that_small_corpora_reverse_effects_and_json_has_the_taus(table3):
    table = table3()
    lines = agreement_lines(table)
    assert "(A) +1.00 / +1.00 (k = 5)" in lines[0]
    assert "(E) +1.00 / no order (k = 2)" in lines[0]
    assert "Small corpora and short trainings reverse effects of size" in lines[1]
    content = json.loads(as_json(table))
    assert content["agreement"][0] == {"group": "A", "rows": 5, "tau_bleu": 1.0, "tau_ppl": pytest.approx(1.0)}
    assert content["rows"][1]["paper"] == {"ppl": 5.29, "bleu": 24.9}


def test_without_rows_of_the_paper_there_is_no_order(fake):
    table = fake(seeds="1").all_done().table()
    assert agreements(table) == []
    assert agreement_lines(table)[0].startswith("No row of this study with scores has a row of the paper beside it")
