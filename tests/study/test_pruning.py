"""`prune`: the screen of a recipe, what it removes, and the stages from the screen to the verdict."""

import math
import random

import pytest
from scipy import stats

from ablate.analysis.designs import design_effects
from ablate.analysis.settle import settle
from ablate.analysis.stages import next_stage
from ablate.config import resolve_row
from ablate.report.render import as_json, markdown
from ablate.stats.factorial import smallest_fraction
from ablate.store.files import sha256
from ablate.study.choice import Candidate
from ablate.study.pruning import RESOLUTION, Pruning
from tests.records import a_provenance, a_result, a_run
from tests.report.fakes import Fake

HEAD = """\
study: pruned
data: {corpus: toy, vocab_size: 350}
base: {N: 2, d_model: 64, d_ff: 128, h: 4, norm: rmsnorm, activation: swiglu, dropout: 0.3, train_steps: 100}
seeds: [1, 2]
"""
TUNE, MARGIN = "tune: {seeds: [101, 102], steps: 0.5}\n", "margin: {ppl: 0.4}\njudge: [ppl]\n"
PARTS = (
    "norm: layernorm, ffn: {activation: relu, d_ff: 64}, dropout: 0.1, positional_encoding: learned"
)
GROUP = f"rows: {{P: {{prune: {{{PARTS}}}}}}}\n"
RISES = {"norm": 0.05, "ffn": 0.5, "dropout": -0.2, "positional_encoding": 0.11}


@pytest.fixture
def fake(read, tmp_path):
    return Fake(tmp_path / "results", read(HEAD + TUNE + MARGIN + GROUP))


def loss_of(row):
    """The dev loss of a recipe whose parts are worth RISES; ffn is worth 0.1 less with dropout."""
    lacks = {
        "norm": row.config.norm == "layernorm",
        "ffn": row.config.activation == "relu",
        "dropout": row.config.dropout == 0.1,
        "positional_encoding": row.config.positional_encoding == "learned",
    }
    loss = 2.0 + sum(RISES[part] for part, is_missing in lacks.items() if is_missing)
    return loss - 0.1 * (lacks["ffn"] and not lacks["dropout"])


def screen(fake, rows=None, diverged=()):
    """Finish the runs of the screen, the seeds 0.01 below and above their mean."""
    trials = fake.study.trials
    for index, row in enumerate(trials.rows[:rows]):
        for run, noise in zip(trials.runs_of(row), (-0.01, 0.01), strict=True):
            folder = fake.results.run(run.id)
            data = run.data.model_dump(exclude={"folder"})
            a_run(run.id, seed=run.seed, config=run.config, data=data).write(folder.run)
            a_provenance().write(folder.provenance)
            if (index, run.seed) in diverged:
                fault = {"outcome": "diverged", "steps": 7, "reason": "the loss exploded"}
                a_result(run.id, **fault).write(folder.result)
                continue
            perplexity = math.exp(loss_of(row) + noise)
            folder.metrics.write_text(
                f'{{"step": 50, "tokens": 9, "dev_perplexity": {perplexity!r}}}\n'
            )
            hashes = {"metrics_sha256": sha256(folder.metrics)}
            a_result(run.id, steps=50, chosen_step=50, **hashes).write(folder.result)


def test_the_screen_is_a_fraction_of_resolution_4_with_seeds_of_its_own(fake):
    trials = fake.study.trials
    assert len(trials.rows) == 8
    assert {run.seed for run in trials.runs()} == {101, 102}
    assert {row.config.train_steps for row in trials.rows} == {50}
    # Each part is missing in half of the recipes, and each two parts in a quarter.
    missing = [{*row.label.removeprefix("P pruned: without ").split(", ")} for row in trials.rows]
    for first in RISES:
        for second in RISES:
            both = sum({first, second} <= parts for parts in missing)
            assert both == (4 if first == second else 2)


def test_parts_are_removed_below_a_quarter_of_the_margin_and_their_rises_are_closed_forms(fake):
    screen(fake)
    settled = settle(fake.study, fake.results)
    tuning = settled.rows[1].choice
    # Means over the levels of the others: half of the interaction is in each of its parts.
    expected = {**RISES, "ffn": 0.45, "dropout": -0.15}
    assert {part: one.value for part, one in tuning.rises.items()} == pytest.approx(expected)
    assert tuning.removed == {"norm", "dropout"}
    assert tuning.text == "without norm, dropout"
    assert settled.rows[1].changed == {"norm": "layernorm", "dropout": 0.1}
    (json_parts,) = ([one["part"] for one in tuning.as_json()["parts"] if one["removed"]],)
    assert json_parts == ["norm", "dropout"]


def test_the_pruned_recipe_is_the_row_that_one_would_write_by_hand(fake, read):
    screen(fake)
    settled = settle(fake.study, fake.results)
    by_hand = read(f"{HEAD}rows: {{P: {{set: {{norm: layernorm, dropout: 0.1}}}}}}\n")
    assert [run.id for run in settled.runs()] == [run.id for run in by_hand.runs()]
    assert settle(settled, fake.results) == settled


def test_the_stages_are_the_screen_and_then_both_recipes_from_the_files_alone(fake):
    stage = next_stage(fake.study, fake.results)
    assert len(stage.runs) == 16
    assert stage.sentence == "16 tuning runs for 1 row, then the runs themselves."
    screen(fake, rows=5)
    stage = next_stage(fake.study, fake.results)
    assert (len(stage.runs), stage.part.seeds) == (6, (101, 102))
    assert settle(fake.study, fake.results).rows[1].awaits_choice
    assert "awaited" in design_effects(fake.table())[0].names[0]
    screen(fake)
    stage = next_stage(fake.study, fake.results)
    assert [(run.seed, run.config.dropout) for run in stage.part.runs()] == [
        (1, 0.3), (1, 0.1), (2, 0.3), (2, 0.1),
    ]  # fmt: skip
    fake.study = stage.settled
    for seed in (1, 2):
        fake.done("base", seed, ppl=8.0 + seed, bleu=20.0)
        fake.done("P pruned", seed, ppl=8.1 + seed, bleu=20.0)
    assert not next_stage(fake.study, fake.results).runs


def test_the_table_has_the_screen_and_the_verdict_on_what_was_removed(fake):
    screen(fake)
    fake.study = settle(fake.study, fake.results)
    for seed in (1, 2):
        fake.done("base", seed, ppl=8.0 + seed, bleu=20.0)
        fake.done("P pruned", seed, ppl=(8.0 + seed) * (1.01 - 0.007 * seed), bleu=20.0)
    table = fake.table()
    assert table.rows[1].verdicts["ppl"].word == "as good as base"
    (found,) = design_effects(table)
    assert found.names == (
        "norm: removed", "ffn: kept", "dropout: removed", "positional_encoding: kept",
    )  # fmt: skip
    # The variance of a run is 2 * 0.01^2 with 8 degrees of freedom, and an effect has 4 / 16 of it.
    ffn, half = found.by_metric["ppl"][1], stats.t.isf(0.05 / 7 / 2, 8) * 0.01 * math.sqrt(0.5)
    assert (ffn.value, ffn.high - ffn.value) == (pytest.approx(0.45), pytest.approx(half))
    text = markdown(table, against_paper=False)
    assert "| norm: removed | ×1.051 [" in text
    assert (
        "tuned: the parts without which the dev loss rises by less than 0.1 nats, a quarter" in text
    )
    assert "sensitivity" not in text
    assert '"removed": true' in as_json(table)


def test_a_run_that_diverged_counts_as_uniform_predictions(fake):
    screen(fake, diverged={(0, 101), (0, 102)})
    tuning = settle(fake.study, fake.results).rows[1].choice
    assert tuning.by_seed[0] == (math.log(350), math.log(350))
    assert all(math.isfinite(one.value) for one in tuning.rises.values())


def a_screen(recipe, margin, seeds, draw):
    """A screen of eight parts with losses of sd 1; `recipe` gives the loss without some parts."""
    names = tuple("ABCDEFGH")
    fraction = smallest_fraction(names, RESOLUTION)
    config = resolve_row({})

    def without(parts):
        return Candidate({}, config, config, "".join(sorted(parts)))

    cells = [frozenset(p for p in names if levels[p] > 0) for levels in fraction.cells()]
    empty = Pruning(
        tuple(map(without, cells)), 1e9, fraction=fraction, margin=margin, without=without
    )
    return empty.with_losses(
        [[recipe(cell) * margin + draw.gauss(0, 1) for _ in range(seeds)] for cell in cells]
    )


@pytest.mark.parametrize(
    "recipe",
    [lambda lacks: len(lacks & {*"ABC"}), lambda lacks: bool(lacks & {*"AB"}) + ("C" in lacks)],
    ids=["each alone", "A and B only together"],
)
def test_planted_recipes_are_recovered(recipe):
    # benchmarks/pruning.py: .97 of the screens, with the confirmation, at three seeds and 3 sd.
    draw, recovered = random.Random(41), 0
    for _ in range(100):
        found = a_screen(recipe, 3.0, 3, draw)
        recovered += found.chosen.label == "DEFGH"
    assert recovered >= 90


def test_no_part_is_called_removed_before_the_screen_is_complete():
    found = a_screen(lambda lacks: 0.0, 1.0, 2, random.Random(0))
    waiting = found.with_losses([[1.0, None], *[[1.0, 1.0]] * 15])
    assert (waiting.chosen, waiting.rises, waiting.text) == (None, {}, "awaits tuning")


FAULTS = {
    "no seeds": (MARGIN + GROUP, "7:19: prune needs tune: {seeds: [101, 102, 103]}, the seeds of its screen"),
    "no margin": (TUNE + GROUP, "6:19: prune needs margin: {ppl: NUMBER}, the rise of the dev loss"),
    "grid": (
        MARGIN + TUNE.replace("{seeds", "{grid: {learning_rate: [0.1, 0.2]}, seeds") + GROUP,
        "8:19: prune with a grid of tune: the recipe would move with its parts",
    ),
    "match": (
        MARGIN + TUNE + "match: {params: d_ff}\n" + GROUP.replace("ffn: {activation: relu, d_ff: 64}, ", ""),
        "9:19: prune with match: a matched field would be a further change",
    ),
    "one part": (
        MARGIN + "tune: {grid: {h: [2, 4]}, seeds: [101]}\nrows: {P: {prune: {norm: layernorm}}}\n",
        "8:19: prune needs 2 to 10 fields or named groups of fields; got 1",
    ),
    "where": (
        MARGIN + TUNE + GROUP.replace("}}}\n", "}, require: h > 1}}\n"),
        "8:117: require has no effect on prune, whose screen chooses the row",
    ),
    "seed of the study": (MARGIN + TUNE.replace("101", "1") + GROUP, "7:16: seed 1 is a seed of the study"),
    "no group": (MARGIN + TUNE + "rows: {A: {set: {h: 2}}}\n", "7:7: tune needs grid, because it has seeds"),
    "unknown field": (MARGIN + TUNE + GROUP.replace("dropout", "droput"), '8:72: unknown field "droput"; did you mean "dropout"?'),
    "equal": (
        MARGIN + TUNE + GROUP.replace("dropout: 0.1", "dropout: 0.3"),
        "8:72: dropout: has the value of base, so that nothing is removed",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "fault"), FAULTS.values(), ids=FAULTS)
def test_faults_have_one_line(text, fault, faults):
    (line,) = faults(HEAD + text)
    assert fault in line


@pytest.mark.parametrize("tune", [TUNE + MARGIN, "tune: {decoding: {alpha: [0.6, 1.0]}}\n"])
def test_a_row_that_is_written_twice_is_noted_beside_a_screen_or_a_choice_of_decoding(tune, read):
    group = "}, A: [{set: {h: 2}}, {set: {h: 2}}]}\n"
    group = GROUP.removesuffix("}\n") + group[1:] if "101" in tune else f"rows: {{{group[3:]}"
    study = read(HEAD + tune + group)
    (note,) = study.notes
    assert note.endswith("rows that are written twice, and trained once: A h=2")
