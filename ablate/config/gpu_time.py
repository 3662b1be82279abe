"""Time of a training step on a named GPU, from its arithmetic and its memory traffic. Nothing here
is measured.

A step takes as long as the slower of two: the GPU, which makes the products and moves the tensors
between them, and the host, which launches one kernel after another. Peaks are those of NVIDIA's
data sheets, dense.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ablate.config.cost import Lengths, flops_per_step, parameters, predicted_tokens
from ablate.config.resolve import RowConfig
from ablate.config.training import resolve_precision

TFLOP = 1e12
GB = 10**9
# Assumed, none of them measured here: the shares of a peak that products and copies attain, and the
# launches of a sub-layer, forward and backward, with the time that the host takes for one.
ATTAINED_FLOPS, ATTAINED_BANDWIDTH = 0.65, 0.8
KERNELS_PER_SUBLAYER, HOST_SECONDS = 44, 1e-5


@dataclass(frozen=True)
class GPU:
    """A GPU's peaks.

    tflops: TFLOP per second of dense products, by precision; without `bf16`, the GPU has none.
    bandwidth: bytes per second.
    memory: bytes.
    """

    tflops: Mapping[str, float]
    bandwidth: float
    memory: float


GPUS: dict[str, GPU] = {
    "h200": GPU({"bf16": 989.0, "tf32": 494.0, "fp32": 67.0}, 4800 * GB, 141 * GB),
    "h100": GPU({"bf16": 989.0, "tf32": 494.0, "fp32": 67.0}, 3350 * GB, 80 * GB),
    "a100": GPU({"bf16": 312.0, "tf32": 156.0, "fp32": 19.5}, 2039 * GB, 80 * GB),
    "l4": GPU({"bf16": 121.0, "tf32": 60.0, "fp32": 30.3}, 300 * GB, 24 * GB),
    "a10g": GPU({"bf16": 70.0, "tf32": 35.0, "fp32": 35.0}, 600 * GB, 24 * GB),
    "v100": GPU({"fp32": 15.7}, 900 * GB, 32 * GB),
}


def precision_on_gpu(config: RowConfig, gpu: GPU) -> str:
    """The precision of a row on a GPU; one that the GPU does not have is computed in fp32."""
    precision = resolve_precision(config.precision, "cuda", has_bf16="bf16" in gpu.tflops)
    return precision if precision in gpu.tflops else "fp32"


def seconds_per_step(config: RowConfig, vocab_size: int, lengths: Lengths, gpu: GPU) -> float:
    """Mean seconds of an optimizer step of one run that has the GPU to itself.

    Evaluation, checkpoints, decoding and the start of a run are not counted. Custom classes and
    variants of attention are counted as in `flops_per_step`, without the traffic of attention
    scores that they form.
    """
    return max(_busy_seconds(config, vocab_size, lengths, gpu), _host_seconds(config))


def gpu_share(config: RowConfig, vocab_size: int, lengths: Lengths, gpu: GPU) -> float:
    """The share of a step's time in which one run keeps the GPU busy, if it has the GPU to
    itself.
    """
    busy = _busy_seconds(config, vocab_size, lengths, gpu)
    return busy / max(busy, _host_seconds(config))


def _busy_seconds(config: RowConfig, vocab_size: int, lengths: Lengths, gpu: GPU) -> float:
    products = flops_per_step(config, vocab_size, lengths) / (
        ATTAINED_FLOPS * gpu.tflops[precision_on_gpu(config, gpu)] * TFLOP
    )
    return products + bytes_per_step(config, vocab_size, lengths) / (
        ATTAINED_BANDWIDTH * gpu.bandwidth
    )


def _host_seconds(config: RowConfig) -> float:
    return HOST_SECONDS * KERNELS_PER_SUBLAYER * _sublayers(config)


def bytes_per_step(config: RowConfig, vocab_size: int, lengths: Lengths) -> float:
    """Bytes that a step reads and writes outside of its products, forward and backward, with bf16
    operands.

    Per number: 28 for dropout, residual sum and norm; 12 for the conversion of a sub-layer's input
        and its gradient;
    10 for ReLU; 16 for Q, K, V and the output of attention; 12 for a logit; 34 for a parameter in
    Adam and its conversion.
    """
    c, d = config, config.d_model
    per_pair = config.batch_tokens / lengths.longer_tokens
    source, target = per_pair * lengths.source_tokens, per_pair * lengths.target_tokens
    layers = 0.0
    for depth, causal in zip(c.depths, (False, True), strict=True):
        own = target if causal else source
        tokens = own if c.has_both_stacks else source + target
        for layer in c.layers(depth):
            attentions = [layer.n_heads]
            if causal and c.has_both_stacks:
                attentions.append(layer.cross_heads)
            numbers = 16 * 2 * sum(attentions) * (layer.d_k + layer.d_v) + 10 * layer.d_ff
            layers += tokens * (numbers + (len(attentions) + 1) * 40 * d)
    return (
        layers
        + 12.0 * predicted_tokens(c, target) * vocab_size
        + 34.0 * parameters(config, vocab_size)
    )


def _sublayers(c: RowConfig) -> int:
    encoder, decoder = c.depths
    return 2 * encoder + (3 if c.has_both_stacks else 2) * decoder
