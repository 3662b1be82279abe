"""Remarks below a table about differences in how its runs were made."""

import json

import pytest

from ablate.analysis.provenance_diff import provenance_remarks
from ablate.analysis.results import RunResult
from ablate.config.data import CorpusConfig
from ablate.config.resolve import resolve_row
from ablate.store.records import CodeVersion, Provenance, Result
from ablate.study import Row, Run
from ablate.table.render import as_json, markdown
from ablate.tasks import TASKS
from tests.records import a_provenance, a_result, change

ONE_SEED = {"seeds": "1"}


def made(results, label, **fields):
    """Change the provenance of a row's run."""
    change(Provenance, results.folder(label, 1).provenance, **fields)


def made_alike(results, **fields):
    """Change the provenance of every row's run."""
    for row in results.study.rows:
        made(results, row.label, **fields)


def test_runs_made_alike_bring_no_remark(fake):
    table = fake().all_done().table()
    assert table.experiment.notes.remarks == ()
    assert json.loads(as_json(table))["remarks"] == []
    assert "note:" not in markdown(table, against_paper=False)


def test_differing_devices_versions_and_revisions_are_listed_with_their_rows(fake):
    results = fake(**ONE_SEED).all_done()
    ours = CodeVersion(version="0.2.0", revision="a" * 40, dirty=False)
    made_alike(results, packages={"torch": "2.13.0", "numpy": "2.0"}, ablate=ours)
    assert results.table().experiment.notes.remarks == ()
    dirty = ours.model_copy(update={"dirty": True})
    made(results, "A h=1", device="NVIDIA H100", packages={"torch": "2.12.0"}, ablate=dirty)
    remarks = results.table().experiment.notes.remarks
    others = "A h=2, D dropout=0.3"
    assert (
        f"These runs differ in device: cpu: base, {others}, decoding beam=1; NVIDIA H100: A "
        f"h=1." in remarks
    )
    assert any("torch: 2.13.0: base" in line and "2.12.0: A h=1." in line for line in remarks)
    revisions = "2 revisions of ablate: aaaaaaaaaaaa, aaaaaaaaaaaa with changes"
    assert f"These runs were trained with {revisions}." in remarks
    assert all(line in markdown(results.table(), against_paper=False) for line in remarks)


def test_two_states_of_uncommitted_changes_are_two_versions_of_the_code(fake):
    results = fake(**ONE_SEED).all_done()
    ours = CodeVersion(version="0.2.0", revision="a" * 40, dirty=True, changes="1" * 12)
    for row in results.study.rows:
        made(results, row.label, ablate=ours)
    assert results.table().experiment.notes.remarks == ()
    made(results, "A h=1", ablate=ours.model_copy(update={"changes": "2" * 12}))
    (remark,) = results.table().experiment.notes.remarks
    named = "aaaaaaaaaaaa with changes 111111111111, aaaaaaaaaaaa with changes 222222222222"
    assert remark == f"These runs were trained with 2 revisions of ablate: {named}."


def test_a_run_that_was_resumed_with_another_version_has_both_versions(fake):
    results = fake(**ONE_SEED).all_done()
    made_alike(results, packages={"torch": "2.13.0"})
    later = a_provenance(packages={"torch": "2.14.0"})
    made(results, "A h=1", later=(later,))
    (remark,) = results.table().experiment.notes.remarks
    assert remark.startswith("These runs differ in torch: 2.13.0: base, A h=1, ")
    assert remark.endswith("; 2.14.0: A h=1.")


def test_versions_of_the_packages_of_own_classes_are_compared(fake):
    """Also over the seeds of one row, which are averaged."""
    results = fake().all_done()
    versions = {"torch": "2.13.0", "fancy": "1.0", "numpy": "2.0"}
    for row in results.study.rows:
        for seed in results.study.seeds.rows:
            folder = results.folder(row.label, seed)
            change(Provenance, folder.provenance, packages=versions)
    newer = {**versions, "fancy": "1.1", "numpy": "2.1"}
    made(results, "A h=1", packages=newer)
    (remark,) = results.table().experiment.notes.remarks
    assert remark.startswith("These runs differ in fancy: 1.0: base, A h=1, ")
    assert remark.endswith("; 1.1: A h=1.")


def test_a_run_of_an_unknown_revision_differs_from_those_of_a_known_one(fake):
    results = fake(**ONE_SEED).all_done()
    known = CodeVersion(version="0.2.0", revision="a" * 40, dirty=False)
    made_alike(results, ablate=known)
    made(results, "A h=1", ablate=CodeVersion(version="0.2.0", revision=None, dirty=None))
    (remark,) = results.table().experiment.notes.remarks
    revisions = "2 revisions of ablate: aaaaaaaaaaaa, not recorded (version 0.2.0)"
    assert remark == f"These runs were trained with {revisions}."


def test_installed_versions_are_compared(fake):
    results = fake(**ONE_SEED).all_done()
    made_alike(results, ablate=CodeVersion(version="0.2.0", revision=None, dirty=None))
    assert results.table().experiment.notes.remarks == ()
    made(results, "A h=1", ablate=CodeVersion(version="0.3.0", revision=None, dirty=None))
    (remark,) = results.table().experiment.notes.remarks
    assert remark.endswith(": not recorded (version 0.2.0), not recorded (version 0.3.0).")


def test_a_row_whose_seeds_made_different_numbers_of_updates_is_listed(fake):
    results = fake(seeds="1,2").all_done()
    assert results.table().experiment.notes.remarks == ()
    results.done("A h=1", 2, 5.0, 25.0, steps=90)
    assert results.table().experiment.notes.remarks == (
        "Seeds of one row made different numbers of updates: A h=1 (90 to 100).",
    )


def test_a_row_with_halved_micro_batches_is_listed(fake):
    results = fake(**ONE_SEED).all_done()
    change(Result, results.folder("A h=2", 1).result, halvings=2, micro_batch_tokens=256)
    assert results.table().experiment.notes.remarks == (
        "Memory ran out, so micro-batches were made smaller, at the same batch: A h=2 (256 "
        "tokens).",
    )


def test_of_several_seeds_the_one_with_least_memory_is_listed(fake):
    results = fake(seeds="1,2").all_done()
    for seed, size in ((1, 256), (2, 512)):
        change(Result, results.folder("A h=2", seed).result, halvings=1, micro_batch_tokens=size)
    (remark,) = results.table().experiment.notes.remarks
    assert remark.endswith(": A h=2 (256 tokens).")


def test_a_run_with_damaged_or_missing_provenance_still_shows_its_scores(fake):
    results = fake(**ONE_SEED).all_done()
    results.folder("A h=1", 1).provenance.write_text("{")
    results.folder("A h=2", 1).provenance.unlink()
    assert {row.state for row in results.table().rows} == {"done"}


@pytest.mark.parametrize(("setting", "remarks"), [(None, 1), ("auto", 1), ("bf16", 0)])
def test_a_precision_that_a_device_chose_is_remarked_and_one_that_the_row_names_is_not(
    setting, remarks
):
    runs = []
    for label, chosen, asked in (("base", "fp32", None), ("X", "bf16", setting)):
        row = Row(label, "", resolve_row({"precision": asked}), "")
        run = Run(label, 1, row.config, CorpusConfig(corpus="files", train="-", dev="-", test="-"))
        made = {"result": a_result(), "provenance": a_provenance(precision=chosen)}
        runs.append(RunResult(row, run, "done", 0, **made))
    lines = list(provenance_remarks(TASKS["translation"], runs))
    assert len(lines) == remarks
    assert all(line == "These runs differ in precision: fp32: base; bf16: X." for line in lines)
