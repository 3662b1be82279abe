"""Scores are sacreBLEU's, each with its signature; so are the resampled test sets and their p values."""

import math
import random

import pytest
import sacrebleu
from sacrebleu.significance import PairedTest

from ablate.config.metrics import TRANSLATION_METRICS
from ablate.metrics.sacrebleu import measure, sentence_scores
from ablate.stats.bootstrap import RESAMPLES, paired_bootstrap

REFERENCES = ["The old dog sleeps near the river.", "A king writes, slowly, a letter.", "Two birds sing in the tree."]
HYPOTHESES = ["The old dog sleeps by the river.", "A king slowly writes a letter.", "Two birds sing in a tall tree!"]


def bleu(hypotheses, references):
    return measure("bleu", hypotheses, references)


def test_identical_text_scores_a_hundred():
    assert bleu(REFERENCES, REFERENCES).value == pytest.approx(100.0)


def test_it_is_sacrebleus_corpus_score():
    expected = sacrebleu.corpus_bleu(HYPOTHESES, [REFERENCES]).score
    assert 0 < expected < 100
    assert bleu(HYPOTHESES, REFERENCES).value == pytest.approx(expected)


def test_precisions_and_brevity_are_as_computed_by_hand():
    """Of 5 words the last is wrong: 4/5, 3/4, 2/3 and 1/2 of the n-grams match, and their product is 1/5."""
    assert bleu(["a b c d e"], ["a b c d f"]).value == pytest.approx(100 * (1 / 5) ** 0.25)
    assert bleu(["a b c d"], ["a b c d e"]).value == pytest.approx(100 * math.exp(1 - 5 / 4))


def test_it_is_of_the_corpus_and_not_a_mean_over_sentences():
    """n-grams and lengths are summed: 4 + 4 of 5 + 5 words match, and so on, however they are spread."""
    hypotheses, references = ["a b c d e", "a b c d e f g h"], ["a b c d x", "a b c d e f g h"]
    expected = 100 * (12 / 13 * 10 / 11 * 8 / 9 * 6 / 7) ** 0.25
    assert bleu(hypotheses, references).value == pytest.approx(expected)


def test_case_and_order_count():
    assert bleu([text.lower() for text in REFERENCES], REFERENCES).value < 100
    assert bleu(REFERENCES[::-1], REFERENCES).value < 50


def test_translations_without_a_word_score_zero():
    assert bleu(["", "", ""], REFERENCES).value == 0.0


def test_the_signature_says_how_the_score_was_computed():
    parts = bleu(HYPOTHESES, REFERENCES).signature.split("|")
    assert parts == ["nrefs:1", "case:mixed", "eff:no", "tok:13a", "smooth:exp", f"version:{sacrebleu.__version__}"]


MAKERS = {
    "bleu": sacrebleu.metrics.BLEU,
    "chrf": sacrebleu.metrics.CHRF,
    "chrf++": lambda: sacrebleu.metrics.CHRF(word_order=2),
    "ter": sacrebleu.metrics.TER,
}


WORDS = ("the", "old", "dog", "sleeps", "near", "a", "river", "and", "writes", "slowly", "to", "two", "birds", "sing")


def systems(count, seed=0):
    """References, and two systems that each get some words wrong."""
    draw = random.Random(seed)
    references = [" ".join(draw.choices(WORDS, k=draw.randint(4, 12))) for _ in range(count)]

    def wrong(share):
        return [
            " ".join(draw.choice(WORDS) if draw.random() < share else word for word in text.split())
            for text in references
        ]

    return references, wrong(0.2), wrong(0.3)


@pytest.mark.parametrize("name", [metric.name for metric in TRANSLATION_METRICS])
def test_every_metric_is_sacrebleus_with_its_signature(name):
    expected = MAKERS[name]()
    value = expected.corpus_score(HYPOTHESES, [REFERENCES]).score
    measured = measure(name, HYPOTHESES, REFERENCES)
    assert measured.value == pytest.approx(value)
    assert measured.signature == str(expected.get_signature())


@pytest.mark.parametrize("name", ["bleu", "chrf", "ter"])
def test_the_p_value_of_a_single_pair_is_sacrebleus_own(name):
    references, base, row = systems(40)
    (_, ours) = PairedTest(
        [("base", base), ("row", row)], {name: MAKERS[name]()}, [references], test_type="bs", n_samples=RESAMPLES
    )()
    (result,) = [found for metric, found in ours.items() if metric != "System"]
    first, second = measure(name, row, references), measure(name, base, references)
    found = paired_bootstrap(first.value - second.value, [(first.resamples, second.resamples)])
    assert found.p == pytest.approx(result[1].p_value, abs=1e-12)
    assert first.value == pytest.approx(result[1].score)


def test_test_sets_are_drawn_alike_however_many_indices_are_held_at_once(monkeypatch):
    references, base, _ = systems(12)
    whole = measure("bleu", base, references).resamples
    monkeypatch.setattr("ablate.metrics.resampling._BLOCK", 12 * 7)
    assert measure("bleu", base, references).resamples == whole
    assert len(whole) == RESAMPLES


def test_a_sentence_alone_is_scored_by_the_orders_that_it_has():
    assert sentence_scores("bleu", ["a b", "a c"], ["a b", "a b"]) == pytest.approx(
        [100.0, 100 * (1 / 2 * 1 / 2) ** 0.5]
    )
    assert sentence_scores("ter", ["a b", "a c"], ["a b", "a b"]) == [0.0, 50.0]
