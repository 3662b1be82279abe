"""A task of the user's own, in one file beside the study: it trains, scores, tables, compares and
resumes.
"""

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from ablate.errors import StoreError, StudyError
from ablate.store import Results
from ablate.study import read_study, runs_of
from ablate.workers.inference import load_run
from tests.cli.inside import inside
from tests.trained import Trained

STUDY = """\
study: colors
task: classification:Classification
data: {corpus: files, train: train.tsv, dev: dev.tsv, test: test.tsv, tokenizer: word, vocab_size: 60, max_length: 32}
base:
  N: 1
  d_model: 32
  d_ff: 64
  h: 2
  dropout: 0.0
  train_steps: 120
  batch_tokens: 512
  warmup_steps: 20
  learning_rate: 0.005
  eval_every: 40
  checkpoint_every: 40
  beam: 1
rows:
  A: {each: {h: [1]}}
"""
COLORS = ("red", "green", "blue")


def write_split(path: Path, seed: int, count: int) -> None:
    """Sentences that name one color, which is their label."""
    draw = random.Random(seed)
    lines = []
    for _ in range(count):
        color, thing = draw.choice(COLORS), draw.choice(("house", "car", "door", "tree"))
        lines.append(f"the {thing} is {color} today\t{color}")
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def colors(tmp_path_factory):
    """The study, the task and its data, as a user has them, and its results after `ablate run`."""
    folder = tmp_path_factory.mktemp("colors")
    shutil.copy(Path(__file__).with_name("classification.py"), folder)
    (folder / "colors.yaml").write_text(STUDY)
    for name, seed, count in (("train", 1, 600), ("dev", 2, 40), ("test", 3, 60)):
        write_split(folder / f"{name}.tsv", seed, count)
    colors = Trained(folder / "colors.yaml", folder / "results")
    colors.answer("run", "--device", "cpu")
    return colors


@pytest.fixture
def copied(colors, tmp_path):
    """A copy of the study, the task and its data, without results."""
    folder = tmp_path / "copied"
    shutil.copytree(colors.file.parent, folder, ignore=shutil.ignore_patterns("results"))
    return Trained(folder / "colors.yaml", folder / "results")


def rewrite(path, old, new):
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def test_it_is_learned_and_scored_by_its_own_metric(colors):
    content = colors.data("table")
    assert content["metrics"] == ["ppl", "accuracy"]
    assert content["signatures"]["accuracy"] == ["exact match"]
    base, row = content["rows"]
    assert (base["row"], row["row"]) == ("base", "A h=1")
    assert base["accuracy"]["values"] == [100.0]  # one word decides, and it is always there
    assert row["delta_accuracy"]["n"] == 1
    assert row["against_base"]["accuracy"]["n"] == 1


def test_its_columns_are_no_languages_that_another_study_could_exchange(copied):
    for _ in range(2):
        done = inside("data", "prepare", copied.file, "--results", copied.root)
        assert (done.code, "WARNING" in done.out + done.err) == (0, False)


def test_its_samples_are_compared(colors):
    sentences = colors.data("compare", "base", "A h=1")["sentences"]
    assert all(item.keys() >= {"text", "label"} for item in sentences)


def test_its_source_is_part_of_the_runs(colors):
    run = colors.folder("base")
    task = run.read_run().task
    assert task == colors.study.task_name
    assert task.startswith("classification:Classification@")
    (source,) = run.sources.glob("*.py")
    assert source.read_bytes() == colors.file.with_name("classification.py").read_bytes()


def test_an_edit_of_it_makes_new_runs(colors, copied):
    before = {run.id for run in runs_of(colors.study)}
    rewrite(copied.file.with_name("classification.py"), "import numpy", "# edited\nimport numpy")
    assert before.isdisjoint({run.id for run in runs_of(copied.study)})


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("colors.yaml", "classification:Classification", "translatoin", '2:7: unknown task "translatoin"; did you mean'),
        ("colors.yaml", "classification:Classification", "classification:Clasification", "has no class Clasification"),
        ("colors.yaml", "classification:Classification", "classification:LabeledText", "does not derive from"),
        ("colors.yaml", "vocab_size: 60", "vocab_size: 60, direction: en-de", 'unknown data field "direction"'),
        ("colors.yaml", "  h: 2\n", "  h: 2\n  architecture: decoder-only\n", "architecture=decoder-only does not work with task"),
        ("colors.yaml", "rows:", "metrics: [bleu]\nrows:", 'unknown metric "bleu"'),
        # Other faults of its attributes are in test_base.py. Its data and metrics are then not judged by another task.
        ("classification.py", 'name = "classification"', "pass", "name is not a str"),
        ("classification.py", "SequenceToSequence", "Task", r"colors\.yaml:2:7: classification:Classification: TypeError: .*n_targets"),
        ("classification.py", "import numpy as np", "import numpy as np\n1 / 0", "classification.py:4: .*: ZeroDivisionError"),
        ("classification.py", "import numpy as np", "import sys\nsys.exit(3)", "classification.py:4: .*: SystemExit"),
    ],
)  # fmt: skip
def test_faults_are_found_when_the_study_is_read(copied, file, old, new, message):
    rewrite(copied.file.with_name(file), old, new)
    with pytest.raises(StudyError, match=message) as error:
        read_study(copied.file)
    if file == "classification.py":
        assert len(error.value.lines) == 1


def test_it_is_not_exported(colors, tmp_path):
    done = colors.ask("export", "base", "--out", tmp_path / "there", "--to", "huggingface")
    supported = "only translation, language-model or masked-lm is"
    assert f"has the task classification:Classification; {supported}" in done.refusal


def test_new_texts_are_labeled_by_predict(colors):
    texts = b"the house is red today\n\nthe car is blue today\n"
    assert colors.answer("predict", "base", stdin=texts) == "red\n\nblue\n"


def test_its_attention_is_shown_with_its_own_fields(colors):
    shown = colors.data("attention", "base", "--text", "the door is green")
    assert "".join(shown["source"]).replace("▁", " ").startswith(" the door is green")
    assert "".join(shown["target"]).replace("▁", " ") == "<s> green"


def test_a_run_of_a_task_that_this_version_does_not_know_is_refused(colors, tmp_path):
    shutil.copytree(colors.root, tmp_path / "results")
    run = replace(colors, root=tmp_path / "results").folder("base")
    run.read_run().model_copy(update={"task": "segmentation"}).write(run.run)
    with pytest.raises(StoreError, match='task "segmentation" is not known to this version'):
        load_run(run, Results(tmp_path / "results"))


def test_settings_of_its_data_may_be_lists(copied):
    field = '    fields = ("text", "label")'
    kept = f'{field}\n    labels_kept: tuple[str, ...] = ("red", "blue")'
    rewrite(copied.file.with_name("classification.py"), field, kept)
    copied.answer("run", "--rows", "base", "--set", "train_steps=2")
    record = json.loads(next(copied.root.glob("runs/*/run.json")).read_text())
    assert record["data"]["labels_kept"] == ["red", "blue"]
