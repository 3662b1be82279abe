"""Filters of training records, the sample for training a vocabulary, and warnings about text."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablate.config import TranslationData
from ablate.data.corpus import subset
from ablate.data.filters import markup_warnings
from ablate.data.sources import Document
from ablate.data.tokenizer import random_sample
from tests.data.small import PAIRS, SETTINGS
from tests.data.test_prepare import fault

TRAIN = PAIRS["train"]


# Filters


def test_each_filter_drops_and_counts_its_records(files):
    extra = [
        ("same", "same"),
        ("", "kana"),
        TRAIN[3],
        TRAIN[5],
        TRAIN[3],
        ("dog " * 90, "kana"),
        ("the dog", "kana " * 9),
    ]
    settings = {"drop_identical": True, "drop_duplicates": True, "max_ratio": 4.0, "max_length": 80}
    corpus = files.write(train=[*TRAIN, *extra]).prepare(**settings)
    assert corpus.manifest.left_out == {
        "identical sides": 1, "empty": 1, "duplicate": 3, "too long": 1, "uneven": 1,
    }  # fmt: skip
    train = corpus.split("train")
    assert corpus.tokenizer.decode([train["source"][i].tolist() for i in range(len(train))]) == [
        s for s, _ in TRAIN
    ]


def test_without_filters_these_pairs_are_kept(files):
    corpus = files.write(train=[*TRAIN, ("same", "same"), TRAIN[3]]).prepare()
    assert corpus.manifest.left_out == {}
    assert len(corpus.split("train")) == len(TRAIN) + 2


def test_a_pair_is_a_duplicate_only_if_both_sides_are(files):
    other = (TRAIN[3][0], TRAIN[5][1])
    assert files.write(train=[*TRAIN, other]).prepare(drop_duplicates=True).manifest.left_out == {}


@pytest.mark.parametrize(
    "setting",
    [
        {"max_ratio": 100.0},
        {"drop_identical": True},
        {"drop_duplicates": True},
        {"tokenizer": "unigram", "vocab_size": 60},
        {"vocabulary": "separate"},
        {"byte_fallback": True, "vocab_size": 340},
        {"tokenizer_pairs": 150},
    ],
)
def test_every_preparation_setting_changes_the_corpus(files, corpus, setting):
    assert files.write().prepare(**setting).id != corpus.id


def test_a_training_split_without_an_even_enough_pair_is_an_error(files):
    files.write(train=[("a " * 20, text) for text in "abcdefghij"])
    held = {"dev": [("a", "b")], "test": [("a", "b")]}
    line = fault(
        files.write(train=[("a " * 20, text) for text in "abcdefghij"], **held),
        vocab_size=16,
        max_ratio=2.0,
    )
    assert line.startswith(
        "train.en: every record is longer than data.max_length=256 tokens, or more uneven than"
    )


# The vocabulary


def test_languages_can_have_separate_vocabularies(files):
    corpus = files.write().prepare(vocabulary="separate", vocab_size=60)
    source, target = corpus.tokenizer_of("source"), corpus.tokenizer
    assert (source.vocab_size, target.vocab_size) == (60, 60)
    assert source.model != target.model
    train = corpus.split("train")
    assert source.decode([train["source"][i].tolist() for i in range(200)]) == [
        pair[0] for pair in TRAIN
    ]
    assert target.decode([train["target"][i].tolist() for i in range(200)]) == [
        pair[1] for pair in TRAIN
    ]


def test_byte_fallback_encodes_unknown_characters(files):
    corpus = files.write(test=[("the Ω", "kana щ")]).prepare(byte_fallback=True, vocab_size=340)
    assert corpus.tokenizer.decode([corpus.split("test")["target"][0].tolist()]) == ["kana щ"]


def test_the_sample_of_a_small_corpus_is_the_whole_corpus():
    assert random_sample(range(10), 10) == (list(range(10)), 10)


def test_a_sample_keeps_the_order_and_is_uniform():
    taken = Counter()
    for seed in range(600):
        numbers, count = random_sample(range(50), 10, seed)
        assert count == 50
        assert numbers == sorted(set(numbers))
        assert len(numbers) == 10
        taken.update(numbers)
    # 120 expected of each, with a deviation of sqrt(600 * 0.2 * 0.8) = 9.8
    assert all(80 < taken[number] < 160 for number in range(50))


def test_the_vocabulary_of_a_large_corpus_is_learned_on_a_sample(files):
    said = []
    files.write()
    from ablate.data.prepare import prepare

    corpus = prepare(
        TranslationData.resolve({**SETTINGS, "tokenizer_pairs": 50}),
        files.folder,
        files.corpora,
        said.append,
    )
    assert "learning a vocabulary of 80 on a sample of 50 of 200 records" in said
    assert len(corpus.split("train")) == 200


# Shares of the training split


@given(st.integers(1, 500), st.floats(0.001, 1), st.floats(0.001, 1))
def test_a_smaller_subset_is_contained_in_a_larger_one(pairs, one, other):
    small, large = (subset(pairs, fraction) for fraction in sorted((one, other)))
    assert set(small.tolist()) <= set(large.tolist())
    assert len(small) == max(1, round(min(one, other) * pairs))
    assert np.all(np.diff(large) > 0)


def test_the_subset_of_fraction_1_is_everything():
    assert subset(7, 1.0).tolist() == list(range(7))


def test_a_subset_is_drawn_from_the_whole_split():
    half = subset(10_000, 0.5)
    assert abs(len(half[half < 5000]) - 2500) < 150  # deviation: 25


# Warnings


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        (["A man , a dog .", "Two women ."], "Moses-tokenized"),
        (["a well @-@ known man", "it &apos;s"], "Moses-tokenized"),
        (["Tom &amp; Jerry", "&quot;Yes&quot;"], "HTML-escaped"),
    ],
)
def test_tokenized_or_escaped_text_is_a_warning(lines, what):
    warnings = markup_warnings("dev", [Document(("A dog.", line)) for line in lines], ("en", "de"))
    assert f"dev (de): 100% of lines look {what}; scores need plain text" in warnings
    assert not any("(en)" in line for line in warnings)


def test_plain_text_is_no_warning():
    plain = ["A man, a dog.", "AT&T", "Who? Me.", "He said: ...", "5 & 6", "Wait ..."]
    assert markup_warnings("dev", [Document((line, line)) for line in plain], ("en", "de")) == []


def test_warnings_are_recorded_in_the_manifest(files):
    corpus = files.write(test=[("the dog", "kana la .")] * 5).prepare()
    assert corpus.manifest.noticed == [
        "test (de): 100% of lines look Moses-tokenized; scores need plain text"
    ]
