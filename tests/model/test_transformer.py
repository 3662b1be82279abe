"""Properties of the whole model: causality, padding, incremental decoding, seeds and dropout."""

import pytest
import torch

from ablate.model import build
from ablate.model.decoding_cache import MAX_SIDE_BY_SIDE
from ablate.model.layers import Dropout
from tests.model.small import ENCODINGS, V, sentences, shape, small_model

CLOSE = {"atol": 1e-5, "rtol": 1e-5}
every_encoding = pytest.mark.parametrize("encoding", ENCODINGS)


def test_padding_of_the_source_changes_nothing_in_bf16():
    """Up to the rounding of bf16, which differs between products of different sizes."""
    model, source, target = small_model(), sentences(2, 7, 4), sentences(5, 5, 5, seed=2)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        together = model(source, target)
        for i, S in enumerate((2, 7, 4)):
            alone = model(source[i : i + 1, :S], target[i : i + 1])[0]
            assert (together[i] - alone).norm() < 0.02 * alone.norm()


@pytest.mark.parametrize(
    ("fields", "beside"),
    [({}, True), ({"attention": "local", "attention_window": 2}, True), ({"attention": "linear"}, False),
     ({"mixer": "lstm"}, False)],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("architecture", ["encoder-decoder", "decoder-only"])
@pytest.mark.parametrize("K", [3, MAX_SIDE_BY_SIDE + 1])
def test_reordering_moves_no_cached_keys_where_hypotheses_are_side_by_side(
    architecture, fields, beside, K
):
    """With many hypotheses, or a mixer without query masks, each hypothesis is a row of the
    batch.
    """
    model = small_model(architecture=architecture, **fields).eval()
    cache = model.start(sentences(7, 4), K)
    for _ in range(2):
        model.step(torch.full((2, K), 5), cache)
        before = list(cache.past)
        cache.select(torch.arange(2), torch.zeros(2, K, dtype=torch.int64))
        assert [now is then for now, then in zip(cache.past, before, strict=True)] == [
            beside and K == 3
        ] * len(before)


def test_a_step_with_another_number_of_hypotheses_is_an_error():
    model = small_model().eval()
    cache = model.start(sentences(7, 4), 3)
    model.step(torch.full((2, 3), 5), cache)
    with pytest.raises(RuntimeError, match="a sentence has 3 hypotheses; expected 1 or 2"):
        model.step(torch.full((2, 2), 5), cache)


def test_without_positional_encoding_the_encoder_ignores_the_order_of_tokens():
    source = sentences(11)
    order = torch.randperm(11, generator=torch.Generator().manual_seed(1))
    moved = {}
    for encoding in ENCODINGS:
        model = small_model(positional_encoding=encoding)
        one, other = model.encode(source).layers[-1], model.encode(source[:, order]).layers[-1]
        moved[encoding] = float((one.V[:, :, order] - other.V).detach().abs().max())
    assert moved["none"] < 1e-5
    assert min(difference for encoding, difference in moved.items() if encoding != "none") > 0.1


def parameters(seed, **fields):
    return torch.cat([p.detach().flatten() for p in build(shape(**fields), V, seed).parameters()])


@every_encoding
def test_initial_weights_follow_from_the_seed_alone(encoding):
    torch.manual_seed(3)
    first = parameters(1, positional_encoding=encoding)
    torch.manual_seed(5)
    assert torch.equal(parameters(1, positional_encoding=encoding), first)
    assert not torch.equal(parameters(2, positional_encoding=encoding), first)


@pytest.mark.parametrize("tied", ["all", "none"])
def test_no_two_matrices_have_the_same_initial_values(tied):
    model = build(shape(tied_embeddings=tied), V, 1)
    first_values = [float(p.detach().flatten()[0]) for p in model.parameters() if p.dim() == 2]
    assert len(set(first_values)) == len(first_values)


DROPPING = [
    {"dropout": 0.3},
    {"attention_dropout": 0.3},
    {"activation_dropout": 0.3},
    {"architecture": "decoder-only", "attention_dropout": 0.3},
    {"mixer": "lstm", "dropout": 0.3},
]


@pytest.mark.parametrize("fields", DROPPING, ids=str)
def test_dropout_follows_from_the_seed_and_evaluation_draws_no_numbers(fields):
    source, target = sentences(5, 7), sentences(7, 3, seed=2)
    one, other = (build(shape(**fields), V, seed=1) for _ in range(2))
    first = one.train()(source, target)
    assert torch.equal(other.train()(source, target), first)
    before = other.random.get_state()
    other.eval()(source, target)
    assert torch.equal(other.random.get_state(), before)
    assert torch.equal(other.train()(source, target), one(source, target))
    assert not torch.equal(one(source, target), first)


def test_evaluation_equals_training_without_dropout():
    source, target = sentences(5, 7), sentences(7, 3, seed=2)
    rates = {"dropout": 0.3, "attention_dropout": 0.2, "activation_dropout": 0.1}
    with_dropout, without = build(shape(**rates), V, seed=1), build(shape(), V, seed=1)
    torch.testing.assert_close(
        with_dropout.eval()(source, target), without.train()(source, target), **CLOSE
    )


def names_of_dropout(monkeypatch, **fields):
    """Names of the modules whose dropout acts in one forward pass, in order."""
    acted = []

    def recorded(self, x, residual=None):
        if self.rate > 0:
            acted.append(next(name for name, module in model.named_modules() if module is self))
        return x if residual is None else residual + x

    model = small_model(**fields).train()
    monkeypatch.setattr(Dropout, "forward", recorded)
    model(sentences(5), sentences(7))
    return acted


def test_dropout_acts_on_every_sublayer_and_both_embedding_sums_only(monkeypatch):
    """Section 5.4: with N = 2 that is 2 sums, 2 * 2 sub-layers of the encoder and 2 * 3 of the
    decoder.
    """
    encoder = [
        f"encoder.{i}.around_{part}.dropout" for i in (0, 1) for part in ("mixer", "feed_forward")
    ]
    decoder = [
        f"decoder.{i}.around_{part}.dropout"
        for i in (0, 1)
        for part in ("mixer", "cross_attention", "feed_forward")
    ]
    expected = ["embedding_dropout", *encoder, "embedding_dropout", *decoder]
    assert names_of_dropout(monkeypatch, dropout=0.1) == expected
    assert names_of_dropout(monkeypatch, dropout=0.1, norm_position="pre") == expected


def test_attention_dropout_acts_in_every_attention_only(monkeypatch):
    expected = ["encoder.0.mixer", "encoder.1.mixer"]
    for i in (0, 1):
        expected += [f"decoder.{i}.mixer", f"decoder.{i}.cross_attention"]
    acted = names_of_dropout(monkeypatch, attention_dropout=0.1)
    assert acted == [f"{name}.dropout" for name in expected]
    assert names_of_dropout(monkeypatch, attention_dropout=0.1, mixer="lstm") == [
        "decoder.0.cross_attention.dropout", "decoder.1.cross_attention.dropout",
    ]  # fmt: skip


def test_activation_dropout_acts_in_every_feed_forward_network_only(monkeypatch):
    acted = names_of_dropout(monkeypatch, activation_dropout=0.1)
    assert acted == [
        f"{stack}.{i}.feed_forward.dropout" for stack in ("encoder", "decoder") for i in (0, 1)
    ]


def test_the_seed_decides_the_dropout_masks_of_equal_weights():
    source, target = sentences(7, 4), sentences(5, 3, seed=2)
    first, again, other = (build(shape(dropout=0.5), V, seed).train() for seed in (1, 1, 2))
    other.load_state_dict(first.state_dict())
    out = first(source, target)
    assert torch.equal(again(source, target), out)
    assert not torch.equal(other(source, target), out)
    assert torch.equal(other.eval()(source, target), first.eval()(source, target))
