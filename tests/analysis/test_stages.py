"""What is next in a study is computed once for each change."""

import pytest

from ablate.analysis import stages
from ablate.analysis.stages import advance, execute_stages, next_stage
from tests.cli.inside import inside


@pytest.fixture
def computed(monkeypatch):
    """How many runs are missing, as often as that is computed."""
    computed, missing_runs = [], stages.missing_runs

    def count(*arguments):
        computed.append(len(missing_runs(*arguments)))
        return missing_runs(*arguments)

    monkeypatch.setattr(stages, "missing_runs", count)
    return computed


@pytest.fixture
def judged(monkeypatch):
    """The studies whose looks are found out."""
    judged, read_current_look = [], stages.read_current_look

    def count(planned, *rest):
        judged.append(planned)
        return read_current_look(planned, *rest)

    monkeypatch.setattr(stages, "read_current_look", count)
    return judged


def finish(results, runs):
    """End these runs for each of their rows, which may differ in decoding alone."""
    for row in results.study.rows:
        for run in results.planned.of(row):
            if run.id in runs:
                results.done(row.label, run.seed, 5.0, 25.0)


def test_in_a_study_of_one_stage_it_is_computed_once(fake, judged, computed):
    results = fake()
    executed = []

    def execute(stage):
        executed.append(stage)
        finish(results, stage.missing)

    first = next_stage(results.study, results.results)
    end = execute_stages(first, results.results, execute, print)
    assert executed == [first]
    assert len(judged) == 1
    assert computed == [12, 0]  # before the first run, and which of them are left to others
    assert (end.missing, end.is_over) == ((), True)


@pytest.mark.parametrize("words", [("plan",), ("status",), ("status", "--watch")])
def test_a_command_computes_it_once(fake, judged, words):
    results = fake()
    finish(results, {run.id for run in results.planned})
    verb, *options = words
    done = inside(verb, results.study.path, "--results", results.results.root, *options)
    assert (done.code, done.err) == (0, "")
    assert len(judged) == 1


def test_runs_that_others_hold_are_left_to_them(fake):
    results = fake()
    first = next_stage(results.study, results.results)
    finish(results, first.missing[:-1])
    end = advance(first, results.results)
    assert (end.missing, end.skipped, end.is_over) == ((), {first.missing[-1]}, False)
