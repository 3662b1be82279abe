"""Batches made ahead and checkpoints saved beside training, as for a GPU: here in threads beside a
CPU.
"""

import threading
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from ablate.data.batches import BatchOrder, micro_batches
from ablate.errors import Interrupted
from ablate.store.lease import LeaseLost
from ablate.tasks import Translation
from ablate.training import optimizer, step_batches, trainer
from ablate.training.checkpointing import SavingThread
from ablate.training.step_batches import StepBatches, pinned
from tests.training.test_resume import evaluate, interrupted

CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")


@pytest.fixture
def beside(monkeypatch):
    """Take the path of a GPU: threads, and copies of all tensors that a checkpoint has."""

    def copied(tensors):
        return {name: tensor.detach().clone() for name, tensor in tensors.items()}

    for module in (trainer, step_batches):
        monkeypatch.setattr(module, "on_gpu", lambda where: True)
    for module in (trainer, optimizer):
        monkeypatch.setattr(module, "to_host", copied)
    monkeypatch.setattr(step_batches, "pinned", lambda batch: batch)
    before = set(threading.enumerate())
    yield
    assert set(threading.enumerate()) <= before  # every thread has ended


def test_a_run_beside_threads_writes_the_same_bytes(training, monkeypatch, beside):
    aside = training("beside", evaluate=evaluate, micro_batch_tokens=29)
    aside.fit()
    monkeypatch.undo()
    monkeypatch.setattr(trainer, "LOG_EVERY", 3)
    alone = training("alone", evaluate=evaluate, micro_batch_tokens=29)
    alone.fit()
    assert aside.outcome() == alone.outcome()


@pytest.mark.parametrize("stop", [1, 4, 7])
def test_an_interrupted_run_has_saved_before_it_leaves(training, beside, stop):
    whole, run = training("whole", evaluate=evaluate), training("stopped", evaluate=evaluate)
    whole.fit()
    interrupted(run, stop)
    assert run.outcome()["newest"] == stop
    run.fit()
    assert run.outcome() == whole.outcome()


def test_no_batch_is_made_ahead_after_the_last_step(training, beside, monkeypatch):
    asked, at = [], StepBatches.at

    def ask(self, step, limit, has_next=True):
        asked.append((step, has_next))
        return at(self, step, limit, has_next)

    monkeypatch.setattr(StepBatches, "at", ask)
    training(train_steps=3).fit()
    assert asked == [(1, True), (2, True), (3, False)]


def test_the_optimizer_has_its_memory_before_the_first_step_on_a_gpu_alone(
    training, beside, monkeypatch
):
    """A micro-batch is then fitted into the memory that is left."""
    on_gpu = training("gpu").prepare()
    on_gpu.batches.close()
    on_gpu.saving.close()
    assert set(on_gpu.optimizer.moments) == {name for name, _ in on_gpu.model.named_parameters()}
    monkeypatch.setattr(trainer, "on_gpu", lambda where: False)
    assert training("cpu").prepare().optimizer.moments == {}


def test_a_lack_of_memory_makes_the_batch_of_the_step_again(training, beside):
    run, smaller = (
        training("scarce", micro_batch_tokens=48),
        training("smaller", micro_batch_tokens=24),
    )
    asked = []

    def before_loss():
        asked.append(run.trainer.progress.step)
        if len(asked) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory.")

    run.before_loss = before_loss
    run.fit()
    smaller.fit()
    assert run.smaller == [24]
    assert run.outcome() == smaller.outcome()


def test_a_save_that_is_refused_ends_the_run_at_the_next_one(training, beside):
    run = training("lost")

    def check_lease():
        if run.reports and run.reports[-1].step >= 3:
            raise LeaseLost("lease.json")

    run.check_lease = check_lease
    with pytest.raises(LeaseLost):
        run.fit()
    assert run.reports[-1].step < 12


class Slow:
    """A saver that writes when it is allowed to."""

    def __init__(self):
        self.allowed, self.written, self.last_save = threading.Event(), [], 0.0
        self.is_due_by_clock = True

    def save(self, snapshot):
        assert self.allowed.wait(timeout=30)
        if snapshot == "refused":
            raise OSError("full")
        self.written.append(snapshot)

    def flush(self):
        self.written.append("flushed")


def test_training_goes_on_during_a_save_and_at_most_one_is_written_at_a_time():
    slow = Slow()
    saving = SavingThread(slow, background=True)
    saving.save(lambda: "first")
    assert slow.written == []
    assert not saving.is_due_by_clock  # one is being written
    slow.allowed.set()
    saving.save(lambda: "second")
    assert "first" in slow.written
    saving.flush()
    assert slow.written == ["first", "second", "flushed"]
    assert saving.is_due_by_clock
    saving.save(lambda: "refused")
    with pytest.raises(OSError, match="full"):
        saving.wait()
    saving.wait()  # an error is raised once
    saving.close()


def test_closing_finishes_the_save_that_is_being_written_and_ends_the_thread():
    slow, threads = Slow(), threading.active_count()
    saving = SavingThread(slow, background=True)
    saving.save(lambda: "last")
    slow.allowed.set()
    saving.close()
    assert slow.written == ["last"]
    assert threading.active_count() == threads


def test_in_the_foreground_a_save_is_written_at_once():
    slow = Slow()
    slow.allowed.set()
    saving = SavingThread(slow, background=False)
    saving.save(lambda: "first")
    assert slow.written == ["first"]
    with pytest.raises(OSError, match="full"):
        saving.save(lambda: "refused")


@pytest.mark.parametrize("device", [CPU, CUDA])
@pytest.mark.parametrize("steps", [[1, 2, 3, 4], [1, 2, 9, 3], [12, 13, 12, 12]])
def test_batches_are_those_of_the_order_whatever_was_made_ahead(toy, monkeypatch, device, steps):
    monkeypatch.setattr(step_batches, "pinned", lambda batch: batch)
    monkeypatch.setattr(step_batches, "prepare_thread", lambda device: None)
    split, task = toy.split("train"), Translation()
    batches = StepBatches(task, split, BatchOrder(split, 300, 1), device)
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
    batches.close()


def test_for_a_gpu_one_batch_is_made_ahead_while_a_step_follows_and_none_after_the_last(
    toy, monkeypatch
):
    monkeypatch.setattr(step_batches, "pinned", lambda batch: batch)
    monkeypatch.setattr(step_batches, "prepare_thread", lambda device: None)
    split, made = toy.split("train"), []
    batches = StepBatches(Translation(), split, BatchOrder(split, 300, 1), CUDA)
    make = batches._make

    def noted(step, limit):
        made.append((step, limit))
        return make(step, limit)

    monkeypatch.setattr(batches, "_make", noted)
    for step, limit, has_next in ((1, 90, True), (2, 90, True), (3, 50, True), (4, 50, False)):
        batches.at(step, limit, has_next)
    batches.close()
    assert made == [(1, 90), (2, 90), (3, 90), (3, 50), (4, 50)]


def test_batches_that_have_not_begun_are_not_made_at_the_end(toy, monkeypatch):
    monkeypatch.setattr(step_batches, "pinned", lambda batch: batch)
    monkeypatch.setattr(step_batches, "prepare_thread", lambda device: None)
    split, go_on = toy.split("train"), threading.Event()
    batches = StepBatches(Translation(), split, BatchOrder(split, 300, 1), CUDA)
    make = batches._make
    monkeypatch.setattr(
        batches, "_make", lambda step, limit: (step == 1 or go_on.wait(60)) and make(step, limit)
    )
    batches.at(1, 90)  # the thread then works on step 2
    waiting = batches._submit(3, 90)
    threading.Timer(0.05, go_on.set).start()
    batches.close()
    assert waiting.cancelled()


def test_parts_of_a_batch_are_those_of_this_process(toy):
    split = toy.split("train")
    whole, half = (
        StepBatches(Translation(), split, BatchOrder(split, 300, 1), CPU, parts=2, mine=mine).at(
            1, 90
        )
        for mine in (range(2), range(1, 2))
    )
    assert [part.index for part in whole.parts] == [0, 1]
    assert [part.index for part in half.parts] == [1]
    assert (
        half.n_tokens
        == whole.n_tokens
        == sum(one.tokens for part in whole.parts for one in part.micro_batches)
    )
    assert 0 < sum(one.tokens for one in half.parts[0].micro_batches) < whole.n_tokens


@dataclass(frozen=True)
class Pair:
    ids: torch.Tensor
    name: str


def test_the_tensors_of_a_dataclass_are_pinned_and_another_batch_stays_as_it_is(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: tensor + 100)
    found = pinned(Pair(torch.tensor([1, 2]), "x"))
    assert (found.ids.tolist(), found.name) == ([101, 102], "x")
    other = object()
    assert pinned(other) is other


def test_a_stop_is_not_lost_while_a_save_is_written(training, beside):
    run = training("stopped", stop_after=(4,))
    with pytest.raises(Interrupted):
        run.fit()
    assert run.outcome()["newest"] == 4
