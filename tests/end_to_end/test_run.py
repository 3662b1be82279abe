"""A study from its file to its table, then again with changes."""

import csv
import gzip
import json
import os
import re
import socket
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import ablate
from ablate.analysis.stages import next_stage
from ablate.analysis.text_changes import refuse_other_text
from ablate.cli.run import _last_line
from ablate.data import text_preview
from ablate.errors import StoreError
from ablate.store import Results
from ablate.store.files import read_json
from ablate.store.records import Execution, Progress, Provenance
from ablate.study import read_study, runs_of
from tests.cli.inside import inside
from tests.end_to_end.studies import TINY, write_study
from tests.trained import Trained


def stamps(folder):
    """Content and modification time of every file in a folder."""
    return {
        path: (path.stat().st_mtime_ns, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file()
    }


def trainings(root):
    """The trained runs: those with a metrics log."""
    return {path.parent.name for path in root.glob("runs/*/metrics.jsonl")}


def test_run_reports_each_finished_run_and_prints_the_table(calm):
    assert "4 of 4 runs to do" in calm.said
    assert calm.said.count("starting ") == calm.said.count("done     ") == 4
    table = (calm.file.parent / "printed").read_text()
    assert table == calm.ask("table").out
    *_, last = calm.said.splitlines()
    done, place, page = last.split("; ")
    assert re.fullmatch(r"tiny: 4 of 4 runs done in \d+ (s|min)", done)
    assert place == f"results are in {calm.root / 'tiny'}"
    command = f"ablate report {calm.file} --results {calm.root}"  # not in the usual folder
    assert page == f"`{command}` writes a page with figures"
    assert "pending" not in table


def test_the_last_line_of_a_part_of_a_study_names_the_report_of_that_part(calm):
    """The plain command would draw the study of the file."""
    study = read_study(calm.file)
    part = replace(study, source=replace(study.source, is_modified=True))
    results = Results(calm.root)
    line = _last_line(next_stage(part, results), results, Counter(done=1), 2.0)
    command = f"`ablate report {calm.file} --results {calm.root} --out FILE`"
    options = "with the same --set, --rows and --seeds"
    assert line.endswith(f"; {command} {options} writes a page with figures")


def test_every_row_has_scores_and_a_decoding_row_trains_nothing(calm):
    rows = calm.data("table")["rows"]
    assert [row["row"] for row in rows] == [
        "base",
        "A h=1",
        "decoding beam=1 average_checkpoints=2",
    ]
    for row in rows:
        assert row["state"] == "done"
        assert row["steps"] == 30
        assert row["ppl"]["n"] == row["bleu"]["n"] == 2
        assert all(1 < value < 200 for value in row["ppl"]["values"])  # better than a uniform guess
        assert all(0 <= value <= 100 for value in row["bleu"]["values"])
    assert len(trainings(calm.root)) == 4  # 3 rows, 2 seeds, and base's runs serve two rows


def test_running_a_finished_study_again_trains_nothing(copy, no_workers):
    before = stamps(copy.root / "runs")
    done = copy.run()
    assert done.code == 0
    assert done.out == copy.ask("table").out
    assert stamps(copy.root / "runs") == before


def test_after_adding_a_row_only_that_row_is_trained(copy):
    before = stamps(copy.root / "runs")
    old = trainings(copy.root)
    copy.file.write_text(TINY + "  C: {each: {d_ff: [8]}}\n")
    done = copy.run("--seeds", "1")
    assert done.code == 0
    assert "1 of 3 runs to do" in done.err
    assert trainings(copy.root) - old == {copy.folder("C d_ff=8").id}
    assert {
        path: stamp for path, stamp in stamps(copy.root / "runs").items() if path in before
    } == before


def test_adding_a_decoding_trains_nothing(copy):
    old, run = trainings(copy.root), copy.folder("base")
    before = {path: path.read_bytes() for path in (run.metrics, *run.checkpoints.iterdir())}
    scores = run.read_result().decodings
    copy.file.write_text(TINY + "  greedy: {set: {beam: 1}}\n")
    done = copy.run("--seeds", "1", "--rows", "greedy")
    assert done.code == 0
    assert "1 of 1 run to do" in done.err
    assert trainings(copy.root) == old
    assert {path: path.read_bytes() for path in before} == before
    after = run.read_result().decodings
    assert after.items() > scores.items()
    assert len(after) == len(scores) + 1


def test_an_added_metric_is_scored_from_stored_translations(copy, no_workers):
    before = stamps(copy.root / "runs")
    copy.file.write_text(TINY + "metrics: [chrf, ter]\n")
    done = copy.run()
    assert done.code == 0
    assert done.err.startswith("note: Earlier versions of the study have verdicts: by ")
    after = stamps(copy.root / "runs")
    assert {path for path in after if after[path] != before.get(path)} == set(
        copy.root.glob("runs/*/scores/*.json")
    )
    content = copy.data("table")
    assert content["metrics"] == ["ppl", "chrf", "ter"]
    assert all(
        row["chrf"]["n"] == row["ter"]["n"] == row["bleu"]["n"] == 2 for row in content["rows"]
    )


def test_averaging_more_checkpoints_than_kept_fails_only_that_row(copy):
    copy.file.write_text(TINY + "  average: {set: {average_checkpoints: 3}}\n")
    done = copy.run("--seeds", "1")
    assert done.code == 1
    states = {run["row"]: run for run in copy.data("status", "--seeds", "1")["runs"]}
    failed = states.pop("average_checkpoints=3")
    assert failed["state"] == "failed"
    assert "has 2 checkpoints, and average_checkpoints=3 needs more" in failed["detail"]
    assert {run["state"] for run in states.values()} == {"done"}
    copy.file.write_text(TINY)
    assert copy.run("--seeds", "1").code == 0


def test_a_run_of_two_studies_is_trained_once(copy, tmp_path, no_workers):
    text = TINY.replace("study: tiny", "study: other").replace(
        "A: {each: {h: [1]}}", "heads: {set: {h: 1}}"
    )
    other = Trained(write_study(tmp_path, text, "other.yaml"), copy.root)
    assert other.run().code == 0
    mine, theirs = (
        json.loads((copy.root / name / "table.json").read_text()) for name in ("tiny", "other")
    )
    assert theirs["rows"][1]["row"] == "heads h=1"
    assert theirs["rows"][1]["bleu"] == mine["rows"][1]["bleu"]


def test_run_with_rows_succeeds_when_the_selected_rows_are_done(copy, no_workers):
    copy.file.write_text(TINY + "  C: {each: {d_ff: [8]}}\n")
    assert copy.run("--rows", "A,decoding").code == 0


def test_one_job_uses_all_cores_for_one_run_at_a_time(fresh, monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)  # which asks for one thread
    short = ("--set", "train_steps=2", "--set", "beam=1", "--set", "max_extra_length=0")
    done = fresh.run("--rows", "A", "--seeds", "1", "--jobs", "1", *short)
    assert done.code == 0
    assert "2 of 2 runs to do, 1 at once on cpu" in done.err
    events = [
        line.split()[0] for line in done.err.splitlines() if line.startswith(("starting", "done"))
    ]
    assert events == ["starting", "done"] * 2
    cores = len(os.sched_getaffinity(0))
    assert f"1 at once on cpu, {cores} thread" in done.err
    assert {Execution.read(path).threads for path in fresh.root.glob("runs/*/execution.json")} == {
        cores
    }


def test_published_files_are_small_readable_and_anonymous(calm):
    folder = calm.root / "tiny"
    files = {path.name: path.read_text() for path in folder.iterdir()}
    assert sorted(files) == ["provenance.json", "study.yaml", "table.csv", "table.json", "table.md"]
    assert files["study.yaml"] == calm.file.read_text()
    assert files["table.md"] == calm.ask("table", "--format", "markdown").out
    assert files["table.json"] == calm.ask("table", "--format", "json").out
    assert files["table.csv"] == calm.ask("table", "--format", "csv").out
    timed = calm.data("table", "--cost")
    assert {
        row["cost"][name]["n"] for row in timed["rows"] for name in ("seconds", "tokens_per_second")
    } == {2}
    sentences = [
        line for path in calm.root.glob("corpora/*/*.txt") for line in path.read_text().splitlines()
    ]
    assert len(sentences) == 1200
    secrets = [
        socket.gethostname(),
        *map(str, (calm.root, calm.file.parent, Path.cwd(), Path.home())),
    ]
    for name, text in files.items():
        assert [secret for secret in secrets if secret in text] == [], name
        assert [sentence for sentence in sentences if sentence in text] == [], name
    provenance = json.loads(files["provenance.json"])
    assert len(provenance["runs"]) == 4
    assert {run["steps"] for run in provenance["runs"].values()} == {30}


def test_the_files_of_a_run_are_anonymous(calm):
    paths = list(calm.root.glob("runs/*/*.json"))
    assert len(paths) > 4
    for path in paths:
        if path.name != "progress.json":  # names the process, as long as it works
            text = path.read_text()
            assert str(calm.root) not in text, path
            assert socket.gethostname() not in text, path


def test_provenance_records_code_packages_and_machine(calm):
    paths = list(calm.root.glob("runs/*/provenance.json"))
    assert len(paths) == 4
    for provenance in map(Provenance.read, paths):
        assert provenance.packages.keys() == {
            "torch", "numpy", "sentencepiece", "sacrebleu", "safetensors",
        }  # fmt: skip
        assert all(provenance.packages.values())
        assert provenance.device == "cpu"


WORDS = (
    "ein", "haus", "baum", "steht", "im", "wald", "und", "der", "hund", "läuft", "weit", "fort",
)  # fmt: skip


def pairs(count, seed):
    """Sentences and their reverses."""
    for number in range(count):
        words = [
            WORDS[(number * (7 + seed) + place * (3 + number % 5)) % len(WORDS)]
            for place in range(3 + number % 4)
        ]
        yield " ".join(words), " ".join(reversed(words))


FILES = """\
study: files
data: {corpus: files, direction: de-rev, train: train, dev: dev, test: test.tsv, vocab_size: 60}
base: {N: 1, d_model: 16, d_ff: 32, h: 2, train_steps: 10, batch_tokens: 512, warmup_steps: 20, eval_every: 10,
       checkpoint_every: 10}
"""


@pytest.fixture
def files(tmp_path):
    """A study on text files: plain, compressed, in columns, with a pair to drop and one with
    unusual characters.
    """
    folder = tmp_path / "text"
    folder.mkdir()
    train, dev, test = list(pairs(200, 0)), list(pairs(20, 1)), list(pairs(20, 2))
    train[5] = ("", "nichts")
    test[3] = ("ein\u2028baum 🌳", "baum 🌳 ein")
    for side, language in enumerate(("de", "rev")):
        (folder / f"train.{language}").write_text(
            "".join(f"{pair[side]}\r\n" for pair in train), newline=""
        )
        (folder / f"dev.{language}.gz").write_bytes(
            gzip.compress("".join(f"{p[side]}\n" for p in dev).encode())
        )
    (folder / "test.tsv").write_text("".join("\t".join(pair) + "\n" for pair in test))
    return Trained(write_study(folder, FILES, "files.yaml"), tmp_path / "results")


def test_text_files_in_every_format_are_trained_on_and_not_mixed_with_other_text(files):
    done = files.run()
    assert done.code == 0
    assert "199 records, 1 left out (empty), dev 20, test 20" in done.err
    result = files.folder("base").read_result()
    (translations,) = files.folder("base").path.glob("translations/*.txt")
    assert translations.read_bytes().count(b"\n") == 20
    rows = list(csv.DictReader((files.root / "files" / "table.csv").read_text().splitlines()))
    assert [row["state"] for row in rows] == ["done"]

    before = stamps(files.root / "runs")
    with (
        (files.file.parent / "train.de").open("a") as one,
        (files.file.parent / "train.rev").open("a") as other,
    ):
        one.write("noch ein haus\n")
        other.write("haus ein noch\n")
    changed = files.run()
    assert changed.code == 4
    *progress, _ = changed.err.splitlines()
    assert all(line.startswith("corpus: ") for line in progress)
    old, new = sorted(
        files.root.glob("corpora/*/corpus.json"), key=lambda path: path.stat().st_mtime_ns
    )
    assert old.parent.name == result.corpus
    began, now = (read_json(path)["training"] for path in (old, new))
    assert (
        f"the training data has changed since this run began (text {began}, now {now})"
        in changed.err
    )
    shared = (
        f"studies that differ only in data.folder share their runs in {files.root}; restore the "
        "files, or use another --results for this text"
    )
    assert shared in changed.err
    assert stamps(files.root / "runs") == before
    table = files.ask("table")
    assert shared in table.err
    assert (table.code, table.out) == (4, "")
    assert "train.rev differ from the text on which these runs were trained" in table.err


def test_a_trained_run_translates_line_by_line(calm):
    id = calm.folder("base").id
    corpus = next(calm.root.glob("corpora/*/test.source.txt")).read_text().splitlines()[:3]
    lines = [corpus[0], "", corpus[1], "  ", corpus[2] + "\r", "\u2028"]
    done = inside("predict", id[:6], "--results", calm.root, stdin="\n".join(lines).encode())
    assert done.code == 0
    # Base and a row that decodes in another way share the run.
    began = "its id stands for the row that began it (beam=4, average_checkpoints=1)"
    assert (began in done.err, done.err.count("\n")) == (True, 1)
    out = done.out.split("\n")
    assert len(out) == len(lines) + 1
    assert [bool(text) for text in out] == [True, False, True, False, True, False, False]
    stored = calm.folder("base").path / "translations"
    row = calm.study.base
    expected = (stored / f"{row.decoding}.txt").read_text().splitlines()[:3]
    assert [text for text in out if text] == expected


def test_damaged_weights_are_refused_with_what_to_do(copy):
    folder = copy.folder("base").path
    *_, weights = sorted(folder.glob("checkpoints/*.weights.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\1\2\3")
    done = copy.ask("predict", "base", stdin=b"a b\n")
    assert (done.code, done.out) == (4, "")
    assert done.err.endswith(f"; remove {folder} to train the run again\n")


def test_a_row_translates_the_test_split_as_it_is_stored(calm):
    sources = next(calm.root.glob("corpora/*/test.source.txt")).read_text()
    texts = []
    for label in ("base", "decoding beam=1 average_checkpoints=2"):
        row = next(row for row in calm.study.rows if row.label == label)
        stored = calm.folder("base").path / "translations" / f"{row.decoding}.txt"
        done = inside("predict", calm.file, label, "--results", calm.root, stdin=sources.encode())
        assert (done.code, done.err, done.out) == (0, "", stored.read_text())
        texts.append(done.out)
    assert texts[0] != texts[1]


def test_a_row_that_averages_is_exported_and_drawn_with_the_average(calm, tmp_path):
    row, folder = "decoding*", calm.folder("base")
    files = sorted(folder.checkpoints.glob("*.weights.safetensors"))[-2:]
    first, second = map(load_file, files)
    words = ("--to", "huggingface", "--results", calm.root)
    done = inside("export", calm.file, row, "--out", tmp_path / "averaged", *words)
    assert (done.code, done.err) == (0, "")
    name = "decoder.0.feed_forward.W_1.bias"
    there = load_file(tmp_path / "averaged" / "model.safetensors")
    exported = there["model.decoder.layers.0.fc1.bias"]
    torch.testing.assert_close(exported, (first[name] + second[name]) / 2)
    assert not torch.equal(exported, second[name])
    assert read_json(tmp_path / "averaged" / "ablate.json")["averaged_steps"] == [20, 30]
    search = json.loads((tmp_path / "averaged" / "generation_config.json").read_text())
    assert (search["num_beams"], search["early_stopping"]) == (1, "never")
    texts = [
        json.loads(
            inside("attention", calm.file, label, *words[2:], "--format", "json", "--device", "cpu",
                   "--text", "a dog", "--translation", "la hundo").out
        )["attentions"]
        for label in ("base", row)
    ]  # fmt: skip
    assert texts[0] != texts[1]


def test_empty_input_translates_to_empty_output(calm):
    done = inside("predict", calm.file, "--results", calm.root)
    assert (done.code, done.out, done.err) == (0, "", "")


def test_a_sentence_that_is_too_long_is_one_error_line(calm):
    long = b"word " * 1100
    done = inside(
        "predict", calm.file, "base", "--results", calm.root, stdin=b"a b\n" + long + b"\n"
    )
    assert done.refusal.startswith("standard input:2: has ")


def test_a_budget_on_an_unknown_machine_trains_base_first_and_leaves_the_rest(fresh):
    done = fresh.run("--budget", "1s")
    assert done.code == 0
    assert (
        "--budget 1s: no run has finished on this machine yet; base is trained first." in done.err
    )
    assert "--budget 1s: nothing new fits; 3 runs remain." in done.err
    assert len(list(fresh.root.glob("runs/*/result.json"))) == 1
    assert (fresh.root / "tiny" / "table.md").exists()  # of the whole study; the rest is pending
    assert "1 of 2 seeds done" in (fresh.root / "tiny" / "table.md").read_text()


def test_a_logger_receives_finished_runs_and_does_not_change_them(copy, no_workers):
    pytest.importorskip("tensorboard")
    before = stamps(copy.root / "runs")
    done = copy.run("--log", "tensorboard")
    assert done.code == 0
    assert "--log" not in done.err
    found = sorted(path.parent.name for path in copy.root.glob("tiny/tensorboard/*/events.*"))
    assert found == ["A h=1 seed 1", "A h=1 seed 2", "base seed 1", "base seed 2"]
    assert stamps(copy.root / "runs") == before


def test_workers_report_their_device_and_memory(calm):
    paths = list(calm.root.glob("runs/*/progress.json"))
    assert len(paths) == 4
    for progress in map(Progress.read, paths):
        assert progress.device == "cpu"
        assert 50e6 < progress.memory.held < progress.memory.total  # torch alone takes more


def test_finished_runs_decode_another_test_split(files):
    assert files.run().code == 0
    run = files.folder("base")
    first, weights = run.read_result(), stamps(run.checkpoints)
    table = files.ask("table", "--format", "json").out

    rows = (
        (files.file.parent / "test.tsv").read_text().split("\n")
    )  # a line may contain other kinds of line ends
    (files.file.parent / "other.tsv").write_text("\n".join(rows[:7]) + "\n")
    text = FILES.replace("test.tsv", "other.tsv").replace("study: ", "study: other-")
    other = Trained(write_study(files.file.parent, text, "other.yaml"), files.root)
    said = other.run().err
    assert "1 of 1 run to do" in said
    assert stamps(run.checkpoints) == weights
    second = run.read_result()
    assert f"BLEU {list(second.decodings.values())[1].scores['bleu'].value:.1f} (" in said
    assert [d.test for d in second.decodings.values()] == ["test.tsv", "other.tsv"]
    assert second.steps == first.steps
    assert [d.n_predictions for d in second.decodings.values()] == [20, 7]
    assert len({d.corpus for d in second.decodings.values()}) == 2
    assert (
        len({d.scores["ppl"].value for d in second.decodings.values()}) == 1
    )  # perplexity is measured on dev

    assert files.ask("table", "--format", "json").out == table
    assert other.data("table")["rows"][0]["state"] == "done"
    again = stamps(run.path)
    assert other.run().code == 0
    assert stamps(run.path) == again


def test_a_changed_test_split_with_the_same_name_is_refused(files):
    assert files.run().code == 0
    before = stamps(files.root / "runs")
    with (files.file.parent / "test.tsv").open("a") as file:
        file.write("noch ein haus\thaus ein noch\n")
    changed = files.run()
    assert changed.code == 4
    *_, fault = changed.err.splitlines()
    assert "the test data test.tsv has changed since these results were made (corpus" in fault
    assert stamps(files.root / "runs") == before


def test_no_command_shows_results_of_other_text(files, tmp_path, monkeypatch):
    """Two studies whose data settings differ only in `folder` have the same runs."""
    assert files.run().code == 0
    for verb in ("status", "table"):
        assert files.ask(verb).err == ""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for path in files.file.parent.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    other = Trained(folder / "files.yaml", files.root)
    for verb in ("plan", "status", "table"):  # a copy has the same content
        assert other.ask(verb).code == 0
    assert other.ask("status").err == ""
    (folder / "test.tsv").write_text("noch ein haus\thaus ein noch\n")
    refused = f"{folder / 'test.tsv'} differs from the text on which these runs were trained or"
    out = str(tmp_path / "out")
    asked = [[verb] for verb in ("plan", "status", "table", "report")]
    for words in (*asked, ["status", "--watch"], ["publish", "--out", out]):
        with monkeypatch.context() as patch:  # refused before scores are computed
            patch.delattr("ablate.analysis.outcome.read_scored_runs")
            answer = other.ask(*words)
        assert (answer.code, answer.out) == (4, "")
        assert refused in answer.err
    for per in ("row", "run", "step"):
        with pytest.raises(StoreError, match=re.escape(refused)):
            ablate.load(other.file, per=per, results=files.root)
    assert other.run().code == 4
    for verb in ("status", "table"):  # also after the other text was prepared
        assert refused in other.ask(verb).err
    assert files.ask("table").err == ""
    assert files.run().code == 0


def test_results_are_shown_with_a_remark_where_their_text_is_not_on_this_machine(files):
    assert files.run().code == 0
    (files.file.parent / "test.tsv").unlink()
    remark = "The text of the study was not compared with the text of its results"
    for verb in ("status", "table"):
        assert files.ask(verb).code == 0
    assert remark in files.ask("status").err
    for options in (["text"], ["markdown"], ["latex", "--legend"]):
        assert remark in " ".join(files.ask("table", "--format", *options).out.split())
    assert any(remark in line for line in files.data("table")["remarks"])
    with pytest.warns(UserWarning, match=remark):
        assert len(ablate.load(files.file, per="run", results=files.root)) == 1


def test_a_large_text_is_compared_once_it_was_prepared(files, tmp_path, monkeypatch):
    """Without its preparation, the table says that the text was not compared."""
    assert files.run().code == 0
    monkeypatch.setattr(text_preview, "LARGEST_COMPARED", 10)
    (files.file.parent / "train.de").touch()
    planned, results = runs_of(read_study(files.file)), Results(files.root)
    (remark,) = refuse_other_text(planned, results)
    assert "too large to compare" in remark
    planned.study.prepare(planned.study.data, results.corpora, print)
    assert refuse_other_text(planned, results) == []
    (files.file.parent / "train.de").write_text("haus\n" * 200)
    planned.study.prepare(planned.study.data, results.corpora, print)
    with pytest.raises(StoreError, match=r"train\.rev differ from the text"):
        refuse_other_text(planned, results)
    # A task that makes its text may read other files than these.
    monkeypatch.setattr(type(planned.study.task), "prepare", lambda *given: None)
    assert refuse_other_text(planned, results) == []
