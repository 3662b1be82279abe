"""Agreement of a study's order of rows with the paper's."""

import json

import pytest

from ablate.analysis.agreement import agreement_lines, agreements
from ablate.report.render import as_json
from ablate.study import read_study
from tests.report.fakes import STUDIES, Fake


@pytest.fixture
def table3(tmp_path):
    """Table 3 with one seed. `change` turns the paper's scores of a row into the study's."""

    def table3(change=lambda ppl, bleu: (ppl, bleu)):
        results = Fake(tmp_path / "results", read_study(STUDIES / "table3.yaml"))
        for row in results.table().rows:
            results.done(
                row.row.label, 1, *change(row.paper.scores["ppl"], row.paper.scores["bleu"])
            )
        return results.table()

    return table3


def test_the_papers_own_scores_agree_in_every_group(table3):
    found = agreements(table3())
    assert [(one.group, one.rows) for one in found] == [
        ("A", 5), ("B", 3), ("C", 8), ("D", 5), ("E", 2), ("big", 2), ("all", 20),
    ]  # fmt: skip
    assert all(one.tau == pytest.approx({"bleu": 1, "ppl": 1}) for one in found if one.group != "E")
    (e,) = [one for one in found if one.group == "E"]
    assert e.tau == {"bleu": 1.0, "ppl": None}  # both perplexities of the paper are 4.92


def test_reversed_scores_have_a_tau_of_minus_one(table3):
    found = agreements(table3(lambda ppl, bleu: (-ppl + 100, -bleu + 100)))
    assert all(one.tau["bleu"] == pytest.approx(-1) for one in found)


def test_lines_warn_about_small_corpora_and_json_has_the_taus(table3):
    table = table3()
    lines = agreement_lines(table)
    assert "(A) +1.00 / +1.00 (k = 5)" in lines[0]
    assert "(E) +1.00 / no order (k = 2)" in lines[0]
    assert "Small corpora and short trainings reverse effects of size" in lines[1]
    content = json.loads(as_json(table))
    assert content["agreement"][0] == {
        "group": "A",
        "rows": 5,
        "tau_bleu": 1.0,
        "tau_ppl": pytest.approx(1.0),
    }
    assert content["rows"][1]["paper"] == {"ppl": 5.29, "bleu": 24.9}


def test_a_study_without_rows_of_the_paper_has_no_agreement(fake):
    table = fake(seeds="1").all_done().table()
    assert agreements(table) == []
    assert (
        agreement_lines(table)[0]
        == "No row with scores has a counterpart in the paper, so there is no order to compare."
    )
