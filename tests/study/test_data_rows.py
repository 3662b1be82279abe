"""Rows that change the data: the size of the vocabulary, and the share of the training split."""

import pytest

from ablate.study import Selection, read_study, runs_of

STUDY = """\
study: data
data: {{corpus: toy, vocab_size: {V}}}
base: {{train_steps: 10}}
rows: {rows}
"""


@pytest.fixture
def study(tmp_path):
    def study(rows, V=350, **selection):
        path = tmp_path / "study.yaml"
        path.write_text(STUDY.format(rows=rows, V=V))
        return read_study(path, Selection(**selection))

    return study


def ids(study):
    return {row.label: runs_of(study).of(row)[0].id for row in study.rows}


def test_a_row_with_a_vocabulary_size_is_the_run_of_a_study_of_that_size(study):
    rows = ids(study("{V: {each: {vocab_size: [150, 700]}}}"))
    assert rows["V vocab_size=150"] == ids(study("{}", V=150))["base"]
    assert rows["V vocab_size=700"] == ids(study("{}", V=700))["base"]
    assert len(set(rows.values())) == 3


def test_a_row_with_the_vocabulary_size_of_the_study_is_base(study):
    rows = ids(study("{V: {each: {vocab_size: [350]}}}"))
    assert rows["V vocab_size=350"] == rows["base"]


def test_a_run_knows_its_data_and_its_configuration_does_not_repeat_it(study):
    found = study("{V: {each: {vocab_size: [150]}}}")
    run = runs_of(found).of(found.rows[1])[0]
    assert (run.data.vocab_size, run.config.vocab_size) == (150, None)
    assert [run.data.vocab_size for run in runs_of(found)] == [350, 150]


def test_each_fraction_of_the_training_split_is_a_run_and_the_whole_is_base(study):
    rows = ids(study("{data: {each: {train_fraction: [0.25, 0.5, 1.0]}}}"))
    assert rows["data train_fraction=1.0"] == rows["base"]
    assert len(set(rows.values())) == 3
