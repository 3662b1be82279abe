"""The progress of a study, read from the files of its runs."""

import io
import json
import math
import statistics

import pytest
from rich.console import Console

from ablate.analysis.tuning_runs import tuning_runs_of
from ablate.plan import progress as module
from ablate.plan import time_left
from ablate.plan.progress import PerplexityDifference, ProgressReader
from ablate.report.live_table import live_table
from ablate.store.records import Memory
from ablate.study import runs_of
from tests.report.fakes import Fake, study_from

FLAT = """\
study: flat
data: {corpus: toy, vocab_size: 200}
base: {N: 1, d_model: 16, d_ff: 32, h: 2, train_steps: 100}
seeds: [1, 2]
rows:
  D: {each: {dropout: [0.2, 0.3]}}
  decoding: {each: {beam: [1]}}
"""


@pytest.fixture
def flat(tmp_path):
    """Three rows of equal work, and one with the runs of base and another decoding."""
    return Fake(tmp_path / "results", study_from(tmp_path, FLAT))


@pytest.fixture
def clock(monkeypatch):
    """A clock that a test advances by calling it."""
    now = [1000.0]
    monkeypatch.setattr(time_left.time, "monotonic", lambda: now[0])

    def advance(seconds):
        now[0] += seconds

    return advance


def read(fake):
    return ProgressReader(fake.planned, fake.results).read()


def row(progress, label):
    return next(row for row in progress.rows if row.row.label == label)


def evaluated(fake, label, seed, perplexities, more=""):
    """Write the metrics log of a run: these perplexities, and a loss at each of their steps."""
    lines = [
        {"step": step, "tokens": 9, key: value}
        for step, value in perplexities.items()
        for key in ("loss", "dev_perplexity")
    ]
    folder = fake.folder(label, seed)
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines) + more)


def test_all_runs_of_a_new_study_are_pending(flat):
    found = read(flat)
    assert set(found.states.values()) == {"pending"}
    assert len(found.states) == 6
    assert (found.share, found.seconds_left, found.memory, found.ended) == (0.0, None, {}, 0)
    assert not flat.results.root.exists()


def test_a_row_has_the_scores_of_finished_seeds_and_the_reports_of_the_others(flat):
    flat.done("D dropout=0.2", 1, 5.0, 25.0)
    flat.at("D dropout=0.2", 2, 40, alive=True, perplexity=8.0)
    found = row(read(flat), "D dropout=0.2")
    assert found.states == {1: "done", 2: "running"}
    assert (found.ppl.by_seed, found.main_scores.by_seed) == ({1: 5.0}, {1: 25.0})
    assert [(report.step, report.perplexity) for report in found.running] == [(40, 8.0)]


def log_ratio(step, *ratios):
    """The difference at a step, where the perplexities of the seeds have these ratios."""
    mean = statistics.fmean(map(math.log, ratios))
    return PerplexityDifference(pytest.approx(mean), step)


def test_running_rows_are_compared_at_the_last_step_that_both_have_evaluated(flat):
    for label in ("base", "D dropout=0.2"):
        flat.at(label, 1, 60, alive=True)
    evaluated(flat, "base", 1, {20: 30.0, 40: 20.0, 60: 10.0})
    evaluated(flat, "D dropout=0.2", 1, {20: 31.0, 40: 22.5})
    found = read(flat)
    assert row(found, "D dropout=0.2").against_base == log_ratio(40, 22.5 / 20)
    assert row(found, "base").against_base is None
    assert row(found, "D dropout=0.3").against_base is None
    assert row(found, "decoding beam=1").against_base is None  # it has the runs of base


def test_candidates_of_tuning_runs_are_not_compared_with_base(tmp_path):
    tune = "tune: {grid: {learning_rate: [0.001, 0.002]}, seeds: [101]}\n"
    runs = tuning_runs_of(runs_of(study_from(tmp_path, FLAT + tune)))
    made = Fake(tmp_path / "results", runs)
    for tuning_row in runs.rows:
        evaluated(made, tuning_row.label, 101, {20: 30.0})
        made.at(tuning_row.label, 101, 60, alive=True, perplexity=30.0)
    found = read(made)
    assert len(found.rows) > 2
    assert {each.against_base for each in found.rows} == {None}
    console = Console(file=io.StringIO(), width=140)
    console.print(live_table(found, 140, 40))
    text = console.file.getvalue()
    assert "vs base" not in text
    assert text.count("PPL") == 1
    assert "~30.00" in text


def test_running_seeds_are_compared_at_the_last_step_that_all_of_them_have_evaluated(flat):
    for seed in (1, 2):
        flat.at("base", seed, 60, alive=True)
        flat.at("D dropout=0.2", seed, 60, alive=True)
    evaluated(flat, "base", 1, {20: 30.0, 40: 20.0})
    evaluated(flat, "base", 2, {20: 34.0})
    evaluated(flat, "D dropout=0.2", 1, {20: 31.0, 40: 22.0})
    evaluated(flat, "D dropout=0.2", 2, {20: 37.0, 40: 25.0})
    assert row(read(flat), "D dropout=0.2").against_base == log_ratio(20, 31 / 30, 37 / 34)


def test_final_perplexities_are_paired_by_seed_and_take_precedence(flat):
    flat.done("base", 1, 5.0, 25.0)
    flat.done("base", 2, 9.0, 25.0)
    flat.done("D dropout=0.2", 2, 8.0, 25.0)
    flat.at("D dropout=0.2", 1, 60, alive=True)
    evaluated(flat, "base", 1, {20: 30.0})
    evaluated(flat, "D dropout=0.2", 1, {20: 40.0})
    assert row(read(flat), "D dropout=0.2").against_base == log_ratio(None, 8 / 9)


def test_perplexities_per_token_of_two_vocabularies_are_not_compared(tmp_path):
    text = FLAT.replace("{dropout: [0.2, 0.3]}", "{vocab_size: [150], dropout: [0.3]}")
    made = Fake(tmp_path / "results", study_from(tmp_path, text))
    for label in ("base", "D vocab_size=150", "D dropout=0.3"):
        made.done(label, 1, 5.0, 25.0)
    progress = read(made)
    assert row(progress, "D vocab_size=150").against_base is None
    assert row(progress, "D dropout=0.3").against_base == log_ratio(None, 1.0)


def test_a_log_that_grows_or_is_cut_back_is_followed(flat):
    for label in ("base", "D dropout=0.2"):
        flat.at(label, 1, 60, alive=True)
    reader = ProgressReader(flat.planned, flat.results)

    def against():
        return row(reader.read(), "D dropout=0.2").against_base

    assert against() is None
    evaluated(flat, "base", 1, {20: 30.0, 40: 20.0, 60: 10.0})
    evaluated(flat, "D dropout=0.2", 1, {20: 31.0}, more='{"step": 40, "dev_perpl')  # half a line
    assert against() == log_ratio(20, 31 / 30)
    evaluated(flat, "D dropout=0.2", 1, {20: 31.0, 40: 24.0})
    assert against() == log_ratio(40, 24 / 20)
    evaluated(flat, "base", 1, {20: 30.0})
    assert against() == log_ratio(20, 31 / 30)


def test_the_share_is_that_of_the_work_of_all_runs(flat):
    flat.done("base", 1, 5.0, 25.0)
    flat.diverged("base", 2, 10, "the loss exploded")
    flat.failed("D dropout=0.2", 1, "out of luck")
    flat.at("D dropout=0.2", 2, 50, alive=True)
    flat.at("D dropout=0.3", 1, 25, alive=False)
    found = read(flat)  # the missing decoding of base's first run does not count as work
    assert found.share == pytest.approx((3 + 0.5 + 0.25) / 6)
    assert found.counts == {
        "pending": 2, "diverged": 1, "failed": 1, "running": 1, "interrupted": 1,
    }  # fmt: skip
    assert found.ended == 2  # base's first run still lacks the decoding with a beam of 1


def test_the_time_left_follows_the_pace_since_training_was_first_seen(flat, clock):
    reader = ProgressReader(flat.planned, flat.results)
    flat.at("base", 1, 0, alive=True, phase="starting")
    assert reader.read().seconds_left is None
    clock(500.0)  # loading is slow, and says nothing about the pace of training
    flat.at("base", 1, 10, alive=True)
    assert reader.read().seconds_left is None
    clock(29.0)
    flat.at("base", 1, 39, alive=True)
    assert reader.read().seconds_left is None
    clock(1.0)
    flat.at("base", 1, 40, alive=True)
    assert reader.read().seconds_left == pytest.approx(
        560.0
    )  # one step a second; 60 and 5 times 100 are left


def test_the_pace_is_known_after_a_fiftieth_of_a_usual_run_also_while_no_worker_reports(
    flat, clock
):
    reader = ProgressReader(flat.planned, flat.results)
    flat.at("base", 1, 10, alive=True)
    reader.read()
    clock(30.0)
    flat.at("base", 1, 12, alive=True)
    assert reader.read().seconds_left is None
    flat.at("base", 1, 13, alive=True)
    assert reader.read().seconds_left == pytest.approx(5870.0)  # 587 steps, 10 seconds each
    flat.folder("base", 1).progress.unlink()  # a worker has the run, and has not reported yet
    assert reader.read().seconds_left is None


def test_the_start_of_a_resumed_run_says_nothing_about_its_pace(flat, clock):
    reader = ProgressReader(flat.planned, flat.results)
    flat.at("base", 1, 10, alive=True, phase="starting")
    reader.read()
    clock(500.0)
    flat.at("base", 1, 10, alive=True)
    reader.read()
    clock(40.0)
    flat.at("base", 1, 50, alive=True)
    assert reader.read().seconds_left == pytest.approx(550.0)


def test_the_pace_stays_known_between_two_runs_of_one_slot(flat, clock):
    reader = ProgressReader(flat.planned, flat.results)
    flat.at("base", 1, 0, alive=True)
    reader.read()
    clock(100.0)
    flat.at("base", 1, 100, alive=False)  # the worker has ended, and the next has not started
    assert reader.read().seconds_left == pytest.approx(500.0)
    clock(20.0)
    assert reader.read().seconds_left == pytest.approx(5 * 120.0)  # the pause takes time too
    flat.at("base", 2, 0, alive=True)
    assert reader.read().seconds_left == pytest.approx(5 * 120.0)
    flat.at("base", 2, 0, alive=False)
    reader.read()
    clock(31.0)
    assert reader.read().seconds_left is None  # nobody works on the study any more
    flat.at("base", 2, 0, alive=True)
    assert reader.read().seconds_left is None  # the pace is measured anew
    clock(40.0)
    flat.at("base", 2, 20, alive=True)
    assert reader.read().seconds_left == pytest.approx(2 * 480.0)


def test_until_a_pace_is_seen_the_time_left_is_unknown_whatever_past_runs_took(flat, clock):
    flat.done("base", 1, 5.0, 25.0, seconds=50.0)
    flat.done("decoding beam=1", 1, 5.0, 25.0, seconds=50.0)
    flat.at("base", 2, 50, alive=True)
    assert read(flat).seconds_left is None


def test_without_a_running_process_the_time_left_is_unknown(flat, clock):
    flat.done("base", 1, 5.0, 25.0, seconds=50.0)
    flat.at("base", 2, 50, alive=False)
    assert read(flat).seconds_left is None


def test_memory_of_workers_is_summed_on_a_cpu_and_the_largest_report_counts_on_a_gpu(flat):
    cpu = {"device": "cpu", "memory": Memory(held=3, total=100)}
    flat.at("base", 1, 1, alive=True, **cpu)
    flat.at("base", 2, 1, alive=True, **cpu)
    flat.at("D dropout=0.2", 1, 1, alive=False, **cpu)
    flat.at("D dropout=0.3", 1, 1, alive=True, device="cuda:0", memory=Memory(held=40, total=80))
    flat.at("D dropout=0.3", 2, 1, alive=True, device="cuda:0", memory=Memory(held=41, total=80))
    assert read(flat).memory == {"cpu": (6, 100), "cuda:0": (41, 80)}


def test_runs_are_named_by_their_first_row_and_seed(flat, tmp_path):
    labels = flat.planned.labels
    assert labels[flat.folder("decoding beam=1", 2).id] == "base seed 2"
    one = study_from(tmp_path, FLAT.replace("[1, 2]", "[7]"))
    assert sorted(runs_of(one).labels.values()) == ["D dropout=0.2", "D dropout=0.3", "base"]


def test_runs_of_base_with_further_seeds_have_names_of_their_own(tmp_path):
    study = study_from(tmp_path, FLAT.replace("[1, 2]", "{rows: 1, base: 3}"))
    labels = runs_of(study).labels
    assert {"base seed 1", "base seed 2", "base seed 3"} < set(labels.values())
    assert len(set(labels.values())) == len(labels)


@pytest.fixture
def files_read(monkeypatch):
    """Ids of the runs whose files are read, in this order."""
    ids, read_files = [], module.RunFiles.read.__func__

    def read_and_count(cls, folder):
        ids.append(folder.id)
        return read_files(cls, folder)

    monkeypatch.setattr(module.RunFiles, "read", classmethod(read_and_count))
    return ids


@pytest.mark.parametrize("rows", [2, 20])
def test_an_update_reads_the_files_of_its_run_alone_however_many_runs_there_are(
    tmp_path, files_read, rows
):
    rates = [round(0.2 + i / 100, 2) for i in range(rows)]
    text = FLAT.replace("[0.2, 0.3]", str(rates))
    fake = Fake(tmp_path / "results", study_from(tmp_path, text))
    reader = ProgressReader(fake.planned, fake.results)
    assert reader.read().ended == 0
    files_read.clear()
    fake.done("D dropout=0.2", 2, 5.0, 25.0)
    id = fake.folder("D dropout=0.2", 2).id
    assert reader.update(id) == (1, 2 * (rows + 1), None)
    assert files_read == [id]
    reader.read()
    assert files_read.count(id) == 1, "it has ended, and is not read again"


def test_updates_run_by_run_lead_to_what_reading_all_files_shows(flat):
    reader, runs = ProgressReader(flat.planned, flat.results), list(flat.planned)
    flat.at("base", 1, 50, alive=True)
    reader.read()
    flat.done("base", 1, 5.0, 25.0)  # in one of its two decodings
    flat.diverged("D dropout=0.2", 1, 7, "the loss is not a finite number")
    flat.failed("D dropout=0.3", 1, "out of luck")
    flat.at("D dropout=0.3", 2, 25, alive=True)
    updates = [reader.update(run.id) for run in runs]
    whole = ProgressReader(flat.planned, flat.results).read()
    assert updates[-1] == (whole.ended, len(whole.states), whole.seconds_left)
    assert reader.states == whole.states
    assert reader.counts == whole.counts
    assert reader.work.completed / reader.work.total == pytest.approx(whole.share, rel=1e-12)
    assert reader.read() == whole
