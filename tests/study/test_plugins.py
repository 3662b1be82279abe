"""Studies with custom classes: pinned to the hash of their source without importing them."""

import json
import subprocess
import sys

import pytest

from ablate.custom.source import source_hash
from ablate.errors import StudyError
from ablate.study import Selection, read_study, runs_of
from tests.cli.inside import inside
from tests.report.fakes import Fake

HEAD = "study: own\ndata: {corpus: toy, vocab_size: 200}\n"
ROW = HEAD + "rows:\n  A: {each: {attention: ['mine:Mine']}}\n"
SOURCE = "raise RuntimeError('was imported')\nclass Mine:\n    pass\n\nclass Other:\n    pass\n"
PIN = source_hash(SOURCE.encode())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a module that must not be imported; it is not the working directory."""
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
    return [run.id for run in runs_of(study)]


# --- pinned ---


def test_the_label_has_the_class_as_written_and_the_config_its_hash(read):
    study = read(ROW)
    base, row = study.rows
    assert row.label == "A attention=mine:Mine"
    assert row.config.attention == f"mine:Mine@{PIN}"
    assert row.changed == {"attention": f"mine:Mine@{PIN}"}
    assert base.config.attention == "full"
    assert study.source.classes == {PIN: SOURCE.encode()}


@pytest.mark.parametrize("name", ["attention", "positional_encoding", "activation", "norm"])
def test_custom_classes_are_pinned_in_base_in_rows_and_by_set(read, name):
    in_base = read(f"{HEAD}base: {{{name}: 'mine:Mine'}}")
    in_row = read(f"{HEAD}rows: {{A: {{set: {{{name}: 'mine:Mine'}}}}}}")
    by_set = read(HEAD, overrides=(f"{name}=mine:Mine",))
    found = [in_base.base.config, in_row.rows[1].config, by_set.base.config]
    assert [getattr(config, name) for config in found] == [f"mine:Mine@{PIN}"] * 3


def test_two_classes_of_one_module_are_two_runs_of_one_source(read):
    study = read(HEAD + "rows: {A: {each: {attention: ['mine:Mine', 'mine:Other']}}}")
    assert len(set(ids(study))) == 3
    assert list(study.source.classes) == [PIN]


def test_a_changed_source_changes_only_the_runs_that_use_it(read, folder):
    before = ids(read(ROW))
    assert ids(read(ROW)) == before
    (folder / "mine.py").write_text(SOURCE + "# another thought\n")
    after = ids(read(ROW))
    assert after[0] == before[0]
    assert after[1] != before[1]
    (folder / "mine.py").write_text(SOURCE)
    assert ids(read(ROW)) == before


def test_the_folder_of_the_module_does_not_change_run_ids(read, folder):
    before = ids(read(ROW))
    (folder / "mine.py").rename(folder / "here" / "mine.py")
    assert ids(read(ROW)) == before


def test_a_custom_class_that_is_inactive_in_a_row_does_not_change_its_run(read):
    text = HEAD + "base: {norm: 'mine:Mine'}\nrows: {A: {set: {norm_position: none}}}"
    plain = read(text.replace("mine:Mine", "layernorm"))
    assert ids(read(text))[1] == ids(plain)[1]
    assert ids(read(text))[0] != ids(plain)[0]


# --- errors ---


def test_missing_modules_and_classes_are_reported_at_their_position(faults):
    text = HEAD + (
        "base:\n  norm: 'mime:Mine'\nrows:\n"
        "  A: {each: {attention: ['mine:Mine', 'mine:Min'], activation: ['zzz:Mine']}}\n"
    )
    assert faults(text) == [
        "own.yaml:4:9: module mime not found beside the study or on Python's path; did you mean "
        "\"mine\"?",
        "own.yaml:6:39: mine:Min: module mine has no class Min; did you mean "
        "\"Mine\"?",
        "own.yaml:6:65: module zzz not found beside the study or on Python's path",
    ]  # fmt: skip


def test_a_missing_class_of_set_is_reported_at_the_option(faults):
    assert faults(HEAD, overrides=("norm=mine:Min",)) == [
        '--set norm=mine:Min: mine:Min: module mine has no class Min; did you mean "Mine"?'
    ]


def test_an_argument_twice_is_found_at_its_line_before_the_class_is_imported(faults, folder):
    source = "class Mine:\n    def forward(self, Q, K, K):\n        pass\n"
    (folder / "mine.py").write_text(source)
    assert faults(ROW) == ["mine.py:2: SyntaxError: duplicate argument 'K' in function definition"]


# --- plans and tables ---


def test_the_plan_names_rows_whose_custom_classes_are_not_counted(read, folder):
    shown = inside("plan", read(ROW).path, "--results", folder / "results")
    assert (shown.code, shown.err) == (0, "")
    assert (
        "params, FLOPs and memory do not include the custom classes of: A attention=mine:Mine."
        in shown.out
    )


@pytest.mark.parametrize(
    ("field", "note"),
    [
        ("schedule", None),
        ("loss_term", None),
        ("optimizer", "memory counts Adam's state for the optimizer of: A optimizer=mine:Mine."),
    ],
)
def test_the_plan_counts_all_of_a_row_whose_own_class_is_no_part_of_the_model(
    read, folder, field, note
):
    shown = inside(
        "plan", read(ROW.replace("attention:", f"{field}:")).path, "--results", folder / "results"
    )
    assert (shown.code, shown.err) == (0, "")
    assert f"{field}=mine:Mine" in shown.out
    assert "do not include" not in shown.out
    assert note is None or note in shown.out


def test_plan_status_and_table_import_neither_custom_modules_nor_torch(read, folder):
    study = read(ROW)
    Fake(folder / "results", study).diverged("base", 1, 50, "the loss is not a finite number")
    words = [
        [verb, str(study.path), "--results", str(folder / "results")]
        for verb in ("plan", "status", "table")
    ]
    probe = (
        "import json, sys\nfrom ablate.cli import main\n"
        "for words in json.loads(sys.argv[1]):\n"
        "    sys.argv = ['ablate', *words]\n"
        "    try: main()\n"
        "    except SystemExit as end: assert not end.code\n"
        "print({'torch', 'mine'} & set(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", probe, json.dumps(words)], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "set()"
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        ("torch.optim.NAdamm", 'module torch.optim has no class NAdamm; did you mean "NAdam"?'),
        ("nowhere.Mine", "nowhere.Mine: module nowhere not found"),
        ("torch.optim.NAdam(momentum_decay=x)", "(momentum_decay=x) are no arguments"),
    ],
)
def test_a_class_of_an_installed_package_is_found_without_importing_it(faults, optimizer, message):
    text = "study: s\ndata: {corpus: toy}\nbase: {}\nrows:\n  A: {set: {optimizer: X}}\n"
    (line,) = faults(text.replace("X", f'"{optimizer}"'))
    assert f"5:24: {message}" in line
