"""A setting that has left all weights unchanged is named below the table."""

from ablate.store.records import FileHash
from tests.report.fakes import Fake, study_from

STUDY = """\
study: small
data: {corpus: toy, vocab_size: 200}
base: {N: 2, d_model: 64, d_ff: 128, h: 4, train_steps: 100}
seeds: [1, 2]
rows:
  A: {each: {eval_every: [10, 20], dropout: [0.3]}}
  B: {set: {dropout: 0.3, epochs: 1000, beam: 1}}
  decoding: {each: {beam: [1]}}
"""
WEIGHTS = {
    "base": "ab", "A eval_every=10": "ab", "A eval_every=20": "ab", "A dropout=0.3": "cd",
    "B dropout=0.3 epochs=1000 beam=1": "cd", "decoding beam=1": "ab",
}  # fmt: skip


def remarks(tmp_path, seeds, weights, losses=None):
    results = Fake(tmp_path / "results", study_from(tmp_path, STUDY))
    assert weights.keys() == results.planned.by_label.keys()
    for label, hashes in weights.items():
        for seed in seeds:
            weights_file = FileHash(file="weights", sha256=hashes[seed - 1])
            log = (losses or {}).get(label, f"{label} {seed}")
            results.done(label, seed, 10.0, 20.0, weights=weights_file, metrics_sha256=log)
    return results.table().experiment.notes.remarks


def test_rows_with_equal_weights_are_named_with_the_fields_in_which_they_differ(tmp_path):
    assert remarks(tmp_path, (1, 2), WEIGHTS) == (
        "The same weights or losses as base with every seed: A eval_every=10, A eval_every=20. The "
        "difference in eval_every had no effect on training.",
        "The same weights or losses as A dropout=0.3 with every seed: B dropout=0.3 epochs=1000 beam=1. "
        "The difference in epochs had no effect on training.",
    )  # fmt: skip


def test_one_seed_with_other_weights_is_an_effect(tmp_path):
    weights = {label: f"{hashes[0]}x" for label, hashes in WEIGHTS.items()}
    weights |= {"A eval_every=10": "ay", "A eval_every=20": "az"}
    weights["B dropout=0.3 epochs=1000 beam=1"] = "cw"
    assert remarks(tmp_path, (1, 2), weights) == ()


def test_equal_losses_of_different_weights_are_no_effect_either(tmp_path):
    """As of a part that is trained but not read."""
    weights = {label: f"{number}{number}" for number, label in enumerate(WEIGHTS)}
    weights["decoding beam=1"] = weights["base"]
    losses = dict.fromkeys(("base", "decoding beam=1", "A eval_every=10"), "log")
    (line,) = remarks(tmp_path, (1, 2), weights, losses)
    assert line.startswith("The same weights or losses as base with every seed: A eval_")
