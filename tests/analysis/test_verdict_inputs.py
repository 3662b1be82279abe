"""A table's verdicts: corrected p values of the test set, the sign of its interval, and diverged
seeds.
"""

import pytest

from ablate.analysis.missing_scores import score_missing
from ablate.metrics import sacrebleu
from ablate.plan.power import power_of
from ablate.study import runs_of
from tests.report.fakes import SMALL, Fake, study_from

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


@pytest.mark.parametrize(("base", "row", "sign"), [(GOOD, BAD, -1), (BAD, GOOD, 1)])
def test_the_interval_of_the_test_set_has_the_sign_of_row_minus_base(fake, base, row, sign):
    results = fake(SMALL, seeds="1,2")
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


def test_diverged_seeds_are_counted_beside_those_with_a_score(fake):
    results = fake(SMALL, seeds="1,2,3")
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
