"""Check that resuming is exact: train a few steps with and without an interruption, and compare
all bytes.
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
from ablate.data.corpus import Corpus
from ablate.errors import Interrupted
from ablate.kernels.device import on_gpu, prepare
from ablate.own.reference import source_file
from ablate.store import RunFolder, checkpoints
from ablate.tasks import Task
from ablate.training import RunContext, Trainer

DEV_ITEMS = 16  # items of the dev split to evaluate


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
    task_name: str = "",
) -> str | None:
    """Describe the first difference between an uninterrupted and a resumed training; None if they
    are equal.

    The steps include an evaluation, a log line and a checkpoint. All files are removed.

    Args:
        config: the row.
        seed: seed of the training.
        task: the task.
        corpus: the prepared corpus.
        steps: number of steps.
        device: device of the training.
        micro_batch_tokens: size of the micro-batch.
        sources: source files of the user's classes, by hash.
        task_name: name of the task as in run ids, which may be a class.

    Raises:
        StudyError: a class of the user's own does not fit, for which a run is refused, too.
        Diverged: the loss explodes within these steps.
    """
    steps = min(steps, config.train_steps or steps)
    # A checkpoint is due one step before the end; the interruption saves another one.
    config = config.model_copy(
        update={"eval_every": max(1, steps // 2), "checkpoint_every": max(1, steps - 1)}
    )
    dev = task.items(corpus, "dev", config).first(DEV_ITEMS)
    prepare(device, config.deterministic)

    def train(folder: RunFolder, until: int) -> None:
        steps_made = [0]
        context = RunContext(
            on_step=lambda report: steps_made.append(report.step),
            stop_requested=lambda: steps_made[-1] >= until,
        )
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
            context=context,
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
        check_row(config, task, task_name, corpus, uninterrupted.sources)
        train(uninterrupted, steps)
        train(resumed, max(1, steps // 2))
        train(resumed, steps)
        difference = first_difference(uninterrupted, resumed)
    if difference is not None and on_gpu(device) and not config.deterministic:
        difference += "; a GPU sums in no fixed order unless the study sets `deterministic: true`"
    return difference


def first_difference(uninterrupted: RunFolder, resumed: RunFolder) -> str | None:
    """The first difference between two trainings in log, weights or state; None if equal."""
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
            return f"{name} differ: {_first_element(load_file(file_a), load_file(file_b))}"
    return None


def _first_element(a: dict[str, Tensor], b: dict[str, Tensor]) -> str:
    for name in a:
        if name not in b or a[name].shape != b[name].shape:
            return f"{name} is not in both"
        unequal = (a[name] != b[name]).flatten().nonzero()
        if len(unequal):
            largest = float((a[name].double() - b[name].double()).abs().max())
            count = f"{len(unequal):,} of {a[name].numel():,}"
            return f"{name}: {count} elements, by {largest:.1e} at most"
    return "only in their order"
