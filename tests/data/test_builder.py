"""Filters of training records, the sample that a vocabulary is learned on, and warnings about text."""

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablate.config import resolve_data
from ablate.data import builder
from ablate.data.corpus import subset
from ablate.data.encoding import EncoderPool
from ablate.data.tokenizer import ReservoirSample
from ablate.data.warnings import CorpusWarnings
from tests.data.small import PAIRS, SETTINGS
from tests.data.test_prepare import fault

TRAIN = PAIRS["train"]


# Filters


def test_each_filter_leaves_out_what_it_says_and_counts_it(files):
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
    assert corpus.manifest["left_out"] == {
        "identical sides": 1, "empty": 1, "duplicate": 3, "too long": 1, "uneven": 1,
    }  # fmt: skip
    train = corpus.split("train")
    assert corpus.tokenizer.decode([train["source"][i].tolist() for i in range(len(train))]) == [s for s, _ in TRAIN]


def test_without_filters_these_pairs_stay(files):
    corpus = files.write(train=[*TRAIN, ("same", "same"), TRAIN[3]]).prepare()
    assert corpus.manifest["left_out"] == {}
    assert len(corpus.split("train")) == len(TRAIN) + 2


def test_a_pair_is_a_duplicate_only_if_both_sides_are(files):
    other = (TRAIN[3][0], TRAIN[5][1])
    assert files.write(train=[*TRAIN, other]).prepare(drop_duplicates=True).manifest["left_out"] == {}


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
def test_every_setting_of_the_preparation_is_another_corpus(files, corpus, setting):
    assert files.write().prepare(**setting).id != corpus.id


def test_text_that_is_all_too_uneven_is_an_error(files):
    files.write(train=[("a " * 20, text) for text in "abcdefghij"])
    held = {"dev": [("a", "b")], "test": [("a", "b")]}
    line = fault(files.write(train=[("a " * 20, text) for text in "abcdefghij"], **held), vocab_size=16, max_ratio=2.0)
    assert line.startswith("train.en: every pair is longer than data.max_length=256 tokens, or more uneven than")


# The vocabulary


def test_a_vocabulary_of_each_language(files):
    corpus = files.write().prepare(vocabulary="separate", vocab_size=60)
    source, target = corpus.tokenizer_of("source"), corpus.tokenizer
    assert (source.vocab_size, target.vocab_size) == (60, 60)
    assert source.model != target.model
    train = corpus.split("train")
    assert source.decode([train["source"][i].tolist() for i in range(200)]) == [pair[0] for pair in TRAIN]
    assert target.decode([train["target"][i].tolist() for i in range(200)]) == [pair[1] for pair in TRAIN]


def test_bytes_in_the_place_of_unknown_characters(files):
    corpus = files.write(test=[("the Ω", "kana щ")]).prepare(byte_fallback=True, vocab_size=340)
    assert corpus.tokenizer.decode([corpus.split("test")["target"][0].tolist()]) == ["kana щ"]


def test_a_small_corpus_is_its_own_sample():
    sample = ReservoirSample(10)
    for number in range(10):
        sample.add((number, ("a", "b")))
    assert [pair[0] for pair in sample.items()] == list(range(10))


def test_a_sample_is_in_order_and_each_pair_as_likely_as_another(monkeypatch):
    taken = Counter()
    for seed in range(600):
        sample = ReservoirSample(10)
        sample._random = random.Random(seed)
        for number in range(50):
            sample.add((number, ("a", "b")))
        numbers = [pair[0] for pair in sample.items()]
        assert numbers == sorted(set(numbers))
        assert len(numbers) == 10
        taken.update(numbers)
    # 120 expected of each, with a deviation of sqrt(600 * 0.2 * 0.8) = 9.8
    assert all(80 < taken[number] < 160 for number in range(50))


def test_the_vocabulary_of_a_large_corpus_is_learned_on_a_sample(files):
    said = []
    files.write()
    from ablate.data.prepare import prepare

    corpus = prepare(resolve_data({**SETTINGS, "tokenizer_pairs": 50}), files.folder, files.corpora, said.append)
    assert "learning a vocabulary of 80 on a sample of 50 of 200 pairs" in said
    assert len(corpus.split("train")) == 200


def test_a_large_corpus_is_encoded_by_processes_to_the_same_bytes(files, corpus, monkeypatch):
    pools = []

    class Pool(EncoderPool):
        def __init__(self, models, processes):
            super().__init__(models, processes)
            pools.append(processes)

    monkeypatch.setattr(builder, "EncoderPool", Pool)
    monkeypatch.setattr(builder, "PARALLEL_FROM", 100)
    monkeypatch.setattr(builder, "CHUNK", 30)
    monkeypatch.setattr(builder, "cores", lambda: 2)
    other = files.write().prepare()
    assert pools == [2]
    assert {name: other.manifest["files"][name] for name in corpus.manifest["files"]} == corpus.manifest["files"]


# Shares of the training split


@given(st.integers(1, 500), st.floats(0.001, 1), st.floats(0.001, 1))
def test_a_smaller_share_is_inside_a_larger_one(pairs, one, other):
    small, large = (subset(pairs, fraction) for fraction in sorted((one, other)))
    assert set(small.tolist()) <= set(large.tolist())
    assert len(small) == max(1, round(min(one, other) * pairs))
    assert np.all(np.diff(large) > 0)


def test_the_whole_is_everything():
    assert subset(7, 1.0).tolist() == list(range(7))


def test_a_share_is_drawn_from_everywhere():
    half = subset(10_000, 0.5)
    assert abs(len(half[half < 5000]) - 2500) < 150  # deviation: 25


# What is noticed


@pytest.mark.parametrize(
    ("lines", "what"),
    [
        (["A man , a dog .", "Two women ."], "Moses-tokenized"),
        (["a well @-@ known man", "it &apos;s"], "Moses-tokenized"),
        (["Tom &amp; Jerry", "&quot;Yes&quot;"], "HTML-escaped"),
    ],
)
def test_text_that_is_not_plain_is_noticed_and_named(lines, what):
    warnings = CorpusWarnings()
    warnings.check("dev", [(1, ("A dog.", line)) for line in lines], ("en", "de"))
    assert f"dev (de): 100% of lines look {what}; scores need plain text" in warnings.lines()
    assert not any("(en)" in line for line in warnings.lines())


def test_plain_text_is_not():
    warnings = CorpusWarnings()
    plain = ["A man, a dog.", "AT&T", "Who? Me.", "He said: ...", "5 & 6", "Wait ..."]
    warnings.check("dev", [(1, (line, line)) for line in plain], ("en", "de"))
    assert warnings.lines() == []


def test_what_was_noticed_stands_in_the_manifest(files):
    corpus = files.write(test=[("the dog", "kana la .")] * 5).prepare()
    assert corpus.manifest["noticed"] == ["test (de): 100% of lines look Moses-tokenized; scores need plain text"]
