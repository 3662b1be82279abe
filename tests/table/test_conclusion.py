"""The conclusion is grammatical for every combination of verdicts, and says no more than they
do.
"""

import itertools
import json
import re
from dataclasses import replace
from typing import get_args

import pytest

from ablate.config.identity import decoding_id
from ablate.stats.comparison import PairedScores
from ablate.stats.judge import verdicts
from ablate.stats.metrics import PPL, PPL_CHAR, TRANSLATION_METRICS
from ablate.stats.verdict import Verdict, Word
from ablate.store.records import CorpusManifest, Result
from ablate.table import conclusion as words
from ablate.table.conclusion import MOST_NAMED, RowVerdict, conclusion, unlearned_limits
from ablate.table.latex import latex
from ablate.table.render import as_json, markdown
from tests.records import CORPUS, a_manifest, change
from tests.report.fakes import SMALL

BLEU = TRANSLATION_METRICS[0]


def judged(number, differences, margin=None, **counts):
    scores = PairedScores(dict(enumerate(differences)), **counts)
    (verdict,) = verdicts(BLEU, [scores], margin=margin)
    return RowVerdict(f"A h={number}", verdict)


KINDS = {
    "worse": lambda n: judged(n, [-4.0, -4.2 - n / 10, -4.4], margin=0.5),
    "better": lambda n: judged(n, [2.0, 2.1, 1.8 - n / 100]),
    "as good as base": lambda n: judged(n, [0.1, -0.1, 0.0], margin=0.5),
    "cannot tell": lambda n: judged(n, [-1.0, 1.3, -0.9 - n / 10]),
    "no difference": lambda n: judged(n, [0.0, 0.0]),
    "diverged": lambda n: judged(n, [], diverged=1, base_ended=1),
    "": lambda n: judged(n, []),
}


def said(rows, family=None):
    return words._verdict_sentences(BLEU, rows, len(rows) if family is None else family)


def test_the_kinds_of_rows_here_are_all_verdicts():
    assert set(KINDS) == set(get_args(Word))
    for word, make in KINDS.items():
        assert make(1).verdict.word == word


@pytest.mark.parametrize("first", [0, 1, 2])
def test_every_combination_of_verdicts_is_grammatical_and_names_each_row_once(first):
    made = [[make(n) for n in range(2)] for make in KINDS.values()]
    for others in itertools.product([0, 1, 2], repeat=len(KINDS) - 1):
        check_grammar(made, (first, *others))


def check_grammar(made, counts):
    rows = [row for rows, count in zip(made, counts, strict=True) for row in rows[:count]]
    rows = [replace(row, label=f"A h={place}") for place, row in enumerate(rows)]
    sentences = said(rows)
    for sentence in sentences:
        assert re.fullmatch(r"[A-Z].*\.", sentence), sentence
        assert not re.search(
            r"  |None|nan|\(\)|, ,|\.\.| ,|\b1 (seeds|rows)\b|\b1 more seeds", sentence
        ), sentence
    text = " ".join(sentences)
    by_word = dict(zip(KINDS, counts, strict=True))
    for row in rows:
        once = re.sub(r"as observed for A h=\d+", "", text)
        assert len(re.findall(rf"{row.label}\b", once)) == 1, (row.label, text)
    assert ("Worse than base" in text) == bool(by_word["worse"])
    assert ("Better than base" in text) == bool(by_word["better"])
    assert ("such studies would call a row worse or better" in text) == bool(
        by_word["worse"] or by_word["better"]
    )
    assert ("No row is shown" in text) == (
        not by_word["worse"]
        and not by_word["better"]
        and bool(by_word["as good as base"] or by_word["cannot tell"])
    )
    assert ("detectable difference" in text) == bool(by_word["cannot tell"])


def by_both(kind, other, number, label):
    """A row with a verdict by BLEU and one by PPL, of two kinds."""
    other = replace(KINDS[other](number).verdict, metric=PPL)
    verdicts = (KINDS[kind](number).verdict, other)
    return words._JointRow(label, verdicts, any(verdict.word for verdict in verdicts))


def said_by_both(rows):
    return words._joint_sentences(rows, len(rows), 0.05, 2)


@pytest.mark.parametrize("count", [1, 2, MOST_NAMED + 1])
def test_rows_of_two_metrics_are_named_once_with_the_words_of_both(count):
    """For each pair of verdicts, alone and beside rows of all other pairs."""
    pairs = list(itertools.product(KINDS, repeat=2))
    every = []
    for place, pair in enumerate(pairs):
        rows = [by_both(*pair, n % 2, f"r{place}-{n}") for n in range(count)]
        every += rows
        text = " ".join(said_by_both(rows))
        for row in rows:
            once = re.sub(r"(as observed for|most of all) r[\d-]+", "", text)
            assert len(re.findall(rf"{row.label}\b", once)) == 1, text
        assert not re.search(r"  |None|nan|\(\)|, ,|\.\.| ,|\b1 rows\b|\b1 (are|have)\b", text), (
            text
        )
        # Each difference has its metric, and each undecided metric is one that says so.
        for word, metric in zip(pair, ("BLEU", "PPL"), strict=True):
            if word in ("worse", "better"):
                assert re.search(rf"{word} than base by (BLEU and |PPL and )?{metric}", text), text
            if word == "cannot tell":
                assert re.search(rf"undecided by (BLEU and )?{metric}", text), text
        assert ("detectable difference" in text) == (
            "cannot tell" in pair and set(pair) <= {"cannot tell", ""}
        )
    sentences = said_by_both(every)
    assert sentences[0].startswith(f"Of {len(every)} rows, ")
    counts = [re.search(r"(?:^|, )(\d+) (?:rows? )?(?:is|are|has|have) ", s) for s in sentences]
    assert sum(int(found[1]) for found in counts if found) == len(every)
    undecided = [
        place for place, sentence in enumerate(sentences)
        if re.search(r"(is|are) undecided|no score yet", sentence)
    ]  # fmt: skip
    assert undecided == list(range(undecided[0], len(sentences)))  # after all decided rows


def test_rows_with_the_same_words_by_two_metrics_are_one_sentence():
    rows = [
        by_both("worse", "cannot tell", 1, "A"),
        by_both("cannot tell", "cannot tell", 1, "B"),
        by_both("worse", "worse", 1, "C"),
        by_both("", "", 1, "D"),
        by_both("worse", "cannot tell", 0, "E"),
    ]
    both, one, error, neither, unknown = said_by_both(rows)
    assert both.startswith("Of 5 rows, 1 is worse than base by BLEU and PPL: C (-4.2 BLEU [")
    assert "]; ×" in both
    assert one.startswith("2 rows are worse than base by BLEU and undecided by PPL: A (-4.2 BLEU [")
    assert one.count("PPL") == 1
    assert error.startswith("Corrected for the 5 rows of the study and 2 metrics: if no row")
    assert neither.startswith("1 row is undecided by BLEU and PPL: B (detectable difference: ")
    assert unknown == "1 row has no score yet: D."


def test_a_reason_is_given_where_no_metric_decides():
    flat = judged(1, [-2.0, -2.0]).verdict  # the seeds show no spread
    by_ppl = KINDS["cannot tell"](1).verdict
    rows = [
        words._JointRow("A", (KINDS["worse"](1).verdict, replace(flat, metric=PPL)), True),
        words._JointRow("B", (flat, replace(by_ppl, metric=PPL)), True),
    ]
    decided, _, undecided = said_by_both(rows)
    assert decided.startswith("Of 2 rows, 1 is worse than base by BLEU and undecided by PPL: A (")
    reason = "undecided by BLEU, because the differences from base show no spread in BLEU; undecided by PPL"
    assert undecided.startswith(f"1 row is {reason}: B (detectable difference: ×")
    assert "BLEU)" not in undecided


def test_many_rows_of_two_metrics_have_the_span_of_their_differences():
    rows = []
    for n in range(1, MOST_NAMED + 2):
        verdict = judged(n, [-float(n), -n - 0.02, -n + 0.03]).verdict
        rows.append(words._JointRow(f"A h={n}", (verdict, KINDS["cannot tell"](n).verdict), True))
    (sentence, _) = said_by_both(rows)
    labels = ", ".join(f"A h={n}" for n in range(MOST_NAMED + 1, 0, -1))
    assert f": {labels}; by 1.0 to 7.0 BLEU; most of all A h=7 (-7.0 BLEU [" in sentence


def test_a_difference_has_its_size_its_interval_and_its_doubt():
    (row,) = rows = [judged(1, [-4.0, -4.2, -4.4])]
    test = row.verdict.seed_test
    assert said(rows) == [
        f"Worse than base: A h=1 (-4.2 BLEU [{test.low:+.1f}, {test.high:+.1f}]).",
        "If no row differed from base, about 5 % of such studies would call a row worse or better.",
    ]
    assert said(rows, family=12)[1].startswith("Corrected for the 12 rows of the study: if no row")


def test_many_rows_are_counted_with_the_span_of_their_differences():
    rows = [judged(n, [-float(n), -n - 0.02, -n + 0.03]) for n in range(1, MOST_NAMED + 2)]
    assert said(rows)[0].startswith(
        "Worse than base: 7 rows, by 1.0 to 7.0 BLEU; most of all A h=7 (-7.0 BLEU ["
    )
    unknown = [KINDS["cannot tell"](n) for n in range(MOST_NAMED + 1)]
    assert "Undecided: 7 rows (detectable differences of these rows: " in " ".join(said(unknown))


def test_rows_without_noise_are_named_with_the_metric():
    assert said([judged(1, [0.0, 0.0])]) == ["Same BLEU as base with every seed: A h=1."]
    assert said([judged(1, [-2.0, -2.0])]) == [
        "Undecided: A h=1, because the differences from base show no spread in BLEU."
    ]


def test_divergence_and_the_margin_are_said_with_the_row():
    always = judged(1, [], diverged=3, base_ended=3)
    assert said([always])[0] == "Worse than base: A h=1 (diverged with all 3 seeds)."
    assert len(said([always])) == 1  # no test names it, so no probability of chance is known
    partly = judged(2, [-4.0, -4.1, -4.2], diverged=1, base_ended=4)
    assert said([partly])[0].endswith(", 1 of 4 seeds diverged).")
    small = judged(3, [-0.2, -0.21, -0.19], margin=0.5)
    assert said([small])[0].endswith("], within ±0.5).")


def test_the_probability_of_chance_leaves_out_rows_that_no_test_names():
    rows = [judged(1, [], diverged=3, base_ended=3), judged(2, [-4.0, -4.2, -4.4])]
    for family in (2, 6):
        assert said(rows, family)[1:] == [
            f"Corrected for the {family} rows of the study: if no row differed from base, about 5 % "
            "of such studies would call a row worse or better; rows that diverged with every seed "
            "are worse without a test."
        ]


def test_the_differences_that_could_be_seen_have_their_smallest_and_largest():
    rows = [judged(1, [-3.0, 3.3, -2.9]), judged(2, [-1.0, 1.3, -0.9])]
    wide, narrow = (row.verdict.detectable_text for row in rows)
    assert float(narrow) < float(wide)
    assert (
        f"Undecided: A h=1, A h=2 "
        f"(detectable differences of these rows: {narrow} to {wide} BLEU)." in said(rows)[1]
    )


def test_what_could_not_be_seen_comes_with_the_fewest_seeds_that_would():
    rows = [judged(1, [-1.0, 1.3, -0.9]), judged(2, [-2.0, -0.1, -1.2])]
    (_, text) = said(rows)
    needed = rows[1].verdict.more_seeds
    assert needed < rows[0].verdict.more_seeds
    assert text.endswith(
        f" Detecting a true difference of -1.1 BLEU, as observed for A h=2, takes a new study of "
        f"{3 + needed} seeds."
    )
    never = [judged(1, [])]
    assert said(never) == ["No score yet: A h=1."]


def test_one_seed_concludes_nothing(fake):
    sentences = conclusion(fake(seeds="1").all_done().table())
    assert sentences[0].endswith("with 1 seed.")
    assert sentences[1:] == [
        "Undecided: A h=1, A h=2, D dropout=0.3, decoding beam=1, because one seed shows no spread."
    ]


def test_an_unfinished_study_begins_with_the_number_of_missing_runs(fake):
    """4 trainings with 3 seeds; beam=1 decodes the trainings of base."""
    results = fake()
    assert conclusion(results.table()) == [
        "Unfinished: no run has scores yet.",
        "Base has no score yet.", "No score yet: A h=1, A h=2, D dropout=0.3, decoding beam=1.",
    ]  # fmt: skip
    results.all_done()
    assert not results.table().missing_runs
    assert conclusion(results.table())[0].startswith("Base reaches 25.0 ±0.0 BLEU (test) and 5.0")
    results.folder("A h=1", 2).result.unlink()
    results.failed("A h=1", 2, "RuntimeError")
    only, base = conclusion(results.table())[:2]
    assert only == "Unfinished: 1 of 12 runs has no scores yet, so every verdict is provisional."
    assert base.startswith("Base reaches 25.0 ±0.0 BLEU (test) and 5.0")
    results.folder("base", 1).result.unlink()
    assert conclusion(results.table())[0].startswith(
        "Unfinished: 2 of 12 runs have no scores yet, so "
    )


def test_verdicts_of_a_look_are_not_called_provisional(fake):
    results = fake(SMALL.replace("[1, 2, 3]", "{looks: [2, 3]}"))
    for row in results.study.rows:
        results.done(row.label, 1, 5.0, 25.0)
    assert (
        conclusion(results.table())[0]
        == "Unfinished: 4 of 8 runs up to this look have no scores yet."
    )


def test_scores_by_the_default_of_an_earlier_version_are_named_with_the_way_to_them(fake):
    results = fake().all_done()
    row, path = results.row("A h=1"), results.folder("A h=1", 1).result
    decoding = Result.read(path).decodings[row.decoding]
    early = row.config.model_copy(update={"early_stopping": True})
    for ids, former in (
        ([decoding_id(early, row.evaluated)], "early_stopping=true"),
        ([decoding_id(early, "another test")], ""),
        ([], ""),
    ):
        change(Result, path, decodings=dict.fromkeys(ids, decoding))
        expected = [
            "Unfinished: 1 of 12 runs has no scores yet, so every verdict is provisional.",
            "Some runs are trained and lack a decoding: `ablate run` decodes them.",
        ]
        if former:
            expected.append(
                f"Some runs have scores with {former}, the default of an earlier version: `--set "
                f"{former}` shows these scores."
            )
        assert conclusion(results.table())[: len(expected)] == expected


def test_scores_that_are_all_zero_are_no_ground_for_a_verdict(fake):
    """Scores of 0.00 to 0.04 differ with every seed alike, which is a verdict by any test of the
    numbers.
    """
    results = fake().each(lambda row, seed: (90.0, 0.0 if row.is_base else 0.04 + seed / 10_000))
    said_before = words._verdict_sentences(
        BLEU,
        [
            RowVerdict(row.label, row.verdicts["bleu"])
            for row in results.table().rows
            if not row.is_base
        ],
        4,
    )
    assert said_before[0].startswith("Better than base: ")
    base, only = conclusion(results.table())
    assert base.startswith("Base reaches 0.0 ±0.0 BLEU")
    assert only.startswith("By BLEU, no row has learned anything: all 15 scores are as low as 0.0.")
    # Not for want of training alone: BLEU is 0 for good translations without a 4-gram.
    assert only.endswith(
        ". Train for more steps; only if most references have fewer than 4 tokens, use "
        "`metrics: [chrf]` instead, because BLEU counts 4-grams."
    )
    # One row that is printed as 0.1 has learned; base still has not.
    results.done("A h=1", 2, 90.0, 0.05001)
    _, only, *others = conclusion(results.table())
    assert only.startswith(
        "By BLEU, base has learned nothing: all 3 scores are as low as 0.0. Differences from it "
    )
    assert not [text for text in others if "seeds" in text or "Undecided" in text]
    for seed in (1, 2, 3):
        results.done("base", seed, 5.0, 20.0 + seed / 10)
    assert "nothing learned" not in " ".join(conclusion(results.table()))


def test_a_row_that_is_better_than_a_base_without_learning_is_named(fake):
    results = fake().each(
        lambda row, seed: (90.0, 30.0 + seed / 10 if row.label == "A h=1" else 0.0)
    )
    text = " ".join(conclusion(results.table()))
    assert "base has learned nothing: all 3 scores" in text
    assert "Better than base: A h=1 (+30.2 BLEU" in text
    assert "Same BLEU" not in text


def test_a_study_without_a_score_has_a_conclusion_by_every_metric(fake):
    for metrics in ("[ppl]", "[bleu]", "[ppl, bleu]"):
        (_, base, *_) = conclusion(fake(SMALL + f"judge: {metrics}\n").table())
        assert base == "Base has no score yet."
    text = "\n".join(conclusion(fake(SMALL + "judge: [ppl, bleu]\n").table()))
    assert text.count("Of 4 rows, 4 have no score yet: ") == 1
    assert " by " not in text


def test_a_shown_metric_that_no_verdict_is_by_is_named_where_nothing_is_learned(fake):
    results = fake(SMALL + "judge: [ppl]\n")
    results.each(lambda row, seed: (72.0 + seed, 0.001 * seed))
    text = "\n".join(conclusion(results.table()))
    assert "By BLEU, no row has learned anything: all 15 scores are as low as 0.0." in text
    for seed in (1, 2, 3):
        results.done("base", seed, 72.0 + seed, 20.0)
    assert "nothing learned" not in "\n".join(conclusion(results.table()))


def test_a_metric_that_cannot_judge_decides_no_row_of_two_metrics(fake):
    results = fake(SMALL + "judge: [ppl, bleu]\n")
    for place, row in enumerate(results.study.rows):
        for seed in (1, 2, 3):
            # Every BLEU is printed as 0.0; A h=1 would be better.
            noise = ((place * 3 + seed * (place + 2)) % 5) / 1e5
            bleu = 0.04 if row.label == "A h=1" else 0.001
            results.done(row.label, seed, 90.0 + 1000 * noise, bleu + noise)
    table = results.table()
    assert "better by BLEU" in str(table.verdict(table.by_label["A h=1"]))
    text = "\n".join(conclusion(table))
    assert "By BLEU, no row has learned anything" in text
    assert "Of 4 rows, 4 are undecided by PPL: A h=1, A h=2, " in text
    assert "better by BLEU" not in text


def test_a_base_whose_translations_score_no_better_against_their_references_has_learned_nothing(
    fake,
):
    """Fluent text that ignores its source has a BLEU above 0, by characters most of all."""
    parts = {"exact": 0.0, "by_chance": 1.5, "brevity_penalty": 0.5}
    table = fake().each(lambda row, seed: (72.0, 1.41 + seed / 100), **parts).table()
    _, only = conclusion(table)
    assert only.startswith(
        "By BLEU, no row has learned anything: none of the 15 scores is better than chance (1.5)."
    )
    # No alpha would help.
    assert not [line for line in table.experiment.notes.remarks if "brevity" in line]


@pytest.mark.parametrize("score", [0.0, 0.04])
def test_nothing_learned_is_never_said_where_translations_equal_references(fake, score):
    """Of references with fewer than four words, BLEU counts no 4-gram."""
    results = fake().each(lambda row, seed: (1.1, score), exact=0.98, by_chance=0.0)
    _, only = conclusion(results.table())
    assert only.startswith(
        "BLEU cannot judge these texts: it is 0.0 for base, although 98 % of its"
    )
    assert "metrics: [chrf]" in only


def test_each_size_has_a_sentence_about_its_base(fake):
    results = fake(SMALL + "sizes: {small: {}, large: {d_model: 128}}\n")
    for seed in (1, 2, 3):
        results.done("small base", seed, 5.0, 20.0)
    assert conclusion(results.table())[2:4] == [
        "Base of size small reaches 20.0 ±0.0 BLEU (test) and 5.00 ×÷1.000 PPL (dev) with 3 seeds.",
        "Base of size large has no score yet.",
    ]


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        (
            (1, 5, 9),
            "Base is near the floor (5.0 of 100 BLEU): a decline is at most 5.0, too small",
        ),
        (
            (95, 91, 99),
            "Base is near the ceiling (95.0 of 100 BLEU): an improvement is at most 5.0",
        ),
        ((30, 35, 40), "is larger than any possible decline."),
    ],
)
def test_the_cause_of_a_change_too_small_to_be_found_is_the_bound_or_the_noise(
    fake, scores, expected
):
    results = fake(SMALL)
    for seed, score in enumerate(scores, 1):
        results.done("base", seed, 5.0, score)
        results.done("A h=1", seed, 5.0, scores[seed % 3])
    (line,) = [line for line in conclusion(results.table()) if expected in line]
    has_noise = line.startswith("With this noise, no ")
    assert has_noise == (max(scores) == 40)


def test_a_verdict_in_perplexity_has_its_own_direction_and_digits():
    (verdict,) = verdicts(PPL, [PairedScores({1: -0.2, 2: -0.21, 3: -0.22})])
    assert isinstance(verdict, Verdict)
    assert words._verdict_sentences(PPL, [RowVerdict("A h=1", verdict)], 1)[0].startswith(
        "Better than base: A h=1 (×0.811 PPL ["
    )


def test_a_difference_over_the_seeds_that_did_not_diverge_is_not_called_too_small_to_be_seen():
    """2.0 is beyond the smallest difference of the noise; more seeds that diverge as often would
    not decide it.
    """
    row = judged(1, [2.0, 2.1, 1.9], diverged=1, base_ended=4)
    assert row.verdict.word == "cannot tell"
    assert row.verdict.mean > row.verdict.minimum_detectable
    assert (row.verdict.more_seeds, row.verdict.short) == (None, "cannot tell")
    assert said([row], 1) == [
        "No row is shown to be worse or better than base.",
        "Undecided: A h=1; significant only over the seeds that did not diverge.",
    ]


def test_exact_translations_have_learned_though_they_suit_other_references_as_well(fake):
    results = fake().each(lambda row, seed: (1.1, 60.0), exact=0.5, by_chance=60.0)
    assert "nothing learned" not in " ".join(conclusion(results.table()))


def with_chance(results, label, ppl):
    for seed in (1, 2, 3):
        # Seeds differ by more than rows do, so that a study of many seeds would tell.
        results.done(label, seed, ppl + 2 * ((seed * len(label)) % 3), 0.001)
        results.with_parts(label, seed, exact=0.0, by_chance=0.0)
        results.with_parts(label, seed, of="ppl", by_chance=63.27)


@pytest.mark.parametrize(("ppl", "has_learned"), [(59.0, False), (72.0, False), (40.0, True)])
def test_a_base_as_perplexed_as_frequencies_alone_needs_steps_and_not_seeds(fake, ppl, has_learned):
    results = fake(SMALL + "judge: [ppl]\n")
    for row in results.study.rows:
        with_chance(results, row.label, ppl)
    with_chance(results, "A h=1", 20.0)
    table = results.table()
    text = "\n".join(conclusion(table))
    assert ("By PPL, base has learned nothing" in text) is not has_learned
    seeds = [verdict.more_seeds for verdict in table.verdicts(PPL)]
    assert any(seeds) is has_learned
    assert ("new study of" in text) is has_learned
    first = text.split("By BLEU")[0]
    assert ("Train for more steps" in first) is not has_learned
    # Worse than chance: the text may differ, which steps do not mend.
    assert ("if it is low, dev is unlike the training text" in first) is (ppl > 63.27)
    against = table.verdicts(PPL)[-1].text_against("base")
    assert against.startswith("cannot tell: base has learned nothing") is not has_learned


@pytest.mark.parametrize("exchanged", [["train"], []])
def test_where_the_sides_are_exchanged_more_steps_are_no_advice(fake, exchanged):
    results = fake(SMALL + "judge: [ppl]\n")
    for row in results.study.rows:
        with_chance(results, row.label, 72.0)
    note = "train (en) looks like dev (de)" if exchanged else "test (en): a few tokens are unknown"
    manifest = a_manifest(warnings={"train": [note]}, exchanged=exchanged)
    manifest.write(results.results.corpora / CORPUS / "corpus.json")
    table = results.table()
    text = "\n".join(conclusion(table))
    assert ("Train for more steps" in text) is not bool(exchanged)
    assert ("First mend the text as the notes say" in text) is bool(exchanged)
    assert f"Text: {note}." in json.loads(as_json(table))["remarks"]
    for shown in (markdown(table, against_paper=False), latex(table)):
        assert f"Text: {note}." in " ".join(shown.split())


CHINESE = (
    "data: {corpus: files, direction: en-xx, train: train, dev: dev, test: test, vocab_size: 100}\n"
)


def test_references_that_bleu_cannot_judge_are_said_below_every_table_and_in_the_limits(fake):
    """The corpus may have been prepared by a study with other metrics or another language."""
    from ablate.publication.methods import methods

    text = re.sub("data: .*\n", CHINESE, SMALL)
    results = fake(text + "metrics: [bleu, chrf]\njudge: [ppl, bleu, chrf]\n")
    for row in results.study.rows:
        for seed in (1, 2, 3):
            results.done(row.label, seed, 5.0, 0.001)
            results.with_parts(row.label, seed, exact=0.0, by_chance=0.0)
    results.corpus(["a red apple"], ["我喜欢吃红苹果。"])
    change(
        CorpusManifest, results.results.corpora / CORPUS / "corpus.json",
        data={"direction": "en-zh", "bleu_tokenizer": "13a"},
        warnings={"dev": ["dev (zh): few tokens are unknown"]},
    )  # fmt: skip
    outcome = results.outcome()
    remarks = json.loads(as_json(outcome.table))["remarks"]
    notes = [remark for remark in remarks if remark.startswith("Text: ")]
    assert notes[0] == "Text: dev (xx): few tokens are unknown."
    assert notes[1].startswith("Text: BLEU cannot judge the references of test (xx), which tok:13a")
    assert outcome.experiment.notes.unjudged == ("bleu",)
    limits = methods(outcome, results.results)["Limitations"]
    assert all(note in limits for note in notes)
    said = "\n".join(conclusion(outcome.table))
    assert "First change BLEU or its tokenizer as the notes on the text say" in said
    assert "First mend the text" not in said


def test_table_and_comparison_agree_on_a_base_that_has_not_learned_in_a_metric_without_verdicts(
    fake,
):
    """Judged by BLEU alone, the differences in perplexity stand in the table too."""
    results = fake(SMALL)
    for row in results.study.rows:
        with_chance(results, row.label, 60.0)
    with_chance(results, "A h=1", 20.0)
    table = results.table()
    assert PPL not in table.judged_metrics
    pair = table.compare_pair(table.by_label["base"], table.by_label["A h=2"])
    assert pair.verdicts["ppl"].text.startswith("cannot tell: base has learned nothing")
    sentence = (
        "By PPL, base has learned nothing: none of the 3 scores is below 50.62, which is 20 % below "
        "chance (63.27)."
    )
    assert conclusion(table)[-1].startswith(sentence)
    assert unlearned_limits(table)[-1].startswith(sentence)


def test_no_row_that_knows_frequencies_alone_is_compared(fake):
    results = fake(SMALL + "judge: [ppl]\n")
    for row in results.study.rows:
        with_chance(results, row.label, 60.0)
    assert any(
        line.startswith(
            "By PPL, no row has learned anything: none of the 15 scores is below 50.62, which is 20 % "
            "below chance (63.27). The rows cannot be compared in PPL. Train for more steps."
        )
        for line in conclusion(results.table())
    )


def test_two_perplexities_that_follow_one_level_of_chance_have_its_advice_once(fake):
    results = fake(SMALL.replace("dropout: [0.3]", "vocab_size: [150]"))
    for row in results.study.rows:
        with_chance(results, row.label, 60.0)
    said = [line for line in conclusion(results.table()) if line.startswith("By PPL, no row")]
    assert ["compared in PPL/char." in line for line in said] == [False, True]
    assert ["Train for more steps" in line for line in said] == [True, False]


def test_a_metric_without_a_level_of_chance_follows_perplexity(fake):
    """As bits per byte, whose level no result has; here per character."""
    results = fake(SMALL)
    for row in results.study.rows:
        with_chance(results, row.label, 60.0)
    row = results.table().by_label["base"]
    assert row.learning_metric(PPL_CHAR) == PPL
    assert not row.has_learned(PPL_CHAR)


def test_a_perfect_score_with_a_rounding_error_bounds_a_difference_by_0(fake):
    results = fake(SMALL)
    for seed, score in enumerate((97.0, 96.5, 99.0), 1):
        results.done("base", seed, 5.0, 100.00000000000004)  # as sacreBLEU scores a perfect text
        results.done("A h=1", seed, 5.0, score)
    table = results.table()
    assert table.rows[0].scores["bleu"].mean == 100.0
    (row,) = [row for row in table.rows if row.label == "A h=1"]
    verdict = row.verdicts["bleu"]
    assert verdict.interval[1] == 0.0
    assert not verdict.interval[1] < 0
    sentence = "Base is at the ceiling (100.0 of 100 BLEU): no improvement is possible."
    assert sentence in conclusion(table)
