"""Generate text with a language model, token by token: by sampling or greedily."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ablate.config import RowConfig
from ablate.data.tokenizer import BOS, EOS, PAD, UNK, Tokenizer
from ablate.model import Transformer
from ablate.model.decoder_only import DecoderOnly, DecoderOnlyCache

NEVER = (PAD, UNK, BOS)  # tokens that no text has


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
    """Yield tokens that continue a prompt, up to the end mark of the document or the limit.

    Args:
        model: the trained model.
        prompt: token ids of the prompt, with the begin mark of the document.
        count: largest number of tokens.
        context: largest number of preceding tokens that predict a token.
        temperature: divides the logits; 0 takes the most likely token.
        top_k: number of most likely tokens to draw from; None for all tokens.
        seed: seed of the draws.
    """
    model.eval()
    device = model.output_matrix.device
    random = torch.Generator().manual_seed(seed)  # on the CPU: the same draws on every device
    tokens = list(prompt)
    cache: DecoderOnlyCache | None = None
    for _ in range(count):
        # Without a cache for a text longer than the context: the context moves with each token, so
        # that the positions of all tokens change.
        if len(tokens) > context:
            states = model.read(torch.tensor([tokens[-context:]], device=device))[:, -1]
        else:
            if cache is None:  # started with all tokens but the last, which the next line reads
                prefix = torch.tensor([tokens[:-1]], dtype=torch.int64, device=device)
                cache = model.start(prefix, 1)
            states = model.step(torch.tensor([tokens[-1:]], device=device), cache)[:, 0]
        token = choose(model.logits(states)[0].float().cpu(), temperature, top_k, random)
        if token == EOS:
            return
        tokens.append(token)
        yield token


def choose(logits: Tensor, temperature: float, top_k: int | None, random: torch.Generator) -> int:
    """Draw the next token from logits (V,). At temperature 0, take the most likely token."""
    logits = logits.clone()
    # No text has these tokens, but the softmax gives them some probability.
    logits[list(NEVER)] = -torch.inf
    if temperature == 0.0:
        return int(logits.argmax())
    if top_k is not None and top_k < len(logits):
        logits[logits < logits.topk(top_k).values[-1]] = -torch.inf
    # Relative to the largest logit, because a temperature near 0 could make logits infinite.
    weights = ((logits - logits.max()).double() / temperature).softmax(-1)
    return int(torch.multinomial(weights, 1, generator=random))


def generate_text(
    model: Transformer, tokenizer: Tokenizer, prompt: str, config: RowConfig, seed: int
) -> str:
    """Continue a text with the decoding settings of a row; return the text after the prompt."""
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
