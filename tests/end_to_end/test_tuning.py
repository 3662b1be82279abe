"""A tuned study from its tuning runs to its table."""

import json
import re
import shutil

import pytest

from ablate.analysis.choices import runs_with_choices
from ablate.analysis.tuning_runs import tuning_runs_of
from ablate.store import Results
from ablate.store.jobs import jobs_of
from tests.cli.inside import inside
from tests.end_to_end.studies import write_study
from tests.end_to_end.test_run import stamps
from tests.trained import Trained

TUNED = """\
study: tiny
data: {corpus: toy, vocab_size: 200}
base: {N: 1, d_model: 16, d_ff: 32, h: 2, train_steps: 6, batch_tokens: 512, warmup_steps: 2, eval_every: 2, beam: 1,
       max_extra_length: 1}
seeds: [1]
tune: {grid: {learning_rate: [0.00001, 0.05]}, seeds: [7], steps: 0.5}
rows:
  A: {each: {norm_position: [pre]}}
"""


@pytest.fixture
def tuned(calm, tmp_path):
    shutil.copytree(calm.root / "corpora", tmp_path / "results" / "corpora")
    return Trained(write_study(tmp_path, TUNED), tmp_path / "results")


def test_a_tuned_study_is_trained_in_two_phases_and_then_complete(tuned, computed):
    done = tuned.run()
    assert done.code == 0, done.err
    assert [len(stage.missing) for stage in computed] == [4, 2]  # each phase is found out once
    assert done.err.startswith("4 tuning runs come first: they choose settings for 2 rows.")
    assert ": 2 of 2 runs done after 4 tuning runs, in " in done.err
    assert "\n6 runs (4 of them for tuning): 6 done\n" in tuned.ask("status").out
    assert "\n2 rows, 6 runs (4 of them for tuning), 0 to do: " in tuned.ask("plan").out
    results = Results(tuned.root)
    runs = runs_with_choices(tuned.study, results)
    assert [row.config.learning_rate for row in runs.rows] == [
        0.05,
        0.05,
    ]  # a rate of 1e-5 learns nothing in 3 steps
    assert {
        len(list(results.run(run.id).path.glob("translations/*"))) for run in tuning_runs_of(runs)
    } == {0}
    assert {results.run(run.id).read_result().steps for run in tuning_runs_of(runs)} == {3}
    rows = tuned.data("table")["rows"]
    assert [(row["state"], row["steps"], row["tuning"]["chosen"]) for row in rows] == [
        ("done", 6, {"learning_rate": 0.05})
    ] * 2
    assert "learning_rate=0.05 (edge)" in done.out
    before = stamps(tuned.root / "runs")
    again = tuned.run()
    assert (again.code, again.out) == (0, tuned.ask("table").out)
    assert stamps(tuned.root / "runs") == before
    tune = next(line for line in TUNED.splitlines(keepends=True) if line.startswith("tune:"))
    by_hand = TUNED.replace(tune, "").replace("base: {", "base: {learning_rate: 0.05, ")
    file = write_study(tuned.file.parent, by_hand, "hand.yaml")
    plan = json.loads(inside("plan", file, "--results", tuned.root, "--format", "json").out)
    assert plan["totals"]["missing"] == 0
    checked = tuned.ask("verify", "--stored")
    assert checked.code == 0
    assert "of 6 runs" in checked.out


def test_pilots_tune_and_then_train_the_chosen_rows(tuned):
    plan = tuned.ask("plan", "--on", "manual", "--workers", "3")
    assert "--on manual: 3 pilots (manual, default options) for 6 runs" in plan.out
    submitted = tuned.run("--on", "manual", "--workers", "9", "--device", "cpu", "--detach")
    assert submitted.code == 0, submitted.err
    results = Results(tuned.root)
    (job,) = jobs_of(results, "tiny")
    assert f"job {job.id}: 4 pilots on manual" in submitted.err  # 4 tuning runs, then 2 runs
    pilot = inside("work", "--job", job.path)
    assert pilot.code == 0, pilot.err
    lines = re.findall(r"^[\d-]+ [\d:]+ (.*)$", pilot.out, re.MULTILINE)
    ends = [line.removeprefix("done     ") for line in lines if line.startswith("done")]
    assert sorted(ends[:4]) == [
        "A norm_position=pre: learning_rate=0.05",
        "A norm_position=pre: learning_rate=1e-05",
        "base: learning_rate=0.05",
        "base: learning_rate=1e-05",
    ]
    assert sorted(ends[4:]) == ["A norm_position=pre", "base"]
    assert lines[-2:] == ["left: nothing is left to do", "closed: nothing is left to do"]
    assert (
        inside("work", "--job", job.path, "--close").code == 0
    )  # the frozen study reads the same after the choice
    runs = runs_with_choices(tuned.study, results)
    assert [row.config.learning_rate for row in runs.rows] == [0.05, 0.05]
    before = stamps(tuned.root / "runs")
    assert tuned.run().code == 0
    assert stamps(tuned.root / "runs") == before
