"""Batches: every sentence once an epoch, within the budget, and a pure function of seed, epoch and
index.
"""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ablate.data.batches import (
    BatchOrder,
    eval_batches,
    largest_padded_batch,
    micro_batches,
    pad,
    pad_sequences,
    subset,
)
from ablate.data.tokenizer import BOS, EOS, PAD
from tests.data.small import split_of_fields, split_of_lengths

LENGTHS = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=120)
SEEDS = st.integers(0, 2**32)


def longer(split):
    return np.maximum(split["source"].lengths, split["target"].lengths)


def realistic(pairs=20_000):
    """Sentences of 5 to 100 tokens, 16 in the middle, the target's length near the source's."""
    drawn = np.random.default_rng(1)
    source = np.clip(np.exp(drawn.normal(2.8, 0.5, pairs)), 5, 100)
    target = np.clip(source * np.exp(drawn.normal(0.05, 0.2, pairs)), 5, 100)
    return split_of_lengths(list(zip(source.astype(int), target.astype(int), strict=True)))


REALISTIC = realistic()


# The order


@given(LENGTHS, st.integers(40, 200), SEEDS, st.integers(0, 5))
def test_an_epoch_holds_every_sentence_once(lengths, batch_tokens, seed, epoch):
    split = split_of_lengths(lengths)
    batches = BatchOrder(split, batch_tokens, seed).epoch(epoch)
    assert sorted(np.concatenate(batches)) == list(range(len(split)))


@given(LENGTHS, st.integers(40, 200), SEEDS, st.integers(0, 5))
def test_batches_meet_the_budget_and_none_is_empty(lengths, batch_tokens, seed, epoch):
    split = split_of_lengths(lengths)
    sizes = longer(split)
    for batch in BatchOrder(split, batch_tokens, seed).epoch(epoch):
        assert 1 <= sizes[batch].sum() <= batch_tokens + sizes.max() - 1


def test_batches_are_filled_to_the_budget():
    order = BatchOrder(split_of_lengths([(5, 5)] * 8), 10, seed=1)
    assert [len(batch) for batch in order.epoch(0)] == [2, 2, 2, 2]


@given(LENGTHS, st.integers(40, 200), SEEDS)
def test_every_epoch_has_the_same_number_of_batches(lengths, batch_tokens, seed):
    order = BatchOrder(split_of_lengths(lengths), batch_tokens, seed)
    assert {len(order.epoch(epoch)) for epoch in range(4)} == {order.batches_per_epoch}


@given(
    lengths=LENGTHS,
    batch_tokens=st.integers(40, 400),
    seed=st.integers(0, 5),
    epoch=st.integers(0, 3),
)
def test_the_largest_padded_batch_is_that_of_every_epoch(lengths, batch_tokens, seed, epoch):
    split = split_of_lengths(lengths)
    found = [
        int(split.lengths(batch).max()) * len(batch)
        for batch in BatchOrder(split, batch_tokens, seed).epoch(epoch)
    ]
    assert largest_padded_batch(split, batch_tokens) == max(found)


@given(LENGTHS, SEEDS, st.lists(st.integers(1, 60), min_size=1, max_size=20))
def test_the_batch_of_a_step_does_not_depend_on_earlier_calls(lengths, seed, steps):
    split = split_of_lengths(lengths)
    asked = BatchOrder(split, 100, seed)
    for step in steps:
        assert np.array_equal(asked.at(step), BatchOrder(split, 100, seed).at(step))


def test_steps_go_through_the_epochs_one_after_another():
    order = BatchOrder(REALISTIC, 25_000, seed=1)
    n = order.batches_per_epoch
    steps = [order.at(step) for step in range(1, 2 * n + 1)]
    for epoch in (0, 1):
        for given_at, expected in zip(
            steps[epoch * n : (epoch + 1) * n], order.epoch(epoch), strict=True
        ):
            assert np.array_equal(given_at, expected)


def as_sets(batches):
    return {frozenset(batch.tolist()) for batch in batches}


def test_each_epoch_and_seed_has_different_batches_in_a_different_order():
    base = BatchOrder(REALISTIC, 5000, seed=1).epoch(0)
    for other in (
        BatchOrder(REALISTIC, 5000, seed=1).epoch(1),
        BatchOrder(REALISTIC, 5000, seed=2).epoch(0),
    ):
        assert not np.array_equal(base[0], other[0])
        assert len(as_sets(base) & as_sets(other)) < len(base) / 10


def test_sentences_of_nearly_equal_length_are_sometimes_in_one_batch():
    split = split_of_lengths([(7, 12)] * 20 + [(10, 12)] * 20 + [(11, 12)] * 20)
    met = [
        set(split["source"].lengths[batch])
        for epoch in range(5)
        for batch in BatchOrder(split, 240, 1).epoch(epoch)
    ]
    assert {10, 11} in met
    assert not any({7, 10} <= lengths for lengths in met)


def test_swapping_seed_and_epoch_changes_the_order():
    assert as_sets(BatchOrder(REALISTIC, 5000, 1).epoch(2)) != as_sets(
        BatchOrder(REALISTIC, 5000, 2).epoch(1)
    )


def test_batches_are_not_sorted_by_length():
    sizes = [
        REALISTIC["target"].lengths[batch].mean()
        for batch in BatchOrder(REALISTIC, 5000, seed=1).epoch(0)
    ]
    assert abs(np.corrcoef(sizes, np.arange(len(sizes)))[0, 1]) < 0.3


def padding(batches):
    """The share of padding in the elements of both sides."""
    elements = real = 0
    for batch in batches:
        for side in (REALISTIC["source"].lengths[batch], REALISTIC["target"].lengths[batch]):
            elements += len(side) * side.max()
            real += side.sum()
    return 1 - real / elements


def test_neighbors_have_similar_lengths_on_both_sides_when_the_longest_changes():
    split = split_of_lengths([(9, 4), (4, 9), (9, 9), (10, 4), (4, 10), (10, 10)] * 20)
    kinds = [
        {(int(split["source"].lengths[i]), int(split["target"].lengths[i])) for i in batch}
        for batch in BatchOrder(split, 360, seed=1).epoch(0)
    ]
    assert {(4, 9), (4, 10)} in kinds or {(9, 4), (10, 4)} in kinds


@pytest.mark.parametrize(("batch_tokens", "share"), [(1000, 0.05), (2000, 0.07), (5000, 0.1)])
def test_the_share_of_padding_is_small(batch_tokens, share):
    order = BatchOrder(REALISTIC, batch_tokens, seed=1)
    unsorted = np.array_split(
        np.random.default_rng(0).permutation(len(REALISTIC)), order.batches_per_epoch
    )
    assert padding(order.epoch(0)) < share < padding(unsorted) / 3


def test_global_random_generators_are_not_used():
    np.random.seed(0)
    torch.manual_seed(0)
    before = np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()
    BatchOrder(REALISTIC, 5000, seed=1).epoch(0)
    assert (np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before


# Padding


def test_sequences_are_padded_at_the_end():
    assert pad([[5, 6, 7], [], [8]]).tolist() == [[5, 6, 7], [0, 0, 0], [8, 0, 0]]


@pytest.fixture
def every_warning():
    """Torch otherwise shows a warning of this kind once in a process."""
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)


@pytest.mark.usefixtures("every_warning")
def test_read_only_sequences_as_those_of_a_split_are_padded_without_a_warning():
    ids = np.frombuffer(bytes([5, 0, 6, 0]), dtype=np.uint16)
    assert not ids.flags.writeable
    assert pad([ids, ids[:1]]).tolist() == [[5, 6], [5, 0]]


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ({}, [[8, 9, 10], [PAD, PAD, PAD], [5, 6, PAD]]),
        ({"start": BOS}, [[BOS, 8, 9, 10], [BOS, PAD, PAD, PAD], [BOS, 5, 6, PAD]]),
        ({"end": EOS}, [[8, 9, 10, EOS], [EOS, PAD, PAD, PAD], [5, 6, EOS, PAD]]),
        ({"start": BOS, "end": EOS}, [[BOS, 8, 9, 10, EOS], [BOS, EOS, PAD, PAD, PAD], [BOS, 5, 6, EOS, PAD]]),
    ],
)  # fmt: skip
def test_bos_and_eos_surround_the_tokens_and_padding_follows(marks, expected):
    split = split_of_fields(text=[[5, 6], [], [8, 9, 10], [11] * 9])
    padded = pad_sequences(split["text"], [2, 1, 0], **marks)
    assert (padded.dtype, padded.tolist()) == (torch.int64, expected)


# Micro-batches


@given(LENGTHS, st.integers(1, 300), SEEDS)
def test_micro_batches_keep_the_order_and_each_is_within_the_limit_or_a_single_record(
    lengths, limit, seed
):
    split = split_of_lengths(lengths)
    sentences = np.random.default_rng(seed).permutation(len(split))
    parts = list(micro_batches(split, sentences, limit))
    for part in parts:
        assert len(part) == 1 or len(part) * longer(split)[part].max() <= limit
    assert np.array_equal(np.concatenate(parts), sentences)


@given(LENGTHS.map(lambda lengths: lengths[:7]), st.integers(1, 300))
def test_micro_batches_are_as_few_as_possible_and_then_as_even_as_possible(lengths, limit):
    split = split_of_lengths(lengths)
    found = [len(part) for part in micro_batches(split, np.arange(len(split)), limit)]
    ways = [
        sizes
        for sizes in cuts(len(split))
        if all(size == 1 or n <= limit for size, n in padded(split, sizes))
    ]
    fewest = min(map(len, ways))

    def largest(sizes):  # single sentences cannot be cut, so they do not count
        return max((n for size, n in padded(split, sizes) if size > 1), default=0)

    assert len(found) == fewest
    assert largest(found) == min(largest(sizes) for sizes in ways if len(sizes) == fewest)


def cuts(n):
    """Sizes of the parts, for every way to cut n sentences into parts."""
    return [[n]] + [[size, *rest] for size in range(1, n) for rest in cuts(n - size)]


def padded(split, sizes):
    """The size and the padded tokens of each part."""
    ends = np.cumsum(sizes)
    return [
        (size, size * longer(split)[end - size : end].max())
        for size, end in zip(sizes, ends, strict=True)
    ]


@given(LENGTHS, st.integers(1, 300))
def test_evaluation_batches_hold_every_sentence_once(lengths, tokens):
    split = split_of_lengths(lengths)
    seen = []
    for sentences in eval_batches(split, tokens):
        seen += sentences.tolist()
        assert longer(split)[sentences].sum() <= tokens + longer(split).max() - 1
    assert sorted(seen) == list(range(len(split)))


def test_evaluation_batches_hold_sentences_of_similar_lengths():
    batches = list(eval_batches(REALISTIC, 5000))
    assert all(
        a.max() <= b.min()
        for a, b in pairwise(longer(REALISTIC)[sentences] for sentences in batches)
    )
    assert padding(batches) < 0.1


def test_a_budget_below_the_longest_sentence_is_refused():
    with pytest.raises(ValueError, match="a sentence of 30 tokens does not fit in batch_tokens=29"):
        BatchOrder(split_of_lengths([(9, 4), (2, 2), (1, 30)]), 29, seed=1)


# A share of the training split


@given(LENGTHS, st.floats(0.01, 1), SEEDS)
def test_with_a_fraction_each_epoch_holds_the_same_subset_once(lengths, fraction, seed):
    split = split_of_lengths(lengths)
    batches = BatchOrder(split, 100, seed, fraction).epoch(0)
    assert sorted(np.concatenate(batches)) == subset(len(split), fraction).tolist()


# Other numbers of fields


@given(st.lists(st.integers(1, 40), min_size=1, max_size=120), st.integers(40, 200), SEEDS)
def test_records_of_one_field_are_batched_by_its_length(lengths, batch_tokens, seed):
    split = split_of_fields(text=[[4] * (n - 1) for n in lengths])
    batches = BatchOrder(split, batch_tokens, seed).epoch(0)
    assert sorted(np.concatenate(batches)) == list(range(len(split)))
    spans = sorted(
        (min(lengths[i] for i in batch), max(lengths[i] for i in batch)) for batch in batches
    )
    assert all(a[1] <= b[0] for a, b in pairwise(spans))


def test_records_of_three_fields_are_batched_by_the_longest():
    split = split_of_fields(a=[[4] * 9, [4], [4]], b=[[4], [4] * 7, [4]], c=[[4], [4], [4]])
    order = BatchOrder(split, 10, seed=1)
    assert order.batches_per_epoch == 2  # 10 + 8 + 2 tokens
    assert sorted(np.concatenate(order.epoch(0))) == [0, 1, 2]
    assert [part.tolist() for part in micro_batches(split, [0, 1, 2], 16)] == [[0], [1, 2]]
