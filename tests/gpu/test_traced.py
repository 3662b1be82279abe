"""The path of a GPU, traced without one: types, operators, and reads on the host."""

import pytest
import torch
import torch.nn.functional as F

from ablate.config import ModelConfig
from ablate.config.resolve import resolve_row
from ablate.kernels import device
from ablate.model import build
from ablate.model.token_mixer import LSTM
from tests.gpu.fake import Operators, fake_cuda, on_fake_cuda

SIZES = {"n_layers": 2, "d_model": 12, "d_ff": 20, "n_heads": 3}
V, LAYERS = 29, 2


def forward(*watched, bf16=True, **settings):
    """Run the forward pass of a training step on fake tensors; returns the states and the
    operators.
    """
    model = build(resolve_row({**SIZES, **settings}), V, 1).train()
    with fake_cuda(bf16), torch.no_grad(), Operators(*watched) as operators:
        on_fake_cuda(model)
        source = torch.ones(5, 7, dtype=torch.int64, device="cuda")
        target = torch.ones(5, 6, dtype=torch.int64, device="cuda")
        return model(source, target), operators


@pytest.mark.parametrize("bf16", [False, True])
@pytest.mark.parametrize("settings", [
    {}, {"architecture": "decoder-only"}, {"norm_position": "pre", "norm": "rmsnorm"}, {"activation": "swiglu"},
    {"attention": "local"}, {"attention": "linear"}, {"n_kv_heads": 1}, {"attention_bias": True},
    *({"positional_encoding": name} for name in ("learned", "rope", "relative", "t5", "alibi")),
], ids=str)  # fmt: skip
def test_a_forward_pass_of_every_variant_reads_nothing_on_the_host(settings, bf16):
    """Fake tensors have no content, so a read would raise."""
    states, _ = forward(bf16=bf16, **settings)
    assert states.shape == (5, 6, 12)
    assert states.device.type == "cuda"


def test_a_read_on_the_host_would_be_noticed():
    with fake_cuda(), pytest.raises(Exception, match=r"cuda|data-dependent"):
        int(torch.ones(3, device="cuda").sum())


def test_relu_never_works_in_place_of_a_view():
    for settings in ({}, {"activation_dropout": 0.1}):
        _, operators = forward(**settings)
        assert operators.counts["relu"] == 2 * LAYERS
        assert operators.counts["relu_"] == 0


def test_projections_of_one_input_are_one_product():
    """Each layer has Q, K, V; W_O; and two of the feed-forward network; the decoder also Q, K and
    V, W_O of cross.
    """
    _, operators = forward()
    products = operators.counts["mm"] + operators.counts["addmm"]
    assert products == LAYERS * (1 + 1 + 2) + LAYERS * (1 + 1 + 1 + 1 + 1 + 2)


def test_queries_keys_and_values_reach_fused_attention_in_bf16(monkeypatch):
    seen, attention = [], F.scaled_dot_product_attention

    def observed(*tensors, **settings):
        seen.extend(x.dtype for x in tensors)
        return attention(*tensors, **settings)

    monkeypatch.setattr(F, "scaled_dot_product_attention", observed)
    forward()
    assert seen == [torch.bfloat16] * 3 * 3 * LAYERS


def test_an_lstm_never_enters_autocast():
    """cuDNN would run in fp16 there, whatever the type that autocast is asked for."""
    seen = []
    lstm = LSTM(ModelConfig(d_model=12, d_k=1, d_v=1), True, torch.Generator().manual_seed(1))
    lstm._run = lambda x, past, context: seen.append((torch.is_autocast_enabled("cuda"), x.dtype))
    with fake_cuda(bf16=True), torch.no_grad():
        on_fake_cuda(lstm)
        lstm(torch.empty(2, 3, 12, dtype=torch.bfloat16, device="cuda"), None, None)
    assert seen == [(False, torch.float32)]


def test_a_decoder_only_batch_keeps_its_common_padding_rather_than_asking_for_its_length():
    states, operators = forward("native_layer_norm", architecture="decoder-only")
    assert {out[0].shape[1] for out in operators.results} == {7 + 6}
    assert states.shape[1] == 6


def test_preparing_a_gpu_switches_cudnns_attention_off(monkeypatch):
    chosen, before = [], torch.backends.cuda.cudnn_sdp_enabled()
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    monkeypatch.setattr(torch, "use_deterministic_algorithms", chosen.append)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", False)
    try:
        torch.backends.cuda.enable_cudnn_sdp(True)
        device.prepare(torch.device("cpu"))
        assert torch.backends.cuda.cudnn_sdp_enabled()
        assert chosen == []
        device.prepare(torch.device("cuda", 3), deterministic=True)
        assert not torch.backends.cuda.cudnn_sdp_enabled()
        assert chosen == [torch.device("cuda", 3), True]
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


@pytest.mark.parametrize(
    ("precision", "rounding"), [("fp32", "ieee"), ("tf32", "tf32"), ("bf16", "tf32")]
)
def test_the_rounding_of_fp32_products_holds_in_its_context_only(precision, rounding):
    settings = (torch.backends.cuda.matmul, torch.backends.cudnn.rnn)
    before = [each.fp32_precision for each in settings]
    with device.matmul_precision(torch.device("cuda"), precision):
        assert [each.fp32_precision for each in settings] == [rounding] * 2
    assert [each.fp32_precision for each in settings] == before
    with device.matmul_precision(torch.device("cpu"), precision):
        assert [each.fp32_precision for each in settings] == before


@pytest.mark.parametrize(("name", "visible", "expected"), [
    ("cpu", 1, "cpu"), ("cuda:3", 1, "cuda:0"), ("cuda:3", 8, "cuda:3"), ("cuda:0", 1, "cuda:0"),
])  # fmt: skip
def test_a_worker_that_sees_one_gpu_uses_it(monkeypatch, name, visible, expected):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: visible)
    assert device.visible_device([name]) == torch.device(expected)


@pytest.mark.parametrize(("visible", "expected"), [(2, "cuda:1"), (8, "cuda:7")])
def test_a_worker_that_sees_only_the_gpus_of_its_job_counts_them_anew(
    monkeypatch, visible, expected
):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: visible)
    assert device.visible_device(("cuda:6", "cuda:7"), 1) == torch.device(expected)


@pytest.mark.parametrize("message", [
    "CUDA out of memory. Tried to allocate 20.00 MiB.",
    "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
    "cuDNN error: CUDNN_STATUS_ALLOC_FAILED",
    "CUDA error: out of memory",
])  # fmt: skip
def test_every_way_of_a_gpu_to_say_that_it_is_full_is_understood(message):
    assert device.is_out_of_memory(RuntimeError(message))
    assert not device.is_out_of_memory(RuntimeError("CUBLAS_STATUS_EXECUTION_FAILED"))
