"""Seeds that only base has: `seeds: {rows: 3, base: 7}`."""

import statistics

import numpy as np
import pytest

from ablate.analysis.outcome import outcome_of
from ablate.plan.budget import fit
from ablate.plan.plan import plan_of
from ablate.plan.power import power_of
from ablate.stats.noise import BaseScores, seed_noise
from ablate.stats.power import detectable_difference
from ablate.study import runs_of
from tests.report.fakes import SMALL

FURTHER = SMALL.replace("[1, 2, 3]", "{rows: 3, base: 7}")
BASE = {1: 25.0, 2: 25.3, 3: 24.8, 4: 25.9, 5: 26.0, 6: 25.8, 7: 26.1}
ROW = {1: 24.1, 2: 24.5, 3: 23.8}


@pytest.fixture
def given(fake):
    """Base and one row are done."""
    results = fake(FURTHER, rows=("A h=1",))
    for label, scores in (("base", BASE), ("A h=1", ROW)):
        for seed, value in scores.items():
            results.done(label, seed, 5.0, value)
    return results


def test_base_has_more_runs_and_they_come_last(fake):
    study, alike = fake(FURTHER).study, fake(SMALL).study
    runs, before = list(runs_of(study)), list(runs_of(alike))
    assert [run.id for run in runs[: len(before)]] == [run.id for run in before]
    assert [run.seed for run in runs[len(before) :]] == [4, 5, 6, 7]
    assert all(run.config == study.base.config for run in runs[len(before) :])
    assert study.whole.runs == alike.whole.runs + 4


def test_the_difference_is_taken_from_the_weighted_mean_of_all_seeds_of_base(given):
    base, row = outcome_of(given.planned, given.results).table.rows
    verdict, delta = row.verdicts["bleu"], row.deltas["bleu"]
    paired = statistics.fmean(ROW[seed] - BASE[seed] for seed in ROW)
    unpaired = statistics.fmean(ROW.values()) - statistics.fmean(BASE.values())
    assert base.scores["bleu"].n == 7
    assert unpaired < verdict.mean < paired
    assert delta.mean == pytest.approx(verdict.mean)
    assert delta.n == verdict.n == 3
    assert verdict.seed_test.low <= verdict.mean <= verdict.seed_test.high
    shared, further = (
        {seed: BASE[seed] for seed in ROW},
        {seed: BASE[seed] for seed in (4, 5, 6, 7)},
    )
    noise = seed_noise(
        [{seed: ROW[seed] - BASE[seed] for seed in ROW}], BaseScores(shared, further)
    )
    of_base = np.average(
        [statistics.fmean(shared.values()), statistics.fmean(further.values())],
        weights=[1 - noise.weight(3), noise.weight(3)],
    )
    assert verdict.mean == pytest.approx(statistics.fmean(ROW.values()) - of_base)


def test_seeds_of_the_command_line_are_those_of_base_too(fake):
    study = fake(FURTHER, seeds="1,2").study
    assert {run.seed for run in runs_of(study)} == {1, 2}


def test_the_power_counts_them(given):
    [power, *_] = power_of(given.planned, given.results, spread=0.5)
    assert power.detectable_difference(3) == detectable_difference(3, power.rows, 0.5, further=4)
    assert power.detectable_difference(3) < power.detectable_difference(3, further=0)
    assert "3 seeds (7 of base)" in power.text


def test_a_budget_gives_them_up_first(fake):
    results = fake(FURTHER, rows=("A h=1",))
    results.done("base", 1, 5.0, 25.0, seconds=60.0)
    plan = plan_of(results.planned, results.results)
    needed = sum(plan.seconds_by_run.values())
    of_base = max(plan.seconds_by_run.values())
    whole, less = fit(plan, needed + 1.0), fit(plan, needed - of_base / 2)
    assert whole.runs == results.planned
    assert (less.runs.seeds.rows, less.runs.seeds.further, less.leaves_further_seeds) == (
        (1, 2, 3),
        (),
        True,
    )
    assert less.runs_left == 4
