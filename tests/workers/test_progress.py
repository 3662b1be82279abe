"""The progress report of a run: its phases follow what the run does."""

import torch

from ablate.store import RunFolder
from ablate.training import StepReport
from ablate.workers import progress as module
from ablate.workers.progress import ProgressReporter


def test_a_step_after_an_evaluation_is_reported_as_training_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(
        module.time, "monotonic", lambda: 0.0
    )  # no time passes: only phases cause a report
    folder = RunFolder(tmp_path / "0123456789ab")
    folder.path.mkdir()
    reporter = ProgressReporter(folder, 1, torch.device("cpu"))
    seen = [folder.read_progress().phase]
    for step, evaluates in ((1, False), (2, True), (3, False)):
        if evaluates:
            reporter.enter("evaluating")
            seen.append(folder.read_progress().phase)
        reporter.after_step(StepReport(step, 9, None, None, 10 * step))
        seen.append(folder.read_progress().phase)
    assert seen == ["starting", "training", "evaluating", "training", "training"]
    assert (
        folder.read_progress().step == 2
    )  # the third step came too soon after the second for another report


def test_an_interrupted_run_leaves_the_step_that_it_has_saved(tmp_path, monkeypatch):
    monkeypatch.setattr(module.time, "monotonic", lambda: 0.0)  # no step is reported by the clock
    folder = RunFolder(tmp_path / "0123456789ab")
    folder.path.mkdir()
    reporter = ProgressReporter(folder, 1, torch.device("cpu"))
    for step in (1, 2, 3):
        reporter.after_step(StepReport(step, 9, 5.0 - step, None, 10 * step))
    reporter.leave()
    left = folder.read_progress()
    assert (left.phase, left.step, left.loss) == ("left", 3, 2.0)


def test_the_most_memory_held_on_a_gpu_outlives_an_interruption(tmp_path, monkeypatch):
    held, resets, device = [7, 5], [], torch.device("cuda", 1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10, 80))
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", resets.append)
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: held[len(resets) - 1])
    folder = RunFolder(tmp_path / "0123456789ab")
    folder.path.mkdir()
    for _ in held:
        ProgressReporter(folder, 1, device).leave()
        assert folder.read_progress().peak_memory == 7
    assert resets == [device] * 2  # a worker executes one run after another


def test_blocks_that_the_run_before_has_left_are_no_memory_of_this_one(tmp_path, monkeypatch):
    """The allocator keeps them, and a new peak begins at what it keeps."""
    reserved, peak = [70], [70]
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10, 80))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: reserved.append(2))
    monkeypatch.setattr(
        torch.cuda, "reset_peak_memory_stats", lambda device: peak.append(reserved[-1])
    )
    monkeypatch.setattr(torch.cuda, "max_memory_reserved", lambda device: peak[-1])
    folder = RunFolder(tmp_path / "0123456789ab")
    folder.path.mkdir()
    ProgressReporter(folder, 1, torch.device("cuda", 0)).leave()
    assert folder.read_progress().peak_memory == 2
