"""Loss and accuracy of masked tokens in blocks of the text."""

import math

import numpy as np
import pytest

from ablate.metrics.bits_per_byte import Blocks
from ablate.metrics.masked_tokens import TokenScores, block_scores, lines_of, measure

EVALUATION = "ctx:4|rate:0.5|of:tokens|seed:1"
# Four blocks of three tokens: the second has no masked token, and the last ones none that is
# predicted.
BLOCKS = Blocks(np.repeat(np.arange(4), 3), np.full(4, 3), np.full(4, 3))
SCORES = TokenScores(
    np.array([10, 0, 2, 6]), np.array([4.0, 0.5, 1.5, 2.0]), np.array([False, True, True, False])
)  # in the order of batches


def test_each_block_has_a_line_also_without_masked_or_predicted_tokens():
    lines = lines_of(SCORES, BLOCKS, EVALUATION)
    assert lines == [
        f"nats=2.000000 correct=2 masked=2 {EVALUATION}",
        f"nats=0.000000 correct=0 masked=0 {EVALUATION}",
        f"nats=2.000000 correct=0 masked=1 {EVALUATION}",
        f"nats=4.000000 correct=0 masked=1 {EVALUATION}",
    ]
    assert block_scores("masked_loss", lines) == [1.0, 0.0, 2.0, 4.0]
    assert block_scores("masked_accuracy", lines) == [100.0, 0.0, 0.0, 0.0]


def test_a_text_is_scored_by_its_masked_tokens_and_not_by_the_mean_of_its_blocks():
    lines = lines_of(SCORES, BLOCKS, EVALUATION)
    loss, accuracy = (measure(name, lines, "dev") for name in ("masked_loss", "masked_accuracy"))
    assert loss.value == pytest.approx(math.fsum(SCORES.nats) / 4)
    assert accuracy.value == pytest.approx(100 * 2 / 4)
    assert loss.signature == accuracy.signature == f"{EVALUATION}|masked:4|split:dev"
