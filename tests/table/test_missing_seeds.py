"""Tables of unfinished studies: each number says which seeds it has."""

import json

import pytest

from ablate.table.conclusion import conclusion
from ablate.table.designs import design_effects
from ablate.table.ladder import ladder_layout, ladders
from ablate.table.render import as_json
from tests.report.fakes import SMALL, Fake, study_from

PARTS = "{norm_position: pre, dropout: 0.3, label_smoothing: 0.0}"


def study(tmp_path, seeds="[1, 2, 3]", rows="  A: {each: {h: [1, 2]}}\n", more=""):
    head = SMALL.partition("seeds:")[0]
    return study_from(tmp_path, f"{head}{more}seeds: {seeds}\nrows:\n{rows}")


def fill(tmp_path, study, missing=(), diverged=()):
    """The results of a study; `missing` and `diverged` have (label, seed)."""
    fake = Fake(tmp_path / "results", study)
    for index, row in enumerate(fake.planned.rows):
        for run in fake.planned.of(row):
            noise = (run.seed * (index + 2) % 5) / 10
            if (row.label, run.seed) in diverged:
                fake.diverged(row.label, run.seed, 30, "loss is not finite")
            elif (row.label, run.seed) not in missing:
                params = 10**row.config.n_layers
                bleu = 25.0 - index + noise
                fake.done(row.label, run.seed, ppl=5.0 + noise, bleu=bleu, params=params)
    return fake


def json_rows(fake):
    return {row["row"]: row for row in json.loads(as_json(fake.table()))["rows"]}


def test_values_say_their_seeds_where_some_are_missing(tmp_path):
    rows = json_rows(fill(tmp_path, study(tmp_path), [("A h=1", 1), ("base", 3)]))
    assert rows["base"]["bleu"]["seeds"] == [1, 2]
    assert rows["A h=1"]["bleu"]["seeds"] == [2, 3]
    assert rows["A h=1"]["delta_bleu"]["seeds"] == [2]
    assert rows["A h=1"]["cost"]["seconds"]["seeds"] == [2, 3]
    assert "seeds" not in rows["A h=2"]["bleu"]
    base, row = rows["base"]["bleu"], rows["A h=1"]["bleu"]
    paired = dict(zip(row["seeds"], row["values"], strict=True))
    of_base = dict(zip(base["seeds"], base["values"], strict=True))
    assert rows["A h=1"]["delta_bleu"]["mean"] == pytest.approx(paired[2] - of_base[2])


def test_the_mean_of_a_difference_has_the_seeds_of_its_interval(tmp_path):
    missing = [("A h=1", 4), ("A h=2", 4), ("A h=2", 3)]
    fake = fill(tmp_path, study(tmp_path, "{looks: [2, 4]}", more="margin: 0.01\n"), missing)
    row = json_rows(fake)["A h=1"]  # at the first look; its third seed has ended
    assert row["bleu"]["n"] == 3
    # Seeds 1 and 2 of base have the noise .2 and .4, of the row .3 and .1.
    assert row["delta_bleu"]["mean"] == pytest.approx(-1.0 + (0.3 + 0.1 - 0.2 - 0.4) / 2)
    assert row["delta_bleu"]["mean"] == pytest.approx(row["against_base"]["bleu"]["mean"])
    assert row["delta_bleu"]["n"] == row["against_base"]["bleu"]["n"] == 2


def test_a_row_of_one_seed_has_no_detectable_difference_of_other_rows(tmp_path):
    fake = Fake(tmp_path / "results", study(tmp_path))
    scores = {"base": (25.0, 25.5, 25.2), "A h=2": (25.1, 25.3, 25.4)}
    for label, values in scores.items():
        for seed, bleu in enumerate(values, 1):
            fake.done(label, seed, ppl=5.0, bleu=bleu)
    fake.done("A h=1", 3, ppl=5.0, bleu=25.3)
    sentences = conclusion(fake.table())
    assert "Undecided: A h=1, because one seed shows no spread." in sentences
    assert any(text.startswith("Undecided: A h=2 (detectable difference: ") for text in sentences)


def test_the_runs_behind_the_effects_of_a_path_are_counted_once_with_the_rows_they_start_from(
    tmp_path,
):
    paths = study(tmp_path, rows=f"  P: {{leave-one-out: {PARTS}}}\n")
    labels = [row.label for row in paths.rows]
    assert labels[1] == "P all"
    fake = fill(tmp_path, paths, missing=[(labels[2], 1)], diverged=[("P all", 1), (labels[3], 2)])
    (found,) = design_effects(fake.table())
    assert "2 runs diverged and have no score in these effects." in found.notes
    assert "1 run has no score yet: some effects are over fewer seeds." in found.notes


def test_a_ladder_says_how_many_seeds_a_difference_and_a_slope_have(tmp_path):
    sizes = "sizes: {small: {}, large: {N: 3}}\n"
    fake = fill(tmp_path, study(tmp_path, more=sizes), [("small A h=1", 1), ("large A h=1", 2)])
    (ladder, *_) = ladders(fake.table())
    name, small, large, *_, slope = ladder_layout(ladder).rows[0]
    assert name == "A h=1"
    assert small.endswith(" (2/3)")
    assert large.endswith(" (2/3)")
    assert slope.endswith(" (1/3)")  # only seed 3 has both sizes
    assert not ladder_layout(ladder).rows[1][-1].endswith("/3)")
