"""Encoding many sentences gives the ids of SentencePiece's encoder."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ablate.data import encoding, toy
from ablate.data.encoding import Encoded, TextEncoder
from ablate.data.tokenizer import train_tokenizer

PAIRS = toy.generate()["train"][:150]
TEXT = [text for pair in PAIRS for text in pair] + [
    "„Ja“ ½ Maß…",
    "a\u2581b c",
    "中文 日本語",
    "na\u00efve caf\u00e9",
]
TOKENIZERS = {
    name: train_tokenizer(TEXT, 150 if "bytes" not in name else 400, kind, "bytes" in name)
    for name, kind in {"bpe": "bpe", "unigram": "unigram", "bpe with bytes": "bpe"}.items()
}
# Known words and letters, unknown letters, every kind of space, and SentencePiece's character for a
# space.
WORDS = st.text(st.sampled_from("abcdogthe ж中\u00e9\u2581\u00a0\u2028\t\r .,&;<s>"), max_size=30)


def sentences(encoded):
    ends = np.cumsum([0, *encoded.lengths])
    return [encoded.ids[start:end].tolist() for start, end in pairwise(ends)]


@pytest.mark.parametrize("name", list(TOKENIZERS))
@given(texts=st.lists(WORDS | st.sampled_from(TEXT), max_size=8))
@settings(max_examples=150)
def test_ids_are_those_of_sentencepiece(name, texts):
    assert sentences(TextEncoder(TOKENIZERS[name])(texts)) == TOKENIZERS[name].encode(texts)


def test_cached_words_do_not_change_the_ids(monkeypatch):
    monkeypatch.setattr(encoding, "MAX_WORDS", 20)  # so that the cache is emptied now and then
    encoder = TextEncoder(TOKENIZERS["bpe"])
    for start in range(0, len(TEXT), 10):
        some = TEXT[start : start + 10]
        assert sentences(encoder(some)) == TOKENIZERS["bpe"].encode(some)


def test_the_kind_of_a_vocabulary_is_recognized_from_its_model():
    assert {name: tokenizer.kind for name, tokenizer in TOKENIZERS.items()} == {
        "bpe": "bpe", "unigram": "unigram", "bpe with bytes": "bpe",
    }  # fmt: skip


def test_unseen_characters_are_encoded_as_bytes():
    tokenizer = TOKENIZERS["bpe with bytes"]
    (ids,) = tokenizer.encode(["the Ω dog"])
    assert tokenizer.decode([ids]) == ["the Ω dog"]
    assert TOKENIZERS["bpe"].decode(TOKENIZERS["bpe"].encode(["the Ω dog"])) != ["the Ω dog"]


def test_a_mask_selects_sentences():
    encoded = Encoded(np.array([4, 5, 6, 7], dtype=np.uint32), np.array([2, 0, 1, 1]))
    kept = encoded.only(np.array([True, True, False, True]))
    assert sentences(kept) == [[4, 5], [], [7]]
