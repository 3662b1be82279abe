"""Batches of steps, and what is particular about memory on a GPU, beside a CPU."""

import numpy as np
import pytest
import torch

from ablate.data.batches import BatchOrder, micro_batches
from ablate.tasks import Translation
from ablate.training import trainer
from ablate.training.step_batches import StepBatches


@pytest.mark.parametrize("steps", [[1, 2, 3, 4], [1, 2, 9, 3], [12, 13, 12, 12]])
def test_batches_are_those_of_the_order_in_any_order_of_steps(toy, steps):
    split, task = toy.split("train"), Translation()
    batches = StepBatches(task, split, BatchOrder(split, 300, 1))
    for step, limit in zip(steps, (90, 90, 50, 90), strict=True):
        found, order = batches.at(step, limit), BatchOrder(split, 300, 1)
        assert np.array_equal(found.items, order.at(step))
        assert found.n_tokens == task.n_targets(split, order.at(step))
        expected = [
            task.collate(split, part) for part in micro_batches(split, order.at(step), limit)
        ]
        (whole,) = found.parts
        parts = list(whole.micro_batches)
        assert len(parts) == len(expected) > 1
        for one, other in zip(parts, expected, strict=True):
            assert torch.equal(one.source, other.source)
            assert torch.equal(one.target_out, other.target_out)


def test_parts_of_a_batch_are_those_of_this_process(toy):
    split = toy.split("train")
    order = BatchOrder(split, 300, 1)
    whole = StepBatches(Translation(), split, order, 2, range(2)).at(1, 90)
    half = StepBatches(Translation(), split, order, 2, range(1, 2)).at(1, 90)
    assert [part.index for part in whole.parts] == [0, 1]
    assert [part.index for part in half.parts] == [1]
    assert (
        half.n_tokens
        == whole.n_tokens
        == sum(one.tokens for part in whole.parts for one in part.micro_batches)
    )
    assert 0 < sum(one.tokens for one in half.parts[0].micro_batches) < whole.n_tokens


def test_the_optimizer_has_its_memory_before_the_first_step_on_a_gpu_alone(training, monkeypatch):
    """A micro-batch is then fitted into the memory that is left."""
    monkeypatch.setattr(trainer, "on_gpu", lambda where: True)
    on_gpu = training("gpu").prepare()
    assert set(on_gpu.optimizer.states) == {name for name, _ in on_gpu.model.named_parameters()}
    monkeypatch.setattr(trainer, "on_gpu", lambda where: False)
    assert training("cpu").prepare().optimizer.states == {}
