"""Vocabularies: their size, their control pieces, and decoding."""

import re

import pytest

from ablate.data import toy
from ablate.data.tokenizer import (
    BOS,
    EOS,
    FIRST_TOKEN,
    PAD,
    UNK,
    ByteTokenizer,
    SymbolTokenizer,
    Tokenizer,
)
from ablate.data.vocabulary import has_reserved, train_tokenizer
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


def test_unknown_tokens_have_their_text(tokenizer):
    assert tokenizer.unknown("the dog") == []
    assert tokenizer.unknown("Ж the dogЖЖ") == ["Ж", "ЖЖ"]  # neighbors are one token
    words = train_tokenizer(["a a b b c"], 6, kind="word")
    assert words.unknown("a dog b c") == ["dog", "c"]
    assert SymbolTokenizer.of(["k1", "v1"]).unknown("k1 k2 v1 v") == ["k2", "v"]
    assert ByteTokenizer().unknown("Ж") == []


def test_the_rarest_words_are_unknown_in_a_small_vocabulary():
    tokenizer = train_tokenizer(["a b a c", "a c"], 6 + 2, "word")
    assert tokenizer.encode(["a c b"])[0][:2] == [FIRST_TOKEN + 1, FIRST_TOKEN + 2]
    small = train_tokenizer(["a b a c", "a c"], 8 - 2, "word")
    assert small.encode(["a c b"]) == [[FIRST_TOKEN, FIRST_TOKEN + 1, UNK]]


def test_a_too_large_vocabulary_is_an_error_with_the_maximum():
    line = fault(TEXT, 5000)
    limit = int(re.search(r"at most (\d+)$", line)[1])
    assert line == f"5000 is too large for the training split: at most {limit}"
    assert train_tokenizer(TEXT, limit).vocab_size == limit
    assert fault(TEXT, limit + 1).endswith(f"at most {limit}")


def test_a_vocabulary_smaller_than_the_alphabet_is_an_error_with_the_minimum():
    characters = len(set("".join(TEXT)) - {" "}) + 1  # the space is a piece too
    needed = characters + 4
    line = fault(TEXT, 8)
    assert line == f"8 is too small for the characters of the training split: at least {needed}"
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


# What SentencePiece reserves

RESERVED = ["<pad>", "<unk>", "<s>", "</s>", "\u2581", "\u2585", "\x1f"]
MARKED = [
    text
    for mark in RESERVED
    for text in (f"he says {mark} now", f"{mark}a{mark}{mark}", f"b {mark}")
]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "word"])
def test_an_escaped_vocabulary_keeps_names_of_marks_and_reserved_characters(kind):
    size = {"bpe": 50, "unigram": 28, "word": 60}[kind]
    tokenizer = train_tokenizer(MARKED * 3, size, kind, escaped=True)
    ids = tokenizer.encode(MARKED)
    assert tokenizer.decode(ids) == MARKED
    assert not {PAD, UNK, BOS, EOS} & {id for text in ids for id in text}
    # Any program that reads the file has the same vocabulary.
    of_file = tokenizer._processor
    assert [of_file.decode(of_file.encode(text)) for text in MARKED] == MARKED
    assert tokenizer.pieces([PAD, UNK, BOS, EOS]) == ["<pad>", "<unk>", "<s>", "</s>"]


def test_the_file_of_an_escaped_vocabulary_depends_on_the_text_alone():
    first, second = (train_tokenizer(MARKED, 50, escaped=True) for _ in range(2))
    assert first.model == second.model
    assert b"tsv" not in first.model
    assert first.is_escaped
    assert Tokenizer(first.model).is_escaped


def test_of_plain_text_an_escaped_vocabulary_has_the_same_pieces(tokenizer):
    assert not tokenizer.is_escaped
    escaped = train_tokenizer(TEXT + ODD, 150, escaped=True)
    assert escaped.pieces(list(range(150))) == tokenizer.pieces(list(range(150)))
    assert escaped.encode(TEXT + ODD) == tokenizer.encode(TEXT + ODD)


def test_text_is_searched_for_everything_that_is_reserved():
    assert all(map(has_reserved, MARKED))
    assert not any(map(has_reserved, TEXT + ODD))
    assert not has_reserved("<unk <S> <0x41> ⁇ \ufffd")


@pytest.mark.parametrize("text", [*MARKED, "<0x41> <0x0A>\n", "\n\n \u2581\u2581  "])
def test_a_lossless_vocabulary_keeps_everything(text):
    tokenizer = train_tokenizer(MARKED, 287, lossless=True)
    assert tokenizer.decode(tokenizer.encode([text])) == [text]


@pytest.mark.parametrize(
    "text", ["a <unk> b", "a \u2585 b", "a\x1fb c", "a\u2581b c", "<s> <unused0> a"]
)
def test_a_vocabulary_of_words_has_any_size_whatever_words_sentencepiece_drops(text):
    assert train_tokenizer([text, "d e f"], 40, "word").vocab_size == 40


# Rare characters

COUNTS = {"a": 8, "b": 6, "c": 3, "d": 2, "e": 1}  # 20 characters
RARE = [" ".join(character * count for character, count in COUNTS.items())]


@pytest.mark.parametrize(
    ("coverage", "kept"), [(0.4, "a"), (0.41, "ab"), (0.7, "ab"), (0.95, "abcd"), (1.0, "abcde")]
)
def test_pieces_are_made_of_the_most_frequent_characters(coverage, kept):
    size = 4 + 256 + 1 + len(kept)  # with the piece of a space
    tokenizer = train_tokenizer(RARE, size, byte_fallback=True, coverage=coverage)
    assert set("".join(tokenizer.pieces(list(range(4 + 256, size))))) == {*kept, "▁"}
    assert tokenizer.decode(tokenizer.encode(RARE)) == RARE


@pytest.mark.parametrize("has_bytes", [False, True])
def test_a_vocabulary_smaller_than_the_alphabet_says_which_share_of_it_fits(has_bytes):
    size = 4 + 256 + 1 + 3 if has_bytes else 7
    with pytest.raises(DataError) as caught:
        train_tokenizer(RARE, size, byte_fallback=has_bytes)
    (line,) = caught.value.lines
    if not has_bytes:  # of 7 pieces, none would be left
        assert line.endswith("at least 10")
        return
    # a, b and c are 17 of 20 characters
    assert line.endswith(
        "at least 266; or set data.character_coverage=0.85, to encode rarer characters as bytes"
    )
    assert train_tokenizer(RARE, size, byte_fallback=True, coverage=0.85).vocab_size == size


def test_the_way_out_of_a_small_vocabulary_names_both_settings():
    alphabet = ["".join(map(chr, range(0x4E00, 0x4E00 + 400)))]
    line = fault(alphabet, 360)  # 4 marks, 256 bytes, the space, and 99 of 400 characters
    assert line.endswith(
        "or set data.byte_fallback=true and data.character_coverage=0.24, to encode rarer "
        "characters as bytes"
    )
    assert train_tokenizer(alphabet, 360, byte_fallback=True, coverage=0.24).vocab_size == 360
