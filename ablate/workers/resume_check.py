"""Check that resuming is exact: train a few steps twice, once with an interruption, and compare the
files byte for byte.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from ablate.checks.row import check_row
from ablate.config import RowConfig
from ablate.custom.reference import Reference, source_file
from ablate.data.corpus import Corpus
from ablate.errors import Interrupted
from ablate.kernels.device import on_gpu, prepare
from ablate.store import RunFolder, checkpoints
from ablate.tasks import Task
from ablate.training import RunHooks, StepReport, Trainer

DEV_ITEMS = 16  # number of items of the dev split to evaluate


def check_resume(
    config: RowConfig,
    seed: int,
    task: Task,
    corpus: Corpus,
    *,
    steps: int,
    device: torch.device,
    micro_batch_tokens: int,
    sources: Mapping[str, bytes],
    task_class: Reference | None = None,
) -> str | None:
    """Train with and without an interruption, and describe the first difference; None if the files
    are equal.

    The steps include an evaluation, a log line and a checkpoint. All files are removed at the end.

    Args:
        config: the row.
        seed: seed of the training.
        task: the task.
        corpus: the prepared corpus.
        steps: number of steps to train; at most `train_steps` of the row.
        device: device of the training.
        micro_batch_tokens: size of the micro-batch, in padded tokens.
        sources: source files of the user's classes, by hash.
        task_class: the class of a user's task; None for a built-in task.

    Raises:
        StudyError: a user's class fails its checks, so that a run with it would be refused too.
        Diverged: the loss explodes within these steps.
    """
    steps = min(steps, config.train_steps or steps)
    # A checkpoint is due one step before the end; the interruption saves a second checkpoint.
    config = config.model_copy(
        update={"eval_every": max(1, steps // 2), "checkpoint_every": max(1, steps - 1)}
    )
    dev = task.items(corpus, "dev", config).first(DEV_ITEMS)
    prepare(device, config.deterministic)

    def train(folder: RunFolder, until: int) -> None:
        """Train up to a step, from the newest checkpoint in the folder if there is one."""
        made = 0

        def count(report: StepReport) -> None:
            nonlocal made
            made = report.step

        hooks = RunHooks(on_step=count, stop_requested=lambda: made >= until)
        trainer = Trainer(
            config,
            seed,
            task,
            corpus,
            folder,
            device=device,
            micro_batch_tokens=micro_batch_tokens,
            keep_checkpoints=1,
            dev=dev,
            hooks=hooks,
        )
        with suppress(Interrupted):
            trainer.fit()

    with tempfile.TemporaryDirectory(prefix="ablate-verify-") as directory:
        uninterrupted = RunFolder(Path(directory, "uninterrupted"))
        resumed = RunFolder(Path(directory, "resumed"))
        for folder in (uninterrupted, resumed):
            folder.sources.mkdir(parents=True)
            for digest, source in sources.items():
                (folder.sources / source_file(digest)).write_bytes(source)
        check_row(config, task, task_class, corpus, uninterrupted.sources)
        train(uninterrupted, steps)
        train(resumed, max(1, steps // 2))
        train(resumed, steps)
        difference = first_difference(uninterrupted, resumed)
    if difference is not None and on_gpu(device) and not config.deterministic:
        difference += "; a GPU sums in a fixed order only if the study sets `deterministic: true`"
    return difference


def first_difference(uninterrupted: RunFolder, resumed: RunFolder) -> str | None:
    """Describe the first difference between two trainings in the metrics log, the weights or the
    state; None if they are equal.
    """
    if uninterrupted.metrics.read_bytes() != resumed.metrics.read_bytes():
        return "the metrics logs differ"
    a, _ = checkpoints.newest(uninterrupted.checkpoints)
    b, _ = checkpoints.newest(resumed.checkpoints)
    if a is None or b is None or a.info != b.info:
        return f"the checkpoints differ: {a and a.info} and {b and b.info}"
    for name, file_a, file_b in (
        ("weights", a.weights, b.weights),
        ("optimizer or random states", a.state, b.state),
    ):
        if file_a.read_bytes() != file_b.read_bytes():
            return f"{name} differ: {_differing_tensor(load_file(file_a), load_file(file_b))}"
    return None


def _differing_tensor(a: dict[str, Tensor], b: dict[str, Tensor]) -> str:
    """Describe the first tensor that differs between two files of tensors."""
    for name in a:
        if name not in b or a[name].shape != b[name].shape:
            return f"{name} is not in both"
        unequal = (a[name] != b[name]).flatten().nonzero()
        if len(unequal):
            largest = float((a[name].double() - b[name].double()).abs().max())
            count = f"{len(unequal):,} of {a[name].numel():,}"
            return f"{name}: {count} elements, by {largest:.1e} at most"
    return "only in the order of tensors in the file"
