"""Commands that train nothing, on results written by hand."""

import errno
import json
import os
import re
from pathlib import Path
from typing import get_args

import pytest

import ablate
from ablate.cli.init import TEMPLATES, Template
from ablate.plan import budget
from ablate.plan.typical import published_differences
from ablate.report.run_text import progress_line
from ablate.store.records import Progress
from ablate.study import read_study, runs_of
from tests.cli.inside import inside
from tests.cli.test_start import VERBS
from tests.commands import commands
from tests.report.fakes import SMALL, Fake, study_from

ROOT = Path(__file__).parents[2]


def test_version_is_shown():
    done = inside("--version")
    assert (done.code, done.out) == (0, f"ablate {ablate.__version__}\n")


@pytest.mark.parametrize(
    "words", [["-h"], ["--help"], *([verb, "-h"] for verb in ("init", "plan", "run", "table"))]
)
def test_help_is_printed_without_an_error(words):
    done = inside(*words)
    assert done.code == 0
    assert done.out.split()[0] == "Usage:"
    assert done.err == ""


def test_help_names_every_command_once_in_its_group():
    groups = re.split(r"╭─ ([\w ]+) ─+╮", inside("--help").out)[1:]
    found = {
        title: re.findall(r"^│ (\w+)", panel, re.M)
        for title, panel in zip(groups[::2], groups[1::2], strict=True)
    }
    titles = ["Study", "Results", "Trained runs", "Housekeeping", "Corpora and clusters"]
    assert [title for title in found if title != "Options"] == titles
    assert sorted(name for names in found.values() for name in names) == sorted(VERBS)


@pytest.mark.parametrize("words", [[], *(name.split() for name in commands())], ids=" ".join)
def test_help_fits_80_columns_with_an_example_and_nothing_cut(words, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    text = inside(*words, "--help").out
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    assert not set("{}") & set(text)
    assert not words or f"ablate {' '.join(words)} " in text.partition("Example: ")[2]
    assert not re.findall(r"<[a-z][^>=\n]*$", text, re.M)  # choices over two lines


def test_init_quotes_the_name_of_a_file_for_a_shell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    spaced = inside("init", "my study.yaml").out
    assert spaced.endswith("Next: ablate plan 'my study.yaml'\n")


def test_init_writes_a_study_that_plans(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = inside("init", "first.yaml")
    assert (done.code, done.out) == (0, "Wrote first.yaml. Next: ablate plan first.yaml\n")
    study = read_study(tmp_path / "first.yaml")
    assert study.name == "first"
    assert {row.group for row in study.rows} == {"base", "A", "C", "E", "norm", "scale", "residual"}
    assert len({run.id for run in runs_of(study)}) == len(study.rows) * len(study.seeds.rows) >= 10
    assert inside("plan", "first.yaml").code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ablate.schema.json", "first.yaml"]


@pytest.mark.parametrize(("stem", "name"), [
    *((stem, "study") for stem in ("null", "true", "007", "1e3", "_x", "runs", "corpora", "ü", "x" * 65)),
    ("A-1_b", "A-1_b"), ("a b", "a-b"), ("a.b", "a-b"), ("-x", "x"), ("no", "no"),
])  # fmt: skip
def test_init_names_the_study_after_its_file(tmp_path, stem, name):
    file = tmp_path / f"{stem}.yaml"
    assert inside("init", file).code == 0
    assert read_study(file).name == name


@pytest.mark.parametrize(
    "template", ["quickstart", "table3", "own-data", "language-model", "masked-lm", "synthetic"]
)
def test_every_template_plans_with_power_and_names_the_schema_beside_it(tmp_path, template):
    file = tmp_path / "mine.yaml"
    assert inside("init", file, "--template", template).code == 0
    assert read_study(file).name == "mine"
    first = file.read_text().splitlines()[0]
    assert first == "# yaml-language-server: $schema=ablate.schema.json"
    assert (tmp_path / "ablate.schema.json").read_text() == inside("init", "--schema").out
    assert f"#   ablate run {file}" in file.read_text()
    assert set(re.findall("<[a-z]+>", file.read_text())) <= {"<mask>"}  # of a text to fill
    nothing_run = tmp_path / "results"  # ./results may hold the quickstart's runs, which tell sd
    planned = inside("plan", file, "--device", "cuda", "--format", "json", "--results", nothing_run)
    assert planned.code == (3 if template == "own-data" else 0)  # its text is not there yet
    # No study of this task on generated text; a text whose size is not known yet.
    no_study = template in ("language-model", "masked-lm", "own-data")
    for power in json.loads(planned.out)["power"].values():
        assert (power["source"], power["warning"]) == ("unknown" if no_study else "typical", None)
        larger, rows = published_differences(power["detectable_sds"])
        assert larger > 0.4 * rows


def test_the_quickstart_is_the_study_that_init_writes(tmp_path):
    file = tmp_path / "mine.yaml"
    assert inside("init", file).code == 0
    written, shown = read_study(file), read_study(ROOT / "studies/quickstart.yaml")
    assert [run.id for run in runs_of(written)] == [run.id for run in runs_of(shown)]
    assert [row.label for row in written.rows] == [row.label for row in shown.rows]


def test_every_template_is_an_option():
    assert set(get_args(Template)) == {path.stem for path in TEMPLATES.glob("*.yaml")}


def test_init_replaces_only_a_schema_of_ablate(tmp_path):
    schema = tmp_path / "ablate.schema.json"
    schema.write_text('{"title": "A study of ablate", "old": true}')
    inside("init", tmp_path / "one.yaml")
    assert schema.read_text() == inside("init", "--schema").out
    schema.write_text("mine")
    inside("init", tmp_path / "two.yaml")
    assert schema.read_text() == "mine"


def test_init_replaces_no_study(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("mine")
    done = inside("init", file)
    assert (done.code, done.out, done.err) == (
        2,
        "",
        f"{file} already exists; choose another name\n",
    )
    assert file.read_text() == "mine"


def test_init_leaves_nothing_on_a_full_disk(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.write", full)
    done = inside("init", tmp_path / "study.yaml")
    said = f"{tmp_path / 'study.yaml'}: cannot be written: No space left on device\n"
    assert (done.code, done.err) == (2, said)
    assert not list(tmp_path.iterdir())


def test_set_reaches_the_configuration_of_every_row(given):
    words = [
        "--set", "train_steps=7", "--set", "P_drop=0.25", "--set", "data.vocab_size=240",
        "--format", "json",
    ]  # fmt: skip
    plain = json.loads(inside("plan", *given, "--format", "json").out)
    changed = json.loads(inside("plan", *given, *words).out)
    for before, after in zip(plain["rows"], changed["rows"], strict=True):
        config = after["config"]
        assert config["train_steps"] == 7
        assert config["dropout"] == (0.3 if after["row"] == "D dropout=0.3" else 0.25)
        assert after["params"] - before["params"] == (240 - 200) * config["d_model"]
        assert {run["id"] for run in before["runs"]}.isdisjoint(run["id"] for run in after["runs"])


def test_rows_and_seeds_are_selected_and_base_stays(given):
    words = ["--rows", "D,decoding*", "--seeds", "2,7-8", "--format", "json"]
    rows = json.loads(inside("plan", *given, *words).out)["rows"]
    assert [row["row"] for row in rows] == ["base", "D dropout=0.3", "decoding beam=1"]
    assert [[run["seed"] for run in row["runs"]] for row in rows] == [[2, 7, 8]] * 3


def test_a_study_without_results_is_all_pending(given):
    noted = f"note: --results {given[2]} does not exist yet\n"
    for verb in ("status", "plan"):
        done = inside(verb, *given)
        assert (done.code, done.err) == (0, "" if verb == "plan" else noted)
        assert "pending" in done.out
    assert not given[2].exists()


def statuses(given):
    runs = json.loads(inside("status", *given, "--format", "json").out)["runs"]
    return {(run["row"], run["seed"]): (run["state"], run["detail"]) for run in runs}


def test_status_shows_the_state_of_every_run(fake, given):
    fake.done("base", 1, 5.0, 25.0, steps=100, seconds=125.0)
    fake.at("base", 2, 40, alive=True, loss=2.345, perplexity=8.12, tokens_per_second=7300.4)
    fake.at("base", 3, 100, alive=True, phase="decoding", perplexity=7.5)
    fake.at("A h=1", 1, 60, alive=False, phase="left", loss=2.0)
    fake.failed("A h=1", 2, "RuntimeError: out of luck")
    fake.diverged("A h=1", 3, 50, "the loss exploded to 31.4 nats a token")
    log = fake.folder("A h=1", 2).log
    found = statuses(given)
    assert found["base", 1] == ("done", "100 steps in 2 min")
    assert found["base", 2] == ("running", "step 40 of 100, loss 2.35, PPL 8.12, 7,300 tokens/s")
    assert found["base", 3] == ("running", "step 100 of 100, decoding the test set, PPL 7.50")
    assert found["A h=1", 1] == ("interrupted", "step 60 of 100, loss 2.00; nothing is saved")
    assert found["A h=1", 2] == (
        "failed",
        f"RuntimeError: out of luck; see {log}; --retry-failed runs it again",
    )
    assert found["A h=1", 3] == (
        "diverged",
        "50 steps in 5 s: the loss exploded to 31.4 nats a token",
    )
    assert found["A h=2", 1] == ("pending", "")
    assert found["decoding beam=1", 1] == ("pending", "trained, 100 steps; still to be decoded")
    assert len(found) == 15


def test_status_in_a_terminal_has_every_run_and_a_count(fake, given):
    fake.all_done()
    fake.folder("D dropout=0.3", 2).result.unlink()
    text = inside("status", *given).out
    assert all(text.count(fake.folder("D dropout=0.3", seed).id) == 1 for seed in (1, 2, 3))
    assert all(
        text.count(fake.folder("base", seed).id) == 2 for seed in (1, 2, 3)
    )  # also for the row that only decodes it
    assert "12 runs: 11 done, 1 pending" in text


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        ({"phase": "starting"}, "starting"),
        ({"phase": "starting", "step": None, "steps": None, "loss": None, "perplexity": None}, "starting"),
        ({"phase": "training", "step": 3, "steps": None}, "step 3 of ?"),
        ({"phase": "training", "step": 3, "steps": 9, "loss": 1.0}, "step 3 of 9, loss 1.00"),
        ({"phase": "left"}, ""),
    ],
)  # fmt: skip
def test_unknown_values_are_left_out_of_a_progress_line(progress, text):
    assert progress_line(Progress(host="here", pid=1, born=None, **progress)) == text


def test_a_run_says_which_runs_did_not_begin_before_the_end_of_its_budget(fake, given, monkeypatch):
    """Where the first ones take longer than estimated. The next call trains the others."""
    fake.all_done()
    for seed in (2, 3):
        fake.folder("A h=1", seed).result.unlink()
    now = [0.0]

    def launch(stage, *arguments, control):
        assert len(stage.missing) == 2
        assert control.may_start()
        now[0] += 7200.0
        assert not control.may_start()

    monkeypatch.setattr(budget.time, "monotonic", lambda: now[0])
    monkeypatch.setattr("ablate.cli.run.launch", launch)
    done = inside("run", *given, "--budget", "1h")
    assert done.code == 0
    assert "--budget 1h: the time is over, and 2 runs did not begin." in done.err


def test_a_plan_shows_the_part_that_fits_into_a_budget(fake, given):
    unknown = inside("plan", *given, "--budget", "1h")
    assert "\n--budget 1h: the runs that fit are unknown until one" in unknown.out
    assert json.loads(inside("plan", *given, "--budget", "1h", "--format", "json").out)["budget"] == {
        "seconds": 3600.0, "fits": None,
    }  # fmt: skip
    fake.done("base", 1, 5.0, 25.0, seconds=60.0)
    fake.done("decoding beam=1", 1, 5.0, 25.0)
    assert (
        "--budget 1h: the whole study fits, about " in inside("plan", *given, "--budget", "1h").out
    )
    fits = json.loads(inside("plan", *given, "--budget", "6min", "--format", "json").out)["budget"][
        "fits"
    ]
    assert fits["seeds"] == [1]
    assert fits["rows"] == ["base", "A h=1", "A h=2", "D dropout=0.3", "decoding beam=1"]
    assert fits["seconds"] <= 360


def test_the_path_from_the_results_root_to_the_text_is_no_change_of_base(tmp_path):
    text = SMALL.replace(
        "{corpus: toy, vocab_size: 200}",
        "{corpus: files, direction: en-de, train: a, dev: b, test: c, folder: text, "
        "vocab_size: 200}",
    )
    assert text != SMALL
    fake = Fake(tmp_path / "results", study_from(tmp_path, text))
    fake.done("base", 1, 5.0, 25.0)
    copy = fake.results.study(fake.study.name) / "study.yaml"
    copy.parent.mkdir(parents=True)
    copy.write_text(text.replace("folder: text", "folder: ../../text"))
    given = (fake.study.path, "--results", fake.results.root)
    assert inside("status", *given, "--seeds", "9").err == ""


def test_a_base_that_was_edited_after_its_results_is_said_with_its_changes(fake, given):
    path = fake.study.path
    folder = fake.results.root / fake.study.name
    folder.mkdir(parents=True)
    (folder / "study.yaml").write_bytes(path.read_bytes())
    edited = path.read_text().replace("train_steps: 100", "train_steps: 160")
    assert edited != path.read_text()
    path.write_text(edited)
    assert "earlier base" not in inside("plan", *given).err  # which has no results either
    fake.done("base", 1, 5.0, 25.0)
    for verb in ("plan", "status", "table"):
        assert inside(verb, *given).err.startswith(
            f"note: base has no result, but the base of {folder / 'study.yaml'} has results of 1 "
            "run. Changed since then: train_steps: 100 -> 160\n"
        )
    path.write_bytes((folder / "study.yaml").read_bytes())
    assert inside("table", *given).err == ""


def test_a_plan_says_that_rows_are_tuned_and_judged_on_dev(tmp_path):
    tune = "tune: {grid: {learning_rate: [0.001, 0.002]}, seeds: [101]}\n"
    for judge in ("ppl", "bleu"):
        study = tmp_path / "small.yaml"
        study.write_text(SMALL + tune + f"judge: [{judge}]\n")
        done = inside("plan", study, "--results", tmp_path, "--device", "cpu")
        assert ("note: PPL is measured on dev, by whose loss" in done.err) is (judge == "ppl")
