"""Plug-in classes are checked before anything is trained; each fault is one line."""

import os
import re
import textwrap

import pytest
import torch

from ablate.checks.layers import check_layers
from ablate.config.cost import parameters
from ablate.errors import StoreError, StudyError
from ablate.model import build
from ablate.own.reference import PREFIX
from ablate.own.source import source_hash
from tests.model.small import V, sentences, shape

IMPORTS = """\
import torch
import torch.nn.functional as F
from torch import nn

from ablate.components import Activation, AttentionMechanism, FullAttention, PositionalEncoding, Residual, TokenMixer
"""
ARCHITECTURES = ("encoder-decoder", "decoder-only")


@pytest.fixture
def kept(tmp_path):
    """Store a source as a run does; returns the pinned reference to the class `Mine` in it."""

    def keep(source):
        content = (IMPORTS + textwrap.dedent(source)).encode()
        (tmp_path / f"{source_hash(content)}.py").write_bytes(content)
        return f"mymodule:Mine@{source_hash(content)}"

    return keep


@pytest.fixture
def places():
    """The lines of the module that refusals name."""
    return []


@pytest.fixture
def refused(tmp_path, kept, places):
    """The one line with which a class is refused in place of this field, after its file and
    line.
    """

    def line(field, source, error=StudyError, **fields):
        with pytest.raises(error) as caught:
            check_layers(shape(**{field: kept(source)}, **fields), tmp_path)
        (message,) = caught.value.lines
        assert "\n" not in message
        place = re.fullmatch(r"mymodule\.py:(\d+): (.*)", message)
        assert 1 <= int(place[1]) <= len((IMPORTS + textwrap.dedent(source)).splitlines())
        places.append(int(place[1]))
        return place[2]

    return line


GOOD = {
    "attention": """
        class Mine(AttentionMechanism):
            supports_bias = True

            def __init__(self, config):
                super().__init__(config)
                self.gain = nn.Parameter(torch.tensor(3.0))

            def forward(self, Q, K, V, context):
                scores = self.gain * F.normalize(Q, dim=-1) @ F.normalize(K, dim=-1).transpose(-1, -2)
                bias = context.bias(Q)
                return context.weights(scores if bias is None else scores + bias) @ V
        """,
    "positional_encoding": """
        class Mine(PositionalEncoding):
            def bias(self, layer, Q, queries, keys):
                return -(keys[..., None, :] - queries[..., :, None]).abs().sqrt().unsqueeze(-3)
        """,
    "activation": """
        class Mine(Activation):
            gated = True

            def forward(self, x):
                return x.sigmoid()
        """,
    "norm": """
        class Mine(nn.Module):
            def __init__(self, d_model):
                super().__init__()
                self.gain = nn.Parameter(torch.ones(d_model))

            def forward(self, x):
                return self.gain * x / (x.abs().mean(-1, keepdim=True) + 1e-6)
        """,
}
NETWORK = """
    class Mine(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.W = nn.Parameter(torch.eye(config.d_model))

        def forward(self, x):
            return BODY
    """
every_field = pytest.mark.parametrize("field", GOOD)
both = pytest.mark.parametrize("architecture", ARCHITECTURES)


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "encoder-only"])
@every_field
@pytest.mark.parametrize(
    "others", [{}, {"positional_encoding": "alibi"}, {"norm_position": "pre"}], ids=str
)
def test_a_correct_class_passes(tmp_path, kept, field, architecture, others):
    check_layers(shape(architecture=architecture, **{**others, field: kept(GOOD[field])}), tmp_path)


@both
def test_classes_for_all_four_fields_pass_together(tmp_path, kept, architecture):
    fields = {field: kept(source) for field, source in GOOD.items()}
    check_layers(
        shape(architecture=architecture, max_positions=8, n_layers=5, dropout=0.5, **fields),
        tmp_path,
    )


@both
@pytest.mark.parametrize("others", [{}, {"n_experts": 2}, {"norm_position": "none"}], ids=str)
def test_a_feed_forward_network_of_its_own_passes(tmp_path, kept, architecture, others):
    network = kept(NETWORK.replace("BODY", "(x @ self.W).tanh()"))
    check_layers(shape(architecture=architecture, feed_forward=network, **others), tmp_path)


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("(x @ self.W).cumsum(-2)", "incremental decoding disagrees"),
        ("x.mul_(2) @ self.W", "forward changes its input"),
        ("(x @ self.W)[..., 1:]", "forward returns shape"),
    ],
)
def test_a_feed_forward_network_that_is_not_position_wise_is_refused(refused, body, fault):
    assert fault in refused("feed_forward", NETWORK.replace("BODY", body), norm_position="none")


RESIDUAL = """
    class Mine(Residual):
        def before(self, x):
            return self.norm(x)

        def after(self, x, output):
            return self.add(x, BODY)
    """


@both
def test_a_residual_connection_of_its_own_passes(tmp_path, kept, architecture):
    residual = kept(RESIDUAL.replace("BODY", "output * x.sigmoid()"))
    check_layers(shape(architecture=architecture, norm_position=residual), tmp_path)
    config = shape(architecture=architecture, norm_position=residual)
    counted = sum(p.numel() for p in build(config, V, 1, sources=tmp_path).parameters())
    assert counted == parameters(config, V)


def test_a_residual_connection_that_mixes_tokens_is_refused(refused):
    fault = refused("norm_position", RESIDUAL.replace("BODY", "output.flip(1)"))
    assert "lets a token depend on later ones" in fault


MIXER = """
    from dataclasses import dataclass

    from ablate.components import TokenMixer


    @dataclass
    class Memory:
        sums: torch.Tensor

        def select(self, rows):
            return Memory(self.sums.index_select(0, rows))


    class Mine(TokenMixer):
        def __init__(self, config):
            super().__init__()
            self.value = nn.Linear(config.d_model, config.d_model)
            self.rate = nn.Parameter(torch.tensor(0.0))

        def forward(self, x, past, context):
            real = None
            if context.key_mask is not None:
                real = context.key_mask[:, 0, 0, -x.shape[1] :]
            values = self.value(x)
            sums = torch.zeros_like(values[:, 0]) if past is None else past.sums
            out = []
            for t in range(x.shape[1]):
                after = self.rate.sigmoid() * sums + values[:, t]
                sums = after if real is None else torch.where(real[:, t, None], after, sums)
                out.append(sums)
            return torch.stack(out, dim=1), Memory(sums)
    """


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "encoder-only"])
def test_a_mixer_of_its_own_passes(tmp_path, kept, architecture):
    fields = {"mixer": kept(MIXER), "d_k": 7, "qk_norm": "head"}
    check_layers(shape(architecture=architecture, **fields), tmp_path)


@pytest.mark.parametrize(
    ("right", "wrong", "fault"),
    [
        ("stack(out, dim=1), Memory(sums)", "stack(out, dim=1)", "forward returns Tensor, not"),
        ("Memory(sums)\n    ", "sums.tolist()\n    ", "the state list, which has no method select"),
        ("stack(out, dim=1), M", "stack(out, dim=1)[..., :1], M", "expected (2, 14, 26)"),
        ("if real is None else torch.where(real[:, t, None], after, sums)", "", "the last token that"),
        ("if past is None else past.sums", "", "incremental decoding disagrees"),
        ("values = self.value(x)", "values = self.value(x).flip(1)", "depend on later ones"),
        ("self.rate.sigmoid()", "0.5", "its parameter rate has no gradient"),
        ("values = self.value(x)", "values = self.value(x.mul_(2))", "changes its input in place"),
    ],
)  # fmt: skip
def test_a_mixer_with_a_fault_is_refused(refused, right, wrong, fault):
    assert MIXER.count(right) == 1
    source = MIXER.replace(right, wrong)
    assert fault in refused("mixer", source, architecture="decoder-only")


def test_a_mixer_of_its_own_meets_masks_of_documents(tmp_path, kept):
    fields = {"architecture": "decoder-only", "document_masks": True, "mixer": kept(MIXER)}
    with pytest.raises(StudyError, match=r"mixer=mymodule:Mine cannot tell documents apart"):
        build(shape(**fields), V, 1, sources=tmp_path)


@every_field
def test_the_model_uses_the_code_and_the_parameters_of_the_class(tmp_path, kept, field):
    """Its parameters are among the model's, and every state depends on its code."""
    config = shape(**{field: kept(GOOD[field])})
    model, plain = build(config, V, 1, sources=tmp_path).eval(), build(shape(), V, 1).eval()
    assert type(
        next(m for m in model.modules() if type(m).__name__ == "Mine")
    ).__module__.startswith("ablate_plugin_")
    source, target = sentences(5, 3), sentences(7, 2, seed=2)
    difference = (model(source, target) - plain(source, target)).detach().abs().amax(-1)
    assert bool((difference[target != 0] > 1e-4).all())
    names = {name for name, _ in model.named_parameters() if name.endswith("gain")}
    assert bool(names) == (field in ("attention", "norm"))


@pytest.mark.parametrize(
    ("method", "asked"), [("embed", False), ("rotate", False), ("bias", True), ("values", True)]
)
def test_acts_on_scores_follows_from_the_methods_that_an_encoding_defines(
    tmp_path, kept, method, asked
):
    """An author need not declare it, and so cannot forget to."""
    pinned = kept(
        f"class Mine(PositionalEncoding):\n    def {method}(self, *given):\n        raise "
        f"AssertionError\n"
    )
    model = build(shape(positional_encoding=pinned), V, 1, sources=tmp_path)
    assert (model.source_positions.acts_on_scores, model.target_positions.acts_on_scores) == (
        asked,
        asked,
    )


def test_a_class_may_derive_from_a_built_in_variant(tmp_path, kept):
    source = """
        class Mine(FullAttention):
            def forward(self, Q, K, V, context):
                return 2 * super().forward(Q, K, V, context)
        """
    for encoding in ("sinusoidal", "rope", "relative", "t5", "alibi"):
        check_layers(shape(attention=kept(source), positional_encoding=encoding), tmp_path)


SAME = {
    "attention": ("class Mine(FullAttention): pass", "full"),
    "positional_encoding": ("class Mine(LearnedPositions): pass", "learned"),
    "activation": ("class Mine(ReLU): pass", "relu"),
    "norm": ("class Mine(LayerNorm): pass", "layernorm"),
}


@both
@pytest.mark.parametrize("field", SAME)
def test_a_class_like_a_built_in_one_gives_a_model_of_the_same_initial_weights(
    tmp_path, kept, field, architecture
):
    source, name = SAME[field]
    source = f"from ablate.components import LayerNorm, LearnedPositions, ReLU\n{source}"
    own, built_in = (
        build(shape(architecture=architecture, **{field: value}), V, 1, sources=tmp_path)
        for value in (kept(source), name)
    )
    ours, theirs = own.state_dict(), built_in.state_dict()
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []


@both
@pytest.mark.parametrize("field", ["feed_forward", "mixer"])
def test_all_other_parts_have_the_initial_weights_that_they_have_without_the_class(
    tmp_path, kept, field, architecture
):
    source = MIXER if field == "mixer" else NETWORK.replace("BODY", "(x @ self.W).tanh()")
    own, plain = (
        build(shape(architecture=architecture, **fields), V, 1, sources=tmp_path)
        for fields in ({field: kept(source)}, {})
    )
    ours, theirs = own.state_dict(), plain.state_dict()
    shared = [name for name in ours if name in theirs]
    assert len(shared) > len(ours) / 3
    assert [name for name in shared if not torch.equal(ours[name], theirs[name])] == []


def test_each_instance_of_a_class_draws_weights_of_its_own(tmp_path, kept):
    network = kept(NETWORK.replace("torch.eye(config.d_model)", "torch.randn(3)"))
    model = build(shape(feed_forward=network, n_experts=3), V, 1, sources=tmp_path)
    drawn = [value.tolist() for name, value in model.state_dict().items() if name.endswith(".W")]
    assert len(drawn) == 3 * 4
    assert [value for value in drawn if drawn.count(value) > 1] == []


def test_a_residual_connection_knows_the_fields_of_the_model(tmp_path, kept):
    source = RESIDUAL.replace("BODY", "self.gate * output").replace(
        "        def before",
        """        def __init__(self, *given):
            super().__init__(*given)
            self.gate = nn.Parameter(torch.ones(self.config.d_model))

        def before""",
        1,
    )
    config = shape(norm_position=kept(source))
    check_layers(config, tmp_path)
    model = build(config, V, 1, sources=tmp_path)
    gates = [value for name, value in model.named_parameters() if name.endswith("gate")]
    assert {value.shape for value in gates} == {(26,)}


# Faults

FUTURE = "lets a token depend on later ones; `context.mask()` has the allowed keys"
PADDING = "lets padding change a sentence; `context.mask()` has the allowed keys"
STEPS = (
    "incremental decoding disagrees with the full forward pass; "
    "Q may have the last tokens alone: `context.mask()` has the allowed keys, and "
    "positions are `context.query_positions` and `context.key_positions`"
)


ALONE = "lets a token depend on later ones; each token must be treated alone"
INDICES = (
    "incremental decoding disagrees with the full forward pass; "
    "positions are the arguments `positions`, `queries` and `keys`"
)


@both
def test_attention_that_sees_the_future_is_refused(refused, architecture):
    source = """
        class Mine(AttentionMechanism):
            def forward(self, Q, K, V, context):
                scores = Q @ K.transpose(-1, -2)
                if context.key_mask is not None:
                    scores = scores.masked_fill(~context.key_mask, -1e9)
                return scores.softmax(-1) @ V
        """
    assert refused("attention", source, architecture=architecture) == f"mymodule:Mine: {FUTURE}"


@both
def test_a_norm_over_the_tokens_of_a_sentence_is_refused(refused, architecture):
    source = """
        class Mine(nn.Module):
            def __init__(self, d_model):
                super().__init__()

            def forward(self, x):
                return x - x.mean(1, keepdim=True)
        """
    line = refused("norm", source, architecture=architecture)
    assert line == f"mymodule:Mine: {ALONE}"


ATTENTION = """
    class Mine(AttentionMechanism):
        def forward(self, Q, K, V, context):
            return {}
    """
FORMULA = "context.weights(Q @ K.transpose(-1, -2)) @ V"


@pytest.mark.parametrize(
    ("heads", "fault"),
    [
        (
            f"({FORMULA}).detach()",
            "its output has no gradient with respect to V, so nothing before it would learn",
        ),
        (
            f"F.dropout({FORMULA}, 0.1)",
            "gives other states when called again: nothing may be random when evaluating",
        ),
        (
            f"F.dropout({FORMULA}, 0.1, self.training)",
            "draws from torch's own generator while training, so no run could be resumed; see "
            "`context.weights`",
        ),
    ],
)
def test_attention_without_gradient_or_with_unrepeatable_output_is_refused(refused, heads, fault):
    assert refused("attention", ATTENTION.format(heads)) == f"mymodule:Mine: {fault}"


@pytest.mark.parametrize("fields", [{"score_cap": 50.0}, {"attention_sinks": True}], ids=str)
def test_attention_that_ignores_caps_and_sinks_is_refused(refused, fields):
    softmax = """
        class Mine(AttentionMechanism):
            def forward(self, Q, K, V, context):
                scores = Q @ K.transpose(-1, -2) * context.scale
                return scores.masked_fill(~context.mask(), -1e9).softmax(-1) @ V
        """
    line = refused("attention", softmax, architecture="decoder-only", **fields)
    assert "context.weights" in line


@pytest.mark.parametrize("fields", [{"score_cap": 50.0}, {"attention_sinks": True}], ids=str)
def test_attention_with_caps_and_sinks_passes(tmp_path, kept, fields):
    check_layers(shape(attention=kept(GOOD["attention"]), **fields), tmp_path)


@pytest.mark.parametrize(
    "hidden",
    [
        "[nn.Parameter(torch.ones(d_model))]",
        '{"a": nn.Linear(d_model, 1)}',
        "torch.ones(d_model, requires_grad=True)",
    ],
)
def test_a_parameter_that_torch_does_not_know_is_refused(refused, hidden):
    source = f"""
        class Mine(nn.Module):
            def __init__(self, d_model):
                super().__init__()
                self.gains = {hidden}

            def forward(self, x):
                return x
        """
    assert "its attribute gains has parameters that torch does not know" in refused("norm", source)


def test_a_list_of_known_modules_and_a_kept_activation_pass(tmp_path, kept):
    source = """
        class Mine(nn.Module):
            def __init__(self, d_model):
                super().__init__()
                self.norm = nn.LayerNorm(d_model)
                self.all = [self.norm]

            def forward(self, x):
                self.last = self.all[0](x)
                return self.last
        """
    check_layers(shape(norm=kept(source)), tmp_path)


def test_an_unused_parameter_is_refused(refused):
    source = """
        class Mine(nn.Module):
            def __init__(self, d_model):
                super().__init__()
                self.spare = nn.Parameter(torch.ones(d_model))

            def forward(self, x):
                return x
        """
    expected = "mymodule:Mine: its parameter spare has no gradient, so it would never learn"
    assert refused("norm", source) == expected


@pytest.mark.parametrize(
    "body", ["    pass\n", "    def embedd(self, x, positions):\n        return x + 1\n"]
)
def test_a_positional_encoding_without_effect_is_refused(refused, body):
    expected = "mymodule:Mine: defines none of embed, rotate, bias, values, so it has no effect"
    assert refused("positional_encoding", "class Mine(PositionalEncoding):\n" + body) == expected


def test_numbers_drawn_from_torchs_global_generator_follow_from_the_seed(tmp_path, kept):
    source = """
        class Mine(nn.Module):
            def __init__(self, d_model):
                super().__init__()
                self.gain = nn.Parameter(torch.randn(d_model))

            def forward(self, x):
                return x * self.gain
        """
    config, before = shape(norm=kept(source)), torch.get_rng_state()
    one, same, other = (
        build(config, V, seed=seed, sources=tmp_path).state_dict() for seed in (1, 1, 2)
    )
    assert all(map(torch.equal, one.values(), same.values()))
    gains = [name for name in one if name.endswith("gain")]
    assert gains
    assert not any(torch.equal(one[name], other[name]) for name in gains)
    assert torch.equal(torch.get_rng_state(), before)  # the check restores the global generator


@both
def test_attention_that_declares_query_masks_but_ignores_them_is_refused(
    refused, tmp_path, kept, architecture
):
    """Hypotheses decoded side by side would see one another."""
    source = """
        class Mine(AttentionMechanism):
            supports_query_masks = {}

            def forward(self, Q, K, V, context):
                scores = Q @ K.transpose(-1, -2)
                if context.key_mask is not None:
                    scores = scores.masked_fill(~context.key_mask, -1e9)
                if context.causal:
                    scores = scores.masked_fill(context.query_positions[:, None] < context.key_positions, -1e9)
                return scores.softmax(-1) @ V
        """
    promise = "with `supports_query_masks`, all that `context.mask()` leaves out must be left out"
    line = refused("attention", source.format(True), architecture=architecture)
    assert line == f"mymodule:Mine: {STEPS}; {promise}"
    check_layers(shape(attention=kept(source.format(False)), architecture=architecture), tmp_path)


# In a causal stack padding is behind every token, until tokens are decoded one by one after a
# padded source.
IGNORES_PADDING = {"encoder-decoder": PADDING, "decoder-only": STEPS}


@both
def test_attention_that_ignores_padding_is_refused(refused, architecture):
    source = """
        class Mine(AttentionMechanism):
            def forward(self, Q, K, V, context):
                scores = Q @ K.transpose(-1, -2)
                if context.causal:
                    scores = scores + torch.full_like(scores, -1e9).triu(1)
                return scores.softmax(-1) @ V
        """
    line = refused("attention", source, architecture=architecture)
    assert line == f"mymodule:Mine: {IGNORES_PADDING[architecture]}"


@both
def test_an_encoding_that_counts_positions_within_the_call_is_refused(refused, architecture):
    source = """
        class Mine(PositionalEncoding):
            def embed(self, x, positions):
                return x + torch.arange(x.shape[1])[:, None]
        """
    assert (
        refused("positional_encoding", source, architecture=architecture)
        == f"mymodule:Mine: {INDICES}"
    )


BODIES = {
    "attention": "class Mine(AttentionMechanism):\n    def forward(self, Q, K, V, context):\n",
    "positional_encoding": "class Mine(PositionalEncoding):\n    def embed(self, x, positions):\n",
    "activation": "class Mine(Activation):\n    def forward(self, x):\n",
    "norm": "class Mine(nn.Module):\n    def __init__(self, d_model):\n        super().__init__()\n"
    "    def forward(self, x):\n",
}


@pytest.mark.parametrize(
    ("field", "body", "fault"),
    [
        ("attention", "return Q", "forward returns shape (2, 3, 7, 10); expected (2, 3, 7, 7)"),
        ("attention", "return V.mean()", "forward returns shape (); expected (2, 3, 7, 7)"),
        ("positional_encoding", "return x[..., 1:]", "embed returns shape (2, 7, 25); expected (2, 7, 26)"),
        ("activation", "return x[..., 1:]", "forward returns shape (2, 7, 18); expected (2, 7, 19)"),
        ("norm", "return x[:, 1:]", "forward returns shape (2, 6, 26); expected (2, 7, 26)"),
        *((field, "x = 1", f"{method} returns NoneType, not a tensor; is a return missing?") for field, method in (
            ("attention", "forward"), ("positional_encoding", "embed"), ("activation", "forward"), ("norm", "forward"),
        )),
        ("norm", "return [x]", "forward returns list, not a tensor"),
    ],
)  # fmt: skip
def test_a_wrong_result_is_refused_with_the_line_of_its_method(refused, places, field, body, fault):
    assert refused(field, f"{BODIES[field]}        {body}\n") == f"mymodule:Mine: {fault}"
    assert places == [len((IMPORTS + BODIES[field]).splitlines())]


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "encoder-only"])
@pytest.mark.parametrize(
    ("field", "method", "body"),
    [
        ("norm", "forward", "x -= x.mean(-1, keepdim=True)\n        return x"),
        ("norm", "forward", "with torch.no_grad():\n            x /= 2\n        return x"),
        (
            "attention",
            "forward",
            "with torch.no_grad():\n            V *= 2\n        return Q.mean(3, keepdim=True) * V",
        ),
    ],
)
def test_a_class_that_changes_what_others_read_is_refused(
    refused, field, method, body, architecture
):
    """A residual connection would add the changed tensor, and autograd would know nothing of it."""
    message = refused(
        field, f"{BODIES[field]}        {body}\n", architecture=architecture, norm_position="pre"
    )
    expected = (
        f"{method} changes its input in place, which other parts of the model read; make a new "
        f"tensor"
    )
    assert message == f"mymodule:Mine: {expected}"


def test_an_activation_may_change_its_input(tmp_path, kept):
    source = BODIES["activation"] + "        return F.relu(x, inplace=True)\n"
    check_layers(shape(activation=kept(source)), tmp_path)


@pytest.mark.parametrize(
    ("method", "body", "fault"),
    [
        (
            "rotate",
            "return given[0][:, :, 1:]",
            "rotate returns shape (2, 3, 6, 10); expected (2, 3, 7, 10)",
        ),
        ("bias", "return given[1]", "bias returns shape (2, 3, 7, 10); expected (2, 3, 7, 7)"),
    ],
)
def test_a_rotation_or_a_bias_of_a_wrong_shape_is_refused(refused, method, body, fault):
    source = f"class Mine(PositionalEncoding):\n    def {method}(self, *given):\n        {body}\n"
    assert refused("positional_encoding", source) == f"mymodule:Mine: {fault}"


def test_the_message_about_wrong_states_names_the_expected_shape(refused):
    nan = "class Mine(Activation):\n    def forward(self, x):\n        return x.sqrt()\n"
    expected = "mymodule:Mine: gives states that are not finite"
    assert refused("activation", nan) == expected


@every_field
def test_an_exception_of_the_class_becomes_one_line_with_its_source_line(refused, places, field):
    source = BODIES[field] + "        raise ValueError('first\\nsecond')\n"
    line = len((IMPORTS + textwrap.dedent(source)).splitlines())
    assert refused(field, source) == "mymodule:Mine: ValueError: first second"
    source = BODIES[field] + "        assert False\n"
    assert refused(field, source) == "mymodule:Mine: AssertionError"
    source = BODIES[field] + "        torch.ones(2) @ torch.ones(3)\n"
    assert refused(field, source).startswith("mymodule:Mine: RuntimeError: ")
    assert places == [line, line, line]


@pytest.mark.parametrize(
    ("field", "base", "fault"),
    [
        ("mixer", "TokenMixer", "takes 1 positional argument but 2 were given; it gets config"),
        ("activation", "Activation", "missing 1 required positional argument: 'width'; it gets no arguments"),
        ("norm", "nn.Module", "takes 1 positional argument but 2 were given; it gets d_model as a norm, config "
         "as a feed-forward network"),
        ("attention", "AttentionMechanism", "takes 1 positional argument but 2 were given; it gets config"),
        ("positional_encoding", "PositionalEncoding", "got an unexpected keyword argument 'causal'; it gets "
         "config, causal and init"),
        ("norm_position", "Residual", "takes 1 positional argument but 7 were given; it gets norm, residual, "
         "rate, random, scale and config; take them as *given"),
    ],
)  # fmt: skip
def test_a_constructor_with_other_parameters_is_refused(refused, field, base, fault):
    more = ", width" if field == "activation" else ""
    source = f"class Mine({base}):\n    def __init__(self{more}):\n        super().__init__()\n"
    assert refused(field, source) == f"mymodule:Mine: TypeError: Mine.__init__() {fault}"


def test_a_wrong_call_within_a_constructor_has_no_hint_about_its_own_arguments(refused):
    source = "class Mine(nn.Module):\n    def __init__(self, d_model):\n        super().__init__(d_model)\n"
    assert refused("norm", source).endswith("takes 1 positional argument but 2 were given")


@pytest.mark.parametrize(
    ("field", "interface"),
    [
        ("attention", "ablate.components.AttentionMechanism"),
        ("positional_encoding", "ablate.components.PositionalEncoding"),
        ("activation", "ablate.components.Activation"),
        ("norm", "torch.nn.Module"),
    ],
)
def test_the_message_about_a_wrong_base_class_names_the_right_one(refused, field, interface):
    source = "class Mine:\n    pass\n"
    assert refused(field, source) == f"mymodule:Mine does not derive from {interface}"
    if field != "norm":
        assert (
            refused(field, "class Mine(nn.Module):\n    pass\n")
            == f"mymodule:Mine does not derive from {interface}"
        )


def test_a_name_that_no_longer_names_a_class_is_refused(refused):
    source = "class Mine(AttentionMechanism):\n    pass\n\ndel Mine\n"
    assert (
        refused("attention", source)
        == "mymodule:Mine does not derive from ablate.components.AttentionMechanism"
    )


@pytest.mark.parametrize("encoding", ["relative", "t5", "alibi"])
def test_attention_without_bias_is_refused_with_an_encoding_that_has_one(refused, encoding):
    source = GOOD["attention"].replace("supports_bias = True", "supports_bias = False")
    line = refused("attention", source, positional_encoding=encoding)
    assert line.startswith("attention=mymodule:Mine adds no bias")
    assert line.endswith(
        f"adds no bias to its scores (supports_bias is False), which "
        f"positional_encoding={encoding} needs"
    )


@pytest.mark.parametrize("encoding", ["sinusoidal", "rope"])
def test_attention_without_bias_passes_with_an_encoding_that_has_none(tmp_path, kept, encoding):
    source = GOOD["attention"].replace("supports_bias = True", "supports_bias = False")
    check_layers(shape(attention=kept(source), positional_encoding=encoding), tmp_path)


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("import no_such_module\n", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("1 / 0\n", "ZeroDivisionError: division by zero"),
        (
            "from . import beside\n",
            "ImportError: attempted relative import with no known parent package",
        ),
    ],
)
def test_a_module_that_does_not_load_is_refused_each_time(refused, places, first, expected):
    source = first + "class Mine(AttentionMechanism):\n    pass\n"
    for _ in range(2):  # and what has half loaded is not taken for loaded
        assert refused("attention", source) == f"mymodule:Mine: {expected}"
    assert places == [IMPORTS.count("\n") + 1] * 2


# What only a trained model would show

GATE = "            self.gate = nn.Parameter(torch.zeros(()))\n"
LEAKS = {
    "attention": f"""
        class Mine(FullAttention):
            def __init__(self, config):
                super().__init__(config)
    {GATE}
            def forward(self, Q, K, V, context):
                return super().forward(Q, K, V, context) + self.gate * V.mean(2, keepdim=True)
        """,
    "positional_encoding": f"""
        class Mine(PositionalEncoding):
            def __init__(self, config, causal, init):
                super().__init__(config, causal, init)
    {GATE}
            def embed(self, x, positions):
                return x + self.gate * x.flip(1).cumsum(1).flip(1)
        """,
    "activation": f"""
        class Mine(Activation):
            def __init__(self):
                super().__init__()
    {GATE}
            def forward(self, x):
                return x.relu() + self.gate * x.mean(1, keepdim=True)
        """,
    "norm": f"""
        class Mine(nn.Module):
            def __init__(self, d_model):
                super().__init__()
    {GATE}
            def forward(self, x):
                return x + self.gate * x.roll(-1, 1)
        """,
}
LEAK_WORDS = {
    "attention": FUTURE,
    "positional_encoding": ALONE,
    "activation": ALONE,
    "norm": ALONE,
}


@both
@every_field
def test_a_leak_behind_a_gate_that_starts_at_zero_is_refused(refused, field, architecture):
    assert (
        refused(field, LEAKS[field], architecture=architecture)
        == f"mymodule:Mine: {LEAK_WORDS[field]}"
    )


@pytest.mark.parametrize(
    ("method", "body"),
    [
        ("embed(self, x, positions)", "x + self.gate * torch.arange(x.shape[1])[:, None].sin()"),
        (
            "rotate(self, x, positions)",
            "x * (1 + self.gate * torch.arange(x.shape[2])[:, None].sin())",
        ),
        (
            "bias(self, layer, Q, queries, keys)",
            "self.gate * (torch.arange(queries.shape[-1])[:, None] - "
            "torch.arange(keys.shape[-1]))[None, None].sin()",
        ),
        (
            "values(self, layer, weights, queries, keys)",
            "self.gate * weights @ torch.arange(keys.shape[-1])[:, None].sin()",
        ),
    ],
    ids=["embed", "rotate", "bias", "values"],
)
def test_indices_in_the_place_of_positions_are_refused(refused, method, body):
    source = f"""
        class Mine(PositionalEncoding):
            def __init__(self, config, causal, init):
                super().__init__(config, causal, init)
    {GATE}
            def {method}:
                return {body}
        """
    assert refused("positional_encoding", source) == f"mymodule:Mine: {INDICES}"


def test_a_norm_by_the_statistics_of_the_batch_is_refused(refused):
    """It treats each token alone when evaluating, and in training none."""
    source = """
        class Mine(nn.Module):
            def __init__(self, d_model):
                super().__init__()
                self.norm = nn.BatchNorm1d(d_model, momentum=0.0)

            def forward(self, x):
                return self.norm(x.flatten(0, -2)).view(x.shape)
        """
    line = (
        "mymodule:Mine: lets a token depend on later ones while training; each token must be "
        "treated alone"
    )
    assert refused("norm", source) == line


def test_a_class_in_a_pattern_is_checked(tmp_path, kept):
    """An activation that mixes tokens, in the second of two layers."""
    mine = kept("""
        class Mine(Activation):
            def forward(self, x):
                return x + x.mean(dim=-2, keepdim=True)
        """)
    config = shape(architecture="decoder-only", activation=["relu", mine])
    with pytest.raises(StudyError, match="each token must be treated alone"):
        check_layers(config, tmp_path)


def test_of_several_classes_the_one_at_fault_is_named(tmp_path, kept):
    fields = {field: kept(source) for field, source in GOOD.items() if field != "norm"}
    fields["norm"] = kept(LEAKS["norm"]).replace("mymodule", "other")
    with pytest.raises(
        StudyError, match=r"^other\.py:\d+: other:Mine: lets a token depend on later ones"
    ):
        check_layers(shape(**fields), tmp_path)


# The source of the class


@pytest.mark.parametrize("change", ["tampered", "removed", "folder", "pipe"])
def test_a_source_with_another_hash_than_pinned_is_refused(tmp_path, kept, change):
    """A module that is already loaded changes nothing about it."""
    pinned = kept(GOOD["attention"])
    (path,) = tmp_path.iterdir()
    config = shape(attention=pinned)
    build(config, V, 1, sources=tmp_path)
    source = path.read_bytes()
    path.unlink()
    if change == "tampered":
        path.write_bytes(source + b"#")
    elif change in ("folder", "pipe"):
        {"folder": os.mkdir, "pipe": os.mkfifo}[change](path)
    with pytest.raises(StoreError) as caught:
        check_layers(config, tmp_path)
    expected = f"{path}: is not the source of {pinned}; remove the run to train it again"
    assert caught.value.lines == (expected,)


def test_two_versions_of_a_module_are_two_classes(tmp_path, kept):
    def constant(number):
        return f"class Mine(Activation):\n    def forward(self, x):\n        return {number} * x\n"

    source, target = sentences(5), sentences(7, seed=2)
    first, second, again = (
        build(shape(activation=kept(constant(number))), V, 1, sources=tmp_path).eval()(
            source, target
        )
        for number in (2, 3, 2)
    )
    assert first.equal(again)
    assert not first.allclose(second, atol=0.01)


def test_compiled_files_are_neither_read_nor_written(tmp_path, kept):
    """The hash covers the source only; compiled code beside it could come from another."""
    import importlib.util
    import py_compile
    import sys

    pinned = kept("class Mine(Activation):\n    def forward(self, x):\n        return 2 * x\n")
    (path,) = tmp_path.iterdir()
    config = shape(activation=pinned)
    source, target = sentences(5), sentences(7, seed=2)
    right = build(config, V, 1, sources=tmp_path).eval()(source, target)
    assert list(tmp_path.iterdir()) == [path]

    content, times = path.read_bytes(), path.stat()
    path.write_bytes(content.replace(b"return 2", b"return 3"))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    py_compile.compile(str(path), importlib.util.cache_from_source(str(path)))
    path.write_bytes(content)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    (loaded,) = (
        name for name in sys.modules if name.startswith(PREFIX) and name.endswith(path.stem)
    )
    del sys.modules[loaded]
    assert build(config, V, 1, sources=tmp_path).eval()(source, target).equal(right)
