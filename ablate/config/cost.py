"""Cost of a row in closed form: parameters, FLOPs, disk. Without torch, so that `ablate plan` is
fast.

A FLOP is one addition or multiplication: a product of an (m, k) and a (k, n) matrix takes 2mkn. The
backward pass costs twice the forward pass. Padding, element-wise operations and normalization are
not counted. Facts about single variants are in variants.py, and memory is in memory.py; a custom
class is counted as a variant without costs of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ablate.config import ModelConfig, RowConfig
from ablate.config.variants import (
    ACTIVATIONS,
    ATTENTIONS,
    MIXERS,
    NORMS,
    POSITIONAL_ENCODINGS,
    Activation,
    Attention,
    Norm,
    PositionalEncoding,
)

BYTES = 4  # fp32: weights, gradients and optimizer state, whatever `precision` is
FORWARD_AND_BACKWARD = 3
# Assumed tokens per sentence while the corpus is not prepared.
ASSUMED_LENGTH = 30


@dataclass(frozen=True)
class Lengths:
    """Sums over a corpus's training pairs. S and T are the lengths of a pair in tokens, with the
    end token.
    """

    pairs: int
    source_tokens: int
    target_tokens: int
    longer_tokens: int  # sum of max(S, T), the unit of batch_tokens
    source_squares: int  # sums of S^2, S * T and T^2: numbers of attention scores
    products: int
    target_squares: int

    @staticmethod
    def of_fields(sums: Mapping[str, int], fields: Sequence[str]) -> Lengths:
        """Lengths from the sums of a corpus manifest; with one field, it is the target and there is
        no source.
        """
        if len(fields) == 1:
            (field,) = fields
            tokens, squares = sums[f"{field}_tokens"], sums[f"{field}_squares"]
            return Lengths(sums["pairs"], 0, tokens, sums["longer_tokens"], 0, 0, squares)
        names = (*(f"{field}_tokens" for field in fields), "longer_tokens")
        squares_and_products = (f"{fields[0]}_squares", "products", f"{fields[1]}_squares")
        return Lengths(sums["pairs"], *(sums[name] for name in (*names, *squares_and_products)))

    def in_contexts(self, context: int, stride: int) -> Lengths:
        """Lengths of the same text, cut into contexts that begin every `stride` tokens."""
        trained = round(self.target_tokens * context / stride)
        return Lengths(max(1, trained // context), 0, trained, trained, 0, 0, trained * context)

    @staticmethod
    def of_length(n: int) -> Lengths:
        """Lengths of one pair with n tokens on each side."""
        return Lengths(1, n, n, n, n * n, n * n, n * n)

    @staticmethod
    def assumed() -> Lengths:
        """Lengths of one pair with ASSUMED_LENGTH tokens on each side."""
        return Lengths.of_length(ASSUMED_LENGTH)


def parameters(config: RowConfig, vocab_size: int) -> int:
    """Exact number of trained parameters, without those that custom classes add."""
    c, d = config, config.d_model
    encoder, decoder = c.depths
    norm = _norm_parameters(c) if c.norm_position != "none" else 0
    width, inputs = inner_width(c), _input_projections(c)
    feed_forward = feed_forward_weights(c) + (inputs * width + d if c.feed_forward_bias else 0)
    cross = _attention_parameters(c, c.cross_heads) + norm if c.has_both_stacks else 0
    total = encoder * (_mixer_parameters(c, causal=False) + feed_forward + 2 * norm)
    total += decoder * (_mixer_parameters(c, causal=True) + cross + feed_forward + 2 * norm)
    if c.norm_position == "pre":  # each stack ends with a norm
        total += norm * (2 if c.has_both_stacks else 1)
    if c.embedding_norm:
        total += norm
    if c.output_transform:
        total += d * d + d + norm
    if c.output_bias:
        total += vocab_size
    return (
        total
        + (_embedding_matrices(c) * vocab_size + c.token_types) * d
        + _positions(c).parameters(c)
    )


def _positions(c: ModelConfig) -> PositionalEncoding:
    return POSITIONAL_ENCODINGS.get(c.positional_encoding, PositionalEncoding())


def _attention(c: ModelConfig) -> Attention:
    return ATTENTIONS.get(c.attention, Attention())


def _input_projections(c: ModelConfig) -> int:
    """Projections into the inner layer of the feed-forward network: two with a gated activation,
    else one.
    """
    return 2 if ACTIVATIONS.get(c.activation, Activation()).gated else 1


def inner_width(c: ModelConfig) -> int:
    """Width between the layers of the feed-forward network, with its activation."""
    return c.inner_width(gated=_input_projections(c) == 2)


def feed_forward_weights(c: ModelConfig) -> int:
    """Weights of one feed-forward network, without biases."""
    return (_input_projections(c) + 1) * c.d_model * inner_width(c)


def _norm_parameters(c: ModelConfig) -> int:
    return NORMS.get(c.norm, Norm()).vectors * c.d_model


def _embedding_matrices(c: ModelConfig) -> int:
    """Number of V x d_model matrices among source and target embedding and pre-softmax, after
    tying.
    """
    if c.tied_embeddings == "none":
        return 3 if c.has_both_stacks else 2
    return 2 if c.tied_embeddings == "decoder" else 1


def _mixer_parameters(c: ModelConfig, causal: bool) -> int:
    mixer = MIXERS[c.mixer]
    return mixer.parameters(c, causal) if mixer.parameters else _attention_parameters(c, c.n_heads)


def _attention_parameters(c: ModelConfig, heads: int) -> int:
    biases = heads * c.d_k + (c.n_kv_heads or heads) * (c.d_k + c.d_v) + c.d_model
    return attention_weights(c, heads) + (biases if c.attention_bias else 0)


def attention_weights(c: ModelConfig, heads: int) -> int:
    """Weights of one attention's projections, without biases."""
    return _query_and_output_weights(c, heads) + key_and_value_weights(c, heads)


def _query_and_output_weights(c: ModelConfig, heads: int) -> int:
    return c.d_model * heads * (c.d_k + c.d_v)


def key_and_value_weights(c: ModelConfig, heads: int) -> int:
    """Weights of W^K and W^V, whose heads may be fewer."""
    return c.d_model * (c.n_kv_heads or heads) * (c.d_k + c.d_v)


def flops_per_step(config: RowConfig, vocab_size: int, lengths: Lengths) -> float:
    """Mean FLOPs of one optimizer step: forward and backward over batch_tokens tokens of the longer
    sides.

    Encoder weights are applied to source tokens, decoder weights to target tokens, and the keys and
    values of attention over the source to source tokens. Causal and local attention are counted in
    full, as they are computed. A custom class is counted as the paper's variant.
    """
    lengths = _trained(config, lengths)
    batch = config.batch_tokens / lengths.longer_tokens
    return FORWARD_AND_BACKWARD * batch * forward_flops(config, vocab_size, lengths)


def training_flops(config: RowConfig, vocab_size: int, lengths: Lengths) -> float | None:
    """FLOPs of a whole training; None if its number of steps depends on the corpus or only on
    patience.
    """
    number = steps(config, None)
    return None if number is None else number * flops_per_step(config, vocab_size, lengths)


def _trained(config: RowConfig, lengths: Lengths) -> Lengths:
    """Lengths of what a row trains on: records, or the contexts of a text."""
    if config.context is None:
        return lengths
    return lengths.in_contexts(config.context, config.stride or config.context)


def forward_flops(config: RowConfig, vocab_size: int, lengths: Lengths) -> float:
    """FLOPs of one forward pass over all the pairs in `lengths`."""
    c, d, n = config, config.d_model, lengths
    encoder, decoder = c.depths
    feed_forward = feed_forward_weights(c)
    if not c.has_both_stacks:
        tokens = n.source_tokens + n.target_tokens
        # Source and target are one sequence: (S + T)^2 scores.
        squares = n.source_squares + 2 * n.products + n.target_squares
        mixing = _mixer_multiplications(c, c.has_decoder, tokens, squares)
        stacks = (encoder + decoder) * (mixing + feed_forward * tokens)
    else:
        h = c.cross_heads
        cross = (
            _query_and_output_weights(c, h) * n.target_tokens
            + key_and_value_weights(c, h) * n.source_tokens
        )
        cross += _score_multiplications(c, h) * n.products
        mixing = _mixer_multiplications(c, False, n.source_tokens, n.source_squares)
        stacks = encoder * (mixing + feed_forward * n.source_tokens)
        mixing = _mixer_multiplications(c, True, n.target_tokens, n.target_squares)
        stacks += decoder * (mixing + feed_forward * n.target_tokens + cross)
    return 2 * (
        stacks
        + (vocab_size + (d if c.output_transform else 0)) * d * predicted_tokens(c, n.target_tokens)
    )


def predicted_tokens(c: RowConfig, tokens: float) -> float:
    """Tokens whose logits a step computes: all target tokens, or those that a masked language model
    predicts.
    """
    return tokens if c.has_decoder else c.mask_rate * tokens


def _mixer_multiplications(c: ModelConfig, causal: bool, tokens: int, squares: int) -> float:
    """Multiplications of one layer's mixer over sequences with this sum of lengths and of squared
    lengths.
    """
    mixer, attention = MIXERS[c.mixer], _attention(c)
    if mixer.multiplications:
        return mixer.multiplications(c, causal) * tokens
    projections = attention_weights(c, c.n_heads) * tokens
    if attention.multiplications:
        return projections + attention.multiplications(c, causal, tokens, squares)
    return projections + _positions(c).score_factor * _score_multiplications(c, c.n_heads) * squares


def _score_multiplications(c: ModelConfig, heads: int) -> int:
    """Multiplications for one query and one key: d_k for the score and d_v for the weighted value,
    in each head.
    """
    return heads * (c.d_k + c.d_v)


def checkpoint_bytes(config: RowConfig, vocab_size: int) -> int:
    """Bytes of one resumable checkpoint: weights and optimizer state."""
    count = parameters(config, vocab_size)
    return BYTES * (count + optimizer_values(config, count))


def optimizer_values(config: RowConfig, count: int) -> int:
    """Numbers in the optimizer state of `count` parameters: two each in Adam, one in Muon, one or
    none in SGD.
    """
    if config.optimizer == "sgd":
        return count if config.momentum_used else 0
    return 2 * count - (hidden_matrices(config) if config.optimizer == "muon" else 0)


def hidden_matrices(c: RowConfig, of_mixers: bool = True) -> int:
    """Parameters in matrices of hidden layers, which Muon trains; it trains the others by AdamW."""
    encoder, decoder = c.depths
    feed_forward = feed_forward_weights(c)

    def mixer(causal: bool) -> int:
        if c.mixer == "attention":
            return attention_weights(c, c.n_heads)
        matrices = MIXERS[c.mixer].matrices
        assert matrices is not None
        return matrices(c, causal) if of_mixers else 0

    cross = attention_weights(c, c.cross_heads) if c.has_both_stacks else 0
    transform = c.d_model**2 if c.output_transform else 0
    layers = encoder * (mixer(causal=False) + feed_forward) + decoder * (
        mixer(causal=True) + cross + feed_forward
    )
    return layers + transform


def run_bytes(config: RowConfig, vocab_size: int, generations: int) -> int:
    """Most bytes that one run takes on disk during training: resumable checkpoints and weights to
    average.
    """
    # Those that can be resumed have their weights already.
    averaged, count = (
        max(0, config.average_checkpoints - generations),
        parameters(config, vocab_size),
    )
    return BYTES * (generations * (count + optimizer_values(config, count)) + averaged * count)


def steps(config: RowConfig, lengths: Lengths | None) -> int | None:
    """Most optimizer steps of a run; None if it depends on a corpus that is not prepared, or only
    on patience.
    """
    ends = [config.train_steps] if config.train_steps is not None else []
    if config.epochs is not None and lengths is not None:
        lengths = _trained(config, lengths)
        # Approximate: the pairs of the share differ in length.
        tokens = round(config.train_fraction * lengths.longer_tokens)
        ends.append(config.epochs * -(-tokens // config.batch_tokens))
    if not ends or (config.epochs is not None and lengths is None):
        return None
    return min(ends)
