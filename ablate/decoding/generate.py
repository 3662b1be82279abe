"""Text of a language model, one token after another: sampled, or the most likely ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ablate.config import RowConfig
from ablate.data.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from ablate.model import Transformer
from ablate.model.decoder_only import DecoderOnly, DecoderOnlyCache

NEVER = (PAD, UNK, BOS)


@torch.no_grad()
def generate_ids(
    model: DecoderOnly,
    prompt: Sequence[int],
    count: int,
    *,
    context: int,
    temperature: float = 1.0,
    top_k: int | None = None,
    seed: int = 1,
) -> Iterator[int]:
    """Yield up to `count` tokens that continue a prompt; the end mark of a document ends them, and
    is not part.

    Each is predicted from the `context` tokens before it, or from all of them if they are fewer.

    Args:
        model: the trained model.
        prompt: token ids, with the begin mark before a document.
        count: of tokens.
        context: number of tokens that predict the next one.
        temperature: divides the logits; 0 takes the most likely token.
        top_k: draw from this many most likely tokens; None for all.
        seed: of the draws.
    """
    model.eval()
    device = model.output_matrix.device
    random = torch.Generator().manual_seed(seed)  # on the CPU, so that every device draws the same
    tokens = list(prompt)
    cache: DecoderOnlyCache | None = None
    for _ in range(count):
        # Positions count from the beginning of the context: when it moves on, nothing can be kept.
        if len(tokens) > context:
            states = model.read(torch.tensor([tokens[-context:]], device=device))[:, -1]
        else:
            if cache is None:  # without the last token, which the step below reads
                before = torch.tensor([tokens[:-1]], dtype=torch.int64, device=device)
                cache = model.start(before, 1)
            states = model.step(torch.tensor([tokens[-1:]], device=device), cache)[:, 0]
        token = choose(model.logits(states)[0].float().cpu(), temperature, top_k, random)
        if token == EOS:
            return
        tokens.append(token)
        yield token


def choose(logits: Tensor, temperature: float, top_k: int | None, random: torch.Generator) -> int:
    """The next token from logits (V): drawn, or the most likely one at temperature 0."""
    logits = logits.clone()
    # No text contains these tokens, yet the softmax gives them some probability.
    logits[list(NEVER)] = -torch.inf
    if temperature == 0.0:
        return int(logits.argmax())
    if top_k is not None and top_k < len(logits):
        logits[logits < logits.topk(top_k).values[-1]] = -torch.inf
    # Relative to the largest one: a temperature near 0 would else take it to infinity.
    weights = ((logits - logits.max()).double() / temperature).softmax(-1)
    return int(torch.multinomial(weights, 1, generator=random))


def generate_text(
    model: Transformer, tokenizer: Tokenizer, prompt: str, config: RowConfig, seed: int
) -> str:
    """Continue a text with the decoding settings of a row; the prompt is not part of the result."""
    assert isinstance(model, DecoderOnly)
    assert config.context is not None
    (ids,) = tokenizer.encode([prompt])
    tokens = generate_ids(
        model,
        [BOS, *ids],
        config.generated_tokens,
        context=config.context,
        temperature=config.temperature,
        top_k=config.top_k,
        seed=seed,
    )
    return tokenizer.decode([list(tokens)])[0]
