"""Translation: target tokens of batches whose sentences have several lengths."""

import numpy as np
import torch

from ablate.model import build
from ablate.tasks import Translation
from tests.data.small import split_of
from tests.model.small import V, shape

TASK = Translation()
# Target lengths with the end mark: 3, 8, 1 and 5.
SPLIT = split_of([[5, 6], [7] * 9, [8], [9] * 4], [[10, 11], [12] * 7, [], [13] * 4])


def test_target_tokens_are_counted_without_padding():
    assert TASK.n_targets(SPLIT, np.array([0, 1, 2, 3])) == 3 + 8 + 1 + 5
    assert TASK.n_targets(SPLIT, [0, 1]) == 3 + 8
    assert TASK.n_targets(SPLIT, [2]) == 1


def test_a_batch_has_as_many_target_tokens_as_its_items():
    for items in ([0, 1, 2, 3], [1, 2], [3, 0]):
        assert TASK.collate(SPLIT, items).tokens == TASK.n_targets(SPLIT, items)


def test_the_loss_of_a_batch_is_the_sum_of_its_items_losses():
    model = build(shape(), V, seed=1).eval()
    together, n_tokens = TASK.loss_terms(model, TASK.collate(SPLIT, [0, 1, 2, 3]), 0.1)
    apart = [TASK.loss_terms(model, TASK.collate(SPLIT, [item]), 0.1) for item in range(4)]
    torch.testing.assert_close(together, sum(loss for loss, _ in apart))
    assert n_tokens == sum(count for _, count in apart) == 17
