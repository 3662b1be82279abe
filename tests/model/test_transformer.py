"""Properties of the whole model: what may change what."""

import pytest
import torch

from ablate.model import build
from tests.model.small import ENCODINGS, V, normal, sentences, shape, small_model

CLOSE = {"atol": 1e-5, "rtol": 1e-5}
every_encoding = pytest.mark.parametrize("encoding", ENCODINGS)


@every_encoding
def test_the_future_cannot_change_the_past(encoding):
    model = small_model(positional_encoding=encoding)
    source, target = sentences(7, 5), sentences(11, 11, seed=2)
    states = model(source, target)
    for t in range(1, 11):
        other = target.clone()
        other[:, t:] = sentences(11 - t, 11 - t, seed=100 + t)
        torch.testing.assert_close(model(source, other)[:, :t], states[:, :t], **CLOSE)


@every_encoding
def test_every_state_depends_on_its_own_token_and_on_all_before_it(encoding):
    model = small_model(positional_encoding=encoding)
    embedded = []
    model.target_positions.register_forward_hook(lambda module, args, out: embedded.append(out.requires_grad_()))
    states = model(sentences(7), sentences(5, seed=2))
    for t in range(5):
        (gradient,) = torch.autograd.grad(states[0, t] @ normal(26), embedded[0], retain_graph=True)
        reached = gradient[0].abs().sum(1) > 0
        assert reached.tolist() == [s <= t for s in range(5)]


@every_encoding
def test_padding_changes_nothing(encoding):
    model = small_model(positional_encoding=encoding)
    source, target = sentences(7), sentences(5, seed=2)
    alone = model(source, target)
    longer_source, longer_target = (torch.nn.functional.pad(x, (0, 4)) for x in (source, target))
    torch.testing.assert_close(model(longer_source, target), alone, **CLOSE)
    torch.testing.assert_close(model(source, longer_target)[:, :5], alone, **CLOSE)
    torch.testing.assert_close(model(longer_source, longer_target)[:, :5], alone, **CLOSE)


@every_encoding
def test_a_sentence_is_encoded_alike_alone_and_beside_others(encoding):
    model = small_model(positional_encoding=encoding)
    sources, targets = sentences(2, 11, 7), sentences(5, 3, 1, seed=2)
    together = model(sources, targets)
    for i, (S, T) in enumerate(((2, 5), (11, 3), (7, 1))):
        alone = model(sources[i : i + 1, :S], targets[i : i + 1, :T])
        torch.testing.assert_close(together[i : i + 1, :T], alone, **CLOSE)


def test_no_gradient_goes_through_padding():
    model = small_model()
    model(sentences(2, 7), sentences(5, 5, seed=2)).sum().backward()
    assert not model.embedding.weight.grad[0].any()
    assert model.embedding.weight.grad[1:].any()


@every_encoding
@pytest.mark.parametrize("K", [1, 3])
def test_decoding_step_by_step_equals_the_whole_at_once(encoding, K):
    model = small_model(positional_encoding=encoding)
    source = sentences(7, 4)
    target = sentences(*[11] * (2 * K), seed=2)
    whole = model(source.repeat_interleave(K, 0), target)  # (2 * K, 11, d_model)
    memory, past = model.encode(source), [None] * 2
    for position in range(11):
        states, past = model.step(target[:, position].view(2, K), position, past, memory)
        torch.testing.assert_close(states.flatten(0, 1), whole[:, position], **CLOSE)


def test_the_cache_follows_hypotheses_that_are_reordered_and_sentences_that_leave():
    """As a beam does: each step, K hypotheses of a sentence are replaced by any of them, with repetition."""
    model, K = small_model(), 3
    source = sentences(7, 4, 5)
    memory, past = model.encode(source), [None] * 2
    left = torch.arange(3)
    histories = torch.full((3, K, 1), 2)
    drawn = torch.Generator().manual_seed(1)
    for position in range(7):
        states, past = model.step(histories[:, :, -1], position, past, memory)
        whole = model(source[left].repeat_interleave(K, 0), histories.flatten(0, 1))[:, -1]
        torch.testing.assert_close(states.flatten(0, 1), whole, **CLOSE)

        stay = torch.arange(len(left)) if position != 3 else torch.tensor([0, 2])  # the second sentence leaves
        origins = torch.randint(0, K, (len(left), K), generator=drawn)
        rows = (stay[:, None] * K + origins[stay]).flatten()
        past = [layer.select(rows) for layer in past]
        memory, left = memory.select(stay), left[stay]
        histories = histories.flatten(0, 1)[rows].view(len(left), K, -1)
        histories = torch.cat([histories, torch.randint(1, V, (len(left), K, 1), generator=drawn)], dim=2)


def test_the_mask_is_none_where_no_sentence_is_padded_and_survives_selection():
    model = small_model()
    assert model.encode(sentences(7, 7)).mask is None
    assert model.encode(sentences(7, 7)).select(torch.tensor([1])).mask is None
    mask = model.encode(sentences(3, 7)).select(torch.tensor([1, 0, 0])).mask
    assert mask[:, 0, 0].sum(1).tolist() == [7, 3, 3]


def test_without_positions_the_encoder_sees_a_bag_of_words():
    source = sentences(11)
    order = torch.randperm(11, generator=torch.Generator().manual_seed(1))
    moved = {}
    for encoding in ENCODINGS:
        model = small_model(positional_encoding=encoding)
        one, other = model.encode(source).layers[-1], model.encode(source[:, order]).layers[-1]
        moved[encoding] = float((one.V[:, :, order] - other.V).detach().abs().max())
    assert moved["none"] < 1e-5
    assert min(moved["sinusoidal"], moved["learned"]) > 0.1


def test_source_and_target_learn_positions_of_their_own():
    model = small_model(positional_encoding="learned")
    source, target = model.source_positions.weight, model.target_positions.weight
    assert source.data_ptr() != target.data_ptr()
    assert not torch.equal(source, target)
    model(sentences(5), sentences(7, seed=2)).square().sum().backward()
    assert (source.grad.abs().sum(1) > 0).tolist() == [position < 5 for position in range(23)]
    assert (target.grad.abs().sum(1) > 0).tolist() == [position < 7 for position in range(23)]


def test_one_matrix_embeds_the_source_and_the_target_and_makes_the_logits():
    model = small_model(positional_encoding="none")
    assert [name for name, p in model.named_parameters() if V in p.shape] == ["embedding.weight"]
    states = normal(5, 26)
    torch.testing.assert_close(model.logits(states), states @ model.embedding.weight.T)

    source, target = torch.tensor([[5, 7]]), torch.tensor([[11, 13]])
    before = model.encode(source).layers[0].V, model(source, target), model.logits(states)
    with torch.no_grad():
        model.embedding.weight[5] += 1.0
    after = model.encode(source).layers[0].V, model(source, target), model.logits(states)
    assert all(not torch.equal(x, y) for x, y in zip(before, after, strict=True))
    assert torch.equal(before[2][:, 7], after[2][:, 7])
    assert not torch.equal(before[2][:, 5], after[2][:, 5])


def test_embeddings_reach_the_first_layer_scaled_and_with_positions_added():
    model = small_model(d_model=16, positional_encoding="learned")
    seen = []
    model.encoder[0].register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    model.encode(torch.tensor([[5, 3]]))
    expected = 4.0 * model.embedding.weight[[5, 3]] + model.source_positions.weight[:2]
    torch.testing.assert_close(seen[0][0], expected)


def parameters(seed, **fields):
    return torch.cat([p.detach().flatten() for p in build(shape(**fields), V, seed).parameters()])


@every_encoding
def test_weights_follow_from_the_seed_alone(encoding):
    torch.manual_seed(3)
    first = parameters(1, positional_encoding=encoding)
    torch.manual_seed(5)
    assert torch.equal(parameters(1, positional_encoding=encoding), first)
    assert not torch.equal(parameters(2, positional_encoding=encoding), first)


def test_no_two_matrices_are_drawn_alike():
    model = build(shape(), V, 1)
    first_values = [float(p.detach().flatten()[0]) for p in model.parameters() if p.dim() == 2]
    assert len(set(first_values)) == len(first_values)


def test_building_and_training_leave_torchs_global_generator_alone():
    before = torch.get_rng_state()
    model = build(shape(dropout=0.3), V, 1).train()
    model(sentences(5), sentences(7)).sum().backward()
    assert torch.equal(torch.get_rng_state(), before)


def test_dropout_follows_from_the_seed_and_evaluation_draws_nothing_from_it():
    source, target = sentences(5, 7), sentences(7, 3, seed=2)
    one, other = (build(shape(dropout=0.3), V, seed=1) for _ in range(2))
    first = one.train()(source, target)
    assert torch.equal(other.train()(source, target), first)
    other.eval()(source, target)
    assert torch.equal(other.train()(source, target), one(source, target))
    assert not torch.equal(one(source, target), first)
