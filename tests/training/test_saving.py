"""Saves that the disk refuses wait; memory that runs out makes parts smaller and never drops a sentence."""

import errno
import os

import pytest
import torch

from ablate.errors import Interrupted
from ablate.store import checkpoints
from ablate.training import loop as training_loop
from ablate.training import saving
from ablate.training.device import is_out_of_memory
from tests.training.test_resume import evaluate, interrupted

FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.fixture
def refuse(monkeypatch):
    """Refuses the saves whose number, counted from 1, is given; returns the steps that were tried."""

    def refuse(*numbers):
        tried, save = [], checkpoints.save

        def refusing(folder, step, *given):
            tried.append(step)
            if len(tried) in numbers:
                raise FULL
            save(folder, step, *given)

        monkeypatch.setattr(checkpoints, "save", refusing)
        return tried

    return refuse


@pytest.fixture
def calm(training):
    run = training("calm", evaluate=evaluate)
    run.run()
    return run.outcome()


def test_a_due_save_that_is_refused_is_made_with_the_next(training, calm, refuse):
    """Averaging takes it, so without it the table would be another."""
    tried = refuse(1)
    run = training(evaluate=evaluate)
    run.run()
    assert tried == [4, 4, 8, 12]
    assert len(run.said) == 1
    assert run.said[0].startswith("step 4 could not be saved (")
    assert "No space left on device); the checkpoint before it is as it was, and training goes on" in run.said[0]
    assert run.outcome() == calm


def test_without_its_last_save_a_run_does_not_end_and_the_next_attempt_does(training, calm, refuse, monkeypatch):
    refuse(*range(3, 99))
    run = training(evaluate=evaluate)
    with pytest.raises(OSError, match="No space left"):
        run.run()
    assert checkpoints.newest(run.checkpoints)[0].step == 8
    monkeypatch.undo()
    monkeypatch.setattr(training_loop, "LOG_EVERY", 3)
    run.run()
    assert run.said[-1] == "resumed at step 8"
    assert run.outcome() == calm


def test_no_more_than_so_many_saves_wait_in_memory(training, refuse):
    tried = refuse(*range(1, 99))
    run = training(train_steps=40)
    with pytest.raises(OSError, match="No space left"):
        run.run()
    assert run.told[-1].step == 4 * (saving.MOST_WAITING + 1) - 1
    assert set(tried) == {4}


def test_a_save_between_is_let_go_and_the_run_still_stops_when_asked(training, calm, refuse, monkeypatch):
    tried = refuse(2)
    run = training(evaluate=evaluate, stop_after=(6,))
    with pytest.raises(Interrupted):
        run.run()
    assert tried == [4, 6]
    run.stop_after = ()
    run.run()
    assert "resumed at step 4" in run.said
    assert run.outcome() == calm


def test_lines_that_the_disk_refuses_are_written_later_in_their_order(training, calm, monkeypatch):
    run, write, count = training(evaluate=evaluate), os.write, []

    def refusing(file, content):
        if b'"loss"' in bytes(content) or b"dev_perplexity" in bytes(content):
            count.append(1)
            if len(count) in (1, 2, 4):
                raise FULL
        return write(file, content)

    monkeypatch.setattr(os, "write", refusing)
    run.run()
    assert len(count) > 4
    assert run.outcome() == calm


def test_a_process_that_has_lost_the_run_writes_no_line_into_its_log(training, calm):
    """It was stopped, another took the run over, and now it goes on."""
    zombie = training(evaluate=evaluate)
    old = zombie.trainer()
    for step in range(1, 6):
        old._step(step)
    training(evaluate=evaluate).run()
    old._log_loss()
    old.metrics.flush()
    assert zombie.outcome() == calm


def test_a_guard_is_asked_before_anything_of_a_checkpoint_is_written(training):
    class Lost(Exception):
        pass

    def guard():
        raise Lost

    run = training()
    trainer = run.trainer()
    trainer.saver.guard = guard
    with pytest.raises(Lost):
        trainer.run()
    assert not run.checkpoints.exists()


def test_a_finished_training_whose_state_was_pruned_is_not_trained_again(training, calm):
    run = training(evaluate=evaluate)
    run.run()
    weights = [g.step for g in checkpoints.scheduled(run.checkpoints)][-2:]
    checkpoints.prune(run.checkpoints, set(weights), finished=True)
    run.told.clear()
    trained = run.run()
    assert (trained.steps, trained.chosen, run.told) == (12, 12, [])
    assert run.said == ["training had ended at step 12"]
    assert run.metrics.read_bytes() == calm["metrics"]


# Memory


def scarce(monkeypatch, step, tokens, error, fitting=1):
    """In this step, micro-batches of more than so many padded tokens do not fit, after the first `fitting`."""
    real, seen = training_loop.Trainer._loss, []

    def loss(trainer, batch):
        if trainer.at.step + 1 == step and trainer.micro_batch_tokens > tokens:
            seen.append(1)
            if len(seen) > fitting:
                seen.clear()
                raise error
        return real(trainer, batch)

    monkeypatch.setattr(training_loop.Trainer, "_loss", loss)


ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
    MemoryError(),
    RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory"),
]


@pytest.mark.parametrize("error", ERRORS, ids=["gpu", "python", "cpu"])
def test_out_of_memory_replays_the_same_step_in_smaller_parts(training, monkeypatch, error):
    """As if the smaller parts had been asked for from that step on, dropout included."""
    run, halved = training("scarce", evaluate=evaluate, micro_batch_tokens=48), []
    like = training("like", evaluate=evaluate, micro_batch_tokens=48)
    interrupted(like, 6)
    like.micro_batch_tokens = 24
    like.run()
    with monkeypatch.context() as patch:
        scarce(patch, step=7, tokens=24, error=error)
        trainer = run.trainer()
        trainer.halved = halved.append
        trainer.run()
    assert halved == [24]
    assert run.outcome() == like.outcome()


def test_parts_are_halved_as_often_as_it_takes_and_no_token_is_lost(training, monkeypatch):
    run, like = training("scarce", micro_batch_tokens=192), training("like", micro_batch_tokens=24)
    scarce(monkeypatch, step=1, tokens=24, error=ERRORS[0], fitting=0)
    run.run()
    like.run()
    assert run.told[-1].tokens == like.told[-1].tokens
    assert run.outcome() == like.outcome()


def test_memory_for_not_even_a_sentence_is_a_failure_and_not_an_endless_loop(training, monkeypatch):
    def loss(trainer, batch):
        raise ERRORS[0]

    monkeypatch.setattr(training_loop.Trainer, "_loss", loss)
    with pytest.raises(torch.OutOfMemoryError):
        training(micro_batch_tokens=64).run()


def test_other_errors_are_not_taken_for_want_of_memory(training, monkeypatch):
    def loss(trainer, batch):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(training_loop.Trainer, "_loss", loss)
    with pytest.raises(RuntimeError, match="shapes"):
        training().run()
    assert not is_out_of_memory(ValueError("out of memory"))


def test_memory_that_the_system_really_refuses_is_seen_as_that():
    with pytest.raises((RuntimeError, MemoryError)) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)
