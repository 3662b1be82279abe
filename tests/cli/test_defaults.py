"""What a command takes where nothing is given: the study of this folder, and the results root of a variable."""

import json
import shutil

import pytest

from ablate.frames import results_folder
from tests.cli.inside import inside


@pytest.fixture
def here(fake, monkeypatch):
    """A folder with a study named study.yaml, whose results are elsewhere."""
    folder = fake.study.path.parent
    fake.all_done()
    monkeypatch.chdir(folder)
    return folder


def test_a_study_named_study_yaml_is_the_default(here, given):
    assert here.joinpath("study.yaml") == given[0]
    assert inside("status") == inside("status", "study.yaml")
    (here / "study.yaml").rename(here / "other.yaml")
    for words in (
        ["status"],
        ["table"],
        ["publish", "--out", "x"],
        ["cluster", "stop"],
        ["data", "show"],
    ):
        assert inside(*words).refusal.startswith("STUDY: is missing")


def test_the_variable_is_the_default_of_the_option_and_of_python(here, given, monkeypatch):
    shutil.move(here / "results", here / "moved")
    monkeypatch.setenv("ABLATE_RESULTS", "moved")
    states = {run["state"] for run in json.loads(inside("status", "--format", "json").out)["runs"]}
    assert states == {"done"}
    assert str(results_folder(None)) == "moved"
    assert str(results_folder("given")) == "given"
    nowhere = inside("status", "--results", "nowhere", "--format", "json")
    assert {run["state"] for run in json.loads(nowhere.out)["runs"]} == {"pending"}


def test_a_quiet_run_prints_the_table_alone(here, given):
    loud, quiet = inside("run", *given), inside("run", *given, "--quiet")
    assert (quiet.code, quiet.out) == (loud.code, loud.out)
    assert quiet.err in loud.err  # without the lines of progress
