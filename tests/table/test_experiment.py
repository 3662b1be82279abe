"""Tables of experiments that are made by hand, without a study."""

from dataclasses import replace

import pytest

from ablate.stats.metrics import BITS_PER_BYTE, PPL, TRANSLATION_METRICS
from ablate.table.experiment import Experiment, ExperimentRow, ExperimentRun, RunScore, row_state
from ablate.table.looks import Looks
from ablate.table.table import Table
from ablate.table.verdicts import duplicates, undecided_rows

BLEU = TRANSLATION_METRICS[0]


def row(label, scores, evaluation="", metric=BLEU):
    """A row with a run for each score, and one that diverged for None."""
    runs = []
    for seed, value in enumerate(scores, 1):
        run = ExperimentRun(f"{label} {seed}", seed, "diverged", "diverged")
        if value is not None:
            run = ExperimentRun(
                f"{label} {seed}", seed, "done", scores={metric.name: RunScore(value)}
            )
        runs.append(run)
    group = "base" if label == "base" else label
    return ExperimentRow(label, group, "base", tuple(runs), evaluation=evaluation)


def experiment(*rows, metric=BLEU, **more):
    seeds = tuple(run.seed for run in rows[1].runs)
    fields = {
        "measured": (metric,),
        "shown": (metric,),
        "judged": (metric,),
        "totals": {"base": len(rows) - 1},
        "looks": Looks.judged_once(len(seeds)),
    }
    return Experiment("by hand", rows, seeds, **fields | more)


def test_differences_are_paired_by_seed():
    table = Table.build(experiment(row("base", [20.0, 25.0]), row("A", [21.0, 25.5])))
    base, a = table.rows
    assert (base.deltas, base.verdicts) == ({}, {})
    assert a.deltas["bleu"].by_seed == {1: 1.0, 2: 0.5}
    assert a.verdicts["bleu"].mean == pytest.approx(0.75)
    assert table.best(BLEU) == pytest.approx(23.25)


def test_a_row_that_always_diverges_is_worse_than_a_base_that_never_does():
    table = Table.build(experiment(row("base", [20.0, 25.0, 24.0]), row("A", [None] * 3)))
    assert table.verdict(table.rows[1]) == "worse"
    assert (table.rows[1].state, table.rows[1].note) == ("diverged", "0 of 3 seeds done; diverged")


def test_rows_with_the_same_runs_and_evaluation_are_one_comparison():
    a = row("A", [21.0, 25.5])
    twin, other = replace(a, label="B"), replace(a, label="C", evaluation="beam 1")
    assert duplicates([a, twin, other]) == {"B": "A"}
    table = Table.build(experiment(row("base", [20.0, 25.0]), a, twin, other))
    verdicts = {row.label: row.verdicts for row in table.rows}
    assert verdicts["A"] == verdicts["B"]


def test_metrics_of_verdicts_share_the_level_and_others_have_all_of_it():
    both = experiment(row("base", [1.0]), row("A", [1.0]), judged=(PPL, BLEU))
    assert (both.share_of_level("ppl"), both.share_of_level("bleu")) == (0.5, 0.5)
    assert both.share_of_level("bpb") == 1


def test_without_perplexity_rows_are_compared_in_the_main_metric():
    of_bytes = experiment(row("base", [1.0]), row("A", [1.0]), metric=BITS_PER_BYTE)
    assert of_bytes.perplexity == BITS_PER_BYTE
    table = Table.build(of_bytes)
    assert (table.shown_metrics, table.compared_metrics) == ((BITS_PER_BYTE,), (BITS_PER_BYTE,))


def test_rows_without_a_verdict_or_with_a_failed_run_are_open():
    rows = (
        row("base", [20.0, 20.1, 19.9]),
        row("A", [30.0, 30.2, 29.9]),
        row("B", [20.0, 20.3, 19.8]),
    )
    failed = ExperimentRun("C 1", 1, "failed", "out of luck")
    c = replace(rows[1], label="C", runs=(failed, *rows[1].runs[1:]))
    by_hand = experiment(*rows, c)
    assert undecided_rows(by_hand) == ("B", "C")


def test_the_state_of_a_row_is_the_one_that_asks_for_attention():
    assert row_state(["done", "diverged"]) == "diverged"
    assert row_state(["failed", "running", "done"]) == "running"
    assert row_state(["pending", "done"]) == "pending"
