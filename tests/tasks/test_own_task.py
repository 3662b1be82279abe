"""A task of the user's own, in one file beside the study: it trains, scores, tables, compares and
resumes.
"""

import json
import random
import shutil
from pathlib import Path

import pytest

from ablate.errors import StoreError, StudyError
from ablate.run.inference import load_run
from ablate.store import Results
from ablate.study import read_study, runs_of
from tests.cli.inside import inside
from tests.end_to_end.test_plugins import begun
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
def folder(tmp_path_factory):
    """The study, the task and its data, as a user has them."""
    path = tmp_path_factory.mktemp("colors")
    shutil.copy(Path(__file__).with_name("classification.py"), path)
    (path / "colors.yaml").write_text(STUDY)
    for name, seed, count in (("train", 1, 600), ("dev", 2, 40), ("test", 3, 60)):
        write_split(path / f"{name}.tsv", seed, count)
    return path


@pytest.fixture(scope="module")
def trained(folder):
    """The results root after `ablate run`."""
    done = inside("run", folder / "colors.yaml", "--results", folder / "results", "--device", "cpu")
    assert done.code == 0, done.out + done.err
    return folder / "results"


def table(folder, results):
    done = inside("table", folder / "colors.yaml", "--results", results, "--format", "json")
    assert done.code == 0, done.err
    return json.loads(done.out)


def test_it_is_learned_and_scored_by_its_own_metric(folder, trained):
    content = table(folder, trained)
    assert content["metrics"] == ["ppl", "accuracy"]
    assert content["signatures"]["accuracy"] == ["exact match"]
    base, row = content["rows"]
    assert (base["row"], row["row"]) == ("base", "A h=1")
    assert base["accuracy"]["values"] == [100.0]  # one word decides, and it is always there
    assert row["delta_accuracy"]["n"] == 1
    assert row["against_base"]["accuracy"]["n"] == 1


def test_an_interrupted_run_of_it_resumes_to_the_same_bytes(folder, trained, tmp_path):
    part = tmp_path / "results"
    shutil.copytree(trained, part)
    again = Trained(folder / "colors.yaml", part)
    run = begun(again, steps=100)
    assert again.run("--device", "cpu").code == 0
    assert "resumed at step 100" in run.log.read_text()
    for name in ("checkpoints/*.weights.safetensors", "translations/*.txt", "metrics.jsonl"):
        files = {path.relative_to(part): path.read_bytes() for path in part.glob(f"runs/*/{name}")}
        assert files == {
            path.relative_to(trained): path.read_bytes() for path in trained.glob(f"runs/*/{name}")
        }
        assert files


def test_its_samples_are_compared(folder, trained):
    done = inside(
        "compare", folder / "colors.yaml", "base", "A h=1", "--results", trained, "--format", "json"
    )
    assert done.code == 0, done.err
    assert all(item.keys() >= {"text", "label"} for item in json.loads(done.out)["sentences"])


def test_its_source_is_part_of_the_runs(folder, trained):
    study = read_study(folder / "colors.yaml")
    record = json.loads(next((trained / "runs").glob("*/run.json")).read_text())
    assert record["task"] == study.task_name
    assert record["task"].startswith("classification:Classification@")
    source = (folder / "classification.py").read_bytes()
    assert next((trained / "runs").glob("*/sources/*.py")).read_bytes() == source


def test_an_edit_of_it_makes_new_runs(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "edited", ignore=shutil.ignore_patterns("results"))
    before = {run.id for run in runs_of(read_study(folder / "colors.yaml"))}
    path = tmp_path / "edited" / "classification.py"
    path.write_text(path.read_text() + "\n# a comment\n")
    assert before.isdisjoint(
        {run.id for run in runs_of(read_study(tmp_path / "edited" / "colors.yaml"))}
    )


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("classification:Classification", "translatoin", r'3:7|2:7: unknown task "translatoin"; did you mean'),
        ("classification:Classification", "classification:Clasification", "has no class Clasification"),
        ("classification:Classification", "classification:LabeledText", "does not derive from"),
        ("vocab_size: 60", "vocab_size: 60, direction: en-de", 'unknown data field "direction"'),
        ("  h: 2\n", "  h: 2\n  architecture: decoder-only\n", "architecture=decoder-only does not work with task"),
        ("rows:", "metrics: [bleu]\nrows:", 'unknown metric "bleu"'),
    ],
)  # fmt: skip
def test_faults_are_found_when_the_study_is_read(folder, tmp_path, old, new, message):
    shutil.copytree(folder, tmp_path / "faulty", ignore=shutil.ignore_patterns("results"))
    path = tmp_path / "faulty" / "colors.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(StudyError, match=message):
        read_study(path)


def test_a_task_that_lacks_a_method_is_refused_when_the_study_is_read(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "faulty", ignore=shutil.ignore_patterns("results"))
    path = tmp_path / "faulty" / "classification.py"
    path.write_text(path.read_text().replace("SequenceToSequence", "Task"))
    with pytest.raises(
        StudyError, match=r"colors\.yaml:2:7: classification:Classification: TypeError: .*n_targets"
    ):
        read_study(tmp_path / "faulty" / "colors.yaml")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('name = "classification"', "pass", "name is not a str"),
        ("data_config = LabeledText", "pass", "data_config is not a subclass"),
        ('default_metrics = ("accuracy",)', 'default_metrics = ("acuracy",)', "default_metrics has acuracy, which is not"),
        ('default_metrics = ("accuracy",)', "default_metrics = ()", "default_metrics is empty"),
        ('fields = ("text", "label")', 'fields = ("text",)', "data_config has one text field"),
        ("model_metrics = (PPL,)", "model_metrics = ()", "model_metrics does not have PPL"),
        ("import numpy as np", "import numpy as np\n1 / 0", r"classification.py:4: .*: ZeroDivisionError"),
        ("import numpy as np", "import sys\nsys.exit(3)", r"classification.py:4: .*: SystemExit"),
    ],
)  # fmt: skip
def test_an_incomplete_task_is_one_error_when_the_study_is_read(
    folder, tmp_path, old, new, message
):
    shutil.copytree(folder, tmp_path / "faulty", ignore=shutil.ignore_patterns("results"))
    path = tmp_path / "faulty" / "classification.py"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(StudyError, match=message) as error:
        read_study(tmp_path / "faulty" / "colors.yaml")
    assert len(error.value.lines) == 1  # its data and metrics are not judged by another task


def test_it_is_not_exported(trained, tmp_path):
    run = next((trained / "runs").iterdir()).name
    done = inside("export", run, tmp_path / "there", "--to", "huggingface", "--results", trained)
    assert done.code == 2
    assert (
        "has the task classification:Classification; only translation, language-model or masked-lm "
        "is" in done.err
    )


def test_new_texts_are_labeled_by_translate(folder, trained):
    study = folder / "colors.yaml"
    texts = b"the house is red today\n\nthe car is blue today\n"
    done = inside("predict", study, "base", "--results", trained, stdin=texts)
    assert done.out == "red\n\nblue\n"


def test_its_attention_is_shown_with_its_own_fields(folder, trained):
    words = ("--sentence", "the door is green", "--format", "json")
    done = inside("attention", folder / "colors.yaml", "base", "--results", trained, *words)
    shown = json.loads(done.out)
    assert "".join(shown["source"]).replace("▁", " ").startswith(" the door is green")
    assert "".join(shown["target"]).replace("▁", " ") == "<s> green"


def test_a_run_of_a_task_that_this_version_does_not_know_is_refused(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "results")
    folder = Results(tmp_path / "results").run(next((trained / "runs").iterdir()).name)
    folder.read_run().model_copy(update={"task": "segmentation"}).write(folder.run)
    with pytest.raises(StoreError, match='task "segmentation" is not known to this version'):
        load_run(folder, Results(tmp_path / "results"))


def test_settings_of_its_data_may_be_lists(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "lists", ignore=shutil.ignore_patterns("results"))
    path = tmp_path / "lists" / "classification.py"
    field = '    fields = ("text", "label")'
    path.write_text(
        path.read_text().replace(
            field, f'{field}\n    labels_kept: tuple[str, ...] = ("red", "blue")'
        )
    )
    study = tmp_path / "lists" / "colors.yaml"
    done = inside(
        "run", study, "--results", tmp_path / "r", "--rows", "base", "--set", "train_steps=2"
    )
    assert done.code == 0, done.err
    record = json.loads(next((tmp_path / "r" / "runs").glob("*/run.json")).read_text())
    assert record["data"]["labels_kept"] == ["red", "blue"]
