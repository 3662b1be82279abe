"""Many sentences are encoded at once; ids and lengths are those of the vocabulary."""

from itertools import pairwise

import numpy as np
import pytest

from ablate.data import toy
from ablate.data.tokenizer import encode
from ablate.data.vocabulary import train_tokenizer

PAIRS = toy.generate()["train"][:150]
TEXT = [text for pair in PAIRS for text in pair] + ["„Ja“ ½ Maß…", "na\u00efve caf\u00e9"]
TOKENIZERS = {
    name: train_tokenizer(TEXT, 150 if "bytes" not in name else 400, kind, "bytes" in name)
    for name, kind in {"bpe": "bpe", "unigram": "unigram", "bpe with bytes": "bpe"}.items()
}


def sentences(encoded):
    ends = np.cumsum([0, *encoded.lengths])
    return [encoded.ids[start:end].tolist() for start, end in pairwise(ends)]


@pytest.mark.parametrize("name", list(TOKENIZERS))
@pytest.mark.parametrize("texts", [TEXT, [], ["", "the dog", "", "ж"], ["a  \u2581b c"]])
def test_ids_are_those_of_each_sentence_alone(name, texts):
    alone = [TOKENIZERS[name].encode([text])[0] for text in texts]
    assert sentences(encode(TOKENIZERS[name], texts)) == alone


def test_the_kind_of_a_vocabulary_is_recognized_from_its_model():
    assert {name: tokenizer.kind for name, tokenizer in TOKENIZERS.items()} == {
        "bpe": "bpe", "unigram": "unigram", "bpe with bytes": "bpe",
    }  # fmt: skip


def test_unseen_characters_are_encoded_as_bytes():
    tokenizer = TOKENIZERS["bpe with bytes"]
    (ids,) = tokenizer.encode(["the Ω dog"])
    assert tokenizer.decode([ids]) == ["the Ω dog"]
    assert TOKENIZERS["bpe"].decode(TOKENIZERS["bpe"].encode(["the Ω dog"])) != ["the Ω dog"]
