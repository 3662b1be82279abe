"""Memory of training in closed form, without torch: an estimate within 30 % of the measured peak
(tests/config/test_memory.py).

An exact count would have to follow every kernel. An estimate is enough, because a run that is out
of memory halves its micro-batch.
"""

from __future__ import annotations

from ablate.config import cost
from ablate.config.lengths import ASSUMED_LENGTH
from ablate.config.row import RowConfig
from ablate.config.training import LOGIT_CHUNK_TOKENS, resolve_precision
from ablate.parts import attention, feed_forward, mixers, residual
from ablate.parts.cost import BYTES, Tensors

# In tokens, padding included. On a CPU, larger micro-batches are no faster and take more memory.
CPU_MICRO_BATCH = 8192
SMALLEST_MICRO_BATCH = 256  # smaller micro-batches are not used, even if memory is short
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
        config: the row.
        vocab_size: number of tokens in the vocabulary.
        micro_batch_tokens: number of padded tokens in a micro-batch, of the source or the target.
        device: `cpu` or `cuda`.
        processes: number of processes that train a run together.
        length: number of tokens of a sentence, for attention scores; None for the context or,
            without contexts, ASSUMED_LENGTH.
    """
    c = config
    count = cost.parameters(c, vocab_size)
    weights = gradients = BYTES * count
    bf16 = resolve_precision(c.precision, device, has_bf16=True) == "bf16"
    length = length or c.context or ASSUMED_LENGTH
    activations = activation_bytes(
        c, micro_batch_tokens, length, bf16=bf16, on_gpu=device == "cuda"
    )
    predicted = round(cost.predicted_tokens(c, micro_batch_tokens))
    # The states that the loss reads and their gradients, also of each head of future tokens.
    hidden_states = 2 * BYTES * predicted * c.d_model * (1 + c.future_tokens)
    output_matrix = BYTES * vocab_size * c.d_model
    logits = min(LOGIT_CHUNK_TOKENS[device], predicted) * vocab_size
    loss = output_matrix + LOGIT_BYTES * logits  # with the gradient of the matrix
    # Later in the backward pass, when the logits are gone, the gradient of the matrix and its sum
    # over micro-batches exist together.
    loss = max(loss, 2 * output_matrix)
    backward_pass = gradients + activations + hidden_states + loss
    persistent = weights + BYTES * cost.optimizer_values(c, count)
    if processes == 1:
        return persistent + backward_pass
    # A process holds its gradients, the shares that it received from all processes (as large as
    # the gradients), and the sums of pairs (a half) and of pairs of pairs (a quarter).
    exchange = (2.5 if processes == 2 else 2.75) * gradients
    return persistent + max(backward_pass, round(exchange))


def activation_bytes(c: RowConfig, tokens: int, length: int, *, bf16: bool, on_gpu: bool) -> int:
    """Bytes that the backward pass of one micro-batch needs, without the weights in fp32.

    Args:
        c: the row.
        tokens: number of padded tokens, of the source or the target.
        length: number of tokens of a sentence.
        bf16: whether operands of matrix products are in bf16.
        on_gpu: whether the run is on a GPU.
    """
    operand_bytes = 2 if bf16 else BYTES
    end_bytes = 3 * BYTES * c.d_model  # embeddings with their dropout, and the norm at the end
    # A decoder-only model of pairs reads both sentences as one sequence.
    sides = 1 if c.has_encoder or c.context is not None else 2
    layers = 0
    for layer, causal, times in c.trained_layers():
        tensors = Tensors(causal, sides * length, operand_bytes, on_gpu)
        residual_bytes = residual.activation_bytes(layer, tensors)
        layers += times * (residual_bytes + mixers.activation_bytes(layer, tensors))
        if causal and c.has_both_stacks:
            over_source = Tensors(False, length, operand_bytes, on_gpu)
            heads = attention.activation_bytes(layer, layer.cross_heads, over_source)
            layers += times * (residual_bytes + heads)
        if c.feed_forward != "none":
            layers += times * (residual_bytes + feed_forward.activation_bytes(layer, tensors))
    copies = 0  # of weights in bf16; mixers that replace self-attention are counted in fp32
    if bf16:
        copies = operand_bytes * cost.hidden_weights(c, include_replacements=False)
    if c.has_both_stacks:
        return copies + tokens * (layers + 2 * end_bytes)
    return copies + tokens * sides * (layers + end_bytes)
