"""Memory of training in closed form, without torch: what the backward pass needs.

The counts follow the kernels of this project, which keep different tensors on a CPU and on a GPU,
and in bf16 and in fp32. tests/config/test_memory.py compares them with the tensors that autograd
keeps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ablate.config import cost
from ablate.config.cost import ASSUMED_LENGTH, BYTES
from ablate.config.row import RowConfig
from ablate.config.training import LOGIT_CHUNK_TOKENS, resolve_precision
from ablate.parts import attention, feed_forward, mixers, norms, positions, residual
from ablate.parts.positions import Encoding

# In tokens, padding included. On a CPU, larger micro-batches are no faster and take more memory.
CPU_MICRO_BATCH = 8192
SMALLEST_MICRO_BATCH = 256  # batches are not split further, whatever the memory
CUDA_CONTEXT = 600_000_000  # bytes of a GPU that each process takes; assumed, not measured
TOKEN_ID = 8  # bytes
# Bytes for each logit of a chunk, while the loss and its gradient are computed.
LOGIT_BYTES = {
    "fp32": 8,  # on a CPU, the chunk before is still in memory
    "cpu bf16": 12,  # and the chunk is copied if its rows are padded
    "cuda bf16": 8,  # not measured; 6 are expected, for the logits and gradients of two chunks
}


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
    backward pass, the largest temporary tensors, and the sums of gradients over processes. It does
    not count the interpreter and its libraries, evaluation, the workspaces of libraries, unused
    memory that an allocator keeps, and what custom classes keep beyond the paper's variant.

    Args:
        config: of the row.
        vocab_size: V.
        micro_batch_tokens: padded tokens of each side.
        device: `cpu` or `cuda`.
        processes: that train a run together, each on a part of every batch.
        length: tokens of a sentence, for tensors with a number for each pair of its tokens; None
            for the context, or ASSUMED_LENGTH.
    """
    count = cost.parameters(config, vocab_size)
    P = BYTES * count
    accumulation = P + activation_memory(config, vocab_size, micro_batch_tokens, device, length)
    state = P + BYTES * cost.optimizer_values(config, count)
    if processes == 1:
        return state + accumulation
    # A process holds its own vector (P), the shares that it received (P), their sums by twos (P /
    # 2) and the sums of those (P / 4).
    exchange = (2.5 if processes == 2 else 2.75) * P
    return state + max(accumulation, round(exchange))


def activation_memory(
    config: RowConfig,
    vocab_size: int,
    micro_batch_tokens: int,
    device: str = "cpu",
    length: int | None = None,
) -> int:
    """Bytes of one micro-batch: all of `peak_memory` but weights, their gradients and state."""
    c, n = config, micro_batch_tokens
    bf16 = resolve_precision(c.precision, device, has_bf16=True) == "bf16"
    kept = _Kept(c, bf16, device == "cuda", n, _sides(c) * (length or c.context or ASSUMED_LENGTH))
    matrix, predicted = BYTES * vocab_size * c.d_model, round(cost.predicted_tokens(c, n))
    logits = min(LOGIT_CHUNK_TOKENS[device], predicted) * vocab_size
    loss = matrix + logits * LOGIT_BYTES["fp32"]  # with the gradient of the output matrix
    if bf16:  # and a copy of the matrix
        loss = matrix + logits * LOGIT_BYTES[f"{device} bf16"] + matrix // 2
    # Gradients of the widest inner layer, before and after the activation.
    network = 2 * n * max(map(feed_forward.inner_width, c.all_layers)) * kept.operand_bytes
    # And their gradients; heads of future tokens have states of their own.
    states = 2 * BYTES * predicted * c.d_model * (1 + c.future_tokens)
    return kept.total() + states + max(loss, 2 * matrix, network)


def _sides(c: RowConfig) -> int:
    """Sequences of a pair that one stack reads: 2 in a decoder-only model of pairs, else 1."""
    return 2 - (c.has_encoder or c.context is not None)


@dataclass(frozen=True)
class _Kept:
    """Bytes that the backward pass of one micro-batch needs.

    c: the row.
    bf16: whether operands of products are in bf16.
    gpu: whether the kernels are those of a GPU.
    tokens: padded tokens of a side.
    length: tokens of a sequence in the stack, for tensors with a number for each pair of them.
    """

    c: RowConfig
    bf16: bool
    gpu: bool
    tokens: int
    length: int

    @property
    def operand_bytes(self) -> int:
        """Bytes of a number in an operand of a product."""
        return BYTES // (1 + self.bf16)

    def total(self) -> int:
        """Activations of the whole model, and the copies of weights that they refer to."""
        return self.tokens * self.per_token() + self.weights() + self._output_transform()

    def per_token(self) -> int:
        """Bytes for a source token and a target token, or for a token of a single stack."""
        c = self.c
        kept = 0
        for layer, causal, times in c.trained_layers():
            of_layer = replace(self, c=layer)
            kept += times * of_layer._layer(causal)
            if causal and c.has_both_stacks:
                kept += times * of_layer._cross()
        if c.has_both_stacks:
            # In bf16 each layer converts the output of the encoder anew.
            copies = c.depths[1] if self.bf16 else 1
            return kept + copies * self.operand_bytes * c.d_model + 2 * self._ends()
        return _sides(c) * (kept + self._ends())

    def weights(self) -> int:
        """Copies of weights: in bf16 of all; in fp32, on a GPU, of those that are stacked."""
        c = self.c
        if self.bf16:
            return self.operand_bytes * cost.hidden_weights(c, of_mixers=False)
        if not self.gpu:
            return 0
        stacked = 0
        for layer, causal, _ in c.trained_layers():
            if layer.mixer == "attention" and layer.kv_rank is None:
                stacked += layer.n_heads * layer.d_k * layer.d_model
                stacked += attention.key_and_value_weights(layer, layer.n_heads)
            if causal and c.has_both_stacks:
                stacked += attention.key_and_value_weights(layer, layer.cross_heads)
        return BYTES * stacked

    def _output_transform(self) -> int:
        """Its operand, the input of an activation other than ReLU, and its norm."""
        c = self.c.all_layers[-1]
        if not c.output_transform:
            return 0
        before = self._head_bytes * (c.activation != "relu")
        kept = (self.operand_bytes + before) * c.d_model + self._norm()
        return round(cost.predicted_tokens(c, self.tokens) * kept)

    def _ends(self) -> int:
        """Token ids, the dropout and the norm of embeddings, and the norm at the end of a stack."""
        c = self.c.all_layers[-1]
        count = norms.NORM_POSITIONS[c.norm_position].at_end + (c.embedding_norm is True)
        skip = residual.LAYER_SKIPS[c.layer_skips]
        states = {source for i in range(c.passes) for source in skip.sources(i, c.passes)}
        # Beside the states that are added again: of a smear both embeddings, and the gated one.
        beside = BYTES * c.d_model * (len(states) + 3 * c.smear)
        ids = TOKEN_ID * (1 + (c.bigram_embeddings is not None))
        return beside + ids + self._mask(c.d_model, BYTES, c.dropout) + count * self._norm()

    def _layer(self, causal: bool) -> int:
        mixer = mixers.MIXERS[self.c.mixer].kept
        mixed = BYTES * mixer(self.c, causal) if mixer else self._self_attention(causal)
        width = self.c.d_model * max(1, self.c.streams)
        kept = mixed + BYTES * width * (self.c.embedding_skip + self.c.stream_scale)
        if self.c.feed_forward != "none":
            kept += self._feed_forward()
        return kept + residual.sublayers(self.c) * self._around()

    def _around(self) -> int:
        """Dropout mask and norm around a sub-layer, whose output is an operand of the next."""
        c = self.c
        bytes_each = 1 if self.gpu and c.residual and not c.streams else BYTES
        kept = self._mask(c.d_model, bytes_each, c.dropout)
        if c.streams:  # the streams, a copy of them, and what is added
            kept += BYTES * c.d_model * (2 * c.streams + 1)
        if c.has_dynamic_streams:  # their norm, and the weights
            kept += BYTES * c.streams * (c.d_model + 4 * (c.streams + 2) + 2)
        if c.residual_scale in ("rezero", "scalar", "layerscale") and c.residual:
            kept += BYTES * c.d_model
        return kept + norms.NORM_POSITIONS[c.norm_position].norms * self._norm()

    def _norm(self) -> int:
        return BYTES * norms.NORMS[self.c.norm].kept(self.c)

    def _feed_forward(self) -> int:
        c, inner = self.c, feed_forward.inner_width(self.c)
        gated = feed_forward.ACTIVATIONS[c.activation].gated
        # Numbers that are kept besides the operand of the second product, the output of ReLU.
        before = int(c.activation != "relu" or c.activation_dropout > 0)
        if gated:
            before = 3
        is_packed = (
            not self.gpu and c.activation in feed_forward.ACTIVATIONS and c.activation_dropout == 0
        )
        # Each projection converts the input.
        inputs = 1 + (gated and self.bf16 and not is_packed)
        bytes_each = self.operand_bytes if self.gpu or is_packed else BYTES
        kept = self.operand_bytes * (inputs * c.d_model + inner) + before * bytes_each * inner
        kept += self._mask(inner, bytes_each, c.activation_dropout)
        if c.n_experts is None:
            return kept
        # A token's rows and what comes out, for each of its experts, and the router's scores.
        networks = c.experts_per_token + c.shared_experts
        return networks * (kept + 2 * BYTES * c.d_model) + 3 * BYTES * c.n_experts

    def _self_attention(self, causal: bool) -> int:
        c = self.c
        operand = self.operand_bytes * c.d_model + self._gates_and_norms(c.n_heads)
        operand += self._convolved() + self._values()
        if c.kv_rank is not None:
            # Normalized latent vectors, and what their gain makes of them.
            operand += 2 * BYTES * (c.kv_rank + (c.query_rank or 0))
        mechanism = attention.ATTENTIONS[c.attention]
        if mechanism.kept:
            between = mechanism.kept(c, causal, self.length)
            if self.gpu and not self.bf16:
                between += attention.value_width(c)  # V, see _pinned_by_views
            return operand + BYTES * between + self.operand_bytes * c.n_heads * c.d_v
        encoding = positions.POSITIONAL_ENCODINGS[c.positional_encoding]
        if not self._is_fused(causal, encoding):
            return operand + self._scores(c.n_heads) + BYTES * encoding.kept(c)
        rotates = c.positional_encoding == "rope"
        kept = operand + self._fused(c.n_heads, is_copied=rotates)
        if self.gpu:
            kept += self.operand_bytes * self._pinned_by_views(rotates)
        if causal and not c.document_masks:
            return kept
        # The mask of padding, or of a window or a document for each token.
        is_square = c.attention == "local" or c.document_masks
        return kept + self._head_bytes * (self.length if is_square else 1)

    def _convolved(self) -> int:
        """The inputs of a convolution; queries and keys, which lie in a tensor with the values."""
        c, width = self.c, attention.convolved_width(self.c)
        pinned = 0
        if c.attention_convolution == "qkv" and not self.gpu:
            pinned = width - attention.value_width(c)
        inputs = width + width * (attention.CONVOLUTION_WIDTH - 1) // self.length
        return self.operand_bytes * inputs + BYTES * pinned

    def _values(self) -> int:
        """The difference to the first values, and the vectors of tokens with their gates."""
        c, width = self.c, attention.value_width(self.c)
        kept = width * c.value_residual + (c.value_embedding_rank or 0)
        kept += (c.value_embeddings == "gated") * (width + 2 * c.kv_heads)
        kept += c.exclude_own_value * c.n_heads * (c.d_v + 2)  # the directions of the values
        return BYTES * kept

    def _pinned_by_views(self, rotates: bool) -> int:
        """Numbers that stay because Q or V is a view of the one tensor with all projections."""
        c = self.c
        if c.kv_rank is not None or c.value_residual or c.value_embeddings != "none":
            return 0  # V is no view
        if c.kv_heads == c.n_heads:
            return rotates * 2 * c.n_heads * c.d_k
        # K and V are repeated, so that Q alone keeps the tensor, unless it is rotated.
        return (not rotates) * c.kv_heads * (c.d_k + c.d_v)

    def _cross(self) -> int:
        """Attention over the source, with its residual; its keys are those of a source token."""
        c, heads = self.c, self.c.cross_heads
        plain = c.d_k == c.d_v and not self._has_own_scores
        inner = self._fused(heads) + self._head_bytes if plain else self._scores(heads)
        operand = self.operand_bytes * c.d_model + self._gates_and_norms(heads)
        return operand + inner + self._around()

    def _gates_and_norms(self, heads: int) -> int:
        """The gate of the output, what it multiplies, and what the norms of Q and K keep."""
        c = self.c
        width = attention.gate_width(c, heads)
        kept = (width > 0) * BYTES * (heads * c.d_v + width)
        if c.qk_norm != "none":
            kept += BYTES * (heads + (c.n_kv_heads or heads)) * (c.d_k + 1)
        return kept

    @property
    def _has_own_scores(self) -> bool:
        """Whether scores are capped, stand beside sinks or meet dropout, and so are not fused."""
        c = self.c
        return c.attention_dropout > 0 or c.score_cap is not None or c.attention_sinks

    def _is_fused(self, causal: bool, encoding: Encoding) -> bool:
        c = self.c
        biased = encoding.adds_to_scores or self._has_own_scores
        return not biased and c.d_k == c.d_v and not (causal and c.attention == "local")

    @property
    def _head_bytes(self) -> int:
        """Bytes of a number in Q, K, V and the heads in fused attention: on a CPU it is in fp32."""
        return self.operand_bytes if self.gpu else BYTES

    def _fused(self, heads: int, is_copied: bool = False) -> int:
        """Q, K, V, the heads, the sum of each query's weights, and a copy of the heads, if any."""
        c = self.c
        kept = self._head_bytes * 2 * heads * (c.d_k + c.d_v) + BYTES * heads
        if is_copied or (self.bf16 and not self.gpu):
            kept += self.operand_bytes * heads * c.d_v
        return kept

    def _scores(self, heads: int) -> int:
        """Q, K, V, the weights of all keys, those after dropout with its mask, and the heads."""
        c = self.c
        tensors = 1 + (c.score_cap is not None)  # the cap's tanh
        if c.attention_dropout:
            tensors += 2  # its mask and its result
        weights = heads * (tensors * self.length + c.attention_sinks)
        return BYTES * (heads * (2 * c.d_k + c.d_v) + weights) + self.operand_bytes * heads * c.d_v

    def _mask(self, numbers: int, bytes_each: int, rate: float) -> int:
        return (rate > 0) * numbers * bytes_each
