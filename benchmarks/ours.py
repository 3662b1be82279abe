"""One measurement of ours, as one JSON line; the other benchmarks start it in an environment of their choosing.

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

SEGMENTS = 3  # parts of the measured time, whose median counts
# Seconds, and steps at least: batches differ in how much of them is padding, and at base in bf16 a number of rows
# that is new costs up to a second, for code that oneDNN compiles and for memory.
WARM_UP, MEASURED = (6.0, 10), (12.0, 9)
FORCED = 16  # tokens of every translation, so that a model's quality does not change the work
REPETITIONS = 3


def train(size: str, precision: str, ids: Path | None) -> dict[str, Any]:
    """Real target tokens a second of the product's training step."""
    trainer_ = trainer(row(size, precision), split(ids, TRAIN))
    _steps(trainer_, *WARM_UP)
    seconds, steps = MEASURED
    rates = [_steps(trainer_, seconds / SEGMENTS, steps // SEGMENTS) for _ in range(SEGMENTS)]
    return {"tokens_per_s": statistics.median(rates), "low": min(rates), "high": max(rates)}


def _steps(trainer_: Any, seconds: float, least: int) -> float:
    start, tokens, last = time.perf_counter(), trainer_.at.tokens, trainer_.at.step + least
    while time.perf_counter() - start < seconds or trainer_.at.step < last:
        trainer_._step(trainer_.at.step + 1)
    return float(trainer_.at.tokens - tokens) / (time.perf_counter() - start)


def curve(size: str, precision: str, ids: Path | None, steps: int, dropout: float) -> dict[str, Any]:
    """The training loss in nats a token, as a mean over the last 10 of every 50 steps."""
    trainer_, losses = trainer(row(size, precision, dropout=dropout), split(ids, TRAIN)), []
    for step in range(1, steps + 1):
        trainer_._step(step)
        if step % 50 == 40:
            trainer_.losses.zero_()
            trainer_.loss_tokens = 0
        if step % 50 == 0:
            losses.append(round(float(trainer_.losses) / trainer_.loss_tokens, 3))
    return {"losses": losses}


class Forced:
    """A model all of whose translations are of FORCED tokens, the end mark among them."""

    def __init__(self, model: Transformer) -> None:
        self.model = model

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)

    def step(self, tokens: torch.Tensor, cache: Any) -> torch.Tensor:
        """The model's."""
        self.length = cache.length + 1
        return self.model.step(tokens, cache)

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """The model's, but the end mark is impossible, and then certain."""
        logits = self.model.logits(states)
        logits[..., EOS] = 1e9 if self.length == FORCED else -1e9
        return logits


def decode(size: str, ids: Path | None, beam: int) -> dict[str, Any]:
    """Sentences a second of the product's beam search over the test set."""
    model: Any = Forced(build(row(size), V, 1).eval())
    source = split(ids, TEST, 1000)["source"]
    sentences = [source[i].tolist() for i in range(len(source))]
    settings = DecodingConfig(beam=beam, alpha=0.0, max_extra_length=50)
    device, times = torch.device("cpu"), []
    translate_ids(model, sentences[:128], settings, device)
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        found = translate_ids(model, sentences, settings, device)
        times.append(time.perf_counter() - start)
    assert all(len(tokens) == FORCED - 1 for tokens in found)
    return {"sentences_per_s": len(sentences) / statistics.median(times), "low": min(times), "high": max(times)}


def main() -> None:
    """Read the words, measure, print."""
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
        found = train(a.size, a.precision, a.ids)
    elif a.task == "curve":
        found = curve(a.size, a.precision, a.ids, a.steps, a.dropout)
    else:
        found = decode(a.size, a.ids, a.beam)
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"peer": "ablate", "task": a.task, "size": a.size, **found, "rss_mb": round(rss)}))


if __name__ == "__main__":
    main()
