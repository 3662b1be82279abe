"""Cost of a row in closed form, without torch: parameters, FLOPs, disk.

A FLOP is one addition or multiplication: the product of an (m, k) and a (k, n) matrix takes 2mkn.
The backward pass costs twice the forward pass. Padding, element-wise operations and normalization
are not counted. The cost of each part of a layer is in parts/, and memory is in memory.py. A user's
class is counted as the facts of its kind assume (`Variants.custom`).
"""

from __future__ import annotations

from collections import Counter
from functools import cache

from ablate.config.lengths import Lengths
from ablate.config.model import ModelConfig
from ablate.config.optimizers import OPTIMIZERS
from ablate.config.row import RowConfig
from ablate.parts import (
    attention,
    embeddings,
    feed_forward,
    heads,
    mixers,
    norms,
    positions,
    residual,
)
from ablate.parts.cost import BYTES, Cost, Workload
from ablate.parts.variant import classes_of

FORWARD_AND_BACKWARD = 3


@cache  # a plan asks five times for each run
def parameters(config: RowConfig, vocab_size: int) -> int:
    """Exact number of trained parameters, without the parameters that users' classes add."""
    c = config
    total = embeddings.parameters(c.all_layers[0], vocab_size)
    total += heads.parameters(c.all_layers[-1], vocab_size)
    total += residual.LAYER_SKIPS[c.layer_skips].count(c.passes)
    for (layer, causal, _), count in _distinct_layers(c):
        total += count * _trained_numbers(layer, causal, vocab_size).parameters
    for depth, causal in zip(c.depths, (False, True), strict=True):
        total += positions.parameters(c.encodings(depth), depth, causal)
        if depth:
            total += norms.final_parameters(c.last_layer(depth))
    return total


def uncounted_classes(config: RowConfig) -> tuple[str, ...]:
    """The users' classes in the model, as the study writes them; costs do not include what they
    add.
    """
    return tuple(reference.written for reference in classes_of(config, ModelConfig))


def _distinct_layers(c: ModelConfig) -> list[tuple[tuple[ModelConfig, bool, int], int]]:
    """The different items of `trained_layers`, each with its number. Without a pattern, all layers
    are the same object.
    """
    layers: dict[tuple[int, bool, int], tuple[ModelConfig, bool, int]] = {}
    counts = Counter[tuple[int, bool, int]]()
    for layer, causal, times in c.trained_layers():
        key = (id(layer), causal, times)
        layers[key] = (layer, causal, times)
        counts[key] += 1
    return [(layers[key], count) for key, count in counts.items()]


def _trained_numbers(c: ModelConfig, causal: bool, vocab_size: int = 0) -> Cost:
    """Cost of a layer without tokens: only its parameters."""
    cost = _layer_cost(c, Workload(causal), vocab_size)
    if causal and c.has_both_stacks:
        cost += attention.cost_over_source(c, source=0, target=0, scores=0)
    return cost


def _layer_cost(c: ModelConfig, work: Workload, vocab_size: int = 0) -> Cost:
    """Cost of a layer without cross-attention."""
    mixer = mixers.cost(c, work, vocab_size)
    return mixer + feed_forward.cost(c, work) + residual.cost(c, work)


def idle_parameters(config: RowConfig) -> int:
    """Number of parameters that a token does not use, because it is not sent to their experts."""
    idle = 0
    for (layer, causal, _), count in _distinct_layers(config):
        idle += count * _trained_numbers(layer, causal).idle_parameters
    return idle


def flops_per_step(config: RowConfig, vocab_size: int, lengths: Lengths) -> float:
    """Mean FLOPs of a step, over all steps of the training: forward and backward over the tokens of
    the longer sides.

    Encoder weights, and the projections to keys and values of cross-attention, are applied to
    source tokens, and all other decoder weights to target tokens. Causal and local attention are
    counted as full attention, as they are computed.
    """
    lengths = _trained(config, lengths)
    batch = config.mean_batch_tokens / lengths.longer_tokens
    return FORWARD_AND_BACKWARD * batch * forward_flops(config, vocab_size, lengths)


def training_flops(config: RowConfig, vocab_size: int, lengths: Lengths) -> float | None:
    """FLOPs of a whole training; None if the number of steps is unknown: with epochs, or with only
    patience.
    """
    number = steps(config, None)
    if number is None:
        return None
    return number * flops_per_step(config, vocab_size, lengths)


def _trained(config: RowConfig, lengths: Lengths) -> Lengths:
    """Lengths of the items that a row trains on: records, or contexts of a text."""
    if config.context is None:
        return lengths
    return lengths.cut_into_contexts(config.context, config.stride or config.context)


def forward_flops(config: RowConfig, vocab_size: int, lengths: Lengths) -> float:
    """FLOPs of one forward pass over all the pairs in `lengths`."""
    c = config
    n = lengths
    stacks = 0  # multiplications in all stacks
    for (layer, causal, times), count in _distinct_layers(c):
        tokens = n.target_tokens
        squares = n.target_squares
        if not c.has_both_stacks:  # source and target are one sequence: (S + T)^2 scores
            tokens += n.source_tokens
            squares += n.source_squares + 2 * n.products
        elif not causal:
            tokens = n.source_tokens
            squares = n.source_squares
        layer_cost = _layer_cost(layer, Workload(causal, tokens, squares))
        stacks += count * times * layer_cost.multiplications
        if causal and c.has_both_stacks:
            over_source = attention.cost_over_source(
                layer, n.source_tokens, n.target_tokens, n.products
            )
            stacks += count * over_source.multiplications
    output = heads.multiplications(c, vocab_size, matrices=1 + c.future_tokens)
    return 2 * (stacks + output * predicted_tokens(c, n.target_tokens))


def predicted_tokens(c: RowConfig, tokens: float) -> float:
    """Number of tokens whose logits a step computes: all targets, or only masked tokens."""
    return tokens if c.has_decoder else c.mask_rate * tokens


def checkpoint_bytes(config: RowConfig, vocab_size: int) -> int:
    """Bytes of one resumable checkpoint: weights and optimizer state."""
    count = parameters(config, vocab_size)
    return BYTES * (count + optimizer_values(config, count))


def optimizer_values(config: RowConfig, count: int) -> int:
    """Number of values in the optimizer state of `count` parameters, with the average of the
    weights. For SOAP it is a lower bound, which is exact for square matrices.
    """
    optimizer = OPTIMIZERS[config.optimizer]
    values = (config.ema_decay is not None) * count
    if optimizer.only_matrices:
        matrices = hidden_weights(config)
        values += OPTIMIZERS["adamw"].values(config) * (count - matrices)
        count = matrices
    return values + optimizer.values(config) * count


def hidden_weights(c: RowConfig, include_replacements: bool = True) -> int:
    """Number of parameters in matrices of hidden layers, which Muon updates."""
    total = heads.transform_weights(c)
    for (layer, causal, _), count in _distinct_layers(c):
        total += count * _trained_numbers(layer, causal).matrix_parameters
        if not include_replacements:
            total -= count * mixers.MIXERS[layer.mixer].matrices(layer, causal)
    return total


def run_bytes(config: RowConfig, vocab_size: int, generations: int) -> int:
    """Largest number of bytes of a run during training: checkpoints, and weights to average."""
    # Resumable checkpoints contain weights already.
    averaged = max(0, config.average_checkpoints - generations)
    weights = BYTES * parameters(config, vocab_size)
    return generations * checkpoint_bytes(config, vocab_size) + averaged * weights


def steps(config: RowConfig, lengths: Lengths | None) -> int | None:
    """Largest number of optimizer steps of a run; None if it is unknown: with epochs while the
    corpus is not prepared, or with only patience.
    """
    if config.epochs is None:
        return config.train_steps
    if lengths is None:
        return None
    epoch_steps = config.epochs * _batches(config, lengths)
    return min(epoch_steps, config.train_steps or epoch_steps)


def epochs(config: RowConfig, lengths: Lengths) -> float | None:
    """Number of times that training reads its share of the text; None if the number of steps is
    unknown.
    """
    number = steps(config, lengths)
    if number is None:
        return None
    batches = number * config.mean_batch_tokens / config.batch_tokens
    return batches / _batches(config, lengths)


def _batches(config: RowConfig, lengths: Lengths) -> int:
    """Number of batches of an epoch, before a batch grows. The last one may be smaller."""
    # Approximate, because the records of a share have another mean length.
    tokens = round(config.train_fraction * _trained(config, lengths).longer_tokens)
    return max(1, -(-tokens // config.batch_tokens))
