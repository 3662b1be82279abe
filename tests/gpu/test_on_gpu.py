"""What only a GPU can show. These tests have not run on one yet."""

import pytest
import torch

from ablate.config.resolve import resolve_row
from ablate.data.batches import collate
from ablate.decoding import beam_search
from ablate.kernels import cross_entropy, device, dropout_add
from ablate.kernels.cross_entropy import smoothed_cross_entropy
from ablate.metrics.perplexity import nats_to_perplexity
from ablate.model import build
from ablate.tasks import Translation
from ablate.training import Trainer
from ablate.workers.resume_check import check_resume
from tests.model.small import small_model
from tests.training.conftest import TINY, toy  # noqa: F401

# Torch warns on a GPU of what is meant here, such as TF32 that is off: no reason to fail.
pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]
CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
V = 350
VARIANTS = [
    {}, {"n_heads": 1, "d_k": 32, "d_v": 32}, {"d_k": 16, "d_v": 64}, {"d_k": 4}, {"attention": "linear"},
    {"attention": "local", "attention_window": 4}, {"n_kv_heads": 2}, {"architecture": "decoder-only"},
    {"norm": "rmsnorm", "norm_position": "pre", "activation": "swiglu"}, {"mixer": "lstm"},
    *({"positional_encoding": name} for name in ("learned", "rope", "relative", "t5", "alibi")),
]  # fmt: skip


@pytest.fixture(autouse=True)
def prepared():
    device.prepare(GPU)


def gradients(corpus, where, precision, settings):
    """The loss of a batch and the gradients of all parameters, one after another."""
    row = resolve_row(
        {"n_layers": 2, "d_model": 32, "d_ff": 64, "n_heads": 4, "dropout": 0.0, **settings}
    )
    model = build(row, V, 1, where).train()
    batch = collate(corpus.split("train"), range(64), "source", "target").to(where)
    with device.matmul_precision(where, precision):
        with device.autocast(where, precision):
            states = batch.select_targets(model(batch.source, batch.target_in))
            loss = (
                smoothed_cross_entropy(states, model.output_matrix, batch.targets, 0.1)
                / batch.tokens
            )
        loss.backward()
    return float(loss.detach()), torch.cat(
        [p.grad.flatten().cpu() for p in model.parameters() if p.grad is not None]
    )


@pytest.mark.parametrize(("precision", "error"), [("fp32", 1e-4), ("tf32", 1e-2), ("bf16", 5e-2)])
@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_gradients_of_every_variant_are_near_those_of_a_cpu(toy, settings, precision, error):  # noqa: F811
    if precision == "bf16" and not device.has_bf16(GPU):
        pytest.skip("this GPU has no bf16")
    exact, expected = gradients(toy, CPU, "fp32", settings)
    loss, found = gradients(toy, GPU, precision, settings)
    assert loss == pytest.approx(exact, rel=error)
    assert float((found - expected).norm() / expected.norm()) < error


def test_a_resumed_run_is_equal_bit_for_bit_where_sums_have_an_order(toy):  # noqa: F811
    row = resolve_row({**TINY, "deterministic": True})
    assert (
        check_resume(
            row, 1, Translation(), toy, steps=6, device=GPU, micro_batch_tokens=200, sources={}
        )
        is None
    )


@pytest.mark.parametrize("rows", [8, 40])
def test_compiled_functions_give_the_values_of_their_references(rows):
    if not device._can_compile():
        pytest.skip("Triton is not installed")
    residual, x = torch.randn(2, rows, 33, 64, device=GPU).unbind()
    words = torch.randint(-32768, 32768, x.shape, device=GPU).to(torch.int16)
    weight, bias = (torch.randn(64, device=GPU).requires_grad_() for _ in range(2))
    args = residual, x, words, 6554, weight, bias, 1e-6
    torch.testing.assert_close(
        dropout_add.fused_dropout_add_norm(*args), dropout_add.dropout_add_norm(*args)
    )
    logits, targets = (
        torch.randn(rows * 10, 512, device=GPU).bfloat16(),
        torch.randint(500, (rows * 10,), device=GPU),
    )
    found = cross_entropy.fused_loss_and_gradient(logits, targets, 500, 0.1)
    expected = cross_entropy.loss_and_gradient(logits, targets, 500, 0.1)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("architecture", ["encoder-decoder", "decoder-only"])
def test_translations_are_those_of_a_cpu(architecture, beam):
    model = small_model(29, architecture=architecture)
    source = torch.randint(4, 29, (6, 9), generator=torch.Generator().manual_seed(1))
    limits = torch.full((6,), 12)
    expected = beam_search(model, source, limits, beam, 0.6)
    found = beam_search(model.to(GPU), source.to(GPU), limits, beam, 0.6)
    assert [one.tokens for one in found] == [one.tokens for one in expected]
    assert [one.score for one in found] == pytest.approx([one.score for one in expected], rel=1e-4)


def test_perplexity_is_that_of_a_cpu(toy):  # noqa: F811
    task, row = Translation(), resolve_row(TINY)
    values = [
        task.nats_per_token(build(row, V, 1, where), toy.split("dev"), where)
        for where in (CPU, GPU)
    ]
    assert nats_to_perplexity(values[1]) == pytest.approx(nats_to_perplexity(values[0]), rel=1e-4)


def test_a_step_without_enough_memory_is_repeated_in_smaller_micro_batches(
    toy,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    from ablate.store import RunFolder

    row = resolve_row({**TINY, "batch_tokens": 2000, "train_steps": 2})
    trainer = Trainer(row, 1, Translation(), toy, RunFolder(tmp_path), device=GPU, micro_batch_tokens=4000,
                      keep_checkpoints=1)  # fmt: skip
    real, left = trainer.task.loss_terms, [True]

    def scarce(*args):
        if left:
            left.clear()
            torch.empty(1 << 50, dtype=torch.uint8, device=GPU)  # more than any GPU has
        return real(*args)

    monkeypatch.setattr(trainer.task, "loss_terms", scarce, raising=False)
    trainer.fit()
    assert trainer.micro_batch_tokens == 2000
    assert trainer.progress.step == 2


def test_no_attention_of_a_step_is_cudnns(toy):  # noqa: F811
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        gradients(toy, GPU, "bf16", {})
    names = [event.name.lower() for event in found.events()]
    assert names
    assert not [name for name in names if "cudnn" in name and "sdpa" in name]
