"""Scores, resampled test sets and p values: against the papers' formulas, and against sacreBLEU
with its signature.
"""

import math
import random
import statistics

import pytest
import sacrebleu
from sacrebleu.significance import PairedTest

from ablate.config.languages import is_installed
from ablate.errors import StoreError
from ablate.metrics.sacrebleu import Target, measure_translations, sentence_scores
from ablate.stats.bootstrap import RESAMPLES, paired_bootstrap
from ablate.stats.metrics import TRANSLATION_METRICS

REFERENCES = [
    "The old dog sleeps near the river.",
    "A king writes, slowly, a letter.",
    "Two birds sing in the tree.",
]
HYPOTHESES = [
    "The old dog sleeps by the river.",
    "A king slowly writes a letter.",
    "Two birds sing in a tall tree!",
]


def bleu(hypotheses, references):
    return measure_translations("bleu", hypotheses, references)


def test_bleu_has_its_brevity_penalty_and_other_metrics_have_none():
    penalties = [
        bleu([ours], [theirs]).parts["brevity_penalty"]
        for ours, theirs in (("a b c d", "a b c d e"), ("a b c d e f", "a b c d e"), ("", "a b"))
    ]
    assert penalties == [pytest.approx(math.exp(1 - 5 / 4)), 1.0, 0.0]
    assert "brevity_penalty" not in measure_translations("chrf", ["a b c"], ["a b c d"]).parts


CHINESE = ["我喜欢吃红苹果。", "他每天都去公园跑步。", "今天天气很好。"]
OTHERS = ["我喜欢吃绿苹果。", "他每天去公园散步。", "今天天气不好。"]


@pytest.mark.parametrize("tokenizer", ["zh", "char", "intl", "13a"])
def test_bleu_is_by_the_tokenizer_of_the_target_which_its_signature_names(tokenizer):
    target = Target("zh", tokenizer)
    expected = sacrebleu.metrics.BLEU(tokenize=tokenizer)
    score = expected.corpus_score(OTHERS, [CHINESE]).score
    measured = measure_translations("bleu", OTHERS, CHINESE, target)
    assert measured.value == pytest.approx(score)
    assert measured.signature == str(expected.get_signature())
    assert f"|tok:{tokenizer}|" in measured.signature
    perfect = measure_translations("bleu", CHINESE, CHINESE, target).value
    assert perfect == pytest.approx(100.0 if tokenizer in ("zh", "char") else 0.0)
    sentences = sentence_scores("bleu", OTHERS, CHINESE, target)
    alone = sacrebleu.metrics.BLEU(tokenize=tokenizer, effective_order=True)
    assert sentences == pytest.approx(
        [alone.sentence_score(a, [b]).score for a, b in zip(OTHERS, CHINESE, strict=True)]
    )


def test_ter_counts_chinese_characters_and_japanese_ones_by_asian_support():
    """One of 8 characters differs; without the support the one word of the sentence does."""
    for language in ("zh", "ja"):
        measured = measure_translations("ter", OTHERS[:1], CHINESE[:1], Target(language, "char"))
        assert measured.value == pytest.approx(100 / 8)
        assert "norm:yes" in measured.signature
        assert "asian:yes" in measured.signature
    assert measure_translations("ter", OTHERS[:1], CHINESE[:1]).value == 100.0


@pytest.mark.skipif(is_installed("ja-mecab"), reason="its tokenizer is installed")
def test_a_tokenizer_that_is_missing_is_named_with_its_package():
    with pytest.raises(StoreError, match=r"BLEU by ja-mecab.*pip install 'sacrebleu\[ja\]'"):
        measure_translations("bleu", OTHERS, CHINESE, Target("ja", "ja-mecab"))


def test_a_score_has_the_share_of_exact_translations_and_the_score_by_chance():
    """By chance: each translation against the next reference that is another text."""
    parts = bleu(["a b c d", "e f g h", "a b c d"], ["a b c d", "e f g x", "e f g x"]).parts
    assert parts["exact"] == pytest.approx(1 / 3)
    # The second has no other text behind it.
    chance = sacrebleu.corpus_bleu(["a b c d", "a b c d"], [["e f g x", "a b c d"]]).score
    assert parts["by_chance"] == pytest.approx(chance)
    assert bleu(["a b c d", "a b c d"], ["a b c d", "a b c d"]).parts["by_chance"] == 0.0
    constant = ["a dog ."] * 3
    junk = measure_translations("chrf", constant, REFERENCES)
    assert junk.parts["by_chance"] == pytest.approx(junk.value)


MAKERS = {
    "bleu": sacrebleu.metrics.BLEU,
    "chrf": sacrebleu.metrics.CHRF,
    "chrf++": lambda: sacrebleu.metrics.CHRF(word_order=2),
    "ter": sacrebleu.metrics.TER,
}


WORDS = (
    "the", "old", "dog", "sleeps", "near", "a", "river", "and", "writes", "slowly", "to", "two",
    "birds", "sing",
)  # fmt: skip


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
    measured = measure_translations(name, HYPOTHESES, REFERENCES)
    assert measured.value == pytest.approx(value)
    assert measured.signature == str(expected.get_signature())


@pytest.mark.parametrize("name", ["bleu", "chrf", "ter"])
def test_the_resamples_of_a_pair_of_runs_give_sacrebleus_p_value(name):
    """By sacreBLEU's formula, which counts one tail; the p value here counts both."""
    references, base, row = systems(40)
    (_, ours) = PairedTest(
        [("base", base), ("row", row)],
        {name: MAKERS[name]()},
        [references],
        test_type="bs",
        n_samples=RESAMPLES,
    )()
    (result,) = [found for metric, found in ours.items() if metric != "System"]
    first, second = (
        measure_translations(name, row, references),
        measure_translations(name, base, references),
    )
    difference = first.value - second.value
    found = paired_bootstrap(difference, [(first.resamples, second.resamples)])
    differences = [abs(a - b) for a, b in zip(first.resamples, second.resamples, strict=True)]
    beyond = sum(d - statistics.fmean(differences) > abs(difference) for d in differences)
    assert (beyond + 1) / (RESAMPLES + 1) == pytest.approx(result[1].p_value, abs=1e-12)
    assert found.p >= result[1].p_value
    assert first.value == pytest.approx(result[1].score)


def test_resampled_test_sets_do_not_depend_on_the_block_size(monkeypatch):
    references, base, _ = systems(12)
    whole = measure_translations("bleu", base, references).resamples
    monkeypatch.setattr("ablate.stats.resampling._BLOCK", 12 * 7)
    assert measure_translations("bleu", base, references).resamples == whole
    assert len(whole) == RESAMPLES


def test_a_short_sentence_is_scored_by_the_orders_of_ngrams_that_it_has():
    assert sentence_scores("bleu", ["a b", "a c"], ["a b", "a b"]) == pytest.approx(
        [100.0, 100 * (1 / 2 * 1 / 2) ** 0.5]
    )
    assert sentence_scores("ter", ["a b", "a c"], ["a b", "a b"]) == [0.0, 50.0]


def test_a_perfect_text_has_exactly_100_bleu():
    texts = [f"{sentence} And {number} more words." for number, sentence in enumerate(REFERENCES)]
    assert sacrebleu.corpus_bleu(texts, [texts]).score > 100.0
    assert bleu(texts, texts).value == 100.0
