"""A language model of 124M parameters (GPT-2 small, contexts of 1,024): ablate's step beside a plain loop.

    python lm.py [--warm]     --warm: compile the plain model only, so that torch's cache has it

The plain loop is nanoGPT's recipe: fused QKV, torch's attention, bf16 autocast, fused AdamW, clipping,
torch.compile of the whole model. MFU by PaLM's formula for both: 6 N + 12 L d T FLOP a token, of 989 TFLOP/s.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from common import DEVICE, DRY, Lines, left
from torch import Tensor, nn

from ablate.config.language_data import FIELD
from ablate.config.resolve import resolve_row
from ablate.data.corpus import Split, TokenSequences
from ablate.kernels.device import prepare
from ablate.store import RunFolder
from ablate.tasks import TASKS
from ablate.training import Trainer

L, D, H, T, V, B = (2, 64, 4, 32, 500, 4) if DRY else (12, 768, 12, 1024, 50304, 16)
PEAK = 989e12
SECONDS = 1 if DRY else 6
lines = Lines("lm.jsonl")
wait = torch.cuda.synchronize if not DRY else lambda: None


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.o = nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x: Tensor) -> Tensor:
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, H, -1).transpose(1, 2) for y in self.qkv(self.n1(x)).split(D, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, D))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tok, self.pos = nn.Embedding(V, D), nn.Embedding(T, D)
        self.blocks, self.norm = nn.ModuleList(Block() for _ in range(L)), nn.LayerNorm(D)
        for p in self.parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tok.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def measure(name: str, step: Any, params: int, seconds: float = SECONDS) -> dict[str, Any]:
    """Milliseconds of a step after the first three, tokens per second, MFU, memory."""
    start = time.monotonic()
    step()
    wait()
    first = time.monotonic() - start
    for _ in range(2):
        step()
    wait()
    if not DRY:
        torch.cuda.reset_peak_memory_stats()
    count, start, host = 0, time.monotonic(), 0.0
    while count < 3 or time.monotonic() - start < seconds:
        began = time.monotonic()
        step()
        host += time.monotonic() - began
        count += 1
        if count % 5 == 0:
            wait()
    wait()
    each = (time.monotonic() - start) / count
    flops = (6 * params + 12 * L * D * T) * B * T
    peak = None if DRY else round(torch.cuda.max_memory_allocated() / 2**30, 2)
    return {"what": name, "first_s": round(first, 1), "step_ms": round(1e3 * each, 2), "host_ms": round(1e3 * host / count, 2),
            "tokens_per_s": round(B * T / each), "mfu": round(flops / each / PEAK, 4), "peak_gib": peak, "params": params}  # fmt: skip


def plain(compiled: bool, warm: bool = False) -> dict[str, Any]:
    torch.manual_seed(1)
    model = Plain().to(DEVICE)
    call = torch.compile(model, backend="eager" if DRY else "inductor") if compiled else model
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )
    ids = torch.randint(V, (B, T + 1), device=DEVICE)

    def step() -> None:
        with torch.autocast(DEVICE.split(":")[0], torch.bfloat16):
            loss = call(ids[:, :-1], ids[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    count = sum(p.numel() for p in model.parameters()) - model.pos.weight.numel()
    return measure(
        "plain, compiled" if compiled else "plain, eager", step, count, 0.1 if warm else SECONDS
    )


def ours(**fields: Any) -> dict[str, Any]:
    config = resolve_row({
        "preset": "gpt2-small", "n_layers": L, "d_model": D, "d_ff": 4 * D, "n_heads": H, "context": T, "max_positions": T,
        "batch_tokens": B * T, "precision": "bf16", "dropout": 0.0, "label_smoothing": 0.0, "optimizer": "adamw",
        "weight_decay": 0.1, "adam_beta2": 0.95, "gradient_clipping": 1.0, **fields,
    })  # fmt: skip
    ids = np.random.default_rng(1).integers(4, V, B * T * 20).astype(np.uint32)
    text = Split({FIELD: TokenSequences(ids, np.array([0, len(ids)]))})
    corpus: Any = SimpleNamespace(
        tokenizer=SimpleNamespace(vocab_size=V), split=lambda name: text,
        manifest=SimpleNamespace(data={"documents": "joined"}),
    )  # fmt: skip
    t = Trainer(
        config, 1, TASKS["language-model"], corpus, RunFolder(Path(tempfile.mkdtemp())), device=torch.device(DEVICE),
        micro_batch_tokens=B * T, keep_checkpoints=1,
    )  # fmt: skip
    at = [0]

    def step() -> None:
        at[0] += 1
        t._step(1 + at[0] % 20)

    count = sum(p.numel() for n, p in t.model.named_parameters() if "position" not in n)
    out = measure(f"ablate {fields or ''}".strip(), step, count)
    return {**out, "loss": round(float(t.loss_sum) / t.loss_tokens, 3)}


def main() -> None:
    if not DRY:
        prepare(torch.device(DEVICE))
    if "--warm" in sys.argv:
        lines.check("warm", lambda: plain(True, warm=True))
        return
    lines.check("ours", lambda: ours())
    lines.check("plain eager", lambda: plain(False), needs=12)
    lines.check("plain compiled", lambda: plain(True), needs=20)
    if left() > 20:
        torch.cuda.empty_cache() if not DRY else None
        lines.check("ours, dropout 0.1", lambda: ours(dropout=0.1))
    lines.end()


if __name__ == "__main__":
    main()
