"""A plain torch loop at nanoGPT's documented settings for Tiny Shakespeare on a CPU: the peer of
shakespeare.yaml.

    python benchmarks/nanogpt_loop.py input.txt --threads 1

Written from those settings: 4 layers, 4 heads, d_model 128, contexts of 64 characters, 12 of them
    in a step, 2,000
steps, no dropout, AdamW with betas 0.9 and 0.99, weight decay 0.1 of matrices, gradient clipping at
1.0, a peak rate of 1e-3 after 100 steps of warm-up that falls to 1e-4 along a cosine. The model is
GPT-2 without biases: learned positions, pre-norm, GELU, tied embeddings, torch's fused attention.
Contexts are drawn at random from the first nine tenths of the text. Prints one line of JSON: the
seconds of the training loop, tokens per second, and the loss of the last tenth in nats.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LAYERS, HEADS, D_MODEL, CONTEXT, BATCH = 4, 4, 128, 64, 12
PEAK, LOWEST, WARMUP = 1e-3, 1e-4, 100
INIT = 0.02  # standard deviation of initial weights


class Block(nn.Module):
    """Causal self-attention and a feed-forward network, each after a norm and within a residual
    connection.
    """

    def __init__(self) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = (nn.LayerNorm(D_MODEL, bias=False) for _ in range(2))
        self.heads = nn.Linear(D_MODEL, 3 * D_MODEL, bias=False)
        self.project = nn.Linear(D_MODEL, D_MODEL, bias=False)
        self.inner = nn.Linear(D_MODEL, 4 * D_MODEL, bias=False)
        self.outer = nn.Linear(4 * D_MODEL, D_MODEL, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, d_model) -> (B, T, d_model)."""
        B, T, _ = x.shape
        Q, K, V = (
            part.view(B, T, HEADS, -1).transpose(1, 2)
            for part in self.heads(self.norm_1(x)).chunk(3, -1)
        )
        attended = F.scaled_dot_product_attention(Q, K, V, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).reshape(B, T, D_MODEL))
        out: Tensor = x + self.outer(F.gelu(self.inner(self.norm_2(x))))
        return out


class GPT(nn.Module):
    """The whole model; the embedding is also the matrix of the logits."""

    def __init__(self, V: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(V, D_MODEL), nn.Embedding(CONTEXT, D_MODEL)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(D_MODEL, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                residual = name.endswith(("project.weight", "outer.weight"))
                nn.init.normal_(parameter, std=INIT / math.sqrt(2 * LAYERS) if residual else INIT)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """Mean loss of token ids (B, T) in nats."""
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1]))
        logits = F.linear(self.norm(self.blocks(x)), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def learning_rate(step: int, steps: int) -> float:
    """The learning rate of a step, counted from 0."""
    if step < WARMUP:
        return PEAK * (step + 1) / (WARMUP + 1)
    share = (step - WARMUP) / max(1, steps - WARMUP)
    return LOWEST + 0.5 * (1 + math.cos(math.pi * share)) * (PEAK - LOWEST)


def train(model: GPT, text: Tensor, steps: int) -> float:
    """Train on random contexts; returns the seconds of the loop."""
    matrices = [parameter for parameter in model.parameters() if parameter.dim() == 2]
    others = [parameter for parameter in model.parameters() if parameter.dim() != 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.99))
    started = time.perf_counter()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, steps)
        starts = torch.randint(len(text) - CONTEXT, (BATCH, 1)) + torch.arange(CONTEXT)
        loss = model(text[starts], text[starts + 1])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return time.perf_counter() - started


@torch.no_grad()
def evaluate(model: GPT, text: Tensor) -> float:
    """Mean loss in nats over a text, cut into whole contexts side by side."""
    count = (len(text) - 1) // CONTEXT
    tokens = text[: count * CONTEXT].view(count, CONTEXT)
    targets = text[1 : count * CONTEXT + 1].view(count, CONTEXT)
    parts = zip(tokens.split(64), targets.split(64), strict=True)
    return sum(len(rows) * float(model(rows, wanted)) for rows, wanted in parts) / count


def main() -> None:
    """Train, evaluate, and print the line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("text", type=Path, help="input.txt or input.txt.gz")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    torch.manual_seed(given.seed)
    content = given.text.read_bytes()
    content = gzip.decompress(content) if given.text.suffix == ".gz" else content
    characters = sorted(set(content.decode()))
    ids = torch.tensor([characters.index(character) for character in content.decode()])
    cut = int(0.9 * len(ids))
    model = GPT(len(characters))
    seconds = train(model, ids[:cut], given.steps)
    tokens = given.steps * BATCH * CONTEXT
    outcome = {
        "steps": given.steps,
        "threads": given.threads,
        "seconds": round(seconds, 2),
        "tokens_per_second": round(tokens / seconds),
        "validation_nats": round(evaluate(model, ids[cut:]), 4),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "torch": torch.__version__,
    }
    print(json.dumps(outcome))


if __name__ == "__main__":
    main()
