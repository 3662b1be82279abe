"""Batches that double: which part of which batch a step has, and what a training costs."""

from collections import Counter

import pytest
import torch

from ablate.config.cost import flops_per_step
from ablate.config.lengths import Lengths
from ablate.config.resolve import resolve_row
from ablate.data.batches import BatchOrder
from ablate.tasks import Translation
from ablate.training.step_batches import BatchFraction, StepBatches, batch_fraction
from tests.training.in_memory import split_of_pairs

GROWING = {"batch_growth": 4, "batch_growth_fraction": 0.5, "train_steps": 20, "batch_tokens": 60}


def growing_batches(split, config):
    order = BatchOrder(split, 60, seed=1)
    return StepBatches(Translation(), split, order, stages=config.batch_stages)


def test_a_batch_is_divided_among_steps_that_become_fewer():
    """Five steps of quarters, five of halves, then whole batches."""
    config = resolve_row(GROWING)
    assert config.batch_stages == [(0, 5, 4), (5, 10, 2)]
    assert [batch_fraction(config.batch_stages, step) for step in range(1, 14)] == [
        *(BatchFraction(1, part, 4) for part in range(4)), BatchFraction(2, 0, 4),
        BatchFraction(3, 0, 2), BatchFraction(3, 1, 2), BatchFraction(4, 0, 2), BatchFraction(4, 1, 2), BatchFraction(5, 0, 2),
        BatchFraction(6, 0, 1), BatchFraction(7, 0, 1), BatchFraction(8, 0, 1),
    ]  # fmt: skip


@pytest.mark.parametrize("growth", [2, 8, 64])
@pytest.mark.parametrize("fraction", [0.01, 0.3, 1.0])
def test_stages_are_equal_and_end_at_their_share_of_the_steps(growth, fraction):
    row = {"batch_growth": growth, "batch_growth_fraction": fraction, "train_steps": 1000}
    stages = resolve_row(row).batch_stages
    assert stages[0][0] == 0
    assert stages[-1][1] == round(1000 * fraction)
    assert [count for _, _, count in stages] == [growth >> i for i in range(len(stages))]
    lengths = [end - begin for begin, end, _ in stages]
    assert max(lengths) - min(lengths) <= 1


def test_each_record_of_a_whole_batch_is_trained_on_once():
    drawn = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, 9, (200, 2), generator=drawn).tolist()
    split = split_of_pairs([([5] * source, [6] * target) for source, target in lengths])
    config = resolve_row({**GROWING, "train_steps": 16})  # four quarters, four halves
    order = BatchOrder(split, 60, seed=1)
    growing = growing_batches(split, config)
    seen = Counter(int(record) for step in range(1, 17) for record in growing.items(step))
    whole = Counter(int(record) for step in range(1, 12) for record in order.at(step))
    assert seen == whole
    sizes = [int(split.lengths(growing.items(step)).max(axis=0).sum()) for step in range(1, 17)]
    assert all(5 <= size <= 25 for size in sizes[:4])
    assert all(20 <= size <= 40 for size in sizes[4:8])


def test_a_batch_too_small_to_be_divided_is_used_whole():
    split = split_of_pairs([([5, 5], [6, 6])])
    growing = growing_batches(split, resolve_row(GROWING))
    assert [growing.items(step).tolist() for step in range(1, 12)] == [[0]] * 11


def test_the_cost_of_a_step_is_that_of_the_mean_batch():
    plain, growing = resolve_row({**GROWING, "batch_growth": 1}), resolve_row(GROWING)
    assert growing.mean_batch_tokens == 60 * (5 / 4 + 5 / 2 + 10) / 20
    costs = [flops_per_step(config, 100, Lengths.assumed()) for config in (growing, plain)]
    assert costs[0] / costs[1] == pytest.approx((5 / 4 + 5 / 2 + 10) / 20)


@pytest.mark.parametrize("steps", [1, 5, 6, 10, 13, 20])
def test_the_first_steps_cost_as_much_as_their_tokens(steps):
    growing = resolve_row(GROWING)
    tokens = ([60 / 4] * 5 + [60 / 2] * 5 + [60] * 10)[:steps]
    assert growing.mean_steps(steps) * growing.mean_batch_tokens == pytest.approx(sum(tokens))
    assert resolve_row({**GROWING, "batch_growth": 1}).mean_steps(steps) == steps


@pytest.mark.parametrize("end", [{"train_steps": None, "patience": 3}, {"epochs": 2}])
def test_growing_batches_need_the_number_of_steps(end):
    with pytest.raises(ValueError, match="needs the number of steps"):
        resolve_row({**GROWING, **end})


def test_a_training_with_growing_batches_counts_fewer_tokens(training):
    runs = [training(str(growth), batch_growth=growth) for growth in (1, 4)]
    tokens = [run.fit().tokens for run in runs]
    assert 0.5 < tokens[1] / tokens[0] < 0.9
