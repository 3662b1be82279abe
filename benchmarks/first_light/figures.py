"""Speed: ceilings, training of XS, S, base and big, decoding, several runs at once; by the classes of
benchmarks/gpu.py, each measurement by itself and kept at once."""

from __future__ import annotations

import argparse
import os
from typing import Any

import gpu  # benchmarks/gpu.py
import torch
from common import DEVICE, DRY, Lines

from ablate.kernels.device import prepare

lines = Lines("figures.jsonl")


class Kept(gpu.Bench):
    """Its measurements go to the file."""

    def emit(self, kind: str, **values: Any) -> None:
        self.lines.append({"kind": kind, **values})
        short = {k: float(f"{v:.5g}") if isinstance(v, float) else v for k, v in values.items()}
        lines.write(kind=kind, **short)


def bench(seconds: float) -> Kept:
    a = argparse.Namespace(
        precision="bf16" if not DRY else "fp32", peak=None, device=DEVICE, seconds=seconds, new_shapes=2 if DRY else 10,
        sentences=10 if DRY else 1000, deterministic=False, limit=1e9, out=None, ids=None, vocab=200 if DRY else 37_000,
    )  # fmt: skip
    return Kept(a)


def train(b: Kept, size: str, tokens: int, **values: Any) -> dict[str, Any]:
    b.train(size, tokens)
    return {"of": [size, tokens], **values}


def deterministic(b: Kept, tokens: int) -> dict[str, Any]:
    prepare(b.device, True)
    try:
        return train(b, "XS" if DRY else "base", tokens, deterministic=True)
    finally:
        prepare(b.device, False)


def main() -> None:
    b = bench(0.2 if DRY else 3.0)
    prepare(b.device)
    few, many = (200, 300) if DRY else (4096, 25_000)
    name = "cpu" if DRY else torch.cuda.get_device_name()
    lines.write(kind="device", name=name, torch=torch.__version__, cores=os.cpu_count())
    lines.check("ceilings", lambda: b.ceilings() or {})

    def trained(size: str, tokens: int, vocab: int) -> None:
        b.a.vocab = 200 if DRY else vocab
        lines.check(f"train {size} {tokens}", lambda: train(b, size, tokens), needs=12 * (not DRY))

    def decoded(size: str, beam: int) -> None:
        lines.check(
            f"decode {size} {beam}", lambda: b.decode(size, beam) or {}, needs=8 * (not DRY)
        )

    trained("XS", few, 8000)
    if not DRY:
        trained("base", many, 37_000)
    # As XS above, which is one run; the study that follows takes its length from this figure.
    several = bench(0.2 if DRY else 6.0)
    several.a.vocab, gpu.BATCH_TOKENS = 200 if DRY else 8000, few
    lines.check(
        "runs at once", lambda: several.jobs("XS", 2 if DRY else 8) or {}, needs=25 * (not DRY)
    )
    decoded("XS" if DRY else "base", 4)
    if not DRY:
        trained("S", few, 8000)
        trained("big", many, 37_000)
        decoded("base", 1)
        trained("base", few, 37_000)
        b.a.vocab = 37_000
        lines.check("deterministic", lambda: deterministic(b, many), needs=15)
    lines.end()


if __name__ == "__main__":
    main()
