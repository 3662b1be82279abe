"""Train a few steps of a row twice, once interrupted, and compare every byte: what resuming is worth here."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from ablate.config import RowConfig
from ablate.config.plugins import references
from ablate.data.corpus import Corpus
from ablate.errors import Interrupted
from ablate.metrics.perplexity import perplexity
from ablate.store import checkpoints
from ablate.training import Trainer

DEV_PAIRS = 16  # for the evaluation that falls within the steps


def rehearse(
    config: RowConfig,
    seed: int,
    corpus: Corpus,
    *,
    steps: int,
    device: torch.device,
    micro_batch_tokens: int,
    sources: Mapping[str, bytes],
) -> str | None:
    """The first difference between a training of so many steps and one that is stopped half way and goes on.

    An evaluation, a log line and a checkpoint fall on the way; dropout is the row's own. Nothing of it is kept.

    Raises:
        Diverged: the loss of this row explodes within these steps.
    """
    steps = min(steps, config.train_steps or steps)
    config = config.model_copy(update={"eval_every": max(1, steps // 2), "checkpoint_every": max(1, steps - 1)})
    dev = corpus.split("dev").first(DEV_PAIRS)

    def train(folder: Path, until: int) -> None:
        folder.mkdir(exist_ok=True)
        made = [0]
        trainer = Trainer(
            config,
            seed,
            corpus,
            checkpoints_folder=folder / "checkpoints",
            metrics_file=folder / "metrics.jsonl",
            device=device,
            micro_batch_tokens=micro_batch_tokens,
            keep_checkpoints=1,
            evaluate=lambda model: perplexity(model, dev, device),
            tell=lambda report: made.append(report.step),
            stop_asked=lambda: made[-1] >= until,
            say=lambda line: None,
            sources=kept,
        )
        with suppress(Interrupted):
            trainer.run()

    with tempfile.TemporaryDirectory(prefix="ablate-verify-") as place:
        whole, parts, kept = Path(place, "whole"), Path(place, "parts"), Path(place, "sources")
        kept.mkdir()
        for own in references(config):
            (kept / own.file).write_bytes(sources[str(own.digest)])
        train(whole, steps)
        train(parts, max(1, steps // 2))
        train(parts, steps)
        return first_difference(whole, parts)


def first_difference(whole: Path, parts: Path) -> str | None:
    """Where two trainings differ: in the log, in a weight, in the state; None where every byte is the same."""
    if (whole / "metrics.jsonl").read_bytes() != (parts / "metrics.jsonl").read_bytes():
        return "the metrics logs differ"
    (a, _), (b, _) = (checkpoints.newest(folder / "checkpoints") for folder in (whole, parts))
    if a is None or b is None or a.info != b.info:
        return f"the checkpoints differ: {a and a.info} and {b and b.info}"
    for name, pick in _FILES:
        if pick(a).read_bytes() != pick(b).read_bytes():
            return f"{name} differ: {_first(load_file(pick(a)), load_file(pick(b)))}"
    return None


_FILES: tuple[tuple[str, Callable[[checkpoints.Generation], Path]], ...] = (
    ("weights", lambda generation: generation.weights),
    ("optimizer or random states", lambda generation: generation.state),
)


def _first(a: dict[str, Tensor], b: dict[str, Tensor]) -> str:
    for name in a:
        if name not in b or a[name].shape != b[name].shape:
            return f"{name} is not in both"
        unlike = (a[name] != b[name]).flatten().nonzero()
        if len(unlike):
            at = int(unlike[0, 0])
            values = (float(tensor.flatten()[at]) for tensor in (a[name], b[name]))
            return "{}, element {} of {}: {!r} and {!r}".format(name, at, a[name].numel(), *values)
    return "in their order alone"
