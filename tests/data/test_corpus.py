"""A prepared corpus on disk: its ids are those of the tokenizer, and damage is detected."""

import numpy as np
import pytest

from ablate.config.lengths import Lengths
from ablate.data.corpus import Corpus, Split, TokenSequences
from ablate.data.length_sums import length_sums
from ablate.errors import StoreError
from tests.data.small import PAIRS


def test_a_corpus_opens_by_its_folder_whose_name_is_its_id(corpus):
    again = Corpus(corpus.folder)
    assert again.id == corpus.id == corpus.folder.name
    assert len(corpus.id) == 12


def test_decoding_on_dev_reads_and_scores_dev_in_the_place_of_test(corpus):
    on_dev = Corpus(corpus.folder, test="dev")
    for field in corpus.fields:
        assert on_dev.text("test", field) == corpus.text("dev", field) != corpus.text("test", field)
        for split in ("train", "dev"):
            ids = on_dev.split(split)[field].ids
            np.testing.assert_array_equal(ids, corpus.split(split)[field].ids)
        ids = on_dev.split("test")[field].ids
        np.testing.assert_array_equal(ids, corpus.split("dev")[field].ids)


def test_a_folder_without_a_corpus_is_refused(tmp_path):
    with pytest.raises(StoreError, match="is not a prepared corpus"):
        Corpus(tmp_path)


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_ids_on_disk_are_those_of_the_tokenizer(corpus, split):
    on_disk = corpus.split(split)
    assert len(on_disk) == len(PAIRS[split])
    for field, texts in zip(("source", "target"), zip(*PAIRS[split], strict=True), strict=True):
        sequences = on_disk[field]
        assert isinstance(sequences.ids.base, np.memmap) or isinstance(sequences.ids, np.memmap)
        expected = corpus.tokenizer_of(field).encode(list(texts))
        assert [sequences[i].tolist() for i in range(len(sequences))] == expected


def test_lengths_count_the_end_mark(corpus):
    source = corpus.split("dev")["source"]
    assert source.lengths.tolist() == [len(source[i]) + 1 for i in range(len(source))]


def test_length_sums_equal_a_plain_loop(corpus):
    pairs = len(PAIRS["train"])
    sums = dict.fromkeys(("S", "T", "longer", "SS", "ST", "TT"), 0)
    for source, target in PAIRS["train"]:
        S, T = (len(ids) + 1 for ids in corpus.tokenizer.encode([source, target]))
        for name, n in {
            "S": S,
            "T": T,
            "longer": max(S, T),
            "SS": S * S,
            "ST": S * T,
            "TT": T * T,
        }.items():
            sums[name] += n
    assert Lengths.of_fields(corpus.manifest.lengths, corpus.fields) == Lengths(
        pairs, *sums.values()
    )


def test_lengths_are_correct_beyond_32_bit_offsets():
    offsets = np.array([2**31 - 5, 2**31 + 4, 2**32 - 1, 2**32 + 59_999])
    sequences = TokenSequences(np.empty(0, np.uint32), offsets)
    assert sequences.lengths[[0, 2]].tolist() == [10, 60_001]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_sums_do_not_overflow_32_bits(dtype):
    totals = length_sums(("source", "target"), [np.full((2, 3), 60_000, dtype=dtype)])
    assert (
        totals["source_squares"] == totals["products"] == totals["target_squares"] == 3 * 60_000**2
    )


def test_length_sums_of_a_single_field():
    sums = length_sums(("text",), [np.array([[3, 5]])])
    assert sums == {
        "pairs": 2, "text_tokens": 8, "longer_tokens": 8, "text_squares": 34, "longest": 5,
    }  # fmt: skip
    assert Lengths.of_fields(sums, ("text",)) == Lengths(2, 0, 8, 8, 0, 0, 34)


def test_length_sums_of_three_fields_take_the_first_two_for_source_and_target():
    sums = length_sums(("a", "b", "c"), [np.array([[2], [3], [5]]), np.array([[1], [1], [7]])])
    assert sums == {
        "pairs": 2, "a_tokens": 3, "b_tokens": 4, "c_tokens": 12, "longer_tokens": 12, "a_squares": 5, "a_b": 7,
        "b_squares": 10, "c_squares": 74, "longest": 7,
    }  # fmt: skip
    assert Lengths.of_fields(sums, ("a", "b", "c")) == Lengths(2, 3, 4, 12, 5, 7, 10)


def test_a_split_returns_fields_by_name_and_lengths_of_all_fields():
    one = TokenSequences(np.array([4, 5, 6], np.uint32), np.array([0, 1, 3]))
    two = TokenSequences(np.array([7], np.uint32), np.array([0, 1, 1]))
    split = Split({"text": one, "label": two})
    assert (split.fields, len(split)) == (("text", "label"), 2)
    assert split["label"] is two
    assert split.lengths([1, 0]).tolist() == [[3, 2], [1, 2]]  # EOS counted
    assert [split.first(1)[field].lengths.tolist() for field in split.fields] == [[2], [2]]


def test_a_sentence_with_unicode_line_separators_stays_one_reference(files):
    odd = "kana\rla\x85felo\u2028uno"
    corpus = files.write(test=[("the dog", odd), ("the cat", "felo lo")]).prepare()
    assert corpus.text("test", "target") == [odd, "felo lo"]


def test_verify_finds_a_flipped_byte_in_any_file(corpus):
    names = sorted(corpus.manifest.files)
    assert names == sorted(
        path.name for path in corpus.folder.iterdir() if path.name != "corpus.json"
    )
    for name in names:
        path = corpus.folder / name
        whole = path.read_bytes()
        for at in {0, len(whole) // 2, len(whole) - 1}:
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(StoreError, match=rf"{name}: is damaged or missing"):
                corpus.verify()
        path.write_bytes(whole)
    corpus.verify()
