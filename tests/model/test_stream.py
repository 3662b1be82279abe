"""What layers read beside the stream, and what embeddings take from the token before: against plain
expressions.
"""

import pytest
import torch

from ablate.model import build
from ablate.model.attention_context import AttentionContext, EarlierActivations
from ablate.model.attention_parts import pass_through
from ablate.model.embeddings import previous_tokens
from ablate.parts.residual import LAYER_SKIPS
from tests.model.small import drawn, normal, parts, places, sentences, shape, small_model

ONE_STACK = {"architecture": "decoder-only", "norm_position": "none", "positional_encoding": "none"}


def test_the_stream_and_the_embeddings_are_added_by_two_numbers():
    """Layers whose sub-layers put out zero leave a polynomial of the two numbers."""
    model = small_model(**ONE_STACK, embedding_skip=True, output_initialization="zero")
    for layer in model.decoder:
        layer.feed_forward.W_2.bias.data.zero_()
        layer.skip.shares.data = torch.tensor([0.5, 0.25])
    tokens = sentences(5)
    embedded = model.embedding(tokens)
    # x -> 0.5 x + 0.25 x0, twice.
    torch.testing.assert_close(model.read(tokens), (0.5 * (0.5 + 0.25) + 0.25) * embedded)


def silent(**fields):
    """A stack whose layers add nothing, so that the stream is what its skips make of it."""
    model = small_model(**ONE_STACK, output_initialization="zero", **fields)
    for layer in model.decoder:
        layer.feed_forward.W_2.bias.data.zero_()
    return model


def test_the_stream_is_scaled_by_a_number_of_each_layer():
    model, tokens = silent(stream_scale=True), sentences(5)
    for factor, layer in zip((0.5, 3.0), model.decoder, strict=True):
        layer.skip.factor.data.fill_(factor)
    torch.testing.assert_close(model.read(tokens), 1.5 * model.embedding(tokens))


# The numbers of the states that are added after each layer; 0 is that of the embeddings.
SOURCES = {
    ("unet", 4): [[], [2], [1], []],
    ("unet", 5): [[], [], [2], [1], []],
    ("dense", 3): [[0, 1], [0, 1, 2], [0, 1, 2, 3]],
    ("middle", 4): [[], [], [], [2]],
    ("none", 2): [[], []],
}


@pytest.mark.parametrize(("kind", "depth"), SOURCES)
def test_states_of_earlier_layers_are_added_by_weights(kind, depth):
    skip = LAYER_SKIPS[kind]
    sources = [list(skip.sources(i, depth)) for i in range(depth)]
    assert sources == SOURCES[kind, depth]
    # Layers that halve the stream, in place of those that read it.
    model, tokens = silent(layer_skips=kind, n_layers=depth, stream_scale=True), sentences(5)
    for layer in model.decoder:
        layer.skip.factor.data.fill_(0.5)
    weights = iter(() if model.layer_skips is None else model.layer_skips.weights.tolist())
    x, states = 1.0, [1.0]
    for added in sources:
        states.append(x / 2)
        x = x / 2 + sum(next(weights) * states[source] for source in added)
    assert next(weights, None) is None
    torch.testing.assert_close(model.read(tokens), x * model.embedding(tokens))


@pytest.mark.parametrize("architecture", ["encoder-decoder", "decoder-only", "encoder-only"])
def test_loops_are_layers_with_equal_weights(architecture):
    """A stack of 2 layers, passed 3 times, is the stack of 6 with copies of them."""
    fields = {"architecture": architecture, "positional_encoding": "rope", "norm_position": "pre"}
    model, unrolled = small_model(**fields, loops=3), small_model(**fields, n_layers=6)
    weights = {}
    for name in unrolled.state_dict():
        stack, _, rest = name.partition(".")
        number, _, place = rest.partition(".")
        is_layer = stack in ("encoder", "decoder")
        weights[name] = model.state_dict()[
            f"{stack}.{int(number) % 2}.{place}" if is_layer else name
        ]
    unrolled.load_state_dict(weights)
    source, target = sentences(5, 3), sentences(4, 6)
    if architecture == "encoder-decoder":
        torch.testing.assert_close(model(source, target), unrolled(source, target))
    else:
        torch.testing.assert_close(model.read(target), unrolled.read(target))


def mixed_values(values, x, earlier, **fields):
    """The values of a layer as attention gets them, before any other part."""
    builder = parts(architecture="decoder-only", n_kv_heads=1, positional_encoding="none", **fields)
    attention = drawn(builder.token_mixer(builder.positions(True), True))
    for part in attention.value_parts:
        values = part(values, x, earlier)
    return attention, values


@pytest.mark.parametrize("kind", ["added", "gated"])
def test_values_get_a_vector_of_their_token(kind):
    tokens, x, V = sentences(5, 5), normal(2, 5, 26), normal(2, 5, 7)
    attention, found = mixed_values(V, x, EarlierActivations(x, tokens), value_embeddings=kind)
    [part] = attention.value_parts
    for b in range(2):
        for t in range(5):
            vector = part.table.weight[tokens[b, t]]
            if kind == "gated":
                vector = vector * 2 / (1 + (-(part.gate.weight @ x[b, t])).exp())
            torch.testing.assert_close(found[b, t], V[b, t] + vector)


def test_vectors_of_tokens_may_have_a_rank():
    tokens, x, V = sentences(5, 5), normal(2, 5, 26), normal(2, 5, 7)
    earlier, fields = (
        EarlierActivations(x, tokens),
        {"value_embeddings": "added", "value_embedding_rank": 3},
    )
    attention, found = mixed_values(V, x, earlier, **fields)
    [part] = attention.value_parts
    torch.testing.assert_close(found, V + part.table.weight[tokens] @ part.widen.weight.T)


def test_heads_lose_their_share_along_the_values_of_their_token():
    builder = parts(architecture="decoder-only", positional_encoding="none", exclude_own_value=True)
    attention = builder.token_mixer(builder.positions(True), True).requires_grad_(False)
    x, context = normal(2, 6, 26), AttentionContext(places(6), places(6), causal=True)
    seen = {}
    attention.W_O.register_forward_hook(lambda module, args, out: seen.update(heads=args[0]))
    attention(x, None, context)
    heads = seen["heads"].unflatten(2, (3, 7))
    values = attention.project(x)[2].unflatten(2, (3, 7))
    assert float((heads * values).sum(-1).abs().max()) < 1e-5
    attention.on_heads = ()
    attention(x, None, context)
    plain = seen["heads"].unflatten(2, (3, 7))
    share = (plain * values).sum(-1, keepdim=True) / values.square().sum(-1, keepdim=True)
    torch.testing.assert_close(heads, plain - share * values)


def test_differential_heads_lose_their_share_along_the_values_that_they_sum():
    """Beside the first weighted value of a token, which is its own, nothing is left."""
    fields = {"architecture": "decoder-only", "positional_encoding": "none", "n_heads": 6}
    builder = parts(**fields, attention="differential", exclude_own_value=True)
    attention = builder.token_mixer(builder.positions(True), True).requires_grad_(False)
    x, context = normal(2, 6, 26), AttentionContext(places(6), places(6), causal=True)
    seen = {}
    attention.W_O.register_forward_hook(lambda module, args, out: seen.update(heads=args[0]))
    attention(x, None, context)
    assert float(seen["heads"][:, 0].abs().max()) < 1e-5
    assert float(seen["heads"][:, 1:].abs().mean()) > 0.1


def test_norms_are_scaled_by_the_number_of_their_layer():
    fields = {"architecture": "decoder-only", "norm_position": "pre", "positional_encoding": "none"}
    scaled, plain = small_model(**fields, norm_scale="depth"), small_model(**fields)
    x = normal(2, 5, 26)
    for number, (layer, other) in enumerate(zip(scaled.decoder, plain.decoder, strict=True), 1):
        for around in ("around_mixer", "around_feed_forward"):
            expected = getattr(other, around).before(x) * number**-0.5
            torch.testing.assert_close(getattr(layer, around).before(x), expected)


def test_the_balance_lowers_the_bias_of_experts_that_are_chosen_often():
    fields = {"n_experts": 4, "experts_per_token": 1, "expert_balance": 1.0}
    experts = parts(**fields, expert_balance_by="bias").feed_forward().train()
    experts.choice_bias.data = torch.tensor([0.0, 9.0, 0.0, 0.0])
    experts(normal(2, 5, 26))  # all ten tokens go to expert 1
    experts.balance_loss.backward()
    assert experts.balance_loss.item() == 0.0
    assert experts.choice_bias.grad.tolist() == [-1.0, 3.0, -1.0, -1.0]


@pytest.mark.parametrize("balance_by", ["loss", "bias"])
def test_the_balance_counts_each_pass_of_a_loop(balance_by):
    """One layer in three loops is three layers of equal weights: so are its loss, by which it is at
    least the weight of each pass, and its gradients.
    """
    fields = {**ONE_STACK, "n_experts": 4, "experts_per_token": 1, "expert_balance": 2.0}
    fields["expert_balance_by"] = balance_by
    looped = small_model(**fields, n_layers=1, decoder_layers=1, loops=3).train()
    stacked = small_model(**fields, n_layers=3, decoder_layers=3).train()
    for layer in stacked.decoder:
        layer.load_state_dict(looped.decoder[0].state_dict())
    stacked.embedding.load_state_dict(looped.embedding.state_dict())
    losses = []
    for model in (looped, stacked):
        model.read(sentences(5, 5))
        losses.append(model.pop_balance_loss())
        losses[-1].backward()
        assert model.pop_balance_loss() == 0.0  # read, and so left out of the next batch
    torch.testing.assert_close(losses[0], losses[1])
    assert losses[0].item() >= (6.0 if balance_by == "loss" else 0.0)
    name = "router.weight" if balance_by == "loss" else "choice_bias"
    (once, *_), of_layers = (
        [layer.feed_forward.get_parameter(name).grad for layer in model.decoder]
        for model in (looped, stacked)
    )
    torch.testing.assert_close(once, sum(of_layers))
    assert once.abs().sum() > 0


def test_values_are_mixed_with_those_of_the_first_layer():
    x, V, first = normal(2, 5, 26), normal(2, 5, 7), normal(2, 5, 7, seed=3)
    earlier = EarlierActivations(x, sentences(5, 5))
    _, own = mixed_values(first, x, earlier, value_residual=True)
    torch.testing.assert_close(own, first)
    attention, found = mixed_values(V, x, earlier, value_residual=True)
    share = attention.value_parts[0].share
    torch.testing.assert_close(found, (1 - share) * V + share * first)


@pytest.mark.parametrize("of", ["input", "qkv"])
def test_attention_convolves_its_input_or_its_projections(of):
    """By attention without a convolution, which gets the convolved input or projections."""
    builder = parts(
        architecture="decoder-only", positional_encoding="none", attention_convolution=of
    )
    attention = builder.token_mixer(builder.positions(True), True).requires_grad_(False)
    found_in = {"input": "on_input", "qkv": "on_projections"}[of]
    whole, convolution = getattr(attention, found_in), attention.convolution
    setattr(attention, found_in, pass_through)
    x, context = normal(2, 6, 26), AttentionContext(places(6), places(6), causal=True)

    def convolved(y):
        out = y.clone()
        for back in range(4):
            out[:, back:] += convolution.weight[:, 0, 3 - back] * y[:, : 6 - back]
        return out

    if of == "input":
        expected, _ = attention(convolved(x), None, context)
    else:
        joined = convolved(torch.cat(attention.project(x), dim=-1)).split([30, 30, 21], dim=-1)
        attention.on_projections = lambda parts, past, context: (joined, None)
        expected, _ = attention(x, None, context)
    setattr(attention, found_in, whole)
    torch.testing.assert_close(attention(x, None, context)[0], expected)


def test_embeddings_take_from_the_token_before():
    model = small_model(**ONE_STACK, smear=True, bigram_embeddings=13)
    smear, bigrams = model.token_pairs
    bigrams.table.weight.data.normal_()
    tokens = sentences(5, 5)
    found, E = model.embed(tokens, places(5)), model.embedding.weight * model.embedding.scale
    for b in range(2):
        before = 0
        for t, token in enumerate(tokens[b].tolist()):
            expected = E[token] + bigrams.table.weight[(token * 27_191 ^ before * 36_313) % 13]
            if before:
                gate = 1 / (1 + (-(smear.gate @ E[token])).exp())
                expected = expected + smear.strength * gate * E[before]
            torch.testing.assert_close(found[b, t], expected)
            before = token
    assert previous_tokens(tokens)[0].tolist() == [0, *tokens[0, :-1].tolist()]


def test_new_parts_begin_without_effect_on_the_stream():
    """But for value parts and convolutions, whose weights are drawn after all others of a layer."""
    tokens, plain = sentences(5), build(shape(**ONE_STACK), 31, 1)
    for part in (
        {"smear": True}, {"bigram_embeddings": 7}, {"stream_scale": True}, {"embedding_skip": True},
        {"layer_skips": "dense"}, {"layer_skips": "middle"},
    ):  # fmt: skip
        torch.manual_seed(0)
        model = build(shape(**ONE_STACK, **part), 31, 1)
        model.load_state_dict(plain.state_dict(), strict=False)
        torch.testing.assert_close(model.read(tokens), plain.read(tokens))


# --- hyper-connections ---

PRE = {**ONE_STACK, "norm_position": "pre", "norm": "rmsnorm"}


def with_streams(plain, n, kind, **fields):
    """A model with n streams that has the other weights of this one, in double precision."""
    model = build(shape(**PRE, hyper_connections=kind, expansion_rate=n, **fields), 31, 1)
    weights = {
        name.replace("around_mixer.", "around_mixer.around.").replace(
            "around_feed_forward.", "around_feed_forward.around."
        ): weight
        for name, weight in plain.state_dict().items()
    }
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected
    assert all(name.split(".")[-1] in ("static", "dynamic", "scales") for name in missing)
    return model.eval().double().requires_grad_(False)


@pytest.mark.parametrize("kind", ["static", "dynamic"])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_hyper_connections_begin_as_one_residual_stream(kind, n):
    """With one stream as exactly this; with several the last norm divides by their number."""
    plain = small_model(**PRE).double()
    tokens = sentences(5, 3)
    found = with_streams(plain, n, kind).read(tokens)
    tolerance = {"rtol": 0, "atol": 0 if n == 1 else 1e-5}
    torch.testing.assert_close(found, plain.read(tokens), **tolerance)


@pytest.mark.parametrize("kind", ["static", "dynamic"])
@pytest.mark.parametrize("n", [1, 3])
def test_hyper_connections_are_the_equations_of_the_paper(kind, n):
    """Token by token, with a matrix of streams H (n, d_model)."""
    model = with_streams(small_model(**PRE).double(), n, kind)
    draw = torch.Generator().manual_seed(3)
    for layer in model.decoder:
        for part in (layer.around_mixer, layer.around_feed_forward):
            for name in ("static", "dynamic", "scales"):
                value = getattr(part, name, None)
                if value is not None:
                    value += torch.randn(value.shape, generator=draw, dtype=value.dtype)
    tokens = sentences(5)
    H = model.embedding(tokens)[0][:, None].repeat(1, n, 1)  # (T, n, d_model)
    context = AttentionContext(places(5), places(5), causal=True)

    def connected(H, part, sublayer):
        A_m, A_r, B = part.static.view(n, n + 2).split([1, n, 1], dim=1)
        A_m, A_r, B = (A.expand(5, *A.shape) for A in (A_m, A_r, B))
        if kind == "dynamic":
            normed = H / (H.square().mean(-1, keepdim=True) + 1e-6).sqrt()
            W_m, W_r, W_b = part.dynamic.split([1, n, 1], dim=1)
            s_a, s_b = part.scales
            A_m = A_m + s_a * torch.tanh(normed @ W_m)
            A_r = A_r + s_a * torch.tanh(normed @ W_r)
            B = B + s_b * torch.tanh(normed @ W_b)
        h = torch.einsum("tni,tnd->td", A_m, H)
        out = sublayer(part.around.norm(h)[None])[0]
        return torch.einsum("tnm,tnd->tmd", A_r, H) + torch.einsum("tni,td->tnd", B, out)

    for layer in model.decoder:
        H = connected(H, layer.around_mixer, lambda x, m=layer.mixer: m(x, None, context)[0])
        H = connected(H, layer.around_feed_forward, layer.feed_forward)
    torch.testing.assert_close(model.read(tokens)[0], model.decoder_norm(H.sum(1)))
