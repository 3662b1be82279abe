"""The tokenizer of BLEU follows the target language; what it changes are decodings, not runs."""

import pytest

from ablate.config import languages
from ablate.config.identity import decoding_id, run_id
from ablate.config.resolve import resolve_row
from ablate.config.translation_data import TranslationData

FILES = {"corpus": "files", "train": "a", "dev": "b", "test": "c", "vocab_size": 80}


def data(direction="en-de", **settings):
    return TranslationData.resolve({**FILES, "direction": direction, **settings})


@pytest.mark.parametrize(
    ("language", "tokenizer"),
    [
        ("de", "13a"), ("zh", "zh"), ("zh-TW", "zh"), ("zh_Hans", "zh"), ("ZH", "zh"), ("cmn", "zh"),
        ("ja", "ja-mecab"), ("ko", "ko-mecab"), ("th", "char"), ("km", "char"), ("my", "char"),
        ("vi", "13a"), ("hi", "13a"), ("am", "13a"), ("ja-Latn", "13a"), ("th_Latn_TH", "13a"),
    ],
)  # fmt: skip
def test_each_language_has_its_tokenizer(language, tokenizer):
    assert languages.preferred_tokenizer(language) == tokenizer


def test_latin_letters_have_words_whatever_the_language():
    assert languages.usable_tokenizer("ja-Latn") == "13a"
    assert not languages.has_no_words("th-Latn")
    assert languages.has_no_words("th-Thai")
    assert not languages.has_asian_words("zh_Latn")


@pytest.mark.parametrize(
    ("language", "there", "tokenizer"),
    [("ja", True, "ja-mecab"), ("ja", False, "char"), ("ko", False, "13a"), ("zh", False, "zh")],
)
def test_a_tokenizer_that_is_not_installed_gives_way(monkeypatch, language, there, tokenizer):
    monkeypatch.setattr(languages, "find_spec", lambda name: object() if there else None)
    assert languages.usable_tokenizer(language) == tokenizer


def ids(settings):
    return run_id(settings, resolve_row({}), 1), decoding_id(resolve_row({}), settings.evaluated)


def test_another_tokenizer_is_another_decoding_of_the_same_run():
    run, decoding = ids(data())
    assert ids(data(bleu_tokenizer="13a")) == (run, decoding)
    again, other = ids(data(bleu_tokenizer="char"))
    assert again == run
    assert other != decoding
    # Scores of Chinese by 13a, of older versions, are not taken for those of today.
    assert data("en-zh").evaluated != "c"
    assert data("en-zh", bleu_tokenizer="13a").evaluated == "c"
    assert data("zh-en").evaluated == "c"


def test_a_corpus_records_the_tokenizer_of_its_scores_where_it_is_not_the_default(monkeypatch):
    monkeypatch.setattr(languages, "find_spec", lambda name: None)
    assert data().recorded["bleu_tokenizer"] is None
    assert data("en-zh").recorded["bleu_tokenizer"] == "zh"
    assert data("en-ja").recorded["bleu_tokenizer"] == "char"
    assert data("en-ko").recorded["bleu_tokenizer"] == "13a"  # on a machine with mecab-ko, too
    assert data(bleu_tokenizer="13a").recorded["bleu_tokenizer"] == "13a"
