"""Vocabularies: their size, their control pieces, and decoding."""

import re

import pytest

from ablate.data import toy
from ablate.data.tokenizer import BOS, EOS, FIRST_TOKEN, PAD, UNK, Tokenizer, train_tokenizer
from ablate.errors import DataError

TEXT = [text for pair in toy.generate()["train"][:150] for text in pair]
ODD = [
    "„Ja“ – ½ Maß… «Œuvre»",  # noqa: RUF001
    "①Ⅳ ﬁn é e\u0301 Ω \u2126",
    "\u00a0hard\u00a0space\u2028line",
    "中文 日本語 🙂",
]


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXT + ODD, 150)


@pytest.mark.parametrize("vocab_size", [60, 101, 300])
def test_the_vocabulary_has_exactly_vocab_size_pieces(vocab_size):
    assert train_tokenizer(TEXT, vocab_size).vocab_size == vocab_size


def test_the_first_four_pieces_are_the_control_pieces(tokenizer):
    assert (PAD, UNK, BOS, EOS) == (0, 1, 2, 3)
    pieces = tokenizer._processor
    assert [pieces.pad_id(), pieces.unk_id(), pieces.bos_id(), pieces.eos_id()] == [0, 1, 2, 3]


def test_text_never_encodes_to_control_pieces(tokenizer):
    (ids,) = tokenizer.encode(["the dog <s> </s> <pad>"])
    assert not {PAD, BOS, EOS} & set(ids)


@pytest.mark.parametrize("sentence", [*TEXT[:20], *ODD])
def test_decoding_restores_the_text(tokenizer, sentence):
    assert tokenizer.decode(tokenizer.encode([sentence])) == [sentence]


def test_only_repeated_spaces_are_merged(tokenizer):
    assert tokenizer.decode(tokenizer.encode(["the  dog   hears"])) == ["the dog hears"]


def test_an_unseen_character_is_unknown(tokenizer):
    assert UNK not in tokenizer.encode(["the dog"])[0]
    assert UNK in tokenizer.encode(["the dog Ж"])[0]


def test_the_model_as_bytes_is_the_same_tokenizer(tokenizer):
    again = Tokenizer(tokenizer.model)
    assert again.encode(TEXT) == tokenizer.encode(TEXT)


def test_training_is_deterministic(tokenizer):
    assert train_tokenizer(TEXT + ODD, 150).model == tokenizer.model


def fault(sentences, vocab_size):
    with pytest.raises(DataError) as caught:
        train_tokenizer(sentences, vocab_size)
    (line,) = caught.value.lines
    assert "\n" not in line
    return line


def test_words_are_whole_entries_of_a_vocabulary_that_may_be_larger_than_the_text():
    tokenizer = train_tokenizer(["a bb a", "( a"], 9, "word")
    assert tokenizer.vocab_size == 9
    assert tokenizer.pieces([*range(4, 9)]) == ["<unused0>", "<unused1>", "▁a", "▁(", "▁bb"]
    ids = tokenizer.encode(["bb a ( <unused0>"])
    assert ids == [[8, 6, 7, UNK]]
    assert tokenizer.decode([ids[0][:3], [4, 6]]) == ["bb a (", "a"]


def test_the_rarest_words_are_unknown_in_a_small_vocabulary():
    tokenizer = train_tokenizer(["a b a c", "a c"], 6 + 2, "word")
    assert tokenizer.encode(["a c b"])[0][:2] == [FIRST_TOKEN + 1, FIRST_TOKEN + 2]
    small = train_tokenizer(["a b a c", "a c"], 8 - 2, "word")
    assert small.encode(["a c b"]) == [[FIRST_TOKEN, FIRST_TOKEN + 1, UNK]]


def test_a_too_large_vocabulary_is_an_error_with_the_maximum():
    line = fault(TEXT, 5000)
    limit = int(re.search(r"at most (\d+)$", line)[1])
    assert line == f"data.vocab_size=5000 is too large for the training split: at most {limit}"
    assert train_tokenizer(TEXT, limit).vocab_size == limit
    assert fault(TEXT, limit + 1).endswith(f"at most {limit}")


def test_a_vocabulary_smaller_than_the_alphabet_is_an_error_with_the_minimum():
    characters = len(set("".join(TEXT)) - {" "}) + 1  # the space is a piece too
    needed = characters + 4
    line = fault(TEXT, 8)
    assert (
        line
        == f"data.vocab_size=8 is too small for the characters of the training split: at least {needed}"
    )
    assert train_tokenizer(TEXT, needed).vocab_size == needed
    assert fault(TEXT, needed - 1).endswith(f"at least {needed}")


def test_training_on_no_text_is_one_error_line():
    assert fault([], 100) == "the training split has no text that a vocabulary can be learned on"


def test_pieces_joined_give_the_text(tokenizer):
    ids = tokenizer.encode([TEXT[0]])[0]
    assert "".join(tokenizer.pieces(ids)).replace("▁", " ").strip() == TEXT[0]
    assert tokenizer.pieces([PAD, UNK, BOS, EOS]) == ["<pad>", "<unk>", "<s>", "</s>"]


def test_decoding_no_ids_gives_no_text(tokenizer):
    assert tokenizer.decode([]) == []
    assert tokenizer.decode([[]]) == [""]
