"""A tuned study from its tuning runs to its table."""

import json
import shutil

import pytest

from ablate.store import Results
from ablate.study import settle
from tests.cli.inside import inside
from tests.end_to_end.conftest import Trained
from tests.end_to_end.studies import write_study
from tests.end_to_end.test_run import stamps

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


def test_a_tuned_study_is_trained_in_two_phases_and_then_complete(tuned):
    done = tuned.run()
    assert done.code == 0, done.err
    assert done.out.startswith("4 tuning runs for 2 rows, then the runs themselves.")
    results = Results(tuned.root)
    study = settle(tuned.study, results)
    assert [row.config.learning_rate for row in study.rows] == [0.05, 0.05]  # a rate of 1e-5 learns nothing in 3 steps
    assert {len(list(results.run(run.id).path.glob("translations/*"))) for run in study.tuning.runs()} == {0}
    assert {results.run(run.id).read_result().steps for run in study.tuning.runs()} == {3}
    rows = json.loads(tuned.ask("table", "--format", "json").out)["rows"]
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
