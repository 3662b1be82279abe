"""The part of a study that fits into a budget: seeds are cut before rows; shared and finished runs
cost nothing.
"""

from dataclasses import replace

import pytest

from ablate.errors import UsageError
from ablate.plan import budget as module
from ablate.plan.budget import Budget, BudgetLimit, base_with_one_seed, fit, rows_without_estimate
from ablate.plan.plan import plan_of
from ablate.plan.progress import ProgressReader
from ablate.study import runs_of
from tests.report.fakes import Fake, study_from

# Rows of equal work, 60 seconds each; the last row trains nothing.
FLAT = """\
study: flat
data: {corpus: toy, vocab_size: 200}
base: {N: 1, d_model: 16, d_ff: 32, h: 2, train_steps: 100}
seeds: [1, 2, 3]
rows:
  D: {each: {dropout: [0.2, 0.3]}}
  long: {set: {train_steps: 300}}
  E: {each: {label_smoothing: [0.0]}}
  decoding: {each: {beam: [1]}}
"""


@pytest.fixture
def fake(tmp_path):
    """One run of another study is done on this machine: 100 steps in 60 seconds."""
    other = Fake(
        tmp_path / "results",
        study_from(tmp_path, FLAT.replace("label_smoothing: [0.0]", "dropout: [0.9]")),
    )
    other.done("E dropout=0.9", 1, 5.0, 25.0, seconds=60.0)
    return Fake(tmp_path / "results", study_from(tmp_path, FLAT))


def fitting(fake, minutes):
    found = fit(plan_of(fake.planned, fake.results), 60.0 * minutes + 1e-6)
    return [row.label for row in found.runs.rows], found.runs.seeds.rows, found.seconds / 60


ALL = [
    "base", "D dropout=0.2", "D dropout=0.3", "long train_steps=300", "E label_smoothing=0.0",
    "decoding beam=1",
]  # fmt: skip
ONE_SEED = 1 + 1 + 1 + 3 + 1  # minutes


@pytest.mark.parametrize(
    ("minutes", "seeds"), [(21, (1, 2, 3)), (20.9, (1, 2)), (14, (1, 2)), (13.9, (1,)), (7, (1,))]
)
def test_seeds_are_cut_while_one_fits_for_every_row(fake, minutes, seeds):
    assert fitting(fake, minutes) == (ALL, seeds, pytest.approx(len(seeds) * ONE_SEED))


def test_rows_that_do_not_fit_are_cut_and_rows_that_cost_nothing_stay(fake):
    without_long = [label for label in ALL if not label.startswith("long")]
    assert fitting(fake, 6.5) == ([*ALL[:4], ALL[5]], (1,), pytest.approx(6))
    assert fitting(fake, 5) == (without_long, (1,), pytest.approx(4))
    assert fitting(fake, 1) == (["base", "decoding beam=1"], (1,), pytest.approx(1))


def test_a_finished_run_costs_nothing_and_an_interrupted_one_its_rest(fake):
    for seed in (1, 2, 3):
        for label in ("base", "D dropout=0.2", "long train_steps=300"):
            fake.done(label, seed, 5.0, 25.0, seconds=60.0 if "long" not in label else 180.0)
    fake.at("D dropout=0.3", 1, 75, alive=False)
    assert fitting(fake, 6) == (ALL, (1, 2, 3), pytest.approx(5.25))
    assert fitting(fake, 5) == (ALL, (1, 2), pytest.approx(3.25))


def test_the_runs_of_base_that_choose_the_decoding_count(tmp_path, fake):
    """Base is decoded on dev with all of its seeds, also if the rows have one."""
    tuned = FLAT.replace("seeds:", "tune: {decoding: {alpha: [0.6, 1.0]}}\nseeds:")
    tuned = tuned.replace("  decoding: {each: {beam: [1]}}\n", "")
    chosen = Fake(fake.results.root, study_from(tmp_path, tuned))
    assert fitting(chosen, ONE_SEED + 2) == (ALL[:5], (1,), pytest.approx(ONE_SEED + 2))
    assert fitting(chosen, 5) == (ALL[:3], (1,), pytest.approx(5))


def test_nothing_fits_where_base_does_not(fake):
    with pytest.raises(UsageError, match="base alone takes about 60 s"):
        fitting(fake, 0.9)


def test_on_an_unknown_machine_no_part_is_selected(tmp_path):
    study = study_from(tmp_path, FLAT)
    assert fit(plan_of(runs_of(study), Fake(tmp_path / "none", study).results), 1e9) is None


def test_rows_that_cannot_be_estimated_are_named(tmp_path, fake):
    study = study_from(tmp_path, FLAT.replace("{dropout: [0.2, 0.3]}", "{precision: [bf16]}"))
    endless = study_from(
        tmp_path, FLAT.replace("{train_steps: 300}", "{train_steps: null, patience: 3}")
    )
    assert rows_without_estimate(plan_of(runs_of(study), fake.results)) == ["D precision=bf16"]
    assert fit(plan_of(runs_of(study), fake.results), 1e9) is None
    assert rows_without_estimate(plan_of(runs_of(endless), fake.results)) == [
        "long train_steps=null patience=3"
    ]
    assert fit(plan_of(runs_of(endless), fake.results), 1e9) is None


def test_the_part_that_fits_is_summed_up(fake):
    plan = plan_of(fake.planned, fake.results)

    def summary(minutes):
        return fit(plan, 60.0 * minutes + 1e-6).summary(Budget.parse(f"{minutes}m"))

    assert summary(21) == "--budget 21m: the whole study fits, about 21 min."
    assert summary(14) == "--budget 14m: 2 of 3 seeds fit for every row, about 14 min."
    assert summary(5) == (
        "--budget 5m: 1 of 3 seeds fits, for 5 of 6 rows, about 4 min; rows for later: long "
        "train_steps=300."
    )


def test_a_row_does_not_fit_without_the_base_of_its_size(tmp_path, fake):
    """Its difference from base could not be computed, and the live view would end in a
    traceback.
    """
    text = FLAT.partition("rows:")[0].replace("[1, 2, 3]", "[1]")
    sizes = (
        "sizes: {small: {N: 1}, large: {train_steps: 300}}\nrows: {D: {each: {weight_decay: "
        "[0.1]}}}\n"
    )
    study = study_from(tmp_path, text + sizes)
    plan = plan_of(runs_of(study), fake.results)
    large, row = (runs_of(study).of(study.rows[index])[0].id for index in (2, 3))
    found = fit(
        replace(plan, seconds_by_run={**plan.seconds_by_run, large: 300.0, row: 10.0}), 200.0
    )
    assert found.rows_left == ("large base", "large D weight_decay=0.1")
    assert [row.row.label for row in ProgressReader(found.runs, fake.results).read().rows] == [
        "small base", "small D weight_decay=0.1",
    ]  # fmt: skip


def test_a_budget_too_small_for_any_missing_run_counts_them(fake):
    for label in ALL[:-1]:
        fake.done(label, 1, 5.0, 25.0, seconds=60.0 if "long" not in label else 180.0)
    found = fit(plan_of(fake.planned, fake.results), 1.0)
    assert found.summary(Budget.parse("1s")) == "--budget 1s: nothing new fits; 10 runs remain."


def test_base_alone_is_base_with_one_seed_and_the_rows_that_decode_it(fake):
    alone = base_with_one_seed(fake.planned)
    assert [run.id for run in alone] == [fake.folder("base", 1).id]
    assert [row.label for row in alone.rows] == [
        "base",
        "decoding beam=1",
    ]  # so that what it needs is kept


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2h", 7200), ("90min", 5400), ("90m", 5400), ("1d12h", 129_600), ("1h 30m", 5400),
        ("0.5 H", 1800), ("45s", 45),
    ],
)  # fmt: skip
def test_a_budget_is_a_time(text, seconds):
    assert Budget.parse(text) == Budget(text, seconds)
    assert Budget.parse(text).available(0) == seconds
    assert Budget.parse(text).available(1) == seconds
    assert Budget.parse(text).available(4) == 4 * seconds


@pytest.mark.parametrize(
    ("text", "gpus", "minutes"), [("1h", 0, 60), ("1h", 4, 60), ("8gpu-hours", 4, 120)]
)
def test_a_budget_is_a_deadline_from_the_first_run_on(monkeypatch, text, gpus, minutes):
    now = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    budget = BudgetLimit(Budget.parse(text), gpus, print)
    now[0] += 1e6  # before the first run
    assert budget.has_time()
    now[0] += 60 * minutes - 1
    assert (budget.has_time(), budget.is_over) == (True, False)
    now[0] += 1
    assert (budget.has_time(), budget.is_over) == (False, True)


@pytest.mark.parametrize("text", ["8gpu-hours", "8 gpu-hours", "8 GPU-hour", "8gpuhours"])
def test_a_budget_may_be_gpu_time_that_gpus_share(text):
    budget = Budget.parse(text)
    assert (budget.seconds, budget.available(1), budget.available(4)) == (28_800, 28_800, 28_800)
    with pytest.raises(UsageError, match="this machine has no GPU; give hours"):
        budget.available(0)


@pytest.mark.parametrize(
    "text", ["", "2", "h", "2x", "-1h", "0h", "0 gpu-hours", "2h!", "1e3h", "nan", "9" * 400 + "h"]
)
def test_a_text_that_is_no_time_is_refused(text):
    with pytest.raises(UsageError, match="--budget: "):
        Budget.parse(text)
