"""Classes of a user's own are tried before anything is trained; each fault is one line."""

import importlib.util
import os
import py_compile
import re
import sys
import textwrap

import pytest
import torch

from ablate.checks.layers import check_layers
from ablate.config.cost import parameters
from ablate.custom.reference import PREFIX
from ablate.custom.source import source_hash
from ablate.errors import StoreError, StudyError
from ablate.model import build
from tests.model.small import V, sentences, shape

IMPORTS = """\
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from ablate.components import (
    Activation, AttentionMechanism, FullAttention, LayerNorm, LearnedPositions, PositionalEncoding, ReLU, Residual,
    TokenMixer,
)
"""
ARCHITECTURES = ("encoder-decoder", "decoder-only")
# Base class, parameters of the constructor, those of the base, and the method of each kind.
KINDS = {
    "attention": ("AttentionMechanism", "config", "config", "forward(self, Q, K, V, context)"),
    "positional_encoding": ("PositionalEncoding", "config, causal, init", "config, causal, init",
                            "embed(self, x, positions)"),
    "activation": ("Activation", "", "", "forward(self, x)"),
    "norm": ("nn.Module", "d_model", "", "forward(self, x)"),
    "feed_forward": ("nn.Module", "config", "", "forward(self, x)"),
    "norm_position": ("Residual", "*given", "*given", "after(self, x, output)"),
}  # fmt: skip


def mine(field, body, init="", method="", base=""):
    """The source of a class for a field: the body of its method, and what its constructor adds."""
    own_base, taken, passed, own_method = KINDS[field]
    constructor = textwrap.indent(f"super().__init__({passed})\n{init}", " " * 8)
    if field == "norm_position":
        constructor += "\n    def before(self, x):\n        return self.norm(x)\n"
    return (
        f"class Mine({base or own_base}):\n    def __init__(self, {taken}):\n{constructor}\n"
        f"    def {method or own_method}:\n{textwrap.indent(body, ' ' * 8)}\n"
    )


@pytest.fixture
def pinned(tmp_path):
    """Store a source as a run does; returns the pinned reference to the class `Mine` in it."""

    def pin(source):
        content = (IMPORTS + textwrap.dedent(source)).encode()
        (tmp_path / f"{source_hash(content)}.py").write_bytes(content)
        return f"mymodule:Mine@{source_hash(content)}"

    return pin


@pytest.fixture
def places():
    """The lines of the module that refusals name."""
    return []


@pytest.fixture
def refused(tmp_path, pinned, places):
    """The one line with which a class is refused, after its file, its line and its name."""

    def line(field, source, **fields):
        with pytest.raises(StudyError) as caught:
            check_layers(shape(**{field: pinned(source)}, **fields), tmp_path)
        (message,) = caught.value.lines
        assert "\n" not in message
        place = re.fullmatch(r"mymodule\.py:(\d+): (?:mymodule:Mine:? )?(.*)", message)
        assert 1 <= int(place[1]) <= len((IMPORTS + textwrap.dedent(source)).splitlines())
        places.append(int(place[1]))
        return place[2]

    return line


# Classes that fit

COSINE = """
    class Mine(AttentionMechanism):
        supports_bias = True

        def __init__(self, config):
            super().__init__(config)
            self.gain = nn.Parameter(torch.tensor(3.0))

        def forward(self, Q, K, V, context):
            scores = self.gain * F.normalize(Q, dim=-1) @ F.normalize(K, dim=-1).transpose(-1, -2)
            bias = context.bias(Q)
            return context.weights(scores if bias is None else scores + bias) @ V
    """
MIXER = """
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
MATRIX = "self.W = nn.Parameter(torch.eye(config.d_model))"
GAIN = "self.gain = nn.Parameter(torch.ones(d_model))"
GOOD = {
    "attention": COSINE,
    "positional_encoding": mine(
        "positional_encoding",
        "return -(keys[..., None, :] - queries[..., :, None]).abs().sqrt().unsqueeze(-3)",
        method="bias(self, layer, Q, queries, keys)",
    ),
    "activation": "class Mine(Activation):\n    gated = True\n\n    def forward(self, x):\n        return x.sigmoid()\n",
    "norm": mine("norm", "return self.gain * x / (x.abs().mean(-1, keepdim=True) + 1e-6)", GAIN),
    "feed_forward": mine("feed_forward", "return (x @ self.W).tanh()", MATRIX),
    "norm_position": mine("norm_position", "return self.add(x, output * x.sigmoid())"),
    "mixer": MIXER,
}  # fmt: skip
TOGETHER = ("attention", "positional_encoding", "activation", "norm")
both = pytest.mark.parametrize("architecture", ARCHITECTURES)


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "encoder-only"])
@pytest.mark.parametrize(
    ("field", "others"),
    [(field, {}) for field in GOOD]
    + [(field, {"positional_encoding": "alibi"}) for field in ("attention", "activation", "norm")]
    + [(field, {"norm_position": "pre"}) for field in TOGETHER]
    + [
        ("feed_forward", {"n_experts": 2}),
        ("feed_forward", {"norm_position": "none"}),
        ("mixer", {"d_k": 7, "qk_norm": "head"}),
        ("attention", {"score_cap": 50.0}),
        ("attention", {"attention_sinks": True}),
    ],
    ids=str,
)
def test_a_correct_class_passes(tmp_path, pinned, field, others, architecture):
    fields = {**others, field: pinned(GOOD[field])}
    check_layers(shape(architecture=architecture, **fields), tmp_path)


@pytest.mark.parametrize("encoding", ["sinusoidal", "rope", "relative", "t5", "alibi"])
def test_a_class_may_derive_from_a_built_in_variant(tmp_path, pinned, encoding):
    body = "return 2 * super().forward(Q, K, V, context)"
    source = mine("attention", body, base="FullAttention")
    check_layers(shape(attention=pinned(source), positional_encoding=encoding), tmp_path)


@pytest.mark.parametrize("encoding", ["sinusoidal", "rope"])
def test_attention_without_bias_passes_with_an_encoding_that_has_none(tmp_path, pinned, encoding):
    source = COSINE.replace("supports_bias = True", "supports_bias = False")
    check_layers(shape(attention=pinned(source), positional_encoding=encoding), tmp_path)


@pytest.mark.parametrize(
    ("field", "source"),
    [
        ("activation", mine("activation", "return F.relu(x, inplace=True)")),
        # A list of known modules, and an activation that is stored.
        ("norm", mine("norm", "self.last = self.all[0](x)\nreturn self.last",
                      "self.norm = nn.LayerNorm(d_model)\nself.all = [self.norm]")),
    ],
)  # fmt: skip
def test_what_looks_like_a_fault_and_is_none_passes(tmp_path, pinned, field, source):
    check_layers(shape(**{field: pinned(source)}), tmp_path)


# What a model is made of


@pytest.mark.parametrize("field", TOGETHER)
def test_the_model_uses_the_code_and_the_parameters_of_the_class(tmp_path, pinned, field):
    """Its parameters are among the model's, and every state depends on its code."""
    config = shape(**{field: pinned(GOOD[field])})
    model, plain = build(config, V, 1, sources=tmp_path).eval(), build(shape(), V, 1).eval()
    (first, *_) = (part for part in model.modules() if type(part).__name__ == "Mine")
    assert type(first).__module__.startswith(PREFIX)
    source, target = sentences(5, 3), sentences(7, 2, seed=2)
    difference = (model(source, target) - plain(source, target)).detach().abs().amax(-1)
    assert bool((difference[target != 0] > 1e-4).all())
    names = {name for name, _ in model.named_parameters() if name.endswith("gain")}
    assert bool(names) == (field in ("attention", "norm"))


@pytest.mark.parametrize(
    ("method", "asked"), [("embed", False), ("rotate", False), ("bias", True), ("values", True)]
)
def test_acts_on_scores_follows_from_the_methods_that_an_encoding_defines(
    tmp_path, pinned, method, asked
):
    """An author need not declare it, and so cannot forget to."""
    source = mine("positional_encoding", "raise AssertionError", method=f"{method}(self, *given)")
    model = build(shape(positional_encoding=pinned(source)), V, 1, sources=tmp_path)
    encodings = model.source_positions, model.target_positions
    assert [encoding.acts_on_scores for encoding in encodings] == [asked, asked]


def differences(ours, theirs):
    return [name for name in ours if name in theirs and not torch.equal(ours[name], theirs[name])]


@both
@pytest.mark.parametrize(
    ("field", "base", "name"),
    [
        ("attention", "FullAttention", "full"),
        ("positional_encoding", "LearnedPositions", "learned"),
        ("activation", "ReLU", "relu"),
        ("norm", "LayerNorm", "layernorm"),
    ],
)
def test_a_class_like_a_built_in_one_gives_a_model_of_the_same_initial_weights(
    tmp_path, pinned, field, base, name, architecture
):
    ours, theirs = (
        build(
            shape(architecture=architecture, **{field: value}), V, 1, sources=tmp_path
        ).state_dict()
        for value in (pinned(f"class Mine({base}): pass"), name)
    )
    assert ours.keys() == theirs.keys()
    assert differences(ours, theirs) == []


@both
@pytest.mark.parametrize("field", ["feed_forward", "mixer"])
def test_all_other_parts_have_the_initial_weights_that_they_have_without_the_class(
    tmp_path, pinned, field, architecture
):
    ours, theirs = (
        build(shape(architecture=architecture, **fields), V, 1, sources=tmp_path).state_dict()
        for fields in ({field: pinned(GOOD[field])}, {})
    )
    assert len(ours.keys() & theirs.keys()) > len(ours) / 3
    assert differences(ours, theirs) == []


def test_each_instance_of_a_class_draws_weights_of_its_own(tmp_path, pinned):
    network = GOOD["feed_forward"].replace("torch.eye(config.d_model)", "torch.randn(3)")
    model = build(shape(feed_forward=pinned(network), n_experts=3), V, 1, sources=tmp_path)
    drawn = [value.tolist() for name, value in model.state_dict().items() if name.endswith(".W")]
    assert len(drawn) == 3 * 4
    assert [value for value in drawn if drawn.count(value) > 1] == []


def test_numbers_drawn_from_torchs_global_generator_follow_from_the_seed(tmp_path, pinned):
    source = mine("norm", "return x * self.gain", GAIN.replace("ones", "randn"))
    config, before = shape(norm=pinned(source)), torch.get_rng_state()
    first, same, other = (
        build(config, V, seed, sources=tmp_path).state_dict() for seed in (1, 1, 2)
    )
    assert differences(first, same) == []
    gains = {name for name in first if name.endswith("gain")}
    assert gains
    assert gains <= set(differences(first, other))
    assert torch.equal(torch.get_rng_state(), before)  # the global generator is restored


def test_a_residual_connection_knows_the_fields_of_the_model(tmp_path, pinned):
    body = "return self.add(x, self.gate * output)"
    gate = "self.gate = nn.Parameter(torch.ones(self.config.d_model))"
    config = shape(norm_position=pinned(mine("norm_position", body, gate)))
    check_layers(config, tmp_path)
    gates = [
        value
        for name, value in build(config, V, 1, sources=tmp_path).named_parameters()
        if name.endswith("gate")
    ]
    assert {value.shape for value in gates} == {(26,)}


@both
def test_the_parameters_of_a_residual_connection_are_counted(tmp_path, pinned, architecture):
    config = shape(architecture=architecture, norm_position=pinned(GOOD["norm_position"]))
    model = build(config, V, 1, sources=tmp_path)
    assert sum(p.numel() for p in model.parameters()) == parameters(config, V)


def test_a_mixer_of_its_own_meets_masks_of_documents(tmp_path, pinned):
    fields = {"architecture": "decoder-only", "document_masks": True, "mixer": pinned(MIXER)}
    with pytest.raises(StudyError, match=r"mixer=mymodule:Mine cannot tell documents apart"):
        build(shape(**fields), V, 1, sources=tmp_path)


# Shapes


@pytest.mark.parametrize(
    ("field", "body", "fault"),
    [
        ("attention", "return Q", "forward returns shape (2, 3, 7, 10); expected (2, 3, 7, 7)"),
        ("attention", "return V.mean()", "forward returns shape (); expected (2, 3, 7, 7)"),
        ("positional_encoding", "return x[..., 1:]", "embed returns shape (2, 7, 25); expected (2, 7, 26)"),
        ("activation", "return x[..., 1:]", "forward returns shape (2, 7, 18); expected (2, 7, 19)"),
        ("norm", "return x[:, 1:]", "forward returns shape (2, 6, 26); expected (2, 7, 26)"),
        ("feed_forward", "return x[..., 1:]", "forward returns shape (2, 7, 25); expected (2, 7, 26)"),
        ("norm", "return [x]", "forward returns list, not a tensor"),
        *((field, "x = 1", f"{method} returns NoneType, not a tensor; is a return missing?") for field, method in (
            ("attention", "forward"), ("positional_encoding", "embed"), ("activation", "forward"), ("norm", "forward"),
        )),
    ],
)  # fmt: skip
def test_a_wrong_result_is_refused_with_the_line_of_its_method(refused, places, field, body, fault):
    source = mine(field, body)
    assert refused(field, source) == fault
    assert places == [len((IMPORTS + source).splitlines()) - 1]


@pytest.mark.parametrize(
    ("method", "body", "fault"),
    [
        ("rotate", "given[0][:, :, 1:]", "returns shape (2, 3, 6, 10); expected (2, 3, 7, 10)"),
        ("bias", "given[1]", "returns shape (2, 3, 7, 10); expected (2, 3, 7, 7)"),
    ],
)
def test_a_rotation_or_a_bias_of_a_wrong_shape_is_refused(refused, method, body, fault):
    source = mine("positional_encoding", f"return {body}", method=f"{method}(self, *given)")
    assert refused("positional_encoding", source) == f"{method} {fault}"


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "encoder-only"])
@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("norm", "x -= x.mean(-1, keepdim=True)\nreturn x"),
        ("norm", "with torch.no_grad():\n    x /= 2\nreturn x"),
        ("attention", "with torch.no_grad():\n    V *= 2\nreturn Q.mean(3, keepdim=True) * V"),
        ("feed_forward", "return x.mul_(2)"),
    ],
)
def test_a_class_that_changes_what_others_read_is_refused(refused, field, body, architecture):
    """A residual connection would add the changed tensor, and autograd would know nothing of it."""
    line = refused(field, mine(field, body), architecture=architecture, norm_position="pre")
    assert line == (
        "forward changes its input in place, which other parts of the model read; make a new tensor"
    )


FORMULA = "context.weights(Q @ K.transpose(-1, -2)) @ V"
SOFTMAX = """\
scores = Q @ K.transpose(-1, -2) * context.scale
return scores.masked_fill(~context.mask(), -1e9).softmax(-1) @ V"""
UNKNOWN = (
    "its attribute gains has parameters that torch does not know, so they would never learn; use "
    "nn.Parameter, nn.ParameterList or nn.ModuleList"
)
BY_CONTEXT = (
    "its scores do not pass through `context.weights`, which applies score_cap and "
    "attention_sinks; a class without scores, or with a cap of its own, must set "
    "forms_scores = False"
)


@pytest.mark.parametrize(
    ("field", "body", "init", "fields", "fault"),
    [
        ("activation", "return x.sqrt()", "", {}, "gives NaN or infinite outputs"),
        ("attention", f"return ({FORMULA}).detach()", "", {},
         "its output has no gradient with respect to V, so the layers below would never learn"),
        ("attention", SOFTMAX, "", {"architecture": "decoder-only", "score_cap": 50.0}, BY_CONTEXT),
        ("attention", SOFTMAX, "", {"architecture": "decoder-only", "attention_sinks": True}, BY_CONTEXT),
        ("attention", "return context.weights((Q @ K.transpose(-1, -2)).detach()) @ V", "", {},
         "its output depends on W_Q and W_K of the attention but has no gradient there, so these weights would "
         "never learn; is there a detach()?"),
        ("attention", "return context.weights(Q @ K.detach().transpose(-1, -2)) @ V", "", {"architecture": "decoder-only"},
         "its output depends on W_K of the attention but has no gradient there, so these weights would "
         "never learn; is there a detach()?"),
        ("norm", "return x", GAIN, {}, "its parameter gain has no gradient, so it would never learn"),
        ("norm", "return x", "self.gains = [nn.Parameter(torch.ones(d_model))]", {}, UNKNOWN),
        ("norm", "return x", "self.gains = {'a': nn.Linear(d_model, 1)}", {}, UNKNOWN),
        ("norm", "return x", "self.gains = torch.ones(d_model, requires_grad=True)", {}, UNKNOWN),
    ],
)  # fmt: skip
def test_a_class_that_would_not_learn_is_refused(refused, field, body, init, fields, fault):
    assert refused(field, mine(field, body, init), **fields) == fault


@pytest.mark.parametrize(
    "method", ["", "    def embedd(self, x, positions):\n        return x + 1\n"]
)
def test_a_positional_encoding_without_effect_is_refused(refused, method):
    source = f"class Mine(PositionalEncoding):\n    pass\n{method}"
    expected = "defines none of embed, rotate, bias, values, so it has no effect"
    assert refused("positional_encoding", source) == expected


@pytest.mark.parametrize(
    ("right", "wrong", "fault"),
    [
        ("stack(out, dim=1), Memory(sums)", "stack(out, dim=1)", "forward returns Tensor, not"),
        ("Memory(sums)\n    ", "sums.tolist()\n    ", "the state list, which has no method select"),
        ("stack(out, dim=1), M", "stack(out, dim=1)[..., :1], M", "expected (2, 14, 26)"),
        ("if real is None else torch.where(real[:, t, None], after, sums)", "", "its last token that"),
        ("if past is None else past.sums", "", "incremental decoding disagrees"),
        ("values = self.value(x)", "values = self.value(x).flip(1)", "depend on later ones"),
        ("self.rate.sigmoid()", "0.5", "its parameter rate has no gradient"),
        ("values = self.value(x)", "values = self.value(x.mul_(2))", "changes its input in place"),
    ],
)  # fmt: skip
def test_a_mixer_with_a_fault_is_refused(refused, right, wrong, fault):
    assert MIXER.count(right) == 1
    assert fault in refused("mixer", MIXER.replace(right, wrong), architecture="decoder-only")


# The past cannot see the future, padding changes nothing, steps equal the whole

MASKS = "`context.mask()` has the allowed keys"
ALONE = "each token must be treated alone"
FUTURE = "lets a token depend on later ones"
PADDING = f"lets padding change a sentence; {MASKS}"
STEPS = "incremental decoding disagrees with the full forward pass"
QUERIES = f"{STEPS}; Q may have only the last tokens: {MASKS}, and positions are `context.query_positions` and `context.key_positions`"  # fmt: skip
INDICES = f"{STEPS}; take positions from the arguments `positions`, `queries` and `keys`"
QUERY_MASKS = (
    "a class with `supports_query_masks` must give no weight to keys that `context.mask()` excludes"
)
GATE = "self.gate = nn.Parameter(torch.zeros(()))"  # what only a trained model would show
SCORES = "scores = Q @ K.transpose(-1, -2)\n"
REAL = (
    "if context.key_mask is not None:\n    scores = scores.masked_fill(~context.key_mask, -1e9)\n"
)
EARLIER = """\
if context.causal:
    scores = scores.masked_fill(context.query_positions[:, None] < context.key_positions, -1e9)
"""
TRIANGLE = "if context.causal:\n    scores = scores + torch.full_like(scores, -1e9).triu(1)\n"
HEADS = "return scores.softmax(-1) @ V"
BATCH_NORM = "self.norm = nn.BatchNorm1d(d_model, momentum=0.0)"


@both
@pytest.mark.parametrize(
    ("field", "body", "init", "fault"),
    [
        ("attention", SCORES + REAL + HEADS, "", f"{FUTURE}; {MASKS}"),
        ("norm", "return x - x.mean(1, keepdim=True)", "", f"{FUTURE}; {ALONE}"),
        ("norm_position", "return self.add(x, output.flip(1))", "", f"{FUTURE}; {ALONE}"),
        ("feed_forward", "return (x @ self.W).cumsum(-2)", MATRIX, f"{STEPS}; {ALONE}"),
        # It treats each token alone when evaluating, and in training none.
        ("norm", "return self.norm(x.flatten(0, -2)).view(x.shape)", BATCH_NORM,
         f"{FUTURE} while training; {ALONE}"),
        ("positional_encoding", "return x + torch.arange(x.shape[1])[:, None]", "", INDICES),
        ("positional_encoding", "return x + self.gate * x.flip(1).cumsum(1).flip(1)", GATE, f"{FUTURE}; {ALONE}"),
        ("activation", "return x.relu() + self.gate * x.mean(1, keepdim=True)", GATE, f"{FUTURE}; {ALONE}"),
        ("norm", "return x + self.gate * x.roll(-1, 1)", GATE, f"{FUTURE}; {ALONE}"),
    ],
)  # fmt: skip
def test_a_token_that_depends_on_others_is_refused(refused, field, body, init, fault, architecture):
    position = (
        {}
        if field == "norm_position"
        else {"norm_position": "none" if field == "feed_forward" else "post"}
    )
    assert refused(field, mine(field, body, init), architecture=architecture, **position) == fault


@both
def test_a_leak_of_attention_behind_a_gate_that_starts_at_zero_is_refused(refused, architecture):
    body = "return super().forward(Q, K, V, context) + self.gate * V.mean(2, keepdim=True)"
    source = mine("attention", body, GATE, base="FullAttention")
    assert refused("attention", source, architecture=architecture) == f"{FUTURE}; {MASKS}"


@both
def test_attention_that_ignores_padding_is_refused(refused, architecture):
    """In a causal stack padding is behind every token, until tokens are decoded one by one after a
    padded source.
    """
    line = refused(
        "attention", mine("attention", SCORES + TRIANGLE + HEADS), architecture=architecture
    )
    assert line == {"encoder-decoder": PADDING, "decoder-only": QUERIES}[architecture]


@both
def test_attention_that_declares_query_masks_but_ignores_them_is_refused(
    refused, tmp_path, pinned, architecture
):
    """Hypotheses decoded side by side would see one another."""
    source = mine("attention", SCORES + REAL + EARLIER + HEADS)
    check_layers(shape(attention=pinned(source), architecture=architecture), tmp_path)
    declared = source.replace(
        "    def __init__", "    supports_query_masks = True\n\n    def __init__"
    )
    line = refused("attention", declared, architecture=architecture)
    assert line == f"{QUERIES}; {QUERY_MASKS}"


@pytest.mark.parametrize(
    ("method", "body"),
    [
        ("embed(self, x, positions)", "x + self.gate * torch.arange(x.shape[1])[:, None].sin()"),
        ("rotate(self, x, positions)", "x * (1 + self.gate * torch.arange(x.shape[2])[:, None].sin())"),
        ("bias(self, layer, Q, queries, keys)", "self.gate * (torch.arange(queries.shape[-1])[:, None] - "
         "torch.arange(keys.shape[-1]))[None, None].sin()"),
        ("values(self, layer, weights, queries, keys)",
         "self.gate * weights @ torch.arange(keys.shape[-1])[:, None].sin()"),
    ],
    ids=["embed", "rotate", "bias", "values"],
)  # fmt: skip
def test_indices_in_the_place_of_positions_are_refused(refused, method, body):
    source = mine("positional_encoding", f"return {body}", GATE, method)
    assert refused("positional_encoding", source) == INDICES


def test_a_class_in_a_pattern_is_checked(tmp_path, pinned):
    """An activation that mixes tokens, in the second of two layers."""
    mixing = pinned(mine("activation", "return x + x.mean(dim=-2, keepdim=True)"))
    config = shape(architecture="decoder-only", activation=["relu", mixing])
    with pytest.raises(StudyError, match=ALONE):
        check_layers(config, tmp_path)


def test_of_several_classes_the_one_at_fault_is_named(tmp_path, pinned):
    fields = {field: pinned(GOOD[field]) for field in TOGETHER if field != "norm"}
    leak = mine("norm", "return x + self.gate * x.roll(-1, 1)", GATE)
    fields["norm"] = pinned(leak).replace("mymodule", "other")
    with pytest.raises(StudyError, match=rf"^other\.py:\d+: other:Mine: {FUTURE}"):
        check_layers(shape(**fields), tmp_path)


@pytest.mark.parametrize(
    "scores",
    [
        "torch.zeros(*Q.shape[:3], K.shape[2])",
        "(Q @ K.transpose(-1, -2) > 0).float()",
        "K.norm(dim=-1).unsqueeze(2).expand(*Q.shape[:3], -1)",
    ],
    ids=["mean", "sign", "keys"],
)
def test_attention_may_leave_queries_or_keys_unused_or_only_rank_them(tmp_path, pinned, scores):
    source = mine("attention", f"return context.weights({scores}) @ V")
    check_layers(shape(attention=pinned(source)), tmp_path)


# Resume is exact

KEEPS = (
    "gives another result when called again while training: it keeps state outside of its buffers, which a "
    "checkpoint does not have (use register_buffer), or it draws from another generator than torch's"
)


@pytest.mark.parametrize(
    ("field", "body", "init", "fault"),
    [
        ("attention", f"return F.dropout({FORMULA}, 0.1)", "",
         "gives another result when called again: nothing may be random in eval mode"),
        ("attention", f"return F.dropout({FORMULA}, 0.1, self.training)", "",
         "draws from torch's global generator while training, so no run could be resumed; let `context.weights` apply dropout"),
        ("norm", "if self.training:\n    self.mean = 0.9 * self.mean + x.detach().mean()\nreturn self.gain * (x - self.mean)",
         "self.mean, self.gain = torch.zeros(1), nn.Parameter(torch.ones(d_model))", KEEPS),
        ("norm", "import random\nreturn x * self.gain * (random.random() if self.training else 1)", "self.gain = nn.Parameter(torch.ones(d_model))", KEEPS),
        ("norm", "return x * self.gain", "import random\nself.gain = nn.Parameter(random.random() * torch.ones(d_model))",
         "has other initial weights when it is made again with the same seed"),
    ],
)  # fmt: skip
def test_what_cannot_be_repeated_is_refused(refused, field, body, init, fault):
    assert refused(field, mine(field, body, init)) == fault


def test_a_running_mean_may_be_kept_in_a_buffer(tmp_path, pinned):
    """The states of the next step depend on it, but the states of this step do not."""
    body = """
result = self.gain * (x - self.mean)
if self.training:
    self.mean = 0.9 * self.mean + x.detach().mean()
return result
"""
    init = "self.register_buffer('mean', torch.zeros(()))\nself.gain = nn.Parameter(torch.ones(d_model))"
    check_layers(shape(norm=pinned(mine("norm", body, init))), tmp_path)


# Classes that cannot be made


@pytest.mark.parametrize("field", TOGETHER)
@pytest.mark.parametrize(
    ("body", "fault"),
    [
        ("raise ValueError('first\\nsecond')", "ValueError: first second"),
        ("assert False", "AssertionError"),
        ("torch.ones(2) @ torch.ones(3)", "RuntimeError: "),
    ],
)
def test_an_exception_of_the_class_is_one_line_with_its_source_line(
    refused, places, field, body, fault
):
    source = mine(field, body)
    assert refused(field, source).startswith(fault)
    assert places == [len((IMPORTS + source).splitlines())]


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
    assert refused(field, source) == f"TypeError: Mine.__init__() {fault}"


def test_a_constructor_without_the_call_of_its_base_class_gets_the_remedy(refused):
    source = "class Mine(nn.Module):\n    def __init__(self, d_model):\n        self.scale = nn.Parameter(torch.ones(1))\n"
    assert refused("norm", source) == (
        "AttributeError: cannot assign parameters before Module.__init__() call; "
        "call super().__init__(...) first, with the arguments of the base class"
    )


def test_a_wrong_call_within_a_constructor_has_no_hint_about_its_own_arguments(refused):
    source = "class Mine(nn.Module):\n    def __init__(self, d_model):\n        super().__init__(d_model)\n"
    assert refused("norm", source).endswith("takes 1 positional argument but 2 were given")


@pytest.mark.parametrize(
    ("field", "source", "interface"),
    [
        *((field, "class Mine:\n    pass\n", interface) for field, interface in (
            ("attention", "ablate.components.AttentionMechanism"),
            ("positional_encoding", "ablate.components.PositionalEncoding"),
            ("activation", "ablate.components.Activation"),
            ("norm", "torch.nn.Module"),
        )),
        ("attention", "class Mine(nn.Module):\n    pass\n", "ablate.components.AttentionMechanism"),
        ("attention", "class Mine(AttentionMechanism):\n    pass\n\ndel Mine\n", "ablate.components.AttentionMechanism"),
    ],
)  # fmt: skip
def test_the_message_about_a_wrong_base_class_names_the_right_one(
    refused, field, source, interface
):
    assert refused(field, source) == f"does not derive from {interface}"


@pytest.mark.parametrize("encoding", ["relative", "t5", "alibi"])
def test_attention_without_bias_is_refused_with_an_encoding_that_has_one(refused, encoding):
    source = COSINE.replace("supports_bias = True", "supports_bias = False")
    assert refused("attention", source, positional_encoding=encoding) == (
        "attention=mymodule:Mine adds no bias to its scores (supports_bias is False), which "
        f"positional_encoding={encoding} needs"
    )


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("import no_such_module\n", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("1 / 0\n", "ZeroDivisionError: division by zero"),
        ("from . import beside\n", "ImportError: attempted relative import with no known parent package"),
    ],
)  # fmt: skip
def test_a_module_that_does_not_load_is_refused_each_time(refused, places, first, expected):
    source = first + "class Mine(AttentionMechanism):\n    pass\n"
    for _ in range(2):  # and what has half loaded is not taken for loaded
        assert refused("attention", source) == expected
    assert places == [IMPORTS.count("\n") + 1] * 2


# The source of the class


@pytest.mark.parametrize("change", ["tampered", "removed", "folder", "pipe"])
def test_a_source_with_another_hash_than_pinned_is_refused(tmp_path, pinned, change):
    """A module that is already loaded changes nothing about it."""
    reference = pinned(COSINE)
    (path,) = tmp_path.iterdir()
    config = shape(attention=reference)
    build(config, V, 1, sources=tmp_path)
    source = path.read_bytes()
    path.unlink()
    if change == "tampered":
        path.write_bytes(source + b"#")
    elif change in ("folder", "pipe"):
        {"folder": os.mkdir, "pipe": os.mkfifo}[change](path)
    with pytest.raises(StoreError) as caught:
        check_layers(config, tmp_path)
    expected = f"{path}: is not the source of mymodule:Mine; remove the run to train it again"
    assert caught.value.lines == (expected,)


def states(config, sources):
    return build(config, V, 1, sources=sources).eval()(sentences(5), sentences(7, seed=2))


def test_two_versions_of_a_module_are_two_classes(tmp_path, pinned):
    first, second, again = (
        states(shape(activation=pinned(mine("activation", f"return {n} * x"))), tmp_path)
        for n in (2, 3, 2)
    )
    assert first.equal(again)
    assert not first.allclose(second, atol=0.01)


def test_compiled_files_are_neither_read_nor_written(tmp_path, pinned):
    """The hash covers the source only; compiled code beside it could come from another."""
    config = shape(activation=pinned(mine("activation", "return 2 * x")))
    (path,) = tmp_path.iterdir()
    right = states(config, tmp_path)
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
    assert states(config, tmp_path).equal(right)
