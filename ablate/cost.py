"""What a row costs, in closed form: parameters, FLOPs, memory, disk. No torch here.

Conventions: a FLOP is an addition or a multiplication, so a product of (m, k) and (k, n) is 2mkn; the
backward pass costs two forward ones; padding, element-wise work and normalisation are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

from ablate.config import RowConfig

BYTES = 4  # fp32: weights, gradients and both Adam moments, whatever the precision of the products
FORWARD_AND_BACKWARD = 3
# A sentence of this many tokens a side stands in for a corpus that is not prepared yet.
ASSUMED_LENGTH = 30
_LOSS_ROWS = 1024


@dataclass(frozen=True)
class Lengths:
    """Sums over a corpus' training pairs, end marks counted; S and T are a pair's lengths in tokens."""

    pairs: int
    source_tokens: int
    target_tokens: int
    longer_tokens: int  # sum of max(S, T): what batch_tokens is filled with
    source_squares: int  # sums of S^2, of S * T and of T^2: what attention scores cost
    products: int
    target_squares: int

    @staticmethod
    def assumed() -> Lengths:
        """One pair of ASSUMED_LENGTH tokens a side."""
        n = ASSUMED_LENGTH
        return Lengths(1, n, n, n, n * n, n * n, n * n)


def parameters(config: RowConfig, vocab_size: int) -> int:
    """Exact number of trained parameters."""
    d = config.d_model
    attention = _attention_weights(config)
    feed_forward = 2 * d * config.d_ff + config.d_ff + d
    norm = 2 * d
    encoder_layer = attention + feed_forward + 2 * norm
    decoder_layer = 2 * attention + feed_forward + 3 * norm
    positions = 2 * config.max_positions * d if config.positional_encoding == "learned" else 0
    return vocab_size * d + positions + config.n_layers * (encoder_layer + decoder_layer)


def _attention_weights(config: RowConfig) -> int:
    return 2 * config.d_model * config.n_heads * (config.d_k + config.d_v)


def flops_per_step(config: RowConfig, vocab_size: int, lengths: Lengths) -> float:
    """Mean FLOPs of one optimizer step: forward and backward over batch_tokens tokens of the longer sides.

    Encoder weights see source tokens, decoder weights target tokens, and the keys and values of
    attention over the source see source tokens. Causal attention is counted in full.
    """
    batch = config.batch_tokens / lengths.longer_tokens
    return FORWARD_AND_BACKWARD * batch * forward_flops(config, vocab_size, lengths)


def forward_flops(config: RowConfig, vocab_size: int, lengths: Lengths) -> float:
    """FLOPs of one forward pass over all the pairs that `lengths` sums over."""
    c, d = config, config.d_model
    queries_and_output = d * c.n_heads * (c.d_k + c.d_v)
    keys_and_values = queries_and_output
    feed_forward = 2 * d * c.d_ff
    source_weights = queries_and_output + keys_and_values + feed_forward + keys_and_values
    target_weights = 2 * queries_and_output + keys_and_values + feed_forward
    scores = c.n_heads * (c.d_k + c.d_v) * (lengths.source_squares + lengths.products + lengths.target_squares)
    layer = source_weights * lengths.source_tokens + target_weights * lengths.target_tokens + scores
    return 2 * (c.n_layers * layer + vocab_size * d * lengths.target_tokens)


def checkpoint_bytes(config: RowConfig, vocab_size: int) -> int:
    """Bytes of one resumable checkpoint: weights and Adam's two moments."""
    return 3 * BYTES * parameters(config, vocab_size)


def run_bytes(config: RowConfig, vocab_size: int, generations: int) -> int:
    """Bytes that one run takes at most while it trains: resumable generations and averaged weights."""
    averaged = max(0, config.average_checkpoints - generations)
    return generations * checkpoint_bytes(config, vocab_size) + averaged * BYTES * parameters(config, vocab_size)


def peak_memory(config: RowConfig, vocab_size: int, micro_batch_tokens: int) -> int:
    """Estimate of the bytes that training holds at its peak, without the interpreter and its libraries.

    Weights, gradients, two moments; the activations that one micro-batch keeps for its backward
    pass; and a chunk of the loss' logits. Attention weights are not kept.
    """
    c, d, tokens = config, config.d_model, micro_batch_tokens
    width = BYTES if c.precision == "fp32" else BYTES // 2
    heads = c.n_heads * (c.d_k + c.d_v)
    # An attention keeps its input, Q, K, V and its output before W^O; a residual its mask, its sum and its norm.
    attention = (d + 2 * heads) * width
    feed_forward = (d + 2 * c.d_ff) * width
    residual = (BYTES + BYTES + 1) * d
    encoder_layer = attention + feed_forward + 2 * residual
    decoder_layer = 2 * attention + feed_forward + 3 * residual
    activations = tokens * (c.n_layers * (encoder_layer + decoder_layer) + 2 * (2 * BYTES + 1) * d)
    loss = 2 * min(_LOSS_ROWS, tokens) * vocab_size * BYTES + vocab_size * d * BYTES
    return 4 * BYTES * parameters(c, vocab_size) + activations + loss


def steps(config: RowConfig, lengths: Lengths | None) -> int | None:
    """Optimizer steps at most; None where only the corpus can tell and it is not prepared."""
    ends = [config.train_steps] if config.train_steps is not None else []
    if config.epochs is not None and lengths is not None:
        ends.append(config.epochs * -(-lengths.longer_tokens // config.batch_tokens))
    if not ends or (config.epochs is not None and lengths is None):
        return None
    return min(ends)
