"""A fixed part of the sweep: no traceback, nothing silently wrong, no study lost to one file."""

from pathlib import Path

import pytest

from ablate.publication import folder
from tests.cli.inside import Done
from tests.faults import sweep as module
from tests.faults.sweep import (
    BAD,
    QUICK_DAMAGES,
    QUICK_FILES,
    QUICK_VERBS,
    SILENT,
    Sweep,
    sweep,
)


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    return Sweep(tmp_path_factory.mktemp("sweep"), verbs=QUICK_VERBS)


def test_no_damaged_file_is_silently_wrong_or_takes_the_whole_study(cases):
    outcomes = list(sweep(cases, quick=True))
    assert {one.verb for one in outcomes} == set(QUICK_VERBS)
    assert len(outcomes) == len(QUICK_FILES) * len(QUICK_DAMAGES) * len(QUICK_VERBS)
    assert [one for one in outcomes if one.outcome.partition(":")[0] in BAD] == []
    assert any(one.outcome == "said" for one in outcomes)


def test_a_run_makes_translations_and_the_published_table_again(cases, monkeypatch):
    (translations,) = (file for file in cases.files() if file.parent.name == "translations")
    published = Path("results/sweep/table.md")

    def outcome(file):
        return [one.outcome for one in cases.damaged(file, "other content", ["run"])]

    assert outcome(translations) == outcome(published) == ["healed"]
    monkeypatch.setattr(folder, "publish", lambda table, results: [])
    assert outcome(published) == [SILENT]


def test_the_outcome_of_a_command_that_was_stopped_is_not_judged(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "inside", lambda *words, stdin: Done(130, "half a table", ""))
    with pytest.raises(KeyboardInterrupt):
        Sweep(tmp_path)
