"""What a row costs, in closed form: parameters, FLOPs, memory, disk. No torch here.

Conventions: a FLOP is an addition or a multiplication, so a product of (m, k) and (k, n) is 2mkn; the
backward pass costs two forward ones; padding, element-wise work and normalisation are left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ablate.config import ModelConfig, RowConfig
from ablate.config.model import LINEAR_CHUNK, T5_BUCKETS
from ablate.config.training import LOGIT_ROWS

BYTES = 4  # fp32: weights, gradients and both Adam moments, whatever the precision of the products
FORWARD_AND_BACKWARD = 3
# A sentence of this many tokens a side stands in for a corpus that is not prepared yet.
ASSUMED_LENGTH = 30


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
    def of_fields(sums: Mapping[str, int], fields: Sequence[str]) -> Lengths:
        """From a corpus manifest: of two fields, source and target; of one, a target without a source."""
        if len(fields) == 1:
            (field,) = fields
            tokens, squares = sums[f"{field}_tokens"], sums[f"{field}_squares"]
            return Lengths(sums["pairs"], 0, tokens, sums["longer_tokens"], 0, 0, squares)
        names = (*(f"{field}_tokens" for field in fields), "longer_tokens")
        squares_and_products = (f"{fields[0]}_squares", "products", f"{fields[1]}_squares")
        return Lengths(sums["pairs"], *(sums[name] for name in (*names, *squares_and_products)))

    @staticmethod
    def assumed() -> Lengths:
        """One pair of ASSUMED_LENGTH tokens a side."""
        n = ASSUMED_LENGTH
        return Lengths(1, n, n, n, n * n, n * n, n * n)


def parameters(config: RowConfig, vocab_size: int) -> int:
    """Exact number of trained parameters; what a user's own variant adds cannot be known here and is left out."""
    c, d = config, config.d_model
    encoder, decoder = c.depths
    around = norm_parameters(c) if c.norm_position != "none" else 0
    feed_forward = (3 if is_gated(c) else 2) * d * _inner_width(c) + _inner_width(c) * (2 if is_gated(c) else 1) + d
    cross = _attention_parameters(c, c.cross_heads) + around if c.has_encoder else 0
    total = encoder * (_mixer_parameters(c, causal=False) + feed_forward + 2 * around)
    total += decoder * (_mixer_parameters(c, causal=True) + cross + feed_forward + 2 * around)
    if c.norm_position == "pre":
        total += around * (2 if c.has_encoder else 1)
    return total + _matrices(c) * vocab_size * d + _position_parameters(c)


def is_gated(config: ModelConfig) -> bool:
    """Whether the activation of ours multiplies two projections."""
    return config.activation == "swiglu"


def _inner_width(c: ModelConfig) -> int:
    return c.inner_width(is_gated(c))


def norm_parameters(config: ModelConfig) -> int:
    """A gain, and in LayerNorm a bias."""
    return {"layernorm": 2, "rmsnorm": 1}.get(config.norm, 0) * config.d_model


def _matrices(c: ModelConfig) -> int:
    """How many matrices of V vectors there are: source, target and pre-softmax, as far as they are not one."""
    if c.tied_embeddings == "none":
        return 3 if c.has_encoder else 2
    return 2 if c.tied_embeddings == "decoder" else 1


def _mixer_parameters(c: ModelConfig, causal: bool) -> int:
    if c.mixer == "attention":
        return _attention_parameters(c, c.n_heads)
    width, directions = (c.d_model, 1) if causal else (c.d_model // 2, 2)
    return directions * 4 * width * (c.d_model + width + 2)


def _attention_parameters(c: ModelConfig, heads: int) -> int:
    biases = heads * c.d_k + (c.n_kv_heads or heads) * (c.d_k + c.d_v) + c.d_model
    return _asking(c, heads) + _asked(c, heads) + (biases if c.attention_bias else 0)


def _asking(c: ModelConfig, heads: int) -> int:
    """Weights of the projections of queries and of the output."""
    return c.d_model * heads * (c.d_k + c.d_v)


def _asked(c: ModelConfig, heads: int) -> int:
    """Weights of the projections of keys and values."""
    return c.d_model * (c.n_kv_heads or heads) * (c.d_k + c.d_v)


def _position_parameters(c: ModelConfig) -> int:
    stacks = 2 if c.has_encoder else 1
    if c.positional_encoding == "learned":
        return stacks * c.max_positions * c.d_model
    if c.positional_encoding == "t5":
        return stacks * T5_BUCKETS * c.n_heads
    if c.positional_encoding == "relative":
        encoder, decoder = c.depths
        return (encoder * (2 * c.relative_clip + 1) + decoder * (c.relative_clip + 1)) * (c.d_k + c.d_v)
    return 0


def flops_per_step(config: RowConfig, vocab_size: int, lengths: Lengths) -> float:
    """Mean FLOPs of one optimizer step: forward and backward over batch_tokens tokens of the longer sides.

    Encoder weights see source tokens, decoder weights target tokens, and the keys and values of
    attention over the source see source tokens. Causal and local attention are counted in full, as
    they are computed; what a user's own variant does is counted as if it were the paper's.
    """
    batch = config.batch_tokens / lengths.longer_tokens
    return FORWARD_AND_BACKWARD * batch * forward_flops(config, vocab_size, lengths)


def forward_flops(config: RowConfig, vocab_size: int, lengths: Lengths) -> float:
    """FLOPs of one forward pass over all the pairs that `lengths` sums over."""
    c, d, n = config, config.d_model, lengths
    encoder, decoder = c.depths
    feed_forward = (3 if is_gated(c) else 2) * d * _inner_width(c)
    if not c.has_encoder:
        tokens = n.source_tokens + n.target_tokens
        squares = n.source_squares + 2 * n.products + n.target_squares
        stacks = decoder * (_mixing(c, True, tokens, squares) + feed_forward * tokens)
    else:
        h = c.cross_heads
        cross = _asking(c, h) * n.target_tokens + _asked(c, h) * n.source_tokens + _scores(c, h) * n.products
        stacks = encoder * (_mixing(c, False, n.source_tokens, n.source_squares) + feed_forward * n.source_tokens)
        own = _mixing(c, True, n.target_tokens, n.target_squares) + feed_forward * n.target_tokens
        stacks += decoder * (own + cross)
    return 2 * (stacks + vocab_size * d * n.target_tokens)


def _mixing(c: ModelConfig, causal: bool, tokens: int, squares: int) -> float:
    """Multiplications of a layer's mixer over sequences of so many tokens, and of so many squared lengths."""
    if c.mixer == "lstm":
        width, directions = (c.d_model, 1) if causal else (c.d_model // 2, 2)
        return directions * 4 * width * (c.d_model + width) * tokens
    projections = _asking(c, c.n_heads) + _asked(c, c.n_heads)
    if c.attention == "linear":  # sums of K^T V and Q times them; and in a causal chunk the weights of its tokens
        state = 2 * c.n_heads * c.d_k * (c.d_v + 1) * tokens
        near = min(squares, LINEAR_CHUNK * tokens) * c.n_heads * (c.d_k + c.d_v + 1) if causal else 0
        return projections * tokens + state + near
    twice = 2 if c.positional_encoding == "relative" else 1  # its vectors are multiplied as keys and values are
    return projections * tokens + twice * _scores(c, c.n_heads) * squares


def _scores(c: ModelConfig, heads: int) -> int:
    """Multiplications for one query and one key: the score, and the value under its weight."""
    return heads * (c.d_k + c.d_v)


def checkpoint_bytes(config: RowConfig, vocab_size: int) -> int:
    """Bytes of one resumable checkpoint: weights and Adam's two moments."""
    return 3 * BYTES * parameters(config, vocab_size)


def run_bytes(config: RowConfig, vocab_size: int, generations: int) -> int:
    """Bytes that one run takes at most while it trains: resumable generations and averaged weights."""
    averaged = max(0, config.average_checkpoints - generations)
    return generations * checkpoint_bytes(config, vocab_size) + averaged * BYTES * parameters(config, vocab_size)


def peak_memory(config: RowConfig, vocab_size: int, micro_batch_tokens: int, device: str = "cpu") -> int:
    """Estimate of the bytes that training holds at its peak, without the interpreter and its libraries.

    Weights, gradients, two moments; the activations that one micro-batch keeps for its backward
    pass; and a chunk of the loss' logits. `device` is `cpu` or `cuda`: there activations may be in bf16, and on
    a CPU those that are count as if they were not.
    """
    c, d, tokens = config, config.d_model, micro_batch_tokens
    width = BYTES // 2 if c.precision == "bf16" and device == "cuda" else BYTES
    # An attention keeps its input, Q, K, V (shared ones as often as they are used) and its output before W^O; a
    # residual its mask, its sum and its norm.
    attention, cross = ((d + 2 * heads * (c.d_k + c.d_v)) * width for heads in (c.n_heads, c.cross_heads))
    mixer = attention + _weights_kept(c) if c.mixer == "attention" else 7 * d * width
    feed_forward = (d + (4 if is_gated(c) else 2) * _inner_width(c)) * width
    residual = 3 * BYTES * d
    encoder, decoder = c.depths
    encoder_layer = mixer + feed_forward + 2 * residual
    decoder_layer = encoder_layer + (cross + residual if c.has_encoder else 0)
    sides = 1 if c.has_encoder else 2  # tokens of a causal stack over both sides, for one of the longer side
    activations = tokens * (encoder * encoder_layer + sides * decoder * decoder_layer + 2 * 3 * BYTES * d)
    loss = 2 * min(LOGIT_ROWS[device], tokens) * vocab_size * BYTES + vocab_size * d * BYTES
    copies = BYTES // 2 if c.precision == "bf16" and device == "cpu" else 0  # of weights, as products take them
    return (4 * BYTES + copies) * parameters(c, vocab_size) + activations + loss


def _weights_kept(c: ModelConfig) -> int:
    """Bytes a token that attention keeps between Q, K, V and its output, where it is not one fused product."""
    if c.attention == "linear":  # what phi is made of, and sums with their divisors
        return BYTES * c.n_heads * (5 * c.d_k + 2 * (c.d_v + 1))
    formed = c.positional_encoding in ("relative", "t5", "alibi") or c.attention_dropout > 0
    return 3 * BYTES * c.n_heads * ASSUMED_LENGTH if formed else 0


def steps(config: RowConfig, lengths: Lengths | None) -> int | None:
    """Optimizer steps at most; None where only the corpus can tell and it is not prepared."""
    ends = [config.train_steps] if config.train_steps is not None else []
    if config.epochs is not None and lengths is not None:
        tokens = round(config.train_fraction * lengths.longer_tokens)  # about: which pairs is not looked up
        ends.append(config.epochs * -(-tokens // config.batch_tokens))
    if not ends or (config.epochs is not None and lengths is None):
        return None
    return min(ends)
