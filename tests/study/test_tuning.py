"""`tune`: candidates, tuning runs and the choice among them; nothing of it moves the id of another
run.
"""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablate.analysis.choices import runs_with_choices
from ablate.analysis.missing import on_some_host
from ablate.analysis.outcome import outcome_of
from ablate.analysis.stages import _tuning_sentence, execute_stages, next_stage
from ablate.analysis.tuning_runs import (
    dev_runs_of,
    pending_tuning,
    tuning_runs_of,
    with_tuning_runs,
)
from ablate.config.identity import run_id
from ablate.config.resolve import resolve_row
from ablate.errors import StoreError
from ablate.launch.preparation import prepare_runs
from ablate.plan.budget import fit
from ablate.plan.plan import plan_of
from ablate.store import Results, state_of
from ablate.store.files import sha256
from ablate.study import Selection, read_study, runs_of
from ablate.study.choice import Candidate, Choice
from ablate.table.render import as_json
from tests.records import (
    a_decoding,
    a_failure,
    a_provenance,
    a_result,
    a_run,
    an_execution,
    some_scores,
)
from tests.report.fakes import Fake

TUNE = "tune: {grid: {learning_rate: [0.001, 0.01, 0.1]}, seeds: [101, 102], steps: 0.5}\n"
HEAD = """\
study: table3
data: {corpus: toy, vocab_size: 350}
base: {N: 2, d_model: 64, d_ff: 256, h: 4, train_steps: 301, batch_tokens: 1024, warmup_steps: 100}
seeds: [1, 2]
"""
ROWS = (
    "rows:\n  A: {each: {norm_position: [pre]}}\n"
    "  fixed: {grid: {norm_position: [post, pre], learning_rate: [0.02]}, tune: false}\n"
)
STUDY = HEAD + TUNE + ROWS
BASE = {"n_layers": 2, "d_model": 64, "d_ff": 256, "n_heads": 4, "train_steps": 301, "batch_tokens": 1024,
        "warmup_steps": 100}  # fmt: skip


def ids(runs):
    return {(row.label, run.seed): run.id for row in runs.rows for run in runs.of(row)}


def finish(study, results, label, value, *losses, steps=151):
    """Finish the tuning runs of a candidate with these dev losses, one for each seed; None
    diverges.
    """
    tuning_runs = tuning_runs_of(runs_of(study))
    tuning_row = next(
        row for row in tuning_runs.rows if row.label == f"{label}: learning_rate={value}"
    )
    finish_tuning_run(study, results, tuning_row, *losses, steps=steps)


def finish_tuning_run(study, results, tuning_row, *losses, steps=151):
    tuning_runs = tuning_runs_of(runs_of(study))
    for run, loss in zip(tuning_runs.of(tuning_row), losses, strict=False):
        folder = results.run(run.id)
        a_run(
            run.id, seed=run.seed, config=run.config, data=run.data.model_dump(exclude={"folder"})
        ).write(folder.run)
        a_provenance().write(folder.provenance)
        if loss is None:
            a_result(run.id, outcome="diverged", steps=7, reason="the loss exploded").write(
                folder.result
            )
            continue
        line = f'{{"step": {steps}, "tokens": 9, "dev_perplexity": {math.exp(loss)!r}}}\n'
        folder.metrics.write_text('{"step": 50, "tokens": 3, "dev_perplexity": 1.0}\n' + line)
        hashes = {"metrics_sha256": sha256(folder.metrics)}
        a_result(run.id, steps=steps, chosen_step=steps, **hashes).write(folder.result)


@pytest.fixture
def study(read):
    return read(STUDY)


@pytest.fixture
def results(tmp_path):
    return Results(tmp_path / "results")


def test_without_the_key_and_for_rows_without_tuning_every_id_is_the_same(read, study):
    plain = ids(runs_of(read(HEAD + ROWS.replace(", tune: false", ""))))
    tuned = ids(runs_of(study))
    assert plain.keys() == tuned.keys()
    same = {key for key in plain if plain[key] == tuned[key]}
    assert same == {
        (f"fixed norm_position={place} learning_rate=0.02", seed)
        for place in ("post", "pre")
        for seed in (1, 2)
    }
    assert tuning_runs_of(runs_of(read(HEAD + ROWS.replace(", tune: false", "")))) is None


def test_tuning_runs_are_ordinary_runs_with_a_share_of_the_steps(study):
    values = (0.001, 0.01, 0.1)
    expected = [
        run_id(
            study.data,
            resolve_row({**BASE, **change, "train_steps": 151, "learning_rate": value}),
            seed,
        )
        for seed in (101, 102)
        for change in ({}, {"norm_position": "pre"})
        for value in values
    ]
    assert [run.id for run in tuning_runs_of(runs_of(study))] == expected
    assert not any(run.decodings for run in tuning_runs_of(runs_of(study)))
    assert list(with_tuning_runs(runs_of(study)))[: len(expected)] == list(
        tuning_runs_of(runs_of(study))
    )


def test_a_settled_row_is_the_row_that_one_would_write_by_hand(read, study, results):
    for value, loss in ((0.001, 3.0), (0.01, 2.0), (0.1, 2.5)):
        finish(study, results, "base", value, loss, loss)
        finish(study, results, "A norm_position=pre", value, loss - value * 20, loss - value * 20)
    settled = runs_with_choices(study, results)
    assert [row.config.learning_rate for row in settled.rows] == [0.01, 0.1, 0.02, 0.02]
    assert settled.rows[1].changed == {"norm_position": "pre", "learning_rate": 0.1}
    by_hand = read(f"{HEAD}rows:\n  A: {{set: {{norm_position: pre, learning_rate: 0.1}}}}\n")
    assert [run.id for run in settled.of(settled.rows[1])] == [
        run.id for run in runs_of(by_hand).of(by_hand.rows[1])
    ]
    assert pending_tuning(settled) is None
    assert runs_with_choices(settled.study, results) == settled


def test_rows_are_not_trained_on_other_text_than_the_tuning_runs_that_chose_for_them(
    study, results
):
    for label in ("base", "A norm_position=pre"):
        for value in (0.001, 0.01, 0.1):
            finish(study, results, label, value, 2.0, 2.0)
    stage = next_stage(study, results)
    assert stage.tuning is None
    tuning_run = results.run(next(iter(tuning_runs_of(runs_of(study)))).id)
    an_execution(training_hash="d" * 12).write(tuning_run.execution)
    with pytest.raises(StoreError, match=f"{tuning_run.path}: the training data has changed"):
        prepare_runs(study, stage.runs_to_prepare, results, lambda line: None)


def test_a_row_waits_until_each_of_its_tuning_runs_has_ended(study, results):
    finish(study, results, "base", 0.001, 3.0, 3.0)
    finish(study, results, "base", 0.01, 2.0, 2.0)
    finish(study, results, "base", 0.1, 2.5)
    waiting = runs_with_choices(study, results)
    assert waiting.base.awaits_choice
    assert pending_tuning(waiting) is not None
    finish(study, results, "base", 0.1, 2.5, 2.5)
    half = runs_with_choices(study, results)
    assert [row.awaits_choice for row in half.rows] == [False, True, False, False]
    assert half.rows[1].changed == {"norm_position": "pre"}


def test_a_waiting_run_is_pending_everywhere_and_has_no_id_for_scripts(study, results):
    for run in runs_of(study).of(study.base):
        assert run.awaits_choice
        assert state_of(results.run(run.id), study.base.decoding) == "pending"
    assert len(set(ids(runs_of(study)).values())) == 8
    row = plan_of(runs_of(study), results).as_json()["rows"][0]
    assert [one["id"] for one in row["runs"]] == [None, None]
    table = outcome_of(runs_of(study), results).table
    assert (table.rows[0].state, table.rows[0].note) == (
        "pending",
        "0 of 2 seeds done; awaits tuning",
    )


@given(
    losses=st.lists(
        st.one_of(st.just(math.inf), st.sampled_from([1.0, 2.0]), st.floats(0.1, 9.0)), min_size=1
    ),
)
def test_the_smallest_loss_is_chosen_and_the_first_of_equal_ones(losses):
    candidates = tuple(
        Candidate({"learning_rate": i + 0.5}, resolve_row({}), resolve_row({}))
        for i in range(len(losses))
    )
    tuning = Choice(candidates, math.log(350), tuple(losses))
    index = int(tuning.chosen.values["learning_rate"])
    assert all(loss > losses[index] for loss in losses[:index])
    assert all(loss >= losses[index] for loss in losses)
    assert tuning.has_diverged == all(math.isinf(loss) for loss in losses)


def test_a_candidate_that_diverged_with_any_seed_is_the_worst(study, results):
    finish(study, results, "base", 0.001, 5.0, 5.0)
    finish(study, results, "base", 0.01, 1.0, None)
    finish(study, results, "base", 0.1, None, None)
    tuning = runs_with_choices(study, results).base.choice
    assert tuning.losses == (pytest.approx(5.0), math.inf, math.inf)
    assert tuning.text == "learning_rate=0.001 (edge)"
    # min(loss, ln V) of 5.0, inf and inf is 5.0, ln 350 and ln 350.
    assert tuning.sensitivity == pytest.approx((5.0 + 2 * math.log(350)) / 3 - 5.0)
    assert [one["loss"] for one in tuning.as_json()["grid"]] == [pytest.approx(5.0), None, None]


def test_if_every_candidate_diverged_the_first_is_trained_and_marked(study, results):
    for value in (0.001, 0.01, 0.1):
        finish(study, results, "base", value, None, None)
    tuning = runs_with_choices(study, results).base.choice
    assert tuning.text == "learning_rate=0.001 (all diverged)"
    assert tuning.sensitivity == 0.0


@pytest.mark.parametrize(
    ("grid", "chosen", "edges"),
    [
        ([0.1, 0.2, 0.3], 1, ()),
        ([0.3, 0.1, 0.2], 0, ("learning_rate",)),
        ([0.3, 0.1, 0.2], 2, ()),
        ([0.1], 0, ()),
        ([None, 0.1, 0.2], 0, ()),
    ],
)
def test_an_edge_is_the_smallest_or_largest_number_of_several(grid, chosen, edges):
    candidates = tuple(
        Candidate({"learning_rate": value}, resolve_row({}), resolve_row({})) for value in grid
    )
    losses = tuple(float(index != chosen) for index in range(len(grid)))
    assert Choice(candidates, 1.0, losses).edges == edges


def test_the_loss_is_that_of_the_chosen_step_and_its_loss_on_disk_is_an_error(study, results):
    for value in (0.001, 0.01, 0.1):
        finish(
            study, results, "base", value, 2.0, 4.0
        )  # the log has a perplexity of 1 at an earlier step
    assert runs_with_choices(study, results).base.choice.losses == pytest.approx((3.0, 3.0, 3.0))
    lost = results.run(next(iter(tuning_runs_of(runs_of(study)))).id)
    lost.metrics.unlink()
    with pytest.raises(StoreError, match="has lost its last evaluation"):
        runs_with_choices(study, results)


def test_a_damaged_loss_chooses_no_value(study, results):
    """A digit that has changed would choose another value, and so train other runs."""
    for value, loss in ((0.001, 1.0), (0.01, 2.0), (0.1, 2.0)):
        finish(study, results, "base", value, loss, loss)
    log = results.run([run.id for run in tuning_runs_of(runs_of(study))][1]).metrics
    log.write_text(log.read_text().replace("7.38905", "1.38905"))
    with pytest.raises(
        StoreError,
        match=f"^{log}: is damaged, or has lost its last evaluation; remove {log.parent}",
    ):
        runs_with_choices(study, results)


def test_a_grid_of_several_fields_is_their_product(read):
    text = STUDY.replace(
        "learning_rate: [0.001, 0.01, 0.1]", "learning_rate: [0.01, 0.1], dropout: [0.0, 0.1]"
    )
    labels = [one.label for one in read(text).base.choice.candidates]
    assert labels == [
        f"learning_rate={rate} dropout={p}" for rate in (0.01, 0.1) for p in (0.0, 0.1)
    ]


def test_tuning_runs_count_in_the_plan_and_in_a_budget(study, tmp_path):
    fake = Fake(tmp_path / "results", study)
    plan = plan_of(runs_of(study), fake.results)
    assert (
        len(plan.runs) == 2 * 3 * 2 + 4 * 2
    )  # two rows x three candidates x two seeds; four rows x two seeds
    each = sum(row.flops for row in (*plan.tuning, *plan.rows))
    assert plan.flops == pytest.approx(2 * each)
    finish(study, fake.results, "base", 0.001, 3.0)
    measured = plan_of(runs_of(study), fake.results)
    assert measured.seconds is not None
    assert fit(measured, measured.seconds + 1).runs.seeds.rows == (1, 2)
    one = fit(measured, measured.seconds - 1)  # the tuning stays whole; a seed goes
    assert one.runs.seeds.rows == (1,)
    tuning = sum(measured.seconds_by_run.get(run.id, 0.0) for run in tuning_runs_of(runs_of(study)))
    assert one.seconds > tuning


def test_rows_and_seeds_of_the_command_line_select_the_tuning_runs_of_these_rows(tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    part = runs_of(read_study(path, Selection(rows=["fixed"], seeds="7")))
    assert [row.group for row in tuning_runs_of(part).rows] == ["base"] * 3
    assert tuning_runs_of(part).seeds.rows == (101, 102)


def test_launchers_take_rows_that_are_chosen_while_others_hold_tuning_runs(study, results):
    """Another launcher holds A's tuning runs, and ends them while this one trains base."""
    parts = []

    def end(label):
        for value in (0.001, 0.01, 0.1):
            finish(study, results, label, value, value, value)

    def execute(stage):
        parts.append(stage)
        if len(parts) == 1:
            end("base")
        if len(parts) == 2:
            end("A norm_position=pre")

    execute_stages(next_stage(study, results), results, execute, lambda line: None)
    known = [{row.label for row in stage.runs.rows if not row.awaits_choice} for stage in parts]
    assert [len(labels) for labels in known] == [6, 3, 4]
    assert known[1] == {"base", *(row.label for row in study.rows[2:])}


def test_without_a_choice_no_run_that_waits_is_executed_and_the_stages_end(study, results):
    """All tuning runs have failed."""
    parts = []
    execute_stages(next_stage(study, results), results, parts.append, lambda line: None)
    assert [[row.awaits_choice for row in stage.runs.rows] for stage in parts] == [
        [False] * 6,
        [True, True, False, False],
    ]
    tuning, rows = parts
    assert (len(tuning.missing), tuning.max_parallel_runs, len(rows.missing)) == (12, 12, 4)
    assert (tuning.missing_later, rows.missing_later) == (
        rows.missing,
        (),
    )  # the disk must have room for both
    for id in tuning.missing:
        results.run(id).path.mkdir(parents=True, exist_ok=True)
        a_failure(hosts=("here", "there")).write(results.run(id).failure)
    stage = next_stage(study, results, on_some_host)
    assert (stage.tuning, stage.missing, stage.max_parallel_runs) == (None, rows.missing, 4)
    end = next_stage(study, results, on_some_host, skipped=rows.missing)
    assert not end.missing
    assert "4 runs cannot begin" in end.obstacle


@pytest.mark.parametrize(
    ("grid", "match", "cost"),
    [
        ("d_ff: [128, 256]", "params: d_ff", "params"),  # the free field itself
        ("N: [1, 2]", "params: d_ff", "params"),
        ("batch_tokens: [512, 1024]", "flops: train_steps", "flops"),
    ],
)
def test_a_matched_row_is_not_tuned_away_from_the_cost_of_base(faults, read, grid, match, cost):
    rows = f"rows:\n  A: {{set: {{n_kv_heads: 1}}, match: {{{match}}}}}\n"
    (line,) = faults(f"{HEAD}tune: {{grid: {{{grid}}}, seeds: [3]}}\n{rows}")
    assert line.startswith('table3.yaml:5:7: row "A n_kv_heads=1": tuning ')
    assert f"changes its {cost}, which match keeps equal to base" in line
    kept = read(
        f"{HEAD}tune: "
        f"{{grid: {{batch_tokens: [512, 1024]}}, seeds: [3]}}\n{rows.replace(match, 'params: d_ff')}"
    )
    assert {one.config.d_ff for one in kept.rows[1].choice.candidates} == {
        kept.rows[1].matched.value
    }


@pytest.mark.parametrize(
    ("limit", "row", "said"),
    [
        ("epochs: 5", "h: 2", "a share of the steps needs train_steps; set train_steps in place of epochs"),
        ("train_steps: null, patience: 5", "h: 2", "a share of the steps needs train_steps; set train_steps"),
        ("train_steps: 301", "train_steps: null, epochs: 5", 'row "A train_steps=null epochs=5": a share of the steps needs train_steps; set train_steps in place of epochs'),
    ],
)  # fmt: skip
def test_a_share_of_unknown_steps_is_refused_once_at_the_share(faults, limit, row, said):
    head = HEAD.replace("train_steps: 301", limit)
    tune = TUNE.replace(", steps", ",\n  steps")
    rows = f"rows:\n  A: {{set: {{{row}}}}}\n  B: {{each: {{N: [1, 3]}}}}\n"
    (line,) = faults(head + tune + rows)
    assert line == f"table3.yaml:6:10: {said}"


def test_no_row_is_matched_to_a_base_whose_cost_tuning_changes(faults):
    """The row sets the tuned field, so it is matched to the d_ff of base that is written."""
    rows = "rows:\n  A: {set: {n_kv_heads: 1, d_ff: 64}, match: {params: d_model}, tune: false}\n"
    (line,) = faults(f"{HEAD}tune: {{grid: {{d_ff: [64, 128]}}, seeds: [3]}}\n{rows}")
    assert line.startswith('table3.yaml:5:7: row "A n_kv_heads=1 d_ff=64": tuning d_ff changes ')
    assert "base's params, which match keeps equal to base" in line


@pytest.mark.parametrize(
    ("share", "total", "steps"),
    [(0.55, 200, 110), (0.07, 300, 21), (0.5, 301, 151), (0.29, 301, 88)],
)
def test_steps_of_a_tuning_run_are_the_share_rounded_up_in_exact_arithmetic(
    read, share, total, steps
):
    text = (
        (HEAD + TUNE + ROWS)
        .replace("steps: 0.5", f"steps: {share}")
        .replace("train_steps: 301", f"train_steps: {total}")
    )
    (row, *_) = read(text.replace("warmup_steps: 100", "warmup_steps: 10")).rows
    assert {one.trained.train_steps for one in row.choice.candidates} == {steps}


AS_BASE = "rows:\n  A: {each: {h: [1, 2]}, tune: false}\n"


def test_a_row_with_tune_false_has_the_values_that_are_chosen_for_base(read, results):
    study = read(HEAD + TUNE + AS_BASE)
    assert [row.group for row in tuning_runs_of(runs_of(study)).rows] == [
        "base"
    ] * 3  # it has no tuning runs
    assert all(row.awaits_choice for row in study.rows)
    for value, loss in ((0.001, 3.0), (0.01, 2.0), (0.1, 4.0)):
        finish(study, results, "base", value, loss, loss)
    settled = runs_with_choices(study, results)
    head = HEAD.replace("warmup_steps: 100", "warmup_steps: 100, learning_rate: 0.01")
    by_hand = read(head + AS_BASE.replace(", tune: false", ""))
    assert ids(settled) == ids(runs_of(by_hand))
    assert [row.changed for row in settled.rows] == [row.changed for row in by_hand.rows]
    table = outcome_of(settled, results).table
    rows = json.loads(as_json(table))["rows"]
    assert [row["tuning"] is None for row in rows] == [False, True, True]
    assert _tuning_sentence(runs_of(study), tuning_runs_of(runs_of(study))).startswith(
        "6 tuning runs come first: they choose settings for 1 row"
    )


def test_a_row_with_tune_false_that_sets_a_tuned_field_is_as_written(read):
    study = read(HEAD + TUNE + "rows:\n  A: {set: {h: 2, learning_rate: 0.02}, tune: false}\n")
    assert not study.rows[1].awaits_choice
    assert study.rows[1].config.learning_rate == 0.02


def test_a_row_with_tune_false_has_the_other_values_that_are_chosen_for_base(read, results):
    both = TUNE.replace("[0.001, 0.01, 0.1]", "[0.01, 0.1], weight_decay: [0.01, 0.1]")
    head = HEAD.replace("h: 4,", "h: 4, optimizer: adamw, weight_decay: 0.05,")
    study = read(head + both + "rows:\n  A: {set: {learning_rate: 0.02}, tune: false}\n")
    losses = (3.0, 2.0, 4.0, 5.0)  # the best: 0.01 and 0.1
    base = replace(study.base, choice=study.base.choice.with_losses([(loss,) for loss in losses]))
    assert base.choice.chosen.values == {"learning_rate": 0.01, "weight_decay": 0.1}
    for tuning_row, loss in zip(tuning_runs_of(runs_of(study)).rows, losses, strict=True):
        finish_tuning_run(study, results, tuning_row, loss, loss)
    row = runs_with_choices(study, results).rows[1]
    assert (row.config.learning_rate, row.config.weight_decay) == (0.02, 0.1)
    assert row.changed == {"learning_rate": 0.02}


def test_a_tuned_field_may_be_without_effect_in_a_row_with_tune_false(read):
    tune = "tune: {grid: {adam_beta2: [0.98, 0.999]}, seeds: [101]}\n"
    study = read(HEAD + tune + "rows:\n  A: {set: {optimizer: sgd}, tune: false}\n")
    assert len({candidate.config for candidate in study.rows[1].choice.candidates}) == 1


def test_a_row_with_tune_false_is_decoded_as_base(read, results):
    study = read(HEAD + ON_DEV + "rows:\n  A: {each: {h: [1]}, tune: false}\n")
    decode_on_dev(study, results, lambda alpha, beam, seed: alpha)
    assert [row.config.alpha for row in runs_with_choices(study, results).rows] == [1.5, 1.5]


ON_DEV = "tune: {decoding: {alpha: [0.0, 0.6, 1.5], beam: [1, 4]}}\n"
DECODED_SPLIT = "rows:\n  A: {each: {h: [1]}}\n  fixed: {each: {alpha: [1.0]}, tune: false}\n"


def decode_on_dev(study, results, bleu):
    """Decode base's runs on dev; `bleu` gives the score of (alpha, beam, seed)."""
    for seed in dev_runs_of(runs_of(study)).seeds.rows:
        decodings = {}
        for tuning_row in dev_runs_of(runs_of(study)).rows:
            run = next(
                run for run in dev_runs_of(runs_of(study)).of(tuning_row) if run.seed == seed
            )
            value = bleu(tuning_row.config.alpha, tuning_row.config.beam, seed)
            decodings[tuning_row.decoding] = a_decoding(test="dev", scores=some_scores(bleu=value))
        a_result(run.id, chosen_step=301, decodings=decodings).write(results.run(run.id).result)


def test_decoding_is_chosen_by_the_mean_score_of_base_on_dev_and_is_that_of_every_row(
    read, results
):
    study = read(HEAD + ON_DEV + DECODED_SPLIT)
    plain = read(HEAD + DECODED_SPLIT.replace(", tune: false", ""))
    assert ids(runs_of(study)) == ids(runs_of(plain))  # no training is another one
    assert [row.awaits_decoding for row in study.rows] == [True, True, True]
    # the best of seed 1 is alpha 0.0, and the best on average 1.5; beam 1 and 4 are equal
    scores = {(0.0, 1): 40.0, (0.0, 2): 20.0, (1.5, 1): 35.0, (1.5, 2): 33.0}
    decode_on_dev(study, results, lambda alpha, beam, seed: scores.get((alpha, seed), 30.0))
    chosen = runs_with_choices(study, results)
    by_hand = read(HEAD.replace("N: 2,", "N: 2, alpha: 1.5, beam: 1,") + DECODED_SPLIT)
    # `fixed` has alpha 1.0, and the beam that is chosen
    assert [row.decoding for row in chosen.rows] == [row.decoding for row in by_hand.rows]
    assert (chosen.rows[2].config.alpha, chosen.rows[2].config.beam) == (1.0, 1)
    assert ids(chosen) == ids(runs_of(plain))
    assert chosen.rows[1].changed == {"n_heads": 1, "d_k": 64, "d_v": 64}
    content = json.loads(as_json(outcome_of(chosen, results).table))["decoding"]
    assert (content["metric"], content["split"]) == ("bleu", "dev")
    assert (content["chosen"], content["edges"]) == ({"alpha": 1.5, "beam": 1}, ["alpha", "beam"])
    assert [one["score"] for one in content["grid"]] == [30.0, 30.0, 30.0, 30.0, 34.0, 34.0]


def test_rows_wait_until_base_is_decoded_with_every_candidate(read, results):
    study = read(HEAD + ON_DEV + DECODED_SPLIT)
    parts = []

    def execute(stage):
        parts.append(stage.runs)
        if stage.runs.split == "dev":
            decode_on_dev(study, results, lambda alpha, beam, seed: alpha)

    execute_stages(next_stage(study, results), results, execute, lambda line: None)
    first, then = parts
    assert {run.id for run in first} == {run.id for run in runs_of(study).of(study.base)}
    assert {len(run.decodings) for run in first} == {6}
    assert [row.config.alpha for row in then.rows] == [1.5, 1.5, 1.0]
    # all rows share base's training but A, with its two seeds
    assert len({run.id for part in parts for run in part}) == 4

    damaged = next(iter(first))
    results.run(damaged.id).result.write_text("{}")
    waiting = runs_with_choices(study, results)
    assert [run.awaits_choice for run in waiting.of(waiting.rows[1])] == [True, True]
    assert pending_tuning(waiting).split == "dev"


def test_if_base_diverged_the_first_candidate_is_taken(read, results):
    study = read(HEAD + ON_DEV + DECODED_SPLIT)
    for run in runs_of(study).of(study.base):
        diverged = {"outcome": "diverged", "steps": 7, "reason": "the loss exploded"}
        a_result(run.id, **diverged).write(results.run(run.id).result)
    settled = runs_with_choices(study, results)
    assert (settled.base.config.alpha, settled.base.config.beam) == (0.0, 1)
    assert settled.base.decoding_choice.text.endswith("(all diverged)")


def test_the_choice_of_decoding_does_not_move_with_later_looks(read):
    study = read(HEAD.replace("[1, 2]", "{looks: [2, 5]}") + ON_DEV + DECODED_SPLIT)
    assert (study.seeds.rows, dev_runs_of(runs_of(study)).seeds.rows) == ((1, 2, 3, 4, 5), (1, 2))


def test_a_row_that_is_written_twice_is_noted_beside_a_choice_of_decoding(read):
    (note,) = read(
        f"{HEAD}{ON_DEV}rows: {{A: [{{set: {{h: 2}}}}, {{set: {{h: 2}}}}]}}\n"
    ).source.notes
    assert note.endswith("rows that are written twice, and trained once: A h=2")


LM = "study: t\ntask: language-model\n"
OWN = "data: {corpus: files, train: t.txt, dev: d.txt"


@pytest.mark.parametrize(
    ("data", "settings", "chooser"),
    [
        (f"{OWN}}}", "tune: {grid: {learning_rate: [0.1, 0.2]}, seeds: [9]}", "tune"),
        (f"{OWN}, test: d.txt}}", "base: {patience: 2}", "patience"),
        (f"{OWN}, test: e.txt}}", "base: {patience: 2}", ""),
        ("data: {corpus: files, train: t.txt, dev: 5%, test: 5%}", "base: {patience: 2}", ""),
        (f"{OWN}}}", "", ""),
    ],
)
def test_a_choice_by_the_text_of_the_test_is_noted(read, data, settings, chooser):
    notes = [note for note in read(f"{LM}{data}\n{settings}\n").source.notes if "dev split" in note]
    assert len(notes) == bool(chooser)
    assert all(f"by which {chooser} chooses" in note for note in notes)
