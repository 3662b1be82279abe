"""Notes on references that a metric of words cannot judge."""

import pytest

from ablate.config import languages
from ablate.metrics import references
from ablate.metrics.references import notes
from ablate.metrics.sacrebleu import Target
from ablate.stats.metrics import CannotJudge

CHINESE = ["我喜欢吃红苹果。", "他每天早上都去公园跑步。", "今天天气很好,我们去爬山。"]
THAI = ["ฉันชอบกินแอปเปิ้ลสีแดง", "เขาไปวิ่งที่สวนทุกเช้า"]
GERMAN = ["Der alte Hund schläft am Fluss.", "Ein König schreibt langsam einen Brief."]


def said(texts, language, tokenizer, *metrics):
    return list(notes(texts, Target(language, tokenizer), metrics or ("bleu",)))


def test_text_with_words_has_no_note():
    for metrics in (("bleu",), ("ter",), ("chrf++",)):
        assert said(GERMAN, "de", "13a", *metrics) == []
    assert said(CHINESE, "zh", "zh") == []
    assert said(CHINESE, "zh", "13a", "chrf") == []


@pytest.mark.parametrize(
    ("references", "language"), [(CHINESE, "cn"), (CHINESE, "zh"), (THAI, "xx")]
)
def test_few_tokens_for_many_characters_are_said_with_the_way_out(references, language):
    first, *_ = said(references, language, "13a")
    assert f"({language})" in first
    assert "13a" in first
    assert "data.bleu_tokenizer" in first
    assert "metrics: [chrf]" in first


def test_long_words_of_any_script_are_said():
    (first, *_) = said(["ACDEFGHIKLMNPQRSTVWY" * 3] * 4, "aa", "13a")
    assert "60.0 characters to a token" in first


def test_references_too_short_for_4_grams_are_said():
    (line,) = said(["red cat", "old dog", "a big old dog sleeps"], "en", "13a")
    assert line.startswith("66.7 % of the references of test (en) have fewer than 4 tokens")
    assert "metrics: [chrf]" in line
    assert said(["a big old dog"] * 3 + ["red cat"], "en", "13a") == []


@pytest.mark.parametrize(
    ("text", "language", "tokenizer"),
    [
        ("私は赤いりんごが好きです。", "ja", "char"),
        ("늙은 개가 강가에서 천천히 잠을 잔다.", "ko", "13a"),
    ],
)
def test_a_tokenizer_of_words_that_is_not_installed_is_said(monkeypatch, text, language, tokenizer):
    monkeypatch.setattr(languages, "is_installed", lambda name: "mecab" not in name)
    (line,) = said([text] * 2, language, tokenizer)
    assert f"tok:{tokenizer}: {language}-mecab" in line
    assert f"sacrebleu[{language}]" in line
    monkeypatch.setattr(languages, "is_installed", lambda name: True)
    assert said([text] * 2, language, tokenizer) == []  # the study has chosen it


def test_metrics_of_words_are_said_where_there_are_none():
    (line,) = said(CHINESE, "zh", "zh", "chrf++")
    assert line.startswith("chrf++ counts words between spaces")
    assert said(CHINESE, "zh", "zh", "ter") == []  # TER's asian_support divides them
    assert len(said(THAI, "xx", "13a", "ter")) == 1


def test_a_note_tells_a_metric_that_cannot_judge_from_a_milder_reason():
    for texts, tokenizer, metric, cannot in (
        (CHINESE, "13a", "bleu", True),
        (THAI, "13a", "ter", True),
        (CHINESE, "zh", "chrf++", False),
        (["red cat", "old dog"], "13a", "bleu", False),
    ):
        (note, *_) = said(texts, "xx", tokenizer, metric)
        assert isinstance(note, CannotJudge) is cannot


@pytest.mark.parametrize("tokenizer", ["13a", "intl", "zh", "char"])
def test_words_between_spaces_are_enough_only_where_sacrebleu_finds_no_note_either(
    monkeypatch, tokenizer
):
    """For texts of 1 to 6 words of 1 to 40 letters."""
    texts = [
        " ".join([letter * size] * n)
        for letter in "aä我"
        for size in (1, 14, 16, 40)
        for n in range(1, 7)
    ]
    quick = {text: said([text] * 3, "xx", tokenizer) for text in texts}
    monkeypatch.setattr(references, "_are_clearly_words", lambda texts, lengths: False)
    assert quick == {text: said([text] * 3, "xx", tokenizer) for text in texts}
