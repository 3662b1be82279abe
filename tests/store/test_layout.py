"""Every path of a results root, and that nothing escapes it."""

import pytest

from ablate.store import Results
from ablate.store.files import write_json
from ablate.store.layout import RESULT_FORMAT

ID = "0123456789ab"


@pytest.fixture
def results(tmp_path):
    return Results(tmp_path / "results")


def test_paths_are_those_that_are_documented(results):
    run = results.run(ID)
    names = {
        run.run: "run.json", run.execution: "execution.json", run.provenance: "provenance.json",
        run.metrics: "metrics.jsonl", run.progress: "progress.json", run.checkpoints: "checkpoints",
        run.failure: "failure.json", run.log: "log.txt", run.lease: "lease", run.result: "result.json",
        run.translations("ba9876543210"): "translations/ba9876543210.txt",
    }  # fmt: skip
    assert {path.relative_to(results.root).as_posix() for path in names} == {f"runs/{ID}/{n}" for n in names.values()}
    assert len(names) == 11
    assert results.corpora == results.root / "corpora"
    assert results.study("table3") == results.root / "table3"


def test_a_run_is_named_by_its_id(results):
    assert results.run(ID).id == ID


NO_IDS = [
    "", "0123456789a", "0123456789abc", "0123456789AB", "0123456789ag", "../../../etc", f"{ID}\n", "0123456789/a",
    f" {ID}",
]  # fmt: skip


@pytest.mark.parametrize("id", NO_IDS)
def test_only_twelve_hexadecimal_digits_are_an_id(results, id):
    with pytest.raises(AssertionError):
        results.run(id)


def test_runs_are_listed_in_order_and_nothing_else_is(results):
    for name in ("ffffffffffff", ID, "notes", ".0123456789ab.tmp", "0123456789abc"):
        (results.root / "runs" / name).mkdir(parents=True)
    assert results.run_ids() == [ID, "ffffffffffff"]


def test_a_root_that_is_not_there_has_no_runs(results):
    assert results.run_ids() == []
    assert not results.root.exists()


def test_a_result_is_read_or_none(results):
    assert results.run(ID).read_result() is None
    written = {"format": RESULT_FORMAT, "id": ID, "outcome": "done"}
    write_json(results.run(ID).result, written)
    assert results.run(ID).read_result() == written
