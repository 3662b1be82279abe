"""Measure ablate once and print one JSON line; speed.py runs this script in a chosen environment.

python benchmarks/ours.py train XS|S|base fp32|bf16 [--ids FILE] [--threads 2]
python benchmarks/ours.py decode XS|S|base fp32 [--beam 4] [--ids FILE] [--threads 2]
python benchmarks/ours.py curve XS fp32 --steps 200 [--dropout 0]       the loss, every 50 steps
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from workload import TEST, TRAIN, V, row, split, trainer

from ablate.config import DecodingConfig
from ablate.data.tokenizer import EOS
from ablate.decoding.translate import translate_ids
from ablate.model import Transformer, build

SEGMENTS = 3  # parts of the measured time; their median is reported
# (seconds, minimum number of steps). Many steps, because batches differ in their share of padding,
# and because in bf16 each new number of rows takes up to a second at size base, for oneDNN's
# compilation and for memory.
WARM_UP, MEASURED = (6.0, 10), (12.0, 9)
FORCED = 16  # tokens of every translation, so that all models do the same work
REPETITIONS = 3


def train(size: str, precision: str, ids: Path | None) -> dict[str, Any]:
    """Measure target tokens per second of ablate's training step, without padding."""
    trainer_ = trainer(row(size, precision), split(ids, TRAIN))
    _steps(trainer_, *WARM_UP)
    seconds, steps = MEASURED
    rates = [_steps(trainer_, seconds / SEGMENTS, steps // SEGMENTS) for _ in range(SEGMENTS)]
    return {"tokens_per_s": statistics.median(rates), "low": min(rates), "high": max(rates)}


def _steps(trainer_: Any, seconds: float, least: int) -> float:
    start, tokens, last = (
        time.perf_counter(),
        trainer_.progress.tokens,
        trainer_.progress.step + least,
    )
    while time.perf_counter() - start < seconds or trainer_.progress.step < last:
        trainer_._step(trainer_.progress.step + 1)
    return float(trainer_.progress.tokens - tokens) / (time.perf_counter() - start)


def curve(
    size: str, precision: str, ids: Path | None, steps: int, dropout: float
) -> dict[str, Any]:
    """Record the training loss in nats per token: the mean over the last 10 of every 50 steps."""
    trainer_, losses = trainer(row(size, precision, dropout=dropout), split(ids, TRAIN)), []
    for step in range(1, steps + 1):
        trainer_._step(step)
        if step % 50 == 40:
            trainer_.loss_sum.zero_()
            trainer_.loss_tokens = 0
        if step % 50 == 0:
            losses.append(round(float(trainer_.loss_sum) / trainer_.loss_tokens, 3))
    return {"losses": losses}


class Forced:
    """A model whose translations all have FORCED tokens, including the end mark."""

    def __init__(self, model: Transformer) -> None:
        self.model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def step(self, tokens: torch.Tensor, cache: Any) -> torch.Tensor:
        """Decode one token with the model."""
        self.length = cache.length + 1
        return self.model.step(tokens, cache)

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """The model's logits, but the end mark has probability 0 before the last token, and 1
        there.
        """
        logits = self.model.logits(states)
        logits[..., EOS] = 1e9 if self.length == FORCED else -1e9
        return logits


def decode(size: str, ids: Path | None, beam: int) -> dict[str, Any]:
    """Measure sentences per second of ablate's beam search over the test set."""
    model: Any = Forced(build(row(size), V, 1).eval())
    source = split(ids, TEST, 1000)["source"]
    sentences = [source[i].tolist() for i in range(len(source))]
    settings = DecodingConfig(beam=beam, alpha=0.0, max_extra_length=50)
    device, times = torch.device("cpu"), []
    translate_ids(model, sentences[:128], settings, device)
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        translations = translate_ids(model, sentences, settings, device)
        times.append(time.perf_counter() - start)
    assert all(len(tokens) == FORCED - 1 for tokens in translations)
    return {
        "sentences_per_s": len(sentences) / statistics.median(times),
        "low": min(times),
        "high": max(times),
    }


def main() -> None:
    """Parse the arguments, measure, print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("task", choices=["train", "decode", "curve"])
    parser.add_argument("size")
    parser.add_argument("precision", choices=["fp32", "bf16"])
    parser.add_argument("--ids", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--beam", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--dropout", type=float, default=0.1)
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    torch.set_flush_denormal(True)
    if a.task == "train":
        result = train(a.size, a.precision, a.ids)
    elif a.task == "curve":
        result = curve(a.size, a.precision, a.ids, a.steps, a.dropout)
    else:
        result = decode(a.size, a.ids, a.beam)
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        json.dumps(
            {"peer": "ablate", "task": a.task, "size": a.size, **result, "rss_mb": round(rss)}
        )
    )


if __name__ == "__main__":
    main()
