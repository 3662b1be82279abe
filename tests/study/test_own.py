"""A study that names classes of the user's own: pinned when it is read, imported by nobody."""

import json
import subprocess
import sys

import pytest

from ablate.config import plugins as config_plugins
from ablate.config.plugins import source_hash
from ablate.errors import StudyError
from ablate.study import Selection, read_study
from tests.cli.inside import inside

HEAD = "study: own\ndata: {corpus: toy, vocab_size: 200}\n"
ROW = HEAD + "rows:\n  A: {each: {attention: ['mine:Mine']}}\n"
SOURCE = "raise RuntimeError('was imported')\nclass Mine:\n    pass\n\nclass Other:\n    pass\n"
PIN = source_hash(SOURCE.encode())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a module that must not be imported; the current folder is another."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "mine.py").write_text(SOURCE)
    return tmp_path


@pytest.fixture
def read(folder):
    def read(text, **selection):
        path = folder / "own.yaml"
        path.write_text(text)
        return read_study(path, Selection(**selection))

    return read


@pytest.fixture
def faults(read, folder):
    def faults(text, **selection):
        with pytest.raises(StudyError) as caught:
            read(text, **selection)
        return [line.replace(f"{folder}/", "") for line in caught.value.lines]

    return faults


def ids(study):
    return [run.id for run in study.runs()]


# --- pinned ---


def test_a_row_names_it_as_it_is_written_and_holds_it_pinned(read):
    study = read(ROW)
    base, row = study.rows
    assert row.label == "A attention=mine:Mine"
    assert row.config.attention == f"mine:Mine@{PIN}"
    assert row.changed == {"attention": f"mine:Mine@{PIN}"}
    assert base.config.attention == "full"
    assert study.plugin_sources == {PIN: SOURCE.encode()}


@pytest.mark.parametrize("name", ["attention", "positional_encoding", "activation", "norm"])
def test_every_field_that_takes_one_is_pinned_in_base_in_rows_and_by_set(read, name):
    in_base = read(f"{HEAD}base: {{{name}: 'mine:Mine'}}")
    in_row = read(f"{HEAD}rows: {{A: {{set: {{{name}: 'mine:Mine'}}}}}}")
    by_set = read(HEAD, overrides=(f"{name}=mine:Mine",))
    found = [in_base.base.config, in_row.rows[1].config, by_set.base.config]
    assert [getattr(config, name) for config in found] == [f"mine:Mine@{PIN}"] * 3


def test_two_classes_of_one_module_are_two_runs_of_one_source(read):
    study = read(HEAD + "rows: {A: {each: {attention: ['mine:Mine', 'mine:Other']}}}")
    assert len(set(ids(study))) == 3
    assert list(study.plugin_sources) == [PIN]


def test_another_source_makes_other_runs_of_the_rows_that_use_it_and_of_no_others(read, folder):
    before = ids(read(ROW))
    assert ids(read(ROW)) == before
    (folder / "mine.py").write_text(SOURCE + "# another thought\n")
    after = ids(read(ROW))
    assert after[0] == before[0]
    assert after[1] != before[1]
    (folder / "mine.py").write_text(SOURCE)
    assert ids(read(ROW)) == before


def test_where_the_module_lies_makes_no_other_run(read, folder):
    before = ids(read(ROW))
    (folder / "mine.py").rename(folder / "here" / "mine.py")
    assert ids(read(ROW)) == before


def test_a_base_that_a_row_leaves_without_effect_is_not_in_the_rows_run(read):
    text = HEAD + "base: {norm: 'mine:Mine'}\nrows: {A: {set: {norm_position: none}}}"
    plain = read(text.replace("mine:Mine", "layernorm"))
    assert ids(read(text))[1] == ids(plain)[1]
    assert ids(read(text))[0] != ids(plain)[0]


def test_a_study_that_names_none_looks_for_none(read, monkeypatch):
    monkeypatch.setattr(config_plugins, "PathFinder", None)
    study = read(HEAD + "rows: {A: {each: {attention: [local]}}}")
    assert (len(study.rows), study.plugin_sources) == (2, {})


# --- at fault ---


def test_a_module_or_class_that_is_not_there_is_one_line_at_its_place_with_the_nearest(faults):
    text = HEAD + (
        "base:\n  norm: 'mime:Mine'\nrows:\n"
        "  A: {each: {attention: ['mine:Mine', 'mine:Min'], activation: ['zzz:Mine']}}\n"
    )
    assert faults(text) == [
        "own.yaml:4:9: module mime not found beside the study or on Python's path; did you mean \"mine\"?",
        "own.yaml:6:39: mine:Min: module mine has no class Min; it has Mine or Other; did you mean \"Mine\"?",
        "own.yaml:6:65: module zzz not found beside the study or on Python's path",
    ]  # fmt: skip


def test_so_it_is_by_set(faults):
    assert faults(HEAD, overrides=("norm=mine:Min",)) == [
        '--set norm=mine:Min: mine:Min: module mine has no class Min; it has Mine or Other; did you mean "Mine"?'
    ]


def test_a_module_that_is_not_python_is_one_line(faults, folder):
    (folder / "mine.py").write_text("class Mine(:\n")
    [line] = faults(ROW)
    assert line.startswith("own.yaml:4:26: mine:Mine: module mine is not valid Python: invalid syntax")


def test_fields_that_take_none_say_what_they_take_and_look_for_nothing(faults):
    text = HEAD + "base: {optimizer: 'mine:Mine', mixer: 'zzz:Mine'}"
    assert faults(text) == [
        'own.yaml:3:19: optimizer: "mine:Mine" is not allowed: must be adam or adamw',
        'own.yaml:3:39: mixer: "zzz:Mine" is not allowed: must be attention or lstm',
    ]


# --- what plans and tables make of it ---


def test_the_table_shows_it_without_its_pin(read, folder):
    study = read(ROW)
    shown = inside("table", study.path, "--results", folder / "results")
    assert (shown.code, shown.err) == (0, "")
    assert "mine:Mine" in shown.out
    assert PIN not in shown.out


def test_the_plan_says_what_it_cannot_count(read, folder):
    shown = inside("plan", read(ROW).path, "--results", folder / "results")
    assert (shown.code, shown.err) == (0, "")
    assert "Classes of your own are not counted in params, FLOPs and memory of: A attention=mine:Mine." in shown.out


def test_plan_status_and_table_import_neither_it_nor_torch(read, folder):
    study = read(ROW)
    words = [[verb, str(study.path), "--results", str(folder / "results")] for verb in ("plan", "status", "table")]
    probe = (
        "import json, sys\nfrom ablate.cli import main\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    sys.argv = ['ablate', *words]\n"
        "    try: main()\n"
        "    except SystemExit as end: assert not end.code\n"
        "print({'torch', 'mine'} & set(sys.modules))\n"
    )
    done = subprocess.run([sys.executable, "-c", probe, json.dumps(words)], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
    assert done.stderr == ""
