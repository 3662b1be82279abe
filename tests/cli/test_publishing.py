"""`ablate report`, `ablate compare` and the forms of `ablate table`, on results written by hand."""

import csv
import io
import json
import os
import shutil
import zipfile

import pytest

from ablate.analysis.missing import missing_runs
from ablate.errors import StoreError
from ablate.launch.launch import outcome_of_launch
from ablate.plotting import FORMATS
from ablate.publication.archive import archive_of
from ablate.store import Results, state_of
from ablate.store.audit import Audit, audit
from ablate.store.records import Failure, Result
from ablate.store.status import NO_DECODING
from ablate.study import runs_of
from tests.cli.inside import inside
from tests.page.conftest import REFERENCES, SOURCES, Whole
from tests.records import a_failure, change
from tests.report.fakes import SMALL, study_from


@pytest.fixture
def whole(tmp_path):
    return Whole(tmp_path / "results", study_from(tmp_path, SMALL)).fill()


@pytest.fixture(autouse=True)
def undrawn(monkeypatch):
    """One figure without content: tests/page draws them all."""
    monkeypatch.setattr(
        "ablate.page.sections.figure_files",
        lambda table, curves, formats=FORMATS: {
            f"against-base-bleu.{kind}": b"" for kind in formats
        },
    )


@pytest.fixture
def given(whole):
    return whole.study.path, "--results", whole.results.root


def test_every_table_format_works_with_and_without_cost_and_paper(given):
    for form, start in (
        ("markdown", "- Base reaches "), ("latex", "% Compiles"), ("html", "<figure"), ("csv", "row,"), ("json", "{"),
    ):  # fmt: skip
        done = inside("table", *given, "--format", form)
        assert (done.code, done.err) == (0, "")
        assert done.out.startswith(start)
        wide = inside("table", *given, "--format", form, "--wide")
        assert (wide == done) == (form != "latex")  # the other formats have all columns
        extra = inside("table", *given, "--format", form, "--cost", "--against", "paper")
        if form == "json":
            assert extra.code == 2
            assert "--against has no effect with --format json" in extra.err
        elif form == "csv":
            assert "paper_ppl" in extra.out
            assert "paper" not in done.out
        else:
            assert "FLOPs: of one training" in extra.out
            assert "tau-b with base" in " ".join(extra.out.split())


@pytest.mark.parametrize("form", ["csv", "json", "markdown", "latex", "html"])
def test_equal_work_gives_equal_bytes_whatever_time_it_took(given, whole, form):
    before = inside("table", *given, "--format", form)
    timed = inside("table", *given, "--format", form, "--cost")
    for seed in whole.study.seeds.rows:
        change(Result, whole.folder("A h=1", seed).result, seconds=7.25 * seed)
    assert inside("table", *given, "--format", form) == before
    assert inside("table", *given, "--format", form, "--cost").out != timed.out
    assert ("seconds" in before.out, "seconds" in timed.out) == (False, form in ("csv", "json"))


def test_json_has_the_verdicts_with_their_tests(given):
    rows = json.loads(inside("table", *given, "--format", "json").out)["rows"]
    found = rows[1]["against_base"]["bleu"]
    assert found.keys() == {
        "verdict", "text", "n", "mean", "std", "low", "high", "p", "p_holm", "p_own", "p_adjusted",
        "minimum_detectable", "test_set", "more_seeds", "margin", "within_margin", "diverged",
    }  # fmt: skip
    assert found["low"] <= found["mean"] <= found["high"]
    assert found["p"] <= found["p_holm"]
    assert found["test_set"].keys() == {"low", "high", "p", "p_holm"}
    assert rows[0]["against_base"] == {}
    assert rows[1]["against_base"]["ppl"]["test_set"] is None
    lines = list(csv.DictReader(io.StringIO(inside("table", *given, "--format", "csv").out)))
    assert float(lines[1]["delta_bleu_p_holm"]) == found["p_holm"]
    assert float(lines[1]["delta_bleu_p_adjusted"]) == found["p_adjusted"] >= found["p_holm"]
    assert lines[1]["verdict_bleu"] == found["verdict"]


def test_the_report_is_written_to_its_default_path_or_to_out(given, whole, tmp_path):
    done = inside("report", *given)
    path = whole.results.study("small") / "report.html"
    assert (done.code, done.out) == (0, f"Wrote {path}\n")
    assert path.read_text() == whole.page() or SOURCES[1] in path.read_text()
    done = inside("report", *given, "--out", tmp_path / "new" / "page.html", "--sentences", 0)
    assert done.refusal == f"--out {tmp_path}/new/page.html: there is no folder {tmp_path}/new"
    done = inside("report", *given, "--out", tmp_path / "page.html", "--sentences", 0)
    assert done.code == 0
    assert "Sample 1" not in (tmp_path / "page.html").read_text()


def test_figures_are_written_beside_the_report(given, tmp_path):
    done = inside("report", *given, "--figures", tmp_path / "figures")
    assert done.code == 0
    assert done.out.count("Wrote ") == 1 + 3  # the page, and a figure in three formats
    assert (tmp_path / "figures" / "against-base-bleu.pdf").exists()


@pytest.mark.parametrize("kind", ["pdf", "png", "svg", "PNG"])
def test_a_figure_s_file_name_is_refused_since_figures_are_a_folder(given, tmp_path, kind):
    from ablate.cli.report import FIGURE_KINDS

    assert FIGURE_KINDS == FORMATS
    name = tmp_path / f"out.{kind}"
    done = inside("report", *given, "--figures", name)
    said = f"--figures {name}: is the name of a file; give a folder, for figures in three formats\n"
    assert (done.code, done.out, done.err.splitlines()[-1] + "\n") == (2, "", said)
    assert not name.exists()


def test_figures_cannot_replace_a_file(given, tmp_path):
    (tmp_path / "file").write_text("mine")
    done = inside("report", *given, "--figures", tmp_path / "file")
    assert done.refusal == f"--figures {tmp_path / 'file'}: not a folder"


def test_the_report_cannot_replace_the_study_or_a_folder(given, whole, tmp_path):
    text = whole.study.path.read_text()
    done = inside("report", *given, "--out", whole.study.path)
    assert (
        done.refusal
        == f"--out {whole.study.path}: is an input of this command; choose another name"
    )
    assert whole.study.path.read_text() == text
    done = inside("report", *given, "--out", tmp_path)
    said = f"--out {tmp_path}: is a folder; give a file"
    assert done.refusal == said


def test_attention_needs_a_finished_run(given, whole):
    whole.folder("base", 1).result.unlink()
    done = inside("report", *given, "--attention", "a b")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "base is not done with the study's first seed" in done.err


def test_compare_shows_settings_scores_curves_and_sentences(given):
    done = inside("compare", *given[:1], "base", "A h=1", *given[1:])
    assert (done.code, done.err) == (0, "")
    for part in (
        "\nh        ",
        "95 % over 3 seeds",
        "95 % over test sentences",
        "PPL (dev) of single checkpoints, from the first",
        REFERENCES[2],
    ):
        assert part in done.out, part
    content = json.loads(
        inside("compare", *given[:1], "base", "A h=1", *given[1:], "--format", "json").out
    )
    assert content["rows"] == ["base", "A h=1"]
    assert content["seed_of_sentences"] == 1
    assert 1 <= len(content["sentences"]) <= 6
    assert all(one["bleu"][0] != one["bleu"][1] for one in content["sentences"])


def test_compare_without_translations_has_all_but_the_sentences(given, whole):
    for path in whole.results.root.glob("runs/*/translations/*"):
        path.unlink()
    done = inside("compare", *given[:1], "base", "A h=1", *given[1:])
    assert done.code == 0
    assert "No seed has predictions of both rows." in done.out


@pytest.mark.skipif(os.name != "posix", reason="permissions")
def test_results_that_cannot_be_written_are_shown_without_new_scores(given, whole, monkeypatch):
    for path in whole.results.root.glob("runs/*/scores/*"):
        path.unlink()

    def refuse(path, *rest, **more):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("ablate.store.records.write_json", refuse)
    done = inside("table", *given)
    assert done.code == 0
    assert "BLEU" in done.out
    assert "Permission denied; new scores are left out\n" in done.out


def publish(whole, folder, root=None):
    root = root or whole.results.root
    return inside("publish", whole.study.path, "--results", root, "--out", folder)


def published(whole, folder, notes=""):
    done = publish(whole, folder)
    assert (done.code, done.err) == (0, notes)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def unpack(whole, folder, notes=""):
    """Publish the study, and unpack its archive into a results root."""
    published(whole, folder / "to", notes)
    with zipfile.ZipFile(folder / "to" / "records.zip") as archive:
        archive.extractall(folder / "unpacked")
    return folder / "unpacked"


def test_publishing_writes_tables_figures_and_records_and_says_so(whole, tmp_path, monkeypatch):
    monkeypatch.undo()  # draw the figures
    files = published(whole, tmp_path / "one")
    assert {
        "table.md", "table.csv", "table.json", "study.yaml", "provenance.json", "records.zip",
    } < files.keys()  # fmt: skip
    assert b"</svg>" in files["against-base-bleu.svg"]
    assert published(whole, tmp_path / "two") == files
    done = publish(whole, tmp_path / "three")
    assert sorted(done.out.splitlines()) == sorted(
        f"Wrote {tmp_path / 'three' / name}" for name in files
    )


def test_the_archive_is_a_results_root_that_judges_alike_without_text_or_weights(whole, tmp_path):
    unpacked = unpack(whole, tmp_path)
    names = [path.name for path in unpacked.rglob("*")]
    assert not [name for name in names if name.endswith((".txt", ".safetensors", "translations"))]
    forms = {}
    for root in (whole.results.root, unpacked):
        done = inside("table", whole.study.path, "--results", root, "--format", "json")
        assert (done.code, done.err) == (0, "")
        forms[root] = json.loads(done.out)
    first, again = forms.values()
    runs = sum(row["bleu"]["n"] for row in first["rows"])
    assert again.pop("remarks") == [
        f"{runs} runs from an archive of records: scores as stored, without predictions.", *first.pop("remarks")
    ]  # fmt: skip
    assert again == first


def test_what_is_published_from_an_unpacked_archive_is_what_was_published_first(whole, tmp_path):
    first, again = tmp_path / "to", tmp_path / "again"
    published(whole, first)
    unpacked = unpack(whole, tmp_path)
    assert publish(whole, again, unpacked).code == 0
    for name in ("table.md", "table.csv", "table.json", "study.yaml", "provenance.json"):
        assert (again / name).read_bytes() == (first / name).read_bytes(), name


def test_the_corpus_of_an_unpacked_archive_is_not_damaged_and_the_page_has_no_samples(
    whole, tmp_path
):
    root = unpack(whole, tmp_path)
    (corpus,) = (root / "corpora").iterdir()
    shown = inside("report", whole.study.path, "--results", root, "--out", tmp_path / "page.html")
    said = f"{corpus}: is of an archive of records, without texts. The page has no samples"
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.splitlines()[0] == said
    assert 'id="samples"' not in (tmp_path / "page.html").read_text()
    verify = ("verify", whole.study.path, "--results", root, "--stored")
    assert str(corpus) not in inside(*verify).out
    (corpus / "test.source.txt").write_text("no longer the text")
    assert f"{corpus / 'test.source.txt'}: is damaged" in inside(*verify).out


def test_rows_are_added_to_an_unpacked_archive_without_training_it_again(whole, tmp_path):
    unpacked = Results(unpack(whole, tmp_path))
    assert missing_runs(whole.planned, unpacked) == []
    assert outcome_of_launch(whole.planned, unpacked) == outcome_of_launch(
        whole.planned, whole.results
    )
    wider = study_from(tmp_path, SMALL + "  C: {each: {N: [1]}}\n")
    new = [run.id for run in runs_of(wider) if run.id not in {run.id for run in whole.planned}]
    assert new
    assert missing_runs(runs_of(wider), unpacked) == new
    assert faults_in(unpacked, whole.study) == faults_in(whole.results, whole.study)


def faults_in(results, study):
    into = Audit()
    for run in runs_of(study):
        audit(results.run(run.id), into)
    return [fault.removeprefix(str(results.root)) for fault in into.faults]


def test_an_archived_run_has_no_score_in_a_metric_that_the_archive_lacks(whole, tmp_path):
    unpack(whole, tmp_path)
    shutil.copytree(whole.results.corpora, tmp_path / "unpacked/corpora", dirs_exist_ok=True)
    study_from(tmp_path, "metrics: [ter]\n" + SMALL)
    done = inside("table", whole.study.path, "--results", tmp_path / "unpacked", "--format", "json")
    assert (done.code, done.err) == (0, "")
    assert [row["ter"]["n"] for row in json.loads(done.out)["rows"]] == [
        0 for _ in whole.study.rows
    ]


def test_the_archive_is_the_same_with_corpora_that_several_roots_share(
    whole, tmp_path, monkeypatch
):
    before = published(whole, tmp_path / "one")["records.zip"]
    shutil.move(whole.results.root / "corpora", tmp_path / "shared")
    monkeypatch.setenv("ABLATE_CORPORA", str(tmp_path / "shared"))
    assert published(whole, tmp_path / "two")["records.zip"] == before
    with zipfile.ZipFile(tmp_path / "two" / "records.zip") as archive:
        assert [name for name in archive.namelist() if name.startswith("corpora/")]


@pytest.mark.parametrize(
    "linked", ["run.json", "metrics.jsonl", "sources/0123456789ab.py", "sources"]
)
def test_a_link_in_the_results_of_a_stranger_publishes_no_file_of_the_reader(
    whole, tmp_path, linked
):
    private = tmp_path / "private"
    private.mkdir()
    (private / "0123456789ab.py").write_text("a key")
    path = whole.folder("base", 1).path / linked
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(private if linked == "sources" else private / "0123456789ab.py")
    with pytest.raises(StoreError, match=f"{linked}: is a symbolic link, and is not published"):
        archive_of(whole.planned, whole.results)


def test_a_failed_run_is_archived_as_failed(whole, tmp_path):
    *_, failed = whole.planned
    whole.results.run(failed.id).result.unlink()
    reason = f"OSError: {tmp_path}/secret: no such file"
    a_failure(reason=reason, kind="OSError", hosts=("gpu7.lab",)).write(
        whole.results.run(failed.id).failure
    )
    unfinished = "Unfinished: 1 of 12 runs has no scores yet, so every verdict is provisional.\n"
    unpack(whole, tmp_path, unfinished)
    record = Results(tmp_path / "unpacked").run(failed.id).failure
    assert (Failure.read(record).reason, Failure.read(record).hosts) == ("OSError", ())
    assert "gpu7" not in record.read_text()
    states = [
        [(run.id, state_of(results.run(run.id), NO_DECODING)) for run in whole.planned]
        for results in (whole.results, Results(tmp_path / "unpacked"))
    ]
    assert states[0] == states[1]
    assert (failed.id, "failed") in states[1]


@pytest.mark.parametrize("table", [None, '{"study": "other"}', "[]", "{"])
def test_publishing_does_not_replace_another_study(whole, tmp_path, table):
    (tmp_path / "to").mkdir()
    (tmp_path / "to" / "study.yaml").write_text("study: other\n")
    if table is not None:
        (tmp_path / "to" / "table.json").write_text(table)
    before = {path.name: path.read_bytes() for path in (tmp_path / "to").iterdir()}
    done = publish(whole, tmp_path / "to")
    assert done.refusal.startswith(f"{tmp_path / 'to'}/")
    assert done.err.endswith("choose another folder\n")
    assert {path.name: path.read_bytes() for path in (tmp_path / "to").iterdir()} == before


@pytest.mark.parametrize("name", ["table.md", "records.zip", "against-base-bleu.svg"])
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_publishing_replaces_nothing_of_its_user_s_and_then_writes_nothing(
    whole, tmp_path, name, kind
):
    taken = tmp_path / "to" / name
    taken.parent.mkdir()
    if kind == "file":
        taken.write_text("mine")
    else:
        taken.mkdir()
    done = publish(whole, taken.parent)
    assert done.refusal.startswith(f"{taken}: ")
    assert list(taken.parent.iterdir()) == [taken]
    assert kind == "folder" or taken.read_text() == "mine"


def test_an_edited_study_is_published_to_the_same_folder_again(whole, tmp_path):
    first = published(whole, tmp_path / "to")
    whole.study.path.write_text(f"# edited\n{whole.study.path.read_text()}")
    again = published(whole, tmp_path / "to")
    assert again["study.yaml"] == b"# edited\n" + first["study.yaml"]


def test_a_study_is_published_to_its_own_folder(whole, tmp_path):
    own = tmp_path / "own" / "study.yaml"
    own.parent.mkdir()
    own.write_bytes(whole.study.path.read_bytes())
    assert published(whole, own.parent)["study.yaml"] == whole.study.path.read_bytes()
