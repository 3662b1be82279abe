"""Errors of users: exit code 2, one line per error on standard error, nothing on standard output or
disk.
"""

import errno
import json
import os
import re
from pathlib import Path

import pytest

from ablate.store.files import read_json, write_json
from tests.cli.inside import inside
from tests.end_to_end.studies import ablate

BAD = """\
study: bad
data: {corpus: toy, vocab_size: 200}
base: {drop_out: 0.1, train_steps: soon}
rows:
  A: {each: {h: [3]}}
  B: {grid: {dropout: 0.1}}
"""
FAULTS = [
    'bad.yaml:3:8: unknown field "drop_out"; did you mean "dropout"?',
    "bad.yaml:3:36: train_steps: ",
    'bad.yaml:5:18: h=3 does not divide d_model=512',
    "bad.yaml:6:23: ",
]  # fmt: skip
VERBS = ("plan", "status", "table", "run")


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_error_of_a_study_is_one_line(here):
    (here / "bad.yaml").write_text(BAD)
    done = ablate(
        "table", "bad.yaml", check=2, cwd=here
    )  # a separate process, to see a traceback at exit too
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == len(FAULTS)
    assert all(line.startswith(fault) for line, fault in zip(lines, FAULTS, strict=True)), lines


@pytest.mark.parametrize("verb", VERBS)
def test_a_bad_study_leaves_nothing_behind(here, verb):
    (here / "bad.yaml").write_text(BAD)
    done = inside(verb, "bad.yaml")
    assert (done.code, done.out) == (2, "")
    assert len(done.err.splitlines()) == len(FAULTS)
    assert [path.name for path in here.iterdir()] == ["bad.yaml"]


@pytest.mark.parametrize("verb", VERBS)
def test_a_missing_study_is_one_line(here, verb):
    done = inside(verb, "nowhere.yaml")
    assert (done.code, done.out, done.err) == (2, "", "nowhere.yaml: no such file\n")
    assert not list(here.iterdir())


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["data", "list", "--results", __file__], f'--results: "{__file__}" is a file; give a folder'),
        (["run", "STUDY", "--results", "r\udcff"], '--results: "r\\udcff" has a path that is not text in UTF-8'),
        (["pl\nan"], 'ablate: unknown command "pl\\nan"; did you mean "plan"?'),
    ],
)  # fmt: skip
def test_wrong_usage_is_one_line_with_what_is_allowed(given, words, line):
    done = inside(*[given[0] if word == "STUDY" else word for word in words])
    assert done.refusal.startswith(line)
    assert not given[2].exists()


def test_a_value_after_the_name_in_set_is_told_to_be_written_with_an_equals_sign(given):
    for words in ((*given, "--set", "dropout", "0.1"), ("--set", "dropout", "0.1")):
        done = inside("plan", *words)
        assert done.refusal == '--set: "dropout" has no value; write --set dropout=0.1'
    done = inside("plan", "--set", "dropout", given[0], *given[1:])
    assert done.refusal.startswith("--set dropout: is not of the form FIELD=VALUE")


def test_without_a_command_help_is_shown():
    done = inside()
    assert (done.code, done.err) == (0, "")
    assert done.out == inside("--help").out


def test_an_error_of_the_file_is_not_blamed_on_set(here):
    (here / "bad.yaml").write_text(BAD)
    plain, done = (inside("plan", "bad.yaml", *words) for words in ([], ["--set", "dropout=0.2"]))
    assert done.err == plain.err


@pytest.mark.parametrize(
    ("given_name", "meant"),
    [("m30k", "m30k.yaml"), ("m3ok.yaml", "m30k.yaml"), ("M30K", "m30k.yaml")],
)
@pytest.mark.parametrize("folder", ["", "studies/"])
def test_a_study_without_its_suffix_is_suggested(here, folder, given_name, meant):
    (here / "studies").mkdir()
    (here / folder / "m30k.yaml").write_text("study: a\n")
    done = inside("run", folder + given_name)
    assert done.refusal == f'{folder}{given_name}: no such file; did you mean "{folder}{meant}"?'
    if "." not in given_name:
        assert (
            f'is neither a study file nor a run id; did you mean "{folder}{meant}"?'
            in inside("status", folder + given_name).err
        )


def test_a_mistyped_results_folder_is_noted(given):
    study, _, root = given
    (root / "runs").mkdir(parents=True)
    wrong = root.with_name("resutls")
    near = f'note: --results {wrong} does not exist; did you mean "{root}"?\n'
    for verb in ("plan", "status"):
        assert (
            inside(verb, study, "--results", wrong).code,
            inside(verb, study, "--results", wrong).err,
        ) == (0, near)
        assert inside(verb, *given).err == ""
    root.with_name("elsewhere").mkdir()  # no results root, so it is not meant
    other = root.with_name("else")
    assert (
        inside("status", study, "--results", other).err
        == f"note: --results {other} does not exist yet\n"
    )
    assert inside("plan", study, "--results", other).err == ""  # a plan comes before the first run


def test_verify_refuses_a_mistyped_results_folder_and_makes_none(given):
    study, _, root = given
    (root / "runs").mkdir(parents=True)
    wrong = root.with_name("resutls")
    for words in ([], ["--stored"]):
        done = inside("verify", study, "--results", wrong, *words)
        assert done.refusal == f'--results: "{wrong}" does not exist; did you mean "{root}"?'
        assert done.code == 2
    assert not wrong.exists()


def test_records_that_are_not_unpacked_are_noted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text("study: tiny\ndata: {corpus: toy, vocab_size: 200}\n")
    published = Path("results/tiny")
    published.mkdir(parents=True)
    (published / "table.md").write_text("")
    assert inside("status", "tiny.yaml").err == ""
    (published / "records.zip").write_text("")
    unpack = "`python3 -m zipfile -e results/tiny/records.zip unpacked`"
    note = (
        f"note: results/tiny/records.zip has records of runs; {unpack}, then --results unpacked\n"
    )
    assert inside("status", "tiny.yaml").err == note
    assert inside("status", "tiny.yaml", "--results", "results/tiny").err == note
    Path("results/runs").mkdir()  # a results root with runs of its own
    assert inside("status", "tiny.yaml").err == ""


def test_results_beside_a_study_of_another_folder_are_noted(tmp_path, monkeypatch):
    study = tmp_path / "mine" / "tiny.yaml"
    study.parent.mkdir()
    study.write_text("study: tiny\ndata: {corpus: toy, vocab_size: 200}\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert inside("status", "../mine/tiny.yaml").err == ""  # no results in either folder
    (study.parent / "results" / "tiny").mkdir(parents=True)
    for verb in ("plan", "status"):
        assert inside(verb, "../mine/tiny.yaml").err == (
            "note: results/tiny does not exist, and ../mine/results/tiny does; "
            "--results ../mine/results selects it\n"
        )
    assert inside("status", "../mine/tiny.yaml", "--results", "../mine/results").err == ""
    monkeypatch.chdir(study.parent)
    assert inside("status", "tiny.yaml").err == ""


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("table", []),
        ("report", []),
        ("compare", ["base", "A h=1"]),
        ("publish", ["--out", "published"]),
        ("predict", ["base", "--text", "a b"]),
        ("attention", ["base", "--text", "a b"]),
        ("export", ["base", "--to", "huggingface", "--out", "exported"]),
    ],
)
def test_a_study_without_a_result_has_nothing_to_show(given, here, verb, words, form):
    before = sorted(here.iterdir())
    study, *root = given
    done = inside(verb, study, *words, *root, "--format", form)
    assert (done.code, done.printed) == (2, "")
    assert f"`ablate run {study} --results {root[1]}` trains" in done.err.splitlines()[-1]
    if form == "json":
        assert [fault["code"] for fault in json.loads(done.out)["faults"]] == ["pending"]
    assert sorted(here.iterdir()) == before


def test_rows_without_a_result_are_not_compared(fake, given):
    fake.done("base", 1, 5.0, 25.0)
    study, *root = given
    refused = inside("compare", study, "A h=1", "A h=2", *root).refusal
    assert 'no run of "A h=1" or "A h=2" has a result' in refused
    assert inside("compare", study, "base", "A h=1", *root).code == 0
    unknown_seed = inside("table", *given, "--seeds", "9").refusal
    assert unknown_seed.endswith("with the same --set, --rows and --seeds")
    assert "trains them" in unknown_seed
    for seed in (2, 3):
        fake.done("base", seed, 5.0, 25.0)
    decoded_otherwise = inside("table", *given, "--rows", "base", "--set", "beam=2").refusal
    assert "` decodes them, and" in decoded_otherwise
    one_is_untrained = inside("table", *given, "--rows", "A", "--set", "beam=2").refusal
    assert "` trains and decodes them, and" in one_is_untrained


FILES = (
    "study: files\ndata: {corpus: files, direction: en-de, train: train, dev: dev, test: test, "
    "vocab_size: 80}\n"
)


def test_a_missing_corpus_is_one_line_per_split_and_creates_nothing(here):
    (here / "files.yaml").write_text(FILES)
    (here / "empty").mkdir()
    done = inside("run", "files.yaml", "--set", "data.folder=empty")
    assert (done.code, done.out) == (3, "")
    found = [
        re.findall(r"empty/(\w+)\.en\(\.gz\) not found", line) for line in done.err.splitlines()
    ]
    assert found == [["train"], ["dev"], ["test"]]
    assert {path.name for path in here.iterdir()} == {"files.yaml", "empty"}


def test_a_missing_folder_of_all_splits_is_one_line(here):
    (here / "files.yaml").write_text(FILES)
    done = inside("run", "files.yaml", "--set", "data.folder=nowhere")
    assert done.code == 3
    assert done.refusal == "--set data.folder=nowhere: folder: nowhere: no such folder"


def test_a_missing_gpu_is_one_line(given, monkeypatch):
    monkeypatch.setattr("ablate.launch.devices._gpu_memory", list)
    # With notes on the seeds and on the results root, and with events before it.
    for words in ((), ("--seeds", "3"), ("--budget", "1h"), ("--format", "json")):
        done = inside("run", *given, "--device", "cuda", *words)
        assert done.code == 4
        assert done.err == "--device cuda: torch finds no CUDA device; use --device cpu\n"
        assert done.out.count("\n") == (words == ("--format", "json"))


def test_the_table_of_a_finished_study_needs_no_gpu(fake, given, monkeypatch):
    monkeypatch.setattr("ablate.launch.devices._gpu_memory", list)
    fake.all_done()
    assert "CUDA" not in inside("run", *given, "--device", "cuda").err


def test_a_damaged_result_is_reported_and_the_others_are_shown(fake, given):
    fake.all_done()
    path = fake.folder("base", 1).result
    whole = path.read_bytes()
    path.write_bytes(whole[:70] + bytes([whole[70] ^ 1]) + whole[71:])
    said = f"{path}: is damaged (its SHA-256 is not the one written); `ablate run` makes it again"
    for verb in ("plan", "status", "table"):
        done = inside(verb, *given)
        assert (done.code, done.err) == (0, "")
        assert verb == "plan" or said in " ".join(done.out.split())
    assert (
        "24.98" in inside("table", *given, "--format", "json").out
    )  # of the row and seed that are whole


def test_a_run_in_the_private_folder_of_another_user_does_not_hide_the_others(
    fake, given, monkeypatch
):
    """As with umask 077. Whoever runs the tests may read every file, so the system's calls refuse."""
    fake.all_done()
    private = fake.folder("base", 1)

    def refusing(call):
        def called(path, *more, **named):
            if str(path).startswith(f"{private.path}/"):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
            return call(path, *more, **named)

        return called

    for name in ("open", "stat", "lstat", "scandir"):
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))
    for verb, *words in (["plan"], ["status"], ["table"], ["status", "base", "--logs"]):
        done = inside(verb, given[0], *words, *given[1:])
        assert (done.code, done.err) == (0, "")
        said = f"{private.result}: cannot be read: Permission denied"
        assert verb == "plan" or words or said in " ".join(done.out.split())
    assert "25.0" in inside("table", *given).out  # of the other seeds


def test_a_result_of_another_version_is_one_line_below_the_table(fake, given):
    fake.all_done()
    path = fake.folder("base", 1).result
    write_json(path, {**read_json(path), "format": 1})
    done = inside("table", *given)
    assert (done.code, done.err) == (0, "")
    line = f"{path}: written by another version of ablate (format: Input should be 4); use that"
    assert f"\n{line} version, or another --results\n" in done.out
    assert "25.0" in done.out  # of the other seeds


@pytest.fixture
def runs(fake):
    """Finished runs, an empty one with the prefix of the first, and one run in each other state."""
    for label, seed in (("base", 1), ("A h=1", 1)):
        fake.done(label, seed, 5.0, 25.0)
    fake.failed("A h=1", 2, "RuntimeError: out of luck")
    fake.failed("A h=1", 3, "the worker was killed", killed=True)
    fake.diverged("A h=2", 1, 50, "the loss is not a finite number")
    fake.at("D dropout=0.3", 1, 5, alive=False)
    source = fake.folder("base", 1).path
    twin = source.with_name(source.name[:-1] + ("0" if source.name[-1] != "0" else "1"))
    twin.mkdir()
    return fake


@pytest.mark.parametrize(
    ("label", "digits", "message"),
    [
        ("base 1", 11, "2 runs with an id that begins with"),
        ("base 1", 0, "7 runs with an id that begins with"),
        ("D dropout=0.3 1", 12, "is not done; `ablate run STUDY --results ROOT` finishes it"),
        (
            "A h=1 2",
            12,
            "is not done; `ablate run STUDY --results ROOT --retry-failed` finishes it",
        ),
        ("A h=1 3", 12, "is not done; `ablate run STUDY --results ROOT` finishes it"),
        ("A h=2 1", 12, "has diverged, so there is no trained model; choose another run"),
        ("decoding beam=1 1", 13, "no run with an id that begins with"),
    ],
)
def test_translate_needs_one_finished_run(runs, label, digits, message):
    label, seed = label.rsplit(" ", 1)
    id = (runs.folder(label, int(seed)).id + "0")[:digits]
    done = inside("predict", id, "--results", runs.results.root, stdin=b"a b\n")
    assert message in done.refusal.replace(str(runs.results.root), "ROOT")


@pytest.mark.parametrize("id", ["../runs", ".", "/", "*", "lock"])
def test_a_run_is_an_id_and_never_a_path(runs, id):
    assert inside("predict", id, "--results", runs.results.root).code == 2


def test_translate_refuses_invalid_utf_8(runs):
    id = runs.folder("A h=1", 1).id
    done = inside("predict", id, "--results", runs.results.root, stdin="a\nü ".encode() + b"\xff\n")
    assert done.refusal == "standard input:2: not valid UTF-8 (byte 4 of the line)"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["plan", "STUDY", "--seeds", "1", "--seeds", "2"], "--seeds: is given twice; give it once"),
        (["plan", "STUDY", "--results", ""], "--results: has an empty path; give a path"),
        (["report", "STUDY", "--out="], "--out: has an empty path; give a path"),
        (["plan", "STUDY", "--results", "link"], '--results: "link" is a link to a folder that does not exist; give a folder'),
        (["plan", "STUDY", "--results", "file/x"], '--results: "file/x" is a path in a file; give a folder'),
        (["plan", "link"], "link: is a link to a file that does not exist"),
        (["init", "new.yaml", "--schema"], "new.yaml has no effect with --schema, which prints"),
        (["judge", "scores.csv", "--out", "scores.csv"], "--out scores.csv: is an input of this command; choose another name"),
        (["judge", "percent.csv"], 'percent.csv:2: acc: "90%" is not a number; write the number without %'),
        (["judge", "grouped.csv"], 'grouped.csv:2: acc: "1,234" is not a number; write it without the comma between thousands, or a point for a decimal comma'),
    ],
)  # fmt: skip
def test_mistakes_of_scripts_are_refused_and_nothing_is_lost(given, here, words, line):
    Path("link").symlink_to("nowhere")
    Path("file").write_text("")
    Path("scores.csv").write_text("row,seed,acc\nbase,1,90\nA,1,91\n")
    Path("percent.csv").write_text("row,seed,acc\nbase,1,90%\nA,1,91%\n")
    Path("grouped.csv").write_text('row,seed,acc\nbase,1,"1,234"\nA,1,"1,235"\n')
    before = {path: path.read_bytes() for path in here.iterdir() if path.is_file()}
    done = inside(*[given[0] if word == "STUDY" else word for word in words])
    assert done.refusal == line
    assert {path: path.read_bytes() for path in here.iterdir() if path.is_file()} == before


def test_a_direction_from_a_language_to_itself_needs_two_columns(here):
    text = FILES.replace("en-de", "en-en")
    (here / "s.yaml").write_text(text)
    refusal = inside("plan", "s.yaml").refusal
    assert 'direction "en-en" reads the same text as source and target; name two columns' in refusal
    columns = "source_column: a, target_column: b, vocab_size"
    (here / "s.yaml").write_text(text.replace("vocab_size", columns))
    assert "reads the same text" not in inside("plan", "s.yaml").err
