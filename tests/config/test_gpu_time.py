"""The estimate of a step's time on a named GPU: its parts by hand, and how it grows."""

import pytest

from ablate.config import resolve_row
from ablate.config.cost import Lengths, flops_per_step, parameters
from ablate.config.gpu_time import GPU, GPUS, bytes_per_step, precision_on_gpu, seconds_per_step

LENGTHS, V = Lengths.assumed(), 37_000
BASE = resolve_row({})


def test_the_traffic_of_base_is_that_of_a_sum_by_hand():
    """25,000 tokens on both sides; 12 self-attentions, 6 over the source, 12 feed-forward networks,
    logits, Adam.
    """
    attention, feed_forward = 16 * 2 * 8 * 128 + 40 * 512, 10 * 2048 + 40 * 512
    expected = 25_000 * (18 * attention + 12 * feed_forward + 12 * V) + 34 * parameters(BASE, V)
    assert bytes_per_step(BASE, V, LENGTHS) == pytest.approx(expected)


def test_the_traffic_of_alternating_layers_is_the_mean_of_theirs():
    few, many, both = (
        resolve_row({"n_heads": heads, "d_k": 32, "d_v": 32, "d_ff": d_ff})
        for heads, d_ff in ((4, 512), (16, 2048), ([4, 16], [512, 2048]))
    )
    expected = sum(bytes_per_step(row, V, LENGTHS) for row in (few, many)) / 2
    assert bytes_per_step(both, V, LENGTHS) == pytest.approx(expected)


def test_with_free_traffic_a_step_takes_as_long_as_its_products_at_the_attained_peak():
    gpu = GPU({"bf16": 0.001, "fp32": 0.0005}, 1e30, 1e12)
    assert seconds_per_step(BASE, V, LENGTHS, gpu) == pytest.approx(
        flops_per_step(BASE, V, LENGTHS) / 0.65e9
    )
    fp32 = BASE.model_copy(update={"precision": "fp32"})
    assert seconds_per_step(fp32, V, LENGTHS, gpu) == pytest.approx(
        2 * seconds_per_step(BASE, V, LENGTHS, gpu)
    )


def test_with_free_products_a_step_takes_as_long_as_its_traffic():
    gpu = GPU({"bf16": 1e30}, 1e9, 1e12)
    assert seconds_per_step(BASE, V, LENGTHS, gpu) == pytest.approx(
        bytes_per_step(BASE, V, LENGTHS) / 0.8e9
    )


@pytest.mark.parametrize("architecture", ["encoder-decoder", "decoder-only"])
def test_a_small_model_is_bound_by_its_kernels_whatever_the_gpu(architecture):
    tiny = resolve_row({"n_layers": 2, "d_model": 16, "d_ff": 16, "n_heads": 2, "batch_tokens": 300,
                        "architecture": architecture})  # fmt: skip
    sublayers = 2 * 2 + 2 * 3 if architecture == "encoder-decoder" else 2 * 2
    found = [seconds_per_step(tiny, 100, LENGTHS, GPUS[name]) for name in ("h100", "h200", "a100")]
    assert found == pytest.approx([sublayers * 44 * 1e-5] * 3)


@pytest.mark.parametrize(
    "larger", [{"d_ff": 4096}, {"batch_tokens": 50_000}, {"n_layers": 7}, {"preset": "big"}]
)
def test_more_work_takes_longer_on_every_gpu(larger):
    for gpu in GPUS.values():
        row = resolve_row(larger)
        assert seconds_per_step(row, V, LENGTHS, gpu) > seconds_per_step(BASE, V, LENGTHS, gpu)


@pytest.mark.parametrize(("setting", "h100", "v100"), [
    (None, "bf16", "fp32"), ("auto", "bf16", "fp32"), ("bf16", "bf16", "fp32"), ("tf32", "tf32", "fp32"),
    ("fp32", "fp32", "fp32"),
])  # fmt: skip
def test_a_gpu_without_a_precision_computes_in_fp32(setting, h100, v100):
    row = BASE.model_copy(update={"precision": setting})
    assert precision_on_gpu(row, GPUS["h100"]) == h100
    assert precision_on_gpu(row, GPUS["v100"]) == v100
