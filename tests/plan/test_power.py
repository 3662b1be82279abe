"""The power section of a plan: its spread from runs or as stated, its words and its JSON."""

import json
import re

import numpy as np
import pytest

from ablate.cli.init import TEMPLATES
from ablate.config.lengths import Lengths
from ablate.formatting import plural
from ablate.plan.power import power_json, power_of, power_warning
from ablate.stats.looks import planned_looks
from ablate.stats.power import detectable_difference
from ablate.store import Results
from ablate.store.score_cache import score_source, write_scores
from ablate.study import read_study, runs_of
from tests.cli.inside import inside
from tests.records import a_measurement
from tests.report.fakes import SMALL


@pytest.mark.parametrize("template", sorted(TEMPLATES.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_template_finds_differences_such_as_most_published_rows_show(template, tmp_path):
    """The plan says so before any run. The rows of the quickstart differ by more, so that three
    seeds are enough.
    """
    path = tmp_path / "study.yaml"
    path.write_text(template.read_text().replace("<name>", "study"))
    power, *_ = power_of(runs_of(read_study(path)), Results(tmp_path / "results"))
    assert power.detectable_sds <= (4.7 if template.stem == "quickstart" else 3.2)
    assert power_warning(power) is None
    assert power.text.startswith(
        "Expected detectable difference of a row with typical noise, with "
    )


def test_the_spread_is_that_of_the_layout_of_rows_and_seeds(fake):
    results = fake(rows=["A"])
    draw = np.random.default_rng(0)
    scores = draw.normal(size=(3, 3)) + np.array(
        [[0.0, 5.0, -3.0]]
    )  # the seeds' effect is no noise
    for row, values in zip(("base", "A h=1", "A h=2"), scores, strict=True):
        for seed, value in enumerate(values, 1):
            results.done(row, seed, 5.0, 25.0 + value)
    (bleu,) = power_of(results.planned, results.results)
    centered = scores - scores.mean(axis=0) - scores.mean(axis=1, keepdims=True) + scores.mean()
    assert bleu.sd == pytest.approx(((centered**2).sum() / 4) ** 0.5)
    assert (bleu.metric.name, bleu.experiment.name, bleu.rows, bleu.source) == (
        "bleu", "small", 4, "runs"
    )  # fmt: skip


@pytest.mark.parametrize("rows", [("A h=1",), ("A h=1", "A h=2")])
def test_of_finished_rows_plan_has_the_median_of_the_differences_in_the_table(fake, rows):
    """Two numbers for one row, of which neither says how it was made, are a riddle."""
    each = {"A h=1": "[1]", "A h=2": "[1, 2]"}[rows[-1]]
    text = SMALL.partition("rows:")[0] + f"rows:\n  A: {{each: {{h: {each}}}}}\n"
    results = fake(text)
    for seed, noise in ((1, 0.0), (2, 1.5), (3, -0.7)):
        results.done("base", seed, 5.0, 25.0)
        for times, row in enumerate(rows, 1):
            results.done(row, seed, 5.0, 24.0 + times * noise)
    (bleu,) = power_of(results.planned, results.results)
    verdicts = results.table().verdicts(bleu.metric)
    expected = np.median([verdict.minimum_detectable for verdict in verdicts])
    assert bleu.detectable_difference(3) == pytest.approx(expected)
    doubled = bleu.detectable_difference(6)
    assert doubled < expected
    assert bleu.text.startswith(
        f"Detectable difference of {'the row' if len(rows) == 1 else 'the median row'}, with 3 "
        f"seeds, {plural(len(rows), 'row')} and 80 % power: {expected:.1f} BLEU ({doubled:.1f} with 6 "
        f"seeds). "
    )
    assert bleu.seeds_needed(doubled) == 6


def test_base_alone_gives_a_spread_and_one_seed_of_it_gives_none(fake):
    results = fake()
    results.done("base", 1, 5.0, 25.0)
    assert power_of(results.planned, results.results)[0].source == "typical"
    results.done("base", 2, 5.0, 27.0)
    assert power_of(results.planned, results.results)[0].sd == pytest.approx(2**0.5)


def test_before_a_row_has_finished_the_noise_of_sentences_is_that_between_seeds_of_base(fake):
    results = fake()
    draw = np.random.default_rng(0)
    for seed in (1, 2, 3):
        results.translated("base", seed, ["kana"])
        results.done("base", seed, 5.0, 25.0 + seed / 10)
        folder, id = results.folder("base", seed), results.study.base.decoding
        decoding = folder.read_result().decodings[id]
        scores = a_measurement(25.0 + seed / 10, tuple(25.0 + draw.normal(scale=0.5, size=1000)))
        write_scores(folder, id, score_source(decoding.sha256, decoding.corpus), {"bleu": scores})
    bleu, *_ = power_of(results.planned, results.results)
    # The mean of three differences between models whose scores vary independently.
    assert bleu.sentences == pytest.approx(0.5 * (2 / 3) ** 0.5, rel=0.05)
    assert bleu.detectable_difference(3) > detectable_difference(3, 4, bleu.sd)
    assert f"{bleu.sentences:.1f} over test sentences, estimated from" in bleu.text


def test_a_stated_spread_needs_no_runs_and_one_seed_finds_nothing(fake):
    results = fake(seeds="1")
    (power,) = power_of(results.planned, results.results, spread=0.5)
    three = power.detectable_difference(3)
    assert power.text.startswith(
        "One seed detects no difference. If the study had 3 seeds, the expected detectable difference "
    )
    assert f"with 4 rows and 80 % power, would be {three:.1f} BLEU (" in power.text
    assert power_json(power)["detectable"]["1"] is None
    assert power.seeds_text(50.0) == "A difference of 50 BLEU takes 2 seeds."


def test_a_main_metric_without_spread_is_named_and_takes_no_other_metric_for_to_see(fake):
    results = fake()
    for seed, ppl in ((1, 5.0), (2, 5.1)):
        results.done("base", seed, ppl, 20.0)
    given = [str(results.study.path), "--results", str(results.results.root)]
    done = inside("plan", *given)
    assert (
        "The seeds of the finished runs have equal BLEU, so the detectable difference is unknown"
        in done.out
    )
    assert re.search(r"detectable difference of .*: ×\d+\.\d+ PPL \(", done.out)
    refused = inside("plan", *given, "--difference", "1")
    assert (refused.code, refused.err) == (
        2, "--difference: the runs show no spread of BLEU over seeds; give --spread SD\n",
    )  # fmt: skip
    power = json.loads(inside("plan", *given, "--format", "json").out)["power"]
    assert set(power["bleu"]["detectable"].values()) == {None}
    assert power["ppl"]["detectable"]["3"] > 0


@pytest.mark.parametrize(
    ("corpus", "expected"),
    [
        ("toy", ("anatomy",)),
        ("multi30k", ("multi30k", "multi30k-published", "table3-multi30k")),
        ("wmt14", ("multi30k", "multi30k-published", "table3-multi30k")),
    ],
)
def test_before_any_run_the_spread_is_that_of_published_studies_on_the_same_or_on_natural_text(
    fake, corpus, expected
):
    results = fake(SMALL.replace("corpus: toy", f"corpus: {corpus}"))
    (bleu,) = power_of(results.planned, results.results)
    assert tuple(bleu.published) == expected
    sds = sorted(bleu.published.values())
    assert bleu.sd == pytest.approx(np.median(sds))
    assert power_json(bleu)["published"] == list(expected)
    assert power_json(bleu)["detectable"]["3"] == detectable_difference(
        3, 4, bleu.sd, bleu.sentences
    )
    noun = "study" if len(expected) == 1 else "studies"
    assert f"typical of the published {noun} {', '.join(expected)}" in bleu.text
    assert (f" ({sds[0]:.1f} to {sds[-1]:.1f})" in bleu.text) == (len(sds) > 1)


@pytest.mark.parametrize(
    ("steps", "text", "expected"),
    [
        (18, None, ("typical", 1.02, False)),
        (18, 101_900 / 2, ("typical", 2.0, True)),
        (6, None, ("typical", 3.07, True)),
        (1, None, ("unknown", 1.0, False)),
        (18, 10_000, ("unknown", 1.0, False)),
    ],
)
def test_published_studies_with_more_text_or_training_give_a_lower_bound_or_nothing(
    fake, monkeypatch, steps, text, expected
):
    """The published study on this corpus has 101,900 tokens, and trains on 460,800."""
    lengths = None if text is None else Lengths(1, 1, 1, round(text), 1, 1, 1)
    monkeypatch.setattr("ablate.plan.power.known_lengths", lambda data, corpora: lengths)
    results = fake(SMALL.replace("train_steps: 100", f"train_steps: {steps}"))
    (bleu,) = power_of(results.planned, results.results)
    assert (bleu.source, round(bleu.excess, 2), bleu.is_lower_bound) == expected
    assert ("80 % power: at least " in bleu.text) == bleu.is_lower_bound
    assert ("this study has more noise" in bleu.text) == bleu.is_lower_bound
    assert (" takes at least " in bleu.seeds_text(5)) == bleu.is_lower_bound
    assert power_json(bleu)["is_lower_bound"] == bleu.is_lower_bound


def test_the_spread_of_another_metric_is_unknown_and_differences_are_in_standard_deviations(fake):
    results = fake("metrics: [ter]\n" + SMALL)
    (ter,) = power_of(results.planned, results.results)
    assert (ter.source, power_json(ter)["sd"], power_json(ter)["detectable"]["3"]) == (
        "unknown", None, None,
    )  # fmt: skip
    assert power_json(ter)["detectable_sds"] == detectable_difference(3, 4, 1.0)
    assert f"power: {detectable_difference(3, 4, 1.0):.1f} standard deviations" in ter.text
    refused = inside(
        "plan", results.study.path, "--results", results.results.root, "--difference", "1"
    )
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "give --spread SD" in refused.err


@pytest.mark.parametrize(("seeds", "is_hopeless"), [("1", True), ("1-2", True), ("1-3", False)])
def test_plan_says_before_any_run_that_seeds_are_too_few_with_the_remedy(fake, seeds, is_hopeless):
    results = fake(seeds=seeds)
    given = results.study.path, "--seeds", seeds, "--results", results.results.root
    done = inside("plan", *given)
    (bleu,) = json.loads(inside("plan", *given, "--format", "json").out)["power"].values()
    assert ("Too few seeds" in done.out) == (bleu["warning"] is not None) == is_hopeless
    assert is_hopeless == (f"from {bleu['detectable']['5']:.1f} BLEU upwards" in done.out)
    assert is_hopeless == ("`seeds: [1, 2, 3, 4, 5]`" in done.out)
    assert (seeds == "1-2") == ("rows of the published studies show" in done.out)


def test_a_spread_of_few_rows_says_so(fake):
    results = fake()
    for label, values in (("base", (25.0, 25.4, 24.8)), ("A h=1", (24.0, 24.6, 24.1))):
        for seed, value in enumerate(values, 1):
            results.done(label, seed, 5.0, value)
    bleu = power_of(results.planned, results.results)[0]
    assert bleu.text.endswith("from the differences between rows and base, without 2 of 4 rows.")


def test_base_alone_has_no_difference_to_see(fake):
    results = fake(SMALL.partition("rows:")[0])
    given = ["--results", results.results.root, "--difference", "1"]
    refused = inside("plan", results.study.path, *given)
    assert refused.refusal == "--difference: the study has no row beside base"


def test_seeds_in_looks_are_judged_by_the_last_look(fake):
    results = fake(SMALL.replace("[1, 2, 3]", "{looks: [2, 5]}"))
    (bleu,) = power_of(results.planned, results.results)
    assert bleu.detectable_sds == detectable_difference(
        5, 4, 1.0, level=planned_looks((2, 5))[-1].level
    )
    assert power_warning(bleu) is None


@pytest.mark.parametrize(("ppl", "has_learned"), [(20.0, True), (60.0, False)])
def test_runs_that_have_learned_nothing_show_no_detectable_difference(fake, ppl, has_learned):
    results = fake(SMALL + "judge: [ppl]\n")
    for label in ("base", "A h=1"):
        for seed in (1, 2, 3):
            results.done(label, seed, ppl + seed, 20.0)
            results.with_parts(label, seed, of="ppl", by_chance=63.27)
    given = [str(results.study.path), "--results", str(results.results.root)]
    said = inside("plan", *given).out
    unknown = (
        "The detectable difference in PPL is unknown: by PPL, base has learned nothing: none of the "
        "3 scores is below 50.62, which is 20 % below chance (63.27)."
    )
    assert (unknown in said) is not has_learned
    assert (
        re.search(r"etectable difference of .*: ×\d+\.\d+ PPL \(", said) is not None
    ) is has_learned
    power = json.loads(inside("plan", *given, "--format", "json").out)["power"]["ppl"]
    assert (set(power["detectable"].values()) == {None}) is not has_learned
    assert power["detectable_sds"] > 0
    assert inside("plan", *given, "--difference", "0.1").code == (0 if has_learned else 2)
    assert inside("plan", *given, "--difference", "0.1", "--spread", "0.01").code == 0


def test_plan_shows_it_and_refuses_what_it_cannot_know(fake):
    results = fake()
    given = [str(results.study.path), "--results", str(results.results.root)]
    done = inside("plan", *given, "--spread", "0.5", "--difference", "1")
    assert "Expected detectable difference of a row with typical noise, with" in done.out
    assert "A difference of 1 BLEU takes" in done.out
    content = json.loads(
        inside("plan", *given, "--spread", "0.5", "--difference", "1", "--format", "json").out
    )
    assert content["power"]["bleu"]["stated"] is True
    assert content["seeds_needed"]["seeds"] > 2
    assert inside("plan", *given, "--spread", "-1").code == 2


def test_rows_that_only_decode_base_in_another_way_do_not_make_the_study_look_more_powerful(fake):
    results = fake(rows=["A", "decoding"])
    for seed, base, other in ((1, 25.0, 21.0), (2, 26.0, 24.5), (3, 24.0, 23.5)):
        results.done("base", seed, 5.0, base)
        results.done("A h=1", seed, 6.0, other)
    before = power_of(results.planned, results.results)
    for seed, bleu in ((1, 24.8), (2, 25.79), (3, 23.81)):  # almost base's own noise
        results.done("decoding beam=1", seed, 5.0, bleu)
    assert [one.sd for one in power_of(results.planned, results.results)] == [
        one.sd for one in before
    ]
