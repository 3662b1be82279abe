"""What differs between the runs behind a table is said under it; what does not is not."""

from ablate.report.render import markdown
from ablate.store.files import read_json, write_json

ONE_SEED = {"seeds": "1"}


def made(results, label, **changes):
    """The row's run was made otherwise."""
    path = results.folder(label, 1).provenance
    write_json(path, {**read_json(path), **changes})


def test_runs_that_were_made_alike_need_no_remark(fake):
    table = fake().all_done().table()
    assert table.remarks == ()
    assert table.as_json()["remarks"] == []
    assert "NOTE" not in markdown(table, against_paper=False)


def test_another_device_another_version_and_another_revision_are_told_with_their_rows(fake):
    results = fake(**ONE_SEED).all_done()
    ours = {"version": "0.2.0", "revision": "a" * 40, "dirty": False}
    for row in results.study.rows:
        made(results, row.label, packages={"torch": "2.13.0", "numpy": "2.0"}, ablate=ours)
    assert results.table().remarks == ()
    made(results, "A h=1", device="NVIDIA H100", packages={"torch": "2.12.0"}, ablate={**ours, "dirty": True})
    remarks = results.table().remarks
    others = "A h=2, D dropout=0.3"
    assert f"NOTE: these runs differ in device: cpu: base, {others}, decoding beam=1; NVIDIA H100: A h=1." in remarks
    assert any("torch: 2.13.0: base" in line and "2.12.0: A h=1." in line for line in remarks)
    assert any("aaaaaaaaaaaa with changes: A h=1." in line for line in remarks)
    assert all(line in markdown(results.table(), against_paper=False) for line in remarks)


def test_a_row_whose_seeds_made_different_numbers_of_updates_is_told(fake):
    results = fake(seeds="1,2").all_done()
    assert results.table().remarks == ()
    results.done("A h=1", 2, 5.0, 25.0, steps=90)
    assert results.table().remarks == ("NOTE: seeds of one row made different numbers of updates: A h=1 (90 to 100).",)


def test_a_row_whose_micro_batches_were_halved_is_told(fake):
    results = fake(**ONE_SEED).all_done()
    path = results.folder("A h=2", 1).result
    write_json(path, {**read_json(path), "halvings": 2, "micro_batch_tokens": 256})
    assert results.table().remarks == (
        "NOTE: memory ran out, so micro-batches were made smaller, at the same batch: A h=2 (256 tokens).",
    )


def test_a_run_whose_provenance_is_damaged_or_lost_is_shown_all_the_same(fake):
    results = fake(**ONE_SEED).all_done()
    results.folder("A h=1", 1).provenance.write_text("{")
    results.folder("A h=2", 1).provenance.unlink()
    assert {row.state for row in results.table().rows} == {"done"}
