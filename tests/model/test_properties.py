"""Properties of every configuration that a study may have.

Models are run in double precision, so that what is equal is equal to nine digits however deep a
stack without norms and residuals lets its states grow or shrink; differences are measured against
the largest state.
"""

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from safetensors.torch import load, save

from ablate.config import ModelConfig
from ablate.config.cost import parameters
from ablate.config.resolve import resolve_row
from ablate.kernels.cross_entropy import smoothed_cross_entropy
from ablate.kernels.device import autocast
from ablate.model import build
from ablate.training.optimizer import Optimizer
from ablate.training.schedule import learning_rate
from tests.model.random_shapes import (
    FIELDS,
    LONGEST,
    OF_ENCODER_ONLY,
    OF_LANGUAGE_MODELS,
    is_bounded,
    shapes,
)
from tests.model.small import drawn, sentences

V = 31
seeds = st.integers(0, 2**16)
lengths = st.integers(1, LONGEST)
several = st.lists(lengths, min_size=2, max_size=3)
a_few_of_each = settings(max_examples=60)


def model_of(config, seed=1):
    """A model in evaluation mode and double precision, with random gains and biases."""
    return drawn(build(config, V, seed), seed).double().requires_grad_(False).eval()


def assert_close(states, expected):
    """Equal to nine digits of the largest state."""
    assert states.shape == expected.shape
    assert bool(expected.isfinite().all())
    torch.testing.assert_close(states, expected, rtol=0, atol=1e-9 * float(expected.abs().max()))


def test_every_field_of_the_model_is_drawn():
    assert FIELDS.keys() | OF_ENCODER_ONLY | OF_LANGUAGE_MODELS == ModelConfig.model_fields.keys()


@a_few_of_each
@given(config=shapes())
def test_a_resolved_configuration_resolves_to_itself(config):
    assert resolve_row({name: getattr(config, name) for name in ModelConfig.model_fields}) == config


@a_few_of_each
@given(config=shapes(), source=several, T=st.integers(2, LONGEST), border=st.data(), seed=seeds)
def test_later_tokens_do_not_change_earlier_states(config, source, T, border, seed):
    t = border.draw(st.integers(1, T - 1))
    model, sources = model_of(config), sentences(*source, seed=seed)
    target = sentences(*[T] * len(source), seed=seed + 1)
    other = torch.cat([target[:, :t], sentences(*[T - t] * len(source), seed=seed + 2)], dim=1)
    assert_close(model(sources, other)[:, :t], model(sources, target)[:, :t])


@a_few_of_each
@given(config=shapes(), source=several, target=st.data(), further=st.integers(0, 3), seed=seeds)
def test_padding_changes_nothing(config, source, target, further, seed):
    """A pair in a batch, padded beyond the longest sentence, gives the states that it gives
    alone.
    """
    of_target = target.draw(st.lists(lengths, min_size=len(source), max_size=len(source)))
    model, sources = model_of(config), sentences(*source, seed=seed)
    targets = sentences(*of_target, seed=seed + 1)
    room = (
        config.max_positions - sources.shape[1] - targets.shape[1]
        if config.architecture == "decoder-only"
        else 9
    )
    padded = [torch.nn.functional.pad(x, (0, min(further, room))) for x in (sources, targets)]
    together = model(*padded)
    for i, (S, T) in enumerate(zip(source, of_target, strict=True)):
        assert_close(together[i, :T], model(sources[i : i + 1, :S], targets[i : i + 1, :T])[0])


@a_few_of_each
@given(config=shapes(), source=several, K=st.integers(1, 3), seed=seeds)
def test_incremental_decoding_equals_the_full_forward_pass(config, source, K, seed):
    """As in beam search, hypotheses are replaced by others of their sentence, and finished
    sentences leave.
    """
    model, random = model_of(config), torch.Generator().manual_seed(seed)
    sources = sentences(*source, seed=seed)
    cache = model.start(sources, K)
    left = torch.arange(len(source))
    histories = torch.randint(1, V, (len(source), K, 1), generator=random)
    for _ in range(5):
        states = model.step(histories[:, :, -1], cache)
        whole = model(sources[left].repeat_interleave(K, 0), histories.flatten(0, 1))[:, -1]
        assert_close(states.flatten(0, 1), whole)

        stay = (torch.rand(len(left), generator=random) < 0.8).nonzero()[:, 0]
        origins = torch.randint(0, K, (len(left), K), generator=random)
        cache.select(stay, origins)
        if not len(stay):
            break
        histories = torch.stack([histories[b, origins[b]] for b in stay.tolist()])
        left = left[stay]
        histories = torch.cat(
            [histories, torch.randint(1, V, (len(left), K, 1), generator=random)], dim=2
        )


@settings(max_examples=200)
@given(config=shapes(), vocab_size=st.integers(5, 99))
def test_the_closed_form_counts_the_parameters_of_the_module(config, vocab_size):
    assert sum(p.numel() for p in build(config, vocab_size, 1).parameters()) == parameters(
        config, vocab_size
    )


@a_few_of_each
@given(config=shapes(), seed=seeds)
def test_weights_survive_a_checkpoint_bit_for_bit(config, seed):
    """They are loaded into a model with other initial weights, so that nothing unsaved can
    matter.
    """
    model, other = (
        drawn(build(config, V, s), s).requires_grad_(False).eval() for s in (seed, seed + 1)
    )
    weights = {name: value.detach() for name, value in model.state_dict().items()}
    assert weights.keys() == dict(model.named_parameters()).keys()
    other.load_state_dict(load(save(weights)))
    source, target = sentences(4, 7, seed=seed), sentences(5, 2, seed=seed + 1)
    states = model(source, target)
    # Some shapes without norms overflow, to the same NaN in both.
    found = other(source, target)
    torch.testing.assert_close(found, states, rtol=0.0, atol=0.0, equal_nan=True)
    assert torch.equal(other.logits(states), model.logits(states))


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@a_few_of_each
@given(
    config=shapes(),
    optimizer=st.sampled_from(["adam", "adamw", "sgd", "muon"]),
    clipping=st.sampled_from([None, 1.0]),
    seed=seeds,
)
def test_one_step_of_training_is_finite(precision, config, optimizer, clipping, seed):
    assume(is_bounded(config))
    written = {
        "precision": precision,
        "optimizer": optimizer,
        "gradient_clipping": clipping,
        "train_steps": 10,
    }
    model_fields = {name: getattr(config, name) for name in ModelConfig.model_fields}
    row = resolve_row({**model_fields, **written, "weight_decay": 0.01, "warmup_steps": 2})
    model = build(row, V, seed).train()
    step = Optimizer(model, row)
    source, target = sentences(4, 7, seed=seed), sentences(5, 3, seed=seed + 1)
    with autocast(torch.device("cpu"), precision):
        states = model.output_states(model(source, target)[target != 0])
        loss = smoothed_cross_entropy(
            states, model.output_matrix, target[target != 0], row.label_smoothing, row.logit_cap,
            row.z_loss,
        )  # fmt: skip
    loss = loss + model.pop_balance_loss()
    assert bool(loss.isfinite())
    (loss / 8).backward()
    assert [
        name for name, p in model.named_parameters() if p.grad is None
    ] == []  # every parameter takes part
    assert all(bool(p.grad.isfinite().all()) for p in model.parameters())
    step.step(learning_rate(row, 1, 10))
    assert all(bool(p.isfinite().all()) for p in model.parameters())
