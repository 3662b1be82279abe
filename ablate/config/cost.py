"""Cost of a row in closed form, without torch: parameters, FLOPs, disk.

A FLOP is one addition or multiplication: a product of an (m, k) and a (k, n) matrix takes 2mkn. The
backward pass costs twice the forward pass. Padding, element-wise operations and normalization are
not counted. Facts about single variants are in variants.py, and memory is in memory.py; a custom
class is counted as a variant without costs of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ablate.config import ModelConfig, RowConfig, variants

BYTES = 4  # fp32: weights, gradients and optimizer state, whatever `precision` is
FORWARD_AND_BACKWARD = 3
# Assumed tokens per sentence while the corpus is not prepared.
ASSUMED_LENGTH = 30


@dataclass(frozen=True)
class Lengths:
    """Sums over training pairs. S and T are the lengths of a pair in tokens, with the end token."""

    pairs: int
    source_tokens: int
    target_tokens: int
    longer_tokens: int  # sum of max(S, T), the unit of batch_tokens
    source_squares: int  # sums of S^2, S * T and T^2: numbers of attention scores
    products: int
    target_squares: int

    @staticmethod
    def of_fields(sums: Mapping[str, int], fields: Sequence[str]) -> Lengths:
        """Lengths from the sums of a corpus manifest: the first field is the source, the second the
        target; with one field, there is no source.
        """
        if len(fields) == 1:
            (field,) = fields
            tokens, squares = sums[f"{field}_tokens"], sums[f"{field}_squares"]
            return Lengths(sums["pairs"], 0, tokens, sums["longer_tokens"], 0, 0, squares)
        source, target = fields[:2]
        return Lengths(
            sums["pairs"],
            sums[f"{source}_tokens"],
            sums[f"{target}_tokens"],
            sums["longer_tokens"],
            sums[f"{source}_squares"],
            sums[product_of(fields)],
            sums[f"{target}_squares"],
        )

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


def product_of(fields: Sequence[str]) -> str:
    """The name of the sum of S * T: `products`, or of more than two fields the first two's."""
    return "products" if len(fields) == 2 else f"{fields[0]}_{fields[1]}"


def parameters(config: RowConfig, vocab_size: int) -> int:
    """Exact number of trained parameters, without those that custom classes add."""
    c, d = config, config.d_model
    total = (_embedding_matrices(c) * vocab_size + c.token_types) * d
    total += (c.bigram_embeddings or 0) * d + c.smear * (d + 1)
    total += variants.LAYER_SKIPS[c.layer_skips].count(c.passes)
    for layer, causal, _ in c.trained_layers():
        total += _layer_parameters(layer, causal) + _value_parameters(layer, vocab_size)
    for depth, causal in zip(c.depths, (False, True), strict=True):
        for layer in c.encodings(depth):
            encoding = variants.POSITIONAL_ENCODINGS[layer.positional_encoding]
            total += encoding.parameters(layer, depth, causal)
        if depth and variants.NORM_POSITIONS[c.last_layer(depth).norm_position].at_end:
            total += _norm_parameters(c.last_layer(depth))
    if c.embedding_norm is True:
        total += _norm_parameters(c.all_layers[0])
    if c.output_transform:
        total += d * (d + (c.output_transform is True)) + _norm_parameters(c.all_layers[-1])
    if c.output_bias:
        total += vocab_size
    return total


def _layer_parameters(c: ModelConfig, causal: bool) -> int:
    around = variants.NORM_POSITIONS[c.norm_position].norms * _norm_parameters(c)
    if c.residual:
        around += {"layerscale": c.d_model, "rezero": 1, "scalar": 1}.get(c.residual_scale, 0)
    around += _hyper_vectors(c) + _hyper_weights(c)
    total = _mixer_parameters(c, causal) + _feed_forward_parameters(c) + sublayers(c) * around
    if c.embedding_skip and not c.has_both_stacks:
        total += 2
    total += c.stream_scale
    if c.sublayers == "parallel_shared_norm" and not c.has_both_stacks:
        total -= _norm_parameters(c)
    if causal and c.has_both_stacks:
        total += _attention_parameters(c, c.cross_heads, forms_scores=True) + around
    return total


def sublayers(c: ModelConfig) -> int:
    """Sub-layers of a layer, without attention over the source."""
    return 1 + (c.feed_forward != "none")


def _hyper_vectors(c: ModelConfig) -> int:
    """Trained numbers of hyper-connections around one sub-layer, without matrices."""
    return c.streams * (c.streams + 2) + 2 * c.has_dynamic_streams


def _hyper_weights(c: ModelConfig) -> int:
    """Weights of the matrix of dynamic hyper-connections around one sub-layer."""
    return c.has_dynamic_streams * c.d_model * (c.streams + 2)


def _hyper_multiplications(c: ModelConfig) -> int:
    """Those of hyper-connections in one layer for each token: streams are read and mixed, and
    dynamic weights are made for both, before and after the sub-layer.
    """
    mixing = c.streams * (c.streams + 1) * c.d_model
    return sublayers(c) * (mixing + 2 * c.streams * _hyper_weights(c))


def _input_projections(c: ModelConfig) -> int:
    """Projections into the inner layer of a feed-forward network: two if it is gated, else one."""
    return 1 + variants.ACTIVATIONS[c.activation].gated


def inner_width(c: ModelConfig) -> int:
    """Width between the layers of the feed-forward network, with its activation."""
    return c.inner_width(gated=_input_projections(c) == 2)


def _networks(c: ModelConfig, active: bool = False) -> int:
    """Feed-forward networks of one layer, or those of them that a token meets."""
    if c.feed_forward == "none":
        return 0
    if c.n_experts is None:
        return 1
    return (c.experts_per_token if active else c.n_experts) + c.shared_experts


def _routed_experts(c: ModelConfig) -> int:
    """Experts that a router chooses from in one layer."""
    return 0 if c.feed_forward == "none" else c.n_experts or 0


def _network_weights(c: ModelConfig) -> int:
    """Weights of one feed-forward network."""
    return (_input_projections(c) + 1) * c.d_model * inner_width(c)


def _network_biases(c: ModelConfig) -> int:
    return c.feed_forward_bias * (_input_projections(c) * inner_width(c) + c.d_model)


def feed_forward_weights(c: ModelConfig, active: bool = False) -> int:
    """Weights of one layer's feed-forward network or mixture of experts, without biases."""
    gates = _routed_experts(c)
    if gates and c.shared_experts:
        gates += c.shared_expert_gate
    return _networks(c, active) * _network_weights(c) + gates * c.d_model


def _feed_forward_parameters(c: ModelConfig) -> int:
    # Of the scores of experts, and of the choice of them.
    router_biases = _routed_experts(c) * (c.router_bias + (c.expert_balance_by == "bias"))
    return feed_forward_weights(c) + _networks(c) * _network_biases(c) + router_biases


def idle_parameters(config: RowConfig) -> int:
    """Parameters that a token does not meet: those of the experts that it is not sent to."""
    idle = 0
    for layer, _, _ in config.trained_layers():
        networks = _networks(layer) - _networks(layer, active=True)
        idle += networks * (_network_weights(layer) + _network_biases(layer))
    return idle


def _norm_parameters(c: ModelConfig) -> int:
    if c.norm_position == "none":
        return 0
    norm = variants.NORMS[c.norm]
    return norm.vectors * c.d_model + norm.numbers


def _embedding_matrices(c: ModelConfig) -> int:
    """Number of V x d_model matrices: source and target embedding and pre-softmax, after tying."""
    if c.tied_embeddings == "none":
        return 2 + c.has_both_stacks
    return 1 + (c.tied_embeddings == "decoder")


def _mixer_parameters(c: ModelConfig, causal: bool) -> int:
    mixer = variants.MIXERS[c.mixer]
    if mixer.matrices:
        return mixer.matrices(c, causal) + mixer.vectors(c)
    attention = variants.ATTENTIONS[c.attention]
    total = attention.parameters(c) + variants.CONVOLUTION_WIDTH * convolved_width(c)
    total += _attention_parameters(c, c.n_heads, attention.forms_scores)
    if c.kv_rank is None:
        return total
    total += _latent_weights(c) - projection_weights(c, c.n_heads) + c.kv_rank + (c.query_rank or 0)
    if c.attention_bias in (True, "inputs"):
        # Of what reads the stream, and not of what reads a latent vector.
        heads = c.n_heads * (2 * c.d_k + c.d_v)
        total += (c.query_rank or c.n_heads * c.d_k) + c.kv_rank + shared_entries(c) - heads
    return total


def shared_entries(c: ModelConfig) -> int:
    """Entries of a key that all heads share in latent attention: those that are rotated."""
    return (c.positional_encoding == "rope") * variants.rotated_entries(c)


def shares_whole_keys(c: ModelConfig) -> bool:
    """Whether a layer's latent vectors make values alone, because all of its keys is rotated."""
    layers = [layer for layer in c.all_layers if layer.kv_rank is not None]
    return any(shared_entries(layer) == layer.d_k for layer in layers)


def _latent_weights(c: ModelConfig) -> int:
    """Weights of the projections of latent attention, without biases."""
    assert c.kv_rank is not None
    d, h, shared = c.d_model, c.n_heads, shared_entries(c)
    queries = d * h * c.d_k
    if c.query_rank is not None:
        queries = c.query_rank * (d + h * c.d_k)
    keys_and_values = d * (c.kv_rank + shared) + c.kv_rank * h * (c.d_k - shared + c.d_v)
    return queries + keys_and_values + d * (h * c.d_v + gate_width(c, h))


def self_attention_weights(c: ModelConfig) -> int:
    """Weights in matrices of a layer's self-attention, without biases and tables."""
    if c.kv_rank is None:
        return projection_weights(c, c.n_heads) + value_weights(c)
    return _latent_weights(c) + value_weights(c)


def _attention_parameters(c: ModelConfig, heads: int, forms_scores: bool) -> int:
    keys = c.n_kv_heads or heads
    total = projection_weights(c, heads)
    if c.attention_bias in (True, "inputs"):
        total += heads * c.d_k + keys * (c.d_k + c.d_v) + gate_width(c, heads)
    if c.attention_bias in (True, "output"):
        total += c.d_model
    if c.attention_sinks and forms_scores:
        total += heads
    if c.qk_norm == "head":
        total += 2 * c.d_k
    elif c.qk_norm == "width":
        total += (heads + keys) * c.d_k
    return total


def value_width(c: ModelConfig) -> int:
    """Numbers in the values of one token in self-attention."""
    return c.kv_heads * c.d_v


def _value_parameters(c: ModelConfig, vocab_size: int) -> int:
    """Those of value embeddings and of the value residual of a layer."""
    if c.mixer != "attention":
        return 0
    table = vocab_size * (c.value_embedding_rank or value_width(c))
    table *= c.value_embeddings != "none"
    return table + value_weights(c) + c.value_residual


def value_weights(c: ModelConfig) -> int:
    """Weights of the matrix behind value embeddings and of their gates."""
    if c.value_embeddings == "none":
        return 0
    weights = (c.value_embedding_rank or 0) * value_width(c)
    if c.value_embeddings == "gated":
        weights += c.d_model * c.kv_heads
    return weights


def convolved_width(c: ModelConfig) -> int:
    """Channels of the convolution in self-attention."""
    if c.attention_convolution == "qkv":
        return c.n_heads * c.d_k + c.kv_heads * (c.d_k + c.d_v)
    return (c.attention_convolution == "input") * c.d_model


def gate_width(c: ModelConfig, heads: int) -> int:
    """Numbers in the gate of one attention's output, for each token."""
    return {"none": 0, "head": heads, "element": heads * c.d_v}[c.attention_gate]


def projection_weights(c: ModelConfig, heads: int) -> int:
    """Weights of one attention's projections, without biases."""
    return _query_and_output_weights(c, heads) + key_and_value_weights(c, heads)


def _query_and_output_weights(c: ModelConfig, heads: int) -> int:
    return c.d_model * (heads * (c.d_k + c.d_v) + gate_width(c, heads))


def key_and_value_weights(c: ModelConfig, heads: int) -> int:
    """Weights of W^K and W^V, whose heads may be fewer."""
    return c.d_model * (c.n_kv_heads or heads) * (c.d_k + c.d_v)


def flops_per_step(config: RowConfig, vocab_size: int, lengths: Lengths) -> float:
    """Mean FLOPs of a step: forward and backward over batch_tokens tokens of the longer sides.

    Encoder weights are applied to source tokens, decoder weights to target tokens, and the keys and
    values of attention over the source to source tokens. Causal and local attention are counted in
    full, as they are computed. A custom class is counted as the paper's variant.
    """
    lengths = _trained(config, lengths)
    batch = config.mean_batch_tokens / lengths.longer_tokens
    return FORWARD_AND_BACKWARD * batch * forward_flops(config, vocab_size, lengths)


def training_flops(config: RowConfig, vocab_size: int, lengths: Lengths) -> float | None:
    """FLOPs of a whole training; None if its steps depend on the corpus or on patience alone."""
    number = steps(config, None)
    if number is None:
        return None
    return number * flops_per_step(config, vocab_size, lengths)


def _trained(config: RowConfig, lengths: Lengths) -> Lengths:
    """Lengths of what a row trains on: records, or the contexts of a text."""
    if config.context is None:
        return lengths
    return lengths.in_contexts(config.context, config.stride or config.context)


def forward_flops(config: RowConfig, vocab_size: int, lengths: Lengths) -> float:
    """FLOPs of one forward pass over all the pairs in `lengths`."""
    c, d, n = config, config.d_model, lengths
    stacks = 0.0
    for layer, causal, times in c.trained_layers():
        tokens, squares = n.target_tokens, n.target_squares
        if not c.has_both_stacks:  # source and target are one sequence: (S + T)^2 scores
            tokens += n.source_tokens
            squares += n.source_squares + 2 * n.products
        elif not causal:
            tokens, squares = n.source_tokens, n.source_squares
        stacks += times * _mixer_multiplications(layer, causal, tokens, squares)
        of_token = feed_forward_weights(layer, active=True) + _hyper_multiplications(layer)
        stacks += times * of_token * tokens
        if causal and c.has_both_stacks:
            stacks += _cross_multiplications(layer, n)
    output = ((1 + c.future_tokens) * vocab_size + bool(c.output_transform) * d) * d
    return 2 * (stacks + output * predicted_tokens(c, n.target_tokens))


def predicted_tokens(c: RowConfig, tokens: float) -> float:
    """Tokens whose logits a step computes: all targets, or those that are masked."""
    return tokens if c.has_decoder else c.mask_rate * tokens


def _mixer_multiplications(c: ModelConfig, causal: bool, tokens: int, squares: int) -> float:
    """Multiplications of one layer's mixer, by the sums of lengths and of squared lengths."""
    mixer, attention = variants.MIXERS[c.mixer], variants.ATTENTIONS[c.attention]
    if mixer.matrices:
        return (mixer.matrices(c, causal) + mixer.elementwise(c)) * tokens
    weights = self_attention_weights(c)
    projections = (weights + variants.CONVOLUTION_WIDTH * convolved_width(c)) * tokens
    if attention.multiplications:
        return projections + attention.multiplications(c, causal, tokens, squares)
    factor = variants.POSITIONAL_ENCODINGS[c.positional_encoding].score_factor
    return projections + factor * _score_multiplications(c, c.n_heads) * squares


def _cross_multiplications(c: ModelConfig, n: Lengths) -> int:
    """Those of one layer's attention over the source, whose keys and values are projected once."""
    heads = c.cross_heads
    queries = _query_and_output_weights(c, heads) * n.target_tokens
    keys = key_and_value_weights(c, heads) * n.source_tokens
    return keys + c.loops * (queries + _score_multiplications(c, heads) * n.products)


def _score_multiplications(c: ModelConfig, heads: int) -> int:
    """For one query and one key: d_k for the score and d_v for the weighted value, in each head."""
    return heads * (c.d_k + c.d_v)


def checkpoint_bytes(config: RowConfig, vocab_size: int) -> int:
    """Bytes of one resumable checkpoint: weights and optimizer state."""
    count = parameters(config, vocab_size)
    return BYTES * (count + optimizer_values(config, count))


def optimizer_values(config: RowConfig, count: int) -> int:
    """Numbers in the optimizer's state of `count` parameters. NorMuon's row vectors are left out.
    For SOAP a lower bound, exact for square matrices.

    Two each in Adam and as assumed in a class of one's own, one in Muon and Lion, one or none in
    SGD, three in schedule-free AdamW, six in SOAP; and one in an average of the weights.
    """
    copies = {"lion": 1, "schedule_free": 3, "sgd": int(config.momentum_used > 0)}
    values = (copies.get(config.optimizer, 2) + (config.ema_decay is not None)) * count
    if config.optimizer in ("muon", "normuon"):
        values -= hidden_weights(config)
    if config.optimizer == "soap":  # m^2 + n^2 of a matrix is 2 m n or more
        values += 4 * hidden_weights(config)
    return values


def hidden_weights(c: RowConfig, of_mixers: bool = True) -> int:
    """Parameters in matrices of hidden layers, which Muon trains; it trains the others by AdamW."""
    total = bool(c.output_transform) * c.d_model**2
    for layer, causal, _ in c.trained_layers():
        total += feed_forward_weights(layer) + sublayers(layer) * _hyper_weights(layer)
        matrices = variants.MIXERS[layer.mixer].matrices
        if matrices is None:
            total += self_attention_weights(layer)
        elif of_mixers:
            total += matrices(layer, causal)
        if causal and c.has_both_stacks:
            total += projection_weights(layer, layer.cross_heads)
    return total


def run_bytes(config: RowConfig, vocab_size: int, generations: int) -> int:
    """Most bytes of one run during training: resumable checkpoints and weights to average."""
    # Those that can be resumed have their weights already.
    averaged = max(0, config.average_checkpoints - generations)
    weights = BYTES * parameters(config, vocab_size)
    return generations * checkpoint_bytes(config, vocab_size) + averaged * weights


def steps(config: RowConfig, lengths: Lengths | None) -> int | None:
    """Most optimizer steps of a run; None if the corpus is not prepared, or with patience alone."""
    if config.epochs is None:
        return config.train_steps
    if lengths is None:
        return None
    # Approximate: the pairs of the share differ in length.
    tokens = round(config.train_fraction * _trained(config, lengths).longer_tokens)
    of_epochs = config.epochs * -(-tokens // config.batch_tokens)
    return min(of_epochs, config.train_steps or of_epochs)


def epochs(config: RowConfig, lengths: Lengths) -> float | None:
    """Times that training reads its share of the text; None with patience or epochs alone."""
    number = steps(config, lengths)
    if number is None:
        return None
    trained = config.train_fraction * _trained(config, lengths).longer_tokens
    return number * config.mean_batch_tokens / trained
