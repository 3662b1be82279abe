"""Paths of a results root. None of them leads outside."""

import os
from pathlib import Path

import pytest

from ablate.errors import Damaged, UsageError
from ablate.store import Results, checkpoints
from tests.records import a_failure, a_progress, a_provenance, a_result, a_run, an_execution

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
    assert results.origin("table3") == results.root / ".origins" / "table3"
    assert results.judged("table3") == results.root / ".judged" / "table3"


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


def test_every_record_of_a_run_is_read_from_its_file(results):
    run = results.run(ID)
    written = {
        run.read_run: a_run(ID), run.read_execution: an_execution(), run.read_provenance: a_provenance(),
        run.read_progress: a_progress(), run.read_failure: a_failure(), run.read_result: a_result(ID),
    }  # fmt: skip
    files = (run.run, run.execution, run.provenance, run.progress, run.failure, run.result)
    for path, record in zip(files, written.values(), strict=True):
        record.write(path)
    assert {read: read() for read in written} == written


def test_the_result_of_another_run_is_damage(results):
    result = a_result(ID)
    result.write(results.run(ID).result)
    assert results.run(ID).read_result() == result
    result.write(results.run("f" * 12).result)
    with pytest.raises(Damaged, match=f"is the result of run {ID}"):
        results.run("f" * 12).read_result()


def test_whatever_is_no_file_or_folder_of_its_name_is_put_aside(results):
    run = results.run(ID)
    a_result(ID).write(run.result)
    for path in (run.checkpoints, run.predictions("def"), run.progress, run.scores("abc")):
        path.mkdir(parents=True)
    run.lease.symlink_to("lease")
    run.predictions("abc").write_text("kana\n")
    run.sources.write_text("no folder")
    run.log.write_text("a line\n")
    wrong = [run.sources, run.progress, run.lease, run.predictions("def"), run.scores("abc")]
    assert run.make_room() == wrong
    assert [path.with_name(f"{path.name}.damaged").exists() for path in wrong] == [
        True, True, False, True, True,
    ]  # fmt: skip
    assert run.lease.with_name("lease.damaged").is_symlink()
    assert not any(path.exists() or path.is_symlink() for path in wrong)
    assert (run.predictions("abc").read_text(), run.log.read_text()) == ("kana\n", "a line\n")
    assert run.make_room() == []


def test_pipes_in_the_place_of_files_are_put_aside_and_never_waited_for(results):
    run = results.run(ID)
    run.checkpoints.mkdir(parents=True)
    pipes = [run.execution, run.result, run.checkpoints / "000000001.json"]
    for path in pipes:
        os.mkfifo(path)
    for read in (run.read_execution, run.read_result):
        with pytest.raises(Damaged):
            read()
    assert checkpoints.valid(run.checkpoints) == []
    assert run.make_room() == pipes
    assert not any(os.path.lexists(path) for path in pipes)


def test_a_folder_among_the_sources_of_own_classes_stays(results):
    """Python may leave compiled code there."""
    compiled = results.run(ID).sources / "__pycache__"
    compiled.mkdir(parents=True)
    assert results.run(ID).make_room() == []
    assert compiled.is_dir()


@pytest.mark.parametrize("after", [False, True])
def test_a_lease_that_changes_hands_at_this_moment_is_not_put_aside(results, monkeypatch, after):
    """One process releases the lease between two looks at it, and after them another one may take
    it.
    """
    run, is_file = results.run(ID), Path.is_file
    run.path.mkdir(parents=True)
    run.lease.touch()

    def look(path):
        if path != run.lease:
            return is_file(path)
        path.unlink()
        found = is_file(path)
        if after:
            path.touch()
        return found

    monkeypatch.setattr(Path, "is_file", look)
    assert run.make_room() == []
    assert run.lease.exists() is after


def test_a_file_in_the_place_of_the_run_is_put_aside(results):
    run = results.run(ID)
    run.path.parent.mkdir(parents=True)
    run.path.write_text("no folder")
    assert run.make_room() == [run.path]
    assert run.path.with_name(f"{ID}.damaged").read_text() == "no folder"


def prepare(folder):
    folder.mkdir(parents=True)
    (folder / "corpus.json").write_text("{}")
    return folder


def test_a_corpus_is_looked_for_here_first_and_then_in_the_shared_folder(
    results, tmp_path, monkeypatch
):
    shared = tmp_path / "shared"
    here = prepare(results.root / "corpora" / ID)
    prepare(shared / ID)
    prepare(shared / "shared-only")
    monkeypatch.delenv("ABLATE_CORPORA", raising=False)
    assert (results.corpora, results.corpus("absent")) == (here.parent, here.parent / "absent")
    assert not results.has_corpus("shared-only")
    monkeypatch.setenv("ABLATE_CORPORA", str(shared))
    assert results.corpora == shared
    assert results.corpus(ID) == here
    assert results.corpus("shared-only") == shared / "shared-only"
    assert results.corpus("absent") == shared / "absent"
    assert [results.has_corpus(id) for id in (ID, "shared-only", "absent")] == [True, True, False]
    monkeypatch.setenv("ABLATE_CORPORA", "~/corpora")
    assert results.corpora == Path.home() / "corpora"
    monkeypatch.setenv("ABLATE_CORPORA", "~no-such-user/corpora")
    with pytest.raises(UsageError, match=r"^ABLATE_CORPORA: .*no-such-user"):
        _ = results.corpora


def test_paths_of_study_files_are_kept_by_the_name_of_the_study(results):
    assert results.origins() == []
    for name in ("b", "a"):
        results.origin(name).parent.mkdir(parents=True, exist_ok=True)
        results.origin(name).write_text(f"../{name}.yaml\n")
    assert results.origins() == [results.root / ".origins" / "a", results.root / ".origins" / "b"]
