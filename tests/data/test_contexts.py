"""Contexts against a plain loop: every token is predicted from the tokens before it, and
evaluations score it once.
"""

from itertools import chain

import numpy as np
import pytest
import torch

from ablate.data.batches import BatchOrder, eval_batches
from ablate.data.contexts import cut
from ablate.data.corpus import TokenSequences
from ablate.data.tokenizer import BOS


def sequences(*lengths):
    """Documents of these lengths; every token of the stream is another number, from 10 on."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return TokenSequences(np.arange(10, 10 + offsets[-1]).astype(np.uint32), offsets)


def plain(documents, context, stride, joined):
    """(inputs, targets, first scored) of each context, by loops over lists."""
    texts = [
        documents.ids[a:b].tolist()
        for a, b in zip(documents.offsets, documents.offsets[1:], strict=False)
    ]
    found = []
    for text in [list(chain(*texts))] if joined else texts:
        start, done = 0, 0
        while True:
            end = min(start + context, len(text))
            before = BOS if start == 0 else text[start - 1]
            found.append(([before, *text[start : end - 1]], text[start:end], done - start))
            done = end
            if end == len(text):
                break
            start += stride
    return found


CASES = [(7, 7), (7, 3), (5, 1), (64, 64), (64, 13), (2, 1)]


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize(("context", "stride"), CASES)
@pytest.mark.parametrize("lengths", [(23,), (5, 1, 14, 7), (64, 65)])
def test_contexts_are_those_of_a_plain_loop(lengths, context, stride, joined):
    documents = sequences(*lengths)
    contexts = cut(documents, context, stride, joined, score_once=True)
    expected = plain(documents, context, stride, joined)
    assert len(contexts) == len(expected)
    for i, (inputs, targets, first) in enumerate(expected):
        batch = contexts.collate([i])
        assert batch.inputs[0].tolist() == inputs
        assert batch.targets.tolist() == targets[first:]
        assert contexts[i].tolist() == targets
    assert sorted(contexts.collate(range(len(contexts))).targets.tolist()) == documents.ids.tolist()


def test_training_contexts_count_every_token_of_every_context():
    contexts = cut(sequences(20), 8, 4, joined=True, score_once=False)
    assert contexts.targets.tolist() == contexts.lengths.tolist() == [8, 8, 8, 8]
    assert [contexts.starts.tolist(), contexts.ends.tolist()] == [[0, 4, 8, 12], [8, 12, 16, 20]]


def test_a_batch_pads_at_the_end_and_its_positions_skip_the_padding():
    contexts = cut(sequences(11), 4, 4, joined=True, score_once=False)
    batch = contexts.collate([1, 2])
    assert batch.inputs.tolist() == [[13, 14, 15, 16], [17, 18, 19, 0]]
    assert batch.targets.tolist() == [14, 15, 16, 17, 18, 19, 20]
    states = torch.arange(8.0).view(2, 4, 1)
    assert batch.select_targets(states).flatten().tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_an_epoch_has_every_context_once_in_an_order_of_seed_and_epoch():
    split = cut(sequences(1000), 16, 16, joined=True, score_once=False).as_split()
    order = BatchOrder(split, 64, seed=3)
    epoch = [items.tolist() for items in order.epoch(0)]
    assert sorted(chain(*epoch)) == list(range(63))
    assert sorted(map(len, epoch)) == [3, *[4] * 15]
    assert [order.at(step).tolist() for step in range(1, len(epoch) + 1)] == epoch
    assert epoch != [items.tolist() for items in order.epoch(1)]
    assert epoch != [items.tolist() for items in BatchOrder(split, 64, seed=4).epoch(0)]
    assert epoch == [items.tolist() for items in BatchOrder(split, 64, seed=3).epoch(0)]


def test_the_first_contexts_are_contexts():
    split = cut(sequences(50), 8, 4, joined=True, score_once=True).as_split().first(3)
    assert len(split) == 3
    assert sum(len(items) for items in eval_batches(split, 16)) == 3
    assert split["text"].targets.tolist() == [8, 4, 4]
