"""Paths of a results root. None of them leads outside."""

import pytest

from ablate.errors import Damaged
from ablate.store import Results
from tests.records import a_result

ID = "0123456789ab"


@pytest.fixture
def results(tmp_path):
    return Results(tmp_path / "results")


def test_paths_are_the_documented_ones(results):
    run = results.run(ID)
    names = {
        run.run: "run.json", run.execution: "execution.json", run.provenance: "provenance.json",
        run.metrics: "metrics.jsonl", run.progress: "progress.json", run.checkpoints: "checkpoints",
        run.failure: "failure.json", run.log: "log.txt", run.lease: "lease", run.result: "result.json",
        run.predictions("ba9876543210"): "translations/ba9876543210.txt",
        run.scores("ba9876543210"): "scores/ba9876543210.json", run.sources: "sources",
    }  # fmt: skip
    assert len(names) == 13
    found = {path.relative_to(results.root).as_posix(): name for path, name in names.items()}
    assert found == {f"runs/{ID}/{name}": name for name in names.values()}
    assert results.corpora == results.root / "corpora"
    assert results.study("table3") == results.root / "table3"


def test_a_runs_folder_is_named_by_its_id(results):
    assert results.run(ID).id == ID


NO_IDS = [
    "", "0123456789a", "0123456789abc", "0123456789AB", "0123456789ag", "../../../etc", f"{ID}\n", "0123456789/a",
    f" {ID}",
]  # fmt: skip


@pytest.mark.parametrize("id", NO_IDS)
def test_only_twelve_hexadecimal_digits_are_an_id(results, id):
    with pytest.raises(AssertionError):
        results.run(id)


def test_run_ids_are_sorted_and_other_folders_are_ignored(results):
    for name in ("ffffffffffff", ID, "notes", ".0123456789ab.tmp", "0123456789abc"):
        (results.root / "runs" / name).mkdir(parents=True)
    assert results.run_ids() == [ID, "ffffffffffff"]


def test_a_missing_root_has_no_runs(results):
    assert results.run_ids() == []
    assert not results.root.exists()


def test_every_record_of_an_empty_run_is_none(results):
    run = results.run(ID)
    readers = (run.read_run, run.read_execution, run.read_provenance, run.read_progress, run.read_failure)
    assert [read() for read in (*readers, run.read_result)] == [None] * 6


def test_the_result_of_another_run_is_damage(results):
    result = a_result(ID)
    result.write(results.run(ID).result)
    assert results.run(ID).read_result() == result
    result.write(results.run("f" * 12).result)
    with pytest.raises(Damaged, match=f"is the result of run {ID}"):
        results.run("f" * 12).read_result()


def test_the_folders_in_which_writers_leave_temporary_files(results):
    run = results.run(ID)
    written = {run.path, run.checkpoints, run.predictions("ba9876543210").parent, run.scores("ba9876543210").parent}
    assert len(run.folders) == len(written) == 4
    assert set(run.folders) == written
