"""The plan of a study: its runs and their cost, computed without training."""

import cProfile
import io
import json
import pstats
import re
import statistics
from contextlib import redirect_stdout
from dataclasses import replace

import pytest

from ablate.config import cost
from ablate.config.lengths import ASSUMED_LENGTH, Lengths
from ablate.config.memory import CPU_MICRO_BATCH, peak_memory
from ablate.config.resolve import resolve_row
from ablate.plan import plan as plan_module
from ablate.plan.plan import plan_of
from ablate.plan.time_left import RATE_SAMPLES, measured_rates
from ablate.report.plan_text import (
    epochs_lines,
    memory_line,
    precision_lines,
    print_plan,
    print_status,
)
from ablate.store import Results
from ablate.store.checkpoints import RESUMABLE
from ablate.store.corpora import MANIFEST, remember
from ablate.store.machine import machine
from ablate.store.records import Provenance
from ablate.study import read_study, runs_of
from ablate.tasks.language_model import LanguageModel
from tests.records import CORPUS, a_manifest, change
from tests.report.fakes import STUDIES

# Rows of different cost, two that share a run with base, and combinations that `where` drops.
COSTS = """\
study: costs
data: {corpus: toy, vocab_size: 200}
base: {N: 2, d_model: 64, d_ff: 128, h: 4, train_steps: 100}
seeds: [1, 2]
rows:
  C: {each: {N: [1, 4], d_ff: [512]}}
  steps: {set: {train_steps: 300}}
  decoding: {each: {beam: [1, 2]}}
  big: {grid: {d_model: [128, 256], h: [8, 16]}, where: d_model / h == 8}
"""


def plan(results):
    return plan_of(results.planned, results.results)


@pytest.fixture
def printed(capsys):
    """Return a function that prints a plan and gives its words."""

    def printed(planned):
        print_plan(planned)
        return " ".join(capsys.readouterr().out.split())

    return printed


def flops(plan):
    return {row.row.label: row.flops for row in plan.rows}


def test_json_has_the_keys_of_the_contract(fake):
    content = json.loads(json.dumps(plan(fake(COSTS)).as_json()))
    assert {"study", "rows", "dropped", "totals"} <= content.keys()
    assert (content["study"], content["dropped"]) == ("costs", 3)
    assert content["judge"] == ["bleu"]
    for row in content["rows"]:
        assert {
            "row", "group", "changed", "config", "params", "flops_per_step", "runs",
        } <= row.keys()  # fmt: skip
        assert isinstance(row["params"], int)
        assert [run.keys() for run in row["runs"]] == [{"id", "seed", "state"}] * 2
        assert [run["seed"] for run in row["runs"]] == [1, 2]
    base = content["rows"][0]
    assert (base["row"], base["changed"]) == ("base", {})
    assert base["config"] == fake(COSTS).study.base.config.model_dump()
    assert content["rows"][1]["changed"] == {"n_layers": 1}


def test_json_tells_active_parameters_from_all_of_them(fake):
    experts = COSTS.replace("rows:", "rows:\n  experts: {set: {n_experts: 8}}")
    base, row, *_ = plan(fake(experts)).as_json()["rows"]
    assert "active_params" not in base
    assert row["active_params"] < row["params"]


def test_totals_count_a_shared_run_once(fake):
    planned = plan(fake(COSTS))
    work = flops(planned)
    trained = [label for label in work if not label.startswith("decoding")]
    assert len(work) == len(trained) + 2
    assert (len(planned.rows), len(planned.runs), len(planned.missing)) == (
        len(work),
        2 * len(trained),
        2 * len(trained),
    )
    assert planned.flops == pytest.approx(2 * sum(work[label] for label in trained))
    written = RESUMABLE + 1  # the new checkpoint is whole before the oldest is removed
    disk = [written * row.checkpoint_bytes for row in planned.rows if row.row.label in trained]
    assert planned.disk_bytes == 2 * sum(disk)


def test_a_run_without_one_of_its_decodings_is_missing(fake):
    results = fake(COSTS, seeds="1", rows=["decoding"])
    results.done("base", 1, 5.0, 25.0)
    results.done("decoding beam=1", 1, 5.0, 25.0)
    totals = plan(results).as_json()["totals"]
    assert (totals["missing"], totals["only_decoding"], totals["seconds"]) == (1, 1, 0.0)
    results.done("decoding beam=2", 1, 5.0, 25.0)
    assert (plan(results).missing, plan(results).only_decoding) == (frozenset(), frozenset())


def test_a_diverged_run_is_a_result_and_not_missing(fake):
    results = fake(COSTS, seeds="1", rows=["C"]).all_done()
    results.folder("C N=4", 1).result.unlink()
    results.diverged("C N=4", 1, 50, "the loss is not a finite number")
    assert (plan(results).missing, plan(results).seconds) == (frozenset(), 0.0)


def rates(results):
    """By precision, for runs like base."""
    like = plan(results).rows[0].flops_per_step
    measured = measured_rates(results.results, [])
    return {precision: of_runs.rate(like) for precision, of_runs in measured.items()}


def test_time_is_unknown_until_a_run_has_finished(fake):
    assert plan(fake(COSTS)).seconds is None


def test_time_is_the_missing_work_at_the_rate_of_finished_runs(fake):
    results = fake(COSTS, seeds="1")
    results.done("base", 1, 5.0, 25.0, seconds=60.0)
    for label in ("decoding beam=1", "decoding beam=2"):
        results.done(label, 1, 5.0, 25.0, seconds=60.0)
    planned = plan(results)
    work = flops(planned)
    missing = [label for label in work if label != "base" and not label.startswith("decoding")]
    assert rates(results) == {"fp32": work["base"] / 60.0}
    assert planned.seconds == pytest.approx(
        60.0 * sum(work[label] for label in missing) / work["base"], rel=1e-12
    )


def test_the_rate_is_the_median_over_runs(fake):
    results = fake(COSTS, seeds="1")
    for label, seconds in (("base", 10.0), ("C N=1", 1000.0), ("C N=4", 20.0)):
        results.done(label, 1, 5.0, 25.0, seconds=seconds)
    work = flops(plan(results))
    of_runs = [work["base"] / 10.0, work["C N=1"] / 1000.0, work["C N=4"] / 20.0]
    assert rates(results)["fp32"] == pytest.approx(statistics.median(of_runs), rel=1e-12)


def test_the_rate_is_that_of_runs_whose_steps_are_as_large(fake):
    text = COSTS.replace("  steps:", "  wide: {set: {d_model: 512}}\n  steps:")
    results = fake(text, seeds="1-3", rows=["wide", "C"])
    for seed, seconds in ((1, 10.0), (2, 20.0), (3, 60.0)):
        results.done("C N=1", seed, 5.0, 25.0, seconds=seconds)
    planned = plan(results)
    (wide,) = (row for row in planned.rows if row.row.label == "wide d_model=512")
    (small,) = (row for row in planned.rows if row.row.label == "C N=1")
    measured = measured_rates(results.results, [])["fp32"]
    assert wide.flops_per_step > 8 * small.flops_per_step
    assert measured.rate(wide.flops_per_step) == pytest.approx(small.flops / 20.0)
    results.done("wide d_model=512", 1, 5.0, 25.0, seconds=100.0)
    measured = measured_rates(results.results, [])["fp32"]
    assert measured.rate(1.9 * wide.flops_per_step) == pytest.approx(wide.flops / 100.0)
    assert measured.rate(small.flops_per_step) == pytest.approx(small.flops / 20.0)


def test_the_rate_of_a_run_on_one_core_counts_all_cores(fake):
    results = fake(COSTS, seeds="1")
    results.done("base", 1, 5.0, 25.0, seconds=60.0)
    change(Provenance, results.folder("base", 1).provenance, threads=1)
    work = flops(plan(results))["base"]
    expected = {"fp32": pytest.approx(machine().cores * work / 60.0)}
    assert rates(results) == expected
    larger = machine().model_copy(update={"cores": machine().cores + 1})
    change(Provenance, results.folder("base", 1).provenance, machine=larger)
    assert rates(results) == expected


def test_the_rate_counts_the_steps_that_were_made(fake):
    results = fake(COSTS, seeds="1")
    results.done("base", 1, 5.0, 25.0, seconds=60.0, steps=50)
    assert rates(results)["fp32"] == pytest.approx(flops(plan(results))["base"] / 2 / 60.0)


def test_runs_of_other_machines_and_damaged_runs_do_not_count_for_the_rate(fake):
    results = fake(COSTS, seeds="1")
    for label in ("base", "C N=1", "C N=4"):
        results.done(label, 1, 5.0, 25.0)
    other = machine().model_copy(update={"processor": "another"})
    change(Provenance, results.folder("base", 1).provenance, machine=other)
    results.folder("C N=1", 1).result.write_text("{")
    results.folder("C N=4", 1).provenance.unlink()
    assert measured_rates(results.results, []) == {}


def test_each_precision_has_its_own_rate(fake):
    text = COSTS.replace("  steps:", "  bf16: {set: {precision: bf16}}\n  steps:")
    results = fake(text, seeds="1", rows=["bf16"])
    results.done("base", 1, 5.0, 25.0)
    assert plan(results).seconds is None
    results.folder("base", 1).result.unlink()
    results.done("bf16 precision=bf16", 1, 5.0, 25.0)
    assert measured_rates(results.results, []).keys() == {"bf16"}


def test_in_a_large_root_the_studys_runs_are_read_first(fake):
    results = fake(COSTS, seeds=f"1-{RATE_SAMPLES + 10}", rows=["C"])
    last = results.study.seeds.rows[-1]
    assert list(plan(results).runs)[: RATE_SAMPLES // 2]
    results.done("base", last, 5.0, 25.0, seconds=60.0)
    assert measured_rates(results.results, [results.folder("base", last).id])


def test_a_prepared_corpus_replaces_the_assumed_length(fake):
    results = fake(COSTS.replace("train_steps: 100}", "epochs: 3, batch_tokens: 1000}"))
    assumed = plan(results)
    assert assumed.rows[0].steps is None
    assert (assumed.flops, assumed.seconds) == (None, None)
    assert assumed.as_json()["assumed_length"] == ASSUMED_LENGTH

    lengths = Lengths(100, 1000, 1300, 1301, 15_000, 15_500, 16_000)
    data, corpora = results.study.data, results.results.corpora
    a_manifest(lengths=vars(lengths)).write(corpora / CORPUS / MANIFEST)
    remember(data, corpora, CORPUS)
    known = plan(results)
    assert known.rows[0].steps == 3 * 2  # 1301 tokens in batches of 1000
    assert known.rows[0].flops_per_step == cost.flops_per_step(
        results.study.base.config, 200, lengths
    )
    assert known.as_json()["assumed_length"] is None


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ("epochs: 3", "Steps and FLOPs follow from epochs once `ablate data prepare` has counted"),
        ("train_steps: null, patience: 2", "are unknown, because patience ends training"),
    ],
)
def test_steps_that_are_not_known_have_no_column_but_a_reason(fake, printed, limit, reason):
    text = COSTS.replace("train_steps: 100}", f"{limit}, batch_tokens: 1000}}")
    shown = printed(plan(fake(text.replace("  steps: {set: {train_steps: 300}}\n", ""))))
    assert reason in shown
    assert "?" not in shown
    assert "steps memory" not in shown
    shown = printed(plan(fake(COSTS)))
    assert "FLOPs per step steps memory" in shown
    assert "FLOP in all" in shown


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("name", ["quickstart", "table3", "multi30k"])
def test_the_printed_plan_cuts_no_number(tmp_path, monkeypatch, capsys, name, width):
    planned = plan_of(runs_of(read_study(STUDIES / f"{name}.yaml")), Results(tmp_path))
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")
    print_plan(planned)
    text = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    table, _, below = text.partition(f"\n{len(planned.rows)} rows, ")
    below = " ".join(below.split())  # lines of a terminal
    assert max(map(len, table.splitlines())) <= width
    assert all(f" {row.params:,} " in table for row in planned.rows)
    assert "time unknown until a run has finished on this CPU." in below
    assert "sentences of 30 tokens are assumed" in below


@pytest.mark.parametrize(
    ("name", "assumed"),
    [("quickstart-recall", ["items of 30 tokens are assumed"]), ("quickstart-lm", [])],
)
def test_the_plan_says_which_lengths_it_assumes(tmp_path, printed, name, assumed):
    """Items of generated tasks have a length that only the prepared corpus tells; contexts of
    texts have that of the study.
    """
    planned = plan_of(runs_of(read_study(STUDIES / f"{name}.yaml")), Results(tmp_path))
    text = printed(planned)
    assert re.findall(r"\w+ of \d+ tokens are assumed", text) == assumed
    assert planned.as_json()["assumed_length"] == (ASSUMED_LENGTH if assumed else None)


def test_the_printed_plan_counts_the_combinations_dropped_by_where(fake, printed):
    assert "3 combinations were dropped by `where`." in printed(plan(fake(COSTS)))


def test_the_printed_plan_names_the_rows_that_repeat_others_or_share_whole_keys(fake, printed):
    """Latent attention is meant to rotate a part of each key."""
    latent = "kv_rank: 8, positional_encoding: rope"
    rows = f"""
  once: {{set: {{{latent}, rope_fraction: 0.5}}}}
  again: {{set: {{{latent}, rope_fraction: 0.5}}}}
  whole: {{set: {{{latent}}}}}
  path: [{{add-one-in: {{h: 2, N: 1}}}}, {{cumulative: {{h: 2, N: 1}}}}]
"""
    text = printed(plan(fake(COSTS[: COSTS.index("rows:")] + f"rows:{rows}")))
    named = "kv_rank=8 positional_encoding=rope rope_fraction=0.5"
    assert f"which verdicts count and test once: again {named} (once {named})." in text
    assert "are also projected from them: whole kv_rank=8 positional_encoding=rope." in text


def test_the_printed_plan_has_active_parameters_where_experts_are_idle(fake, capsys):
    print_plan(plan(fake(COSTS)))
    assert "active" not in capsys.readouterr().out
    planned = plan(fake(COSTS.replace("  steps:", "  experts: {set: {n_experts: 4}}\n  steps:")))
    print_plan(planned)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:3] == ["row", "params", "active"]
    (line,) = (line for line in lines if line.startswith("n_experts=4 "))
    (row,) = (row for row in planned.rows if row.row.group == "experts")
    assert line.split()[1:3] == [f"{row.params:,}", f"{row.active_params:,}"]
    assert row.active_params < row.params


def test_the_printed_plan_names_the_rows_that_never_leave_the_warm_up(fake, printed):
    text = COSTS.replace("train_steps: 100", "train_steps: 400, warmup_steps: 299")
    assert "note:" not in printed(plan(fake(text)))
    note = "warmup_steps is not below train_steps: train_steps=300."
    assert note in printed(plan(fake(text.replace("299", "300"))))


def test_the_printed_status_counts_runs_instead_of_rows(fake, capsys):
    results = fake(COSTS, seeds="1", rows=["decoding", "C"])
    results.done("base", 1, 5.0, 25.0)
    planned = plan(results)
    print_status(
        planned,
        [(row.row.label, run.seed, run.id, s, "") for row in planned.rows for run, s in row.runs],
    )
    text = capsys.readouterr().out
    assert "4 runs: 4 pending" in text  # the run of base is done in one of its three decodings
    assert "; about 4 min of work left" in text


def test_the_time_on_the_cpu_is_from_its_runs_alone(fake, monkeypatch):
    results = fake(COSTS, seeds="1", rows=["C", "steps"])
    for label, device in (("C N=1", "cpu"), ("C N=4", "cuda")):
        results.done(label, 1, 5.0, 25.0, seconds=60.0)
        change(Provenance, results.folder(label, 1).provenance, device=device)
    monkeypatch.setattr(plan_module, "visible_gpus", lambda: 1)
    planned = plan_of(results.planned, results.results, "cpu")
    of_row = flops(planned)
    (id,) = (run.id for run, _ in planned.rows[0].runs)
    assert planned.seconds_by_run[id] == pytest.approx(60.0 * of_row["base"] / of_row["C N=1"])
    assert {row["precision"] for row in planned.as_json()["rows"]} == {"fp32"}
    assert precision_lines(planned)[0].startswith("Precision: fp32 on this CPU")
    change(Provenance, results.folder("C N=1", 1).provenance, device="cuda")
    assert plan_of(results.planned, results.results, "cpu").seconds is None


def test_the_memory_is_that_of_the_device_and_of_a_part_of_the_batch(fake, monkeypatch):
    study, results = fake(COSTS).study, fake(COSTS).results
    said = {}
    for gpus, device, processes in ((0, "auto", 1), (0, "cuda", 1), (1, "auto", 4), (1, "cpu", 4)):
        monkeypatch.setattr(plan_module, "visible_gpus", lambda gpus=gpus: gpus)
        planned = plan_of(runs_of(study), results, device, processes)
        kind = "cpu" if device == "cpu" or (device == "auto" and not gpus) else "cuda"
        for row in planned.rows:
            c = row.row.config
            part = c.batch_tokens // processes
            tokens = part if kind == "cuda" else min(part, CPU_MICRO_BATCH)
            assert row.peak_memory == peak_memory(c, row.V, tokens, kind, processes=processes)
        said[gpus, device, processes] = memory_line(planned)
    on_cpu, on_gpu, in_parts, asked = said.values()
    assert "on a CPU with micro-batches of up to 8,192 tokens" in on_cpu
    assert "on a GPU with a whole batch" in on_gpu
    assert "on a GPU with one of 4 parts of a batch" in in_parts
    assert asked == on_cpu


def test_the_memory_is_explained_only_if_runs_need_a_sizable_part_of_it(fake, monkeypatch, printed):
    monkeypatch.setattr(plan_module, "visible_gpus", lambda: 0)
    monkeypatch.setattr("ablate.report.plan_text.cores", lambda: 4)
    planned = plan(fake(COSTS))
    largest = max(row.peak_memory for row in planned.rows)
    for available, is_said in ((40 * largest, False), (40 * largest - 1, True)):
        monkeypatch.setattr("ablate.report.plan_text.memory", lambda bytes=available: bytes)
        assert ("Memory is estimated" in printed(planned)) == is_said


@pytest.mark.parametrize(("has_bf16", "note"), [(True, False), (False, True)])
def test_a_plan_says_the_precision_and_that_a_processor_lacks_bf16(
    fake, monkeypatch, has_bf16, note
):
    monkeypatch.setattr(plan_module, "visible_gpus", lambda: 0)
    monkeypatch.setattr(plan_module, "processor_has_bf16", lambda: has_bf16)
    first, *notes = precision_lines(
        plan(fake(COSTS.replace("  steps:", "  low: {set: {precision: bf16}}\n  steps:")))
    )
    assert first == "Precision: fp32, bf16 on this CPU; bf16 on a GPU that has it."
    assert bool(notes) is note
    assert all("no bf16 instructions" in line for line in notes)
    monkeypatch.setattr(plan_module, "visible_gpus", lambda: 1)
    assert precision_lines(plan(fake(COSTS))) == ["Precision: bf16."]


def calls_of_a_plan(folder, rows):
    """Number of function calls of reading, planning and printing a study of so many rows; no time
    is measured.
    """
    path = folder / f"{rows}.yaml"
    path.write_text(
        "study: wide\ndata: {corpus: toy, vocab_size: 200}\nbase: {N: 2, d_model: 64, d_ff: 128, "
        "h: 4}\n"
        f"rows: {{W: {{each: {{warmup_steps: {list(range(1, rows + 1))}}}}}}}\n"
    )
    profile = cProfile.Profile()
    with redirect_stdout(io.StringIO()) as out:
        profile.enable()
        print_plan(plan_of(runs_of(read_study(path)), Results(folder / "results")))
        profile.disable()
    assert out.getvalue().count("\nW warmup_steps=") == rows
    return pstats.Stats(profile).total_calls


def test_the_work_of_a_plan_is_linear_in_its_rows(tmp_path):
    calls_of_a_plan(tmp_path, 5)  # imports, and what is computed once
    few, more = (calls_of_a_plan(tmp_path, rows) for rows in (50, 400))
    assert more < 8.2 * few
    assert more / 400 < 7500  # of which the costs of single layers take a half


def test_the_plan_says_how_often_training_reads_its_text():
    """Of 100 records of 40 tokens, a batch of 20 tokens and 14 steps read 0.07 of the text."""
    lines = list(epochs_lines({"base": 0.07, "A": 0.07, "B": 1.5, "C": None}))
    assert lines[0] == "Epochs per run (passes over the training text): 0.07 (base, A), 1.5 (B)."
    assert lines[1].startswith("note: training reads only 7 % of the training text in base, A;")
    several = list(epochs_lines({"A": 0.5, "B": 0.07}))
    assert "reads as little as 7 % of the training text in every row;" in several[1]
    assert list(epochs_lines({"base": 12.0, "A": 12.0})) == [
        "Epochs per run (passes over the training text): 12."
    ]
    assert list(epochs_lines({"base": None})) == []
    lengths = replace(Lengths.of_length(40), pairs=100, longer_tokens=4000)
    config = resolve_row({"train_steps": 14, "batch_tokens": 20})
    assert cost.epochs(config, lengths) == pytest.approx(0.07)
    half = resolve_row({"train_steps": 14, "batch_tokens": 20, "train_fraction": 0.5})
    assert cost.epochs(half, lengths) == pytest.approx(0.14)
    # 4000 tokens are 58 batches, the last of which is smaller: it is no part of another epoch.
    asked = resolve_row({"epochs": 8, "batch_tokens": 70})
    assert cost.steps(asked, lengths) == 8 * 58
    assert cost.epochs(asked, lengths) == 8.0
    blocks = resolve_row(
        {**LanguageModel.defaults, "train_steps": 10, "batch_tokens": 40, "context": 8, "stride": 4}
    )
    assert cost.epochs(blocks, lengths) == pytest.approx(10 * 40 / (40 * 8 / 4))
