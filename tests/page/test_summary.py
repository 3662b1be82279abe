"""The summary is a few grammatical sentences about what the study shows."""

from typing import get_args

from ablate.page.page import PREDICATES, summary
from ablate.stats.verdict import Word


def test_the_summary_has_the_scores_of_base_the_rows_by_verdict_and_the_unfinished_ones(whole):
    text = summary(whole.table())
    start = "Base reaches 25.0 ± 0.0 BLEU (test) and 5.02 ± 0.01 PPL (dev) with 3 seeds. Compared with base in BLEU, "
    assert text.startswith(start)
    assert text.endswith("1 of 5 rows is not finished or diverged.")


def test_one_seed_leaves_rows_undecided(fake):
    text = summary(fake(seeds="1").all_done().table())
    assert text.endswith("with 1 seed. The 4 other rows are undecided: one seed shows no variance.")


def test_rows_with_the_same_verdict_are_named_if_they_are_few(fake):
    results = fake(rows=["A"])
    for seed, low in ((1, 20.0), (2, 20.1), (3, 20.05)):
        results.done("base", seed, 5.0, 25.0)
        results.done("A h=1", seed, 6.0, low)
        results.done("A h=2", seed, 4.0, 25.0)
    expected = "Compared with base in BLEU, 1 row is worse (A h=1) and 1 row shows no difference (A h=2)."
    assert summary(results.table()).endswith(expected)


def test_the_summary_reports_a_missing_score(fake):
    text = summary(fake().table())
    assert text.startswith("Base has no score yet. The 4 other rows are undecided: fewer than two seeds have finished.")


def test_every_verdict_has_a_predicate():
    assert set(PREDICATES) == set(get_args(Word))
