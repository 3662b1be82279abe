"""A table's verdicts: corrected p values of the test set, the sign of its interval, and diverged
seeds.
"""

from random import Random
from statistics import NormalDist

import pytest

from ablate.analysis.missing_scores import score_missing
from ablate.metrics import sacrebleu
from ablate.plan.power import power_of
from ablate.stats.bootstrap import paired_bootstrap
from ablate.stats.comparison import PairedScores
from ablate.stats.judge import verdicts
from ablate.stats.metrics import TRANSLATION_METRICS
from ablate.study import runs_of
from tests.report.fakes import SMALL, Fake, study_from

BLEU = next(metric for metric in TRANSLATION_METRICS if metric.name == "bleu")
REFERENCES = [
    f"the {size} dog sees {count} birds near the river"
    for size in ("old", "small")
    for count in range(20)
]
GOOD = [line.replace("near", "by") if i % 4 == 0 else line for i, line in enumerate(REFERENCES)]
BAD = [
    line.replace("sees", "eats").replace("near", "by") if i % 2 else line
    for i, line in enumerate(REFERENCES)
]


def barely_significant(seeds):
    """A row 1 BLEU below base, 2.15 standard deviations of the test sets: p is between 0.01 and
    0.04.
    """
    quantiles = [NormalDist().inv_cdf((i + 0.5) / 1000) for i in range(1000)]
    resamples = ([24 + z / 2.15 for z in quantiles], [25.0] * 1000)
    differences = {
        seed: -1 + (seed - 2) / 1000 if seeds > 1 else -1.0 for seed in range(1, seeds + 1)
    }
    return PairedScores(differences, dict.fromkeys(differences, resamples))


def test_a_word_needs_a_test_set_p_value_that_is_significant_after_correction():
    (alone,) = verdicts(BLEU, [barely_significant(3)])
    assert alone.word == "worse"
    for verdict in verdicts(BLEU, [barely_significant(3)] * 5):
        assert verdict.bootstrap.p < 0.05 <= verdict.p_bootstrap
        assert verdict.word not in ("worse", "better")


def test_the_sentence_on_one_seed_uses_the_corrected_p_value():
    (alone,) = verdicts(BLEU, [barely_significant(1)])
    assert "beyond the noise of the test sentences" in alone.text
    for verdict in verdicts(BLEU, [barely_significant(1)] * 5):
        assert "within the noise of the test sentences" in verdict.text


@pytest.mark.parametrize(("base", "row", "sign"), [(GOOD, BAD, -1), (BAD, GOOD, 1)])
def test_the_interval_of_the_test_set_has_the_sign_of_row_minus_base(tmp_path, base, row, sign):
    results = Fake(tmp_path / "results", study_from(tmp_path, SMALL, seeds="1,2"))
    results.corpus(["a"] * len(REFERENCES), REFERENCES)
    for label, lines in (("base", base), ("A h=1", row)):
        for seed in (1, 2):
            results.done(
                label, seed, 5.0, sacrebleu.measure_translations("bleu", lines, REFERENCES).value
            )
            results.translated(label, seed, lines)
    score_missing(results.planned, results.results)
    verdict = results.table().rows[1].verdicts["bleu"]
    test = verdict.bootstrap
    assert test.low <= verdict.mean <= test.high
    assert min(sign * test.low, sign * test.high) > 0


def test_diverged_seeds_are_counted_beside_those_with_a_score(tmp_path):
    results = Fake(tmp_path / "results", study_from(tmp_path, SMALL, seeds="1,2,3"))
    for seed in (1, 2, 3):
        results.done("base", seed, 5.0, 25.0 + seed / 10)
    for seed in (1, 2):
        results.done("A h=1", seed, 5.0, 24.0 + seed / 9)
    results.diverged("A h=1", 3, 7, "the loss exploded")
    for seed in (1, 2, 3):
        results.diverged("A h=2", seed, 7, "the loss exploded")
    rows = {row.label: row.verdicts for row in results.table().rows}
    assert {label: rows[label]["bleu"].diverged for label in ("A h=1", "A h=2", "D dropout=0.3")} == {
        "A h=1": 1, "A h=2": 3, "D dropout=0.3": 0,
    }  # fmt: skip
    assert rows["A h=1"]["bleu"].text.endswith("; 1 of 3 seeds diverged")
    assert rows["A h=2"]["bleu"].text == "worse: diverged with 3 of 3 seeds"


def test_a_row_of_the_same_runs_as_another_changes_no_verdict_and_no_power(tmp_path):
    again = SMALL.replace("decoding: {each: {beam: [1]}}", "again: {set: {h: 2}}")
    steps = {"base": 0.1, "A h=1": -0.2, "A h=2": 0.3, "D dropout=0.3": 0.7}

    def judged(text):
        results = Fake(tmp_path / "results", study_from(tmp_path, text))
        for label, step in steps.items():
            for seed in (1, 2, 3):
                results.done(label, seed, 5.0 + seed * step / 100, 25.0 + seed * step + len(label))
        verdicts = {row.label: row.verdicts for row in results.table().rows[1:]}
        power = [power.text for power in power_of(results.planned, results.results)]
        return sum(results.planned.comparisons.values()), power, verdicts

    once = judged(again.replace("  again: {set: {h: 2}}\n", ""))
    count, power, verdicts = judged(again)
    assert verdicts.pop("again h=2") == verdicts["A h=2"]
    assert (count, power, verdicts) == once
    # Both are of the file, whatever part of it is selected.
    part = runs_of(study_from(tmp_path, again, rows=("again",)))
    assert count == sum(part.comparisons.values()) == 3


def test_the_bootstrap_does_not_depend_on_the_order_of_the_resamples():
    row, base = [24 + z / 2 for z in range(-50, 51)], [25.0] * 101
    shuffled = row[:]
    Random(1).shuffle(shuffled)
    one, other = paired_bootstrap(-1.0, [(row, base)]), paired_bootstrap(-1.0, [(shuffled, base)])
    assert (other.low, other.high, other.p) == pytest.approx((one.low, one.high, one.p))
    assert one.low < one.high
