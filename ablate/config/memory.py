"""Memory of training in closed form, without torch, within 30 % (tests/config/test_memory.py).

Exact counts would follow every kernel. A run that has too little memory halves its micro-batch.
"""

from __future__ import annotations

from ablate.config import cost
from ablate.config.cost import ASSUMED_LENGTH, BYTES
from ablate.config.row import RowConfig
from ablate.config.training import LOGIT_CHUNK_TOKENS, resolve_precision
from ablate.parts import attention, feed_forward, mixers, norms, positions

# In tokens, padding included. On a CPU, larger micro-batches are no faster and take more memory.
CPU_MICRO_BATCH = 8192
SMALLEST_MICRO_BATCH = 256  # batches are not split further, whatever the memory
CUDA_CONTEXT = 600_000_000  # bytes of a GPU that each process takes; assumed, not measured
LOGIT_BYTES = 8  # of a logit and its gradient, while the loss of a chunk is computed


def peak_memory(
    config: RowConfig,
    vocab_size: int,
    micro_batch_tokens: int,
    device: str = "cpu",
    *,
    processes: int = 1,
    length: int | None = None,
) -> int:
    """Estimate the peak memory of training in bytes, of one process.

    It counts weights, gradients and optimizer state, the tensors that one micro-batch keeps for the
    backward pass, the loss, and the sums of gradients over processes. It does not count the
    interpreter and its libraries, evaluation, the workspaces of libraries, unused memory that an
    allocator keeps, and what custom classes keep beyond the paper's variant.

    Args:
        config: of the row.
        vocab_size: V.
        micro_batch_tokens: padded tokens of each side.
        device: `cpu` or `cuda`.
        processes: that train a run together, each on a part of every batch.
        length: tokens of a sentence, for tensors with a number for each pair of its tokens; None
            for the context, or ASSUMED_LENGTH.
    """
    c, count = config, cost.parameters(config, vocab_size)
    P = BYTES * count
    bf16 = resolve_precision(c.precision, device, has_bf16=True) == "bf16"
    length = length or c.context or ASSUMED_LENGTH
    activations = kept_for_backward(c, micro_batch_tokens, length, bf16, device == "cuda")
    predicted = round(cost.predicted_tokens(c, micro_batch_tokens))
    # The states that the loss reads and their gradients; each head of future tokens has its own.
    states = 2 * BYTES * predicted * c.d_model * (1 + c.future_tokens)
    output_matrix = BYTES * vocab_size * c.d_model
    logits = min(LOGIT_CHUNK_TOKENS[device], predicted) * vocab_size
    loss = output_matrix + LOGIT_BYTES * logits  # with the gradient of the matrix
    accumulation = P + activations + states + max(loss, 2 * output_matrix)
    state = P + BYTES * cost.optimizer_values(c, count)
    if processes == 1:
        return state + accumulation
    # A process holds its own vector (P), the shares that it received (P), their sums by twos (P /
    # 2) and the sums of those (P / 4).
    exchange = (2.5 if processes == 2 else 2.75) * P
    return state + max(accumulation, round(exchange))


def kept_for_backward(c: RowConfig, tokens: int, length: int, bf16: bool, gpu: bool) -> int:
    """Bytes that the backward pass of one micro-batch needs, without the weights in fp32.

    Args:
        c: the row.
        tokens: padded tokens of each side.
        length: tokens of a sentence.
        bf16: whether operands of products are in bf16.
        gpu: whether Q, K and V have the precision of operands, and dropout masks take one byte.
    """
    operand = BYTES // (1 + bf16)
    ends = 3 * BYTES * c.d_model  # embeddings with their dropout, and the norm at the end
    # A decoder-only model of pairs reads both sentences as one sequence.
    sides = 1 if c.has_encoder or c.context is not None else 2
    kept = 0
    for layer, causal, times in c.trained_layers():
        around = _around(layer, gpu)
        of_layer = around + _mixed(layer, causal, sides * length, operand, gpu)
        if causal and c.has_both_stacks:
            of_layer += around + _attention(layer, layer.cross_heads, False, length, operand, gpu)
        if c.feed_forward != "none":
            of_layer += around + _feed_forward(layer, operand)
        kept += times * of_layer
    copies = operand * cost.hidden_weights(c, of_mixers=False) if bf16 else 0
    if c.has_both_stacks:
        return copies + tokens * (kept + 2 * ends)
    return copies + tokens * sides * (kept + ends)


def _around(c: RowConfig, gpu: bool) -> int:
    """Bytes for a token of what is around a sub-layer: dropout mask, norms, scale and streams."""
    mask = (c.dropout > 0) * (1 if gpu else BYTES) * c.d_model
    states = norms.NORM_POSITIONS[c.norm_position].norms + 3 * c.streams
    states += c.residual_scale in ("rezero", "scalar", "layerscale")
    return mask + BYTES * c.d_model * states


def _mixed(c: RowConfig, causal: bool, length: int, operand: int, gpu: bool) -> int:
    """Bytes for a token of its mixer."""
    mixer, mechanism = mixers.MIXERS[c.mixer], attention.ATTENTIONS[c.attention]
    if mixer.kept:
        return BYTES * mixer.kept(c, causal)
    if mechanism.kept:
        return operand * c.d_model + BYTES * mechanism.kept(c, causal, length)
    return _attention(c, c.n_heads, causal, length, operand, gpu)


def _attention(c: RowConfig, heads: int, causal: bool, length: int, operand: int, gpu: bool) -> int:
    """Bytes for a token of attention: its input, Q, K, V, the heads, their gate and the scores."""
    numbers = 2 * heads * (c.d_k + c.d_v)
    if c.attention_convolution != "none":
        numbers += attention.convolved_width(c)
    kept = operand * c.d_model + (operand if gpu else BYTES) * numbers
    normalized = (c.qk_norm != "none") * 2 * heads * c.d_k
    gate = attention.gate_width(c, heads)
    gated = (gate > 0) * (gate + heads * c.d_v)
    own_scores = c.attention_dropout > 0 or c.score_cap is not None or c.attention_sinks
    own_scores |= positions.POSITIONAL_ENCODINGS[c.positional_encoding].adds_to_scores
    own_scores |= c.d_k != c.d_v or (causal and c.attention == "local")
    # The weights, the cap's tanh, and dropout's mask and result; fused attention keeps none.
    tensors = 1 + (c.score_cap is not None) + 2 * (c.attention_dropout > 0)
    return kept + BYTES * (normalized + gated + own_scores * tensors * heads * length)


def _feed_forward(c: RowConfig, operand: int) -> int:
    """Bytes for a token of its feed-forward network: the input and each inner vector."""
    inner_vectors = 1 + (c.activation != "relu") + (c.activation_dropout > 0)
    if feed_forward.ACTIVATIONS[c.activation].gated:
        inner_vectors += 2
    kept = operand * (c.d_model + inner_vectors * feed_forward.inner_width(c))
    if c.n_experts is None:
        return kept
    networks = c.experts_per_token + c.shared_experts
    return networks * (kept + 2 * BYTES * c.d_model)
