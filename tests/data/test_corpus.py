"""A prepared corpus on disk: what it holds is what the tokenizer said, and damage shows."""

import numpy as np
import pytest

from ablate.config.cost import Lengths
from ablate.data.corpus import Corpus, Side, Sums
from ablate.errors import StoreError
from tests.data.small import PAIRS


def test_it_opens_by_its_folder_and_is_named_by_it(corpus):
    again = Corpus(corpus.folder)
    assert again.id == corpus.id == corpus.folder.name
    assert len(corpus.id) == 12


def test_a_folder_without_a_corpus_is_refused(tmp_path):
    with pytest.raises(StoreError, match="holds no prepared corpus"):
        Corpus(tmp_path)


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_ids_on_disk_are_those_of_the_tokenizer(corpus, split):
    on_disk = corpus.split(split)
    assert len(on_disk) == len(PAIRS[split])
    for side, texts in zip((on_disk.source, on_disk.target), zip(*PAIRS[split], strict=True), strict=True):
        assert isinstance(side.ids.base, np.memmap) or isinstance(side.ids, np.memmap)
        assert [side[i].tolist() for i in range(len(side))] == corpus.tokenizer.encode(list(texts))


def test_lengths_count_the_end_mark(corpus):
    source = corpus.split("dev").source
    assert source.lengths.tolist() == [len(source[i]) + 1 for i in range(len(source))]


def test_sums_are_those_of_a_plain_loop(corpus):
    pairs = len(PAIRS["train"])
    sums = dict.fromkeys(("S", "T", "longer", "SS", "ST", "TT"), 0)
    for source, target in PAIRS["train"]:
        S, T = (len(ids) + 1 for ids in corpus.tokenizer.encode([source, target]))
        for name, n in {"S": S, "T": T, "longer": max(S, T), "SS": S * S, "ST": S * T, "TT": T * T}.items():
            sums[name] += n
    assert corpus.lengths == Lengths(pairs, *sums.values())


def test_lengths_are_right_where_offsets_pass_32_bits():
    offsets = np.array([2**31 - 5, 2**31 + 4, 2**32 - 1, 2**32 + 59_999])
    side = Side(np.empty(0, np.uint32), offsets)
    assert side.lengths[[0, 2]].tolist() == [10, 60_001]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_sums_do_not_overflow_32_bits(dtype):
    sums = Sums()
    sums.add(np.full((2, 3), 60_000, dtype=dtype))
    assert sums.lengths().source_squares == 3 * 60_000**2


def test_text_and_references_stand_as_they_did(corpus):
    assert corpus.text("dev", "source") == [source for source, _ in PAIRS["dev"]]
    assert corpus.references() == [target for _, target in PAIRS["test"]]


def test_a_sentence_with_odd_line_ends_within_stays_one_reference(files):
    odd = "kana\rla\x85felo\u2028uno"
    corpus = files.write(test=[("the dog", odd), ("the cat", "felo lo")]).prepare()
    assert corpus.references() == [odd, "felo lo"]


def test_a_whole_corpus_verifies(corpus):
    corpus.verify()


def test_verify_finds_a_flipped_byte_in_any_file(corpus):
    names = sorted(corpus.manifest["files"])
    assert names == sorted(path.name for path in corpus.folder.iterdir() if path.name != "corpus.json")
    for name in names:
        path = corpus.folder / name
        whole = path.read_bytes()
        for at in {0, len(whole) // 2, len(whole) - 1}:
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
            with pytest.raises(StoreError, match=rf"{name}: is damaged or missing"):
                corpus.verify()
        path.write_bytes(whole)
    corpus.verify()


def test_verify_finds_a_cut_or_missing_file(corpus):
    path = corpus.folder / "train.source.ids"
    whole = path.read_bytes()
    try:
        path.write_bytes(whole[:-1])
        with pytest.raises(StoreError, match=r"train\.source\.ids: is damaged or missing"):
            corpus.verify()
        path.unlink()
        with pytest.raises(StoreError, match=r"train\.source\.ids: is damaged or missing"):
            corpus.verify()
    finally:
        path.write_bytes(whole)
