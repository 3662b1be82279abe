"""The published files of a study."""

import json

from ablate.report.render import as_json, comma_separated, markdown, publish
from ablate.store.records import Provenance
from tests.records import change


def test_measured_times_are_not_published(fake):
    results = fake().all_done()
    publish(results.table(), results.results)
    folder = results.results.study("small")
    assert all("seconds" not in (folder / name).read_text() for name in ("table.csv", "table.json", "table.md"))
    assert all("seconds" in form(results.table()) for form in (comma_separated, as_json))


def test_the_files_are_the_table_in_three_formats_the_study_and_its_provenance(fake):
    results = fake().all_done()
    table = results.table()
    publish(table, results.results)
    folder = results.results.root / "small"
    names = ["provenance.json", "study.yaml", "table.csv", "table.json", "table.md"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert (folder / "table.md").read_text() == markdown(table, against_paper=False)
    assert (folder / "table.csv").read_text() == comma_separated(table, timed=False)
    assert (folder / "table.json").read_text() == as_json(table, timed=False)
    assert (folder / "study.yaml").read_text() == results.study.path.read_text()


def test_provenance_lists_every_run_and_each_setting_once(fake):
    results = fake(seeds="1").all_done()
    change(Provenance, results.folder("A h=1", 1).provenance, threads=99)
    results.folder("A h=2", 1).result.unlink()
    publish(results.table(), results.results)
    found = json.loads((results.results.root / "small" / "provenance.json").read_text())
    assert [setting["threads"] for setting in found["carried_out"]][1:] == [99]
    assert len(found["carried_out"]) == 2
    runs = {results.folder(label, 1).id: index for label, index in (("base", 0), ("A h=1", 1), ("D dropout=0.3", 0))}
    assert {id: run["carried_out"] for id, run in found["runs"].items()} == runs


def test_publishing_again_replaces_the_files(fake):
    results = fake(seeds="1")
    publish(results.table(), results.results)
    results.all_done()
    publish(results.table(), results.results)
    folder = results.results.root / "small"
    assert json.loads((folder / "table.json").read_text())["rows"][0]["state"] == "done"
    assert not list(folder.glob(".*"))
