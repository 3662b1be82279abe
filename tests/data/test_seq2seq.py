"""Batches of sentence pairs: marks, padding and the target tokens that count."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from ablate.data.batches import PairBatch, collate
from ablate.data.tokenizer import BOS, EOS, PAD
from tests.data.small import split_of, split_of_lengths

LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=120)


def test_a_batch_equals_one_written_by_hand():
    split = split_of([[5, 6], [7], [8, 9, 10]], [[11], [12, 13, 14], []])
    batch = collate(split, [2, 0, 1], "source", "target")
    assert batch.source.tolist() == [[8, 9, 10, EOS], [5, 6, EOS, PAD], [7, EOS, PAD, PAD]]
    assert batch.target_in.tolist() == [
        [BOS, PAD, PAD, PAD],
        [BOS, 11, PAD, PAD],
        [BOS, 12, 13, 14],
    ]
    assert batch.target_out.tolist() == [
        [EOS, PAD, PAD, PAD],
        [11, EOS, PAD, PAD],
        [12, 13, 14, EOS],
    ]
    assert batch.tokens == 1 + 2 + 4


@given(LENGTHS)
def test_bos_and_eos_are_at_the_right_positions(lengths):
    split = split_of_lengths(lengths)
    batch = collate(split, np.arange(len(split)), "source", "target")
    assert {t.dtype for t in (batch.source, batch.target_in, batch.target_out)} == {torch.int64}
    assert batch.tokens == split["target"].lengths.sum()
    for i in range(len(split)):
        source, target = split["source"][i].tolist(), split["target"][i].tolist()
        assert [t for t in batch.source[i].tolist() if t] == [*source, EOS]
        assert [t for t in batch.target_in[i].tolist() if t] == [BOS, *target]
        assert [t for t in batch.target_out[i].tolist() if t] == [*target, EOS]
    real = batch.target_out != PAD
    assert torch.equal(batch.target_in != PAD, real)
    assert torch.equal(batch.targets, batch.target_out[real])
    states = torch.rand(*real.shape, 3)
    assert torch.equal(batch.select_targets(states), states[real])


def test_all_tensors_of_a_batch_move_to_the_device():
    moved = collate(split_of([[5]], [[7]]), [0], "source", "target").to(torch.device("meta"))
    assert isinstance(moved, PairBatch)
    assert {
        t.device.type for t in (moved.source, moved.target_in, moved.target_out, moved.positions)
    } == {"meta"}
