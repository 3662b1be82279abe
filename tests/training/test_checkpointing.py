"""When checkpoints are due, averaging them, and saving them on a disk that refuses."""

import errno
import os

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.torch import save_file

from ablate.config.resolve import resolve_row
from ablate.errors import Interrupted, StoreError
from ablate.kernels import cross_entropy
from ablate.kernels.device import is_out_of_memory
from ablate.model.experts import MixtureOfExperts
from ablate.store import RunFolder, checkpoints
from ablate.store.lease import LeaseLost
from ablate.training import RunHooks, checkpointing, trainer
from ablate.training.checkpointing import (
    CheckpointSaver,
    Snapshot,
    average,
    averaged_steps,
    checkpoint_intervals,
    count_due,
    is_due,
)
from ablate.training.metrics_log import MetricsLog
from tests.records import a_training_state
from tests.training.conftest import logger_to
from tests.training.test_resume import evaluate, interrupted

FULL = OSError(errno.ENOSPC, "No space left on device")


# Due checkpoints


@given(
    st.integers(1, 12),
    st.integers(1, 12),
    st.none() | st.integers(1, 9),
    st.integers(1, 60),
    st.integers(1, 9),
)
@example(1, 1, None, 3, 5)  # step 1 is the first of fewer checkpoints than asked for
def test_due_checkpoints_are_those_found_by_looking_at_every_step(
    every, evaluations, patience, last, count
):
    config = resolve_row(
        {"checkpoint_every": every, "eval_every": evaluations, "patience": patience}
    )
    due = [
        step
        for step in range(1, last + 1)
        if step % every == 0 or (patience and step % evaluations == 0)
    ]
    assert [step for step in range(1, last + 1) if is_due(config, step)] == due
    saved = due if due[-1:] == [last] else [*due, last]  # one is also saved after the last step
    assert averaged_steps(config, last, count) == saved[-count:]
    assert count_due(config, last) == len(saved)


def test_evaluations_count_as_intervals_only_with_patience():
    settings = {"checkpoint_every": 6, "eval_every": 4}
    assert checkpoint_intervals(resolve_row(settings)) == (6,)
    assert checkpoint_intervals(resolve_row({**settings, "patience": 2})) == (6, 4)


# Averaging


def files(folder, *checkpoints):
    paths = [folder / f"{i}.safetensors" for i in range(len(checkpoints))]
    for path, weights in zip(paths, checkpoints, strict=True):
        save_file(weights, path)
    return paths


def test_every_weight_is_the_mean_over_the_files(tmp_path):
    paths = files(
        tmp_path,
        {"a": torch.tensor([[1.0, 2.0]]), "b": torch.tensor(3.0)},
        {"a": torch.tensor([[5.0, 7.0]]), "b": torch.tensor(11.0)},
        {"a": torch.tensor([[13.0, 17.0]]), "b": torch.tensor(19.0)},
    )
    mean = average(paths)
    torch.testing.assert_close(
        mean, {"a": torch.tensor([[19 / 3, 26 / 3]]), "b": torch.tensor(11.0)}
    )
    assert mean["a"].dtype == torch.float32
    torch.testing.assert_close(
        average(paths[:2]), {"a": torch.tensor([[3.0, 4.5]]), "b": torch.tensor(7.0)}
    )


def test_large_weights_that_cancel_leave_the_small_one(tmp_path):
    paths = files(tmp_path, *({"a": torch.tensor([value])} for value in (1e9, 3.0, -1e9)))
    assert average(paths)["a"].tolist() == [1.0]  # in fp32, 1e9 + 3 is 1e9


# The saver


class Disk:
    """A saver in a folder, and whether its disk is full.

    `check_lease` is called before every file; it stands for the disk here, because it may raise.
    """

    def __init__(self, folder, keep=2, **settings):
        self.folder, self.full, self.lines = RunFolder(folder), False, []
        self.config = resolve_row({"checkpoint_every": 4, "eval_every": 4, **settings})
        metrics = MetricsLog(self.folder.metrics)
        metrics.cut()
        hooks = RunHooks(log=logger_to(self.lines), check_lease=self._refuse)
        self.saver = CheckpointSaver(self.folder, self.config, metrics, keep, hooks)

    def _refuse(self):
        if self.full:
            raise FULL

    def save(self, step, scheduled=True, **state):
        info = a_training_state(step, **state)
        self.saver.save(
            Snapshot(f"weights {step}".encode(), f"state {step}".encode(), info, scheduled)
        )

    def steps(self):
        """(Steps with weights, steps that can be resumed)."""
        valid = checkpoints.valid(self.folder.checkpoints)
        return [c.step for c in valid], [c.step for c in valid if c.state.exists()]


def test_the_saver_keeps_the_averaged_weights_and_two_resumable_checkpoints(tmp_path):
    disk = Disk(tmp_path, keep=3)
    for step in (4, 8, 12, 16):
        disk.save(step)
        disk.save(step + 2, scheduled=False)
    assert disk.steps() == ([8, 12, 16, 18], [16, 18])
    assert disk.lines == []


def test_with_patience_the_weights_up_to_the_best_step_are_kept(tmp_path):
    disk = Disk(tmp_path, patience=9)
    for step in (4, 8, 12, 16, 20, 24):
        disk.save(step, best_step=min(step, 8))
    assert disk.steps() == ([4, 8, 20, 24], [20, 24])


def test_with_patience_only_the_last_weights_after_the_best_step_are_kept(tmp_path):
    disk = Disk(tmp_path, keep=3, patience=9)
    for step in (4, 8, 12, 16, 20, 24):
        disk.save(step, best_step=4)
    assert disk.steps() == ([4, 16, 20, 24], [20, 24])


def test_a_refused_checkpoint_by_the_clock_is_dropped(tmp_path):
    disk = Disk(tmp_path)
    disk.full = True
    disk.save(6, scheduled=False)
    disk.full = False
    disk.saver.flush()
    assert disk.steps() == ([], [])


def test_the_clock_makes_a_save_due_earlier_while_a_checkpoint_waits(tmp_path, monkeypatch):
    now = [1000.0]
    monkeypatch.setattr(checkpointing.time, "monotonic", lambda: now[0])
    disk = Disk(tmp_path, checkpoint_minutes=2.0)
    for seconds, due in ((119.0, False), (2.0, True)):
        now[0] += seconds
        assert disk.saver.is_due_by_clock is due
    disk.full = True
    disk.save(4)
    for seconds, due in ((29.0, False), (2.0, True)):
        now[0] += seconds
        assert disk.saver.is_due_by_clock is due


def test_a_checkpoint_is_not_written_before_the_lines_that_it_counts(tmp_path, monkeypatch):
    """A resume needs the log up to the checkpoint."""
    disk, write = Disk(tmp_path), os.write
    metrics = disk.saver.metrics
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda *_: (_ for _ in ()).throw(FULL))
        metrics.append(step=4, loss=2.5)
        disk.save(4)
    assert (disk.steps(), len(disk.lines), os.write) == (([], []), 1, write)
    disk.save(8)
    assert disk.steps() == ([4, 8], [4, 8])
    assert metrics.path.read_bytes() == b'{"step": 4, "loss": 2.5}\n'


def test_a_process_that_has_lost_its_lease_removes_no_checkpoint(tmp_path):
    """The other process may be about to resume from one of them."""
    disk = Disk(tmp_path, keep=1)
    for step in (4, 8):
        disk.save(step)
    before = disk.steps()

    def lost_after_the_manifest():
        if (disk.folder.checkpoints / "000000012.json").exists():
            raise LeaseLost

    disk.saver.hooks = RunHooks(log=logger_to(disk.lines), check_lease=lost_after_the_manifest)
    with pytest.raises(LeaseLost):
        disk.save(12)
    assert disk.steps() == ([*before[0], 12], [*before[1], 12])


# Saving during a training


@pytest.fixture
def refuse(monkeypatch):
    """Refuse the saves with these numbers, counted from 1; returns the steps of all attempts."""

    def refuse(*numbers):
        tried, save = [], checkpoints.save

        def refusing(folder, weights, state, info, *rest):
            tried.append(info.step)
            if len(tried) in numbers:
                raise FULL
            save(folder, weights, state, info, *rest)

        monkeypatch.setattr(checkpoints, "save", refusing)
        return tried

    return refuse


@pytest.fixture
def undisturbed(training):
    run = training("undisturbed", evaluate=evaluate)
    run.fit()
    return run.outcome()


def test_a_training_whose_due_save_was_refused_ends_like_an_undisturbed_one(
    training, undisturbed, refuse
):
    """Averaging uses that checkpoint; without it, the scores would differ."""
    tried = refuse(1)
    run = training(evaluate=evaluate)
    run.fit()
    assert tried == [4, 4, 8, 12]
    assert len(run.log_lines) == 1
    assert (
        "No space left on device); the checkpoint before it is unchanged, and training goes on"
        in run.log_lines[0]
    )
    assert run.outcome() == undisturbed


def test_a_training_whose_last_save_is_refused_fails_and_can_be_resumed(
    training, undisturbed, refuse
):
    run = training(evaluate=evaluate)
    with pytest.MonkeyPatch.context() as patch:
        save = checkpoints.save

        def refusing(folder, weights, state, info, *rest):
            if info.step == 12:
                raise FULL
            save(folder, weights, state, info, *rest)

        patch.setattr(checkpoints, "save", refusing)
        with pytest.raises(OSError, match="No space left"):
            run.fit()
    assert checkpoints.newest(run.checkpoints)[0].step == 8
    run.fit()
    assert run.log_lines[-1] == "resumed at step 8"
    assert run.outcome() == undisturbed


def test_a_training_on_a_full_disk_fails_once_too_many_saves_wait(training, refuse):
    tried = refuse(*range(1, 99))
    run = training(train_steps=40)
    with pytest.raises(OSError, match="No space left"):
        run.fit()
    assert run.reports[-1].step == 4 * (checkpointing.MAX_WAITING + 1) - 1
    assert set(tried) == {4}


def test_a_stop_whose_save_is_refused_resumes_at_the_checkpoint_before(
    training, undisturbed, refuse
):
    tried = refuse(2)
    run = training(evaluate=evaluate, stop_after=(6,))
    with pytest.raises(Interrupted):
        run.fit()
    assert tried == [4, 6]
    run.stop_after = ()
    run.fit()
    assert "resumed at step 4" in run.log_lines
    assert run.outcome() == undisturbed


def test_refused_lines_of_the_metrics_log_are_written_later_in_order(
    training, undisturbed, monkeypatch
):
    run, write, count = training(evaluate=evaluate), os.write, []

    def refusing(file, content):
        if b'"loss"' in bytes(content) or b"dev_perplexity" in bytes(content):
            count.append(1)
            if len(count) in (1, 2, 4):
                raise FULL
        return write(file, content)

    monkeypatch.setattr(os, "write", refusing)
    run.fit()
    assert len(count) > 4
    assert run.outcome() == undisturbed


def test_a_process_that_has_lost_the_run_writes_no_line_into_its_log(training, undisturbed):
    """It was suspended, another process took the run over, and now it continues."""
    zombie = training(evaluate=evaluate)
    old = zombie.prepare()
    old.resume()
    for step in range(1, 6):
        old._step(step)
    training(evaluate=evaluate).fit()
    old._log_loss()
    old.metrics.flush()
    assert zombie.outcome() == undisturbed


def test_the_lease_is_checked_before_anything_is_written(training):
    class Lost(Exception):
        pass

    held = [True]

    def check_lease():
        if not held[0]:
            raise Lost

    run = training(
        check_lease=check_lease, after_step=lambda report: held.clear() or held.append(False)
    )
    with pytest.raises(Lost):
        run.fit()
    assert not run.checkpoints.exists()


def test_old_checkpoints_that_cannot_be_removed_do_not_stop_a_training(
    training, undisturbed, monkeypatch
):
    prune = checkpoints.prune
    failures = iter([StoreError("cannot be read"), FULL])

    def failing(*args, **options):
        error = next(failures, None)
        if error is not None:
            raise error
        prune(*args, **options)

    monkeypatch.setattr(checkpoints, "prune", failing)
    run = training(evaluate=evaluate)
    run.fit()
    assert [line.partition(" (")[0] for line in run.log_lines] == [
        "old checkpoints could not be removed"
    ] * 2
    assert run.outcome() == undisturbed


# Memory


def scarce(run, step, tokens, error, fitting=1):
    """In this step, micro-batches of more padded tokens do not fit after the first `fitting`
    ones.
    """
    seen = []

    def before_loss():
        if run.trainer.progress.step + 1 == step and run.trainer.micro_batch_tokens > tokens:
            seen.append(1)
            if len(seen) > fitting:
                seen.clear()
                raise error

    run.before_loss = before_loss


ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
    MemoryError(),
    RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory"),
]  # fmt: skip


@pytest.mark.parametrize("error", ERRORS, ids=["gpu", "python", "cpu"])
def test_out_of_memory_repeats_the_step_in_smaller_micro_batches(training, error):
    """The result, dropout included, is that of a run with the smaller micro-batches from that step
    on.
    """
    run = training("scarce", evaluate=evaluate, micro_batch_tokens=48)
    expected = training("expected", evaluate=evaluate, micro_batch_tokens=48)
    interrupted(expected, 6)
    expected.micro_batch_tokens = 24
    expected.fit()
    scarce(run, step=7, tokens=24, error=error)
    run.fit()
    assert run.smaller == [24]
    assert run.outcome() == expected.outcome()


def test_micro_batches_are_halved_as_often_as_needed_and_no_token_is_lost(training, monkeypatch):
    released = []
    monkeypatch.setattr(
        trainer, "release_cached_memory", lambda device: released.append(list(run.smaller))
    )
    run, expected = (
        training("scarce", micro_batch_tokens=192),
        training("expected", micro_batch_tokens=24),
    )
    scarce(run, step=1, tokens=24, error=ERRORS[0], fitting=0)
    run.fit()
    expected.fit()
    assert run.smaller == [96, 48, 24]
    assert released == [
        [],
        [96],
        [96, 48],
    ]  # the memory of a failed micro-batch, before a smaller one is made
    assert run.reports[-1].tokens == expected.reports[-1].tokens
    assert run.outcome() == expected.outcome()


def test_experts_keep_no_tensor_of_a_failed_micro_batch(training, monkeypatch):
    run = training("scarce", micro_batch_tokens=48)
    run.settings["n_experts"] = 2
    kept, loss = [], cross_entropy.smoothed_cross_entropy

    def scarce_loss(*terms):
        if run.trainer.micro_batch_tokens > 24:
            raise ERRORS[0]
        return loss(*terms)

    def release(device):
        parts = run.trainer.model.modules()
        kept.extend(part.balance_loss for part in parts if isinstance(part, MixtureOfExperts))

    monkeypatch.setattr(cross_entropy, "smoothed_cross_entropy", scarce_loss)
    monkeypatch.setattr(trainer, "release_cached_memory", release)
    run.fit()
    assert run.smaller == [24]
    assert set(kept) == {0.0}


def raising(error):
    def before_loss():
        raise error

    return before_loss


def test_memory_too_small_for_a_single_sentence_is_a_failure(training):
    run = training(micro_batch_tokens=64, before_loss=raising(ERRORS[0]))
    with pytest.raises(torch.OutOfMemoryError):
        run.fit()
    assert run.smaller
    longest = max(int(run.trainer.train_items.lengths(run.trainer.order.at(1)).max()), 1)
    assert run.trainer.micro_batch_tokens <= longest


def test_other_errors_are_not_taken_for_a_lack_of_memory(training):
    run = training(before_loss=raising(RuntimeError("mat1 and mat2 shapes cannot be multiplied")))
    with pytest.raises(RuntimeError, match="shapes"):
        run.fit()
    assert run.smaller == []
    assert not is_out_of_memory(ValueError("out of memory"))


def test_an_allocation_that_the_system_refuses_is_a_lack_of_memory():
    with pytest.raises((RuntimeError, MemoryError)) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)
