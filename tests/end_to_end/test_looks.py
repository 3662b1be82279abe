"""A study with looks from its first run to its table, here and by pilots."""

import json
import shutil
from collections import Counter

import pytest

from ablate.analysis.current_look import read_current_look
from ablate.store import Results
from ablate.study import runs_of
from tests.cli.inside import inside
from tests.end_to_end.studies import write_study
from tests.trained import Trained

LOOKS = """\
study: tiny
data: {corpus: toy, vocab_size: 200}
base: {N: 1, d_model: 16, d_ff: 32, h: 2, train_steps: 12, batch_tokens: 512, warmup_steps: 2, eval_every: 4, beam: 1,
       max_extra_length: 4}
seeds: {looks: [2, 3]}
metrics: [bleu]
rows:
  A: {each: {norm_position: [pre]}}
"""
STOPS = "Look 1 of 2 (2 of 3 seeds): every row is decided, and the study stops here."


@pytest.fixture
def looks(calm, tmp_path):
    shutil.copytree(calm.root / "corpora", tmp_path / "results" / "corpora")
    return Trained(write_study(tmp_path, LOOKS), tmp_path / "results")


def seeds_trained(looks):
    results = Results(looks.root)
    return Counter(
        results.run(id).read_run().seed
        for id in results.run_ids()
        if results.run(id).result.exists()
    )


def test_a_study_stops_where_every_row_is_settled_and_goes_on_where_one_is_not(looks, computed):
    done = looks.run()
    assert done.code == 0, done.err
    assert [len(stage.missing) for stage in computed] == [4, 0]  # a look is judged once
    assert STOPS in done.out  # no run says a word, so that every BLEU is 0
    assert seeds_trained(looks) == {1: 2, 2: 2}
    assert json.loads((looks.root / "tiny" / "table.json").read_text())["looks"]["stopped_early"]
    assert looks.ask("status", "base", "--seed", "2").code == 0

    looks.file.write_text(LOOKS.replace("[bleu]", "[chrf]"))  # in which the rows differ a little
    assert read_current_look(runs_of(looks.study), Results(looks.root)).runs.seeds.rows == (
        1,
        2,
    )  # no score yet, and no verdict
    done = looks.run()
    assert done.code == 0, done.err
    assert "1 row is undecided (A norm_position=pre); the study goes on with 3 seeds." in done.err
    assert "Look 2 of 2 (3 of 3 seeds)" in done.out
    assert seeds_trained(looks) == {1: 2, 2: 2, 3: 2}


def test_pilots_of_one_root_go_from_look_to_look_and_stop_where_every_row_is_settled(looks):
    looks.file.write_text(LOOKS.replace("[bleu]", "[chrf]"))
    sent = looks.run("--on", "manual", "--workers", "2", "--detach")
    assert sent.code == 0, sent.err
    (job,) = (looks.root / "tiny" / "jobs").iterdir()
    assert seeds_trained(looks) == {}
    said = inside("work", "--job", job).out
    assert (
        said.index("Look 1 of 2") < said.index("starting base seed 3") < said.index("Look 2 of 2")
    )
    assert seeds_trained(looks) == {1: 2, 2: 2, 3: 2}
    assert "nothing is left to do" in inside("work", "--job", job, "--index", 1).out
