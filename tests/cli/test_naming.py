"""Runs are named by id, or by study, row and seed, wherever a command takes a run."""

import json

import pytest

from ablate.analysis.tuning_runs import dev_runs_of
from ablate.cli.naming import find_finished_run, find_run
from ablate.errors import StudyError, UsageError
from ablate.study import Selection, read_study, runs_of
from ablate.study.select import find_row
from tests.cli.inside import inside
from tests.report.fakes import Fake, study_from

CHOSEN_ON_DEV = """\
study: chosen
data: {corpus: toy, vocab_size: 200}
base: {N: 1, d_model: 16, d_ff: 32, h: 2, train_steps: 100}
seeds: {rows: 2, base: 4}
tune: {decoding: {beam: [1, 4]}}
rows: {A: {each: {h: [1]}}}
"""


@pytest.fixture
def done(fake):
    """All runs are done."""
    return fake.all_done()


@pytest.mark.parametrize(
    ("row", "seed", "label", "expected"),
    [
        (None, None, "base", 1),
        ("base", 3, "base", 3),
        ("A h=2", None, "A h=2", 1),
        ("A h=2", 2, "A h=2", 2),
        ("D", 3, "D dropout=0.3", 3),  # the only row of its group
        ("*h=1", 1, "A h=1", 1),
    ],
)
def test_a_run_is_found_by_study_row_and_seed(done, row, seed, label, expected):
    study, id = str(done.study.path), done.folder(label, expected).id
    assert find_run(done.results, study, row, seed).folder.id == id
    finished = find_finished_run(done.results, study, row, seed)
    assert (finished.folder.id, finished.row.label) == (id, label)


def test_a_run_is_found_by_the_first_characters_of_its_id(done):
    id = done.folder("A h=2", 2).id
    assert find_run(done.results, id[:8]).folder.id == id


def test_set_finds_the_run_that_was_trained_with_it(done, tmp_path):
    study = str(done.study.path)
    longer = Fake(done.results.root, read_study(done.study.path, Selection(["train_steps=200"])))
    longer.done("A h=1", 2, 4.0, 30.0)
    found = find_finished_run(done.results, study, "A h=1", 2, ["train_steps=200"])
    assert found.folder.id == longer.folder("A h=1", 2).id
    assert found.row.config.train_steps == 200
    untrained = r"study\.yaml --results .* --set train_steps=300` trains it"
    with pytest.raises(UsageError, match=untrained):
        find_finished_run(done.results, study, "A h=1", 2, ["train_steps=300"])
    with pytest.raises(UsageError, match="--set has no effect with a run's id"):
        find_finished_run(done.results, found.folder.id, None, None, ["train_steps=200"])
    for command in ("predict", "attention", "export"):
        more = ("--to", "huggingface", "--out", tmp_path / "out") if command == "export" else ()
        words = ("--results", done.results.root, "--set", "train_steps=300", *more)
        refused = inside(command, study, "A h=1", *words).refusal
        assert "--set train_steps=300` trains it" in refused


def test_a_seed_outside_of_the_study_names_the_run_that_seeds_made(done):
    said = r'row "A h=1" with seed 9 is pending; `ablate run .*study.yaml --results .* --seeds 9` trains it'
    with pytest.raises(UsageError, match=said):
        find_run(done.results, str(done.study.path), "A h=1", 9)


def test_a_trained_run_has_the_decoding_that_is_chosen_for_the_study(tmp_path):
    """By base's first seeds, also for its further ones, which are not decoded on dev."""
    study = study_from(tmp_path, CHOSEN_ON_DEV)
    done = Fake(tmp_path / "results", study)
    for seed in (1, 3):
        done.done("base", seed, 5.0, 25.0)
        with pytest.raises(UsageError, match=r'row "base" awaits tuning; .* chooses its decoding'):
            find_finished_run(done.results, str(study.path), None, seed)
    on_dev = Fake(tmp_path / "results", dev_runs_of(runs_of(study)))
    for seed in (1, 2):
        on_dev.done("base: beam=1", seed, 5.0, 25.0)
        on_dev.done("base: beam=4", seed, 5.0, 24.0)
    for seed in (1, 3):
        found = find_finished_run(done.results, str(study.path), None, seed)
        assert (found.folder.id, found.row.config.beam) == (done.folder("base", seed).id, 1)


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        (("A",), UsageError, 'ROW: "A" matches 2 rows; choose one: A h=1, A h=2'),
        (("A h=3",), UsageError, 'ROW: unknown row "A h=3"; did you mean "A h=2"?'),
        (
            ("x",),
            UsageError,
            'ROW: unknown row "x"; allowed: base, A, D, decoding, A h=1, A h=2, D dropout=0.3, decoding beam=1',
        ),
    ],
)
def test_an_unknown_row_is_refused_with_the_nearest_one(done, words, error, message):
    with pytest.raises(error) as refused:
        find_run(done.results, str(done.study.path), *words)
    assert refused.value.lines == (message,)


def test_a_missing_study_and_a_seed_of_an_id_are_refused(done, tmp_path):
    with pytest.raises(StudyError, match=r"stud\.yaml: no such file; did you mean"):
        find_run(done.results, str(tmp_path / "stud.yaml"))
    with pytest.raises(UsageError, match="--seed has no effect with a run's id"):
        find_run(done.results, done.folder("base", 1).id, None, 2)


def test_status_shows_the_run_of_a_row(fake, given):
    fake.all_done()
    by_id = inside("status", fake.folder("A h=1", 2).id, *given[1:])
    by_row = inside("status", given[0], "A h=1", "--seed", 2, *given[1:])
    assert by_row == by_id
    assert by_row.out.startswith(f"run {fake.folder('A h=1', 2).id}: done")
    first = inside("status", given[0], "A h=1", *given[1:], "--format", "json")
    assert json.loads(first.out)["id"] == fake.folder("A h=1", 1).id
    refused = inside("status", given[0], "A h=1", *given[1:], "--watch")
    assert (refused.code, refused.err.split(" has ")[0]) == (2, "--watch")


@pytest.mark.parametrize(
    "words",
    [
        ("predict", "STUDY", "ROW", "--seed", "2"),
        ("attention", "STUDY", "ROW", "--seed", "2"),
        ("export", "STUDY", "ROW", "--out", "DIR", "--to", "huggingface", "--seed", "2"),
    ],
)
def test_every_command_for_a_trained_run_takes_study_row_and_seed(fake, given, tmp_path, words):
    """The run exists and is not finished, so that no model has to be loaded: the message names the
    run.
    """
    fake.at("A h=1", 2, 5, alive=False)
    named = {"STUDY": given[0], "ROW": "A h=1", "DIR": tmp_path / "out"}
    done = inside(*(named.get(word, word) for word in words), *given[1:])
    assert (done.code, done.out) == (2, "")
    id = fake.folder("A h=1", 2).id
    said = (
        f'row "A h=1": run {id} is not done; `ablate run {" ".join(map(str, given))}` finishes it'
    )
    assert done.err.startswith(said)


def test_a_run_of_a_seed_outside_of_the_study_is_finished_with_that_seed(fake, given):
    study = read_study(fake.study.path, Selection(seeds="9"))
    run = next(run for run in runs_of(study).of(find_row(runs_of(study), "A h=1")))
    fake.results.run(run.id).path.mkdir(parents=True)
    done = inside("predict", given[0], "A h=1", "--seed", "9", *given[1:])
    said = f"is not done; `ablate run {' '.join(map(str, given))} --seeds 9` finishes it"
    assert done.code == 2
    assert done.err.startswith(f'row "A h=1": run {run.id} {said}')


def test_logs_of_a_row_that_a_pattern_names_have_its_label(done, given):
    log = done.folder("D dropout=0.3", 1).log
    log.write_text("hello\n")
    for name in ("D", "*0.3", "D dropout=0.3"):
        assert (
            inside("status", given[0], name, "--logs", *given[1:]).out
            == f"D dropout=0.3 seed 1: {log}\n  hello\n"
        )
