"""The published files of a study."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from ablate.errors import StoreError, StudyError
from ablate.publication.folder import publish, without_paths
from ablate.publication.name import claim
from ablate.store import Results
from ablate.store.files import write_bytes
from ablate.store.records import Provenance
from ablate.study import read_study
from ablate.table.render import as_json, comma_separated, markdown
from tests.cli.inside import inside
from tests.records import change
from tests.report.fakes import SMALL


def test_the_files_are_the_table_in_three_formats_the_study_and_its_provenance(fake):
    results = fake().all_done()
    table = results.table()
    publish(results.outcome(), results.results)
    folder = results.results.root / "small"
    names = ["provenance.json", "study.yaml", "table.csv", "table.json", "table.md"]
    assert sorted(path.name for path in folder.iterdir()) == names
    assert (folder / "table.md").read_text() == markdown(table, against_paper=False)
    assert (folder / "table.csv").read_text() == comma_separated(table, timed=False)
    assert (folder / "table.json").read_text() == as_json(table, timed=False)
    assert (folder / "study.yaml").read_text() == results.study.path.read_text()


@pytest.mark.parametrize("written", range(5))
def test_an_interrupted_publication_is_made_by_the_next_one(fake, tmp_path, monkeypatch, written):
    results = fake(seeds="1").all_done()
    given = (results.outcome(), results.results, tmp_path / "to")
    calls = []

    def stop(path, content, **options):
        if len(calls) == written:
            raise KeyboardInterrupt
        calls.append(path)
        write_bytes(path, content, **options)

    with monkeypatch.context() as patch:
        patch.setattr("ablate.publication.folder.write_bytes", stop)
        with pytest.raises(KeyboardInterrupt):
            publish(*given)
    assert len(list(tmp_path.glob("to/*"))) == written
    assert len(publish(*given)) == len(list(tmp_path.glob("to/*"))) == 5


def test_published_runs_that_are_not_finished_are_pending_and_failures_are_named(fake):
    results = fake(seeds="1, 2")
    for row, score in (("base", 25.0), ("A h=1", 24.0), ("A h=2", 23.0)):
        results.done(row, 1, 5.0, score)
    results.at("base", 2, 40, alive=True)
    results.at("A h=1", 2, 60, alive=False)
    results.failed("A h=2", 2, "out of memory")
    publish(results.outcome(), results.results)
    table = (results.results.root / "small/table.md").read_text()
    assert "- 1 of 2 seeds done, the others pending: base, A h=1" in table
    assert "- 1 of 2 seeds done; failed at step 3: A h=2" in table
    assert table.count("at step") == 1


def test_provenance_lists_every_run_and_each_setting_once(fake):
    results = fake(seeds="1").all_done()
    change(Provenance, results.folder("A h=1", 1).provenance, threads=99)
    results.folder("A h=2", 1).result.unlink()
    publish(results.outcome(), results.results)
    found = json.loads((results.results.root / "small" / "provenance.json").read_text())
    assert [setting["threads"] for setting in found["carried_out"]][1:] == [99]
    assert len(found["carried_out"]) == 2
    runs = {
        results.folder(label, 1).id: index
        for label, index in (("base", 0), ("A h=1", 1), ("D dropout=0.3", 0))
    }
    assert {id: run["carried_out"] for id, run in found["runs"].items()} == runs


def test_lines_on_damaged_files_name_them_in_the_results_root(fake):
    """Published files have no folder of the machine that wrote them."""
    results = fake().all_done()
    for label, seed, file in (("base", 1, "result"), ("A h=1", 2, "metrics")):
        getattr(results.folder(label, seed), file).write_text("{")
    assert str(results.results.root) in as_json(results.table())
    publish(results.outcome(), results.results)
    folder = results.results.study("small")
    names = ("table.md", "table.csv", "table.json")
    texts = {name: (folder / name).read_text() for name in names}
    for text in texts.values():
        assert str(results.results.root.parent) not in text
        assert str(Path.home()) not in text.replace("~", "")
    damaged = results.folder("base", 1).id
    assert f"runs/{damaged}/result.json: is damaged" in texts["table.json"]


def test_a_folder_is_a_root_only_where_a_path_begins(fake):
    results = fake().all_done()
    root = results.results.root
    lines = (f"{root}/runs/a", f"/mnt{root}/runs/a", f'see "{root}/b" and {root}/c')
    outcome = results.outcome()
    table = outcome.table.with_notes(replace(outcome.experiment.notes, faults=lines))
    found = without_paths(replace(outcome, table=table), results.results)
    assert found.experiment.notes.faults == ("runs/a", f"/mnt{root}/runs/a", 'see "b" and c')


def test_a_folder_in_the_place_of_one_file_is_named_before_any_file_is_replaced(fake):
    results = fake(seeds="1")
    publish(results.outcome(), results.results)
    folder = results.results.root / "small"
    (folder / "provenance.json").unlink()
    (folder / "provenance.json").mkdir()
    before = (folder / "table.md").read_text()
    results.all_done()
    with pytest.raises(
        StoreError, match=r"small/provenance\.json: is a folder, where .* move it away"
    ):
        publish(results.outcome(), results.results)
    assert (folder / "table.md").read_text() == before


# --- one name, one file


@pytest.fixture
def studies(tmp_path, monkeypatch):
    """Claims results/<name>/ for a study file of this name and text."""
    monkeypatch.chdir(tmp_path)

    def claimed(file, text):
        Path(file).parent.mkdir(exist_ok=True)
        Path(file).write_text(text)
        claim(read_study(Path(file)), Results(Path("results")))

    return claimed


A, B = (
    "study: s\ndata: {corpus: toy, vocab_size: 350}\n",
    "# other\nstudy: s\ndata: {corpus: toy, vocab_size: 200}\n",
)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_is_no_record_of_a_study_file_is_put_aside_for_one(studies, make):
    Path("results/.origins").mkdir(parents=True)
    make("results/.origins/s")
    studies("a.yaml", A)
    assert Path("results/.origins/s").read_text() == "../a.yaml\n"


def test_a_second_file_with_the_name_of_a_study_is_refused(studies):
    studies("a.yaml", A)
    studies("a.yaml", A + "seeds: [1, 2]\n")  # an edited study keeps its folder
    assert Path("results/.origins/s").read_text() == "../a.yaml\n"
    with pytest.raises(StudyError) as refused:
        studies("sub/b.yaml", B)
    assert refused.value.lines == (
        'sub/b.yaml:2:8: the name "s" belongs to a.yaml, whose table is in results/s; choose '
        "another name, "
        "or another --results",
    )
    assert Path("results/.origins/s").read_text() == "../a.yaml\n"


def test_names_that_differ_in_case_or_at_the_end_are_one_name(studies):
    studies("a.yaml", A)
    for name in ("S", "s."):
        with pytest.raises(StudyError, match=r"belongs to a\.yaml, whose table is in results/s;"):
            studies("b.yaml", B.replace("study: s", f"study: {name}"))
    studies("b.yaml", B.replace("study: s", "study: s2"))


def test_a_copy_does_not_take_over_the_name_of_the_first_file(studies):
    studies("a.yaml", A)
    studies("copy/a.yaml", A)
    assert Path("results/.origins/s").read_text() == "../a.yaml\n"
    with pytest.raises(StudyError, match=r"belongs to a\.yaml"):
        studies("copy/a.yaml", B)
    studies("a.yaml", B)


@pytest.mark.parametrize("freed", ["gone", "renamed"])
def test_a_name_that_is_free_again_may_be_taken(studies, freed):
    studies("a.yaml", A)
    match freed:
        case "gone":
            Path("a.yaml").rename("b.yaml")
        case "renamed":
            Path("a.yaml").write_text(A.replace("study: s", "study: t"))
    studies("b.yaml", B)
    assert Path("results/.origins/s").read_text() == "../b.yaml\n"


@pytest.mark.parametrize("broken", ["study: [", "- s\n", "\xff", ""])
def test_a_file_that_cannot_be_parsed_keeps_its_name(studies, broken):
    studies("a.yaml", A)
    Path("a.yaml").write_bytes(broken.encode("latin-1"))
    with pytest.raises(StudyError, match=r"belongs to a\.yaml"):
        studies("b.yaml", B)


def test_a_file_in_the_private_folder_of_another_user_keeps_its_name(studies, monkeypatch):
    studies("a.yaml", A)
    Path("b.yaml").write_text(B)
    study = read_study(Path("b.yaml"))

    def denied(_):
        raise PermissionError

    monkeypatch.setattr(Path, "is_file", denied)  # modes do not keep root, who runs some tests
    with pytest.raises(StudyError, match=r"belongs to a\.yaml"):
        claim(study, Results(Path("results")))


@pytest.mark.parametrize("damage", [b"", b"\xff", b"a\0b", b"../nowhere.yaml", b"x" * 5000])
def test_a_damaged_origin_is_written_again(studies, damage):
    studies("a.yaml", A)
    Path("results/.origins/s").write_bytes(damage)
    studies("b.yaml", B)
    assert Path("results/.origins/s").read_text() == "../b.yaml\n"


def test_run_and_report_refuse_before_they_write(fake, tmp_path):
    results = fake().all_done()
    root = results.results.root
    assert inside("report", results.study.path, "--results", root).code == 0
    page = (root / "small" / "report.html").read_bytes()
    other = tmp_path / "other.yaml"
    other.write_text(SMALL + "margin: 0.5\n")
    for verb in ("run", "report"):
        done = inside(verb, other, "--results", root)
        assert done.refusal.startswith(f'{other}:1:8: the name "small" belongs to ')
    assert (root / "small" / "report.html").read_bytes() == page
    assert inside("report", other, "--results", root, "--out", tmp_path / "page.html").code == 0
    assert inside("table", other, "--results", root).code == 0  # which writes nothing there
